//! Insert barriers: makes the implicit barriers of shared stages explicit, and removes every
//! barrier that it can prove redundant.
//!
//! Before: `for k { produce S { S[tx] = A[k, tx] }  C[tx] = C[tx] + S[7 - tx] }`
//! After:  `for k { sync  S[tx] = A[k, tx]  sync  C[tx] = C[tx] + S[7 - tx] }`
//! An implicit barrier stands at the beginning and the end of a shared stage (`ir::stmt`). Two
//! accesses with an implicit barrier between them need a barrier if they conflict (`conflict` says
//! when). It stands before the second of two statements; for two iterations of a loop, before the
//! first statement of the body that conflicts with an earlier iteration. Then the pass tries to
//! leave out each barrier, as the other ones may order the same accesses.
//!
//! Needs: launches as `hoist_threads` leaves them; flat indices; buffers that share memory under
//! one name (`share_storage`); accumulators in registers (`promote_accumulators`), which need no
//! barrier. Stands before `hoist_invariants`, which must not move loads across barriers.
//! Ensures: no shared stage is left; barriers order all accesses of shared memory.
//! Declines: `await_copies` stays, because accesses do not show which copies are in flight. A warp
//! product that only some threads of the warp would reach is refused (E0378).

mod conflict;

use crate::diag;
use crate::ir::arith::Facts;
use crate::ir::launch::{Dim, Varying, find_dims, is_shared_stage, map_launches};
use crate::ir::visit::{for_each_child, for_each_stmt};
use crate::ir::warp::{GROUP_WARPS, WarpProduct, is_warp_product, warp_product};
use crate::ir::{Expr, ExprKind, ForKind, Kernel, Scope, Stmt, ThreadIndex};
use crate::target::Target;
use conflict::{Access, BackEdge, Binding, BindingKind, ConflictChecker, Context, Reach};
use rustc_hash::FxHashSet;
use std::rc::Rc;

/// The largest nesting depth of choices whose conditions are used; those of inner choices are
/// ignored.
const MAX_CHOICES: usize = 3;

/// Inserts the barriers of every launch.
pub fn insert_barriers(kernel: Kernel, _target: &Target) -> diag::Result<Kernel> {
    let mut facts = Facts::new();
    kernel.facts.iter().for_each(|cond| facts.assume(cond));
    let mut divergent = None;
    let body = map_launches(kernel.body, &mut |launch| {
        if let Stmt::Produce { body, .. } = &launch {
            divergent = divergent.take().or_else(|| find_divergent_product(body));
        }
        synchronize(launch, &facts)
    });
    match divergent {
        None => Ok(Kernel { body, ..kernel }),
        Some(product) => {
            let (threads, index) = match product.is_by_warpgroup() {
                true => ("the 128 threads of a warpgroup", "`threadIdx.x` or `threadIdx.y`"),
                false => ("the 32 threads of a warp", "`threadIdx.x`"),
            };
            let whole = if product.is_by_warpgroup() { "warpgroup" } else { "warp" };
            let text = format!("only some threads of a {whole} would compute `{}`", product.name);
            Err(Box::new(
                diag::Diag::global("E0378", text)
                    .note(format!(
                        "in kernel `{}`; {threads} compute it together, but a condition or a loop \
                         bound around it depends on {index}",
                        kernel.name
                    ))
                    .help(
                        "choose tile sizes that divide the extents, so that the tail needs no \
                         condition",
                    ),
            ))
        }
    }
}

/// Returns a warp product that only some of the threads reach that compute it together.
fn find_divergent_product(body: &Stmt) -> Option<WarpProduct> {
    [1, GROUP_WARPS].into_iter().find_map(|warps| find_divergent(body, warps))
}

