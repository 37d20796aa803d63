//! Names that an exported symbol must not have: `reserved_names.txt`, words under a heading in
//! brackets that says what they are.

/// What a name is already, if it cannot be a kernel's.
pub fn reserved_name(name: &str) -> Option<&'static str> {
    let mut heading = "";
    for line in include_str!("reserved_names.txt").lines() {
        match line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(text) => heading = text,
            None if line.split(' ').any(|word| word == name) => return Some(heading),
            None => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::reserved_name;

    #[test]
    fn headings_and_words() {
        assert_eq!(reserved_name("while"), Some("a keyword of C or C++"));
        assert_eq!(reserved_name("exp"), Some("a name of the C library"));
        assert_eq!(reserved_name("malloc"), Some("a name of the C library"));
        assert_eq!(reserved_name("main").is_some(), true);
        assert_eq!(reserved_name("matmul"), None);
        assert_eq!(reserved_name(""), None);
    }
}
