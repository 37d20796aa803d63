//! `If`: the branch of a constant condition, both branches of one of run time, or the branch that a
//! network is for.

use crate::context::{Assumptions, axes};
use crate::dim::Dim;
use crate::dtype::{DType, Val};
use crate::error::Error;
use crate::expr::E;
use crate::graph::{Def, Graph, T};
use crate::import::{Importer, Refused};
use crate::node::{Node, Outcome, Refusal};
use crate::proto::{GraphProto, NodeProto};
use crate::run_time::Assertion;
use std::collections::{BTreeSet, HashSet};
use std::mem;

/// An equality of sizes that are known at run time, or its negation.
#[derive(Clone)]
struct Equality {
    a: Dim,
    b: Dim,
    negated: bool,
}

/// The longest chain of operators between a comparison and its `If`.
const MAX_DEPTH: usize = 32;

impl Equality {
    /// Returns the meaning of a condition of one element, behind at most `depth` operators.
    fn of(graph: &Graph, condition: T, depth: usize) -> Option<Equality> {
        match &graph[condition].def {
            Def::Compute { body, reduce: None } if depth > 0 => {
                Equality::of_body(graph, body, depth - 1)
            }
            _ => None,
        }
    }

    fn of_body(graph: &Graph, body: &E, depth: usize) -> Option<Equality> {
        match body {
            E::Load(tensor, _) if graph[*tensor].len() == Some(1) => {
                Equality::of(graph, *tensor, depth)
            }
            E::Cast(inner, _) => Equality::of_body(graph, inner, depth),
            E::Un("not", inner) => {
                let own = Equality::of_body(graph, inner, depth)?;
                Some(Equality { negated: !own.negated, ..own })
            }
            E::Bin(op @ ("==" | "!="), a, b) => {
                let size = |e: &E| match e.eval(graph, &|_| None)? {
                    Val::Int(dim) => Some(dim),
                    _ => None,
                };
                if let (Some(a), Some(b)) = (size(a), size(b)) {
                    return Some(Equality { a, b, negated: *op == "!=" });
                }
                // A comparison with a truth value, also as an integer.
                let (own, Val::Bool(value)) =
                    (Equality::of_body(graph, a, depth)?, truth(graph, b)?)
                else {
                    return None;
                };
                Some(Equality { negated: own.negated ^ !value ^ (*op == "!="), ..own })
            }
            _ => None,
        }
    }
}

/// Returns the truth value that an expression is, if it is constant.
fn truth(graph: &Graph, e: &E) -> Option<Val> {
    match e.eval(graph, &|_| None)? {
        Val::Int(dim) if matches!(dim.as_const(), Some(0 | 1)) => {
            Some(Val::Bool(dim.as_const() == Some(1)))
        }
        Val::Bool(value) => Some(Val::Bool(value)),
        _ => None,
    }
}

/// What the importer found while it imported a branch.
struct Findings {
    asserts: Vec<Assertion>,
    assumptions: Assumptions,
    refused: Refused,
    not_constant: BTreeSet<T>,
}

impl Findings {
    /// Whether the branch has conditions that a call must satisfy.
    fn has_checks(&self) -> bool {
        !self.asserts.is_empty() || !self.assumptions.is_empty()
    }
}

/// A branch: its results, or why it has none, and what was found.
struct Branch {
    results: Outcome<Vec<T>>,
    findings: Findings,
}

/// The graphs that are attributes of a node.
fn graphs(node: &NodeProto) -> impl Iterator<Item = &GraphProto> {
    node.attribute.iter().flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs))
}

/// The values of a graph that are read as tables of angles only. Models for long texts choose
/// between two tables by the number of tokens.
pub(crate) fn tables(graph: &GraphProto) -> HashSet<&str> {
    let is_table = |node: &NodeProto, at: usize| match node.op_type.as_deref() {
        Some("GroupQueryAttention") => (7..=8).contains(&at),
        Some("RotaryEmbedding") if node.domain.as_deref() == Some("com.microsoft") => {
            (2..=3).contains(&at)
        }
        _ => false,
    };
    let (mut tables, mut others) = (HashSet::new(), HashSet::new());
    for node in &graph.node {
        for (at, name) in node.input.iter().enumerate() {
            let list = if is_table(node, at) { &mut tables } else { &mut others };
            list.insert(&name[..]);
        }
    }
    others.extend(graph.output.iter().filter_map(|output| output.name.as_deref()));
    let mut inner: Vec<&GraphProto> = graph.node.iter().flat_map(graphs).collect();
    while let Some(graph) = inner.pop() {
        others.extend(graph.node.iter().flat_map(|node| &node.input).map(String::as_str));
        inner.extend(graph.node.iter().flat_map(graphs));
    }
    tables.retain(|name| !others.contains(name));
    tables
}

