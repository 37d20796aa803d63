//! Decodes `mma.sync`, `ldmatrix` and `stmatrix`.

use super::Decoder;
use super::SHARED_WINDOW;
use super::mods::Mods;
use super::op::{Base, Elem, MemSpace, Mma, Op, Wgmma};
use crate::error::Result;
use crate::parse::ast::{Arg, Space};
use crate::ty::Ty;

/// A row of the table of shapes: shape, element type, and the registers of a, b and c.
struct Shape {
    name: &'static str,
    mnk: (u32, u32, u32),
    elem: &'static [Ty],
    /// The registers of `a` and `b` of a thread.
    a: usize,
    b: usize,
}

const SHAPES: &[Shape] = &[
    Shape { name: "m16n8k8", mnk: (16, 8, 8), elem: &[Ty::F16, Ty::BF16], a: 2, b: 1 },
    Shape { name: "m16n8k8", mnk: (16, 8, 8), elem: &[Ty::TF32], a: 4, b: 2 },
    Shape { name: "m16n8k4", mnk: (16, 8, 4), elem: &[Ty::TF32], a: 2, b: 1 },
    Shape { name: "m16n8k16", mnk: (16, 8, 16), elem: &[Ty::F16, Ty::BF16], a: 4, b: 2 },
    Shape { name: "m16n8k16", mnk: (16, 8, 16), elem: &[Ty::S8, Ty::U8], a: 2, b: 1 },
    Shape { name: "m16n8k32", mnk: (16, 8, 32), elem: &[Ty::S8, Ty::U8], a: 4, b: 2 },
    Shape { name: "m16n8k32", mnk: (16, 8, 32), elem: &[Ty::E4M3, Ty::E5M2], a: 4, b: 2 },
    Shape { name: "m8n8k16", mnk: (8, 8, 16), elem: &[Ty::S8, Ty::U8], a: 1, b: 1 },
    Shape { name: "m8n8k4", mnk: (8, 8, 4), elem: &[Ty::F64], a: 1, b: 1 },
];

