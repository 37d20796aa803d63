//! Loads a module and calls its kernels, for `tec run`, `tec bench` and the tests. Only this file,
//! `gpu` and the loops with which `tec bench` measures the machine contain `unsafe`.
//!
//! Kernels are called through their packed entries (docs/ABI.md), which all have one signature and
//! check every argument before anything is written.

use super::input::io_text;
use crate::bug;
use crate::diag::{Diag, Result};
use crate::ir::arith::Facts;
use crate::ir::interp::Value;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::substitute;
use crate::ir::{Buffer, DType, Expr, Kernel, Param, Role, Var};
use libloading::{Library, Symbol};
use std::ffi::{CStr, c_char, c_void};
use std::io::Write;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicI64, Ordering};

/// An argument of a checked entry.
#[derive(Debug)]
pub enum Arg<'a> {
    /// A tensor that is read.
    Input(DType, &'a [i64], &'a [u8]),
    /// A tensor that is written.
    Output(DType, &'a [i64], &'a mut [u8]),
    /// A tensor with strides in elements, read or written. The last number is the place of its
    /// first element in the bytes.
    View(DType, &'a [i64], &'a [i64], &'a mut [u8], usize),
    /// A tensor of a quantized type, read or written. The extents are in elements.
    Quantized(DType, Arc<[i64]>, &'a mut [u8]),
    /// An integer scalar, or a run-time integer.
    Int(i64),
    /// An unsigned scalar of 64 bits.
    Uint(u64),
    /// A floating-point scalar.
    Float(f64),
    /// A `bool` scalar.
    Bool(bool),
}

/// Returns the arguments of a checked entry for values in the order of the kernel's parameters.
/// Leaves out run-time integers that are extents of tensors.
pub fn args_of<'a>(kernel: &Kernel, values: &'a mut [Value]) -> Vec<Arg<'a>> {
    assert_eq!(kernel.params.len(), values.len(), "one value per parameter");
    let known: Vec<(Var, i64)> = runtime_integers(kernel, values);
    let pairs = kernel.params.iter().zip(values);
    let args = pairs.filter_map(|(param, value)| match (param, value) {
        (Param::Tensor { buffer, role, .. }, Value::Tensor(tensor)) => Some(match role {
            _ if buffer.declared.is_some() => {
                let shape = declared_extents(buffer, &tensor.shape, &known);
                Arg::Quantized(buffer.declared_dtype(), shape.into(), &mut tensor.data)
            }
            Role::Output | Role::Inout => {
                Arg::Output(tensor.dtype, &tensor.shape, &mut tensor.data)
            }
            Role::Input => Arg::Input(tensor.dtype, &tensor.shape, &tensor.data),
        }),
        (Param::Scalar { dtype: DType::Bool, .. }, Value::Int(value)) => {
            Some(Arg::Bool(*value != 0))
        }
        (Param::Scalar { dtype: DType::Uint64, .. }, Value::Int(value)) => {
            Some(Arg::Uint(*value as u64))
        }
        (Param::Scalar { .. }, Value::Int(value)) => Some(Arg::Int(*value as i64)),
        (Param::Scalar { .. }, Value::Float(value)) => Some(Arg::Float(*value)),
        (Param::Runtime { source: None, .. }, Value::Index(value)) => Some(Arg::Int(*value)),
        (Param::Runtime { .. }, Value::Index(_)) => None,
        (param, value) => bug!("parameter {} given {value:?}", param.name()),
    });
    args.collect()
}

/// Returns the values of a kernel's run-time integers.
fn runtime_integers(kernel: &Kernel, values: &[Value]) -> Vec<(Var, i64)> {
    let pairs = kernel.params.iter().zip(values);
    let integers = pairs.filter_map(|(param, value)| match (param, value) {
        (Param::Runtime { var, .. }, Value::Index(value)) => Some((var.clone(), *value)),
        _ => None,
    });
    integers.collect()
}

/// Returns the extents in elements of a tensor of bytes. Of two elements in a byte, the last one of
/// a tensor may be missing.
fn declared_extents(buffer: &Buffer, bytes: &[i64], known: &[(Var, i64)]) -> Vec<i64> {
    let mut shape = bytes.to_vec();
    let declared = buffer.declared_shape().last();
    if let (4, Some(last), Some(declared)) =
        (buffer.declared_dtype().bits(), shape.last_mut(), declared)
    {
        let number = |var: &Var| known.iter().find(|(own, _)| own == var);
        let value = substitute(declared, &mut |var| Some(Expr::index(number(var)?.1)));
        let value = simplify_expr(&value, &Facts::new()).as_int();
        *last = if value == Some(i128::from(*last) * 2 - 1) { *last * 2 - 1 } else { *last * 2 };
    }
    shape
}

