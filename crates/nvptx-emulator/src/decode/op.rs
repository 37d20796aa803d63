//! The decoded form of a kernel: dense registers, function pointers, resolved labels.

use crate::lanes::convert::Convert;
use crate::lanes::{CompareFn, LaneFn, R32, R64};
use crate::ty::Ty;

/// A register row of the file that the context determines, or a constant row if `CONST` is set.
pub(crate) type Src = u32;
/// A register row that is written; `SINK` for `_`.
pub(crate) type Dst = u32;

pub(crate) const CONST: u32 = 1 << 31;
pub(crate) const SINK: u32 = u32::MAX;

/// A predicate operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PSrc {
    Reg { row: u32, negated: bool },
    Const(bool),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Logic {
    And,
    Or,
    Xor,
}

/// A use of a register, for the check of its initialisation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Use {
    R32(u32),
    R64(u32),
    Pred(u32),
}

/// The state space of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemSpace {
    Generic,
    Global,
    Shared,
    Local,
    Param,
    Const,
}

/// An address: a register or nothing, and an offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    pub base: Base,
    pub offset: i64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Base {
    None,
    R32(Src),
    R64(Src),
}

/// A load or store of one to eight elements per thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub space: MemSpace,
    pub address: Address,
    pub ty: Ty,
    pub count: u32,
    /// The first of `count` rows in [`Kernel::lists`].
    pub regs: u32,
    /// The size of the registers: 2, 4 or 8 bytes.
    pub reg_bytes: u32,
    /// Whether it is relaxed, acquire, release or volatile: such accesses do not race with each
    /// other.
    pub is_strong: bool,
    pub is_nc: bool,
    pub site: u32,
}

