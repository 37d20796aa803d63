//! Rules for the source tree: allowed imports, sizes of files, widths of lines, no leftovers, and
//! an error page and a test for every code. Each rule reads the files as text.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The largest number of lines of a source file or test.
const MAX_LINES: usize = 800;

/// The largest number of columns of a line.
const MAX_COLUMNS: usize = 100;

/// Imports that are restricted further: in `user`, `used` may occur only on lines that contain
/// `only`, or in that file and its folder.
const NARROW: [(&str, &str, &str); 2] =
    [("src/lower/", "te", "src/lower/build_loops"), ("src/target/", "ir", "crate::ir::DType;")];

/// The inner layers of `src/codegen`, lowest first: a folder or file with the others it may use.
const CODEGEN_LAYERS: [(&str, &[&str]); 7] = [
    ("unwind", &[]),
    ("common", &["unwind"]),
    ("ptx", &[]),
    ("simd", &["common", "unwind"]),
    ("clif", &["common", "simd", "unwind"]),
    ("entry", &["common", "ptx", "unwind"]),
    ("object", &["clif", "entry", "ptx"]),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A file of the tree: its path from the root, with `/`, and its text.
struct File {
    path: String,
    text: String,
}

/// Returns the files under a folder, sorted by path.
fn files_under(folder: &str) -> Vec<File> {
    fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("a folder of the tree") {
            let path = entry.expect("a readable entry").path();
            if path.is_dir() {
                let is_built = path.ends_with("__pycache__") || path.join("CACHEDIR.TAG").exists();
                if !is_built {
                    collect(&path, found);
                }
            } else {
                found.push(path);
            }
        }
    }
    let mut paths = Vec::new();
    collect(&root().join(folder), &mut paths);
    paths.sort();
    let read = |path: PathBuf| {
        // One test has a file that is not UTF-8.
        let text = String::from_utf8_lossy(&std::fs::read(&path).expect("a readable file")).into();
        let path = path.strip_prefix(root()).expect("a path under the root");
        File { path: path.to_str().expect("plain names").to_string(), text }
    };
    paths.into_iter().map(read).collect()
}

/// Returns all files that people write.
fn all_files() -> Vec<File> {
    let folders = [
        "src", "lib", "grammar", "samples", "tests", "docs", "tools", "bench", "examples", "cmake",
        "python",
    ];
    let mut files: Vec<File> = folders.into_iter().flat_map(files_under).collect();
    for path in ["Makefile", "README.md", "build.rs", "Cargo.toml", ".ci/run"] {
        let text = std::fs::read_to_string(root().join(path));
        let text = text.unwrap_or_else(|error| panic!("{path}: {error}"));
        files.push(File { path: path.to_string(), text });
    }
    files
}

fn has_ending(file: &File, endings: &[&str]) -> bool {
    let ending = file.path.rsplit_once('.').map(|(_, ending)| ending);
    ending.is_some_and(|ending| endings.contains(&ending))
}

#[track_caller]
fn none_of(wrong: Vec<String>) {
    assert!(wrong.is_empty(), "{} places:\n{}", wrong.len(), wrong.join("\n"));
}

/// Returns the words in back quotes of a piece of Markdown.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns the table of `docs/ARCHITECTURE.md`: each folder or file of `src` with what it may use.
fn layers() -> Vec<(String, BTreeSet<String>)> {
    let page = std::fs::read_to_string(root().join("docs/ARCHITECTURE.md")).expect("the page");
    let mut layers: Vec<(String, BTreeSet<String>)> = Vec::new();
    let mut names: BTreeSet<String> = ["diag", "bug"].map(String::from).into();
    for row in page.lines().filter(|row| row.starts_with("| `src/")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let path = quoted(cells[1]).next().expect("a path in the first cell");
        let mut uses: BTreeSet<String> = ["diag", "bug"].map(String::from).into();
        if cells[3] == "all above" {
            uses.extend(names.iter().cloned());
        }
        uses.extend(quoted(cells[3]).map(String::from));
        names.insert(component(path).to_string());
        layers.push((path.to_string(), uses));
    }
    layers
}

/// `te` of `src/te/bounds/mod.rs`, `emulate` of `src/emulate.rs`.
fn component(path: &str) -> &str {
    let path = path.strip_prefix("src/").expect("a path in src");
    path.split('/').next().expect("a name").trim_end_matches(".rs")
}

