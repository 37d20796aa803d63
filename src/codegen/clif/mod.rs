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
mod scan;
mod stmt;
mod storage;
mod support;
mod task;
#[cfg(test)]
mod tests;
mod vector;

use super::common::{INTERNAL_CONVENTION, clif_type, define_function, enter_function, new_context};
use super::unwind::CodeModule;
use super::{KernelFunctions, ObjectOptions, Variant, variant_suffix};
use crate::diag::{Diag, Result};
use crate::ir::cost::output_bytes;
use crate::ir::print::{Style, print_kernel};
use crate::ir::{
    BinOp, Buffer, DType, Expr, ExprKind, Kernel, Param, Role, Scope, Stmt, Var, visit,
};
use crate::target::{Os, Target};
use cranelift_codegen::ir::{AbiParam, InstBuilder, Signature, Type, Value, types};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::{CodegenError, Context};
use cranelift_frontend::FunctionBuilderContext;
use cranelift_module::{DataDescription, DataId, FuncId, Linkage, Module};
use cranelift_object::{ObjectBuilder, ObjectModule};
use emit::{EmittedFunction, Emitter};
pub(super) use isa::baseline_isa;
pub(super) use listing::{FunctionNotes, write_listing};
use rustc_hash::FxHashMap;
use sha2::{Digest, Sha256};
pub use storage::workspace_bytes;
use task::{Task, task_signature};

/// Alignment of constants: a cache line, and the widest vector.
const CONSTANT_ALIGNMENT: u64 = 64;

/// The check of an entry and its messages, as [`Unit::compile_check`] returns them.
type Check = (Option<FuncId>, Vec<String>);

/// Compiles the functions of each kernel and then of each network into `module`, for each variant.
/// Several variants share the checks that are equal in all of them, and equal constants. Fills
/// `notes` for the listing.
pub(super) fn compile_variants(
    module: &mut CodeModule,
    variants: &[Variant<'_>],
    options: &ObjectOptions,
    mut notes: Option<&mut Vec<FunctionNotes>>,
) -> Result<Vec<Vec<KernelFunctions>>> {
    let [first, others @ ..] = variants else { crate::bug!("a module without variants") };
    if others.is_empty() {
        let mut unit = Unit::new(module, first.target, options.opt, notes);
        return Ok(vec![unit.compile_variant(*first, options, &[])?]);
    }
    // Any CPU that runs one of the variants can run code for the least capable target.
    let baseline = Target::baseline(first.target.arch);
    let mut unit = Unit::new(module, &baseline, options.opt, notes.as_deref_mut());
    let mut checks: Vec<Option<Check>> = Vec::new();
    for (at, kernel) in first.code.entries().enumerate() {
        let interface = interface_text(kernel);
        let mut same = others.iter().map(|other| other.code.entries().nth(at));
        let is_shared = same.all(|other| other.map(interface_text).as_ref() == Some(&interface));
        checks.push(if is_shared { Some(unit.compile_check(kernel)?) } else { None });
    }
    let mut constants = FxHashMap::default();
    let compile = |variant: &Variant<'_>| {
        let mut unit = Unit::new(module, variant.target, options.opt, notes.as_deref_mut());
        unit.suffix = variant_suffix(variant.target);
        unit.shared_constants = Some(&mut constants);
        unit.compile_variant(*variant, options, &checks)
    };
    variants.iter().map(compile).collect()
}

/// Returns a text that is equal for kernels whose callers see the same parameters and checks.
fn interface_text(kernel: &Kernel) -> String {
    let (body, facts) = (Stmt::nothing(), Vec::new());
    let interface = Kernel { body, facts, reassociated: false, ..kernel.clone() };
    print_kernel(&interface, Style::Full)
}

/// Compiles, for the CPU `host`, the checks of kernels that run on GPUs, and as body a function
/// that stores the numbers given with the kernel.
pub(super) fn compile_launch_params(
    module: &mut CodeModule,
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
    plan.params.push(Param::Tensor { buffer, role: Role::Output, layout_free: false });
    plan
}

/// A new object module, whose exported functions are compiled for `baseline`.
pub(super) fn new_module(baseline: OwnedTargetIsa, os: Os, name: &str) -> CodeModule {
    let no_libcalls = |call| crate::bug!("Cranelift wants the library function {call}");
    let builder = ObjectBuilder::new(baseline.clone(), name.as_bytes(), Box::new(no_libcalls))
        .expect("the format is supported for every target");
    CodeModule::new(ObjectModule::new(builder), os)
}

