//! Imports a model from the command line:
//!
//!     import MODEL.onnx [-o OUT.te] [--params FOLDER] [--name NAME] [--strict]
//!            [-D DIM=N]… [--freeze NAME:TYPE:2,3=FILE]…
//!
//! The text goes to OUT.te or to stdout. FOLDER receives the data of each parameter as NAME.bin,
//! and `import.txt`: a line for each parameter, input and output with name, name in the model, type
//! and shape, separated by tabs. The data of frozen inputs is little-endian and row-major, too.
//! `--strict` keeps the order of sums.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use tec_onnx::{DType, Error, Frozen, Options, import};

const TYPES: [DType; 13] = [
    DType::Float64,
    DType::Float32,
    DType::Float16,
    DType::BFloat16,
    DType::Int8,
    DType::Int16,
    DType::Int32,
    DType::Int64,
    DType::Uint8,
    DType::Uint16,
    DType::Uint32,
    DType::Uint64,
    DType::Bool,
];

fn frozen(text: &str) -> Option<(String, Frozen)> {
    let (head, file) = text.split_once('=')?;
    let mut parts = head.rsplitn(3, ':');
    let (shape, dtype, name) = (parts.next()?, parts.next()?, parts.next()?);
    let dtype = TYPES.into_iter().find(|own| own.name() == dtype)?;
    let shape = shape.split(',').filter(|dim| !dim.is_empty()).map(|dim| dim.parse().ok());
    let data = std::fs::read(file).ok()?.into();
    let shape = shape.collect::<Option<_>>()?;
    Some((name.to_string(), Frozen::Elements { dtype, shape, data }))
}

fn main() -> ExitCode {
    let mut options = Options::default();
    let (mut model, mut out, mut folder) = (None, None, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_default();
        match &argument[..] {
            "-o" => out = Some(PathBuf::from(value())),
            "--params" => folder = Some(PathBuf::from(value())),
            "--name" => options.name = Some(value()),
            "--strict" => options.reassociate = false,
            "-D" => {
                let text = value();
                let pair = text.split_once('=').and_then(|(n, v)| Some((n, v.parse().ok()?)));
                let Some((name, number)) = pair else {
                    eprintln!("-D takes DIM=NUMBER");
                    return ExitCode::from(2);
                };
                options.dims.push((name.to_string(), number));
            }
            "--freeze" => {
                let Some(pair) = frozen(&value()) else {
                    eprintln!("--freeze takes NAME:TYPE:2,3=FILE");
                    return ExitCode::from(2);
                };
                options.freeze.push(pair);
            }
            _ => model = Some(PathBuf::from(argument)),
        }
    }
    let Some(model) = model else {
        eprintln!("no model given");
        return ExitCode::from(2);
    };
    let result = match import(&model, &options) {
        Ok(result) => result,
        Err(error) => {
            eprintln!("error: {error}");
            if let Error::Unsupported(unsupported) = &error {
                for name in &unsupported.freeze {
                    eprintln!("freeze\t{name}");
                }
            }
            return ExitCode::FAILURE;
        }
    };
    let mut table = String::new();
    for (kind, list) in [("input", &result.inputs), ("output", &result.outputs)] {
        for one in list {
            let dtype = one.dtype.name();
            writeln!(table, "{kind}\t{}\t{}\t{dtype}\t{}", one.name, one.model_name, one.shape)
                .expect("a string");
        }
    }
    let mut files = Vec::new();
    for param in &result.params {
        let dtype = param.dtype.name();
        writeln!(table, "param\t{0}\t{0}\t{dtype}\t{1:?}", param.name, param.shape)
            .expect("a string");
        files.push((format!("{}.bin", param.name), param.data.clone()));
    }
    if let Some(folder) = folder {
        files.push(("import.txt".to_string(), table.into()));
        for (name, data) in files {
            if let Err(error) = std::fs::write(folder.join(&name), data) {
                eprintln!("error: cannot write {name}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    match out {
        None => print!("{}", result.text),
        Some(path) => {
            if let Err(error) = std::fs::write(&path, &result.text) {
                eprintln!("error: cannot write {}: {error}", path.display());
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
