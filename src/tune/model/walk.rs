//! Summarizes the loop IR as a [`CostPlan`]: loops, conditions, buffers in registers.

use super::RunTimeValues;
use super::gpu::launch::ProgramPoint;
use super::index::{Dim, Indices, Sum};
use super::machine::{CLIF_VECTOR_BYTES, MachineModel};
use super::nest::{
    DotProduct, chooses_elements, copies_of, dot_of, flatten, has_fixed_indices, has_loops,
    is_constant_only, is_stores, serial_vars,
};
use super::ops::ValueCost;
use super::plan::{Access, CostPlan, Event, Frame, MemoryBuffer, Work};
use super::tile::CONFIG_CYCLES;
use crate::ir::arith::divisor;
use crate::ir::async_copy::{ASYNC_COPY_BYTES, Copied, copied_at_once, elements_at_once, read_in};
use crate::ir::limits::{
    MAX_PROMOTED_BYTES, MAX_PROMOTED_ELEMENTS, NEST_FRAME_BYTES, max_promoted_lanes,
};
use crate::ir::tile::{TileProduct, tile_step};
use crate::ir::visit::{for_each_stmt, walk_stmt};
use crate::ir::{Buffer, Expr, ForKind, Kernel, Scope, Stmt, ThreadIndex, Var};
use crate::target::Gpu;
use rustc_hash::{FxHashMap, FxHashSet};

/// Cycles to call a nest of the SIMD back end: the values that it uses pass through memory. Fitted
/// on Zen 5 with `tools/rank.py`.
const NEST_CALL_CYCLES: f64 = 40.0;
/// Cycles of the fence at the end of a nest with nontemporal stores. Fitted on Zen 5.
const FENCE_CYCLES: f64 = 700.0;
/// A buffer of at most so many bytes is read before the stores that filled it are in the cache.
const TEMPORARY_BYTES: f64 = 512.0;

/// The state of a walk over a kernel.
pub(super) struct Walker<'a> {
    pub(super) machine: &'a MachineModel,
    threads: f64,
    pub(super) plan: CostPlan,
    pub(super) indices: Indices,
    /// Enclosing loops, outermost first.
    pub(super) enclosing: Vec<EnclosingLoop>,
    /// The index of each loop variable in `enclosing`.
    pub(super) places: FxHashMap<Var, usize>,
    /// The cost and dependences of each `let`.
    pub(super) lets: FxHashMap<Var, ValueCost>,
    /// Definitions of `let`s, to evaluate conditions.
    pub(super) defined: FxHashMap<Var, Expr>,
    buffers: FxHashMap<Buffer, usize>,
    /// Buffers that are in registers here, with the number of registers.
    pub(super) in_registers: FxHashMap<Buffer, f64>,
    /// The buffers stored in each loop, by the loop's variable.
    stored: FxHashMap<Var, FxHashSet<Buffer>>,
    /// The current frame.
    pub(super) frame: usize,
    /// Fraction of the cases in which the statement runs.
    pub(super) weight: f64,
    /// The branch of a condition in which the statement stands, and the number of branches so far.
    pub(super) branch: usize,
    branches: usize,
    /// Whether the SIMD back end compiles the statement.
    pub(super) in_simd_kernel: bool,
    /// Whether the nest of the SIMD back end has tile products so far.
    pub(super) has_tiles: bool,
    /// Accesses of frames around the current one.
    pub(super) outer_accesses: Vec<Access>,
    pub(super) memo: FxHashMap<usize, ValueCost>,
    /// Loads of the current frame so far, by buffer and index.
    pub(super) loaded: FxHashSet<(usize, u64)>,
    /// Divisions and clamps of indices so far, by frame and operands.
    pub(super) index_work: FxHashSet<(usize, u64)>,
    /// Small buffers that an iteration of a loop fills and reads.
    pub(super) temporaries: FxHashSet<Buffer>,
    /// Such and local buffers whose vectors were scattered.
    pub(super) scattered: FxHashSet<Buffer>,
    pub(super) stage: String,
    in_task: bool,
    /// Whether the walk is inside a launch, the last one of the plan.
    pub(super) in_launch: bool,
    /// Whether the current statement runs lane by lane.
    pub(super) lane_by_lane: bool,
    /// Reduction terms that one instruction adds.
    pub(super) terms: f64,
    /// The element that the current statement stores.
    pub(super) storing: Option<(Buffer, Sum)>,
    /// In a launch: the enclosing conditions.
    pub(super) guards: Vec<Expr>,
    /// In a launch: whether the current statement is an asynchronous copy.
    pub(super) copying: bool,
    /// Buffers that the current group of copies reads.
    read_in_group: FxHashSet<Buffer>,
    /// In a launch: buffers that threads loaded into registers and have not used, with the access
    /// and where it stands.
    pub(super) fetched: FxHashMap<Buffer, (usize, ProgramPoint)>,
    /// In a launch: stores to shared memory so far.
    pub(super) shared_stores: usize,
    /// In a launch: where the last barrier stands.
    pub(super) last_barrier: Option<ProgramPoint>,
    /// Whether the current statement is a nontemporal store.
    pub(super) nontemporal: bool,
    /// The numbers of buffers, including those in registers.
    pub(super) numbers: FxHashMap<Buffer, usize>,
    /// Pairs of frame and buffer number: buffers that every iteration of the frame initializes.
    pub(super) begun: FxHashSet<(usize, usize)>,
    /// Numbers of the buffers that the current value reads.
    pub(super) reads: Vec<usize>,
    /// Numbers of the buffers that each `let` reads.
    pub(super) let_reads: FxHashMap<Var, Vec<usize>>,
}