/// Compiles the functions of a module.
struct Unit<'u> {
    module: &'u mut CodeModule,
    isa: OwnedTargetIsa,
    target: &'u Target,
    constants: FxHashMap<Buffer, DataId>,
    /// Filled for the listing, if one is made.
    notes: Option<&'u mut Vec<FunctionNotes>>,
    /// Number of nests compiled by the SIMD back end so far.
    nests: usize,
    /// Follows the kernel's name in symbols; empty in a module of one variant.
    suffix: String,
    /// The constants of all variants by the hash of their bytes, if there are several.
    shared_constants: Option<&'u mut FxHashMap<[u8; 32], DataId>>,
}

impl<'u> Unit<'u> {
    fn new(
        module: &'u mut CodeModule,
        target: &'u Target,
        opt: u8,
        notes: Option<&'u mut Vec<FunctionNotes>>,
    ) -> Unit<'u> {
        let isa = isa::kernel_isa(target, opt);
        let (constants, suffix) = (FxHashMap::default(), String::new());
        let shared_constants = None;
        Unit { module, isa, target, constants, notes, nests: 0, suffix, shared_constants }
    }

    /// Compiles the functions of each kernel and then of each network. `checks` are those that are
    /// compiled already, by the position of the entry.
    fn compile_variant(
        &mut self,
        Variant { code, target }: Variant<'_>,
        options: &ObjectOptions,
        checks: &[Option<Check>],
    ) -> Result<Vec<KernelFunctions>> {
        let inner = code.networks.iter().flat_map(|network| &network.kernels);
        let mut all = code.kernels.iter().chain(inner);
        all.try_for_each(|kernel| support::check_supported(kernel, target))?;
        let check_at = |at: usize| checks.get(at).cloned().flatten();
        let mut functions = Vec::new();
        for kernel in code.kernels {
            let is_sized = options.sized.contains(&kernel.name);
            functions.push(self.compile_kernel(kernel, is_sized, check_at(functions.len()))?);
        }
        for network in code.networks {
            functions.push(self.compile_network(network, check_at(functions.len()))?);
        }
        Ok(functions)
    }

    /// Returns the beginning of the symbols of a kernel's functions.
    fn symbol(&self, kernel: &str) -> String {
        format!("{kernel}{}", self.suffix)
    }

    fn compile_kernel(
        &mut self,
        kernel: &Kernel,
        sized: bool,
        check: Option<Check>,
    ) -> Result<KernelFunctions> {
        let (check, messages) = check.map_or_else(|| self.compile_check(kernel), Ok)?;
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
        let symbol = self.symbol(&kernel.name);
        let name = format!("{symbol}.{}", if check { "check" } else { "body" });
        let id = self
            .module
            .declare_function(&name, Linkage::Local, &signature)
            .unwrap_or_else(|error| crate::bug!("{name}: {error}"));
        let mut context = new_context(id, signature);
        let mut builder_context = FunctionBuilderContext::new();
        let (builder, args) = enter_function(&mut context, &mut builder_context);
        let mut emitter = Emitter::new(builder, self, &symbol);
        emitter.bind_params(kernel, &args, check);
        let stmt = if check { &kernel.checks } else { &kernel.body };
        let finished = emitter.finish(stmt);
        for task in self.define(kernel, (id, &name), &mut context, finished)? {
            self.compile_task(kernel, &task)?;
        }
        Ok(id)
    }

    fn compile_task(&mut self, kernel: &Kernel, task: &Task) -> Result<()> {
        let mut context = new_context(task.id, task_signature(&*self.isa));
        let mut builder_context = FunctionBuilderContext::new();
        let (builder, args) = enter_function(&mut context, &mut builder_context);
        let symbol = self.symbol(&kernel.name);
        let mut emitter = Emitter::new(builder, self, &symbol);
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
        let mut signature = Signature::new(self.isa.default_call_conv());
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
        let id = self.define_constant(&bytes);
        self.constants.insert(buffer.clone(), id);
        id
    }

    /// Returns read-only data with these bytes: new, or that of another variant.
    fn define_constant(&mut self, bytes: &[u8]) -> DataId {
        let key = self.shared_constants.is_some().then(|| Sha256::digest(bytes).into());
        if let (Some(shared), Some(key)) = (&self.shared_constants, &key)
            && let Some(id) = shared.get(key)
        {
            return *id;
        }
        let id = self.module.declare_anonymous_data(false, false).expect("a fresh name");
        let mut data = DataDescription::new();
        data.define(bytes.into());
        data.set_align(CONSTANT_ALIGNMENT);
        self.module.define_data(id, &data).expect("defined once");
        if let (Some(shared), Some(key)) = (&mut self.shared_constants, key) {
            shared.insert(key, id);
        }
        id
    }
}

fn signature_of(kernel: &Kernel, check: bool) -> Signature {
    let mut signature = Signature::new(INTERNAL_CONVENTION);
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
                Param::Tensor { buffer, role, .. } => {
                    self.place_argument(buffer, *arg, role.is_written());
                }
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
