//! The verifier: the invariants of the loop IR. A violation is a bug of the pass before it.
//!
//! - Types and lanes match. Halves appear in loads, stores and casts only.
//! - A variable is bound once, before its uses.
//! - A buffer is an argument, a constant or allocated around its uses. All its accesses have one
//!   index per dimension, or all have exactly one.
//! - Inputs are not written. `Assert` appears in the entry checks only.
//! - In a launch, a GPU index has one variable, which every loop over it binds, and one extent.
//!   Barriers are in uniform control flow. Shared memory is allocated in launches, global memory
//!   around them.

use super::launch::{Varying, has_threads, is_shared_stage};
use super::print::print_expr;
use super::visit::{Memo, any_expr, for_each_child};
use super::{BinOp, Buffer, DType, Expr, ExprKind, ForKind, Intrinsic, Kernel, Param, Scope};
use super::{SortAxis, Stmt, Type};
use super::{UnOp, Var};
use crate::ir::ThreadIndex;
use rustc_hash::{FxHashMap, FxHashSet};

/// Checks the invariants of a kernel.
///
/// # Errors
/// The first violation, with the node.
pub fn verify_kernel(kernel: &Kernel) -> Result<(), String> {
    let mut verifier = Verifier::default();
    for param in &kernel.params {
        match param {
            Param::Tensor { buffer, role, .. } => {
                verifier.visible.insert(buffer.clone());
                if !role.is_written() {
                    verifier.read_only.insert(buffer.clone());
                }
            }
            Param::Scalar { var, dtype } => {
                verifier.bind(var)?;
                if var.ty() != Type::scalar(dtype.compute_type()) {
                    return Err(format!("scalar {} is not a {dtype}", var.name()));
                }
            }
            Param::Runtime { var, .. } => verifier.bind(var)?,
        }
    }
    for param in &kernel.params {
        if let Param::Tensor { buffer, .. } = param {
            verifier.shape(buffer)?;
        }
    }
    for fact in &kernel.facts {
        verifier.typed(fact, Type::scalar(DType::Bool), "a fact")?;
    }
    let outer = verifier.in_scope.clone();
    for dim in &kernel.dims {
        verifier.bind(&dim.var)?;
    }
    verifier.in_checks = true;
    verifier.stmt(&kernel.checks)?;
    verifier.in_checks = false;
    verifier.in_scope = outer;
    verifier.stmt(&kernel.body)
}

#[derive(Default)]
struct Verifier {
    in_scope: FxHashSet<Var>,
    ever_bound: FxHashSet<Var>,
    visible: FxHashSet<Buffer>,
    read_only: FxHashSet<Buffer>,
    /// Whether the accesses of a buffer have one flat index; determined by the first access.
    flat: FxHashMap<Buffer, bool>,
    in_checks: bool,
    /// The enclosing launch.
    launch: Option<Launch>,
    /// The variables of the indices of all launches.
    launched: FxHashSet<Var>,
    /// Nodes verified in the current scope.
    known: Memo<()>,
}

/// The state of the enclosing launch.
#[derive(Default)]
struct Launch {
    /// The variable and the extent of each index so far.
    dims: FxHashMap<ThreadIndex, (Var, Expr)>,
    varying: Varying,
    /// The innermost enclosing condition or bound that may differ between threads.
    divergent: Option<String>,
}

type Verified = Result<(), String>;

impl Verifier {
    fn bind(&mut self, var: &Var) -> Verified {
        if !self.ever_bound.insert(var.clone()) {
            return Err(format!("variable {} is bound twice", var.name()));
        }
        self.in_scope.insert(var.clone());
        Ok(())
    }

    /// Ends the scope of a variable and forgets the nodes that were verified in it.
    fn leave(&mut self, var: &Var) {
        self.in_scope.remove(var);
        self.known.clear();
    }

