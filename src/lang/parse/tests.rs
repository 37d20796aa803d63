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
#[test]
fn show() {
    let k = |s: &str| format!("kernel f(n = 1) {{\n    {s}\n}}\n");
    for text in [
        k("output C[i: n = A[i] + 1.0"),
        k("output C[i] = 1"),
        k("output C = 1"),
        k("let x = 12abc"),
        k("let x = 1."),
        k("let x = 1.5.2"),
        k("let x = .5"),
        k("let x = 0xg"),
        k("let x = 1e"),
        k("let x = 1_000"),
        k("let x = a < b < c"),
        k("let x = a == b == c"),
        k("let x = 1;"),
        k("let x = a && b"),
        k("let x = a || b"),
        k("let x = !a"),
        k("let x = a ** 2"),
        k("let x = a == not b"),
        k("let x = a + if b then c else d"),
        k("let x = not"),
        k("let x = if a then b"),
        k("if a { let x = 1 } elif b { }"),
        k("for x in [1] { }"),
        k("x = 1"),
        k("C[i: n] = 1"),
        k("C.split(i)"),
        k("inptu A: float32[n]"),
        k("let x = a b"),
        k("let x = (a"),
        k("let x = f(a, b"),
        k("let x = f(a,, b)"),
        k("let x = f(,)"),
        k("let input = 1"),
        k("let x = input + 1"),
        k("let x = A[reduce]"),
        k("let x ="),
        k("let x = A[i][j]"),
        k("assert a"),
        k("assert a, b"),
        k("assert a, \"x"),
        k("reduce k: 0"),
        k("reduce k: 0, 1"),
        k("input A float32"),
        k("input A: float32(n)"),
        k("let a = b = c"),
        k("let x = a + "),
        k("let x = a + * b"),
        k("let x = // foo"),
        k("// foo"),
        k("/* foo */"),
        k("let x = a × b"),
        k("let x = a \u{a0} b"),
        k("let x = 'a'"),
        k("return x"),
        k("let x = \"abc\""),
        k("let x = a ? b : c"),
        k("let x = A[1:2]"),
        "kernal f() {}".into(),
        "kernel f {}".into(),
        "kernel f() {".into(),
        "kernel () {}".into(),
        "kernel f(n:) {}".into(),
        "kernel f(n = ) {}".into(),
        "kernel f(n: int) {}".into(),
        "kernel f(2) {}".into(),
        "kernel if() {}".into(),
        "input A: float32[n]".into(),
        "kernel f() { } }".into(),
        "def f(a, b) { a }".into(),
        "def f(a b) = a".into(),
        "reducer r(a, b) = a + b".into(),
        "reducer r(a) = a identity 1".into(),
        "reducer r((a, b), (c, d)) = a identity 1".into(),
        "import x".into(),
        "import \"x".into(),
        "foo".into(),
        "kernel f() {\n let x = (1 + 2\n let y = 3\n}\n".into(),
        "kernel f() {\n let x = 1\nkernel g() { }".into(),
        "schedule f for { }".into(),
        "schedule f {\n C.split(i factor=4)\n}".into(),
        "schedule f {\n t = 4\n}".into(),
        "schedule f {\n C\n}".into(),
        "schedule f { output C[i: n] = 1 }".into(),
        "schedule f { knob t = 3 }".into(),
        "schedule f { for S in A { } }".into(),
        "schedule f { let a, = 3 }".into(),
        "schedule f { C.fuse(*, +) }".into(),
        "schedule f { use }".into(),
        "schedule f { lte x = 3 }".into(),
        "schedule f { C.split(factor=4, i) }".into(),
        "kernel f() { let x = a.b }".into(),
        "kernel f() { let x = (a, b) + 1 }".into(),
        "kernel f() { let x = f(*) }".into(),
        "kernel f() { let x = f(a=[b, *]) }".into(),
        "\0".into(),
        "kernel f() { let x = ((((1))) }".into(),
        "kernel f() { let x = (1] }".into(),
        "kernel f() -> x { }".into(),
        "kernel f() { let x = f(y = ) }".into(),
        "kernel f() { let x = f(y == ) }".into(),
        "kernel f() { let x = [1, 2] }".into(),
        "kernel f() { output (I, V[i: n] = 1 }".into(),
        "kernel f() { input A: float32[n,,m] }".into(),
        "kernel f() { compute : }".into(),
        "kernel f() { let }".into(),
        "kernel f() { reduce }".into(),
        "kernel f() { compute C[i: n): }".into(),
    ] {
        println!("--- {}", text.trim_end());
        match parse_file(&text, 0) {
            Ok(file) => println!("OK {file:?}"),
            Err(d) => {
                let s = d.span.unwrap();
                println!(
                    "{d}   @{}..{} {:?}",
                    s.start,
                    s.end,
                    text.get(s.start as usize..s.end as usize)
                );
                if let Some(h) = &d.help {
                    println!("  help: {h}");
                }
                for r in &d.related {
                    println!("  related: {:?}", r);
                }
            }
        }
    }
}
