//! Processors: what the cores and caches of CPUs can do, which the cost model and schedules use.
//!
//! A [`Target`](super::Target) says which instructions code may use, a processor how fast they are.
//! Results never depend on it. The numbers of [`Processor::all`] are those of the vendors'
//! optimisation manuals (AMD 56305, 57647 and 58455, Intel 248966) and of the tables of uops.info;
//! rates of caches and memory are those of one core, measured on servers. `GENERIC` has what most
//! servers of the last years have, with the costs that fit a Zen 5.

use super::Arch;
use crate::diag::{Diag, Result, closest, hints};
use std::hash::{Hash, Hasher};

/// A processor. Rates are those of one core.
#[derive(Debug)]
pub struct Processor {
    /// The name that `--cpu` takes.
    pub name: &'static str,
    /// Other names that `--cpu` takes: those of GCC and LLVM, and of processors that differ little.
    pub aliases: &'static [&'static str],
    /// Its family; none if the properties are those of a typical CPU of any family.
    pub arch: Option<Arch>,
    /// Clock in GHz, with all cores in use.
    pub ghz: f64,
    /// Vectors of up to 256 bits.
    pub narrow: VectorRates,
    /// Vectors of 512 bits; none without AVX-512.
    pub wide: Option<VectorRates>,
    /// Integer operations per cycle.
    pub integers: f64,
    /// Operations of any kind issued per cycle.
    pub issue: f64,
    /// Operations in flight: the size of the reorder buffer.
    pub window: f64,
    /// The size of the store buffer.
    pub store_buffer: f64,
    /// Cycles of each lane of a gather or scatter: about twice what the instruction takes alone,
    /// because the lanes have indices of their own and what was scattered is not forwarded to
    /// loads. Fitted on Zen 5, Zen 4 and Emerald Rapids.
    pub gather: f64,
    /// Cycles of a masked store of AVX2. Measured on Zen 3; Zen 2 and 4 are taken to be like it.
    pub masked_store: f64,
    /// Multiply-adds that a core could issue while it moves doublewords across the halves of a
    /// register by `vpermd` of AVX2; 0 if it issues them beside it. Measured on Zen 3.
    pub permutation: f64,
    /// The part of the time of lines from beyond L2 that they take if a loop reads four streams or
    /// more side by side; 1 if that is not known.
    pub many_streams: f64,
    /// Lines of memory at the beginning of each run of bytes that are not prefetched; 0 if the
    /// prefetcher follows all but short runs. Measured on Zen 3.
    pub run_start: f64,
    /// Rows that the prefetcher follows if they are loaded in pieces in turns; 16 if there is no
    /// difference to whole rows. Measured on Zen 3.
    pub rows_in_pieces: f64,
    /// The time of a line that a nontemporal store writes, relative to one that a loop reads from
    /// memory. Fitted on Zen 5 and Emerald Rapids.
    pub nontemporal: f64,
    /// Latency of a multiply-add in cycles.
    pub multiply_latency: f64,
    /// Latency of a sum in cycles.
    pub add_latency: f64,
    /// Cycles of store-to-load forwarding of a scalar.
    pub forward_latency: f64,
    /// Cycles of store-to-load forwarding of a vector.
    pub wide_forward_latency: f64,
    /// Cycles of a mispredicted branch.
    pub mispredict: f64,
    /// Nearest first.
    pub caches: &'static [CacheLevel],
    /// Entries of the TLBs for pages of 4 KiB, nearest first, with the cycles of a miss.
    pub pages: [(u32, f64); 2],
}

/// How fast a core executes vector instructions.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct VectorRates {
    /// Multiply-adds and products per cycle.
    pub multiplies: f64,
    /// Sums, comparisons and shuffles per cycle.
    pub adds: f64,
    /// Vector operations of all kinds per cycle.
    pub vectors: f64,
    /// Loads per cycle.
    pub loads: f64,
    /// Stores per cycle.
    pub stores: f64,
    /// Cycles of a `float32` division.
    pub divide: f64,
}

/// A level of cache.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CacheLevel {
    /// Capacity in KiB: of one core, or of the cores that share it.
    pub kib: u32,
    /// Lines of a set.
    pub ways: u32,
    /// Whether several cores share it.
    pub shared: bool,
    /// Whether the set of an address is a hash of it, so that no stride uses a few sets only.
    pub hashed: bool,
    /// Cycles of a line of 64 bytes that comes from the next level and was prefetched.
    pub prefetched_cycles: f64,
    /// Cycles of a line that was not prefetched, beside others that are under way.
    pub unprefetched_cycles: f64,
}

