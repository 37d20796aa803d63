#![doc = include_str!("../README.md")]

mod arguments;
mod branches;
mod context;
mod dim;
mod dtype;
mod error;
mod expr;
mod frozen;
mod graph;
mod guess;
mod import;
mod in_place;
mod loops;
mod names;
mod narrow;
mod node;
mod ops;
#[allow(missing_docs, clippy::all, clippy::pedantic, reason = "generated")]
#[doc(hidden)]
pub mod proto;
mod ratio;
mod reader;
mod run_time;
mod text;
mod typical;

use std::path::{Path, PathBuf};

use bytes::Bytes;

pub use dtype::DType;
pub use error::{Error, Unsupported, UnsupportedGroup};

/// How a model is imported.
#[derive(Clone, Debug)]
pub struct Options {
    /// Values of named dimensions, which become constants: `("batch", 1)`.
    pub dims: Vec<(String, u64)>,
    /// Inputs that become parameters with the given values.
    pub freeze: Vec<(String, Frozen)>,
    /// Pairs of an input and an output whose rows are those of the input and new ones behind them:
    /// both become one `inout` tensor. A `*` in both names stands for the same characters.
    pub in_place: Vec<(String, String)>,
    /// The name of the network; the default is the stem of the file, or the name of the graph if
    /// that is `model`.
    pub name: Option<String>,
    /// Whether sums may be computed in any order, and factors be folded into weights.
    pub reassociate: bool,
    /// Whether convolutions may be computed by Winograd's algorithm, if `reassociate` is set.
    pub winograd: bool,
}

impl Default for Options {
    fn default() -> Self {
        let (dims, freeze, in_place) = (Vec::new(), Vec::new(), Vec::new());
        Options { dims, freeze, in_place, name: None, reassociate: true, winograd: true }
    }
}

/// The value of an input that becomes a parameter.
#[derive(Clone, Debug)]
pub enum Frozen {
    /// All elements.
    Elements {
        /// The element type.
        dtype: DType,
        /// The extents.
        shape: Vec<u64>,
        /// The elements, little-endian and row-major.
        data: Bytes,
    },
    /// The text of a number, `true` or `false`: the value of each element, in the type and the
    /// shape that the model declares.
    Number(String),
}

/// An imported model.
#[derive(Clone, Debug)]
pub struct Import {
    /// The name of the network.
    pub name: String,
    /// The `.te` text.
    pub text: String,
    /// The parameters in the order of their declaration.
    pub params: Vec<Param>,
    /// The inputs in the order of their declaration.
    pub inputs: Vec<Argument>,
    /// The outputs in the order of the model.
    pub outputs: Vec<Argument>,
    /// The files with the data of its tensors, sorted; the model itself is not one of them.
    pub files: Vec<PathBuf>,
}

/// A parameter with its data.
#[derive(Clone, Debug)]
pub struct Param {
    /// The name in the text.
    pub name: String,
    /// The element type.
    pub dtype: DType,
    /// The extents.
    pub shape: Vec<u64>,
    /// The elements, little-endian and row-major, borrowed from the mapped file if possible. They
    /// may begin at any address.
    pub data: Bytes,
}

/// An input or output.
#[derive(Clone, Debug)]
pub struct Argument {
    /// The name in the text.
    pub name: String,
    /// The name in the model.
    pub model_name: String,
    /// The element type.
    pub dtype: DType,
    /// The shape as in the text: `[batch, 3, 224, 224]`.
    pub shape: String,
    /// Whether it is an input that the network updates in place.
    pub inout: bool,
}

/// Imports a model.
///
/// # Errors
///
/// [`Error::Unsupported`] lists all nodes that are not supported. The other errors concern the
/// file, its limits and the options.
pub fn import(path: &Path, options: &Options) -> Result<Import, Error> {
    import::import(path, options)
}
