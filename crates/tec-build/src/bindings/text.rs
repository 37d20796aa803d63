//! Writes Rust as rustfmt does, with its default widths.

/// The longest line.
const MAX_WIDTH: usize = 100;
/// The longest list of arguments or elements on one line: `fn_call_width` and `array_width`.
const LIST_WIDTH: usize = 60;

/// A text under construction.
#[derive(Default)]
pub(super) struct Writer {
    pub(super) text: String,
    indent: usize,
}

impl Writer {
    /// Writes a line; one that ends in an opening bracket indents the next ones, one that begins
    /// with a closing bracket ends that.
    pub(super) fn line(&mut self, line: impl AsRef<str>) {
        let line = line.as_ref();
        if line.starts_with(['}', ')', ']']) {
            self.indent -= 4;
        }
        if !line.is_empty() {
            self.text.extend(std::iter::repeat_n(' ', self.indent));
            self.text += line;
        }
        self.text.push('\n');
        let is_comment = line.starts_with("//");
        if !is_comment && line.ends_with(['{', '(', '[']) {
            self.indent += 4;
        }
    }

    /// Writes a paragraph of a doc comment.
    pub(super) fn doc(&mut self, text: &str) {
        let text = format!("/// {text}");
        self.line(text.trim_end());
    }

    /// Writes `head` + a list in brackets + `tail` on one line, or an element on each line.
    fn list(
        &mut self,
        head: &str,
        brackets: (char, char),
        items: &[String],
        tail: &str,
        max: usize,
    ) {
        let joined = items.join(", ");
        let line = format!("{head}{}{joined}{}{tail}", brackets.0, brackets.1);
        // rustfmt leaves room for a comma after a declaration.
        let width = line.len() + usize::from(tail.ends_with("i32;"));
        if joined.len() <= max && self.indent + width <= MAX_WIDTH {
            return self.line(line);
        }
        self.line(format!("{head}{}", brackets.0));
        items.iter().for_each(|item| self.line(format!("{item},")));
        self.line(format!("{}{tail}", brackets.1));
    }

    /// Writes the beginning of a function, or its declaration if `tail` is `;`.
    pub(super) fn signature(&mut self, head: &str, params: &[String], tail: &str) {
        self.list(head, ('(', ')'), params, tail, MAX_WIDTH);
    }

    /// Writes a call.
    pub(super) fn call(&mut self, head: &str, args: &[String], tail: &str) {
        self.list(head, ('(', ')'), args, tail, LIST_WIDTH);
    }

    /// Writes an array of items of which none is as short as a number.
    pub(super) fn array(&mut self, head: &str, items: &[String], tail: &str) {
        self.list(head, ('[', ']'), items, tail, LIST_WIDTH);
    }

    /// Writes `let status = unsafe { entry(…) };`.
    pub(super) fn unsafe_call(&mut self, args: &[String]) {
        let joined = args.join(", ");
        let line = format!("let status = unsafe {{ entry({joined}) }};");
        if joined.len() <= LIST_WIDTH && self.indent + line.len() <= MAX_WIDTH {
            return self.line(line);
        }
        self.line("let status = unsafe {");
        self.call("entry", args, "");
        self.line("};");
    }
}

/// Returns an identifier for a name of the language.
pub(super) fn identifier(name: &str) -> String {
    const KEYWORDS: &str = " abstract as async await become box break const continue do dyn else \
        enum extern false final fn for gen if impl in let loop macro match mod move mut override \
        priv pub ref return static struct trait true try type typeof unsafe unsized use virtual \
        where while yield ";
    match name {
        "self" | "Self" | "super" | "crate" | "_" => format!("{name}_"),
        _ if KEYWORDS.contains(&format!(" {name} ")) => format!("r#{name}"),
        _ => name.to_string(),
    }
}

/// Whether the bindings use this name themselves, for a function, a constant or a pattern.
fn is_used(name: &str) -> bool {
    let numbered = |prefix: &str| {
        let number = name.strip_prefix(prefix).unwrap_or("");
        !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
    };
    matches!(name, "Err" | "Int" | "MANIFEST" | "None" | "Ok" | "Some")
        || ["KERNEL_", "call_", "pack_"].into_iter().any(numbered)
}

/// Returns the identifier of the function of a kernel.
pub(super) fn function(name: &str) -> String {
    if is_used(name) { format!("{name}_") } else { identifier(name) }
}

/// Returns identifiers for the arguments of a kernel, in lower case unless two would be equal.
pub(super) fn arguments<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
    let lower: Vec<String> = names.clone().map(str::to_lowercase).collect();
    let mut sorted = lower.clone();
    sorted.sort();
    sorted.dedup();
    let names = match sorted.len() == lower.len() {
        true => lower,
        false => names.map(str::to_string).collect(),
    };
    let argument = |name: &String| {
        const LOCAL: [&str; 5] = ["entry", "names", "packed", "shape", "values"];
        let mut ident = match is_used(name) || LOCAL.contains(&&name[..]) {
            true => format!("{name}_"),
            false => identifier(name),
        };
        while ident != *name && names.contains(&ident) {
            ident.push('_');
        }
        ident
    };
    names.iter().map(argument).collect()
}

/// Returns `MatmulAdd` for `matmul_add`.
pub(super) fn type_name(name: &str) -> String {
    let capital = |word: &str| {
        let (first, rest) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
        first.to_uppercase() + rest
    };
    name.split('_').map(capital).collect()
}
