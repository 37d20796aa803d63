//! Kernels that belong together: those that packing an input ahead makes of one.

/// What a kernel is to the one that it was made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// It packs an input, and its only output is what the other one reads.
    Pack {
        /// The kernel that both were made of.
        of: String,
        /// The input.
        input: String,
    },
    /// It computes what the kernel does, from inputs that are packed.
    Prepacked {
        /// The kernel.
        of: String,
        /// The packed inputs, in the order of the parameters.
        inputs: Vec<String>,
    },
}
