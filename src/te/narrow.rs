//! Narrow integers: computes and stores integers in the narrowest type that holds all of their
//! values, so that a vector has more of them. It runs on the stage graph, so that schedules and
//! the cost model see the types that are computed with.
//!
//! Before: `S = sum(X[…] as int32, axis=[a, b])` of 9 bytes, `Y = ((S*2 + 9) // 18) as uint8`
//! After:  `S = sum(X[…] as int16, axis=[a, b])`, `Y = ((S*2 + 9) // 18) as uint8` in int16
//!
//! No bit of a result changes: an operation is done in another type only if its operands and its
//! result have the same values there, by the ranges of the types of tensors, of constants, and of
//! axes with constant extents. Outputs, inputs and the tensors of recurrences keep their types.
//!
//! Only what is stored in or converted to a shorter type, and what is compared, is narrowed. So the
//! terms of a sum that stays wide are left as they are: products of bytes that are added in 32 bits
//! have instructions of their own.

use super::{Axis, Body, Graph, Reduction, Stage};
use crate::ir::visit::{Memo, NodeSet, for_each_child, map_children};
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, UnOp, Var};
use rustc_hash::FxHashMap;

/// The types to compute with, the best ones first: signed ones have more instructions.
const TYPES: [DType; 6] =
    [DType::Uint8, DType::Int8, DType::Int16, DType::Uint16, DType::Int32, DType::Uint32];

/// The least and the greatest value.
type Range = (i128, i128);

/// Computes integers in narrower types.
pub fn narrow_integers(mut graph: Graph) -> Graph {
    let mut narrower = Narrower::default();
    for stage in &mut graph.stages {
        narrower.stage(stage);
    }
    graph
}

#[derive(Default)]
struct Narrower {
    /// The values of the elements of stages and of variables, where they are known.
    elements: FxHashMap<Buffer, Range>,
    vars: FxHashMap<Var, Range>,
    /// The tensors with narrower elements.
    narrowed: FxHashMap<Buffer, Buffer>,
    /// Results by node.
    ranges: Memo<Range>,
    done: Memo<Expr>,
    converted: [Memo<Option<Expr>>; TYPES.len()],
}

impl Narrower {
    fn stage(&mut self, stage: &mut Stage) {
        let axes: Vec<Axis> = stage.axes.iter().chain(stage.reduce_axes()).cloned().collect();
        for axis in &axes {
            if let (Some(min), Some(extent)) = (axis.min.as_int(), axis.extent.as_int()) {
                self.vars.insert(axis.var.clone(), (min, min + (extent - 1).max(0)));
            }
        }
        let dtype = stage.buffers[0].dtype;
        let simple = stage.buffers.len() == 1 && stage.recurrence.is_none();
        if simple && is_narrowable(dtype) {
            let range = self.values(&stage.body, dtype);
            self.elements.insert(stage.buffers[0].clone(), range);
            if !stage.output && stage.update.is_none() && self.narrow_stage(stage, range) {
                return;
            }
        }
        stage.body.map_exprs(&mut |expr| self.visit(expr));
    }

    /// Returns the values of the elements of a stage.
    fn values(&mut self, body: &Body, dtype: DType) -> Range {
        let all = dtype.int_range();
        let inside = |range: Range| if is_inside(range, all) { range } else { all };
        match body {
            Body::Map(values) => inside(self.range(&values[0])),
            Body::Reduce(reduction) => self.reduced(reduction, dtype).map_or(all, inside),
            Body::Sort(sort) => inside(self.range(&sort.values[0])),
        }
    }

