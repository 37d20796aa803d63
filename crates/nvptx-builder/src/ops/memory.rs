//! Loads, stores, atomic operations, addresses.

use crate::entry::Entry;
use crate::needs::Feature;
use crate::reg::*;
use crate::ty::*;

/// The form of a load: space, caches, order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ld {
    space: Space,
    nc: bool,
    volatile: bool,
    cache: Option<Cache>,
    no_allocate: bool,
    l2: Option<L2>,
}

/// The form of a store: space, caches, order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct St {
    space: Space,
    volatile: bool,
    cache: Option<Cache>,
    no_allocate: bool,
}

/// The cache operator of a load or store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cache {
    /// Loads: cached at all levels.
    Ca,
    /// Cached in L2 only.
    Cg,
    /// Accessed once: evicted first.
    Cs,
    /// Loads: the line is not needed again.
    Lu,
    /// Not cached.
    Cv,
    /// Stores: written back at all levels.
    Wb,
    /// Stores: written through.
    Wt,
}

impl Cache {
    fn name(self) -> &'static str {
        match self {
            Cache::Ca => ".ca",
            Cache::Cg => ".cg",
            Cache::Cs => ".cs",
            Cache::Lu => ".lu",
            Cache::Cv => ".cv",
            Cache::Wb => ".wb",
            Cache::Wt => ".wt",
        }
    }
}

/// The prefetch size of L2.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum L2 {
    /// 64 bytes.
    B64,
    /// 128 bytes.
    B128,
    /// 256 bytes (from `sm_80` on).
    B256,
}

impl L2 {
    pub(crate) fn name(self) -> &'static str {
        match self {
            L2::B64 => ".L2::64B",
            L2::B128 => ".L2::128B",
            L2::B256 => ".L2::256B",
        }
    }
}

/// A cache level.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Level {
    /// L1, of the multiprocessor.
    L1,
    /// L2, of the GPU.
    L2,
}

/// An atomic operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AtomOp {
    /// Sum.
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
    /// Exchange (not for `red`).
    Exch,
}

impl AtomOp {
    fn name(self) -> &'static str {
        match self {
            AtomOp::Add => "add",
            AtomOp::Min => "min",
            AtomOp::Max => "max",
            AtomOp::And => "and",
            AtomOp::Or => "or",
            AtomOp::Xor => "xor",
            AtomOp::Exch => "exch",
        }
    }
}

impl Ld {
    /// Creates a load from a space.
    pub fn from(space: Space) -> Ld {
        let (nc, volatile, no_allocate) = (false, false, false);
        Ld { space, nc, volatile, cache: None, no_allocate, l2: None }
    }

    /// Creates `ld.global`.
    pub fn global() -> Ld {
        Ld::from(Space::Global)
    }

    /// Creates `ld.shared`.
    pub fn shared() -> Ld {
        Ld::from(Space::Shared)
    }

    /// Creates `ld.local`.
    pub fn local() -> Ld {
        Ld::from(Space::Local)
    }

    /// Adds `.nc`: a load of global memory that is not written while the kernel runs.
    pub fn nc(self) -> Ld {
        Ld { nc: true, ..self }
    }

    /// Adds `.volatile`.
    pub fn volatile(self) -> Ld {
        Ld { volatile: true, ..self }
    }

    /// Adds `.ca`, `.cg` and so on.
    pub fn cache(self, cache: Cache) -> Ld {
        Ld { cache: Some(cache), ..self }
    }

    /// Adds `.L1::no_allocate`.
    pub fn no_allocate(self) -> Ld {
        Ld { no_allocate: true, ..self }
    }

    /// Adds `.L2::128B` and so on.
    pub fn l2(self, l2: L2) -> Ld {
        Ld { l2: Some(l2), ..self }
    }
}

impl St {
    /// Creates a store to a space.
    pub fn to(space: Space) -> St {
        St { space, volatile: false, cache: None, no_allocate: false }
    }

    /// Creates `st.global`.
    pub fn global() -> St {
        St::to(Space::Global)
    }

