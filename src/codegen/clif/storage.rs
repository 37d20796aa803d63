//! Places of buffers: registers, the stack, the workspace, the module's constants. They are laid
//! out at the start of the function. Loads and stores are emitted here too.

use super::emit::{Emitter, clif_type_of};
use super::task::{Uses, is_task};
use crate::codegen::common::{clif_type, constant_bytes};
use crate::ir::arith::Facts;
use crate::ir::simplify::simplify_expr;
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, Kernel, Scope, Stmt, Type, visit};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    AliasRegion, AliasRegionData, InstBuilder, MemFlagsData, StackSlotData, StackSlotKind, Value,
    types,
};
use cranelift_frontend::Variable;
use cranelift_module::Module;
use rustc_hash::{FxHashMap, FxHashSet};

/// Most bytes of stack that one function uses for buffers.
const STACK_BYTES: u64 = 4096;
/// Most elements of a buffer that lives in registers.
const MAX_REGISTERS: i128 = 64;
/// Alignment of buffers in the workspace, and of the workspace.
const ALIGNMENT: i64 = 64;
/// Buffers beyond this number share one alias region, because Cranelift's bookkeeping grows with
/// each region.
const MAX_REGIONS: u32 = 24;
/// Most bytes of a workspace, low enough that sums of sizes do not overflow.
const MAX_WORKSPACE: i64 = 1 << 62;

/// Where a buffer lives.
#[derive(Clone)]
pub(super) enum Place {
    /// In memory.
    Memory(Memory),
    /// One variable per `lanes` elements.
    Registers { variables: Vec<Variable>, lanes: u32 },
}

/// A buffer in memory.
#[derive(Clone, Copy)]
pub(super) struct Memory {
    /// Its address.
    pub(super) base: Value,
    region: AliasRegion,
    /// Whether it is never written while the function runs.
    readonly: bool,
    /// Whether the caller wrote it, so that a `bool` may be any non-zero byte.
    foreign: bool,
}

/// The properties of a buffer in a closure that its task needs.
#[derive(Clone, Copy)]
pub(super) struct Capture {
    readonly: bool,
    foreign: bool,
}

impl Memory {
    /// Whether it is never written while the function runs.
    pub(super) fn is_readonly(&self) -> bool {
        self.readonly
    }

    /// The properties that a task of this function needs.
    pub(super) fn capture(&self) -> Capture {
        Capture { readonly: self.readonly, foreign: self.foreign }
    }
}

impl Emitter<'_, '_> {
    /// Places a tensor argument at address `base`.
    pub(super) fn place_argument(&mut self, buffer: &Buffer, base: Value, output: bool) {
        let region = if output { self.new_region() } else { self.region(0) };
        let memory = Memory { base, region, readonly: !output, foreign: true };
        self.places.insert(buffer.clone(), Place::Memory(memory));
    }

    /// Places a buffer of the function that calls this task.
    pub(super) fn place_captured(&mut self, buffer: &Buffer, base: Value, capture: Capture) {
        let Capture { readonly, foreign } = capture;
        let region = if readonly { self.region(0) } else { self.new_region() };
        let memory = Memory { base, region, readonly, foreign };
        self.places.insert(buffer.clone(), Place::Memory(memory));
    }

    /// Places all buffers that `stmt` allocates and all constants. Emits a return from the function
    /// for the case that the workspace cannot be allocated.
    pub(super) fn place_buffers(&mut self, stmt: &Stmt) {
        let uses = BufferUses::of(stmt, self.in_task);
        for buffer in &uses.constants {
            let data = self.unit.constant_data(buffer);
            let global = self.unit.module.declare_data_in_func(data, self.b.func);
            let base = self.b.ins().symbol_value(types::I64, global);
            let region = self.region(0);
            let memory = Memory { base, region, readonly: true, foreign: false };
            self.places.insert(buffer.clone(), Place::Memory(memory));
        }
        let mut workspace = Vec::new();
        for (buffer, home) in uses.homes() {
            match home {
                Home::Registers { count, lanes } => {
                    let ty = clif_type_of(Type { dtype: buffer.dtype, lanes });
                    let count = count / i128::from(lanes);
                    let variables = (0..count).map(|_| self.b.declare_var(ty)).collect();
                    let place = Place::Registers { variables, lanes };
                    self.places.insert(buffer.clone(), place);
                }
                Home::Stack(bytes) => self.place_on_stack(buffer, bytes),
                Home::Workspace => workspace.push(buffer.clone()),
            }
        }
        if !workspace.is_empty() {
            self.place_in_workspace(&workspace);
        }
    }

