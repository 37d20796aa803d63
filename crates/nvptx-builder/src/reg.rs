//! Registers, operands, addresses.

use crate::ty::*;
use std::marker::PhantomData;
use std::ops::Not;

/// A register of an [`Entry`](crate::Entry), identified by a number. Use it with its own entry
/// only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reg<T = Dyn> {
    pub(crate) ty: Ty,
    pub(crate) index: u32,
    /// Whether it has a name, which is the `index`-th one.
    pub(crate) named: bool,
    kind: PhantomData<T>,
}

impl<T: Kind> Reg<T> {
    pub(crate) fn new(ty: Ty, index: u32, named: bool) -> Reg<T> {
        debug_assert!(T::TY.is_none_or(|known| known == ty));
        Reg { ty, index, named, kind: PhantomData }
    }

    /// Returns the type.
    pub fn ty(self) -> Ty {
        self.ty
    }

    /// Returns the register with a run-time type.
    pub fn erase(self) -> Reg {
        Reg::new(self.ty, self.index, self.named)
    }

    /// Returns the register with another type of its class (`u32`, `s32`, `b32`, `f16x2`, … share
    /// registers), without an instruction; `None` if the classes differ.
    pub fn view(self, ty: Ty) -> Option<Reg> {
        let same = self.ty.class() == ty.class() && self.ty.bits() == ty.bits();
        same.then(|| Reg::new(ty, self.index, self.named))
    }

    /// Returns the register with a static type, if it has that type.
    pub fn typed<U: Static>(self) -> Option<Reg<U>> {
        (self.ty == U::STATIC).then(|| Reg::new(self.ty, self.index, self.named))
    }

    pub(crate) fn cast<U: Kind>(self, ty: Ty) -> Reg<U> {
        Reg::new(ty, self.index, self.named)
    }
}

macro_rules! views {
    ($($from:ident: $($method:ident $to:ident),*;)*) => {$(
        impl Reg<$from> {$(
            #[doc = concat!("The same register, read as `", stringify!($method), "`.")]
            pub fn $method(self) -> Reg<$to> {
                self.cast(Ty::$to)
            }
        )*}
    )*};
}

views! {
    B16: u16 U16, s16 S16, f16 F16, bf16 Bf16;
    U16: b16 B16, s16 S16;
    S16: b16 B16, u16 U16;
    F16: b16 B16;
    Bf16: b16 B16;
    B32: u32 U32, s32 S32, f16x2 F16x2, bf16x2 Bf16x2, tf32 Tf32;
    U32: b32 B32, s32 S32;
    S32: b32 B32, u32 U32;
    F16x2: b32 B32;
    Bf16x2: b32 B32;
    Tf32: b32 B32;
    B64: u64 U64, s64 S64, f32x2 F32x2;
    U64: b64 B64, s64 S64;
    S64: b64 B64, u64 U64;
    F32x2: b64 B64;
}

/// An operand: a register or a constant.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Operand<T = Dyn> {
    pub(crate) value: Value,
    kind: PhantomData<T>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Value {
    Reg(Reg),
    /// The bits, low end first.
    Imm(Ty, u64),
}

impl Value {
    pub(crate) fn ty(self) -> Ty {
        match self {
            Value::Reg(reg) => reg.ty,
            Value::Imm(ty, _) => ty,
        }
    }
}

impl<T: Kind> Operand<T> {
    fn new(value: Value) -> Operand<T> {
        Operand { value, kind: PhantomData }
    }

    /// Returns the type.
    pub fn ty(self) -> Ty {
        self.value.ty()
    }

    /// Returns the operand with a run-time type.
    pub fn erase(self) -> Operand {
        Operand::new(self.value)
    }

    /// Returns the bits of a constant.
    pub fn constant_bits(self) -> Option<u64> {
        match self.value {
            Value::Reg(_) => None,
            Value::Imm(_, bits) => Some(bits),
        }
    }

    /// Returns the register.
    pub fn reg(self) -> Option<Reg<T>> {
        match self.value {
            Value::Reg(reg) => Some(reg.cast(reg.ty)),
            Value::Imm(..) => None,
        }
    }
}

impl Operand {
    /// Returns the operand with a static type, if it has that type.
    pub fn typed<U: Static>(self) -> Option<Operand<U>> {
        (self.ty() == U::STATIC).then(|| Operand::new(self.value))
    }

    /// Creates a constant from bits: those of a binary32 for `f32`, the low bits of an integer.
    pub fn bits(ty: Ty, bits: u64) -> Operand {
        let mask = if ty.bits() >= 64 { u64::MAX } else { (1 << ty.bits()) - 1 };
        Operand::new(Value::Imm(ty, bits & mask))
    }

