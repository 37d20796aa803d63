//! Decodes operands (registers, constants, addresses) and checks their types.

use super::op::{Address, Base, CONST, Dst, PSrc, SINK, Src, Use};
use super::{Decoder, Symbol};
use crate::error::{Error, Result};
use crate::float::{BF16, F16, Round};
use crate::parse::ast::{Arg, Space};
use crate::ty::{Class, Ty};

/// How strictly the type of a register must match that of the instruction.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Fit {
    /// Same size and kind.
    Exact,
    /// The register may be wider (`ld`, `st`, `cvt`).
    Wider,
}

impl Decoder {
    /// Returns the type and row of a register, special or declared.
    pub(super) fn reg(&mut self, name: &str) -> Result<Option<(Ty, u32)>> {
        for at in (0..self.scopes.len()).rev() {
            match self.scopes[at].names.get(name) {
                Some(Symbol::Reg { ty, row }) if *row != u32::MAX => return Ok(Some((*ty, *row))),
                Some(Symbol::Reg { ty, .. }) => {
                    let ty = *ty;
                    let row = self.new_row(ty, name);
                    self.scopes[at].names.insert(name.to_string(), Symbol::Reg { ty, row });
                    return Ok(Some((ty, row)));
                }
                Some(Symbol::Var { .. }) => return Ok(None),
                None => {}
            }
        }
        if let Some(found) = self.special(name) {
            return Ok(Some(found));
        }
        Err(Error::at(self.line, format!("`{name}` is not declared")))
    }

    fn need_reg(&mut self, name: &str) -> Result<(Ty, u32)> {
        self.reg(name)?.ok_or_else(|| Error::at(self.line, format!("`{name}` is not a register")))
    }

    fn mismatch(&self, name: &str, reg: Ty, ty: Ty) -> Error {
        let message = format!(
            "register `{name}` of type .{} does not fit the instruction's type .{}",
            reg.name(),
            ty.name()
        );
        Error::at(self.line, message)
    }

    fn check(&self, name: &str, reg: Ty, ty: Ty, fit: Fit) -> Result<()> {
        let fits = ty.agrees_with(reg)
            || (fit == Fit::Wider
                && reg.bytes() > ty.bytes()
                && reg != Ty::Pred
                && !reg.is_float());
        if fits { Ok(()) } else { Err(self.mismatch(name, reg, ty)) }
    }

    /// Records that the instruction reads this row.
    pub(super) fn uses(&mut self, ty: Ty, row: u32) {
        self.kernel.uses.push(match ty.class() {
            Class::Pred => Use::Pred(row),
            Class::R64 => Use::R64(row),
            _ => Use::R32(row),
        });
    }

    /// Decodes a source operand of type `ty`.
    pub(super) fn src(&mut self, arg: &Arg, ty: Ty) -> Result<Src> {
        Ok(self.src_fit(arg, ty, Fit::Exact)?.1)
    }

    /// Decodes a source operand; also returns the type of its register, or `ty` for a constant.
    pub(super) fn src_fit(&mut self, arg: &Arg, ty: Ty, fit: Fit) -> Result<(Ty, Src)> {
        if let Arg::Name(name) = arg
            && let Some((reg, row)) = self.reg(name)?
        {
            self.check(name, reg, ty, fit)?;
            self.uses(reg, row);
            return Ok((reg, row));
        }
        let bits = self.constant(arg, ty)?;
        Ok((ty, self.const_row(bits, ty.class() == Class::R64)))
    }

    pub(super) fn const_row(&mut self, bits: u64, wide: bool) -> Src {
        if wide {
            let next = self.consts64.len() as u32;
            return CONST | *self.consts64.entry(bits).or_insert(next);
        }
        let next = self.consts32.len() as u32;
        CONST | *self.consts32.entry(bits as u32).or_insert(next)
    }

    /// Returns the bits of a constant operand of type `ty`: a number or the address of a variable.
    pub(super) fn constant(&mut self, arg: &Arg, ty: Ty) -> Result<u64> {
        let bad = |what: &str| {
            Err(Error::at(self.line, format!("{what} does not fit type .{}", ty.name())))
        };
        let mask = if ty.bytes() == 8 { !0 } else { (1u64 << ty.bits()) - 1 };
        match arg {
            Arg::Int(v) => match ty {
                Ty::F32 | Ty::F64 | Ty::F16x2 | Ty::BF16x2 | Ty::TF32 => bad("an integer constant"),
                Ty::Pred => bad("an integer constant"),
                _ => Ok(v & mask),
            },
            Arg::F32(bits) => match ty {
                Ty::F32 | Ty::B32 => Ok(u64::from(*bits)),
                Ty::F64 => Ok(f64::from(f32::from_bits(*bits)).to_bits()),
                _ => bad("a single-precision constant"),
            },
            Arg::F64(bits) => match ty {
                Ty::F64 | Ty::B64 => Ok(*bits),
                Ty::F32 => Ok(u64::from((f64::from_bits(*bits) as f32).to_bits())),
                Ty::F16 => Ok(F16.round(f64::from_bits(*bits), Round::Rn)),
                Ty::BF16 => Ok(BF16.round(f64::from_bits(*bits), Round::Rn)),
                _ => bad("a double-precision constant"),
            },
            Arg::Name(name) | Arg::Sum(name, _) => {
                let offset = if let Arg::Sum(_, offset) = arg { *offset } else { 0 };
                let (_, address) = self.var(name)?;
                if ty.is_float() || ty.bytes() < 4 {
                    return bad("an address");
                }
                Ok(address.wrapping_add(offset as u64) & mask)
            }
            _ => Err(Error::at(self.line, "expected a register or a constant")),
        }
    }

