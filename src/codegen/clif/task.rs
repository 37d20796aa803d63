//! Parallel loops. The body becomes a function that runs a range of iterations, a task:
//! `NAME.task.K(closure, begin, end) -> i32`, which returns 0 or the code of a failure. The runtime
//! calls it, possibly from several threads at once.
//!
//! The closure is a struct in the caller's frame with the values of the variables that the body
//! reads and the addresses of the buffers it uses. Buffers that the body allocates belong to the
//! task. A parallel loop inside a task is serial. The runtime gets the approximate number of steps
//! of an iteration, so that it wakes no threads for a loop that ends before they would start.

use super::Unit;
use super::emit::{Binding, EmittedFunction, Emitter};
use super::storage::{Capture, Place};
use crate::ir::cost::count_steps;
use crate::ir::{BinOp, Buffer, Expr, ExprKind, ForKind, Stmt, Var, visit};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    AbiParam, InstBuilder, MemFlagsData, Signature, StackSlotData, StackSlotKind, Type, Value,
    types,
};
use cranelift_codegen::isa::TargetIsa;
use cranelift_module::{FuncId, Linkage, Module};
use rustc_hash::FxHashSet;

/// A parallel loop, to be compiled as a function.
pub(super) struct Task {
    /// The declared function.
    pub(super) id: FuncId,
    /// Its name.
    pub(super) name: String,
    var: Var,
    body: Stmt,
    /// Bounds of the loop's variable.
    range: (i128, i128),
    /// Whether the loop may be empty, or is under a condition itself.
    conditional: bool,
    /// Where the closure holds the first value of the loop.
    min: Field,
    vars: Vec<(Var, Field, Binding)>,
    buffers: Vec<(Buffer, Field, Capture)>,
    nest: Option<Nest>,
}

/// The nest for the SIMD back end in a parallel loop.
enum Nest {
    /// The nest includes the loop over the task's range.
    Iterations(Iterations),
    /// The nest is one iteration, compiled to this function.
    Iteration(FuncId),
}

/// A nest of a range of iterations.
struct Iterations {
    /// The first one.
    begin: Var,
    count: Var,
    iterations: Stmt,
    /// The function of the nest, once compiled.
    function: Option<FuncId>,
}

impl Iterations {
    fn new(var: &Var, nest: &Stmt) -> Iterations {
        let (begin, count) = (Var::index("begin"), Var::index("count"));
        let iterations = Stmt::For {
            var: var.clone(),
            min: Expr::var(&begin),
            extent: Expr::var(&count),
            kind: ForKind::Serial,
            body: Box::new(nest.clone()),
        };
        Iterations { begin, count, iterations, function: None }
    }
}

/// A nest of fewer steps includes the loop over its task's range, because the time of a call would
/// count.
const SHORT_NEST_STEPS: i128 = 4000;
/// A nest with more stores does not include that loop: too few registers are left.
const MAX_STORES_WITH_LOOP: usize = 16;

/// The offset and type of a value in the closure.
#[derive(Clone, Copy)]
pub(super) struct Field {
    pub(super) offset: i32,
    pub(super) ty: Type,
}

/// Whether the loop becomes a task, if no task encloses it.
pub(super) fn is_task(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::For { kind: ForKind::Parallel, extent, .. } => {
            extent.as_int().is_none_or(|extent| extent > 1)
        }
        _ => false,
    }
}

/// The signature of tasks, which the runtime calls.
pub(super) fn task_signature(isa: &dyn TargetIsa) -> Signature {
    let mut signature = Signature::new(isa.default_call_conv());
    signature.params.extend([AbiParam::new(types::I64); 3]);
    // On RISC-V the C ABI requires sign extension.
    signature.returns.push(AbiParam::new(types::I32).sext());
    signature
}

impl Unit<'_> {
    fn declare_task(&mut self, name: &str) -> FuncId {
        self.module
            .declare_function(name, Linkage::Local, &task_signature(&*self.isa))
            .unwrap_or_else(|error| crate::bug!("{name}: {error}"))
    }
}

