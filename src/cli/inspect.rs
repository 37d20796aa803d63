//! `tec inspect`: prints the manifest of a module.

use super::report::{Error, Reporter, print};
use crate::module::extent::Extent;
use crate::module::manifest::{KernelManifest, LaunchManifest, Manifest, PrepackManifest};
use crate::module::read::read_manifest;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  tec inspect matmul.so          # target, kernels, schedules, operations, workspace
  tec inspect matmul.tar --json  # the manifest (docs/MANIFEST.md)";

/// Print the manifest of a module.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct InspectArgs {
    /// Module of `tec build`: `.so`, `.a`, `.o`, `.tar` or `.ptx`.
    module: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &InspectArgs, _reporter: &Reporter) -> Result<(), Error> {
    let manifest = read_manifest(&args.module)?;
    print(&if args.json { manifest.to_json() + "\n" } else { describe(&manifest) })
}

/// Returns the text that the command prints.
pub fn describe(manifest: &Manifest) -> String {
    let Manifest { module, target, compiler, fp_contract, .. } = manifest;
    let mut text = format!("module {module}, by {compiler}\n");
    if manifest.variants.is_empty() {
        text.push_str(&format!("target {} ({})\n", target.name, target.arch));
    } else {
        let names = manifest.variants.iter().map(|variant| &variant.target.name[..]);
        let names: Vec<&str> = names.collect();
        text.push_str(&format!("targets {} ({})\n", names.join(" "), target.arch));
    }
    if !target.features.is_empty() {
        text.push_str(&format!("needs {}\n", target.features.join(" ")));
    }
    if let Some(processor) = &target.processor {
        text.push_str(&format!("scheduled for {processor}\n"));
    }
    text.push_str(&format!("fp-contract {fp_contract}\n"));
    if manifest.fast_math {
        text.push_str("fast-math\n");
    }
    if let Some(version) = &manifest.ptx_version {
        text.push_str(&format!("PTX {version}\n"));
    }
    for source in &manifest.sources {
        let short: String = source.sha256.chars().take(16).collect();
        text.push_str(&format!("source {} sha256 {short}\n", source.file));
    }
    let names = manifest.variants.iter().map(|variant| &variant.target.name);
    let variants: Vec<Manifest> = names.map(|name| manifest.clone().for_target(name)).collect();
    for (at, kernel) in manifest.kernels.iter().enumerate() {
        let variants = variants.iter().filter_map(|one| Some((one, one.kernels.get(at)?)));
        let variants = variants.map(|(one, kernel)| (&one.target.name[..], kernel));
        text.push_str(&describe_kernel(kernel, &variants.collect::<Vec<_>>()));
    }
    text
}

/// Describes a kernel, with the facts that depend on the target in a module for several.
fn describe_kernel(kernel: &KernelManifest, variants: &[(&str, &KernelManifest)]) -> String {
    let mut text = format!("\n{}\n", kernel.signature);
    if !kernel.parameters.is_empty() {
        let values = kernel.parameters.iter().map(|(name, value)| match value.as_str() {
            Some(value) => format!("{name} = {value}"),
            None => format!("{name} = {value}"),
        });
        text.push_str(&format!("  parameters {}\n", values.collect::<Vec<_>>().join(", ")));
    }
    let is_common = variants.iter().all(|(_, own)| own.schedule == kernel.schedule);
    if is_common {
        text.push_str(&describe_schedule(&kernel.schedule, "  "));
    }
    text.push_str(&format!("  operations {}, bytes {}\n", kernel.flops, kernel.bytes));
    text.push_str(&format!("  workspace {} bytes\n", kernel.workspace_bytes));
    match &kernel.prepack {
        None => {}
        Some(PrepackManifest::Pack { of, input, bytes }) => {
            text.push_str(&format!("  packs {input} for {of}_prepacked, {bytes} bytes\n"));
        }
        Some(PrepackManifest::Prepacked { of, inputs }) => {
            text.push_str(&format!("  is {of} with packed {}\n", inputs.join(", ")));
        }
    }
    for (target, own) in variants {
        text.push_str(&format!("  for {target}: workspace {} bytes\n", own.workspace_bytes));
        if own.signature != kernel.signature {
            text.push_str(&format!("    {}\n", own.signature));
        }
        if !is_common {
            text.push_str(&describe_schedule(&own.schedule, "    "));
        }
    }
    if kernel.reassociated {
        text.push_str("  reassociated\n");
    }
    if !kernel.launches.is_empty() {
        let names = kernel.gpus.iter().map(|name| name.strip_prefix("nvptx-").unwrap_or(name));
        text.push_str(&format!("  fits {}\n", names.collect::<Vec<_>>().join(", ")));
    }
    kernel.launches.iter().for_each(|launch| text.push_str(&describe_launch(launch)));
    text
}

fn describe_schedule(schedule: &str, indent: &str) -> String {
    let mut text = String::new();
    let mut lines = schedule.lines();
    match (schedule.starts_with("schedule "), lines.next()) {
        // The schedules of a network's kernels begin with their names.
        (false, Some(head)) if head.starts_with("# ") => text += &format!("{indent}{head}\n"),
        (true, Some(head)) => text += &format!("{indent}{head}\n"),
        _ => text += &format!("{indent}schedule {schedule}\n"),
    }
    lines.for_each(|line| text += &format!("{indent}{line}\n"));
    text
}

fn describe_launch(launch: &LaunchManifest) -> String {
    let join = |numbers: [String; 3]| numbers.join(", ");
    let grid = join(launch.grid.each_ref().map(Extent::to_string));
    let block = join(launch.block.map(|threads| threads.to_string()));
    let shared = launch.static_shared_bytes + launch.dynamic_shared_bytes;
    format!("  launch {}: grid {grid}; block {block}; shared {shared} bytes\n", launch.name)
}
