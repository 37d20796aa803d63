//! Ensembles of decision trees.

use std::collections::HashMap;

use super::classify::{column, greatest, label_at, labels, pair, transformed};
use super::{add_row, flags, floats, ints, matrix, numbers};
use crate::context::{Context, axes, reduce_axis};
use crate::dtype::DType;
use crate::expr::E;
use crate::graph::T;
use crate::node::{Node, Outcome};

/// The largest number of elements of the table of weights.
const MAX_WEIGHTS: usize = 1 << 26;

/// How a node compares an element with its value.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Leaf,
    Below,
    BelowOrEqual,
    Above,
    AboveOrEqual,
    Equal,
    Different,
}

/// The nodes of all trees.
struct Forest {
    features: Vec<i64>,
    values: Vec<f64>,
    modes: Vec<Mode>,
    /// The nodes after the comparison, by number among all nodes.
    yes: Vec<usize>,
    no: Vec<usize>,
    /// Whether NaN takes the first way.
    nan: Vec<bool>,
    roots: Vec<usize>,
}

/// The number of each node by its tree and number in the tree.
type Numbers = HashMap<(i64, i64), usize>;

/// A weight that a leaf adds to a target.
struct Weight {
    node: usize,
    target: usize,
    value: f64,
}

impl Forest {
    /// The number of comparisons of the longest way; an error if nodes form a cycle.
    fn depth(&self) -> Outcome<usize> {
        let mut level = self.roots.clone();
        let mut seen = vec![false; self.modes.len()];
        let mut depth = 0;
        while !level.is_empty() {
            let mut next = Vec::new();
            for node in level {
                if std::mem::replace(&mut seen[node], true) {
                    return Err("a node of a tree is reached twice".into());
                }
                if self.modes[node] != Mode::Leaf {
                    next.extend([self.yes[node], self.no[node]]);
                }
            }
            level = next;
            depth += usize::from(!level.is_empty());
        }
        Ok(depth)
    }

    /// The number of the leaf of each row and tree.
    fn leaves(&self, cx: &mut Context, x: T) -> Outcome<T> {
        let depth = self.depth()?.max(1);
        let dtype = cx.dtype(x);
        let features = cx.shape(x)[1].clone();
        let count = self.modes.len();
        i32::try_from(count).map_err(|_| "there are too many nodes")?;
        let most = self.features.iter().copied().max().unwrap_or(0);
        if self.features.iter().any(|f| *f < 0 || i32::try_from(*f).is_err()) {
            return Err("the number of a feature is out of range".into());
        }
        match features.as_extent() {
            Some(n) if most < n as i64 => {}
            Some(_) => return Err("a node reads a feature that the operand does not have".into()),
            None => {
                cx.assumptions.insert((features, ">=", (most + 1).into()));
            }
        }
        let (mut yes, mut no, mut nan) = (self.yes.clone(), self.no.clone(), self.nan.clone());
        let (mut values, mut equal) = (self.values.clone(), vec![false; count]);
        for (at, mode) in self.modes.iter().enumerate() {
            let turn = matches!(mode, Mode::Above | Mode::AboveOrEqual | Mode::Different);
            match mode {
                Mode::Leaf => {
                    (yes[at], no[at], nan[at], values[at]) = (at, at, false, 0.0);
                }
                // `x < v` is `x <=` the number before `v`.
                Mode::Below | Mode::AboveOrEqual => {
                    values[at] = match dtype {
                        DType::Float64 => values[at].next_down(),
                        _ => f64::from((values[at] as f32).next_down()),
                    };
                }
                Mode::Equal | Mode::Different => equal[at] = true,
                Mode::BelowOrEqual | Mode::Above => {}
            }
            if turn {
                std::mem::swap(&mut yes[at], &mut no[at]);
                nan[at] = !nan[at];
            }
        }
        let numbers = |list: &[usize]| list.iter().map(|v| *v as i32).collect::<Vec<i32>>();
        let feature: Vec<i32> = self.features.iter().map(|f| *f as i32).collect();
        let mut args = vec![x, ints(cx, "feature", &feature)?];
        args.push(floats(cx, "value", dtype, &[count], &values)?);
        args.push(ints(cx, "yes", &numbers(&yes))?);
        args.push(ints(cx, "no", &numbers(&no))?);
        args.push(ints(cx, "root", &numbers(&self.roots))?);
        let mut keys = vec![("steps", depth.to_string())];
        if equal.contains(&true) || nan.contains(&true) {
            args.push(flags(cx, "equal", &equal)?);
            args.push(flags(cx, "missing", &nan)?);
            keys.push(("mixed", "true".to_string()));
        }
        let shape = vec![cx.shape(x)[0].clone(), (self.roots.len() as i64).into()];
        cx.call("leaf", DType::Int32, shape, "ml.leaves", args, keys)
    }

