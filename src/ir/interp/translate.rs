//! From kernel to interpreter program.

use super::code::{AssertText, BufferInfo, Op, Program, Reg};
use super::scalar;
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, Kernel, Param, Stmt, Var};
use std::collections::HashMap;

/// Registers of the arguments, in the order the caller fills them.
pub struct Layout {
    pub program: Program,
    /// Per parameter: its register (scalars, run-time integers) or buffer number (tensors).
    pub params: Vec<u32>,
    /// Registers of the kernel's `dims`.
    pub dims: Vec<Reg>,
    /// For each tensor parameter: buffer number and registers of its declared extents.
    pub shapes: Vec<(u32, Vec<Reg>)>,
    /// Where the shapes are known, the checks are done, the body is done.
    pub marks: [usize; 3],
}

/// Translates a kernel.
pub fn translate(kernel: &Kernel) -> Layout {
    let mut tr = Translator::default();
    let mut params = Vec::new();
    for param in &kernel.params {
        params.push(match param {
            Param::Tensor { buffer, .. } => tr.buffer(buffer),
            Param::Scalar { var, .. } | Param::Runtime { var, .. } => tr.bind(var)[0],
        });
    }
    let dims = kernel.dims.iter().map(|dim| tr.bind(&dim.var)[0]).collect();
    let mut shapes = Vec::new();
    for param in &kernel.params {
        if let Param::Tensor { buffer, .. } = param {
            let extents = buffer.shape.iter().map(|extent| tr.scalar(extent)).collect();
            shapes.push((tr.buffer(buffer), extents));
        }
    }
    let shapes_known = tr.program.ops.len();
    tr.stmt(&kernel.checks);
    let checked = tr.program.ops.len();
    tr.stmt(&kernel.body);
    let done = tr.program.ops.len();
    Layout { program: tr.program, params, dims, shapes, marks: [shapes_known, checked, done] }
}

#[derive(Default)]
struct Translator {
    program: Program,
    vars: HashMap<Var, Vec<Reg>>,
    buffers: HashMap<Buffer, u32>,
}

impl Translator {
    fn reg(&mut self) -> Reg {
        self.program.registers += 1;
        self.program.registers - 1
    }

    fn bind(&mut self, var: &Var) -> Vec<Reg> {
        let regs: Vec<Reg> = (0..var.ty().lanes).map(|_| self.reg()).collect();
        self.vars.insert(var.clone(), regs.clone());
        regs
    }

    fn buffer(&mut self, buffer: &Buffer) -> u32 {
        if let Some(number) = self.buffers.get(buffer) {
            return *number;
        }
        let number = self.program.buffers.len() as u32;
        self.program.buffers.push(BufferInfo {
            name: buffer.name.clone(),
            dtype: buffer.dtype,
            init: buffer.init.clone(),
        });
        self.buffers.insert(buffer.clone(), number);
        number
    }

    fn emit(&mut self, op: Op) {
        self.program.ops.push(op);
    }

    fn here(&self) -> usize {
        self.program.ops.len()
    }

    /// Points a jump emitted earlier at the next operation.
    fn land(&mut self, jump: usize) {
        let target = self.here();
        match &mut self.program.ops[jump] {
            Op::Jump { to } | Op::JumpUnless { to, .. } | Op::LoopTest { to, .. } => *to = target,
            op => crate::bug!("no jump: {op:?}"),
        }
    }

    fn jump_unless(&mut self, c: Reg) -> usize {
        self.emit(Op::JumpUnless { c, to: 0 });
        self.here() - 1
    }

    fn scalar(&mut self, expr: &Expr) -> Reg {
        let regs = self.expr(expr);
        if regs.len() != 1 {
            crate::bug!("a vector where a scalar belongs");
        }
        regs[0]
    }