    /// Creates `st.shared`.
    pub fn shared() -> St {
        St::to(Space::Shared)
    }

    /// Creates `st.local`.
    pub fn local() -> St {
        St::to(Space::Local)
    }

    /// Adds `.volatile`.
    pub fn volatile(self) -> St {
        St { volatile: true, ..self }
    }

    /// Adds `.wb`, `.cg`, `.cs`, `.wt`.
    pub fn cache(self, cache: Cache) -> St {
        St { cache: Some(cache), ..self }
    }

    /// Adds `.L1::no_allocate`.
    pub fn no_allocate(self) -> St {
        St { no_allocate: true, ..self }
    }
}

/// Returns the type that a load or store names: untyped bits for halves and pairs.
fn memory_type(ty: Ty) -> Ty {
    if ty.is_float() || ty.is_int() { ty } else { ty.untyped() }
}

impl Entry {
    /// Emits `ld.param`: loads a parameter.
    pub fn ld_param<T: Static>(&mut self, param: &Symbol) -> Reg<T> {
        self.ld(Ld::from(Space::Param), param)
    }

    /// Like [`Entry::ld_param`], of a type known at run time.
    pub fn ld_param_as(&mut self, ty: Ty, param: &Symbol) -> Reg {
        self.ld_as(ty, Ld::from(Space::Param), param)
    }

    /// Emits `ld`: loads an element.
    pub fn ld<T: Static>(&mut self, how: Ld, address: impl Into<Address>) -> Reg<T> {
        self.ld_as(T::STATIC, how, address).cast(T::STATIC)
    }

    /// Emits `ld` of a type known at run time.
    pub fn ld_as(&mut self, ty: Ty, how: Ld, address: impl Into<Address>) -> Reg {
        self.load(ty, ty, 1, how, &address.into())[0]
    }

    /// Emits `ld` of 8 or 16 bits into a wider register, sign- or zero-extended by the type
    /// `memory`.
    pub fn ld_extended(
        &mut self,
        memory: Ty,
        register: Ty,
        how: Ld,
        address: impl Into<Address>,
    ) -> Reg {
        self.load(memory, register, 1, how, &address.into())[0]
    }

    /// Emits `ld.v2`, `ld.v4` (`.v8` of 32 bits on sm_100): several elements at once. The address
    /// is a multiple of their total size.
    pub fn ld_vec<T: Static, const N: usize>(
        &mut self,
        how: Ld,
        address: impl Into<Address>,
    ) -> [Reg<T>; N] {
        let regs = self.load(T::STATIC, T::STATIC, N, how, &address.into());
        std::array::from_fn(|i| regs[i].cast(T::STATIC))
    }

    /// Like [`Entry::ld_vec`], of a type and a number of elements that are known at run time.
    pub fn ld_vec_as(
        &mut self,
        ty: Ty,
        lanes: usize,
        how: Ld,
        address: impl Into<Address>,
    ) -> Vec<Reg> {
        self.load(ty, ty, lanes, how, &address.into())
    }

    /// Like [`Entry::ld_vec`], of 8 or 16 bits into wider registers, sign- or zero-extended by the
    /// type `memory`.
    pub fn ld_vec_extended(
        &mut self,
        memory: Ty,
        register: Ty,
        lanes: usize,
        how: Ld,
        address: impl Into<Address>,
    ) -> Vec<Reg> {
        self.load(memory, register, lanes, how, &address.into())
    }

    fn load(
        &mut self,
        memory: Ty,
        register: Ty,
        lanes: usize,
        how: Ld,
        address: &Address,
    ) -> Vec<Reg> {
        let mut name = String::from(if how.volatile { "ld.volatile" } else { "ld" });
        name += how.space.suffix();
        name += how.cache.map_or("", Cache::name);
        name += if how.nc { ".nc" } else { "" };
        name += if how.no_allocate { ".L1::no_allocate" } else { "" };
        name += how.l2.map_or("", L2::name);
        if (how.nc || how.no_allocate || how.l2.is_some()) && how.space != Space::Global {
            self.refuse(&name, "only global memory has these modifiers");
        }
        if how.l2 == Some(L2::B256) {
            self.require(&name, Feature::CpAsync);
        }
        let hinted = how.no_allocate || how.l2.is_some();
        let feature = self.access(&mut name, memory, register, lanes, how.space, hinted);
        let regs = self.destinations(&name, register, lanes);
        let names = if lanes == 1 { self.name_of(regs[0]) } else { self.braces(&regs) };
        self.check_alignment(&name, memory, lanes, address);
        let address = self.address(&name, how.space, address);
        self.code(feature, format!("{name} {names}, {address}"));
        regs
    }

