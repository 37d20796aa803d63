//! Communication within a warp, and special registers.

use crate::entry::Entry;
use crate::needs::Feature;
use crate::reg::{Reg, Source, Value};
use crate::ty::*;

/// Special registers of 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Special {
    /// The thread in its block.
    TidX,
    /// The thread in its block.
    TidY,
    /// The thread in its block.
    TidZ,
    /// Threads of a block.
    NtidX,
    /// Threads of a block.
    NtidY,
    /// Threads of a block.
    NtidZ,
    /// The block in the grid.
    CtaidX,
    /// The block in the grid.
    CtaidY,
    /// The block in the grid.
    CtaidZ,
    /// Blocks of the grid.
    NctaidX,
    /// Blocks of the grid.
    NctaidY,
    /// Blocks of the grid.
    NctaidZ,
    /// The thread in its warp.
    LaneId,
    /// The warp on its multiprocessor.
    WarpId,
    /// The multiprocessor.
    SmId,
    /// A mask of the lanes before this one.
    LanemaskLt,
    /// The cycle counter, modulo 2^32.
    Clock,
    /// Bytes of dynamic shared memory.
    DynamicSmemSize,
}

impl Special {
    /// Returns the name in PTX.
    pub fn name(self) -> &'static str {
        match self {
            Special::TidX => "%tid.x",
            Special::TidY => "%tid.y",
            Special::TidZ => "%tid.z",
            Special::NtidX => "%ntid.x",
            Special::NtidY => "%ntid.y",
            Special::NtidZ => "%ntid.z",
            Special::CtaidX => "%ctaid.x",
            Special::CtaidY => "%ctaid.y",
            Special::CtaidZ => "%ctaid.z",
            Special::NctaidX => "%nctaid.x",
            Special::NctaidY => "%nctaid.y",
            Special::NctaidZ => "%nctaid.z",
            Special::LaneId => "%laneid",
            Special::WarpId => "%warpid",
            Special::SmId => "%smid",
            Special::LanemaskLt => "%lanemask_lt",
            Special::Clock => "%clock",
            Special::DynamicSmemSize => "%dynamic_smem_size",
        }
    }
}

/// Special registers of 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Special64 {
    /// The time in nanoseconds.
    GlobalTimer,
    /// The cycle counter.
    Clock64,
}

/// The lane that `shfl` reads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Shuffle {
    /// This many lanes before.
    Up,
    /// This many lanes after.
    Down,
    /// The lane number with these bits flipped.
    Bfly,
    /// The lane with this number.
    Idx,
}

/// The mode of `vote`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Vote {
    /// True in all lanes.
    All,
    /// True in at least one lane.
    Any,
    /// Equal in all lanes.
    Uni,
}

/// The operation of `redux`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Redux {
    /// Sum of integers.
    Add,
    /// The minimum.
    Min,
    /// The maximum.
    Max,
    /// Bitwise.
    And,
    /// Bitwise.
    Or,
    /// Bitwise.
    Xor,
}

impl Entry {
    /// Emits `mov.u32` of a special register.
    pub fn special(&mut self, which: Special) -> Reg<U32> {
        let dst = self.destination("mov.u32", Ty::U32);
        let text = format!("mov.u32 {}, {}", self.name_of(dst), which.name());
        self.code(Feature::Base, text);
        dst.cast(Ty::U32)
    }

    /// Emits `mov.u64` of a special register.
    pub fn special64(&mut self, which: Special64) -> Reg<U64> {
        let name = match which {
            Special64::GlobalTimer => "%globaltimer",
            Special64::Clock64 => "%clock64",
        };
        let dst = self.destination("mov.u64", Ty::U64);
        let text = format!("mov.u64 {}, {name}", self.name_of(dst));
        self.code(Feature::Base, text);
        dst.cast(Ty::U64)
    }

    /// Emits `shfl.sync`: reads the value of another lane. `clamp` bounds the lanes: 0 for
    /// [`Shuffle::Up`], 31 for the others, within the whole warp.
    pub fn shfl<T: Kind>(
        &mut self,
        mode: Shuffle,
        a: Reg<T>,
        lane: impl Source<U32>,
        clamp: impl Source<U32>,
        mask: impl Source<U32>,
    ) -> Reg<T> {
        let mode = match mode {
            Shuffle::Up => "up",
            Shuffle::Down => "down",
            Shuffle::Bfly => "bfly",
            Shuffle::Idx => "idx",
        };
        let a = Value::Reg(a.erase());
        let ty = self.checked("shfl", a, |ty| ty.bits() == 32, "of 32 bits");
        let srcs = [
            (a, ty),
            (lane.operand().value, Ty::U32),
            (clamp.operand().value, Ty::U32),
            (mask.operand().value, Ty::B32),
        ];
        self.inst(Feature::Base, &format!("shfl.sync.{mode}.b32"), ty, &srcs)
    }

