//! From the loop IR to a [`Plan`]: loops, conditions, what lives in registers.

use super::gpu::launch::Moment;
use super::index::{Dim, Indices, Sum, UNKNOWN};
use super::machine::{MachineModel, NARROW_BYTES};
use super::nest::{
    chooses, copies_of, flatten, has_loops, is_constant_only, is_stores, loop_iterations,
    mentioned, rests, serial_vars,
};
use super::ops::Value;
use super::plan::{Event, Frame, Memory, Plan, Work};
use crate::ir::arith::divisor;
use crate::ir::async_copy::{Copied, PIECES, elements_at_once, read_in};
use crate::ir::limits::{
    MAX_PROMOTED_BYTES, MAX_PROMOTED_ELEMENTS, NEST_FRAME_BYTES, max_promoted_lanes,
};
use crate::ir::visit::{for_each_stmt, walk_stmt};
use crate::ir::{
    BinOp, Buffer, Expr, ExprKind, ForKind, Kernel, Scope, Stmt, ThreadIndex, UnOp, Var,
};
use crate::target::Gpu;
use rustc_hash::{FxHashMap, FxHashSet};

/// Cycles to call a nest of the wide back end: what it takes from around goes through memory.
const NEST: f64 = 40.0;
/// Cycles more of one that stores past the caches: it waits until all of that is in memory.
const FENCE: f64 = 700.0;

/// What is known while a kernel is walked through.
pub(super) struct Walker<'a> {
    pub(super) machine: &'a MachineModel,
    threads: f64,
    pub(super) plan: Plan,
    pub(super) indices: Indices,
    /// Loops around, outermost first.
    pub(super) open: Vec<Open>,
    /// The place of each variable in `open`.
    pub(super) places: FxHashMap<Var, usize>,
    /// `let`s: what they cost and depend on.
    pub(super) lets: FxHashMap<Var, Value>,
    /// Definitions of `let`s, to evaluate conditions.
    pub(super) defined: FxHashMap<Var, Expr>,
    buffers: FxHashMap<Buffer, usize>,
    /// Buffers that are in registers here: how many registers all in all.
    pub(super) in_registers: FxHashMap<Buffer, f64>,
    /// What is stored in each loop, by the loop's variable.
    stored: FxHashMap<Var, FxHashSet<Buffer>>,
    /// The frame at work.
    pub(super) frame: usize,
    /// Part of the cases in which the statement is run.
    pub(super) weight: f64,
    /// Whether the wide back end compiles it.
    pub(super) wide: bool,
    pub(super) memo: FxHashMap<usize, Value>,
    /// What this frame has loaded.
    pub(super) loaded: FxHashSet<(usize, u64)>,
    pub(super) stage: String,
    in_task: bool,
    /// Whether a launch of a GPU is at work: the last one.
    pub(super) in_launch: bool,
    /// Terms that an instruction adds at once.
    pub(super) terms: f64,
    /// The element that the statement at hand stores.
    pub(super) storing: Option<(Buffer, Sum)>,
    /// In a launch: the conditions around.
    pub(super) guards: Vec<Expr>,
    /// In a launch: whether what is at hand is copied while threads go on.
    pub(super) copying: bool,
    /// What the group of copies at hand reads.
    read_in_group: FxHashSet<Buffer>,
    /// In a launch: what threads fetched into registers and have not used, by what access, when.
    pub(super) fetched: FxHashMap<Buffer, (usize, Moment)>,
    /// In a launch: stores to shared memory so far.
    pub(super) shared_stores: usize,
    /// In a launch: when threads wrote to shared memory last.
    pub(super) met: Option<Moment>,
    /// Whether the statement at hand stores past the caches.
    pub(super) past: bool,
    /// The numbers of buffers, those in registers too.
    pub(super) numbers: FxHashMap<Buffer, usize>,
    /// Buffers, by number, that an iteration of a frame begins anew.
    pub(super) begun: FxHashSet<(usize, usize)>,
    /// What the value at hand reads, by number.
    pub(super) reads: Vec<usize>,
    /// What each `let` reads.
    pub(super) let_reads: FxHashMap<Var, Vec<usize>>,
}

