//! Combiners: the built-in ones, and `reducer` items instantiated for element types.
//!
//! `argmax` and `argmin` keep the first of equal values in reduction order. Their identity is the
//! pair of index −1 (unsigned types: the largest value) and −∞ or +∞, which is the result of an
//! empty reduction. A value equal to that of the identity replaces it, so a row of −∞ gives the
//! index of its first element. NaN is never selected.

use super::Elaborator;
use super::expressions::{Env, Locals};
use super::functions::{Builtin, limit_of};
use super::values::{SourceType, Typed, Value};
use crate::diag::Diag;
use crate::ir::arith::Facts;
use crate::ir::simplify::simplify_expr;
use crate::ir::{BinOp, DType, Expr, ExprKind, Var};
use crate::lang::ast;
use crate::te::{Combiner, check_reducer};
use rustc_hash::{FxHashMap, FxHashSet};

/// Reducers with the component types that they were checked for: whether they are commutative, or
/// `None` if they are wrong.
pub type CheckedReducers = FxHashMap<(*const ast::Reducer, Vec<DType>), Option<bool>>;

/// The function of a reduction.
#[derive(Clone, Copy)]
pub enum ReducerKind<'a> {
    /// `sum`.
    Sum,
    /// `prod`.
    Prod,
    /// `min`.
    Min,
    /// `max`.
    Max,
    /// `any`.
    Any,
    /// `all`.
    All,
    /// `argmax`.
    ArgMax,
    /// `argmin`.
    ArgMin,
    /// A `reducer` item.
    Custom(&'a ast::Reducer),
}

impl<'a> ReducerKind<'a> {
    /// Returns the built-in reduction of this name.
    pub fn from_name(name: &str) -> Option<ReducerKind<'a>> {
        Some(match name {
            "sum" => ReducerKind::Sum,
            "prod" => ReducerKind::Prod,
            "min" => ReducerKind::Min,
            "max" => ReducerKind::Max,
            "any" => ReducerKind::Any,
            "all" => ReducerKind::All,
            "argmax" => ReducerKind::ArgMax,
            "argmin" => ReducerKind::ArgMin,
            _ => return None,
        })
    }

    /// Returns the number of components of a reduced value.
    pub fn components(&self) -> usize {
        match self {
            ReducerKind::ArgMax | ReducerKind::ArgMin => 2,
            ReducerKind::Custom(reducer) => reducer.lhs.len(),
            _ => 1,
        }
    }

    /// Returns the values that component `i` takes, if it cannot be `dtype`.
    pub fn refuses(&self, i: usize, dtype: DType) -> Option<&'static str> {
        let number = dtype != DType::Bool;
        let (fits, wanted) = match self {
            ReducerKind::Sum | ReducerKind::Prod => (number && !dtype.is_half(), "numbers"),
            ReducerKind::Min | ReducerKind::Max => (number, "numbers"),
            ReducerKind::Any | ReducerKind::All => (!number, "conditions"),
            ReducerKind::ArgMax | ReducerKind::ArgMin if i == 0 => {
                (dtype.is_int(), "pairs of index and value")
            }
            ReducerKind::ArgMax | ReducerKind::ArgMin => (number, "pairs of index and value"),
            ReducerKind::Custom(_) => (!dtype.is_half(), "other types"),
        };
        (!fits).then_some(wanted)
    }
}

impl<'a> Elaborator<'a> {
    /// Makes the combiner of a reduction of these element types.
    pub fn combiner(
        &mut self,
        kind: &ReducerKind<'a>,
        name: &'a ast::Name,
        term: &'a ast::Expr,
        dtypes: &[DType],
    ) -> Option<Combiner> {
        self.check_reduced_type(kind, name, term, dtypes)?;
        match kind {
            ReducerKind::Custom(reducer) => {
                self.calls.push((name.span, name.text.clone()));
                let combiner = self.custom_combiner(reducer, dtypes);
                self.calls.pop();
                combiner
            }
            _ => Some(built_in(kind, &name.text, dtypes)),
        }
    }

    /// Instantiates a `reducer` for component types; checks it once for each.
    fn custom_combiner(&mut self, reducer: &'a ast::Reducer, dtypes: &[DType]) -> Option<Combiner> {
        let key = (std::ptr::from_ref(reducer), dtypes.to_vec());
        if self.wrong_reducers.contains(&key.0) {
            return None;
        }
        if let Some(None) = self.checked_reducers.get(&key) {
            return None;
        }
        let combiner = self.instantiate(reducer, dtypes);
        let Some(mut combiner) = combiner else {
            self.checked_reducers.insert(key, None);
            return None;
        };
        if let Some(Some(commutative)) = self.checked_reducers.get(&key) {
            combiner.commutative = *commutative;
            return Some(combiner);
        }
        match check_reducer(&mut combiner) {
            Ok(()) => {
                self.checked_reducers.insert(key, Some(combiner.commutative));
                Some(combiner)
            }
            Err(why) => {
                let message = format!("reducer `{}`: {why}", reducer.name.text);
                self.error(Diag::new("E0229", reducer.name.span, message));
                self.checked_reducers.insert(key, None);
                None
            }
        }
    }

