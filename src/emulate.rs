//! Runs GPU kernels in the PTX emulator, which sees only their text. It finds wrong results and
//! also races, uninitialised reads and other defects.
//!
//! [`Emulator::new`] reads the text once. [`Emulator::run`] does what the entries of a module do in
//! a call: the checks of the kernel, the temporaries, the launches in order.

use crate::codegen::ptx::{Launch, LaunchParam, PtxKernel, PtxModule};
use crate::diag::{Diag, Result};
use crate::ir::interp::{self, Evaluator, Trap, Value, encode_float, encode_int};
use crate::ir::{DType, Kernel, Param, Role, Stmt, Var};
use nvptx_emulator::{BufferId, Memory, Module, Report};
use std::fmt::Write;

/// The text of a module, parsed.
pub struct Emulator<'a> {
    ptx: &'a PtxModule,
    module: Module,
}

/// The report of a call.
#[derive(Clone, Debug, Default)]
pub struct Emulation {
    /// The report of all launches; `None` if no launch had blocks.
    pub report: Option<Report>,
    /// The outputs with unwritten bytes, and the number of these bytes.
    pub unwritten: Vec<(String, usize)>,
}

/// The orders in which blocks and warps run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Orders {
    /// By their numbers.
    Natural,
    /// By their numbers, and again shuffled; a different result is a finding.
    Both,
}

impl<'a> Emulator<'a> {
    /// Parses the text.
    ///
    /// # Errors
    /// E0549 if the emulator does not support the text.
    pub fn new(ptx: &'a PtxModule) -> Result<Emulator<'a>> {
        let module = Module::parse(&ptx.text).map_err(refuse)?;
        Ok(Emulator { ptx, module })
    }

    /// Calls `kernel`, number `index` of the module. Writes the outputs among `args`.
    pub fn run(
        &self,
        kernel: &Kernel,
        index: usize,
        args: &mut [Value],
        orders: Orders,
    ) -> Result<Emulation> {
        check(kernel, args)?;
        let launched = &self.ptx.kernels[index];
        let numbers = self.numbers(kernel, launched, args)?;
        let mut call = Call::new(kernel, launched, args, &numbers)?;
        let mut next = launched.workspaces.len();
        for launch in &launched.launches {
            let (grid, rest) = numbers[next..].split_at(3);
            next += 3 + call.launch(&self.module, launch, grid, rest, orders)?;
        }
        Ok(call.finish(args))
    }

    /// Evaluates [`PtxKernel::numbers`] for a call.
    fn numbers(&self, kernel: &Kernel, launched: &PtxKernel, args: &[Value]) -> Result<Vec<i64>> {
        let (mut vars, mut values): (Vec<Var>, Vec<u64>) = (Vec::new(), Vec::new());
        for (param, arg) in kernel.params.iter().zip(args) {
            if let (Param::Runtime { var, .. }, Value::Index(value)) = (param, arg) {
                vars.push(var.clone());
                values.push(*value as u64);
            }
        }
        let evaluator = Evaluator::new(&launched.numbers(), &vars).map_err(|trap| failed(&trap))?;
        let numbers = evaluator.eval(&values).map_err(|trap| failed(&trap))?;
        Ok(numbers.into_iter().map(|number| number as i64).collect())
    }
}

/// Runs the checks of the kernel in the interpreter.
fn check(kernel: &Kernel, args: &mut [Value]) -> Result<()> {
    let checks = Kernel { body: Stmt::nothing(), ..kernel.clone() };
    interp::run(&checks, args).map_err(|trap| failed(&trap))
}

fn failed(trap: &Trap) -> Box<Diag> {
    match trap {
        Trap::Check(message) => Box::new(Diag::global("E0525", message.clone())),
        Trap::Memory(message) => Box::new(Diag::global("E0543", message.clone())),
        Trap::Bug(message) => crate::bug!("{message}"),
    }
}

fn refuse(error: nvptx_emulator::Error) -> Box<Diag> {
    Box::new(Diag::global("E0549", format!("the emulator does not support this: {error}")))
}

/// The state of a call.
struct Call<'a> {
    kernel: &'a Kernel,
    memory: Memory,
    /// The buffer of each tensor, the bytes of each other parameter.
    params: Vec<Argument>,
    workspaces: Vec<BufferId>,
    report: Option<Report>,
}

enum Argument {
    Buffer(BufferId),
    Bytes(Vec<u8>),
}