/// A loop around.
pub(super) struct Open {
    /// Its frame; none if it is unrolled.
    pub(super) frame: Option<usize>,
    /// Its innermost dimension.
    pub(super) dim: Dim,
    pub(super) count: f64,
    pub(super) min: f64,
    pub(super) var: Var,
    /// The index of a GPU that it stands for.
    pub(super) index: Option<ThreadIndex>,
}

/// Walks through a kernel.
pub(super) fn plan(kernel: &Kernel, machine: &MachineModel, threads: usize) -> Plan {
    let mut stored = FxHashMap::default();
    collect_stored(&kernel.body, &mut stored);
    let mut walker = Walker {
        machine,
        threads: threads.max(1) as f64,
        plan: Plan::default(),
        indices: Indices::new(&kernel.body),
        open: Vec::new(),
        places: FxHashMap::default(),
        lets: FxHashMap::default(),
        defined: FxHashMap::default(),
        buffers: FxHashMap::default(),
        in_registers: FxHashMap::default(),
        stored,
        frame: 0,
        weight: 1.0,
        wide: false,
        memo: FxHashMap::default(),
        loaded: FxHashSet::default(),
        stage: String::new(),
        in_task: false,
        in_launch: false,
        terms: 1.0,
        storing: None,
        guards: Vec::new(),
        copying: false,
        read_in_group: FxHashSet::default(),
        fetched: FxHashMap::default(),
        shared_stores: 0,
        met: None,
        past: false,
        numbers: FxHashMap::default(),
        begun: FxHashSet::default(),
        reads: Vec::new(),
        let_reads: FxHashMap::default(),
    };
    walker.plan.frames.push(Frame {
        name: kernel.name.clone(),
        children: Vec::new(),
        parent: 0,
        trips: 1.0,
        is_loop: false,
        parallel: false,
        own: 0..0,
        inner: 0..0,
        accesses: 0..0,
        work: Work::default(),
        events: Vec::new(),
    });
    walker.stmt(&kernel.body);
    let (dims, accesses) = (walker.indices.extents.len(), walker.plan.accesses.len());
    walker.plan.frames[0].inner = 0..dims;
    walker.plan.frames[0].accesses = 0..accesses;
    walker.plan.extents = walker.indices.extents;
    walker.plan
}

/// For each loop what is stored in it; returns what the statement stores.
fn collect_stored(
    stmt: &Stmt,
    stored: &mut FxHashMap<Var, FxHashSet<Buffer>>,
) -> FxHashSet<Buffer> {
    let mut all = FxHashSet::default();
    if let Stmt::Store { buffer, .. } = stmt {
        all.insert(buffer.clone());
    }
    for_each_stmt(stmt, &mut |inner| all.extend(collect_stored(inner, stored)));
    if let Stmt::For { var, .. } = stmt {
        stored.insert(var.clone(), all.clone());
    }
    all
}

