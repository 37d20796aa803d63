//! The bindings of a module: Rust source with a function for each kernel, typed by the manifest.
//!
//! Each kernel gets a private function that calls its checked entry, the only unsafe code. The
//! public ones make its arguments from slices, from arrays of ndarray (`nd`), or from packed
//! operands, which are types of their own.

mod expr;
mod text;

use tec::diag::{Diag, Result};
use tec::ir::{Buffer, DType, Expr, ExprKind, Kernel, Param, Role, Source};
use tec::module::manifest::{ArgManifest, KernelManifest, Manifest, PrepackManifest};
use text::{Writer, arguments, identifier, type_name};

/// Refuses packed operands whose layout depends on the target, which the bindings do not know.
fn check_layouts(manifest: &Manifest) -> Result<()> {
    for variant in &manifest.variants {
        if let Some(kernel) = variant.kernels.iter().find(|kernel| kernel.args.is_some()) {
            let (kernel, target) = (&kernel.name, &variant.target.name);
            let text = format!("`{kernel}`: the layout of packed operands for {target} is another");
            let help = "give the kernel one schedule for all targets, such as `for x86`";
            return Err(Box::new(Diag::global("E0406", text).help(help)));
        }
    }
    Ok(())
}

/// Returns the source for a module. `prefix` is the beginning of its symbols.
pub(crate) fn write(manifest: &Manifest, name: &str, prefix: &str) -> Result<String> {
    check_layouts(manifest)?;
    let functions: Vec<Function<'_>> = manifest
        .kernels
        .iter()
        .enumerate()
        .map(|(at, kernel)| Function::new(at, kernel, &manifest.kernels))
        .collect::<Result<_>>()?;
    let mut out = Writer::default();
    let source = manifest.sources.first().map_or("", |source| &source.file);
    let (compiler, mut target) = (&manifest.compiler, manifest.target.name.clone());
    if !manifest.variants.is_empty() {
        let names = manifest.variants.iter().map(|variant| &variant.target.name[..]);
        target = names.collect::<Vec<_>>().join("`, `");
    }
    out.doc(&format!("The kernels of `{source}`, compiled by {compiler} for `{target}`."));
    out.line("#[allow(dead_code, non_snake_case, unused_imports, clippy::all)]");
    out.line("#[allow(clippy::pedantic)]");
    out.line(format!("pub mod {} {{", identifier(name)));
    out.line("use ::tec_rt::{BFloat16, Error, Float16};");
    out.line("");
    out.line("use ::tec_rt::bind::{self, Arg, Int, Kernel};");
    out.line("");
    let version = env!("CARGO_PKG_VERSION");
    out.line(format!("const _: () = bind::require_version(\"{version}\");"));
    out.line("");
    out.doc("The manifest of the module, as JSON.");
    out.line(format!("pub const MANIFEST: &str = include_str!(\"{name}.json\");"));
    for function in &functions {
        function.write_slices(&mut out);
        function.write_call(&mut out, prefix);
    }
    out.line("");
    out.line("::tec_rt::if_ndarray! {");
    out.doc("The same functions on arrays of `ndarray`, row-major and contiguous.");
    out.line("pub mod nd {");
    out.line("use super::*;");
    out.line("use ::tec_rt::ndarray;");
    for function in &functions {
        function.write_arrays(&mut out);
    }
    out.line("}");
    out.line("}");
    out.line("}");
    Ok(out.text)
}

/// A parameter of the raw entry.
struct Parameter<'a> {
    /// Its name in the source.
    name: &'a str,
    /// The Rust identifier.
    ident: String,
    kind: Kind<'a>,
}

enum Kind<'a> {
    Tensor {
        dtype: DType,
        shape: Vec<Expr>,
        output: bool,
        packed: Option<Operand<'a>>,
        /// Of integers of 4 bits: the code of DLPack, and the last extent in elements.
        halved: Option<(u8, Expr)>,
        /// Whether it need not be contiguous.
        strided: bool,
    },
    Scalar(DType),
    /// `source`: the tensor and the dimension that the checked entry reads it from.
    Integer {
        source: Option<(usize, usize)>,
    },
}

