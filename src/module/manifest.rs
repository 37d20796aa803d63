//! The manifest, the JSON that describes a module. `docs/MANIFEST.md` documents the schema, which
//! the fields here define.

use super::extent::Extent;
use super::{BuildInfo, ModuleVariant};
use crate::codegen::clif::workspace_bytes;
use crate::codegen::entry::signature_text;
use crate::codegen::ptx::{Launch, LaunchParam, PtxKernel, PtxModule};
use crate::codegen::{Code, NetworkCode};
use crate::diag::{Diag, Result};
use crate::ir::argument::argument_buffer;
use crate::ir::arith::Facts;
use crate::ir::cost::output_bytes;
use crate::ir::simplify::simplify_expr;
use crate::ir::{BinOp, DType, Expr, Kernel, Param, PrepackRole, Role, Source, Stmt, Var};
use crate::target::Target;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Version of the schema that this compiler writes.
pub const SCHEMA: u32 = 1;

/// A module.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// [`SCHEMA`].
    pub tec_manifest: u32,
    /// `tec` and its version.
    pub compiler: String,
    /// The module's name, the prefix of its functions.
    pub module: String,
    /// The target; the least capable one of `variants`.
    pub target: TargetManifest,
    /// The targets of a module for several CPUs, the most capable one first; absent for one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<VariantManifest>,
    /// `fast` or `off`.
    pub fp_contract: String,
    /// Whether float32 functions and division are approximated; absent if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fast_math: bool,
    /// PTX: the version of the PTX language.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ptx_version: Option<String>,
    /// The files it was compiled from.
    pub sources: Vec<SourceManifest>,
    /// The kernels, in the order of the source.
    pub kernels: Vec<KernelManifest>,
}

/// A target.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TargetManifest {
    /// The name that `--target` takes.
    pub name: String,
    /// `x86_64`, `aarch64`, `riscv64`, `nvptx`.
    pub arch: String,
    /// CPU features that the checked entries require.
    pub features: Vec<String>,
    /// The processor that automatic schedules are made for; absent if it is a typical one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<String>,
}

/// What a module for several CPUs has for one of its targets.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VariantManifest {
    /// The target.
    pub target: TargetManifest,
    /// The kernels, in the order of the module.
    pub kernels: Vec<VariantKernelManifest>,
}

/// A kernel as a variant has it: the facts that differ from those of the module's kernel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VariantKernelManifest {
    /// The exported name.
    pub name: String,
    /// As [`KernelManifest::signature`]: shapes of packed tensors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// As [`KernelManifest::schedule`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// As [`KernelManifest::automatic`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub automatic: Option<bool>,
    /// As [`KernelManifest::workspace_bytes`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_bytes: Option<Extent>,
    /// As [`KernelManifest::args`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<ArgManifest>>,
    /// As [`KernelManifest::prepack`]: the size of the packed tensor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepack: Option<PrepackManifest>,
}

impl VariantKernelManifest {
    /// Returns what `own` has and `common` has otherwise.
    fn new(own: KernelManifest, common: &KernelManifest) -> VariantKernelManifest {
        fn other<T: PartialEq>(own: T, common: &T) -> Option<T> {
            (own != *common).then_some(own)
        }
        VariantKernelManifest {
            name: own.name,
            signature: other(own.signature, &common.signature),
            schedule: other(own.schedule, &common.schedule),
            automatic: other(own.automatic, &common.automatic),
            workspace_bytes: other(own.workspace_bytes, &common.workspace_bytes),
            args: other(own.args, &common.args),
            prepack: other(own.prepack, &common.prepack).flatten(),
        }
    }

    /// Returns the kernel of the variant, for the module's kernel.
    fn to_kernel(&self, common: &KernelManifest) -> KernelManifest {
        let mut kernel = common.clone();
        let own = self.clone();
        kernel.signature = own.signature.unwrap_or(kernel.signature);
        kernel.schedule = own.schedule.unwrap_or(kernel.schedule);
        kernel.automatic = own.automatic.unwrap_or(kernel.automatic);
        kernel.workspace_bytes = own.workspace_bytes.unwrap_or(kernel.workspace_bytes);
        kernel.args = own.args.unwrap_or(kernel.args);
        kernel.prepack = own.prepack.or(kernel.prepack);
        kernel
    }
}

