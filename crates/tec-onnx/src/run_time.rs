//! Operands that decide shapes but are known at run time only. Where the model declares the shape
//! of a result, their values follow from it, and the entry of the network refuses any others.

use std::collections::BTreeSet;

use crate::context::{Context, axes};
use crate::dim::{Dim, TOO_LARGE};
use crate::dtype::{DType, Val};
use crate::expr::E;
use crate::graph::{Def, Graph, T};
use crate::node::{Node, Outcome, Refusal};

/// The largest number of elements of an operand that is compared on entry.
const MAX_ELEMENTS: usize = 64;

/// The largest number of operators and operands of the elements of one operand.
const MAX_NODES: usize = 4000;

/// The largest number of sets of axes among which a value of run time chooses.
const MAX_CHOICES: usize = 16;

/// The largest number of sets of axes that are compared with a declared shape.
const MAX_SETS: usize = 20_000;

/// A condition on the inputs of the network, and the text of the error.
#[derive(Clone, Debug)]
pub(crate) struct Assertion {
    pub(crate) cond: E,
    pub(crate) text: String,
}

/// An extent in the declaration of a value; `None` is unknown.
pub(crate) type DeclaredShape = Vec<Option<Dim>>;

/// The elements of an operand: expressions over the inputs of the network, of type int64 if they
/// are integers.
pub(crate) struct Elements {
    pub(crate) list: Vec<E>,
}

fn int64(value: i64) -> E {
    E::int(value, DType::Int64)
}

/// A number that may depend on run-time integers, of type int64.
pub(crate) fn wide(dim: &Dim) -> E {
    E::dim(dim, DType::Int64)
}

fn equals(element: &E, value: &Dim) -> E {
    element.clone().bin("==", E::Idx(value.clone()))
}

/// Whether the element is the number of an axis, counted from the start or the end.
fn is_axis(element: &E, axis: usize, rank: usize) -> E {
    let (axis, rank) = (axis as i64, rank as i64);
    element.clone().bin("==", int64(axis)).bin("or", element.clone().bin("==", int64(axis - rank)))
}

impl Context {
    /// The declared shape of an output of the node, if all its extents are known.
    pub(crate) fn declared(&self, at: usize) -> Option<Vec<Dim>> {
        self.declared.get(at)?.as_ref()?.iter().cloned().collect()
    }

    /// The first declared shape of the outputs of the node, which have equal shapes.
    pub(crate) fn declared_any(&self) -> Option<Vec<Dim>> {
        (0..self.declared.len()).find_map(|at| self.declared(at))
    }

    /// Returns the elements of a short operand that is not constant.
    pub(crate) fn elements(&self, tensor: T, role: &str) -> Outcome<Elements> {
        let refuse = || Refusal::NotConstant(role.to_string(), tensor);
        let own = &self.graph[tensor];
        let len = own.len().filter(|len| *len <= MAX_ELEMENTS && own.shape.len() <= 1);
        let mut budget = MAX_NODES;
        let mut list = Vec::new();
        for at in 0..len.ok_or_else(refuse)? {
            let index = if own.shape.is_empty() { vec![] } else { vec![at as i64] };
            let element = inline(&self.graph, tensor, &index, &mut budget).ok_or_else(refuse)?;
            let narrow = own.dtype.is_int() && own.dtype != DType::Int64;
            list.push(if narrow { element.cast(DType::Int64) } else { element });
        }
        Ok(Elements { list })
    }

    /// Returns the elements if the operand is a short list that is not constant.
    pub(crate) fn run_time(&self, tensor: T, role: &str) -> Outcome<Option<Elements>> {
        match self.graph[tensor].vals {
            Some(_) => Ok(None),
            None => self.elements(tensor, role).map(Some),
        }
    }

    /// Returns the elements, constant or not.
    pub(crate) fn any_elements(&self, tensor: T, role: &str) -> Outcome<Elements> {
        let Some(vals) = &self.graph[tensor].vals else { return self.elements(tensor, role) };
        let dtype = self.graph[tensor].dtype;
        let literal = |value: &Val| match value {
            Val::Int(dim) => wide(dim),
            other => E::Lit(other.clone(), dtype),
        };
        Ok(Elements { list: vals.iter().map(literal).collect() })
    }

