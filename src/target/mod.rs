//! Targets: names, features, lanes, limits, and the processors that code is scheduled for.

mod processor;

use crate::diag::{Diag, Result, hints};
use crate::ir::DType;
pub use processor::{CacheLevel, Processor, VectorRates};
use std::fmt;

/// An instruction set family.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Arch {
    /// 64-bit x86 with the System V ABI.
    X86_64,
    /// 64-bit ARM.
    Aarch64,
    /// RV64GC.
    Riscv64,
    /// GPUs of NVIDIA, with PTX.
    Nvptx,
}

impl Arch {
    /// The families of CPUs.
    pub const CPUS: [Arch; 3] = [Arch::X86_64, Arch::Aarch64, Arch::Riscv64];

    /// The family of the running CPU, if `tec` supports it.
    pub fn host() -> Option<Arch> {
        Arch::CPUS.into_iter().find(|arch| arch.name() == std::env::consts::ARCH)
    }

    /// The name in compiler triples, in manifests and of the runtime's object.
    pub fn name(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64",
            Arch::Aarch64 => "aarch64",
            Arch::Riscv64 => "riscv64",
            Arch::Nvptx => "nvptx",
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The operating system that a module is for. It decides the format of objects, the calling
/// convention of exported functions and the system calls of the runtime.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Os {
    /// ELF objects.
    Linux,
    /// COFF objects.
    Windows,
    /// Mach-O objects.
    MacOs,
}

impl Os {
    /// The system that `tec` runs on, the default of targets.
    pub const HOST: Os = Os::Linux;
    /// All systems.
    pub const ALL: [Os; 3] = [Os::Linux, Os::Windows, Os::MacOs];

    /// The name, which follows that of the processor in a target: `x86-avx2-windows`.
    pub fn name(self) -> &'static str {
        match self {
            Os::Linux => "linux",
            Os::Windows => "windows",
            Os::MacOs => "macos",
        }
    }

    /// The families of CPUs that the system runs on.
    pub fn arches(self) -> &'static [Arch] {
        match self {
            Os::Linux => &Arch::CPUS,
            Os::Windows => &[Arch::X86_64],
            Os::MacOs => &[Arch::X86_64, Arch::Aarch64],
        }
    }
}

/// A processor family with its features, and the processor that automatic schedules are made for.
/// Equal targets get the same code.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Target {
    /// The name without system and features: `x86-avx512`.
    pub name: &'static str,
    /// Instruction set family.
    pub arch: Arch,
    /// Operating system; of a GPU, that of the CPU that launches.
    pub os: Os,
    /// Bytes of the widest vector register; 0 without vectors.
    pub vector_bytes: u32,
    /// Whether the hardware has a fused multiply-add.
    pub fma: bool,
    /// CPU features that a module requires, sorted.
    pub features: Vec<&'static str>,
    /// The properties of a GPU; `None` for a CPU.
    pub gpu: Option<Gpu>,
    /// How fast the instructions are; for a GPU, the CPU that launches.
    pub processor: &'static Processor,
}

/// The properties and limits of a GPU (CUDA C++ Programming Guide, "Technical Specifications per
/// Compute Capability").
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Gpu {
    /// Compute capability times 10: 80 for `sm_80`.
    pub capability: u32,
    /// Whether code may use the instructions that only this capability has: `sm_90a`.
    pub specific: bool,
    /// Most bytes of shared memory of a block, if its launch requests more than
    /// [`Gpu::STATIC_SHARED_BYTES`].
    pub shared_bytes: u32,
    /// `--fast-math`: compute float32 division, square roots and functions by approximate
    /// instructions.
    pub fast_math: bool,
}

impl Gpu {
    /// Most threads of a block.
    pub const MAX_THREADS: u32 = 1024;
    /// Most threads of a block along x, y, z.
    pub const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
    /// Most blocks of a grid along x, y, z.
    pub const MAX_GRID: [u32; 3] = [(1 << 31) - 1, 65_535, 65_535];
    /// Bytes of shared memory that every block can have, without a request.
    pub const STATIC_SHARED_BYTES: u32 = 48 << 10;
    /// Most 32-bit registers of a thread.
    pub const MAX_REGISTERS: u32 = 255;
    /// Most 32-bit registers of a block: those of a multiprocessor.
    pub const BLOCK_REGISTERS: u32 = 64 << 10;
    /// Threads of a warp.
    pub const WARP: u32 = 32;
}

