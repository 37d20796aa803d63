//! Modules and launches, the entry points of this crate.

use crate::decode::op::Kernel;
use crate::decode::{self, BUFFER_BITS};
use crate::error::{Error, Result};
use crate::exec::{self, Setup};
use crate::memory::{Access, Buffer, BufferId, ByteSet, Element, Memory};
use crate::needs::Machine;
use crate::parse;
use crate::parse::ast::{Space, Var};
use crate::report::{Finding, FindingKind, Report};
use crate::shadow::MAX_BLOCKS;
use std::fmt;
use std::sync::Arc;

/// The largest number of threads in a block.
pub const MAX_THREADS: u32 = 1024;
/// The largest static shared memory in bytes.
pub const MAX_STATIC_SHARED: u32 = 48 * 1024;

/// PTX text, parsed and decoded.
///
/// ```
/// use nvptx_emulator::Module;
/// let error = Module::parse(".version 7.0\n.target sm_80\n.address_size 64\n.oops").unwrap_err();
/// assert_eq!(error.to_string(), "PTX line 4: unknown directive `.oops`");
/// ```
pub struct Module {
    source: Arc<str>,
    version: String,
    target: String,
    machine: Machine,
    kernels: Vec<Kernel>,
    vars: Vec<Var>,
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.kernels().collect();
        f.debug_struct("Module").field("target", &self.target).field("kernels", &names).finish()
    }
}

impl Module {
    /// Parses PTX text.
    ///
    /// # Errors
    /// The first part of the text that is not supported, with its line.
    pub fn parse(text: &str) -> Result<Module> {
        let file = parse::parse(text)?;
        let machine = Machine::new(&file.version, &file.target)?;
        let decode = |entry| decode::decode(entry, &file.vars, machine);
        let kernels = file.entries.iter().map(decode).collect::<Result<Vec<_>>>()?;
        let is_stored = |var: &&Var| matches!(var.space, Space::Global | Space::Const);
        let vars = file.vars.iter().filter(is_stored).cloned().collect();
        let source = Arc::from(text);
        let (version, target) = (file.version, file.target);
        Ok(Module { source, version, target, machine, kernels, vars })
    }

    /// Returns the names of the kernels, in the order of the text.
    pub fn kernels(&self) -> impl Iterator<Item = &str> {
        self.kernels.iter().map(|k| k.name.as_str())
    }

    /// Returns the `.version` of the text.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the `.target` of the text.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Returns the static shared memory of a kernel in bytes.
    pub fn static_shared(&self, kernel: &str) -> Option<u32> {
        self.kernels.iter().find(|k| k.name == kernel).map(|k| k.static_bytes)
    }

    /// Returns the largest shared memory of a block in bytes, for the text's `.target`.
    pub fn max_shared(&self) -> u32 {
        self.machine.max_shared()
    }

    fn kernel(&self, name: &str) -> Result<&Kernel> {
        self.kernels.iter().find(|k| k.name == name).ok_or_else(|| {
            let names: Vec<_> = self.kernels().collect();
            Error::launch(format!("no kernel `{name}`, there are: {}", names.join(", ")))
        })
    }

    /// Places the variables of this module at their addresses. Launches of one module keep their
    /// values; those of another module are dropped.
    fn place_variables(&self, memory: &mut Memory) {
        let names: Vec<&str> = self.vars.iter().map(|v| v.name.as_str()).collect();
        let same = memory.module_source.as_ref().is_some_and(|s| Arc::ptr_eq(s, &self.source));
        if same {
            return;
        }
        memory.module_source = Some(self.source.clone());
        memory.module.clear();
        for (var, name) in self.vars.iter().zip(names) {
            let data = var.init.clone().unwrap_or_else(|| vec![0; var.bytes as usize]);
            let access = match var.space {
                Space::Const => Access::Read,
                _ => Access::ReadWrite,
            };
            let init = ByteSet::new(data.len(), true);
            memory.module.push(Buffer { name: name.to_string(), access, data, init });
        }
    }
}

/// One argument of a kernel.
#[derive(Clone, Debug)]
enum Argument {
    Buffer(BufferId, u64),
    Bytes(Vec<u8>),
}