/// A source file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SourceManifest {
    /// Its name without a directory; `lib/nn.te` for an embedded file.
    pub file: String,
    /// SHA-256 of its bytes, in hexadecimal.
    pub sha256: String,
}

/// A kernel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KernelManifest {
    /// The exported name.
    pub name: String,
    /// The arguments of the checked entries, as text.
    pub signature: String,
    /// Compile-time parameters with their values.
    pub parameters: serde_json::Map<String, serde_json::Value>,
    /// `default`, or the schedule's text.
    pub schedule: String,
    /// Whether the compiler wrote the schedule; absent if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub automatic: bool,
    /// Parameters of the raw entry, in its order.
    pub args: Vec<ArgManifest>,
    /// Bytes of workspace that a call uses, kept between calls.
    pub workspace_bytes: Extent,
    /// Arithmetic operations of a call.
    pub flops: Extent,
    /// Bytes of all its tensors.
    pub bytes: Extent,
    /// Whether the order of floating-point operations may differ from the source.
    pub reassociated: bool,
    /// Its role, if `--prepack` made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepack: Option<PrepackManifest>,
    /// GPUs: temporaries in global memory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workspaces: Vec<WorkspaceManifest>,
    /// GPUs: the targets of the module whose GPUs have enough shared memory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<String>,
    /// GPUs: the launches of a call, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub launches: Vec<LaunchManifest>,
}

/// The role of a kernel that `--prepack` made from another one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub enum PrepackManifest {
    /// It packs an input to its output.
    Pack {
        /// The original kernel.
        of: String,
        /// The input.
        input: String,
        /// The size of the output, as `NAME_bytes` returns it.
        bytes: Extent,
    },
    /// It takes packed inputs.
    Prepacked {
        /// The other kernel.
        of: String,
        /// The packed inputs.
        inputs: Vec<String>,
    },
}

/// A temporary of a kernel for GPUs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WorkspaceManifest {
    /// The tensor's name.
    pub name: String,
    /// Its size.
    pub bytes: Extent,
}

/// A launch of an entry of the PTX.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LaunchManifest {
    /// The entry.
    pub name: String,
    /// Blocks in x, y and z; the launch is skipped if one is 0.
    pub grid: [Extent; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Bytes of shared memory of a block that the entry declares.
    pub static_shared_bytes: u32,
    /// Bytes of shared memory of a block that the launch requests.
    pub dynamic_shared_bytes: u32,
    /// The entry's parameters.
    pub params: Vec<LaunchParamManifest>,
}

/// The argument for a parameter of a PTX entry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum LaunchParamManifest {
    /// A parameter of the raw entry.
    Arg {
        /// Its index in `args`, from 0.
        arg: usize,
    },
    /// The address of a temporary.
    Workspace {
        /// Its index in `workspaces`, from 0.
        workspace: usize,
    },
    /// A 64-bit integer.
    Index {
        /// Its value.
        value: Extent,
    },
}

/// A parameter of the raw entry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum ArgManifest {
    /// A pointer to a tensor, row-major and contiguous if it has no strides.
    Tensor {
        /// The user's name.
        name: String,
        /// `input` or `output`.
        role: Role,
        /// Element type.
        dtype: String,
        /// Extents.
        shape: Vec<Extent>,
        /// The strides in elements, if the tensor need not be contiguous.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        strides: Option<Vec<Extent>>,
        /// Whether the source allows another layout.
        layout_free: bool,
        /// GPUs: the alignment of its address in bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        alignment: Option<u32>,
    },
    /// A scalar input, by value.
    Scalar {
        /// The user's name.
        name: String,
        /// Its type.
        dtype: String,
    },
    /// A run-time integer.
    Runtime {
        /// The user's name.
        name: String,
        /// The dimension that the checked entries read it from; without one, it is an argument of
        /// theirs too.
        source: Option<DimManifest>,
    },
}

/// A dimension of a tensor argument.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DimManifest {
    /// The tensor's index in `args`, from 0.
    pub arg: usize,
    /// The dimension, from 0.
    pub dim: usize,
    /// Whether it is the stride of the dimension, not its extent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stride: bool,
}

