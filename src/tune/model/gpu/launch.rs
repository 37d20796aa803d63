//! Launches in the walk: bound loops, barriers, the context of an access.

use super::Launch;
use super::warp::AccessContext;
use crate::ir::visit::walk_stmt;
use crate::ir::{Stmt, ThreadIndex, Var};
use crate::tune::model::index::Sum;
use crate::tune::model::walk::{EnclosingLoop, Walker};

/// A point of the program in the walk: a frame, the frames so far, and the operations of that frame
/// so far.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(in crate::tune::model) struct ProgramPoint {
    frame: usize,
    frames: usize,
    operations: f64,
}

impl ProgramPoint {
    /// Whether there is work between this point and a later one of the same frame.
    pub(in crate::tune::model) fn is_long_before(self, later: ProgramPoint) -> bool {
        /// Operations that hide the latency of a load (an estimate).
        const MIN_WORK_OPERATIONS: f64 = 32.0;
        self.frame == later.frame
            && (self.frames < later.frames
                || self.operations + MIN_WORK_OPERATIONS < later.operations)
    }
}

/// Returns the dimension of a thread index.
fn thread_dim(index: ThreadIndex) -> Option<usize> {
    match index {
        ThreadIndex::Thread(dim) => Some(dim),
        _ => None,
    }
}

impl Walker<'_> {
    /// Walks a loop that is bound to a GPU index. It is no loop: one thread runs its body once.
    pub(in crate::tune::model) fn thread(
        &mut self,
        var: &Var,
        index: ThreadIndex,
        count: f64,
        body: &Stmt,
    ) {
        let outermost = !self.in_launch;
        if outermost {
            self.in_launch = true;
            let from = self.indices.extents.len();
            let name = format!("{}: launch", self.stage);
            self.enter(name, 1.0, false, false, from..from);
            let (frame, end) = (self.frame, self.frame + 1);
            let mut block = [1.0; 3];
            self.block_of(index, count, body, &mut block);
            let block = block.map(|threads| threads as i64);
            self.plan.gpu.push(Launch { frame, end, block, ..Launch::default() });
            self.plan.launches += self.runs_here();
        }
        let launch = self.plan.gpu.len() - 1;
        if let Some(dim) = thread_dim(index) {
            self.plan.gpu[launch].threads.insert(var.clone(), dim);
        }
        let known = self.plan.gpu[launch].indices.iter().find(|known| known.0 == index);
        let dim = match known.map(|known| known.1) {
            Some(dim) => {
                self.indices.alias(var, dim);
                dim
            }
            None => {
                let dim = self.indices.open(var, Sum::default(), &[(count, 1.0)])[0];
                self.plan.gpu[launch].indices.push((index, dim, count));
                dim
            }
        };
        // An index that an enclosing loop has bound is already in `enclosing`.
        let around = self.enclosing.iter().position(|open| open.index == Some(index));
        let outer = self.places.insert(var.clone(), around.unwrap_or(self.enclosing.len()));
        if around.is_none() {
            let (frame, index) = (Some(self.frame), Some(index));
            self.enclosing.push(EnclosingLoop {
                frame,
                dim,
                count,
                min: 0.0,
                var: var.clone(),
                weight: self.weight,
                index,
            });
        }
        self.stmt(body);
        if around.is_none() {
            self.enclosing.pop();
        }
        // Several loops may bind an index with the same variable.
        match outer {
            Some(place) => self.places.insert(var.clone(), place),
            None => self.places.remove(var),
        };
        if outermost {
            self.in_launch = false;
            let frame = self.plan.gpu[launch].frame;
            self.plan.gpu[launch].end = self.plan.frames.len();
            self.leave(frame);
        }
    }

    /// Finds the threads of a block along each dimension, wherever the launch binds the thread
    /// indices.
    fn block_of(&self, index: ThreadIndex, count: f64, body: &Stmt, block: &mut [f64; 3]) {
        if let Some(dim) = thread_dim(index) {
            block[dim] = f64::max(block[dim], count);
        }
        let mut inside = |stmt: &Stmt| {
            if let Stmt::For { extent, kind, .. } = stmt
                && let Some(dim) = kind.gpu_index().and_then(thread_dim)
            {
                block[dim] = f64::max(block[dim], self.count(extent));
            }
        };
        walk_stmt(body, &mut inside, &mut |_| {});
    }

    /// Returns the current point.
    pub(in crate::tune::model) fn point(&self) -> ProgramPoint {
        let work = &self.plan.frames[self.frame].work;
        let operations = work.multiplies + work.adds + work.products;
        ProgramPoint { frame: self.frame, frames: self.plan.frames.len(), operations }
    }

    /// Counts a barrier after stores to shared memory, unless there was one at `before`.
    pub(in crate::tune::model) fn barrier(&mut self, before: ProgramPoint) {
        if self.last_barrier != Some(before) {
            self.work().barriers += 1.0;
        }
        self.last_barrier = Some(self.point());
    }

    /// Returns the context of the current statement in a launch.
    pub(in crate::tune::model) fn access_context(&self) -> AccessContext<'_> {
        let launch = self.plan.gpu.last().expect("a launch is at work");
        AccessContext {
            block: launch.block,
            threads: &launch.threads,
            places: &self.places,
            enclosing: &self.enclosing,
            defined: &self.defined,
            guards: &self.guards,
        }
    }
}
