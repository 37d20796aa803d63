//! The source of a command: a `.te` file, or an ONNX model, which is imported to the language.

use super::npy;
use super::options::split_value;
use super::report::Error;
use crate::diag::Diag;
use crate::driver::Options;
use crate::ir::DType;
use crate::lang::Loader;
use crate::module::input;
use crate::module::params::{ParamData, Params};
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use tec_onnx::{Frozen, Import};

/// A program that can be loaded.
pub struct Source {
    /// Reads the program and its imports.
    pub loader: Box<dyn Loader>,
    /// The elements of the params, if the source has them.
    pub params: Option<Params>,
    /// The options without the `-D` that the import used.
    pub options: Options,
}

/// Opens the source of a command. `freeze` are the options `--freeze NAME=FILE.npy`.
pub fn open(path: &str, options: &Options, freeze: &[String]) -> Result<Source, Error> {
    if !is_model(path) {
        if let Some(text) = freeze.first() {
            let text = format!("`--freeze {text}` is for ONNX models");
            return Err(Error::Usage(text + "; a `.te` file declares a `param`"));
        }
        let (loader, options) = (Box::new(DiskLoader), options.clone());
        return Ok(Source { loader, params: None, options });
    }
    let (imported, options) = import(path, options, freeze, None)?;
    let params = imported.params.into_iter().map(|param| {
        let dtype = DType::from_name(param.dtype.name()).expect("a type of the language");
        let bytes = Arc::new(param.data);
        (param.name, ParamData { dtype, shape: param.shape, bytes })
    });
    let params = Some(params.collect());
    let loader = Box::new(EditedLoader { path: path.to_string(), text: imported.text });
    Ok(Source { loader, params, options })
}

/// Whether a file is an ONNX model, by its name.
pub fn is_model(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "onnx")
}

/// Imports a model. Returns it, and the options without the `-D` that name its dimensions.
pub fn import(
    path: &str,
    options: &Options,
    freeze: &[String],
    name: Option<String>,
) -> Result<(Import, Options), Error> {
    // A network has no other parameters than dimensions.
    let dimension = |(kernel, name, value): &(Option<String>, String, String)| {
        let value = value.parse().ok().filter(|_| kernel.is_none())?;
        Some((name.clone(), value))
    };
    let dims = options.defines.iter().filter_map(dimension).collect();
    let defines = options.defines.iter().filter(|define| dimension(define).is_none());
    let defines = defines.cloned().collect();
    let freeze = freeze.iter().map(|text| frozen(text)).collect::<Result<_, _>>()?;
    let settings = tec_onnx::Options { dims, freeze, name, reassociate: true };
    let imported = tec_onnx::import(Path::new(path), &settings).map_err(|error| {
        if let tec_onnx::Error::Io { path, source } = &error {
            let why = input::io_text(source);
            let text = format!("cannot read `{}`: {why}", path.display());
            return Error::from(Diag::global("E0120", text));
        }
        let text = error.to_string();
        let mut lines = text.lines();
        let head = lines.next().unwrap_or_default();
        let mut diag = Diag::global("E0705", format!("cannot import `{path}`: {head}"));
        diag.notes = lines.map(|line| line.trim().to_string()).collect();
        if let tec_onnx::Error::Unsupported(unsupported) = &error
            && let Some(input) = unsupported.freeze.first()
        {
            diag = diag.help(format!("give its value: `--freeze {input}=FILE.npy`"));
        }
        Error::from(diag)
    })?;
    Ok((imported, Options { defines, ..options.clone() }))
}

fn frozen(text: &str) -> Result<(String, Frozen), Error> {
    let (name, path) = split_value("--freeze", text)?;
    let tensor = npy::read_any(path, name)?;
    let own_name = tensor.dtype.to_string();
    let dtype = tec_onnx::DType::ALL.into_iter().find(|dtype| dtype.name() == own_name);
    let dtype = dtype.expect("both languages have the same types");
    let shape = tensor.shape.iter().map(|extent| *extent as u64).collect();
    Ok((name.to_string(), Frozen { dtype, shape, data: Bytes::from(tensor.data) }))
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