    /// Adds a condition that the entry of the network checks, unless it is known.
    pub(crate) fn assert(&mut self, cond: E, text: &str) -> Outcome<()> {
        match cond.eval(&self.graph, &|_| None) {
            Some(Val::Bool(true)) => Ok(()),
            Some(_) => Err(text.into()),
            None if cond.is_poison() => Err(TOO_LARGE.into()),
            None => {
                let clean = |c: char| if matches!(c, '"' | '\\' | '\n') { '?' } else { c };
                let text = format!("{}: {text}", crate::error::short(&self.hint));
                let text = text.chars().map(clean).collect();
                self.asserts.push(Assertion { cond, text });
                Ok(())
            }
        }
    }

    /// Requires an element of an input, by its number, to be one of some values.
    pub(crate) fn assert_element(
        &mut self,
        input: T,
        (at, rank): (usize, usize),
        allowed: &BTreeSet<i64>,
    ) {
        let index: Vec<E> = (0..rank).map(|_| E::Idx((at as i64).into())).collect();
        let element = E::Load(input, index);
        let any = allowed.iter().map(|value| equals(&element, &(*value).into()));
        let list: Vec<String> = allowed.iter().map(i64::to_string).collect();
        let text = format!("{}: element {at} must be {}", self.hint, list.join(" or "));
        let text = text.replace(['"', '\\', '\n'], "?");
        self.asserts.extend(E::any(any.collect()).map(|cond| Assertion { cond, text }));
    }

    /// Returns integers that are constant or, if the result declares them, equal to `declared`.
    pub(crate) fn declared_dims(
        &mut self,
        tensor: T,
        role: &str,
        declared: Option<Vec<Dim>>,
    ) -> Outcome<Vec<Dim>> {
        let Some(elements) = self.run_time(tensor, role)? else { return self.dims(tensor, role) };
        let refuse = || Refusal::NotConstant(role.to_string(), tensor);
        let declared = declared.ok_or_else(refuse)?;
        if declared.len() != elements.list.len() {
            return Err(refuse());
        }
        let conditions = elements.list.iter().zip(&declared).map(|(e, dim)| equals(e, dim));
        if let Some(cond) = E::all(conditions.collect()) {
            let list: Vec<String> =
                declared.iter().map(|dim| dim.text(&|_| String::new())).collect();
            self.assert(cond, &format!("{role} must be {}", list.join(", ")))?;
        }
        Ok(declared)
    }

    /// Returns an integer that is constant or, if the result declares it, equal to `declared`.
    pub(crate) fn declared_dim(
        &mut self,
        tensor: T,
        role: &str,
        declared: Option<Dim>,
    ) -> Outcome<Dim> {
        match &self.declared_dims(tensor, role, declared.map(|dim| vec![dim]))?[..] {
            [value] => Ok(value.clone()),
            _ => Err(format!("{role} must have one element").into()),
        }
    }

    /// Requires that axes are those of a tensor, each at most once.
    pub(crate) fn assert_axes(&mut self, named: &Elements, rank: usize) -> Outcome<()> {
        let mut conditions = Vec::new();
        for (at, element) in named.list.iter().enumerate() {
            let low = element.clone().bin(">=", int64(-(rank as i64)));
            let high = element.clone().bin("<", int64(rank as i64));
            conditions.extend([low, high]);
            for other in &named.list[..at] {
                let positive = |e: &E| e.clone().bin("%", int64(rank.max(1) as i64));
                conditions.push(positive(element).bin("!=", positive(other)));
            }
        }
        match E::all(conditions) {
            Some(cond) => self.assert(cond, "the axes must be different axes of the operand"),
            None => Ok(()),
        }
    }