impl Manifest {
    /// Returns the manifest of a module with these lowered kernels; `info.kernels` and, for GPUs,
    /// the kernels of `ptx` are in the same order.
    pub fn new(code: Code<'_>, ptx: Option<&PtxModule>, info: &BuildInfo) -> Manifest {
        assert_eq!(code.entries().count(), info.kernels.len(), "one description per kernel");
        let target = &info.target;
        let describe = |(index, (kernel, info)): (usize, (&Kernel, &super::KernelInfo))| {
            let launched = ptx.map(|ptx| &ptx.kernels[index]);
            KernelManifest {
                name: kernel.name.clone(),
                signature: signature_text(kernel),
                parameters: info
                    .parameters
                    .iter()
                    .map(|(name, text)| parameter(name, text))
                    .collect(),
                schedule: info.schedule.clone(),
                automatic: info.automatic,
                args: kernel
                    .params
                    .iter()
                    .enumerate()
                    .map(|(at, param)| ArgManifest::new(param, launched.map(|l| l.alignments[at])))
                    .collect(),
                workspace_bytes: Extent::new(&match launched {
                    Some(launched) => launched.workspace_bytes(),
                    None => match code.networks.get(index.wrapping_sub(code.kernels.len())) {
                        Some(network) => network_workspace(network),
                        None => workspace_bytes(kernel),
                    },
                }),
                flops: Extent::new(&info.work.flops),
                bytes: Extent::new(&info.work.bytes),
                reassociated: kernel.reassociated,
                prepack: info.prepack_role.as_ref().map(|role| PrepackManifest::new(role, kernel)),
                workspaces: launched.iter().flat_map(|launched| workspaces(launched)).collect(),
                gpus: launched.iter().flat_map(|launched| gpus(launched, target)).collect(),
                launches: launched
                    .iter()
                    .flat_map(|launched| launched.launches.iter().map(LaunchManifest::new))
                    .collect(),
            }
        };
        Manifest {
            tec_manifest: SCHEMA,
            compiler: format!("tec {}", env!("CARGO_PKG_VERSION")),
            module: info.module.clone(),
            target: TargetManifest {
                name: info.target.to_string(),
                arch: info.target.arch.name().to_string(),
                features: info.target.features.iter().map(|name| name.to_string()).collect(),
                processor: info.target.named_processor().map(String::from),
            },
            variants: Vec::new(),
            fp_contract: info.fp_contract.clone(),
            fast_math: info.target.gpu.is_some_and(|gpu| gpu.fast_math),
            ptx_version: ptx.map(|ptx| format!("{}.{}", ptx.version.0, ptx.version.1)),
            sources: info
                .sources
                .iter()
                .map(|(file, text)| SourceManifest {
                    file: file.clone(),
                    sha256: hex(&Sha256::digest(text.as_bytes())),
                })
                .collect(),
            kernels: code.entries().zip(&info.kernels).enumerate().map(describe).collect(),
        }
    }

    /// Returns the manifest of a module for several CPUs, the most capable one first. Its kernels
    /// are those of the least capable one, with the largest workspace.
    pub fn of_variants(variants: &[ModuleVariant<'_>]) -> Manifest {
        let each = variants.iter().map(|one| Manifest::new(one.code, None, one.info));
        let mut each: Vec<Manifest> = each.collect();
        let mut module = each.last().cloned().expect("a module has a variant");
        if each.len() == 1 {
            return module;
        }
        for (at, kernel) in module.kernels.iter_mut().enumerate() {
            let needs = each.iter().map(|one| one.kernels[at].workspace_bytes.clone());
            kernel.workspace_bytes = needs.reduce(Extent::max).expect("not empty");
            kernel.reassociated = each.iter().any(|one| one.kernels[at].reassociated);
        }
        for one in &mut each {
            let kernels = std::mem::take(&mut one.kernels).into_iter().zip(&module.kernels);
            let kernels = kernels.map(|(own, common)| VariantKernelManifest::new(own, common));
            let kernels = kernels.collect();
            module.variants.push(VariantManifest { target: one.target.clone(), kernels });
        }
        module
    }

    /// Returns the manifest of a module for several CPUs as if it were for one of its targets
    /// alone.
    pub fn for_target(mut self, name: &str) -> Manifest {
        let Some(at) = self.variants.iter().position(|one| one.target.name == name) else {
            return self;
        };
        let VariantManifest { target, kernels } = self.variants.swap_remove(at);
        self.variants.clear();
        self.target = target;
        for (kernel, own) in self.kernels.iter_mut().zip(&kernels) {
            *kernel = own.to_kernel(kernel);
        }
        self
    }

    /// Formats it as indented JSON with a final newline.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("the keys of maps are strings");
        text.push('\n');
        text
    }