    /// The registers of the lanes. Read-only for the caller: they may belong to a variable.
    fn expr(&mut self, expr: &Expr) -> Vec<Reg> {
        let dtype = expr.ty.dtype;
        match &expr.kind {
            ExprKind::Const(value) => {
                let dst = self.reg();
                self.emit(Op::Const { dst, bits: scalar::from_const(*value, dtype) });
                vec![dst]
            }
            ExprKind::Var(var) => match self.vars.get(var) {
                Some(regs) => regs.clone(),
                None => crate::bug!("variable {} is not bound", var.name()),
            },
            ExprKind::Unary(op, x) => self.lanewise(&[x], |tr, dst, args| {
                tr.emit(Op::Unary { op: *op, dtype: x.ty.dtype, dst, a: args[0] });
            }),
            ExprKind::Binary(BinOp::And, a, b) => self.short_circuit(a, b, false),
            ExprKind::Binary(BinOp::Or, a, b) => self.short_circuit(a, b, true),
            ExprKind::Binary(op, a, b) => self.lanewise(&[a, b], |tr, dst, args| {
                let dtype = a.ty.dtype;
                tr.emit(Op::Binary { op: *op, dtype, dst, a: args[0], b: args[1] });
            }),
            ExprKind::Select(c, t, f) => self.lanewise(&[c, t, f], |tr, dst, args| {
                tr.emit(Op::Select { dst, c: args[0], t: args[1], f: args[2] });
            }),
            ExprKind::IfThenElse(c, t, f) => self.choice(c, t, f),
            ExprKind::Cast(x) => self.lanewise(&[x], |tr, dst, args| {
                tr.emit(Op::Cast { from: x.ty.dtype, to: dtype, dst, a: args[0] });
            }),
            ExprKind::Bitcast(x) => self.lanewise(&[x], |tr, dst, args| {
                tr.emit(Op::Bitcast { from: x.ty.dtype, to: dtype, dst, a: args[0] });
            }),
            ExprKind::Load { buffer, indices, mask } => {
                self.load(buffer, indices, mask.as_ref(), expr.ty.lanes)
            }
            ExprKind::Ramp(base, stride) => {
                let (base, stride) = (self.scalar(base), self.scalar(stride));
                (0..expr.ty.lanes)
                    .map(|lane| {
                        let dst = self.reg();
                        self.emit(Op::Lane { dtype, dst, base, stride, lane });
                        dst
                    })
                    .collect()
            }
            ExprKind::Broadcast(x) => {
                let reg = self.scalar(x);
                vec![reg; expr.ty.lanes as usize]
            }
            ExprKind::Call(function, args) => {
                let args: Vec<&Expr> = args.iter().collect();
                self.lanewise(&args, |tr, dst, regs| {
                    let args = regs.to_vec();
                    tr.emit(Op::Call { function: *function, dtype, dst, args });
                })
            }
            ExprKind::Let(var, value, body) => {
                self.bind_value(var, value);
                self.expr(body)
            }
        }
    }

    fn bind_value(&mut self, var: &Var, value: &Expr) {
        let values = self.expr(value);
        self.vars.insert(var.clone(), values);
    }

    fn lanewise(
        &mut self,
        operands: &[&Expr],
        emit: impl Fn(&mut Translator, Reg, &[Reg]),
    ) -> Vec<Reg> {
        let operands: Vec<Vec<Reg>> = operands.iter().map(|operand| self.expr(operand)).collect();
        let lanes = operands.iter().map(Vec::len).max().unwrap_or(1);
        (0..lanes)
            .map(|lane| {
                let args: Vec<Reg> =
                    operands.iter().map(|o| if o.len() == 1 { o[0] } else { o[lane] }).collect();
                let dst = self.reg();
                emit(self, dst, &args);
                dst
            })
            .collect()
    }

    /// `and`, `or`: the right side runs only if the left does not decide. Lanes of vectors are all
    /// evaluated: nothing there can trap.
    fn short_circuit(&mut self, a: &Expr, b: &Expr, decides: bool) -> Vec<Reg> {
        if a.ty.lanes > 1 {
            let op = if decides { BinOp::BitOr } else { BinOp::BitAnd };
            return self.lanewise(&[a, b], |tr, dst, args| {
                let (a, b) = (args[0], args[1]);
                tr.emit(Op::Binary { op, dtype: DType::Bool, dst, a, b });
            });
        }
        let dst = self.reg();
        let left = self.scalar(a);
        self.emit(Op::Move { dst, a: left });
        let mut condition = left;
        if decides {
            condition = self.reg();
            let op = crate::ir::UnOp::Not;
            self.emit(Op::Unary { op, dtype: DType::Bool, dst: condition, a: left });
        }
        let skip = self.jump_unless(condition);
        let right = self.scalar(b);
        self.emit(Op::Move { dst, a: right });
        self.land(skip);
        vec![dst]
    }

    fn choice(&mut self, c: &Expr, t: &Expr, f: &Expr) -> Vec<Reg> {
        let dst: Vec<Reg> = (0..t.ty.lanes).map(|_| self.reg()).collect();
        let condition = self.scalar(c);
        let otherwise = self.jump_unless(condition);
        let values = self.expr(t);
        self.moves(&dst, &values);
        self.emit(Op::Jump { to: 0 });
        let end = self.here() - 1;
        self.land(otherwise);
        let values = self.expr(f);
        self.moves(&dst, &values);
        self.land(end);
        dst
    }

    fn moves(&mut self, dst: &[Reg], values: &[Reg]) {
        for (dst, value) in dst.iter().zip(values) {
            self.emit(Op::Move { dst: *dst, a: *value });
        }
    }

    /// The element numbers of the lanes, checked where they are used.
    fn indices(&mut self, indices: &[Expr]) -> Vec<Vec<Reg>> {
        indices.iter().map(|index| self.expr(index)).collect()
    }

