//! Runs kernels on a GPU for `tec run` and `tec bench`: copies tensors to its memory, calls a
//! kernel through its packed entry and copies results back. It opens the CUDA driver that modules
//! use (docs/ABI.md) on demand.

use super::load::{Arg, BoundCall, LoadedKernel, words};
use crate::diag::{Diag, Result};
use libloading::{Library, Symbol};
use std::ffi::{CStr, c_char, c_void};

/// The first GPU of this machine.
#[derive(Debug)]
pub struct Gpu {
    library: Library,
}

type CuResult = i32;

impl Gpu {
    /// Starts the driver and makes the first GPU's primary context current for this thread.
    pub fn open() -> Result<Gpu> {
        let gpu = Gpu::load()?;
        gpu.start()?;
        Ok(gpu)
    }

    /// Returns the name of the first GPU. Makes no context on it.
    pub fn find() -> Result<String> {
        let gpu = Gpu::load()?;
        let mut name = [0u8; 256];
        gpu.check("the CUDA driver does not start", |gpu| {
            // SAFETY: the functions have these signatures, and `name` has the given length.
            unsafe {
                let init: Symbol<'_, unsafe extern "C" fn(u32) -> CuResult> =
                    gpu.symbol("cuInit")?;
                let get: Symbol<'_, unsafe extern "C" fn(*mut i32, i32) -> CuResult> =
                    gpu.symbol("cuDeviceGet")?;
                let tell: Symbol<'_, unsafe extern "C" fn(*mut u8, i32, i32) -> CuResult> =
                    gpu.symbol("cuDeviceGetName")?;
                let mut device = 0;
                let mut result = init(0);
                if result == 0 {
                    result = get(&mut device, 0);
                }
                Ok(if result == 0 { tell(name.as_mut_ptr(), 255, device) } else { result })
            }
        })?;
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        Ok(String::from_utf8_lossy(&name[..end]).into_owned())
    }

    fn load() -> Result<Gpu> {
        let file = std::env::var("TEC_CUDA_LIBRARY").ok().filter(|file| !file.is_empty());
        let file = file.unwrap_or_else(|| "libcuda.so.1".to_string());
        // SAFETY: loading runs the constructors of the driver's library, or of the file that the
        // user chose.
        let library = unsafe { Library::new(&file) }.map_err(|error| {
            // The loader's message names the file.
            missing("there is no CUDA driver").note(words(&error))
        })?;
        Ok(Gpu { library })
    }