/// The instruction set of the SIMD back end (`codegen::simd`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SimdIsa {
    /// AVX2 with FMA: 16 registers of 32 bytes.
    Avx2,
    /// AVX-512 F, BW, CD, DQ, VL: 32 registers of 64 bytes, eight mask registers.
    Avx512,
}

impl SimdIsa {
    /// Bytes of a vector register.
    pub fn bytes(self) -> u32 {
        match self {
            SimdIsa::Avx2 => 32,
            SimdIsa::Avx512 => 64,
        }
    }

    /// Vector registers.
    pub fn registers(self) -> u32 {
        match self {
            SimdIsa::Avx2 => 16,
            SimdIsa::Avx512 => 32,
        }
    }

    /// Whether instructions have lane masks (EVEX encodings).
    pub fn has_masks(self) -> bool {
        self == SimdIsa::Avx512
    }
}

impl Target {
    /// Features that `+feature` accepts.
    pub const KNOWN_FEATURES: [&'static str; 5] = ["amx-bf16", "amx-int8", "bf16", "fp16", "vnni"];

    /// All targets, the least capable first in each family.
    pub fn all() -> Vec<Target> {
        [Target::cpus(), Target::gpus()].concat()
    }

    /// The CPU targets.
    pub fn cpus() -> Vec<Target> {
        let avx2 = vec!["avx", "avx2", "f16c", "fma"];
        let mut avx512 = avx2.clone();
        avx512.extend(["avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"]);
        avx512.sort_unstable();
        let make = |name, arch, vector_bytes, fma, features| Target {
            name,
            arch,
            os: Os::HOST,
            vector_bytes,
            fma,
            features,
            gpu: None,
            processor: Processor::typical(arch),
        };
        vec![
            make("x86-64", Arch::X86_64, 16, false, vec!["sse4.1"]),
            make("x86-avx2", Arch::X86_64, 32, true, avx2),
            make("x86-avx512", Arch::X86_64, 64, true, avx512),
            make("aarch64", Arch::Aarch64, 16, true, vec!["neon"]),
            make("riscv64", Arch::Riscv64, 0, true, Vec::new()),
        ]
    }

    /// The GPU targets.
    pub fn gpus() -> Vec<Target> {
        let make = |name, capability, specific, shared_kib: u32| Target {
            name,
            arch: Arch::Nvptx,
            os: Os::HOST,
            vector_bytes: 16,
            fma: true,
            features: Vec::new(),
            gpu: Some(Gpu {
                capability,
                specific,
                shared_bytes: shared_kib << 10,
                fast_math: false,
            }),
            processor: Processor::typical(Arch::Nvptx),
        };
        vec![
            make("nvptx-sm_75", 75, false, 64),
            make("nvptx-sm_80", 80, false, 163),
            make("nvptx-sm_86", 86, false, 99),
            make("nvptx-sm_87", 87, false, 163),
            make("nvptx-sm_89", 89, false, 99),
            make("nvptx-sm_90", 90, false, 227),
            make("nvptx-sm_90a", 90, true, 227),
            make("nvptx-sm_100", 100, false, 227),
            make("nvptx-sm_100a", 100, true, 227),
            make("nvptx-sm_120", 120, false, 99),
            make("nvptx-sm_120a", 120, true, 99),
        ]
    }

    /// Parses a target's name with its features; `native` is the running CPU's best target with
    /// every known feature that the CPU has, and its processor.
    pub fn parse(name: &str) -> Result<Target> {
        if name.contains(',') {
            let text = format!("`{name}` names several targets");
            let diag = Diag::global("E0406", text);
            return Err(Box::new(diag.help("only `tec build` makes a module for several CPUs")));
        }
        let (base, extra) = name.split_once('+').unwrap_or((name, ""));
        let with_os = Os::ALL.into_iter().find_map(|os| {
            let name = base.strip_suffix(os.name())?.strip_suffix('-')?;
            Some((name, os))
        });
        let (cpu, os) = with_os.unwrap_or((base, Os::HOST));
        let mut target = if cpu == "native" {
            Target::native().for_os(os)?
        } else {
            match Target::all().into_iter().find(|t| t.name == cpu) {
                Some(target) if with_os.is_some() => target.for_os(os)?,
                Some(target) => target,
                None => {
                    let all = Target::all();
                    let names: Vec<&str> = all.iter().map(|t| t.name).collect();
                    let mut diag = Diag::global("E0401", format!("unknown target `{base}`"))
                        .note(format!("targets: native, {}", names.join(", ")));
                    if let Some(close) = crate::diag::closest(cpu, names) {
                        let system = base.strip_prefix(cpu).unwrap_or_default();
                        diag = diag.help(format!("did you mean `{close}{system}`?"));
                    }
                    hints::give_option(&mut diag, base);
                    return Err(Box::new(diag));
                }
            }
        };
        for feature in extra.split('+').filter(|f| !f.is_empty()) {
            match Target::KNOWN_FEATURES.iter().find(|known| **known == feature) {
                Some(known) if target.takes(known) => target.features.push(known),
                Some(_) => {
                    return Err(Box::new(Diag::global(
                        "E0402",
                        format!("target `{target}` has no feature `{feature}`"),
                    )));
                }
                None => {
                    return Err(Box::new(
                        Diag::global("E0402", format!("unknown target feature `{feature}`"))
                            .note(format!("features: {}", Target::KNOWN_FEATURES.join(", "))),
                    ));
                }
            }
        }
        target.features.sort_unstable();
        target.features.dedup();
        Ok(target)
    }

    /// Parses the targets of a module, separated by commas, and orders them, the most capable one
    /// first. Refuses several targets that cannot be in one module (E0406).
    pub fn parse_list(names: &str) -> Result<Vec<Target>> {
        let mut targets: Vec<Target> = Vec::new();
        for name in names.split(',') {
            let target = Target::parse(name.trim())?;
            if targets.contains(&target) {
                return Err(Box::new(Diag::global("E0406", format!("`{target}` is given twice"))));
            }
            targets.push(target);
        }
        if let [_] = targets[..] {
            return Ok(targets);
        }
        let refused = |text: String| Diag::global("E0406", text);
        let first = &targets[0];
        let one = format!("`{names}`: a module for several targets is for");
        if let Some(other) = targets.iter().find(|other| other.arch != first.arch || other.is_gpu())
        {
            let note = format!("`{first}` is for {}, `{other}` for {}", first.arch, other.arch);
            let diag = refused(format!("{one} CPUs of one family")).note(note);
            return Err(Box::new(diag.help("build one module for each family")));
        }
        if let Some(other) = targets.iter().find(|other| other.os != first.os) {
            let (this, that) = (first.os.name(), other.os.name());
            let note = format!("`{first}` is for {this}, `{other}` for {that}");
            let diag = refused(format!("{one} one operating system")).note(note);
            return Err(Box::new(diag.help("build one module for each system")));
        }
        for feature in ["bf16", "amx-bf16"] {
            let rounds = |target: &&Target| target.features.contains(&feature);
            let some = targets.iter().filter(rounds).count();
            if some > 0 && some < targets.len() {
                let text = format!("`{names}`: all targets of a module need `+{feature}`, or none");
                let note = "its instruction rounds sums of bfloat16 products in another way and \
                            treats subnormal numbers as 0, so results would depend on the CPU";
                return Err(Box::new(refused(text).note(note)));
            }
        }
        let all = Target::all();
        let rank = |target: &Target| {
            let place = all.iter().position(|known| known.name == target.name);
            (place, target.features.len())
        };
        targets.sort_by_key(|target| std::cmp::Reverse(rank(target)));
        Ok(targets)
    }

    /// Returns the target for an operating system (E0401 if the system does not run on its CPUs).
    pub fn for_os(&self, os: Os) -> Result<Target> {
        if os.arches().contains(&self.arch) {
            // Only Linux is asked for tile registers.
            let target = if os == Os::Linux { self.clone() } else { self.without_tiles() };
            return Ok(Target { os, ..target });
        }
        let system = os.name();
        let text = format!("there is no target `{}-{system}`", self.name);
        let names = Target::names_for(os).join(", ");
        let note = format!("targets for {system}: {names}");
        Err(Box::new(Diag::global("E0401", text).note(note)))
    }

    /// The names of the CPU targets for a system, with the system: `x86-avx2-windows`.
    pub fn names_for(os: Os) -> Vec<String> {
        let runs = |target: &Target| os.arches().contains(&target.arch);
        let targets = Target::cpus().into_iter().filter(runs);
        targets.map(|target| format!("{}-{}", target.name, os.name())).collect()
    }

    /// The best target that the running CPU can execute, with every known feature that the CPU has,
    /// or the baseline of its family if the CPU cannot execute even that.
    pub fn native() -> Target {
        let family: Vec<Target> =
            Target::all().into_iter().filter(|target| Some(target.arch) == Arch::host()).collect();
        let best = family.iter().rfind(|target| target.runs_here()).or(family.first());
        let Some(mut target) = best.cloned() else {
            panic!("tec does not run on this kind of CPU");
        };
        if target.takes_features() {
            target.features.extend(Target::KNOWN_FEATURES.iter().filter(|name| host_has(name)));
            target.features.sort_unstable();
        }
        target.schedule_for(Processor::native()).unwrap_or(target)
    }

    /// Returns the target with the schedules of a processor; none if the processor cannot run its
    /// code.
    fn schedule_for(&self, processor: &'static Processor) -> Option<Target> {
        let runs = processor.arch.is_none_or(|arch| arch == self.arch)
            && processor.rates(self.vector_bytes).is_some();
        runs.then(|| Target { processor, ..self.clone() })
    }

    /// Returns the target with the schedules of a processor, which `native` or a name gives
    /// (E0407).
    pub fn with_processor(self, name: &str) -> Result<Target> {
        let processor =
            if name == "native" { Processor::native() } else { Processor::parse(name)? };
        if self.is_gpu() {
            let text = format!("`--cpu {name}`: {self} is a GPU");
            return Err(Box::new(Diag::global("E0407", text).help("leave `--cpu` out")));
        }
        self.schedule_for(processor).ok_or_else(|| {
            let text = format!("processor `{name}` cannot run code for {self}");
            let all: Vec<&str> = Processor::all()
                .iter()
                .filter(|known| self.schedule_for(known).is_some())
                .map(|known| known.name)
                .collect();
            let note = format!("processors for {self}: {}", all.join(", "));
            Box::new(Diag::global("E0407", text).note(note))
        })
    }

    /// The name of the processor, unless it is the typical one of the family; none for a GPU.
    pub fn named_processor(&self) -> Option<&'static str> {
        let named = !self.is_gpu() && self.processor != Processor::typical(self.arch);
        named.then_some(self.processor.name)
    }

