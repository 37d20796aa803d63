//! Compares the results of a candidate with the reference output.

use super::super::data;
use crate::ir::DType;
use crate::ir::interp::Tensor;
use crate::te::{Body, Graph};
use crate::tune::Verdict;

/// Returns the bound of the difference between reordered results and those of the declared order,
/// relative to the largest result: sums of `n` terms in two orders differ by less than `n`
/// roundings each, and later stages round once more. The factor 4 allows for stages that use such
/// sums.
pub fn bound(graph: &Graph) -> f64 {
    let mut bound = 0.0;
    for stage in &graph.stages {
        let types = stage.buffers.iter().map(|buffer| buffer.dtype);
        let stored = types.clone().map(rounding).fold(0.0, f64::max);
        bound += 2.0 * stored;
        if let Body::Reduce(reduction) = &stage.body {
            let summed = types.map(|dtype| rounding(dtype.compute_type())).fold(0.0, f64::max);
            // A run-time number of terms is taken to be large.
            let extents = reduction.axes.iter().map(|axis| axis.extent.as_int().unwrap_or(1 << 12));
            bound += 4.0 * summed * extents.map(|extent| extent.max(1) as f64).product::<f64>();
        }
    }
    bound.min(0.125)
}

/// Returns half a unit in the last place of 1.
fn rounding(dtype: DType) -> f64 {
    match dtype {
        DType::Float64 => f64::EPSILON / 2.0,
        DType::Float32 => f64::from(f32::EPSILON) / 2.0,
        DType::Float16 => 2f64.powi(-11),
        DType::BFloat16 => 2f64.powi(-8),
        _ => 0.0,
    }
}

/// Compares outputs with the reference; `bound` is given if the schedule reorders sums.
pub fn verdict(actual: &[&[u8]], expected: &[Tensor], bound: Option<f64>) -> Verdict {
    assert_eq!(actual.len(), expected.len(), "one for each output");
    let (mut ulp, mut differs, mut wrong) = (0.0, false, false);
    for (actual, expected) in actual.iter().zip(expected) {
        if *actual == &expected.data[..] {
            continue;
        }
        let actual = Tensor { data: actual.to_vec(), ..expected.clone() };
        let difference = data::compare(&actual, expected);
        if difference.elements == 0 {
            continue;
        }
        differs = true;
        ulp = f64::max(ulp, difference.ulp);
        wrong |= bound.is_none_or(|bound| data::beyond_largest(&actual, expected, bound) > 0);
    }
    let ulp = ulp as u64;
    match (differs, wrong) {
        (false, _) => Verdict::Same,
        (true, false) => Verdict::Within { ulp },
        (true, true) => Verdict::Wrong { ulp },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(values: &[f32]) -> Tensor {
        let data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Tensor { dtype: DType::Float32, shape: vec![values.len() as i64], data }
    }

    #[test]
    fn results_must_be_bit_exact_unless_sums_are_reordered() {
        let expected = [tensor(&[1.0, -2.0, f32::NAN])];
        let next = f32::from_bits(1.0f32.to_bits() + 3);
        let near = tensor(&[next, -2.0, f32::NAN]);
        let far = tensor(&[1.5, -2.0, f32::NAN]);
        let lost = tensor(&[1.0, -2.0, 0.0]);
        let of = |actual: &Tensor, bound| verdict(&[&actual.data], &expected, bound);
        assert_eq!(of(&expected[0], None), Verdict::Same);
        assert_eq!(of(&near, None), Verdict::Wrong { ulp: 3 });
        assert_eq!(of(&near, Some(1e-6)), Verdict::Within { ulp: 3 });
        assert!(matches!(of(&far, Some(1e-6)), Verdict::Wrong { .. }));
        assert!(matches!(of(&lost, Some(1e-6)), Verdict::Wrong { .. }));
    }
}
