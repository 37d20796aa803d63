//! Finds and runs `ptxas`: `TEC_PTXAS`, or the one that `pip install nvidia-cuda-nvcc` installed in
//! the `.venv` of the project.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns the path of `ptxas`. If there is none, prints a note to standard error.
pub fn find() -> Option<PathBuf> {
    let found = std::env::var_os("TEC_PTXAS").map(PathBuf::from).or_else(in_venv);
    if found.is_none() {
        eprintln!("skipped: no ptxas (set TEC_PTXAS, or install nvidia-cuda-nvcc into .venv)");
    }
    found
}

fn in_venv() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for python in root.join(".venv/lib").read_dir().ok()?.flatten() {
        let nvidia = python.path().join("site-packages/nvidia");
        for package in nvidia.read_dir().into_iter().flatten().flatten() {
            let path = package.path().join("bin/ptxas");
            if path.is_file() {
                return Some(path);
            }
        }
    }
    None
}

/// Assembles a text.
///
/// # Errors
/// The output of `ptxas`.
pub fn assemble(ptxas: &Path, text: &str, target: &str) -> Result<(), String> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let stem = format!("nvptx-builder-{}-{number}", std::process::id());
    let source = std::env::temp_dir().join(format!("{stem}.ptx"));
    let binary = std::env::temp_dir().join(format!("{stem}.cubin"));
    std::fs::write(&source, text).unwrap();
    let run = Command::new(ptxas)
        .arg(format!("-arch={target}"))
        .arg(&source)
        .arg("-o")
        .arg(&binary)
        .output()
        .unwrap();
    let _ = std::fs::remove_file(&source);
    let _ = std::fs::remove_file(&binary);
    if run.status.success() {
        return Ok(());
    }
    let said = [run.stdout, run.stderr].concat();
    Err(String::from_utf8_lossy(&said).into_owned())
}
