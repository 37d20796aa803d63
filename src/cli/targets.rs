//! `tec targets`: lists the targets, and describes processors.

use super::machine::{Isa, Machine};
use super::report::{Error, Reporter, print};
use super::{cpu, threads};
use crate::ir::DType;
use crate::target::{CacheLevel, Gpu, Os, Processor, Target, VectorRates};

const EXAMPLES: &str = "\
Examples:
  tec targets                        # `*` marks the native target
  tec targets --json
  tec targets --describe             # this machine's processor, with measured bandwidths
  tec targets --describe zen5";

/// List the targets with their lanes and features.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct TargetsArgs {
    /// Describe a processor as `--cpu` takes it; without NAME, that of this machine.
    ///
    /// For this machine's processor the limits are measured, which takes two seconds, and kept.
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "native")]
    describe: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &TargetsArgs, _reporter: &Reporter) -> Result<(), Error> {
    if let Some(name) = &args.describe {
        return describe(name, args.json);
    }
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
                    "systems": systems(target),
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
    text.push_str(&format!("* native: {native}, {}\n", native.processor.name));
    for os in Os::ALL.into_iter().filter(|os| *os != Os::HOST) {
        let names = Target::names_for(os).join(" ");
        text.push_str(&format!("  {}: {names}, to build only\n", os.name()));
    }
    print(&text)
}

/// The names of the systems that a target can name.
fn systems(target: &Target) -> Vec<&'static str> {
    let runs = |os: &Os| os.arches().contains(&target.arch);
    Os::ALL.into_iter().filter(runs).map(Os::name).collect()
}

/// Prints the description of a processor; with the limits of this machine if it is its own.
fn describe(name: &str, json: bool) -> Result<(), Error> {
    let native = Target::native();
    let processor = if name == "native" { native.processor } else { Processor::parse(name)? };
    let limits = (name == "native")
        .then(|| Machine::known(Isa::of(&native), cpu::at_most(threads::usual()), false));
    if json {
        let text = serde_json::to_string_pretty(&json_of(processor, limits.as_ref()));
        return print(&(text.expect("plain data") + "\n"));
    }
    let mut text = format!("{}\n", processor.name);
    if !processor.aliases.is_empty() {
        text.push_str(&format!("also {}\n", processor.aliases.join(", ")));
    }
    if let Some(limits) = &limits {
        let known = match processor == Processor::typical(native.arch) {
            true => "not in the table: automatic schedules are for a typical processor",
            false => "the processor of this machine",
        };
        text.push_str(&format!("{}: {known}\n", limits.cpu));
    }
    text.push_str(&format!("\n{:<28} {:>8} {:>8}\n", "per cycle", "256 bits", "512 bits"));
    for (what, of) in RATES {
        let wide = processor.wide.as_ref().map_or("-".to_string(), |rates| of(rates).to_string());
        text.push_str(&format!("{what:<28} {:>8} {wide:>8}\n", of(&processor.narrow)));
    }
    text.push('\n');
    for (what, of) in CORE {
        text.push_str(&format!("{what:<28} {:>8}\n", of(processor)));
    }
    text.push_str(&format!(
        "\n{:<10} {:>9} {:>5}  {:>7}  {:>17}  {:>19}\n",
        "", "size", "ways", "shared", "prefetched, cycles", "unprefetched, cycles"
    ));
    for (at, cache) in processor.caches.iter().enumerate() {
        let CacheLevel { kib, ways, shared, .. } = cache;
        let shared = if *shared { "yes" } else { "no" };
        text.push_str(&format!(
            "L{:<9} {kib:>5} KiB {ways:>5}  {shared:>7}  {:>18}  {:>20}\n",
            at + 1,
            cache.prefetched_cycles,
            cache.unprefetched_cycles
        ));
    }
    for (name, (entries, cycles)) in ["TLB", "TLB2"].iter().zip(processor.pages) {
        let pages = format!("{entries} pages");
        text.push_str(&format!("{name:<10} {pages:>10} {:>34}  {cycles:>20}\n", ""));
    }
    if let Some(limits) = &limits {
        text.push_str(&measured(limits));
    }
    print(&text)
}

/// A number of a description, and its name.
type Fact<T> = (&'static str, fn(&T) -> f64);

const RATES: [Fact<VectorRates>; 6] = [
    ("multiply-adds", |rates| rates.multiplies),
    ("sums", |rates| rates.adds),
    ("vector operations", |rates| rates.vectors),
    ("loads", |rates| rates.loads),
    ("stores", |rates| rates.stores),
    ("cycles of a division", |rates| rates.divide),
];

const CORE: [Fact<Processor>; 17] = [
    ("clock, GHz", |core| core.ghz),
    ("integer operations per cycle", |core| core.integers),
    ("operations per cycle", |core| core.issue),
    ("reorder buffer, operations", |core| core.window),
    ("store buffer, stores", |core| core.store_buffer),
    ("cycles of a gathered lane", |core| core.gather),
    ("cycles of a masked store of AVX2", |core| core.masked_store),
    ("multiply-adds that a vpermd delays", |core| core.permutation),
    ("time of several streams, of one", |core| core.many_streams),
    ("lines of a run without prefetch", |core| core.run_start),
    ("rows in pieces with prefetch", |core| core.rows_in_pieces),
    ("time of a nontemporal line, of one read", |core| core.nontemporal),
    ("multiply-add latency, cycles", |core| core.multiply_latency),
    ("sum latency, cycles", |core| core.add_latency),
    ("scalar forwarding, cycles", |core| core.forward_latency),
    ("vector forwarding, cycles", |core| core.wide_forward_latency),
    ("mispredicted branch, cycles", |core| core.mispredict),
];

/// Returns the measured limits as text.
fn measured(limits: &Machine) -> String {
    let Machine { threads, isa, peak_f32, peak_f64, peak_i8, levels, .. } = limits;
    let mut text = format!(
        "\nmeasured with {} on {threads} thread{}\n\
         float32 {peak_f32:.0} GFLOP/s, float64 {peak_f64:.0} GFLOP/s, int8 {peak_i8:.0} GOP/s\n",
        isa.name(),
        if *threads == 1 { "" } else { "s" }
    );
    for level in levels {
        let (name, read, triad) = (&level.name, level.read, level.triad);
        text.push_str(&format!("{name:<10} read {read:>7.1} GB/s, triad {triad:>7.1} GB/s\n"));
    }
    text
}

fn json_of(processor: &Processor, limits: Option<&Machine>) -> serde_json::Value {
    fn object<T>(facts: &[Fact<T>], of_what: &T) -> serde_json::Value {
        let pair = |(what, of): &Fact<T>| (what.to_string(), serde_json::json!(of(of_what)));
        serde_json::Value::Object(facts.iter().map(pair).collect())
    }
    let cache = |cache: &CacheLevel| {
        serde_json::json!({
            "bytes": cache.bytes(),
            "ways": cache.ways,
            "shared": cache.shared,
            "hashed": cache.hashed,
            "prefetched_cycles": cache.prefetched_cycles,
            "unprefetched_cycles": cache.unprefetched_cycles,
        })
    };
    serde_json::json!({
        "name": processor.name,
        "aliases": processor.aliases,
        "256 bits": object(&RATES, &processor.narrow),
        "512 bits": processor.wide.as_ref().map(|rates| object(&RATES, rates)),
        "core": object(&CORE, processor),
        "caches": processor.caches.iter().map(cache).collect::<Vec<_>>(),
        "pages": processor.pages.map(|(entries, cycles)| {
            serde_json::json!({ "entries": entries, "miss_cycles": cycles })
        }),
        "measured": limits,
    })
}
