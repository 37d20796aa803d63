//! Schedules, which say how to compute a kernel and never change its result.
//!
//! [`schedule_kernels`] chooses the schedule of each kernel. [`apply`] runs its statements from top
//! to bottom: each directive checks its names and arguments and changes the [`Schedule`].
//! [`directives`] is the table of directives and says how to add one. [`infer_bounds`] then runs a
//! list of phases that compute all regions and extents and check what depends on them; their errors
//! point to the directive that is illegal.

mod annotations;
mod bounds;
mod constants;
mod converted_copy;
mod derived_stage;
pub mod directives;
mod evaluate;
mod fused;
mod in_place;
mod inline;
mod layout;
mod legality;
mod linear_work;
mod phases;
mod prepack;
mod reads;
mod recomputed;
mod recurrence;
mod region;
mod required;
mod select;
mod sliding;
mod sorts;
mod state;
mod step_order;
mod storage;
mod templates;
mod text;
pub mod threads;
mod tree;
mod unread;
mod versions;
mod whole_tiles;

pub use annotations::StageAnnotation;
pub use bounds::{
    Guard, Loop, StageBounds, attach_depth, axis_value, is_terms_only, loop_extent, loop_min,
    over_loops,
};
pub use directives::prefetch::PrefetchRegion;
pub use directives::store_nontemporal::StoreNontemporal;
pub use directives::{
    PrefixScan, Scan, Scatter, ScatteredAxis, Tensorize, is_scattered, mark_unrolled, prefix_scan,
    scatter_axes, scattered_axes, strides,
};
pub use evaluate::{Knob, apply, apply_with_knobs, apply_with_legality};
pub use fused::{fused_groups, group_of};
pub use in_place::{check_updates, reads_overwritten};
pub(crate) use inline::inline_stages;
pub use legality::in_order_of_loops;
pub use linear_work::{apply_linear_work, copy_linear_work};
pub use phases::{BoundedSchedule, infer_bounds, order_as};
pub use prepack::{InputSelector, PrepackedInputs, prepack_kernels, prepack_layout_free};
pub use recomputed::note_recomputed;
pub use recurrence::{in_same_recurrence, outlives_its_step};
pub use select::{
    AutoScheduler, Fallback, ScheduleSelector, TUNED, check_selector, find, is_narrower,
    note_ignored_selector, schedule_all, schedule_kernels, with_all_features,
};
pub use sliding::{StoragePlace, storage_place};
pub use sorts::{sort_of, sort_place, sorted_count};
pub use state::{
    Annotation, Attach, Axis, AxisId, AxisKind, Factor, Legality, Origin, Relation, Schedule,
    Stage, StageId, Tail, Tensor,
};
pub use step_order::step_depth;
pub use text::{apply_lines, apply_text};
pub use threads::threads_around;
pub use tree::print_tree;
pub use versions::Version;
