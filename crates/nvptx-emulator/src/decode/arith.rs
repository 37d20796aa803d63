//! Decodes arithmetic, logic, comparison, selection, `mov` and `cvt`.

use super::Decoder;
use super::mods::Mods;
use super::op::{CONST, Logic, Op, PSrc, SINK, Src};
use super::operand::Fit;
use crate::error::Result;
use crate::float::Round;
use crate::lanes::convert::{self, Convert};
use crate::lanes::float::Mode;
use crate::lanes::{LaneFn, compare, float, half, int};
use crate::parse::ast::Arg;
use crate::ty::{Class, Ty};

impl Decoder {
    /// Decodes the operation; `None` if the opcode does not belong to this file.
    pub(super) fn arithmetic(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Option<Op>> {
        let op = match mods.root {
            "add" | "sub" | "mul" | "div" | "min" | "max" | "rem" | "mul24" => {
                self.binary(mods, args)?
            }
            "fma" | "mad" | "mad24" | "sad" => self.ternary(mods, args)?,
            "addc" | "subc" | "madc" => self.carry(mods, args)?,
            "neg" | "abs" | "rcp" | "sqrt" | "rsqrt" | "ex2" | "lg2" | "sin" | "cos" | "tanh" => {
                self.unary(mods, args)?
            }
            "not" | "cnot" | "popc" | "clz" | "brev" | "bfind" => self.bits(mods, args)?,
            "and" | "or" | "xor" => self.logic(mods, args)?,
            "shl" | "shr" => self.shift(mods, args)?,
            "shf" | "bfe" | "bfi" | "prmt" | "dp4a" => self.fields(mods, args)?,
            "lop3" => self.lop3(mods, args)?,
            "copysign" => self.copysign(mods, args)?,
            "setp" | "set" => self.comparison(mods, args)?,
            "testp" => self.testp(mods, args)?,
            "selp" => self.select(mods, args)?,
            "mov" => self.mov(mods, args)?,
            "cvt" => self.convert(mods, args)?,
            _ => return Ok(None),
        };
        Ok(Some(op))
    }

    /// `d` and the operands, all of one type.
    fn lane(&mut self, f: LaneFn, ty: Ty, args: &[Arg]) -> Result<Op> {
        let count = match f {
            LaneFn::A1(_) | LaneFn::B1(_) => 1,
            LaneFn::A2(_) | LaneFn::B2(_) => 2,
            LaneFn::A3(_) | LaneFn::B3(_) => 3,
            _ => unreachable!("only functions of one type come here"),
        };
        self.arity(args, &[count + 1])?;
        let d = self.dst(&args[0], ty)?;
        let mut s = [CONST; 4];
        for (slot, arg) in s.iter_mut().zip(&args[1..]) {
            *slot = self.src(arg, ty)?;
        }
        Ok(Op::Lane { f, d, s })
    }

    fn binary(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        let root = mods.root;
        if matches!(root, "add" | "sub") && mods.has("cc") {
            return self.carry_of(mods, args, false, true);
        }
        let part =
            if matches!(root, "mul" | "mul24") { mods.one_of(&["lo", "hi", "wide"]) } else { None };
        if matches!(root, "min" | "max") && args.len() == 4 {
            return self.three(mods, args);
        }
        if root == "div" {
            return self.division(mods, args);
        }
        let mode = if part.is_none() { self.mode(mods)? } else { (None, false, false) };
        let nan = mods.has("NaN");
        let relu = mods.has("relu");
        let ty = mods.ty()?;
        if relu {
            return Err(mods.error("`.relu` is not supported"));
        }
        let name = |suffix: &str| format!("{root}{suffix}");
        let nan_suffix = if nan { ".nan" } else { "" };
        let f = match ty {
            Ty::F32 => {
                let mode = self.float_mode(mods, mode, root, false)?;
                float::binary32(&name(nan_suffix), mode)
            }
            Ty::F64 => {
                self.only_nearest(mods, mode.0)?;
                (!nan && !mode.1 && !mode.2).then(|| float::binary64(root)).flatten()
            }
            Ty::F32x2 => {
                self.only_nearest(mods, mode.0)?;
                (!nan && !mode.2).then(|| float::binary_pair(root, mode.1)).flatten()
            }
            _ if ty.is_float8() => None,
            _ if ty.is_float() => {
                self.half_mode(mods, mode)?;
                let sat = if mode.2 { ".sat" } else { "" };
                half::binary(&name(&format!("{nan_suffix}{sat}")), ty)
            }
            _ if nan || mode.0.is_some() || mode.1 => None,
            _ if mode.2 => int::binary(&name(".sat"), ty),
            _ => match part {
                Some(part) => int::binary(&name(&format!(".{part}")), ty),
                None => int::binary(root, ty),
            },
        };
        let f = f.ok_or_else(|| mods.unknown())?;
        if part == Some("wide") {
            return self.wide(f, ty, args);
        }
        if root == "rem" {
            return self.checked(f, ty, args);
        }
        self.lane(f, ty, args)
    }

    /// `mul.wide` and `mad.wide`: a result of twice the size.
    fn wide(&mut self, f: LaneFn, ty: Ty, args: &[Arg]) -> Result<Op> {
        let double = match ty {
            Ty::S16 => Ty::S32,
            Ty::U16 => Ty::U32,
            Ty::S32 => Ty::S64,
            _ => Ty::U64,
        };
        let with_sum = matches!(f, LaneFn::A3(_) | LaneFn::Wide3(_));
        self.arity(args, &[3 + usize::from(with_sum)])?;
        let d = self.dst(&args[0], double)?;
        let (a, b) = (self.src(&args[1], ty)?, self.src(&args[2], ty)?);
        let c = if with_sum { self.src(&args[3], double)? } else { CONST };
        Ok(Op::Lane { f, d, s: [a, b, c, CONST] })
    }

    fn checked(&mut self, f: LaneFn, ty: Ty, args: &[Arg]) -> Result<Op> {
        match self.lane(f, ty, args)? {
            Op::Lane { f, d, s } => Ok(Op::Divide { f, d, s }),
            _ => unreachable!("`lane` makes a lane operation"),
        }
    }

    fn division(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        let approx = mods.one_of(&["full", "approx"]).is_some();
        let mode = self.mode(mods)?;
        let ty = mods.ty()?;
        let f = match ty {
            Ty::F32 => {
                let mode = self.float_mode(mods, mode, "div", approx)?;
                float::binary32("div", mode)
            }
            Ty::F64 => {
                self.only_nearest(mods, mode.0)?;
                if mode.0.is_none() || approx {
                    return Err(mods.error("needs the rounding `.rn`"));
                }
                float::binary64("div")
            }
            _ if approx || mode != (None, false, false) => None,
            _ => {
                let f = int::binary("div", ty).ok_or_else(|| mods.unknown())?;
                return self.checked(f, ty, args);
            }
        };
        self.lane(f.ok_or_else(|| mods.unknown())?, ty, args)
    }

    fn three(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        let nan = if mods.has("NaN") { ".nan" } else { "" };
        let ty = mods.ty()?;
        let f = if ty == Ty::F32 { float::three32(&format!("{}{nan}", mods.root)) } else { None };
        self.lane(f.ok_or_else(|| mods.unknown())?, ty, args)
    }

    /// Decodes rounding, `.ftz` and `.sat`, if present.
    fn mode(&self, mods: &mut Mods<'_>) -> Result<(Option<Round>, bool, bool)> {
        let round = match mods.one_of(&["rn", "rz", "rm", "rp"]) {
            Some("rn") => Some(Round::Rn),
            Some("rz") => Some(Round::Rz),
            Some("rm") => Some(Round::Rm),
            Some(_) => Some(Round::Rp),
            None => None,
        };
        Ok((round, mods.has("ftz"), mods.has("sat")))
    }

    /// Decodes the mode of an `f32` instruction. Only `add`, `sub`, `mul` and approximations may
    /// omit the rounding.
    fn float_mode(
        &self,
        mods: &Mods<'_>,
        (round, ftz, sat): (Option<Round>, bool, bool),
        root: &str,
        approx: bool,
    ) -> Result<Mode> {
        let needs = matches!(root, "div" | "fma" | "mad" | "rcp" | "sqrt") && !approx;
        if needs && round.is_none() {
            return Err(mods.error("needs a rounding such as `.rn`"));
        }
        if approx && round.is_some() {
            return Err(mods.error("an approximation has no rounding"));
        }
        if matches!(root, "min" | "max") && (round.is_some() || sat) {
            return Err(mods.error("has no rounding"));
        }
        Ok(Mode { round: round.unwrap_or(Round::Rn), ftz, sat })
    }

    fn only_nearest(&self, mods: &Mods<'_>, round: Option<Round>) -> Result<()> {
        match round {
            None | Some(Round::Rn) => Ok(()),
            Some(_) => Err(mods.error("only `.rn` is supported for this type")),
        }
    }

    /// Short types always keep subnormals.
    fn half_mode(&self, mods: &Mods<'_>, mode: (Option<Round>, bool, bool)) -> Result<()> {
        if mode.1 {
            return Err(mods.error("`.ftz` is not supported for this type"));
        }
        self.only_nearest(mods, mode.0)
    }

    fn ternary(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        let root = mods.root;
        let part = mods.one_of(&["lo", "hi", "wide"]);
        if part.is_some() && mods.has("cc") {
            return self.carry_product(mods, args, part, false, true);
        }
        let mode = self.mode(mods)?;
        let relu = mods.has("relu");
        let ty = mods.ty()?;
        let f = match ty {
            _ if root == "sad" && mode == (None, false, false) && part.is_none() => {
                int::ternary("sad", ty)
            }
            Ty::F32 if part.is_none() && !relu => {
                Some(float::fma32(self.float_mode(mods, mode, "fma", false)?))
            }
            Ty::F64 if part.is_none() && !relu && !mode.1 && !mode.2 => {
                self.only_nearest(mods, mode.0)?;
                if mode.0.is_none() {
                    return Err(mods.error("needs the rounding `.rn`"));
                }
                Some(float::fma64())
            }
            Ty::F32x2 if root == "fma" && part.is_none() && !relu && !mode.2 => {
                self.only_nearest(mods, mode.0)?;
                if mode.0.is_none() {
                    return Err(mods.error("needs the rounding `.rn`"));
                }
                Some(float::fma_pair(mode.1))
            }
            Ty::F32x2 => None,
            _ if ty.is_float8() => None,
            _ if ty.is_float() && root == "fma" => {
                self.half_mode(mods, mode)?;
                if mode.0.is_none() {
                    return Err(mods.error("needs the rounding `.rn`"));
                }
                half::fma_fn(
                    if relu {
                        "fma.relu"
                    } else if mode.2 {
                        "fma.sat"
                    } else {
                        "fma"
                    },
                    ty,
                )
            }
            _ => match part {
                Some(part) if root != "fma" && mode == (None, false, false) => {
                    int::ternary(&format!("{root}.{part}"), ty)
                }
                _ => None,
            },
        };
        let f = f.ok_or_else(|| mods.unknown())?;
        if part == Some("wide") {
            return self.wide(f, ty, args);
        }
        self.lane(f, ty, args)
    }

    /// `addc`, `subc`, `madc`: they read the carry.
    fn carry(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        let sets = mods.has("cc");
        if mods.root == "madc" {
            let part = mods.one_of(&["lo", "hi"]);
            let sets = sets || mods.has("cc");
            return self.carry_product(mods, args, part, true, sets);
        }
        self.carry_of(mods, args, true, sets)
    }

    fn carry_of(
        &mut self,
        mods: &mut Mods<'_>,
        args: &[Arg],
        reads: bool,
        sets: bool,
    ) -> Result<Op> {
        let ty = mods.ty()?;
        if ty.bytes() < 4 || ty.is_float() {
            return Err(mods.unknown());
        }
        self.arity(args, &[3])?;
        let d = self.dst(&args[0], ty)?;
        let s = [self.src(&args[1], ty)?, self.src(&args[2], ty)?, CONST];
        let (wide, invert) = (ty.class() == Class::R64, mods.root.starts_with("sub"));
        Ok(Op::Carry { f: None, d, s, wide, invert, reads, sets })
    }

    fn carry_product(
        &mut self,
        mods: &mut Mods<'_>,
        args: &[Arg],
        part: Option<&str>,
        reads: bool,
        sets: bool,
    ) -> Result<Op> {
        let ty = mods.ty()?;
        let f = int::binary(&format!("mul.{}", part.unwrap_or_default()), ty);
        if ty.bytes() < 4 || part == Some("wide") || f.is_none() {
            return Err(mods.unknown());
        }
        self.arity(args, &[4])?;
        let d = self.dst(&args[0], ty)?;
        let s = [self.src(&args[1], ty)?, self.src(&args[2], ty)?, self.src(&args[3], ty)?];
        let wide = ty.class() == Class::R64;
        Ok(Op::Carry { f, d, s, wide, invert: false, reads, sets })
    }

    fn unary(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        let root = mods.root;
        let approx = mods.has("approx");
        let mode = self.mode(mods)?;
        let ty = mods.ty()?;
        let only_approx = matches!(root, "rsqrt" | "ex2" | "lg2" | "sin" | "cos" | "tanh");
        if ty.is_float() && only_approx && !approx {
            return Err(mods.error("needs `.approx`"));
        }
        if mode.2 || (matches!(root, "neg" | "abs") && (approx || mode.0.is_some())) {
            return Err(mods.unknown());
        }
        let f = match ty {
            Ty::F32 => float::unary32(root, self.float_mode(mods, mode, root, approx)?),
            Ty::F64 => {
                self.only_nearest(mods, mode.0)?;
                let rounded = mode.0.is_some() || approx;
                if mode.1 && !approx {
                    return Err(mods.error("`.ftz` is for the approximations of this type"));
                }
                if matches!(root, "rcp" | "sqrt") && !rounded {
                    return Err(mods.error("needs the rounding `.rn`"));
                }
                float::unary64(root)
            }
            Ty::BF16 | Ty::BF16x2 if root == "ex2" => {
                if !mode.1 {
                    return Err(mods.error("needs `.ftz`"));
                }
                half::unary(root, ty)
            }
            Ty::F32x2 | Ty::E4M3 | Ty::E5M2 | Ty::E4M3x2 | Ty::E5M2x2 => None,
            _ if ty.is_float() => {
                self.half_mode(mods, mode)?;
                half::unary(root, ty)
            }
            _ => int::unary(root, ty),
        };
        self.lane(f.ok_or_else(|| mods.unknown())?, ty, args)
    }

    fn bits(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        let shiftamt = if mods.has("shiftamt") { ".shiftamt" } else { "" };
        let ty = mods.ty()?;
        self.arity(args, &[2])?;
        if ty == Ty::Pred && mods.root == "not" {
            let d = self.pdst(&args[0])?;
            let a = negate(self.psrc(&args[1])?);
            return Ok(Op::Predicate { logic: Logic::Or, d, a, b: PSrc::Const(false) });
        }
        let f = int::unary(&format!("{}{shiftamt}", mods.root), ty);
        let f = f.ok_or_else(|| mods.unknown())?;
        let counts = matches!(mods.root, "popc" | "clz" | "bfind");
        let d = self.dst(&args[0], if counts { Ty::U32 } else { ty })?;
        let a = self.src(&args[1], ty)?;
        Ok(Op::Lane { f, d, s: [a, CONST, CONST, CONST] })
    }

    fn logic(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        let ty = mods.ty()?;
        if ty != Ty::Pred {
            let f = int::binary(mods.root, ty).ok_or_else(|| mods.unknown())?;
            return self.lane(f, ty, args);
        }
        self.arity(args, &[3])?;
        let d = self.pdst(&args[0])?;
        let (a, b) = (self.psrc(&args[1])?, self.psrc(&args[2])?);
        let logic = logic_of(mods.root).expect("the root is one of the three");
        Ok(Op::Predicate { logic, d, a, b })
    }

    fn shift(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        let ty = mods.ty()?;
        let f = int::shift(mods.root, ty).ok_or_else(|| mods.unknown())?;
        self.arity(args, &[3])?;
        let d = self.dst(&args[0], ty)?;
        let (a, b) = (self.src(&args[1], ty)?, self.src(&args[2], Ty::U32)?);
        Ok(Op::Lane { f, d, s: [a, b, CONST, CONST] })
    }

    /// Decodes instructions whose operands have different types.
    fn fields(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        let root = mods.root;
        let mut name = root.to_string();
        if root == "shf" {
            let side = mods.need_one_of(&["l", "r"])?;
            let how = mods.need_one_of(&["wrap", "clamp"])?;
            name = format!("shf.{side}.{how}");
        }
        let ty = mods.ty()?;
        let mut types = vec![ty; 4];
        match root {
            "bfe" => types = vec![ty, Ty::U32, Ty::U32],
            "bfi" => types = vec![ty, ty, Ty::U32, Ty::U32],
            "shf" | "prmt" => types = vec![Ty::B32; 3],
            _ => {
                // `dp4a.atype.btype`: the sum is signed if one of them is.
                let other = mods.ty()?;
                let sum = if ty.is_signed() || other.is_signed() { Ty::S32 } else { Ty::U32 };
                types = vec![Ty::B32, Ty::B32, sum];
                let f = match (ty, other) {
                    (Ty::S32, Ty::S32) => int::ternary("dp4a.s32", Ty::S32),
                    (Ty::U32, Ty::U32) => int::ternary("dp4a.u32", Ty::U32),
                    (Ty::S32, Ty::U32) => int::ternary("dp4a.u32", Ty::S32),
                    (Ty::U32, Ty::S32) => int::ternary("dp4a.s32", Ty::U32),
                    _ => None,
                };
                return self.mixed(mods, f, Ty::B32, &types, args);
            }
        }
        let f = int::ternary(&name, ty);
        self.mixed(mods, f, ty, &types, args)
    }

    fn mixed(
        &mut self,
        mods: &Mods<'_>,
        f: Option<LaneFn>,
        ty: Ty,
        types: &[Ty],
        args: &[Arg],
    ) -> Result<Op> {
        let f = f.ok_or_else(|| mods.unknown())?;
        self.arity(args, &[types.len() + 1])?;
        let d = self.dst(&args[0], ty)?;
        let mut s = [CONST; 4];
        for ((slot, arg), ty) in s.iter_mut().zip(&args[1..]).zip(types) {
            *slot = self.src(arg, *ty)?;
        }
        Ok(Op::Lane { f, d, s })
    }

    fn lop3(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        if mods.ty()? != Ty::B32 {
            return Err(mods.unknown());
        }
        self.arity(args, &[5])?;
        let d = self.dst(&args[0], Ty::B32)?;
        let mut s = [CONST; 3];
        for (slot, arg) in s.iter_mut().zip(&args[1..4]) {
            *slot = self.src(arg, Ty::B32)?;
        }
        let table = self.literal(&args[4])? as u8;
        Ok(Op::Lop3 { d, s, table })
    }

    fn copysign(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        let ty = mods.ty()?;
        let mode = Mode { round: Round::Rn, ftz: false, sat: false };
        let f = match ty {
            Ty::F32 => float::binary32("copysign", mode),
            Ty::F64 => float::binary64("copysign"),
            _ => None,
        };
        self.lane(f.ok_or_else(|| mods.unknown())?, ty, args)
    }

    /// `setp.cmp.bool.type p|q, a, b, c` and `set.cmp.bool.dtype.stype d, a, b, c`.
    fn comparison(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        const OPS: &[&str] = &[
            "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu",
            "gtu", "geu", "num", "nan",
        ];
        let is_set = mods.root == "set";
        let op = mods.need_one_of(OPS)?;
        let logic = mods.one_of(&["and", "or", "xor"]).and_then(logic_of);
        let ftz = mods.has("ftz");
        let to = if is_set { Some(mods.ty()?) } else { None };
        let ty = mods.ty()?;
        if ftz && ty != Ty::F32 {
            return Err(mods.error("`.ftz` is for `.f32`"));
        }
        let f = compare::compare(op, ty, ftz).ok_or_else(|| mods.unknown())?;
        self.arity(args, &[3 + usize::from(logic.is_some())])?;
        let (a, b) = (self.src(&args[1], ty)?, self.src(&args[2], ty)?);
        let with = match logic {
            Some(logic) => Some((logic, self.psrc(&args[3])?)),
            None => None,
        };
        if let Some(to) = to {
            let one = match to {
                Ty::U32 | Ty::S32 => !0,
                Ty::F32 => 1f32.to_bits(),
                _ => return Err(mods.unknown()),
            };
            let d = self.dst(&args[0], to)?;
            return Ok(Op::Set { f, a, b, with, d, one });
        }
        let (p, q) = match &args[0] {
            Arg::Pair(p, q) => (self.pdst(p)?, self.pdst(q)?),
            p => (self.pdst(p)?, SINK),
        };
        Ok(Op::Compare { f, a, b, with, p, q })
    }

    fn testp(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        let op = mods.need_one_of(&[
            "finite",
            "infinite",
            "number",
            "notanumber",
            "normal",
            "subnormal",
        ])?;
        if mods.ty()? != Ty::F32 {
            return Err(mods.unknown());
        }
        self.arity(args, &[2])?;
        let f = float::test32(op).ok_or_else(|| mods.unknown())?;
        Ok(Op::Test { f, p: self.pdst(&args[0])?, a: self.src(&args[1], Ty::F32)? })
    }

    fn select(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        let ty = mods.ty()?;
        self.arity(args, &[4])?;
        let d = self.dst(&args[0], ty)?;
        let (a, b) = (self.src(&args[1], ty)?, self.src(&args[2], ty)?);
        let p = self.psrc(&args[3])?;
        match ty.class() {
            Class::R32 => Ok(Op::Select32 { d, a, b, p }),
            Class::R64 => Ok(Op::Select64 { d, a, b, p }),
            _ => Err(mods.unknown()),
        }
    }

    fn mov(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        let ty = mods.ty()?;
        self.arity(args, &[2])?;
        if let Arg::Name(name) = &args[1]
            && let Some(wide) = clock(name)
        {
            let d = self.dst(&args[0], if wide { Ty::U64 } else { Ty::U32 })?;
            return Ok(Op::Clock { d, wide });
        }
        match (&args[0], &args[1]) {
            (_, Arg::Vec(parts)) => return self.pack(mods, ty, &args[0], parts),
            (Arg::Vec(parts), _) => return self.unpack(mods, ty, parts, &args[1]),
            _ => {}
        }
        match ty.class() {
            Class::Pred => {
                let d = self.pdst(&args[0])?;
                let a = self.psrc(&args[1])?;
                Ok(Op::Predicate { logic: Logic::Or, d, a, b: PSrc::Const(false) })
            }
            Class::R32 => Ok(Op::Mov32 { d: self.dst(&args[0], ty)?, a: self.src(&args[1], ty)? }),
            Class::R64 => Ok(Op::Mov64 { d: self.dst(&args[0], ty)?, a: self.src(&args[1], ty)? }),
            Class::R128 => Err(mods.unknown()),
        }
    }

    /// Returns the type of the parts of a packed `mov`.
    fn part_type(&self, mods: &Mods<'_>, ty: Ty, count: usize) -> Result<Ty> {
        match (ty.bytes(), count) {
            (8, 2) => Ok(Ty::B32),
            (8, 4) | (4, 2) => Ok(Ty::B16),
            _ => Err(mods.error(format!("{count} parts of a {} bit value", ty.bits()))),
        }
    }

    fn pack(&mut self, mods: &Mods<'_>, ty: Ty, d: &Arg, parts: &[Arg]) -> Result<Op> {
        let part = self.part_type(mods, ty, parts.len())?;
        let d = self.dst(d, ty)?;
        let rows: Vec<Src> = parts.iter().map(|a| self.src(a, part)).collect::<Result<_>>()?;
        let (wide, bits) = (ty.class() == Class::R64, part.bits());
        Ok(Op::Pack { d, wide, bits, parts: self.list(&rows), count: rows.len() as u32 })
    }

    fn unpack(&mut self, mods: &Mods<'_>, ty: Ty, parts: &[Arg], a: &Arg) -> Result<Op> {
        let part = self.part_type(mods, ty, parts.len())?;
        let a = self.src(a, ty)?;
        let rows: Vec<u32> = parts.iter().map(|d| self.dst(d, part)).collect::<Result<_>>()?;
        let (wide, bits) = (ty.class() == Class::R64, part.bits());
        Ok(Op::Unpack { a, wide, bits, parts: self.list(&rows), count: rows.len() as u32 })
    }

    fn convert(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        let whole = mods.one_of(&["rni", "rzi", "rmi", "rpi"]);
        let round = whole.or_else(|| mods.one_of(&["rn", "rz", "rm", "rp", "rna"]));
        let (ftz, sat, relu) = (mods.has("ftz"), mods.has("sat"), mods.has("relu"));
        let finite = mods.has("satfinite");
        let (to, from) = (mods.ty()?, mods.ty()?);
        if to.is_float8() || from.is_float8() {
            if round != Some("rn") || ftz || sat || relu || finite != to.is_float8() {
                return Err(mods.error("only `.rn.satfinite` to and `.rn` from these types"));
            }
            return self.convert_float8(mods, to, from, args);
        }
        if finite {
            return Err(mods.error("`.satfinite` is for 8-bit floats"));
        }
        let mode = match round {
            Some("rn" | "rni") | None => Round::Rn,
            Some("rz" | "rzi") => Round::Rz,
            Some("rm" | "rmi") => Round::Rm,
            Some("rp" | "rpi") => Round::Rp,
            Some(_) => Round::Rna,
        };
        self.check_rounding(mods, to, from, round, whole.is_some())?;
        if ftz && to != Ty::F32 && from != Ty::F32 {
            return Err(mods.error("`.ftz` is for conversions of `.f32`"));
        }
        let has_relu = matches!(to, Ty::F16 | Ty::F16x2 | Ty::BF16 | Ty::BF16x2 | Ty::TF32);
        if relu && !has_relu {
            return Err(mods.error("`.relu` is for results of short types"));
        }
        let spec = Convert { to, from, round: mode, integral: whole.is_some(), ftz, sat, relu };
        if matches!(to, Ty::F16x2 | Ty::BF16x2) {
            self.arity(args, &[3])?;
            let d = self.dst(&args[0], to)?;
            let (a, b) = (self.src(&args[1], from)?, self.src(&args[2], from)?);
            return Ok(Op::ConvertPack { spec, d, a, b });
        }
        self.arity(args, &[2])?;
        let (d_ty, d) = self.dst_fit(&args[0], to, Fit::Wider)?;
        let (a_ty, a) = self.src_fit(&args[1], from, Fit::Wider)?;
        let same = d_ty.bytes() == to.bytes() && a_ty.class() == from.class();
        match spec.lanes() {
            Some(f) if same => Ok(Op::Lane { f, d, s: [a, CONST, CONST, CONST] }),
            _ => {
                let a_wide = a_ty.class() == Class::R64;
                Ok(Op::Convert { spec, d, a, a_wide, d_bytes: d_ty.bytes() })
            }
        }
    }

    fn convert_float8(&mut self, mods: &Mods<'_>, to: Ty, from: Ty, args: &[Arg]) -> Result<Op> {
        let f = match (to, from) {
            (_, Ty::F32) => convert::to_float8(to),
            (Ty::F16x2, _) => convert::from_float8(from),
            _ => None,
        };
        let f = f.ok_or_else(|| mods.unknown())?;
        self.arity(args, &[if from == Ty::F32 { 3 } else { 2 }])?;
        let d = self.dst(&args[0], to)?;
        let mut s = [CONST; 4];
        for (slot, arg) in s.iter_mut().zip(&args[1..]) {
            *slot = self.src(arg, from)?;
        }
        Ok(Op::Lane { f, d, s })
    }

    /// Checks that a rounding is present if and only if the result can be inexact.
    fn check_rounding(
        &self,
        mods: &Mods<'_>,
        to: Ty,
        from: Ty,
        round: Option<&str>,
        whole: bool,
    ) -> Result<()> {
        let narrows = from.is_float() && to.is_float() && to.bytes() < from.bytes();
        let packs = matches!(to, Ty::F16x2 | Ty::BF16x2 | Ty::TF32);
        if packs && from != Ty::F32 {
            return Err(mods.unknown());
        }
        let needs_float = (from.is_int() && to.is_float()) || narrows || packs;
        let needs_whole = from.is_float() && to.is_int();
        let is_float_round = round.is_some() && !whole;
        let ok = match (needs_float, needs_whole) {
            (true, _) => is_float_round,
            (_, true) => whole,
            _ if from.is_float() && to == from => whole || round.is_none(),
            _ => round.is_none() || (is_float_round && from.is_float() && to.is_float()),
        };
        let known = |ty: Ty| ty != Ty::Pred && !ty.is_bits() && ty != Ty::F32x2;
        if !known(to) || !known(from) || matches!(from, Ty::F16x2 | Ty::BF16x2 | Ty::TF32) {
            return Err(mods.unknown());
        }
        if ok { Ok(()) } else { Err(mods.error("the rounding does not fit these types")) }
    }
}

/// Whether a clock register has 64 bits.
fn clock(name: &str) -> Option<bool> {
    match name {
        "%clock" | "%clock_hi" | "%globaltimer_lo" | "%globaltimer_hi" => Some(false),
        "%clock64" | "%globaltimer" => Some(true),
        _ => None,
    }
}

fn logic_of(name: &str) -> Option<Logic> {
    match name {
        "and" => Some(Logic::And),
        "or" => Some(Logic::Or),
        "xor" => Some(Logic::Xor),
        _ => None,
    }
}

fn negate(p: PSrc) -> PSrc {
    match p {
        PSrc::Reg { row, negated } => PSrc::Reg { row, negated: !negated },
        PSrc::Const(v) => PSrc::Const(!v),
    }
}
