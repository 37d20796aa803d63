//! Compiles loop IR to the code of the virtual machine.
//!
//! Every node of a statement's expressions is compiled once. If a node is computed on every path to
//! its next use, its register is used again. A shared node that is first used in a branch becomes a
//! subroutine that runs at most once.

use super::code::{Access, Allocation, Assertion, Code, Culprit, Op, Pc, Reg};
use super::code::{Launch, LaunchDim};
use super::scalar;
use crate::ir::equal::equal;
use crate::ir::launch::{find_dims, has_barrier, has_threads, is_shared_stage};
use crate::ir::visit::{for_each_child, walk_stmt};
use crate::ir::{
    BinOp, Buffer, DType, Expr, ExprKind, GPU_INDICES, Intrinsic, Scope, SortAxis, Stmt,
    ThreadIndex, Type,
};
use crate::ir::{UnOp, Var};
use rustc_hash::FxHashMap;

/// Compiles a statement over `vars`, which the caller binds; returns their registers.
pub fn compile_stmt(stmt: &Stmt, vars: &[Var]) -> Result<(Code, Vec<Reg>), String> {
    let mut compiler = Compiler::default();
    let regs = vars.iter().map(|var| compiler.bind(var)).collect();
    compiler.stmt(stmt)?;
    Ok((compiler.finish(), regs))
}

/// Compiles expressions over `vars`; returns the registers of `vars` and of the results.
pub fn compile_exprs(exprs: &[Expr], vars: &[Var]) -> Result<(Code, Vec<Reg>, Vec<Reg>), String> {
    let mut compiler = Compiler::default();
    let regs = vars.iter().map(|var| compiler.bind(var)).collect();
    let results = compiler.whole(&exprs.iter().collect::<Vec<_>>())?;
    Ok((compiler.finish(), regs, results))
}

#[derive(Default)]
struct Compiler {
    code: Code,
    vars: FxHashMap<Var, Reg>,
    buffers: FxHashMap<Buffer, u32>,
    constants: FxHashMap<u64, Reg>,
    scope: Option<u32>,
    /// The number of uses of each inner node of the statement.
    uses: FxHashMap<usize, u32>,
    /// The registers of nodes that are computed on every path to here, a table for each enclosing
    /// branch.
    known: Vec<FxHashMap<usize, Reg>>,
    /// The result and `done` registers of nodes that are subroutines.
    shared: FxHashMap<usize, (Reg, Reg)>,
    /// Subroutines that are not compiled yet.
    pending: Vec<Expr>,
    /// `Shared` instructions whose target is not known yet.
    calls: Vec<(usize, usize)>,
    /// The contents of `known` when the statement's first branch began.
    before_branches: Option<FxHashMap<usize, Reg>>,
    /// The extents of the indices of the enclosing launch; `None` outside of launches.
    extents: Option<FxHashMap<ThreadIndex, Expr>>,
}

type Compiled<T> = Result<T, String>;

impl Compiler {
    fn finish(mut self) -> Code {
        self.code.ops.push(Op::Halt);
        self.code
    }

    fn registers(&mut self, lanes: u32) -> Reg {
        let first = self.code.registers;
        self.code.registers += lanes;
        first
    }

    fn bind(&mut self, var: &Var) -> Reg {
        let reg = self.registers(var.ty().lanes);
        self.vars.insert(var.clone(), reg);
        reg
    }

    fn open_scope(&mut self, var: &Var, reg: Reg) -> Option<u32> {
        self.code.scopes.push((var.name().to_string(), reg, self.scope));
        self.scope.replace(self.code.scopes.len() as u32 - 1)
    }

    fn buffer(&mut self, buffer: &Buffer) -> u32 {
        let buffers = &mut self.code.buffers;
        *self.buffers.entry(buffer.clone()).or_insert_with(|| {
            buffers.push(buffer.clone());
            buffers.len() as u32 - 1
        })
    }

    fn constant(&mut self, bits: u64) -> Reg {
        if let Some(reg) = self.constants.get(&bits) {
            return *reg;
        }
        let reg = self.registers(1);
        self.code.constants.push((reg, bits));
        self.constants.insert(bits, reg);
        reg
    }

