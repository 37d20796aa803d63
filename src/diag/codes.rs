//! The error codes. `build.rs` embeds the page of each, `docs/errors/CODE.md`; a new code needs
//! only its page.
//!
//! E01xx syntax and files · E02xx names, types and values · E03xx schedules · E04xx targets and
//! code generation · E05xx modules, files written, arguments of `tec run`.

/// Each code with its page, sorted.
const PAGES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/error_codes.rs"));

/// Returns the page of a code, as Markdown: `# E0101: title`, the meaning, an example, the remedy.
pub fn explain(code: &str) -> Option<&'static str> {
    PAGES.binary_search_by_key(&code, |(code, _)| code).ok().map(|i| PAGES[i].1)
}

/// Returns every code with its title, sorted.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    PAGES.iter().map(|(code, page)| {
        let title = page.lines().next().unwrap_or_default();
        let title = title.trim_start_matches("# ").trim_start_matches(code);
        (*code, title.trim_start_matches(':').trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_a_title_and_an_example() {
        for (code, page) in PAGES {
            assert!(code.len() == 5 && code.starts_with('E'), "{code}.md is not an error page");
            assert!(page.starts_with(&format!("# {code}: ")), "the title of {code}.md");
            assert!(page.contains("\n```"), "{code}.md shows no example");
        }
        assert!(all().all(|(_, title)| !title.is_empty()));
    }

    #[test]
    fn explains_by_code() {
        assert!(explain("E0101").unwrap().starts_with("# E0101: "));
        assert_eq!(explain("E9999"), None);
    }
}
