//! Compiles kernels into a library and calls their `body` and `check` functions.
//!
//! They are local to the object, so each gets an exported caller that takes its arguments as an
//! array of 64-bit words. The system's C compiler links them with a small runtime in C.

use crate::codegen::clif::{baseline_isa, compile_variants, new_module, signature_of};
use crate::codegen::common::{enter_function, new_context};
use crate::codegen::unwind::CodeModule;
use crate::codegen::{ObjectOptions, Variant};
use crate::ir::{Kernel, Stmt};
use crate::target::{Arch, Target};
use cranelift_codegen::ir::{AbiParam, InstBuilder, MemFlagsData, Signature, types};
use cranelift_codegen::isa::CallConv;
use cranelift_frontend::FunctionBuilderContext;
use cranelift_module::{FuncId, Linkage, Module};
use std::process::Command;

const RUNTIME: &str = r#"
#include <stdlib.h>
#include <stdint.h>
#include <sys/mman.h>
static int test_blocks;
__attribute__((visibility("default"))) int test_blocks_in_use(void) { return test_blocks; }
void *tec_rt_workspace_acquire(uint64_t n) {
    if (n > (1ull << 40)) return 0;
    test_blocks++;
    return aligned_alloc(64, (n + 63) & ~63ull);
}
void tec_rt_workspace_release(void *p) { test_blocks--; free(p); }
/* Iterations in ranges of three, the last ones first. */
int32_t tec_rt_parallel_for(int32_t (*task)(void *, int64_t, int64_t), void *data, int64_t n,
                            int64_t steps) {
    (void)steps;
    for (int64_t end = n; end > 0; end -= 3) {
        int32_t failure = task(data, end < 3 ? 0 : end - 3, end);
        if (failure) return failure;
    }
    return 0;
}
/* Memory that ends at an inaccessible page and begins at most a page after another one. */
static struct { char *at; uint64_t size; } test_pages[256];
static int test_page_count;
__attribute__((visibility("default"))) void *test_guarded(uint64_t n) {
    uint64_t size = (n + 4095) & ~4095ull;
    char *at = mmap(0, size + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || mprotect(at + 4096, size, PROT_READ | PROT_WRITE)) abort();
    test_pages[test_page_count].at = at;
    test_pages[test_page_count++].size = size + 8192;
    return at + 4096 + size - n;
}
__attribute__((visibility("default"))) void test_free_guarded(void) {
    while (test_page_count) {
        test_page_count--;
        munmap(test_pages[test_page_count].at, test_pages[test_page_count].size);
    }
}
float tec_rt_fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
double tec_rt_fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
"#;

/// A loaded library.
pub(super) struct Native {
    library: libloading::Library,
    _dir: tempfile::TempDir,
}

/// A kernel without checks.
pub(super) fn kernel(name: &str, params: Vec<crate::ir::Param>, body: Stmt) -> Kernel {
    Kernel::new(name, params, body)
}

/// Compiles kernels to an object file with an exported caller of every function.
pub(super) fn object(kernels: &[Kernel], target: &Target, opt: u8) -> Vec<u8> {
    let mut module = new_module(baseline_isa(target, opt), target.os, "test");
    let options = ObjectOptions { opt, ..ObjectOptions::default() };
    let variant = Variant { code: kernels.into(), target };
    let functions = compile_variants(&mut module, &[variant], &options, None);
    for (kernel, functions) in kernels.iter().zip(functions.expect("supported").remove(0)) {
        let signature = signature_of(kernel, false);
        export_caller(&mut module, &format!("{}_body", kernel.name), functions.body, &signature);
        if let Some(check) = functions.check {
            let signature = signature_of(kernel, true);
            export_caller(&mut module, &format!("{}_check", kernel.name), check, &signature);
        }
    }
    module.finish()
}

fn export_caller(module: &mut CodeModule, name: &str, callee: FuncId, inner: &Signature) {
    let mut signature = Signature::new(CallConv::SystemV);
    signature.params.push(AbiParam::new(types::I64));
    signature.returns.push(AbiParam::new(types::I32));
    let id = module.declare_function(name, Linkage::Export, &signature).unwrap();
    let mut context = new_context(id, signature);
    let callee = module.declare_func_in_func(callee, &mut context.func);
    let mut builder_context = FunctionBuilderContext::new();
    let (mut b, params) = enter_function(&mut context, &mut builder_context);
    let words = params[0];
    let args: Vec<_> = inner
        .params
        .iter()
        .enumerate()
        .map(|(i, param)| {
            b.ins().load(param.value_type, MemFlagsData::trusted(), words, i as i32 * 8)
        })
        .collect();
    let call = b.ins().call(callee, &args);
    let result = b.inst_results(call)[0];
    b.ins().return_(&[result]);
    b.finalize(module.target_config());
    module.define_function(id, &mut context).unwrap();
}

impl Native {
    /// Compiles, links and loads.
    pub(super) fn build(kernels: &[Kernel], target: &Target) -> Native {
        Native::build_at(kernels, target, 3)
    }