    /// Returns the values that the accumulator of a sum, maximum or minimum takes; `None` if they
    /// are not known. A maximum whose identity is the least value of the type and that has a term
    /// is one of its terms.
    fn reduced(&mut self, reduction: &Reduction, dtype: DType) -> Option<Range> {
        let op = operation(reduction)?;
        let (term, start) = (&reduction.terms[0], reduction.identity[0].as_int()?);
        let (least, greatest) = self.range(term);
        let count = reduction
            .axes
            .iter()
            .try_fold(1i128, |count, axis| count.checked_mul(axis.extent.as_int()?.max(0)))?;
        match op {
            BinOp::Add => {
                let least = count.checked_mul(least.min(0))?.checked_add(start)?;
                Some((least, count.checked_mul(greatest.max(0))?.checked_add(start)?))
            }
            _ if is_identity(op, start, dtype) && has_terms(reduction) => Some((least, greatest)),
            _ => Some((least.min(start), greatest.max(start))),
        }
    }

    /// Gives a stage a narrower type, if all of it can be computed in that type.
    fn narrow_stage(&mut self, stage: &mut Stage, range: Range) -> bool {
        let old = stage.buffers[0].clone();
        let types = TYPES.iter().filter(|ty| ty.bits() < old.dtype.bits());
        for dtype in types.copied().filter(|ty| is_inside(range, ty.int_range())) {
            let Some(body) = self.body_in(&stage.body, old.dtype, dtype) else { continue };
            stage.body = body;
            let (shape, strides) = (old.shape.clone(), old.strides.clone());
            let new =
                Buffer::with_layout(&old.name, dtype, shape, old.scope, strides, old.buffering);
            stage.buffers = vec![new.clone()];
            self.narrowed.insert(old, new);
            return true;
        }
        false
    }

    fn body_in(&mut self, body: &Body, old: DType, new: DType) -> Option<Body> {
        match body {
            Body::Map(values) => Some(Body::Map(vec![self.convert(&values[0], new)?])),
            Body::Reduce(reduction) => {
                let op = operation(reduction)?;
                let start = reduction.identity[0].as_int()?;
                let start = match is_identity(op, start, old) && has_terms(reduction) {
                    true => identity(op, new),
                    false => start,
                };
                let term = self.convert(&reduction.terms[0], new)?;
                let mut reduction = reduction.clone();
                let combiner = &mut reduction.combiner;
                let var = |old: &Var| Var::new(old.name(), new);
                let (lhs, rhs) = (var(&combiner.lhs[0]), var(&combiner.rhs[0]));
                combiner.result = vec![Expr::binary(op, Expr::var(&lhs), Expr::var(&rhs))];
                combiner.identity = vec![Expr::int(new, identity(op, new))];
                (combiner.lhs, combiner.rhs) = (vec![lhs], vec![rhs]);
                reduction.condition = reduction.condition.as_ref().map(|cond| self.visit(cond));
                reduction.identity = vec![Expr::int(new, start)];
                reduction.terms = vec![term];
                for axis in &mut reduction.axes {
                    (axis.min, axis.extent) = (self.visit(&axis.min), self.visit(&axis.extent));
                }
                Some(Body::Reduce(reduction))
            }
            Body::Sort(_) => None,
        }
    }

    /// Rewrites an expression, whose type stays.
    fn visit(&mut self, expr: &Expr) -> Expr {
        if let Some(done) = self.done.get(expr) {
            return done.clone();
        }
        let result = match &expr.kind {
            ExprKind::Cast(a) => self.narrowed_below(expr.ty.dtype, a),
            ExprKind::Binary(op, a, b) if op.is_comparison() => self.comparison(*op, a, b),
            _ => None,
        };
        let result = result.unwrap_or_else(|| {
            let inner = map_children(expr, &mut |child| self.visit(child));
            match &inner.kind {
                ExprKind::Load { buffer, indices, .. } => match self.narrowed.get(buffer) {
                    Some(new) => Expr::cast(expr.ty.dtype, Expr::load(new, indices.clone())),
                    None => inner,
                },
                _ => inner,
            }
        });
        self.done.insert(expr, result.clone());
        result
    }

    /// Returns the conversion to the shorter type `to` of a computed integer, with the operations
    /// in a narrower type. Where the result is as long as before, a vector has no more lanes.
    fn narrowed_below(&mut self, to: DType, expr: &Expr) -> Option<Expr> {
        let wide = expr.ty.dtype;
        let shortens = is_narrowable(wide) && to.is_int() && to.bits() < wide.bits();
        if !shortens || !is_computed(expr) {
            return None;
        }
        let types = TYPES.iter().filter(|ty| (to.bits()..wide.bits()).contains(&ty.bits()));
        let narrow = types.copied().find_map(|ty| self.convert(expr, ty))?;
        Some(Expr::cast(to, narrow))
    }

