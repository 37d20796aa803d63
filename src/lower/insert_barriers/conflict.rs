//! Conflicts between accesses of shared memory, and the proofs that there are none.
//!
//! # What a conflict is
//!
//! Two accesses of shared memory conflict if two different threads of a block may access the same
//! element, at least one of them writes, and an implicit barrier stands between the accesses: the
//! beginning or the end of a shared stage (`ir::stmt`). `insert_barriers` places a barrier where
//! two accesses conflict and drops all other ones. A pair without a proof thus costs a barrier, and
//! a wrong proof is a race.
//!
//! # What is proved
//!
//! For a pair of accesses, thread `t` does the first and thread `t'` the second. Let `a(t, …)` and
//! `b(t', …)` be their indices. There is no conflict if one of these holds for all values of the
//! variables, within the ranges and conditions of the enclosing statements:
//!
//! 1. `a != b`: the accesses never touch the same element.
//! 2. `a == b` implies `t == t'` in every thread index: one thread does both.
//!
//! # How
//!
//! [`Context`] is the chain of loops, `let`s and conditions around an access. Each becomes a fact
//! ([`Facts`]), once for each of the two threads:
//!
//! - Thread indices are `t` and `t'`, two variables with one range. Block indices are one variable:
//!   shared memory belongs to a block.
//! - Enclosing statements that both accesses share, in the same iteration, are one fact if they
//!   cannot differ between threads ([`Varying`]), so both accesses use the same variable.
//! - All other variables of the second access are renamed: `i` becomes `i'`, with the same range
//!   and conditions on the renamed variables.
//! - For accesses in different iterations of a loop ([`BackEdge`]), the second one is in a later
//!   iteration: `i + 1 <= i'`, or exactly `i + 1` if every iteration passes a barrier. Statements
//!   inside of that loop are not shared.
//! - A vector access is one of its lanes, which is a variable of its own. An access by a whole warp
//!   is that of any lane of the warp, whichever thread does it.
//!
//! Then `Facts` tries to prove 1, then 2, from intervals, linear inequalities, and rules for
//! quotients and remainders by constants.
//!
//! The halves of a double buffer alternate by `i % 2`, which linear inequalities cannot express. If
//! both proofs fail and an index has a remainder of a shared loop variable by at most
//! [`MAX_MODULUS`], the proofs are repeated for each value or remainder of that variable.
//!
//! # What is assumed
//!
//! - The kernel has no race as long as all implicit barriers stand. Two accesses without an
//!   implicit barrier between them therefore need no barrier ([`Reach`]).
//! - Different buffers have different memory. `share_storage` stands before this pass and gives
//!   buffers that share memory one name.
//! - No barrier is needed in code that only some threads run: `schedule::threads` moves conditions
//!   that differ between threads inwards. `insert_barriers` stops with a bug otherwise.
//! - Indices do not overflow (`te::check_bounds`).
//!
//! # What is not found
//!
//! These count as conflicts, although there may be none:
//!
//! - indices that read memory, such as those of a gather, and vectors that are not ramps;
//! - facts from conditions and `let`s that read memory, which are ignored;
//! - products of two variables, and remainders by more than [`MAX_MODULUS`], beyond what `Facts`
//!   proves;
//! - accesses that are disjoint only for the actual values of run-time integers;
//! - everything after [`MAX_PAIRS`] pairs in one place.

use crate::ir::arith::Facts;
use crate::ir::launch::{Dim, Varying};
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::{mentions, reads_memory, substitute, walk_expr};
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, ThreadIndex, Var};
use rustc_hash::FxHashMap;
use std::rc::Rc;

/// The largest number of pairs of accesses that are compared in one place; more count as a
/// conflict.
const MAX_PAIRS: usize = 4096;

/// The largest modulus whose remainders are tried one by one.
const MAX_MODULUS: i128 = 8;

/// The statements around an access, innermost first.
pub type Context = Option<Rc<Binding>>;

