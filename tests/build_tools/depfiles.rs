//! `tec build --depfile`, as `make` and Ninja read it.

use super::{has, run, scratch, succeeds, text_of, write};
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

const IMPORT: &str = "def rise(x) = x + 1\n";

fn main_file(import: &str) -> String {
    format!(
        "import \"{import}\"\nimport \"nn.te\"\nkernel up(n: var) {{\n    input x: float32[n]\n    \
         output y[i: n] = rise(x[i])\n}}\nschedule up for cpu {{ }}\n"
    )
}

/// Makes a file as old as it has to be for a build tool to see the next change.
fn age(path: &Path) {
    let file = fs::File::options().write(true).open(path).expect("a file");
    let time = SystemTime::now() - Duration::from_secs(60);
    file.set_modified(time).expect("the time can be set");
}

#[test]
fn a_depfile_names_every_file_that_was_read_and_every_output() {
    let dir = scratch();
    write(dir.path(), "sub/main.te", &main_file("../other.te"));
    write(dir.path(), "other.te", IMPORT);
    let args = ["build", "sub/main.te", "-o", "m.a", "--depfile", "m.d"];
    succeeds(dir.path(), "tec", &args);
    let read = || fs::read_to_string(dir.path().join("m.d")).expect("a file of dependencies");
    // `nn.te` comes with tec.
    let expected = "m.a m.json m.h: \\\n  sub/main.te \\\n  other.te\nother.te: \n";
    assert_eq!(read(), expected);

    let args = ["build", "sub/main.te", "--no-sidecars", "-o", "m.so", "--depfile", "m.d"];
    succeeds(dir.path(), "tec", &[&args[..], &["--records", "none.jsonl"]].concat()[..7]);
    assert!(read().starts_with("m.so: \\\n"), "{}", read());

    // Nothing is written if something is wrong.
    fs::remove_file(dir.path().join("m.d")).expect("it was there");
    write(dir.path(), "other.te", "def rise(x) = y\n");
    assert_eq!(run(dir.path(), "tec", &args).status.code(), Some(1));
    assert!(!dir.path().join("m.d").exists());
    let output = run(dir.path(), "tec", &["build", "sub/main.te", "--depfile", "sub/main.te"]);
    assert!(text_of(&output).contains("error["), "{}", text_of(&output));
    write(dir.path(), "other.te", IMPORT);
    let output = run(dir.path(), "tec", &["build", "sub/main.te", "--depfile", "other.te"]);
    let text = text_of(&output);
    assert!(text.contains("E0502") && text.contains("--depfile would overwrite"), "{text}");
    write(dir.path(), "two\nlines.te", &main_file("other.te"));
    let output = run(dir.path(), "tec", &["build", "two\nlines.te", "--depfile", "m.d"]);
    assert!(text_of(&output).contains("error[E0503]"), "{}", text_of(&output));
}

#[test]
fn a_depfile_names_parameters_and_models() {
    let dir = scratch();
    let network = "network net() {\n    input x: float32[4]\n    param w: float32[4]\n    \
                   output y[i: 4] = x[i] * w[i]\n}\n";
    write(dir.path(), "net.te", network);
    let data: Vec<u8> = [1.0_f32; 4].iter().flat_map(|one| one.to_le_bytes()).collect();
    let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![4], &data);
    let tensors = [("w", view.expect("a tensor"))];
    for name in ["net.safetensors", "other.safetensors"] {
        safetensors::serialize_to_file(tensors.clone(), None, &dir.path().join(name))
            .expect("it can be written");
    }
    for (option, file) in [(&[][..], "net"), (&["--params", "other.safetensors"], "other")] {
        let args = ["build", "net.te", "--depfile", "net.d", "-o", "net.a"];
        succeeds(dir.path(), "tec", &[&args[..], option].concat());
        let text = fs::read_to_string(dir.path().join("net.d")).expect("a file of dependencies");
        assert!(text.contains(&format!("\n  {file}.safetensors\n")), "{text}");
    }
}

/// Names that need care in one of the tools.
const NAMES: [&str; 6] = ["plain", "a b", "a#b", "a$b", "a:b", "ä%(b)"];

#[test]
fn make_builds_what_changed() {
    for name in NAMES {
        let dir = scratch();
        let import = format!("{name}/{name}.te");
        write(dir.path(), "main.te", &main_file(&import));
        write(dir.path(), &import, IMPORT);
        let rule = "main.a: main.te\n\ttec build main.te -o main.a --depfile main.d\n\
                    -include main.d\n";
        write(dir.path(), "Makefile", rule);
        let make = || succeeds(dir.path(), "make", &[]);
        ["main.te", &import].iter().for_each(|file| age(&dir.path().join(file)));
        assert!(make().contains("tec build"), "{name}");
        assert!(make().contains("up to date"), "{name}");
        ["main.a", "main.h", "main.json"].iter().for_each(|file| age(&dir.path().join(file)));
        write(dir.path(), &import, "def rise(x) = x + 2\n");
        assert!(make().contains("tec build"), "{name}");
        assert!(make().contains("up to date"), "{name}");
        // An import that is gone is no error. A rule for a name with `%` would be a pattern.
        if name.contains('%') {
            continue;
        }
        ["main.a", "main.h", "main.json"].iter().for_each(|file| age(&dir.path().join(file)));
        write(dir.path(), "main.te", &main_file("b.te"));
        write(dir.path(), "b.te", IMPORT);
        fs::remove_file(dir.path().join(&import)).expect("it was there");
        assert!(make().contains("tec build"), "{name}");
    }
}

#[test]
fn ninja_builds_what_changed() {
    if !has("ninja") {
        return;
    }
    for deps in ["    deps = gcc\n", ""] {
        for name in NAMES {
            let dir = scratch();
            let import = format!("{name}/{name}.te");
            write(dir.path(), "main.te", &main_file(&import));
            write(dir.path(), &import, IMPORT);
            let rule = format!(
                "rule tec\n    command = tec build main.te -o main.a --depfile main.d\n    \
                 depfile = main.d\n{deps}build main.a main.h main.json: tec main.te\n"
            );
            write(dir.path(), "build.ninja", &rule.replace("\n        ", "\n    "));
            let ninja = || succeeds(dir.path(), "ninja", &["-d", "explain"]);
            let is_done = |text: &str| text.contains("no work to do");
            ["main.te", &import].iter().for_each(|file| age(&dir.path().join(file)));
            let first = ninja();
            assert!(!is_done(&first), "{name}: {first}");
            let second = ninja();
            assert!(is_done(&second), "{name}: {second}");
            let path = dir.path().join(&import);
            write(dir.path(), &import, "def rise(x) = x + 2\n");
            let file = fs::File::options().write(true).open(path).expect("a file");
            let later = SystemTime::now() + Duration::from_secs(5);
            file.set_modified(later).expect("the time can be set");
            assert!(!is_done(&ninja()), "{name}");
        }
    }
}
