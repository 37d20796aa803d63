//! Selection of instructions for statements: loops, conditions, and what lives in registers.

use super::address::{Atoms, Stride, Terms, for_each_var, is_index};
use super::build::Builder;
use super::inst::{BlockId, Cond, LoopInfo, Mem, Width};
use super::mask::MaskKey;
use super::plan::{self, Carried};
use crate::ir::arith::Facts;
use crate::ir::print::print_expr;
use crate::ir::visit::{Memo, reads_memory};
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, ForKind, Stmt, UnOp, Var};
use iced_x86::Code;
use regalloc2::VReg;
use rustc_hash::{FxHashMap, FxHashSet};

/// From so many pointers on, those of a loop that a run-time integer separates share one: there
/// are 15 registers.
const MANY_POINTERS: usize = 10;

/// A value in registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Val {
    /// An index, or a scalar `bool` as 0 or 1, in a general register.
    Gpr(VReg),
    /// Data, scalar or vector, from lane 0 of a vector register on. What is above is anything.
    Vec(VReg),
    /// A vector of `bool`: an AVX-512 mask, or lanes of so many bytes, all ones where true.
    Mask(VReg, u8),
}

impl Val {
    pub(super) fn reg(self) -> VReg {
        match self {
            Val::Gpr(reg) | Val::Vec(reg) | Val::Mask(reg, _) => reg,
        }
    }
}

/// How a value was read, for one that is read again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct LoadKey {
    pub(super) mem: Mem,
    pub(super) bytes: u64,
    pub(super) broadcast: bool,
}

/// What is known in a part of the program.
#[derive(Default)]
pub(super) struct Scope {
    pub(super) vars: FxHashMap<Var, Val>,
    pub(super) pointers: FxHashMap<Buffer, FxHashMap<Terms, VReg>>,
    /// Moving pointers that others in the loop are near to.
    pub(super) leaders: Vec<(Buffer, Terms, VReg)>,
    /// Distances from these.
    pub(super) strides: Vec<Stride>,
    pub(super) atoms: FxHashMap<usize, VReg>,
    pub(super) loads: FxHashMap<LoadKey, (Buffer, VReg)>,
    /// Columns of tiles in registers.
    pub(super) columns: FxHashMap<(Buffer, plan::TileColumn), VReg>,
    /// Constants that wait in registers: bits, bytes of an element, all of it.
    pub(super) constants: FxHashMap<(u64, u64, Width), VReg>,
    /// Multiples of indices: the index, and how many.
    pub(super) multiples: FxHashMap<(Terms, i64, u32), VReg>,
    /// What comparisons of indices with each other come to: differences, without their constants,
    /// that are compared with constants; the register has a constant of its own.
    pub(super) differences: FxHashMap<Terms, (VReg, i64)>,
    /// Masks of the first bytes of a register.
    pub(super) masks: FxHashMap<u64, VReg>,
    /// Masks that are constant or of the first lanes.
    pub(super) lane_masks: FxHashMap<MaskKey, Val>,
}

/// What the caller passes: a struct with the values of variables and the addresses of buffers.
#[derive(Clone, Debug, Default)]
pub struct Closure {
    /// Variables, the offset of each and the type of its value there.
    pub vars: Vec<(Var, u32)>,
    /// The smallest and the largest value of those that are not any number of 64 bits.
    pub ranges: Vec<(Var, i64, i64)>,
    /// Buffers and the offset of the address of each.
    pub buffers: Vec<(Buffer, u32)>,
}

