//! Comparisons and selections.

use crate::entry::Entry;
use crate::needs::Feature;
use crate::reg::*;
use crate::ty::*;

/// A comparison. If an operand is NaN, comparisons without `u` are false, those with `u` are true.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cmp {
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
    /// `==`, or NaN
    Equ,
    /// `!=`, or NaN
    Neu,
    /// `<`, or NaN
    Ltu,
    /// `<=`, or NaN
    Leu,
    /// `>`, or NaN
    Gtu,
    /// `>=`, or NaN
    Geu,
    /// Neither operand is NaN.
    Num,
    /// An operand is NaN.
    Nan,
}

impl Cmp {
    /// Returns the name in PTX.
    pub fn name(self) -> &'static str {
        match self {
            Cmp::Eq => "eq",
            Cmp::Ne => "ne",
            Cmp::Lt => "lt",
            Cmp::Le => "le",
            Cmp::Gt => "gt",
            Cmp::Ge => "ge",
            Cmp::Equ => "equ",
            Cmp::Neu => "neu",
            Cmp::Ltu => "ltu",
            Cmp::Leu => "leu",
            Cmp::Gtu => "gtu",
            Cmp::Geu => "geu",
            Cmp::Num => "num",
            Cmp::Nan => "nan",
        }
    }

    /// Whether only floats have this comparison.
    pub fn of_floats_only(self) -> bool {
        use Cmp::*;
        matches!(self, Equ | Neu | Ltu | Leu | Gtu | Geu | Num | Nan)
    }
}

/// The operation that combines a comparison with a predicate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Combine {
    /// Both are true.
    And,
    /// At least one is true.
    Or,
    /// Exactly one is true.
    Xor,
}

impl Entry {
    /// Emits `setp`: a comparison.
    pub fn setp<T: Kind>(&mut self, cmp: Cmp, a: impl Source<T>, b: impl Source<T>) -> Reg<Pred> {
        let (a, b) = (a.operand().value, b.operand().value);
        let (feature, ty, shown) = self.comparison(cmp, a);
        let name = format!("setp.{}.{shown}", cmp.name());
        self.inst(feature, &name, Ty::Pred, &[(a, ty), (b, ty)])
    }

    /// Emits `setp.lt.and` and so on: a comparison combined with a predicate, or with its negation.
    pub fn setp_combined<T: Kind>(
        &mut self,
        cmp: Cmp,
        combine: Combine,
        a: impl Source<T>,
        b: impl Source<T>,
        with: impl Into<Guard>,
    ) -> Reg<Pred> {
        let (a, b, with) = (a.operand().value, b.operand().value, with.into());
        let (feature, ty, shown) = self.comparison(cmp, a);
        let combined = match combine {
            Combine::And => "and",
            Combine::Or => "or",
            Combine::Xor => "xor",
        };
        let name = format!("setp.{}.{combined}.{shown}", cmp.name());
        let dst = self.destination(&name, Ty::Pred);
        let (a, b) = (self.source(&name, a, ty), self.source(&name, b, ty));
        if with.pred.ty() != Ty::Pred {
            self.refuse(&name, "the operand that it is combined with is not a predicate");
        }
        let (pred, not) = (self.name_of(with.pred), if with.negated { "!" } else { "" });
        let text = format!("{name} {}, {a}, {b}, {not}{pred}", self.name_of(dst));
        self.code(feature, text);
        dst.cast(Ty::Pred)
    }

    fn comparison(&mut self, cmp: Cmp, a: Value) -> (Feature, Ty, Ty) {
        let ty = a.ty();
        let single = matches!(ty, Ty::F16 | Ty::Bf16);
        let real = ty.is_float() || single;
        let equality = matches!(cmp, Cmp::Eq | Cmp::Ne);
        let bits = matches!(ty, Ty::B16 | Ty::B32 | Ty::B64);
        let integer = ty.is_int() && ty.bits() >= 16;
        if !(real || integer && !cmp.of_floats_only() || bits && equality) {
            self.refuse("setp", &format!("`{}` does not compare {ty}", cmp.name()));
        }
        (if ty == Ty::Bf16 { Feature::Bf16Add } else { Feature::Base }, ty, ty)
    }

    /// Emits `selp`: `a` if the predicate is true, else `b`.
    pub fn selp<T: Kind>(
        &mut self,
        a: impl Source<T>,
        b: impl Source<T>,
        pred: Reg<Pred>,
    ) -> Reg<T> {
        let (a, b) = (a.operand().value, b.operand().value);
        let has = |ty: Ty| ty != Ty::Pred && ty.bits() >= 16 && ty.bits() <= 64;
        let ty = self.checked("selp", a, has, "numbers or bits");
        let shown = if ty.is_float() || ty.is_int() { ty } else { ty.untyped() };
        let srcs = [(a, ty), (b, ty), (pred.operand().value, Ty::Pred)];
        self.inst(Feature::Base, &format!("selp.{shown}"), ty, &srcs)
    }
}