/// A launch of a kernel: grid, block, shared memory and arguments.
///
/// ```
/// # use nvptx_emulator::{Launch, Memory, Module};
/// let module = Module::parse("
///     .version 7.0
///     .target sm_75
///     .address_size 64
///     .visible .entry twice(.param .u64 X, .param .u64 Y) {
///         .reg .b32 %r<2>; .reg .f32 %f<3>; .reg .b64 %rd<6>;
///         ld.param.u64 %rd0, [X];
///         ld.param.u64 %rd1, [Y];
///         mov.u32 %r0, %tid.x;
///         mul.wide.u32 %rd2, %r0, 4;
///         add.s64 %rd3, %rd0, %rd2;
///         add.s64 %rd4, %rd1, %rd2;
///         ld.global.f32 %f0, [%rd3];
///         add.rn.f32 %f1, %f0, %f0;
///         st.global.f32 [%rd4], %f1;
///         ret;
///     }")?;
/// let mut memory = Memory::new();
/// let x = memory.input("X", &[1.0f32, 2.0, 3.0, 4.0]);
/// let y = memory.output("Y", 16);
/// let report = Launch::new(&module, "twice").block([4, 1, 1]).buffer(x).buffer(y)
///     .run(&mut memory)?;
/// assert!(report.is_clean(), "{report}");
/// assert_eq!(memory.read::<f32>(y), [2.0, 4.0, 6.0, 8.0]);
/// assert_eq!(report.counters.count("add.rn.f32"), 4);
/// # Ok::<(), nvptx_emulator::Error>(())
/// ```
#[derive(Clone)]
pub struct Launch<'a> {
    module: &'a Module,
    kernel: String,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    arguments: Vec<Argument>,
    seed: Option<u64>,
    limit: u64,
    checks_outputs: bool,
}

impl<'a> Launch<'a> {
    /// Creates a launch of one thread without arguments.
    pub fn new(module: &'a Module, kernel: &str) -> Self {
        Launch {
            module,
            kernel: kernel.to_string(),
            grid: [1; 3],
            block: [1; 3],
            shared: 0,
            arguments: Vec::new(),
            seed: None,
            limit: 100_000_000_000,
            checks_outputs: true,
        }
    }

    /// Sets the number of blocks along x, y and z.
    pub fn grid(mut self, grid: [u32; 3]) -> Self {
        self.grid = grid;
        self
    }

    /// Sets the number of threads of a block along x, y and z.
    pub fn block(mut self, block: [u32; 3]) -> Self {
        self.block = block;
        self
    }

    /// Sets the dynamic shared memory in bytes.
    pub fn shared(mut self, bytes: u32) -> Self {
        self.shared = bytes;
        self
    }

    /// Adds an argument: the address of a buffer.
    pub fn buffer(self, buffer: BufferId) -> Self {
        self.buffer_at(buffer, 0)
    }

    /// Adds an argument: the address of a byte of a buffer.
    pub fn buffer_at(mut self, buffer: BufferId, byte: u64) -> Self {
        self.arguments.push(Argument::Buffer(buffer, byte));
        self
    }

    /// Adds an argument: a number by value, of the declared size.
    pub fn value<T: Element>(mut self, value: T) -> Self {
        let mut bytes = Vec::new();
        value.put(&mut bytes);
        self.arguments.push(Argument::Bytes(bytes));
        self
    }