/// A packed operand.
struct Operand<'a> {
    /// The Rust type.
    ty: String,
    /// The run-time integers of the kernel that packs it.
    integers: Vec<&'a str>,
}

/// A kernel with its bindings.
struct Function<'a> {
    /// Its number in the module.
    at: usize,
    manifest: &'a KernelManifest,
    params: Vec<Parameter<'a>>,
}

/// How a run-time integer of a call is found.
enum Known<'f> {
    /// It was kept by this packed operand.
    Operand(&'f Parameter<'f>),
    /// It is the length of this slice.
    Length(&'f Parameter<'f>),
    /// It is an argument of this type.
    Argument(&'static str),
}

fn operand_type(kernel: &str, input: &str) -> String {
    format!("{}Packed{}", type_name(kernel), type_name(input))
}

impl<'a> Function<'a> {
    fn new(at: usize, manifest: &'a KernelManifest, all: &'a [KernelManifest]) -> Result<Self> {
        let kernel: Kernel = manifest.to_kernel()?;
        let idents = arguments(manifest.args.iter().map(ArgManifest::name));
        let parameter = |((arg, param), ident): ((&'a ArgManifest, &Param), String)| {
            let kind = match param {
                Param::Tensor { buffer, role, .. } => Kind::Tensor {
                    dtype: buffer.dtype,
                    shape: buffer.shape.to_vec(),
                    output: role.is_written(),
                    packed: operand(manifest, arg.name(), role.is_written(), all),
                    halved: halved(buffer),
                    strided: buffer.strides.is_some() && halved(buffer).is_none(),
                },
                Param::Scalar { dtype, .. } => Kind::Scalar(*dtype),
                Param::Runtime { source, .. } => Kind::Integer {
                    source: source.map(|source| match source {
                        Source::Extent(at, dim) | Source::Stride(at, dim) => (at, dim),
                    }),
                },
            };
            Parameter { name: arg.name(), ident, kind }
        };
        // Slices are contiguous: the entry finds the strides without an argument.
        let is_argument = |((_, param), _): &((&ArgManifest, &Param), String)| {
            !matches!(param, Param::Runtime { source: Some(Source::Stride(..)), .. })
        };
        let params = manifest.args.iter().zip(&kernel.params).zip(idents);
        let params = params.filter(is_argument).map(parameter).collect();
        Ok(Function { at, manifest, params })
    }

    /// Returns the name of the type whose constructor this kernel is, if it packs an operand.
    fn packs(&self) -> Option<String> {
        match &self.manifest.prepack {
            Some(PrepackManifest::Pack { of, input, .. }) => Some(operand_type(of, input)),
            _ => None,
        }
    }

    fn tensors(&self) -> impl Iterator<Item = (usize, &Parameter<'a>)> {
        self.params.iter().enumerate().filter(|(_, p)| matches!(p.kind, Kind::Tensor { .. }))
    }

    fn integers(&self) -> impl Iterator<Item = &Parameter<'a>> {
        self.params.iter().filter(|param| matches!(param.kind, Kind::Integer { .. }))
    }

    fn ident_of(&self, name: &str) -> String {
        let named = self.params.iter().find(|param| param.name == name);
        named.map_or_else(|| name.to_string(), |param| param.ident.clone())
    }

    /// Returns the packed inputs that keep a run-time integer.
    fn operands_with(&self, name: &str) -> impl Iterator<Item = (usize, &Parameter<'a>)> {
        self.tensors().filter(move |(_, param)| match &param.kind {
            Kind::Tensor { packed: Some(operand), output: false, .. } => {
                operand.integers.contains(&name)
            }
            _ => false,
        })
    }

