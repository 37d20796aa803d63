//! Build-time tables: the error codes, from the files of `docs/errors`.

use std::{env, fs, path::Path};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    error_codes();
}

/// Writes `$OUT_DIR/error_codes.rs`: each code and the text of its page, sorted by code. A new page
/// in `docs/errors` is all that a new code needs.
fn error_codes() {
    println!("cargo::rerun-if-changed=docs/errors");
    let mut codes: Vec<String> = fs::read_dir("docs/errors")
        .expect("docs/errors holds the error pages")
        .map(|entry| entry.expect("docs/errors can be listed").file_name())
        .map(|name| name.into_string().expect("error pages have plain names"))
        .filter_map(|name| name.strip_suffix(".md").map(str::to_string))
        .collect();
    codes.sort();
    let rows: String = codes
        .iter()
        .map(|code| {
            format!(
                "    (\"{code}\", \
                 include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/docs/errors/{code}.md\"))),\n"
            )
        })
        .collect();
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    fs::write(Path::new(&out).join("error_codes.rs"), format!("&[\n{rows}]\n"))
        .expect("OUT_DIR can be written");
}