    fn shape(&mut self, buffer: &Buffer) -> Verified {
        if buffer.dtype == DType::Index {
            return Err(format!("buffer {} has element type index", buffer.name));
        }
        for extent in &buffer.shape {
            self.typed(extent, Type::scalar(DType::Index), "an extent")?;
        }
        let strides = buffer.strides.as_deref().unwrap_or_default();
        if buffer.strides.is_some() && strides.len() != buffer.shape.len() {
            return Err(format!("{} has {} strides", buffer.name, strides.len()));
        }
        for stride in strides {
            self.typed(stride, Type::scalar(DType::Index), "a stride")?;
        }
        Ok(())
    }

    fn stmt(&mut self, stmt: &Stmt) -> Verified {
        match stmt {
            Stmt::Block(stmts) => stmts.iter().try_for_each(|stmt| self.stmt(stmt)),
            Stmt::For { .. } => self.for_loop(stmt),
            Stmt::If { cond, then, otherwise } => {
                self.typed(cond, Type::scalar(DType::Bool), "a condition")?;
                let outer = self.enter_control(&[cond]);
                self.stmt(then)?;
                otherwise.iter().try_for_each(|stmt| self.stmt(stmt))?;
                self.leave_control(outer);
                Ok(())
            }
            Stmt::Store { buffer, nontemporal: true, .. } if buffer.scope != Scope::Global => {
                Err(format!("a nontemporal store to a {} buffer", buffer.scope.name()))
            }
            Stmt::Store { buffer, indices, value, mask, .. } => {
                self.store(buffer, indices, value, mask.as_ref())
            }
            Stmt::Let { var, value, body } => {
                self.typed(value, var.ty(), "the value of a let")?;
                self.bind(var)?;
                if let Some(launch) = &mut self.launch {
                    launch.varying.enter_let(var, value);
                }
                self.stmt(body)?;
                self.leave(var);
                Ok(())
            }
            Stmt::Allocate { buffer, body } => {
                self.shape(buffer)?;
                let fits = match buffer.scope {
                    Scope::Global => self.launch.is_none(),
                    Scope::Shared => self.launch.is_some(),
                    _ => true,
                };
                if !fits {
                    let scope = buffer.scope.name();
                    return Err(format!("{scope} buffer {} is allocated here", buffer.name));
                }
                if buffer.scope == Scope::Constant || !self.visible.insert(buffer.clone()) {
                    return Err(format!("buffer {} is allocated twice", buffer.name));
                }
                self.stmt(body)?;
                self.visible.remove(buffer);
                Ok(())
            }
            Stmt::Produce { body, .. } => self.produce(stmt, body),
            Stmt::Tensorize { body, .. } | Stmt::SimdKernel { body } => self.stmt(body),
            Stmt::Prefetch { buffer, indices } => match self.access(buffer, indices)? {
                1 => Ok(()),
                lanes => Err(format!("a prefetch of {} with {lanes} lanes", buffer.name)),
            },
            Stmt::Sort(sort) => self.sort(sort),
            Stmt::Assert { cond, values, message } => {
                if !self.in_checks || values.len() > 4 {
                    return Err(format!("assert {message:?} outside of the checks"));
                }
                self.typed(cond, Type::scalar(DType::Bool), "an assertion")?;
                let index = Type::scalar(DType::Index);
                values.iter().try_for_each(|value| self.typed(value, index, "a reported value"))
            }
            Stmt::CopyGroup { .. } if self.launch.is_none() => {
                Err("a group of copies outside of a launch".into())
            }
            Stmt::CopyGroup { body } => self.stmt(body),
            Stmt::Barrier | Stmt::AwaitCopies { .. } => self.check_barrier("a barrier"),
        }
    }

    fn sort(&mut self, sort: &SortAxis) -> Verified {
        let index = Type::scalar(DType::Index);
        for (expr, what) in [(&sort.count, "count"), (&sort.min, "start"), (&sort.extent, "extent")]
        {
            self.typed(expr, index, &format!("the {what} of a sort"))?;
        }
        self.access(&sort.order, std::slice::from_ref(&sort.min))?;
        if sort.order.dtype != DType::Int32 || self.launch.is_some() {
            return Err(format!("{} cannot be sorted here", sort.order.name));
        }
        self.bind(&sort.var)?;
        let ty = sort.key.ty;
        if !ty.is_scalar() || ty.dtype == DType::Bool || ty.dtype.is_half() {
            return Err(format!("a sort by keys of type {ty}"));
        }
        self.typed(&sort.key, ty, "a key")?;
        self.leave(&sort.var);
        Ok(())
    }

