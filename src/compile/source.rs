//! The source of a command: a `.te` file, or an ONNX model, which is imported to the language.

use crate::driver::Options;
use crate::lang::Loader;
use crate::module::input;
use crate::module::params::Params;
use std::path::{Path, PathBuf};

/// A program that can be loaded.
pub struct Source {
    /// Reads the program and its imports.
    pub loader: Box<dyn Loader>,
    /// The elements of the params, if the source has them.
    pub params: Option<Params>,
    /// The files that it was read from beside the one that was opened; the loader reads imports.
    pub files: Vec<PathBuf>,
    /// The options without the `-D` that the import used.
    pub options: Options,
}

/// Opens a `.te` file.
pub fn open(options: &Options) -> Source {
    let options = options.clone();
    Source { loader: Box::new(DiskLoader), params: None, files: Vec::new(), options }
}

/// Whether a file is an ONNX model, by its name.
pub fn is_model(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "onnx")
}

/// Reads files from the disk.
struct DiskLoader;

impl Loader for DiskLoader {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        input::read(Path::new(path), input::SOURCE)
    }
}

/// Reads files from the disk, except one, whose text it holds.
pub struct EditedLoader {
    /// The path of the file.
    pub path: String,
    /// Its text.
    pub text: String,
}

impl Loader for EditedLoader {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        if path == self.path { Ok(self.text.clone().into_bytes()) } else { DiskLoader.read(path) }
    }
}
