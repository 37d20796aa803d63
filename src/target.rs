//! Targets: names, features, lanes, limits.

use crate::diag::{Diag, Result};
use crate::ir::DType;
use std::fmt;

/// An instruction set family.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Arch {
    /// 64-bit x86, System V ABI.
    X86_64,
    /// 64-bit ARM.
    Aarch64,
    /// RV64GC.
    Riscv64,
}

/// What code is made for. Two targets are equal if they make the same code.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Target {
    /// The name without features: `x86-avx512`.
    pub name: &'static str,
    /// Instruction set family.
    pub arch: Arch,
    /// Widest vector register in bytes; 0 without vectors.
    pub vector_bytes: u32,
    /// True if the hardware has a fused multiply-add.
    pub fma: bool,
    /// CPU features a module needs, by the names of [`Target::KNOWN_FEATURES`], sorted.
    pub features: Vec<&'static str>,
}

impl Target {
    /// Features that `+feature` accepts.
    pub const KNOWN_FEATURES: [&'static str; 3] = ["bf16", "fp16", "vnni"];

    /// The targets of this version, least capable first in each family.
    pub fn all() -> Vec<Target> {
        let avx2 = vec!["avx", "avx2", "f16c", "fma"];
        let mut avx512 = avx2.clone();
        avx512.extend(["avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"]);
        avx512.sort_unstable();
        let make = |name, arch, vector_bytes, fma, features| Target {
            name,
            arch,
            vector_bytes,
            fma,
            features,
        };
        vec![
            make("x86-64", Arch::X86_64, 16, false, vec!["sse4.1"]),
            make("x86-avx2", Arch::X86_64, 32, true, avx2),
            make("x86-avx512", Arch::X86_64, 64, true, avx512),
            make("aarch64", Arch::Aarch64, 16, true, vec!["neon"]),
            make("riscv64", Arch::Riscv64, 0, true, Vec::new()),
        ]
    }

    /// The target a name stands for; `native` is the running CPU's best.
    pub fn parse(name: &str) -> Result<Target> {
        let (base, extra) = name.split_once('+').unwrap_or((name, ""));
        let mut target = if base == "native" {
            Target::native()
        } else {
            match Target::all().into_iter().find(|t| t.name == base) {
                Some(target) => target,
                None if base.starts_with("nvptx") => {
                    return Err(Box::new(
                        Diag::global("E0401", format!("target `{base}` is not in this version"))
                            .note("GPUs come with a later version; `tec targets` lists today's"),
                    ));
                }
                None => {
                    let all = Target::all();
                    let names: Vec<&str> = all.iter().map(|t| t.name).collect();
                    let mut diag = Diag::global("E0401", format!("unknown target `{base}`"))
                        .note(format!("targets: native, {}", names.join(", ")));
                    if let Some(close) = crate::diag::closest(base, names) {
                        diag = diag.help(format!("did you mean `{close}`?"));
                    }
                    return Err(Box::new(diag));
                }
            }
        };
        for feature in extra.split('+').filter(|f| !f.is_empty()) {
            match Target::KNOWN_FEATURES.iter().find(|known| **known == feature) {
                Some(known) if target.name == "x86-avx512" => target.features.push(known),
                Some(_) => {
                    return Err(Box::new(Diag::global(
                        "E0402",
                        format!("target `{}` has no feature `{feature}`", target.name),
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

    /// The best target the running CPU can execute.
    pub fn native() -> Target {
        let mut all = Target::all();
        #[cfg(target_arch = "x86_64")]
        let name = if std::is_x86_feature_detected!("avx512f")
            && std::is_x86_feature_detected!("avx512bw")
            && std::is_x86_feature_detected!("avx512cd")
            && std::is_x86_feature_detected!("avx512dq")
            && std::is_x86_feature_detected!("avx512vl")
            && std::is_x86_feature_detected!("f16c")
        {
            "x86-avx512"
        } else if std::is_x86_feature_detected!("avx2")
            && std::is_x86_feature_detected!("fma")
            && std::is_x86_feature_detected!("f16c")
        {
            "x86-avx2"
        } else {
            "x86-64"
        };
        #[cfg(target_arch = "aarch64")]
        let name = "aarch64";
        #[cfg(target_arch = "riscv64")]
        let name = "riscv64";
        let index = all.iter().position(|t| t.name == name).expect("native target is listed");
        all.swap_remove(index)
    }

    /// Whether code for it runs on this machine.
    pub fn runs_here(&self) -> bool {
        let native = Target::native();
        self.arch == native.arch
            && self.features.iter().all(|f| native.features.contains(f) || *f == "sse4.1")
    }

    /// Lanes of the widest vector of a type; 1 without vectors.
    pub fn lanes(&self, dtype: DType) -> u32 {
        (self.vector_bytes / dtype.bytes() as u32).max(1)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        for feature in &self.features {
            if Target::KNOWN_FEATURES.contains(feature) {
                write!(f, "+{feature}")?;
            }
        }
        Ok(())
    }
}