impl CacheLevel {
    /// Its capacity.
    pub fn bytes(&self) -> i64 {
        i64::from(self.kib) * 1024
    }

    const fn own(kib: u32, ways: u32, prefetched_cycles: f64, unprefetched_cycles: f64) -> Self {
        let (shared, hashed) = (false, false);
        CacheLevel { kib, ways, shared, hashed, prefetched_cycles, unprefetched_cycles }
    }

    const fn hashed(self) -> Self {
        CacheLevel { hashed: true, ..self }
    }

    const fn shared(self) -> Self {
        CacheLevel { shared: true, ..self }
    }
}

/// What the rates of most cores are.
const TWO_PORTS: VectorRates =
    VectorRates { multiplies: 2.0, adds: 2.0, vectors: 4.0, loads: 2.0, stores: 1.0, divide: 2.5 };

/// A typical CPU of a server.
pub const GENERIC: Processor = Processor {
    name: "generic",
    aliases: &[],
    arch: None,
    ghz: 3.5,
    narrow: TWO_PORTS,
    wide: Some(TWO_PORTS),
    integers: 4.0,
    issue: 6.0,
    window: 350.0,
    store_buffer: 64.0,
    gather: 2.5,
    masked_store: 1.5,
    permutation: 0.0,
    many_streams: 1.0,
    run_start: 0.0,
    rows_in_pieces: 16.0,
    nontemporal: 1.6,
    multiply_latency: 4.0,
    add_latency: 3.0,
    forward_latency: 8.0,
    wide_forward_latency: 26.0,
    mispredict: 14.0,
    caches: &[
        CacheLevel::own(48, 12, 1.0, 3.0),
        CacheLevel::own(1024, 16, 2.4, 14.0).hashed(),
        CacheLevel::own(32_768, 16, 5.0, 12.0).hashed().shared(),
    ],
    pages: [(96, 3.0), (2048, 20.0)],
};

/// A typical core of a small board: two instructions per cycle, two levels of cache.
pub const SMALL: Processor = Processor {
    name: "generic-small",
    ghz: 2.0,
    narrow: VectorRates {
        multiplies: 1.0,
        adds: 1.0,
        vectors: 1.0,
        loads: 1.0,
        divide: 4.0,
        ..TWO_PORTS
    },
    wide: None,
    integers: 2.0,
    issue: 2.0,
    window: 64.0,
    store_buffer: 16.0,
    caches: &[CacheLevel::own(32, 8, 6.0, 10.0), CacheLevel::own(1024, 16, 20.0, 60.0).shared()],
    ..GENERIC
};

/// Zen 2, and what Zen 3 and 4 have kept of it: two pipes for products, two for sums, vectors of
/// 256 bits.
const ZEN2: Processor = Processor {
    name: "zen2",
    aliases: &["znver2"],
    arch: Some(Arch::X86_64),
    ghz: 3.2,
    narrow: VectorRates { divide: 3.5, ..TWO_PORTS },
    wide: None,
    integers: 4.0,
    issue: 6.0,
    window: 224.0,
    store_buffer: 48.0,
    gather: 2.5,
    masked_store: 14.0,
    permutation: 2.0,
    many_streams: 1.0,
    run_start: 8.0,
    rows_in_pieces: 8.0,
    nontemporal: 1.6,
    multiply_latency: 5.0,
    add_latency: 3.0,
    forward_latency: 8.0,
    wide_forward_latency: 10.0,
    mispredict: 16.0,
    caches: &[
        CacheLevel::own(32, 8, 2.1, 2.5),
        CacheLevel::own(512, 8, 3.4, 10.0).hashed(),
        CacheLevel::own(16_384, 16, 10.0, 24.0).hashed().shared(),
    ],
    pages: [(64, 3.0), (2048, 25.0)],
};

const ZEN3: Processor = Processor {
    name: "zen3",
    aliases: &["znver3"],
    window: 256.0,
    store_buffer: 64.0,
    multiply_latency: 4.0,
    mispredict: 14.0,
    caches: &[
        CacheLevel::own(32, 8, 2.1, 2.5),
        CacheLevel::own(512, 8, 3.4, 10.0).hashed(),
        CacheLevel::own(32_768, 16, 10.0, 24.0).hashed().shared(),
    ],
    ..ZEN2
};

