//! Modules from hand-built kernels, called from Rust and from C.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{AbiParam, InstBuilder, MemFlagsData, types};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_module::{Linkage, Module};
use cranelift_object::{ObjectBuilder, ObjectModule};
use tec::codegen::EntryKernel;
use tec::codegen::clif::ObjectOptions;
use tec::codegen::entry::emit_entries;
use tec::ir::{Buffer, DType, Expr, Kernel, Param, Scope, Stmt, Var};
use tec::module::link::link_module;
use tec::module::load::{Arg, LoadedModule};
use tec::target::Target;

fn tensor(name: &str, shape: &[Expr], output: bool) -> Param {
    let buffer = Buffer::new(name, DType::Float32, shape.to_vec(), Scope::Global);
    Param::Tensor { buffer, output, layout_free: false }
}

fn add_kernel() -> Kernel {
    let shape = [Expr::index(100)];
    Kernel {
        name: "add".into(),
        params: vec![
            tensor("a", &shape, false),
            tensor("b", &shape, false),
            tensor("c", &shape, true),
        ],
        dims: vec![],
        checks: Stmt::nothing(),
        body: Stmt::nothing(),
        reassociated: false,
        facts: vec![],
    }
}

fn add_dyn_kernel() -> Kernel {
    let n = Var::index("n");
    let shape = [Expr::var(&n)];
    let mut kernel = add_kernel();
    kernel.name = "add_n".into();
    kernel.params = vec![
        tensor("a", &shape, false),
        tensor("b", &shape, false),
        tensor("c", &shape, true),
        Param::Runtime { var: n, source: Some((0, 0)) },
    ];
    kernel
}

fn object(kernels: &[Kernel]) -> Vec<u8> {
    let mut flags = settings::builder();
    flags.set("is_pic", "true").unwrap();
    flags.set("opt_level", "speed").unwrap();
    let isa = cranelift_codegen::isa::lookup_by_name("x86_64-unknown-linux-gnu")
        .unwrap()
        .finish(settings::Flags::new(flags))
        .unwrap();
    let builder = ObjectBuilder::new(isa.clone(), "m", cranelift_module::default_libcall_names());
    let mut module = ObjectModule::new(builder.unwrap());
    let mut entries = Vec::new();
    for kernel in kernels {
        let mut sig = module.make_signature();
        for _ in &kernel.params {
            sig.params.push(AbiParam::new(types::I64));
        }
        sig.returns.push(AbiParam::new(types::I32));
        let id = module
            .declare_function(&format!("{}.body", kernel.name), Linkage::Local, &sig)
            .unwrap();
        let mut ctx = module.make_context();
        ctx.func.signature = sig;
        let mut fbc = FunctionBuilderContext::new();
        let mut b = FunctionBuilder::new(&mut ctx.func, &mut fbc);
        let entry = b.create_block();
        b.append_block_params_for_function_params(entry);
        let head = b.create_block();
        let i = b.append_block_param(head, types::I64);
        let exit = b.create_block();
        b.switch_to_block(entry);
        let p = b.block_params(entry).to_vec();
        let n = if p.len() > 3 { p[3] } else { b.ins().iconst(types::I64, 100) };
        let zero = b.ins().iconst(types::I64, 0);
        let empty = b.ins().icmp(IntCC::Equal, n, zero);
        b.ins().brif(empty, exit, &[], head, &[zero.into()]);
        b.switch_to_block(head);
        let off = b.ins().imul_imm_s(i, 4);
        let at: Vec<_> = (0..3).map(|k| b.ins().iadd(p[k], off)).collect();
        let x = b.ins().load(types::F32, MemFlagsData::trusted(), at[0], 0);
        let y = b.ins().load(types::F32, MemFlagsData::trusted(), at[1], 0);
        let z = b.ins().fadd(x, y);
        b.ins().store(MemFlagsData::trusted(), z, at[2], 0);
        let next = b.ins().iadd_imm_s(i, 1);
        let more = b.ins().icmp(IntCC::SignedLessThan, next, n);
        b.ins().brif(more, head, &[next.into()], exit, &[]);
        b.switch_to_block(exit);
        let rc = b.ins().iconst(types::I32, 0);
        b.ins().return_(&[rc]);
        b.seal_all_blocks();
        b.finalize(isa.frontend_config());
        module.define_function(id, &mut ctx).unwrap();
        entries.push(EntryKernel { kernel, body: id, check: None, messages: vec![] });
    }
    let options = ObjectOptions { module: "m".into(), manifest: "{}".into(), ..Default::default() };
    let target = Target::parse("x86-64").unwrap();
    emit_entries(&mut module, &*isa, &entries, &target, &options).unwrap();
    module.finish().emit().unwrap()
}

#[test]
fn loads_and_runs() {
    let object = object(&[add_kernel(), add_dyn_kernel()]);
    let so = link_module(&object, Target::native().arch).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.so");
    std::fs::write(&path, &so).unwrap();
    std::fs::write("/tmp/m.so", &so).unwrap();
    std::fs::write("/tmp/m.o", &object).unwrap();
    let module = LoadedModule::open(&path).unwrap();
    assert_eq!(module.manifest().unwrap(), "{}");
    let bytes = |v: &[f32]| v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let a = bytes(&(0..100).map(|x| x as f32).collect::<Vec<_>>());
    let mut c = vec![0; 400];
    for name in ["add", "add_n"] {
        let args = vec![
            Arg::Input(DType::Float32, &[100], &a),
            Arg::Input(DType::Float32, &[100], &a),
            Arg::Output(DType::Float32, &[100], &mut c),
        ];
        module.kernel(name).unwrap().call(args).unwrap();
        assert_eq!(c, bytes(&(0..100).map(|x| 2.0 * x as f32).collect::<Vec<_>>()));
    }
    let args = vec![
        Arg::Input(DType::Float32, &[100], &a),
        Arg::Input(DType::Float32, &[99], &a),
        Arg::Output(DType::Float32, &[100], &mut c),
    ];
    let error = module.kernel("add_n").unwrap().call(args).unwrap_err();
    assert_eq!(error.message, "");
}
