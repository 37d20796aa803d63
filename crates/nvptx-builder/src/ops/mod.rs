//! The instructions, one file for each family.

mod arith;
mod bits;
mod compare;
mod convert;
mod hopper;
mod matrix;
mod memory;
mod sync;
mod warp;

pub use arith::{Approx, Rounding};
pub use compare::{Cmp, Combine};
pub use convert::Convert;
pub use hopper::{TensorMap, Wgmma};
pub use matrix::{CpAsync, Mma};
pub use memory::{AtomOp, Cache, L2, Ld, Level, St};
pub use sync::{Reduce, Scope};
pub use warp::{Redux, Shuffle, Special, Special64, Vote};

use crate::entry::Entry;
use crate::reg::Value;
use crate::ty::Ty;

impl Entry {
    /// Returns the type of the first operand, if the instruction has this type.
    fn checked(&mut self, name: &str, value: Value, has: fn(Ty) -> bool, wants: &str) -> Ty {
        let ty = value.ty();
        if !has(ty) {
            self.refuse(name, &format!("its operands are {wants}, not {ty}"));
        }
        ty
    }
}