/// Zen 4 executes an instruction on 512 bits in two halves.
const ZEN4: Processor = Processor {
    name: "zen4",
    aliases: &["znver4"],
    ghz: 3.6,
    narrow: VectorRates { divide: 3.0, ..TWO_PORTS },
    wide: Some(VectorRates {
        multiplies: 1.0,
        adds: 1.0,
        vectors: 2.0,
        loads: 1.0,
        stores: 0.5,
        divide: 6.0,
    }),
    permutation: 0.0,
    run_start: 0.0,
    rows_in_pieces: 16.0,
    window: 320.0,
    forward_latency: 10.0,
    wide_forward_latency: 12.0,
    caches: &[
        CacheLevel::own(32, 8, 2.1, 2.5),
        CacheLevel::own(1024, 8, 3.4, 10.0).hashed(),
        CacheLevel::own(32_768, 16, 10.0, 24.0).hashed().shared(),
    ],
    pages: [(72, 3.0), (3072, 25.0)],
    ..ZEN3
};

const ZEN5: Processor = Processor {
    name: "zen5",
    aliases: &["znver5"],
    arch: Some(Arch::X86_64),
    // The schedulers of the vector units fill before the reorder buffer of 448 operations does:
    // chains of 64 to 96 multiply-adds run as if 200 to 225 operations were in flight, those of
    // `tanh` as if 255 to 280. Measured.
    window: 240.0,
    store_buffer: 104.0,
    // The latencies and the gather are those of loops of single instructions at 4.1 GHz; lines
    // from memory those of loads of whole rows and of single lines a row apart.
    ghz: 4.1,
    gather: 0.8,
    add_latency: 2.0,
    forward_latency: 10.0,
    wide_forward_latency: 12.0,
    caches: &[
        CacheLevel::own(48, 12, 1.0, 3.0),
        CacheLevel::own(1024, 16, 2.4, 14.0).hashed(),
        CacheLevel::own(32_768, 16, 6.0, 20.0).hashed().shared(),
    ],
    pages: [(96, 3.0), (4096, 20.0)],
    ..GENERIC
};

/// Haswell and Broadwell.
const HASWELL: Processor = Processor {
    name: "haswell",
    aliases: &["broadwell", "core-avx2"],
    arch: Some(Arch::X86_64),
    ghz: 3.0,
    narrow: VectorRates { adds: 1.0, vectors: 3.0, divide: 10.0, ..TWO_PORTS },
    wide: None,
    integers: 4.0,
    issue: 4.0,
    window: 192.0,
    store_buffer: 42.0,
    gather: 2.5,
    masked_store: 1.5,
    permutation: 0.0,
    many_streams: 1.0,
    run_start: 0.0,
    rows_in_pieces: 16.0,
    nontemporal: 1.6,
    multiply_latency: 5.0,
    add_latency: 3.0,
    forward_latency: 5.0,
    wide_forward_latency: 6.0,
    mispredict: 16.0,
    caches: &[
        CacheLevel::own(32, 8, 1.5, 4.0),
        CacheLevel::own(256, 8, 4.0, 18.0),
        CacheLevel::own(20_480, 20, 10.0, 24.0).hashed().shared(),
    ],
    pages: [(64, 7.0), (1024, 25.0)],
};

/// Skylake without AVX-512, and its successors up to Comet Lake.
const SKYLAKE: Processor = Processor {
    name: "skylake",
    aliases: &["kabylake", "coffeelake", "cometlake"],
    ghz: 3.6,
    narrow: VectorRates { vectors: 3.0, divide: 5.0, ..TWO_PORTS },
    window: 224.0,
    store_buffer: 56.0,
    multiply_latency: 4.0,
    add_latency: 4.0,
    caches: &[
        CacheLevel::own(32, 8, 1.3, 4.0),
        CacheLevel::own(256, 4, 3.0, 16.0),
        CacheLevel::own(8192, 16, 8.0, 20.0).hashed().shared(),
    ],
    pages: [(64, 7.0), (1536, 25.0)],
    ..HASWELL
};

/// Skylake with AVX-512 and its successors on 14 nm.
const SKYLAKE_AVX512: Processor = Processor {
    name: "skylake-avx512",
    aliases: &["skx", "cascadelake", "cascade-lake", "cooperlake", "cooper-lake"],
    ghz: 2.8,
    wide: Some(VectorRates { vectors: 2.0, divide: 10.0, ..TWO_PORTS }),
    caches: &[
        CacheLevel::own(32, 8, 1.3, 4.0),
        CacheLevel::own(1024, 16, 5.0, 20.0),
        CacheLevel::own(22_528, 11, 10.0, 24.0).hashed().shared(),
    ],
    ..SKYLAKE
};

