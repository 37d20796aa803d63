#![doc = include_str!("../README.md")]

#[doc(hidden)]
pub mod bind;
mod element;
mod error;
mod int;

pub use element::{BF16, BFloat16, Element, F16, Float16};
pub use error::Error;
#[cfg(feature = "ndarray")]
pub use ndarray;

/// Includes the bindings that `tec_build` wrote for a module, as a Rust module of the same name:
/// `tec_rt::include_kernels!("matmul")` makes `matmul::matmul` from `matmul.te`.
#[macro_export]
macro_rules! include_kernels {
    ($module:literal) => {
        ::core::include!(::core::concat!(::core::env!("OUT_DIR"), "/", $module, ".rs"));
    };
}

/// Keeps items only with the feature `ndarray`.
#[cfg(feature = "ndarray")]
#[doc(hidden)]
#[macro_export]
macro_rules! if_ndarray {
    ($($items:item)*) => { $($items)* };
}

/// Keeps items only with the feature `ndarray`.
#[cfg(not(feature = "ndarray"))]
#[doc(hidden)]
#[macro_export]
macro_rules! if_ndarray {
    ($($items:item)*) => {};
}

/// Sets the number of threads for parallel loops of all kernels in the program, including the
/// calling thread; 0 means one per CPU. Without a call, the environment variable `TEC_NUM_THREADS`
/// gives the number. It takes effect at the next loop.
pub fn set_num_threads(threads: usize) {
    // SAFETY: it stores the number atomically.
    unsafe { tec_rt_set_num_threads(i32::try_from(threads).unwrap_or(i32::MAX)) }
}

unsafe extern "C" {
    fn tec_rt_set_num_threads(threads: i32);
}