/// [`find_divergent_product`] among those that this number of warps compute together.
fn find_divergent(body: &Stmt, warps: i64) -> Option<WarpProduct> {
    let mut varying = Varying::default();
    // The warps of a warpgroup differ along y. Other indices are the same for all threads.
    let together: &[ThreadIndex] = match warps {
        1 => &[ThreadIndex::Thread(0)],
        _ => &[ThreadIndex::Thread(0), ThreadIndex::Thread(1)],
    };
    crate::ir::visit::walk_stmt(
        body,
        &mut |stmt| match stmt {
            Stmt::For { kind: ForKind::Thread(index), .. } if !together.contains(index) => {}
            Stmt::For { var, min, extent, kind, .. } => {
                varying.enter_loop(var, kind, min, extent);
            }
            Stmt::Let { var, value, .. } => varying.enter_let(var, value),
            _ => {}
        },
        &mut |_| {},
    );
    fn find(stmt: &Stmt, varying: &Varying, divergent: bool, warps: i64) -> Option<WarpProduct> {
        let divergent = divergent
            || match stmt {
                Stmt::If { cond, .. } => !varying.agrees(cond),
                Stmt::For { min, extent, kind, .. } if kind.gpu_index().is_none() => {
                    !varying.agrees(min) || !varying.agrees(extent)
                }
                _ => false,
            };
        if let Some(product) = warp_product(stmt) {
            return (divergent && product.warps == warps).then_some(product);
        }
        let mut found = None;
        for_each_stmt(stmt, &mut |inner| {
            found = found.take().or_else(|| find(inner, varying, divergent, warps));
        });
        found
    }
    find(body, &varying, false, warps)
}

fn synchronize(launch: Stmt, facts: &Facts) -> Stmt {
    let Stmt::Produce { name, body } = launch else { crate::bug!("a launch is a produce") };
    let dims = find_dims(&body);
    let varying = find_varying(&body, &dims);
    let conflicts = ConflictChecker::new(facts.clone(), dims, varying.clone());
    let mut builder = Builder { conflicts, varying, warps: 0, choices: 0 };
    let mut root = builder.node(*body, &None, false);
    let mut placer = Placer { conflicts: builder.conflicts, placing: true };
    placer.visit(&mut root).expect("a placer that places reports no conflict");
    placer.placing = false;
    // A barrier that was placed later may order the accesses of an earlier one, too.
    for number in (0..count_barriers(&root)).rev() {
        set_barrier(&mut root, &mut number.clone(), false);
        if placer.visit(&mut root).is_err() {
            set_barrier(&mut root, &mut number.clone(), true);
        }
    }
    Stmt::Produce { name, body: Box::new(root.into_stmt()) }
}

/// Returns the variables of a launch that may differ between threads.
fn find_varying(body: &Stmt, dims: &[Dim]) -> Varying {
    let mut varying = Varying::default();
    for dim in dims {
        let kind = ForKind::Thread(dim.index);
        varying.enter_loop(&dim.var, &kind, &Expr::index(0), &dim.extent);
    }
    crate::ir::visit::walk_stmt(
        body,
        &mut |stmt| match stmt {
            Stmt::For { var, min, extent, kind, .. } => {
                varying.enter_loop(var, kind, min, extent);
            }
            Stmt::Let { var, value, .. } => varying.enter_let(var, value),
            _ => {}
        },
        &mut |_| {},
    );
    varying
}

/// The control flow of a launch's body.
enum Node {
    Block {
        nodes: Vec<Node>,
        /// Whether only some threads may run the block.
        divergent: bool,
    },
    /// A statement whose body runs once: the statement without its body, and the body.
    Wrapper(Stmt, Box<Node>),
    Loop {
        head: Stmt,
        binding: Rc<Binding>,
        /// Whether it always has an iteration.
        runs: bool,
        /// Whether threads may differ in its iterations.
        divergent: bool,
        body: Box<Node>,
    },
    If {
        cond: Expr,
        then: Box<Node>,
        otherwise: Option<Box<Node>>,
    },
    Leaf {
        stmt: Stmt,
        accesses: Vec<usize>,
    },
    /// The beginning or the end of a shared stage.
    ImplicitBarrier,
    /// A barrier, and whether it is kept.
    Barrier(bool),
    /// A barrier that waits for copies.
    Await(Stmt),
}