impl Walker<'_> {
    pub(super) fn stmt(&mut self, stmt: &Stmt) {
        self.memo.clear();
        match stmt {
            Stmt::Block(stmts) => {
                let mut flat = Vec::new();
                flatten(stmts, &mut flat);
                self.block(&flat);
            }
            Stmt::For { var, min, extent, kind, body } => {
                self.for_(var, min, extent, kind, body);
            }
            Stmt::If { cond, then, otherwise } => {
                let holds = self.chance(cond);
                self.condition(cond, holds);
                self.guards.push(cond.clone());
                self.branch(then, holds);
                self.guards.pop();
                if let Some(otherwise) = otherwise {
                    self.guards.push(Expr::not(cond.clone()));
                    self.branch(otherwise, 1.0 - holds);
                    self.guards.pop();
                }
            }
            Stmt::Store { buffer, indices, value, mask, nontemporal } => {
                self.past = *nontemporal && self.wide;
                let group = self.copying;
                self.copying = group && self.is_copied(buffer, &indices[0], value);
                self.store(buffer, &indices[0], value, mask.as_ref());
                self.past = false;
                self.copying = group;
            }
            Stmt::Let { var, value, body } => {
                self.indices.define(var, value);
                self.reads.clear();
                let cost = self.value(value);
                self.let_reads.insert(var.clone(), std::mem::take(&mut self.reads));
                self.lets.insert(var.clone(), cost);
                self.defined.insert(var.clone(), value.clone());
                self.stmt(body);
            }
            Stmt::Allocate { buffer, body } => self.allocate(buffer, body),
            Stmt::Produce { name, body } => {
                let outer = std::mem::replace(&mut self.stage, name.clone());
                let (before, stores) = (self.moment(), self.shared_stores);
                self.stmt(body);
                self.stage = outer;
                if self.shared_stores > stores && !self.copying {
                    self.meet(before);
                }
            }
            Stmt::SimdKernel { body } => {
                let outer = std::mem::replace(&mut self.wide, true);
                let first = self.plan.accesses.len();
                self.stmt(body);
                self.wide = outer;
                let fenced = self.plan.accesses[first..].iter().any(|access| access.past);
                let weight = self.weight;
                self.work().calls += weight * (NEST + if fenced { FENCE } else { 0.0 });
            }
            Stmt::Tensorize { name, body } => self.tensorize(name, body),
            Stmt::Prefetch { .. } => self.work().loads += 1.0,
            Stmt::CopyGroup { body } => {
                let outer = std::mem::replace(&mut self.copying, true);
                let around = std::mem::replace(&mut self.read_in_group, read_in(body));
                self.stmt(body);
                self.read_in_group = around;
                self.copying = outer;
            }
            Stmt::AwaitCopies { in_flight } => {
                let work = self.work();
                work.meets += 1.0;
                work.in_flight = f64::from(*in_flight);
            }
            Stmt::Assert { .. } | Stmt::Barrier | Stmt::Evaluate(_) => {}
        }
    }

    /// Whether a store of a group is a copy that needs no registers, as the back end emits it.
    fn is_copied(&self, buffer: &Buffer, index: &Expr, value: &Expr) -> bool {
        let Some(copied) = Copied::of(value, buffer.dtype, true) else { return false };
        let written = !self.open.is_empty() && self.is_stored_in(0, copied.source);
        let global = matches!(copied.source.scope, Scope::Global | Scope::Constant);
        if buffer.scope != Scope::Shared
            || !global
            || written
            || self.read_in_group.contains(buffer)
        {
            return false;
        }
        let value_of = |var: &Var| self.defined.get(var).cloned();
        let is_multiple = |base: &Expr, n: u32| divisor(base, &value_of) % i128::from(n) == 0;
        let at_once = |index| elements_at_once(buffer.dtype, index, 16, is_multiple);
        let size = at_once(index).min(at_once(copied.index)) * buffer.dtype.bytes() as u32;
        PIECES.contains(&size)
    }

    /// Where the target has the instruction, its terms cost as much as one.
    fn tensorize(&mut self, name: &str, body: &Stmt) {
        if self.warp_product(name, body) {
            return;
        }
        let has_instruction = self.machine.target.has_intrinsic(name);
        let terms = if has_instruction { loop_iterations(body) } else { 1.0 };
        let outer = std::mem::replace(&mut self.terms, terms);
        self.stmt(body);
        self.terms = outer;
    }

    /// The work of the frame at hand.
    pub(super) fn work(&mut self) -> &mut Work {
        &mut self.plan.frames[self.frame].work
    }

    fn block(&mut self, stmts: &[&Stmt]) {
        let mut at = 0;
        while at < stmts.len() {
            let stores = stmts[at..].iter().take_while(|stmt| is_stores(stmt)).count();
            let nest = stmts.get(at + stores);
            match nest {
                Some(nest @ Stmt::For { kind, .. }) if stores > 0 && self.is_serial(kind) => {
                    self.group(&stmts[at..at + stores], nest);
                    at += stores + 1;
                }
                _ => {
                    self.stmt(stmts[at]);
                    at += 1;
                }
            }
        }
    }

    /// Whether a loop was one when running values were moved to registers: the back end of GPUs
    /// writes short loops out later.
    fn is_serial(&self, kind: &ForKind) -> bool {
        *kind == ForKind::Serial || *kind == ForKind::Unrolled && self.in_launch
    }

    /// Stores with the loop that updates what they wrote: it may stay in registers.
    fn group(&mut self, stores: &[&Stmt], nest: &Stmt) {
        let mut written: Vec<(Buffer, Expr)> = Vec::new();
        for store in stores {
            walk_stmt(
                store,
                &mut |stmt| {
                    if let Stmt::Store { buffer, indices, .. } = stmt
                        && !written.iter().any(|(known, _)| known == buffer)
                    {
                        written.push((buffer.clone(), indices[0].clone()));
                    }
                },
                &mut |_| {},
            );
        }
        let moved = serial_vars(nest);
        let mut promoted = Vec::new();
        for (buffer, index) in written {
            if self.in_registers.contains_key(&buffer) {
                continue;
            }
            let copies = copies_of(stores, &index);
            let lanes = f64::from(index.ty.lanes);
            let bytes = buffer.dtype.bytes() as f64;
            let vectors = self.machine.target.vector_bytes > 0;
            let most = max_promoted_lanes(vectors, buffer.dtype.bytes());
            let fits = copies <= MAX_PROMOTED_ELEMENTS as f64
                && copies * lanes * bytes <= MAX_PROMOTED_BYTES as f64
                && lanes <= f64::from(most);
            if fits && rests(nest, &buffer, &moved) {
                let parts = self.parts(lanes, bytes);
                self.in_registers.insert(buffer.clone(), copies * parts);
                promoted.push((buffer, index, copies));
            }
        }
        stores.iter().for_each(|stmt| self.stmt(stmt));
        self.stmt(nest);
        for (buffer, _, _) in &promoted {
            self.in_registers.remove(buffer);
        }
        for store in stores {
            self.write_back(store, &promoted);
        }
    }

    /// What was in registers goes to memory where the stores before the loop had put it.
    fn write_back(&mut self, store: &Stmt, promoted: &[(Buffer, Expr, f64)]) {
        match store {
            Stmt::Block(stmts) => stmts.iter().for_each(|stmt| self.write_back(stmt, promoted)),
            Stmt::For { var, min, extent, body, .. } => {
                let count = self.count(extent);
                let min_sum = self.indices.sum(min);
                self.unrolled(var, min_sum, count, |this| this.write_back(body, promoted));
            }
            Stmt::Store { buffer, indices, .. }
                if promoted.iter().any(|(known, _, _)| known == buffer) =>
            {
                self.put(buffer, &indices[0], None, 1.0);
            }
            _ => {}
        }
    }

    fn allocate(&mut self, buffer: &Buffer, body: &Stmt) {
        let bytes = self.bytes_of(buffer);
        let whole_call = buffer.scope == Scope::Global && self.frame == 0 && !self.wide;
        if bytes > NEST_FRAME_BYTES as f64 || whole_call {
            self.plan.allocations += 1.0;
        }
        if buffer.scope == Scope::Shared
            && let Some(launch) = self.plan.gpu.last_mut()
        {
            launch.shared += bytes;
        }
        let (each, most) = match self.in_launch {
            true => (4.0, 4.0 * f64::from(Gpu::MAX_REGISTERS)),
            false => {
                let each = self.machine.vector_bytes;
                (each, each * self.machine.registers)
            }
        };
        let register = matches!(buffer.scope, Scope::Register | Scope::Local)
            && (self.wide || self.in_launch || buffer.scope == Scope::Register)
            && bytes <= most
            && rests(body, buffer, &serial_vars(body))
            && (self.in_launch || !chooses(body, buffer))
            && is_constant_only(body, buffer, &self.places);
        if register {
            let parts = (bytes / each).ceil();
            self.in_registers.insert(buffer.clone(), parts);
        }
        self.stmt(body);
        self.in_registers.remove(buffer);
    }

    fn for_(&mut self, var: &Var, min: &Expr, extent: &Expr, kind: &ForKind, body: &Stmt) {
        let count = self.count(extent);
        if count <= 0.0 {
            return;
        }
        let start = self.indices.sum(min);
        if let Some(index) = kind.gpu_index() {
            self.thread(var, index, count, body);
            return;
        }
        if *kind == ForKind::Unrolled && extent.as_int().is_some() && !has_loops(body) {
            self.unrolled(var, start, count, |this| this.stmt(body));
            return;
        }
        let parallel = *kind == ForKind::Parallel && !self.in_task;
        let parts = self.indices.split(var, count);
        let (parts, uneven) = match parallel {
            true => shared_out(parts, count, self.threads),
            false => (parts, 1.0),
        };
        // Where only the call tells the work, little of it is not handed to threads.
        if parallel && extent.as_int().is_some() {
            self.plan.launches += self.runs_here();
        }
        // Parts that do not divide the whole have fewer iterations than dimensions say.
        let exact = match self.in_launch {
            true => count / parts.iter().map(|(trips, _)| trips).product::<f64>(),
            false => 1.0,
        };
        let outer = (self.frame, self.in_task);
        let min_value = self.middle(min);
        let dims = self.indices.open(var, start, &parts);
        let mut frames = Vec::new();
        for (at, (dim, (trips, _))) in dims.iter().zip(&parts).enumerate() {
            let last = at + 1 == parts.len();
            let trips = if at == 0 { trips * uneven * exact } else { *trips };
            let is_loop = last && *kind != ForKind::Unrolled;
            let name = if self.stage.is_empty() {
                var.name().to_string()
            } else {
                format!("{}: {}", self.stage, var.name())
            };
            self.enter(name, trips, is_loop, parallel && at == 0, *dim..dim + 1);
            frames.push(self.frame);
        }
        self.in_task |= parallel;
        let place = self.open.len();
        self.places.insert(var.clone(), place);
        let dim = dims.last().copied().unwrap_or_default();
        let (frame, var_of) = (Some(self.frame), var.clone());
        self.open.push(Open { frame, dim, count, min: min_value, var: var_of, index: None });
        self.stmt(body);
        self.open.pop();
        self.places.remove(var);
        for frame in frames.into_iter().rev() {
            self.leave(frame);
        }
        (self.frame, self.in_task) = outer;
    }

    pub(super) fn enter(
        &mut self,
        name: String,
        trips: f64,
        is_loop: bool,
        parallel: bool,
        own: std::ops::Range<usize>,
    ) {
        let at = self.plan.frames.len();
        self.plan.frames.push(Frame {
            name,
            children: Vec::new(),
            parent: self.frame,
            trips,
            is_loop,
            parallel,
            inner: own.clone(),
            own,
            accesses: self.plan.accesses.len()..0,
            work: Work::default(),
            events: Vec::new(),
        });
        self.plan.frames[self.frame].children.push(at);
        self.plan.frames[self.frame].events.push(Event::Frame(at));
        self.frame = at;
        self.loaded.clear();
    }

    pub(super) fn leave(&mut self, frame: usize) {
        let (dims, accesses) = (self.indices.extents.len(), self.plan.accesses.len());
        let frame = &mut self.plan.frames[frame];
        frame.inner.end = dims;
        frame.accesses.end = accesses;
        self.frame = frame.parent;
        self.loaded.clear();
    }

    /// How often the frame at hand is run in a call.
    pub(super) fn runs_here(&self) -> f64 {
        let mut frame = self.frame;
        let mut runs = 1.0;
        while frame != 0 {
            runs *= self.plan.frames[frame].trips;
            frame = self.plan.frames[frame].parent;
        }
        runs
    }

    fn unrolled(&mut self, var: &Var, min: Sum, count: f64, body: impl FnOnce(&mut Self)) {
        self.open_unrolled(var, min, count);
        body(self);
        self.close_unrolled(var);
    }

    pub(super) fn open_unrolled(&mut self, var: &Var, min: Sum, count: f64) {
        let dim = self.indices.open(var, min.clone(), &[(count, 1.0)])[0];
        self.places.insert(var.clone(), self.open.len());
        let (min, var) = (min.constant, var.clone());
        self.open.push(Open { frame: None, dim, count, min, var, index: None });
    }

    pub(super) fn close_unrolled(&mut self, var: &Var) {
        self.open.pop();
        self.places.remove(var);
    }

    fn branch(&mut self, body: &Stmt, holds: f64) {
        if holds <= 0.0 {
            return;
        }
        if holds < 1.0 && has_loops(body) {
            let from = self.indices.extents.len();
            let name = format!("{}: if", self.stage);
            self.enter(name, holds, false, false, from..from);
            let frame = self.frame;
            self.stmt(body);
            self.leave(frame);
            return;
        }
        let outer = self.weight;
        self.weight *= holds;
        self.stmt(body);
        self.weight = outer;
    }

    /// How often a loop runs: half way through the loops around.
    pub(super) fn count(&self, extent: &Expr) -> f64 {
        let count = self.middle(extent).max(0.0);
        let mut told = true;
        mentioned(extent, &mut |var| told &= self.places.contains_key(var));
        // A difference of two integers that only a call tells.
        if count == 0.0 && !told { UNKNOWN } else { count }
    }

    fn middle(&self, expr: &Expr) -> f64 {
        match expr.as_int() {
            Some(value) => value as f64,
            None => {
                let value = |var: &Var| {
                    let open = &self.open[*self.places.get(var)?];
                    Some(open.min + (open.count / 2.0).floor())
                };
                self.evaluate(expr, &value, 0).unwrap_or(UNKNOWN)
            }
        }
    }

    /// The part of all cases in which a condition holds.
    fn chance(&self, cond: &Expr) -> f64 {
        if let Some(value) = cond.as_int() {
            return if value == 0 { 0.0 } else { 1.0 };
        }
        // Numbers of the golden ratio's kind fill every square evenly.
        const SAMPLES: usize = 64;
        let one = self.only_loop(cond).filter(|open| open.count <= 1024.0);
        let samples = one.map_or(SAMPLES, |open| open.count.max(1.0) as usize);
        let mut held = 0.0;
        for sample in 0..samples {
            let value = |var: &Var| {
                let place = *self.places.get(var)?;
                let open = &self.open[place];
                let part = match one {
                    Some(_) => (sample as f64 + 0.5) / samples as f64,
                    None => {
                        let step = 0.618_033_988_749_894_9 / (1.0 + 0.324_717_957 * place as f64);
                        ((sample as f64 + 0.5) * step).fract()
                    }
                };
                Some(open.min + (open.count * part).floor())
            };
            held += match self.evaluate(cond, &value, 0) {
                Some(value) => f64::from(u8::from(value != 0.0)),
                None => 0.5,
            };
        }
        held / samples as f64
    }

    /// The only loop that an expression mentions.
    fn only_loop(&self, expr: &Expr) -> Option<&Open> {
        let mut found = None;
        let mut single = true;
        mentioned(expr, &mut |var| match (self.places.get(var), found) {
            (Some(place), None) => found = Some(*place),
            (Some(place), Some(known)) => single &= *place == known,
            (None, _) => single = false,
        });
        found.filter(|_| single).map(|place| &self.open[place])
    }

    /// An integer expression for some values of the loops; none if it reads memory.
    fn evaluate(
        &self,
        expr: &Expr,
        value: &dyn Fn(&Var) -> Option<f64>,
        depth: usize,
    ) -> Option<f64> {
        if let Some(value) = expr.as_int() {
            return Some(value as f64);
        }
        let of = |e: &Expr| self.evaluate(e, value, depth);
        let truth = |holds: bool| f64::from(u8::from(holds));
        Some(match &expr.kind {
            ExprKind::Var(var) => match (value(var), self.defined.get(var)) {
                (Some(value), _) => value,
                (None, Some(defined)) if depth < 8 => self.evaluate(defined, value, depth + 1)?,
                _ => UNKNOWN,
            },
            ExprKind::Unary(UnOp::Not, a) => truth(of(a)? == 0.0),
            ExprKind::Unary(UnOp::Neg, a) => -of(a)?,
            ExprKind::Unary(UnOp::Likely, a) | ExprKind::Cast(a) | ExprKind::Broadcast(a) => of(a)?,
            ExprKind::Ramp(base, _) => of(base)?,
            ExprKind::Select(c, a, b) | ExprKind::IfThenElse(c, a, b) => {
                if of(c)? != 0.0 {
                    of(a)?
                } else {
                    of(b)?
                }
            }
            ExprKind::Binary(op, a, b) => {
                let (a, b) = (of(a)?, of(b)?);
                match op {
                    BinOp::Add => a + b,
                    BinOp::Sub => a - b,
                    BinOp::Mul => a * b,
                    BinOp::FloorDiv => {
                        if b == 0.0 {
                            0.0
                        } else {
                            (a / b).floor()
                        }
                    }
                    BinOp::FloorMod => {
                        if b == 0.0 {
                            0.0
                        } else {
                            a - (a / b).floor() * b
                        }
                    }
                    BinOp::Min => a.min(b),
                    BinOp::Max => a.max(b),
                    BinOp::Eq => truth(a == b),
                    BinOp::Ne => truth(a != b),
                    BinOp::Lt => truth(a < b),
                    BinOp::Le => truth(a <= b),
                    BinOp::Gt => truth(a > b),
                    BinOp::Ge => truth(a >= b),
                    BinOp::And => truth(a != 0.0 && b != 0.0),
                    BinOp::Or => truth(a != 0.0 || b != 0.0),
                    _ => return None,
                }
            }
            _ => return None,
        })
    }

    /// Registers, or scalar values, that so many lanes take.
    pub(super) fn parts(&self, lanes: f64, bytes: f64) -> f64 {
        if lanes <= 1.0 {
            return 1.0;
        }
        let register = match (self.in_launch, self.wide) {
            (true, _) => bytes,
            (false, true) => self.machine.vector_bytes,
            (false, false) => NARROW_BYTES,
        };
        (lanes * bytes / register).ceil()
    }

    /// A number for a buffer, in memory or not.
    pub(super) fn number(&mut self, buffer: &Buffer) -> usize {
        let next = self.numbers.len();
        *self.numbers.entry(buffer.clone()).or_insert(next)
    }

    /// The number of a buffer.
    pub(super) fn memory(&mut self, buffer: &Buffer) -> usize {
        if let Some(at) = self.buffers.get(buffer) {
            return *at;
        }
        let bytes = self.bytes_of(buffer);
        self.plan.buffers.push(Memory { bytes, scope: buffer.scope });
        self.buffers.insert(buffer.clone(), self.plan.buffers.len() - 1);
        self.plan.buffers.len() - 1
    }

    fn bytes_of(&self, buffer: &Buffer) -> f64 {
        let count: f64 = buffer.shape.iter().map(|extent| self.middle(extent).max(0.0)).product();
        count * buffer.dtype.bytes() as f64
    }

    /// Whether an open loop stores to a buffer.
    pub(super) fn is_stored_in(&self, place: usize, buffer: &Buffer) -> bool {
        self.stored.get(&self.open[place].var).is_some_and(|stored| stored.contains(buffer))
    }
}

/// The extents for one thread: its part of the outermost dimensions. And by how much the largest
/// part is more than that.
fn shared_out(mut parts: Vec<(f64, f64)>, count: f64, threads: f64) -> (Vec<(f64, f64)>, f64) {
    let mut rest = threads;
    for part in &mut parts {
        let take = rest.min(part.0);
        part.0 /= take;
        rest /= take;
    }
    let busy = threads.min(count);
    let uneven = (count / busy).ceil() * busy / count;
    (parts, uneven)
}
