//! Scans and scatters that make the work of a stage linear in its terms, without other directives.

use super::directives::{Scan, Scatter, apply_scan, apply_scatter, prefix_scan, scatter_axes};
use super::state::{Schedule, StageId};

/// Computes every stage of a default schedule by a scan or a scatter, where that keeps the order of
/// the terms.
pub fn apply_linear_work(schedule: &mut Schedule) {
    for id in schedule.order.clone() {
        if let Some(scan) = prefix_scan(schedule, id) {
            apply_scan(schedule, id, scan.axis);
        } else {
            scatter_axes(schedule, id)
                .into_iter()
                .for_each(|axis| apply_scatter(schedule, id, axis));
        }
    }
}

/// Computes the stages of a default schedule by the scans and scatters of another schedule, whose
/// stages in `order` are the same.
pub fn copy_linear_work(from: &Schedule, order: &[StageId], to: &mut Schedule) {
    for (at, id) in order.iter().enumerate() {
        let (stage, id) = (from.stage(*id), StageId(at));
        stage.annotations_of::<Scan>().for_each(|(_, scan)| apply_scan(to, id, scan.axis));
        let scatters = stage.annotations_of::<Scatter>();
        scatters.for_each(|(_, scatter)| apply_scatter(to, id, scatter.axis));
    }
}
