//! The emitter of one function, with the helpers that all its parts use: bindings, scoped
//! memoisation, constants, calls of the runtime.

use super::Unit;
use super::storage::Place;
use super::task::Task;
use crate::codegen::common::clif_type;
use crate::ir::print::print_expr;
use crate::ir::{self, Buffer, Const, DType, Expr, ExprKind, Stmt, Var};
use cranelift_codegen::ir::{InstBuilder, SourceLoc, Type, Value, types};
use cranelift_frontend::{FunctionBuilder, Variable};
use cranelift_module::{FuncId, Module};
use rustc_hash::FxHashMap;

/// Most instructions of a function; a larger one is refused. Shared operands of lazy branches are
/// compiled once per branch, so a small source can expand to very much code.
pub(super) const MAX_INSTRUCTIONS: usize = 2_000_000;

/// What a variable stands for.
#[derive(Clone, Copy)]
pub(super) struct Binding {
    /// Its value, available wherever the variable is visible.
    pub(super) value: Value,
    /// The number of loops around its definition whose variables it depends on.
    pub(super) depth: u32,
    /// Smallest and largest value, of an integer.
    pub(super) range: (i128, i128),
    /// 1 if index arithmetic in its definition overflowed; only in `check` functions.
    pub(super) overflow: Option<Value>,
    /// The id of the expression that a `let` bound it to.
    pub(super) definition: usize,
}

/// The results of emitting a function, besides its code.
pub(super) struct EmittedFunction {
    /// The heads of its statements for the listing, in the order of their source locations.
    pub(super) heads: Vec<String>,
    /// The tasks that it calls, to be compiled next.
    pub(super) tasks: Vec<Task>,
}

/// Emits the code of one function.
pub(super) struct Emitter<'a, 'u> {
    pub(super) b: FunctionBuilder<'a>,
    pub(super) unit: &'a mut Unit<'u>,
    pub(super) vars: FxHashMap<Var, Binding>,
    pub(super) places: FxHashMap<Buffer, Place>,
    /// Number of loops around the current position.
    pub(super) depth: u32,
    /// Whether a condition or a possibly empty loop encloses the current position. Loads must not
    /// move out of it: the address may be valid only under the condition.
    pub(super) conditional: bool,
    /// In a `check` function, set when index arithmetic overflowed.
    pub(super) overflow: Option<Variable>,
    /// Number of `Assert`s emitted.
    pub(super) asserts: i64,
    /// Whether a scan encloses the current position.
    pub(super) in_scan: bool,
    /// Where a `check` function stores the values of a failed `Assert`.
    pub(super) check_values: Option<Value>,
    /// The block from the workspace pool, if the function has one.
    pub(super) workspace: Option<Value>,
    /// Whether this function is a task; parallel loops are serial then.
    pub(super) in_task: bool,
    /// The first value of a task's loop, and the one after its last.
    pub(super) task_bounds: Option<(Value, Value)>,
    /// The function of the next nest, if that nest was compiled before.
    pub(super) compiled_nest: Option<FuncId>,
    /// Name of the kernel, for its tasks.
    pub(super) kernel_name: String,
    /// Parallel loops so far, to be compiled after this function.
    pub(super) tasks: Vec<Task>,
    /// Alias regions in use.
    pub(super) regions: u32,
    /// One line for each statement so far, if a listing is made.
    heads: Vec<String>,
    memo: FxHashMap<usize, Value>,
    memo_log: Vec<usize>,
    depths: FxHashMap<usize, u32>,
    pub(super) ranges: FxHashMap<usize, (i128, i128)>,
}

impl<'a, 'u> Emitter<'a, 'u> {
    /// An emitter that continues at the current position of `b`.
    pub(super) fn new(
        b: FunctionBuilder<'a>,
        unit: &'a mut Unit<'u>,
        kernel_name: &str,
    ) -> Emitter<'a, 'u> {
        Emitter {
            b,
            unit,
            vars: FxHashMap::default(),
            places: FxHashMap::default(),
            depth: 0,
            conditional: false,
            overflow: None,
            in_scan: false,
            asserts: 0,
            check_values: None,
            workspace: None,
            in_task: false,
            task_bounds: None,
            compiled_nest: None,
            kernel_name: kernel_name.to_string(),
            tasks: Vec::new(),
            regions: 0,
            heads: Vec::new(),
            memo: FxHashMap::default(),
            memo_log: Vec::new(),
            depths: FxHashMap::default(),
            ranges: FxHashMap::default(),
        }
    }

    /// Forgets the values of subexpressions, after a change of memory or position.
    pub(super) fn forget(&mut self) {
        self.memo.clear();
        self.memo_log.clear();
        self.depths.clear();
    }

    /// Binds the variable of a `let`. A pass may have put one variable into two `let`s with
    /// different values; memoised values of the first are wrong in the second.
    pub(super) fn bind_definition(&mut self, var: &Var, value: Value, expr: &Expr) {
        if self.vars.get(var).is_some_and(|old| old.definition != expr.id()) {
            self.forget();
            self.ranges.clear();
        }
        let (depth, range) = (self.depth_of(expr), self.range_of(expr));
        let (overflow, definition) = (None, expr.id());
        self.vars.insert(var.clone(), Binding { value, depth, range, overflow, definition });
    }

    /// The value of a subexpression computed at a place that dominates this one.
    pub(super) fn recall(&self, expr: &Expr) -> Option<Value> {
        self.memo.get(&expr.id()).copied()
    }

    pub(super) fn remember(&mut self, expr: &Expr, value: Value) {
        if self.memo.insert(expr.id(), value).is_none() {
            self.memo_log.push(expr.id());
        }
    }

