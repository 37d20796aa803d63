//! Bit operations (logic, shifts, fields, permutations), moves, and packing of registers.

use crate::entry::Entry;
use crate::needs::Feature;
use crate::reg::*;
use crate::ty::*;

fn has_bits(ty: Ty) -> bool {
    ty == Ty::Pred || (ty.bits() >= 16 && ty.bits() <= 64 && !ty.is_float())
}

impl Entry {
    /// Emits `and`, also of predicates.
    pub fn and<T: Bits>(&mut self, a: impl Source<T>, b: impl Source<T>) -> Reg<T> {
        self.logic("and", &[a.operand().value, b.operand().value])
    }

    /// Emits `or`, also of predicates.
    pub fn or<T: Bits>(&mut self, a: impl Source<T>, b: impl Source<T>) -> Reg<T> {
        self.logic("or", &[a.operand().value, b.operand().value])
    }

    /// Emits `xor`, also of predicates.
    pub fn xor<T: Bits>(&mut self, a: impl Source<T>, b: impl Source<T>) -> Reg<T> {
        self.logic("xor", &[a.operand().value, b.operand().value])
    }

    /// Emits `not`, also of predicates.
    pub fn not<T: Bits>(&mut self, a: impl Source<T>) -> Reg<T> {
        self.logic("not", &[a.operand().value])
    }

    fn logic<T: Kind>(&mut self, op: &str, values: &[Value]) -> Reg<T> {
        let ty = self.checked(op, values[0], has_bits, "integers, bits or predicates");
        let srcs: Vec<_> = values.iter().map(|&value| (value, ty)).collect();
        self.inst(Feature::Base, &format!("{op}.{}", ty.untyped()), ty, &srcs)
    }

    /// Emits `shl`: amounts above the width give 0.
    pub fn shl<T: Bits>(&mut self, a: impl Source<T>, amount: impl Source<U32>) -> Reg<T> {
        let (a, amount) = (a.operand().value, amount.operand().value);
        let has = |ty: Ty| ty != Ty::Pred && has_bits(ty);
        let ty = self.checked("shl", a, has, "integers or bits");
        let name = format!("shl.{}", ty.untyped());
        self.inst(Feature::Base, &name, ty, &[(a, ty), (amount, Ty::U32)])
    }

    /// Emits `shr`: arithmetic for signed integers, else logical; amounts above the width count as
    /// the width.
    pub fn shr<T: Bits>(&mut self, a: impl Source<T>, amount: impl Source<U32>) -> Reg<T> {
        let (a, amount) = (a.operand().value, amount.operand().value);
        let has = |ty: Ty| ty != Ty::Pred && has_bits(ty);
        let ty = self.checked("shr", a, has, "integers or bits");
        let shown = if ty.is_int() { ty } else { ty.untyped() };
        self.inst(Feature::Base, &format!("shr.{shown}"), ty, &[(a, ty), (amount, Ty::U32)])
    }

    /// Emits `shf.l.wrap.b32`: the upper half of `hi:lo` shifted left by `amount` modulo 32.
    pub fn shf_l(
        &mut self,
        lo: impl Source<B32>,
        hi: impl Source<B32>,
        amount: impl Source<U32>,
    ) -> Reg<B32> {
        let srcs = [lo.operand().value, hi.operand().value, amount.operand().value];
        self.words("shf.l.wrap.b32", &srcs)
    }

    /// Emits `shf.r.wrap.b32`: the lower half of `hi:lo` shifted right by `amount` modulo 32.
    pub fn shf_r(
        &mut self,
        lo: impl Source<B32>,
        hi: impl Source<B32>,
        amount: impl Source<U32>,
    ) -> Reg<B32> {
        let srcs = [lo.operand().value, hi.operand().value, amount.operand().value];
        self.words("shf.r.wrap.b32", &srcs)
    }