    /// The sum, or another aggregate, of the weights of the leaves for each row and target.
    fn scores(&self, cx: &mut Context, x: T, weights: &Weights) -> Outcome<T> {
        let leaves = self.leaves(cx, x)?;
        let dtype = cx.dtype(x);
        let (count, targets) = (self.modes.len(), weights.targets);
        let size = count.checked_mul(targets).filter(|n| *n <= MAX_WEIGHTS);
        let neutral = match weights.aggregate {
            "min" => f64::INFINITY,
            "max" => f64::NEG_INFINITY,
            _ => 0.0,
        };
        let mut table = vec![neutral; size.ok_or("the table of weights is too large")?];
        for weight in &weights.list {
            if weight.target >= targets {
                return Err("the number of a target is out of range".into());
            }
            let own = &mut table[weight.node * targets + weight.target];
            *own = if *own == neutral { weight.value } else { *own + weight.value };
        }
        let table = floats(cx, "weights", dtype, &[count, targets], &table)?;
        let trees = cx.shape(leaves)[1].clone();
        let shape = vec![cx.shape(x)[0].clone(), (targets as i64).into()];
        let own = axes(&shape);
        let leaf = cx.load(leaves, [own[0].clone(), reduce_axis(0, &trees)]);
        let last = E::int(count as i64 - 1, DType::Int32);
        let leaf = E::call("clamp", [leaf, E::int(0, DType::Int32), last]);
        let term = E::Load(table, vec![leaf, E::Idx(own[1].clone())]);
        let kind = match weights.aggregate {
            "min" | "max" => weights.aggregate,
            _ => "sum",
        };
        let mut result = cx.fold("votes", kind, dtype, shape.clone(), vec![trees], term)?;
        if weights.aggregate == "average" {
            let body = cx.load(result, own).bin("/", E::num(self.roots.len() as f64, dtype));
            result = cx.compute("mean", dtype, shape, body)?;
        }
        Ok(result)
    }
}

/// The weights of the leaves.
struct Weights {
    list: Vec<Weight>,
    targets: usize,
    /// `sum`, `average`, `min` or `max`.
    aggregate: &'static str,
}

/// Reads the nodes of a classifier or regressor; returns the number of each by tree and node, too.
fn forest(cx: &Context, node: &Node) -> Outcome<(Forest, Numbers)> {
    let list = |name: &str| node.ints(name).unwrap_or(&[]);
    let (trees, ids) = (list("nodes_treeids"), list("nodes_nodeids"));
    let count = trees.len();
    let features = list("nodes_featureids").to_vec();
    let values = numbers(cx, node, "nodes_values")?.unwrap_or_default();
    let modes = node.strings("nodes_modes");
    let (yes, no) = (list("nodes_truenodeids"), list("nodes_falsenodeids"));
    let lens = [ids.len(), features.len(), values.len(), modes.len(), yes.len(), no.len()];
    if count == 0 || lens.iter().any(|len| *len != count) {
        return Err("the lists of nodes differ in length".into());
    }
    let missing = list("nodes_missing_value_tracks_true");
    let mut numbers = HashMap::new();
    let mut roots = Vec::new();
    for at in 0..count {
        if numbers.insert((trees[at], ids[at]), at).is_some() {
            return Err("a node is defined twice".into());
        }
        // The first node of a tree is its root.
        if at == 0 || trees[at - 1] != trees[at] {
            roots.push(at);
        }
    }
    let modes: Vec<Mode> = modes
        .iter()
        .map(|mode| {
            Ok(match &mode[..] {
                "LEAF" => Mode::Leaf,
                "BRANCH_LEQ" => Mode::BelowOrEqual,
                "BRANCH_LT" => Mode::Below,
                "BRANCH_GT" => Mode::Above,
                "BRANCH_GTE" => Mode::AboveOrEqual,
                "BRANCH_EQ" => Mode::Equal,
                "BRANCH_NEQ" => Mode::Different,
                _ => return Err("the mode of a node is not supported".into()),
            })
        })
        .collect::<Outcome<_>>()?;
    let find = |at: usize, id: i64| match modes[at] {
        Mode::Leaf => Ok(at),
        _ => numbers.get(&(trees[at], id)).copied().ok_or("a node of a tree is missing"),
    };
    let mut forest = Forest {
        features,
        values,
        yes: Vec::new(),
        no: Vec::new(),
        nan: (0..count).map(|at| missing.get(at).is_some_and(|m| *m != 0)).collect(),
        roots,
        modes: modes.clone(),
    };
    for at in 0..count {
        forest.yes.push(find(at, yes[at])?);
        forest.no.push(find(at, no[at])?);
        if modes[at] == Mode::Leaf {
            forest.features[at] = 0;
        }
    }
    Ok((forest, numbers))
}

