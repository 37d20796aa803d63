//! The virtual machine that executes compiled statements.

use super::code::{Access, Code, Culprit, Op, Pc, Reg};
use super::race::{Order, Race, RunningThread, Shadow, Stop};
use super::{Trap, no_memory};
use super::{scalar, sort};
use crate::ir::print::{print_expr, print_stmt};
use crate::ir::reference;
use crate::ir::{BinOp, DType, Intrinsic};
use std::fmt::Write;

/// The largest number of elements of an allocation.
const MAX_ELEMENTS: i64 = 1 << 32;

/// A buffer's contents: one register per element.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Extents.
    pub shape: Vec<i64>,
    /// The elements.
    pub data: Vec<u64>,
    /// For each element, whether it was written; empty if all count as written.
    pub written: Vec<bool>,
    /// In a launch: the last accesses to each element; empty if no race is possible.
    pub shadows: Vec<Shadow>,
}

impl Memory {
    /// Allocates memory without values; `None` if there is not enough.
    pub fn unwritten(shape: Vec<i64>) -> Option<Memory> {
        let len = shape.iter().try_fold(1i64, |len, extent| {
            if *extent < 0 { None } else { len.checked_mul(*extent) }
        })?;
        if len > MAX_ELEMENTS {
            return None;
        }
        let len = len as usize;
        let (mut data, mut written) = (Vec::new(), Vec::new());
        data.try_reserve_exact(len).ok()?;
        written.try_reserve_exact(len).ok()?;
        data.resize(len, 0);
        written.resize(len, false);
        Some(Memory { shape, data, written, shadows: Vec::new() })
    }
}

/// Registers and memory during a run.
pub struct Machine<'a> {
    pub(super) code: &'a Code,
    /// Registers.
    pub regs: Vec<u64>,
    /// In the order of [`Code::buffers`].
    pub memory: Vec<Memory>,
    /// The order of blocks and threads.
    pub order: Order,
    pub(super) returns: Vec<Pc>,
    pub(super) epoch: u64,
    pub(super) now: RunningThread,
    assert: Option<u32>,
    /// The keys of the current sort.
    keys: Vec<u64>,
}

/// An error at an instruction; [`Machine::trap`] formats it.
pub(super) enum Fault {
    Overflow,
    Outside { buffer: u32, detail: String },
    Unwritten { buffer: u32, index: i64 },
    Allocation { buffer: u32, shape: Vec<i64> },
    Race { buffer: u32, index: i64, race: Race },
    Diverged { other: u32 },
    Check(String),
}

