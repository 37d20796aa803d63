//! `--help`: every command has examples, and the same sections in the same order. `tec targets`.

use std::process::Command;

const COMMANDS: [&str; 19] = [
    "build",
    "check",
    "import",
    "run",
    "lower",
    "explain",
    "bench",
    "tune",
    "best",
    "records",
    "records show",
    "records merge",
    "records prune",
    "records replay",
    "inspect",
    "serve",
    "targets",
    "explain-error",
    "completions",
];

fn stdout(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_tec")).args(args).output().expect("tec starts");
    assert!(output.status.success(), "tec {args:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn every_command_has_examples_and_the_same_sections() {
    assert!(stdout(&["--version"]).starts_with("tec "));
    let overview = stdout(&["--help"]);
    assert!(overview.contains("\nExamples:\n"), "{overview}");
    let list = overview.split_once("Commands:\n").expect("a list of commands").1;
    let listed = list.lines().take_while(|line| !line.is_empty());
    for name in listed.filter_map(|line| line.split_whitespace().next()) {
        assert!(name == "help" || COMMANDS.contains(&name), "`{name}` is not in COMMANDS");
    }
    for command in COMMANDS {
        let mut words: Vec<&str> = command.split(' ').collect();
        assert!(overview.contains(&format!("\n  {} ", words[0])), "{command}: {overview}");
        words.push("--help");
        let help = stdout(&words);
        assert!(help.contains(&format!("\nUsage: tec {command} ")), "{help}");
        assert!(help.contains(&format!("\nExamples:\n  tec {command}")), "{help}");
        let headings = ["Options:", "Kernel arguments:", "Compilation options:", "Global options:"];
        let places = headings.iter().filter_map(|heading| help.find(&format!("\n{heading}\n")));
        assert!(places.is_sorted(), "{help}");
    }
}

#[test]
fn targets_marks_the_native_one() {
    let text = stdout(&["targets"]);
    let native = tec::target::Target::native();
    let marked: Vec<&str> = text.lines().filter(|line| line.starts_with('*')).collect();
    assert_eq!(marked.len(), 2, "{text}");
    assert_eq!(marked[0].split(' ').nth(1), Some(native.name));
    let processor = native.named_processor().map_or_else(String::new, |name| format!(", {name}"));
    assert_eq!(marked[1], format!("* native: {native}{processor}"));
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&["targets", "--json"])).expect("JSON");
    assert_eq!(json.as_array().unwrap().len(), 16);
    let here = json.as_array().unwrap().iter().find(|target| target["native"] == true).unwrap();
    let added: Vec<&str> = native.added_features().collect();
    assert_eq!((&here["name"], &here["native_features"]), (&native.name.into(), &added.into()));
}
