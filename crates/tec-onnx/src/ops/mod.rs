//! The operators, by family, and the table of them.

mod conv;
mod elementwise;
mod movement;
mod norm;
mod pool;
mod product;
mod reduce;
mod shape;

use crate::context::Context;
use crate::graph::T;
use crate::node::{Node, Outcome};

pub(crate) use movement::stack;

/// Imports a node: returns its outputs.
pub(crate) type Handler = fn(&mut Context, &Node) -> Outcome<Vec<T>>;

/// Operators that compute a step from the one before.
pub(crate) const RECURRENT: [&str; 4] = ["Scan", "LSTM", "GRU", "RNN"];

/// The operators of the default domain.
const DEFAULT: &[(&str, Handler)] = &[
    ("Abs", elementwise::abs),
    ("Add", elementwise::add),
    ("BatchNormalization", norm::batch_norm),
    ("Cast", elementwise::cast),
    ("Concat", movement::concat),
    ("Constant", shape::constant),
    ("Conv", conv::conv),
    ("Flatten", movement::flatten),
    ("Gemm", product::gemm),
    ("GlobalAveragePool", pool::global_average_pool),
    ("Identity", elementwise::identity),
    ("MatMul", product::matmul),
    ("MaxPool", pool::max_pool),
    ("Relu", elementwise::relu),
    ("Reshape", movement::reshape),
    ("Shape", shape::shape),
    ("Softmax", norm::softmax),
];

/// Returns how an operator is imported.
pub(crate) fn find(domain: &str, op: &str) -> Option<Handler> {
    let table = match domain {
        "" => DEFAULT,
        _ => return None,
    };
    table.iter().find(|(name, _)| *name == op).map(|(_, handler)| *handler)
}