/// A loop, a `let` or a condition.
pub struct Binding {
    pub kind: BindingKind,
    pub outer: Context,
}

/// The fact that a statement establishes for its body.
pub enum BindingKind {
    /// `min <= var < min + extent`.
    Loop { var: Var, min: Expr, extent: Expr },
    /// `var = value`.
    Let { var: Var, value: Expr },
    /// The condition has this value.
    If { cond: Expr, truth: bool },
}

/// An access of shared memory.
pub struct Access {
    pub buffer: Buffer,
    pub index: Expr,
    pub is_write: bool,
    /// The warps that read the elements of all their threads together; 0 if each thread reads its
    /// own.
    pub warps: i64,
    pub context: Context,
}

/// An access that no barrier separates from the beginning or the end of a statement.
#[derive(Clone, Copy)]
pub struct Reach {
    /// Index into [`ConflictChecker::accesses`].
    pub access: usize,
    /// Whether there is an implicit barrier between the access and that point.
    pub crosses_implicit: bool,
}

/// The way from one iteration of a loop to a later one, between a first access and a second one
/// that stands earlier in the body.
#[derive(Clone)]
pub struct BackEdge {
    pub looped: Rc<Binding>,
    /// Whether the later iteration is always the next one.
    pub adjacent: bool,
}

/// A pair of accesses, and for accesses of different iterations the address of the loop's binding
/// and [`BackEdge::adjacent`].
type PairKey = (usize, usize, Option<(usize, bool)>);

/// Decides whether accesses conflict, each pair once.
pub struct ConflictChecker {
    pub accesses: Vec<Access>,
    facts: Facts,
    dims: Vec<Dim>,
    varying: Varying,
    decided: FxHashMap<PairKey, bool>,
}

impl ConflictChecker {
    /// Creates a checker for a launch with these indices; `facts` hold around it.
    pub fn new(facts: Facts, dims: Vec<Dim>, varying: Varying) -> ConflictChecker {
        let decided = FxHashMap::default();
        ConflictChecker { accesses: Vec::new(), facts, dims, varying, decided }
    }

    /// Whether one of the first accesses may conflict with one of the second.
    pub fn any(&mut self, first: &[Reach], second: &[Reach], edge: Option<&BackEdge>) -> bool {
        let mut pairs = 0;
        for p in first {
            for q in second {
                let (a, b) = (&self.accesses[p.access], &self.accesses[q.access]);
                let ordered = p.crosses_implicit || q.crosses_implicit;
                if a.buffer != b.buffer || !(a.is_write || b.is_write) || !ordered {
                    continue;
                }
                pairs += 1;
                if pairs > MAX_PAIRS || self.may_conflict(p.access, q.access, edge) {
                    return true;
                }
            }
        }
        false
    }

    fn may_conflict(&mut self, p: usize, q: usize, edge: Option<&BackEdge>) -> bool {
        let loop_id = edge.map(|edge| (Rc::as_ptr(&edge.looped) as usize, edge.adjacent));
        if let Some(decided) = self.decided.get(&(p, q, loop_id)) {
            return *decided;
        }
        let conflict = self.compare(&self.accesses[p], &self.accesses[q], edge);
        self.decided.insert((p, q, loop_id), conflict);
        conflict
    }