impl<'a> Machine<'a> {
    /// Creates a machine with constant tables filled and nothing bound.
    pub fn new(code: &'a Code) -> Machine<'a> {
        let mut regs = vec![0; code.registers as usize];
        for (reg, bits) in &code.constants {
            regs[*reg as usize] = *bits;
        }
        let memory = code
            .buffers
            .iter()
            .map(|buffer| match &buffer.init {
                Some(init) => Memory {
                    shape: vec![init.len() as i64],
                    data: init.iter().map(|b| scalar::from_pattern(buffer.dtype, *b)).collect(),
                    ..Memory::default()
                },
                None => Memory::default(),
            })
            .collect();
        Machine {
            code,
            regs,
            memory,
            order: Order::Ascending,
            returns: Vec::new(),
            epoch: 0,
            now: RunningThread::default(),
            assert: None,
            keys: Vec::new(),
        }
    }

    /// Runs to the end.
    pub fn run(&mut self) -> Result<(), Trap> {
        let mut pc: Pc = 0;
        match self.execute(&mut pc) {
            Ok(stop) => {
                assert_eq!(stop, Stop::End, "barriers are in launches");
                Ok(())
            }
            Err(fault) => Err(self.trap(pc, fault)),
        }
    }

    /// Runs to the end or to the next barrier.
    pub(super) fn execute(&mut self, pc: &mut Pc) -> Result<Stop, Fault> {
        let ops = &self.code.ops;
        loop {
            let op = &ops[*pc as usize];
            *pc += 1;
            match *op {
                Op::IndexAdd { d, a, b } => {
                    let sum = (self.get(a) as i64).checked_add(self.get(b) as i64);
                    self.set(d, sum.ok_or(Fault::Overflow)? as u64);
                }
                Op::IndexMul { d, a, b } => {
                    let product = (self.get(a) as i64).checked_mul(self.get(b) as i64);
                    self.set(d, product.ok_or(Fault::Overflow)? as u64);
                }
                Op::Binary { f, d, a, b } => self.set(d, f(self.get(a), self.get(b))),
                Op::Unary { f, d, a } => self.set(d, f(self.get(a))),
                Op::Load { d, buffer, index } => {
                    let value = self.load(buffer, self.get(index) as i64)?;
                    self.set(d, value);
                }
                Op::Store { a, buffer, index } => {
                    self.store(buffer, self.get(index) as i64, self.get(a))?;
                }
                Op::Next { var, last, body } => {
                    let value = self.get(var);
                    if value != self.get(last) {
                        self.set(var, value.wrapping_add(1));
                        *pc = body;
                    }
                }
                Op::Loop { var, min, extent, last, exit } => {
                    let (min, extent) = (self.get(min) as i64, self.get(extent) as i64);
                    if extent <= 0 {
                        *pc = exit;
                    } else {
                        let end = min.checked_add(extent - 1).ok_or(Fault::Overflow)?;
                        self.set(var, min as u64);
                        self.set(last, end as u64);
                    }
                }
                Op::Fma { dtype, d, a, b, c, n } => {
                    for i in 0..n {
                        let (a, b, c) = (self.get(a + i), self.get(b + i), self.get(c + i));
                        self.set(d + i, scalar::fma(dtype, a, b, c));
                    }
                }
                Op::Jump { to } => *pc = to,
                Op::JumpIf { c, to } => {
                    if self.get(c) != 0 {
                        *pc = to;
                    }
                }
                Op::JumpUnless { c, to } => {
                    if self.get(c) == 0 {
                        *pc = to;
                    }
                }
                Op::Copy { d, a, n } => {
                    for i in 0..n {
                        self.set(d + i, self.get(a + i));
                    }
                }
                Op::LoadAny { access } => self.load_any(access)?,
                Op::StoreAny { access } => self.store_any(access)?,
                Op::Halt => return Ok(Stop::End),
                Op::Barrier => return Ok(Stop::Barrier),
                Op::Shared { done, to } => {
                    if self.get(done) != self.epoch {
                        self.returns.push(*pc);
                        *pc = to;
                    }
                }
                Op::Return { done } => {
                    self.set(done, self.epoch);
                    *pc = self.returns.pop().expect("a shared computation was called");
                }
                Op::Forget => self.epoch += 1,
                ref op => self.rare(op, pc)?,
            }
        }
    }

    /// Executes one of the less frequent instructions.
    fn rare(&mut self, op: &Op, pc: &mut Pc) -> Result<(), Fault> {
        match *op {
            Op::UnaryLanes { f, d, a, n } => {
                for i in 0..n {
                    self.set(d + i, f(self.get(a + i)));
                }
            }
            Op::BinaryLanes { f, d, a, b, n } => {
                for i in 0..n {
                    self.set(d + i, f(self.get(a + i), self.get(b + i)));
                }
            }
            Op::Index { f, d, a, b, n } => {
                for i in 0..n {
                    let value = f(self.get(a + i) as i64, self.get(b + i) as i64);
                    self.set(d + i, value.ok_or(Fault::Overflow)? as u64);
                }
            }
            Op::Select { d, c, t, f, n } => {
                for i in 0..n {
                    let from = if self.get(c + i) != 0 { t } else { f };
                    self.set(d + i, self.get(from + i));
                }
            }
            Op::Call { function, dtype, d, a, b, n } => self.call(function, dtype, d, a, b, n),
            Op::Ramp { dtype, d, base, stride, n } => self.ramp(dtype, d, base, stride, n)?,
            Op::Broadcast { d, a, n } => {
                for i in 0..n {
                    self.set(d + i, self.get(a));
                }
            }
            Op::JumpIfAll { c, value, n, to } => {
                if (0..n).all(|i| self.get(c + i) == value) {
                    *pc = to;
                }
            }
            Op::Allocate { allocation } => {
                let allocation = &self.code.allocations[allocation as usize];
                let shape: Vec<i64> =
                    allocation.shape.iter().map(|reg| self.get(*reg) as i64).collect();
                let memory = Memory::unwritten(shape.clone());
                let buffer = allocation.buffer;
                let memory = memory.ok_or(Fault::Allocation { buffer, shape })?;
                self.memory[buffer as usize] = memory;
            }
            Op::BeginSort => self.keys.clear(),
            Op::SortKey { a } => self.keys.push(self.get(a)),
            Op::Sort { order, count, dtype, descending } => {
                let places = sort::order_of(&self.keys, dtype, descending);
                let count = usize::try_from(self.get(count) as i64).unwrap_or(0);
                if count > places.len() && !places.is_empty() {
                    let detail = format!("{count} of {} values are wanted", places.len());
                    return Err(Fault::Outside { buffer: order, detail });
                }
                for (at, place) in places.into_iter().take(count).enumerate() {
                    let place = scalar::encode_int(DType::Int32, place as i128);
                    self.store(order, at as i64, place)?;
                }
            }
            Op::Launch { launch } => self.launch(launch, pc)?,
            Op::BeginAssert { assert } => self.assert = Some(assert),
            Op::Assert { assert } => {
                self.assert = None;
                if self.get(self.code.assertions[assert as usize].cond) == 0 {
                    return Err(Fault::Check(self.message(assert)));
                }
            }
            ref op => crate::bug!("{op:?} is not rare"),
        }
        Ok(())
    }

    pub(super) fn get(&self, reg: Reg) -> u64 {
        self.regs[reg as usize]
    }

    pub(super) fn set(&mut self, reg: Reg, value: u64) {
        self.regs[reg as usize] = value;
    }

    fn load(&mut self, buffer: u32, index: i64) -> Result<u64, Fault> {
        let memory = &mut self.memory[buffer as usize];
        let Some(value) = memory.data.get(index as usize) else {
            return Err(outside(buffer, memory, index));
        };
        if !memory.written.is_empty() && !memory.written[index as usize] {
            return Err(Fault::Unwritten { buffer, index });
        }
        if let Some(shadow) = memory.shadows.get_mut(index as usize)
            && let Some(race) = shadow.read(&self.now)
        {
            return Err(Fault::Race { buffer, index, race });
        }
        Ok(*value)
    }

    fn store(&mut self, buffer: u32, index: i64, value: u64) -> Result<(), Fault> {
        let memory = &mut self.memory[buffer as usize];
        let Some(element) = memory.data.get_mut(index as usize) else {
            return Err(outside(buffer, memory, index));
        };
        *element = value;
        if !memory.written.is_empty() {
            memory.written[index as usize] = true;
        }
        if let Some(shadow) = memory.shadows.get_mut(index as usize)
            && let Some(race) = shadow.write(&self.now)
        {
            return Err(Fault::Race { buffer, index, race });
        }
        Ok(())
    }

    /// Returns the position of the element of a lane. Checks every index against its extent.
    fn position(&self, access: &Access, lane: u32) -> Result<i64, Fault> {
        let index = |(reg, has_lanes): (Reg, bool)| {
            self.get(if has_lanes { reg + lane } else { reg }) as i64
        };
        let memory = &self.memory[access.buffer as usize];
        if let [only] = access.indices[..] {
            return Ok(index(only));
        }
        let mut position = 0;
        for (dim, extent) in memory.shape.iter().enumerate() {
            let i = index(access.indices[dim]);
            if !(0..*extent).contains(&i) {
                let detail = format!("index {dim} is {i}, the extent {extent}");
                return Err(Fault::Outside { buffer: access.buffer, detail });
            }
            position = position * extent + i;
        }
        Ok(position)
    }

    fn load_any(&mut self, access: u32) -> Result<(), Fault> {
        let code = self.code;
        let access = &code.accesses[access as usize];
        for lane in 0..access.lanes {
            let value = if access.mask.is_some_and(|mask| self.get(mask + lane) == 0) {
                0
            } else {
                self.load(access.buffer, self.position(access, lane)?)?
            };
            self.set(access.value + lane, value);
        }
        Ok(())
    }

    fn store_any(&mut self, access: u32) -> Result<(), Fault> {
        let code = self.code;
        let access = &code.accesses[access as usize];
        for lane in 0..access.lanes {
            if access.mask.is_some_and(|mask| self.get(mask + lane) == 0) {
                continue;
            }
            let position = self.position(access, lane)?;
            self.store(access.buffer, position, self.get(access.value + lane))?;
        }
        Ok(())
    }

    fn call(&mut self, function: Intrinsic, dtype: DType, d: Reg, a: Reg, b: Option<Reg>, n: u32) {
        for i in 0..n {
            let x = scalar::decode_float(dtype, self.get(a + i));
            let value = match b {
                Some(b) => {
                    let y = scalar::decode_float(dtype, self.get(b + i));
                    reference::evaluate(function, dtype, &[x, y])
                }
                None => reference::evaluate(function, dtype, &[x]),
            };
            self.set(d + i, scalar::encode_float(dtype, value));
        }
    }

    fn ramp(&mut self, dtype: DType, d: Reg, base: Reg, stride: Reg, n: u32) -> Result<(), Fault> {
        let (base, stride) = (self.get(base), self.get(stride));
        let op = |op| scalar::binary_fn(op, dtype).expect("ramps are of integers");
        let (add, mul) = (op(BinOp::Add), op(BinOp::Mul));
        for i in 0..n {
            let value = if dtype == DType::Index {
                let offset = (stride as i64).checked_mul(i as i64);
                let value = offset.and_then(|offset| offset.checked_add(base as i64));
                value.ok_or(Fault::Overflow)? as u64
            } else {
                add(base, mul(stride, scalar::encode_int(dtype, i as i128)))
            };
            self.set(d + i, value);
        }
        Ok(())
    }

    /// Returns the text of an assertion with its values filled in.
    fn message(&self, assert: u32) -> String {
        let assertion = &self.code.assertions[assert as usize];
        let mut text = assertion.message.clone();
        for (i, reg) in assertion.values.iter().enumerate() {
            text = text.replace(&format!("{{{i}}}"), &(self.get(*reg) as i64).to_string());
        }
        text
    }

    fn trap(&self, pc: Pc, fault: Fault) -> Trap {
        if let (Fault::Overflow, Some(assert)) = (&fault, self.assert) {
            let text = &self.code.assertions[assert as usize].message;
            return Trap::Check(format!("{text}: the computation overflows 64 bits"));
        }
        let name = |buffer: u32| &self.code.buffers[buffer as usize].name;
        let mut text = match fault {
            Fault::Check(text) => return Trap::Check(text),
            Fault::Overflow => "overflow of 64 bits".to_string(),
            Fault::Outside { buffer, detail } => format!("outside of {}: {detail}", name(buffer)),
            Fault::Unwritten { buffer, index } => {
                format!("read of {}[{index}], which was never written", name(buffer))
            }
            Fault::Allocation { buffer, shape } => return no_memory(name(buffer), &shape),
            Fault::Race { buffer, index, race } => {
                format!("race for {}[{index}]: {}", name(buffer), self.now.describe(race))
            }
            Fault::Diverged { other } => {
                format!("threads diverge: {}", self.now.describe_divergence(other))
            }
        };
        let at = pc - 1;
        if let Ok(site) = self.code.sites.binary_search_by_key(&at, |(pc, ..)| *pc) {
            let (_, culprit, mut scope) = self.code.sites[site].clone();
            let source = match culprit {
                Culprit::Expr(expr) => print_expr(&expr),
                Culprit::Stmt(stmt) => print_stmt(&stmt),
            };
            let _ = write!(text, "\n  in {}", source.trim_end());
            while let Some(index) = scope {
                let (name, reg, outer) = &self.code.scopes[index as usize];
                let _ = write!(text, "\n  {name} = {}", self.get(*reg) as i64);
                scope = *outer;
            }
        }
        Trap::Bug(text)
    }
}

#[cold]
fn outside(buffer: u32, memory: &Memory, index: i64) -> Fault {
    let detail = format!("position {index} of {} elements", memory.data.len());
    Fault::Outside { buffer, detail }
}
