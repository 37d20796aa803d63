//! Records: round trips, incomplete lines, formats, merging, pruning, the best.

use super::*;

pub(super) fn context() -> Context {
    Context {
        workload: "w".to_string(),
        kernel: "k".to_string(),
        target: "x86-avx2".to_string(),
        machine: Machine { cpu: "a CPU".to_string(), cores: 2 },
        threads: 2,
        fp_contract: "fast".to_string(),
        vars: BTreeMap::new(),
        seed: 7,
        tec: "1.2.3".to_string(),
    }
}

fn ran(schedule: &str, times: &[f64]) -> Record {
    let outcome = Outcome::Measured { times: times.to_vec(), verdict: Verdict::Same };
    Record::new(&context(), schedule, Vec::new(), false, &outcome)
}

#[test]
fn every_outcome_survives_a_round_trip() {
    let outcomes = [
        Outcome::Measured { times: vec![0.1, 1e-7], verdict: Verdict::Same },
        Outcome::Measured { times: vec![0.5], verdict: Verdict::Within { ulp: 3 } },
        Outcome::Measured { times: vec![0.5], verdict: Verdict::Wrong { ulp: u64::MAX } },
        Outcome::Failed(TrialFailure::Refused("E0312: why".to_string())),
        Outcome::Failed(TrialFailure::Bug("a\nb".to_string())),
        Outcome::Failed(TrialFailure::Timeout),
        Outcome::Failed(TrialFailure::Crash { signal: 11 }),
        Outcome::Failed(TrialFailure::Memory),
        Outcome::Failed(TrialFailure::Call("no".to_string())),
        Outcome::Failed(TrialFailure::Runner("gone".to_string())),
    ];
    for outcome in outcomes {
        let decisions = vec![("tile".to_string(), "6 × 16".to_string())];
        let record = Record::new(&context(), "schedule k {\n}\n", decisions, true, &outcome);
        let line = record.to_line();
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        let parsed = parse(line.as_bytes());
        assert_eq!((&parsed.records, &parsed.notes), (&vec![record.clone()], &Vec::new()));
        assert_eq!(parsed.records[0].outcome(), outcome);
    }
}

#[test]
fn an_incomplete_last_line_is_ignored() {
    let (first, second) = (ran("a", &[1.0]), ran("b", &[2.0]));
    let (start, line) = (first.to_line(), second.to_line());
    for end in 1..line.len() - 1 {
        let text = start.clone() + &line[..end];
        let parsed = parse(text.as_bytes());
        assert_eq!(parsed.incomplete_line, Some(start.len()));
        assert_eq!(parsed.records, std::slice::from_ref(&first), "{end}");
        assert!(parsed.notes[0].starts_with("line 2 was not written to its end"));
        // Whoever appends ends it first: nothing else is lost.
        let parsed = parse((text + "\n" + &line).as_bytes());
        assert_eq!(
            (parsed.incomplete_line, parsed.records),
            (None, vec![first.clone(), second.clone()])
        );
        assert_eq!(parsed.notes.len(), 1);
    }
    let parsed = parse((start.clone() + line.trim_end()).as_bytes());
    assert_eq!(parsed.incomplete_line, Some(start.len()), "only its end is missing");
    assert_eq!((parsed.records.len(), parsed.notes.len()), (2, 0));
}

#[test]
fn other_formats_are_read_if_they_have_the_required_fields() {
    let mut value: serde_json::Value = serde_json::from_str(&ran("a", &[1.0]).to_line()).unwrap();
    value["format"] = 2.into();
    value["new_field"] = "x".into();
    let parsed = parse(format!("{value}\n").as_bytes());
    assert_eq!((parsed.records.len(), parsed.notes.len()), (1, 0));
    let mut lacking = value.clone();
    lacking.as_object_mut().unwrap().remove("schedule");
    let mut failed = value;
    failed["failure"] = "melted".into();
    let text = format!("{lacking}\n\n{failed}\n{{}}\nnonsense\n");
    let parsed = parse(text.as_bytes());
    assert_eq!(parsed.records, []);
    let says = |at: usize, text: &str| {
        assert!(parsed.notes[at].contains(text), "{:?}", parsed.notes);
    };
    says(0, "line 1 is left out: it is of format 2, this `tec` reads 1: missing field `schedule`");
    says(1, "line 3 is left out: it is of format 2 and has no schedule that ran");
    says(2, "line 4 is left out: it has no `format`");
    says(3, "line 5 is left out: it is no JSON: expected ident");
    assert_eq!((parsed.unread, parsed.has_foreign_lines), (4, true));
}