impl Emitter<'_, '_> {
    /// Emits the call of a task in place of a parallel loop; the task is compiled later.
    pub(super) fn parallel_loop(&mut self, var: &Var, min: &Expr, extent: &Expr, body: &Stmt) {
        let (start, count) = (self.expr(min), self.expr(extent));
        let nest = nest_of(body);
        let short = nest.filter(|nest| is_short(nest)).map(|nest| Iterations::new(var, nest));
        // The module's tables are visible in the task, but not outside of it.
        let has_tables = !Uses::of(body).constants.is_empty();
        let Some(nest) = nest.filter(|_| extent.as_int().is_none() && !has_tables) else {
            let nest = short.map(Nest::Iterations);
            return self.shared_loop(var, (min, extent), (start, count), body, nest);
        };
        // A single iteration is called without a task.
        let (alone, shared, done) =
            (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let one = self.b.ins().icmp_imm_s(IntCC::Equal, count, 1);
        self.b.ins().brif(one, alone, &[], shared, &[]);
        self.start_block(alone);
        let range = self.loop_range(min, extent);
        let mut function = None;
        self.conditionally(|this| {
            function = Some(match &short {
                Some(short) => {
                    this.bind(&short.begin, start, 0, range);
                    this.bind(&short.count, count, 0, (0, 1));
                    this.call_nest(&short.iterations, None)
                }
                None => {
                    this.bind(var, start, 0, range);
                    this.call_nest(nest, None)
                }
            });
        });
        self.b.ins().jump(done, &[]);
        self.start_block(shared);
        let nest = match short {
            Some(short) => Some(Nest::Iterations(Iterations { function, ..short })),
            None => function.map(Nest::Iteration),
        };
        self.conditionally(|this| {
            this.shared_loop(var, (min, extent), (start, count), body, nest);
        });
        self.b.ins().jump(done, &[]);
        self.start_block(done);
    }

    fn shared_loop(
        &mut self,
        var: &Var,
        (min, extent): (&Expr, &Expr),
        (start, count): (Value, Value),
        body: &Stmt,
        nest: Option<Nest>,
    ) {
        let uses = Uses::of(body);
        let mut closure = Vec::new();
        let mut size = 0;
        let mut add = |value: Value, ty: Type| {
            let bytes = ty.bytes() as i32;
            let offset = (size + bytes - 1) & -bytes;
            size = offset + bytes;
            let field = Field { offset, ty };
            closure.push((field, value));
            field
        };
        let min_field = add(start, types::I64);
        let mut vars = Vec::new();
        for var in uses.vars {
            if let Some(binding) = self.vars.get(&var).copied() {
                let field = add(binding.value, self.b.func.dfg.value_type(binding.value));
                vars.push((var, field, binding));
            }
        }
        let mut buffers = Vec::new();
        for buffer in uses.buffers {
            let Some(Place::Memory(memory)) = self.places.get(&buffer) else {
                crate::bug!("buffer `{}` cannot be shared by tasks", buffer.name);
            };
            let field = add(memory.base, types::I64);
            buffers.push((buffer, field, memory.capture()));
        }
        let pointer = self.write_closure(&closure, size);
        let name = format!("{}.task.{}", self.kernel_name, self.tasks.len());
        let id = self.unit.declare_task(&name);
        let range = self.loop_range(min, extent);
        let conditional = self.conditional || extent.as_int().is_none();
        self.tasks.push(Task {
            id,
            name,
            var: var.clone(),
            body: body.clone(),
            range,
            conditional,
            min: min_field,
            vars,
            buffers,
            nest,
        });
        let steps = self.known_steps(body);
        self.call_task(id, [pointer, count, steps]);
    }

    /// Writes a closure into this function's frame. Returns its address.
    pub(super) fn write_closure(&mut self, closure: &[(Field, Value)], size: i32) -> Value {
        let data = StackSlotData::new(StackSlotKind::ExplicitSlot, size as u32, 4);
        let slot = self.b.create_sized_stack_slot(data);
        let pointer = self.b.ins().stack_addr(types::I64, slot, 0);
        for (field, value) in closure {
            self.b.ins().store(MemFlagsData::trusted(), *value, pointer, field.offset);
        }
        pointer
    }

    /// Computes the approximate number of steps of an iteration, 0 if iterations differ. This runs
    /// whether or not the loops inside are reached, so it must not trap.
    fn known_steps(&mut self, body: &Stmt) -> Value {
        let steps = count_steps(body, &|extent| {
            let mut known = true;
            visit::walk_expr(extent, &mut |expr| {
                known &= match &expr.kind {
                    ExprKind::Var(var) => self.vars.contains_key(var),
                    ExprKind::Load { .. } => false,
                    ExprKind::Binary(BinOp::FloorDiv | BinOp::FloorMod, _, by) => {
                        by.as_int().is_some()
                    }
                    _ => true,
                };
            });
            known
        });
        match steps {
            Some(steps) => self.expr(&steps),
            None => self.b.ins().iconst(types::I64, 0),
        }
    }

    /// Calls the runtime to run all iterations and returns from the function on failure. The
    /// arguments are the closure, the extent and the steps of an iteration.
    fn call_task(&mut self, task: FuncId, [closure, extent, steps]: [Value; 3]) {
        let callee = self.unit.module.declare_func_in_func(task, self.b.func);
        self.b.func.dfg.ext_funcs[callee].colocated = true;
        let address = self.b.ins().func_addr(types::I64, callee);
        let args = [address, closure, extent, steps];
        let result = self
            .call_runtime("tec_rt_parallel_for", &args, Some(types::I32))
            .expect("it has a result");
        let (failed, fine) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(result, failed, &[], fine, &[]);
        self.b.set_cold_block(failed);
        self.start_block(failed);
        self.release_workspace();
        self.b.ins().return_(&[result]);
        self.start_block(fine);
    }

    /// Binds the values and buffers of the task's closure; `args` are the arguments of the task.
    pub(super) fn enter_task(&mut self, task: &Task, args: &[Value]) {
        self.in_task = true;
        self.conditional = task.conditional;
        let flags = MemFlagsData::trusted().with_readonly().with_can_move();
        let read = |this: &mut Self, field: Field| {
            this.b.ins().load(field.ty, flags, args[0], field.offset)
        };
        for (var, field, binding) in &task.vars {
            let value = read(self, *field);
            self.bind(var, value, 0, binding.range);
        }
        for (buffer, field, capture) in &task.buffers {
            let base = read(self, *field);
            self.place_captured(buffer, base, *capture);
        }
        self.place_buffers(&task.body);
        let min = read(self, task.min);
        let (begin, end) = (self.b.ins().iadd(min, args[1]), self.b.ins().iadd(min, args[2]));
        self.task_bounds = Some((begin, end));
    }

    /// Emits the iterations of a task, then the return.
    pub(super) fn finish_task(mut self, task: &Task) -> Option<EmittedFunction> {
        let (begin, end) = self.task_bounds.expect("enter_task set them");
        self.mark(|| format!("for some of ({})", task.var.name()));
        if let Some(Nest::Iterations(nest)) = &task.nest {
            let count = self.b.ins().isub(end, begin);
            self.bind(&nest.begin, begin, 0, task.range);
            let most = task.range.1.saturating_sub(task.range.0).max(0);
            self.bind(&nest.count, count, 0, (0, most.saturating_add(1)));
            self.call_nest(&nest.iterations, nest.function);
            return self.end();
        }
        if let Some(Nest::Iteration(function)) = &task.nest {
            self.compiled_nest = Some(*function);
        }
        let (enter, exit) = (self.b.create_block(), self.b.create_block());
        let some = self.b.ins().icmp(IntCC::SignedLessThan, begin, end);
        self.b.ins().brif(some, enter, &[], exit, &[]);
        self.start_block(enter);
        self.iterate(&task.var, (begin, end), task.range, &task.body, exit);
        self.end()
    }
}

/// The nest for the SIMD back end, if an iteration consists of one.
fn nest_of(body: &Stmt) -> Option<&Stmt> {
    match body {
        Stmt::SimdKernel { body } => Some(body),
        Stmt::Produce { body, .. } => nest_of(body),
        _ => None,
    }
}

fn is_short(nest: &Stmt) -> bool {
    let steps = count_steps(nest, &|_| true).and_then(|steps| steps.as_int());
    let mut stores = 0;
    let mut count = |stmt: &Stmt| stores += usize::from(matches!(stmt, Stmt::Store { .. }));
    visit::walk_stmt(nest, &mut count, &mut |_| {});
    steps.is_none_or(|steps| steps < SHORT_NEST_STEPS) && stores <= MAX_STORES_WITH_LOOP
}

/// The variables and buffers that a loop's body uses from outside, in order of first use.
#[derive(Default)]
pub(super) struct Uses {
    pub(super) vars: Vec<Var>,
    pub(super) buffers: Vec<Buffer>,
    /// Constant buffers of the module.
    pub(super) constants: Vec<Buffer>,
    seen_vars: FxHashSet<Var>,
    seen_buffers: FxHashSet<Buffer>,
    seen: FxHashSet<usize>,
}

impl Uses {
    pub(super) fn of(body: &Stmt) -> Uses {
        let mut inside = FxHashSet::default();
        let mut own = FxHashSet::default();
        let (mut uses, mut seen_lets) = (Uses::default(), FxHashSet::default());
        visit::walk_stmt(
            body,
            &mut |stmt| match stmt {
                Stmt::For { var, .. } | Stmt::Let { var, .. } => {
                    inside.insert(var.clone());
                }
                Stmt::Allocate { buffer, .. } => {
                    own.insert(buffer.clone());
                }
                _ => {}
            },
            &mut |_| {},
        );
        visit::walk_stmt(body, &mut |_| {}, &mut |expr| {
            bound_in_expr(expr, &mut seen_lets, &mut inside);
        });
        uses.seen_vars = inside;
        uses.seen_buffers = own;
        uses.stmt(body);
        uses
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::Store { buffer, .. } | Stmt::Prefetch { buffer, .. } => self.buffer(buffer),
            // The task computes the size.
            Stmt::Allocate { buffer, .. } => buffer.shape.iter().for_each(|e| self.expr(e)),
            _ => {}
        }
        visit::for_each_expr(stmt, &mut |expr| self.expr(expr));
        visit::for_each_stmt(stmt, &mut |inner| self.stmt(inner));
    }

    fn expr(&mut self, expr: &Expr) {
        if !self.seen.insert(expr.id()) {
            return;
        }
        match &expr.kind {
            ExprKind::Var(var) if self.seen_vars.insert(var.clone()) => {
                self.vars.push(var.clone());
            }
            ExprKind::Load { buffer, .. } => self.buffer(buffer),
            _ => {}
        }
        visit::for_each_child(expr, &mut |child| self.expr(child));
    }

    fn buffer(&mut self, buffer: &Buffer) {
        if self.seen_buffers.insert(buffer.clone()) {
            let list = match buffer.init {
                None => &mut self.buffers,
                Some(_) => &mut self.constants,
            };
            list.push(buffer.clone());
        }
    }
}

fn bound_in_expr(expr: &Expr, seen: &mut FxHashSet<usize>, bound: &mut FxHashSet<Var>) {
    if !seen.insert(expr.id()) {
        return;
    }
    if let ExprKind::Let(var, ..) = &expr.kind {
        bound.insert(var.clone());
    }
    visit::for_each_child(expr, &mut |child| bound_in_expr(child, seen, bound));
}