/// Reads the weights of the leaves from the attributes that begin with a word.
fn leaf_weights(cx: &Context, node: &Node, word: &str, nodes: &Numbers) -> Outcome<Vec<Weight>> {
    let list = |name: &str| node.ints(&format!("{word}_{name}")).unwrap_or(&[]);
    let (trees, ids, targets) = (list("treeids"), list("nodeids"), list("ids"));
    let values = numbers(cx, node, &format!("{word}_weights"))?.unwrap_or_default();
    if [ids.len(), targets.len(), values.len()].iter().any(|len| *len != trees.len()) {
        return Err("the lists of weights differ in length".into());
    }
    let weight = |at: usize| {
        let node = nodes.get(&(trees[at], ids[at])).copied();
        Ok(Weight {
            node: node.ok_or("a weight belongs to no node")?,
            target: usize::try_from(targets[at]).map_err(|_| "a target is negative")?,
            value: values[at],
        })
    };
    (0..trees.len()).map(weight).collect()
}

fn aggregate(name: &str) -> Outcome<&'static str> {
    Ok(match name {
        "SUM" => "sum",
        "AVERAGE" => "average",
        "MIN" => "min",
        "MAX" => "max",
        _ => return Err("the aggregate is not supported".into()),
    })
}

pub(super) fn regressor(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let x = matrix(cx, x)?;
    let (forest, nodes) = forest(cx, node)?;
    let weights = Weights {
        list: leaf_weights(cx, node, "target", &nodes)?,
        targets: usize::try_from(node.int("n_targets", 1)).unwrap_or(0),
        aggregate: aggregate(node.text("aggregate_function", "SUM"))?,
    };
    let sums = forest.scores(cx, x, &weights)?;
    let base = numbers(cx, node, "base_values")?.unwrap_or_default();
    let sums = add_row(cx, "sums", sums, &base)?;
    Ok(vec![transformed(cx, node, "", sums)?])
}

pub(super) fn classifier(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let x = matrix(cx, x)?;
    let labels = labels(node, "classlabels_int64s")?;
    let (forest, nodes) = forest(cx, node)?;
    let mut list = leaf_weights(cx, node, "class", &nodes)?;
    let base = numbers(cx, node, "base_values")?.unwrap_or_default();
    let rows = cx.shape(x)[0].clone();
    let one = list.first().map(|weight| weight.target);
    let is_binary = labels.len() == 2 && list.iter().all(|weight| Some(weight.target) == one);
    if !is_binary {
        let weights = Weights { list, targets: labels.len(), aggregate: "sum" };
        let sums = forest.scores(cx, x, &weights)?;
        let sums = add_row(cx, "sums", sums, &base)?;
        let at = greatest(cx, sums)?;
        let label = label_at(cx, &rows, &labels, at)?;
        return Ok(vec![label, transformed(cx, node, "probabilities", sums)?]);
    }
    // One score tells two classes apart. The specification leaves the scores open; these are those
    // of onnxruntime.
    let is_positive = list.iter().all(|weight| weight.value >= 0.0);
    list.iter_mut().for_each(|weight| weight.target = 0);
    let sums = forest.scores(cx, x, &Weights { list, targets: 1, aggregate: "sum" })?;
    let sums = match (one, &base[..]) {
        (_, []) | (Some(1), [_]) => sums,
        (_, [_]) => add_row(cx, "sums", sums, &base)?,
        _ => return Err("base values of two classes with weights of one are not supported".into()),
    };
    let dtype = cx.dtype(sums);
    let score = column(cx, sums, 0);
    let least = if is_positive { 0.5 } else { 0.0 };
    let holds = score.clone().bin(">", E::num(least, dtype));
    let at = holds.choose(E::int(1, DType::Int64), E::int(0, DType::Int64));
    let label = label_at(cx, &rows, &labels, at)?;
    let transform = node.text("post_transform", "NONE");
    let other = match one {
        Some(1) => E::num(0.0, dtype),
        _ if is_positive && transform == "NONE" => E::num(1.0, dtype).bin("-", score.clone()),
        _ => score.clone().un("-"),
    };
    let both = pair(cx, &rows, dtype, [other, score])?;
    Ok(vec![label, transformed(cx, node, "probabilities", both)?])
}