    fn place_on_stack(&mut self, buffer: &Buffer, bytes: u64) {
        let size = u32::try_from(bytes.max(1)).expect("at most STACK_BYTES");
        let data = StackSlotData::new(StackSlotKind::ExplicitSlot, size, 4);
        let slot = self.b.create_sized_stack_slot(data);
        let base = self.b.ins().stack_addr(types::I64, slot, 0);
        self.place_own(buffer, base);
    }

    fn place_own(&mut self, buffer: &Buffer, base: Value) {
        let region = self.new_region();
        let memory = Memory { base, region, readonly: false, foreign: false };
        self.places.insert(buffer.clone(), Place::Memory(memory));
    }

    /// Places `buffers` in one block, each at a multiple of [`ALIGNMENT`].
    pub(super) fn place_in_workspace(&mut self, buffers: &[Buffer]) {
        // Buffers of constant size come first, so that their offsets are constants.
        let (mut fixed, mut dynamic) = (Vec::new(), Vec::new());
        let mut fixed_bytes = 0i64;
        for buffer in buffers {
            match constant_bytes(buffer).filter(|bytes| *bytes <= MAX_WORKSPACE - fixed_bytes) {
                Some(bytes) => {
                    fixed.push((buffer, self.int(types::I64, fixed_bytes.into())));
                    fixed_bytes += (bytes + ALIGNMENT - 1) & -ALIGNMENT;
                }
                None => dynamic.push(buffer),
            }
        }
        let mut total = self.int(types::I64, fixed_bytes.into());
        let mut impossible = self.int(types::I8, 0);
        let mut offsets = fixed;
        for buffer in dynamic {
            offsets.push((buffer, total));
            let bytes = self.buffer_bytes(buffer, &mut impossible);
            total = self.b.ins().iadd(total, bytes);
            let over = self.b.ins().icmp_imm_u(IntCC::UnsignedGreaterThan, total, MAX_WORKSPACE);
            impossible = self.b.ins().bor(impossible, over);
        }
        // An impossible size is requested as the largest number, which the runtime refuses.
        let least = self.int(types::I64, ALIGNMENT.into());
        let total = self.b.ins().umax(total, least);
        let none = self.int(types::I64, -1);
        let total = self.b.ins().select(impossible, none, total);
        let block = self
            .call_runtime("tec_rt_workspace_acquire", &[total], Some(types::I64))
            .expect("it has a result");
        let (fine, failed) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(block, fine, &[], failed, &[]);
        self.b.set_cold_block(failed);
        self.start_block(failed);
        let one = self.int(types::I32, 1);
        self.b.ins().return_(&[one]);
        self.start_block(fine);
        self.workspace = Some(block);
        for (buffer, offset) in offsets {
            let base = self.b.ins().iadd(block, offset);
            self.place_own(buffer, base);
        }
    }

    /// Computes the bytes of a buffer rounded up to [`ALIGNMENT`]; sets `impossible` if they exceed
    /// [`MAX_WORKSPACE`]. An extent may be negative if the loops around the buffer do not run.
    fn buffer_bytes(&mut self, buffer: &Buffer, impossible: &mut Value) -> Value {
        let mut bytes = self.int(types::I64, buffer.dtype.bytes().into());
        for extent in &buffer.shape {
            let extent = self.expr(extent);
            let zero = self.int(types::I64, 0);
            let extent = self.b.ins().smax(extent, zero);
            let high = self.b.ins().umulhi(bytes, extent);
            bytes = self.b.ins().imul(bytes, extent);
            let over = self.b.ins().icmp_imm_u(IntCC::NotEqual, high, 0);
            *impossible = self.b.ins().bor(*impossible, over);
        }
        let over =
            self.b.ins().icmp_imm_u(IntCC::UnsignedGreaterThan, bytes, MAX_WORKSPACE - ALIGNMENT);
        *impossible = self.b.ins().bor(*impossible, over);
        let rounded = self.b.ins().iadd_imm_s(bytes, ALIGNMENT - 1);
        self.b.ins().band_imm_s(rounded, -ALIGNMENT)
    }