impl Node {
    fn into_stmt(self) -> Stmt {
        match self {
            Node::Block { nodes, .. } => {
                let mut stmts = Vec::new();
                for node in nodes {
                    match node.into_stmt() {
                        Stmt::Block(inner) => stmts.extend(inner),
                        stmt => stmts.push(stmt),
                    }
                }
                if stmts.len() == 1 { stmts.remove(0) } else { Stmt::Block(stmts) }
            }
            Node::Wrapper(head, body) | Node::Loop { head, body, .. } => {
                let mut body = Some(body.into_stmt());
                crate::ir::visit::map_stmts(head, &mut |_| body.take().expect("one body"))
            }
            Node::If { cond, then, otherwise } => Stmt::If {
                cond,
                then: Box::new(then.into_stmt()),
                otherwise: otherwise.map(|node| Box::new(node.into_stmt())),
            },
            Node::Leaf { stmt, .. } => stmt,
            Node::Barrier(true) => Stmt::Barrier,
            Node::Await(stmt) => stmt,
            Node::ImplicitBarrier | Node::Barrier(false) => Stmt::nothing(),
        }
    }
}

/// Builds the nodes and collects the accesses.
struct Builder {
    conflicts: ConflictChecker,
    varying: Varying,
    /// The warps of the product that the statement is in; 0 outside of products.
    warps: i64,
    /// The number of enclosing choices of the expression.
    choices: usize,
}

impl Builder {
    fn node(&mut self, stmt: Stmt, context: &Context, divergent: bool) -> Node {
        match stmt {
            Stmt::Block(stmts) => {
                let nodes = stmts.into_iter().map(|inner| self.node(inner, context, divergent));
                let nodes = nodes.collect();
                Node::Block { nodes, divergent }
            }
            Stmt::Produce { body, .. } if is_shared_stage(&body) => {
                let body = self.node(*body, context, divergent);
                let nodes = vec![Node::ImplicitBarrier, body, Node::ImplicitBarrier];
                Node::Block { nodes, divergent }
            }
            Stmt::For { ref kind, .. } if kind.gpu_index().is_some() => {
                self.wrapper(stmt, context, divergent)
            }
            Stmt::Tensorize { .. } if is_warp_product(&stmt) => {
                self.warps = warp_product(&stmt).map_or(0, |product| product.warps);
                let node = self.wrapper(stmt, context, divergent);
                self.warps = 0;
                node
            }
            Stmt::Produce { .. }
            | Stmt::Allocate { .. }
            | Stmt::Tensorize { .. }
            | Stmt::CopyGroup { .. }
            | Stmt::SimdKernel { .. } => self.wrapper(stmt, context, divergent),
            Stmt::Let { ref var, ref value, .. } => {
                let reads = self.reads(&[value], context);
                let kind = BindingKind::Let { var: var.clone(), value: value.clone() };
                let inner = bind(kind, context);
                after(reads, self.wrapper(stmt, &Some(inner), divergent), divergent)
            }
            Stmt::For { .. } => self.for_loop(stmt, context, divergent),
            Stmt::If { cond, then, otherwise } => {
                let reads = self.reads(&[&cond], context);
                let diverges = divergent || !self.varying.agrees(&cond);
                let mut branch = |stmt: Stmt, truth: bool| {
                    let inner = bind(BindingKind::If { cond: cond.clone(), truth }, context);
                    Box::new(self.node(stmt, &Some(inner), diverges))
                };
                let then = branch(*then, true);
                let otherwise = otherwise.map(|stmt| branch(*stmt, false));
                after(reads, Node::If { cond, then, otherwise }, divergent)
            }
            Stmt::Store { ref buffer, ref indices, ref value, ref mask, .. } => {
                let exprs: Vec<&Expr> = indices.iter().chain([value]).chain(mask).collect();
                let mut accesses = self.collect(&exprs, context);
                if buffer.scope == Scope::Shared {
                    let (buffer, index) = (buffer.clone(), indices[0].clone());
                    let context = context.clone();
                    accesses.push(self.conflicts.accesses.len());
                    let access = Access { buffer, index, is_write: true, warps: 0, context };
                    self.conflicts.accesses.push(access);
                }
                Node::Leaf { stmt, accesses }
            }
            Stmt::Barrier => Node::Barrier(true),
            Stmt::Sort(_) => crate::bug!("a sort in a launch"),
            Stmt::AwaitCopies { .. } => Node::Await(stmt),
            Stmt::Prefetch { .. } | Stmt::Assert { .. } => {
                Node::Leaf { stmt, accesses: Vec::new() }
            }
        }
    }

