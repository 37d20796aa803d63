//! Whether different threads of a block may access one element, by proof from the indices.
//!
//! Two accesses are compared for two threads, `t` of the first and `t'` of the second, each under
//! the loops and conditions around it: variables that both share (loops around both, in one and
//! the same iteration) are the same, all others are two. The accesses cannot clash if their
//! indices cannot be equal, or if they are equal for `t = t'` only.

use crate::ir::arith::Facts;
use crate::ir::launch::{Dim, Varying};
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::{mentions, reads_memory, substitute, walk_expr};
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, ThreadIndex, Var};
use rustc_hash::FxHashMap;
use std::rc::Rc;

/// More pairs of accesses than this are not compared in one place: they count as a clash.
const MAX_PAIRS: usize = 4096;

/// Remainders by larger numbers are not told apart one by one.
const MAX_MODULUS: i128 = 8;

/// What is around an access, innermost first.
pub type Context = Option<Rc<Binding>>;

/// A loop, a `let` or a condition.
pub struct Binding {
    pub kind: BindingKind,
    pub outer: Context,
}

/// What is known inside.
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
    /// A warp reads what any of its threads reads.
    pub by_warp: bool,
    pub context: Context,
}

/// An access that no barrier separates from an end of a statement.
#[derive(Clone, Copy)]
pub struct Reach {
    /// In [`Clashes::accesses`].
    pub access: usize,
    /// There is a meeting between the access and the end. Two accesses without one between them do
    /// not clash: the program has no race before barriers are inserted.
    pub meets: bool,
}

/// From which iteration of a loop to which: the first access, later than the second in the body,
/// is of an earlier iteration.
#[derive(Clone)]
pub struct BackEdge {
    pub around: Rc<Binding>,
    /// Always the iteration before.
    pub adjacent: bool,
}

/// A pair of accesses, and by the address of its binding the loop between them with whether they
/// are of adjacent iterations.
type Question = (usize, usize, Option<(usize, bool)>);

/// Answers, each given once.
pub struct Clashes {
    pub accesses: Vec<Access>,
    facts: Facts,
    dims: Vec<Dim>,
    varying: Varying,
    known: FxHashMap<Question, bool>,
}

impl Clashes {
    /// For a launch with these indices; `facts` holds what is known around it.
    pub fn new(facts: Facts, dims: Vec<Dim>, varying: Varying) -> Clashes {
        Clashes { accesses: Vec::new(), facts, dims, varying, known: FxHashMap::default() }
    }

    /// Whether one of the first accesses may clash with one of the second.
    pub fn any(&mut self, first: &[Reach], second: &[Reach], edge: Option<&BackEdge>) -> bool {
        let mut asked = 0;
        for p in first {
            for q in second {
                let (a, b) = (&self.accesses[p.access], &self.accesses[q.access]);
                let matters = a.is_write || b.is_write;
                if a.buffer != b.buffer || !matters || !(p.meets || q.meets) {
                    continue;
                }
                asked += 1;
                if asked > MAX_PAIRS || self.may_clash(p.access, q.access, edge) {
                    return true;
                }
            }
        }
        false
    }

    fn may_clash(&mut self, p: usize, q: usize, edge: Option<&BackEdge>) -> bool {
        let loop_id = edge.map(|edge| (Rc::as_ptr(&edge.around) as usize, edge.adjacent));
        if let Some(known) = self.known.get(&(p, q, loop_id)) {
            return *known;
        }
        let clash = self.compare(&self.accesses[p], &self.accesses[q], edge);
        self.known.insert((p, q, loop_id), clash);
        clash
    }

    fn compare(&self, first: &Access, second: &Access, edge: Option<&BackEdge>) -> bool {
        let mut facts = self.facts.clone();
        // What the second thread calls what the first one calls otherwise.
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
            let of_edge = edge.filter(|edge| Rc::ptr_eq(&edge.around, binding));
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
        let clash = |a: &Expr, b: &Expr, facts: &Facts| {
            let equal = Expr::eq(a.clone(), b.clone());
            if facts.disprove(&equal) {
                return false;
            }
            let mut facts = facts.clone();
            facts.assume(&equal);
            !pairs.iter().all(|(var, other)| facts.prove(&Expr::eq(Expr::var(var), other.clone())))
        };
        if !clash(&a, &b, &facts) {
            return false;
        }
        let halves = together.iter().find_map(|var| Some((var, small_modulus(var, &[&a, &b])?)));
        let Some((var, modulus)) = halves else { return true };
        // Halves of a double buffer: one value of the loop's variable after the other, if there
        // are few, or one remainder.
        let turn = Expr::mul(Expr::var(&Var::index("turn")), Expr::index(modulus));
        let cases: Vec<Expr> = match facts.const_bounds(&Expr::var(var)) {
            (Some(low), Some(high)) if high - low < MAX_MODULUS => {
                (low..=high).map(|value| Expr::int(DType::Index, value)).collect()
            }
            _ => (0..modulus).map(|rest| Expr::add(turn.clone(), Expr::index(rest))).collect(),
        };
        cases.into_iter().any(|value| {
            let mut facts = facts.clone();
            facts.define(var, &value);
            let names = FxHashMap::from_iter([(var.clone(), value)]);
            let case = |index: &Expr| simplify_expr(&rename(index, &names), &facts);
            clash(&case(&a), &case(&b), &facts)
        })
    }

    /// The index of an access; of one by a warp for any of its lanes, whichever thread it is.
    fn of_any_lane(&self, access: &Access, facts: &mut Facts) -> Expr {
        let along_x = self.dims.iter().find(|dim| dim.index == ThreadIndex::Thread(0));
        match along_x.filter(|_| access.by_warp) {
            None => access.index.clone(),
            Some(dim) => {
                let lane = Var::index("lane");
                facts.bind(&lane, &Expr::index(0), &dim.extent);
                rename(&access.index, &FxHashMap::from_iter([(dim.var.clone(), Expr::var(&lane))]))
            }
        }
    }

    /// Whether what is bound differs between threads that share it.
    fn varies(&self, binding: &Binding) -> bool {
        match &binding.kind {
            BindingKind::Loop { var, .. } => self.varying.contains(var),
            BindingKind::Let { value, .. } => !self.varying.agrees(value),
            BindingKind::If { cond, .. } => !self.varying.agrees(cond),
        }
    }
}

/// Outermost first.
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

/// The second access is of a later iteration of the loop.
fn later_iteration(facts: &mut Facts, edge: &BackEdge, names: &mut FxHashMap<Var, Expr>) {
    let BindingKind::Loop { var, min, extent } = &edge.around.kind else {
        crate::bug!("a loop is expected")
    };
    let next = Expr::add(Expr::var(var), Expr::index(1));
    if edge.adjacent {
        facts.assume(&Expr::lt(next.clone(), Expr::add(min.clone(), extent.clone())));
        names.insert(var.clone(), next);
    } else {
        learn_renamed(facts, &edge.around, names);
        facts.assume(&Expr::le(next, names[var].clone()));
    }
}

/// A small number that sums with `var` are taken modulo of in one of the expressions.
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

/// The index as a scalar, any lane of it; `None` if it is of another form or reads memory.
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
