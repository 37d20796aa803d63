//! What can go wrong.

use std::fmt;
use std::path::PathBuf;

/// Why a model cannot be imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read `{}`: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason of the system.
        source: std::io::Error,
    },
    /// The file is no ONNX model.
    #[error("not an ONNX model: {0}")]
    Decode(String),
    /// The model exceeds a limit of the importer.
    #[error("{0}")]
    Limit(String),
    /// The model contradicts itself or its data.
    #[error("invalid model: {0}")]
    Invalid(String),
    /// An option names something that the model does not have, or gives a wrong value.
    #[error("{0}")]
    Option(String),
    /// Parts of the model are not supported: all of them.
    #[error("{0}")]
    Unsupported(Unsupported),
}

/// The nodes of a model that the importer does not support, by operator and reason.
#[derive(Clone, Debug, Default)]
pub struct Unsupported {
    /// Operator, reason, number of nodes, and the names of the first nodes.
    pub groups: Vec<UnsupportedGroup>,
    /// Inputs of the model that would have to be constant, by their names in the model. A caller
    /// that knows their values can pass them in [`crate::Options::freeze`].
    pub freeze: Vec<String>,
}

/// Nodes that are unsupported for the same reason.
#[derive(Clone, Debug)]
pub struct UnsupportedGroup {
    /// The operator, with its domain if that is not the default one.
    pub operator: String,
    /// The reason.
    pub reason: String,
    /// The number of nodes.
    pub count: usize,
    /// The names of at most three of the nodes.
    pub nodes: Vec<String>,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count: usize = self.groups.iter().map(|group| group.count).sum();
        let nodes = if count == 1 { "node is" } else { "nodes are" };
        write!(f, "{count} {nodes} not supported:")?;
        for group in &self.groups {
            let more = if group.count > group.nodes.len() { ", …" } else { "" };
            let names: Vec<String> = group.nodes.iter().map(|name| format!("`{name}`")).collect();
            write!(
                f,
                "\n  {} × {}: {} ({}{more})",
                group.count,
                group.operator,
                group.reason,
                names.join(", ")
            )?;
        }
        if !self.freeze.is_empty() {
            let names: Vec<String> = self.freeze.iter().map(|name| format!("`{name}`")).collect();
            write!(f, "\nconstant values are needed for the inputs {}", names.join(", "))?;
        }
        Ok(())
    }
}

/// Shortens a name of the model for a message.
pub(crate) fn short(name: &str) -> String {
    const MAX_CHARS: usize = 60;
    let clean = |c: char| if c.is_control() { '?' } else { c };
    match name.char_indices().nth(MAX_CHARS) {
        None => name.chars().map(clean).collect(),
        Some((end, _)) => name[..end].chars().map(clean).chain(['…']).collect(),
    }
}
