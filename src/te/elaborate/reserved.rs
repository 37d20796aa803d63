//! Names that an exported symbol must not have, from `reserved_names.txt`: words under headings in
//! brackets.

use rustc_hash::FxHashMap;
use std::sync::LazyLock;

static NAMES: LazyLock<FxHashMap<&str, &str>> = LazyLock::new(|| {
    let mut names = FxHashMap::default();
    let mut heading = "";
    for line in include_str!("reserved_names.txt").lines() {
        match line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(text) => heading = text,
            None => names.extend(line.split(' ').map(|word| (word, heading))),
        }
    }
    names
});

/// Returns why a kernel cannot have a name, if it cannot.
pub fn refused_kernel_name(name: &str) -> Option<String> {
    if name.starts_with('_') {
        Some("an exported symbol does not start with `_`".to_string())
    } else if name.starts_with("tec_") {
        Some("names that start with `tec_` are reserved for the compiler".to_string())
    } else if name.ends_with("_dl") {
        let why = "names that end in `_dl` are reserved for the entries that take DLPack tensors";
        Some(why.to_string())
    } else {
        reserved_name(name).map(|what| format!("`{name}` is {what}"))
    }
}

/// Returns the heading of a name that a kernel cannot have.
fn reserved_name(name: &str) -> Option<&'static str> {
    NAMES.get(name).copied()
}

#[cfg(test)]
mod tests {
    use super::reserved_name;

    #[test]
    fn reserved_names_have_the_heading_of_their_list() {
        assert_eq!(reserved_name("while"), Some("a keyword of C or C++"));
        assert_eq!(reserved_name("exp"), Some("a name of the C library"));
        assert_eq!(reserved_name("malloc"), Some("a name of the C library"));
        assert!(reserved_name("main").is_some());
        assert_eq!(reserved_name("matmul"), None);
        assert_eq!(reserved_name(""), None);
    }
}
