use super::*;

#[test]
fn samples_parse() {
    for folder in ["samples", "lib", "tests/golden/lower"] {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|e| e == "te") {
                let text = std::fs::read_to_string(&path).unwrap();
                if let Err(diag) = parse_file(&text, 0) {
                    panic!(
                        "{}: {diag} {:?}",
                        path.display(),
                        &text[diag.span.unwrap().start as usize..]
                            .chars()
                            .take(50)
                            .collect::<String>()
                    );
                }
            }
        }
    }
}
