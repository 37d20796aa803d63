//! Tests of the table; `tests/golden/error/hint_*.te` test each row.

use super::*;
use rustc_hash::FxHashSet;

#[test]
fn helps_refer_only_to_captures_of_their_pattern() {
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
fn patterns_are_unique_and_well_formed() {
    let mut seen = FxHashSet::default();
    for hint in TABLE {
        assert!(seen.insert(hint.pattern), "`{}` is twice in the table", hint.pattern);
        assert!(hint.pattern.split(' ').filter(|element| *element == "@").count() <= 1);
        assert!(!hint.pattern.split(' ').any(str::is_empty), "`{}`", hint.pattern);
    }
}
