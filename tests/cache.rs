//! The cache of automatic schedules: the output is the same with and without it, and whatever lies
//! in its directory.

use crate::support::Disk;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use tec::driver::{self, Options, ScheduleCache, Trace};
use tec::schedule::print_tree;
use tec::target::Target;
use tempfile::TempDir;

/// A cache in memory. It counts its hits.
#[derive(Debug, Default)]
struct Counted {
    texts: Mutex<HashMap<String, String>>,
    hits: Mutex<usize>,
}

impl ScheduleCache for Counted {
    fn load(&self, key: &str) -> Option<String> {
        let text = self.texts.lock().unwrap().get(key).cloned();
        *self.hits.lock().unwrap() += usize::from(text.is_some());
        text
    }

    fn store(&self, key: &str, text: &str) {
        let old = self.texts.lock().unwrap().insert(key.to_string(), text.to_string());
        assert!(old.is_none_or(|old| old == text), "two schedules for one key");
    }
}

/// Returns the automatic schedules of all kernels of a file, and the notes.
fn schedules(path: &str, options: &Options) -> (Vec<String>, Vec<String>) {
    let mut trace = Trace::default();
    let program = driver::load(path, &Disk, &mut trace).unwrap_or_else(|_| panic!("{path}"));
    let graphs = driver::elaborate(&program, options, &mut trace).expect(path);
    let bounded = driver::schedule(&program, graphs, options, &mut trace).expect(path);
    let print = |one: &_| print_tree(one);
    let texts = bounded.iter().map(|one| format!("{}\n{}", one.schedule.text, print(one)));
    (texts.collect(), trace.notes)
}

#[test]
fn schedules_of_samples_are_the_same_from_the_cache() {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("samples");
    let files = fs::read_dir(samples).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|ext| ext == "te")).collect();
    assert!(files.len() > 20);
    for target in ["x86-avx2", "x86-avx512+vnni", "aarch64", "nvptx-sm_80"] {
        let cache = Arc::new(Counted::default());
        for path in &files {
            let path = path.to_str().unwrap();
            let text = fs::read_to_string(path).unwrap();
            let on_cpus = text.contains("\n    scan ") || text.contains("sort(");
            if target.starts_with("nvptx") && on_cpus {
                // Recurrences and sorts run on CPUs only (E0399, E0392).
                continue;
            }
            let mut options = Options::new(Target::parse(target).unwrap());
            options.schedule = Some((None, "auto".to_string()));
            // The first population only: a generation takes most of a minute for all samples.
            options.candidates = 1;
            let uncached = driver::with_stack(|| schedules(path, &options));
            options.cache = Some(cache.clone());
            let before = *cache.hits.lock().unwrap();
            let cold = driver::with_stack(|| schedules(path, &options));
            let cold_hits = *cache.hits.lock().unwrap() - before;
            let warm = driver::with_stack(|| schedules(path, &options));
            assert_eq!(uncached, cold, "{path} for {target}");
            assert_eq!(uncached, warm, "{path} for {target}");
            assert_eq!(cold_hits, 0, "no two kernels of samples are equal with their names");
            let hits = *cache.hits.lock().unwrap() - before;
            assert_eq!(hits, uncached.0.len(), "{path} for {target}");
        }
    }
}

const PROGRAM: &str = "kernel scale(n = 100) {
    input A: float32[n, n]
    output B[i: n, j: n] = A[i, j] * 2.0
}
";

/// The header of a valid entry, and `text`.
fn entry(key: &str, text: &str) -> String {
    let digest: String =
        Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{{\"key\":\"{key}\",\"about\":{{\"tec\":\"0\"}},\"sha256\":\"{digest}\"}}\n{text}")
}

struct Place(TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        fs::write(place.0.path().join("a.te"), PROGRAM).unwrap();
        place
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tec"));
        command.args(line.split_whitespace()).current_dir(self.0.path());
        command.env("XDG_CACHE_HOME", self.0.path().join("cache")).env_remove("TEC_NO_CACHE");
        command
    }

    /// Runs `tec` without an error or a message; returns the output.
    fn run(&self, command: &mut Command) -> String {
        let output = command.output().expect("tec starts");
        let messages = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && messages.is_empty(), "{command:?}\n{messages}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Builds the module for a target.
    fn build(&self, options: &str) -> Vec<u8> {
        let target = if options.contains("--target") { "" } else { "--target x86-avx2" };
        self.run(&mut self.command(&format!("build a.te -o a.tar {target} {options}")));
        fs::read(self.0.path().join("a.tar")).unwrap()
    }

    /// Returns the files in the cache.
    fn entries(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.0.path().join("cache/tec")).map(|entries| {
            let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
            paths.sort();
            paths
        });
        entries.unwrap_or_default()
    }
}

fn key(entry: &Path) -> String {
    let name = entry.file_name().unwrap().to_str().unwrap();
    name.strip_prefix("schedule-").unwrap().strip_suffix(".txt").unwrap().to_string()
}

