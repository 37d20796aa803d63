//! Builds what `tec` embeds: the runtime that is linked into every module, compiled for the host
//! and, if a cross compiler is found, for the other CPU families, so that users need no compiler;
//! the table of the error codes, from the files of `docs/errors`; and a hash of all sources, by
//! which the cache of automatic schedules knows the build.

use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    error_codes(&out);
    runtime(&out);
    println!("cargo::rustc-env=TEC_BUILD={:016x}", hash(&SOURCES));
    let level = env::var("OPT_LEVEL").expect("cargo sets the level");
    println!("cargo::rustc-env=TEC_OPT_LEVEL={level}");
}

/// Everything that the behaviour of `tec` depends on.
const SOURCES: [&str; 9] = [
    "Cargo.lock",
    "Cargo.toml",
    "build.rs",
    "crates/nvptx-builder",
    "crates/nvptx-emulator",
    "crates/tec-onnx",
    "grammar",
    "lib",
    "src",
];

/// Returns a hash of the paths and contents of files and folders, and has cargo run this script
/// again if they change.
fn hash(paths: &[&str]) -> u64 {
    fn add(path: &Path, hasher: &mut DefaultHasher) {
        if path.is_dir() {
            let entries = fs::read_dir(path).expect("folders of sources can be listed");
            let mut paths: Vec<PathBuf> =
                entries.map(|entry| entry.expect("an entry can be read").path()).collect();
            paths.sort();
            return paths.iter().for_each(|path| add(path, hasher));
        }
        let bytes = fs::read(path).expect("a source can be read");
        hasher.write(path.as_os_str().as_encoded_bytes());
        hasher.write_usize(bytes.len());
        hasher.write(&bytes);
    }
    let mut hasher = DefaultHasher::new();
    // A packaged crate lacks some, for which Cargo would run this script each time.
    for path in paths.iter().map(Path::new).filter(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", path.display());
        add(path, &mut hasher);
    }
    hasher.finish()
}

include!("src/runtime/flags.in");

/// Writes `runtimes.rs` into `out`: a function from a family to its object, if there is one, and
/// the host's object with the functions for GPUs.
fn runtime(out: &Path) {
    let host = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the architecture");
    let compilers = ARCHES.map(|(arch, ..)| env::var_os(format!("CC_{arch}")));
    let sources = hash(&["build.rs", "src/runtime"]);
    // With the folder, because `runtimes.rs` names it: a copied target folder has a stamp, too.
    let inputs = format!("{sources:x} {compilers:?} {host} {}", out.display());
    for (arch, ..) in ARCHES {
        println!("cargo::rerun-if-env-changed=CC_{arch}");
    }
    // Most changes of the sources are not changes of the runtime.
    let stamp = out.join("runtimes.stamp");
    if fs::read_to_string(&stamp).is_ok_and(|known| known == inputs) {
        return;
    }
    let mut arms = String::new();
    for (arch, cross, flags) in ARCHES {
        let variable = format!("CC_{arch}");
        let compiler = match env::var_os(&variable) {
            Some(given) => Some(PathBuf::from(given)),
            None if arch == host => None,
            None if compiles(cross, flags, out) => Some(PathBuf::from(cross)),
            None => continue,
        };
        if arch == host {
            compile(compiler.clone(), out, "tec_runtime_cuda", &[flags, &["-DTEC_CUDA"]].concat());
        }
        let object = compile(compiler, out, &format!("tec_runtime_{arch}"), flags);
        arms += &format!("        {arch:?} => Some(include_bytes!({object:?})),\n");
    }
    let cuda = out.join("tec_runtime_cuda.o");
    let text = format!(
        "/// The runtime's object file for a CPU family, if this `tec` was built with it.\n\
         pub fn object(arch: &str) -> Option<&'static [u8]> {{\n    \
         match arch {{\n{arms}        _ => None,\n    }}\n}}\n\n\
         /// The host's runtime with the functions for GPUs.\n\
         pub fn cuda_object() -> &'static [u8] {{\n    include_bytes!({cuda:?})\n}}\n"
    );
    fs::write(out.join("runtimes.rs"), text).expect("OUT_DIR can be written");
    fs::write(stamp, inputs).expect("OUT_DIR can be written");
}

/// Compiles the runtime, one translation unit, to `name.o`. The default compiler is that of the
/// `cc` crate.
fn compile(compiler: Option<PathBuf>, out: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let mut build = cc::Build::new();
    build.no_default_flags(true).file("src/runtime/tec_runtime.c").out_dir(out.join(name));
    build.flags(FLAGS).flags(flags);
    if let Some(compiler) = compiler {
        build.compiler(compiler);
    }
    let object = out.join(format!("{name}.o"));
    fs::copy(build.compile_intermediates().remove(0), &object)
        .expect("the runtime object can be copied");
    object
}

/// Whether a compiler is installed and knows the family.
fn compiles(compiler: &str, flags: &[&str], out: &Path) -> bool {
    let mut command = Command::new(compiler);
    command.args(flags).args(["-c", "-x", "c", "/dev/null", "-o"]).arg(out.join("probe.o"));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Writes `error_codes.rs` into `out`: each code with the text of its page, sorted by code. A new
/// code needs only a new page in `docs/errors`.
fn error_codes(out: &Path) {
    println!("cargo::rerun-if-changed=docs/errors");
    let mut codes: Vec<String> = fs::read_dir("docs/errors")
        .expect("docs/errors holds the error pages")
        .map(|entry| entry.expect("docs/errors can be listed").file_name())
        .map(|name| name.into_string().expect("error pages have plain names"))
        .filter_map(|name| name.strip_suffix(".md").map(str::to_string))
        .collect();
    codes.sort();
    let rows: String = codes
        .iter()
        .map(|code| {
            format!(
                "    (\"{code}\", include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \
                 \"/docs/errors/{code}.md\"))),\n"
            )
        })
        .collect();
    fs::write(out.join("error_codes.rs"), format!("&[\n{rows}]\n"))
        .expect("OUT_DIR can be written");
}
