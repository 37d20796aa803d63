//! Decodes loads, stores, atomics, asynchronous copies and address conversion.

use super::mods::Mods;
use super::op::{Access, Address, AtomOp, Atomic, Base, CONST, CopyAsync, MemSpace, Op, SINK};
use super::operand::Fit;
use super::{Decoder, LOCAL_WINDOW, SHARED_WINDOW};
use crate::error::Result;
use crate::lanes::int;
use crate::parse::ast::{Arg, Space};
use crate::ty::{Class, Ty};

const SCOPES: &[&str] = &["cta", "cluster", "gpu", "sys"];

impl Decoder {
    pub(super) fn memory(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Option<Op>> {
        let op = match mods.root {
            "ld" | "ldu" | "st" => self.access(mods, args)?,
            "atom" | "red" => self.atomic(mods, args)?,
            "cvta" => self.cvta(mods, args)?,
            "isspacep" => self.isspacep(mods, args)?,
            "prefetch" | "prefetchu" | "discard" | "applypriority" => self.hint(mods, args)?,
            "cp" => self.copy(mods, args)?,
            _ => return Ok(None),
        };
        Ok(Some(op))
    }

    fn space(&self, mods: &mut Mods<'_>) -> MemSpace {
        let names = ["global", "shared", "local", "param", "const", "shared::cta", "param::entry"];
        match mods.one_of(&names) {
            Some("global") => MemSpace::Global,
            Some("shared" | "shared::cta") => MemSpace::Shared,
            Some("local") => MemSpace::Local,
            Some("param" | "param::entry") => MemSpace::Param,
            Some(_) => MemSpace::Const,
            None => MemSpace::Generic,
        }
    }

    /// Decodes the address operand. A variable in brackets must be in the space of the instruction.
    fn address_in(&mut self, mods: &Mods<'_>, arg: &Arg, space: MemSpace) -> Result<Address> {
        let (mut address, of) = self.address(arg)?;
        let Some(of) = of else {
            if matches!(address.base, Base::R32(_))
                && !matches!(space, MemSpace::Shared | MemSpace::Local | MemSpace::Param)
            {
                return Err(mods.error("needs a 64-bit address"));
            }
            return Ok(address);
        };
        let fits = match (space, of) {
            (MemSpace::Generic, Space::Global) => true,
            (MemSpace::Generic, Space::Shared) => {
                address.offset = address.offset.wrapping_add(SHARED_WINDOW as i64);
                true
            }
            (MemSpace::Generic, Space::Local) => {
                address.offset = address.offset.wrapping_add(LOCAL_WINDOW as i64);
                true
            }
            (MemSpace::Global, Space::Global)
            | (MemSpace::Const, Space::Const)
            | (MemSpace::Shared, Space::Shared)
            | (MemSpace::Local, Space::Local)
            | (MemSpace::Param, Space::Param) => true,
            _ => false,
        };
        if fits { Ok(address) } else { Err(mods.error("the variable is of another state space")) }
    }

    /// Records the smallest access, which is the granule of the shadow memory.
    pub(super) fn note_granule(&mut self, space: MemSpace, bytes: u32) {
        let kernel = &mut self.kernel;
        if matches!(space, MemSpace::Shared | MemSpace::Generic) {
            kernel.shared_granule = kernel.shared_granule.min(bytes);
        }
        if matches!(space, MemSpace::Global | MemSpace::Generic) {
            kernel.global_granule = kernel.global_granule.min(bytes);
        }
    }

    fn access(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        let is_load = mods.root != "st";
        let mmio = mods.has("mmio");
        let strong = mods.one_of(&["relaxed", "acquire", "release", "volatile"]).is_some() || mmio;
        mods.has("weak");
        mods.one_of(SCOPES);
        let space = self.space(mods);
        let is_nc = mods.root == "ldu" || (is_load && mods.has("nc"));
        if is_nc && !matches!(space, MemSpace::Global | MemSpace::Generic) {
            return Err(mods.error("`.nc` is for global memory"));
        }
        mods.one_of(&["ca", "cg", "cs", "lu", "cv", "wb", "wt"]);
        mods.one_of(&[
            "L1::evict_normal",
            "L1::evict_unchanged",
            "L1::evict_first",
            "L1::evict_last",
            "L1::no_allocate",
        ]);
        if is_load {
            mods.one_of(&["L2::64B", "L2::128B", "L2::256B"]);
        }
        let count = match mods.one_of(&["v2", "v4", "v8"]) {
            Some("v2") => 2,
            Some("v4") => 4,
            Some(_) => 8,
            None => 1,
        };
        let ty = mods.ty()?;
        let bytes = ty.bytes() * count;
        if ty == Ty::Pred || ty.bytes() > 8 || bytes > 32 || ty == Ty::TF32 || ty.is_float8() {
            return Err(mods.error("no access of this type and size"));
        }
        if !is_load && matches!(space, MemSpace::Param | MemSpace::Const) {
            return Err(mods.error("this state space is read-only"));
        }
        self.arity(args, &[2])?;
        let (regs, address) = if is_load { (&args[0], &args[1]) } else { (&args[1], &args[0]) };
        let address = self.address_in(mods, address, space)?;
        let elements = self.elements(regs).to_vec();
        if elements.len() != count as usize {
            return Err(mods.error(format!("{} registers for {count} elements", elements.len())));
        }
        let mut rows = Vec::new();
        let mut reg_bytes = ty.bytes();
        for element in &elements {
            let (reg, row) = if is_load {
                self.dst_fit(element, ty, Fit::Wider)?
            } else {
                self.src_fit(element, ty, Fit::Wider)?
            };
            if row != SINK {
                reg_bytes = reg_bytes.max(reg.bytes());
            }
            rows.push((reg, row));
        }
        if rows.iter().any(|(reg, row)| {
            *row != SINK && *row & CONST == 0 && reg.class() != class_of(reg_bytes)
        }) {
            return Err(mods.error("registers of different sizes"));
        }
        if reg_bytes == 8 && ty.bytes() < 8 {
            // A constant has the size of the element; it cannot be mixed with 64-bit registers.
            if rows.iter().any(|(_, row)| *row != SINK && *row & CONST != 0) {
                return Err(mods.error("constants beside wider registers"));
            }
        }
        let rows: Vec<u32> = rows.into_iter().map(|(_, row)| row).collect();
        self.note_granule(space, ty.bytes());
        let access = Access {
            space,
            address,
            ty,
            count,
            regs: self.list(&rows),
            reg_bytes,
            is_strong: strong,
            is_nc,
            site: self.site(),
        };
        Ok(if is_load { Op::Load(access) } else { Op::Store(access) })
    }

    fn atomic(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        mods.one_of(&["relaxed", "acquire", "release", "acq_rel"]);
        mods.one_of(SCOPES);
        let space = self.space(mods);
        let names = ["add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"];
        let op = match mods.need_one_of(&names)? {
            "add" => AtomOp::Add,
            "min" => AtomOp::Min,
            "max" => AtomOp::Max,
            "and" => AtomOp::And,
            "or" => AtomOp::Or,
            "xor" => AtomOp::Xor,
            "exch" => AtomOp::Exch,
            "cas" => AtomOp::Cas,
            "inc" => AtomOp::Inc,
            _ => AtomOp::Dec,
        };
        mods.has("noftz");
        let ty = mods.ty()?;
        let is_red = mods.root == "red";
        let fits = match op {
            AtomOp::Add => !ty.is_bits() && ty != Ty::S64 && ty.bytes() >= 2,
            AtomOp::Min | AtomOp::Max => ty.is_int() && ty.bytes() >= 4,
            AtomOp::And | AtomOp::Or | AtomOp::Xor => ty.is_bits() && ty.bytes() >= 4,
            AtomOp::Exch | AtomOp::Cas => !is_red && ty.is_bits() && ty.bytes() >= 2,
            AtomOp::Inc | AtomOp::Dec => ty == Ty::U32,
        };
        let fits = fits
            && !matches!(ty, Ty::U16 | Ty::S16 | Ty::TF32 | Ty::F32x2 | Ty::Pred)
            && !ty.is_float8();
        if !fits {
            return Err(mods.unknown());
        }
        let is_cas = op == AtomOp::Cas;
        let first = usize::from(!is_red);
        self.arity(args, &[first + 2 + usize::from(is_cas)])?;
        let d = if is_red { SINK } else { self.dst(&args[0], ty)? };
        let address = self.address_in(mods, &args[first], space)?;
        if matches!(space, MemSpace::Local | MemSpace::Param | MemSpace::Const) {
            return Err(mods.error("no atomics in this state space"));
        }
        let a = self.src(&args[first + 1], ty)?;
        let b = if is_cas { self.src(&args[first + 2], ty)? } else { CONST };
        self.note_granule(space, ty.bytes());
        let site = self.site();
        Ok(Op::Atomic(Atomic { op, space, address, ty, d, a, b, site }))
    }

    /// Decodes `cvta.space`, which returns a generic address, and `cvta.to.space`, which takes one.
    fn cvta(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        let to = mods.has("to");
        let space = self.space(mods);
        if mods.ty()? != Ty::U64 {
            return Err(mods.error("only 64-bit addresses are supported"));
        }
        self.arity(args, &[2])?;
        let window = match space {
            MemSpace::Shared => SHARED_WINDOW,
            MemSpace::Local => LOCAL_WINDOW,
            MemSpace::Global | MemSpace::Const => 0,
            _ => return Err(mods.unknown()),
        };
        let d = self.dst(&args[0], Ty::U64)?;
        let a = self.src(&args[1], Ty::U64)?;
        if window == 0 {
            return Ok(Op::Mov64 { d, a });
        }
        let f = int::binary(if to { "sub" } else { "add" }, Ty::U64).expect("both exist");
        let window = self.const_row(window, true);
        Ok(Op::Lane { f, d, s: [a, window, CONST, CONST] })
    }

    fn isspacep(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        let space = self.space(mods);
        self.arity(args, &[2])?;
        let p = self.pdst(&args[0])?;
        let a = self.src(&args[1], Ty::U64)?;
        Ok(Op::IsSpace { space, p, a })
    }

    /// Cache hints have no effect, but their operands are read.
    fn hint(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        self.space(mods);
        if mods.root == "discard" {
            return Err(mods.error("is not supported"));
        }
        mods.one_of(&["L1", "L2", "L2::evict_normal", "L2::evict_last"]);
        if let Some(arg) = args.first() {
            self.address(arg)?;
        }
        Ok(Op::Nothing)
    }

    fn copy(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        if !mods.has("async") {
            return Err(mods.unknown());
        }
        self.kernel.has_copies = true;
        if mods.has("commit_group") {
            self.arity(args, &[0])?;
            return Ok(Op::CopyCommit);
        }
        if mods.has("wait_all") {
            self.arity(args, &[0])?;
            return Ok(Op::CopyWait(None));
        }
        if mods.has("wait_group") {
            self.arity(args, &[1])?;
            return Ok(Op::CopyWait(Some(self.literal(&args[0])? as u32)));
        }
        let cache = mods.need_one_of(&["ca", "cg"])?;
        if !(mods.has("shared") || mods.has("shared::cta")) || !mods.has("global") {
            return Err(mods.unknown());
        }
        mods.one_of(&["L2::64B", "L2::128B", "L2::256B"]);
        self.arity(args, &[3, 4])?;
        let bytes = self.literal(&args[2])? as u32;
        let sizes: &[u32] = if cache == "cg" { &[16] } else { &[4, 8, 16] };
        if !sizes.contains(&bytes) {
            return Err(mods.error(format!("no copy of {bytes} bytes")));
        }
        let to = self.address_in(mods, &args[0], MemSpace::Shared)?;
        let from = self.address_in(mods, &args[1], MemSpace::Global)?;
        let (mut source_bytes, mut ignore) = (None, None);
        if let Some(arg) = args.get(3) {
            let is_pred = match arg {
                Arg::Name(name) => self.reg(name)?.is_some_and(|(ty, _)| ty == Ty::Pred),
                Arg::Not(_) => true,
                _ => false,
            };
            if is_pred {
                ignore = Some(self.psrc(arg)?);
            } else {
                source_bytes = Some(self.src(arg, Ty::U32)?);
            }
        }
        self.note_granule(MemSpace::Global, 4);
        let (to_site, from_site) = (self.site(), self.site());
        let copy = CopyAsync { to, from, bytes, source_bytes, ignore, to_site, from_site };
        Ok(Op::CopyAsync(copy))
    }
}

fn class_of(bytes: u32) -> Class {
    if bytes == 8 { Class::R64 } else { Class::R32 }
}
