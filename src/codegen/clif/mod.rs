//! The Cranelift back end: every CPU target, scalar code and vectors of 128 bits.
//!
//! Compiles kernels after `legalize_vectors`, `expand_math` and `flatten_storage` (one index per
//! access, no calls but `fma`, vectors of 16 bytes, no masks) into an object module. It builds
//! operations that Cranelift lacks from others: floor division without traps (`int`), saturating
//! casts and halves (`cast`), addresses that suit its loop-invariant code motion (`address`). The
//! code refers to no libc or libm symbol, only to the runtime's hidden `tec_rt_…` functions.

mod address;
mod cast;
mod emit;
mod expr;
mod int;
mod isa;
mod listing;
mod nest;
mod network;
mod range;
mod stmt;
mod storage;
mod support;
mod task;
#[cfg(test)]
mod tests;
mod vector;

use super::common::{clif_type, define_function, enter_function, new_context};
use super::{Code, KernelFunctions, ObjectOptions};
use crate::diag::{Diag, Result};
use crate::ir::cost::output_bytes;
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, Kernel, Param, Scope, Stmt, Var, visit};
use crate::target::Target;
use cranelift_codegen::ir::{AbiParam, InstBuilder, Signature, Type, Value, types};
use cranelift_codegen::isa::{CallConv, OwnedTargetIsa};
use cranelift_codegen::{CodegenError, Context};
use cranelift_frontend::FunctionBuilderContext;
use cranelift_module::{DataDescription, DataId, FuncId, Linkage, Module};
use cranelift_object::{ObjectBuilder, ObjectModule};
use emit::{EmittedFunction, Emitter};
pub(super) use isa::baseline_isa;
pub(super) use listing::{FunctionNotes, write_listing};
use rustc_hash::FxHashMap;
pub use storage::workspace_bytes;
use task::{Task, task_signature};

/// Compiles the functions of each kernel and then of each network into `module`. Fills `notes` for
/// the listing.
pub(super) fn compile_kernels(
    module: &mut ObjectModule,
    Code { kernels, networks }: Code<'_>,
    target: &Target,
    options: &ObjectOptions,
    notes: Option<&mut Vec<FunctionNotes>>,
) -> Result<Vec<KernelFunctions>> {
    let inner = networks.iter().flat_map(|network| &network.kernels);
    kernels.iter().chain(inner).try_for_each(|kernel| support::check_supported(kernel, target))?;
    let mut unit = Unit::new(module, target, options.opt, notes);
    let is_sized = |kernel: &Kernel| options.sized.contains(&kernel.name);
    let mut functions: Vec<KernelFunctions> = kernels
        .iter()
        .map(|kernel| unit.compile_kernel(kernel, is_sized(kernel)))
        .collect::<Result<_>>()?;
    for network in networks {
        functions.push(unit.compile_network(network)?);
    }
    Ok(functions)
}

/// Compiles, for the CPU `host`, the checks of kernels that run on GPUs, and as body a function
/// that stores the numbers given with the kernel.
pub(super) fn compile_launch_params(
    module: &mut ObjectModule,
    kernels: &[(&Kernel, Vec<Expr>)],
    host: &Target,
    opt: u8,
) -> Result<Vec<KernelFunctions>> {
    let mut unit = Unit::new(module, host, opt, None);
    let compile = |(kernel, numbers): &(&Kernel, Vec<Expr>)| {
        let (check, messages) = unit.compile_check(kernel)?;
        let body = unit.compile_function(&launch_params_kernel(kernel, numbers), false)?;
        Ok(KernelFunctions { body, check, messages, bytes: None })
    };
    kernels.iter().map(compile).collect()
}

/// A kernel with the parameters of `kernel` that computes the numbers its launches need.
fn launch_params_kernel(kernel: &Kernel, numbers: &[Expr]) -> Kernel {
    number_kernel(format!("{}.plan", kernel.name), kernel.clone(), numbers)
}

/// A kernel that computes the bytes of the output of `kernel` from the run-time integers.
fn size_kernel(kernel: &Kernel) -> Kernel {
    let name = format!("{}.bytes", kernel.name);
    let mut sized = Kernel { dims: Vec::new(), checks: Stmt::nothing(), ..kernel.clone() };
    sized.params.retain(|param| matches!(param, Param::Runtime { .. }));
    number_kernel(name, sized, &[output_bytes(kernel)])
}

/// A kernel with the parameters of `kernel` and one more, an output to which it stores `numbers`.
fn number_kernel(name: String, kernel: Kernel, numbers: &[Expr]) -> Kernel {
    let shape = vec![Expr::index(numbers.len() as i64)];
    let buffer = Buffer::new("numbers", DType::Int64, shape, Scope::Global);
    let store = |(k, number): (usize, &Expr)| {
        let value = Expr::cast(DType::Int64, number.clone());
        Stmt::store(&buffer, vec![Expr::index(k as i64)], value)
    };
    let body = Stmt::Block(numbers.iter().enumerate().map(store).collect());
    let mut plan = Kernel { name, body, ..kernel };
    plan.params.push(Param::Tensor { buffer, output: true, layout_free: false });
    plan
}

