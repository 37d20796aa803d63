//! Nests for the SIMD back end. The function calls each nest with a pointer to a closure in its
//! frame: the values and addresses that the nest uses from outside.

use super::emit::Emitter;
use super::listing::FunctionNotes;
use super::storage::Place;
use super::task::{Field, Uses};
use crate::codegen::common::INTERNAL_CONVENTION;
use crate::codegen::simd::{Closure, compile_nest};
use crate::ir::{DType, Stmt};
use cranelift_codegen::ir::{AbiParam, InstBuilder, Signature, Type, Value, types};
use cranelift_module::{FuncId, Linkage, Module};

/// Alignment of the code of a nest, and of the constants after it.
const ALIGNMENT: u64 = 64;

impl Emitter<'_, '_> {
    /// Compiles a nest and calls it.
    pub(super) fn simd_kernel(&mut self, body: &Stmt) {
        let compiled = self.compiled_nest.take();
        self.call_nest(body, compiled);
    }

    /// Calls a nest, and compiles it unless `compiled` is its function. Returns the function.
    pub(super) fn call_nest(&mut self, body: &Stmt, compiled: Option<FuncId>) -> FuncId {
        self.mark(|| "a vectorized nest".to_string());
        let uses = Uses::of(body);
        let (mut fields, mut size) = (Vec::new(), 0);
        let mut add = |value: Value, ty: Type| {
            let bytes = ty.bytes() as i32;
            let offset = (size + bytes - 1) & -bytes;
            size = offset + bytes;
            fields.push((Field { offset, ty }, value));
            offset as u32
        };
        let mut closure = Closure::default();
        for var in uses.vars {
            if let Some(binding) = self.vars.get(&var) {
                let ty = self.b.func.dfg.value_type(binding.value);
                if let (Ok(low), Ok(high)) =
                    (binding.range.0.try_into(), binding.range.1.try_into())
                    && var.ty() == DType::Index.into()
                    && binding.range != DType::Index.int_range()
                {
                    closure.ranges.push((var.clone(), low, high));
                }
                closure.vars.push((var, add(binding.value, ty)));
            }
        }
        for buffer in uses.buffers.into_iter().chain(uses.constants) {
            let Some(Place::Memory(memory)) = self.places.get(&buffer) else {
                crate::bug!("buffer `{}` has no address for a nest", buffer.name);
            };
            let offset = add(memory.base, types::I64);
            closure.buffers.push((buffer, offset));
        }
        let pointer = self.write_closure(&fields, size.max(8));
        let id = compiled.unwrap_or_else(|| self.define_nest(body, &closure));
        let module = &mut self.unit.module;
        let callee = module.declare_func_in_func(id, self.b.func);
        self.b.func.dfg.ext_funcs[callee].colocated = true;
        self.b.ins().call(callee, &[pointer]);
        id
    }

    fn define_nest(&mut self, body: &Stmt, closure: &Closure) -> FuncId {
        let nest = compile_nest(body, closure, self.unit.target);
        let name = format!("{}.simd.{}", self.kernel_name, self.unit.nests);
        self.unit.nests += 1;
        let mut signature = Signature::new(INTERNAL_CONVENTION);
        signature.params.push(AbiParam::new(types::I64));
        let module = &mut self.unit.module;
        let id = module
            .declare_function(&name, Linkage::Local, &signature)
            .unwrap_or_else(|error| crate::bug!("{name}: {error}"));
        module
            .define_function_bytes(id, ALIGNMENT, &nest.bytes, &[])
            .unwrap_or_else(|error| crate::bug!("{name}: {error}"));
        module.add_unwind(id, nest.code_len, nest.prologue.clone());
        if let Some(notes) = &mut self.unit.notes {
            notes.push(FunctionNotes::of_nest(&name, nest));
        }
        id
    }
}