/// An enclosing loop.
pub(super) struct EnclosingLoop {
    /// Its frame; none if it is unrolled.
    pub(super) frame: Option<usize>,
    /// Its innermost dimension.
    pub(super) dim: Dim,
    pub(super) count: f64,
    pub(super) min: f64,
    pub(super) var: Var,
    /// [`Walker::weight`] of the loop.
    pub(super) weight: f64,
    /// The GPU index that it is bound to.
    pub(super) index: Option<ThreadIndex>,
}

/// Summarizes a kernel.
pub(super) fn plan(
    kernel: &Kernel,
    machine: &MachineModel,
    threads: usize,
    values: &RunTimeValues,
) -> CostPlan {
    let mut stored = FxHashMap::default();
    collect_stored(&kernel.body, &mut stored);
    let mut walker = Walker {
        machine,
        threads: threads.max(1) as f64,
        plan: CostPlan::default(),
        indices: Indices::new(&kernel.body, values),
        enclosing: Vec::new(),
        places: FxHashMap::default(),
        lets: FxHashMap::default(),
        defined: values.iter().map(|(var, at)| (var.clone(), Expr::index(*at))).collect(),
        buffers: FxHashMap::default(),
        in_registers: FxHashMap::default(),
        index_work: FxHashSet::default(),
        stored,
        frame: 0,
        weight: 1.0,
        branch: 0,
        branches: 0,
        in_simd_kernel: false,
        has_tiles: false,
        outer_accesses: Vec::new(),
        memo: FxHashMap::default(),
        loaded: FxHashSet::default(),
        temporaries: FxHashSet::default(),
        scattered: FxHashSet::default(),
        stage: String::new(),
        in_task: false,
        in_launch: false,
        lane_by_lane: false,
        terms: 1.0,
        storing: None,
        guards: Vec::new(),
        copying: false,
        read_in_group: FxHashSet::default(),
        fetched: FxHashMap::default(),
        shared_stores: 0,
        last_barrier: None,
        nontemporal: false,
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
        begins: 1.0,
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

/// Collects the buffers stored in each loop; returns those that the statement stores.
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
            Stmt::For { .. } if self.partial_sums(stmt) => {}
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
                self.nontemporal = *nontemporal && self.in_simd_kernel;
                let group = self.copying;
                self.copying = group && self.is_copied(buffer, &indices[0], value);
                self.lane_by_lane = self.is_lane_by_lane(buffer, &indices[0], value, mask);
                self.store(buffer, &indices[0], value, mask.as_ref());
                (self.nontemporal, self.lane_by_lane) = (false, false);
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
                let (before, stores) = (self.point(), self.shared_stores);
                self.stmt(body);
                self.stage = outer;
                if self.shared_stores > stores && !self.copying {
                    self.barrier(before);
                }
            }
            Stmt::SimdKernel { body } => {
                let outer = std::mem::replace(&mut self.in_simd_kernel, true);
                self.has_tiles = false;
                let first = self.plan.accesses.len();
                self.stmt(body);
                self.in_simd_kernel = outer;
                let fenced = self.plan.accesses[first..].iter().any(|access| access.nontemporal);
                let weight = self.weight;
                let fence = if fenced { FENCE_CYCLES } else { 0.0 };
                let tiles = if self.has_tiles { CONFIG_CYCLES } else { 0.0 };
                self.work().calls += weight * (NEST_CALL_CYCLES + fence + tiles);
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
            Stmt::AwaitCopies { in_flight, .. } => {
                let work = self.work();
                work.barriers += 1.0;
                work.in_flight = f64::from(*in_flight);
            }
            Stmt::Assert { .. } | Stmt::Barrier => {}
            Stmt::Sort(_) => crate::bug!("`expand_sorts` comes first"),
        }
    }

    /// Whether the back end emits a store of a copy group as an asynchronous copy.
    fn is_copied(&self, buffer: &Buffer, index: &Expr, value: &Expr) -> bool {
        let Some(copied) = Copied::of(value, buffer.dtype, true) else { return false };
        let written = !self.enclosing.is_empty() && self.is_stored_in(0, copied.source);
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
        let most = copied_at_once(buffer.dtype);
        let at_once = |index| elements_at_once(buffer.dtype, index, (most, 16), is_multiple);
        let size = at_once(index).min(at_once(copied.index)) * buffer.dtype.bytes() as u32;
        ASYNC_COPY_BYTES.contains(&size)
    }

    /// Walks a tensorized nest. If the target has the instruction, the nest is one multiply-add
    /// with a broadcast of one factor's terms and a contiguous vector of the other factor.
    fn tensorize(&mut self, name: &str, body: &Stmt) {
        if self.warp_product(name, body) {
            return;
        }
        let step =
            TileProduct::of(name).and_then(|product| Some((product, tile_step(product, body)?)));
        if let Some((product, step)) = step {
            return self.tile_step(product, &step);
        }
        let dot = match self.machine.target.has_intrinsic(name) {
            true => dot_of(body, &mut |index| self.indices.sum(index).linear.constant),
            false => None,
        };
        let Some(DotProduct { starts, terms, instruction }) = dot else {
            self.stmt(body);
            return;
        };
        starts.iter().for_each(|stmt| self.stmt(stmt));
        let outer = std::mem::replace(&mut self.terms, terms);
        self.stmt(&instruction);
        self.terms = outer;
    }

    /// Returns the work of the current frame.
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

    /// Whether a loop is still a loop in `promote_accumulators`: the GPU back end unrolls short
    /// loops after it.
    fn is_serial(&self, kind: &ForKind) -> bool {
        *kind == ForKind::Serial || *kind == ForKind::Unrolled && self.in_launch
    }

    /// Walks stores with the loop that updates their elements, which may stay in registers.
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
            if self.fits_registers(&buffer, &index, copies)
                && has_fixed_indices(nest, &buffer, &moved)
            {
                promoted.push((buffer, index, copies));
            }
        }
        self.with_promoted(&promoted, |this| {
            stores.iter().for_each(|stmt| this.stmt(stmt));
            this.stmt(nest);
        });
        for store in stores {
            self.write_back(store, &promoted);
        }
    }

    /// Whether `promote_accumulators` keeps so many vectors with an index in registers.
    pub(super) fn fits_registers(&self, buffer: &Buffer, index: &Expr, copies: f64) -> bool {
        let lanes = f64::from(index.ty.lanes);
        let bytes = buffer.dtype.bytes() as f64;
        let target = &self.machine.target;
        let most = max_promoted_lanes(target.vector_bytes, target.simd().is_some(), buffer.dtype);
        copies <= MAX_PROMOTED_ELEMENTS as f64
            && copies * lanes * bytes <= MAX_PROMOTED_BYTES as f64
            && lanes <= f64::from(most)
    }

    /// Walks statements while elements are in registers.
    pub(super) fn with_promoted(
        &mut self,
        promoted: &[(Buffer, Expr, f64)],
        body: impl FnOnce(&mut Self),
    ) {
        for (buffer, index, copies) in promoted {
            let parts = self.parts(f64::from(index.ty.lanes), buffer.dtype.bytes() as f64);
            self.in_registers.insert(buffer.clone(), copies * parts);
        }
        body(self);
        for (buffer, _, _) in promoted {
            self.in_registers.remove(buffer);
        }
    }

    /// Adds the stores that write promoted elements back to memory after the loop.
    pub(super) fn write_back(&mut self, store: &Stmt, promoted: &[(Buffer, Expr, f64)]) {
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
        let whole_call = buffer.scope == Scope::Global && self.frame == 0 && !self.in_simd_kernel;
        if bytes > NEST_FRAME_BYTES as f64 || whole_call {
            self.plan.allocations += 1.0;
        }
        if !self.enclosing.is_empty() && bytes <= TEMPORARY_BYTES {
            self.temporaries.insert(buffer.clone());
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
            && (self.in_simd_kernel || self.in_launch || buffer.scope == Scope::Register)
            && bytes <= most
            && has_fixed_indices(body, buffer, &serial_vars(body))
            && (self.in_launch || !chooses_elements(body, buffer))
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
        // A loop with a run-time extent that is short runs without threads.
        if parallel && extent.as_int().is_some() {
            self.plan.launches += self.runs_here();
        }
        // Dimensions that do not divide the extent have fewer iterations than their product.
        let exact = match self.in_launch {
            true => count / parts.iter().map(|(trips, _)| trips).product::<f64>(),
            false => 1.0,
        };
        let outer = (self.frame, self.in_task);
        let min_value = self.middle(min);
        let dims = self.indices.open(var, start, &parts);
        let (mut frames, mut begins) = (Vec::new(), 1.0);
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
            self.plan.frames[self.frame].begins = begins;
            begins /= trips.max(1.0);
            frames.push(self.frame);
        }
        self.in_task |= parallel;
        let place = self.enclosing.len();
        self.places.insert(var.clone(), place);
        let dim = dims.last().copied().unwrap_or_default();
        let (frame, var_of) = (Some(self.frame), var.clone());
        self.enclosing.push(EnclosingLoop {
            frame,
            dim,
            count,
            min: min_value,
            var: var_of,
            weight: self.weight,
            index: None,
        });
        self.stmt(body);
        self.enclosing.pop();
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
            begins: 1.0,
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
        let here = self.frame;
        self.plan.accesses.extend(self.outer_accesses.extract_if(.., |one| one.frame == here));
    }

    /// Returns how often the current frame runs in a call.
    pub(super) fn runs_here(&self) -> f64 {
        let mut frame = self.frame;
        let mut runs = 1.0;
        while frame != 0 {
            runs *= self.plan.frames[frame].trips;
            frame = self.plan.frames[frame].parent;
        }
        runs
    }

    pub(super) fn unrolled(
        &mut self,
        var: &Var,
        min: Sum,
        count: f64,
        body: impl FnOnce(&mut Self),
    ) {
        self.open_unrolled(var, min, count);
        body(self);
        self.close_unrolled(var);
    }

    pub(super) fn open_unrolled(&mut self, var: &Var, min: Sum, count: f64) {
        let dim = self.indices.open(var, min.clone(), &[(count, 1.0)])[0];
        self.places.insert(var.clone(), self.enclosing.len());
        let (min, var) = (min.linear.constant, var.clone());
        let weight = self.weight;
        let open = EnclosingLoop { frame: None, dim, count, min, var, weight, index: None };
        self.enclosing.push(open);
    }

    pub(super) fn close_unrolled(&mut self, var: &Var) {
        self.enclosing.pop();
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
        // What a branch loads is not loaded in the other one.
        let (outer, loaded) = ((self.weight, self.branch), self.loaded.clone());
        self.branches += 1;
        (self.weight, self.branch) = (self.weight * holds, self.branches);
        self.stmt(body);
        ((self.weight, self.branch), self.loaded) = (outer, loaded);
    }

    /// Returns the registers, or scalar values, of a vector.
    pub(super) fn parts(&self, lanes: f64, bytes: f64) -> f64 {
        if lanes <= 1.0 {
            return 1.0;
        }
        if self.lane_by_lane {
            return lanes;
        }
        let register = match (self.in_launch, self.in_simd_kernel) {
            (true, _) => bytes,
            (false, true) => self.machine.vector_bytes,
            (false, false) => CLIF_VECTOR_BYTES,
        };
        (lanes * bytes / register).ceil()
    }

    /// Returns the number of a buffer, in memory or not.
    pub(super) fn number(&mut self, buffer: &Buffer) -> usize {
        let next = self.numbers.len();
        *self.numbers.entry(buffer.clone()).or_insert(next)
    }

    /// Returns the index of a buffer in memory in the plan.
    pub(super) fn memory(&mut self, buffer: &Buffer) -> usize {
        if let Some(at) = self.buffers.get(buffer) {
            return *at;
        }
        let bytes = self.bytes_of(buffer);
        self.plan.buffers.push(MemoryBuffer { bytes, scope: buffer.scope });
        self.buffers.insert(buffer.clone(), self.plan.buffers.len() - 1);
        self.plan.buffers.len() - 1
    }

    fn bytes_of(&self, buffer: &Buffer) -> f64 {
        let count: f64 = buffer.shape.iter().map(|extent| self.middle(extent).max(0.0)).product();
        count * buffer.dtype.bytes() as f64
    }

    /// Whether an enclosing loop stores to a buffer.
    pub(super) fn is_stored_in(&self, place: usize, buffer: &Buffer) -> bool {
        self.stored.get(&self.enclosing[place].var).is_some_and(|stored| stored.contains(buffer))
    }
}

/// Returns the extents for one thread, its share of the outermost dimensions, and the ratio of the
/// largest share to the mean.
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
