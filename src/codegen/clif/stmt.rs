//! Statements: loops, which test at the bottom, branches, stores, and the `Assert`s of `check`
//! functions.

use super::emit::{Binding, Emitter};
use super::task::is_task;
use crate::codegen::common::{CHECK_OVERFLOW, CHECK_VALUES};
use crate::ir::print::print_expr;
use crate::ir::{DType, Expr, ExprKind, Stmt, Var};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, BlockArg, InstBuilder, MemFlagsData, Value, types};

impl Emitter<'_, '_> {
    /// Emits one statement and forgets memoised values, because memory may change.
    pub(super) fn stmt(&mut self, stmt: &Stmt) {
        if self.too_large() {
            return;
        }
        self.forget();
        self.mark_statement(stmt);
        match stmt {
            Stmt::Block(stmts) => stmts.iter().for_each(|stmt| self.stmt(stmt)),
            Stmt::For { var, min, extent, body, .. } if !self.in_task && is_task(stmt) => {
                self.parallel_loop(var, min, extent, body);
            }
            Stmt::For { .. } if self.scan(stmt) => {}
            Stmt::For { var, min, extent, body, .. } => self.loop_(var, min, extent, body),
            Stmt::If { cond, then, otherwise } => self.if_(cond, then, otherwise.as_deref()),
            Stmt::Store { buffer, indices, value, .. } => {
                let value = self.expr(value);
                self.store(buffer, indices, value);
            }
            Stmt::Let { var, value, body } => {
                self.let_(var, value);
                self.stmt(body);
            }
            Stmt::Allocate { buffer, body } => {
                self.allocate(buffer);
                self.stmt(body);
            }
            Stmt::SimdKernel { body } => self.simd_kernel(body),
            Stmt::Produce { body, .. } | Stmt::Tensorize { body, .. } => self.stmt(body),
            Stmt::Prefetch { .. } => crate::bug!("a prefetch passed drop_hints"),
            Stmt::Assert { cond, values, .. } => self.assert(cond, values),
            Stmt::Sort(_) => crate::bug!("a sort passed expand_sorts"),
            Stmt::Barrier | Stmt::AwaitCopies { .. } | Stmt::CopyGroup { .. } => {
                crate::bug!("a barrier passed check_supported")
            }
        }
        self.forget();
    }