    fn instantiate(&mut self, reducer: &'a ast::Reducer, dtypes: &[DType]) -> Option<Combiner> {
        let mut locals = Locals::default();
        let mut make = |names: &'a [ast::Name]| -> Vec<Var> {
            let typed = names.iter().zip(dtypes).map(|(name, dtype)| {
                let var = Var::new(&name.text, dtype.compute_type());
                let ty = SourceType::Data(*dtype);
                let value = Value::Scalar(Typed::new(ty, Expr::var(&var), 0));
                locals.insert(&name.text, value);
                var
            });
            typed.collect()
        };
        let (lhs, rhs) = (make(&reducer.lhs), make(&reducer.rhs));
        let result = self.reducer_parts(&reducer.result, dtypes, |_| locals.clone())?;
        let identity = self.reducer_parts(&reducer.identity, dtypes, identity_names)?;
        let facts = Facts::new();
        let identity: Vec<Expr> = identity.iter().map(|expr| simplify_expr(expr, &facts)).collect();
        for (expr, part) in identity.iter().zip(&reducer.identity) {
            if !matches!(expr.kind, ExprKind::Const(_)) {
                let message = "the identity of a reducer must be a constant";
                self.error(Diag::new("E0211", part.span, message));
                return None;
            }
        }
        let domain = match &reducer.domain {
            None => None,
            Some(domain) => Some(self.reducer_domain(domain, &locals)?),
        };
        let name = reducer.name.text.clone();
        Some(Combiner {
            name,
            lhs,
            rhs,
            result,
            identity,
            domain,
            commutative: false,
            exact: false,
            in_order: None,
        })
    }

    /// Evaluates the `where` of a reducer, over the components of the first operand.
    fn reducer_domain(&mut self, domain: &'a ast::Expr, locals: &Locals<'a>) -> Option<Expr> {
        let value = self.eval_whole(domain, Env { scope: None, locals, element: false, at: None });
        let value = self.number(value, domain);
        Some(self.condition((&value, domain))?.expr)
    }

    fn reducer_parts(
        &mut self,
        parts: &'a [ast::Expr],
        dtypes: &[DType],
        names: impl Fn(DType) -> Locals<'a>,
    ) -> Option<Vec<Expr>> {
        let mut exprs = Vec::new();
        for (part, dtype) in parts.iter().zip(dtypes) {
            let locals = names(*dtype);
            let value = self
                .eval_whole(part, Env { scope: None, locals: &locals, element: false, at: None });
            let value = self.number(value, part);
            let typed = self.adapt((&value, part), SourceType::Data(*dtype));
            exprs.push(typed.map(|typed| typed.expr));
        }
        exprs.into_iter().collect()
    }

    /// Checks everything that does not depend on types.
    pub fn check_reducer_names(&mut self, reducer: &'a ast::Reducer) {
        let errors = self.diags.len();
        let params: Vec<&'a ast::Name> = reducer.lhs.iter().chain(&reducer.rhs).collect();
        self.check_params(&params);
        for part in &reducer.result {
            self.check_body(part, params.iter().map(|param| param.text.as_str()));
        }
        for part in &reducer.identity {
            self.check_body(part, ["min_value", "max_value", "inf"]);
        }
        if let Some(domain) = &reducer.domain {
            self.check_body(domain, reducer.lhs.iter().map(|param| param.text.as_str()));
        }
        if self.diags.len() > errors {
            self.wrong_reducers.insert(reducer);
        }
    }

    /// Checks the reducers of the file that no kernel uses.
    pub fn check_unused_reducers(&mut self) {
        let Some(file) = self.program.files.first() else { return };
        let mut known: FxHashSet<*const ast::Reducer> = self.wrong_reducers.clone();
        known.extend(self.checked_reducers.keys().map(|(reducer, _)| *reducer));
        for item in &file.items {
            let ast::Item::Reducer(reducer) = item else { continue };
            if !known.contains(&std::ptr::from_ref(reducer)) {
                self.check_unused(reducer);
            }
        }
    }

    /// Checks an unused reducer, which is correct if it is correct for some types. A wrong one is
    /// reported for the first types that it can be instantiated for.
    fn check_unused(&mut self, reducer: &'a ast::Reducer) {
        let n = reducer.lhs.len();
        let (mut wrong, mut tried) = (None, 0);
        for dtypes in type_choices(n) {
            let combiner = self.quietly(|this| this.instantiate(reducer, &dtypes));
            let Some(mut combiner) = combiner else { continue };
            if check_reducer(&mut combiner).is_ok() {
                return;
            }
            wrong.get_or_insert(dtypes);
            tried += 1;
            if tried == MAX_TRIED {
                break;
            }
        }
        self.custom_combiner(reducer, &wrong.unwrap_or(vec![DType::Float32; n]));
    }
}