    fn pc(&self) -> Pc {
        self.code.ops.len() as Pc
    }

    fn emit(&mut self, op: Op) -> usize {
        self.code.ops.push(op);
        self.code.ops.len() - 1
    }

    /// Emits an instruction that may trap.
    fn emit_trapping(&mut self, op: Op, culprit: Culprit) {
        self.code.sites.push((self.pc(), culprit, self.scope));
        self.emit(op);
    }

    /// Sets the target of the jump at `at` to the next instruction.
    fn set_jump_target(&mut self, at: usize) {
        let here = self.pc();
        match &mut self.code.ops[at] {
            Op::Jump { to }
            | Op::JumpIf { to, .. }
            | Op::JumpUnless { to, .. }
            | Op::JumpIfAll { to, .. }
            | Op::Shared { to, .. }
            | Op::Loop { exit: to, .. } => *to = here,
            op => crate::bug!("no jump: {op:?}"),
        }
    }

    fn stmt(&mut self, stmt: &Stmt) -> Compiled<()> {
        match stmt {
            Stmt::Block(stmts) => stmts.iter().try_for_each(|s| self.stmt(s)),
            Stmt::For { kind, .. } if kind.gpu_index().is_some() => self.thread_loop(stmt),
            Stmt::For { var, min, extent, kind: _, body } => {
                let bounds = self.whole(&[min, extent])?;
                let (var_reg, last) = (self.bind(var), self.registers(1));
                let [min, extent] = [bounds[0], bounds[1]];
                let head = Op::Loop { var: var_reg, min, extent, last, exit: 0 };
                self.code.sites.push((self.pc(), Culprit::Stmt(stmt_head(stmt)), self.scope));
                let head = self.emit(head);
                let body_pc = self.pc();
                let outer = self.open_scope(var, var_reg);
                self.stmt(body)?;
                self.scope = outer;
                self.emit(Op::Next { var: var_reg, last, body: body_pc });
                self.set_jump_target(head);
                Ok(())
            }
            Stmt::If { cond, then, otherwise } => {
                let c = self.whole(&[cond])?[0];
                let skip = self.emit(Op::JumpUnless { c, to: 0 });
                self.stmt(then)?;
                if let Some(otherwise) = otherwise {
                    let end = self.emit(Op::Jump { to: 0 });
                    self.set_jump_target(skip);
                    self.stmt(otherwise)?;
                    self.set_jump_target(end);
                } else {
                    self.set_jump_target(skip);
                }
                Ok(())
            }
            Stmt::Store { buffer, indices, value, mask, .. } => {
                self.store(stmt, buffer, indices, value, mask.as_ref())
            }
            Stmt::Let { var, value, body } => {
                let a = self.whole(&[value])?[0];
                let d = self.bind(var);
                self.emit(Op::Copy { d, a, n: var.ty().lanes });
                let outer = if var.ty().is_scalar() && var.ty().dtype.is_int() {
                    self.open_scope(var, d)
                } else {
                    self.scope
                };
                self.stmt(body)?;
                self.scope = outer;
                Ok(())
            }
            // Allocated when the block starts.
            Stmt::Allocate { buffer, body } if buffer.scope == Scope::Shared => self.stmt(body),
            Stmt::Allocate { buffer, body } => {
                let shape = self.whole(&buffer.shape.iter().collect::<Vec<_>>())?;
                let allocation = self.code.allocations.len() as u32;
                let id = self.buffer(buffer);
                self.code.allocations.push(Allocation { buffer: id, shape });
                self.emit_trapping(Op::Allocate { allocation }, Culprit::Stmt(stmt_head(stmt)));
                self.stmt(body)
            }
            Stmt::Produce { .. } if self.extents.is_none() && has_threads(stmt) => {
                self.launch(stmt)
            }
            Stmt::Produce { body, .. } if self.extents.is_some() && is_shared_stage(body) => {
                self.emit_trapping(Op::Barrier, Culprit::Stmt(stmt_head(stmt)));
                self.stmt(body)?;
                self.emit_trapping(Op::Barrier, Culprit::Stmt(stmt_head(stmt)));
                Ok(())
            }
            Stmt::Produce { body, .. }
            | Stmt::Tensorize { body, .. }
            | Stmt::SimdKernel { body }
            | Stmt::CopyGroup { body } => self.stmt(body),
            Stmt::Prefetch { .. } => Ok(()),
            Stmt::Sort(sort) => self.sort(stmt, sort),
            Stmt::Assert { cond, message, values } => {
                let assert = self.code.assertions.len() as u32;
                self.code.assertions.push(Assertion {
                    cond: 0,
                    message: message.clone(),
                    values: Vec::new(),
                });
                self.emit(Op::BeginAssert { assert });
                let exprs: Vec<&Expr> = std::iter::once(cond).chain(values).collect();
                let regs = self.whole(&exprs)?;
                self.code.assertions[assert as usize].cond = regs[0];
                self.code.assertions[assert as usize].values = regs[1..].to_vec();
                self.emit(Op::Assert { assert });
                Ok(())
            }
            Stmt::Barrier | Stmt::AwaitCopies { .. } if self.extents.is_none() => {
                Err("a barrier outside of a launch".into())
            }
            Stmt::Barrier | Stmt::AwaitCopies { .. } => {
                self.emit_trapping(Op::Barrier, Culprit::Stmt(stmt.clone()));
                Ok(())
            }
        }
    }