    /// Returns how a call with slices finds a run-time integer.
    fn known(&self, integer: &Parameter<'a>) -> Known<'_> {
        if let Some((_, operand)) = self.operands_with(integer.name).next() {
            return Known::Operand(operand);
        }
        let is_var = |extent: &Expr| match &extent.kind {
            ExprKind::Var(var) => var.name() == integer.name,
            _ => false,
        };
        let is_length = |param: &Parameter<'_>| match &param.kind {
            Kind::Tensor { shape, packed: None, .. } => shape.len() == 1 && is_var(&shape[0]),
            _ => false,
        };
        if let Some((_, slice)) = self.tensors().find(|(_, param)| is_length(param)) {
            return Known::Length(slice);
        }
        match integer.kind {
            Kind::Integer { source: Some(_) } => Known::Argument("usize"),
            _ => Known::Argument("i64"),
        }
    }

    /// Writes the function that calls the checked entry.
    fn write_call(&self, out: &mut Writer, prefix: &str) {
        let mut params = Vec::new();
        let mut entry = Vec::new();
        let mut args = Vec::new();
        for Parameter { ident, kind, .. } in &self.params {
            match kind {
                Kind::Tensor { shape, .. } => {
                    params.push(format!("{ident}: Arg<'_, {}>", shape.len()));
                    entry.push(format!("{ident}: *const bind::Tensor"));
                    args.push(format!("&{ident}"));
                }
                Kind::Scalar(dtype) => {
                    let ty = entry_type(*dtype);
                    params.push(format!("{ident}: {ty}"));
                    entry.push(format!("{ident}: {ty}"));
                    args.push(ident.clone());
                }
                Kind::Integer { source: None } => {
                    params.push(format!("{ident}: Int"));
                    entry.push(format!("{ident}: i64"));
                    args.push(ident.clone());
                }
                Kind::Integer { source: Some(_) } => {}
            }
        }
        let (at, name) = (self.at, &self.manifest.name);
        out.line("");
        out.line(format!("static KERNEL_{at}: Kernel = Kernel {{"));
        out.line(format!("signature: {:?},", self.manifest.signature));
        let described = |param: &Parameter<'_>| {
            let dtype = match param.kind {
                Kind::Tensor { dtype, .. } | Kind::Scalar(dtype) => dtype.to_string(),
                Kind::Integer { .. } => "int".to_string(),
            };
            format!("({:?}, {dtype:?})", param.name)
        };
        let described: Vec<String> = self.params.iter().map(described).collect();
        out.array("args: &", &described, ",");
        out.line("};");
        out.line("");
        out.signature(&format!("fn call_{at}"), &params, " -> Result<(), Error> {");
        out.line("unsafe extern \"C\" {");
        out.line(format!("#[link_name = \"{prefix}{name}_dl\"]"));
        out.signature("fn entry", &entry, " -> i32;");
        out.line("}");
        for (_, Parameter { ident, .. }) in self.tensors() {
            out.line(format!("let {ident} = {ident}.tensor();"));
        }
        for Parameter { name, ident, kind } in &self.params {
            if matches!(kind, Kind::Integer { source: None }) {
                out.line(format!("let {ident} = KERNEL_{at}.integer({name:?}, {ident})?;"));
            }
        }
        out.line(
            "// SAFETY: the entry has this signature, and checks its arguments and the CPU. The",
        );
        out.line("// tensors are borrowed for the call, outputs exclusively.");
        out.unsafe_call(&args);
        out.line("bind::status(status)");
        out.line("}");
    }

    /// Writes the function that takes slices, or the type of the operand that the kernel packs.
    fn write_slices(&self, out: &mut Writer) {
        out.line("");
        let Some(ty) = self.packs() else {
            self.describe(out, false);
            let head = format!("pub fn {}", text::function(&self.manifest.name));
            out.signature(&head, &self.slice_params(), " -> Result<(), Error> {");
            self.write_slice_body(out, "call");
            return out.line("}");
        };
        let Some(PrepackManifest::Pack { of, input, .. }) = &self.manifest.prepack else {
            unreachable!("a kernel that packs")
        };
        let prepacked = identifier(&format!("{of}_prepacked"));
        out.doc(&format!("`{input}` of `{of}`, packed for [`{prepacked}`]."));
        let (_, output) = self.output();
        out.line("#[derive(Debug)]");
        out.line(format!("pub struct {ty}(bind::Packed<{}>);", output.len()));
        out.line("");
        out.line(format!("impl {ty} {{"));
        self.describe(out, false);
        out.signature("pub fn pack", &self.slice_params(), " -> Result<Self, Error> {");
        self.write_slice_body(out, "pack");
        out.line("}");
        out.line("}");
        self.write_pack(out, &ty);
    }

    /// Returns the position and the shape of the only output of a kernel that packs.
    fn output(&self) -> (usize, &[Expr]) {
        let found = self.params.iter().enumerate().find_map(|(at, param)| match &param.kind {
            Kind::Tensor { output: true, shape, .. } => Some((at, &shape[..])),
            _ => None,
        });
        found.expect("a kernel that packs has an output")
    }

    /// Writes the function that packs an operand.
    fn write_pack(&self, out: &mut Writer, ty: &str) {
        let at = self.at;
        let mut params = Vec::new();
        let mut args = Vec::new();
        for Parameter { ident, kind, .. } in &self.params {
            match kind {
                Kind::Tensor { output: true, .. } => args.push("packed.output()".to_string()),
                Kind::Tensor { shape, .. } => {
                    params.push(format!("{ident}: Arg<'_, {}>", shape.len()));
                    args.push(ident.clone());
                }
                Kind::Scalar(dtype) => {
                    params.push(format!("{ident}: {}", entry_type(*dtype)));
                    args.push(ident.clone());
                }
                Kind::Integer { source } => {
                    params.push(format!("{ident}: Int"));
                    args.extend(source.is_none().then(|| ident.clone()));
                }
            }
        }
        let (output, shape) = self.output();
        let Kind::Tensor { dtype, .. } = self.params[output].kind else { unreachable!() };
        out.line("");
        out.signature(&format!("fn pack_{at}"), &params, &format!(" -> Result<{ty}, Error> {{"));
        self.write_shape(out, shape);
        let names: Vec<String> = self.integers().map(|param| format!("{:?}", param.name)).collect();
        let values: Vec<String> = self.integers().map(|param| param.ident.clone()).collect();
        out.line(format!("let names = &[{}];", names.join(", ")));
        out.line(format!("let values = [{}];", values.join(", ")));
        let element = owned_type(dtype);
        let arguments =
            [&format!("&KERNEL_{at}"), &output.to_string(), "shape", "names", "&values"];
        let arguments = arguments.map(str::to_string);
        out.call(&format!("let mut packed = bind::Packed::new::<{element}>"), &arguments, "?;");
        out.call(&format!("call_{at}"), &args, "?;");
        out.line(format!("Ok({ty}(packed))"));
        out.line("}");
    }

    /// Writes `let shape = […];`.
    fn write_shape(&self, out: &mut Writer, shape: &[Expr]) {
        let name_of = |name: &str| self.ident_of(name);
        let extents: Vec<String> =
            shape.iter().map(|extent| expr::integer(extent, &name_of)).collect();
        // rustfmt breaks long chains of calls.
        if extents.iter().any(|extent| extent.matches('(').count() > 1) {
            out.line("#[rustfmt::skip]");
        }
        out.array("let shape = ", &extents, ";");
    }

    fn slice_params(&self) -> Vec<String> {
        let slice = |param: &Parameter<'a>| {
            let ident = &param.ident;
            match &param.kind {
                Kind::Tensor { output: true, .. } if self.packs().is_some() => None,
                Kind::Tensor { packed: Some(operand), output: false, .. } => {
                    Some(format!("{ident}: &{}", operand.ty))
                }
                Kind::Tensor { dtype, output, .. } => {
                    let borrow = if *output { "&mut " } else { "&" };
                    Some(format!("{ident}: {borrow}[{}]", taken_type(*dtype)))
                }
                Kind::Scalar(dtype) => Some(format!("{ident}: {}", taken_type(*dtype))),
                Kind::Integer { .. } => match self.known(param) {
                    Known::Argument(ty) => Some(format!("{ident}: {ty}")),
                    _ => None,
                },
            }
        };
        self.params.iter().filter_map(slice).collect()
    }

    fn write_slice_body(&self, out: &mut Writer, callee: &str) {
        let at = self.at;
        for integer in self.integers() {
            let (ident, name) = (&integer.ident, integer.name);
            match self.known(integer) {
                Known::Operand(operand) => {
                    out.line(format!("let {ident} = {}.0.integer({name:?});", operand.ident));
                }
                Known::Length(slice) => {
                    out.line(format!("let {ident} = Int::from({}.len());", slice.ident));
                }
                Known::Argument(_) => out.line(format!("let {ident} = Int::from({ident});")),
            }
            for (arg, operand) in self.operands_with(name).skip(1) {
                let other = &operand.ident;
                out.line(format!("{other}.0.require(&KERNEL_{at}, {arg}, {name:?}, {ident})?;"));
            }
        }
        for (arg, Parameter { ident, kind, .. }) in self.tensors() {
            let Kind::Tensor { shape, output, packed, halved, .. } = kind else { continue };
            if *output && callee == "pack" {
                continue;
            }
            if packed.is_some() && !*output {
                out.line(format!("let {ident} = {ident}.0.input();"));
                continue;
            }
            self.write_shape(out, shape);
            let make = if *output { "output" } else { "input" };
            let line = format!("let {ident} = bind::{make}(&KERNEL_{at}, {arg}, {ident}, shape)?;");
            out.line(line);
            if let Some((code, last)) = halved {
                let last = expr::integer(last, &|name| self.ident_of(name));
                out.line(format!("let {ident} = {ident}.of_4_bits({code}, {last});"));
            }
        }
        self.write_scalars(out);
        out.call(&format!("{callee}_{at}"), &self.call_args(callee), "");
    }

    /// Makes the bits of halves.
    fn write_scalars(&self, out: &mut Writer) {
        for Parameter { ident, kind, .. } in &self.params {
            match kind {
                Kind::Scalar(DType::Float16) => {
                    out.line(format!("let {ident} = Float16::bits({ident});"));
                }
                Kind::Scalar(DType::BFloat16) => {
                    out.line(format!("let {ident} = BFloat16::bits({ident});"));
                }
                _ => {}
            }
        }
    }

    fn call_args(&self, callee: &str) -> Vec<String> {
        let is_pack = callee == "pack";
        let is_passed = |param: &&Parameter<'_>| match param.kind {
            Kind::Tensor { output, .. } => !(output && is_pack),
            Kind::Scalar(_) => true,
            Kind::Integer { source } => is_pack || source.is_none(),
        };
        self.params.iter().filter(is_passed).map(|param| param.ident.clone()).collect()
    }

    /// Writes the function that takes arrays.
    fn write_arrays(&self, out: &mut Writer) {
        out.line("");
        self.describe(out, true);
        let (callee, result) = match self.packs() {
            Some(ty) => ("pack", ty),
            None => ("call", "()".to_string()),
        };
        let params: Vec<String> =
            self.params.iter().filter_map(|param| self.array_param(param)).collect();
        let head = format!("pub fn {}", text::function(&self.manifest.name));
        out.signature(&head, &params, &format!(" -> Result<{result}, Error> {{"));
        let at = self.at;
        for (arg, Parameter { ident, kind, .. }) in self.tensors() {
            let line = match kind {
                Kind::Tensor { output: true, .. } if callee == "pack" => continue,
                Kind::Tensor { packed: Some(_), output: false, .. } => continue,
                Kind::Tensor { output: true, strided, .. } => {
                    let make = if *strided { "strided_output" } else { "array_output" };
                    format!("let {ident} = bind::{make}(&KERNEL_{at}, {arg}, &mut {ident})?;")
                }
                Kind::Tensor { strided: true, .. } => {
                    format!("let {ident} = bind::strided_input(&KERNEL_{at}, {arg}, &{ident})?;")
                }
                _ => format!("let {ident} = bind::array_input(&KERNEL_{at}, {arg}, &{ident})?;"),
            };
            out.line(line);
        }
        for integer in self.integers() {
            let (ident, name) = (&integer.ident, integer.name);
            let Kind::Integer { source } = integer.kind else { continue };
            let array = source.filter(|(tensor, _)| {
                !matches!(self.params[*tensor].kind, Kind::Tensor { packed: Some(_), .. })
            });
            match (array, self.operands_with(name).next()) {
                (Some((tensor, dim)), operand) if callee == "pack" || operand.is_some() => {
                    let array = &self.params[tensor].ident;
                    let twice = match self.is_halved(tensor, dim) {
                        true => "Int::from(2_i64) * ",
                        false => "",
                    };
                    out.line(format!("let {ident} = {twice}{array}.extent({dim});"));
                }
                (None, Some((_, operand))) => {
                    out.line(format!("let {ident} = {}.0.integer({name:?});", operand.ident));
                }
                (None, None) if source.is_none() => {
                    out.line(format!("let {ident} = Int::from({ident});"));
                }
                _ => {}
            }
            for (arg, operand) in self.operands_with(name) {
                let other = &operand.ident;
                out.line(format!("{other}.0.require(&KERNEL_{at}, {arg}, {name:?}, {ident})?;"));
            }
        }
        for (_, Parameter { ident, kind, .. }) in self.tensors() {
            if matches!(kind, Kind::Tensor { packed: Some(_), output: false, .. }) {
                out.line(format!("let {ident} = {ident}.0.input();"));
            }
        }
        self.write_scalars(out);
        out.call(&format!("{callee}_{at}"), &self.call_args(callee), "");
        out.line("}");
    }

    /// Whether a tensor need not be contiguous.
    fn is_strided(&self) -> bool {
        self.tensors().any(|(_, param)| matches!(param.kind, Kind::Tensor { strided: true, .. }))
    }

    /// Whether a dimension of a parameter counts bytes of two elements.
    fn is_halved(&self, param: usize, dim: usize) -> bool {
        let name = self.params[param].name;
        self.manifest.args.iter().any(|arg| match arg {
            ArgManifest::Tensor { name: own, dtype, shape, .. } => {
                own == name && matches!(&dtype[..], "int4" | "uint4") && dim + 1 == shape.len()
            }
            _ => false,
        })
    }

    fn array_param(&self, param: &Parameter<'a>) -> Option<String> {
        let ident = &param.ident;
        Some(match &param.kind {
            Kind::Tensor { output: true, .. } if self.packs().is_some() => return None,
            Kind::Tensor { packed: Some(operand), output: false, .. } => {
                format!("{ident}: &{}", operand.ty)
            }
            Kind::Tensor { dtype, shape, output, .. } => {
                // ndarray names the numbers of dimensions to 6.
                let rank = if shape.len() > 6 { "D".to_string() } else { shape.len().to_string() };
                let element = taken_type(*dtype);
                match output {
                    true => format!("mut {ident}: ndarray::ArrayViewMut{rank}<'_, {element}>"),
                    false => format!("{ident}: ndarray::ArrayView{rank}<'_, {element}>"),
                }
            }
            Kind::Scalar(dtype) => format!("{ident}: {}", taken_type(*dtype)),
            Kind::Integer { source: Some(_) } => return None,
            Kind::Integer { source: None } => {
                if self.operands_with(param.name).next().is_some() {
                    return None;
                }
                format!("{ident}: i64")
            }
        })
    }

    /// Writes the doc comment of a function.
    fn describe(&self, out: &mut Writer, arrays: bool) {
        let packs = self.packs();
        match &packs {
            Some(_) => out.doc("Packs the operand once, for any number of calls."),
            None => out.doc(&format!("`{}`", self.manifest.signature)),
        }
        out.doc("");
        for (at, param) in self.params.iter().enumerate() {
            let ident = &param.ident;
            let about = match (&param.kind, &self.manifest.args[at]) {
                (Kind::Tensor { output: true, .. }, _) if packs.is_some() => continue,
                (Kind::Tensor { packed: Some(operand), output: false, .. }, _) => {
                    format!("input, packed by [`{}::pack`]", operand.ty)
                }
                (Kind::Tensor { .. }, ArgManifest::Tensor { role, dtype, shape, .. }) => {
                    let shape: Vec<String> =
                        shape.iter().map(|extent| extent.to_string()).collect();
                    let role = match role {
                        Role::Input => "input",
                        Role::Output => "output",
                        Role::Inout => "updated",
                    };
                    format!("{role}, `{dtype}[{}]`", shape.join(", "))
                }
                (Kind::Scalar(dtype), _) => format!("`{dtype}`"),
                (Kind::Integer { source: Some(_) }, _) if arrays => continue,
                _ => match self.known(param) {
                    Known::Argument(_) => "run-time integer".to_string(),
                    Known::Length(slice) if !arrays => {
                        format!("run-time integer: the length of `{}`", slice.ident)
                    }
                    _ => continue,
                },
            };
            out.doc(&format!("- `{ident}`: {about}"));
        }
        out.doc("");
        out.doc("# Errors");
        out.doc("");
        let wrong = match arrays {
            true if self.is_strided() => "an array without strides is not row-major and contiguous",
            true => "an array is not row-major and contiguous",
            false => "a slice has another length than its shape",
        };
        out.doc(&format!("- [`Error::Shape`]: {wrong}"));
        out.doc("- [`Error::Arguments`]: the kernel refuses an extent or an index");
        out.doc("- [`Error::Memory`]: no memory for temporaries");
        out.doc("- [`Error::Runtime`]: the CPU lacks a feature of the target");
    }
}

