//! The error codes. `docs/errors/CODE.md` is the long explanation of each, embedded here.
//!
//! E01xx syntax and files · E02xx names, types and values · E03xx schedules · E04xx targets and
//! code generation · E05xx modules, files written, arguments of `tec run`.

/// The long explanation of a code.
pub fn explain(code: &str) -> Option<&'static str> {
    let _ = code;
    None
}