    /// Releases the workspace before the function returns.
    pub(super) fn release_workspace(&mut self) {
        if let Some(block) = self.workspace {
            self.call_runtime("tec_rt_workspace_release", &[block], None);
        }
    }

    /// The alias region of a number; region 0 is read-only memory.
    fn region(&mut self, number: u32) -> AliasRegion {
        let description = std::borrow::Cow::Borrowed("");
        let data = AliasRegionData { user_id: number, description };
        self.b.func.dfg.alias_regions.insert(data)
    }

    /// Starts the alias region of the next buffer that is written.
    fn new_region(&mut self) -> AliasRegion {
        self.regions = (self.regions + 1).min(MAX_REGIONS);
        self.region(self.regions)
    }

    pub(super) fn is_in_registers(&self, buffer: &Buffer) -> bool {
        matches!(self.places.get(buffer), Some(Place::Registers { .. }))
    }

    pub(super) fn place(&self, buffer: &Buffer) -> Place {
        match self.places.get(buffer) {
            Some(place) => place.clone(),
            None => crate::bug!("buffer `{}` is not visible here", buffer.name),
        }
    }

    /// The variable that holds `buffer[index]`, if the buffer lives in registers.
    fn register(&self, buffer: &Buffer, index: &Expr) -> Option<Variable> {
        match self.places.get(buffer)? {
            Place::Memory(_) => None,
            Place::Registers { variables, lanes } => {
                let first = first_of(index).as_int().and_then(|i| usize::try_from(i).ok());
                match first.and_then(|i| variables.get(i / *lanes as usize)) {
                    Some(variable) => Some(*variable),
                    None => crate::bug!("index outside register buffer `{}`", buffer.name),
                }
            }
        }
    }

    /// Loads `buffer[index]`.
    pub(super) fn load(&mut self, buffer: &Buffer, indices: &[Expr]) -> Value {
        let [index] = indices else {
            crate::bug!("access to `{}` is not flat", buffer.name);
        };
        if let Some(variable) = self.register(buffer, index) {
            return self.b.use_var(variable);
        }
        let Place::Memory(memory) = self.place(buffer) else { unreachable!("else a register") };
        // In a check function an index may overflow, so it is evaluated without reordering.
        let (address, offset) = if self.overflow.is_some() {
            let index = self.expr(index);
            let bytes = self.b.ins().imul_imm_s(index, buffer.dtype.bytes() as i64);
            (self.b.ins().iadd(memory.base, bytes), 0)
        } else {
            self.address(memory.base, buffer.dtype.bytes(), first_of(index))
        };
        let mut flags = access_flags(index).with_alias_region(Some(memory.region));
        if memory.readonly {
            flags = flags.with_readonly();
            // A load that varies with the innermost loop gains nothing by being movable. If it
            // stays in its place, it can become the memory operand of the next instruction.
            let invariant = self.depth_of(index) < self.depth;
            if self.overflow.is_none() && !self.conditional && invariant {
                flags = flags.with_can_move();
            }
        }
        let ty = Type { dtype: buffer.dtype, lanes: index.ty.lanes };
        if ty.lanes > 1 {
            return self.load_vector(ty, flags, address, offset);
        }
        let value = self.b.ins().load(clif_type_of(ty), flags, address, offset);
        if buffer.dtype == DType::Bool && memory.foreign {
            return self.b.ins().icmp_imm_u(IntCC::NotEqual, value, 0);
        }
        value
    }

