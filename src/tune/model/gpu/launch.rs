//! Launches in the walk: what an index of a GPU means, when threads meet, where an access stands.

use super::Launch;
use super::warp::Place;
use crate::ir::visit::walk_stmt;
use crate::ir::{Stmt, ThreadIndex, Var};
use crate::tune::model::index::Sum;
use crate::tune::model::walk::{Open, Walker};

/// A moment of a walk: a frame, the frames so far, and the operations of that frame so far.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(in crate::tune::model) struct Moment {
    frame: usize,
    frames: usize,
    operations: f64,
}

impl Moment {
    /// Whether there was work between this moment and a later one of the same frame.
    pub(in crate::tune::model) fn is_long_before(self, later: Moment) -> bool {
        /// Operations that are work.
        const SOME: f64 = 32.0;
        self.frame == later.frame
            && (self.frames < later.frames || self.operations + SOME < later.operations)
    }
}

/// The dimension of an index of a thread.
fn thread_dim(index: ThreadIndex) -> Option<usize> {
    match index {
        ThreadIndex::Thread(dim) => Some(dim),
        _ => None,
    }
}

impl Walker<'_> {
    /// A loop about an index of a GPU, which is no loop: one thread does what is in it.
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
        // An index that a loop around has made known is nothing new here.
        let around = self.open.iter().position(|open| open.index == Some(index));
        let outer = self.places.insert(var.clone(), around.unwrap_or(self.open.len()));
        if around.is_none() {
            let (frame, index) = (Some(self.frame), Some(index));
            self.open.push(Open { frame, dim, count, min: 0.0, var: var.clone(), index });
        }
        self.stmt(body);
        if around.is_none() {
            self.open.pop();
        }
        // One variable stands for an index wherever it is made known.
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

    /// The threads of a block along each dimension: the indices of a launch, wherever they are
    /// made known in it.
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

    /// Now.
    pub(in crate::tune::model) fn moment(&self) -> Moment {
        let work = &self.plan.frames[self.frame].work;
        let operations = work.multiplies + work.adds + work.products;
        Moment { frame: self.frame, frames: self.plan.frames.len(), operations }
    }

    /// The threads of a block have written to shared memory: they wait for each other, unless
    /// they did so just before that.
    pub(in crate::tune::model) fn meet(&mut self, before: Moment) {
        if self.met != Some(before) {
            self.work().meets += 1.0;
        }
        self.met = Some(self.moment());
    }

    /// Where the statement at hand stands in a launch.
    pub(in crate::tune::model) fn place(&self) -> Place<'_> {
        let launch = self.plan.gpu.last().expect("a launch is at work");
        Place {
            block: launch.block,
            threads: &launch.threads,
            places: &self.places,
            open: &self.open,
            defined: &self.defined,
            guards: &self.guards,
        }
    }
}