    fn wrapper(&mut self, stmt: Stmt, context: &Context, divergent: bool) -> Node {
        let (head, body) = take_body(stmt);
        Node::Wrapper(head, Box::new(self.node(body, context, divergent)))
    }

    fn for_loop(&mut self, stmt: Stmt, context: &Context, divergent: bool) -> Node {
        let (head, body) = take_body(stmt);
        let Stmt::For { var, min, extent, .. } = &head else { crate::bug!("a loop is expected") };
        let reads = self.reads(&[min, extent], context);
        let diverges = divergent || !self.varying.agrees(min) || !self.varying.agrees(extent);
        let (var, min, extent) = (var.clone(), min.clone(), extent.clone());
        let runs = extent.as_int().is_some_and(|extent| extent > 0);
        let binding = bind(BindingKind::Loop { var, min, extent }, context);
        let body = Box::new(self.node(body, &Some(binding.clone()), diverges));
        after(reads, Node::Loop { head, binding, runs, divergent: diverges, body }, divergent)
    }

    /// Returns the reads of a statement's own expressions as a node before it.
    fn reads(&mut self, exprs: &[&Expr], context: &Context) -> Option<Node> {
        let accesses = self.collect(exprs, context);
        let stmt = Stmt::nothing();
        (!accesses.is_empty()).then_some(Node::Leaf { stmt, accesses })
    }

    fn collect(&mut self, exprs: &[&Expr], context: &Context) -> Vec<usize> {
        let first = self.conflicts.accesses.len();
        let mut seen = FxHashSet::default();
        exprs.iter().for_each(|expr| self.collect_in(expr, context, &mut seen));
        (first..self.conflicts.accesses.len()).collect()
    }

    fn collect_in(&mut self, expr: &Expr, context: &Context, seen: &mut FxHashSet<usize>) {
        if !seen.insert(expr.id()) {
            return;
        }
        match &expr.kind {
            // The reads of a branch happen under its condition. Shared nodes are visited once for
            // each branch, so only the outermost choices are distinguished.
            ExprKind::IfThenElse(cond, then, otherwise)
                if cond.ty.is_scalar() && self.choices < MAX_CHOICES =>
            {
                self.collect_in(cond, context, seen);
                self.choices += 1;
                for (branch, truth) in [(then, true), (otherwise, false)] {
                    let inner = bind(BindingKind::If { cond: cond.clone(), truth }, context);
                    self.collect_in(branch, &Some(inner), &mut FxHashSet::default());
                }
                self.choices -= 1;
                return;
            }
            ExprKind::Load { buffer, indices, .. } if buffer.scope == Scope::Shared => {
                let (buffer, index) = (buffer.clone(), indices[0].clone());
                let context = context.clone();
                let warps = self.warps;
                let access = Access { buffer, index, is_write: false, warps, context };
                self.conflicts.accesses.push(access);
            }
            ExprKind::Let(var, value, body) => {
                self.collect_in(value, context, seen);
                let kind = BindingKind::Let { var: var.clone(), value: value.clone() };
                let inner = bind(kind, context);
                return self.collect_in(body, &Some(inner), seen);
            }
            _ => {}
        }
        for_each_child(expr, &mut |child| self.collect_in(child, context, seen));
    }
}

