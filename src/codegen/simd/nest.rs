//! Instruction selection for statements: loops, conditions, and buffers in registers.

use super::address::{Atoms, Stride, Terms, for_each_var, is_index};
use super::amx::{Configs, Region, Steps, with_first_elements};
use super::build::Builder;
use super::inst::{BlockId, Cond, LoopInfo, Mem, Width};
use super::mask::MaskKey;
use super::plan::{self, Carried};
use crate::codegen::common::constant_bytes;
use crate::ir::arith::Facts;
use crate::ir::print::print_expr;
use crate::ir::tile::TileProduct;
use crate::ir::visit::{Memo, NodeSet, reads_any, reads_memory, stored_buffers};
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, ForKind, Stmt, UnOp, Var};
use iced_x86::Code;
use regalloc2::VReg;
use rustc_hash::{FxHashMap, FxHashSet};

/// From this number of pointers of a loop on, those that are a run-time distance apart share one,
/// as there are 15 general registers.
const MANY_POINTERS: usize = 10;

/// A value in registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Val {
    /// An index, or a scalar `bool` as 0 or 1, in a general register.
    Gpr(VReg),
    /// Data, scalar or vector, from lane 0 of a vector register on. Other lanes have any value.
    Vec(VReg),
    /// A vector of `bool`: an AVX-512 mask, or lanes of this number of bytes, all ones where true.
    Mask(VReg, u8),
}

impl Val {
    pub(super) fn reg(self) -> VReg {
        match self {
            Val::Gpr(reg) | Val::Vec(reg) | Val::Mask(reg, _) => reg,
        }
    }
}

/// The key of a value that was loaded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct LoadKey {
    pub(super) mem: Mem,
    pub(super) bytes: u64,
    pub(super) broadcast: bool,
    /// The mask of the lanes that are loaded; the others are 0.
    pub(super) mask: Option<VReg>,
}

/// The values that are available in a part of the program.
#[derive(Default)]
pub(super) struct Scope {
    pub(super) vars: FxHashMap<Var, Val>,
    pub(super) pointers: FxHashMap<Buffer, FxHashMap<Terms, VReg>>,
    /// Pointers that a loop advances, from which others in the loop are computed.
    pub(super) base_pointers: Vec<(Buffer, Terms, VReg)>,
    /// Distances from them.
    pub(super) strides: Vec<Stride>,
    pub(super) atoms: FxHashMap<usize, VReg>,
    pub(super) loads: FxHashMap<LoadKey, (Buffer, VReg)>,
    /// Shuffles of one or two registers, by these and by what they select.
    pub(super) shuffles: FxHashMap<(VReg, VReg, Vec<u32>), VReg>,
    /// Constants that were loaded, by their address.
    pub(super) pool: FxHashMap<Mem, VReg>,
    /// Columns of tiles in registers.
    pub(super) columns: FxHashMap<(Buffer, plan::TileColumn), VReg>,
    /// Constants in registers, by bits, bytes of an element, and width.
    pub(super) constants: FxHashMap<(u64, u64, Width), VReg>,
    /// Multiples of indices, by index and number of lanes.
    pub(super) multiples: FxHashMap<(Terms, i64, u32), VReg>,
    /// Differences of compared indices, without their constants; the register has the difference
    /// plus the constant beside it.
    pub(super) differences: FxHashMap<Terms, (VReg, i64)>,
    /// Masks of the first bytes of a register, by their number.
    pub(super) masks: FxHashMap<u64, VReg>,
    /// Masks that are constant or of the first lanes.
    pub(super) lane_masks: FxHashMap<MaskKey, Val>,
    /// Other masks with their conditions, which read buffers in registers only.
    pub(super) conditions: Vec<(Expr, Val)>,
    /// Masks for accesses to memory of some lanes, by the mask of all lanes.
    pub(super) memory_masks: FxHashMap<(VReg, u64, u32), VReg>,
}