    /// Whether [`Target::KNOWN_FEATURES`], all extensions of AVX-512, may be added to the target.
    pub fn takes_features(&self) -> bool {
        self.simd() == Some(SimdIsa::Avx512)
    }

    /// Returns the target without tile registers.
    pub fn without_tiles(&self) -> Target {
        let mut target = self.clone();
        target.features.retain(|feature| !is_of_tiles(feature));
        target
    }

    /// Whether code for the target may use tile registers.
    pub fn has_tiles(&self) -> bool {
        self.features.iter().any(|feature| is_of_tiles(feature))
    }

    /// Whether `feature`, one of [`Target::KNOWN_FEATURES`], may be added to the target.
    fn takes(&self, feature: &str) -> bool {
        self.takes_features() && (self.os == Os::Linux || !is_of_tiles(feature))
    }

    /// The name of the target without its system, `x86-avx512+vnni`.
    pub fn cpu_name(&self) -> String {
        Target { os: Os::HOST, ..self.clone() }.to_string()
    }

    /// The features beyond those of the target's name.
    pub fn added_features(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.features.iter().copied().filter(|name| Target::KNOWN_FEATURES.contains(name))
    }

    /// The intrinsics of `lib/intrinsics.te` that have an instruction, each with the feature that
    /// it needs beyond the instruction set of the SIMD back end.
    const INTRINSICS: [(&'static str, Option<&'static str>); 9] = [
        ("dot2_i16", None),
        ("dot4_u8_i8", Some("vnni")),
        ("dot4_i8_u8", Some("vnni")),
        ("dot2_bf16", Some("bf16")),
        ("tile_u8_i8", Some("amx-int8")),
        ("tile_i8_u8", Some("amx-int8")),
        ("tile_i8_i8", Some("amx-int8")),
        ("tile_u8_u8", Some("amx-int8")),
        ("tile_bf16", Some("amx-bf16")),
    ];