impl Decoder {
    pub(super) fn matrix(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Option<Op>> {
        match mods.root {
            "mma" => self.mma(mods, args).map(Some),
            "wgmma" => self.wgmma(mods, args).map(Some),
            "ldmatrix" => self.matrix_memory(mods, args, true).map(Some),
            "stmatrix" => self.matrix_memory(mods, args, false).map(Some),
            _ => Ok(None),
        }
    }

    fn mma(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        if !mods.has("sync") || !mods.has("aligned") {
            return Err(mods.error("only the `.sync.aligned` form exists"));
        }
        let name =
            mods.need_one_of(&["m16n8k8", "m16n8k4", "m16n8k16", "m16n8k32", "m8n8k16", "m8n8k4"])?;
        if !mods.has("row") || !mods.has("col") {
            return Err(mods.error("only `.row.col` is supported"));
        }
        let saturates = mods.has("satfinite");
        let (d_ty, a_ty, b_ty, c_ty) = (mods.ty()?, mods.ty()?, mods.ty()?, mods.ty()?);
        let shape = SHAPES
            .iter()
            .find(|s| s.name == name && s.elem.contains(&a_ty) && s.elem.contains(&b_ty))
            .ok_or_else(|| mods.unknown())?;
        let is_int = matches!(a_ty, Ty::S8 | Ty::U8);
        let sums_fit = match a_ty {
            Ty::F16 => a_ty == b_ty && [d_ty, c_ty].iter().all(|t| matches!(t, Ty::F16 | Ty::F32)),
            Ty::BF16 | Ty::TF32 => a_ty == b_ty && d_ty == Ty::F32 && c_ty == Ty::F32,
            Ty::E4M3 | Ty::E5M2 => d_ty == Ty::F32 && c_ty == Ty::F32,
            Ty::F64 => d_ty == Ty::F64 && c_ty == Ty::F64,
            _ => d_ty == Ty::S32 && c_ty == Ty::S32,
        };
        if !sums_fit || (saturates && !is_int) {
            return Err(mods.unknown());
        }
        self.arity(args, &[4])?;
        let per_thread = (shape.mnk.0 * shape.mnk.1 / 32) as usize;
        let count = |ty: Ty| if ty == Ty::F16 { per_thread / 2 } else { per_thread };
        let sum_reg = |ty: Ty| if ty == Ty::F16 { Ty::F16x2 } else { ty };
        let in_reg = if a_ty == Ty::F64 { Ty::F64 } else { Ty::B32 };
        let d = self.fragment(mods, &args[0], sum_reg(d_ty), count(d_ty), true)?;
        let a = self.fragment(mods, &args[1], in_reg, shape.a, false)?;
        let b = self.fragment(mods, &args[2], in_reg, shape.b, false)?;
        let c = self.fragment(mods, &args[3], sum_reg(c_ty), count(c_ty), false)?;
        let (m, n, k) = shape.mnk;
        let (a_ty, b_ty) = (elem(a_ty), elem(b_ty));
        Ok(Op::Mma(Mma { m, n, k, a_ty, b_ty, c_ty, d_ty, saturates, d, a, b, c }))
    }

    fn wgmma(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        let what = mods.need_one_of(&["fence", "commit_group", "wait_group", "mma_async"])?;
        if !mods.has("sync") || !mods.has("aligned") {
            return Err(mods.error("only the `.sync.aligned` form exists"));
        }
        match what {
            "fence" | "commit_group" => {
                self.arity(args, &[0])?;
                return Ok(if what == "fence" { Op::WgmmaFence } else { Op::WgmmaCommit });
            }
            "wait_group" => {
                self.arity(args, &[1])?;
                let groups = self.literal(&args[0])?;
                return match u32::try_from(groups) {
                    Ok(groups @ 0..=7) => Ok(Op::WgmmaWait(groups)),
                    _ => Err(mods.error("waits for 0 to 7 groups")),
                };
            }
            _ => {}
        }
        let n = (1..=32).map(|groups| groups * 8).find(|n| mods.has(&format!("m64n{n}k16")));
        let n = n.ok_or_else(|| mods.error("only the shapes m64nNk16 are supported"))?;
        let (d_ty, a_ty, b_ty) = (mods.ty()?, mods.ty()?, mods.ty()?);
        if d_ty != Ty::F32 || a_ty != b_ty || !matches!(a_ty, Ty::F16 | Ty::BF16) {
            return Err(mods.unknown());
        }
        // d, a, b, whether to add d, signs of a and b, whether a and b are transposed
        self.arity(args, &[8])?;
        let d = self.fragment(mods, &args[0], Ty::F32, n as usize / 2, true)?;
        let (a, b) = (self.src(&args[1], Ty::B64)?, self.src(&args[2], Ty::B64)?);
        let accumulate = self.psrc(&args[3])?;
        for sign in &args[4..6] {
            if self.literal(sign)? != 1 {
                return Err(mods.error("only the sign 1 is supported"));
            }
        }
        let mut transposed = [false; 2];
        for (which, arg) in transposed.iter_mut().zip(&args[6..]) {
            *which = match self.literal(arg)? {
                0 => false,
                1 => true,
                _ => return Err(mods.error("transposition is 0 or 1")),
            };
        }
        self.note_granule(MemSpace::Shared, 4);
        self.kernel.uses_wgmma = true;
        let (elem, site) = (elem(a_ty), self.site());
        let transposed = (transposed[0], transposed[1]);
        Ok(Op::Wgmma(Wgmma { n, elem, d, a, b, accumulate, transposed, site }))
    }

    fn fragment(
        &mut self,
        mods: &Mods<'_>,
        arg: &Arg,
        ty: Ty,
        count: usize,
        is_result: bool,
    ) -> Result<u32> {
        let parts = self.elements(arg).to_vec();
        if parts.len() != count {
            return Err(mods.error(format!("{} registers, expected {count}", parts.len())));
        }
        let mut rows = Vec::new();
        for part in &parts {
            rows.push(if is_result { self.dst(part, ty)? } else { self.src(part, ty)? });
        }
        Ok(self.list(&rows))
    }

    fn matrix_memory(&mut self, mods: &mut Mods<'_>, args: &[Arg], is_load: bool) -> Result<Op> {
        if !mods.has("sync") || !mods.has("aligned") || !mods.has("m8n8") {
            return Err(mods.error("only `.sync.aligned.m8n8` is supported"));
        }
        let count = match mods.need_one_of(&["x1", "x2", "x4"])? {
            "x1" => 1,
            "x2" => 2,
            _ => 4,
        };
        let trans = mods.has("trans");
        let generic = !(mods.has("shared") || mods.has("shared::cta"));
        if mods.ty()? != Ty::B16 {
            return Err(mods.unknown());
        }
        self.arity(args, &[2])?;
        let (regs, at) = if is_load { (&args[0], &args[1]) } else { (&args[1], &args[0]) };
        let (mut address, space) = self.address(at)?;
        match space {
            None => {}
            Some(Space::Shared) if generic => {
                address.offset = address.offset.wrapping_add(SHARED_WINDOW as i64);
            }
            Some(Space::Shared) => {}
            Some(_) => return Err(mods.error("the variable is not in shared memory")),
        }
        if generic && matches!(address.base, Base::R32(_)) {
            return Err(mods.error("needs a 64-bit address"));
        }
        let regs = self.fragment(mods, regs, Ty::B32, count, is_load)?;
        self.note_granule(MemSpace::Shared, 4);
        let (site, count) = (self.site(), count as u32);
        Ok(if is_load {
            Op::LoadMatrix { address, generic, count, trans, regs, site }
        } else {
            Op::StoreMatrix { address, generic, count, trans, regs, site }
        })
    }
}

fn elem(ty: Ty) -> Elem {
    match ty {
        Ty::F16 => Elem::F16,
        Ty::BF16 => Elem::BF16,
        Ty::TF32 => Elem::TF32,
        Ty::S8 => Elem::S8,
        Ty::U8 => Elem::U8,
        Ty::E4M3 => Elem::E4M3,
        Ty::E5M2 => Elem::E5M2,
        _ => Elem::F64,
    }
}