/// A new object module, whose exported functions are compiled for `baseline`.
pub(super) fn new_module(baseline: OwnedTargetIsa, name: &str) -> ObjectModule {
    let no_libcalls = |call| crate::bug!("Cranelift wants the library function {call}");
    let builder = ObjectBuilder::new(baseline, name.as_bytes(), Box::new(no_libcalls))
        .expect("ELF is supported for every target");
    ObjectModule::new(builder)
}

/// Compiles the functions of a module.
struct Unit<'u> {
    module: &'u mut ObjectModule,
    isa: OwnedTargetIsa,
    target: &'u Target,
    constants: FxHashMap<Buffer, DataId>,
    /// Filled for the listing, if one is made.
    notes: Option<&'u mut Vec<FunctionNotes>>,
    /// Number of nests compiled by the SIMD back end so far.
    nests: usize,
}

impl<'u> Unit<'u> {
    fn new(
        module: &'u mut ObjectModule,
        target: &'u Target,
        opt: u8,
        notes: Option<&'u mut Vec<FunctionNotes>>,
    ) -> Unit<'u> {
        let isa = isa::kernel_isa(target, opt);
        Unit { module, isa, target, constants: FxHashMap::default(), notes, nests: 0 }
    }

    fn compile_kernel(&mut self, kernel: &Kernel, sized: bool) -> Result<KernelFunctions> {
        let (check, messages) = self.compile_check(kernel)?;
        let body = self.compile_function(kernel, false)?;
        let bytes =
            sized.then(|| self.compile_function(&size_kernel(kernel), false)).transpose()?;
        Ok(KernelFunctions { body, check, messages, bytes })
    }

    /// Compiles the kernel's own checks to a function, if it has any. Returns it and their
    /// messages.
    fn compile_check(&mut self, kernel: &Kernel) -> Result<(Option<FuncId>, Vec<String>)> {
        let mut messages = Vec::new();
        visit::walk_stmt(
            &kernel.checks,
            &mut |stmt| {
                if let Stmt::Assert { message, .. } = stmt {
                    messages.push(message.clone());
                }
            },
            &mut |_| {},
        );
        let check = match messages.is_empty() {
            true => None,
            false => Some(self.compile_function(kernel, true)?),
        };
        Ok((check, messages))
    }

    fn compile_function(&mut self, kernel: &Kernel, check: bool) -> Result<FuncId> {
        let signature = signature_of(kernel, check);
        let name = format!("{}.{}", kernel.name, if check { "check" } else { "body" });
        let id = self
            .module
            .declare_function(&name, Linkage::Local, &signature)
            .unwrap_or_else(|error| crate::bug!("{name}: {error}"));
        let mut context = new_context(id, signature);
        let mut builder_context = FunctionBuilderContext::new();
        let (builder, args) = enter_function(&mut context, &mut builder_context);
        let mut emitter = Emitter::new(builder, self, &kernel.name);
        emitter.bind_params(kernel, &args, check);
        let stmt = if check { &kernel.checks } else { &kernel.body };
        emitter.place_buffers(stmt);
        let finished = emitter.finish(stmt);
        for task in self.define(kernel, (id, &name), &mut context, finished)? {
            self.compile_task(kernel, &task)?;
        }
        Ok(id)
    }

    fn compile_task(&mut self, kernel: &Kernel, task: &Task) -> Result<()> {
        let mut context = new_context(task.id, task_signature());
        let mut builder_context = FunctionBuilderContext::new();
        let (builder, args) = enter_function(&mut context, &mut builder_context);
        let mut emitter = Emitter::new(builder, self, &kernel.name);
        emitter.enter_task(task, &args);
        let finished = emitter.finish_task(task);
        self.define(kernel, (task.id, &task.name), &mut context, finished)?;
        Ok(())
    }

    /// Compiles and defines an emitted function. Returns the tasks that it calls.
    fn define(
        &mut self,
        kernel: &Kernel,
        (id, name): (FuncId, &str),
        context: &mut Context,
        finished: Option<EmittedFunction>,
    ) -> Result<Vec<Task>> {
        let Some(EmittedFunction { heads, tasks }) = finished else {
            return Err(too_large(kernel));
        };
        self.compile(id, name, context, heads).map_err(|error| match error {
            CodegenError::CodeTooLarge | CodegenError::ImplLimitExceeded => too_large(kernel),
            error => crate::bug!("{name}: {error:?}"),
        })?;
        Ok(tasks)
    }

    /// Compiles for the kernels' ISA; the module itself has the baseline ISA.
    fn compile(
        &mut self,
        id: FuncId,
        name: &str,
        context: &mut Context,
        heads: Vec<String>,
    ) -> std::result::Result<(), CodegenError> {
        context.set_disasm(self.notes.is_some());
        let code = define_function(self.module, id, name, &*self.isa, context)?;
        if let Some(notes) = &mut self.notes {
            notes.push(FunctionNotes::new(name, heads, code));
        }
        Ok(())
    }

    /// Declares a function of the runtime, which is linked into the same module.
    fn runtime_function(
        &mut self,
        name: &'static str,
        params: &[Type],
        result: Option<Type>,
    ) -> FuncId {
        let mut signature = Signature::new(CallConv::SystemV);
        signature.params.extend(params.iter().map(|ty| AbiParam::new(*ty)));
        signature.returns.extend(result.map(AbiParam::new));
        self.module
            .declare_function(name, Linkage::Import, &signature)
            .unwrap_or_else(|error| crate::bug!("{name}: {error}"))
    }

    /// Returns the read-only data of a constant buffer; defines it on the first call.
    fn constant_data(&mut self, buffer: &Buffer) -> DataId {
        if let Some(id) = self.constants.get(buffer) {
            return *id;
        }
        let Some(init) = &buffer.init else {
            crate::bug!("constant buffer `{}` without values", buffer.name)
        };
        let size = buffer.dtype.bytes() as usize;
        let bytes: Vec<u8> =
            init.iter().flat_map(|bits| bits.to_le_bytes().into_iter().take(size)).collect();
        let id = self.module.declare_anonymous_data(false, false).expect("a fresh name");
        let mut data = DataDescription::new();
        data.define(bytes.into_boxed_slice());
        data.set_align(64);
        self.module.define_data(id, &data).expect("defined once");
        self.constants.insert(buffer.clone(), id);
        id
    }
}