fn bind(kind: BindingKind, outer: &Context) -> Rc<Binding> {
    Rc::new(Binding { kind, outer: outer.clone() })
}

fn after(reads: Option<Node>, node: Node, divergent: bool) -> Node {
    match reads {
        Some(reads) => Node::Block { nodes: vec![reads, node], divergent },
        None => node,
    }
}

/// Splits a statement into the statement without its body and the body.
fn take_body(stmt: Stmt) -> (Stmt, Stmt) {
    let mut body = None;
    let head = crate::ir::visit::map_stmts(stmt, &mut |inner| {
        body = Some(inner);
        Stmt::nothing()
    });
    (head, body.expect("a statement with an inner one"))
}

/// The accesses of a node that may conflict with accesses outside.
struct Summary {
    /// Accesses that no barrier separates from the node's beginning.
    first: Vec<Reach>,
    /// Accesses that no barrier separates from the node's end.
    last: Vec<Reach>,
    /// Whether there is a path through the node without a barrier.
    open: bool,
    /// Whether there is a path through the node with an implicit barrier.
    has_implicit: bool,
}

/// The report that two accesses may conflict.
#[derive(Debug)]
struct Conflict;

type Visited = std::result::Result<Summary, Conflict>;

/// Places a barrier between accesses that conflict, or, if not `placing`, reports the conflict.
struct Placer {
    conflicts: ConflictChecker,
    placing: bool,
}

impl Placer {
    fn visit(&mut self, node: &mut Node) -> Visited {
        let nothing =
            || Summary { first: Vec::new(), last: Vec::new(), open: true, has_implicit: false };
        match node {
            Node::Block { nodes, divergent } => self.block(nodes, *divergent),
            Node::Wrapper(_, body) => self.visit(body),
            Node::Loop { .. } => self.for_loop(node),
            Node::If { then, otherwise, .. } => {
                let mut summary = self.visit(then)?;
                let other = match otherwise {
                    Some(otherwise) => self.visit(otherwise)?,
                    None => nothing(),
                };
                summary.first.extend(other.first);
                summary.last.extend(other.last);
                summary.open |= other.open;
                summary.has_implicit |= other.has_implicit;
                Ok(summary)
            }
            Node::Leaf { accesses, .. } => {
                let reach = accesses
                    .iter()
                    .map(|access| Reach { access: *access, crosses_implicit: false });
                let reach: Vec<Reach> = reach.collect();
                Ok(Summary { first: reach.clone(), last: reach, ..nothing() })
            }
            Node::ImplicitBarrier => Ok(Summary { has_implicit: true, ..nothing() }),
            Node::Await(_) => Ok(Summary { open: false, ..nothing() }),
            Node::Barrier(kept) => Ok(Summary { open: !*kept, ..nothing() }),
        }
    }

    fn block(&mut self, nodes: &mut Vec<Node>, divergent: bool) -> Visited {
        let (mut first, mut last) = (Vec::new(), Vec::new());
        let (mut open, mut has_implicit) = (true, false);
        let mut position = 0;
        while position < nodes.len() {
            let inner = self.visit(&mut nodes[position])?;
            if self.conflicts.any(&last, &inner.first, None) {
                self.may_place(divergent)?;
                nodes.insert(position, Node::Barrier(true));
                position += 1;
                (last, open) = (Vec::new(), false);
            }
            if open {
                first.extend(inner.first.into_iter().map(|reach| reach.across(has_implicit)));
            }
            if !inner.open {
                last.clear();
            }
            last = last.into_iter().map(|reach: Reach| reach.across(inner.has_implicit)).collect();
            last.extend(inner.last);
            open &= inner.open;
            has_implicit |= inner.has_implicit;
            position += 1;
        }
        Ok(Summary { first, last, open, has_implicit })
    }