const ICELAKE_SERVER: Processor = Processor {
    name: "icelake-server",
    aliases: &["ice-lake", "icelake-client", "icelake", "tigerlake", "rocketlake"],
    issue: 5.0,
    window: 352.0,
    store_buffer: 72.0,
    caches: &[
        CacheLevel::own(48, 12, 1.3, 4.0),
        CacheLevel::own(1280, 20, 5.0, 20.0),
        CacheLevel::own(32_768, 16, 10.0, 24.0).hashed().shared(),
    ],
    pages: [(64, 7.0), (2048, 25.0)],
    ..SKYLAKE_AVX512
};

/// Golden Cove in servers, and its successors: Sapphire, Emerald and Granite Rapids.
const SAPPHIRE_RAPIDS: Processor = Processor {
    name: "sapphire-rapids",
    aliases: &[
        "sapphirerapids",
        "emeraldrapids",
        "emerald-rapids",
        "graniterapids",
        "granite-rapids",
    ],
    ghz: 3.0,
    narrow: VectorRates { vectors: 3.0, loads: 3.0, stores: 2.0, divide: 5.0, ..SKYLAKE.narrow },
    integers: 5.0,
    issue: 6.0,
    window: 512.0,
    store_buffer: 112.0,
    gather: 1.25,
    many_streams: 0.55,
    nontemporal: 0.8,
    add_latency: 3.0,
    caches: &[
        CacheLevel::own(48, 12, 1.7, 4.5),
        CacheLevel::own(2048, 16, 6.9, 24.0),
        CacheLevel::own(61_440, 15, 13.0, 30.0).hashed().shared(),
    ],
    pages: [(96, 7.0), (2048, 25.0)],
    ..ICELAKE_SERVER
};

/// Golden Cove without AVX-512: the fast cores of Alder Lake and its successors.
const ALDERLAKE: Processor = Processor {
    name: "alderlake",
    aliases: &["alder-lake", "raptorlake", "raptor-lake", "arrowlake", "meteorlake"],
    ghz: 4.5,
    wide: None,
    caches: &[
        CacheLevel::own(48, 12, 1.7, 4.5),
        CacheLevel::own(1280, 10, 4.0, 20.0),
        CacheLevel::own(30_720, 12, 10.0, 24.0).hashed().shared(),
    ],
    ..SAPPHIRE_RAPIDS
};

static ALL: [Processor; 12] = [
    GENERIC,
    SMALL,
    HASWELL,
    SKYLAKE,
    SKYLAKE_AVX512,
    ICELAKE_SERVER,
    ALDERLAKE,
    SAPPHIRE_RAPIDS,
    ZEN2,
    ZEN3,
    ZEN4,
    ZEN5,
];

impl Processor {
    /// All processors.
    pub fn all() -> &'static [Processor] {
        &ALL
    }

    /// The typical processor of a family.
    pub fn typical(arch: Arch) -> &'static Processor {
        let name = if arch == Arch::Riscv64 { SMALL.name } else { GENERIC.name };
        Processor::find(name).expect("the typical processors are in the table")
    }

    fn find(name: &str) -> Option<&'static Processor> {
        ALL.iter().find(|known| known.name == name || known.aliases.contains(&name))
    }

    /// Returns the processor with this name or alias (E0407).
    pub fn parse(name: &str) -> Result<&'static Processor> {
        if let Some(known) = Processor::find(name) {
            return Ok(known);
        }
        let names: Vec<&str> = ALL.iter().map(|known| known.name).collect();
        let all = names.join(", ");
        let aliases = ALL.iter().flat_map(|known| known.aliases).copied();
        let close = closest(name, names.into_iter().chain(aliases));
        let mut diag = Diag::global("E0407", format!("unknown processor `{name}`"))
            .note(format!("processors: native, {all}"));
        if let Some(close) = close {
            diag = diag.help(format!("did you mean `{close}`?"));
        }
        hints::give_option(&mut diag, name);
        Err(Box::new(diag))
    }

    /// Returns the running CPU's processor; the typical one of its family if it is unknown.
    pub fn native() -> &'static Processor {
        let typical = || Processor::typical(Arch::host().unwrap_or(Arch::X86_64));
        detected().and_then(Processor::find).unwrap_or_else(typical)
    }

    /// The rates of vectors with this many bytes; none if the core lacks them.
    pub fn rates(&self, vector_bytes: u32) -> Option<&VectorRates> {
        if vector_bytes > 32 { self.wide.as_ref() } else { Some(&self.narrow) }
    }
}