    /// Requires that amounts are so small that sums of them fit 64 bits.
    pub(crate) fn assert_amounts(&mut self, amounts: &Elements, role: &str) -> Outcome<()> {
        let mut conditions = Vec::new();
        for element in &amounts.list {
            match element.eval(&self.graph, &|_| None).and_then(|value| value.as_int()) {
                Some(value) if value.unsigned_abs() <= 1 << 48 => {}
                _ => conditions.push(E::call("onnx.is_amount", [element.clone()])),
            }
        }
        match E::all(conditions) {
            Some(cond) => self.assert(cond, &format!("{role} must be at most 2^48")),
            None => Ok(()),
        }
    }

    /// Imports a node once for each choice of a value of run time: conditions of the choices, of
    /// which exactly one holds, and how to compute the results, which have equal shapes.
    pub(crate) fn choose<C>(
        &mut self,
        choices: Vec<(E, C)>,
        text: &str,
        make: &mut dyn FnMut(&mut Context, &C) -> Outcome<Vec<T>>,
    ) -> Outcome<Vec<T>> {
        let conditions: Vec<E> = choices.iter().map(|(cond, _)| cond.clone()).collect();
        let any = E::any(conditions).ok_or("no value gives the declared shape")?;
        self.assert(any, text)?;
        if let [(_, only)] = &choices[..] {
            return make(self, only);
        }
        let hint = self.hint.clone();
        let mut results = Vec::new();
        for (at, (_, choice)) in choices.iter().enumerate() {
            self.hint = format!("{hint}_choice{at}");
            results.push(make(self, choice)?);
        }
        self.hint = hint;
        let count = results.iter().map(Vec::len).min().unwrap_or(0);
        let mut chosen = Vec::new();
        for output in 0..count {
            let own: Vec<T> = results.iter().map(|list| list[output]).collect();
            let (shape, dtype) = (self.shape(own[0]), self.dtype(own[0]));
            if own.iter().any(|t| self.shape(*t) != shape || self.dtype(*t) != dtype) {
                return Err("the choices differ in shape".into());
            }
            let index = axes(&shape);
            let mut values = own.iter().map(|t| self.load(*t, index.clone())).rev();
            let last = values.next().ok_or("there is no choice")?;
            let others = choices.iter().rev().skip(1).zip(values);
            let body =
                others.fold(last, |rest, ((cond, _), value)| cond.clone().choose(value, rest));
            let part = if output == 0 { String::new() } else { format!("{output}") };
            chosen.push(self.compute(&part, dtype, shape, body)?);
        }
        Ok(chosen)
    }
}

impl Elements {
    /// The value of the first pair whose axis is `axis`, else the default; without axes, pair `axis`
    /// is that of the axis.
    pub(crate) fn of_axis(
        cx: &Context,
        values: &[E],
        named: Option<&Elements>,
        (axis, rank): (usize, usize),
        default: E,
    ) -> E {
        let Some(named) = named else { return values.get(axis).cloned().unwrap_or(default) };
        let literal = |e: &E| e.eval(&cx.graph, &|_| None).and_then(|value| value.as_int());
        let literals: Option<BTreeSet<i64>> =
            values.iter().chain([&default]).map(literal).collect();
        if literals.as_ref().is_some_and(|all| all.len() == 1) {
            return default;
        }
        let pairs = named.list.iter().zip(values).rev();
        let picked = pairs.fold(default, |rest, (element, value)| {
            let here = is_axis(element, axis, rank);
            match here.eval(&cx.graph, &|_| None) {
                Some(Val::Bool(true)) => value.clone(),
                Some(Val::Bool(false)) => rest,
                _ => here.choose(value.clone(), rest),
            }
        });
        // A choice of literals alone would be of type `index`.
        if literals.is_some() { picked.cast(DType::Int64) } else { picked }
    }

    /// The condition that the elements are the numbers of these axes in any order.
    pub(crate) fn are_axes(&self, over: &[usize], rank: usize) -> E {
        let named = over.iter().map(|axis| {
            let any = self.list.iter().map(|element| is_axis(element, *axis, rank)).collect();
            E::any(any).unwrap_or(E::flag(false))
        });
        E::all(named.collect()).unwrap_or(E::flag(true))
    }
}