/// Returns the code of DLPack and the last extent in elements, if two elements share a byte. The
/// bytes alone do not say whether that extent is odd.
fn halved(buffer: &Buffer) -> Option<(u8, Expr)> {
    let code = match buffer.declared_dtype() {
        DType::Int4 => 0,
        DType::Uint4 => 1,
        _ => return None,
    };
    Some((code, buffer.declared_shape().last()?.clone()))
}

/// Returns the packed operand that an input is, if it is one.
fn operand<'a>(
    kernel: &KernelManifest,
    input: &str,
    output: bool,
    all: &'a [KernelManifest],
) -> Option<Operand<'a>> {
    let Some(PrepackManifest::Prepacked { of, inputs }) = &kernel.prepack else { return None };
    if output || !inputs.iter().any(|one| one == input) {
        return None;
    }
    let is_pack = |one: &&KernelManifest| match &one.prepack {
        Some(PrepackManifest::Pack { of: other, input: packed, .. }) => {
            other == of && packed == input
        }
        _ => false,
    };
    let pack = all.iter().find(is_pack)?;
    let is_integer = |arg: &&ArgManifest| matches!(arg, ArgManifest::Runtime { .. });
    let integers = pack.args.iter().filter(is_integer).map(ArgManifest::name).collect();
    Some(Operand { ty: operand_type(of, input), integers })
}