    /// Emits `vote.sync`: reduces a predicate over the lanes of `mask`.
    pub fn vote(&mut self, what: Vote, pred: Reg<Pred>, mask: impl Source<U32>) -> Reg<Pred> {
        let name = match what {
            Vote::All => "vote.sync.all.pred",
            Vote::Any => "vote.sync.any.pred",
            Vote::Uni => "vote.sync.uni.pred",
        };
        let srcs = [(pred.operand().value, Ty::Pred), (mask.operand().value, Ty::B32)];
        self.inst(Feature::Base, name, Ty::Pred, &srcs)
    }

    /// Emits `vote.sync.ballot.b32`: a mask of the lanes whose predicate is true.
    pub fn ballot(&mut self, pred: Reg<Pred>, mask: impl Source<U32>) -> Reg<U32> {
        let srcs = [(pred.operand().value, Ty::Pred), (mask.operand().value, Ty::B32)];
        self.inst(Feature::Base, "vote.sync.ballot.b32", Ty::U32, &srcs)
    }

    /// Emits `match.any.sync`: a mask of the lanes with the same value.
    pub fn match_any<T: Bits>(&mut self, a: impl Source<T>, mask: impl Source<U32>) -> Reg<U32> {
        let a = a.operand().value;
        let has = |ty: Ty| matches!(ty.bits(), 32 | 64);
        let ty = self.checked("match.any.sync", a, has, "of 32 or 64 bits");
        let name = format!("match.any.sync.{}", ty.untyped());
        self.inst(Feature::Base, &name, Ty::U32, &[(a, ty), (mask.operand().value, Ty::B32)])
    }

    /// Emits `match.all.sync`: `mask` if all lanes have the same value, else 0.
    pub fn match_all<T: Bits>(&mut self, a: impl Source<T>, mask: impl Source<U32>) -> Reg<U32> {
        let a = a.operand().value;
        let has = |ty: Ty| matches!(ty.bits(), 32 | 64);
        let ty = self.checked("match.all.sync", a, has, "of 32 or 64 bits");
        let name = format!("match.all.sync.{}", ty.untyped());
        self.inst(Feature::Base, &name, Ty::U32, &[(a, ty), (mask.operand().value, Ty::B32)])
    }

    /// Emits `activemask`: a mask of the active lanes.
    pub fn activemask(&mut self) -> Reg<U32> {
        self.inst(Feature::Base, "activemask.b32", Ty::U32, &[])
    }

    /// Emits `redux.sync`: reduces a value over the lanes of `mask`. f32 has only minimum and
    /// maximum.
    pub fn redux<T: Kind>(
        &mut self,
        op: Redux,
        a: impl Source<T>,
        mask: impl Source<U32>,
    ) -> Reg<T> {
        let a = a.operand().value;
        let ty = self.checked("redux.sync", a, |ty| ty.bits() == 32, "of 32 bits");
        let (op, fits, shown) = match op {
            Redux::Add => ("add", ty.is_int(), ty),
            Redux::Min => ("min", ty.is_int() || ty == Ty::F32, ty),
            Redux::Max => ("max", ty.is_int() || ty == Ty::F32, ty),
            Redux::And => ("and", !ty.is_float(), Ty::B32),
            Redux::Or => ("or", !ty.is_float(), Ty::B32),
            Redux::Xor => ("xor", !ty.is_float(), Ty::B32),
        };
        let name = format!("redux.sync.{op}.{shown}");
        if !fits {
            self.refuse(&name, "there is no such reduction");
        }
        let feature = if ty == Ty::F32 { Feature::ReduxF32 } else { Feature::Redux };
        self.inst(feature, &name, ty, &[(a, ty), (mask.operand().value, Ty::B32)])
    }

    /// Emits `elect.sync`: true in one lane of `mask`.
    pub fn elect(&mut self, mask: impl Source<U32>) -> Reg<Pred> {
        let dst = self.destination("elect.sync", Ty::Pred);
        let mask = self.source("elect.sync", mask.operand().value, Ty::B32);
        let text = format!("elect.sync _|{}, {mask}", self.name_of(dst));
        self.code(Feature::Elect, text);
        dst.cast(Ty::Pred)
    }
}