    /// Adds an argument by its bytes, for an array parameter.
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.arguments.push(Argument::Bytes(bytes.to_vec()));
        self
    }

    /// Shuffles the order of blocks and warps, by this seed.
    pub fn shuffled(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Sets the largest number of thread instructions (default 10^11). A longer run is a finding.
    pub fn limit(mut self, thread_instructions: u64) -> Self {
        self.limit = thread_instructions;
        self
    }

    /// Allows this launch to leave parts of its outputs unwritten, for other launches.
    pub fn partial(mut self) -> Self {
        self.checks_outputs = false;
        self
    }

    /// Runs the launch. Defects of the running program are in the report.
    ///
    /// # Errors
    /// The launch cannot start.
    pub fn run(&self, memory: &mut Memory) -> Result<Report> {
        let kernel = self.module.kernel(&self.kernel)?;
        self.check(kernel, self.module.machine)?;
        let params = self.parameters(kernel, memory)?;
        self.module.place_variables(memory);
        let setup = Setup {
            grid: self.grid,
            block: self.block,
            dynamic_bytes: self.shared,
            params,
            seed: self.seed,
            limit: self.limit,
        };
        let outcome = exec::run(kernel, &setup, memory);
        let mut findings = outcome.findings;
        if self.checks_outputs {
            self.check_outputs(memory, &mut findings);
        }
        let source = self.module.source.clone();
        Ok(Report { findings, counters: outcome.counters, source })
    }

    /// Runs the launch in the natural order and, on a copy of the memory, in a shuffled one. A
    /// different result is a finding. The report has the findings of both orders and the counters
    /// of the first.
    pub fn run_twice(&self, memory: &mut Memory) -> Result<Report> {
        let mut copy = memory.clone();
        let mut report = self.run(memory)?;
        let second = self.clone().shuffled(7).run(&mut copy)?;
        for finding in second.findings {
            let same = |f: &Finding| {
                (f.kind, f.line, f.other_line) == (finding.kind, finding.line, finding.other_line)
            };
            if !report.findings.iter().any(same) {
                report.findings.push(finding);
            }
        }
        for (one, other) in memory.buffers.iter().zip(&copy.buffers) {
            let differs = |(a, b): (&u8, &u8)| a != b;
            if let Some(at) = one.data.iter().zip(&other.data).position(differs) {
                let message = format!("byte {at} of `{}` differs", one.name);
                report.findings.push(self.finding(FindingKind::OrderDependent, message));
            }
        }
        Ok(report)
    }

    fn check(&self, kernel: &Kernel, machine: Machine) -> Result<()> {
        let fail = |message: String| Err(Error::launch(format!("`{}`: {message}", kernel.name)));
        let [x, y, z] = self.block;
        let threads = u64::from(x) * u64::from(y) * u64::from(z);
        if threads == 0 || threads > MAX_THREADS.into() || z > 64 {
            return fail(format!("a block of {x} x {y} x {z} threads exceeds the limits"));
        }
        let [gx, gy, gz] = self.grid;
        if gx == 0 || gy == 0 || gz == 0 || gx > i32::MAX as u32 || gy > 65535 || gz > 65535 {
            return fail(format!("a grid of {gx} x {gy} x {gz} blocks exceeds the limits"));
        }
        if u64::from(gx) * u64::from(gy) * u64::from(gz) > MAX_BLOCKS {
            return fail(format!("the emulator runs at most {MAX_BLOCKS} blocks"));
        }
        if let Some(max) = kernel.maxntid
            && threads > max.iter().map(|v| u64::from(*v)).product()
        {
            return fail(format!("{threads} threads, `.maxntid` allows {max:?}"));
        }
        if let Some(required) = kernel.reqntid
            && required != self.block
        {
            return fail(format!("block {:?}, `.reqntid` requires {required:?}", self.block));
        }
        if kernel.static_bytes > MAX_STATIC_SHARED {
            return fail(format!(
                "{} bytes of static shared memory, the limit is {MAX_STATIC_SHARED}",
                kernel.static_bytes
            ));
        }
        let (shared, most) =
            (kernel.static_bytes.saturating_add(self.shared), machine.max_shared());
        if shared > most {
            return fail(format!("{shared} bytes of shared memory, the limit is {most}"));
        }
        Ok(())
    }

    /// Returns the bytes of the parameter space.
    fn parameters(&self, kernel: &Kernel, memory: &Memory) -> Result<Vec<u8>> {
        let fail = |message: String| Err(Error::launch(format!("`{}`: {message}", kernel.name)));
        if self.arguments.len() != kernel.params.len() {
            let (given, wanted) = (self.arguments.len(), kernel.params.len());
            return fail(format!("{given} arguments, the kernel has {wanted} parameters"));
        }
        let mut params = vec![0; kernel.param_bytes as usize];
        for (slot, argument) in kernel.params.iter().zip(&self.arguments) {
            let bytes = match argument {
                Argument::Buffer(buffer, byte) => {
                    if !slot.is_pointer_size {
                        return fail(format!("parameter `{}` is not an address", slot.name));
                    }
                    if buffer.0 >= memory.buffers.len() || *byte >= 1 << BUFFER_BITS {
                        return fail(format!("no such buffer for parameter `{}`", slot.name));
                    }
                    (memory.address(*buffer) + byte).to_le_bytes().to_vec()
                }
                Argument::Bytes(bytes) => bytes.clone(),
            };
            if bytes.len() != slot.bytes as usize {
                return fail(format!(
                    "{} bytes for parameter `{}`, which has {}",
                    bytes.len(),
                    slot.name,
                    slot.bytes
                ));
            }
            let at = slot.offset as usize;
            params[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        Ok(params)
    }

    /// Returns findings for the outputs among the arguments with unwritten bytes.
    fn check_outputs(&self, memory: &Memory, findings: &mut Vec<Finding>) {
        let mut seen = Vec::new();
        for argument in &self.arguments {
            let Argument::Buffer(id, _) = argument else { continue };
            let buffer = &memory.buffers[id.0];
            if buffer.access != Access::Write || seen.contains(id) {
                continue;
            }
            seen.push(*id);
            if let Some((start, len)) = buffer.init.first_gap() {
                let message = format!(
                    "{} of {} bytes of `{}` were never written, the first {len} at byte {start}",
                    buffer.init.missing(),
                    buffer.data.len(),
                    buffer.name
                );
                findings.push(self.finding(FindingKind::Unwritten, message));
            }
        }
    }

    fn finding(&self, kind: FindingKind, message: String) -> Finding {
        Finding {
            kind,
            kernel: self.kernel.clone(),
            line: None,
            other_line: None,
            block: [0; 3],
            thread: [0; 3],
            message,
            count: 1,
        }
    }
}
