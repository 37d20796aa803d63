//! The entry points of docs/ABI.md around compiled bodies (raw, `_dl` and packed), and the
//! functions of the module.
//!
//! Before: an object module that declares the bodies and check functions of its kernels. After: it
//! defines all exports of a module, and refers to the runtime's functions. Entries are compiled for
//! the baseline instruction set, because they report missing CPU features.

mod checked;
mod checks;
mod dispatch;
mod launch;
mod strided;
mod text;

use super::common::{INTERNAL_CONVENTION, clif_type, define_function, enter_function, new_context};
use super::ptx::PtxKernel;
use super::unwind::CodeModule;
use super::{KernelFunctions, ObjectOptions};
use crate::bug;
use crate::diag::{Diag, Result};
use crate::ir::{DType, Kernel, Param};
use crate::target::{Os, Target};
use checked::Convention;
use checks::ArgumentChecks;
use cranelift_codegen::ir;
use cranelift_codegen::ir::{
    AbiParam, FuncRef, GlobalValue, GlobalValueData, InstBuilder, Signature, StackSlot,
    StackSlotData, StackSlotKind, Type as ClifType, Value, types,
};
use cranelift_codegen::isa::{CallConv, TargetIsa};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_module::{DataDescription, DataId, FuncId, Linkage, Module, ModuleResult};
use dispatch::{Dispatch, Refusal};
use launch::Cuda;
use std::borrow::Cow;

pub use checks::dlpack_dtype;
pub use text::{LEVELS, extent_text};

/// The section that holds the manifest, in objects and in modules.
pub const MANIFEST_SECTION: &str = ".tec.manifest";
/// The same with its segment, in Mach-O. The crate `object` finds it by [`MANIFEST_SECTION`].
const MACHO_MANIFEST_SECTION: &str = "__TEXT,__tec.manifest";

/// A compiled kernel that gets entries.
pub(super) struct EntryKernel<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) functions: KernelFunctions,
    /// The launches of a kernel for GPUs.
    pub(super) launches: Option<&'a PtxKernel>,
}

/// The compiled kernels of a module for one of its targets.
pub(super) struct EntryVariant<'a> {
    pub(super) target: &'a Target,
    /// As many as in the other variants, in the same order.
    pub(super) kernels: Vec<EntryKernel<'a>>,
}

/// Defines every exported function of a module; the most capable variant is first. `ptx` is what
/// the entries of a module for GPUs launch; all of its kernels have launches then.
pub(super) fn emit_entries(
    module: &mut CodeModule,
    baseline: &dyn TargetIsa,
    variants: &[EntryVariant<'_>],
    ptx: Option<&str>,
    options: &ObjectOptions,
) -> Result<()> {
    let EntryVariant { target, kernels } = &variants[0];
    check_names(kernels, options)?;
    let prefix = options.symbol_prefix.as_deref();
    let mut emit = Emitter::new(module, baseline, target.os, prefix);
    let cuda = ptx.map(|text| Cuda::new(&mut emit, text, kernels, target));
    // Every call of a module with tile registers, also a raw one, makes sure that the process may
    // use them, as it makes sure that a variant is chosen.
    if variants.len() > 1 || target.has_tiles() {
        let targets: Vec<&Target> = variants.iter().map(|variant| variant.target).collect();
        emit.dispatch = Some(Dispatch::new(&mut emit, &targets));
    }
    for at in 0..kernels.len() {
        let versions = variants
            .iter()
            .map(|variant| Version { entry: &variant.kernels[at], target: variant.target });
        emit.kernel(&versions.collect::<Vec<_>>(), cuda.as_ref());
    }
    if options.symbol_prefix.is_none() {
        emit.module_functions(options);
    }
    Ok(())
}

/// A kernel as a variant of the module has it.
#[derive(Clone, Copy)]
struct Version<'a> {
    entry: &'a EntryKernel<'a>,
    target: &'a Target,
}

/// The type of a raw parameter: halves are their bits, `bool` is a byte.
pub fn param_type(param: &Param) -> ClifType {
    match param {
        Param::Tensor { .. } | Param::Runtime { .. } => types::I64,
        Param::Scalar { dtype, .. } => clif_type(*dtype),
    }
}