// A name stands for one processor.
impl PartialEq for Processor {
    fn eq(&self, other: &Processor) -> bool {
        self.name == other.name
    }
}

impl Eq for Processor {}

impl Hash for Processor {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// What the running CPU says of itself: a model, which a hypervisor may invent, and features, which
/// it cannot.
#[cfg(any(target_arch = "x86_64", test))]
#[derive(Clone, Copy)]
struct Identity<'a> {
    vendor: &'a [u8],
    family: u32,
    model: u32,
    avx2: bool,
    avx512: bool,
    /// Half-precision arithmetic on vectors of 512 bits.
    fp16: bool,
}

/// Returns the name of the running CPU's processor, if it is in the table.
#[cfg(target_arch = "x86_64")]
fn detected() -> Option<&'static str> {
    use std::arch::x86_64::__cpuid;
    let (vendor, version) = (__cpuid(0), __cpuid(1).eax);
    let base = (version >> 8) & 0xf;
    // Intel 253666, "CPUID": the extended fields count for these families.
    let family = if base == 15 { base + ((version >> 20) & 0xff) } else { base };
    let extended = if base == 15 || base == 6 { (version >> 12) & 0xf0 } else { 0 };
    let vendor: Vec<u8> =
        [vendor.ebx, vendor.edx, vendor.ecx].iter().flat_map(|part| part.to_le_bytes()).collect();
    identified(Identity {
        vendor: &vendor,
        family,
        model: extended | ((version >> 4) & 0xf),
        avx2: std::is_x86_feature_detected!("avx2"),
        avx512: std::is_x86_feature_detected!("avx512f"),
        fp16: std::is_x86_feature_detected!("avx512fp16"),
    })
}