/// Returns a file's lines without its tests and comments, numbered from 1. Tests may use layers
/// above.
fn lines_but_tests(file: &File) -> impl Iterator<Item = (usize, &str)> {
    let is_test = file.path.contains("/tests/") || file.path.ends_with("/tests.rs");
    let end = file.text.find("#[cfg(test)]\nmod tests {").unwrap_or(file.text.len());
    let text = if is_test { "" } else { &file.text[..end] };
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

#[test]
fn layers_use_only_what_the_architecture_page_allows() {
    let layers = layers();
    let mut wrong = Vec::new();
    let mut edges = 0;
    for file in files_under("src").iter().filter(|file| has_ending(file, &["rs"])) {
        if ["src/main.rs", "src/lib.rs"].contains(&&file.path[..]) {
            continue;
        }
        let rows = layers.iter().filter(|(path, _)| file.path.starts_with(path));
        let Some((_, allowed)) = rows.max_by_key(|(path, _)| path.len()) else {
            wrong.push(format!("{}: in no row of docs/ARCHITECTURE.md", file.path));
            continue;
        };
        for (number, line) in lines_but_tests(file) {
            for used in line.split("crate::").skip(1) {
                edges += 1;
                let used = used.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap();
                let narrow = NARROW
                    .iter()
                    .find(|(user, name, _)| file.path.starts_with(user) && *name == used);
                let fits = narrow
                    .is_none_or(|(.., only)| file.path.starts_with(only) || line.contains(only));
                let own = used == component(&file.path);
                if !fits || !(own || allowed.contains(used)) {
                    wrong.push(format!("{}:{number}: may not use `{used}`", file.path));
                }
            }
            let supers = line.matches("super::").count();
            if line.contains("super::super") && supers >= depth(&file.path) {
                wrong.push(format!("{}:{number}: leaves its folder by `super`", file.path));
            }
        }
    }
    assert!(edges > 100, "only {edges} uses found");
    none_of(wrong);
}

/// Returns the names that follow a path prefix in a text: `a` and `b` of `prefix::{a, b::c}`.
fn names_after<'t>(text: &'t str, prefix: &str) -> Vec<&'t str> {
    let name = |path: &'t str| path.trim().split(|c: char| !c.is_alphanumeric() && c != '_').next();
    let ends = text.match_indices(prefix).map(|(at, _)| (at, &text[at + prefix.len()..]));
    let outermost = ends.filter(|(at, _)| !text[..*at].ends_with("::"));
    let lists = outermost.flat_map(|(_, rest)| match rest.strip_prefix('{') {
        Some(list) => list.split('}').next().unwrap_or(list).split(',').collect(),
        None => vec![rest],
    });
    lists.filter_map(name).collect()
}

#[test]
fn codegen_layers_use_only_what_the_table_allows() {
    let mut wrong = Vec::new();
    let mut used = BTreeSet::new();
    for file in files_under("src/codegen").iter().filter(|file| has_ending(file, &["rs"])) {
        let path = file.path.strip_prefix("src/codegen/").expect("a path in codegen");
        let own = path.split('/').next().expect("a name").trim_end_matches(".rs");
        if own == "mod" {
            continue;
        }
        let Some((_, allowed)) = CODEGEN_LAYERS.iter().find(|(layer, _)| *layer == own) else {
            wrong.push(format!("{}: in no row of CODEGEN_LAYERS", file.path));
            continue;
        };
        let text: Vec<&str> = lines_but_tests(file).map(|(_, line)| line.trim()).collect();
        let text = text.join(" ");
        let supers = "super::".repeat(depth(&file.path) - 1);
        for prefix in ["crate::codegen::", &supers] {
            for name in names_after(&text, prefix) {
                let is_layer = CODEGEN_LAYERS.iter().any(|(layer, _)| *layer == name);
                if is_layer && name != own && !allowed.contains(&name) {
                    wrong.push(format!("{}: may not use `codegen::{name}`", file.path));
                }
                used.insert((own.to_string(), name.to_string()));
            }
        }
    }
    for (layer, allowed) in CODEGEN_LAYERS {
        for name in allowed.iter().filter(|name| !used.contains(&(layer.into(), name.to_string())))
        {
            wrong.push(format!("CODEGEN_LAYERS: `{layer}` does not use `{name}`"));
        }
    }
    none_of(wrong);
}

/// Returns the number of modules that enclose the text of a file.
fn depth(path: &str) -> usize {
    path.split('/').count() - 1 - usize::from(path.ends_with("/mod.rs"))
}