/// The operation of an atomic instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum AtomOp {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exch,
    Cas,
    Inc,
    Dec,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Atomic {
    pub op: AtomOp,
    pub space: MemSpace,
    pub address: Address,
    pub ty: Ty,
    pub d: Dst,
    pub a: Src,
    /// The new value of `cas`.
    pub b: Src,
    pub site: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyAsync {
    pub to: Address,
    pub from: Address,
    pub bytes: u32,
    /// The number of bytes to read; the rest is zero. `None` reads all.
    pub source_bytes: Option<Src>,
    /// `ignore-src`: if true, nothing is read.
    pub ignore: Option<PSrc>,
    pub to_site: u32,
    pub from_site: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum BarKind {
    Sync,
    Arrive,
    RedPopc,
    RedAnd,
    RedOr,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Barrier {
    pub kind: BarKind,
    /// Whether all threads of a warp must arrive together.
    pub is_aligned: bool,
    pub id: Src,
    pub threads: Option<Src>,
    /// The result of a reduction: a predicate row, or a 32-bit one for `popc`.
    pub d: Dst,
    pub p: PSrc,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ShuffleKind {
    Up,
    Down,
    Bfly,
    Idx,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum VoteKind {
    All,
    Any,
    Uni,
    Ballot,
}

/// The element types and the shape of a matrix instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mma {
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub a_ty: Elem,
    pub b_ty: Elem,
    /// The type of the accumulator and the result.
    pub c_ty: Ty,
    pub d_ty: Ty,
    pub saturates: bool,
    /// The first rows in [`Kernel::lists`].
    pub d: u32,
    pub a: u32,
    pub b: u32,
    pub c: u32,
}

/// A product of a warpgroup: 64 x `n` sums of 16 terms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wgmma {
    pub n: u32,
    pub elem: Elem,
    /// The first of its `n / 2` rows in [`Kernel::lists`].
    pub d: u32,
    /// The descriptors.
    pub a: Src,
    pub b: Src,
    /// Whether the product is added to the old sums.
    pub accumulate: PSrc,
    pub transposed: (bool, bool),
    pub site: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Elem {
    F16,
    BF16,
    TF32,
    S8,
    U8,
    F64,
    E4M3,
    E5M2,
}

/// A decoded operation.
#[derive(Clone, Copy)]
pub(crate) enum Op {
    Lane {
        f: LaneFn,
        d: Dst,
        s: [Src; 4],
    },
    /// Integer division: like `Lane`, but checks the second operand for zero.
    Divide {
        f: LaneFn,
        d: Dst,
        s: [Src; 4],
    },
    Lop3 {
        d: Dst,
        s: [Src; 3],
        table: u8,
    },
    Convert {
        spec: Convert,
        d: Dst,
        a: Src,
        a_wide: bool,
        d_bytes: u32,
    },
    ConvertPack {
        spec: Convert,
        d: Dst,
        a: Src,
        b: Src,
    },
    /// `add.cc`, `addc`, `sub.cc`, `subc` (`invert`), `mad.lo.cc` and the like (`f` makes the
    /// product, added to the last operand).
    Carry {
        f: Option<LaneFn>,
        d: Dst,
        s: [Src; 3],
        wide: bool,
        invert: bool,
        reads: bool,
        sets: bool,
    },
    Mov32 {
        d: Dst,
        a: Src,
    },
    Mov64 {
        d: Dst,
        a: Src,
    },
    /// Joins parts of `bits` bits to a value, lowest first; or splits it.
    Pack {
        d: Dst,
        wide: bool,
        bits: u32,
        parts: u32,
        count: u32,
    },
    Unpack {
        a: Src,
        wide: bool,
        bits: u32,
        parts: u32,
        count: u32,
    },
    Compare {
        f: CompareFn,
        a: Src,
        b: Src,
        with: Option<(Logic, PSrc)>,
        p: Dst,
        q: Dst,
    },
    /// `set`: all ones or 1.0 if the comparison is true.
    Set {
        f: CompareFn,
        a: Src,
        b: Src,
        with: Option<(Logic, PSrc)>,
        d: Dst,
        one: u32,
    },
    Test {
        f: fn(&R32) -> u32,
        p: Dst,
        a: Src,
    },
    Select32 {
        d: Dst,
        a: Src,
        b: Src,
        p: PSrc,
    },
    Select64 {
        d: Dst,
        a: Src,
        b: Src,
        p: PSrc,
    },
    Predicate {
        logic: Logic,
        d: Dst,
        a: PSrc,
        b: PSrc,
    },
    Clock {
        d: Dst,
        wide: bool,
    },
    Load(Access),
    Store(Access),
    Atomic(Atomic),
    IsSpace {
        space: MemSpace,
        p: Dst,
        a: Src,
    },
    CopyAsync(CopyAsync),
    CopyCommit,
    /// Waits until at most this many groups of the thread are in flight; `None` waits for all
    /// copies, committed or not.
    CopyWait(Option<u32>),
    Branch {
        to: u32,
    },
    BranchIndex {
        index: Src,
        targets: u32,
        count: u32,
    },
    Exit,
    Trap,
    Nothing,
    Barrier(Barrier),
    WarpBarrier {
        members: Src,
    },
    Shuffle {
        kind: ShuffleKind,
        d: Dst,
        p: Dst,
        a: Src,
        b: Src,
        c: Src,
        members: Src,
    },
    Vote {
        kind: VoteKind,
        d: Dst,
        p: PSrc,
        members: Src,
    },
    Match {
        all: bool,
        wide: bool,
        d: Dst,
        p: Dst,
        a: Src,
        members: Src,
    },
    Reduce {
        op: AtomOp,
        signed: bool,
        d: Dst,
        a: Src,
        members: Src,
    },
    ActiveMask {
        d: Dst,
    },
    Elect {
        d: Dst,
        p: Dst,
        members: Src,
    },
    LoadMatrix {
        address: Address,
        generic: bool,
        count: u32,
        trans: bool,
        regs: u32,
        site: u32,
    },
    StoreMatrix {
        address: Address,
        generic: bool,
        count: u32,
        trans: bool,
        regs: u32,
        site: u32,
    },
    Mma(Mma),
    Wgmma(Wgmma),
    WgmmaFence,
    WgmmaCommit,
    /// Waits until at most this many groups of products run.
    WgmmaWait(u32),
    /// `fence.proxy.async` of shared memory.
    ProxyFence,
}

/// An instruction with its guard and the registers it reads.
#[derive(Clone, Copy)]
pub(crate) struct Inst {
    pub op: Op,
    pub guard: Option<(u32, bool)>,
    pub line: u32,
    /// A range of [`Kernel::uses`].
    pub uses: (u32, u32),
    /// The text of the opcode, an index into [`Kernel::names`].
    pub name: u32,
}

/// A special register whose row is filled when a block starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    Tid(usize),
    Ntid(usize),
    Ctaid(usize),
    Nctaid(usize),
    LaneId,
    WarpId,
    NWarpId,
    SmId,
    NSmId,
    GridId,
    LaneMask(u8),
    DynamicShared,
    TotalShared,
}

/// The place of a shared variable.
#[derive(Clone, Debug)]
pub(crate) struct SharedVar {
    pub name: String,
    pub offset: u32,
    pub bytes: u32,
}

/// The place of a kernel parameter in the parameter space.
#[derive(Clone, Debug)]
pub(crate) struct ParamSlot {
    pub name: String,
    pub offset: u32,
    pub bytes: u32,
    pub is_pointer_size: bool,
}

/// A decoded kernel.
pub(crate) struct Kernel {
    pub name: String,
    pub params: Vec<ParamSlot>,
    pub param_bytes: u32,
    pub maxntid: Option<[u32; 3]>,
    pub reqntid: Option<[u32; 3]>,
    pub code: Vec<Inst>,
    pub uses: Vec<Use>,
    pub lists: Vec<u32>,
    pub names: Vec<String>,
    pub consts32: Vec<R32>,
    pub consts64: Vec<R64>,
    pub rows32: u32,
    pub rows64: u32,
    pub preds: u32,
    /// The rows of special registers; `wide` ones are in the 64-bit file.
    pub specials: Vec<(Special, u32)>,
    /// The names of registers by file and row, for reports.
    pub reg_names: Vec<(Use, String)>,
    pub shared: Vec<SharedVar>,
    /// The start of dynamic shared memory.
    pub dynamic_offset: u32,
    pub uses_dynamic: bool,
    /// Whether there is a product by a warpgroup.
    pub uses_wgmma: bool,
    /// The bytes of static shared memory without the gaps between the variables.
    pub static_bytes: u32,
    pub local_bytes: u32,
    /// The instruction of each memory access site.
    pub sites: Vec<u32>,
    /// The smallest access to shared and to global memory, as a power of two.
    pub shared_granule: u32,
    pub global_granule: u32,
    pub has_copies: bool,
}