    fn comparison(&mut self, op: BinOp, a: &Expr, b: &Expr) -> Option<Expr> {
        let wide = a.ty.dtype;
        // A comparison with an axis may become the bound of a loop.
        if !is_narrowable(wide) || [a, b].iter().any(|one| has_index(one, &mut NodeSet::default()))
        {
            return None;
        }
        TYPES
            .into_iter()
            .filter(|ty| ty.bits() < wide.bits())
            .find_map(|ty| Some(Expr::binary(op, self.convert(a, ty)?, self.convert(b, ty)?)))
    }

    /// Returns an integer in another type; `None` if an operation has operands or a result that the
    /// type does not hold.
    fn convert(&mut self, expr: &Expr, to: DType) -> Option<Expr> {
        if expr.ty.dtype == to {
            return Some(self.visit(expr));
        }
        let at = TYPES.iter().position(|ty| *ty == to)?;
        if let Some(done) = self.converted[at].get(expr) {
            return done.clone();
        }
        let fits = is_inside(self.range(expr), to.int_range());
        let result = if fits { self.convert_anew(expr, to) } else { None };
        self.converted[at].insert(expr, result.clone());
        result
    }

    fn convert_anew(&mut self, expr: &Expr, to: DType) -> Option<Expr> {
        use BinOp::{Add, BitAnd, BitOr, BitXor, FloorDiv, FloorMod, Max, Min, Mul, Shl, Shr, Sub};
        // x86 neither multiplies nor shifts bytes.
        let short = to.bits() == 8;
        match &expr.kind {
            ExprKind::Const(_) => Some(Expr::int(to, expr.as_int()?)),
            ExprKind::Cast(a) => {
                let own = self.range(expr);
                let keeps =
                    (a.ty.dtype.is_int() || a.ty.dtype == DType::Bool) && self.range(a) == own;
                if keeps && is_narrowable(a.ty.dtype) {
                    return self.convert(a, to);
                }
                let inner = self.visit(if keeps { a } else { expr });
                Some(Expr::cast(to, inner))
            }
            ExprKind::Binary(op, a, b) => {
                let has_form = match op {
                    Add | Sub | Min | Max | BitAnd | BitOr | BitXor => true,
                    Mul => !short,
                    FloorDiv | FloorMod => !short && b.as_int().is_some_and(|by| by > 0),
                    Shl | Shr => {
                        let bits = i128::from(to.bits());
                        !short && b.as_int().is_some_and(|by| (0..bits).contains(&by))
                    }
                    _ => false,
                };
                if !has_form {
                    return None;
                }
                Some(Expr::binary(*op, self.convert(a, to)?, self.convert(b, to)?))
            }
            ExprKind::Unary(op @ (UnOp::Neg | UnOp::Abs), a) => {
                Some(Expr::unary(*op, self.convert(a, to)?))
            }
            ExprKind::Select(cond, a, b) => {
                let (a, b) = (self.convert(a, to)?, self.convert(b, to)?);
                Some(Expr::select(self.visit(cond), a, b))
            }
            ExprKind::IfThenElse(cond, a, b) => {
                let (a, b) = (self.convert(a, to)?, self.convert(b, to)?);
                Some(Expr::if_then_else(self.visit(cond), a, b))
            }
            ExprKind::Load { buffer, indices, mask: None } => {
                let indices: Vec<Expr> = indices.iter().map(|index| self.visit(index)).collect();
                let load = match self.narrowed.get(buffer) {
                    Some(new) => Expr::load(new, indices),
                    None => self.visit(expr),
                };
                // A longer element leaves a vector with as few lanes as before.
                let is_short = load.ty.dtype.bits() <= to.bits();
                is_short.then(|| Expr::cast(to, load))
            }
            _ => None,
        }
    }