/// Input and output belong to `module`, `compile` and `cli`.
#[test]
fn only_some_folders_read_and_write() {
    let mut wrong = Vec::new();
    for file in files_under("src").iter().filter(|file| has_ending(file, &["rs"])) {
        if ["module", "compile", "cli", "main"].contains(&component(&file.path)) {
            continue;
        }
        for (number, line) in lines_but_tests(file) {
            for word in
                ["std::fs", "std::net", "std::env::var", "println!", "eprintln!", "static mut"]
            {
                if line.contains(word) {
                    wrong.push(format!("{}:{number}: `{word}`", file.path));
                }
            }
        }
    }
    none_of(wrong);
}

#[test]
fn files_are_short() {
    let code = ["rs", "c", "h", "py", "pest"];
    let files = all_files().into_iter().filter(|file| has_ending(file, &code));
    let counted = files.map(|file| (file.text.lines().count(), file.path));
    let long = counted.filter(|(lines, _)| *lines > MAX_LINES);
    none_of(long.map(|(lines, path)| format!("{path}: {lines} lines")).collect());
}

/// A line that cannot be broken: an expectation, a row of a table, a link, a text that a test
/// compares with.
fn may_be_long(file: &File, line: &str) -> bool {
    let golden = file.path.starts_with("tests/golden/");
    let page = file.path.ends_with(".md");
    let test = file.path.starts_with("tests/") || file.path.ends_with("/tests.rs");
    (golden && (line.starts_with("#=") || line.contains("#~")))
        || (page && (line.starts_with(['|', ' ']) || line.contains("](")))
        || (test && line.trim_start().starts_with(['"', '(', '[']))
        || line.contains("https://")
        || file.path == "src/codegen/simd/encodings.txt"
        || file.path == "Cargo.toml"
}

#[test]
fn lines_are_narrow_and_clean() {
    let leftovers = [["TO", "DO"], ["FIX", "ME"], ["X", "XX"], ["to", "do!("]].map(|p| p.concat());
    let refused = [["unimpl", "emented!"], ["#[ig", "nore"]];
    let words: Vec<String> = leftovers.into_iter().chain(refused.map(|p| p.concat())).collect();
    let mut wrong = Vec::new();
    for file in all_files() {
        let mut in_block = false;
        for (at, line) in file.text.lines().enumerate() {
            in_block ^= file.path.ends_with(".md") && line.starts_with("```");
            let mut complain =
                |what: String| wrong.push(format!("{}:{}: {what}", file.path, at + 1));
            let columns = line.chars().count();
            if columns > MAX_COLUMNS && !in_block && !may_be_long(&file, line) {
                complain(format!("{columns} columns"));
            }
            if line.ends_with([' ', '\t', '\r']) && !file.path.starts_with("tests/golden/error/") {
                complain("space at the end".to_string());
            }
            for word in words.iter().filter(|word| line.contains(&word[..])) {
                complain(format!("`{word}`"));
            }
        }
        if !file.text.is_empty() && !file.text.ends_with('\n') {
            wrong.push(format!("{}: no newline at the end", file.path));
        }
    }
    none_of(wrong);
}

#[test]
fn source_files_begin_with_their_purpose() {
    let sources = files_under("src").into_iter().chain(files_under("tests"));
    let without = sources.filter(|f| has_ending(f, &["rs"]) && !f.text.starts_with("//! "));
    none_of(without.map(|file| file.path).collect());
}

/// Returns the error codes that stand in a text.
fn codes(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("E0").filter_map(|(at, _)| {
        let digits = text.get(at + 1..at + 5)?;
        let alone = !text[..at].ends_with(|c: char| c.is_alphanumeric())
            && !text[at + 5..].starts_with(|c: char| c.is_alphanumeric());
        (alone && digits.bytes().all(|b| b.is_ascii_digit())).then(|| &text[at..at + 5])
    })
}

/// Returns the codes that `tec` can give, each with a place.
fn codes_in_source() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for file in files_under("src").iter().filter(|file| has_ending(file, &["rs"])) {
        for (number, line) in lines_but_tests(file) {
            for code in codes(line).filter(|code| line.contains(&format!("\"{code}\""))) {
                found.insert(code.to_string(), format!("{}:{number}", file.path));
            }
        }
    }
    found
}

#[test]
fn every_code_has_a_page_and_every_page_a_code() {
    let known = codes_in_source();
    let pages = files_under("docs/errors").into_iter();
    let pages: BTreeSet<String> = pages.map(|file| file.path[12..17].to_string()).collect();
    let mut wrong = Vec::new();
    for (code, place) in known.iter().filter(|(code, _)| !pages.contains(*code)) {
        wrong.push(format!("{place}: docs/errors/{code}.md is missing"));
    }
    for code in pages.iter().filter(|code| !known.contains_key(*code)) {
        wrong.push(format!("docs/errors/{code}.md: no error of that code in src"));
    }
    none_of(wrong);
}