/// The state of selection.
pub(super) struct Selector<'c> {
    pub(super) b: Builder,
    /// Bytes of the widest vector.
    pub(super) vector_bytes: u32,
    closure: &'c Closure,
    closure_pointer: VReg,
    pub(super) scopes: Vec<Scope>,
    pub(super) atoms: Atoms,
    /// Variables that stand for arithmetic on others.
    pub(super) lets: FxHashMap<Var, Expr>,
    /// What is known of variables from around, and of loops.
    pub(super) facts: Facts,
    /// Allocated buffers in memory: offsets in the frame.
    pub(super) frames: FxHashMap<Buffer, u32>,
    /// Allocated buffers in registers: the parts and their values now. A part is named by its
    /// first element; `None` before it is written.
    pub(super) registers: FxHashMap<Buffer, FxHashMap<i64, Option<VReg>>>,
    /// Values of this statement.
    pub(super) memo: Memo<Val>,
    /// Numbers of buffers, for [`super::inst::Access`].
    pub(super) numbers: FxHashMap<Buffer, u32>,
    /// The order of the blocks in the code.
    pub(super) layout: Vec<BlockId>,
    /// The store at hand need not go to the caches.
    pub(super) nontemporal: bool,
    /// Blocks that are rarely entered: they stand after all others.
    pub(super) aside: Vec<BlockId>,
    /// Some store went past the caches.
    pub(super) needs_fence: bool,
    depth: u32,
    /// Loops around the statement, and whether a loop was met inside of each.
    open_loops: Vec<bool>,
}