    fn words(&mut self, name: &str, values: &[Value]) -> Reg<B32> {
        let srcs: Vec<_> = values.iter().map(|&value| (value, Ty::B32)).collect();
        self.inst(Feature::Base, name, Ty::B32, &srcs)
    }

    /// Emits `lop3.b32`: any function of three bits. The table is its value on `0xF0`, `0xCC` and
    /// `0xAA`.
    pub fn lop3(
        &mut self,
        a: impl Source<B32>,
        b: impl Source<B32>,
        c: impl Source<B32>,
        table: u8,
    ) -> Reg<B32> {
        let table = Operand::int(Ty::U32, i64::from(table)).value;
        let srcs = [a.operand().value, b.operand().value, c.operand().value, table];
        self.words("lop3.b32", &srcs)
    }

    /// Emits `prmt.b32`: selects four of the eight bytes of `b:a`, each by a hexadecimal digit of
    /// `selector`.
    pub fn prmt(
        &mut self,
        a: impl Source<B32>,
        b: impl Source<B32>,
        selector: impl Source<B32>,
    ) -> Reg<B32> {
        let srcs = [a.operand().value, b.operand().value, selector.operand().value];
        self.words("prmt.b32", &srcs)
    }

    /// Emits `bfe`: `len` bits from `start` on, sign- or zero-extended by the type.
    pub fn bfe<T: Int>(
        &mut self,
        a: impl Source<T>,
        start: impl Source<U32>,
        len: impl Source<U32>,
    ) -> Reg<T> {
        let (a, start, len) = (a.operand().value, start.operand().value, len.operand().value);
        let ty = self.checked("bfe", a, |ty| ty.is_int() && ty.bits() >= 32, "u32 to s64");
        let srcs = [(a, ty), (start, Ty::U32), (len, Ty::U32)];
        self.inst(Feature::Base, &format!("bfe.{ty}"), ty, &srcs)
    }

    /// Emits `bfi`: `into` with `len` bits from `start` on replaced by those of `field`.
    pub fn bfi<T: Bits>(
        &mut self,
        field: impl Source<T>,
        into: impl Source<T>,
        start: impl Source<U32>,
        len: impl Source<U32>,
    ) -> Reg<T> {
        let (field, into) = (field.operand().value, into.operand().value);
        let (start, len) = (start.operand().value, len.operand().value);
        let has = |ty: Ty| has_bits(ty) && ty.bits() >= 32;
        let ty = self.checked("bfi", field, has, "of 32 or 64 bits");
        let srcs = [(field, ty), (into, ty), (start, Ty::U32), (len, Ty::U32)];
        self.inst(Feature::Base, &format!("bfi.{}", ty.untyped()), ty, &srcs)
    }

    /// Emits `popc`: the number of one bits.
    pub fn popc<T: Bits>(&mut self, a: impl Source<T>) -> Reg<U32> {
        self.count("popc", a.operand().value)
    }

    /// Emits `clz`: the number of leading zeros.
    pub fn clz<T: Bits>(&mut self, a: impl Source<T>) -> Reg<U32> {
        self.count("clz", a.operand().value)
    }

    fn count(&mut self, op: &str, a: Value) -> Reg<U32> {
        let has = |ty: Ty| has_bits(ty) && ty.bits() >= 32;
        let ty = self.checked(op, a, has, "of 32 or 64 bits");
        self.inst(Feature::Base, &format!("{op}.{}", ty.untyped()), Ty::U32, &[(a, ty)])
    }

    /// Emits `brev`: the bits in reverse order.
    pub fn brev<T: Bits>(&mut self, a: impl Source<T>) -> Reg<T> {
        let a = a.operand().value;
        let has = |ty: Ty| has_bits(ty) && ty.bits() >= 32;
        let ty = self.checked("brev", a, has, "of 32 or 64 bits");
        self.inst(Feature::Base, &format!("brev.{}", ty.untyped()), ty, &[(a, ty)])
    }