/// Returns the part of a test's line that is not a comment; the comments of a golden test are
/// expectations, so they stay.
fn without_comment<'a>(path: &str, line: &'a str) -> &'a str {
    let starts: &[&str] = match path.rsplit_once('.').map(|(_, ending)| ending) {
        Some("rs" | "c" | "h") => &["//", " // "],
        Some("py" | "sh") => &["#", "  # "],
        Some("te") => &[],
        _ => return "",
    };
    let [whole, tail] = starts else { return line };
    if line.trim_start().starts_with(whole) {
        return "";
    }
    line.split(tail).next().unwrap_or(line)
}

#[test]
fn error_codes_in_comments_do_not_count_as_tests() {
    let left = |path: &str, line: &str| without_comment(path, line).contains("E0301");
    assert!(left("tests/cli.rs", "    fails(&[], 1, \"E0301\"); // As it should."));
    assert!(left("tests/python/test_abi.py", "    with pytest.raises(match=\"E0301\"):"));
    assert!(left("tests/golden/error/a.te", "schedule x { }  #~ E0301: unknown"));
    for (path, line) in [
        ("tests/cli.rs", "    // E0301 is tested elsewhere."),
        ("tests/cli.rs", "    let x = 1; // E0301"),
        ("tests/python/test_abi.py", "    x = 1  # E0301"),
        ("tests/slurm/README.md", "E0301"),
    ] {
        assert!(!left(path, line), "{path}: {line}");
    }
}

#[test]
fn every_code_is_tested() {
    let mut tested = BTreeSet::new();
    for file in files_under("tests").iter().filter(|file| file.path != "tests/tidy.rs") {
        let marks = |line: &&str| !file.path.starts_with("tests/golden/") || line.contains("#~");
        for line in file.text.lines().filter(marks) {
            tested.extend(codes(without_comment(&file.path, line)).map(String::from));
        }
    }
    for file in files_under("src") {
        let others = lines_but_tests(&file).count();
        let tests = file.text.lines().filter(|line| !line.trim_start().starts_with("//"));
        tested.extend(tests.skip(others).flat_map(codes).map(String::from));
    }
    let mut wrong = Vec::new();
    for (code, place) in codes_in_source() {
        if !tested.contains(&code) {
            wrong.push(format!("{code} ({place}) is in no test"));
        }
    }
    none_of(wrong);
}

/// The parts that are released together: the packages for Cargo, CMake and Python.
#[test]
fn released_parts_have_one_version() {
    let version = env!("CARGO_PKG_VERSION");
    let line = format!("version = \"{version}\"");
    let wrong = [
        ("crates/tec-build/Cargo.toml", &line),
        ("crates/tec-build/Cargo.toml", &format!("tec = {{ {line}, path")),
        ("crates/tec-rt/Cargo.toml", &line),
        ("cmake/tec-config-version.cmake", &format!("set(PACKAGE_VERSION \"{version}\")")),
        ("python/pyproject.toml", &line),
    ];
    let lacks = |(path, line): &(&str, &String)| {
        let text = std::fs::read_to_string(root().join(path)).expect("a file of the tree");
        !text.lines().any(|one| one.starts_with(&line[..]))
    };
    let wrong = wrong.iter().filter(|part| lacks(part));
    none_of(wrong.map(|(path, line)| format!("{path}: no line `{line}`")).collect());
}

/// The repository contains no build outputs and no personal files.
#[test]
fn the_repository_root_has_no_other_files() {
    let known = [
        ".cargo",
        ".ci",
        ".gitignore",
        "CONTRIBUTING.md",
        "Cargo.lock",
        "Cargo.toml",
        "LICENSE-APACHE",
        "LICENSE-MIT",
        "Makefile",
        "README.md",
        "bench",
        "build.rs",
        "cmake",
        "crates",
        "docs",
        "examples",
        "grammar",
        "lib",
        "python",
        "requirements.txt",
        "rustfmt.toml",
        "samples",
        "src",
        "tests",
        "tools",
    ];
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output();
    let Ok(listed) = listed else {
        let _ = writeln!(std::io::stderr(), "skipped: the top of the tree: git is not here");
        return;
    };
    let listed = String::from_utf8(listed.stdout).expect("plain names");
    let tops: BTreeSet<&str> =
        listed.split_terminator('\0').map(|path| path.split('/').next().unwrap()).collect();
    none_of(tops.into_iter().filter(|top| !known.contains(top)).map(String::from).collect());
}