    /// Formats it as the comment at the end of a `.ptx` file, after [`Manifest::COMMENT`].
    pub fn to_comment(&self) -> String {
        let text = serde_json::to_string(self).expect("the keys of maps are strings");
        format!("\n{}{text}\n", Manifest::COMMENT)
    }

    /// The beginning of the line of a `.ptx` file that holds the manifest.
    pub const COMMENT: &str = "// manifest: ";

    /// Parses JSON; `name` is shown in errors.
    pub fn from_json(text: &str, name: &str) -> Result<Manifest> {
        let version = serde_json::from_str::<serde_json::Value>(text)
            .ok()
            .and_then(|value| value.get("tec_manifest").and_then(|v| v.as_u64()));
        if let Some(version) = version.filter(|v| *v != u64::from(SCHEMA)) {
            return Err(Box::new(
                Diag::global("E0523", format!("{name}: manifest of version {version}"))
                    .note(format!("this `tec` reads version {SCHEMA}")),
            ));
        }
        serde_json::from_str(text).map_err(|error| {
            let text = format!("{name}: the manifest is not readable");
            Box::new(Diag::global("E0523", text).note(error.to_string()))
        })
    }
}

/// The workspace of a network: its arena, and that of the kernel which needs most.
fn network_workspace(network: &NetworkCode) -> Expr {
    let kernels = network.kernels.iter().map(workspace_bytes);
    let most = kernels.reduce(|a, b| Expr::binary(BinOp::Max, a, b));
    let parts = network.arena_bytes.iter().cloned().chain(most);
    let total = parts.reduce(Expr::add).unwrap_or_else(|| Expr::index(0));
    simplify_expr(&total, &Facts::new())
}

impl PrepackManifest {
    fn new(role: &PrepackRole, kernel: &Kernel) -> PrepackManifest {
        match role.clone() {
            PrepackRole::Pack { of, input } => {
                let bytes = simplify_expr(&output_bytes(kernel), &Facts::new());
                PrepackManifest::Pack { of, input, bytes: Extent::new(&bytes) }
            }
            PrepackRole::Prepacked { of, inputs } => PrepackManifest::Prepacked { of, inputs },
        }
    }
}

impl ArgManifest {
    fn new(param: &Param, alignment: Option<u32>) -> ArgManifest {
        match param {
            Param::Tensor { buffer, role, layout_free } => ArgManifest::Tensor {
                name: buffer.name.clone(),
                role: *role,
                dtype: buffer.declared_dtype().to_string(),
                shape: buffer.declared_shape().iter().map(Extent::new).collect(),
                strides: buffer
                    .strides
                    .as_ref()
                    .map(|strides| strides.iter().map(Extent::new).collect()),
                layout_free: *layout_free,
                alignment,
            },
            Param::Scalar { var, dtype } => {
                ArgManifest::Scalar { name: var.name().to_string(), dtype: dtype.to_string() }
            }
            Param::Runtime { var, source } => ArgManifest::Runtime {
                name: var.name().to_string(),
                source: source.map(|source| match source {
                    Source::Extent(arg, dim) => DimManifest { arg, dim, stride: false },
                    Source::Stride(arg, dim) => DimManifest { arg, dim, stride: true },
                }),
            },
        }
    }

    /// Returns the user's name.
    pub fn name(&self) -> &str {
        match self {
            ArgManifest::Tensor { name, .. }
            | ArgManifest::Scalar { name, .. }
            | ArgManifest::Runtime { name, .. } => name,
        }
    }
}

impl LaunchManifest {
    fn new(launch: &Launch) -> LaunchManifest {
        let param = |param: &LaunchParam| match param {
            LaunchParam::Param(arg) => LaunchParamManifest::Arg { arg: *arg },
            LaunchParam::Workspace(workspace) => {
                LaunchParamManifest::Workspace { workspace: *workspace }
            }
            LaunchParam::Index(value) => LaunchParamManifest::Index { value: Extent::new(value) },
        };
        LaunchManifest {
            name: launch.name.clone(),
            grid: launch.grid.each_ref().map(Extent::new),
            block: launch.block,
            static_shared_bytes: launch.static_shared,
            dynamic_shared_bytes: launch.dynamic_shared,
            params: launch.params.iter().map(param).collect(),
        }
    }
}