    /// Emits `st`: stores an element.
    pub fn st<T: Kind>(&mut self, how: St, address: impl Into<Address>, value: impl Source<T>) {
        let value = value.operand();
        self.store(value.ty(), &[value.erase()], how, &address.into());
    }

    /// Emits `st` of the low 8 or 16 bits of a register.
    pub fn st_truncated(
        &mut self,
        memory: Ty,
        how: St,
        address: impl Into<Address>,
        value: Operand,
    ) {
        self.store(memory, &[value], how, &address.into());
    }

    /// Emits `st.v2`, `st.v4` (`.v8` of 32 bits on sm_100): several elements at once. The address
    /// is a multiple of their total size.
    pub fn st_vec<T: Kind>(&mut self, how: St, address: impl Into<Address>, values: &[Reg<T>]) {
        let values: Vec<Operand> = values.iter().map(|value| value.operand().erase()).collect();
        self.st_vec_operands(how, address, &values);
    }

    /// Like [`Entry::st_vec`], of registers and constants.
    pub fn st_vec_operands(&mut self, how: St, address: impl Into<Address>, values: &[Operand]) {
        match values.first() {
            Some(first) => self.store(first.ty(), values, how, &address.into()),
            None => self.refuse("st", "nothing is stored"),
        }
    }

    /// Like [`Entry::st_vec`], of the low 8 or 16 bits of registers.
    pub fn st_vec_truncated(
        &mut self,
        memory: Ty,
        how: St,
        address: impl Into<Address>,
        values: &[Operand],
    ) {
        match values.is_empty() {
            true => self.refuse("st", "nothing is stored"),
            false => self.store(memory, values, how, &address.into()),
        }
    }

    fn store(&mut self, memory: Ty, values: &[Operand], how: St, address: &Address) {
        let mut name = String::from(if how.volatile { "st.volatile" } else { "st" });
        name += how.space.suffix();
        name += how.cache.map_or("", Cache::name);
        name += if how.no_allocate { ".L1::no_allocate" } else { "" };
        if matches!(how.space, Space::Const | Space::Param) {
            self.refuse(&name, "this space is read-only");
        }
        let (lanes, register) = (values.len(), values[0].ty());
        let feature = self.access(&mut name, memory, register, lanes, how.space, how.no_allocate);
        let texts: Vec<String> =
            values.iter().map(|value| self.source(&name, value.value, register)).collect();
        let texts = match lanes {
            1 => texts[0].clone(),
            _ => format!("{{{}}}", texts.join(", ")),
        };
        self.check_alignment(&name, memory, lanes, address);
        let address = self.address(&name, how.space, address);
        self.code(feature, format!("{name} {address}, {texts}"));
    }

    /// Completes the name of a load or a store; returns the feature that it needs.
    fn access(
        &mut self,
        name: &mut String,
        memory: Ty,
        register: Ty,
        lanes: usize,
        space: Space,
        hinted: bool,
    ) -> Feature {
        let memory = memory_type(memory);
        match lanes {
            1 => *name += &format!(".{memory}"),
            _ => *name += &format!(".v{lanes}.{memory}"),
        }
        if memory == Ty::Pred {
            self.refuse(name, "predicates are not in memory");
        }
        let wider = register.bits() > memory.bits() && memory.bits() <= 16;
        if wider && (register.is_float() || register.bits() > 64) {
            self.refuse(name, &format!("a {memory} is not extended to {register}"));
        }
        let bytes = lanes as u32 * memory.bytes();
        let wide = bytes == 32 && lanes > 1 && space == Space::Global;
        if !matches!(lanes, 1 | 2 | 4 | 8) || (lanes == 8 && !wide) || (bytes > 16 && !wide) {
            self.refuse(name, "an access has 1, 2 or 4 elements and at most 16 bytes");
        }
        let feature = if wide {
            Feature::Access256
        } else if memory == Ty::B128 {
            Feature::Access128
        } else if hinted {
            Feature::CacheHint
        } else {
            Feature::Base
        };
        if hinted && feature != Feature::CacheHint {
            self.require(name, Feature::CacheHint);
        }
        feature
    }

