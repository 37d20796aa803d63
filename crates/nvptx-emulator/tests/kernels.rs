//! The hand-made kernels have correct results and no findings; each injected defect is reported.

mod common;

use common::{BF16_LDMATRIX, BF16_MMA, SGEMM, bf16_product, line_of, replace_nth, sgemm};
use nvptx_emulator::FindingKind;

#[test]
fn sgemm_is_clean() {
    for (m, n, k) in [(128, 128, 64), (256, 384, 200)] {
        let (report, error) = sgemm(SGEMM, m, n, k);
        assert!(report.is_clean(), "{report}");
        assert_eq!(error, 0.0);
        assert_eq!(report.counters.bank_conflicts(), 0, "{report}");
        let (sectors, ideal) = report.counters.sectors();
        assert_eq!(sectors, ideal, "{report}");
        assert_eq!(report.counters.count("fma"), (m * n * k) as u64);
    }
    let (report, _) = sgemm(SGEMM, 128, 128, 64);
    assert_eq!(report.counters.wavefronts(), (6656, 6656));
    assert_eq!(report.counters.sectors(), (4096, 4096));
}

#[test]
fn bf16_products_are_clean() {
    for text in [BF16_MMA, BF16_LDMATRIX] {
        let (report, error) = bf16_product(text, 128, 192, 96);
        assert!(report.is_clean(), "{report}");
        assert!(error < 1e-5, "{error}");
        // Only the copies have conflicts: the pitch of the 64-byte rows suits the fragments.
        for i in report.counters.instructions.iter().filter(|i| i.conflicts() > 0) {
            assert!(i.opcode.starts_with("cp.async"), "{report}");
        }
    }
}

/// Asserts that a finding of this kind is reported at this line (or race pair).
#[track_caller]
fn reported(report: &nvptx_emulator::Report, kind: FindingKind, line: u32) {
    let hit = |f: &nvptx_emulator::Finding| f.line == Some(line) || f.other_line == Some(line);
    assert!(report.of(kind).any(hit), "no {kind:?} at line {line}:\n{report}");
}

#[test]
fn missing_barriers_are_found() {
    let text = SGEMM.replace("bar.sync 0;", "");
    let (report, _) = sgemm(&text, 128, 128, 64);
    reported(&report, FindingKind::SharedRace, line_of(&text, "st.shared.v4", 0));
    assert!(report.has(FindingKind::UninitialisedRead), "{report}");
}

#[test]
fn a_missing_loop_barrier_is_found() {
    let text = replace_nth(SGEMM, "bar.sync 0;", "", 1);
    let (report, _) = sgemm(&text, 128, 128, 64);
    reported(&report, FindingKind::SharedRace, line_of(&text, "@%p0 st.shared.v4", 0));
}

#[test]
fn a_missing_first_barrier_is_found() {
    let text = replace_nth(SGEMM, "bar.sync 0;", "", 0);
    let (report, _) = sgemm(&text, 128, 128, 64);
    reported(&report, FindingKind::SharedRace, line_of(&text, "st.shared.v4", 0));
}

#[test]
fn a_missing_buffer_toggle_is_found() {
    let text = SGEMM
        .replace(&format!("mov.u32 %r20, {};", 8 * 132 * 4), "mov.u32 %r20, 0;")
        .replace("mov.u32 %r21, 4096;", "mov.u32 %r21, 0;");
    let (report, _) = sgemm(&text, 128, 128, 64);
    reported(&report, FindingKind::SharedRace, line_of(&text, "@%p0 st.shared.v4", 0));
}

#[test]
fn a_misaligned_store_is_found() {
    let text = replace_nth(SGEMM, "st.global.v4.f32 [%rd6+256]", "st.global.v4.f32 [%rd6+252]", 0);
    let (report, _) = sgemm(&text, 128, 128, 64);
    reported(&report, FindingKind::Misaligned, line_of(&text, "%rd6+252", 0));
    assert!(report.has(FindingKind::Unwritten), "{report}");
}