/// The struct that the caller passes: the values of variables and the addresses of buffers.
#[derive(Clone, Debug, Default)]
pub struct Closure {
    /// Variables and their offsets.
    pub vars: Vec<(Var, u32)>,
    /// The smallest and the largest value of variables with a known range.
    pub ranges: Vec<(Var, i64, i64)>,
    /// Buffers and the offsets of their addresses.
    pub buffers: Vec<(Buffer, u32)>,
}

/// The state of selection.
pub(super) struct Selector<'c> {
    pub(super) b: Builder,
    closure: &'c Closure,
    closure_pointer: VReg,
    pub(super) scopes: Vec<Scope>,
    pub(super) atoms: Atoms,
    /// Whether a pointer or multiples of an index in some scope depend on memory.
    pub(super) addresses_read: bool,
    /// Variables that are arithmetic on others; it is computed at each use.
    pub(super) lets: FxHashMap<Var, Expr>,
    /// Facts of captured variables and of loops.
    pub(super) facts: Facts,
    /// Allocated buffers in memory: offsets in the frame.
    pub(super) frames: FxHashMap<Buffer, u32>,
    /// Allocated buffers in registers: the parts, by their first element, and their current values;
    /// `None` before a part is written.
    pub(super) registers: FxHashMap<Buffer, FxHashMap<i64, Option<VReg>>>,
    /// Values of the current statement, by node.
    pub(super) memo: Memo<Val>,
    /// The conditions of the current statement that are computed once, not in each branch.
    reused: NodeSet,
    /// Numbers of buffers, for [`super::inst::Access`].
    pub(super) numbers: FxHashMap<Buffer, u32>,
    /// The order of the blocks in the code.
    pub(super) layout: Vec<BlockId>,
    /// Whether the current store is nontemporal.
    pub(super) nontemporal: bool,
    /// Rare blocks, which are placed after all others.
    pub(super) cold_blocks: Vec<BlockId>,
    /// Whether there was a nontemporal store.
    pub(super) needs_fence: bool,
    /// The steps of tile products.
    pub(super) steps: Steps,
    /// The tile registers in a run of products.
    pub(super) region: Option<Region>,
    pub(super) configs: Configs,
    depth: u32,
    /// For each enclosing loop, whether it contains no other loop so far.
    open_loops: Vec<bool>,
}