impl<'a> Importer<'a> {
    /// Imports the branch of a constant condition. If the condition is of run time, both branches
    /// are computed if their results have equal shapes. Otherwise an equality of sizes decides for
    /// which calls the network is.
    pub(crate) fn branch(&mut self, node: &Node<'a>) -> Result<Outcome<Vec<T>>, Error> {
        let condition = match node.input(0) {
            Ok(condition) => condition,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let body = |name| node.attribute(name).and_then(|body| body.g.as_ref());
        let bodies = [("then_branch", true), ("else_branch", false)];
        let equality = Equality::of(&self.context.graph, condition, MAX_DEPTH);
        let known = match (self.context.graph.scalar(condition), &equality) {
            (Some(Val::Bool(taken)), _) => Some(*taken),
            (_, Some(Equality { a, b, negated })) if self.context.is_equal(a, b) => Some(!negated),
            (_, Some(Equality { a, b, negated })) if self.context.is_unequal(a, b) => {
                Some(*negated)
            }
            _ => None,
        };
        let mut branches = Vec::new();
        for (name, taken) in bodies {
            match (body(name), known) {
                (Some(body), Some(known)) if known == taken => return self.body(body, &[]),
                (_, Some(known)) if known != taken => {}
                (Some(body), _) => branches.push(self.trial(body)?),
                (None, _) => return Ok(Err("the branch is missing".into())),
            }
        }
        let Ok([yes, no]) = <[Branch; 2]>::try_from(branches) else {
            return Ok(Err("the branch is missing".into()));
        };
        let [mut yes, mut no] = [yes, no];
        if node.outputs.iter().all(|name| name.is_empty() || self.tables.contains(name)) {
            self.extend_tables(&mut yes, &mut no);
        }
        if let (Ok(a), Ok(b)) = (&yes.results, &no.results)
            && self.context.graph[condition].len() == Some(1)
            && self.are_of_one_type(a, b)
            // A check of one branch would be one of each call.
            && !yes.findings.has_checks()
            && !no.findings.has_checks()
        {
            return Ok(self.choose_by_element(condition, a, b));
        }
        let Some(Equality { a, b, negated }) = equality else {
            // The reason of a branch says more than that there are two.
            let refused = [yes, no].into_iter().find(|branch| branch.results.is_err());
            let Some(refused) = refused else {
                return Ok(Err(Refusal::NotConstant("the condition".to_string(), condition)));
            };
            return Ok(self.accept(refused));
        };
        // `x.squeeze(axis)` of PyTorch drops the axis if its extent is 1. Whoever wrote it expects
        // that, and the operators behind it need the rank that `x` has then.
        let taken = match [&yes, &no].map(|branch| self.has_declared_rank(branch)) {
            [true, false] => true,
            [false, true] => false,
            _ => !negated,
        };
        let results = self.accept(if taken { yes } else { no });
        if results.is_ok() {
            if taken == negated {
                self.context.assumptions.insert((a, "!=", b));
            } else if let Err(refusal) = self.context.require_equal(&a, &b) {
                return Ok(Err(refusal));
            }
        }
        Ok(results)
    }

    /// Imports a branch, and keeps what is found in it apart.
    fn trial(&mut self, body: &'a GraphProto) -> Result<Branch, Error> {
        let refused = mem::take(&mut self.refused);
        let not_constant = mem::take(&mut self.not_constant);
        let (asserts, assumptions) = (self.context.asserts.len(), self.context.assumptions.len());
        let hint = self.context.hint.clone();
        let declared = self.context.declared.clone();
        let results = self.body(body, &[])?;
        self.context.hint = hint;
        self.context.declared = declared;
        let findings = Findings {
            asserts: self.context.asserts.split_off(asserts),
            assumptions: self.context.assumptions.split_off(assumptions),
            refused: mem::replace(&mut self.refused, refused),
            not_constant: mem::replace(&mut self.not_constant, not_constant),
        };
        Ok(Branch { results, findings })
    }

    /// Takes a branch as the one that is always taken.
    fn accept(&mut self, branch: Branch) -> Outcome<Vec<T>> {
        let Findings { asserts, assumptions, refused, not_constant } = branch.findings;
        self.context.asserts.extend(asserts);
        self.context.assumptions.extend(assumptions);
        self.refused.extend(refused);
        self.not_constant.extend(not_constant);
        branch.results
    }

    /// Whether the results of a branch have the ranks that the model declares for those of the
    /// node.
    fn has_declared_rank(&self, branch: &Branch) -> bool {
        let cx = &self.context;
        branch.results.as_ref().is_ok_and(|results| {
            results.iter().zip(&cx.declared).all(|(tensor, declared)| {
                declared.as_ref().is_none_or(|shape| shape.len() == cx.rank(*tensor))
            })
        })
    }

    /// Gives tables of angles of two branches as many rows. The rows that one lacks are NaN: its
    /// readers have no position there.
    fn extend_tables(&mut self, yes: &mut Branch, no: &mut Branch) {
        let (Ok(yes), Ok(no)) = (&mut yes.results, &mut no.results) else { return };
        for (yes, no) in yes.iter_mut().zip(no) {
            let rows =
                |tensor: T| match (&self.context.graph[tensor].def, self.context.rank(tensor)) {
                    (Def::Data(_), 2) => self.context.shape(tensor)[0].as_const(),
                    _ => None,
                };
            let (Some(many), Some(few)) = (rows(*yes), rows(*no)) else { continue };
            let (short, rows) = if many > few { (no, many) } else { (yes, few) };
            if many != few
                && let Some(longer) = self.extended(*short, rows)
            {
                *short = longer;
            }
        }
    }

    /// A table with more rows, which are NaN.
    fn extended(&mut self, table: T, rows: i64) -> Option<T> {
        let own = &self.context.graph[table];
        let Def::Data(data) = &own.def else { return None };
        let nan: &[u8] = match own.dtype {
            DType::Float32 => &[0, 0, 0xc0, 0x7f],
            DType::Float16 => &[0, 0x7e],
            DType::BFloat16 => &[0xc0, 0x7f],
            _ => return None,
        };
        let (dtype, columns) = (own.dtype, own.shape.get(1)?.as_const()?);
        let len = usize::try_from(rows.checked_mul(columns)?).ok()?.checked_mul(nan.len())?;
        let mut all = data.to_vec();
        all.extend(nan.iter().cycle().take(len.checked_sub(data.len())?));
        let name = own.name.clone();
        let hint = mem::replace(&mut self.context.hint, name);
        let longer =
            self.context.data("extended", dtype, vec![rows.into(), columns.into()], all.into());
        self.context.hint = hint;
        longer.ok()
    }

    /// Whether results of two branches have equal shapes and types that a stage can have.
    fn are_of_one_type(&self, yes: &[T], no: &[T]) -> bool {
        let cx = &self.context;
        let is_plain = |t: &T| cx.narrow(*t).is_none() && !cx.specials.contains_key(t);
        yes.len() == no.len()
            && yes.iter().chain(no).all(is_plain)
            && yes
                .iter()
                .zip(no)
                .all(|(yes, no)| cx.shape(*yes) == cx.shape(*no) && cx.dtype(*yes) == cx.dtype(*no))
    }

    /// Chooses between the results of two branches by element.
    fn choose_by_element(&mut self, condition: T, yes: &[T], no: &[T]) -> Outcome<Vec<T>> {
        let cx = &mut self.context;
        let mut chosen = Vec::new();
        for (at, (yes, no)) in yes.iter().zip(no).enumerate() {
            let (shape, dtype) = (cx.shape(*yes), cx.dtype(*yes));
            let index = axes(&shape);
            let flag = cx.load(condition, vec![Dim::zero(); cx.rank(condition)]);
            let body = flag.choose(cx.load(*yes, index.clone()), cx.load(*no, index));
            let part = if at == 0 { String::new() } else { at.to_string() };
            let result = cx.compute(&part, dtype, shape, body)?;
            cx.choices.insert(result, (condition, *yes, *no));
            chosen.push(result);
        }
        Ok(chosen)
    }
}