    fn compare(&self, first: &Access, second: &Access, edge: Option<&BackEdge>) -> bool {
        let mut facts = self.facts.clone();
        // The second thread's names of variables.
        let mut names: FxHashMap<Var, Expr> = FxHashMap::default();
        let mut pairs: Vec<(Var, Expr)> = Vec::new();
        for dim in &self.dims {
            facts.bind(&dim.var, &Expr::index(0), &dim.extent);
            if dim.is_thread() {
                let other = Var::index(format!("{}'", dim.var.name()));
                facts.bind(&other, &Expr::index(0), &dim.extent);
                names.insert(dim.var.clone(), Expr::var(&other));
                pairs.push((dim.var.clone(), Expr::var(&other)));
            }
        }
        let (outer, inner) = (chain(&first.context), chain(&second.context));
        outer.iter().for_each(|binding| learn(&mut facts, binding));
        let mut together = Vec::new();
        let mut is_common = true;
        for (position, binding) in inner.iter().enumerate() {
            is_common &= outer.get(position).is_some_and(|other| Rc::ptr_eq(binding, other));
            let of_edge = edge.filter(|edge| Rc::ptr_eq(&edge.looped, binding));
            if let BindingKind::Loop { var, .. } = &binding.kind
                && is_common
            {
                together.push(var.clone());
            }
            match of_edge {
                Some(edge) => {
                    is_common = false;
                    later_iteration(&mut facts, edge, &mut names);
                }
                None if is_common && !self.varies(binding) => {}
                None => learn_renamed(&mut facts, binding, &mut names),
            }
        }
        let a = element(&self.of_any_lane(first, &mut facts), &mut facts);
        let b = element(&rename(&self.of_any_lane(second, &mut facts), &names), &mut facts);
        let (Some(a), Some(b)) = (a, b) else { return true };
        let may_be_equal = |a: &Expr, b: &Expr, facts: &Facts| {
            let equal = Expr::eq(a.clone(), b.clone());
            if facts.disprove(&equal) {
                return false;
            }
            let mut facts = facts.clone();
            facts.assume(&equal);
            !pairs.iter().all(|(var, other)| facts.prove(&Expr::eq(Expr::var(var), other.clone())))
        };
        if !may_be_equal(&a, &b, &facts) {
            return false;
        }
        let halves = together.iter().find_map(|var| Some((var, small_modulus(var, &[&a, &b])?)));
        let Some((var, modulus)) = halves else { return true };
        // Halves of a double buffer: try each value of the loop's variable if there are few, else
        // each remainder.
        let multiple = Expr::mul(Expr::var(&Var::index("turn")), Expr::index(modulus));
        let cases: Vec<Expr> = match facts.const_bounds(&Expr::var(var)) {
            (Some(low), Some(high)) if high - low < MAX_MODULUS => {
                (low..=high).map(|value| Expr::int(DType::Index, value)).collect()
            }
            _ => (0..modulus).map(|rest| Expr::add(multiple.clone(), Expr::index(rest))).collect(),
        };
        cases.into_iter().any(|value| {
            let mut facts = facts.clone();
            facts.define(var, &value);
            let names = FxHashMap::from_iter([(var.clone(), value)]);
            let case = |index: &Expr| simplify_expr(&rename(index, &names), &facts);
            may_be_equal(&case(&a), &case(&b), &facts)
        })
    }

    /// Returns the index of an access. For an access by a warp, any lane takes the place of the
    /// thread; for one by a warpgroup, whose warps differ along y, any of its threads.
    fn of_any_lane(&self, access: &Access, facts: &mut Facts) -> Expr {
        let together = match access.warps {
            0 => 0,
            1 => 1,
            _ => 2,
        };
        let mut names = FxHashMap::default();
        for (axis, name) in ["lane", "warp"].into_iter().enumerate().take(together) {
            let dim = self.dims.iter().find(|dim| dim.index == ThreadIndex::Thread(axis));
            if let Some(dim) = dim {
                let any = Var::index(name);
                facts.bind(&any, &Expr::index(0), &dim.extent);
                names.insert(dim.var.clone(), Expr::var(&any));
            }
        }
        rename(&access.index, &names)
    }

    /// Whether a binding differs between threads.
    fn varies(&self, binding: &Binding) -> bool {
        match &binding.kind {
            BindingKind::Loop { var, .. } => self.varying.contains(var),
            BindingKind::Let { value, .. } => !self.varying.agrees(value),
            BindingKind::If { cond, .. } => !self.varying.agrees(cond),
        }
    }
}

/// Returns the bindings of a context, outermost first.
fn chain(context: &Context) -> Vec<Rc<Binding>> {
    let mut chain = Vec::new();
    let mut next = context;
    while let Some(binding) = next {
        chain.push(binding.clone());
        next = &binding.outer;
    }
    chain.reverse();
    chain
}

