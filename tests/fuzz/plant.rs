//! Planted bugs: a scheduled kernel with a small mistake must be a finding, and soon.

use crate::judge::{self, Verdict};
use crate::run::{Setup, Source};
use tec::driver::{Options, with_stack};
use tec::ir::{BinOp, Expr};
use tec::schedule::{Attach, Placed, Relation};
use tec::target::Target;

/// Programs within which a bug must be found.
const MOST: u64 = 2000;

/// Plants a bug in every program that has a place for it, until one is found.
pub fn find(name: &str, plant: fn(&mut Placed) -> bool) {
    let found = with_stack(|| {
        crate::damage::be_quiet();
        (0..MOST).find(|number| {
            let program = Source::Scheduled.program(0, *number);
            let setup = Setup { program, options: Options::new(Target::native()) };
            let mut planted = false;
            let result = judge::interpret_damaged(&setup.case(), &setup.options(), &mut |placed| {
                planted = plant(placed);
            });
            planted && matches!(result, Err(Verdict::Wrong(..)))
        })
    });
    match found {
        Some(number) => println!("{name}: found by program {number}"),
        None => panic!("{name}: {MOST} programs did not find it"),
    }
}

/// Drops the condition of a tail.
pub fn drop_guard(placed: &mut Placed) -> bool {
    let guarded = placed.bounds.iter_mut().flatten().find(|bounds| !bounds.guards.is_empty());
    guarded.map(|bounds| bounds.guards.pop()).is_some()
}

/// Computes one row less of a stage inside another.
pub fn drop_row(placed: &mut Placed) -> bool {
    for (stage, bounds) in placed.schedule.stages.iter().zip(&mut placed.bounds) {
        let (Attach::At { .. }, Some(bounds)) = (stage.attach, bounds) else { continue };
        for leaf in stage.leaves.iter().filter(|leaf| leaf.0 < stage.rank()) {
            let extent = &mut bounds.extents[leaf.0];
            if extent.as_int().is_some_and(|rows| rows > 1) {
                *extent = Expr::binary(BinOp::Sub, extent.clone(), Expr::index(1));
                return true;
            }
        }
    }
    false
}

/// Takes the quotient and the remainder of a fused axis for each other.
pub fn swap_fused(placed: &mut Placed) -> bool {
    for (stage, bounds) in placed.schedule.stages.iter().zip(&mut placed.bounds) {
        let Some(bounds) = bounds else { continue };
        for relation in &stage.relations {
            let Relation::Fuse { parts, .. } = relation else { continue };
            let (a, b) = (parts[0].0, parts[1].0);
            if a < stage.rank() && b < stage.rank() {
                bounds.values.swap(a, b);
                bounds.locals.swap(a, b);
                return true;
            }
        }
    }
    false
}