/// A loaded module; it stays loaded while one of its kernels is alive.
#[derive(Clone, Debug)]
pub struct LoadedModule {
    library: Arc<Library>,
}

type PackedFn = unsafe extern "C" fn(*mut c_void, *const Cell, i32, *mut Cell) -> i32;
type TextFn = unsafe extern "C" fn() -> *const c_char;

/// A range of iterations of a parallel loop.
type Task = unsafe extern "C" fn(*mut c_void, i64, i64) -> i32;
/// A host's function for parallel loops over `0 .. n` (docs/ABI.md).
type ParallelFor = unsafe extern "C" fn(Task, *mut c_void, i64, *mut c_void) -> i32;

/// The closure of a task, which any thread may use.
struct TaskData(*mut c_void);
// SAFETY: a task may run on any thread, and on several at once (docs/ABI.md).
unsafe impl Sync for TaskData {}

/// Runs a parallel loop on several threads; the address `threads` is their number. Returns one of
/// the failures, if any.
unsafe extern "C" fn run_on_threads(
    task: Task,
    data: *mut c_void,
    n: i64,
    threads: *mut c_void,
) -> i32 {
    let threads = threads.addr().max(1);
    let step = (n / (4 * threads as i64)).max(1);
    let data = TaskData(data);
    let (next, failure) = (AtomicI64::new(0), AtomicI32::new(0));
    let work = || {
        let data = &data;
        loop {
            let begin = next.fetch_add(step, Ordering::Relaxed);
            if begin >= n {
                break;
            }
            // SAFETY: the module passed the task and its data, which live until this function
            // returns.
            let result = unsafe { task(data.0, begin, n.min(begin + step)) };
            if result != 0 {
                failure.store(result, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // If no thread can be started, this one does the work.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    failure.into_inner()
}

impl LoadedModule {
    /// Loads a module. A path without a directory is relative to the current directory, not the
    /// library path.
    pub fn open(path: &Path) -> Result<LoadedModule> {
        let local = if path.components().count() == 1 {
            Path::new(".").join(path)
        } else {
            path.to_path_buf()
        };
        // SAFETY: loading runs the constructors of the file, which the user asked to run.
        match unsafe { Library::new(&local) } {
            Ok(library) => Ok(LoadedModule { library: Arc::new(library) }),
            Err(error) => Err(Box::new(
                Diag::global("E0523", format!("cannot load module `{}`", path.display()))
                    .note(words(&error)),
            )),
        }
    }

    /// Loads a module from memory, through a file that exists only meanwhile.
    pub fn from_bytes(bytes: &[u8]) -> Result<LoadedModule> {
        let failed = |error: std::io::Error| {
            let why = io_text(&error);
            Box::new(Diag::global("E0501", format!("cannot make a temporary file: {why}")))
        };
        // `dlopen` needs a file; it may be removed as soon as it is mapped.
        let mut file = tempfile::Builder::new().suffix(".so").tempfile().map_err(failed)?;
        file.write_all(bytes).map_err(failed)?;
        LoadedModule::open(file.path())
    }

    /// Returns the manifest, as JSON text.
    pub fn manifest(&self) -> Result<String> {
        self.text("tec_manifest")
    }

    /// Returns the target whose code calls of a module for several CPUs run.
    pub fn target(&self, module: &str) -> Result<String> {
        let symbol = format!("{module}_target");
        // SAFETY: this is the signature of the function of that name in such a module. Its text is
        // a constant of the module.
        let name = unsafe {
            let function: Symbol<'_, TextFn> = self
                .library
                .get(symbol.as_bytes())
                .map_err(|_| missing(&format!("function `{symbol}`")))?;
            let name = function();
            (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned())
        };
        match name {
            Some(name) => Ok(name),
            None => Err(Box::new(Diag::global("E0525", self.text("tec_last_error")?))),
        }
    }

    /// Limits the threads that the module's kernels use.
    pub fn set_num_threads(&self, threads: i32) -> Result<()> {
        // SAFETY: this is the signature of the function of that name in every module.
        unsafe {
            let function: Symbol<'_, unsafe extern "C" fn(i32)> = self
                .library
                .get("tec_set_num_threads".as_bytes())
                .map_err(|_| missing("function `tec_set_num_threads`"))?;
            function(threads);
        }
        Ok(())
    }

    /// Makes parallel loops of the module run on `threads` threads of this process, the caller
    /// included. They live for one loop.
    pub fn lend_threads(&self, threads: usize) -> Result<()> {
        // SAFETY: this is the signature of the function of that name in every module, and
        // `run_on_threads` meets the requirements of docs/ABI.md.
        unsafe {
            let function: Symbol<'_, unsafe extern "C" fn(ParallelFor, *mut c_void)> = self
                .library
                .get("tec_set_parallel_for".as_bytes())
                .map_err(|_| missing("function `tec_set_parallel_for`"))?;
            function(run_on_threads, std::ptr::without_provenance_mut(threads));
        }
        Ok(())
    }

    /// Finds a kernel by its name.
    pub fn kernel(&self, name: &str) -> Result<LoadedKernel> {
        let symbol = format!("__tvm_ffi_{name}");
        // SAFETY: this is the signature of every symbol with the prefix.
        let entry: Symbol<'_, PackedFn> = unsafe { self.library.get(symbol.as_bytes()) }
            .map_err(|_| missing(&format!("kernel `{name}`")))?;
        Ok(LoadedKernel { entry: *entry, module: self.clone() })
    }

    /// Calls a function of the module that returns a text.
    fn text(&self, symbol: &str) -> Result<String> {
        // SAFETY: a module's functions of these names have this signature, and return a text that
        // stays valid until the next failing call of this thread.
        unsafe {
            let function: Symbol<'_, TextFn> = self
                .library
                .get(symbol.as_bytes())
                .map_err(|_| missing(&format!("function `{symbol}`")))?;
            Ok(CStr::from_ptr(function()).to_string_lossy().into_owned())
        }
    }
}

/// A kernel of a loaded module.
#[derive(Clone, Debug)]
pub struct LoadedKernel {
    entry: PackedFn,
    module: LoadedModule,
}

impl LoadedKernel {
    /// Checks the arguments and runs the kernel; the error is the module's own message.
    pub fn call(&self, args: Vec<Arg<'_>>) -> Result<()> {
        self.bind(args).call()
    }

    /// Like [`LoadedKernel::call`], for tensors at these addresses on the first GPU, in order. The
    /// contents of `args` are ignored.
    pub fn call_on_gpu(&self, args: &[Arg<'_>], addresses: &[u64]) -> Result<()> {
        self.bind_on_gpu(args, addresses).call()
    }

    /// Prepares such a call, which can be repeated.
    pub fn bind_on_gpu<'a>(&self, args: &[Arg<'a>], addresses: &[u64]) -> BoundCall<'a> {
        let mut tensors: Box<[TensorView]> = args.iter().filter_map(TensorView::new).collect();
        assert_eq!(tensors.len(), addresses.len(), "one address per tensor");
        for (tensor, address) in tensors.iter_mut().zip(addresses) {
            tensor.data = std::ptr::without_provenance_mut(*address as usize);
            tensor.device_type = 2;
        }
        self.bind_tensors(args, tensors)
    }

    /// Prepares a call, which can be repeated without the cost of preparation.
    pub fn bind<'a>(&self, args: Vec<Arg<'a>>) -> BoundCall<'a> {
        let tensors = args.iter().filter_map(TensorView::new).collect();
        self.bind_tensors(&args, tensors)
    }

    /// The cells point to the tensors, which must not move, so these are in a boxed slice.
    fn bind_tensors<'a>(&self, args: &[Arg<'a>], mut tensors: Box<[TensorView]>) -> BoundCall<'a> {
        let mut next = tensors.iter_mut();
        let cells = args
            .iter()
            .map(|arg| match arg {
                Arg::Input(..) | Arg::Output(..) | Arg::View(..) | Arg::Quantized(..) => {
                    let tensor: *mut TensorView = next.next().expect("one per tensor");
                    Cell { kind: 7, zero: 0, value: tensor as u64 }
                }
                Arg::Int(value) => Cell { kind: 1, zero: 0, value: *value as u64 },
                Arg::Uint(value) => Cell { kind: 4, zero: 0, value: *value },
                Arg::Float(value) => Cell { kind: 3, zero: 0, value: value.to_bits() },
                Arg::Bool(value) => Cell { kind: 2, zero: 0, value: u64::from(*value) },
            })
            .collect();
        let shapes = args.iter().filter_map(|arg| match arg {
            Arg::Quantized(_, shape, _) => Some(shape.clone()),
            _ => None,
        });
        let shapes = shapes.collect();
        BoundCall { kernel: self.clone(), cells, tensors, shapes, borrows: PhantomData }
    }
}

