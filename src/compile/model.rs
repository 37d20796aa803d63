//! ONNX models as sources: imports them as text and params.

use super::error::Error;
use super::npy;
use super::source::{EditedLoader, Source};
use super::{ModelFlags, split_value};
use crate::diag::Diag;
use crate::driver::Options;
use crate::ir::DType;
use crate::module::input;
use crate::module::params::ParamData;
use bytes::Bytes;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tec_onnx::{Frozen, Import};

/// Opens a model.
pub fn open(path: &str, options: &Options, flags: ModelFlags<'_>) -> Result<Source, Error> {
    let (imported, options) = import(path, options, flags, &[], None)?;
    let frozen = flags.freeze.iter().filter_map(|text| text.split_once('=')).map(|(_, file)| file);
    let frozen = frozen.filter(|file| !is_number(file)).map(PathBuf::from);
    let files = imported.files.into_iter().chain(frozen).collect();
    let params = imported.params.into_iter().map(|param| {
        let dtype = DType::from_name(param.dtype.name()).expect("a type of the language");
        let bytes = Arc::new(param.data);
        (param.name, ParamData { dtype, shape: param.shape, bytes })
    });
    let params = Some(params.collect());
    let loader = Box::new(EditedLoader { path: path.to_string(), text: imported.text });
    Ok(Source { loader, params, files, options })
}

/// Imports a model; `in_place` are the options `--in-place PAST=PRESENT`. Returns it, and the
/// options without the `-D` that name its dimensions.
pub fn import(
    path: &str,
    options: &Options,
    flags: ModelFlags<'_>,
    in_place: &[String],
    name: Option<String>,
) -> Result<(Import, Options), Error> {
    // A network has no other parameters than dimensions, whose names may contain dots.
    let dimension = |(kernel, name, value): &(Option<String>, String, String)| {
        let name = kernel.iter().chain([name]).cloned().collect::<Vec<_>>().join(".");
        Some((name, value.parse().ok()?))
    };
    let dims = options.defines.iter().filter_map(dimension).collect();
    let defines = options.defines.iter().filter(|define| dimension(define).is_none());
    let defines = defines.cloned().collect();
    let freeze = flags.freeze.iter().map(|text| frozen(text)).collect::<Result<_, _>>()?;
    let pair = |text: &String| {
        let (past, present) = split_value("--in-place", text)?;
        Ok::<_, Error>((past.to_string(), present.to_string()))
    };
    let in_place = in_place.iter().map(pair).collect::<Result<_, _>>()?;
    let winograd = !flags.no_winograd;
    let settings = tec_onnx::Options { dims, freeze, in_place, name, reassociate: true, winograd };
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
            let ways = format!("`--freeze {input}=NUMBER` or `--freeze {input}=FILE.npy`");
            diag = diag.help(format!("give its value: {ways}"));
        }
        Error::from(diag)
    })?;
    Ok((imported, Options { defines, ..options.clone() }))
}

fn frozen(text: &str) -> Result<(String, Frozen), Error> {
    let (name, path) = split_value("--freeze", text)?;
    if is_number(path) {
        return Ok((name.to_string(), Frozen::Number(path.to_string())));
    }
    let tensor = npy::read_any(path, name)?;
    let own_name = tensor.dtype.to_string();
    let dtype = tec_onnx::DType::ALL.into_iter().find(|dtype| dtype.name() == own_name);
    let dtype = dtype.expect("both languages have the same types");
    let shape = tensor.shape.iter().map(|extent| *extent as u64).collect();
    Ok((name.to_string(), Frozen::Elements { dtype, shape, data: Bytes::from(tensor.data) }))
}

/// Whether the value of a frozen input is a number and no file.
fn is_number(text: &str) -> bool {
    matches!(text, "true" | "false") || text.parse::<f64>().is_ok()
}