    /// Like [`Native::build`], at a level of `--opt`.
    pub(super) fn build_at(kernels: &[Kernel], target: &Target, opt: u8) -> Native {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("k.o"), object(kernels, target, opt)).unwrap();
        std::fs::write(path("rt.c"), RUNTIME).unwrap();
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-fvisibility=hidden", "-o"])
            .args([path("k.so"), path("k.o"), path("rt.c")])
            .arg("-lm")
            .status()
            .expect("a C compiler");
        assert!(status.success());
        let library = unsafe { libloading::Library::new(path("k.so")) }.expect("it loads");
        Native { library, _dir: dir }
    }

    /// Workspace blocks that were acquired and not released.
    pub(super) fn blocks_in_use(&self) -> i32 {
        unsafe {
            let count: libloading::Symbol<'_, unsafe extern "C" fn() -> i32> =
                self.library.get("test_blocks_in_use").expect("of RUNTIME");
            count()
        }
    }

    /// Copies bytes to memory that ends at an inaccessible page.
    pub(super) fn guarded(&self, data: &[u8]) -> *mut u8 {
        unsafe {
            let function: libloading::Symbol<'_, unsafe extern "C" fn(u64) -> *mut u8> =
                self.library.get("test_guarded").expect("of RUNTIME");
            let at = function(data.len() as u64);
            std::ptr::copy_nonoverlapping(data.as_ptr(), at, data.len());
            at
        }
    }

    /// Frees all memory of [`Native::guarded`].
    pub(super) fn free_guarded(&self) {
        unsafe {
            let function: libloading::Symbol<'_, unsafe extern "C" fn()> =
                self.library.get("test_free_guarded").expect("of RUNTIME");
            function();
        }
    }

    /// Calls `NAME_body` or `NAME_check` with its arguments as words.
    pub(super) fn call(&self, name: &str, words: &[u64]) -> i32 {
        unsafe {
            let function: libloading::Symbol<'_, unsafe extern "C" fn(*const u64) -> i32> =
                self.library.get(name).expect("an exported caller");
            function(words.as_ptr())
        }
    }
}

/// Runs kernels whose parameters are all tensors, compiled for another CPU family, under QEMU.
/// `tensors` are the bytes of each kernel's arguments. Returns their bytes afterwards, or `None`
/// without the cross compiler or QEMU.
pub(super) fn emulate(
    kernels: &[Kernel],
    target: &Target,
    tensors: &[Vec<Vec<u8>>],
) -> Option<Vec<Vec<Vec<u8>>>> {
    let family = match target.arch {
        Arch::X86_64 | Arch::Nvptx => return None,
        arch => arch.name(),
    };
    let (compiler, emulator) = (format!("{family}-linux-gnu-gcc"), format!("qemu-{family}"));
    for program in [&compiler, &emulator] {
        if Command::new(program).arg("--version").output().is_err() {
            eprintln!("skipped {target}: {program} not found");
            return None;
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("k.o"), object(kernels, target, 3)).unwrap();
    std::fs::write(path("in"), tensors.concat().concat()).unwrap();
    let names: Vec<&str> = kernels.iter().map(|kernel| kernel.name.as_str()).collect();
    let externs: String =
        names.iter().map(|name| format!("extern int32_t {name}_body(uint64_t *);\n")).collect();
    let calls: String = names
        .iter()
        .zip(tensors)
        .map(|(name, tensors)| {
            let sizes: String = tensors.iter().map(|bytes| format!("{}, ", bytes.len())).collect();
            format!("  if (run({name}_body, (size_t[]){{{sizes}}}, {})) return 1;\n", tensors.len())
        })
        .collect();
    let main = format!("{RUNTIME}{EMULATED}{externs}int main(void) {{\n{calls}  return 0;\n}}\n");
    std::fs::write(path("main.c"), main).unwrap();
    let status = Command::new(compiler)
        .args(["-static", "-O1", "-o"])
        .args([path("main"), path("main.c"), path("k.o")])
        .arg("-lm")
        .status();
    assert!(status.expect("it was found").success());
    let input = std::fs::File::open(path("in")).unwrap();
    let output = Command::new(emulator).arg(path("main")).stdin(input).output().unwrap();
    assert!(output.status.success(), "{target}: {output:?}");
    let mut rest = &output.stdout[..];
    let mut take = |len: usize| rest.split_off(..len).expect("all tensors are printed").to_vec();
    Some(tensors.iter().map(|t| t.iter().map(|bytes| take(bytes.len())).collect()).collect())
}

/// Calls a kernel with tensors from standard input and prints their contents afterwards.
const EMULATED: &str = r#"
#include <stdio.h>
static int run(int32_t (*body)(uint64_t *), const size_t *sizes, int count) {
    uint64_t words[64];
    for (int i = 0; i < count; i++) {
        words[i] = (uintptr_t)malloc(sizes[i] + 1);
        if (fread((void *)words[i], 1, sizes[i], stdin) != sizes[i]) return 1;
    }
    if (body(words)) return 1;
    for (int i = 0; i < count; i++) fwrite((void *)words[i], 1, sizes[i], stdout);
    return 0;
}
"#;

/// The address of a slice, as an argument.
pub(super) fn pointer<T>(data: &mut [T]) -> u64 {
    data.as_mut_ptr() as u64
}