fn signature_of(kernel: &Kernel, check: bool) -> Signature {
    let mut signature = Signature::new(CallConv::SystemV);
    for param in &kernel.params {
        let ty = match param {
            Param::Tensor { .. } | Param::Runtime { .. } => types::I64,
            Param::Scalar { dtype, .. } => clif_type(*dtype),
        };
        signature.params.push(AbiParam::new(ty));
    }
    if check {
        let extra = kernel.dims.len() + 1;
        signature.params.extend(std::iter::repeat_n(AbiParam::new(types::I64), extra));
    }
    signature.returns.push(AbiParam::new(types::I32));
    signature
}

fn too_large(kernel: &Kernel) -> Box<Diag> {
    Box::new(
        Diag::global("E0404", format!("kernel `{}` is too large to compile", kernel.name))
            .help("split it into several stages, or into several kernels"),
    )
}

impl Emitter<'_, '_> {
    /// Binds the parameters of a kernel to the function's arguments.
    fn bind_params(&mut self, kernel: &Kernel, args: &[Value], check: bool) {
        let anything = DType::Index.int_range();
        for (param, arg) in kernel.params.iter().zip(args) {
            match param {
                Param::Tensor { buffer, output, .. } => self.place_argument(buffer, *arg, *output),
                Param::Scalar { var, dtype } => {
                    let value = match dtype {
                        DType::Bool => self.b.ins().icmp_imm_u(
                            cranelift_codegen::ir::condcodes::IntCC::NotEqual,
                            *arg,
                            0,
                        ),
                        half if half.is_half() => self.widen(*half, *arg),
                        _ => *arg,
                    };
                    let range = if dtype.is_float() { (0, 0) } else { dtype.int_range() };
                    self.bind(var, value, 0, range);
                }
                Param::Runtime { var, .. } => {
                    // Only the body may rely on the facts, which the checks establish.
                    let range = if check { anything } else { fact_range(kernel, var) };
                    self.bind(var, *arg, 0, range);
                }
            }
        }
        if check {
            let mut extra = args[kernel.params.len()..].iter();
            for dim in &kernel.dims {
                let arg = extra.next().expect("one per dimension");
                self.bind(&dim.var, *arg, 0, anything);
            }
            self.check_values = extra.next().copied();
            let flag = self.b.declare_var(types::I8);
            let zero = self.int(types::I8, 0);
            self.b.def_var(flag, zero);
            self.overflow = Some(flag);
        }
    }
}

/// Bounds of a run-time integer that a kernel's facts state directly.
fn fact_range(kernel: &Kernel, var: &Var) -> (i128, i128) {
    let (mut low, mut high) = DType::Index.int_range();
    for fact in &kernel.facts {
        let ExprKind::Binary(op, a, b) = &fact.kind else { continue };
        let is_var = |expr: &Expr| expr.as_var() == Some(var);
        let (op, value) = match (a.as_int(), b.as_int()) {
            (None, Some(value)) if is_var(a) => (*op, value),
            (Some(value), None) if is_var(b) => (mirrored(*op), value),
            _ => continue,
        };
        match op {
            BinOp::Ge => low = low.max(value),
            BinOp::Gt => low = low.max(value + 1),
            BinOp::Le => high = high.min(value),
            BinOp::Lt => high = high.min(value - 1),
            BinOp::Eq => (low, high) = (value, value),
            _ => {}
        }
    }
    (low, high)
}

/// The comparison with its operands exchanged.
fn mirrored(op: BinOp) -> BinOp {
    match op {
        BinOp::Ge => BinOp::Le,
        BinOp::Gt => BinOp::Lt,
        BinOp::Le => BinOp::Ge,
        BinOp::Lt => BinOp::Gt,
        other => other,
    }
}
