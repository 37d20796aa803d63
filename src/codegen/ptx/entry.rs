//! Emits one `.entry`: its parameters, the storage of its buffers, its body.

use super::emit::{Base, Emitter, Memory, Place, memory_type, ty_of};
use super::launch::{Launch, LaunchParam};
use super::memory::constant_lanes;
use super::split::Piece;
use super::unroll::{MAX_REGISTERS, elements};
use crate::ir::arith::{Facts, Interval};
use crate::ir::visit::{for_each_child, for_each_expr, for_each_stmt};
use crate::ir::warp::WarpProduct;
use crate::ir::warpgroup::{SWIZZLE_BYTES, Threads};
use crate::ir::{
    Buffer, Const, DType, Expr, ExprKind, ForKind, Kernel, Param, Scope, Stmt, ThreadIndex, Var,
};
use crate::target::Gpu;
use nvptx_builder::{Ld, Module, Operand, Reg, Source, Space, Symbol, Target, Ty, U64};
use rustc_hash::{FxHashMap, FxHashSet};

/// Alignment of tensors and temporaries in bytes, the most that vector accesses require.
pub(super) const TENSOR_ALIGNMENT: u32 = 16;

/// The facts about a kernel that each of its entries needs.
pub(super) struct KernelContext<'a> {
    pub(super) kernel: &'a Kernel,
    /// The numbers of the temporaries.
    pub(super) workspaces: &'a FxHashMap<Buffer, usize>,
    /// The symbols of the constant buffers.
    pub(super) tables: &'a FxHashMap<Buffer, Symbol>,
    /// The facts that hold in the whole kernel.
    pub(super) facts: Facts,
    /// `--fast-math`.
    pub(super) fast_math: bool,
}

/// The registers of a thread with at most `USUAL_SUMS` of them for sums: four blocks of 128 threads
/// on a multiprocessor.
const USUAL_REGISTERS: u32 = 128;
const USUAL_SUMS: u32 = 88;
/// Threads of a large block.
const LARGE_BLOCK: u32 = 256;
/// Registers for loaded values and addresses beside more sums.
const LOADED_REGISTERS: u32 = 96;

/// Emits the entry of a launch. Adds the alignments that vector accesses require of tensors, and
/// notes for the user. Returns the description of the launch.
pub(super) fn emit_entry(
    module: &mut Module,
    name: &str,
    piece: &Piece,
    context: &KernelContext<'_>,
    (alignments, notes): (&mut FxHashMap<Buffer, u32>, &mut Vec<String>),
) -> Launch {
    let buffers = LaunchBuffers::of(&piece.body);
    let shared = buffers.shared_bytes();
    let dynamic = shared > u64::from(Target::STATIC_SHARED);
    let entry = module.entry(name);
    let [x, y, z] = piece.block;
    entry.max_threads(x, y, z);
    let facts = facts_of(piece, context);
    let mut emitter = Emitter::new(entry, facts.clone(), dynamic);
    let params = emitter.parameters(piece, context, &facts);
    emitter.allocate(&buffers);
    emitter.ask_for_registers(x * y * z, shared > 0);
    buffers.know_variables(&piece.body, &mut emitter);
    for table in &piece.tables {
        let place = emitter.global(Base::Symbol(context.tables[table].clone(), 0), true, 4);
        emitter.places.insert(table.clone(), place);
    }
    emitter.copies_async = buffers.warp_products;
    emitter.fast_math = context.fast_math;
    if buffers.warpgroup_products {
        emitter.prepare_products();
    }
    emitter.stmt(&piece.body);
    emitter.end_products();
    emitter.wait_for_copies();
    emitter.flush();
    emitter.e.ret();
    for (buffer, bytes) in &emitter.alignments {
        let wanted = alignments.entry(buffer.clone()).or_insert(1);
        *wanted = (*wanted).max(*bytes);
    }
    for (buffer, lanes) in &emitter.unaligned {
        notes.push(format!(
            "`{name}` accesses vectors of {lanes} elements of `{buffer}` one by one: they begin at \
             odd indices, and a vector access is aligned to its size"
        ));
    }
    for (buffer, why) in &emitter.synchronous {
        notes.push(format!(
            "the pipeline of `{name}` copies `{buffer}` through registers, where threads wait for \
             it: {why}"
        ));
    }
    Launch {
        name: name.to_string(),
        grid: piece.grid.clone(),
        block: piece.block,
        static_shared: emitter.static_shared,
        dynamic_shared: emitter.dynamic_shared,
        params,
    }
}

