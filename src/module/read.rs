//! Reads the manifest of a module without loading it: from the section of a `.so`, a `.o` or an
//! object in a `.a`, the member of a `.tar`, or the last line of a `.ptx`.

use super::input;
use super::manifest::Manifest;
use super::static_library;
use crate::codegen::entry::MANIFEST_SECTION;
use crate::diag::{Diag, Result};
use object::{Object, ObjectSection};
use std::io::Read;
use std::path::Path;

/// The first bytes of the objects of each system; those for Windows begin with their machine.
const OBJECTS: [&[u8]; 3] = [
    b"\x7fELF",
    &object::pe::IMAGE_FILE_MACHINE_AMD64.0.to_le_bytes(),
    &object::macho::MH_MAGIC_64.to_le_bytes(),
];

/// Reads the manifest of a module file.
pub fn read_manifest(path: &Path) -> Result<Manifest> {
    let name = path.display().to_string();
    let bytes = input::read(path, input::MODULE).map_err(|why| {
        Box::new(Diag::global("E0523", format!("cannot read module `{name}`: {why}")))
    })?;
    let text = if OBJECTS.iter().any(|magic| bytes.starts_with(magic)) {
        manifest_of_object(&bytes)
    } else if bytes.starts_with(static_library::MAGIC) {
        static_library::members(&bytes).into_iter().find_map(manifest_of_object)
    } else if path.extension().is_some_and(|ext| ext == "ptx") {
        manifest_of_ptx(&bytes)
    } else {
        manifest_of_archive(&bytes)
    };
    let Some(text) = text else {
        return Err(Box::new(
            Diag::global("E0523", format!("`{name}` is not a module of tec")).note(
                "modules are `.so`, `.a`, `.o`, `.tar` and `.ptx` files that `tec build` made",
            ),
        ));
    };
    Manifest::from_json(&text, &name)
}

fn manifest_of_object(bytes: &[u8]) -> Option<String> {
    let file = object::File::parse(bytes).ok()?;
    let data = file.section_by_name(MANIFEST_SECTION)?.data().ok()?;
    let text = data.split(|byte| *byte == 0).next()?;
    String::from_utf8(text.to_vec()).ok()
}

fn manifest_of_ptx(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    text.lines().rev().find_map(|line| line.strip_prefix(Manifest::COMMENT)).map(str::to_string)
}

fn manifest_of_archive(bytes: &[u8]) -> Option<String> {
    let mut archive = tar::Archive::new(bytes);
    for entry in archive.entries().ok()? {
        let mut entry = entry.ok()?;
        if entry.path().ok()?.extension().is_some_and(|ext| ext == "json") {
            let mut text = String::new();
            entry.read_to_string(&mut text).ok()?;
            return Some(text);
        }
    }
    None
}
