//! Kernels in projects that other tools build: static libraries, files of dependencies, and the
//! commands of the pages of `examples/c`, `examples/cmake`, `examples/meson` and
//! `samples/networks`.

mod depfiles;
mod examples;
mod networks;
mod static_libraries;

use crate::support::say_skipped;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn scratch() -> TempDir {
    tempfile::tempdir().expect("a directory for the test")
}

fn write(dir: &Path, name: &str, text: &str) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().expect("a directory")).expect("a directory is made");
    fs::write(path, text).expect("a file is written");
}

/// Returns the standard output and the messages of a command.
fn text_of(output: &Output) -> String {
    String::from_utf8([&output.stdout[..], &output.stderr].concat()).expect("UTF-8")
}

/// Runs a program in a directory. Finds `tec`, and the build tools that `make` installs into
/// `.venv`.
fn run(dir: &Path, program: &str, args: &[&str]) -> Output {
    let tec = Path::new(env!("CARGO_BIN_EXE_tec")).parent().expect("a directory").to_path_buf();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = [tec, root().join(".venv/bin")].into_iter().chain(std::env::split_paths(&path));
    let mut command = Command::new(program);
    command.args(args).current_dir(dir);
    command.env("PATH", std::env::join_paths(folders).expect("plain directories"));
    // This test may run below a `make`, whose options are not those of a user's.
    command.env_remove("MAKEFLAGS").env_remove("MFLAGS").env_remove("MAKELEVEL");
    command.output().unwrap_or_else(|error| panic!("{program}: {error}"))
}

#[track_caller]
fn succeeds(dir: &Path, program: &str, args: &[&str]) -> String {
    let output = run(dir, program, args);
    let text = text_of(&output);
    assert!(output.status.success(), "{program} {args:?}: {}\n{text}", output.status);
    text
}

/// Whether a build tool is there; if not, prints that a test is skipped.
fn has(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(root().join(".venv/bin")).chain(std::env::split_paths(&path));
    let found = folders.into_iter().any(|folder| folder.join(tool).exists());
    if !found {
        say_skipped(&format!("no {tool} (`make test` installs cmake, meson and ninja into .venv)"));
    }
    found
}
