//! What Cargo tells a build script about the program that it builds.

use crate::Error;
use std::env;
use std::path::PathBuf;
use tec::target::{Arch, Os, Target};

/// The surroundings of a build script.
pub(crate) struct Surroundings {
    /// Where files are written.
    pub(crate) out_dir: PathBuf,
    /// Name and version of the package that is built.
    pub(crate) package: String,
    /// The triple of the program.
    triple: String,
    arch: String,
    os: String,
    pointer_bits: String,
    features: Vec<String>,
}

impl Surroundings {
    /// Reads the variables that Cargo sets for build scripts.
    pub(crate) fn of_build_script() -> Result<Surroundings, Error> {
        let variable = |name: &str| {
            env::var(name).map_err(|_| {
                Error::new(format!("`{name}` is not set: call tec_build from a build script\n"))
            })
        };
        let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
        let package = (variable("CARGO_PKG_NAME")?, variable("CARGO_PKG_VERSION")?);
        Ok(Surroundings {
            out_dir: variable("OUT_DIR")?.into(),
            package: format!("{}_{}", package.0, package.1),
            triple: variable("TARGET")?,
            arch: variable("CARGO_CFG_TARGET_ARCH")?,
            os: variable("CARGO_CFG_TARGET_OS")?,
            pointer_bits: variable("CARGO_CFG_TARGET_POINTER_WIDTH")?,
            features: features.split(',').map(str::to_string).collect(),
        })
    }

    /// Returns the targets with these names, the most capable one first, or the most capable one
    /// whose features every CPU has that the program is compiled for. If the program promises less
    /// than all targets need, returns the least capable one.
    pub(crate) fn targets(&self, names: &[String]) -> Result<Vec<Target>, Error> {
        let arch = Arch::CPUS.into_iter().find(|arch| arch.name() == self.arch);
        let arch = arch.filter(|_| self.os == "linux" && self.pointer_bits == "64");
        let Some(arch) = arch else {
            let text = format!("error: tec makes no code for {}\n", self.triple);
            let note = "  = note: it makes ELF objects for Linux on x86_64, aarch64 and riscv64\n";
            return Err(Error::new(text + note));
        };
        let targets = match names {
            [] => vec![self.widest(arch)],
            _ => Target::parse_list(&names.join(",")).map_err(|diag| Error::of(&diag.into()))?,
        };
        if let Some(target) =
            targets.iter().find(|target| (target.arch, target.os) != (arch, Os::Linux))
        {
            let text = format!("error: target `{target}` is not for {}\n", self.triple);
            return Err(Error::new(text));
        }
        if Some(arch) != Arch::host() && !cfg!(feature = "foreign") {
            let text = format!("error: this tec-build makes no code for {}\n", arch.name());
            let help = "  = help: enable the feature `foreign` of tec-build\n";
            return Err(Error::new(text + help));
        }
        Ok(targets)
    }

    fn widest(&self, arch: Arch) -> Target {
        let promised = |feature: &str| {
            let name = rust_name(feature);
            self.features.iter().any(|one| one == name)
        };
        let family: Vec<Target> =
            Target::cpus().into_iter().filter(|target| target.arch == arch).collect();
        let fits = |target: &&Target| target.features.iter().all(|feature| promised(feature));
        let Some(base) = family.iter().rfind(fits) else { return Target::baseline(arch) };
        let more = Target::KNOWN_FEATURES.into_iter().filter(|feature| promised(feature));
        let with = more.fold(base.to_string(), |name, feature| format!("{name}+{feature}"));
        // Not all targets take more features.
        Target::parse(&with).unwrap_or_else(|_| base.clone())
    }
}

/// Returns rustc's name of a feature.
fn rust_name(feature: &str) -> &str {
    match feature {
        "bf16" => "avx512bf16",
        "fp16" => "avx512fp16",
        "vnni" => "avx512vnni",
        same => same,
    }
}

#[cfg(test)]
impl Surroundings {
    /// Returns those of a program for Linux.
    pub(crate) fn for_tests(arch: &str, features: &str) -> Surroundings {
        Surroundings {
            out_dir: PathBuf::new(),
            package: "test_0.1.0".to_string(),
            triple: format!("{arch}-unknown-linux-gnu"),
            arch: arch.to_string(),
            os: "linux".to_string(),
            pointer_bits: "64".to_string(),
            features: features.split(',').map(str::to_string).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_is_the_widest_that_every_cpu_of_the_program_has() {
        let x86 = "fxsr,sse,sse2";
        let v2 = format!("{x86},sse3,sse4.1,sse4.2,ssse3,popcnt");
        let v3 = format!("{v2},avx,avx2,bmi1,bmi2,f16c,fma");
        let v4 = format!("{v3},avx512bw,avx512cd,avx512dq,avx512f,avx512vl");
        let amx = format!("{v4},avx512bf16,avx512vnni");
        for (features, target) in [
            (x86, "x86-64"),
            (&v2, "x86-64"),
            (&v3, "x86-avx2"),
            (&v4, "x86-avx512"),
            (&amx, "x86-avx512+bf16+vnni"),
        ] {
            let found = Surroundings::for_tests("x86_64", features).targets(&[]).unwrap();
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].to_string(), target, "{features}");
        }
        let named = Surroundings::for_tests("x86_64", x86).targets(&["x86-avx2".to_string()]);
        assert_eq!(named.unwrap()[0].to_string(), "x86-avx2");
    }

    #[test]
    fn targets_that_do_not_fit_the_program_are_refused() {
        let x86 = Surroundings::for_tests("x86_64", "");
        for (name, text) in [
            ("aarch64", "target `aarch64` is not for x86_64-unknown-linux-gnu"),
            ("nvptx-sm_80", "target `nvptx-sm_80` is not for x86_64-unknown-linux-gnu"),
            ("x86-avx3", "did you mean"),
        ] {
            let error = x86.targets(&[name.to_string()]).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
        let mac = Surroundings { os: "macos".to_string(), ..x86 };
        let error = mac.targets(&[]).unwrap_err().to_string();
        assert!(error.contains("tec makes no code for"), "{error}");
        let wasm = Surroundings::for_tests("wasm32", "");
        assert!(wasm.targets(&[]).is_err());
    }
}