    /// Collects the keys, then sorts.
    fn sort(&mut self, stmt: &Stmt, sort: &SortAxis) -> Compiled<()> {
        let bounds = self.whole(&[&sort.min, &sort.extent, &sort.count])?;
        let (min, extent, count) = (bounds[0], bounds[1], bounds[2]);
        self.emit(Op::BeginSort);
        let (var, last) = (self.bind(&sort.var), self.registers(1));
        self.code.sites.push((self.pc(), Culprit::Stmt(stmt.clone()), self.scope));
        let head = self.emit(Op::Loop { var, min, extent, last, exit: 0 });
        let body = self.pc();
        let outer = self.open_scope(&sort.var, var);
        let a = self.whole(&[&sort.key])?[0];
        self.emit(Op::SortKey { a });
        self.scope = outer;
        self.emit(Op::Next { var, last, body });
        self.set_jump_target(head);
        let (order, dtype, descending) =
            (self.buffer(&sort.order), sort.key.ty.dtype, sort.descending);
        let op = Op::Sort { order, count, dtype, descending };
        self.emit_trapping(op, Culprit::Stmt(stmt.clone()));
        Ok(())
    }

    fn launch(&mut self, stmt: &Stmt) -> Compiled<()> {
        let dims = find_dims(stmt);
        let extents = self.whole(&dims.iter().map(|dim| &dim.extent).collect::<Vec<_>>())?;
        self.extents = Some(dims.iter().map(|dim| (dim.index, dim.extent.clone())).collect());
        let outer = self.scope;
        let dims = dims.iter().zip(extents).map(|(dim, extent)| {
            let position = GPU_INDICES.iter().position(|index| *index == dim.index);
            let var = self.bind(&dim.var);
            self.open_scope(&dim.var, var);
            LaunchDim { position: position.expect("it is one of them"), var, extent }
        });
        let dims = dims.collect();
        let (shared, locals, tracked) = self.launch_buffers(stmt)?;
        let (has_barriers, end) = (has_barrier(stmt), 0);
        let launch = self.code.launches.len() as u32;
        self.code.launches.push(Launch { dims, shared, locals, tracked, has_barriers, end });
        self.emit_trapping(Op::Launch { launch }, Culprit::Stmt(stmt_head(stmt)));
        let Stmt::Produce { body, .. } = stmt else { crate::bug!("a launch is a produce") };
        self.stmt(body)?;
        self.emit(Op::Halt);
        self.code.launches[launch as usize].end = self.pc();
        (self.extents, self.scope) = (None, outer);
        Ok(())
    }

