//! `crates/tec-build` and `crates/tec-rt` as users meet them: the commands of `examples/rust`, a
//! second build, edits of an import, and the bindings of `tests/rust`. The projects are copied, so
//! that the test may edit them, to one workspace, so that the compiler is built once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Writes a file if its contents differ, so that Cargo does not see a change where there is none.
fn write(path: &Path, text: &str) {
    if fs::read_to_string(path).is_ok_and(|known| known == text) {
        return;
    }
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder is made");
    fs::write(path, text).expect("a file is written");
}

/// Copies a project; its paths to crates become absolute.
fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("a folder of the tree") {
        let path = entry.expect("a readable entry").path();
        let target = to.join(path.file_name().expect("a name"));
        match path.file_name().and_then(|name| name.to_str()) {
            Some("target") => {}
            _ if path.is_dir() => copy(&path, &target),
            name => {
                let mut text = fs::read_to_string(&path).expect("a text");
                if name == Some("Cargo.toml") {
                    let crates = format!("\"{}/crates/", root().display());
                    text = text.replace("\"../../../crates/", &crates);
                    text = text.replace("\"../../crates/", &crates);
                }
                write(&target, &text);
            }
        }
    }
}

/// Returns the workspace: the example, and `tests/rust` as a member.
fn workspace() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rust-crates");
    copy(&root().join("tests/rust"), &folder.join("bindings"));
    let member = folder.join("bindings/Cargo.toml");
    let text = fs::read_to_string(&member).expect("a manifest");
    let (_, package) = text.split_once("[package]").expect("a package");
    write(&member, &format!("[package]{package}"));
    let manifest = folder.join("Cargo.toml");
    copy(&root().join("examples/rust"), &folder);
    let text = fs::read_to_string(&manifest).expect("a manifest");
    write(&manifest, &text.replace("[\"smoothing\"]", "[\"bindings\", \"smoothing\"]"));
    folder
}

/// Runs Cargo in the workspace, with a target folder of its own.
fn cargo(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO"));
    command.args(args).current_dir(folder);
    command.env("CARGO_TARGET_DIR", folder.join("target")).env("TEC_NO_CACHE", "1");
    // Cargo compiles dependencies that a program and its build script share with the debug
    // information of the program, unless this is set. The members would not share the compiler.
    command.env("CARGO_PROFILE_DEV_BUILD_OVERRIDE_DEBUG", "0");
    command.output().expect("cargo starts")
}

#[track_caller]
fn succeeds(folder: &Path, args: &[&str]) -> (String, String) {
    let output = cargo(folder, args);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    let (out, messages) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "cargo {args:?}\n{out}\n{messages}");
    (out, messages)
}

/// Whether a line is the warning of `tec-build` about its own speed, as on a busy machine.
fn is_slow(line: &str) -> bool {
    line.contains("it was compiled without optimisation")
}

/// Returns the commands of a page with the lines that they print.
fn commands(page: &Path) -> Vec<(Vec<String>, String)> {
    let text = fs::read_to_string(page).expect("a page");
    let mut found: Vec<(Vec<String>, String)> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(command) = line.strip_prefix("    $ cargo ") else { continue };
        let printed = lines.by_ref().map_while(|line| line.strip_prefix("    "));
        let printed: String = printed.flat_map(|line| [line, "\n"]).collect();
        found.push((command.split(' ').map(String::from).collect(), printed));
    }
    found
}

#[test]
fn the_example_does_what_its_page_says_and_builds_what_changed() {
    let folder = workspace();
    let activation = folder.join("kernels/activation.te");
    let page = commands(&root().join("examples/rust/README.md"));
    assert_eq!(page.len(), 2, "the commands of the page");
    for (args, printed) in &page {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let (out, messages) = succeeds(&folder, &args);
        assert_eq!(out, *printed, "cargo {args:?}");
        let is_wrong = |line: &&str| line.contains("warning") && !is_slow(line);
        assert_eq!(messages.lines().find(is_wrong), None, "{messages}");
    }
    // A second build runs nothing: neither a compiler nor a build script.
    let (_, messages) = succeeds(&folder, &["build", "--verbose"]);
    let ran =
        |line: &&str| !line.contains("Fresh ") && !line.contains("Finished ") && !is_slow(line);
    let ran: Vec<&str> = messages.lines().filter(ran).collect();
    assert!(ran.is_empty(), "{ran:?}");

    // An import is watched.
    let text = fs::read_to_string(&activation).expect("a kernel");
    write(&activation, &text.replace("max(x, 0)", "max(x, 0.125)"));
    let (out, messages) = succeeds(&folder, &["run"]);
    assert!(out.contains("classes[0] = [0.12, 0.12,"), "{out}");
    let compiled: Vec<&str> = messages.lines().filter(|line| line.contains("Compiling ")).collect();
    assert!(matches!(&compiled[..], [one] if one.contains("kernels-in-rust")), "{compiled:?}");

    // An error is a diagnostic with its place.
    write(&activation, &text.replace("max(x, 0)", "max(x, y)"));
    let output = cargo(&folder, &["build"]);
    let messages = String::from_utf8(output.stderr).expect("UTF-8");
    write(&activation, &text);
    assert!(!output.status.success() && messages.contains("error[E0201]"), "{messages}");
    assert!(messages.contains("--> kernels/activation.te:2:"), "{messages}");
    assert!(!messages.contains("panicked") && !messages.contains("RUST_BACKTRACE"), "{messages}");

    bindings(&folder);
}

/// Runs `tests/rust`, and compares generated files with what rustfmt makes of them.
fn bindings(folder: &Path) {
    let (_, messages) = succeeds(folder, &["run", "--package", "bindings-test"]);
    assert!(!messages.contains("warning: unused"), "{messages}");
    let mut checked = 0;
    for entry in fs::read_dir(folder.join("target/debug/build")).expect("build scripts ran") {
        let Ok(files) = fs::read_dir(entry.expect("an entry").path().join("out")) else { continue };
        for file in files.map(|file| file.expect("an entry").path()) {
            let text = fs::read_to_string(&file).unwrap_or_default();
            if !text.starts_with("/// The kernels of `") {
                continue;
            }
            let output = Command::new("rustfmt")
                .args(["--check", "--edition", "2024", "--config", "use_small_heuristics=Default"])
                .arg(&file)
                .output()
                .expect("rustfmt starts");
            let wrong = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{}\n{wrong}", file.display());
            checked += 1;
        }
    }
    assert!(checked >= 6, "only {checked} files of bindings found");
}

/// A package has what its build needs, and nothing else.
#[test]
fn packages_are_complete() {
    for (name, needed) in [
        ("tec-build", &["README.md", "src/lib.rs"][..]),
        ("tec-rt", &["README.md", "build.rs", "runtime/flags.in", "runtime/tec_runtime.c"]),
        ("tec", &["build.rs", "src/runtime/flags.in", "lib/nn.te", "docs/errors/E0204.md"]),
    ] {
        let list = ["package", "--list", "--allow-dirty", "--package", name];
        let output = Command::new(env!("CARGO")).args(list).current_dir(root()).output();
        let output = output.expect("cargo starts");
        let listed = String::from_utf8(output.stdout).expect("UTF-8");
        for file in needed {
            assert!(listed.lines().any(|line| line == *file), "{name}: {file}\n{listed}");
        }
        let foreign = |line: &&str| ["examples/", "target/"].iter().any(|at| line.starts_with(at));
        assert_eq!(listed.lines().find(foreign), None, "{name}");
    }
}