/// A kernel with its arguments.
#[derive(Debug)]
pub struct BoundCall<'a> {
    kernel: LoadedKernel,
    cells: Vec<Cell>,
    /// The tensors that the cells point to.
    #[allow(dead_code)]
    tensors: Box<[TensorView]>,
    /// The extents that tensors point to and that the caller does not keep.
    #[allow(dead_code)]
    shapes: Vec<Arc<[i64]>>,
    borrows: PhantomData<Arg<'a>>,
}

impl BoundCall<'_> {
    /// Checks the arguments and runs the kernel.
    pub fn call(&mut self) -> Result<()> {
        let mut result = Cell { kind: 0, zero: 0, value: 0 };
        // SAFETY: the cells are initialised, their tensors live as long as `self` and describe
        // memory that `self` borrows; the entry refuses arguments that do not fit its kernel.
        let status = unsafe {
            let count = self.cells.len() as i32;
            (self.kernel.entry)(std::ptr::null_mut(), self.cells.as_ptr(), count, &mut result)
        };
        if status == 0 {
            return Ok(());
        }
        let message = self.kernel.module.text("tec_last_error")?;
        Err(Box::new(Diag::global("E0525", message)))
    }
}

/// A value cell of the packed call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Cell {
    kind: i32,
    zero: u32,
    value: u64,
}