/// The signature of the checked entries: `add(a: float32[100], alpha: float32, n: int)`.
pub fn signature_text(kernel: &Kernel) -> String {
    let args: Vec<String> = kernel
        .params
        .iter()
        .filter_map(|param| match param {
            Param::Tensor { buffer, .. } => {
                let (dtype, shape) = (buffer.declared_dtype(), buffer.declared_shape());
                let shape: Vec<String> = shape.iter().map(extent_text).collect();
                Some(format!("{}: {dtype}[{}]", buffer.name, shape.join(", ")))
            }
            Param::Scalar { var, dtype } => Some(format!("{}: {dtype}", var.name())),
            Param::Runtime { var, source: None } => Some(format!("{}: int", var.name())),
            Param::Runtime { .. } => None,
        })
        .collect();
    format!("{}({})", kernel.name, args.join(", "))
}

/// The function type that `tvm_ffi` shows: a JSON object with a string that is JSON itself.
fn metadata_text(kernel: &Kernel) -> String {
    let mut schema = String::from(r#"{"type":"ffi.Function","args":[{"type":"None"}"#);
    for param in &kernel.params {
        let name = match param {
            Param::Tensor { .. } => "DLTensor*",
            Param::Scalar { dtype, .. } if dtype.is_float() => "float",
            Param::Scalar { dtype: DType::Bool, .. } => "bool",
            Param::Scalar { .. } | Param::Runtime { source: None, .. } => "int",
            Param::Runtime { .. } => continue,
        };
        schema += &format!(r#",{{"type":"{name}"}}"#);
    }
    schema += "]}";
    format!(r#"{{"type_schema":{}}}"#, serde_json::Value::String(schema))
}

/// Refuses a kernel with the name of a function of the module.
fn check_names(kernels: &[EntryKernel<'_>], options: &ObjectOptions) -> Result<()> {
    let module = &options.module;
    for suffix in ["last_error", "manifest", "set_num_threads", "set_parallel_for", "target"] {
        let reserved = format!("{module}_{suffix}");
        if kernels.iter().any(|entry| entry.kernel.name == reserved) {
            return Err(Box::new(
                Diag::global(
                    "E0521",
                    format!("kernel `{reserved}` has the name of a function of module `{module}`"),
                )
                .help("rename the kernel, or give the module another name with `--module`"),
            ));
        }
    }
    Ok(())
}

/// The checks of a kernel.
struct Described {
    checks: ArgumentChecks,
    check: Option<FuncId>,
    blob: DataId,
}

/// The result of a raw entry that cannot run on this CPU, as `FAILED_CPU` of the runtime.
const RAW_REFUSED: i64 = 3;

/// Functions of the runtime that entries call.
struct Runtime {
    check_packed: FuncId,
    check_dl: FuncId,
    fail_check: FuncId,
    fail_body: FuncId,
    return_text: FuncId,
    last_error: FuncId,
    fp_enter: FuncId,
    fp_leave: FuncId,
    set_num_threads: FuncId,
    set_parallel_for: FuncId,
    cpu: DataId,
}

/// Emits the entries into an object module.
struct Emitter<'a> {
    module: &'a mut CodeModule,
    baseline: &'a dyn TargetIsa,
    os: Os,
    runtime: Runtime,
    /// [`ObjectOptions::symbol_prefix`].
    prefix: Option<&'a str>,
    /// The choice among several variants.
    dispatch: Option<Dispatch>,
    builders: FunctionBuilderContext,
}

impl<'a> Emitter<'a> {
    fn new(
        module: &'a mut CodeModule,
        baseline: &'a dyn TargetIsa,
        os: Os,
        prefix: Option<&'a str>,
    ) -> Emitter<'a> {
        use types::{I32, I64};
        let convention = baseline.default_call_conv();
        let mut import = |name: &str, params: &[ClifType], result: Option<ClifType>| {
            let signature = c_signature(convention, params, result);
            accept(module.declare_function(name, Linkage::Import, &signature))
        };
        let runtime = Runtime {
            check_packed: import("tec_rt_check_packed", &[I64, I64, I32, I64], Some(I32)),
            check_dl: import("tec_rt_check_dl", &[I64, I64, I64], Some(I32)),
            fail_check: import("tec_rt_fail_check", &[I64, I32, I64, I32], Some(I32)),
            fail_body: import("tec_rt_fail_body", &[I64, I32, I32], Some(I32)),
            return_text: import("tec_rt_return_text", &[I64, I64, I64], Some(I32)),
            last_error: import("tec_rt_last_error", &[], Some(I64)),
            fp_enter: import("tec_rt_fp_enter", &[], Some(I32)),
            fp_leave: import("tec_rt_fp_leave", &[I32], None),
            set_num_threads: import("tec_rt_set_num_threads", &[I32], None),
            set_parallel_for: import("tec_rt_set_parallel_for", &[I64, I64], None),
            cpu: accept(module.declare_data("tec_rt_cpu", Linkage::Import, true, false)),
        };
        let builders = FunctionBuilderContext::new();
        Emitter { module, baseline, os, runtime, prefix, dispatch: None, builders }
    }

    /// Emits the entries of one kernel, given as each variant has it.
    fn kernel(&mut self, versions: &[Version<'_>], cuda: Option<&Cuda<'_>>) {
        let entry = versions[0].entry;
        let (kernel, name) = (entry.kernel, &entry.kernel.name);
        let described = self.describe(versions);
        let first = &described[0];
        let mut raw: Vec<ClifType> = kernel.params.iter().map(param_type).collect();
        let bodies: Vec<FuncId> = match cuda {
            Some(cuda) => vec![cuda.launch_function(self, entry, first.blob)],
            None => versions.iter().map(|version| version.entry.functions.body).collect(),
        };
        let dispatch = self.dispatch;
        let fp = (self.runtime.fp_enter, self.runtime.fp_leave);
        // The stream comes last.
        raw.extend(cuda.map(|_| types::I64));
        if self.prefix.is_none() {
            let refusal = Refusal::new(first.blob, false, RAW_REFUSED);
            self.function(name, Linkage::Export, &raw, Some(types::I32), |env, args| {
                checked::with_default_mode(env, fp, |env| {
                    dispatch::by_variant(env, dispatch, Some(refusal), |env, variant| {
                        let body = bodies[variant];
                        let call = match cuda {
                            Some(_) => launch::call_raw(env, body, args),
                            None => env.call(body, args),
                        };
                        env.builder.inst_results(call)[0]
                    })
                })
            });
        }
        let mut dl: Vec<ClifType> = kernel
            .params
            .iter()
            .zip(&first.checks.params)
            .filter(|(_, checks)| !matches!(checks, checks::CheckedParam::Bound))
            .map(|(param, _)| param_type(param))
            .collect();
        dl.extend(cuda.map(|_| types::I64));
        let packed = [types::I64, types::I64, types::I32, types::I64];
        let checked = [
            (format!("{name}_dl"), &dl[..], Convention::Dl),
            (format!("__tvm_ffi_{name}"), &packed[..], Convention::Packed),
        ];
        let count = if self.prefix.is_some() { 1 } else { checked.len() };
        for (name, params, convention) in checked.into_iter().take(count) {
            let is_packed = convention == Convention::Packed;
            let functions = |described: &Described| checked::Functions {
                check: described.check,
                blob: described.blob,
                check_call: match convention {
                    Convention::Dl => self.runtime.check_dl,
                    Convention::Packed => self.runtime.check_packed,
                },
                fail_check: self.runtime.fail_check,
                fail_body: self.runtime.fail_body,
                fp,
                cpu: self.runtime.cpu,
                cuda: cuda.copied(),
                bodies: &bodies,
                dispatch,
            };
            let functions: Vec<_> = described.iter().map(functions).collect();
            let refusal = Refusal::new(first.blob, is_packed, -1);
            self.function(&name, Linkage::Export, params, Some(types::I32), |env, args| {
                let emit = |env: &mut Env<'_, '_>, functions: &_, version: usize| {
                    let (kernel, checks) = (versions[version].entry.kernel, &described[version]);
                    checked::emit_checked(env, kernel, &checks.checks, functions, convention, args)
                };
                let [functions] = &functions[..] else {
                    // Each variant checks its own shapes.
                    return dispatch::by_variant(env, dispatch, Some(refusal), |env, variant| {
                        let body = &bodies[variant..=variant];
                        let functions = functions[variant].clone();
                        let functions =
                            checked::Functions { bodies: body, dispatch: None, ..functions };
                        emit(env, &functions, variant)
                    });
                };
                emit(env, functions, 0)
            });
        }
        if self.prefix.is_some() {
            return;
        }
        if let Some(functions) = versions.iter().map(|v| v.entry.functions.bytes).collect() {
            self.bytes_function(kernel, functions, first.blob);
        }
        let signatures = versions.iter().map(|version| signature_text(version.entry.kernel));
        self.text_function(&format!("__tvm_ffi__doc_{name}"), signatures.collect());
        let metadata = versions.iter().map(|version| metadata_text(version.entry.kernel));
        self.text_function(&format!("__tvm_ffi__metadata_{name}"), metadata.collect());
    }

    /// Returns the checks of a kernel for each variant, or one for all if they are equal.
    fn describe(&mut self, versions: &[Version<'_>]) -> Vec<Described> {
        let describe = |version: &Version<'_>| {
            let EntryKernel { kernel, functions, launches } = version.entry;
            let mut checks = ArgumentChecks::new(kernel, *launches, version.target);
            // The choice of the variant checks the features.
            let mut target = version.target.cpu_name();
            if versions.len() > 1 {
                (checks.features, target) = (0, String::new());
            }
            let blob = checks.blob(kernel, &target, &functions.messages);
            (checks, blob, functions.check)
        };
        let mut all: Vec<_> = versions.iter().map(describe).collect();
        let (_, blob, check) = &all[0];
        if all.iter().all(|other| (&other.1, &other.2) == (blob, check)) {
            all.truncate(1);
        }
        let define = |(checks, blob, check): (ArgumentChecks, Vec<u8>, Option<FuncId>)| Described {
            checks,
            check,
            blob: self.data(&blob, None),
        };
        all.into_iter().map(define).collect()
    }

    /// Emits `int64_t NAME_bytes(int64_t …)`, which takes the run-time integers of the raw entry.
    /// `functions` has one for each variant.
    fn bytes_function(&mut self, kernel: &Kernel, functions: Vec<FuncId>, blob: DataId) {
        let integers = kernel.params.iter().filter(|param| matches!(param, Param::Runtime { .. }));
        let params = vec![types::I64; integers.count()];
        let name = format!("{}_bytes", kernel.name);
        let refusal = Refusal { blob: Some(blob), ..Refusal::of_module(types::I64, -1) };
        let dispatch = self.dispatch;
        self.function(&name, Linkage::Export, &params, Some(types::I64), |env, args| {
            dispatch::by_variant(env, dispatch, Some(refusal), |env, variant| {
                let number = env.stack_words(1);
                let address = env.stack_address(number);
                env.call(functions[variant], &[args, &[address]].concat());
                env.builder.ins().stack_load(types::I64, types::I64, number, 0)
            })
        });
    }

    /// Emits a packed function that returns the text of the variant.
    fn text_function(&mut self, name: &str, mut texts: Vec<String>) {
        if texts.iter().all(|text| *text == texts[0]) {
            texts.truncate(1);
        }
        let all: Vec<(DataId, i64)> = texts
            .iter()
            .map(|text| (self.data(text.as_bytes(), None), text.len() as i64))
            .collect();
        let return_text = self.runtime.return_text;
        let dispatch = self.dispatch.filter(|_| all.len() > 1);
        let refusal = Refusal { packed: true, ..Refusal::of_module(types::I32, -1) };
        let params = [types::I64, types::I64, types::I32, types::I64];
        self.function(name, Linkage::Export, &params, Some(types::I32), |env, args| {
            dispatch::by_variant(env, dispatch, Some(refusal), |env, variant| {
                let (data, length) = all[variant];
                let text = env.address(data);
                let length = env.builder.ins().iconst(types::I64, length);
                let call = env.call(return_text, &[text, length, args[3]]);
                env.builder.inst_results(call)[0]
            })
        });
    }

    /// Emits the exports of a module that belong to no kernel.
    fn module_functions(&mut self, options: &ObjectOptions) {
        let name = &options.module;
        let mut manifest = options.manifest.clone().into_bytes();
        manifest.push(0);
        let section = match self.os {
            Os::Linux | Os::Windows => MANIFEST_SECTION,
            Os::MacOs => MACHO_MANIFEST_SECTION,
        };
        let manifest = self.data(&manifest, Some(section));
        let own = format!("{name}_manifest");
        // COFF has no weak definitions of which every linker takes one.
        let has_weak = self.os != Os::Windows;
        let unprefixed = has_weak.then_some(("tec_manifest", Linkage::Preemptible));
        for (name, linkage) in [(own.as_str(), Linkage::Export)].into_iter().chain(unprefixed) {
            self.function(name, linkage, &[], Some(types::I64), |env, _| env.address(manifest));
        }
        let last_error = self.runtime.last_error;
        let own = format!("{name}_last_error");
        self.function(&own, Linkage::Export, &[], Some(types::I64), |env, _| {
            let call = env.call(last_error, &[]);
            env.builder.inst_results(call)[0]
        });
        if let Some(dispatch) = self.dispatch.filter(Dispatch::has_choice) {
            self.target_function(&format!("{name}_target"), dispatch);
        }
        for (suffix, callee, params) in [
            ("set_num_threads", self.runtime.set_num_threads, &[types::I32][..]),
            ("set_parallel_for", self.runtime.set_parallel_for, &[types::I64, types::I64]),
        ] {
            let own = format!("{name}_{suffix}");
            self.function(&own, Linkage::Export, params, None, |env, args| {
                env.call(callee, args);
                args[0]
            });
        }
    }

    /// Emits `const char *MODULE_target(void)`, which returns the name of the variant that calls
    /// use, or null if there is none.
    fn target_function(&mut self, name: &str, dispatch: Dispatch) {
        let names: Vec<i64> = dispatch.names().collect();
        let refusal = Refusal::of_module(types::I64, 0);
        self.function(name, Linkage::Export, &[], Some(types::I64), |env, _| {
            dispatch::by_variant(env, Some(dispatch), Some(refusal), |env, variant| {
                let table = env.address(dispatch.table);
                env.builder.ins().iadd_imm_u(table, names[variant])
            })
        });
    }

    /// Defines a function; `build` gets the parameters and returns the result.
    fn function(
        &mut self,
        name: &str,
        linkage: Linkage,
        params: &[ClifType],
        result: Option<ClifType>,
        build: impl FnOnce(&mut Env<'_, '_>, &[Value]) -> Value,
    ) -> FuncId {
        let convention = match linkage {
            Linkage::Local => INTERNAL_CONVENTION,
            _ => self.baseline.default_call_conv(),
        };
        let signature = c_signature(convention, params, result);
        let symbol = match (self.prefix, linkage) {
            (Some(prefix), Linkage::Export) => Cow::Owned(format!("{prefix}{name}")),
            _ => Cow::Borrowed(name),
        };
        let id = accept(self.module.declare_function(&symbol, linkage, &signature));
        let mut context = new_context(id, signature);
        let (builder, args) = enter_function(&mut context, &mut self.builders);
        let mut env = Env { builder, module: self.module };
        let value = build(&mut env, &args);
        let mut builder = env.builder;
        builder.ins().return_(if result.is_some() { std::slice::from_ref(&value) } else { &[] });
        builder.seal_all_blocks();
        builder.finalize(self.baseline.frontend_config());
        if let Err(error) = define_function(self.module, id, name, self.baseline, &mut context) {
            bug!("entry {name}: {error:?}");
        }
        id
    }

    /// Defines read-only data of the module, aligned to 8 bytes.
    fn data(&mut self, bytes: &[u8], section: Option<&str>) -> DataId {
        let id = accept(self.module.declare_anonymous_data(false, false));
        let mut description = DataDescription::new();
        description.define(bytes.into());
        description.set_align(8);
        if let Some(section) = section {
            description.set_custom_section(section);
        }
        accept(self.module.define_data(id, &description));
        id
    }
}

/// The function under construction, and the module whose symbols it uses.
struct Env<'a, 'b> {
    builder: FunctionBuilder<'a>,
    module: &'b mut CodeModule,
}

impl Env<'_, '_> {
    /// Calls a function of the module directly: the host cannot replace its symbols.
    fn call(&mut self, callee: FuncId, args: &[Value]) -> ir::Inst {
        let callee: FuncRef = self.module.declare_func_in_func(callee, self.builder.func);
        self.builder.func.dfg.ext_funcs[callee].colocated = true;
        self.builder.ins().call(callee, args)
    }

    /// The address of data of the module or its runtime.
    fn address(&mut self, data: DataId) -> Value {
        let global: GlobalValue = self.module.declare_data_in_func(data, self.builder.func);
        let data = &mut self.builder.func.global_values[global];
        if let GlobalValueData::Symbol { colocated, .. } = data {
            *colocated = true;
        }
        self.builder.ins().symbol_value(types::I64, global)
    }

    /// Reserves `words` 64-bit words in the frame, at least one.
    fn stack_words(&mut self, words: usize) -> StackSlot {
        let data = StackSlotData::new(StackSlotKind::ExplicitSlot, 8 * words.max(1) as u32, 3);
        self.builder.create_sized_stack_slot(data)
    }

    fn stack_address(&mut self, slot: StackSlot) -> Value {
        self.builder.ins().stack_addr(types::I64, slot, 0)
    }

    /// Emits `value != 0`.
    fn nonzero(&mut self, value: Value) -> Value {
        self.builder.ins().icmp_imm_u(ir::condcodes::IntCC::NotEqual, value, 0)
    }
}

/// A C signature. `int` is sign-extended, which the ABI of RISC-V requires.
fn c_signature(convention: CallConv, params: &[ClifType], result: Option<ClifType>) -> Signature {
    let mut signature = Signature::new(convention);
    let abi = |ty: &ClifType| match *ty {
        types::I32 => AbiParam::new(types::I32).sext(),
        ty => AbiParam::new(ty),
    };
    signature.params.extend(params.iter().map(abi));
    signature.returns.extend(result.iter().map(abi));
    signature
}

fn accept<T>(result: ModuleResult<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => bug!("object module: {error}"),
    }
}
