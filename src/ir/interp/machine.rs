//! Runs interpreter programs.

use super::code::{Op, Program};
use super::scalar;
use super::{Tensor, Trap};
use crate::ir::{BinOp, DType};

/// Registers and memory of one run.
pub struct Machine<'a> {
    program: &'a Program,
    pub registers: Vec<u64>,
    memory: Vec<Memory>,
    /// The assertion being evaluated.
    assert: Option<u32>,
}

/// A buffer's elements.
#[derive(Clone, Default)]
struct Memory {
    extents: Vec<i64>,
    elements: Vec<u64>,
    /// Which elements hold a value; all of them if empty.
    written: Vec<bool>,
}

impl<'a> Machine<'a> {
    pub fn new(program: &'a Program) -> Machine<'a> {
        let memory = program.buffers.iter().map(|buffer| match &buffer.init {
            Some(init) => Memory {
                extents: vec![init.len() as i64],
                elements: init.iter().map(|bits| widen(*bits, buffer.dtype)).collect(),
                written: Vec::new(),
            },
            None => Memory::default(),
        });
        let memory = memory.collect();
        let registers = vec![0; program.registers as usize];
        Machine { program, registers, memory, assert: None }
    }

    pub fn bind_tensor(&mut self, buffer: u32, tensor: &Tensor, output: bool) {
        let size = tensor.dtype.bytes() as usize;
        let elements = tensor.data.chunks_exact(size).map(|bytes| {
            let mut wide = [0u8; 8];
            wide[..size].copy_from_slice(bytes);
            widen(u64::from_le_bytes(wide), tensor.dtype)
        });
        let elements: Vec<u64> = elements.collect();
        let written = if output { vec![false; elements.len()] } else { Vec::new() };
        let extents = tensor.shape.clone();
        self.memory[buffer as usize] = Memory { extents, elements, written };
    }

    pub fn extents(&self, buffer: u32) -> &[i64] {
        &self.memory[buffer as usize].extents
    }

    pub fn buffer_name(&self, buffer: u32) -> &str {
        &self.program.buffers[buffer as usize].name
    }

    /// Copies the elements that were written.
    pub fn read_back(&self, buffer: u32, data: &mut [u8]) {
        let memory = &self.memory[buffer as usize];
        let size = self.program.buffers[buffer as usize].dtype.bytes() as usize;
        for (index, bytes) in data.chunks_exact_mut(size).enumerate() {
            if memory.written[index] {
                bytes.copy_from_slice(&memory.elements[index].to_le_bytes()[..size]);
            }
        }
    }

    fn get(&self, reg: u32) -> u64 {
        self.registers[reg as usize]
    }

    /// Runs the operations `from .. to`; every jump stays inside.
    pub fn run(&mut self, from: usize, to: usize) -> Result<(), Trap> {
        let program = self.program;
        let mut pc = from;
        while pc < to {
            let op = &program.ops[pc];
            pc += 1;
            let (dst, value) = match op {
                Op::Const { dst, bits } => (*dst, *bits),
                Op::Move { dst, a } => (*dst, self.get(*a)),
                Op::Unary { op, dtype, dst, a } => {
                    let value = scalar::unary(*op, *dtype, self.get(*a));
                    (*dst, value.map_err(|_| self.overflow())?)
                }
                Op::Binary { op, dtype, dst, a, b } => {
                    let value = scalar::binary(*op, *dtype, self.get(*a), self.get(*b));
                    (*dst, value.map_err(|_| self.overflow())?)
                }
                Op::Select { dst, c, t, f } => {
                    (*dst, self.get(if self.get(*c) != 0 { *t } else { *f }))
                }
                Op::Cast { from, to, dst, a } => (*dst, scalar::cast(*from, *to, self.get(*a))),
                Op::Bitcast { from, to, dst, a } => {
                    (*dst, scalar::bitcast(*from, *to, self.get(*a)))
                }
                Op::Call { function, dtype, dst, args } => {
                    let args: Vec<u64> = args.iter().map(|reg| self.get(*reg)).collect();
                    (*dst, scalar::call(*function, *dtype, &args))
                }
                Op::Lane { dtype, dst, base, stride, lane } => {
                    (*dst, self.lane(*dtype, *base, *stride, *lane)?)
                }
                Op::Dim { dst, acc, index, buffer, dim } => {
                    let extent = self.memory[*buffer as usize].extents[*dim as usize];
                    let index = self.get(*index) as i64;
                    if index < 0 || index >= extent {
                        return Err(self.outside(*buffer, index, extent));
                    }
                    (*dst, self.get(*acc) * extent as u64 + index as u64)
                }
                Op::Flat { index, buffer } => {
                    let length = self.memory[*buffer as usize].elements.len() as i64;
                    let index = self.get(*index) as i64;
                    if index < 0 || index >= length {
                        return Err(self.outside(*buffer, index, length));
                    }
                    continue;
                }
                Op::Load { dst, buffer, index } => {
                    let memory = &self.memory[*buffer as usize];
                    let index = self.get(*index) as usize;
                    if memory.written.get(index) == Some(&false) {
                        let name = self.buffer_name(*buffer);
                        return Err(Trap::Bug(format!("{name}[{index}] is read, never written")));
                    }
                    (*dst, memory.elements[index])
                }
                Op::Store { buffer, index, value } => {
                    let (index, value) = (self.get(*index) as usize, self.get(*value));
                    let memory = &mut self.memory[*buffer as usize];
                    memory.elements[index] = value;
                    if let Some(written) = memory.written.get_mut(index) {
                        *written = true;
                    }
                    continue;
                }
                Op::Allocate { buffer, extents } => {
                    self.allocate(*buffer, extents)?;
                    continue;
                }
                Op::Jump { to } => {
                    pc = *to;
                    continue;
                }
                Op::JumpUnless { c, to } => {
                    if self.get(*c) == 0 {
                        pc = *to;
                    }
                    continue;
                }
                Op::LoopTest { i, end, to } => {
                    if self.get(*i) as i64 >= self.get(*end) as i64 {
                        pc = *to;
                    }
                    continue;
                }
                Op::LoopNext { i, to } => {
                    pc = *to;
                    (*i, self.get(*i) + 1)
                }
                Op::EnterAssert { assert } => {
                    self.assert = Some(*assert);
                    continue;
                }
                Op::Assert { c, assert } => {
                    if self.get(*c) == 0 {
                        return Err(Trap::Check(self.message(*assert)));
                    }
                    self.assert = None;
                    continue;
                }
            };
            self.registers[dst as usize] = value;
        }
        Ok(())
    }

    fn lane(&self, dtype: DType, base: u32, stride: u32, lane: u32) -> Result<u64, Trap> {
        let lane = scalar::from_int(lane as i128, dtype);
        let offset = scalar::binary(BinOp::Mul, dtype, self.get(stride), lane);
        let offset = offset.map_err(|_| self.overflow())?;
        scalar::binary(BinOp::Add, dtype, self.get(base), offset).map_err(|_| self.overflow())
    }

    fn allocate(&mut self, buffer: u32, extents: &[u32]) -> Result<(), Trap> {
        const LIMIT: i64 = 1 << 32;
        let extents: Vec<i64> = extents.iter().map(|reg| self.get(*reg) as i64).collect();
        let length = extents.iter().try_fold(1i64, |length, extent| length.checked_mul(*extent));
        let Some(length) = length.filter(|length| (0..LIMIT).contains(length)) else {
            let name = self.buffer_name(buffer);
            return Err(Trap::Bug(format!("{name} of shape {extents:?} cannot be allocated")));
        };
        let elements = vec![0; length as usize];
        let written = vec![false; length as usize];
        self.memory[buffer as usize] = Memory { extents, elements, written };
        Ok(())
    }

    fn outside(&self, buffer: u32, index: i64, extent: i64) -> Trap {
        let name = self.buffer_name(buffer);
        Trap::Bug(format!("index {index} of {name} is outside of {extent}"))
    }

    fn overflow(&self) -> Trap {
        match self.assert {
            Some(assert) => {
                let message = &self.program.asserts[assert as usize].message;
                Trap::Check(format!("{message} (index arithmetic overflows 64 bits)"))
            }
            None => Trap::Bug("index arithmetic overflows 64 bits".to_string()),
        }
    }

    fn message(&self, assert: u32) -> String {
        let text = &self.program.asserts[assert as usize];
        let mut message = text.message.clone();
        for (number, reg) in text.values.iter().enumerate() {
            message =
                message.replace(&format!("{{{number}}}"), &(self.get(*reg) as i64).to_string());
        }
        message
    }
}

/// Memory's bits as a register holds them: signed integers extended, any true `bool` 1.
fn widen(bits: u64, dtype: DType) -> u64 {
    match dtype {
        DType::Bool => (bits != 0) as u64,
        _ if dtype.is_float() => bits,
        _ => scalar::from_int(bits as i128, dtype),
    }
}