#[test]
fn notes_group_lines_that_are_ignored_for_the_same_reason() {
    let line = ran("a", &[1.0]).to_line();
    let text = format!("{{}}\n{{}}\n{line}{{\"format\":1\nnonsense\n{{\"for");
    let parsed = parse(text.as_bytes());
    assert_eq!((parsed.records.len(), parsed.unread, parsed.has_foreign_lines), (1, 3, true));
    let expected = [
        "lines 1 to 2 are left out: it has no `format`, so it is no record of `tec`",
        "line 4 was not written to its end, it is left out",
        "line 5 is left out: it is no JSON: expected ident",
        "line 6 was not written to its end, it is left out",
    ];
    assert_eq!(parsed.notes, expected);
    let times = line.replace("[1.0]", "[-1.0]");
    let threads = line.replace("\"threads\":2", "\"threads\":0");
    let impossible = parse((times + &threads).as_bytes());
    assert_eq!((impossible.records.len(), impossible.unread), (0, 2));
    let cut = parse(format!("{line}{{\"format\":1\n").as_bytes());
    assert_eq!((cut.unread, cut.has_foreign_lines), (0, false), "its writer was killed");
}

#[test]
fn merging_keeps_each_record_once() {
    let (a, b, c) = (ran("a", &[1.0]), ran("b", &[2.0]), ran("a", &[3.0]));
    let merged = merge(vec![vec![a.clone(), b.clone()], vec![b.clone(), c.clone(), a.clone()]]);
    assert_eq!(merged, [a, b, c]);
}

#[test]
fn pruning_keeps_the_fastest_of_each_group_and_what_is_wrong() {
    let wrong = Outcome::Measured { times: vec![0.1], verdict: Verdict::Wrong { ulp: 9 } };
    let wrong = Record::new(&context(), "wrong", Vec::new(), false, &wrong);
    let failed = Outcome::Failed(TrialFailure::Timeout);
    let failed = Record::new(&context(), "failed", Vec::new(), false, &failed);
    let other = Record { threads: 1, ..ran("slow", &[9.0]) };
    let (slow, fast, again) = (ran("slow", &[5.0]), ran("fast", &[1.0]), ran("fast", &[2.0]));
    let all = vec![slow.clone(), wrong.clone(), other.clone(), fast, failed, again.clone()];
    // A schedule counts once, by its last time; a group stands where its last record stood.
    assert_eq!(prune(all.clone(), 1), [wrong.clone(), other.clone(), again.clone()]);
    assert_eq!(prune(all, 2), [wrong, other, slow, again]);
}

#[test]
fn pruning_does_not_change_the_best() {
    let mut state = 3u64;
    let mut draw = |most: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % most
    };
    for round in 0..300 {
        let records: Vec<Record> = (0..30)
            .map(|_| Record {
                in_turns: draw(4) == 0,
                target: ["x86-64", "x86-avx2"][draw(2) as usize].to_string(),
                threads: 1 + draw(2) as usize,
                ..ran(&format!("s{}", draw(9)), &[1.0 + draw(1 << 30) as f64])
            })
            .collect();
        let kept = prune(records.clone(), 1 + draw(3) as usize);
        let targets = [None, Some("x86-64".to_string()), Some("x86-avx2".to_string())];
        for target in targets {
            let filter = Filter { target, ..Filter::default() };
            assert_eq!(best(&kept, &filter), best(&records, &filter), "{round}");
        }
    }
}

#[test]
fn the_best_is_right_and_measured_interleaved() {
    let filter = Filter::default();
    let lucky = ran("lucky", &[1.0, 1.0, 9.0]);
    let slow = ran("slow", &[4.0]);
    let records = [slow.clone(), lucky.clone()];
    assert_eq!(best(&records, &filter), Some(&lucky), "by the median");
    let in_turns = |schedule: &str, time| Record { in_turns: true, ..ran(schedule, &[time]) };
    let records = [lucky, slow, in_turns("slow", 3.0), in_turns("lucky", 3.5)];
    assert_eq!(best(&records, &filter).unwrap().schedule, "slow");
    let other = Record { target: "x86-64".to_string(), ..ran("other", &[0.1]) };
    let mut records = records.to_vec();
    records.insert(0, other);
    assert_eq!(best(&records, &filter).unwrap().schedule, "slow", "the last record's group");
    let of_target = Filter { target: Some("x86-64".to_string()), ..Filter::default() };
    assert_eq!(best(&records, &of_target).unwrap().schedule, "other");
    let of_nothing = Filter { threads: Some(5), ..Filter::default() };
    assert_eq!(best(&records, &of_nothing), None);
}
