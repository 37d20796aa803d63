//! Accesses of arguments that a kernel updates in place.
//!
//! Before: `update C[p + i: r] = …`: the nest of the stage stores to `C'[i]`, its readers load
//! `C''[k]`.
//! After: the nest stores to `C[p + i]`, its readers load `C[k]`; `C` is the argument.
//! A part of `build_loops`, so that all passes see one buffer. The order of the accesses was
//! checked before (`schedule::in_place`).

use crate::ir::visit::map_accesses;
use crate::ir::{Buffer, Expr, Stmt};
use crate::schedule::Schedule;

/// Lets the stages of `update`s and their readers access the memory of the arguments.
pub(super) fn access_arguments(schedule: &Schedule, body: Stmt) -> Stmt {
    let updates = schedule.order.iter().filter_map(|id| {
        let te = &schedule.stage(*id).te;
        Some((&te.buffers[0], te.update.as_ref()?))
    });
    let updates: Vec<(&Buffer, _)> = updates.collect();
    if updates.is_empty() {
        return body;
    }
    map_accesses(body, &mut |buffer: &Buffer, indices: &[Expr]| {
        let (region, update) =
            updates.iter().find(|(own, update)| *own == buffer || update.after == *buffer)?;
        let indices = if *region == buffer { update.place(indices) } else { indices.to_vec() };
        // A network may update one argument several times.
        let mut argument = &update.before;
        while let Some((_, earlier)) = updates.iter().find(|(_, other)| other.after == *argument) {
            argument = &earlier.before;
        }
        Some((argument.clone(), indices))
    })
}