    /// Returns the values that an integer or condition can have.
    fn range(&mut self, expr: &Expr) -> Range {
        let all = type_range(expr.ty.dtype);
        if let Some(value) = expr.as_int() {
            return (value, value);
        }
        if let Some(range) = self.ranges.get(expr) {
            return *range;
        }
        // A result that does not fit wraps.
        let range = self.exact_range(expr).filter(|range| is_inside(*range, all)).unwrap_or(all);
        self.ranges.insert(expr, range);
        range
    }

    fn exact_range(&mut self, expr: &Expr) -> Option<Range> {
        if expr.ty.dtype.is_float() {
            return None;
        }
        match &expr.kind {
            ExprKind::Var(var) => self.vars.get(var).copied(),
            ExprKind::Load { buffer, .. } => self.elements.get(buffer).copied(),
            ExprKind::Cast(a) if !a.ty.dtype.is_float() && expr.ty.dtype != DType::Bool => {
                Some(self.range(a))
            }
            ExprKind::Unary(UnOp::Neg, a) => {
                let (low, high) = self.range(a);
                Some((-high, -low))
            }
            ExprKind::Unary(UnOp::Abs, a) => {
                let (low, high) = self.range(a);
                let least = if low <= 0 && 0 <= high { 0 } else { low.abs().min(high.abs()) };
                Some((least, low.abs().max(high.abs())))
            }
            ExprKind::Select(_, a, b) | ExprKind::IfThenElse(_, a, b) => {
                let (a, b) = (self.range(a), self.range(b));
                Some((a.0.min(b.0), a.1.max(b.1)))
            }
            ExprKind::Let(var, value, body) => {
                let value = self.range(value);
                self.vars.insert(var.clone(), value);
                Some(self.range(body))
            }
            // The amount is taken modulo the bits of the type.
            ExprKind::Binary(BinOp::Shl | BinOp::Shr, _, by)
                if by.as_int().is_none_or(|by| by >= expr.ty.dtype.bits().into()) =>
            {
                None
            }
            ExprKind::Binary(op, a, b) if !op.gives_bool() => {
                let (a, b) = (self.range(a), self.range(b));
                binary_range(*op, a, b)
            }
            _ => None,
        }
    }
}

/// Returns the values of an operation without a limit to its type.
fn binary_range(op: BinOp, a: Range, b: Range) -> Option<Range> {
    let constant = (b.0 == b.1).then_some(b.0);
    match op {
        BinOp::Add => Some((a.0 + b.0, a.1 + b.1)),
        BinOp::Sub => Some((a.0 - b.1, a.1 - b.0)),
        BinOp::Mul => {
            let mut products = Vec::with_capacity(4);
            for x in [a.0, a.1] {
                for y in [b.0, b.1] {
                    products.push(x.checked_mul(y)?);
                }
            }
            Some((*products.iter().min()?, *products.iter().max()?))
        }
        BinOp::Min => Some((a.0.min(b.0), a.1.min(b.1))),
        BinOp::Max => Some((a.0.max(b.0), a.1.max(b.1))),
        BinOp::FloorDiv => {
            let by = constant.filter(|by| *by > 0)?;
            Some((a.0.div_euclid(by), a.1.div_euclid(by)))
        }
        BinOp::FloorMod => {
            let by = constant.filter(|by| *by > 0)?;
            let one = a.0.div_euclid(by) == a.1.div_euclid(by);
            Some(if one { (a.0.rem_euclid(by), a.1.rem_euclid(by)) } else { (0, by - 1) })
        }
        BinOp::Shr => {
            let by = constant.filter(|by| (0..64).contains(by))?;
            Some((a.0 >> by, a.1 >> by))
        }
        BinOp::Shl => {
            let by = constant.filter(|by| (0..62).contains(by))?;
            Some((a.0.checked_mul(1 << by)?, a.1.checked_mul(1 << by)?))
        }
        // Bits that are not set in an operand that is not negative are not set in the result.
        BinOp::BitAnd if a.0 >= 0 && b.0 >= 0 => Some((0, a.1.min(b.1))),
        BinOp::BitAnd if a.0 >= 0 => Some((0, a.1)),
        BinOp::BitAnd if b.0 >= 0 => Some((0, b.1)),
        BinOp::BitOr | BinOp::BitXor if a.0 >= 0 && b.0 >= 0 => {
            let above = u128::try_from(a.1.max(b.1)).ok()?.checked_add(1)?.next_power_of_two();
            Some((0, i128::try_from(above).ok()? - 1))
        }
        _ => None,
    }
}