fn workspaces(kernel: &PtxKernel) -> impl Iterator<Item = WorkspaceManifest> {
    kernel.workspaces.iter().map(|workspace| WorkspaceManifest {
        name: workspace.name.clone(),
        bytes: Extent::new(&workspace.bytes),
    })
}

fn gpus(kernel: &PtxKernel, target: &Target) -> Vec<String> {
    let fitting = target.compatible_gpus().into_iter().filter(|target| kernel.fits(target));
    fitting.map(|target| target.name.to_string()).collect()
}

impl KernelManifest {
    /// Describes the parameters of a kernel alone.
    pub fn interface(kernel: &Kernel) -> KernelManifest {
        let none = Extent::new(&Expr::index(0));
        KernelManifest {
            name: kernel.name.clone(),
            signature: signature_text(kernel),
            parameters: serde_json::Map::new(),
            schedule: String::new(),
            automatic: false,
            args: kernel.params.iter().map(|param| ArgManifest::new(param, None)).collect(),
            workspace_bytes: none.clone(),
            flops: none.clone(),
            bytes: none,
            reassociated: false,
            prepack: None,
            workspaces: Vec::new(),
            gpus: Vec::new(),
            launches: Vec::new(),
        }
    }

    /// Returns a kernel with these parameters and an empty body, for code that needs only the
    /// parameters.
    pub fn to_kernel(&self) -> Result<Kernel> {
        let unreadable = |what: &str| {
            let text = format!("kernel `{}`: the manifest has no valid {what}", self.name);
            Box::new(Diag::global("E0523", text))
        };
        let is_runtime = |arg: &&ArgManifest| matches!(arg, ArgManifest::Runtime { .. });
        let vars: Vec<Var> =
            self.args.iter().filter(is_runtime).map(|arg| Var::index(arg.name())).collect();
        let var_of = |name: &str| vars.iter().find(|var| var.name() == name).cloned();
        let dtype_of = |text: &str| DType::from_name(text).ok_or_else(|| unreadable("data type"));
        let param = |arg: &ArgManifest| match arg {
            ArgManifest::Tensor { name, role, dtype, shape, strides, layout_free, .. } => {
                let extents = shape.iter().map(|extent| extent.to_expr(&var_of));
                let shape = extents.collect::<Option<_>>().ok_or_else(|| unreadable("shape"))?;
                let exprs = |list: &Vec<Extent>| {
                    list.iter().map(|stride| stride.to_expr(&var_of)).collect::<Option<Vec<_>>>()
                };
                let strides = match strides {
                    None => None,
                    Some(list) => Some(exprs(list).ok_or_else(|| unreadable("strides"))?),
                };
                let buffer = argument_buffer(name, dtype_of(dtype)?, shape, strides);
                Ok(Param::Tensor { buffer, role: *role, layout_free: *layout_free })
            }
            ArgManifest::Scalar { name, dtype } => {
                let dtype = dtype_of(dtype)?;
                Ok(Param::Scalar { var: Var::new(name.as_str(), dtype.compute_type()), dtype })
            }
            ArgManifest::Runtime { name, source } => Ok(Param::Runtime {
                var: var_of(name).expect("made of these names"),
                source: source.as_ref().map(|source| match source.stride {
                    false => Source::Extent(source.arg, source.dim),
                    true => Source::Stride(source.arg, source.dim),
                }),
            }),
        };
        let params = self.args.iter().map(param).collect::<Result<_>>()?;
        let kernel = Kernel::new(&self.name, params, Stmt::nothing());
        Ok(Kernel { reassociated: self.reassociated, ..kernel })
    }
}

/// Returns a parameter's value: integers and `bool`s as JSON values, others as the text of the
/// source.
fn parameter(name: &str, text: &str) -> (String, serde_json::Value) {
    let value = match (text.parse::<i64>(), text) {
        (Ok(number), _) => number.into(),
        (_, "true") => true.into(),
        (_, "false") => false.into(),
        _ => text.into(),
    };
    (name.to_string(), value)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
