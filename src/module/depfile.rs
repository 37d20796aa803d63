//! Files of dependencies in the syntax of Makefiles, as compilers of C write them for `-MD -MP`:
//! `make` includes them, and Ninja reads them with `deps = gcc`.

use crate::diag::{Diag, Result};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns the text: all outputs depend on all inputs. Each input but the first is also a target
/// without a rule, so that `make` goes on if an import was removed together with its `import`.
pub fn make_depfile<P: AsRef<Path>>(outputs: &[P], inputs: &[P]) -> Result<Vec<u8>> {
    let escaped = |paths: &[P]| -> Result<Vec<Vec<u8>>> {
        paths.iter().map(|path| escape(path.as_ref())).collect()
    };
    let (outputs, inputs) = (escaped(outputs)?, escaped(inputs)?);
    let mut text = outputs.join(&b' ');
    text.push(b':');
    for input in &inputs {
        text.extend(b" \\\n  ");
        text.extend(input);
    }
    text.push(b'\n');
    // Such a target would be a pattern.
    for input in inputs.iter().skip(1).filter(|input| !input.contains(&b'%')) {
        text.extend(input);
        // CMake before 3.23 does not read a colon at the end of a line.
        text.extend(b": \n");
    }
    Ok(text)
}

/// Returns a path in the form that both `make` and Ninja read.
fn escape(path: &Path) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut backslashes = 0;
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'\n' | b'\r' => return Err(no_name(path)),
            // Backslashes count only in front of these.
            b' ' | b'\t' | b'#' => {
                text.extend(std::iter::repeat_n(b'\\', backslashes + 1));
                text.push(byte);
            }
            b':' => text.extend(b"\\:"),
            b'$' => text.extend(b"$$"),
            _ => text.push(byte),
        }
        backslashes = if byte == b'\\' { backslashes + 1 } else { 0 };
    }
    Ok(text)
}

fn no_name(path: &Path) -> Box<Diag> {
    let text = format!("a file of dependencies cannot name {path:?}, which contains a line break");
    Box::new(Diag::global("E0503", text).help("rename the file, or leave out `--depfile`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(outputs: &[&str], inputs: &[&str]) -> String {
        String::from_utf8(make_depfile(outputs, inputs).unwrap()).unwrap()
    }

    #[test]
    fn all_outputs_depend_on_all_inputs() {
        assert_eq!(text(&["a.so", "a.h"], &["a.te"]), "a.so a.h: \\\n  a.te\n");
        let expected = "a.so: \\\n  a.te \\\n  b/c.te\nb/c.te: \n";
        assert_eq!(text(&["a.so"], &["a.te", "b/c.te"]), expected);
    }

    #[test]
    fn names_are_escaped() {
        let names = text(&["o"], &["a b", "a#b", "a$b", "a:b", "a\\b", "a\\ b", "é"]);
        let expected = ["a\\ b", "a\\#b", "a$$b", "a\\:b", "a\\b", "a\\\\\\ b", "é"];
        let lines = names.lines().filter_map(|line| line.strip_prefix("  "));
        let found: Vec<&str> = lines.map(|line| line.strip_suffix(" \\").unwrap_or(line)).collect();
        assert_eq!(found, expected);
        let error = make_depfile(&["o"], &["a\nb"]).unwrap_err();
        assert_eq!(error.code, "E0503");
    }
}