/// Returns the type of an argument's elements, or of a scalar.
fn taken_type(dtype: DType) -> &'static str {
    match dtype {
        DType::Float16 => "impl Float16",
        DType::BFloat16 => "impl BFloat16",
        _ => entry_type(dtype),
    }
}

/// Returns the type of the elements of memory that bindings allocate.
fn owned_type(dtype: DType) -> &'static str {
    match dtype {
        DType::Float16 => "::tec_rt::F16",
        DType::BFloat16 => "::tec_rt::BF16",
        _ => entry_type(dtype),
    }
}

/// Returns the type of a scalar of a checked entry; halves are their bits.
fn entry_type(dtype: DType) -> &'static str {
    match dtype {
        DType::Float64 => "f64",
        DType::Float32 => "f32",
        DType::Float16 | DType::BFloat16 | DType::Uint16 => "u16",
        DType::Int8 => "i8",
        DType::Int16 => "i16",
        DType::Int32 => "i32",
        DType::Int64 | DType::Index => "i64",
        // Arguments of quantized types are bytes.
        DType::Int4 | DType::Uint4 | DType::Float8E4M3 | DType::Float8E5M2 => "u8",
        DType::Uint8 => "u8",
        DType::Uint32 => "u32",
        DType::Uint64 => "u64",
        DType::Bool => "bool",
    }
}