    /// Stores `value` to `buffer[index]`.
    pub(super) fn store(&mut self, buffer: &Buffer, indices: &[Expr], value: Value) {
        let [index] = indices else {
            crate::bug!("access to `{}` is not flat", buffer.name);
        };
        if let Some(variable) = self.register(buffer, index) {
            self.b.def_var(variable, value);
            return;
        }
        let Place::Memory(memory) = self.place(buffer) else { unreachable!("else a register") };
        if memory.readonly {
            crate::bug!("store to `{}`, which is only read", buffer.name);
        }
        let bytes = buffer.dtype.bytes();
        let (address, offset) = self.address(memory.base, bytes, first_of(index));
        let flags = access_flags(index).with_alias_region(Some(memory.region));
        self.b.ins().store(flags, value, address, offset);
    }

    /// Begins the live range of an allocated buffer.
    pub(super) fn allocate(&mut self, buffer: &Buffer) {
        let place = self.places.get(buffer).cloned();
        if let Some(Place::Registers { variables, lanes }) = place {
            for variable in variables {
                let zero = self.zero(Type { dtype: buffer.dtype, lanes });
                self.b.def_var(variable, zero);
            }
        }
    }

    fn zero(&mut self, ty: Type) -> Value {
        let zero = match ty.dtype {
            DType::Float64 => self.b.ins().f64const(0.0),
            DType::Float32 => self.b.ins().f32const(0.0),
            dtype => self.int(clif_type(dtype), 0),
        };
        if ty.lanes == 1 { zero } else { self.splat(ty, zero) }
    }
}

/// The index of the first lane of an access to consecutive elements.
fn first_of(index: &Expr) -> &Expr {
    match &index.kind {
        ExprKind::Ramp(base, stride) if stride.as_int() == Some(1) => base,
        _ if index.ty.lanes == 1 => index,
        _ => crate::bug!("an access of elements that are not consecutive"),
    }
}

/// The flags of an access. Scalars and the elements of vectors are aligned to their size, whole
/// vectors are not.
fn access_flags(index: &Expr) -> MemFlagsData {
    match index.ty.lanes {
        1 => MemFlagsData::trusted(),
        _ => MemFlagsData::new().with_notrap(),
    }
}

/// Bytes of workspace that one call of a kernel uses, as an expression over its run-time integers,
/// for the manifest. The temporaries of a parallel loop count for one task.
pub fn workspace_bytes(kernel: &Kernel) -> Expr {
    simplify_expr(&largest_workspace(&kernel.body), &Facts::new())
}

/// The bytes of the version of a schedule that uses most.
fn largest_workspace(body: &Stmt) -> Expr {
    if let Stmt::If { then, otherwise: Some(otherwise), .. } = body {
        let (then, otherwise) = (largest_workspace(then), largest_workspace(otherwise));
        return Expr::binary(BinOp::Max, then, otherwise);
    }
    let mut all_uses = vec![BufferUses::of(body, false)];
    for_each_task(body, &mut |task| all_uses.push(BufferUses::of(task, true)));
    let rounded = |buffer: &Buffer| {
        let bytes = Expr::mul(buffer.len(), Expr::index(buffer.dtype.bytes() as i64));
        let blocks = Expr::add(bytes, Expr::index(ALIGNMENT - 1));
        let blocks = Expr::binary(BinOp::FloorDiv, blocks, Expr::index(ALIGNMENT));
        Expr::mul(blocks, Expr::index(ALIGNMENT))
    };
    let homes = all_uses.iter().flat_map(BufferUses::homes);
    let in_workspace = homes.filter(|(_, home)| matches!(home, Home::Workspace));
    let total = in_workspace.map(|(buffer, _)| rounded(buffer)).reduce(Expr::add);
    total.unwrap_or_else(|| Expr::index(0))
}

/// The storage of an allocated buffer.
enum Home {
    /// `count` elements in variables of `lanes` each.
    Registers { count: i128, lanes: u32 },
    /// This many bytes of the function's frame.
    Stack(u64),
    /// The block that the function acquires from the runtime.
    Workspace,
}

/// The buffers of a statement in textual order, and how it accesses them.
#[derive(Default)]
struct BufferUses {
    allocated: Vec<Buffer>,
    constants: Vec<Buffer>,
    /// Buffers with an index that is not constant, or with accesses of different numbers of lanes.
    varying: FxHashSet<Buffer>,
    /// Lanes of the accesses to the other buffers.
    lanes: FxHashMap<Buffer, u32>,
}