    /// The feature that has the instruction of an intrinsic of `lib/intrinsics.te`; `None` also if
    /// it needs no feature beyond those of a target's name.
    pub fn feature_of_intrinsic(name: &str) -> Option<&'static str> {
        Target::INTRINSICS.iter().find(|(known, _)| *known == name)?.1
    }

    /// The least capable target of a CPU family.
    pub fn baseline(arch: Arch) -> Target {
        let mut family = Target::cpus().into_iter().filter(|target| target.arch == arch);
        family.next().expect("a family of CPUs")
    }

    /// The least capable target of this machine's CPU family.
    pub fn host_baseline() -> Target {
        Target::baseline(Arch::host().expect("tec runs on this kind of CPU"))
    }

    /// Every feature of a target that this machine's CPU has, sorted.
    pub fn host_features() -> Vec<&'static str> {
        let own = Target::cpus().into_iter().filter(|target| Some(target.arch) == Arch::host());
        let named = own.flat_map(|target| target.features).chain(Target::KNOWN_FEATURES);
        let has: std::collections::BTreeSet<_> = named.filter(|name| host_has(name)).collect();
        has.into_iter().collect()
    }

    /// Whether the target is for the CPU family and the system of this machine.
    pub fn is_of_host(&self) -> bool {
        Some(self.arch) == Arch::host() && self.os == Os::HOST
    }

    /// Whether this machine can run code for the target.
    pub fn runs_here(&self) -> bool {
        self.is_of_host() && self.features.iter().all(|name| host_has(name))
    }

    /// The instruction set of the SIMD back end, on targets that have it.
    pub fn simd(&self) -> Option<SimdIsa> {
        match (self.arch, self.vector_bytes) {
            (Arch::X86_64, 32) => Some(SimdIsa::Avx2),
            (Arch::X86_64, 64) => Some(SimdIsa::Avx512),
            _ => None,
        }
    }

    /// The architecture of a GPU, such as `sm_80`; the name of another target.
    pub fn architecture(&self) -> &'static str {
        self.name.strip_prefix("nvptx-").unwrap_or(self.name)
    }

    /// Whether the target is a GPU.
    pub fn is_gpu(&self) -> bool {
        self.gpu.is_some()
    }

    /// The targets whose GPUs can run the PTX of a module for this one: those of this capability or
    /// a higher one; for `sm_90a` and the like only the target itself.
    pub fn compatible_gpus(&self) -> Vec<Target> {
        let Some(gpu) = self.gpu else { return Vec::new() };
        let is_promised = |target: &Target| match target.gpu {
            Some(_) if gpu.specific => target.name == self.name,
            Some(other) => !other.specific && other.capability >= gpu.capability,
            None => false,
        };
        Target::gpus().into_iter().filter(is_promised).collect()
    }

    /// Whether the target has the instruction of an intrinsic of `lib/intrinsics.te`.
    pub fn has_intrinsic(&self, name: &str) -> bool {
        let has = |feature: Option<&str>| feature.is_none_or(|f| self.features.contains(&f));
        let is_supported =
            |(known, feature): &(&str, Option<&str>)| *known == name && has(*feature);
        self.simd().is_some() && Target::INTRINSICS.iter().any(is_supported)
    }

    /// Lanes of the widest vector of a type; 1 without vectors.
    pub fn lanes(&self, dtype: DType) -> u32 {
        (self.vector_bytes / dtype.bytes() as u32).max(1)
    }
}

