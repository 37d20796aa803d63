//! The PTX of the samples: under `auto` and under their schedules for GPUs, `ptxas` takes it for
//! every target that has what it uses.
//!
//! `TEC_PTX_DUMP=DIR` keeps the texts; `TEC_CASE=NAME` picks the samples whose name contains it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use tec::codegen::ptx::{PtxModule, compile_ptx};
use tec::driver::{self, Failure, Options, Trace, with_stack};
use tec::ir::Kernel;
use tec::lang::Loader;
use tec::schedule::Fallback;
use tec::target::Target;

/// Schedules for GPUs: file, which is the kernel's name too, and schedule.
const SCHEDULES: &[(&str, &str)] = &[
    ("vector_add", "parallel"),
    ("broadcast_add", "continuous"),
    ("broadcast_add", "alternate"),
    ("matmul", "blocked"),
    ("conv", "bound"),
    ("conv", "tiling"),
    ("conv", "vthread"),
    ("depthwise_conv", "bound"),
    ("depthwise_conv", "tiling"),
    ("max_pool", "optimized"),
    ("avg_pool", "optimized"),
    ("batch_norm", "bound"),
    ("batch_norm", "optimized"),
];

struct Disk;

impl Loader for Disk {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        std::fs::read(path).map_err(|error| error.to_string())
    }
}

fn text_of(failure: Failure) -> String {
    match failure {
        Failure::User(diags) => diags.iter().map(|diag| format!("{diag}\n")).collect(),
        Failure::Bug { pass, message, ir } => format!("bug in {pass}: {message}\n{ir}"),
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The lowered kernels of a sample.
fn lower(file: &str, schedule: Option<&str>, target: &Target) -> Result<Vec<Kernel>, String> {
    let path = root().join("samples").join(format!("{file}.te"));
    let mut options = Options::new(target.clone());
    options.fallback = Fallback::Auto;
    if let Some(schedule) = schedule {
        options.schedule = Some((Some(file.to_string()), schedule.to_string()));
        options.kernels = Some(vec![file.to_string()]);
    }
    let mut trace = Trace::default();
    let path = path.to_str().expect("a path in UTF-8");
    let program = driver::load(path, &Disk, &mut trace).map_err(|(_, failure)| text_of(failure))?;
    let graphs = driver::elaborate(&program, &options, &mut trace).map_err(text_of)?;
    let placed = driver::schedule(&program, graphs, &options, &mut trace).map_err(text_of)?;
    let lowered = placed.iter().map(|one| driver::lower(one, &options, None, &mut trace));
    lowered.collect::<Result<_, _>>().map_err(text_of)
}

fn compile(file: &str, schedule: Option<&str>, target: &Target) -> Result<PtxModule, String> {
    let kernels = lower(file, schedule, target)?;
    let compiled = std::panic::catch_unwind(|| compile_ptx(&kernels, target));
    let message = |panic: Box<dyn std::any::Any + Send>| {
        panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic".to_string())
    };
    compiled.map_err(message)?.map_err(|diag| diag.to_string())
}

/// `TEC_PTXAS`, else the one of the wheel in `.venv`.
fn find_ptxas() -> Option<PathBuf> {
    let found = std::env::var_os("TEC_PTXAS").map(PathBuf::from).or_else(|| {
        for python in root().join(".venv/lib").read_dir().ok()?.flatten() {
            let nvidia = python.path().join("site-packages/nvidia");
            for package in nvidia.read_dir().into_iter().flatten().flatten() {
                let path = package.path().join("bin/ptxas");
                if path.is_file() {
                    return Some(path);
                }
            }
        }
        None
    });
    if found.is_none() {
        eprintln!("skipped: no ptxas (set TEC_PTXAS, or install requirements.txt into .venv)");
    }
    found
}

/// What `ptxas -v` says.
fn assemble(ptxas: &Path, text: &str, arch: &str) -> Result<String, String> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let stem = format!("tec-ptx-{}-{number}", std::process::id());
    let source = std::env::temp_dir().join(format!("{stem}.ptx"));
    let binary = std::env::temp_dir().join(format!("{stem}.cubin"));
    std::fs::write(&source, text).expect("a temporary file");
    let run = Command::new(ptxas)
        .args(["-v", &format!("-arch={arch}")])
        .arg(&source)
        .arg("-o")
        .arg(&binary)
        .output()
        .expect("ptxas runs");
    let _ = std::fs::remove_file(&source);
    let _ = std::fs::remove_file(&binary);
    let said = String::from_utf8_lossy(&[run.stdout, run.stderr].concat()).into_owned();
    if run.status.success() { Ok(said) } else { Err(said) }
}

fn keep(name: &str, text: &str) {
    if let Some(folder) = std::env::var_os("TEC_PTX_DUMP") {
        std::fs::write(PathBuf::from(folder).join(name), text).expect("a folder");
    }
}

fn cases() -> Vec<(String, Option<&'static str>)> {
    let only = std::env::var("TEC_CASE").unwrap_or_default();
    let mut files: Vec<String> = root()
        .join("samples")
        .read_dir()
        .expect("samples")
        .flatten()
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".te")?.to_string()))
        .collect();
    files.sort();
    let mut cases: Vec<_> = files.into_iter().map(|file| (file, None)).collect();
    let named = SCHEDULES.iter().map(|(file, name)| (file.to_string(), Some(*name)));
    cases.extend(named);
    cases.retain(|(file, _)| file.contains(&only));
    cases
}

#[test]
fn ptxas_takes_the_samples() {
    let Some(ptxas) = find_ptxas() else { return };
    let wrong = with_stack(|| {
        let mut wrong = Vec::new();
        for (file, schedule) in cases() {
            let name = format!("{file}.{}", schedule.unwrap_or("auto"));
            let target = Target::parse("nvptx-sm_80").expect("a target");
            match compile(&file, schedule, &target) {
                Err(error) => wrong.push(format!("{name}: {error}")),
                Ok(ptx) => {
                    keep(&format!("{name}.ptx"), &ptx.text);
                    match assemble(&ptxas, &ptx.text, "sm_80") {
                        Ok(said) => eprintln!("{name}: {said}"),
                        Err(said) => wrong.push(format!("{name}: {said}")),
                    }
                }
            }
        }
        wrong
    });
    assert!(wrong.is_empty(), "{} fail\n{}", wrong.len(), wrong.join("\n"));
}
