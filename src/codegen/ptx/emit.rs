//! The emitter of one entry, with its tables of computed values by scope.

use super::number::{Number, Numbers};
use super::range::Ranges;
use super::scoped::Scoped;
use super::speculate::SPECULATION_BUDGET;
use crate::ir::arith::Facts;
use crate::ir::visit::Memo;
use crate::ir::{Buffer, Const, DType, Expr, ExprKind, Var};
use nvptx_builder::{Cmp, Entry, Operand, Pred, Reg, Source, Space, Symbol, Ty};
use rustc_hash::{FxHashMap, FxHashSet};

/// A scalar value: a register or a constant. Integers of 8 and 16 bits are held extended to 32,
/// `index` in 32 or 64 bits as its bounds allow, `bool` in a predicate, halves as their bits.
pub(super) type Val = Operand;

/// The value of a variable.
#[derive(Clone, Copy)]
pub(super) struct Binding {
    pub(super) value: Val,
    /// The number of loops around its binding.
    pub(super) depth: u32,
}

/// The storage of a buffer.
#[derive(Clone)]
pub(super) enum Place {
    /// One register for each element.
    Registers(Vec<Reg>),
    /// In memory.
    Memory(Memory),
}

/// A buffer in memory.
#[derive(Clone)]
pub(super) struct Memory {
    /// Distinct for each buffer.
    pub(super) id: u32,
    pub(super) space: Space,
    pub(super) base: Base,
    /// Whether the launch does not write it.
    pub(super) read_only: bool,
    /// Alignment of the first element, in bytes.
    pub(super) align: u32,
    /// Whether pieces of 16 bytes are reordered (`ir::warpgroup::swizzle`).
    pub(super) swizzled: bool,
}

/// The start of a buffer in memory.
#[derive(Clone)]
pub(super) enum Base {
    /// The address in a register.
    Reg(Reg),
    /// A symbol and an offset in bytes.
    Symbol(Symbol, u32),
}

/// Emits the code of one entry.
pub(super) struct Emitter<'a> {
    pub(super) e: &'a mut Entry,
    pub(super) places: FxHashMap<Buffer, Place>,
    pub(super) vars: FxHashMap<Var, Binding>,
    /// The lanes of variables that are vectors.
    pub(super) vectors: FxHashMap<Var, Vec<Val>>,
    pub(super) ranges: Ranges,
    /// Facts for proofs of alignment.
    pub(super) facts: Facts,
    pub(super) numbers: Numbers,
    /// The values computed so far, by value number.
    value_table: Scoped<Number, Val>,
    /// The values computed in the current statement, by the address of the node, which is kept
    /// alive.
    memo: Scoped<usize, (HeldExpr, Vec<Val>)>,
    /// The 64-bit copies of 32-bit values.
    pub(super) wide: Scoped<Reg, Val>,
    /// The sums of terms computed so far, in 32 or 64 bits.
    pub(super) sums: Scoped<(Ty, Vec<super::address::Term>), Val>,
    /// The results of loads.
    pub(super) loads: Scoped<super::memory::Loaded, Vec<Val>>,
    /// The number of possible changes of each buffer so far.
    pub(super) changes: FxHashMap<u32, u32>,
    /// The number of possible changes of all written buffers at once.
    pub(super) all_changes: u32,
    /// The addresses computed so far.
    pub(super) pointers: Scoped<super::address::Key, Reg>,
    /// The places of bytes after a pointer into memory with reordered pieces.
    pub(super) swizzles: Scoped<(Reg, i64), Reg>,
    /// The polynomials of indices.
    pub(super) polys: Memo<super::address::Index>,
    /// Delayed stores, by level. The code of a level runs as a whole or not at all.
    pub(super) pending: Vec<Vec<super::pending::Pending>>,
    /// Registers that are assigned more than once.
    pub(super) mutable: FxHashSet<Reg>,
    /// Registers of 32 bits whose value may be a negation (`extreme`).
    pub(super) negations: FxHashSet<Reg>,
    /// The loops around the current position, innermost last.
    pub(super) loops: Vec<Var>,
    /// Whether copies to shared memory are asynchronous outside of groups too.
    pub(super) copies_async: bool,
    /// Whether copies outside of groups may be in flight.
    pub(super) copying: bool,
    /// Whether the current code belongs to a group of copies.
    pub(super) in_group: bool,
    /// The buffers that the group reads, which must be filled synchronously.
    pub(super) read_in_group: FxHashSet<Buffer>,
    /// The number of a thread in its warp, if `threadIdx.x` is bound.
    pub(super) lane: Option<Var>,
    /// The number of a warp in its warpgroup, if `threadIdx.y` is bound.
    pub(super) warp: Option<Var>,
    /// The predicate with which warpgroup products add to their sums, if the launch has some.
    pub(super) accumulate: Option<Reg<Pred>>,
    /// Whether warpgroup products run that were not waited for.
    pub(super) products: bool,
    /// The threads of a block, as far as their loops are open.
    pub(super) block_threads: u64,
    /// Whether float32 division and square roots are approximated.
    pub(super) fast_math: bool,
    /// The predicate of loads, and of the stores of a copy under a condition.
    pub(super) guard: Option<Reg>,
    /// Most operations of a choice that are evaluated in place of a branch.
    pub(super) speculation: i32,
    /// Bytes of dynamic shared memory allocated so far.
    pub(super) dynamic_shared: u32,
    /// Bytes of static shared memory allocated so far.
    pub(super) static_shared: u32,
    /// Whether this entry's shared memory is dynamic.
    pub(super) shared_is_dynamic: bool,
    /// Buffers whose vectors are never aligned, with their lanes.
    pub(super) unaligned: Vec<(String, u32)>,
    /// The buffers that a pipeline copies through registers, and why.
    pub(super) synchronous: Vec<(String, String)>,
    /// The definitions of index variables by `let`.
    pub(super) definitions: FxHashMap<Var, Expr>,
    /// The alignment that vector accesses require of each tensor, in bytes.
    pub(super) alignments: FxHashMap<Buffer, u32>,
    next_memory: u32,
}