    fn for_loop(&mut self, stmt: &Stmt) -> Verified {
        let Stmt::For { var, min, extent, kind, body } = stmt else {
            crate::bug!("a loop is expected")
        };
        self.typed(min, Type::scalar(DType::Index), "a loop's start")?;
        self.typed(extent, Type::scalar(DType::Index), "a loop's extent")?;
        if var.ty() != Type::scalar(DType::Index) {
            return Err(format!("loop variable {} is no index", var.name()));
        }
        if let ForKind::Thread(name) = kind {
            if kind.gpu_index().is_some() {
                return self.thread_loop(stmt);
            }
            if !kind.is_vthread() || self.launch.is_none() {
                return Err(format!("a loop over {name} here"));
            }
        }
        if self.launch.is_some() && *kind == ForKind::Parallel {
            return Err(format!("parallel loop {} in a launch", var.name()));
        }
        self.bind(var)?;
        let outer = self.enter_control(&[min, extent]);
        if let Some(launch) = &mut self.launch {
            launch.varying.enter_loop(var, kind, min, extent);
        }
        self.stmt(body)?;
        self.leave_control(outer);
        self.leave(var);
        Ok(())
    }

    /// Verifies a loop over a GPU index, which may be inside another loop over the same index.
    fn thread_loop(&mut self, stmt: &Stmt) -> Verified {
        let Stmt::For { var, min, extent, kind, body } = stmt else {
            crate::bug!("a loop is expected")
        };
        let index = kind.gpu_index().expect("the caller asked");
        let Some(launch) = &mut self.launch else {
            return Err(format!("a loop over {index} outside of a produce"));
        };
        if min.as_int() != Some(0) {
            return Err(format!("{index} does not begin at 0"));
        }
        launch.varying.enter_loop(var, kind, min, extent);
        let known = launch.dims.entry(index).or_insert_with(|| (var.clone(), extent.clone()));
        let constants = (known.1.as_int(), extent.as_int());
        if known.0 != *var {
            return Err(format!("{index} has two variables"));
        }
        if matches!(constants, (Some(a), Some(b)) if a != b) {
            return Err(format!("{index} has two extents: {constants:?}"));
        }
        if self.in_scope.contains(var) {
            return self.stmt(body);
        }
        self.ever_bound.insert(var.clone());
        self.in_scope.insert(var.clone());
        self.stmt(body)?;
        self.leave(var);
        Ok(())
    }

    /// Verifies a `Produce`: a launch, a shared stage, or a mark.
    fn produce(&mut self, stmt: &Stmt, body: &Stmt) -> Verified {
        if self.launch.is_some() {
            if is_shared_stage(body) {
                self.check_barrier("a shared stage")?;
            }
            return self.stmt(body);
        }
        if !has_threads(stmt) {
            return self.stmt(body);
        }
        // Each launch has its own variables.
        self.launch = Some(Launch::default());
        self.stmt(body)?;
        let launch = self.launch.take().expect("inner statements keep it");
        for (index, (var, _)) in &launch.dims {
            if !self.launched.insert(var.clone()) {
                return Err(format!("{index} has the variable of another launch or index"));
            }
        }
        Ok(())
    }

    /// Checks that all threads of the block reach this statement.
    fn check_barrier(&self, what: &str) -> Verified {
        match &self.launch {
            None => Err(format!("{what} outside of a launch")),
            Some(Launch { divergent: Some(place), .. }) => {
                Err(format!("{what} where threads diverge: {place}"))
            }
            Some(_) => Ok(()),
        }
    }