    /// Runs `f`, whose code does not dominate the code after it.
    pub(super) fn conditionally<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        let mark = self.memo_log.len();
        let conditional = std::mem::replace(&mut self.conditional, true);
        let result = f(self);
        self.conditional = conditional;
        // A statement inside may have cleared the log.
        let mark = mark.min(self.memo_log.len());
        for id in self.memo_log.drain(mark..) {
            self.memo.remove(&id);
        }
        result
    }

    /// Whether the function has more than [`MAX_INSTRUCTIONS`]; nothing more is emitted then.
    pub(super) fn too_large(&self) -> bool {
        self.b.func.dfg.num_insts() > MAX_INSTRUCTIONS
    }

    /// Binds a variable that every code position after this one, inside its scope, can read.
    pub(super) fn bind(&mut self, var: &Var, value: Value, depth: u32, range: (i128, i128)) {
        let (overflow, definition) = (None, 0);
        self.vars.insert(var.clone(), Binding { value, depth, range, overflow, definition });
    }

    /// The depth of the innermost loop whose variable an expression depends on. Dependences through
    /// memory are not seen; only the order of additions depends on the result.
    pub(super) fn depth_of(&mut self, expr: &Expr) -> u32 {
        match &expr.kind {
            ExprKind::Const(_) => return 0,
            ExprKind::Var(var) => return self.vars.get(var).map_or(self.depth, |v| v.depth),
            ExprKind::Load { .. } => return self.depth,
            _ => {}
        }
        if let Some(depth) = self.depths.get(&expr.id()) {
            return *depth;
        }
        let mut depth = 0;
        crate::ir::visit::for_each_child(expr, &mut |child| {
            depth = depth.max(self.depth_of(child));
        });
        self.depths.insert(expr.id(), depth);
        depth
    }

    /// Emits a constant of the IR.
    pub(super) fn constant(&mut self, dtype: DType, value: Const) -> Value {
        match (value, dtype) {
            (Const::Int(value), _) => self.int(clif_type(dtype), value),
            (Const::Float(value), DType::Float64) => self.b.ins().f64const(value),
            (Const::Float(value), DType::Float32) => self.b.ins().f32const(value as f32),
            // The value is one of the type, so these conversions are exact.
            (Const::Float(value), DType::Float16) => {
                self.int(types::I16, half::f16::from_f64(value).to_bits().into())
            }
            (Const::Float(value), DType::BFloat16) => {
                self.int(types::I16, half::bf16::from_f64(value).to_bits().into())
            }
            (Const::Float(_), _) => crate::bug!("a float constant of type {dtype}"),
        }
    }

    /// In a `check` function, records an overflow of index arithmetic if `flag` is 1.
    pub(super) fn note_overflow(&mut self, flag: Value) {
        if let Some(variable) = self.overflow {
            let before = self.b.use_var(variable);
            let after = self.b.ins().bor(before, flag);
            self.b.def_var(variable, after);
        }
    }

    /// Calls a function of the runtime, which lies in the same module.
    pub(super) fn call_runtime(
        &mut self,
        name: &'static str,
        args: &[Value],
        result: Option<Type>,
    ) -> Option<Value> {
        let param_types: Vec<Type> =
            args.iter().map(|arg| self.b.func.dfg.value_type(*arg)).collect();
        let id = self.unit.runtime_function(name, &param_types, result);
        let callee = self.unit.module.declare_func_in_func(id, self.b.func);
        self.b.func.dfg.ext_funcs[callee].colocated = true;
        let call = self.b.ins().call(callee, args);
        self.b.inst_results(call).first().copied()
    }

    /// Attributes the code that follows to a statement, for the listing.
    pub(super) fn mark(&mut self, head: impl FnOnce() -> String) {
        if self.unit.notes.is_some() {
            let location = SourceLoc::new(self.heads.len() as u32);
            self.b.set_srcloc(location);
            self.heads.push(head());
        }
    }

    /// Emits a statement with its buffers, then the successful return. Returns `None` if the code
    /// is too large.
    pub(super) fn finish(mut self, stmt: &Stmt) -> Option<EmittedFunction> {
        self.versions(stmt);
        self.end()
    }

    /// Emits a statement with its buffers. The branches of an outermost `if`, such as the versions
    /// of a schedule, have buffers of their own.
    fn versions(&mut self, stmt: &Stmt) {
        let Stmt::If { cond, then, otherwise: Some(otherwise) } = stmt else {
            self.place_buffers(stmt);
            return self.stmt(stmt);
        };
        self.mark(|| format!("if ({})", print_expr(cond)));
        let holds = self.expr(cond);
        let (first, second) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(holds, first, &[], second, &[]);
        self.start_block(first);
        self.conditionally(|this| {
            this.versions(then);
            this.return_success();
        });
        self.workspace = None;
        self.start_block(second);
        self.versions(otherwise);
    }

    /// Releases the workspace and returns.
    fn return_success(&mut self) {
        self.release_workspace();
        let zero = self.int(types::I32, 0);
        self.b.ins().return_(&[zero]);
    }

    /// Emits the successful return.
    pub(super) fn end(mut self) -> Option<EmittedFunction> {
        self.return_success();
        let too_large = self.too_large();
        let config = self.unit.module.target_config();
        self.b.finalize(config);
        (!too_large).then_some(EmittedFunction { heads: self.heads, tasks: self.tasks })
    }
}

/// The type of a value in code: a vector if it has lanes.
pub(super) fn clif_type_of(ty: ir::Type) -> Type {
    let lane = clif_type(ty.dtype);
    match lane.by(ty.lanes) {
        Some(vector) => vector,
        None => crate::bug!("a vector {ty}"),
    }
}