/// An expression that is kept alive so that no other node gets its address.
#[derive(Clone)]
pub(super) struct HeldExpr(#[allow(dead_code, reason = "it is kept alive, not read")] Expr);

impl<'a> Emitter<'a> {
    pub(super) fn new(e: &'a mut Entry, facts: Facts, shared_is_dynamic: bool) -> Emitter<'a> {
        Emitter {
            e,
            places: FxHashMap::default(),
            vars: FxHashMap::default(),
            vectors: FxHashMap::default(),
            ranges: Ranges::default(),
            facts,
            numbers: Numbers::default(),
            value_table: Scoped::new(),
            memo: Scoped::new(),
            wide: Scoped::new(),
            sums: Scoped::new(),
            loads: Scoped::new(),
            changes: FxHashMap::default(),
            all_changes: 0,
            pointers: Scoped::new(),
            swizzles: Scoped::new(),
            polys: Memo::default(),
            pending: vec![Vec::new()],
            mutable: FxHashSet::default(),
            negations: FxHashSet::default(),
            loops: Vec::new(),
            copies_async: false,
            copying: false,
            in_group: false,
            read_in_group: FxHashSet::default(),
            fast_math: false,
            lane: None,
            warp: None,
            accumulate: None,
            products: false,
            block_threads: 1,
            guard: None,
            speculation: SPECULATION_BUDGET,
            dynamic_shared: 0,
            static_shared: 0,
            shared_is_dynamic,
            alignments: FxHashMap::default(),
            unaligned: Vec::new(),
            synchronous: Vec::new(),
            definitions: FxHashMap::default(),
            next_memory: 0,
        }
    }

    pub(super) fn memory_id(&mut self) -> u32 {
        self.next_memory += 1;
        self.next_memory
    }

    // ---- scopes ----

    /// Opens a scope, for code that does not dominate the code after it.
    pub(super) fn push(&mut self) {
        self.value_table.push();
        self.wide.push();
        self.sums.push();
        self.loads.push();
        self.pointers.push();
        self.swizzles.push();
        self.facts.push();
    }

    pub(super) fn pop(&mut self) {
        self.value_table.pop();
        self.wide.pop();
        self.sums.pop();
        self.loads.pop();
        self.pointers.pop();
        self.swizzles.pop();
        self.facts.pop();
    }

    /// Opens a scope in a statement.
    pub(super) fn push_memo(&mut self) {
        self.memo.push();
    }

    pub(super) fn pop_memo(&mut self) {
        self.memo.pop();
    }

    /// Forgets the values of the statement, because memory may change.
    pub(super) fn next_statement(&mut self) {
        self.memo.clear();
    }

    /// Binds a variable to a value. Variables of statements are bound once.
    pub(super) fn bind(&mut self, var: &Var, value: Val) {
        let depth = self.loops.len() as u32;
        self.vars.insert(var.clone(), Binding { value, depth });
    }

    // ---- values ----

    /// Returns the value of a scalar expression.
    pub(super) fn expr(&mut self, expr: &Expr) -> Val {
        debug_assert!(expr.ty.is_scalar(), "one lane is wanted");
        match &expr.kind {
            ExprKind::Const(value) => return self.constant(expr.ty.dtype, *value),
            ExprKind::Var(var) => return self.variable(var).value,
            _ => {}
        }
        let number = self.numbers.of(expr);
        if let Some(number) = number {
            if let Some(value) = self.value_table.get(&number) {
                return value;
            }
        } else if let Some((_, values)) = self.memo.get(&expr.id()) {
            return values[0];
        }
        let value = self.operation(expr);
        match number {
            Some(number) => self.value_table.insert(number, value),
            None => self.memo.insert(expr.id(), (HeldExpr(expr.clone()), vec![value])),
        }
        value
    }

    /// Returns the values of all lanes.
    pub(super) fn lanes(&mut self, expr: &Expr) -> Vec<Val> {
        if expr.ty.is_scalar() {
            return vec![self.expr(expr)];
        }
        if let ExprKind::Var(var) = &expr.kind {
            return match self.vectors.get(var) {
                Some(values) => values.clone(),
                None => crate::bug!("variable `{}` is not bound", var.name()),
            };
        }
        if let Some((_, values)) = self.memo.get(&expr.id()) {
            return values;
        }
        let values = self.vector(expr);
        self.memo.insert(expr.id(), (HeldExpr(expr.clone()), values.clone()));
        values
    }

    pub(super) fn variable(&mut self, var: &Var) -> Binding {
        match self.vars.get(var) {
            Some(binding) => *binding,
            None => crate::bug!("variable `{}` is not bound", var.name()),
        }
    }

    /// Copies a value that is in a mutable register, so that it keeps its value.
    pub(super) fn copy_if_mutable(&mut self, value: Val) -> Val {
        match value.reg() {
            Some(reg) if self.mutable.contains(&reg) => self.e.mov(value).operand(),
            _ => value,
        }
    }

    pub(super) fn constant(&mut self, dtype: DType, value: Const) -> Val {
        match (dtype, value) {
            (DType::Bool, Const::Int(value)) => {
                let (zero, one) = (Operand::int(Ty::S32, 0), Operand::int(Ty::S32, value as i64));
                self.e.setp(Cmp::Lt, zero, one).erase().operand()
            }
            (DType::Index, Const::Int(value)) => match i32::try_from(value) {
                Ok(value) => Operand::int(Ty::S32, i64::from(value)),
                Err(_) => Operand::int(Ty::S64, value as i64),
            },
            (_, Const::Int(value)) => Operand::bits(ty_of(dtype), value as u64),
            (DType::Float64, Const::Float(value)) => Operand::f64(value),
            (DType::Float32, Const::Float(value)) => Operand::f32(value as f32),
            (_, Const::Float(value)) => {
                let bits = crate::ir::half_bits(value, dtype);
                Operand::bits(ty_of(dtype), u64::from(bits))
            }
        }
    }

    // ---- widths of indices ----

    /// Converts an index to 64 bits.
    pub(super) fn widen(&mut self, value: Val) -> Val {
        if value.ty() == Ty::S64 {
            return value;
        }
        let Some(reg) = value.reg() else {
            return Operand::int(Ty::S64, i64::from(constant_bits(value) as i32));
        };
        if let Some(wide) = self.wide.get(&reg) {
            return wide;
        }
        let wide = self.e.cvt_as(Ty::S64, nvptx_builder::Convert::Usual, value).operand();
        if !self.mutable.contains(&reg) {
            self.wide.insert(reg, wide);
        }
        wide
    }

    /// Truncates an index to 32 bits.
    pub(super) fn narrow(&mut self, value: Val) -> Val {
        if value.ty() == Ty::S32 {
            return value;
        }
        if value.reg().is_none() {
            return Operand::bits(Ty::S32, constant_bits(value));
        }
        let low = view(value, Ty::U64);
        let low = self.e.cvt_as(Ty::U32, nvptx_builder::Convert::Usual, low);
        view(low.operand(), Ty::S32)
    }
}

/// The register type of an element type; 64 bits for `index`.
pub(super) fn ty_of(dtype: DType) -> Ty {
    match dtype {
        DType::Float64 => Ty::F64,
        DType::Float32 => Ty::F32,
        DType::Float16 => Ty::F16,
        DType::BFloat16 => Ty::Bf16,
        DType::Int8 | DType::Int16 | DType::Int32 => Ty::S32,
        DType::Uint8 | DType::Uint16 | DType::Uint32 => Ty::U32,
        DType::Int64 | DType::Index => Ty::S64,
        DType::Uint64 => Ty::U64,
        DType::Bool => Ty::Pred,
        DType::Int4 | DType::Uint4 | DType::Float8E4M3 | DType::Float8E5M2 => {
            crate::bug!("{dtype} in the loop IR")
        }
    }
}

/// The type of an element in memory.
pub(super) fn memory_type(dtype: DType) -> Ty {
    match dtype {
        DType::Int8 => Ty::S8,
        DType::Int16 => Ty::S16,
        DType::Uint8 | DType::Bool => Ty::U8,
        DType::Uint16 => Ty::U16,
        _ => ty_of(dtype),
    }
}

/// Reinterprets a value as a type of the same register class.
pub(super) fn view(value: Val, ty: Ty) -> Val {
    match value.reg() {
        Some(reg) => match reg.view(ty) {
            Some(reg) => reg.operand(),
            None => crate::bug!("a {} is used as {ty}", reg.ty()),
        },
        None => Operand::bits(ty, constant_bits(value)),
    }
}

/// The bits of a constant.
pub(super) fn constant_bits(value: Val) -> u64 {
    value.constant_bits().expect("a constant")
}