    /// Enters control flow that depends on `exprs`; returns the state to restore.
    fn enter_control(&mut self, exprs: &[&Expr]) -> Option<String> {
        let launch = self.launch.as_mut()?;
        let outer = launch.divergent.clone();
        if let Some(expr) = exprs.iter().find(|expr| !launch.varying.agrees(expr)) {
            launch.divergent = Some(print_expr(expr));
        }
        outer
    }

    fn leave_control(&mut self, outer: Option<String>) {
        if let Some(launch) = &mut self.launch {
            launch.divergent = outer;
        }
    }

    fn store(
        &mut self,
        buffer: &Buffer,
        indices: &[Expr],
        value: &Expr,
        mask: Option<&Expr>,
    ) -> Verified {
        let name = &buffer.name;
        if self.in_checks || self.read_only.contains(buffer) || buffer.scope == Scope::Constant {
            return Err(format!("{name} is written"));
        }
        if value.ty.dtype != buffer.dtype {
            return Err(format!("{name} is {}, the value stored {}", buffer.dtype, value.ty));
        }
        self.expr(value)?;
        let lanes = self.access(buffer, indices)?;
        if value.ty.lanes != lanes && lanes != 1 {
            return Err(format!("{name}: {lanes} lanes of index, {} of value", value.ty.lanes));
        }
        self.mask(mask, lanes)
    }

    fn mask(&mut self, mask: Option<&Expr>, lanes: u32) -> Verified {
        match mask {
            Some(mask) => self.typed(mask, Type { dtype: DType::Bool, lanes }, "a mask"),
            None => Ok(()),
        }
    }

    /// Verifies an access; returns its lanes.
    fn access(&mut self, buffer: &Buffer, indices: &[Expr]) -> Result<u32, String> {
        let name = &buffer.name;
        if buffer.scope != Scope::Constant && !self.visible.contains(buffer) {
            return Err(format!("buffer {name} is not visible here"));
        }
        let rank = buffer.shape.len();
        if rank != 1 {
            let flat = match indices.len() {
                n if n == rank => false,
                1 => true,
                n => return Err(format!("{name} has rank {rank}, {n} indices")),
            };
            if *self.flat.entry(buffer.clone()).or_insert(flat) != flat {
                return Err(format!("{name} has flat and other accesses"));
            }
        } else if indices.len() != 1 {
            return Err(format!("{name} has rank 1, {} indices", indices.len()));
        }
        let mut lanes = 1;
        for index in indices {
            if index.ty.dtype != DType::Index {
                return Err(format!("an index of {name} is {}", index.ty));
            }
            let varies = |e: &Expr| matches!(e.kind, ExprKind::Var(_) | ExprKind::Load { .. });
            if buffer.scope == Scope::Register && any_expr(index, &mut |e| varies(e)) {
                return Err(format!("an index of the register {name} is not constant"));
            }
            lanes = lanes.max(index.ty.lanes);
            self.expr(index)?;
        }
        Ok(lanes)
    }

    fn typed(&mut self, expr: &Expr, ty: Type, what: &str) -> Verified {
        if expr.ty != ty {
            return Err(format!("{what} is {}, not {ty}: {}", expr.ty, print_expr(expr)));
        }
        self.expr(expr)
    }

    fn expr(&mut self, expr: &Expr) -> Verified {
        if self.known.contains(expr) {
            return Ok(());
        }
        let fits = self.node(expr)?;
        if !fits {
            return Err(format!("ill-typed {}: {}", expr.ty, print_expr(expr)));
        }
        self.known.insert(expr, ());
        Ok(())
    }

