//! Links in this process and in memory: `libwild` reads and writes a table of byte strings, so no
//! file on disk can be incomplete.
//!
//! Undefined symbols stay undefined (those of the C library, and weak ones of libtvm_ffi). Hidden
//! symbols are not exported.

use crate::bug;
use crate::target::Arch;
use libwild::{
    FileSystem, FileType, InputFileData, Linker, OutputFileData, OutputOptions, error as wild,
};
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

/// Links an object with its runtime to a shared object.
pub fn link(arch: Arch, object: Vec<u8>, runtime: &'static [u8]) -> wild::Result<Vec<u8>> {
    let emulation = match arch {
        Arch::X86_64 => "elf_x86_64",
        Arch::Aarch64 => "aarch64linux",
        Arch::Riscv64 => "elf64lriscv",
        Arch::Nvptx => bug!("PTX cannot be linked"),
    };
    let output = "module.so";
    let mut arguments = vec!["wild", "-m", emulation, "-shared", "-o", output];
    arguments.extend(["--hash-style=gnu", "--build-id=none", "-z", "noexecstack", "-z", "now"]);
    // A module is too small for several threads, and must not take tokens of a `make` jobserver.
    arguments.push("--no-threads");
    let inputs = [("module.o", Cow::Owned(object)), ("tec_runtime.o", Cow::Borrowed(runtime))];
    arguments.extend(inputs.iter().map(|(name, _)| *name));

    let files = MemoryFiles::default();
    for (name, bytes) in inputs {
        files.table().insert(PathBuf::from(name), Arc::new(bytes));
    }
    let arguments = || arguments.iter().copied();
    let mut args = libwild::Args::new(arguments)?;
    args.parse(arguments)?;
    let linker = Linker::with_file_system(files.clone());
    linker.run(&args)?;
    let linked = files.table().remove(Path::new(output));
    let linked = linked.ok_or_else(|| libwild::error!("the linker wrote nothing"))?;
    Ok(Arc::unwrap_or_clone(linked).into_owned())
}

/// The contents of a file.
type Contents = Arc<Cow<'static, [u8]>>;

/// Paths and contents; clones share one table.
#[derive(Clone, Default)]
struct MemoryFiles(Arc<Mutex<FxHashMap<PathBuf, Contents>>>);

impl MemoryFiles {
    fn table(&self) -> MutexGuard<'_, FxHashMap<PathBuf, Contents>> {
        self.0.lock().expect("no holder of the lock panics")
    }

    fn get(&self, path: &Path) -> wild::Result<Contents> {
        let missing = || std::io::Error::from(std::io::ErrorKind::NotFound).into();
        self.table().get(path).cloned().ok_or_else(missing)
    }
}

#[derive(Debug)]
struct Input(Contents);

impl InputFileData for Input {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

struct Output {
    path: PathBuf,
    bytes: Vec<u8>,
    files: MemoryFiles,
}

impl OutputFileData for Output {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    fn finish(self) -> wild::Result {
        self.files.table().insert(self.path, Arc::new(Cow::Owned(self.bytes)));
        Ok(())
    }
}

impl FileSystem for MemoryFiles {
    type Input = Input;
    type Output = Output;

    fn open_input(&self, path: &Path, _: bool) -> wild::Result<(Input, Option<Arc<File>>)> {
        Ok((Input(self.get(path)?), None))
    }

    fn file_type(&self, path: &Path) -> wild::Result<FileType> {
        self.get(path).map(|_| FileType::File)
    }

    fn canonicalize(&self, path: &Path) -> wild::Result<PathBuf> {
        Ok(path.to_path_buf())
    }

    fn remove_file(&self, path: &Path) -> wild::Result<()> {
        let bytes = self.get(path)?;
        self.table().remove(path);
        drop(bytes);
        Ok(())
    }

    fn rename_file(&self, path: &Path, new_path: &Path) -> wild::Result<()> {
        let bytes = self.get(path)?;
        let mut table = self.table();
        table.remove(path);
        table.insert(new_path.to_path_buf(), bytes);
        Ok(())
    }

    fn create_output(&self, path: Arc<Path>, options: OutputOptions) -> wild::Result<Output> {
        let bytes = vec![0; options.size as usize];
        Ok(Output { path: path.to_path_buf(), bytes, files: self.clone() })
    }

    fn write_auxiliary(&self, path: &Path, bytes: &[u8]) -> wild::Result {
        self.table().insert(path.to_path_buf(), Arc::new(Cow::Owned(bytes.to_vec())));
        Ok(())
    }
}
