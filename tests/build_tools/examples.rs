//! The commands of the pages of the examples, and what changes build again.

use super::{has, root, run, scratch, succeeds, text_of, write};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// Copies a folder of the tree.
pub(super) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder is made");
    for entry in fs::read_dir(from).expect("a folder of the tree") {
        let path = entry.expect("a readable entry").path();
        let target = to.join(path.file_name().expect("a name"));
        match path.is_dir() {
            true => copy(&path, &target),
            false => fs::copy(&path, &target).map(|_| ()).expect("a file is copied"),
        }
    }
}

/// Returns a directory that holds the package for CMake and an example at their places in the tree,
/// below a folder whose name has a space.
fn example(name: &str) -> (TempDir, PathBuf) {
    let dir = scratch();
    let tree = dir.path().join("a tree");
    let folder = tree.join("examples").join(name);
    // Files that a build in the tree left there would hide a missing step.
    copy(&root().join("examples").join(name), &folder);
    for left in ["build", "main", "main.o", "saxpy.a", "saxpy.h", "saxpy.json", "saxpy.d"] {
        let left = folder.join(left);
        let _ = if left.is_dir() { fs::remove_dir_all(left) } else { fs::remove_file(left) };
    }
    copy(&root().join("cmake"), &tree.join("cmake"));
    (dir, folder)
}

/// Runs the commands of an example's page, `    $ COMMAND`, and compares what they print with the
/// lines below them, if there are any.
pub(super) fn follow_the_page(folder: &Path) {
    let page = fs::read_to_string(folder.join("README.md")).expect("a page");
    let mut lines = page.lines().peekable();
    let mut count = 0;
    while let Some(line) = lines.next() {
        let Some(command) = line.strip_prefix("    $ ") else { continue };
        let mut printed = String::new();
        while let Some(line) = lines.next_if(|line| !line.starts_with("    $ ")) {
            let Some(line) = line.strip_prefix("    ") else { break };
            printed += &format!("{line}\n");
        }
        let output = run(folder, "sh", &["-c", command]);
        assert!(output.status.success(), "{command}\n{}", text_of(&output));
        if !printed.is_empty() {
            assert_eq!(String::from_utf8_lossy(&output.stdout), printed, "{command}");
        }
        count += 1;
    }
    assert!(count >= 2, "only {count} commands");
}

/// Replaces a part of a file, after what was built.
fn edit(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).expect("a file");
    assert!(text.contains(from), "{text}");
    // Times of files are multiples of some milliseconds.
    std::thread::sleep(Duration::from_millis(20));
    fs::write(path, text.replace(from, to)).expect("it can be written");
}

#[test]
fn the_example_with_make() {
    let (_dir, folder) = example("c");
    follow_the_page(&folder);
    assert!(succeeds(&folder, "make", &[]).contains("up to date"));
    edit(&folder.join("kernels/saxpy.te"), "alpha * x[i]", "2 * alpha * x[i]");
    let said = succeeds(&folder, "make", &[]);
    assert!(said.contains("tec build") && said.contains("-o main "), "{said}");
    assert!(succeeds(&folder, "./main", &[]).starts_with("z[10] = 41\n"));
}

#[test]
fn the_example_with_meson() {
    if !has("meson") || !has("ninja") {
        return;
    }
    let (_dir, folder) = example("meson");
    follow_the_page(&folder);
    let compile = || succeeds(&folder, "meson", &["compile", "-C", "build"]);
    assert!(compile().contains("no work to do"));
    edit(&folder.join("kernels/saxpy.te"), "alpha * x[i]", "2 * alpha * x[i]");
    let said = compile();
    assert!(said.contains("Generating saxpy") && said.contains("Linking"), "{said}");
    assert!(succeeds(&folder, "./build/main", &[]).starts_with("z[10] = 41\n"));
}

#[test]
fn the_example_with_cmake() {
    if !has("cmake") {
        return;
    }
    let (_dir, folder) = example("cmake");
    let import = folder.join("kernels/activation.te");
    follow_the_page(&folder);
    for generator in ["Unix Makefiles", "Ninja"] {
        if generator == "Ninja" && !has("ninja") {
            continue;
        }
        let _ = fs::remove_dir_all(folder.join("build"));
        succeeds(&folder, "cmake", &["-B", "build", "-G", generator, "-Dtec_DIR=../../cmake"]);
        let build = || succeeds(&folder, "cmake", &["--build", "build"]);
        let works = |said: &str| said.contains("Compiling") || said.contains("Linking");
        // The libraries are made before the programs, also by many jobs at once.
        let first = succeeds(&folder, "cmake", &["--build", "build", "-j", "8"]);
        assert!(works(&first), "{generator}: {first}");
        let second = build();
        assert!(!works(&second), "{generator}: {second}");
        edit(&import, "max(x, 0)", "max(x, 0.25)");
        let third = build();
        assert!(third.contains("kernels of dense.te"), "{generator}: {third}");
        assert!(!third.contains("kernels of saxpy.te"), "{generator}: {third}");
        let printed = succeeds(&folder, "./build/layers", &[]);
        assert!(printed.contains("twice the classes 0.50 1.28"), "{generator}: {printed}");
        let last = build();
        assert!(!works(&last), "{generator}: {last}");
        edit(&import, "max(x, 0.25)", "max(x, 0)");
    }
}