/// `DLTensor`.
#[repr(C)]
#[derive(Debug)]
struct TensorView {
    data: *mut u8,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    dtype: u32,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

impl TensorView {
    /// Returns the view of a tensor argument.
    ///
    /// # Panics If there are fewer bytes than the shape needs.
    fn new(arg: &Arg<'_>) -> Option<TensorView> {
        let (dtype, shape, strides, data, bytes) = match arg {
            Arg::Input(dtype, shape, data) => {
                (*dtype, *shape, None, data.as_ptr().cast_mut(), data.len())
            }
            Arg::Output(dtype, shape, data) => {
                (*dtype, *shape, None, data.as_ptr().cast_mut(), data.len())
            }
            Arg::Quantized(dtype, shape, data) => {
                (*dtype, &shape[..], None, data.as_ptr().cast_mut(), data.len())
            }
            Arg::View(dtype, shape, strides, data, start) => {
                // SAFETY: an offset into the bytes, or to their end.
                let first = unsafe { data.as_ptr().add((*start).min(data.len())).cast_mut() };
                let place = (*strides, *start);
                (*dtype, *shape, Some(place), first, data.len())
            }
            _ => return None,
        };
        if let (Some((strides, start)), false) = (strides, shape.contains(&0)) {
            let offsets = shape.iter().zip(strides).map(|(extent, stride)| (extent - 1) * stride);
            let (low, high) = offsets.fold((0, 1), |(low, high), offset: i64| {
                (low + offset.min(0), high + offset.max(0))
            });
            let size = dtype.bytes() as i64;
            let inside =
                start as i64 + low * size >= 0 && start as i64 + high * size <= bytes as i64;
            assert!(inside, "tensor with strides {strides:?} in {bytes} bytes");
        }
        // The elements of a view may share bytes. A shape with a negative extent, which the entry
        // refuses, has none.
        if strides.is_none() && shape.iter().all(|extent| *extent > 0) {
            let elements = shape.iter().try_fold(1u64, |n, extent| n.checked_mul(*extent as u64));
            let bits = elements.and_then(|n| n.checked_mul(u64::from(dtype.bits())));
            let fits = bits.is_some_and(|bits| bits.div_ceil(8) <= bytes as u64);
            assert!(fits, "tensor {shape:?} in {bytes} bytes");
        }
        Some(TensorView {
            data,
            device_type: 1,
            device_id: 0,
            ndim: shape.len() as i32,
            dtype: crate::codegen::entry::dlpack_dtype(dtype),
            shape: shape.as_ptr(),
            strides: strides.map_or(std::ptr::null(), |(strides, _)| strides.as_ptr()),
            byte_offset: 0,
        })
    }
}

/// Returns the message of the system's loader, which libloading hides in its own.
pub(super) fn words(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

fn missing(what: &str) -> Box<Diag> {
    Box::new(
        Diag::global("E0524", format!("the module has no {what}"))
            .help("`tec inspect` lists what it has"),
    )
}