    fn for_loop(&mut self, node: &mut Node) -> Visited {
        let Node::Loop { binding, runs, divergent, body, .. } = node else {
            crate::bug!("a loop is expected")
        };
        let mut inner = of_all_iterations(self.visit(body)?);
        let edge = BackEdge { looped: binding.clone(), adjacent: !inner.open };
        if self.conflicts.any(&inner.last, &inner.first, Some(&edge)) {
            self.may_place(*divergent)?;
            self.cut(body, &inner.last, &edge)?;
            inner = of_all_iterations(self.visit(body)?);
        }
        Ok(Summary { open: inner.open || !*runs, ..inner })
    }

    /// Places a barrier before the first part of a loop's body that conflicts with `earlier`
    /// iterations.
    fn cut(&mut self, body: &mut Node, earlier: &[Reach], edge: &BackEdge) -> Result<(), Conflict> {
        match body {
            Node::Wrapper(_, body) => self.cut(body, earlier, edge),
            Node::Block { nodes, .. } => {
                let mut has_implicit = false;
                for position in 0..nodes.len() {
                    let inner = self.visit(&mut nodes[position])?;
                    let first = inner.first.into_iter().map(|reach| reach.across(has_implicit));
                    if self.conflicts.any(earlier, &first.collect::<Vec<_>>(), Some(edge)) {
                        nodes.insert(position, Node::Barrier(true));
                        return Ok(());
                    }
                    has_implicit |= inner.has_implicit;
                }
                // The conflict is with an iteration before the last one.
                nodes.insert(0, Node::Barrier(true));
                Ok(())
            }
            node => {
                let whole = std::mem::replace(node, Node::Barrier(true));
                let nodes = vec![Node::Barrier(true), whole];
                *node = Node::Block { nodes, divergent: false };
                Ok(())
            }
        }
    }

    fn may_place(&self, divergent: bool) -> Result<(), Conflict> {
        if !self.placing {
            return Err(Conflict);
        }
        if divergent {
            crate::bug!("a barrier that only some threads reach");
        }
        Ok(())
    }
}

impl Reach {
    /// Extends the access past a node that may have an implicit barrier.
    fn across(self, has_implicit: bool) -> Reach {
        Reach { crosses_implicit: self.crosses_implicit || has_implicit, ..self }
    }
}

/// Returns the summary of a loop from that of its body. Between an access and the end of the loop
/// there may be further iterations, with their implicit barriers.
fn of_all_iterations(body: Summary) -> Summary {
    let other = body.open && body.has_implicit;
    let across = |list: Vec<Reach>| list.into_iter().map(|reach| reach.across(other)).collect();
    Summary { first: across(body.first), last: across(body.last), ..body }
}

fn count_barriers(node: &Node) -> usize {
    match node {
        Node::Block { nodes, .. } => nodes.iter().map(count_barriers).sum(),
        Node::Wrapper(_, body) | Node::Loop { body, .. } => count_barriers(body),
        Node::If { then, otherwise, .. } => {
            count_barriers(then) + otherwise.as_ref().map_or(0, |node| count_barriers(node))
        }
        Node::Leaf { .. } | Node::ImplicitBarrier | Node::Await(_) => 0,
        Node::Barrier(_) => 1,
    }
}

/// Keeps or drops the barrier with this number; `number` is counted down.
fn set_barrier(node: &mut Node, number: &mut usize, kept: bool) {
    match node {
        Node::Block { nodes, .. } => {
            nodes.iter_mut().for_each(|node| set_barrier(node, number, kept))
        }
        Node::Wrapper(_, body) | Node::Loop { body, .. } => set_barrier(body, number, kept),
        Node::If { then, otherwise, .. } => {
            set_barrier(then, number, kept);
            if let Some(otherwise) = otherwise {
                set_barrier(otherwise, number, kept);
            }
        }
        Node::Leaf { .. } | Node::ImplicitBarrier | Node::Await(_) => {}
        Node::Barrier(value) => {
            if *number == 0 {
                *value = kept;
            }
            *number = number.wrapping_sub(1);
        }
    }
}
