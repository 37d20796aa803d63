//! `tec targets`: lists the targets.

use super::report::{Error, Reporter, print};
use crate::ir::DType;
use crate::target::{Gpu, Target};

const EXAMPLES: &str = "\
Examples:
  tec targets         # `*` marks the native target, the last line names its features
  tec targets --json";

/// List the targets with their lanes and features.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct TargetsArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &TargetsArgs, _reporter: &Reporter) -> Result<(), Error> {
    let native = Target::native();
    let native_features = |target: &Target| -> Vec<&str> {
        if target.name == native.name { native.added_features().collect() } else { Vec::new() }
    };
    if args.json {
        let list: Vec<serde_json::Value> = Target::all()
            .iter()
            .map(|target| {
                serde_json::json!({
                    "name": target.name,
                    "native": target.name == native.name,
                    "native_features": native_features(target),
                    "vector_bytes": target.vector_bytes,
                    "float32_lanes": target.lanes(DType::Float32),
                    "fma": target.fma,
                    "features": target.features,
                    "gpu": target.gpu.map(|gpu| serde_json::json!({
                        "capability": gpu.capability,
                        "max_threads": Gpu::MAX_THREADS,
                        "shared_bytes": gpu.shared_bytes,
                    })),
                })
            })
            .collect();
        let text = serde_json::to_string_pretty(&list).expect("plain data");
        return print(&(text + "\n"));
    }
    let mut text = String::from("  target         float32 lanes  fma  CPU features\n");
    for target in Target::all() {
        let mark = if target.name == native.name { '*' } else { ' ' };
        let fma = if target.fma { "yes" } else { "no" };
        let lanes = target.lanes(DType::Float32);
        let features = match target.gpu {
            None => target.features.join(" "),
            Some(gpu) => format!(
                "GPU: {} threads, {} KiB of shared memory a block",
                Gpu::MAX_THREADS,
                gpu.shared_bytes >> 10
            ),
        };
        let line = format!("{mark} {:<14} {lanes:<14} {fma:<4} {features}", target.name);
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.push_str(&format!("* native: {native}\n"));
    print(&text)
}