/// The facts that hold in a launch. The entry refuses grids larger than a GPU allows (E0383 if
/// known at compile time), which bounds the run-time integers in the grid.
fn facts_of(piece: &Piece, context: &KernelContext<'_>) -> Facts {
    let mut facts = context.facts.clone();
    for (blocks, most) in piece.grid.iter().zip(Gpu::MAX_GRID) {
        facts.assume(&Expr::le(blocks.clone(), Expr::index(most.into())));
    }
    facts
}

impl Emitter<'_> {
    /// Declares and loads the parameters: buffers, then variables.
    fn parameters(
        &mut self,
        piece: &Piece,
        context: &KernelContext<'_>,
        facts: &Facts,
    ) -> Vec<LaunchParam> {
        let mut params = Vec::new();
        let mut symbols = Vec::new();
        for buffer in &piece.buffers {
            symbols.push(self.e.param_pointer(&buffer.name, buffer.dtype.bytes() as u32));
            params.push(buffer_param(buffer, context));
        }
        for var in &piece.free {
            let (param, ty) = match context.kernel.params.iter().position(|p| is_var(p, var)) {
                Some(at) => (LaunchParam::Param(at), param_type(&context.kernel.params[at])),
                None => match piece.outer.get(var) {
                    Some(value) => (LaunchParam::Index(value.clone()), Ty::S64),
                    None => crate::bug!("variable `{}` is not bound", var.name()),
                },
            };
            symbols.push(self.e.param_as(ty, var.name()));
            params.push(param);
        }
        let (pointers, values) = symbols.split_at(piece.buffers.len());
        for (buffer, symbol) in piece.buffers.iter().zip(pointers) {
            let address = self.e.ld_param::<U64>(symbol);
            let address = self.e.cvta_to_global(address).erase();
            let read_only = !piece.written.contains(buffer);
            let place = self.global(Base::Reg(address), read_only, TENSOR_ALIGNMENT);
            self.places.insert(buffer.clone(), place);
        }
        for (var, symbol) in piece.free.iter().zip(values) {
            self.numbers.know(var);
            let param = context.kernel.params.iter().find(|p| is_var(p, var));
            if let Some(Param::Scalar { dtype, .. }) = param {
                let value = self.scalar(*dtype, symbol);
                self.bind(var, value);
                continue;
            }
            match piece.outer.get(var) {
                Some(value) => {
                    let range = self.ranges.of(value);
                    self.ranges.bind(var, range);
                    self.facts.define(var, value);
                    self.definitions.insert(var.clone(), value.clone());
                }
                None => self.ranges.bind_runtime(var, facts),
            }
            let loaded = self.e.ld_param_as(Ty::S64, symbol);
            self.bind_index(var, loaded);
        }
        params
    }

    /// Loads a scalar argument in its compute type.
    fn scalar(&mut self, dtype: DType, symbol: &Symbol) -> Operand {
        let how = Ld::from(Space::Param);
        match dtype {
            DType::Bool => {
                let byte = self.e.ld_extended(Ty::U8, Ty::U32, how, symbol);
                let zero = Operand::int(Ty::U32, 0);
                self.e.setp(nvptx_builder::Cmp::Ne, byte.operand(), zero).erase().operand()
            }
            _ if dtype.is_half() => {
                let bits = self.e.ld_as(ty_of(dtype), how, symbol);
                self.widen_half(dtype, bits.operand())
            }
            _ => self.e.ld_extended(memory_type(dtype), ty_of(dtype), how, symbol).operand(),
        }
    }

    /// Places every buffer of a block or a thread.
    fn allocate(&mut self, buffers: &LaunchBuffers) {
        let mut offset = 0u32;
        for buffer in &buffers.allocated {
            let Some(count) = elements(buffer) else {
                crate::bug!("the extents of `{}` are not constant", buffer.name);
            };
            let place = match buffer.scope {
                Scope::Shared => {
                    let swizzled = buffers.swizzled.contains(buffer);
                    self.shared((buffer, swizzled), count as u32, &mut offset)
                }
                _ if buffers.in_registers(buffer) => {
                    let ty = ty_of(buffer.dtype);
                    let regs = self.e.reg_array_as(ty, &buffer.name, count as u32);
                    self.mutable.extend(regs.iter().copied());
                    if buffers.conditional.contains(buffer) {
                        let zero = match buffer.dtype {
                            DType::Bool => self.constant(DType::Bool, Const::Int(0)),
                            _ => Operand::bits(ty, 0),
                        };
                        for reg in &regs {
                            self.e.to(*reg).mov(zero);
                        }
                    }
                    Place::Registers(regs)
                }
                _ => {
                    let ty = storage_type(buffer.dtype);
                    let symbol = self.e.local_as(ty, &buffer.name, count.max(1) as u32, 16);
                    self.memory(Space::Local, Base::Symbol(symbol, 0), false)
                }
            };
            self.places.insert(buffer.clone(), place);
        }
    }

    /// Asks for enough registers to load ahead of the sums. By default, `ptxas` uses only as many
    /// as let a multiprocessor hold 2,048 threads, 32 for each thread, even if it has to spill: it
    /// takes more only for a smaller number of resident blocks (`.minnctapersm`).
    ///
    /// Large blocks without shared memory ask for nothing: they hide the latency of their loads by
    /// many warps.
    fn ask_for_registers(&mut self, threads: u32, has_shared: bool) {
        let width = |reg: &Reg| reg.ty().bits().div_ceil(32);
        let held: u32 = self.mutable.iter().map(width).sum();
        if held == 0 || threads >= LARGE_BLOCK && !has_shared {
            return;
        }
        let wanted = match held {
            ..=USUAL_SUMS => USUAL_REGISTERS,
            _ => (held + LOADED_REGISTERS).min(Gpu::MAX_REGISTERS),
        };
        self.e.min_blocks((Gpu::BLOCK_REGISTERS / (threads * wanted)).max(1));
    }

    fn shared(
        &mut self,
        (buffer, swizzled): (&Buffer, bool),
        count: u32,
        offset: &mut u32,
    ) -> Place {
        let bytes = count * buffer.dtype.bytes() as u32;
        let align = if swizzled { SWIZZLE_BYTES as u32 } else { 16 };
        let base = if self.shared_is_dynamic {
            let symbol = self.e.dynamic_shared(align);
            let start = offset.next_multiple_of(align);
            *offset = start + bytes.next_multiple_of(16);
            self.dynamic_shared = *offset;
            Base::Symbol(symbol, start)
        } else {
            self.static_shared = self.static_shared.next_multiple_of(align);
            self.static_shared += bytes.next_multiple_of(16);
            let ty = storage_type(buffer.dtype);
            Base::Symbol(self.e.shared_as(ty, &buffer.name, count.max(1), align), 0)
        };
        self.memory(Space::Shared, base, swizzled)
    }

    fn memory(&mut self, space: Space, base: Base, swizzled: bool) -> Place {
        let id = self.memory_id();
        Place::Memory(Memory { id, space, base, read_only: false, align: 16, swizzled })
    }
}