/// Returns the processor of the table that is nearest to this CPU. A hypervisor can hide features;
/// a model without a feature that the CPU has is another one.
#[cfg(any(target_arch = "x86_64", test))]
fn identified(cpu: Identity) -> Option<&'static str> {
    let intel = cpu.vendor == b"GenuineIntel";
    let lacks = |name: &str| {
        let wide = Processor::find(name).is_some_and(|known| known.wide.is_some());
        (cpu.avx512 && !wide) || (intel && cpu.fp16 && name != SAPPHIRE_RAPIDS.name)
    };
    named(cpu.vendor, cpu.family, cpu.model).filter(|name| !lacks(name)).or_else(|| {
        // A model that is newer than this table resembles the last one with its features.
        Some(match (cpu.vendor, cpu.family) {
            (b"GenuineIntel", _) if cpu.fp16 => SAPPHIRE_RAPIDS.name,
            (b"GenuineIntel", _) if cpu.avx512 => ICELAKE_SERVER.name,
            (b"GenuineIntel", _) if cpu.avx2 => ALDERLAKE.name,
            (b"AuthenticAMD", 0x1a..) if cpu.avx512 => ZEN5.name,
            (b"AuthenticAMD", _) if cpu.avx512 => ZEN4.name,
            (b"AuthenticAMD", 0x19..) if cpu.avx2 => ZEN3.name,
            _ => return None,
        })
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn detected() -> Option<&'static str> {
    None
}

/// Returns the name of the processor with these numbers of `cpuid`.
#[cfg(any(target_arch = "x86_64", test))]
fn named(vendor: &[u8], family: u32, model: u32) -> Option<&'static str> {
    Some(match (vendor, family, model) {
        (b"AuthenticAMD", 0x17, 0x30..) => "zen2",
        (b"AuthenticAMD", 0x19, 0x10..=0x1f | 0x60..=0x7f | 0xa0..=0xaf) => "zen4",
        (b"AuthenticAMD", 0x19, _) => "zen3",
        (b"AuthenticAMD", 0x1a, _) => "zen5",
        (b"GenuineIntel", 6, 0x3c | 0x3f | 0x45 | 0x46) => "haswell",
        (b"GenuineIntel", 6, 0x3d | 0x47 | 0x4f | 0x56) => "haswell",
        (b"GenuineIntel", 6, 0x4e | 0x5e | 0x8e | 0x9e | 0xa5 | 0xa6) => "skylake",
        (b"GenuineIntel", 6, 0x55) => "skylake-avx512",
        (b"GenuineIntel", 6, 0x6a | 0x6c | 0x7d | 0x7e | 0x8c | 0x8d | 0xa7) => "icelake-server",
        (b"GenuineIntel", 6, 0x97 | 0x9a | 0xaa | 0xac | 0xb7 | 0xba | 0xbf | 0xc5 | 0xc6) => {
            "alderlake"
        }
        (b"GenuineIntel", 6, 0x8f | 0xcf | 0xad | 0xae) => "sapphire-rapids",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_aliases_are_unique() {
        let names = ALL.iter().flat_map(|known| known.aliases.iter().copied().chain([known.name]));
        let mut names: Vec<&str> = names.collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        for known in &ALL {
            for name in known.aliases.iter().chain([&known.name]) {
                assert_eq!(Processor::parse(name).unwrap(), known);
            }
        }
    }

    #[test]
    fn unknown_names_are_refused() {
        let error = Processor::parse("zen6").unwrap_err();
        assert_eq!(error.code, "E0407");
        assert!(error.help.unwrap().starts_with("did you mean `zen"));
        assert_eq!(
            Processor::parse("sapphire-rapid").unwrap_err().help.as_deref(),
            Some("did you mean `sapphire-rapids`?")
        );
    }

    #[test]
    fn features_decide_where_a_model_is_unknown_or_too_old() {
        let old = Identity {
            vendor: b"GenuineIntel",
            family: 6,
            model: 0x9e,
            avx2: true,
            avx512: false,
            fp16: false,
        };
        assert_eq!(identified(old), Some("skylake"));
        // A hypervisor that calls a Granite Rapids a Rocket Lake.
        let disguised = Identity { model: 0xa7, avx512: true, ..old };
        assert_eq!(identified(disguised), Some("icelake-server"));
        assert_eq!(identified(Identity { fp16: true, ..disguised }), Some("sapphire-rapids"));
        // A Sapphire Rapids without half precision.
        assert_eq!(identified(Identity { model: 0x8f, ..disguised }), Some("sapphire-rapids"));
        let unknown = Identity { model: 0xee, ..old };
        assert_eq!(identified(unknown), Some("alderlake"));
        assert_eq!(identified(Identity { avx512: true, ..unknown }), Some("icelake-server"));
        assert_eq!(identified(Identity { avx2: false, ..unknown }), None);
        let amd = Identity { vendor: b"AuthenticAMD", family: 0x1b, ..disguised };
        assert_eq!(identified(amd), Some("zen5"));
        assert_eq!(identified(Identity { family: 0x19, model: 0x01, ..amd }), Some("zen4"));
        assert_eq!(identified(Identity { vendor: b"HygonGenuine", ..amd }), None);
    }

    #[test]
    fn cpuid_names_processors_of_the_table() {
        for (vendor, family, model, name) in [
            (b"AuthenticAMD", 0x19, 0x11, "zen4"),
            (b"AuthenticAMD", 0x19, 0x01, "zen3"),
            (b"AuthenticAMD", 0x17, 0x31, "zen2"),
            (b"AuthenticAMD", 0x1a, 0x02, "zen5"),
            (b"GenuineIntel", 6, 0xcf, "sapphire-rapids"),
            (b"GenuineIntel", 6, 0x55, "skylake-avx512"),
        ] {
            assert_eq!(named(vendor, family, model), Some(name));
        }
        let vendors: [&[u8]; 2] = [b"AuthenticAMD", b"GenuineIntel"];
        for vendor in vendors {
            for (family, model) in (0..0x30).flat_map(|f| (0..0x100).map(move |m| (f, m))) {
                assert!(named(vendor, family, model).is_none_or(|n| Processor::find(n).is_some()));
            }
        }
        assert_eq!(named(b"AuthenticAMD", 0x17, 0x01), None);
        assert_eq!(named(b"HygonGenuine", 0x18, 0), None);
    }

    #[test]
    fn farther_caches_are_larger_and_slower() {
        for known in &ALL {
            for pair in known.caches.windows(2) {
                let [near, far] = pair else { unreachable!("windows of two") };
                assert!(near.kib < far.kib, "{}", known.name);
                assert!(near.prefetched_cycles < far.prefetched_cycles, "{}", known.name);
            }
            for cache in known.caches {
                assert!(cache.prefetched_cycles < cache.unprefetched_cycles, "{}", known.name);
                assert_eq!(cache.kib * 1024 % (64 * cache.ways), 0, "{}", known.name);
            }
        }
    }
}
