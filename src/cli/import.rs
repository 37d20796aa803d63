//! `tec import`: writes an ONNX model as a network in the language, and its parameters.

use super::compile::ModelFlags;
use super::options::CompileArgs;
use super::paths::Files;
use super::report::{Error, Reporter, print};
use super::{model, source};
use crate::diag::Diag;
use crate::module::write::OutputFile;
use safetensors::tensor::{Dtype, TensorView};
use std::path::{Path, PathBuf};
use tec_onnx::{DType, Param};

const EXAMPLES: &str = "\
Examples:
  tec import resnet50.onnx                    # writes resnet50.te and resnet50.safetensors
  tec import bert.onnx -D batch=1 -o bert1.te # a dimension of the model becomes a constant
  tec build resnet50.te                       # a module, with the parameters in it
  tec build resnet50.onnx                     # both steps at once";

/// Write an ONNX model as a network, with its parameters in a file.
///
/// The parameters become a `.safetensors` file beside the `.te` file. The text is readable: every
/// node is a stage or an operator of `onnx.te`, under its own name. Edit it, or build it.
/// Dimensions with names become run-time integers, unless `-D` gives their values.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ImportArgs {
    /// The model.
    #[arg(value_name = "FILE.onnx")]
    file: String,
    /// Write the network here [default: FILE.te]
    #[arg(short, long, value_name = "FILE.te")]
    output: Option<PathBuf>,
    /// Name of the network [default: the stem of FILE.onnx; of `model.onnx`, the graph's name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Set a dimension of the model, such as `-D batch=1` (repeatable).
    #[arg(short = 'D', value_name = "NAME=VALUE")]
    define: Vec<String>,
    /// Make an input a constant: one number for each element, or a NumPy file (repeatable).
    #[arg(long, value_name = "NAME=VALUE|FILE.npy")]
    freeze: Vec<String>,
    /// Compute no convolution by Winograd's algorithm.
    #[arg(long)]
    no_winograd: bool,
    /// Update the input PAST in place instead of returning it with more rows as PRESENT; a `*` in
    /// both stands for the same characters (repeatable).
    #[arg(long, value_name = "PAST=PRESENT")]
    in_place: Vec<String>,
}

/// Runs the command.
pub fn run(args: &ImportArgs, reporter: &Reporter) -> Result<(), Error> {
    if !source::is_model(&args.file) {
        let text = format!("`{}` is not an ONNX model", args.file);
        return Err(Diag::global("E0705", text)
            .help("give a file whose name ends in `.onnx`")
            .into());
    }
    if let Some(name) = &args.name {
        check_name(name)?;
    }
    let options = CompileArgs::defines(&args.define)?;
    let name = args.name.clone();
    let flags = ModelFlags { freeze: &args.freeze, no_winograd: args.no_winograd };
    let (imported, rest) = model::import(&args.file, &options, flags, &args.in_place, name)?;
    if let Some((_, name, value)) = rest.defines.first() {
        let text = format!("`-D {name}={value}`: a dimension is an integer of the model");
        return Err(Error::Usage(text));
    }
    let default = || Path::new(&args.file).with_extension("te");
    let output = args.output.clone().unwrap_or_else(default);
    let params = output.with_extension("safetensors");
    let files = Files::default().input("the model", &args.file);
    let files = files.output("-o", Some(&output));
    files.output("the parameter file", Some(&params)).check()?;
    let bytes = safetensors(&imported.params)?;
    reporter.write(&[
        OutputFile { path: output, bytes: imported.text.into_bytes(), executable: false },
        OutputFile { path: params, bytes, executable: false },
    ])?;
    let signature = |role: &str, arguments: &[tec_onnx::Argument]| -> String {
        let one = |one: &tec_onnx::Argument| {
            let renamed = match one.name == one.model_name {
                true => String::new(),
                false => format!("  # `{}` in the model", one.model_name),
            };
            let role = if one.inout { "inout" } else { role };
            format!("{role} {}: {}{}{renamed}\n", one.name, one.dtype.name(), one.shape)
        };
        arguments.iter().map(one).collect()
    };
    print(&(signature("input", &imported.inputs) + &signature("output", &imported.outputs)))
}

/// Refuses a name that is no identifier.
fn check_name(name: &str) -> Result<(), Error> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(is_word) {
        return Ok(());
    }
    let text = format!("`--name {name}`: a network is named by letters, digits and `_`");
    Err(Error::Usage(text + ", a letter first"))
}

/// Returns the contents of a `.safetensors` file.
fn safetensors(params: &[Param]) -> Result<Vec<u8>, Error> {
    let views: Vec<_> = params.iter().map(view).collect();
    safetensors::serialize(views, None).map_err(|error| {
        let text = format!("the parameters cannot be written: {error}");
        Error::from(Diag::global("E0501", text))
    })
}

fn dtype(dtype: DType) -> Dtype {
    match dtype {
        DType::Float64 => Dtype::F64,
        DType::Float32 => Dtype::F32,
        DType::Float16 => Dtype::F16,
        DType::BFloat16 => Dtype::BF16,
        DType::Int8 => Dtype::I8,
        DType::Int16 => Dtype::I16,
        DType::Int32 => Dtype::I32,
        DType::Int64 => Dtype::I64,
        DType::Uint8 => Dtype::U8,
        DType::Uint16 => Dtype::U16,
        DType::Uint32 => Dtype::U32,
        DType::Uint64 => Dtype::U64,
        DType::Bool => Dtype::BOOL,
        DType::Float8E4M3Fn => Dtype::F8_E4M3,
        DType::Float8E5M2 => Dtype::F8_E5M2,
        DType::Int4 | DType::Uint4 => unreachable!("no param has fewer than 8 bits"),
    }
}

/// Returns a tensor as the file has it.
fn view(param: &Param) -> (String, TensorView<'_>) {
    let shape = param.shape.iter().map(|extent| *extent as usize).collect();
    // The importer has checked the length against the shape.
    let view = TensorView::new(dtype(param.dtype), shape, &param.data);
    (param.name.clone(), view.expect("the length fits the shape"))
}