/// The targets that have a pass or a directive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Targets {
    /// All targets.
    All,
    /// CPUs.
    Cpus,
    /// GPUs.
    Gpus,
}

impl Targets {
    /// Whether `target` is one of them.
    pub fn contain(self, target: &Target) -> bool {
        match self {
            Targets::All => true,
            Targets::Cpus => !target.is_gpu(),
            Targets::Gpus => target.is_gpu(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        if self.os != Os::HOST {
            write!(f, "-{}", self.os.name())?;
        }
        self.added_features().try_for_each(|feature| write!(f, "+{feature}"))
    }
}

/// Whether a feature needs the tile registers of AMX.
fn is_of_tiles(feature: &str) -> bool {
    feature.starts_with("amx")
}

/// Whether the running CPU and its operating system support a feature.
#[cfg(target_arch = "x86_64")]
fn host_has(feature: &str) -> bool {
    match feature {
        "sse4.1" => std::is_x86_feature_detected!("sse4.1"),
        "avx" => std::is_x86_feature_detected!("avx"),
        "avx2" => std::is_x86_feature_detected!("avx2"),
        "fma" => std::is_x86_feature_detected!("fma"),
        "f16c" => std::is_x86_feature_detected!("f16c"),
        "avx512f" => std::is_x86_feature_detected!("avx512f"),
        "avx512bw" => std::is_x86_feature_detected!("avx512bw"),
        "avx512cd" => std::is_x86_feature_detected!("avx512cd"),
        "avx512dq" => std::is_x86_feature_detected!("avx512dq"),
        "avx512vl" => std::is_x86_feature_detected!("avx512vl"),
        "bf16" => std::is_x86_feature_detected!("avx512bf16"),
        "fp16" => std::is_x86_feature_detected!("avx512fp16"),
        "vnni" => std::is_x86_feature_detected!("avx512vnni"),
        "amx-bf16" => has_tiles(22),
        "amx-int8" => has_tiles(25),
        _ => false,
    }
}

/// Whether the CPU has tile registers and this feature of AMX, by its bit of CPUID leaf 7, EDX
/// (Intel SDM, volume 2), and whether a process can use them: a module asks for them when it is
/// first called (`src/runtime/variants.c`).
#[cfg(target_arch = "x86_64")]
fn has_tiles(bit: u32) -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    const TILE: u32 = 24;
    const SAVED: u64 = 1 << TILE_DATA;
    const TILE_DATA: u32 = 18;
    const ARCH_GET_XCOMP_SUPP: libc::c_int = 0x1021;
    let known = __cpuid(0).eax >= 7;
    let features = if known { __cpuid_count(7, 0).edx } else { 0 };
    if features >> TILE & features >> bit & 1 == 0 {
        return false;
    }
    let mut supported = 0u64;
    // SAFETY: the call writes a `u64`.
    let failed =
        unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_GET_XCOMP_SUPP, &raw mut supported) };
    failed == 0 && supported & SAVED != 0
}

