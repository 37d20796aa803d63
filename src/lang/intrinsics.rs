//! The intrinsics of `tensorize`, from the embedded `lib/intrinsics.te`.

use super::library::LIB;
use super::source::{Loader, Program, load_program};
use std::sync::LazyLock;

/// Parsed once, because an automatic schedule applies hundreds of candidates.
static INTRINSICS: LazyLock<Program> = LazyLock::new(|| {
    let (program, errors) = load_program("lib/intrinsics.te", &Embedded);
    if !errors.is_empty() {
        crate::bug!("lib/intrinsics.te is wrong: {errors:?}");
    }
    program
});

/// Returns `lib/intrinsics.te`, which declares each intrinsic of `tensorize` as a kernel.
pub fn intrinsics() -> &'static Program {
    &INTRINSICS
}

struct Embedded;

impl Loader for Embedded {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        let name = path.strip_prefix("lib/").unwrap_or(path);
        let file = LIB.iter().find(|(known, _)| *known == name);
        file.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(|| "no such file".to_string())
    }
}