/// The type of the elements of a PTX variable.
pub(super) fn storage_type(dtype: DType) -> Ty {
    memory_type(dtype).untyped()
}

fn buffer_param(buffer: &Buffer, context: &KernelContext<'_>) -> LaunchParam {
    let is_it = |param: &Param| matches!(param, Param::Tensor { buffer: b, .. } if b == buffer);
    match context.kernel.params.iter().position(is_it) {
        Some(at) => LaunchParam::Param(at),
        None => match context.workspaces.get(buffer) {
            Some(at) => LaunchParam::Workspace(*at),
            None => crate::bug!("buffer `{}` is not visible here", buffer.name),
        },
    }
}

fn is_var(param: &Param, var: &crate::ir::Var) -> bool {
    matches!(param, Param::Scalar { var: v, .. } | Param::Runtime { var: v, .. } if v == var)
}

fn param_type(param: &Param) -> Ty {
    match param {
        Param::Scalar { dtype, .. } => memory_type(*dtype),
        _ => Ty::S64,
    }
}

/// The buffers that a launch allocates, in textual order, and how it accesses them.
#[derive(Default)]
struct LaunchBuffers {
    allocated: Vec<Buffer>,
    /// Buffers with an access whose index is not constant, or that has a mask.
    varying: FxHashSet<Buffer>,
    /// Whether the launch has warp products.
    warp_products: bool,
    /// Whether some of them are products of warpgroups.
    warpgroup_products: bool,
    /// The thread indices along x and y.
    threads: [Option<Var>; 2],
    /// Factors of such products whose lines are reordered.
    swizzled: FxHashSet<Buffer>,
    /// Buffers written under a condition. If both sides of a selection are evaluated, an element
    /// without a value may be read, though it is not used.
    conditional: FxHashSet<Buffer>,
}

