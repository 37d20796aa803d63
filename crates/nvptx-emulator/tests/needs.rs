//! The emulator accepts the same instructions as `ptxas`: every form of `tests/data/forms.txt`, for
//! every target and every version.

#[path = "../../nvptx-builder/tests/ptxas/mod.rs"]
mod ptxas;

use nvptx_emulator::Module;
use std::collections::BTreeMap;
use std::path::Path;

const FORMS: &str = include_str!("data/forms.txt");

const HEAD: &str = "\
.address_size 64
.const .u32 c = 1;
.visible .entry k(.param .u64 X)
{
.reg .pred %p<10>;
.reg .b16 %h<10>;
.reg .b32 %r<10>;
.reg .b64 %l<10>;
.reg .f32 %f<10>;
.reg .f64 %d<10>;
";

const TARGETS: [&str; 30] = [
    "sm_50", "sm_52", "sm_53", "sm_60", "sm_61", "sm_62", "sm_70", "sm_75", "sm_80", "sm_86",
    "sm_87", "sm_88", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100f", "sm_100a", "sm_103",
    "sm_103f", "sm_103a", "sm_110", "sm_110f", "sm_110a", "sm_120", "sm_120f", "sm_120a", "sm_121",
    "sm_121f", "sm_121a",
];

/// The versions, with the highest target of each.
const VERSIONS: [(&str, &str); 26] = [
    ("6.0", "sm_70"),
    ("6.1", "sm_70"),
    ("6.2", "sm_70"),
    ("6.3", "sm_75"),
    ("6.4", "sm_75"),
    ("6.5", "sm_75"),
    ("7.0", "sm_80"),
    ("7.1", "sm_86"),
    ("7.2", "sm_86"),
    ("7.3", "sm_86"),
    ("7.4", "sm_87"),
    ("7.5", "sm_87"),
    ("7.6", "sm_87"),
    ("7.7", "sm_87"),
    ("7.8", "sm_90"),
    ("8.0", "sm_90a"),
    ("8.1", "sm_90a"),
    ("8.2", "sm_90a"),
    ("8.3", "sm_90a"),
    ("8.4", "sm_90a"),
    ("8.5", "sm_90a"),
    ("8.6", "sm_100"),
    ("8.7", "sm_120"),
    ("8.8", "sm_121"),
    ("9.0", "sm_121"),
    ("9.3", "sm_121"),
];

fn text(version: &str, target: &str, forms: &[&str]) -> String {
    let body: String = forms.iter().map(|form| format!("{form}\n")).collect();
    format!(".version {version}\n.target {target}\n{HEAD}{body}L0: ret;\n}}\n")
}

/// Returns the error of each instruction that the emulator refuses.
fn refused(version: &str, target: &str, forms: &[&str]) -> BTreeMap<usize, String> {
    let one = |(at, form): (usize, &&str)| {
        let error = Module::parse(&text(version, target, &[form])).err()?;
        Some((at, error.to_string()))
    };
    forms.iter().enumerate().filter_map(one).collect()
}

/// Returns the errors of `ptxas`.
fn refused_by(
    ptxas: &Path,
    version: &str,
    target: &str,
    forms: &[&str],
) -> BTreeMap<usize, String> {
    // `ptxas` parses texts for older GPUs but generates no code for them.
    let number: u32 = target.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap();
    let arch = if number < 75 { "sm_75" } else { target };
    let Err(said) = ptxas::assemble(ptxas, &text(version, target, forms), arch) else {
        return BTreeMap::new();
    };
    let first = 2 + HEAD.lines().count() + 1;
    let error = |line: &str| {
        let (number, message) = line.split_once(", line ")?.1.split_once(';')?;
        let at = number.parse::<usize>().ok()?;
        assert!(at >= first, "{version}, {target}: {line}");
        Some((at - first, message.trim().to_string()))
    };
    let errors: BTreeMap<usize, String> = said.lines().filter_map(error).collect();
    assert!(!errors.is_empty(), "{version}, {target}: {said}");
    errors
}

#[test]
fn every_form_is_known() {
    let forms: Vec<&str> = FORMS.lines().collect();
    assert!(forms.len() > 700);
    let newest = refused("9.3", "sm_121a", &forms);
    // `wgmma` is gone there.
    let hopper = refused("9.3", "sm_90a", &forms);
    let refused = newest.into_iter().filter(|(at, _)| hopper.contains_key(at));
    let refused: BTreeMap<usize, String> = refused.collect();
    let list: Vec<String> =
        refused.iter().map(|(at, error)| format!("{}: {error}", forms[*at])).collect();
    assert!(list.is_empty(), "{}", list.join("\n"));
}

#[test]
fn the_emulator_accepts_what_ptxas_accepts() {
    let Some(ptxas) = ptxas::find() else { return };
    let forms: Vec<&str> = FORMS.lines().collect();
    let mut differences = Vec::new();
    let newest = TARGETS.iter().map(|target| ("9.3", *target));
    for (version, target) in newest.chain(VERSIONS) {
        let (ours, theirs) =
            (refused(version, target, &forms), refused_by(&ptxas, version, target, &forms));
        for (at, form) in forms.iter().enumerate() {
            // 8-bit floats: sm_90 has them since 7.8, sm_89 since 8.1; the table has the latter.
            let is_float8 = form.contains("e4m3x2") || form.contains("e5m2x2");
            if is_float8 && matches!(version, "7.8" | "8.0") {
                continue;
            }
            let (ours, theirs) = (ours.get(&at), theirs.get(&at));
            if ours.is_some() != theirs.is_some() {
                differences.push(format!("{version}, {target}: {form}: {ours:?}, not {theirs:?}"));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn headers_are_accepted_as_by_ptxas() {
    let ptxas = ptxas::find();
    for (version, target, why) in [
        ("6.2", "sm_75", "`.target sm_75` needs `.version 6.3` or later"),
        ("7.7", "sm_90", "`.target sm_90` needs `.version 7.8` or later"),
        ("8.5", "sm_100a", "`.target sm_100a` needs `.version 8.6` or later"),
        ("8.0", "sm_999", "unknown target `sm_999`: sm_50 to sm_121 are known"),
        ("12.0", "sm_80", "PTX 12.0: 6.0 to 9.3 are known"),
    ] {
        let text = text(version, target, &[]);
        let error = Module::parse(&text).unwrap_err().to_string();
        assert!(error.ends_with(why), "{error}");
        if let Some(ptxas) = &ptxas {
            let arch = if target == "sm_999" { "sm_80" } else { target };
            assert!(ptxas::assemble(ptxas, &text, arch).is_err(), "{version}, {target}");
        }
    }
}

#[test]
fn errors_name_the_requirement() {
    let error = |version: &str, target: &str, form: &str| {
        Module::parse(&text(version, target, &[form])).unwrap_err().to_string()
    };
    let copy = "cp.async.ca.shared.global [%r9], [%l9], 4;";
    let product = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f0,%f1,%f2,%f3}, \
                   {%r0,%r1,%r2,%r3}, {%r4,%r5}, {%f4,%f5,%f6,%f7};";
    assert!(
        error("7.0", "sm_75", copy)
            .ends_with("line 13: `cp.async.ca.shared.global` needs `.target sm_80` or later")
    );
    assert!(error("7.0", "sm_75", product).ends_with("needs `.target sm_80` or later"));
    assert!(error("6.0", "sm_70", copy).ends_with("needs `.target sm_80` or later"));
    let matrix = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%r9];";
    assert!(error("6.3", "sm_75", matrix).ends_with("needs `.version 6.5` or later"));
}