    /// Returns the shared memory, the buffers of the threads, and the global buffers that are
    /// written.
    fn launch_buffers(&mut self, stmt: &Stmt) -> Compiled<(Vec<Allocation>, Vec<u32>, Vec<u32>)> {
        let (mut shared, mut locals, mut tracked) = (Vec::new(), Vec::new(), Vec::new());
        walk_stmt(
            stmt,
            &mut |inner| match inner {
                Stmt::Allocate { buffer, .. } => match buffer.scope {
                    Scope::Shared => shared.push(buffer.clone()),
                    _ => locals.push(self.buffer(buffer)),
                },
                Stmt::Store { buffer, .. } if buffer.scope == Scope::Global => {
                    let buffer = self.buffer(buffer);
                    if !tracked.contains(&buffer) {
                        tracked.push(buffer);
                    }
                }
                _ => {}
            },
            &mut |_| {},
        );
        let mut allocations = Vec::new();
        for buffer in shared {
            let shape = self.whole(&buffer.shape.iter().collect::<Vec<_>>())?;
            allocations.push(Allocation { buffer: self.buffer(&buffer), shape });
        }
        Ok((allocations, locals, tracked))
    }

    /// Compiles a loop over a GPU index: threads whose index is below the extent run the body.
    fn thread_loop(&mut self, stmt: &Stmt) -> Compiled<()> {
        let Stmt::For { var, extent, kind, body, .. } = stmt else {
            crate::bug!("a loop is expected")
        };
        let index = kind.gpu_index().expect("the caller asked");
        let all = self.extents.as_ref().and_then(|extents| extents.get(&index));
        let all = all.ok_or_else(|| format!("{index} outside of a launch"))?;
        if !self.vars.contains_key(var) {
            return Err(format!("{index} has two variables"));
        }
        if equal(all, extent) {
            return self.stmt(body);
        }
        let cond = Expr::lt(Expr::var(var), extent.clone());
        let c = self.whole(&[&cond])?[0];
        let skip = self.emit(Op::JumpUnless { c, to: 0 });
        self.stmt(body)?;
        self.set_jump_target(skip);
        Ok(())
    }

    fn store(
        &mut self,
        stmt: &Stmt,
        buffer: &Buffer,
        indices: &[Expr],
        value: &Expr,
        mask: Option<&Expr>,
    ) -> Compiled<()> {
        let exprs: Vec<&Expr> = indices.iter().chain([value]).chain(mask).collect();
        let regs = self.whole(&exprs)?;
        let value_reg = regs[indices.len()];
        let mask = mask.map(|_| regs[indices.len() + 1]);
        let lanes = value.ty.lanes;
        let culprit = Culprit::Stmt(stmt.clone());
        let buffer_id = self.buffer(buffer);
        if let (1, None, [index]) = (lanes, mask, &regs[..indices.len()]) {
            let op = Op::Store { a: value_reg, buffer: buffer_id, index: *index };
            self.emit_trapping(op, culprit);
            return Ok(());
        }
        let indices = access_indices(buffer, indices, &regs)?;
        let access = self.code.accesses.len() as u32;
        let value = value_reg;
        self.code.accesses.push(Access { buffer: buffer_id, indices, mask, value, lanes });
        self.emit_trapping(Op::StoreAny { access }, culprit);
        Ok(())
    }

    /// Compiles the expressions of a statement, in order.
    fn whole(&mut self, exprs: &[&Expr]) -> Compiled<Vec<Reg>> {
        self.uses.clear();
        let mut branches = false;
        for expr in exprs {
            self.count_uses(expr, &mut branches);
        }
        self.known = vec![FxHashMap::default()];
        self.shared.clear();
        self.before_branches = None;
        if branches && self.uses.values().any(|uses| *uses > 1) {
            self.emit(Op::Forget);
        }
        let regs = exprs.iter().map(|expr| self.expr(expr)).collect::<Compiled<Vec<_>>>()?;
        self.subroutines()?;
        Ok(regs)
    }

