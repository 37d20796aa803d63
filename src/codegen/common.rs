//! Facts and helpers that the back ends and the entry points share.

use super::unwind::{CodeModule, Prologue};
use crate::bug;
use crate::ir::{Buffer, DType};
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{Function, Signature, Type, UserFuncName, Value, types};
use cranelift_codegen::isa::{CallConv, TargetIsa};
use cranelift_codegen::{CodegenError, CompiledCode, Context};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_module::{FuncId, Module, ModuleReloc};

/// Set in the result of `NAME.check` beside the index when index arithmetic of the failed
/// `Assert` overflowed 64 bits; `values` are meaningless then.
pub const CHECK_OVERFLOW: i32 = 1 << 30;

/// Number of i64 elements that the `values` argument of `NAME.check` points to.
pub const CHECK_VALUES: usize = 4;

/// The calling convention of a module's own functions, on all systems: the nests of the SIMD back
/// end have no other. Functions that others call (exports, tasks, the runtime) have that of the
/// system, [`TargetIsa::default_call_conv`], and save what callers there expect.
pub(super) const INTERNAL_CONVENTION: CallConv = CallConv::SystemV;

/// The Cranelift type of a scalar: halves are the integer of their bits, `bool` is a byte.
pub(super) fn clif_type(dtype: DType) -> Type {
    match dtype {
        DType::Float64 => types::F64,
        DType::Float32 => types::F32,
        DType::Float16 | DType::BFloat16 | DType::Int16 | DType::Uint16 => types::I16,
        DType::Int8 | DType::Uint8 | DType::Bool => types::I8,
        DType::Int32 | DType::Uint32 => types::I32,
        DType::Int64 | DType::Uint64 | DType::Index => types::I64,
        DType::Int4 | DType::Uint4 | DType::Float8E4M3 | DType::Float8E5M2 => {
            bug!("{dtype} in the loop IR")
        }
    }
}

/// Bytes of a buffer whose extents are constants, if they fit in 63 bits.
pub(super) fn constant_bytes(buffer: &Buffer) -> Option<i64> {
    let bytes =
        buffer.shape.iter().try_fold(i128::from(buffer.dtype.bytes()), |bytes, extent| {
            bytes.checked_mul(extent.as_int()?.max(0))
        })?;
    i64::try_from(bytes).ok()
}

/// An empty function.
pub(super) fn new_context(id: FuncId, signature: Signature) -> Context {
    let name = UserFuncName::user(0, id.as_u32());
    Context::for_function(Function::with_name_signature(name, signature))
}

/// Creates the entry block of a function. Returns its builder and its parameters.
pub(super) fn enter_function<'a>(
    context: &'a mut Context,
    builder_context: &'a mut FunctionBuilderContext,
) -> (FunctionBuilder<'a>, Vec<Value>) {
    let mut builder = FunctionBuilder::new(&mut context.func, builder_context);
    let entry = builder.create_block();
    builder.append_block_params_for_function_params(entry);
    builder.switch_to_block(entry);
    builder.seal_block(entry);
    let args = builder.block_params(entry).to_vec();
    (builder, args)
}

/// Compiles a function for `isa`, which may have more features than the module's, and defines it.
pub(super) fn define_function<'c>(
    module: &mut CodeModule,
    id: FuncId,
    name: &str,
    isa: &dyn TargetIsa,
    context: &'c mut Context,
) -> Result<&'c CompiledCode, CodegenError> {
    context.compile(isa, &mut ControlPlane::default()).map_err(|error| error.inner)?;
    let code = context.compiled_code().expect("compiled just now");
    let relocs = code.buffer.relocs().iter();
    let relocs: Vec<ModuleReloc> =
        relocs.map(|reloc| ModuleReloc::from_mach_reloc(reloc, &context.func, id)).collect();
    let alignment = u64::from(code.buffer.alignment).max(16);
    if let Err(error) = module.define_function_bytes(id, alignment, code.code_buffer(), &relocs) {
        bug!("{name}: {error}");
    }
    module.add_unwind(id, code.code_buffer().len(), Prologue::of_function(code, isa));
    Ok(code)
}