    /// Emits `mov`: a copy, or a constant in a register.
    pub fn mov<T: Kind>(&mut self, a: impl Source<T>) -> Reg<T> {
        let a = a.operand().value;
        let ty = a.ty();
        let plain = ty.is_float() || ty.is_int();
        let shown = if plain { ty } else { ty.untyped() };
        let feature = if ty == Ty::B128 { Feature::Access128 } else { Feature::Base };
        self.inst(feature, &format!("mov.{shown}"), ty, &[(a, ty)])
    }

    /// Emits `mov` between register classes: the same bits as another type of the same size.
    pub fn bitcast<U: Static, T: Kind>(&mut self, a: impl Source<T>) -> Reg<U> {
        let result = self.bitcast_as(U::STATIC, a);
        result.cast(U::STATIC)
    }

    /// Like [`Entry::bitcast`], to a type known at run time.
    pub fn bitcast_as<T: Kind>(&mut self, to: Ty, a: impl Source<T>) -> Reg {
        let a = a.operand().value;
        let from = a.ty();
        if from.bits() != to.bits() || to == Ty::Pred {
            self.refuse("mov", &format!("{from} and {to} have different sizes"));
        }
        self.inst(Feature::Base, &format!("mov.{}", to.untyped()), to, &[(a, from)])
    }

    /// Emits `mov.b32 d, {lo, hi}`: joins two or four registers, lowest first.
    pub fn pack<U: Static, T: Kind>(&mut self, parts: &[Reg<T>]) -> Reg<U> {
        let parts: Vec<Reg> = parts.iter().map(|part| part.erase()).collect();
        self.pack_as(U::STATIC, &parts).cast(U::STATIC)
    }

    /// Like [`Entry::pack`], to a type known at run time.
    pub fn pack_as(&mut self, to: Ty, parts: &[Reg]) -> Reg {
        let name = format!("mov.{}", to.untyped());
        self.check_parts(&name, to, parts);
        let dst = self.destination(&name, to);
        let text = format!("{name} {}, {}", self.name_of(dst), self.braces(parts));
        self.code(Self::pack_feature(to), text);
        dst
    }

    /// Emits `mov.b32 {lo, hi}, a`: splits a register, lowest part first.
    pub fn unpack<U: Static, T: Kind>(&mut self, a: Reg<T>) -> Vec<Reg<U>> {
        let parts = self.unpack_as(U::STATIC, a.erase());
        parts.into_iter().map(|part| part.cast(U::STATIC)).collect()
    }

    /// Like [`Entry::unpack`], to a type known at run time.
    pub fn unpack_as(&mut self, to: Ty, a: Reg) -> Vec<Reg> {
        let name = format!("mov.{}", a.ty().untyped());
        let count = (a.ty().bits() / to.bits()).max(1) as usize;
        let parts = self.destinations(&name, to, count);
        self.check_parts(&name, a.ty(), &parts);
        let text = format!("{name} {}, {}", self.braces(&parts), self.name_of(a));
        self.code(Self::pack_feature(a.ty()), text);
        parts
    }

    fn pack_feature(whole: Ty) -> Feature {
        if whole == Ty::B128 { Feature::Access128 } else { Feature::Base }
    }

    fn check_parts(&mut self, name: &str, whole: Ty, parts: &[Reg]) {
        let bits: u32 = parts.iter().map(|part| part.ty.bits()).sum();
        let same = parts.iter().all(|part| part.ty.class() == parts[0].ty.class());
        if bits != whole.bits() || !matches!(parts.len(), 2 | 4) || !same {
            let message = format!("{} parts of {bits} bits in all are no {whole}", parts.len());
            self.refuse(name, &message);
        }
    }

    /// `{%r1, %r2}`
    pub(crate) fn braces(&self, regs: &[Reg]) -> String {
        let names: Vec<String> = regs.iter().map(|reg| self.name_of(*reg)).collect();
        format!("{{{}}}", names.join(", "))
    }
}
