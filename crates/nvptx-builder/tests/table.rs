//! Checks the table of requirements: each instruction is built at its lowest target with the
//! version of the table and is refused on the target below; `ptxas` accepts it at this version and
//! refuses it at the one below.

mod cases;
mod ptxas;

use cases::{CASES, Case};
use nvptx_builder::*;

/// The versions of PTX since that of sm_75.
const VERSIONS: &[(u8, u8)] = &[
    (6, 3),
    (6, 4),
    (6, 5),
    (7, 0),
    (7, 1),
    (7, 2),
    (7, 3),
    (7, 4),
    (7, 5),
    (7, 6),
    (7, 7),
    (7, 8),
    (8, 0),
    (8, 1),
    (8, 2),
    (8, 3),
    (8, 4),
    (8, 5),
    (8, 6),
    (8, 7),
    (8, 8),
    (9, 0),
];

fn build(target: Target, cases: &[&Case]) -> Result<Ptx, Errors> {
    let mut module = Module::new(target);
    for (i, (_, _, emit)) in cases.iter().enumerate() {
        let e = module.entry(&format!("k{i}"));
        e.max_threads(128, 1, 1);
        emit(e);
    }
    module.finish()
}

/// Returns the version before.
fn below(version: Version) -> Option<Version> {
    let at = VERSIONS.iter().position(|&v| Version::new(v.0, v.1) == version)?;
    let (major, minor) = *VERSIONS.get(at.checked_sub(1)?)?;
    Some(Version::new(major, minor))
}

#[test]
fn every_row_has_a_case() {
    for feature in Feature::ALL {
        assert!(CASES.iter().any(|case| case.0 == *feature), "{feature:?}");
    }
}

#[test]
fn modules_have_the_lowest_version() {
    for case in CASES {
        let needs = case.0.needs();
        let target = needs.lowest();
        let ptx = build(target, &[case]).unwrap_or_else(|e| panic!("{}: {e}", case.1));
        assert_eq!(ptx.version, needs.version.max(target.version()), "{}", case.1);
        assert!(ptx.text.contains(case.1), "{} is not in\n{}", case.1, ptx.text);
    }
}

#[test]
fn lower_targets_are_refused() {
    for case in CASES {
        let needs = case.0.needs();
        let lower = Target::all().filter(|target| !needs.met_by(*target));
        for target in lower.take(2) {
            let errors = build(target, &[case]).expect_err(case.1);
            let refused = |error: &Error| {
                error.instruction.contains(case.1)
                    && error.kind == ErrorKind::Target { needs, target }
            };
            assert!(errors.0.iter().any(refused), "{errors}");
        }
    }
}

#[test]
fn ptxas_accepts_each_row_at_its_lowest_version() {
    let Some(ptxas) = ptxas::find() else { return };
    let mut refused = Vec::new();
    for case in CASES {
        let target = case.0.needs().lowest();
        let ptx = build(target, &[case]).unwrap();
        if let Err(said) = ptxas::assemble(&ptxas, &ptx.text, &target.to_string()) {
            refused.push(format!("{} for {target} in PTX {}:\n{said}", case.1, ptx.version));
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn ptxas_refuses_each_row_below_its_version() {
    let Some(ptxas) = ptxas::find() else { return };
    for case in CASES {
        let target = case.0.needs().lowest();
        let ptx = build(target, &[case]).unwrap();
        let lower = below(ptx.version).filter(|lower| *lower >= target.version());
        if let Some(lower) = lower {
            let text = ptx
                .text
                .replace(&format!(".version {}", ptx.version), &format!(".version {lower}"));
            let taken = ptxas::assemble(&ptxas, &text, &target.to_string()).is_ok();
            assert!(!taken, "`{}` is in PTX {lower} already", case.1);
        }
    }
}

#[test]
fn targets_have_the_versions_that_ptxas_knows() {
    let Some(ptxas) = ptxas::find() else { return };
    for target in Target::all() {
        let text = |version: Version| {
            format!(".version {version}\n.target {target}\n.address_size 64\n.entry k() {{ ret; }}")
        };
        let version = target.version();
        let taken = |version| ptxas::assemble(&ptxas, &text(version), &target.to_string()).is_ok();
        assert!(taken(version), "{target} at {version}");
        if let Some(lower) = below(version) {
            assert!(!taken(lower), "{target} is in PTX {lower} already");
        }
    }
}