    /// Checks the feature that a part of an instruction needs.
    fn require(&mut self, name: &str, feature: Feature) {
        let needs = feature.needs();
        if needs.met_by(self.target) {
            self.version = self.version.max(needs.version);
        } else {
            let (needs, target) = (needs.targets(), self.target);
            self.refuse(name, &format!("it needs {needs}, the target is {target}"));
        }
    }

    /// Refuses an offset that is not a multiple of the element size: symbols are aligned to it at
    /// least.
    fn check_alignment(&mut self, name: &str, memory: Ty, lanes: usize, address: &Address) {
        let bytes = i64::from(memory.bytes()) * lanes as i64;
        if matches!(address.base, Base::Symbol(_)) && address.offset % bytes != 0 {
            let message = format!("the offset {} is not a multiple of {bytes}", address.offset);
            self.refuse(name, &message);
        }
    }

    /// Emits `prefetch.global`: prefetches the line of the address.
    pub fn prefetch(&mut self, level: Level, address: impl Into<Address>) {
        let name = match level {
            Level::L1 => "prefetch.global.L1",
            Level::L2 => "prefetch.global.L2",
        };
        let address = self.address(name, Space::Global, &address.into());
        self.code(Feature::Base, format!("{name} {address}"));
    }

    /// Emits `atom`: updates memory and returns the old value. Relaxed, at the scope of the GPU.
    pub fn atom<T: Kind>(
        &mut self,
        op: AtomOp,
        space: Space,
        address: impl Into<Address>,
        value: impl Source<T>,
    ) -> Reg<T> {
        let value = value.operand().value;
        let (name, ty) = self.atomic("atom", op, space, value);
        let dst = self.destination(&name, ty);
        let (address, value) =
            (self.address(&name, space, &address.into()), self.source(&name, value, ty));
        let text = format!("{name} {}, {address}, {value}", self.name_of(dst));
        self.code(Feature::Base, text);
        dst.cast(ty)
    }

    /// Emits `atom.cas`: stores `new` if memory holds `compare`; returns the old value.
    pub fn atom_cas<T: Kind>(
        &mut self,
        space: Space,
        address: impl Into<Address>,
        compare: impl Source<T>,
        new: impl Source<T>,
    ) -> Reg<T> {
        let (compare, new) = (compare.operand().value, new.operand().value);
        let has = |ty: Ty| matches!(ty.bits(), 32 | 64) && !ty.is_float();
        let ty = self.checked("atom.cas", compare, has, "integers of 32 or 64 bits");
        let name = format!("atom{}.cas.{}", space.suffix(), ty.untyped());
        let dst = self.destination(&name, ty);
        let address = self.address(&name, space, &address.into());
        let (compare, new) = (self.source(&name, compare, ty), self.source(&name, new, ty));
        let text = format!("{name} {}, {address}, {compare}, {new}", self.name_of(dst));
        self.code(Feature::Base, text);
        dst.cast(ty)
    }

    /// Emits `red`: like [`Entry::atom`], without a result.
    pub fn red<T: Kind>(
        &mut self,
        op: AtomOp,
        space: Space,
        address: impl Into<Address>,
        value: impl Source<T>,
    ) {
        let value = value.operand().value;
        if op == AtomOp::Exch {
            self.refuse("red.exch", "`red` has no result; use a store");
        }
        let bf16 = matches!(value.ty(), Ty::Bf16 | Ty::Bf16x2);
        let (name, ty) = self.atomic("red", op, space, value);
        let (address, value) =
            (self.address(&name, space, &address.into()), self.source(&name, value, ty));
        let feature = if bf16 { Feature::RedBf16 } else { Feature::Base };
        self.code(feature, format!("{name} {address}, {value}"));
    }

