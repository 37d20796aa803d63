//! Asynchronous copies into shared memory, and products of small matrices (`mma.sync`).

use crate::entry::Entry;
use crate::needs::Feature;
use crate::ops::memory::L2;
use crate::reg::*;
use crate::ty::*;

/// The form of a `cp.async`: size and caches.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CpAsync {
    bytes: u32,
    global_only: bool,
    l2: Option<L2>,
}

impl CpAsync {
    /// Creates `cp.async.ca`: 4, 8 or 16 bytes, through L1.
    pub fn ca(bytes: u32) -> CpAsync {
        CpAsync { bytes, global_only: false, l2: None }
    }

    /// Creates `cp.async.cg`: 16 bytes, bypassing L1.
    pub fn cg() -> CpAsync {
        CpAsync { bytes: 16, global_only: true, l2: None }
    }

    /// Adds `.L2::128B` and so on.
    pub fn l2(self, l2: L2) -> CpAsync {
        CpAsync { l2: Some(l2), ..self }
    }
}

/// The shape of a matrix product by a warp, `D = A B + C`: A is m×k and row-major, B is k×n and
/// column-major. The PTX manual shows which elements each thread holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Mma {
    m: u32,
    n: u32,
    k: u32,
    /// The name of the element type, and its bits.
    a: (&'static str, u32),
    b: (&'static str, u32),
    acc: Ty,
    feature: Feature,
}

macro_rules! shapes {
    ($($(#[$doc:meta])* $name:ident: $m:literal $n:literal $k:literal $a:ident $b:ident $bits:literal $acc:ident $feature:ident;)*) => {
        impl Mma {
            $($(#[$doc])* pub const $name: Mma = Mma {
                m: $m,
                n: $n,
                k: $k,
                a: (stringify!($a), $bits),
                b: (stringify!($b), $bits),
                acc: Ty::$acc,
                feature: Feature::$feature,
            };)*

            /// All shapes.
            pub const ALL: &'static [Mma] = &[$(Mma::$name,)*];
        }
    };
}

shapes! {
    /// `m16n8k8`, f16 into f32.
    F16_K8: 16 8 8 f16 f16 16 F32 MmaTuring;
    /// `m16n8k16`, f16 into f32.
    F16: 16 8 16 f16 f16 16 F32 MmaAmpere;
    /// `m16n8k16`, f16 into f16.
    F16_F16: 16 8 16 f16 f16 16 F16x2 MmaAmpere;
    /// `m16n8k8`, bf16 into f32.
    BF16_K8: 16 8 8 bf16 bf16 16 F32 MmaAmpere;
    /// `m16n8k16`, bf16 into f32.
    BF16: 16 8 16 bf16 bf16 16 F32 MmaAmpere;
    /// `m16n8k4`, tf32 into f32.
    TF32_K4: 16 8 4 tf32 tf32 32 F32 MmaAmpere;
    /// `m16n8k8`, tf32 into f32.
    TF32: 16 8 8 tf32 tf32 32 F32 MmaAmpere;
    /// `m8n8k4`, f64 into f64.
    F64: 8 8 4 f64 f64 64 F64 MmaAmpere;
    /// `m16n8k16`, s8 into s32.
    S8_K16: 16 8 16 s8 s8 8 S32 MmaAmpere;
    /// `m16n8k32`, s8 into s32.
    S8: 16 8 32 s8 s8 8 S32 MmaAmpere;
    /// `m16n8k32`, u8 into s32.
    U8: 16 8 32 u8 u8 8 S32 MmaAmpere;
    /// `m16n8k32`, u8 times s8 into s32.
    U8_S8: 16 8 32 u8 s8 8 S32 MmaAmpere;
    /// `m16n8k32`, s8 times u8 into s32.
    S8_U8: 16 8 32 s8 u8 8 S32 MmaAmpere;
    /// `m16n8k32`, e4m3 into f32.
    E4M3: 16 8 32 e4m3 e4m3 8 F32 MmaFp8;
    /// `m16n8k32`, e5m2 into f32.
    E5M2: 16 8 32 e5m2 e5m2 8 F32 MmaFp8;
}

impl Mma {
    /// Returns the rows of A and D.
    pub fn m(self) -> u32 {
        self.m
    }

    /// Returns the columns of B and D.
    pub fn n(self) -> u32 {
        self.n
    }

    /// Returns the columns of A and rows of B.
    pub fn k(self) -> u32 {
        self.k
    }

    /// Returns the type of the registers of A and B: elements packed into 32 bits, or `f64`.
    pub fn operand_type(self) -> Ty {
        if self.a.1 == 64 { Ty::F64 } else { Ty::B32 }
    }

    /// Returns the type of the registers of C and D.
    pub fn acc_type(self) -> Ty {
        self.acc
    }

    /// Returns the number of registers of a thread for A, for B, and for C or D.
    pub fn registers(self) -> (usize, usize, usize) {
        let register = self.operand_type().bits();
        let count =
            |elements: u32, bits: u32, register: u32| (elements * bits / 32 / register) as usize;
        let acc_element = if self.acc == Ty::F16x2 { 16 } else { self.acc.bits() };
        (
            count(self.m * self.k, self.a.1, register),
            count(self.k * self.n, self.b.1, register),
            count(self.m * self.n, acc_element, self.acc.bits()),
        )
    }

    /// Returns the name in PTX.
    pub fn name(self) -> String {
        let acc = if self.acc == Ty::F16x2 { Ty::F16 } else { self.acc };
        let (m, n, k) = (self.m, self.n, self.k);
        format!("mma.sync.aligned.m{m}n{n}k{k}.row.col.{acc}.{}.{}.{acc}", self.a.0, self.b.0)
    }
}

impl Entry {
    /// Emits `cp.async`: copies from global into shared memory; both addresses are aligned to the
    /// size. [`Entry::cp_async_wait_group`] waits for the copies of this thread.
    pub fn cp_async(&mut self, how: CpAsync, to: impl Into<Address>, from: impl Into<Address>) {
        self.copy_async(how, &to.into(), &from.into(), None);
    }

    /// Emits `cp.async` that reads only the first `bytes` and fills the rest with zeros, for the
    /// edges of a tile.
    pub fn cp_async_zero_fill(
        &mut self,
        how: CpAsync,
        to: impl Into<Address>,
        from: impl Into<Address>,
        bytes: impl Source<U32>,
    ) {
        self.copy_async(how, &to.into(), &from.into(), Some(bytes.operand().value));
    }

    fn copy_async(&mut self, how: CpAsync, to: &Address, from: &Address, bytes: Option<Value>) {
        let cache = if how.global_only { "cg" } else { "ca" };
        let name = format!("cp.async.{cache}.shared.global{}", how.l2.map_or("", L2::name));
        if !matches!(how.bytes, 4 | 8 | 16) {
            self.refuse(&name, "it copies 4, 8 or 16 bytes");
        }
        let (to, from) =
            (self.address(&name, Space::Shared, to), self.address(&name, Space::Global, from));
        let mut text = format!("{name} {to}, {from}, {}", how.bytes);
        if let Some(bytes) = bytes {
            text += &format!(", {}", self.source(&name, bytes, Ty::U32));
        }
        let feature = if how.l2.is_some() { Feature::CpAsyncHint } else { Feature::CpAsync };
        self.code(feature, text);
    }

    /// Emits `cp.async.commit_group`: makes the copies of this thread since the last one a group.
    pub fn cp_async_commit_group(&mut self) {
        self.code(Feature::CpAsync, "cp.async.commit_group".to_string());
    }

    /// Emits `cp.async.wait_group`: waits until at most `pending` groups of this thread are
    /// incomplete. Other threads see the data after a barrier.
    pub fn cp_async_wait_group(&mut self, pending: u32) {
        self.code(Feature::CpAsync, format!("cp.async.wait_group {pending}"));
    }

    /// Emits `cp.async.wait_all`.
    pub fn cp_async_wait_all(&mut self) {
        self.code(Feature::CpAsync, "cp.async.wait_all".to_string());
    }

    /// Emits `ldmatrix`: loads `N` (1, 2 or 4) matrices of 8×8 halves from shared memory, in the
    /// layout of `mma`. Each lane passes the address of a row, aligned to 16 bytes.
    pub fn ldmatrix<const N: usize>(
        &mut self,
        transposed: bool,
        address: impl Into<Address>,
    ) -> [Reg<B32>; N] {
        let regs = self.ldmatrix_as(N, transposed, address);
        std::array::from_fn(|i| regs[i])
    }

    /// Like [`Entry::ldmatrix`], with a number of matrices that is known at run time.
    pub fn ldmatrix_as(
        &mut self,
        count: usize,
        transposed: bool,
        address: impl Into<Address>,
    ) -> Vec<Reg<B32>> {
        let trans = if transposed { ".trans" } else { "" };
        let name = format!("ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16");
        self.check_matrices(&name, count);
        let regs = self.destinations(&name, Ty::B32, count);
        let address = self.address(&name, Space::Shared, &address.into());
        self.code(Feature::Ldmatrix, format!("{name} {}, {address}", self.braces(&regs)));
        regs.into_iter().map(|reg| reg.cast(Ty::B32)).collect()
    }

    /// Emits `stmatrix`: the inverse of [`Entry::ldmatrix`].
    pub fn stmatrix(&mut self, transposed: bool, address: impl Into<Address>, regs: &[Reg<B32>]) {
        let trans = if transposed { ".trans" } else { "" };
        let name = format!("stmatrix.sync.aligned.m8n8.x{}{trans}.shared.b16", regs.len());
        self.check_matrices(&name, regs.len());
        let regs: Vec<Reg> = regs.iter().map(|reg| reg.erase()).collect();
        let address = self.address(&name, Space::Shared, &address.into());
        self.code(Feature::Stmatrix, format!("{name} {address}, {}", self.braces(&regs)));
    }

    fn check_matrices(&mut self, name: &str, count: usize) {
        if !matches!(count, 1 | 2 | 4) {
            self.refuse(name, "it moves 1, 2 or 4 matrices");
        }
    }

    /// Emits `mma.sync`: `a * b + c`, with as many registers as [`Mma::registers`] says. To
    /// accumulate in place, name the destinations by [`Entry::to_all`].
    pub fn mma<A: Kind, C: Kind>(
        &mut self,
        how: Mma,
        a: &[Reg<A>],
        b: &[Reg<A>],
        c: &[Reg<C>],
    ) -> Vec<Reg<C>> {
        let name = how.name();
        let (acc, operand) = (how.acc_type(), how.operand_type());
        let erase_a = |regs: &[Reg<A>]| regs.iter().map(|reg| reg.erase()).collect::<Vec<_>>();
        let (a, b) = (erase_a(a), erase_a(b));
        let c: Vec<Reg> = c.iter().map(|reg| reg.erase()).collect();
        let counts = how.registers();
        for (part, regs, ty, count) in
            [("A", &a, operand, counts.0), ("B", &b, operand, counts.1), ("C", &c, acc, counts.2)]
        {
            if regs.len() != count || regs.iter().any(|reg| reg.ty.class() != ty.class()) {
                self.refuse(&name, &format!("{part} is {count} register(s) of {ty}"));
            }
        }
        let d = self.destinations(&name, acc, counts.2);
        let text = format!(
            "{name} {}, {}, {}, {}",
            self.braces(&d),
            self.braces(&a),
            self.braces(&b),
            self.braces(&c)
        );
        self.code(how.feature, text);
        d.into_iter().map(|reg| reg.cast(C::TY.unwrap_or(acc))).collect()
    }
}