/// The largest number of types that are tried for an unused reducer.
const MAX_TRIED: usize = 64;

/// Returns the component types to try for an unused reducer, likely ones first: every combination
/// of up to three components; further components have the type of the third.
fn type_choices(components: usize) -> impl Iterator<Item = Vec<DType>> {
    use DType::*;
    const TYPES: [DType; 11] =
        [Float32, Int32, Bool, Int64, Float64, Uint8, Int8, Uint32, Uint64, Int16, Uint16];
    let free = components.min(3) as u32;
    let digit = move |number: usize, i: usize| number / TYPES.len().pow(i as u32) % TYPES.len();
    let mut numbers: Vec<usize> = (0..TYPES.len().pow(free)).collect();
    // Order by the least likely type.
    numbers.sort_by_key(|number| (0..free as usize).map(|i| digit(*number, i)).max());
    numbers.into_iter().map(move |number| {
        (0..components).map(|i| TYPES[digit(number, i.min(free as usize - 1))]).collect()
    })
}

/// `min_value`, `max_value` and `inf` of a component's type, as bare names.
fn identity_names<'a>(dtype: DType) -> Locals<'a> {
    let limits =
        [("min_value", Builtin::MinValue), ("max_value", Builtin::MaxValue), ("inf", Builtin::Inf)];
    let of = |(name, builtin)| Some((name, Value::Scalar(limit_of(builtin, dtype)?)));
    limits.into_iter().filter_map(of).collect()
}

fn built_in(kind: &ReducerKind<'_>, name: &str, dtypes: &[DType]) -> Combiner {
    if let ReducerKind::ArgMax | ReducerKind::ArgMin = kind {
        return arg_combiner(matches!(kind, ReducerKind::ArgMax), name, dtypes);
    }
    let dtype = dtypes[0].compute_type();
    let (lhs, rhs) = (Var::new("a", dtype), Var::new("b", dtype));
    let (a, b) = (Expr::var(&lhs), Expr::var(&rhs));
    let number = |value: i64| match dtype.is_float() {
        true => Expr::float(dtype, value as f64),
        false => Expr::int(dtype, i128::from(value)),
    };
    let (op, identity) = match kind {
        ReducerKind::Sum => (BinOp::Add, number(0)),
        ReducerKind::Prod => (BinOp::Mul, number(1)),
        ReducerKind::Min => (BinOp::Min, extreme(dtype, false)),
        ReducerKind::Max => (BinOp::Max, extreme(dtype, true)),
        // All terms are evaluated, so that vectors read them without masks.
        ReducerKind::Any => (BinOp::BitOr, Expr::bool(false)),
        ReducerKind::All => (BinOp::BitAnd, Expr::bool(true)),
        ReducerKind::ArgMax | ReducerKind::ArgMin | ReducerKind::Custom(_) => {
            crate::bug!("{name} is not a simple reduction")
        }
    };
    Combiner {
        name: name.to_string(),
        lhs: vec![lhs],
        rhs: vec![rhs],
        result: vec![Expr::binary(op, a, b)],
        identity: vec![identity],
        domain: None,
        commutative: true,
        exact: false,
        in_order: None,
    }
}

/// Returns the identity: −∞ or the smallest value for a maximum, else +∞ or the largest.
fn extreme(dtype: DType, of_max: bool) -> Expr {
    if dtype.is_float() {
        return Expr::float(dtype, if of_max { f64::NEG_INFINITY } else { f64::INFINITY });
    }
    let (min, max) = dtype.int_range();
    Expr::int(dtype, if of_max { min } else { max })
}

/// Returns the combiner of `argmax` or `argmin`, of positions and values of these types.
pub fn arg_combiner(of_max: bool, name: &str, dtypes: &[DType]) -> Combiner {
    let (index, value) = (dtypes[0], dtypes[1].compute_type());
    let vars = |x: &str| vec![Var::new(format!("{x}i"), index), Var::new(format!("{x}v"), value)];
    let (lhs, rhs) = (vars("a"), vars("b"));
    let [ai, av, bi, bv] = [&lhs[0], &lhs[1], &rhs[0], &rhs[1]].map(Expr::var);
    let none = Expr::int(index, -1);
    let op = if of_max { BinOp::Gt } else { BinOp::Lt };
    let better = Expr::binary(op, bv.clone(), av.clone());
    let first = Expr::and(Expr::eq(ai.clone(), none.clone()), Expr::eq(bv.clone(), av.clone()));
    let takes = Expr::or(better, first);
    Combiner {
        name: name.to_string(),
        lhs,
        rhs,
        result: vec![Expr::select(takes.clone(), bi, ai), Expr::select(takes, bv, av)],
        identity: vec![none, extreme(value, of_max)],
        domain: None,
        commutative: false,
        exact: true,
        in_order: None,
    }
}