    /// Emits `red.global.add.v4.f32` or `.v2.f32`: adds several elements at once.
    pub fn red_vec(&mut self, address: impl Into<Address>, values: &[Reg<F32>]) {
        let name = format!("red.global.add.v{}.f32", values.len());
        if !matches!(values.len(), 2 | 4) {
            self.refuse(&name, "it adds 2 or 4 elements");
        }
        let regs: Vec<Reg> = values.iter().map(|value| value.erase()).collect();
        let address = self.address(&name, Space::Global, &address.into());
        let text = format!("{name} {address}, {}", self.braces(&regs));
        self.code(Feature::RedVector, text);
    }

    fn atomic(&mut self, base: &str, op: AtomOp, space: Space, value: Value) -> (String, Ty) {
        let ty = value.ty();
        let wide = matches!(ty.bits(), 32 | 64);
        let (fits, shown) = match op {
            // 64-bit addition is the same for signed and unsigned integers.
            AtomOp::Add if ty == Ty::S64 => (true, Ty::U64),
            AtomOp::Add if ty.is_half() => (space == Space::Global, ty),
            AtomOp::Add => (wide && (ty.is_int() || ty.is_float()), ty),
            AtomOp::Min | AtomOp::Max => (wide && ty.is_int(), ty),
            _ => (wide && !ty.is_float() && !ty.is_half(), ty.untyped()),
        };
        let half = if ty.is_half() { ".noftz" } else { "" };
        let name = format!("{base}{}.{}{half}.{shown}", space.suffix(), op.name());
        let bf16_atom = base == "atom" && matches!(ty, Ty::Bf16 | Ty::Bf16x2);
        if !fits || bf16_atom || !matches!(space, Space::Global | Space::Shared | Space::Generic) {
            self.refuse(&name, "there is no such atomic operation");
        }
        (name, ty)
    }

    /// Emits `cvta.to.global.u64`: converts a generic address, such as a parameter, to global
    /// memory.
    pub fn cvta_to_global(&mut self, address: Reg<U64>) -> Reg<U64> {
        self.cvta("cvta.to.global.u64", address)
    }

    /// Emits `cvta.to.shared.u64`.
    pub fn cvta_to_shared(&mut self, address: Reg<U64>) -> Reg<U64> {
        self.cvta("cvta.to.shared.u64", address)
    }

    /// Emits `cvta.shared.u64`: converts an address of shared memory to a generic one.
    pub fn cvta_from_shared(&mut self, address: Reg<U64>) -> Reg<U64> {
        self.cvta("cvta.shared.u64", address)
    }

    fn cvta(&mut self, name: &str, address: Reg<U64>) -> Reg<U64> {
        self.inst(Feature::Base, name, Ty::U64, &[(address.operand().value, Ty::U64)])
    }

    /// Emits `mov.u32`: the address of a variable in shared memory, within that space.
    pub fn address_of_shared(&mut self, symbol: &Symbol) -> Reg<U32> {
        if symbol.space != Space::Shared {
            self.refuse("mov.u32", &format!("`{}` is not in shared memory", symbol.name));
        }
        let dst = self.destination("mov.u32", Ty::U32);
        let text = format!("mov.u32 {}, {}", self.name_of(dst), symbol.name);
        self.code(Feature::Base, text);
        dst.cast(Ty::U32)
    }

    /// Emits `mov.u64`: the address of a variable within its space, for `[reg+offset]` in that
    /// space.
    pub fn address_of(&mut self, symbol: &Symbol) -> Reg<U64> {
        if symbol.space == Space::Param {
            self.refuse("mov.u64", "parameters are read by ld.param");
        }
        let dst = self.destination("mov.u64", Ty::U64);
        let text = format!("mov.u64 {}, {}", self.name_of(dst), symbol.name);
        self.code(Feature::Base, text);
        dst.cast(Ty::U64)
    }
}