impl<'a> Call<'a> {
    fn new(
        kernel: &'a Kernel,
        launched: &PtxKernel,
        args: &[Value],
        numbers: &[i64],
    ) -> Result<Call<'a>> {
        let mut memory = Memory::new();
        let argument = |(param, arg): (&Param, &Value)| match (param, arg) {
            (Param::Tensor { buffer, role, .. }, Value::Tensor(tensor)) => {
                let (name, data) = (&buffer.name, &tensor.data);
                Argument::Buffer(match role {
                    Role::Input => memory.input(name, data),
                    Role::Output => memory.output(name, data.len()),
                    Role::Inout => memory.inout(name, data),
                })
            }
            (Param::Scalar { dtype, .. }, Value::Int(value)) => {
                scalar(*dtype, encode_int(*dtype, *value))
            }
            (Param::Scalar { dtype, .. }, Value::Float(value)) => {
                scalar(*dtype, encode_float(*dtype, *value))
            }
            (Param::Runtime { .. }, Value::Index(value)) => {
                Argument::Bytes(value.to_le_bytes().to_vec())
            }
            (param, value) => crate::bug!("parameter {} given {value:?}", param.name()),
        };
        let params = kernel.params.iter().zip(args).map(argument).collect();
        let workspaces = launched.workspaces.iter().zip(numbers);
        let workspaces = workspaces.map(|(workspace, bytes)| {
            let bytes = (*bytes).max(0) as usize;
            // Includes the state that the emulator keeps for each byte. Without this test, a failed
            // allocation would abort the process.
            if Vec::<u8>::new().try_reserve_exact(bytes.saturating_mul(2)).is_err() {
                let text = format!("no memory for `{}`, {bytes} bytes", workspace.name);
                let help = "give smaller sizes, with `-D` or `--var`";
                return Err(Box::new(Diag::global("E0543", text).help(help)));
            }
            Ok(memory.workspace(&workspace.name, bytes))
        });
        let workspaces = workspaces.collect::<Result<_>>()?;
        Ok(Call { kernel, memory, params, workspaces, report: None })
    }

    /// Runs a launch; returns the number of values of `numbers` that it used.
    fn launch(
        &mut self,
        module: &Module,
        launch: &Launch,
        grid: &[i64],
        numbers: &[i64],
        orders: Orders,
    ) -> Result<usize> {
        let taken = launch.params.iter().filter(|p| matches!(p, LaunchParam::Index(_))).count();
        if grid.iter().any(|blocks| *blocks <= 0) {
            return Ok(taken);
        }
        let too_many = |_| {
            let text =
                format!("a grid of {} x {} x {} blocks is too large", grid[0], grid[1], grid[2]);
            Box::new(Diag::global("E0549", text))
        };
        let mut blocks = [0; 3];
        for (blocks, number) in blocks.iter_mut().zip(grid) {
            *blocks = u32::try_from(*number).map_err(too_many)?;
        }
        // Unwritten bytes are counted after all launches.
        let mut run = nvptx_emulator::Launch::new(module, &launch.name)
            .grid(blocks)
            .block(launch.block)
            .shared(launch.dynamic_shared)
            .partial();
        let mut numbers = numbers.iter();
        for param in &launch.params {
            run = match param {
                LaunchParam::Param(index) => match &self.params[*index] {
                    Argument::Buffer(buffer) => run.buffer(*buffer),
                    Argument::Bytes(bytes) => run.bytes(bytes),
                },
                LaunchParam::Workspace(index) => run.buffer(self.workspaces[*index]),
                LaunchParam::Index(_) => run.value(*numbers.next().expect("one for each")),
            };
        }
        let report = match orders {
            Orders::Natural => run.run(&mut self.memory),
            Orders::Both => run.run_twice(&mut self.memory),
        };
        let report = report.map_err(refuse)?;
        match &mut self.report {
            Some(all) => all.add(report),
            None => self.report = Some(report),
        }
        Ok(taken)
    }

    /// Copies the results into the arguments.
    fn finish(self, args: &mut [Value]) -> Emulation {
        let mut unwritten = Vec::new();
        for ((param, argument), arg) in self.kernel.params.iter().zip(&self.params).zip(args) {
            let (
                Param::Tensor { buffer, role: Role::Output | Role::Inout, .. },
                Argument::Buffer(id),
                Value::Tensor(tensor),
            ) = (param, argument, arg)
            else {
                continue;
            };
            tensor.data.copy_from_slice(self.memory.bytes(*id));
            let missing = self.memory.unwritten(*id);
            if missing > 0 {
                unwritten.push((buffer.name.clone(), missing));
            }
        }
        Emulation { report: self.report, unwritten }
    }
}

/// Returns the bytes of a scalar argument.
fn scalar(dtype: DType, bits: u64) -> Argument {
    Argument::Bytes(bits.to_le_bytes()[..dtype.bytes() as usize].to_vec())
}

impl Emulation {
    /// Whether there are no findings.
    pub fn is_clean(&self) -> bool {
        self.unwritten.is_empty() && self.report.as_ref().is_none_or(Report::is_clean)
    }

    /// Formats findings and counters.
    pub fn describe(&self) -> String {
        let mut text = match &self.report {
            Some(report) => report.to_string(),
            None => "nothing was launched\n".to_string(),
        };
        for (name, bytes) in &self.unwritten {
            let _ = writeln!(text, "output not written: {bytes} bytes of `{name}`");
        }
        text
    }
}