/// Returns the sets of `count` axes of `rank` that are accepted. `None` if there are too many.
pub(crate) fn axis_sets(
    rank: usize,
    count: usize,
    accept: &dyn Fn(&[usize]) -> bool,
) -> Option<Vec<Vec<usize>>> {
    let mut found = Vec::new();
    let mut tried = 0;
    let mut set: Vec<usize> = (0..count).collect();
    if count > rank {
        return Some(found);
    }
    loop {
        tried += 1;
        if tried > MAX_SETS {
            return None;
        }
        if accept(&set) {
            found.push(set.clone());
            if found.len() > MAX_CHOICES {
                return None;
            }
        }
        // The next set in lexicographic order.
        let Some(at) = (0..count).rev().find(|at| set[*at] < rank - count + at) else {
            return Some(found);
        };
        set[at] += 1;
        for next in at + 1..count {
            set[next] = set[next - 1] + 1;
        }
    }
}

/// Whether a declared shape may be this one.
pub(crate) fn may_be(declared: Option<&DeclaredShape>, shape: &[Dim]) -> bool {
    let Some(declared) = declared else { return true };
    declared.len() == shape.len()
        && declared.iter().zip(shape).all(|(a, b)| a.as_ref().is_none_or(|a| a == b))
}

/// Returns an element as an expression over the inputs of the network.
fn inline(graph: &Graph, tensor: T, index: &[i64], budget: &mut usize) -> Option<E> {
    *budget = budget.checked_sub(1)?;
    let own = &graph[tensor];
    if let Some(vals) = &own.vals {
        let mut flat = 0;
        for (at, extent) in index.iter().zip(&own.shape) {
            let extent = extent.as_extent()?;
            let at = usize::try_from(*at).ok().filter(|at| *at < extent)?;
            flat = flat * extent + at;
        }
        return match vals.get(flat)? {
            Val::Int(dim) if own.dtype.is_int() => Some(E::dim(dim, own.dtype)),
            value => Some(E::Lit(value.clone(), own.dtype)),
        };
    }
    match &own.def {
        Def::Input => {
            let inside = index.iter().zip(&own.shape).all(|(at, extent)| {
                extent.as_const().is_some_and(|extent| (0..extent).contains(at))
            });
            let index = index.iter().map(|at| E::Idx((*at).into())).collect();
            inside.then_some(E::Load(tensor, index))
        }
        Def::Compute { body, reduce: None } => inlined(graph, body, index, budget),
        _ => None,
    }
}

/// Returns an expression of a stage at constant axes, over the inputs of the network.
fn inlined(graph: &Graph, e: &E, index: &[i64], budget: &mut usize) -> Option<E> {
    *budget = budget.checked_sub(1)?;
    let mut part = |e: &E| inlined(graph, e, index, budget);
    let result = match e {
        E::Idx(dim) => {
            let value = dim.at(&|id| index.get(usize::from(id)).copied().map(Dim::from));
            return (!value.is_poison()).then_some(E::Idx(value));
        }
        E::Lit(..) => return Some(e.clone()),
        E::Load(tensor, at) => {
            let mut place = Vec::new();
            for e in at {
                place.push(part(e)?.eval(graph, &|_| None)?.as_int()?);
            }
            return inline(graph, *tensor, &place, budget);
        }
        E::Un(op, a) => part(a)?.un(op),
        E::Bin(op, a, b) => E::Bin(op, part(a)?.into(), part(b)?.into()),
        E::If(c, a, b) => {
            let condition = part(c)?;
            match condition.eval(graph, &|_| None) {
                Some(Val::Bool(true)) => return part(a),
                Some(Val::Bool(false)) => return part(b),
                _ => condition.choose(part(a)?, part(b)?),
            }
        }
        E::Cast(a, dtype) => part(a)?.cast(*dtype),
        E::Call(name, args) => E::Call(name, args.iter().map(part).collect::<Option<_>>()?),
    };
    Some(result)
}

/// The elements of an optional operand of axes, and their number, if it is not constant.
pub(crate) fn run_time_axes(cx: &Context, node: &Node, at: usize) -> Outcome<Option<Elements>> {
    match node.optional(at) {
        Some(axes) => cx.run_time(axes, "the axes"),
        None => Ok(None),
    }
}