/// A project of one call of `add_tec_library`.
fn project(call: &str) -> (TempDir, PathBuf) {
    let dir = scratch();
    let folder = dir.path().join("a project");
    let saxpy = fs::read_to_string(root().join("examples/cmake/kernels/saxpy.te"));
    write(&folder, "saxpy.te", &saxpy.expect("an example"));
    let main = "#include \"saxpy.h\"\nint main(void) {\n    float x[3] = {1, 2, 3}, z[3];\n    \
                return saxpy(1, x, x, z, 3) || z[2] != 6;\n}\n";
    write(&folder, "main.c", main);
    let text = format!(
        "cmake_minimum_required(VERSION 3.20)\nproject(test LANGUAGES C)\n\
         find_package(tec REQUIRED)\n{call}\n"
    );
    write(&folder, "CMakeLists.txt", &text);
    (dir, folder)
}

fn configure(folder: &Path, options: &[&str]) -> (bool, String) {
    let package = format!("-Dtec_DIR={}", root().join("cmake").display());
    let output = run(folder, "cmake", &[&["-B", "build", &package], options].concat());
    // CMake breaks the lines of messages.
    let text = text_of(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    (output.status.success(), text)
}

#[test]
fn calls_of_add_tec_library_are_checked() {
    if !has("cmake") {
        return;
    }
    for (call, part) in [
        (
            "add_tec_library(k FROM saxpy.te KERNEL saxpy)",
            "unknown argument `KERNEL`, `saxpy`. One",
        ),
        ("add_tec_library(k FROM saxpy.te TARGETS)", "no value for `TARGETS`"),
        ("add_tec_library(k TARGETS x86-64)", "name the source: FROM k.te"),
        ("add_tec_library(k FROM none.te)", "there is no file `"),
        ("add_tec_library(k-1 FROM saxpy.te)", "`k-1` cannot be the name of a module"),
        (
            "add_tec_library(k FROM saxpy.te FREEZE x)",
            "FREEZE takes NAME=NUMBER or NAME=FILE.npy, not `x`",
        ),
        ("add_tec_library(k FROM saxpy.te RECORDS r.jsonl)", "r.jsonl`"),
    ] {
        let (_dir, folder) = project(call);
        let (done, text) = configure(&folder, &[]);
        assert!(!done && text.contains(part), "{call}: {text}");
    }
    // The target of another machine is that machine's, and never the one that builds.
    let foreign = ["-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64"];
    let show = "add_tec_library(k FROM saxpy.te)\nget_property(all TARGET k PROPERTY SOURCES)\n\
                _tec_default_targets(targets)\nmessage(STATUS \"for ${targets}\")";
    let (_dir, folder) = project(show);
    let (done, text) = configure(&folder, &foreign);
    assert!(done && text.contains("for aarch64"), "{text}");
    let (_dir, folder) = project(show);
    let (done, text) = configure(&folder, &[foreign[0], "-DCMAKE_SYSTEM_PROCESSOR=sparc"]);
    assert!(!done && text.contains("CMAKE_SYSTEM_PROCESSOR `sparc`"), "{text}");
    let (_dir, folder) = project("add_tec_library(k FROM saxpy.te TARGETS native)");
    let (done, text) = configure(&folder, &foreign);
    assert!(!done && text.contains("`native` is the machine that builds"), "{text}");
    // Another version of the compiler, and none.
    let (_dir, folder) = project("");
    let (done, text) = configure(&folder, &["-DTEC_EXECUTABLE=/bin/false"]);
    assert!(!done && text.contains("-DTEC_EXECUTABLE=/path/to/tec"), "{text}");
    write(&folder, "CMakeLists.txt", "project(test LANGUAGES C)\nfind_package(tec 9.1 REQUIRED)\n");
    let (done, text) = configure(&folder, &[]);
    assert!(!done && text.contains("version: 0."), "{text}");
}

#[test]
fn libraries_have_every_option_and_are_installed() {
    if !has("cmake") {
        return;
    }
    let call = "
        set(TEC_TARGETS native)
        add_tec_library(one SHARED FROM saxpy.te MODULE saxpy KERNELS saxpy SCHEDULE default OPT 0
                        PREFIX my_ FP_CONTRACT off DEFINES n=3)
        set(TEC_TARGETS)
        add_tec_library(two FROM \"${CMAKE_CURRENT_SOURCE_DIR}/saxpy.te\" MODULE saxpy
                        TYPICAL n=64 n=4096)
        add_executable(main main.c)
        target_link_libraries(main PRIVATE two)
        install(TARGETS main one two)";
    let (_dir, folder) = project(call);
    let (done, text) = configure(&folder, &["-DCMAKE_INSTALL_PREFIX=installed there"]);
    assert!(done, "{text}");
    succeeds(&folder, "cmake", &["--build", "build"]);
    succeeds(&folder, "cmake", &["--install", "build"]);
    let installed = folder.join("installed there");
    succeeds(&folder, installed.join("bin/main").to_str().expect("UTF-8"), &[]);
    let manifest = folder.join("build/tec/one/saxpy.json");
    let manifest = fs::read_to_string(manifest).expect("a manifest");
    assert!(manifest.contains("\"fp_contract\": \"off\""), "{manifest}");
    let library = installed.join("lib/libone.so");
    let symbols = succeeds(&folder, "nm", &["-D", "--defined-only", library.to_str().unwrap()]);
    assert!(symbols.contains(" my_saxpy_dl") && !symbols.contains("tec_rt_"), "{symbols}");
    assert!(installed.join("lib/libtwo.a").exists());
    assert!(installed.join("include/saxpy.h").exists());
}
