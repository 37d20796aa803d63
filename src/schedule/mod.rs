//! Schedules: how a kernel is computed, never what.
//!
//! [`schedule_kernels`] picks each kernel's schedule, [`apply`] runs its statements from top to
//! bottom, each directive checks what it can see and changes the [`Schedule`] (one file per
//! family, listed in [`directives`]). What depends on extents and regions is checked when all
//! directives are known, by `bounds` and `legality`, with the span of the directive to blame.

mod algebra;
mod arguments;
pub mod attach;
mod bounds;
mod cache;
mod constants;
pub mod directives;
mod evaluate;
mod inline;
mod layout;
mod legality;
mod loops;
mod pragma;
mod prefetch;
mod prepack;
mod region;
mod rfactor;
mod select;
mod state;
mod storage;
mod tensorize;
mod text;
pub mod threads;
mod tree;

pub use bounds::{
    FEW_STEPS, Guard, Loop, Placed, StageBounds, attach_depth, infer_bounds, loop_min, needed,
    over_loops,
};

pub(crate) use inline::inline_stages;

pub use evaluate::{Knob, apply, apply_with_knobs};
pub use pragma::mark_unrolled;
pub use prefetch::PrefetchBox;
pub use prepack::{Free, Request, prepack_free, prepack_kernels};
pub use select::{
    Chosen, Fallback, Maker, TUNED, check_chosen, find, schedule_all, schedule_kernels,
    without_chosen,
};
pub use state::{
    Annotation, Attach, Axis, AxisId, AxisKind, Factor, Origin, Pragma, Prefetch, Relation,
    Schedule, Setting, Stage, StageId, StorageAlign, Tail, Tensor, Tensorize,
};
pub use storage::strides;
pub use text::apply_text;
pub use threads::threads_around;
pub use tree::print_tree;
