//! Modules as `.tar`: the parts, to be linked by the user. The same parts give the same bytes.

use super::link::{launcher_runtime, runtime_object};
use crate::target::Target;
use tar::{Builder, EntryType, Header};

/// The runtime's source, for archives for a family without a compiled runtime.
const RUNTIME_SOURCE: [(&str, &str); 17] = [
    ("tec_runtime.c", include_str!("../runtime/tec_runtime.c")),
    ("tec_runtime.h", include_str!("../runtime/tec_runtime.h")),
    ("check.c", include_str!("../runtime/check.c")),
    ("cpu.c", include_str!("../runtime/cpu.c")),
    ("cuda.c", include_str!("../runtime/cuda.c")),
    ("cuda_driver.c", include_str!("../runtime/cuda_driver.c")),
    ("error.c", include_str!("../runtime/error.c")),
    ("float.c", include_str!("../runtime/float.c")),
    ("macos.c", include_str!("../runtime/macos.c")),
    ("parallel.c", include_str!("../runtime/parallel.c")),
    ("pool.c", include_str!("../runtime/pool.c")),
    ("range.c", include_str!("../runtime/range.c")),
    ("system.c", include_str!("../runtime/system.c")),
    ("threads.c", include_str!("../runtime/threads.c")),
    ("variants.c", include_str!("../runtime/variants.c")),
    ("windows.c", include_str!("../runtime/windows.c")),
    ("workspace.c", include_str!("../runtime/workspace.c")),
];

/// The README of the source in an archive: how to compile it.
const RUNTIME_README: &str = "\
The run-time library of the module's object. Compile it once for the machine that will run it:

    cc -O2 -fPIC -fvisibility=hidden -ffp-contract=off -c tec_runtime.c -o tec_runtime.o

(for aarch64 with Linux add -mno-outline-atomics; for Windows take x86_64-w64-mingw32-gcc, for macOS
clang) and link tec_runtime.o with the object files of all modules.
";

/// Makes the archive of a module for GPUs: the PTX, header, manifest, and the entries with their
/// runtime, compiled for this machine's CPU family.
pub fn make_ptx_archive(
    module: &str,
    ptx: &str,
    object: &[u8],
    header: &str,
    manifest: &str,
) -> Vec<u8> {
    let mut archive = Archive(Builder::new(Vec::new()));
    archive.add(&format!("{module}.json"), manifest.as_bytes());
    archive.add(&format!("{module}.h"), header.as_bytes());
    archive.add(&format!("{module}.ptx"), ptx.as_bytes());
    archive.add(&format!("{module}.o"), object);
    archive.add("tec_runtime.o", launcher_runtime());
    archive.0.into_inner().expect("memory takes all bytes")
}

/// Makes the archive of a module: object, runtime, header, manifest.
pub fn make_archive(
    module: &str,
    object: &[u8],
    header: &str,
    manifest: &str,
    target: &Target,
) -> Vec<u8> {
    let mut archive = Archive(Builder::new(Vec::new()));
    archive.add(&format!("{module}.json"), manifest.as_bytes());
    archive.add(&format!("{module}.h"), header.as_bytes());
    archive.add(&format!("{module}.o"), object);
    let runtime = runtime_object(target.arch, target.os);
    if let Some(runtime) = runtime {
        archive.add("tec_runtime.o", runtime);
    }
    // The user needs the source without a compiled runtime, and may need it on another machine.
    if runtime.is_none() || !target.is_of_host() {
        archive.add("runtime/README", RUNTIME_README.as_bytes());
        for (name, text) in RUNTIME_SOURCE {
            archive.add(&format!("runtime/{name}"), text.as_bytes());
        }
    }
    archive.0.into_inner().expect("memory takes all bytes")
}

struct Archive(Builder<Vec<u8>>);

impl Archive {
    fn add(&mut self, name: &str, bytes: &[u8]) {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o644);
        header.set_size(bytes.len() as u64);
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        self.0.append_data(&mut header, name, bytes).expect("memory takes all bytes");
    }
}
