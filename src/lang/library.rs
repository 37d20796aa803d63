//! The operators that come with `tec`: the files of `lib/`, embedded.

/// Each file's name, as `import` says it, and its text.
pub(super) const LIB: &[(&str, &str)] = &[("nn.te", include_str!("../../lib/nn.te"))];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_lib_is_embedded() {
        let mut names: Vec<String> = std::fs::read_dir("lib")
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".te"))
            .collect();
        names.sort();
        assert_eq!(names, LIB.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>());
    }
}