/// The ensemble of version 5, whose leaves are numbered on their own.
pub(super) fn ensemble(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let x = matrix(cx, x)?;
    let list = |name: &str| node.ints(name).unwrap_or(&[]);
    let features = list("nodes_featureids").to_vec();
    let values = numbers(cx, node, "nodes_splits")?.unwrap_or_default();
    let modes = numbers(cx, node, "nodes_modes")?.unwrap_or_default();
    let count = features.len();
    let ways = [
        (list("nodes_truenodeids"), list("nodes_trueleafs")),
        (list("nodes_falsenodeids"), list("nodes_falseleafs")),
    ];
    let lens = ways.iter().flat_map(|(ids, leaves)| [ids.len(), leaves.len()]);
    if count == 0 || lens.chain([values.len(), modes.len()]).any(|len| len != count) {
        return Err("the lists of nodes differ in length".into());
    }
    let mode = |mode: &f64| {
        Ok(match *mode as i64 {
            0 => Mode::BelowOrEqual,
            1 => Mode::Below,
            2 => Mode::AboveOrEqual,
            3 => Mode::Above,
            4 => Mode::Equal,
            5 => Mode::Different,
            _ => return Err("nodes that test for members of a set are not supported".into()),
        })
    };
    let mut modes: Vec<Mode> = modes.iter().map(mode).collect::<Outcome<_>>()?;
    let targets = list("leaf_targetids");
    let weights = numbers(cx, node, "leaf_weights")?.unwrap_or_default();
    if targets.len() != weights.len() {
        return Err("the lists of leaves differ in length".into());
    }
    // The leaves follow the nodes.
    let way = |(ids, leaves): &(&[i64], &[i64])| -> Outcome<Vec<usize>> {
        let number = |at: usize| {
            let (first, end) = if leaves[at] != 0 { (count, weights.len()) } else { (0, count) };
            let id = usize::try_from(ids[at]).ok().filter(|id| *id < end);
            Ok(first + id.ok_or("a node of a tree is missing")?)
        };
        (0..count).map(number).collect()
    };
    let (mut yes, mut no) = (way(&ways[0])?, way(&ways[1])?);
    modes.resize(count + weights.len(), Mode::Leaf);
    let missing = list("nodes_missing_value_tracks_true");
    let root = |id: &i64| {
        let id = usize::try_from(*id).ok().filter(|id| *id < count);
        id.ok_or_else(|| "a node of a tree is missing".into())
    };
    let roots = list("tree_roots").iter().map(root).collect::<Outcome<Vec<usize>>>()?;
    let pad = weights.len();
    yes.extend(count..count + pad);
    no.extend(count..count + pad);
    let forest = Forest {
        features: features.into_iter().chain(vec![0; pad]).collect(),
        values: values.into_iter().chain(vec![0.0; pad]).collect(),
        yes,
        no,
        nan: (0..count + pad).map(|at| missing.get(at).is_some_and(|m| *m != 0)).collect(),
        roots,
        modes,
    };
    let weight = |(at, target): (usize, &i64)| {
        let target = usize::try_from(*target).map_err(|_| "a target is negative")?;
        Ok(Weight { node: count + at, target, value: weights[at] })
    };
    let weights = Weights {
        list: targets.iter().enumerate().map(weight).collect::<Outcome<_>>()?,
        targets: usize::try_from(node.int("n_targets", 1)).unwrap_or(0),
        aggregate: match node.int("aggregate_function", 1) {
            0 => "average",
            1 => "sum",
            2 => "min",
            3 => "max",
            _ => return Err("the aggregate is not supported".into()),
        },
    };
    let dtype = cx.dtype(x);
    let sums = forest.scores(cx, x, &weights)?;
    let shape = cx.shape(sums);
    let scores = match node.int("post_transform", 0) {
        0 => sums,
        1 => {
            let body = E::call("sigmoid", [cx.load(sums, axes(&shape))]);
            cx.compute("", dtype, shape, body)?
        }
        2 => cx.call("", dtype, shape, "softmax2", vec![sums], Vec::new())?,
        _ => return Err("the transformation of the scores is not supported".into()),
    };
    Ok(vec![scores])
}