impl<'c> Selector<'c> {
    pub(super) fn new(b: Builder, vector_bytes: u32, closure: &'c Closure) -> Selector<'c> {
        let mut selector = Selector {
            b,
            vector_bytes,
            closure,
            closure_pointer: VReg::invalid(),
            scopes: vec![Scope::default()],
            atoms: Atoms::default(),
            lets: FxHashMap::default(),
            facts: Facts::new(),
            frames: FxHashMap::default(),
            registers: FxHashMap::default(),
            memo: Memo::default(),
            numbers: FxHashMap::default(),
            layout: vec![0],
            nontemporal: false,
            aside: Vec::new(),
            needs_fence: false,
            depth: 0,
            open_loops: Vec::new(),
        };
        selector.closure_pointer = selector.b.first_argument();
        for (var, low, high) in &closure.ranges {
            selector.facts.assume(&Expr::le(Expr::index(*low), Expr::var(var)));
            selector.facts.assume(&Expr::le(Expr::var(var), Expr::index(*high)));
        }
        selector
    }

    /// Selects for a statement; the function is complete afterwards.
    pub(super) fn run(mut self, body: &Stmt) -> super::inst::Func {
        self.stmt(body);
        self.fence();
        self.b.ret();
        self.layout.append(&mut self.aside);
        self.b.finish(&self.layout)
    }

    pub(super) fn stmt(&mut self, stmt: &Stmt) {
        self.memo.clear();
        match stmt {
            Stmt::Block(stmts) => stmts.iter().for_each(|stmt| self.stmt(stmt)),
            Stmt::For { var, min, extent, kind, body } => self.for_(var, min, extent, kind, body),
            Stmt::If { cond, then, otherwise } => self.if_(cond, then, otherwise.as_deref()),
            Stmt::Store { buffer, indices, value, mask, nontemporal } => {
                self.mark(|| {
                    let place = format!("{}[{}]", buffer.name, print_expr(&indices[0]));
                    shortened(format!("{place} = {}", print_expr(value)))
                });
                self.nontemporal = *nontemporal;
                self.store(buffer, &indices[0], value, mask.as_ref());
                self.nontemporal = false;
            }
            Stmt::Let { var, value, body } => {
                self.mark(|| shortened(format!("let {} = {}", var.name(), print_expr(value))));
                self.bind(var, value);
                self.stmt(body);
            }
            Stmt::Allocate { buffer, body } => {
                self.allocate(buffer, body);
                self.stmt(body);
            }
            Stmt::Produce { body, .. } | Stmt::SimdKernel { body, .. } => self.stmt(body),
            Stmt::Tensorize { name, body } => {
                if !self.tensor_instruction(name, body) {
                    self.stmt(body);
                }
            }
            Stmt::Prefetch { buffer, indices } => self.prefetch(buffer, &indices[0]),
            Stmt::Assert { .. }
            | Stmt::Barrier
            | Stmt::AwaitCopies { .. }
            | Stmt::CopyGroup { .. } => crate::bug!("not in a nest: {stmt:?}"),
        }
        self.memo.clear();
    }

    pub(super) fn mark(&mut self, text: impl FnOnce() -> String) {
        let mark = (self.depth, text());
        let marks = &mut self.b.func.marks;
        marks.push(mark);
        self.b.mark = marks.len() as u32 - 1;
    }

    pub(super) fn bind(&mut self, var: &Var, value: &Expr) {
        if is_index(value) && !reads_memory(value) {
            self.lets.insert(var.clone(), value.clone());
            return;
        }
        let value = self.value(value);
        self.scopes.last_mut().expect("a scope").vars.insert(var.clone(), value);
    }

    /// Whether a variable has a value here.
    pub(super) fn is_bound(&self, var: &Var) -> bool {
        if let Some(value) = self.lets.get(var) {
            let mut bound = true;
            for_each_var(value, &mut |inner| bound &= self.is_bound(inner));
            return bound;
        }
        self.scopes.iter().any(|scope| scope.vars.contains_key(var))
            || self.closure.vars.iter().any(|(known, _)| known == var)
    }

    /// The value of a variable.
    pub(super) fn variable(&mut self, var: &Var) -> Val {
        if let Some(value) = self.lets.get(var).cloned() {
            let (terms, constant) = self.terms(&value);
            return Val::Gpr(self.sum(&terms, constant));
        }
        if let Some(value) = self.scopes.iter().rev().find_map(|scope| scope.vars.get(var)) {
            return *value;
        }
        let Some((_, offset)) = self.closure.vars.iter().find(|(known, _)| known == var) else {
            crate::bug!("`{}` has no value here", var.name());
        };
        let mem = Mem { disp: *offset as i32, ..Mem::at(self.closure_pointer) };
        let value = self.captured_value(var.ty(), mem);
        self.scopes.last_mut().expect("a scope").vars.insert(var.clone(), value);
        value
    }

    /// The address of a buffer that the caller gave.
    pub(super) fn captured_base(&mut self, buffer: &Buffer) -> VReg {
        let Some((_, offset)) = self.closure.buffers.iter().find(|(known, _)| known == buffer)
        else {
            crate::bug!("buffer `{}` is not visible here", buffer.name);
        };
        let mem = Mem { disp: *offset as i32, ..Mem::at(self.closure_pointer) };
        self.b.make_gpr(Code::Mov_r64_rm64, &[super::inst::Arg::Mem(mem)])
    }

    pub(super) fn has_address(&self, buffer: &Buffer) -> bool {
        self.frames.contains_key(buffer)
            || self.closure.buffers.iter().any(|(known, _)| known == buffer)
    }

    fn allocate(&mut self, buffer: &Buffer, body: &Stmt) {
        if let Some(parts) = plan::register_parts(buffer, body, self.b.evex) {
            let parts = parts.into_iter().map(|first| (first, None)).collect();
            self.registers.insert(buffer.clone(), parts);
            return;
        }
        let Some(bytes) = plan::constant_bytes(buffer) else {
            crate::bug!("`{}` is too large for a nest", buffer.name);
        };
        let offset = self.b.func.frame.next_multiple_of(64);
        self.b.func.frame = offset + bytes as u32;
        self.frames.insert(buffer.clone(), offset);
    }

    /// A new block comes next in the code, and instructions go there.
    pub(super) fn start(&mut self, block: BlockId) {
        self.layout.push(block);
        self.b.current = block;
    }

    fn for_(&mut self, var: &Var, min: &Expr, extent: &Expr, kind: &ForKind, body: &Stmt) {
        self.mark(|| {
            let (var, min, extent) = (var.name(), print_expr(min), print_expr(extent));
            shortened(format!("{} ({var}, {min}, {extent})", for_name(kind)))
        });
        match extent.as_int() {
            Some(..=0) => return,
            Some(1) => {
                self.lets.insert(var.clone(), min.clone());
                return self.stmt(body);
            }
            _ => {}
        }
        self.forget_stored(body);
        for bytes in plan::partial_accesses(body) {
            self.partial_mask(bytes);
        }
        let carried = self.carried(body);
        let (first, step) = (self.index_value(min), 1);
        debug_assert_eq!(step, 1);
        let count = match extent.as_int() {
            Some(_) => None,
            None => Some(self.index_value(extent)),
        };
        let Some(count) = count else {
            self.scopes.push(Scope::default());
            self.iterate(var, min, extent, (first, None), &carried, body);
            self.scopes.pop();
            self.forget_stored(body);
            return;
        };
        let (enter, skip, done) = (self.b.block(), self.b.block(), self.b.block());
        self.b.cmp_imm(count, 0);
        self.b.branch(Cond::G, enter, skip);
        self.start(enter);
        let before: Vec<Option<VReg>> = carried.iter().map(|part| self.part(part)).collect();
        self.scopes.push(Scope::default());
        self.iterate(var, min, extent, (first, Some(count)), &carried, body);
        self.scopes.pop();
        self.forget_stored(body);
        let after: Vec<Option<VReg>> = carried.iter().map(|part| self.part(part)).collect();
        self.b.jump(done, after.iter().flatten().copied().collect());
        self.start(skip);
        let unchanged = before.iter().zip(&after).filter(|(_, after)| after.is_some());
        let unchanged: Vec<Option<VReg>> = unchanged.map(|(before, _)| *before).collect();
        let unchanged = unchanged.into_iter().map(|value| value.unwrap_or_else(|| self.b.zero()));
        let unchanged: Vec<VReg> = unchanged.collect();
        self.b.jump(done, unchanged);
        self.start(done);
        for (part, value) in carried.iter().zip(after) {
            let param = value.map(|value| self.b.param(done, value));
            self.set_part(part, param);
        }
    }

    /// The parts of register buffers that a loop's body changes. One that has no value yet and
    /// might be read before it is written gets one.
    fn carried(&mut self, body: &Stmt) -> Vec<Carried> {
        let carried = plan::changed_parts(body, &self.registers);
        for part in &carried {
            if self.part(part).is_none() && !plan::is_written_first(body, part) {
                let zero = self.b.zero();
                self.set_part(part, Some(zero));
            }
        }
        carried
    }

    pub(super) fn part(&self, part: &Carried) -> Option<VReg> {
        self.registers[&part.buffer][&part.first]
    }

    pub(super) fn set_part(&mut self, part: &Carried, value: Option<VReg>) {
        let parts = self.registers.get_mut(&part.buffer).expect("in registers");
        parts.insert(part.first, value);
    }

    /// A loop that runs at least once. The last test stands at the end.
    fn iterate(
        &mut self,
        var: &Var,
        min: &Expr,
        extent: &Expr,
        (first, count): (VReg, Option<VReg>),
        carried: &[Carried],
        body: &Stmt,
    ) {
        self.facts.push();
        self.facts.bind(var, min, extent);
        let moving = self.moving_pointers(var, min, body);
        self.pointers_before(body);
        self.constants_before(body, carried.len());
        self.multiples_before(body);
        self.differences_before(body);
        self.masks_before(var, body);
        let needs_var = plan::needs_var(body, var, &moving.handled, &self.lets);
        // A counter goes down to 0 where nobody asks for the variable.
        let (start, end) = match (needs_var, extent.as_int(), min.as_int()) {
            (true, Some(extent), Some(min)) => (first, End::Constant(min as i64 + extent as i64)),
            (true, Some(extent), None) => (first, End::Value(self.b.add_imm(first, extent as i64))),
            (true, None, _) => {
                let count = count.expect("not constant");
                (first, End::Value(self.b.add(first, count)))
            }
            (false, Some(extent), _) => (self.b.imm(extent as i64), End::Zero),
            (false, None, _) => (count.expect("not constant"), End::Zero),
        };
        let head = self.b.block();
        let live: Vec<&Carried> = carried.iter().filter(|p| self.part(p).is_some()).collect();
        let mut args = vec![start];
        args.extend(moving.pointers.iter().map(|pointer| pointer.start));
        args.extend(live.iter().map(|part| self.part(part).expect("filtered")));
        self.b.jump(head, args.clone());
        self.start(head);
        let params: Vec<VReg> = args.iter().map(|arg| self.b.param(head, *arg)).collect();
        if needs_var {
            let scope = self.scopes.last_mut().expect("a scope");
            scope.vars.insert(var.clone(), Val::Gpr(params[0]));
        }
        self.enter_pointers(&moving, &params[1..]);
        for (part, param) in live.iter().zip(&params[1 + moving.pointers.len()..]) {
            self.set_part(part, Some(*param));
        }
        self.open_loops.push(true);
        self.depth += 1;
        self.stmt(body);
        self.depth -= 1;
        let innermost = self.open_loops.pop().expect("pushed above");
        if let Some(outer) = self.open_loops.last_mut() {
            *outer = false;
        }
        self.mark(|| format!("next {}", var.name()));
        let mut next = self.moved_pointers(&moving, &params[1..]);
        let counter = match end {
            End::Zero => self.b.add_imm(params[0], -1),
            _ => self.b.add_imm(params[0], 1),
        };
        match end {
            End::Zero => {}
            End::Constant(end) => self.b.cmp_imm(counter, end),
            End::Value(end) => self.b.cmp(counter, end),
        }
        next.insert(0, counter);
        next.extend(live.iter().map(|part| self.part(part).expect("still there")));
        let (back, exit) = (self.b.block(), self.b.block());
        let cond = if matches!(end, End::Zero) { Cond::Ne } else { Cond::L };
        self.b.branch(cond, back, exit);
        let latch = self.b.current;
        self.start(back);
        self.b.jump(head, next);
        self.start(exit);
        self.b.func.blocks[head].is_hot = innermost;
        let (var, min, extent) = (var.name(), print_expr(min), print_expr(extent));
        let title = shortened(format!("for ({var}, {min}, {extent})"));
        self.b.func.loops.push(LoopInfo { head, latch, innermost, title });
        if moving.by_leaders {
            self.forget_captured();
        }
        self.facts.pop();
    }

    /// What the caller gave is read again where it is wanted: in a loop that needs all registers
    /// for its pointers, there is none left to keep it for later.
    fn forget_captured(&mut self) {
        let given = &self.closure.vars;
        for scope in &mut self.scopes {
            scope.vars.retain(|var, _| !given.iter().any(|(known, _)| known == var));
        }
    }

    /// In the loop the pointers are where its parameters say.
    fn enter_pointers(&mut self, moving: &Moving, params: &[VReg]) {
        for (pointer, param) in moving.pointers.iter().zip(params) {
            self.remember_pointer(&pointer.buffer, pointer.terms.clone(), *param);
            if moving.by_leaders {
                let leader = (pointer.buffer.clone(), pointer.terms.clone(), *param);
                self.scopes.last_mut().expect("a scope").leaders.push(leader);
            }
        }
    }

    /// The pointers in the next iteration.
    fn moved_pointers(&mut self, moving: &Moving, params: &[VReg]) -> Vec<VReg> {
        let pointers = moving.pointers.iter().zip(params);
        let next = pointers.map(|(pointer, param)| match pointer.step {
            Step::Constant(step) => self.b.add_imm(*param, step),
            Step::Value(step) => self.b.add(*param, step),
        });
        next.collect()
    }

    /// Puts the constants of an innermost loop into registers, as many as there are to spare;
    /// the others are read where they are used.
    fn constants_before(&mut self, body: &Stmt, carried: usize) {
        let (all, computing) = if self.b.evex { (32, 12) } else { (16, 9) };
        let spare = (all - computing as usize).saturating_sub(carried);
        for (bits, bytes, width) in plan::loop_constants(body).into_iter().take(spare) {
            let value = self.constant(bits, bytes, width);
            let scope = self.scopes.last_mut().expect("a scope");
            scope.constants.insert((bits, bytes, width), value);
        }
    }

    /// The pointers of a loop that its variable moves: those that the statements directly in it
    /// use. Pointers that stay are computed before the loop.
    fn moving_pointers(&mut self, var: &Var, min: &Expr, body: &Stmt) -> Moving {
        let mut accesses = plan::direct_accesses(body, &mut self.lets);
        // What is in registers has no pointer; what the body allocates has none yet.
        accesses.retain(|(buffer, _)| self.has_address(buffer));
        let mut moving = Moving::default();
        let mut distinct = FxHashSet::default();
        for (buffer, index) in &accesses {
            distinct.insert((buffer.clone(), self.terms(index).0));
        }
        moving.by_leaders = distinct.len() > MANY_POINTERS;
        for (buffer, index) in accesses {
            let (terms, _) = self.terms(&index);
            let known = moving.pointers.iter();
            if known.clone().any(|p| p.buffer == buffer && p.terms == terms) {
                moving.handled.push((buffer.clone(), index));
                continue;
            }
            let leaders = moving.pointers.iter().filter(|p| p.buffer == buffer);
            let near = |p: &MovingPointer| self.join_leader(&buffer, &p.terms, &terms, var);
            if moving.by_leaders && leaders.into_iter().any(near) {
                moving.handled.push((buffer, index));
                continue;
            }
            let Some((step, constant, first)) = self.split_by(&terms, var, min) else { continue };
            moving.handled.push((buffer.clone(), index));
            let start = self.pointer_to(&buffer, first);
            let bytes = buffer.dtype.bytes() as i64;
            let step = if step.is_empty() {
                if constant == 0 {
                    continue;
                }
                Step::Constant(constant.wrapping_mul(bytes))
            } else {
                let elements = self.sum(&step, constant);
                Step::Value(self.b.mul_imm(elements, bytes))
            };
            moving.pointers.push(MovingPointer { buffer, terms, start, step });
        }
        moving
    }

    fn if_(&mut self, cond: &Expr, then: &Stmt, otherwise: Option<&Stmt>) {
        self.mark(|| shortened(format!("if ({})", print_expr(cond))));
        if let Some(value) = cond.as_int() {
            match (value != 0, otherwise) {
                (true, _) => self.stmt(then),
                (false, Some(otherwise)) => self.stmt(otherwise),
                (false, None) => {}
            }
            return;
        }
        let mut changed = plan::changed_parts(then, &self.registers);
        if let Some(otherwise) = otherwise {
            for part in plan::changed_parts(otherwise, &self.registers) {
                if !changed.contains(&part) {
                    changed.push(part);
                }
            }
        }
        let (yes, no, done) = (self.b.block(), self.b.block(), self.b.block());
        self.branch_on(cond, yes, no);
        let before: Vec<Option<VReg>> = changed.iter().map(|part| self.part(part)).collect();
        let mut ends = Vec::new();
        for (block, body) in [(yes, Some(then)), (no, otherwise)] {
            self.start(block);
            for (part, value) in changed.iter().zip(&before) {
                self.set_part(part, *value);
            }
            if let Some(body) = body {
                self.scopes.push(Scope::default());
                self.depth += 1;
                self.stmt(body);
                self.depth -= 1;
                self.scopes.pop();
            }
            // Where one side wrote, the other side has a value too.
            let mut values = Vec::new();
            for part in &changed {
                let value = self.part(part).unwrap_or_else(|| self.b.zero());
                values.push(value);
            }
            self.b.jump(done, values.clone());
            ends.push(values);
        }
        self.start(done);
        for (part, value) in changed.iter().zip(&ends[0]) {
            let param = self.b.param(done, *value);
            self.set_part(part, Some(param));
        }
    }

    /// Goes to `yes` if a scalar condition holds, else to `no`.
    pub(super) fn branch_on(&mut self, cond: &Expr, yes: BlockId, no: BlockId) {
        match &cond.kind {
            ExprKind::Unary(UnOp::Likely, a) => self.branch_on(a, yes, no),
            ExprKind::Unary(UnOp::Not, a) => self.branch_on(a, no, yes),
            ExprKind::Binary(BinOp::And, a, b) => {
                let second = self.b.block();
                self.branch_on(a, second, no);
                self.start(second);
                self.in_branch(|this| this.branch_on(b, yes, no));
            }
            ExprKind::Binary(BinOp::Or, a, b) => {
                let second = self.b.block();
                self.branch_on(a, yes, second);
                self.start(second);
                self.in_branch(|this| this.branch_on(b, yes, no));
            }
            ExprKind::Binary(op, a, b) if op.is_comparison() && is_index(a) => {
                let cond = self.compare_indices(*op, a, b);
                self.leave(cond, yes, no);
            }
            _ => {
                let value = self.value(cond).reg();
                self.b.cmp_imm(value, 0);
                self.leave(Cond::Ne, yes, no);
            }
        }
    }

    /// A branch through blocks of its own: its targets may have other predecessors.
    fn leave(&mut self, cond: Cond, yes: BlockId, no: BlockId) {
        let (to_yes, to_no) = (self.b.block(), self.b.block());
        self.b.branch(cond, to_yes, to_no);
        for (edge, target) in [(to_yes, yes), (to_no, no)] {
            self.start(edge);
            self.b.jump(target, Vec::new());
        }
    }

    /// What is computed in `f` is not known afterwards.
    pub(super) fn in_branch<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        let memo = self.memo.clone();
        self.scopes.push(Scope::default());
        let result = f(self);
        self.scopes.pop();
        self.memo = memo;
        result
    }