    /// Creates an integer constant.
    pub fn int(ty: Ty, value: i64) -> Operand {
        Operand::bits(ty, value as u64)
    }

    /// Creates a binary32 constant.
    pub fn f32(value: f32) -> Operand {
        Operand::bits(Ty::F32, u64::from(value.to_bits()))
    }

    /// Creates a binary64 constant.
    pub fn f64(value: f64) -> Operand {
        Operand::bits(Ty::F64, value.to_bits())
    }
}

/// A source operand of type `T`: `Reg<T>`, [`Operand<T>`] or a Rust number.
pub trait Source<T: Kind> {
    /// Returns the operand.
    fn operand(self) -> Operand<T>;
}

impl<T: Kind> Source<T> for Reg<T> {
    fn operand(self) -> Operand<T> {
        Operand::new(Value::Reg(self.erase()))
    }
}

impl<T: Kind> Source<T> for Operand<T> {
    fn operand(self) -> Operand<T> {
        self
    }
}

macro_rules! numbers {
    ($($rust:ty => $($kind:ident)*;)*) => {$($(
        impl Source<$kind> for $rust {
            fn operand(self) -> Operand<$kind> {
                Operand::new(Operand::bits(Ty::$kind, self as u64).value)
            }
        }
    )*)*};
}

numbers! {
    u16 => B16 U16;
    i16 => S16;
    u32 => B32 U32;
    i32 => S32;
    u64 => B64 U64;
    i64 => S64;
}

impl Source<F32> for f32 {
    fn operand(self) -> Operand<F32> {
        Operand::new(Operand::f32(self).value)
    }
}

impl Source<F64> for f64 {
    fn operand(self) -> Operand<F64> {
        Operand::new(Operand::f64(self).value)
    }
}

/// The condition of an instruction: `@%p1` or `@!%p1`. Created by `p.into()` or `!p` from a
/// predicate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guard {
    pub(crate) pred: Reg,
    pub(crate) negated: bool,
}

impl From<Reg<Pred>> for Guard {
    fn from(pred: Reg<Pred>) -> Guard {
        Guard { pred: pred.erase(), negated: false }
    }
}

impl From<Reg> for Guard {
    /// The type is checked when the guard is used.
    fn from(pred: Reg) -> Guard {
        Guard { pred, negated: false }
    }
}

impl Not for Reg<Pred> {
    type Output = Guard;
    fn not(self) -> Guard {
        !Guard::from(self)
    }
}

impl Not for Guard {
    type Output = Guard;
    fn not(self) -> Guard {
        Guard { negated: !self.negated, ..self }
    }
}

/// A variable or parameter, which has an address.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Symbol {
    pub(crate) name: String,
    pub(crate) space: Space,
}

impl Symbol {
    /// Returns the name in the text.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the state space.
    pub fn space(&self) -> Space {
        self.space
    }

    /// Returns the address of byte `offset`.
    pub fn at(&self, offset: i64) -> Address {
        Address { base: Base::Symbol(self.clone()), offset }
    }
}

/// A state space of PTX.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Space {
    /// Memory of the GPU; 64-bit addresses.
    Global,
    /// Memory of a block; 32-bit addresses suffice.
    Shared,
    /// Memory of a thread.
    Local,
    /// Read-only memory, fast if all threads of a warp read the same address.
    Const,
    /// The parameters of the kernel.
    Param,
    /// Any space, determined by the address; slower than a known space.
    Generic,
}

impl Space {
    /// Returns the suffix of `ld`, with its dot; empty for the generic space.
    pub fn suffix(self) -> &'static str {
        match self {
            Space::Global => ".global",
            Space::Shared => ".shared",
            Space::Local => ".local",
            Space::Const => ".const",
            Space::Param => ".param",
            Space::Generic => "",
        }
    }
}

/// An address: a register or a symbol, plus an offset in bytes. 64-bit registers hold addresses of
/// all spaces, 32-bit registers those of `shared`, `local` and `const`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    pub(crate) base: Base,
    pub(crate) offset: i64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Base {
    Reg(Reg),
    Symbol(Symbol),
}

impl Address {
    /// Adds `offset` bytes.
    pub fn plus(mut self, offset: i64) -> Address {
        self.offset += offset;
        self
    }
}

impl<T: Kind> Reg<T> {
    /// Returns the address `offset` bytes after this register.
    pub fn at(self, offset: i64) -> Address {
        Address { base: Base::Reg(self.erase()), offset }
    }
}

impl<T: Kind> From<Reg<T>> for Address {
    fn from(reg: Reg<T>) -> Address {
        reg.at(0)
    }
}

impl From<&Symbol> for Address {
    fn from(symbol: &Symbol) -> Address {
        symbol.at(0)
    }
}

/// A label of an entry; see [`Entry::label`](crate::Entry::label).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Label(pub(crate) u32);
