//! The errors of kernels.

use std::ffi::{CStr, c_char};
use std::fmt;

/// Why a kernel did not compute. Each variant has the message for the user, which names the
/// argument and the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// A slice has another length than its shape says, an array is not in standard layout, or an
    /// extent is negative or too large. Nothing was called, and nothing was written.
    Shape(String),
    /// The kernel refused its arguments: an extent, an index or an `assume` of the source. Nothing
    /// was written.
    Arguments(String),
    /// Memory for temporaries cannot be allocated. Outputs may have been written in part.
    Memory(String),
    /// The CPU lacks a feature of the target that the kernel was compiled for; nothing was written.
    /// Or a function that C code set for parallel loops failed.
    Runtime(String),
}

impl Error {
    /// Returns the message.
    pub fn message(&self) -> &str {
        match self {
            Error::Shape(text)
            | Error::Arguments(text)
            | Error::Memory(text)
            | Error::Runtime(text) => text,
        }
    }

    /// Returns the error of the last call on this thread that returned -1.
    #[cold]
    pub(crate) fn last() -> Error {
        // SAFETY: both return null or a text that ends in 0 and stays unchanged until the next
        // failing call of this thread.
        let text = |text: *const c_char| match text.is_null() {
            true => String::new(),
            false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
        };
        // SAFETY: they have no preconditions.
        let (kind, message) = unsafe { (tec_rt_last_kind(), tec_rt_last_error()) };
        let message = text(message);
        match &text(kind)[..] {
            "MemoryError" => Error::Memory(message),
            "RuntimeError" => Error::Runtime(message),
            _ => Error::Arguments(message),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for Error {}

unsafe extern "C" {
    fn tec_rt_last_error() -> *const c_char;
    fn tec_rt_last_kind() -> *const c_char;
}