    /// Verifies the operands; returns whether the type of the node fits theirs.
    fn node(&mut self, expr: &Expr) -> Result<bool, String> {
        let ty = expr.ty;
        let computes_half = ty.dtype.is_half()
            && !matches!(
                expr.kind,
                ExprKind::Load { .. }
                    | ExprKind::Cast(_)
                    | ExprKind::Const(_)
                    | ExprKind::Bitcast(_)
                    | ExprKind::Broadcast(_)
                    | ExprKind::Var(_)
            );
        if computes_half {
            return Ok(false);
        }
        Ok(match &expr.kind {
            ExprKind::Const(_) => ty.is_scalar(),
            ExprKind::Var(var) => {
                if !self.in_scope.contains(var) {
                    return Err(format!("variable {} is not in scope", var.name()));
                }
                ty == var.ty()
            }
            ExprKind::Load { buffer, indices, mask } => {
                let lanes = self.access(buffer, indices)?;
                self.mask(mask.as_ref(), lanes)?;
                ty == Type { dtype: buffer.dtype, lanes }
            }
            ExprKind::Let(var, value, body) => {
                self.typed(value, var.ty(), "the value of a let")?;
                // An expression may have several uses, and so may its `let`.
                let fresh = self.in_scope.insert(var.clone());
                self.expr(body)?;
                if !fresh {
                    return Err(format!("variable {} is bound inside its own scope", var.name()));
                }
                self.leave(var);
                ty == body.ty
            }
            _ => {
                let mut operands = Vec::new();
                for_each_child(expr, &mut |child| operands.push(child.clone()));
                operands.iter().try_for_each(|operand| self.expr(operand))?;
                fits(expr, &operands)
            }
        })
    }
}

fn fits(expr: &Expr, operands: &[Expr]) -> bool {
    let ty = expr.ty;
    let a = operands[0].ty;
    let bools = ty.with_dtype(DType::Bool);
    match &expr.kind {
        ExprKind::Unary(op, _) => match op {
            UnOp::IsNan => a.dtype.is_float() && ty == a.with_dtype(DType::Bool),
            UnOp::Not | UnOp::Likely => a == bools && ty == bools,
            UnOp::BitNot | UnOp::Popcount => ty == a && a.dtype.is_int(),
            UnOp::Neg | UnOp::Abs => ty == a && a.dtype != DType::Bool,
            UnOp::Floor | UnOp::Ceil | UnOp::Round | UnOp::Trunc | UnOp::Sqrt => {
                ty == a && a.dtype.is_float()
            }
        },
        ExprKind::Binary(op, ..) => {
            let same = a == operands[1].ty;
            same && match op {
                BinOp::And | BinOp::Or => a == bools && ty == bools,
                op if op.is_comparison() => ty == a.with_dtype(DType::Bool),
                BinOp::Div => ty == a && a.dtype.is_float(),
                BinOp::FloorDiv | BinOp::FloorMod | BinOp::Shl | BinOp::Shr => {
                    ty == a && a.dtype.is_int()
                }
                BinOp::BitAnd | BinOp::BitOr | BinOp::BitXor => ty == a && !a.dtype.is_float(),
                _ => ty == a && a.dtype != DType::Bool,
            }
        }
        ExprKind::Select(..) => {
            (a == bools || a == Type::scalar(DType::Bool))
                && operands[1].ty == ty
                && operands[2].ty == ty
        }
        ExprKind::IfThenElse(..) => {
            a == Type::scalar(DType::Bool) && operands[1].ty == ty && operands[2].ty == ty
        }
        ExprKind::Cast(_) => a.lanes == ty.lanes,
        ExprKind::Bitcast(_) => a.lanes == ty.lanes && a.dtype.bytes() == ty.dtype.bytes(),
        ExprKind::Ramp(..) => {
            a.is_scalar() && a == operands[1].ty && a.dtype == ty.dtype && ty.dtype.is_int()
        }
        ExprKind::Broadcast(_) => a.is_scalar() && a.dtype == ty.dtype,
        ExprKind::Call(function, _) => {
            let arity = match function {
                Intrinsic::Fma => 3,
                Intrinsic::Pow | Intrinsic::Scalef => 2,
                _ => 1,
            };
            operands.len() == arity
                && match function {
                    Intrinsic::Tf32 => ty.dtype == DType::Float32,
                    _ => matches!(ty.dtype, DType::Float32 | DType::Float64),
                }
                && operands.iter().all(|operand| operand.ty == ty)
        }
        _ => true,
    }
}
