//! The table itself; what each row gives is in `tests/golden/error/hint_*.te`.

use super::*;
use rustc_hash::FxHashSet;

#[test]
fn every_help_repeats_only_what_its_pattern_matches() {
    for hint in TABLE {
        let mut rest = hint.help;
        while let Some((_, after)) = rest.split_once('{') {
            let (name, end) = after.split_once('}').unwrap_or_else(|| panic!("{hint:?}"));
            rest = end;
            let name = name.trim_matches(['(', ')']);
            if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
                continue;
            }
            let known = hint.pattern.split(' ').any(|element| match element {
                "<t>" => name == "t",
                _ => {
                    let own = element.trim_start_matches(['$', '#', '*', '%', '\'']);
                    own != element && own.split(':').next() == Some(name)
                }
            });
            assert!(known, "`{name}` in {hint:?}");
        }
    }
}

#[test]
fn patterns_are_told_apart() {
    let mut seen = FxHashSet::default();
    for hint in TABLE {
        assert!(seen.insert(hint.pattern), "`{}` stands twice", hint.pattern);
        assert!(hint.pattern.split(' ').filter(|element| *element == "@").count() <= 1);
        assert!(!hint.pattern.split(' ').any(str::is_empty), "`{}`", hint.pattern);
    }
}