/// Every CPU of the other families has the features that we name.
#[cfg(not(target_arch = "x86_64"))]
fn host_has(_feature: &str) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_to_what_they_print() {
        for target in Target::all() {
            assert_eq!(Target::parse(target.name).unwrap(), target);
            assert_eq!(target.to_string(), target.name);
        }
        let target = Target::parse("x86-avx512+vnni+bf16+vnni").unwrap();
        assert_eq!(target.to_string(), "x86-avx512+bf16+vnni");
        assert!(target.features.is_sorted());
    }

    #[test]
    fn a_system_follows_the_name_of_the_cpu() {
        let target = Target::parse("x86-avx512-windows+vnni").unwrap();
        assert_eq!(target.os, Os::Windows);
        assert_eq!(target.to_string(), "x86-avx512-windows+vnni");
        assert_eq!(target.cpu_name(), "x86-avx512+vnni");
        assert!(!target.runs_here());
        assert_eq!(Target::parse("aarch64-linux").unwrap(), Target::parse("aarch64").unwrap());
        if Arch::host() == Some(Arch::X86_64) {
            let native = Target::parse("native-windows").unwrap();
            assert_eq!(native, Target::native().for_os(Os::Windows).unwrap());
            assert!(!native.has_tiles());
        }
        let mac = Target::parse("aarch64-macos").unwrap();
        assert_eq!((mac.os, mac.to_string()), (Os::MacOs, "aarch64-macos".to_string()));
        let error = |name: &str| Target::parse(name).unwrap_err();
        for name in [
            "aarch64-windows",
            "riscv64-macos",
            "nvptx-sm_80-windows",
            "-windows",
            "windows",
            "x86-64-mac",
        ] {
            assert_eq!(error(name).code, "E0401", "{name}");
        }
        let help = error("x86-avx51-windows").help;
        assert_eq!(help.as_deref(), Some("did you mean `x86-avx512-windows`?"));
        assert_eq!(Target::parse_list("x86-avx2-windows,x86-avx2").unwrap_err().code, "E0406");
    }

    #[test]
    fn modules_are_for_gpus_of_their_capability_or_a_higher_one() {
        let promised = |name: &str| -> Vec<&str> {
            let targets = Target::parse(name).unwrap().compatible_gpus();
            targets.iter().map(|target| target.name).collect()
        };
        assert_eq!(promised("nvptx-sm_90"), ["nvptx-sm_90", "nvptx-sm_100", "nvptx-sm_120"]);
        assert_eq!(promised("nvptx-sm_90a"), ["nvptx-sm_90a"]);
        assert_eq!(promised("x86-avx2"), [] as [&str; 0]);
    }

    #[test]
    fn processors_run_the_code_of_their_family() {
        let with = |name: &str, processor: &str| {
            let target = Target::parse(name).unwrap().with_processor(processor);
            target.map(|target| target.processor.name).map_err(|diag| diag.message)
        };
        assert_eq!(with("x86-avx512", "znver4"), Ok("zen4"));
        assert_eq!(with("x86-avx2", "zen3"), Ok("zen3"));
        assert_eq!(with("aarch64", "generic"), Ok("generic"));
        let refused = "processor `zen3` cannot run code for x86-avx512";
        assert_eq!(with("x86-avx512", "zen3"), Err(refused.to_string()));
        assert!(with("aarch64", "zen3").is_err() && with("nvptx-sm_80", "generic").is_err());
        assert!(with("x86-avx2", "native").is_ok() || Arch::host() != Some(Arch::X86_64));
    }

    #[test]
    fn unknown_names_are_refused() {
        let error = |name: &str| Target::parse(name).unwrap_err();
        assert_eq!(error("x86-avx51").help.as_deref(), Some("did you mean `x86-avx512`?"));
        assert_eq!(error("nvptx-sm_99").code, "E0401");
        assert_eq!(error("nvptx-sm_80+bf16").code, "E0402");
        assert_eq!(error("").code, "E0401");
        assert_eq!(error("x86-avx2+vnni").code, "E0402");
        assert_eq!(error("x86-avx512+sse9").code, "E0402");
        assert_eq!(error("x86-avx512-windows+amx-int8").code, "E0402");
        assert!(Target::parse("x86-avx512+amx-int8").unwrap().has_tiles());
    }

    #[test]
    fn lists_are_ordered_by_capability() {
        let list = |names: &str| -> Vec<String> {
            Target::parse_list(names).unwrap().iter().map(Target::to_string).collect()
        };
        let names = "x86-64,x86-avx512,x86-avx512+vnni,x86-avx2";
        assert_eq!(list(names), ["x86-avx512+vnni", "x86-avx512", "x86-avx2", "x86-64"]);
        let names = "x86-avx512+vnni,x86-avx512+amx-int8+vnni";
        assert_eq!(list(names), ["x86-avx512+amx-int8+vnni", "x86-avx512+vnni"]);
        assert_eq!(list("nvptx-sm_80"), ["nvptx-sm_80"]);
        let error = |names: &str| Target::parse_list(names).unwrap_err();
        for refused in [
            "x86-avx2,x86-avx2",
            "x86-avx512+vnni+fp16,x86-avx512+fp16+vnni",
            "x86-avx2,aarch64",
            "x86-avx2,nvptx-sm_80",
            "nvptx-sm_80,nvptx-sm_90",
            "x86-avx512+bf16,x86-avx512",
            "x86-avx512+amx-bf16+bf16,x86-avx512+bf16",
        ] {
            assert_eq!(error(refused).code, "E0406", "{refused}");
        }
        assert_eq!(error("x86-avx2,x86-avx51").help.as_deref(), Some("did you mean `x86-avx512`?"));
        assert_eq!(error("x86-avx2,").code, "E0401");
        assert_eq!(Target::parse("x86-avx2,x86-64").unwrap_err().code, "E0406");
    }

    #[test]
    fn the_native_target_runs_here() {
        let native = Target::native();
        assert!(native.runs_here() || native.name == "x86-64");
        assert_eq!(Target::parse("native").unwrap(), native);
        // The name and the processor give the same target on another machine.
        let named = Target::parse(&native.to_string()).unwrap();
        assert_eq!(named.with_processor(native.processor.name).unwrap(), native);
        let added: Vec<&str> = native.added_features().collect();
        let known = Target::KNOWN_FEATURES.iter().copied();
        let here: Vec<&str> = known.filter(|name| host_has(name)).collect();
        assert_eq!(added, if native.takes_features() { here } else { Vec::new() });
    }
}