/// Whether integers of a type may be computed in another one.
fn is_narrowable(dtype: DType) -> bool {
    dtype.is_int() && dtype != DType::Index && dtype.bits() > 8
}

fn type_range(dtype: DType) -> Range {
    if dtype.is_float() { (0, 0) } else { dtype.int_range() }
}

fn is_inside((low, high): Range, (least, greatest): Range) -> bool {
    least <= low && high <= greatest
}

/// Returns the operation of a sum, maximum or minimum.
fn operation(reduction: &Reduction) -> Option<BinOp> {
    match &reduction.combiner.name[..] {
        "sum" => Some(BinOp::Add),
        "min" => Some(BinOp::Min),
        "max" => Some(BinOp::Max),
        _ => None,
    }
}

/// Returns the value that changes no other one.
fn identity(op: BinOp, dtype: DType) -> i128 {
    match op {
        BinOp::Min => dtype.int_range().1,
        BinOp::Max => dtype.int_range().0,
        _ => 0,
    }
}

fn is_identity(op: BinOp, value: i128, dtype: DType) -> bool {
    op != BinOp::Add && value == identity(op, dtype)
}

/// Whether every element has a term.
fn has_terms(reduction: &Reduction) -> bool {
    let some = |axis: &Axis| axis.extent.as_int().is_some_and(|extent| extent > 0);
    reduction.condition.is_none() && reduction.axes.iter().all(some)
}

/// Whether a value depends on an index other than by the elements that it reads.
fn has_index(expr: &Expr, seen: &mut NodeSet) -> bool {
    if !seen.insert(expr) {
        return false;
    }
    let mut found = expr.ty.dtype == DType::Index;
    if !found && !matches!(expr.kind, ExprKind::Load { .. }) {
        for_each_child(expr, &mut |child| found = found || has_index(child, seen));
    }
    found
}

/// Whether a value is the result of an operation, converted or not.
fn is_computed(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Cast(a) => is_narrowable(a.ty.dtype) && is_computed(a),
        ExprKind::Binary(..) | ExprKind::Unary(..) => true,
        ExprKind::Select(..) | ExprKind::IfThenElse(..) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_all_results() {
        use BinOp::{Add, BitAnd, BitOr, BitXor, FloorDiv, FloorMod, Max, Min, Mul, Shl, Shr, Sub};
        let ranges = [(-7, 5), (0, 0), (0, 9), (3, 8), (-6, -2), (4, 4), (-1, 12), (2, 2)];
        for op in [Add, Sub, Mul, Min, Max, FloorDiv, FloorMod, Shr, Shl, BitAnd, BitOr, BitXor] {
            for a in ranges {
                for b in ranges {
                    let Some((least, greatest)) = binary_range(op, a, b) else { continue };
                    for (x, y) in (a.0..=a.1).flat_map(|x| (b.0..=b.1).map(move |y| (x, y))) {
                        let result = match op {
                            Add => x + y,
                            Sub => x - y,
                            Mul => x * y,
                            Min => x.min(y),
                            Max => x.max(y),
                            FloorDiv => x.div_euclid(y),
                            FloorMod => x.rem_euclid(y),
                            Shr => x >> y,
                            Shl => x << y,
                            BitAnd => x & y,
                            BitOr => x | y,
                            _ => x ^ y,
                        };
                        let inside = (least..=greatest).contains(&result);
                        assert!(inside, "{op:?} {a:?} {b:?}: {x}, {y}");
                    }
                }
            }
        }
    }
}
