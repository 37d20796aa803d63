//! The body of a network: acquires the arena and calls the bodies of its kernels in order.
//!
//! Before: compiled bodies of kernels, and the list of calls. After: `NAME.body` with the
//! parameters of the network, which returns the first failure of a kernel, or 0.

use super::emit::Emitter;
use super::{Check, Unit, signature_of};
use crate::codegen::common::{enter_function, new_context};
use crate::codegen::{KernelFunctions, NetworkCode, Operand};
use crate::diag::Result;
use crate::ir::{Buffer, DType, Expr, Scope, Stmt};
use cranelift_codegen::ir::{InstBuilder, Value, types};
use cranelift_frontend::FunctionBuilderContext;
use cranelift_module::{DataId, FuncId, Linkage, Module};

impl Unit<'_> {
    /// Compiles the kernels of a network, its checks and its body.
    pub(super) fn compile_network(
        &mut self,
        network: &NetworkCode,
        check: Option<Check>,
    ) -> Result<KernelFunctions> {
        let kernels = network.kernels.iter();
        let bodies: Vec<FuncId> =
            kernels.map(|kernel| self.compile_function(kernel, false)).collect::<Result<_>>()?;
        let constants: Vec<DataId> = network
            .constants
            .iter()
            .map(|bytes| self.define_constant((**bytes).as_ref()))
            .collect();
        let check = check.map_or_else(|| self.compile_check(&network.entry), Ok);
        let (check, messages) = check?;
        let entry = &network.entry;
        let signature = signature_of(entry, false);
        let symbol = self.symbol(&entry.name);
        let name = format!("{symbol}.body");
        let id = self
            .module
            .declare_function(&name, Linkage::Local, &signature)
            .unwrap_or_else(|error| crate::bug!("{name}: {error}"));
        let mut context = new_context(id, signature);
        let mut builder_context = FunctionBuilderContext::new();
        let (builder, args) = enter_function(&mut context, &mut builder_context);
        let mut emitter = Emitter::new(builder, self, &symbol);
        emitter.bind_params(entry, &args, false);
        let arena = network.arena_bytes.as_ref().map(|bytes| emitter.acquire_arena(bytes));
        for call in &network.calls {
            emitter.mark(|| format!("call {}", network.kernels[call.kernel].name));
            let operand = |operand: &Operand| match operand {
                Operand::Param(at) => args[*at],
                Operand::Constant(at) => emitter.data_address(constants[*at]),
                Operand::Arena(offset) => {
                    let base = arena.expect("tensors in the arena");
                    let offset = emitter.expr(offset);
                    emitter.b.ins().iadd(base, offset)
                }
                Operand::Integer(value) => emitter.expr(value),
            };
            let operands: Vec<Value> = call.operands.iter().map(operand).collect();
            emitter.call_body(bodies[call.kernel], &operands);
        }
        let finished = emitter.finish(&Stmt::nothing());
        self.define(entry, (id, &name), &mut context, finished)?;
        Ok(KernelFunctions { body: id, check, messages, bytes: None })
    }
}

impl Emitter<'_, '_> {
    /// Acquires a block of the workspace of this many bytes. Returns its address.
    fn acquire_arena(&mut self, bytes: &Expr) -> Value {
        let arena = Buffer::new("arena", DType::Uint8, vec![bytes.clone()], Scope::Global);
        self.place_in_workspace(std::slice::from_ref(&arena));
        self.workspace.expect("the arena is in it")
    }

    fn data_address(&mut self, data: DataId) -> Value {
        let global = self.unit.module.declare_data_in_func(data, self.b.func);
        self.b.ins().symbol_value(types::I64, global)
    }

    /// Calls the body of a kernel; returns its code if it fails.
    fn call_body(&mut self, body: FuncId, operands: &[Value]) {
        let callee = self.unit.module.declare_func_in_func(body, self.b.func);
        self.b.func.dfg.ext_funcs[callee].colocated = true;
        let call = self.b.ins().call(callee, operands);
        let code = self.b.inst_results(call)[0];
        let (failed, fine) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(code, failed, &[], fine, &[]);
        self.b.set_cold_block(failed);
        self.start_block(failed);
        self.release_workspace();
        self.b.ins().return_(&[code]);
        self.start_block(fine);
        self.forget();
    }
}