#[test]
fn a_misaligned_load_is_found() {
    let text = replace_nth(SGEMM, "[%r18+256]", "[%r18+260]", 0);
    let (report, error) = sgemm(&text, 128, 128, 64);
    reported(&report, FindingKind::Misaligned, line_of(&text, "[%r18+260]", 0));
    assert!(error > 0.0);
}

#[test]
fn a_short_shared_array_is_found() {
    let text = SGEMM.replace("As[8448]", "As[8192]");
    let (report, _) = sgemm(&text, 128, 128, 64);
    assert!(report.has(FindingKind::OutOfBounds), "{report}");
}

#[test]
fn a_missing_pad_costs_bank_conflicts() {
    // Without the pad, only the transposed stores of A have conflicts, two-way.
    let mut text = SGEMM.replace("%r6, 132, %r5", "%r6, 128, %r5").replace("4224", "4096");
    for k in (0..8).rev() {
        for half in [0, 256] {
            let (old, new) = (k * 528 + half, k * 512 + half);
            text = text.replace(&format!("[%r17+{old}]"), &format!("[%r17+#{new}]"));
        }
        text = text.replace(&format!("[%r13+{}]", k * 528), &format!("[%r13+#{}]", k * 512));
    }
    let (report, error) = sgemm(&text.replace('#', ""), 128, 128, 64);
    assert!(report.is_clean(), "{report}");
    assert_eq!(error, 0.0);
    for i in &report.counters.instructions {
        let is_transposed = i.opcode == "st.shared.f32";
        let factor = if is_transposed { 2 } else { 1 };
        assert_eq!(i.wavefronts, factor * i.ideal_wavefronts, "line {}", i.line);
    }
}

#[test]
fn a_wait_for_too_few_groups_is_found() {
    for text in [BF16_MMA, BF16_LDMATRIX] {
        let text = text.replace("wait_group 1", "wait_group 2");
        let (report, _) = bf16_product(&text, 64, 64, 96);
        let load = if text.contains("ldmatrix.sync") { "ldmatrix.sync" } else { "ld.shared.b32" };
        reported(&report, FindingKind::InFlight, line_of(&text, load, 0));
    }
}

#[test]
fn a_missing_wait_group_is_found() {
    for text in [BF16_MMA, BF16_LDMATRIX] {
        let text = text.replace("cp.async.wait_group 1;", "");
        let (report, _) = bf16_product(&text, 64, 64, 96);
        assert!(report.has(FindingKind::InFlight), "{report}");
    }
}

#[test]
fn missing_barriers_of_the_pipeline_are_found() {
    for text in [BF16_MMA, BF16_LDMATRIX] {
        for nth in 0..2 {
            let text = replace_nth(text, "bar.sync 0;", "", nth);
            let (report, _) = bf16_product(&text, 64, 64, 96);
            assert!(report.has(FindingKind::SharedRace), "barrier {nth}:\n{report}");
        }
    }
}

#[test]
fn a_pitch_of_64_bytes_costs_bank_conflicts() {
    let text = BF16_MMA
        .replace(", 80, %r", ", 64, %r")
        .replace("%r12+2560", "%r12+2048")
        .replace("%r19+2560", "%r19+2048");
    // The offsets of the fragments move with the pitch.
    let mut out = String::new();
    for line in text.lines() {
        let at = ["[%r27+", "[%r28+"].iter().find_map(|p| line.find(p).map(|i| i + p.len()));
        match at {
            Some(at) => {
                let end = at + line[at..].find(']').unwrap();
                let old: u32 = line[at..end].parse().unwrap();
                let new = old / 80 * 64 + old % 80;
                out += &format!("{}{new}{}\n", &line[..at], &line[end..]);
            }
            None => out += &format!("{line}\n"),
        }
    }
    let (report, error) = bf16_product(&out, 64, 64, 96);
    assert!(report.is_clean(), "{report}");
    assert!(error < 1e-5, "{error}");
    for i in report.counters.instructions.iter().filter(|i| i.opcode == "ld.shared.b32") {
        assert_eq!((i.wavefronts, i.ideal_wavefronts), (48, 12), "line {}", i.line);
    }
}