/// Adds the fact of a binding, unless it reads memory.
fn learn(facts: &mut Facts, binding: &Binding) {
    match &binding.kind {
        BindingKind::Loop { var, min, extent } => facts.bind(var, min, extent),
        BindingKind::Let { var, value } if !reads_memory(value) => facts.define(var, value),
        BindingKind::If { cond, truth } if !reads_memory(cond) => match truth {
            true => facts.assume(cond),
            false => facts.assume(&Expr::not(cond.clone())),
        },
        BindingKind::Let { .. } | BindingKind::If { .. } => {}
    }
}

/// Adds the fact of a binding for the second thread, with a new name for its variable.
fn learn_renamed(facts: &mut Facts, binding: &Binding, names: &mut FxHashMap<Var, Expr>) {
    let fresh = |var: &Var, names: &FxHashMap<Var, Expr>| {
        let other = Var::new(format!("{}'", var.name()), var.ty());
        let mut names = names.clone();
        names.insert(var.clone(), Expr::var(&other));
        (other, names)
    };
    let kind = match &binding.kind {
        BindingKind::Loop { var, min, extent } => {
            let (min, extent) = (rename(min, names), rename(extent, names));
            let (other, inner) = fresh(var, names);
            *names = inner;
            BindingKind::Loop { var: other, min, extent }
        }
        BindingKind::Let { var, value } => {
            let value = rename(value, names);
            let (other, inner) = fresh(var, names);
            *names = inner;
            BindingKind::Let { var: other, value }
        }
        BindingKind::If { cond, truth } => {
            BindingKind::If { cond: rename(cond, names), truth: *truth }
        }
    };
    learn(facts, &Binding { kind, outer: None });
}

/// Adds the fact that the second access is in a later iteration of the loop.
fn later_iteration(facts: &mut Facts, edge: &BackEdge, names: &mut FxHashMap<Var, Expr>) {
    let BindingKind::Loop { var, min, extent } = &edge.looped.kind else {
        crate::bug!("a loop is expected")
    };
    let next = Expr::add(Expr::var(var), Expr::index(1));
    if edge.adjacent {
        facts.assume(&Expr::lt(next.clone(), Expr::add(min.clone(), extent.clone())));
        names.insert(var.clone(), next);
    } else {
        learn_renamed(facts, &edge.looped, names);
        facts.assume(&Expr::le(next, names[var].clone()));
    }
}

/// Returns the modulus of a remainder of a sum with `var` in one of the expressions, if it is
/// small.
fn small_modulus(var: &Var, exprs: &[&Expr]) -> Option<i64> {
    let mut found = None;
    for expr in exprs {
        walk_expr(expr, &mut |e| {
            if let ExprKind::Binary(BinOp::FloorMod, sum, modulus) = &e.kind
                && let Some(modulus @ 2..=MAX_MODULUS) = modulus.as_int()
                && mentions(sum, var)
            {
                found = Some(modulus as i64);
            }
        });
    }
    found
}

fn rename(expr: &Expr, names: &FxHashMap<Var, Expr>) -> Expr {
    substitute(expr, &mut |var| names.get(var).cloned())
}

/// Returns a vector index as the scalar index of any of its lanes; `None` if it is not a ramp or
/// broadcast, or reads memory.
fn element(index: &Expr, facts: &mut Facts) -> Option<Expr> {
    if reads_memory(index) {
        return None;
    }
    match &index.kind {
        ExprKind::Ramp(base, stride) => {
            let lane = Var::index("lane");
            facts.bind(&lane, &Expr::index(0), &Expr::index(index.ty.lanes.into()));
            Some(Expr::add(base.clone(), Expr::mul(Expr::var(&lane), stride.clone())))
        }
        ExprKind::Broadcast(scalar) => Some(scalar.clone()),
        _ => (index.ty == DType::Index.into()).then(|| index.clone()),
    }
}
