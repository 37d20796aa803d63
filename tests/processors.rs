//! `--cpu`: which processors a target takes, what a module and a schedule know of them, and that
//! results do not depend on them.

use crate::support::answer;
use std::fs;
use tec::module::read::read_manifest;
use tec::target::Processor;

const SCALE: &str = "
kernel scale(n = 4096) {
    input x: float32[n]
    output y[i: n] = 2*x[i] + 1
}
schedule scale.by_cache(level = 1) for cpu {
    let bytes = target.cache_bytes(level)
    let o, l = y.split(i, factor=if bytes == 0 then 4 else bytes // 1024)
}
";

#[test]
fn modules_name_the_processor_that_they_are_scheduled_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let (file, out) = (dir.path().join("scale.te"), dir.path().join("scale.so"));
    fs::write(&file, SCALE).expect("a file is written");
    let build = |target: &str, cpu: &[&str]| {
        let paths = [file.to_str().expect("UTF-8"), out.to_str().expect("UTF-8")];
        let args = ["build", paths[0], "-o", paths[1], "--target", target, "--schedule", "auto"];
        let (good, said) = answer(&[&args[..], cpu].concat());
        assert!(good, "{said}");
        let (good, said) = answer(&["inspect", paths[1]]);
        assert!(good, "{said}");
        (read_manifest(&out).expect("a manifest").target.processor, said)
    };
    let (processor, said) = build("x86-avx512", &["--cpu", "znver4"]);
    assert_eq!(processor.as_deref(), Some("zen4"));
    assert!(said.contains("scheduled for zen4\n"), "{said}");
    assert_eq!(build("x86-avx2", &[]).0, None);
    assert_eq!(build("x86-avx2", &["--cpu", "generic"]).0, None);
    assert_eq!(build("x86-avx512,x86-avx2", &["--cpu", "zen5"]).0.as_deref(), Some("zen5"));
}

#[test]
fn schedules_know_the_caches() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("scale.te");
    fs::write(&file, SCALE).expect("a file is written");
    let factor = |target: &str, cpu: &str, level: &str| {
        let level = format!("scale.by_cache.level={level}");
        let file = file.to_str().expect("UTF-8");
        let mut args = vec!["lower", file, "--schedule", "by_cache", "--schedule-tree"];
        args.extend(["--target", target, "-D", &level]);
        if !cpu.is_empty() {
            args.extend(["--cpu", cpu]);
        }
        answer(&args)
    };
    let has = |target: &str, cpu: &str, level: &str, expected: &str| {
        let (good, said) = factor(target, cpu, level);
        assert!(good && said.contains(expected), "{target} {cpu} {level}: {said}");
    };
    has("x86-avx512", "zen4", "1", "for l 32");
    has("x86-avx512", "zen5", "1", "for l 48");
    has("x86-avx512", "", "1", "for l 48");
    has("x86-avx512", "sapphire-rapids", "2", "for l 2048");
    has("riscv64", "", "3", "for l 4");
    let (good, said) = factor("x86-avx512", "zen4", "4");
    assert!(!good && said.contains("a level, 1 to 3, is expected"), "{said}");
}

#[test]
fn processors_that_do_not_fit_are_refused() {
    for (target, cpu, expected) in [
        ("x86-avx512", "zen3", "error[E0407]: processor `zen3` cannot run code for x86-avx512"),
        ("x86-avx512", "zen3", "note: processors for x86-avx512: generic, skylake-avx512"),
        ("aarch64", "zen4", "error[E0407]: processor `zen4` cannot run code for aarch64"),
        ("nvptx-sm_80", "zen4", "error[E0407]: `--cpu zen4`: nvptx-sm_80 is a GPU"),
        ("x86-avx2", "zen44", "help: did you mean `zen4`?"),
    ] {
        let (good, said) =
            answer(&["check", "samples/matmul.te", "--target", target, "--cpu", cpu]);
        assert!(!good && said.contains(expected), "{target} {cpu}: {said}");
    }
}

#[test]
fn every_processor_is_described() {
    for known in Processor::all() {
        let (good, said) = answer(&["targets", "--describe", known.name]);
        assert!(good && said.starts_with(known.name) && said.contains("L1 "), "{said}");
        let (good, said) = answer(&["targets", "--json", "--describe", known.name]);
        let json: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        assert!(good && json["caches"][0]["bytes"].as_i64() > Some(0), "{said}");
        let page = include_str!("../docs/CLI.md");
        assert!(page.contains(&format!("`{}`", known.name)), "{} is not in CLI.md", known.name);
    }
    let (good, said) = answer(&["targets", "--describe", "zen44"]);
    assert!(!good && said.contains("E0407"), "{said}");
}