impl<'c> Selector<'c> {
    pub(super) fn new(b: Builder, closure: &'c Closure) -> Selector<'c> {
        let mut selector = Selector {
            b,
            closure,
            closure_pointer: VReg::invalid(),
            scopes: vec![Scope::default()],
            atoms: Atoms::default(),
            addresses_read: false,
            lets: FxHashMap::default(),
            facts: Facts::new(),
            frames: FxHashMap::default(),
            registers: FxHashMap::default(),
            memo: Memo::default(),
            reused: NodeSet::default(),
            numbers: FxHashMap::default(),
            layout: vec![0],
            nontemporal: false,
            cold_blocks: Vec::new(),
            needs_fence: false,
            steps: Steps::default(),
            region: None,
            configs: Configs::default(),
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

    /// Selects the instructions of a nest and returns the function.
    pub(super) fn run(mut self, body: &Stmt) -> super::inst::Func {
        let body = with_first_elements(body.clone(), &mut self.steps);
        self.stmt(&body);
        self.fence();
        self.finish_tiles();
        self.b.ret();
        self.layout.append(&mut self.cold_blocks);
        self.b.finish(&self.layout)
    }

    pub(super) fn stmt(&mut self, stmt: &Stmt) {
        self.memo.clear();
        self.reused = plan::reused_conditions(stmt);
        match stmt {
            Stmt::Block(stmts) => self.block(stmts),
            _ if self.single_region(stmt) => {}
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
                if TileProduct::of(name).is_some() {
                    self.tile_product(stmt);
                } else if !self.tensor_instruction(name, body) {
                    self.stmt(body);
                }
            }
            Stmt::Prefetch { buffer, indices } => self.prefetch(buffer, &indices[0]),
            // `simd_ops::check_stmt` declines these.
            Stmt::Assert { .. }
            | Stmt::Sort(_)
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

    /// Loads the address of a captured buffer.
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
        let in_memory = self.steps.values().any(|step| step.mentions(buffer));
        if !in_memory && let Some(parts) = plan::register_parts(buffer, body, self.b.isa) {
            let parts = parts.into_iter().map(|first| (first, None)).collect();
            self.registers.insert(buffer.clone(), parts);
            return;
        }
        let Some(bytes) = constant_bytes(buffer) else {
            crate::bug!("`{}` is too large for a nest", buffer.name);
        };
        let offset = self.b.func.frame.next_multiple_of(64);
        self.b.func.frame = offset + bytes as u32;
        self.frames.insert(buffer.clone(), offset);
    }

    /// Places a new block next in the code and makes it the current one.
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

    /// The parts of register buffers that a loop's body changes. A part without a value that might
    /// be read before it is written becomes zero.
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

    /// A loop that runs at least once, with the test at its end.
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
        // If the variable is unused, the counter runs down to 0.
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
        self.forget_factors();
        self.stmt(body);
        self.forget_factors();
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
        if moving.shares_pointers {
            self.forget_captured();
        }
        self.facts.pop();
    }

    /// Forgets captured values, so that later uses load them again: after a loop that needed all
    /// registers for its pointers, they would have been spilled.
    fn forget_captured(&mut self) {
        let captured = &self.closure.vars;
        for scope in &mut self.scopes {
            scope.vars.retain(|var, _| !captured.iter().any(|(known, _)| known == var));
        }
    }

    /// Makes the parameters of a loop's head its pointers.
    fn enter_pointers(&mut self, moving: &Moving, params: &[VReg]) {
        for (pointer, param) in moving.pointers.iter().zip(params) {
            self.remember_pointer(&pointer.buffer, pointer.terms.clone(), *param);
            if moving.shares_pointers {
                let base = (pointer.buffer.clone(), pointer.terms.clone(), *param);
                self.scopes.last_mut().expect("a scope").base_pointers.push(base);
            }
        }
    }

    /// The pointers of the next iteration.
    fn moved_pointers(&mut self, moving: &Moving, params: &[VReg]) -> Vec<VReg> {
        let pointers = moving.pointers.iter().zip(params);
        let next = pointers.map(|(pointer, param)| match pointer.step {
            Step::Constant(step) => self.b.add_imm(*param, step),
            Step::Value(step) => self.b.add(*param, step),
        });
        next.collect()
    }

    /// Puts constants of an innermost loop into spare registers; the others are loaded at each use.
    fn constants_before(&mut self, body: &Stmt, carried: usize) {
        // The registers that stay free for the values of an iteration.
        let computing = if self.b.is_evex() { 12 } else { 9 };
        let spare = (self.b.isa.registers() as usize - computing).saturating_sub(carried);
        for (bits, bytes, width) in plan::loop_constants(body).into_iter().take(spare) {
            let value = self.constant(bits, bytes, width);
            let scope = self.scopes.last_mut().expect("a scope");
            scope.constants.insert((bits, bytes, width), value);
        }
    }

    /// The pointers that a loop advances, for the accesses of the statements directly in it.
    /// Pointers that do not depend on its variable are computed before the loop.
    fn moving_pointers(&mut self, var: &Var, min: &Expr, body: &Stmt) -> Moving {
        let mut accesses = plan::direct_accesses(body, &mut self.lets);
        // Buffers in registers have no pointer; those that the body allocates have none yet.
        accesses.retain(|(buffer, _)| self.has_address(buffer));
        let mut moving = Moving::default();
        let mut distinct = FxHashSet::default();
        for (buffer, index) in &accesses {
            distinct.insert((buffer.clone(), self.terms(index).0));
        }
        moving.shares_pointers = distinct.len() > MANY_POINTERS;
        for (buffer, index) in accesses {
            let (terms, _) = self.terms(&index);
            let known = moving.pointers.iter();
            if known.clone().any(|p| p.buffer == buffer && p.terms == terms) {
                moving.handled.push((buffer.clone(), index));
                continue;
            }
            let mut base_pointers = moving.pointers.iter().filter(|p| p.buffer == buffer);
            let near = |p: &MovingPointer| self.share_pointer(&buffer, &p.terms, &terms, var);
            if moving.shares_pointers && base_pointers.any(near) {
                moving.handled.push((buffer, index));
                continue;
            }
            let Some((step, constant, first)) = self.split_by(&terms, var, min) else { continue };
            moving.handled.push((buffer.clone(), index));
            let start = self.pointer_to(&buffer, first);
            let bytes = buffer.dtype.bytes() as i64;
            let step = if step.term_count() == 0 {
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
            // Both sides pass a value for every part that one of them writes.
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

    /// Branches to `yes` if a scalar condition holds, else to `no`.
    pub(super) fn branch_on(&mut self, cond: &Expr, yes: BlockId, no: BlockId) {
        match &cond.kind {
            ExprKind::Unary(UnOp::Likely, a) => self.branch_on(a, yes, no),
            ExprKind::Unary(UnOp::Not, a) => self.branch_on(a, no, yes),
            ExprKind::Binary(BinOp::And, a, b) if !self.reused.contains(cond) => {
                let second = self.b.block();
                self.branch_on(a, second, no);
                self.start(second);
                self.in_branch(|this| this.branch_on(b, yes, no));
            }
            ExprKind::Binary(BinOp::Or, a, b) if !self.reused.contains(cond) => {
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

    /// A branch through blocks of its own, because its targets may have other predecessors.
    fn leave(&mut self, cond: Cond, yes: BlockId, no: BlockId) {
        let (to_yes, to_no) = (self.b.block(), self.b.block());
        self.b.branch(cond, to_yes, to_no);
        for (edge, target) in [(to_yes, yes), (to_no, no)] {
            self.start(edge);
            self.b.jump(target, Vec::new());
        }
    }

    /// Runs `f` for a branch, whose values are not available afterwards.
    pub(super) fn in_branch<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        let memo = self.memo.clone();
        self.scopes.push(Scope::default());
        let result = f(self);
        self.scopes.pop();
        self.memo = memo;
        result
    }

    /// Forgets values that were loaded from buffers that a statement changes.
    pub(super) fn forget_stored(&mut self, stmt: &Stmt) {
        let stored = stored_buffers(stmt);
        for scope in &mut self.scopes {
            scope.loads.retain(|_, (buffer, _)| !stored.contains(buffer));
            scope.columns.retain(|(buffer, _), _| !stored.contains(buffer));
            scope.conditions.retain(|(cond, _)| !reads_any(cond, &stored));
        }
        self.forget_addresses(&|index| reads_any(index, &stored));
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

/// The pointers that a loop advances.
#[derive(Default)]
struct Moving {
    pointers: Vec<MovingPointer>,
    /// The accesses by these pointers, which do not need the loop's variable: buffers and indices.
    handled: Vec<(Buffer, Expr)>,
    /// Whether accesses at a run-time distance from a pointer share it.
    shares_pointers: bool,
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

/// The end of a loop's counter.
enum End {
    Zero,
    Constant(i64),
    Value(VReg),
}

/// The printer's word for a loop.
fn for_name(kind: &ForKind) -> &'static str {
    match kind {
        ForKind::Parallel => "parallel",
        _ => "for",
    }
}

/// Shortens text for a line of the listing.
pub(super) fn shortened(mut text: String) -> String {
    const MAX: usize = 160;
    if text.len() > MAX {
        let end = (0..=MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}
