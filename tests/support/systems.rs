//! What the tests of targets for other systems share.

use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// Runs a program, which must succeed.
#[track_caller]
pub fn succeeds(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, text(&output));
    output
}

/// What a program printed, on both streams.
pub fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// A folder of a test.
pub fn scratch() -> TempDir {
    tempfile::tempdir().expect("a directory for the test")
}

/// Runs `tec` in a folder.
pub fn tec_in(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tec"));
    command.args(args).current_dir(dir).output().expect("tec starts")
}

/// Requires that `tec` fails with a message that has all these parts.
#[track_caller]
pub fn refused_in(dir: &Path, args: &[&str], expected: &[&str]) {
    let output = tec_in(dir, args);
    let text = text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(expected.iter().all(|part| text.contains(part)), "{text}");
}
