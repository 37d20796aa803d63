//! Prepacking splits a kernel into two: one that packs inputs, and one that reads them packed.

/// The role of a kernel that prepacking made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PrepackRole {
    /// Packs an input; its output is an input of the other kernel.
    Pack {
        /// The original kernel.
        of: String,
        /// The input.
        input: String,
    },
    /// Computes the result from packed inputs.
    Prepacked {
        /// The original kernel.
        of: String,
        /// The packed inputs, in the order of the parameters.
        inputs: Vec<String>,
    },
}