    /// Emits the bounds checks of one lane and gives the register of its element's number.
    fn element(&mut self, buffer: &Buffer, indices: &[Vec<Reg>], lane: usize) -> Reg {
        let number = self.buffer(buffer);
        let of_lane = |regs: &Vec<Reg>| if regs.len() == 1 { regs[0] } else { regs[lane] };
        if indices.len() == 1 && buffer.shape.len() != 1 {
            let index = of_lane(&indices[0]);
            self.emit(Op::Flat { index, buffer: number });
            return index;
        }
        let mut acc = self.reg();
        self.emit(Op::Const { dst: acc, bits: 0 });
        for (dim, regs) in indices.iter().enumerate() {
            let (dst, index) = (self.reg(), of_lane(regs));
            self.emit(Op::Dim { dst, acc, index, buffer: number, dim: dim as u32 });
            acc = dst;
        }
        acc
    }

    fn load(
        &mut self,
        buffer: &Buffer,
        indices: &[Expr],
        mask: Option<&Expr>,
        lanes: u32,
    ) -> Vec<Reg> {
        let indices = self.indices(indices);
        let mask = mask.map(|mask| self.expr(mask));
        (0..lanes as usize)
            .map(|lane| {
                let dst = self.reg();
                let skip = mask.as_ref().map(|mask| {
                    self.emit(Op::Const { dst, bits: 0 });
                    self.jump_unless(if mask.len() == 1 { mask[0] } else { mask[lane] })
                });
                let index = self.element(buffer, &indices, lane);
                let buffer = self.buffer(buffer);
                self.emit(Op::Load { dst, buffer, index });
                if let Some(skip) = skip {
                    self.land(skip);
                }
                dst
            })
            .collect()
    }

    fn store(&mut self, buffer: &Buffer, indices: &[Expr], value: &Expr, mask: Option<&Expr>) {
        let indices = self.indices(indices);
        let values = self.expr(value);
        let mask = mask.map(|mask| self.expr(mask));
        let number = self.buffer(buffer);
        let lanes = indices.iter().map(Vec::len).max().unwrap_or(1).max(values.len());
        for lane in 0..lanes {
            let skip = mask
                .as_ref()
                .map(|mask| self.jump_unless(if mask.len() == 1 { mask[0] } else { mask[lane] }));
            let index = self.element(buffer, &indices, lane);
            let value = if values.len() == 1 { values[0] } else { values[lane] };
            self.emit(Op::Store { buffer: number, index, value });
            if let Some(skip) = skip {
                self.land(skip);
            }
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::Block(stmts) => stmts.iter().for_each(|stmt| self.stmt(stmt)),
            Stmt::For { var, min, extent, body, .. } => self.for_loop(var, min, extent, body),
            Stmt::If { cond, then, otherwise } => {
                let cond = self.scalar(cond);
                let skip = self.jump_unless(cond);
                self.stmt(then);
                match otherwise {
                    None => self.land(skip),
                    Some(otherwise) => {
                        self.emit(Op::Jump { to: 0 });
                        let end = self.here() - 1;
                        self.land(skip);
                        self.stmt(otherwise);
                        self.land(end);
                    }
                }
            }
            Stmt::Store { buffer, indices, value, mask } => {
                self.store(buffer, indices, value, mask.as_ref());
            }
            Stmt::Let { var, value, body } => {
                self.bind_value(var, value);
                self.stmt(body);
            }
            Stmt::Allocate { buffer, body } => {
                let extents = buffer.shape.iter().map(|extent| self.scalar(extent)).collect();
                let buffer = self.buffer(buffer);
                self.emit(Op::Allocate { buffer, extents });
                self.stmt(body);
            }
            Stmt::Produce { body, .. } => self.stmt(body),
            Stmt::Assert { cond, message, values } => self.assert(cond, message, values),
            Stmt::Barrier => {}
            Stmt::Evaluate(value) => {
                self.expr(value);
            }
        }
    }

    fn for_loop(&mut self, var: &Var, min: &Expr, extent: &Expr, body: &Stmt) {
        let (min, extent) = (self.scalar(min), self.scalar(extent));
        let (i, end) = (self.bind(var)[0], self.reg());
        self.emit(Op::Move { dst: i, a: min });
        let dtype = DType::Index;
        self.emit(Op::Binary { op: BinOp::Add, dtype, dst: end, a: min, b: extent });
        let top = self.here();
        self.emit(Op::LoopTest { i, end, to: 0 });
        self.stmt(body);
        self.emit(Op::LoopNext { i, to: top });
        self.land(top);
    }

    fn assert(&mut self, cond: &Expr, message: &str, values: &[Expr]) {
        let number = self.program.asserts.len() as u32;
        self.program.asserts.push(AssertText { message: message.to_string(), values: vec![] });
        self.emit(Op::EnterAssert { assert: number });
        let values = values.iter().map(|value| self.scalar(value)).collect();
        self.program.asserts[number as usize].values = values;
        let c = self.scalar(cond);
        self.emit(Op::Assert { c, assert: number });
    }
}
