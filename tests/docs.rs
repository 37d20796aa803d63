//! The examples of the documents are tested: blocks marked `te` compile, blocks marked `te error`
//! are refused. The first example of an error's own page gives that error. A block marked
//! `ir OPTIONS` is what `tec lower --simple OPTIONS` prints of the `te` block before it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A block of `.te` in a document.
struct Example {
    /// The document.
    page: PathBuf,
    /// The line of its first line, from 1.
    line: usize,
    /// After the three back quotes: `te`, `te error` or `ir` with options.
    kind: String,
    /// The program.
    text: String,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn markdown_files(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).expect("a folder of documents");
    for entry in entries.map(|entry| entry.expect("a readable entry").path()) {
        if entry.is_dir() {
            markdown_files(&entry, found);
        } else if entry.extension().is_some_and(|extension| extension == "md") {
            found.push(entry);
        }
    }
}

fn documents() -> Vec<PathBuf> {
    let mut found = vec![root().join("README.md")];
    markdown_files(&root().join("docs"), &mut found);
    found.sort();
    found
}

fn examples(page: &Path) -> Vec<Example> {
    let text = std::fs::read_to_string(page).expect("a document in UTF-8");
    let mut found = Vec::new();
    let mut open: Option<Example> = None;
    for (number, line) in text.lines().enumerate() {
        match (&mut open, line.trim_start().strip_prefix("```")) {
            (None, Some(kind)) => {
                let (page, kind, text) = (page.into(), kind.trim().to_string(), String::new());
                open = Some(Example { page, line: number + 2, kind, text });
            }
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some(example), None) => {
                example.text.push_str(line);
                example.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{}: a block is not closed", page.display());
    found.retain(|example| matches!(example.kind.split(' ').next(), Some("te" | "ir")));
    found
}

/// Runs a command on an example: the exit status and the messages.
fn run_on(example: &Example, command: &[&str]) -> (Option<i32>, String) {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let source = scratch.path().join("example.te");
    std::fs::write(&source, &example.text).expect("the folder can be written");
    let output = Command::new(env!("CARGO_BIN_EXE_tec"))
        .args(command)
        .arg(&source)
        .output()
        .expect("tec starts");
    let message = String::from_utf8(output.stderr).expect("messages are UTF-8");
    (output.status.code(), message)
}

/// Returns the code that a page of `docs/errors` explains.
fn error_code(page: &Path) -> Option<String> {
    let folder = page.parent()?.file_name()?;
    (folder == "errors").then(|| page.file_stem().unwrap().to_str().unwrap().to_string())
}

#[test]
fn examples_compile_or_are_refused_as_marked() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for page in documents() {
        let code = error_code(&page);
        let programs = examples(&page).into_iter().filter(|example| example.kind.starts_with("te"));
        for (position, example) in programs.enumerate() {
            let example = &example;
            count += 1;
            let place = format!("{}:{}", example.page.display(), example.line);
            let shows_the_code = code.is_some() && position == 0;
            let refused = shows_the_code || example.kind == "te error";
            assert!(refused || example.kind == "te", "{place}: unknown kind of block");
            let expected = code.as_deref().filter(|_| shows_the_code).unwrap_or("");
            // `check` applies every schedule; some targets and sizes are refused by `build` alone.
            let gpu = example.text.contains(" for nvptx");
            let target = if gpu { "nvptx-sm_80" } else { "native" };
            let checked = match refused || gpu {
                true => run_on(example, &["check", "--target", target]),
                false => (Some(0), String::new()),
            };
            let outcome = match checked {
                (Some(0), said) if gpu => (Some(0), said),
                (Some(0), _) => {
                    let schedule: &[&str] = if refused { &[] } else { &["--schedule", "default"] };
                    run_on(example, &[&["build", "--no-sidecars"], schedule].concat())
                }
                failed => failed,
            };
            match outcome {
                (Some(0), _) if !refused => {}
                (Some(1), message) if refused && message.contains(expected) => {}
                (Some(0), _) => wrong.push(format!("{place}: compiles, but should be refused")),
                (status, message) => {
                    let wanted = if refused { format!("error {expected}") } else { "0".into() };
                    let head: Vec<&str> = message.lines().take(12).collect();
                    let head = head.join("\n");
                    wrong.push(format!("{place}: status {status:?}, not {wanted}\n{head}"));
                }
            }
        }
    }
    assert!(count > 30, "only {count} examples found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the output of `tec lower` for a program, or its error message.
fn lower(program: &Example, options: &[&str]) -> String {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let source = scratch.path().join("example.te");
    std::fs::write(&source, &program.text).expect("the folder can be written");
    let output = Command::new(env!("CARGO_BIN_EXE_tec"))
        .args(["lower", "--simple"])
        .args(if options.contains(&"--target") { &[][..] } else { &["--target", "x86-avx2"] })
        .args(options)
        .arg(&source)
        .output()
        .expect("tec starts");
    let text = if output.status.success() { output.stdout } else { output.stderr };
    String::from_utf8(text).expect("what is printed is UTF-8")
}

#[test]
fn ir_blocks_match_the_output_of_lower() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for page in documents() {
        let mut program = None;
        for example in examples(&page) {
            let Some(options) = example.kind.strip_prefix("ir") else {
                program = Some(example);
                continue;
            };
            count += 1;
            let place = format!("{}:{}", example.page.display(), example.line);
            let program = program.as_ref().expect("a program stands before what is printed of it");
            let options: Vec<&str> = options.split_whitespace().collect();
            let printed = lower(program, &options);
            if printed != example.text {
                wrong.push(format!("{place}: printed is\n{printed}"));
            }
        }
    }
    assert!(count > 20, "only {count} printed programs found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Relative links of the documents lead to files, and to headings where they name one.
#[test]
fn links_and_headings_exist() {
    let mut dead = Vec::new();
    for page in documents() {
        let text = std::fs::read_to_string(&page).expect("a document in UTF-8");
        for piece in text.split("](").skip(1) {
            let Some((link, _)) = piece.split_once(')') else { continue };
            if link.contains("://") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => page.clone(),
                _ => page.parent().expect("a file is in a folder").join(file),
            };
            let Ok(content) = std::fs::read_to_string(&target) else {
                if !target.is_dir() {
                    dead.push(format!("{}: {link}", page.display()));
                }
                continue;
            };
            if !heading.is_empty() && !headings(&content).contains(&heading.to_string()) {
                dead.push(format!("{}: {link}: no such heading", page.display()));
            }
        }
    }
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}

/// Returns the anchors of a document's headings, as the usual viewers make them.
fn headings(text: &str) -> Vec<String> {
    let titles = text.lines().filter(|line| line.starts_with('#'));
    titles
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            title
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        })
        .collect()
}

#[test]
fn the_architecture_page_lists_the_passes_in_their_order() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/ARCHITECTURE.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let (_, section) = page.split_once("\n## Passes\n").expect("its section");
    let table = section.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let rows = table.take_while(|line| line.starts_with("| `"));
    let listed: Vec<&str> =
        rows.map(|row| row.split('`').nth(1).expect("a name in the first cell")).collect();
    let passes = tec::driver::PASSES.iter().map(|pass| pass.name);
    let expected: Vec<&str> = std::iter::once("build_loops").chain(passes).collect();
    assert_eq!(listed, expected);
}