    /// Copies tensors to the GPU. Returns a call that can be timed.
    pub fn bind<'a>(&'a self, kernel: &LoadedKernel, args: &[Arg<'a>]) -> Result<TimedCall<'a>> {
        let memory: Vec<Memory<'_>> = self.upload_tensors(args)?.into_iter().flatten().collect();
        let addresses: Vec<u64> = memory.iter().map(|memory| memory.address).collect();
        let call = kernel.bind_on_gpu(args, &addresses);
        Ok(TimedCall { call, _memory: memory, start: self.event()?, end: self.event()? })
    }

    fn upload_tensors(&self, args: &[Arg<'_>]) -> Result<Vec<Option<Memory<'_>>>> {
        let upload = |arg: &Arg<'_>| {
            let bytes: Option<&[u8]> = match arg {
                Arg::Input(_, _, bytes) => Some(bytes),
                Arg::Output(_, _, bytes) | Arg::Quantized(_, _, bytes) => Some(bytes),
                Arg::View(..) => crate::bug!("on GPUs, tensors are contiguous"),
                _ => None,
            };
            bytes.map(|bytes| self.upload(bytes)).transpose()
        };
        args.iter().map(upload).collect()
    }

    fn event(&self) -> Result<Event<'_>> {
        let mut event = Event { gpu: self, handle: std::ptr::null_mut() };
        self.check("an event of the GPU", |gpu| {
            // SAFETY: the function has this signature, and writes the handle.
            unsafe {
                let create: Symbol<'_, unsafe extern "C" fn(*mut *mut c_void, u32) -> CuResult> =
                    gpu.symbol("cuEventCreate")?;
                Ok(create(&mut event.handle, 0))
            }
        })?;
        Ok(event)
    }

    /// Copies tensors to the GPU, calls a kernel and copies the outputs back.
    pub fn call(&self, kernel: &LoadedKernel, mut args: Vec<Arg<'_>>) -> Result<()> {
        let memory = self.upload_tensors(&args)?;
        let addresses: Vec<u64> = memory.iter().flatten().map(|memory| memory.address).collect();
        kernel.call_on_gpu(&args, &addresses)?;
        self.check("running the kernel", |gpu| {
            // SAFETY: this is the function's signature; null is the default stream.
            unsafe {
                let wait: Symbol<'_, unsafe extern "C" fn(*mut c_void) -> CuResult> =
                    gpu.symbol("cuStreamSynchronize")?;
                Ok(wait(std::ptr::null_mut()))
            }
        })?;
        for (arg, memory) in args.iter_mut().zip(&memory) {
            let (Arg::Output(_, _, bytes) | Arg::Quantized(_, _, bytes), Some(memory)) =
                (arg, memory)
            else {
                continue;
            };
            self.download(memory, bytes)?;
        }
        Ok(())
    }

    fn start(&self) -> Result<()> {
        self.check("the CUDA driver does not start", |gpu| {
            // SAFETY: the functions have these signatures, and the pointers live as long as the
            // calls.
            unsafe {
                let init: Symbol<'_, unsafe extern "C" fn(u32) -> CuResult> =
                    gpu.symbol("cuInit")?;
                let get: Symbol<'_, unsafe extern "C" fn(*mut i32, i32) -> CuResult> =
                    gpu.symbol("cuDeviceGet")?;
                let retain: Symbol<'_, unsafe extern "C" fn(*mut *mut c_void, i32) -> CuResult> =
                    gpu.symbol("cuDevicePrimaryCtxRetain")?;
                let push: Symbol<'_, unsafe extern "C" fn(*mut c_void) -> CuResult> =
                    gpu.symbol("cuCtxPushCurrent_v2")?;
                let (mut device, mut context) = (0, std::ptr::null_mut());
                let mut result = init(0);
                if result == 0 {
                    result = get(&mut device, 0);
                }
                if result == 0 {
                    result = retain(&mut context, device);
                }
                Ok(if result == 0 { push(context) } else { result })
            }
        })
    }

    /// Allocates memory on the GPU with these contents.
    fn upload(&self, bytes: &[u8]) -> Result<Memory<'_>> {
        let mut memory = Memory { gpu: self, address: 0 };
        if bytes.is_empty() {
            return Ok(memory);
        }
        self.check("memory of the GPU", |gpu| {
            // SAFETY: the functions have these signatures; as many bytes are copied as were
            // allocated.
            unsafe {
                let alloc: Symbol<'_, unsafe extern "C" fn(*mut u64, usize) -> CuResult> =
                    gpu.symbol("cuMemAlloc_v2")?;
                let copy: Symbol<'_, unsafe extern "C" fn(u64, *const u8, usize) -> CuResult> =
                    gpu.symbol("cuMemcpyHtoD_v2")?;
                let result = alloc(&mut memory.address, bytes.len());
                Ok(match result {
                    0 => copy(memory.address, bytes.as_ptr(), bytes.len()),
                    _ => result,
                })
            }
        })?;
        Ok(memory)
    }

    fn download(&self, memory: &Memory<'_>, bytes: &mut [u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.check("copying a result", |gpu| {
            // SAFETY: the function has this signature; the memory has this many bytes.
            unsafe {
                let copy: Symbol<'_, unsafe extern "C" fn(*mut u8, u64, usize) -> CuResult> =
                    gpu.symbol("cuMemcpyDtoH_v2")?;
                Ok(copy(bytes.as_mut_ptr(), memory.address, bytes.len()))
            }
        })
    }

    /// Runs calls of the driver. Returns an error if one fails.
    fn check(&self, what: &str, run: impl FnOnce(&Gpu) -> Result<CuResult>) -> Result<()> {
        match run(self)? {
            0 => Ok(()),
            result => Err(missing(&format!("{what}: {}", self.explain(result))).into()),
        }
    }

    /// Returns the driver's text for a result code.
    fn explain(&self, result: CuResult) -> String {
        type Words = unsafe extern "C" fn(CuResult, *mut *const c_char) -> CuResult;
        let mut text = std::ptr::null();
        // SAFETY: the function has this signature and returns a text that is never freed.
        unsafe {
            let found = self.symbol::<Words>("cuGetErrorString");
            if found.is_ok_and(|found| found(result, &mut text) == 0) && !text.is_null() {
                return CStr::from_ptr(text).to_string_lossy().into_owned();
            }
        }
        format!("error {result}")
    }

    /// # Safety
    /// `T` must be the function's type.
    unsafe fn symbol<T>(&self, name: &str) -> Result<Symbol<'_, T>> {
        // SAFETY: the caller guarantees the type.
        unsafe { self.library.get(name.as_bytes()) }
            .map_err(|error| missing("the CUDA driver is incomplete").note(words(&error)).into())
    }
}

