//! The C and C++ header of a module.

use super::BuildInfo;
use crate::codegen::Code;
use crate::codegen::entry::signature_text;
use crate::ir::{DType, Kernel, Param, PrepackRole};
use std::fmt::Write;

/// The beginning of every header.
const PREAMBLE: &str = r#"
#include <stdbool.h>
#include <stdint.h>

/* DLPack's tensor, unless <dlpack/dlpack.h> was included before: the same layout. */
#if !defined(DLPACK_DLPACK_H_) && !defined(TEC_DLTENSOR)
#define TEC_DLTENSOR
#ifdef __cplusplus
extern "C" {
#endif
typedef enum { kDLCPU = 1, kDLCUDA = 2 } DLDeviceType;
typedef struct {
  int32_t device_type;
  int32_t device_id;
} DLDevice;
enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLBool = 6 };
typedef struct {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} DLDataType;
typedef struct {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides; /* in elements; null if row-major */
  uint64_t byte_offset;
} DLTensor;
#ifdef __cplusplus
}
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif
"#;

/// Returns the header of a module with these kernels. `several` tells whether it is for several
/// CPUs; `info` describes the least capable one.
pub fn make_header(code: Code<'_>, info: &BuildInfo, several: bool) -> String {
    let module = &info.module;
    let guard = format!("TEC_{}_H", module.to_uppercase());
    let others = if several { " and others" } else { "" };
    let mut out = format!(
        "/* Module {module}, made by tec {} for target {}{others}. */\n#ifndef {guard}\n\
         #define {guard}\n",
        env!("CARGO_PKG_VERSION"),
        info.target,
    );
    out += PREAMBLE;
    let gpu = info.target.is_gpu();
    if gpu {
        out += "\n/* Tensors are in the memory of a GPU. The last argument is a CUDA stream \
                (CUstream,\n * cudaStream_t; null for the default one): calls enqueue their work \
                and return before it is done.\n * Raw entries launch in the current CUDA context, \
                and return 3 if the driver fails. */\n";
    }
    if several {
        out += "\n/* The entries run code for the most capable of the module's targets that the \
                CPU supports and\n * TEC_MAX_TARGET in the environment permits. Without one, raw \
                entries return 3. */\n";
    }
    out += "\n/* Raw entries check nothing: tensors must be row-major, contiguous and aligned to \
            their elements,\n * and outputs must not overlap other tensors. They return 0 on \
            success, 1 without memory for\n * temporaries.\n *\n * The entries ending in _dl check \
            all arguments first; they return -1 if they wrote nothing, and\n";
    let _ = writeln!(out, " * {module}_last_error() returns the reason. */");
    for (kernel, info) in code.entries().zip(&info.kernels) {
        declare(&mut out, kernel, info.prepack_role.as_ref(), gpu);
    }
    if several {
        let _ = write!(
            out,
            "
/* The name of the target that calls run code for, or null if there is none. */
const char *{module}_target(void);
"
        );
    }
    let _ = write!(
        out,
        "
/* The message of this thread's last failed call. */
const char *{module}_last_error(void);
/* The manifest of the module, as JSON. */
const char *{module}_manifest(void);
/* Sets the number of threads of parallel loops; below 1: one for each CPU. */
void {module}_set_num_threads(int32_t threads);
/* Makes parallel loops run on the host's threads. parallel_for calls task for ranges that together
 * cover [0, n) and returns when all are done; its result is 0, or that of a task that failed. */
void {module}_set_parallel_for(
    int32_t (*parallel_for)(int32_t (*task)(void *data, int64_t begin, int64_t end), void *data,
                            int64_t n, void *user),
    void *user);

#ifdef __cplusplus
}}
#endif
#endif
"
    );
    out
}

/// The functions of a kernel.
fn declare(out: &mut String, kernel: &Kernel, role: Option<&PrepackRole>, gpu: bool) {
    let (name, signature) = (&kernel.name, comment(&signature_text(kernel)));
    let _ = write!(out, "\n/* {signature}");
    match role {
        None => {}
        Some(PrepackRole::Pack { of, input }) => {
            let _ = write!(
                out,
                "\n *\n * Packs `{input}` for {of}_prepacked, once for any number of calls. `out` \
                 has room for\n * {name}_bytes() bytes and should be aligned to 64 bytes."
            );
        }
        Some(PrepackRole::Prepacked { of, inputs }) => {
            let from = |input: &String| format!("`{input}` is the output of {of}_pack_{input}");
            let from: Vec<String> = inputs.iter().map(from).collect();
            let _ = write!(out, "\n *\n * Like {of}, but {}.", from.join(" and\n * "));
        }
    }
    let raw = raw_params(kernel, role, gpu);
    let _ = write!(out, " */\nint32_t {name}({raw});\n");
    let _ = writeln!(out, "int32_t {name}_dl({});", dl_params(kernel, gpu));
    if let Some(PrepackRole::Pack { .. }) = role {
        let integers = kernel.params.iter().filter_map(|param| match param {
            Param::Runtime { var, .. } => {
                Some(format!("int64_t {}", c_name(var.name(), kernel, gpu)))
            }
            _ => None,
        });
        let _ = writeln!(out, "int64_t {name}_bytes({});", join(integers));
    }
}