    fn count_uses(&mut self, expr: &Expr, branches: &mut bool) {
        if is_leaf(expr) {
            return;
        }
        let uses = self.uses.entry(expr.id()).or_insert(0);
        *uses += 1;
        if *uses > 1 {
            return;
        }
        *branches |= matches!(
            &expr.kind,
            ExprKind::IfThenElse(..) | ExprKind::Binary(BinOp::And | BinOp::Or, ..)
        );
        for_each_child(expr, &mut |child| self.count_uses(child, branches));
    }

    /// Compiles the subroutines of the statement, preceded by a jump over them.
    fn subroutines(&mut self) -> Compiled<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let around = self.emit(Op::Jump { to: 0 });
        let mut entries = FxHashMap::default();
        while let Some(expr) = self.pending.pop() {
            entries.insert(expr.id(), self.pc());
            let (result, done) = self.shared[&expr.id()];
            let before = self.before_branches.clone().unwrap_or_default();
            self.known = vec![before, FxHashMap::default()];
            let a = self.node(&expr)?;
            self.emit(Op::Copy { d: result, a, n: expr.ty.lanes });
            self.emit(Op::Return { done });
        }
        for (at, id) in std::mem::take(&mut self.calls) {
            if let Op::Shared { to, .. } = &mut self.code.ops[at] {
                *to = entries[&id];
            }
        }
        self.set_jump_target(around);
        Ok(())
    }

    fn expr(&mut self, expr: &Expr) -> Compiled<Reg> {
        match &expr.kind {
            ExprKind::Const(value) => {
                return Ok(self.constant(scalar::encode_const(expr.ty.dtype, *value)));
            }
            ExprKind::Var(var) => {
                let bound = self.vars.get(var).copied();
                return bound.ok_or_else(|| format!("variable {} is not bound", var.name()));
            }
            _ => {}
        }
        let id = expr.id();
        if let Some(reg) = self.known.iter().rev().find_map(|table| table.get(&id)) {
            return Ok(*reg);
        }
        let is_shared = self.uses[&id] > 1;
        let reg = if is_shared && (self.known.len() > 1 || self.shared.contains_key(&id)) {
            self.call_shared(expr)
        } else {
            self.node(expr)?
        };
        if is_shared {
            self.known.last_mut().expect("a table for the statement").insert(id, reg);
        }
        Ok(reg)
    }

    fn call_shared(&mut self, expr: &Expr) -> Reg {
        let id = expr.id();
        if !self.shared.contains_key(&id) {
            let regs = (self.registers(expr.ty.lanes), self.registers(1));
            self.shared.insert(id, regs);
            self.pending.push(expr.clone());
        }
        let (result, done) = self.shared[&id];
        let at = self.emit(Op::Shared { done, to: 0 });
        self.calls.push((at, id));
        result
    }

    /// Begins code that is run conditionally.
    fn enter_branch(&mut self) {
        if self.before_branches.is_none() {
            self.before_branches = Some(self.known[0].clone());
        }
        self.known.push(FxHashMap::default());
    }

    fn leave_branch(&mut self) {
        self.known.pop();
    }

    fn node(&mut self, expr: &Expr) -> Compiled<Reg> {
        let Type { dtype, lanes: n } = expr.ty;
        match &expr.kind {
            ExprKind::Const(_) | ExprKind::Var(_) => self.expr(expr),
            ExprKind::Unary(op, x) => self.unary(expr, *op, x),
            ExprKind::Binary(op @ (BinOp::And | BinOp::Or), a, b) => self.logical(*op, a, b, n),
            ExprKind::Binary(op, a, b) => self.binary(expr, *op, a, b),
            ExprKind::Select(c, t, f) => {
                let lanes = c.ty.lanes;
                let (mut c, t, f) = (self.expr(c)?, self.expr(t)?, self.expr(f)?);
                if lanes < n {
                    let (a, all) = (c, self.registers(n));
                    self.emit(Op::Broadcast { d: all, a, n });
                    c = all;
                }
                let d = self.registers(n);
                self.emit(Op::Select { d, c, t, f, n });
                Ok(d)
            }
            ExprKind::IfThenElse(c, t, f) => {
                let c = self.expr(c)?;
                let d = self.registers(n);
                let skip = self.emit(Op::JumpUnless { c, to: 0 });
                self.branch(t, d)?;
                let end = self.emit(Op::Jump { to: 0 });
                self.set_jump_target(skip);
                self.branch(f, d)?;
                self.set_jump_target(end);
                Ok(d)
            }
            ExprKind::Cast(x) => {
                let f = scalar::cast_fn(x.ty.dtype, dtype);
                self.apply(f, x, n)
            }
            ExprKind::Bitcast(x) => {
                let f = scalar::bitcast_fn(x.ty.dtype, dtype);
                self.apply(f, x, n)
            }
            ExprKind::Load { buffer, indices, mask } => {
                self.load(expr, buffer, indices, mask.as_ref())
            }
            ExprKind::Ramp(base, stride) => {
                let (base, stride) = (self.expr(base)?, self.expr(stride)?);
                let d = self.registers(n);
                let op = Op::Ramp { dtype, d, base, stride, n };
                self.emit_trapping(op, Culprit::Expr(expr.clone()));
                Ok(d)
            }
            ExprKind::Broadcast(x) => {
                let a = self.expr(x)?;
                let d = self.registers(n);
                self.emit(Op::Broadcast { d, a, n });
                Ok(d)
            }
            ExprKind::Call(function, args) => {
                let args = args.iter().map(|arg| self.expr(arg)).collect::<Compiled<Vec<Reg>>>()?;
                let d = self.registers(n);
                let op = match (function, &args[..]) {
                    (Intrinsic::Fma, [a, b, c]) => Op::Fma { dtype, d, a: *a, b: *b, c: *c, n },
                    (function, [a]) => {
                        Op::Call { function: *function, dtype, d, a: *a, b: None, n }
                    }
                    (function, [a, b]) => {
                        Op::Call { function: *function, dtype, d, a: *a, b: Some(*b), n }
                    }
                    _ => return Err(format!("{} of {} arguments", function.name(), args.len())),
                };
                self.emit(op);
                Ok(d)
            }
            ExprKind::Let(var, value, body) => {
                let reg = self.expr(value)?;
                self.vars.insert(var.clone(), reg);
                self.expr(body)
            }
        }
    }

    fn branch(&mut self, expr: &Expr, d: Reg) -> Compiled<()> {
        self.enter_branch();
        let a = self.expr(expr)?;
        self.emit(Op::Copy { d, a, n: expr.ty.lanes });
        self.leave_branch();
        Ok(())
    }

    fn apply(&mut self, f: scalar::UnaryFn, x: &Expr, n: u32) -> Compiled<Reg> {
        let a = self.expr(x)?;
        let d = self.registers(n);
        self.emit(if n == 1 { Op::Unary { f, d, a } } else { Op::UnaryLanes { f, d, a, n } });
        Ok(d)
    }

    fn unary(&mut self, expr: &Expr, op: UnOp, x: &Expr) -> Compiled<Reg> {
        if x.ty.dtype == DType::Index && matches!(op, UnOp::Neg | UnOp::Abs) {
            let a = self.expr(x)?;
            let (d, n) = (self.registers(x.ty.lanes), x.ty.lanes);
            let f: scalar::IndexFn = match op {
                UnOp::Neg => |a, _| a.checked_neg(),
                _ => |a, _| a.checked_abs(),
            };
            let op = Op::Index { f, d, a, b: a, n };
            self.emit_trapping(op, Culprit::Expr(expr.clone()));
            return Ok(d);
        }
        let f =
            scalar::unary_fn(op, x.ty.dtype).ok_or_else(|| format!("{op:?} of {}", x.ty.dtype))?;
        self.apply(f, x, x.ty.lanes)
    }

    fn binary(&mut self, expr: &Expr, op: BinOp, a: &Expr, b: &Expr) -> Compiled<Reg> {
        let Type { dtype, lanes: n } = a.ty;
        let (a, b) = (self.expr(a)?, self.expr(b)?);
        let d = self.registers(n);
        if dtype == DType::Index
            && let Some(f) = scalar::index_fn(op)
        {
            let op = match (op, n) {
                (BinOp::Add, 1) => Op::IndexAdd { d, a, b },
                (BinOp::Mul, 1) => Op::IndexMul { d, a, b },
                _ => Op::Index { f, d, a, b, n },
            };
            self.emit_trapping(op, Culprit::Expr(expr.clone()));
            return Ok(d);
        }
        let f = scalar::binary_fn(op, dtype).ok_or_else(|| format!("{op:?} of {dtype}"))?;
        self.emit(match n {
            1 => Op::Binary { f, d, a, b },
            _ => Op::BinaryLanes { f, d, a, b, n },
        });
        Ok(d)
    }

    /// Compiles `and` and `or`. The right side of vectors is evaluated if any lane needs it.
    fn logical(&mut self, op: BinOp, a: &Expr, b: &Expr, n: u32) -> Compiled<Reg> {
        let a = self.expr(a)?;
        let d = self.registers(n);
        self.emit(Op::Copy { d, a, n });
        let decided = u64::from(op == BinOp::Or);
        let skip = self.emit(match (n, op) {
            (1, BinOp::And) => Op::JumpUnless { c: d, to: 0 },
            (1, _) => Op::JumpIf { c: d, to: 0 },
            _ => Op::JumpIfAll { c: d, value: decided, n, to: 0 },
        });
        self.enter_branch();
        let b = self.expr(b)?;
        let f = scalar::binary_fn(op, DType::Bool).expect("`bool` has both");
        self.emit(Op::BinaryLanes { f, d, a: d, b, n });
        self.leave_branch();
        self.set_jump_target(skip);
        Ok(d)
    }

    fn load(
        &mut self,
        expr: &Expr,
        buffer: &Buffer,
        indices: &[Expr],
        mask: Option<&Expr>,
    ) -> Compiled<Reg> {
        let regs = indices.iter().map(|index| self.expr(index)).collect::<Compiled<Vec<Reg>>>()?;
        let mask = mask.map(|mask| self.expr(mask)).transpose()?;
        let lanes = expr.ty.lanes;
        let d = self.registers(lanes);
        let buffer_id = self.buffer(buffer);
        if let (1, None, [index]) = (lanes, mask, &regs[..]) {
            let op = Op::Load { d, buffer: buffer_id, index: *index };
            self.emit_trapping(op, Culprit::Expr(expr.clone()));
            return Ok(d);
        }
        let indices = access_indices(buffer, indices, &regs)?;
        let access = self.code.accesses.len() as u32;
        self.code.accesses.push(Access { buffer: buffer_id, indices, mask, value: d, lanes });
        self.emit_trapping(Op::LoadAny { access }, Culprit::Expr(expr.clone()));
        Ok(d)
    }
}

fn is_leaf(expr: &Expr) -> bool {
    matches!(&expr.kind, ExprKind::Const(_) | ExprKind::Var(_))
}

fn access_indices(buffer: &Buffer, indices: &[Expr], regs: &[Reg]) -> Compiled<Vec<(Reg, bool)>> {
    if indices.len() != 1 && indices.len() != buffer.shape.len() {
        return Err(format!("{} indices of {}", indices.len(), buffer.name));
    }
    Ok(indices.iter().zip(regs).map(|(index, reg)| (*reg, index.ty.lanes > 1)).collect())
}

/// Returns a statement with an empty body, for messages.
fn stmt_head(stmt: &Stmt) -> Stmt {
    let nothing = || Box::new(Stmt::nothing());
    match stmt {
        Stmt::For { var, min, extent, kind, .. } => Stmt::For {
            var: var.clone(),
            min: min.clone(),
            extent: extent.clone(),
            kind: kind.clone(),
            body: nothing(),
        },
        Stmt::Allocate { buffer, .. } => Stmt::Allocate { buffer: buffer.clone(), body: nothing() },
        Stmt::Produce { name, .. } => Stmt::Produce { name: name.clone(), body: nothing() },
        other => other.clone(),
    }
}
