//! The verifier: what every pass must leave true.

use super::Kernel;

/// The first violation of the IR's rules, as text that names the node.
pub fn verify_kernel(kernel: &Kernel) -> Result<(), String> {
    let _ = kernel;
    Ok(())
}