impl LaunchBuffers {
    fn of(stmt: &Stmt) -> LaunchBuffers {
        let mut buffers = LaunchBuffers::default();
        buffers.stmt(stmt, false, &mut FxHashSet::default());
        buffers
    }

    fn stmt(&mut self, stmt: &Stmt, inside_if: bool, seen: &mut FxHashSet<usize>) {
        match stmt {
            Stmt::Allocate { buffer, .. } => self.allocated.push(buffer.clone()),
            Stmt::For { var, kind: ForKind::Thread(ThreadIndex::Thread(axis @ 0..=1)), .. } => {
                self.threads[*axis] = Some(var.clone());
            }
            Stmt::Store { buffer, indices, mask, .. } => {
                self.access(buffer, &indices[0], mask.is_some());
                if inside_if {
                    self.conditional.insert(buffer.clone());
                }
            }
            Stmt::Tensorize { name, body } => {
                // The nest of a warp product accesses few elements of its sum in each thread.
                if let Some(product) = WarpProduct::of(name) {
                    self.warp_products = true;
                    if let (true, [Some(lane), Some(warp)]) =
                        (product.is_by_warpgroup(), &self.threads)
                    {
                        self.warpgroup_products = true;
                        let threads = Threads { lane, warp };
                        self.swizzled.extend(super::warpgroup::swizzled(product, body, threads));
                    }
                    let (buffer, indices) = super::tensor::sums(product, body);
                    return indices.iter().for_each(|index| self.access(&buffer, index, false));
                }
            }
            _ => {}
        }
        let inside_if = inside_if || matches!(stmt, Stmt::If { .. });
        for_each_expr(stmt, &mut |expr| self.expr(expr, seen));
        for_each_stmt(stmt, &mut |inner| self.stmt(inner, inside_if, seen));
    }

    fn expr(&mut self, expr: &Expr, seen: &mut FxHashSet<usize>) {
        if !seen.insert(expr.id()) {
            return;
        }
        if let ExprKind::Load { buffer, indices, mask } = &expr.kind {
            self.access(buffer, &indices[0], mask.is_some());
        }
        for_each_child(expr, &mut |child| self.expr(child, seen));
    }

    fn access(&mut self, buffer: &Buffer, index: &Expr, masked: bool) {
        let inside = constant_lanes(index).is_some_and(|lanes| {
            let count = elements(buffer).unwrap_or(0);
            lanes.iter().all(|lane| (*lane as i128) < count)
        });
        if masked || !inside {
            self.varying.insert(buffer.clone());
        }
    }

    /// Whether a buffer of a thread lives in registers.
    fn in_registers(&self, buffer: &Buffer) -> bool {
        !self.varying.contains(buffer)
            && elements(buffer).is_some_and(|count| count <= MAX_REGISTERS)
    }

    fn shared_bytes(&self) -> u64 {
        let shared = self.allocated.iter().filter(|buffer| buffer.scope == Scope::Shared);
        shared.fold(0, |end: u64, buffer| {
            let count = elements(buffer).unwrap_or(0) as u64;
            let align = if self.swizzled.contains(buffer) { SWIZZLE_BYTES as u64 } else { 16 };
            end.next_multiple_of(align) + (count * buffer.dtype.bytes()).next_multiple_of(16)
        })
    }

    /// Gives variables of statements value numbers, because they are bound once, and bounds if
    /// those are constant.
    fn know_variables(&self, stmt: &Stmt, emitter: &mut Emitter<'_>) {
        if let Stmt::For { var, .. } | Stmt::Let { var, .. } = stmt {
            emitter.numbers.know(var);
        }
        if let Stmt::For { var, min, extent, .. } = stmt
            && let (Some(min), Some(extent)) = (min.as_int(), extent.as_int())
        {
            emitter.ranges.bind(var, Interval::new(min, min + (extent - 1).max(0)));
        }
        for_each_stmt(stmt, &mut |inner| self.know_variables(inner, emitter));
    }
}