    /// Forgets what was read from buffers that a statement changes.
    fn forget_stored(&mut self, stmt: &Stmt) {
        let stored = plan::stored_buffers(stmt);
        for scope in &mut self.scopes {
            scope.loads.retain(|_, (buffer, _)| !stored.contains(buffer));
            scope.columns.retain(|(buffer, _), _| !stored.contains(buffer));
        }
    }

    /// An index in a general register.
    pub(super) fn index_value(&mut self, expr: &Expr) -> VReg {
        match expr.ty.dtype {
            DType::Index => {
                let (terms, constant) = self.terms(expr);
                self.sum(&terms, constant)
            }
            _ => self.value(expr).reg(),
        }
    }
}

/// The pointers that a loop moves.
#[derive(Default)]
struct Moving {
    pointers: Vec<MovingPointer>,
    /// Accesses that need no other value of the loop's variable: buffers and indices.
    handled: Vec<(Buffer, Expr)>,
    /// Whether accesses that are near to another one share its pointer.
    by_leaders: bool,
}

struct MovingPointer {
    buffer: Buffer,
    terms: Terms,
    start: VReg,
    step: Step,
}

/// Bytes from one iteration to the next.
enum Step {
    Constant(i64),
    Value(VReg),
}

/// Where a loop's counter ends.
enum End {
    Zero,
    Constant(i64),
    Value(VReg),
}

/// As the printer names a loop.
fn for_name(kind: &ForKind) -> &'static str {
    match kind {
        ForKind::Parallel => "parallel",
        _ => "for",
    }
}

/// Text for a listing: not longer than a line.
pub(super) fn shortened(mut text: String) -> String {
    const MAX: usize = 160;
    if text.len() > MAX {
        let end = (0..=MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}