    /// Returns the space and address of a variable.
    pub(super) fn var(&self, name: &str) -> Result<(Space, u64)> {
        for scope in self.scopes.iter().rev() {
            match scope.names.get(name) {
                Some(Symbol::Var { space, address }) => return Ok((*space, *address)),
                Some(Symbol::Reg { .. }) => break,
                None => {}
            }
        }
        Err(Error::at(self.line, format!("`{name}` is not a variable")))
    }

    /// Decodes an integer that must be constant.
    pub(super) fn literal(&self, arg: &Arg) -> Result<u64> {
        match arg {
            Arg::Int(v) => Ok(*v),
            _ => Err(Error::at(self.line, "expected an integer constant")),
        }
    }

    /// Decodes a destination of type `ty`.
    pub(super) fn dst(&mut self, arg: &Arg, ty: Ty) -> Result<Dst> {
        Ok(self.dst_fit(arg, ty, Fit::Exact)?.1)
    }

    /// Decodes a destination; also returns the type of its register, `None` for `_`.
    pub(super) fn dst_fit(&mut self, arg: &Arg, ty: Ty, fit: Fit) -> Result<(Ty, Dst)> {
        match arg {
            Arg::Sink => Ok((ty, SINK)),
            Arg::Name(name) => {
                if self.is_special(name) {
                    return Err(Error::at(self.line, format!("`{name}` cannot be written")));
                }
                let (reg, row) = self.need_reg(name)?;
                self.check(name, reg, ty, fit)?;
                Ok((reg, row))
            }
            _ => Err(Error::at(self.line, "expected a register to write")),
        }
    }

    fn is_special(&mut self, name: &str) -> bool {
        let declared = self.scopes.iter().any(|scope| scope.names.contains_key(name));
        !declared && self.special(name).is_some()
    }

    /// Returns the row of a predicate register that is read.
    pub(super) fn pred_reg(&mut self, name: &str) -> Result<u32> {
        let (ty, row) = self.need_reg(name)?;
        if ty != Ty::Pred {
            return Err(self.mismatch(name, ty, Ty::Pred));
        }
        self.uses(ty, row);
        Ok(row)
    }

    /// Decodes a predicate operand: `p`, `!p`, or a constant.
    pub(super) fn psrc(&mut self, arg: &Arg) -> Result<PSrc> {
        match arg {
            Arg::Name(name) => Ok(PSrc::Reg { row: self.pred_reg(name)?, negated: false }),
            Arg::Not(inner) => match self.psrc(inner)? {
                PSrc::Reg { row, negated } => Ok(PSrc::Reg { row, negated: !negated }),
                PSrc::Const(v) => Ok(PSrc::Const(!v)),
            },
            Arg::Int(v) => Ok(PSrc::Const(*v != 0)),
            _ => Err(Error::at(self.line, "expected a predicate")),
        }
    }

    pub(super) fn pdst(&mut self, arg: &Arg) -> Result<Dst> {
        match arg {
            Arg::Sink => Ok(SINK),
            Arg::Name(name) => {
                let (ty, row) = self.need_reg(name)?;
                if ty == Ty::Pred { Ok(row) } else { Err(self.mismatch(name, ty, Ty::Pred)) }
            }
            _ => Err(Error::at(self.line, "expected a predicate to write")),
        }
    }

    /// Decodes `[base+offset]`; also returns the space of a named variable.
    pub(super) fn address(&mut self, arg: &Arg) -> Result<(Address, Option<Space>)> {
        let Arg::Addr(name, offset) = arg else {
            return Err(Error::at(self.line, "expected an address in brackets"));
        };
        let Some(name) = name else {
            return Ok((Address { base: Base::None, offset: *offset }, None));
        };
        let Some((ty, row)) = self.reg(name)? else {
            let (space, address) = self.var(name)?;
            let offset = (address as i64).wrapping_add(*offset);
            return Ok((Address { base: Base::None, offset }, Some(space)));
        };
        let base = match ty {
            _ if ty.is_float() => return Err(self.mismatch(name, ty, Ty::B64)),
            _ if ty.bytes() == 8 => Base::R64(row),
            _ if ty.bytes() == 4 => Base::R32(row),
            _ => return Err(self.mismatch(name, ty, Ty::B64)),
        };
        self.uses(ty, row);
        Ok((Address { base, offset: *offset }, None))
    }

    /// Returns the elements of `{a, b}`, or the operand itself.
    pub(super) fn elements<'a>(&self, arg: &'a Arg) -> &'a [Arg] {
        match arg {
            Arg::Vec(parts) => parts,
            other => std::slice::from_ref(other),
        }
    }

    /// Adds rows to the table of lists.
    pub(super) fn list(&mut self, rows: &[u32]) -> u32 {
        let start = self.kernel.lists.len() as u32;
        self.kernel.lists.extend_from_slice(rows);
        start
    }

    /// Returns the position of a label in scope.
    pub(super) fn label(&self, name: &str) -> Result<u32> {
        for scope in self.scopes.iter().rev() {
            if let Some(at) = self.labels.get(&(scope.id, name.to_string())) {
                return Ok(*at);
            }
        }
        Err(Error::at(self.line, format!("label `{name}` does not exist")))
    }

    pub(super) fn arity(&self, args: &[Arg], counts: &[usize]) -> Result<()> {
        if counts.contains(&args.len()) {
            return Ok(());
        }
        let text: Vec<_> = counts.iter().map(|c| c.to_string()).collect();
        let message = format!("{} operands, expected {}", args.len(), text.join(" or "));
        Err(Error::at(self.line, message))
    }
}
