//! Every operation of the SIMD back end at every number of lanes, on special values, against the
//! interpreter.

use super::harness::Native;
use super::ops::{self, Case};
use crate::ir::visit::for_each_stmt;
use crate::ir::{Kernel, Stmt};
use crate::lower::drop_hints::drop_hints;
use crate::lower::expand_math::expand_math;
use crate::lower::legalize_vectors::legalize_vectors;
use crate::lower::outline_simd::outline_simd;
use crate::target::Target;
use std::collections::BTreeSet;

/// Lanes of the vectors before `legalize_vectors`.
const LANES: [u32; 12] = [1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 32, 64];

/// The targets of the SIMD back end that this machine can run.
pub(super) fn simd_targets() -> Vec<Target> {
    let all = ["x86-avx2", "x86-avx512"].map(|name| Target::parse(name).expect("a target"));
    let (here, elsewhere): (Vec<Target>, Vec<Target>) =
        all.into_iter().partition(Target::runs_here);
    elsewhere.iter().for_each(|target| eprintln!("skipped: this machine has no {target}"));
    here
}

/// Legalizes a kernel for the back end. Returns also whether it has a nest for the SIMD back end.
pub(super) fn legal(kernel: &Kernel, target: &Target) -> (Kernel, bool) {
    let kernel = outline_simd(kernel.clone(), target).expect("it never fails");
    let taken = is_taken(&kernel.body);
    let kernel = drop_hints(kernel, target).expect("it never fails");
    let kernel = legalize_vectors(kernel, target).expect("it never fails");
    (expand_math(kernel, target).expect("it never fails"), taken)
}

fn is_taken(stmt: &Stmt) -> bool {
    let mut taken = matches!(stmt, Stmt::SimdKernel { .. });
    for_each_stmt(stmt, &mut |inner| taken = taken || is_taken(inner));
    taken
}

/// Marks a whole kernel as a nest for the SIMD back end, because `outline_simd` marks none of
/// scalars.
fn marked(kernel: Kernel) -> Kernel {
    Kernel { body: Stmt::SimdKernel { body: Box::new(kernel.body) }, ..kernel }
}

/// Runs cases at some numbers of lanes. Returns the names of those that the SIMD back end does not
/// compile.
fn compare(cases: &[Case], lanes: &[u32], target: &Target) -> BTreeSet<String> {
    let mut refused = BTreeSet::new();
    let expected: Vec<Vec<u8>> = cases.iter().map(Case::interpreted).collect();
    let mut wrong = Vec::new();
    for lanes in lanes {
        let mut compiled = Vec::new();
        for (case, expected) in cases.iter().zip(&expected) {
            let name = case.kernel.name.clone();
            let Case { kernel, .. } = case.in_vectors(*lanes);
            let (kernel, taken) = legal(&kernel, target);
            match (taken, lanes) {
                (true, _) => compiled.push((Case { kernel, ..case.clone() }, expected)),
                (false, 1) if !refused.contains(&name) => {
                    // An operation without a vector instruction is not selected for scalars of a
                    // nest either.
                    let two = case.in_vectors(2).kernel;
                    if legal(&two, target).1 {
                        compiled.push((Case { kernel: marked(kernel), ..case.clone() }, expected));
                    }
                }
                _ => drop(refused.insert(name)),
            }
        }
        let kernels: Vec<Kernel> = compiled.iter().map(|(case, _)| case.kernel.clone()).collect();
        let native = Native::build(&kernels, target);
        for (case, expected) in compiled {
            if let Err(message) = case.compare_with(&native, expected) {
                wrong.push(format!("{target}, {lanes} lanes: {message}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    refused
}

/// The cases without an instruction on a target.
fn expected_refusals(cases: &[Case], names: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let all = cases.iter().map(|case| case.kernel.name.clone());
    all.filter(|name| names(name)).collect()
}

#[test]
fn binary_operations_equal_the_interpreter() {
    for target in simd_targets() {
        let cases = ops::binary_cases();
        assert_eq!(compare(&cases, &LANES, &target), BTreeSet::new());
    }
}

#[test]
fn unary_operations_and_choices_equal_the_interpreter() {
    for target in simd_targets() {
        let mut cases = ops::unary_cases();
        cases.extend(ops::select_cases());
        assert_eq!(compare(&cases, &LANES, &target), BTreeSet::new());
    }
}

#[test]
fn casts_equal_the_interpreter() {
    for target in simd_targets() {
        let cases = ops::cast_cases();
        let none = |name: &str| {
            let half = name == "float64_to_float16" || name == "float64_to_bfloat16";
            let unsigned = name.starts_with("uint64_to_") && name.contains("float");
            let to_unsigned = name.contains("float") && name.ends_with("_to_uint64");
            half || target.vector_bytes < 64 && (unsigned || to_unsigned)
        };
        let refused = compare(&cases, &LANES, &target);
        assert_eq!(refused, expected_refusals(&cases, none));
    }
}

#[test]
fn operations_with_constants_equal_the_interpreter() {
    for target in simd_targets() {
        let cases = ops::other_cases();
        assert_eq!(compare(&cases, &[1, 8, 16], &target), BTreeSet::new());
    }
}