const OTHER: &str = "schedule scale for x86-avx2 {\n    B.reorder(j, i)\n}\n";

#[test]
fn modules_are_the_same_with_any_entry() {
    let place = Place::new();
    let expected = place.build("--no-cache");
    assert!(place.entries().is_empty(), "`--no-cache` writes nothing");
    assert!(place.build("") == expected);
    let [path] = &place.entries()[..] else { panic!("{:?}", place.entries()) };
    let intact = fs::read_to_string(path).unwrap();
    assert!(place.build("") == expected);

    let (key, text) = (key(path), intact.split_once('\n').unwrap().1);
    let damaged = [
        String::new(),
        "\n".to_string(),
        intact[..intact.len() - 1].to_string(),
        intact.replace("vectorize", "vectorise"),
        entry("0123", text),
        entry(&key, &text.replace("scale", "other")),
        entry(&key, &text.replace("x86-avx2", "aarch64")),
        entry(&key, "schedule scale for x86-avx2 { B.split(k, factor=4) }"),
        entry(&key, "schedule scale for x86-avx2 {"),
        entry(&key, ""),
    ];
    for damaged in damaged {
        assert_ne!(damaged, intact);
        fs::write(path, damaged).unwrap();
        assert!(place.build("") == expected);
        assert_eq!(fs::read_to_string(path).unwrap(), intact, "it is replaced");
    }
    // What is no file is left alone.
    fs::remove_file(path).unwrap();
    fs::create_dir(path).unwrap();
    assert!(place.build("") == expected);
    fs::remove_dir(path).unwrap();
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo").success());
    assert!(place.build("") == expected);

    // A legal entry is used: the checks above would not notice a cache that is never read.
    fs::remove_file(path).unwrap();
    fs::write(path, entry(&key, OTHER)).unwrap();
    let tree = |options: &str, no_cache: &str| {
        let line =
            format!("lower a.te --target x86-avx2 --schedule auto --schedule-tree {options}");
        place.run(place.command(&line).env("TEC_NO_CACHE", no_cache))
    };
    assert!(tree("", "").starts_with(OTHER.trim_end()));
    assert!(tree("", "0").starts_with(OTHER.trim_end()));
    assert!(tree("", "1").starts_with(text.trim_end()));
    assert!(tree("--no-cache", "").starts_with(text.trim_end()));
    assert_eq!(fs::read_to_string(path).unwrap(), entry(&key, OTHER));
}

#[test]
fn the_key_has_everything_that_the_schedule_depends_on() {
    let place = Place::new();
    let build = |options: &str| {
        let before = place.entries().len();
        place.build(options);
        place.entries().len() - before
    };
    assert_eq!(build(""), 1);
    assert_eq!(build("-D n=101"), 1);
    assert_eq!(build("--opt 1"), 1);
    assert_eq!(build("--fp-contract off"), 1);
    assert_eq!(build("--target x86-avx512"), 1);
    assert_eq!(build("--target x86-avx512+vnni"), 1);
    assert_eq!(build("--module other --schedule auto"), 0);
    assert_eq!(build("-D scale.n=101"), 0);
    let write = |text: String| fs::write(place.0.path().join("a.te"), text).unwrap();
    write(format!("# Comments and the layout do not count.\n\n{PROGRAM}"));
    assert_eq!(build(""), 0);
    let renamed = [
        ("B[", "C["),
        ("B[i: n, j: n] = A[i,", "B[r: n, j: n] = A[r,"),
        ("scale", "twice"),
        ("2.0", "4.0"),
        ("A[i, j] * 2.0", "A[i, j] * A[i, j]"),
        ("A[i, j] * 2.0", "A[j, i] * 2.0"),
    ];
    for (from, to) in renamed {
        assert!(PROGRAM.contains(from));
        write(PROGRAM.replace(from, to));
        assert_eq!(build(""), 1, "{to}");
    }
}

#[test]
fn a_directory_that_cannot_be_used_is_no_cache() {
    let place = Place::new();
    let expected = place.build("--no-cache");
    let file = place.0.path().join("file");
    fs::write(&file, "").unwrap();
    for directory in [file.to_str().unwrap(), "/proc/no/cache", "relative", ""] {
        let mut command = place.command("build a.te --target x86-avx2 -o a.tar");
        command.env("XDG_CACHE_HOME", directory).env_remove("HOME");
        place.run(&mut command);
        assert!(fs::read(place.0.path().join("a.tar")).unwrap() == expected);
    }
    assert!(place.entries().is_empty() && !place.0.path().join("relative").exists());
}

#[test]
fn processes_share_the_cache() {
    let place = Place::new();
    let line = "lower a.te --target x86-avx2 --schedule auto --schedule-tree";
    let expected = place.run(&mut place.command(&format!("{line} --no-cache")));
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| assert_eq!(place.run(&mut place.command(line)), expected));
        }
    });
    assert_eq!(place.entries().len(), 1, "{:?}", place.entries());
}