/// Returns the parameters of the raw entry. A packed tensor has no element type: the order of its
/// elements is private to the module.
fn raw_params(kernel: &Kernel, prepacked: Option<&PrepackRole>, gpu: bool) -> String {
    let packed = |name: &String, output: bool| match prepacked {
        None => false,
        Some(PrepackRole::Pack { .. }) => output,
        Some(PrepackRole::Prepacked { inputs, .. }) => inputs.contains(name),
    };
    let params = kernel.params.iter().map(|param| match param {
        Param::Tensor { buffer, role, .. } => {
            let constant = if role.is_written() { "" } else { "const " };
            let packed = packed(&buffer.name, role.is_written());
            let element = if packed { "void" } else { c_type(buffer.dtype) };
            format!("{constant}{element} *{}", c_name(&buffer.name, kernel, gpu))
        }
        Param::Scalar { var, dtype } => {
            format!("{} {}", c_type(*dtype), c_name(var.name(), kernel, gpu))
        }
        Param::Runtime { var, .. } => format!("int64_t {}", c_name(var.name(), kernel, gpu)),
    });
    join(params.chain(gpu.then(|| "void *stream".to_string())))
}

fn dl_params(kernel: &Kernel, gpu: bool) -> String {
    let params = kernel.params.iter().filter_map(|param| match param {
        Param::Tensor { buffer, role, .. } => {
            let constant = if role.is_written() { "" } else { "const " };
            Some(format!("{constant}DLTensor *{}", c_name(&buffer.name, kernel, gpu)))
        }
        Param::Scalar { var, dtype } => {
            Some(format!("{} {}", c_type(*dtype), c_name(var.name(), kernel, gpu)))
        }
        Param::Runtime { var, source: None } => {
            Some(format!("int64_t {}", c_name(var.name(), kernel, gpu)))
        }
        Param::Runtime { .. } => None,
    });
    join(params.chain(gpu.then(|| "void *stream".to_string())))
}

fn join(params: impl Iterator<Item = String>) -> String {
    let params: Vec<String> = params.collect();
    if params.is_empty() { "void".to_string() } else { params.join(", ") }
}

/// Returns the C type of a scalar; halves are passed as their bits.
fn c_type(dtype: DType) -> &'static str {
    match dtype {
        DType::Float64 => "double",
        DType::Float32 => "float",
        DType::Float16 | DType::BFloat16 | DType::Uint16 => "uint16_t",
        DType::Int8 => "int8_t",
        DType::Int16 => "int16_t",
        DType::Int32 => "int32_t",
        DType::Int64 | DType::Index => "int64_t",
        DType::Uint8 => "uint8_t",
        DType::Uint32 => "uint32_t",
        DType::Uint64 => "uint64_t",
        DType::Bool => "bool",
        // Arguments of these types are bytes.
        DType::Int4 | DType::Uint4 | DType::Float8E4M3 | DType::Float8E5M2 => "uint8_t",
    }
}

/// Returns a parameter's name, with underscores appended if C, C++ or this header reserves it, if a
/// header of C or `windows.h` defines a macro of this name, or until no other parameter has it.
fn c_name(name: &str, kernel: &Kernel, gpu: bool) -> String {
    const WORDS: &str = " alignas alignof and and_eq asm atomic_cancel atomic_commit \
        atomic_noexcept auto bitand bitor bool break case catch char char16_t char32_t char8_t \
        class co_await co_return co_yield compl concept const const_cast consteval constexpr \
        constinit continue decltype default delete do double dynamic_cast else enum explicit \
        export extern false float for friend goto if inline int long mutable namespace new \
        noexcept not not_eq nullptr operator or or_eq private protected public reflexpr register \
        reinterpret_cast requires restrict return short signed sizeof static static_assert \
        static_cast struct switch synchronized template this thread_local throw true try typedef \
        typeid typename typeof typeof_unqual union unsigned using virtual void volatile wchar_t \
        while xor xor_eq linux unix NULL DLTensor int8_t int16_t int32_t int64_t uint8_t uint16_t \
        uint32_t uint64_t hyper interface small BUFSIZ EOF I INFINITY NAN complex errno imaginary ";
    // `INT32_MAX` and `RAND_MAX`.
    let is_limit = name.ends_with("_MAX") || name.ends_with("_MIN");
    let reserved = name.starts_with('_') || WORDS.contains(&format!(" {name} "));
    let mut c_name = name.to_string();
    if reserved || is_limit || (gpu && name == "stream") {
        c_name.push('_');
        while kernel.params.iter().any(|param| param.name() == c_name) {
            c_name.push('_');
        }
    }
    c_name
}

/// Escapes a text so that it cannot end the comment around it.
fn comment(text: &str) -> String {
    text.replace("*/", "* /")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Stmt, Var};

    #[test]
    fn parameters_have_names_of_their_own_that_c_permits() {
        let names = ["new", "new_", "I", "INT32_MAX", "stream", "n"];
        let param = |name: &&str| Param::Runtime { var: Var::index(*name), source: None };
        let kernel = Kernel::new("k", names.iter().map(param).collect(), Stmt::nothing());
        let expected = "int64_t new__, int64_t new_, int64_t I_, int64_t INT32_MAX_, ";
        for (gpu, stream) in [(false, "stream"), (true, "stream_")] {
            let text = raw_params(&kernel, None, gpu);
            assert!(text.starts_with(&format!("{expected}int64_t {stream}, int64_t n")), "{text}");
        }
    }
}