impl BufferUses {
    /// Surveys the function of `stmt`; of its tasks, only the buffers that it shares with them.
    fn of(stmt: &Stmt, in_task: bool) -> BufferUses {
        let mut uses = BufferUses::default();
        uses.stmt(stmt, in_task, &mut FxHashSet::default());
        uses
    }

    fn stmt(&mut self, stmt: &Stmt, in_task: bool, seen: &mut FxHashSet<usize>) {
        match stmt {
            Stmt::SimdKernel { body } => return self.nest(body),
            Stmt::Allocate { buffer, .. } => self.allocated.push(buffer.clone()),
            Stmt::Store { buffer, indices, .. } => self.note_access(buffer, &indices[0]),
            _ => {}
        }
        visit::for_each_expr(stmt, &mut |expr| self.scan(expr, seen));
        if !in_task && is_task(stmt) {
            let mut inner = BufferUses::default();
            visit::for_each_stmt(stmt, &mut |body| {
                inner.stmt(body, true, &mut FxHashSet::default())
            });
            // A task gets only addresses, so shared buffers must be in memory.
            self.varying.extend(inner.varying);
            self.varying.extend(inner.lanes.into_keys());
        } else {
            visit::for_each_stmt(stmt, &mut |inner| self.stmt(inner, in_task, seen));
        }
    }

    /// Surveys a nest for the SIMD back end, which gets only addresses and places its own buffers.
    fn nest(&mut self, body: &Stmt) {
        let uses = Uses::of(body);
        self.varying.extend(uses.buffers);
        for buffer in uses.constants {
            if !self.constants.contains(&buffer) {
                self.constants.push(buffer);
            }
        }
    }

    /// Decides the storage of each allocated buffer.
    fn homes(&self) -> impl Iterator<Item = (&Buffer, Home)> {
        let mut stack_left = STACK_BYTES;
        self.allocated.iter().map(move |buffer| {
            let count = buffer
                .shape
                .iter()
                .try_fold(1i128, |product, extent| product.checked_mul(extent.as_int()?.max(0)));
            let bytes =
                count.and_then(|n| u64::try_from(n.checked_mul(buffer.dtype.bytes().into())?).ok());
            let home = match (count, bytes) {
                (Some(count), _)
                    if buffer.scope == Scope::Register
                        && count <= MAX_REGISTERS
                        && !self.varying.contains(buffer) =>
                {
                    let lanes = self.lanes.get(buffer).copied().unwrap_or(1);
                    Home::Registers { count, lanes }
                }
                (_, Some(bytes)) if bytes <= stack_left => {
                    stack_left -= bytes;
                    Home::Stack(bytes)
                }
                _ => Home::Workspace,
            };
            (buffer, home)
        })
    }

    fn note_access(&mut self, buffer: &Buffer, index: &Expr) {
        let lanes = index.ty.lanes;
        match first_of(index).as_int() {
            Some(first) if first % i128::from(lanes) == 0 => self.note_lanes(buffer, lanes),
            _ => {
                self.varying.insert(buffer.clone());
            }
        }
    }

    fn note_lanes(&mut self, buffer: &Buffer, lanes: u32) {
        if *self.lanes.entry(buffer.clone()).or_insert(lanes) != lanes {
            self.varying.insert(buffer.clone());
        }
    }

    fn scan(&mut self, expr: &Expr, seen: &mut FxHashSet<usize>) {
        if !seen.insert(expr.id()) {
            return;
        }
        if let ExprKind::Load { buffer, indices, .. } = &expr.kind {
            if buffer.init.is_some() && !self.constants.contains(buffer) {
                self.constants.push(buffer.clone());
            }
            self.note_access(buffer, &indices[0]);
        }
        visit::for_each_child(expr, &mut |child| self.scan(child, seen));
    }
}

/// Calls `f` with the body of every loop that becomes a task.
fn for_each_task(stmt: &Stmt, f: &mut dyn FnMut(&Stmt)) {
    match is_task(stmt) {
        true => visit::for_each_stmt(stmt, f),
        false => visit::for_each_stmt(stmt, &mut |inner| for_each_task(inner, f)),
    }
}