    fn mark_statement(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::For { var, min, extent, .. } => self.mark(|| {
                format!("for ({}, {}, {})", var.name(), print_expr(min), print_expr(extent))
            }),
            Stmt::Store { buffer, indices, .. } => self.mark(|| {
                let indices: Vec<String> = indices.iter().map(print_expr).collect();
                format!("{}[{}] = ...", buffer.name, indices.join(", "))
            }),
            Stmt::If { cond, .. } => self.mark(|| format!("if ({})", print_expr(cond))),
            Stmt::Let { var, .. } => self.mark(|| format!("let {} = ...", var.name())),
            Stmt::Produce { name, .. } => self.mark(|| format!("produce {name}")),
            Stmt::Assert { message, .. } => self.mark(|| format!("assert {message:?}")),
            _ => {}
        }
    }

    fn let_(&mut self, var: &Var, value: &Expr) {
        if self.overflow.is_none() {
            self.bind_let(var, value);
            return;
        }
        // An overflow here counts where the variable is used.
        let flag = self.reset_overflow();
        self.bind_let(var, value);
        let overflow = Some(self.b.use_var(flag));
        let binding = self.vars[var];
        self.vars.insert(var.clone(), Binding { overflow, ..binding });
    }

    fn if_(&mut self, cond: &Expr, then: &Stmt, otherwise: Option<&Stmt>) {
        let (then_block, merge) = (self.b.create_block(), self.b.create_block());
        let else_block = if otherwise.is_some() { self.b.create_block() } else { merge };
        self.branch(cond, then_block, else_block);
        self.start_block(then_block);
        self.conditionally(|this| this.stmt(then));
        self.b.ins().jump(merge, &[]);
        if let Some(otherwise) = otherwise {
            self.start_block(else_block);
            self.conditionally(|this| this.stmt(otherwise));
            self.b.ins().jump(merge, &[]);
        }
        self.start_block(merge);
    }

    /// Emits a loop with its test at the bottom. A loop that may be empty has another test in
    /// front, and a preheader behind that test for what Cranelift hoists.
    pub(super) fn loop_(&mut self, var: &Var, min: &Expr, extent: &Expr, body: &Stmt) {
        let count = extent.as_int();
        if count.is_some_and(|count| count <= 0) {
            // The assertions after the skipped ones keep their numbers.
            self.asserts += count_asserts(body);
            return;
        }
        let start = self.expr(min);
        let range = self.loop_range(min, extent);
        let depth = self.depth_of(min);
        if count == Some(1) {
            self.bind(var, start, depth, range);
            self.stmt(body);
            return;
        }
        let extent_value = self.expr(extent);
        let end = self.b.ins().iadd(start, extent_value);
        let exit = self.b.create_block();
        let conditional = self.conditional;
        if count.is_none() {
            let enter = self.b.create_block();
            let some = self.b.ins().icmp_imm_s(IntCC::SignedGreaterThan, extent_value, 0);
            self.b.ins().brif(some, enter, &[], exit, &[]);
            self.start_block(enter);
            self.conditional = true;
        }
        self.iterate(var, (start, end), range, body, exit);
        self.conditional = conditional;
    }

    /// Smallest and largest value of a loop's variable.
    pub(super) fn loop_range(&mut self, min: &Expr, extent: &Expr) -> (i128, i128) {
        let (min_range, extent_range) = (self.range_of(min), self.range_of(extent));
        let last = min_range.1 + (extent_range.1 - 1).max(0);
        (min_range.0, last.min(DType::Index.int_range().1))
    }

    /// Emits the iterations from the first of `bounds` up to the second, at least one; continues in
    /// `exit`.
    pub(super) fn iterate(
        &mut self,
        var: &Var,
        (start, end): (Value, Value),
        range: (i128, i128),
        body: &Stmt,
        exit: Block,
    ) {
        let header = self.b.create_block();
        let index = self.b.append_block_param(header, types::I64);
        self.b.ins().jump(header, &[BlockArg::Value(start)]);
        self.b.switch_to_block(header);
        self.depth += 1;
        self.bind(var, index, self.depth, range);
        self.stmt(body);
        let next = self.b.ins().iadd_imm_s(index, 1);
        let again = self.b.ins().icmp(IntCC::SignedLessThan, next, end);
        self.b.ins().brif(again, header, &[BlockArg::Value(next)], exit, &[]);
        self.b.seal_block(header);
        self.start_block(exit);
        self.depth -= 1;
    }

    /// Sets the overflow flag of a `check` function to 0 and returns its variable.
    fn reset_overflow(&mut self) -> cranelift_frontend::Variable {
        let Some(flag) = self.overflow else { crate::bug!("an assertion outside of the checks") };
        let zero = self.int(types::I8, 0);
        self.b.def_var(flag, zero);
        flag
    }

    /// Emits a return of 1 + the index of this `Assert` if it fails or its arithmetic overflows.
    fn assert(&mut self, cond: &Expr, values: &[Expr]) {
        if values.len() > CHECK_VALUES {
            crate::bug!("an assertion with {} values", values.len());
        }
        let flag = self.reset_overflow();
        let holds = self.expr(cond);
        // An overflow in a value fails the assertion too. Values that cannot overflow are computed
        // only for the message.
        for value in values.iter().filter(|value| !is_leaf(value)) {
            self.expr(value);
        }
        let overflowed = self.b.use_var(flag);
        let fails = self.b.ins().bxor_imm_u(holds, 1);
        let fails = self.b.ins().bor(fails, overflowed);
        let (fail, fine) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(fails, fail, &[], fine, &[]);
        self.b.set_cold_block(fail);
        self.start_block(fail);
        let pointer = self.check_values.expect("a check function has it");
        self.conditionally(|this| {
            for (position, value) in values.iter().enumerate() {
                let value = this.expr(value);
                let flags = MemFlagsData::trusted();
                this.b.ins().store(flags, value, pointer, position as i32 * 8);
            }
        });
        let code = self.int(types::I32, (self.asserts + 1).into());
        let marked = self.int(types::I32, (self.asserts + 1 + i64::from(CHECK_OVERFLOW)).into());
        let code = self.b.ins().select(overflowed, marked, code);
        self.b.ins().return_(&[code]);
        self.asserts += 1;
        self.start_block(fine);
    }
}

fn count_asserts(stmt: &Stmt) -> i64 {
    let mut count = 0;
    let mut on_stmt = |stmt: &Stmt| count += i64::from(matches!(stmt, Stmt::Assert { .. }));
    crate::ir::visit::walk_stmt(stmt, &mut on_stmt, &mut |_| {});
    count
}

fn is_leaf(expr: &Expr) -> bool {
    matches!(expr.kind, ExprKind::Const(_) | ExprKind::Var(_))
}