/// A kernel with its arguments in the memory of the GPU.
pub struct TimedCall<'a> {
    call: BoundCall<'a>,
    /// The memory that the call's addresses refer to.
    _memory: Vec<Memory<'a>>,
    start: Event<'a>,
    end: Event<'a>,
}

impl TimedCall<'_> {
    /// Calls the kernel `count` times on the default stream. Returns the seconds that the GPU took
    /// in total.
    pub fn seconds(&mut self, count: usize) -> Result<f64> {
        self.start.record()?;
        for _ in 0..count {
            self.call.call()?;
        }
        self.end.record()?;
        self.end.seconds_since(&self.start)
    }
}

/// A CUDA event, destroyed on drop.
struct Event<'a> {
    gpu: &'a Gpu,
    handle: *mut c_void,
}

impl Event<'_> {
    fn record(&self) -> Result<()> {
        self.gpu.check("an event of the GPU", |gpu| {
            // SAFETY: the function has this signature; null is the default stream.
            unsafe {
                let record: Symbol<'_, unsafe extern "C" fn(*mut c_void, *mut c_void) -> CuResult> =
                    gpu.symbol("cuEventRecord")?;
                Ok(record(self.handle, std::ptr::null_mut()))
            }
        })
    }

    /// Waits for this event. Returns the seconds since an earlier one.
    fn seconds_since(&self, earlier: &Event<'_>) -> Result<f64> {
        type Elapsed = unsafe extern "C" fn(*mut f32, *mut c_void, *mut c_void) -> CuResult;
        let mut milliseconds = 0f32;
        self.gpu.check("running the kernel", |gpu| {
            // SAFETY: the functions have these signatures, and both events were recorded.
            unsafe {
                let wait: Symbol<'_, unsafe extern "C" fn(*mut c_void) -> CuResult> =
                    gpu.symbol("cuEventSynchronize")?;
                let elapsed: Symbol<'_, Elapsed> = gpu.symbol("cuEventElapsedTime")?;
                Ok(match wait(self.handle) {
                    0 => elapsed(&mut milliseconds, earlier.handle, self.handle),
                    result => result,
                })
            }
        })?;
        Ok(f64::from(milliseconds) / 1e3)
    }
}

impl Drop for Event<'_> {
    fn drop(&mut self) {
        if self.handle.is_null() {
            return;
        }
        // SAFETY: the function has this signature, and the handle is from `cuEventCreate`. A
        // failure is ignored.
        unsafe {
            type Destroy = unsafe extern "C" fn(*mut c_void) -> CuResult;
            if let Ok(destroy) = self.gpu.symbol::<Destroy>("cuEventDestroy_v2") {
                destroy(self.handle);
            }
        }
    }
}

/// Memory of a GPU, freed on drop.
struct Memory<'a> {
    gpu: &'a Gpu,
    /// The address, 0 if nothing is allocated.
    address: u64,
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        if self.address == 0 {
            return;
        }
        // SAFETY: the function has this signature, and the address is from `cuMemAlloc_v2`. A
        // failure is ignored.
        unsafe {
            let free = self.gpu.symbol::<unsafe extern "C" fn(u64) -> CuResult>("cuMemFree_v2");
            if let Ok(free) = free {
                free(self.address);
            }
        }
    }
}

fn missing(text: &str) -> Diag {
    Diag::global("E0548", text).help("`tec run FILE.te --emulate` needs no GPU")
}
