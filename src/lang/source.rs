//! Reads a file and all that it imports.
//!
//! Paths are compared as text, after `.` and `..` are resolved, because only the loader accesses a
//! file system.

use super::library::LIB;
use super::{ast, parse_file};
use crate::diag::{Diag, SourceFile, Sources, Span, closest};
use rustc_hash::{FxHashMap, FxHashSet};

/// Reads files: from the disk for the command line, from memory in tests.
pub trait Loader {
    /// Returns the bytes of a file, or the message of the operating system.
    fn read(&self, path: &str) -> Result<Vec<u8>, String>;
}

/// The position of an item: the index of its file, and its index in the file.
type Place = (usize, usize);

/// The parsed files.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// The texts.
    pub sources: Sources,
    /// The syntax trees, by the same index; the first is the file given to `tec`.
    pub files: Vec<ast::File>,
    /// The direct imports of each file.
    pub imports: Vec<Vec<Imported>>,
    /// The schedules of each kernel, in source order.
    schedules: FxHashMap<String, Vec<Place>>,
    /// The schedules of each kernel and name (`None` for unnamed ones).
    named: FxHashMap<(String, Option<String>), Vec<Place>>,
}

impl Program {
    /// Returns a program of parsed files.
    pub fn new(sources: Sources, files: Vec<ast::File>, imports: Vec<Vec<Imported>>) -> Program {
        let mut schedules: FxHashMap<_, Vec<_>> = FxHashMap::default();
        let mut named: FxHashMap<_, Vec<_>> = FxHashMap::default();
        for (at, file) in files.iter().enumerate() {
            for (item, schedule) in file.items.iter().enumerate() {
                if let ast::Item::Schedule(schedule) = schedule {
                    let (kernel, name) = (schedule.kernel.text.clone(), schedule.name.as_ref());
                    schedules.entry(kernel.clone()).or_default().push((at, item));
                    let key = (kernel, name.map(|name| name.text.clone()));
                    named.entry(key).or_default().push((at, item));
                }
            }
        }
        Program { sources, files, imports, schedules, named }
    }

    /// Returns the schedules of a kernel, in source order.
    pub fn schedules_of(&self, kernel: &str) -> impl Iterator<Item = &ast::Schedule> {
        self.at(self.schedules.get(kernel))
    }

    /// Returns the schedules of a kernel that have this name, or no name.
    pub fn schedules_named(
        &self,
        kernel: &str,
        name: Option<&str>,
    ) -> impl Iterator<Item = &ast::Schedule> {
        self.at(self.named.get(&(kernel.to_string(), name.map(str::to_string))))
    }

    /// Returns the template that a name means in a file: one of the file or of a file that it
    /// imports, with the name of the import and a dot if it has one.
    pub fn template(&self, file: u32, path: &[ast::Name]) -> Option<&ast::Template> {
        let text = path.iter().map(|name| &name.text[..]).collect::<Vec<_>>().join(".");
        let mut visible = self.templates(file);
        visible.find(|(name, _)| *name == text).map(|(_, template)| template)
    }

    /// Returns the templates that a file sees, by name.
    pub fn templates(&self, file: u32) -> impl Iterator<Item = (String, &ast::Template)> {
        let imports = self.imports.get(file as usize).into_iter().flatten();
        let imports = imports.map(|import| (import.file, import.alias.as_ref()));
        std::iter::once((file, None)).chain(imports).flat_map(|(file, alias)| {
            let items = self.files[file as usize].items.iter();
            items.filter_map(move |item| match (item, alias) {
                (ast::Item::Template(item), None) => Some((item.name.text.clone(), item)),
                (ast::Item::Template(item), Some(alias)) => {
                    Some((format!("{}.{}", alias.text, item.name.text), item))
                }
                _ => None,
            })
        })
    }

    fn at<'a>(&'a self, places: Option<&'a Vec<Place>>) -> impl Iterator<Item = &'a ast::Schedule> {
        let places = places.into_iter().flatten();
        places.filter_map(|(file, item)| match &self.files[*file].items[*item] {
            ast::Item::Schedule(schedule) => Some(schedule),
            _ => None,
        })
    }
}

/// A file as another one imports it.
#[derive(Clone, PartialEq, Debug)]
pub struct Imported {
    /// Index of the file.
    pub file: u32,
    /// What stands before the names of its items; they are used as they are without it.
    pub alias: Option<ast::Name>,
    /// The quoted path in the `import`.
    pub span: Span,
}

/// Reads and parses `path` and, recursively, what it imports: beside the importing file, then in
/// the embedded `lib/`. Each file once; a cycle is an error. The program is returned beside the
/// errors so that they can be shown.
pub fn load_program(path: &str, loader: &dyn Loader) -> (Program, Vec<Diag>) {
    let (sources, files, imports, keys, known, open, errors) = Default::default();
    let mut reading = Reading { loader, sources, files, imports, keys, known, open, errors };
    match loader.read(path) {
        Ok(bytes) => {
            reading.add(Key::Disk(normalize(path)), path.to_string(), bytes);
        }
        Err(reason) => {
            let message = format!("cannot read `{path}`: {reason}");
            reading.errors.push(Diag::global("E0120", message));
        }
    }
    (Program::new(reading.sources, reading.files, reading.imports), reading.errors)
}

/// The identity of a file.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Key {
    /// A normalized path.
    Disk(String),
    /// A file of the embedded library.
    Embedded(&'static str),
}

struct Reading<'a> {
    loader: &'a dyn Loader,
    sources: Sources,
    files: Vec<ast::File>,
    imports: Vec<Vec<Imported>>,
    /// By index of file.
    keys: Vec<Key>,
    /// The index of each.
    known: FxHashMap<Key, u32>,
    /// The files whose imports are being read, from the outermost to the innermost.
    open: Vec<u32>,
    errors: Vec<Diag>,
}

impl Reading<'_> {
    /// Parses a file, reads its imports, and returns its index.
    fn add(&mut self, key: Key, path: String, bytes: Vec<u8>) -> u32 {
        let index = self.keys.len() as u32;
        self.known.insert(key.clone(), index);
        self.keys.push(key);
        let (text, mut error) = decode(bytes, index, &path);
        let mut parsed = ast::File::default();
        if error.is_none() {
            match parse_file(&text, index) {
                Ok(file) => parsed = file,
                Err(diag) => error = Some(*diag),
            }
        }
        self.errors.extend(error);
        let imports: Vec<ast::Import> = parsed.items.iter().filter_map(import).cloned().collect();
        self.sources.files.push(SourceFile { path, text });
        self.files.push(parsed);
        self.imports.push(Vec::new());
        self.open.push(index);
        let mut seen = FxHashSet::default();
        for import in imports {
            if let Some(file) = self.import(index, &import)
                && (import.alias.is_some() || seen.insert(file))
            {
                let imported = Imported { file, alias: import.alias, span: import.span };
                self.imports[index as usize].push(imported);
            }
        }
        self.open.pop();
        index
    }

    /// Returns the index of an imported file and reads it if necessary.
    fn import(&mut self, importer: u32, import: &ast::Import) -> Option<u32> {
        let (key, path, bytes) = self.find(importer, import)?;
        let Some(&known) = self.known.get(&key) else {
            return Some(self.add(key, path, bytes?));
        };
        let Some(start) = self.open.iter().position(|open| *open == known) else {
            return Some(known);
        };
        let names = self.open[start..].iter().chain([&known]);
        let cycle = names.map(|file| self.shown(*file)).collect::<Vec<_>>().join(" -> ");
        self.errors.push(
            Diag::new("E0122", import.span, format!("import cycle: {cycle}"))
                .help("move what both files need into a third one that imports neither"),
        );
        None
    }

    /// Returns the path of a file in quotes, relative to the folder of the file given to `tec`.
    fn shown(&self, file: u32) -> String {
        let files = &self.sources.files;
        let folder = files[0].path.rfind('/').map_or("", |slash| &files[0].path[..=slash]);
        let path = &files[file as usize].path;
        format!("`{}`", path.strip_prefix(folder).unwrap_or(path))
    }

    /// Finds an imported file: its key, its path in messages, and its bytes unless it was read.
    fn find(
        &mut self,
        importer: u32,
        import: &ast::Import,
    ) -> Option<(Key, String, Option<Vec<u8>>)> {
        let name = normalize(&import.path);
        let mut notes = Vec::new();
        if let Key::Disk(importer) = &self.keys[importer as usize] {
            let path = join(importer, &import.path);
            let key = Key::Disk(path.clone());
            if self.known.contains_key(&key) {
                return Some((key, path, None));
            }
            match self.loader.read(&path) {
                Ok(bytes) => return Some((key, path, Some(bytes))),
                Err(reason) => notes.push(format!("`{path}`: {reason}")),
            }
        }
        if let Some((name, text)) = LIB.iter().find(|(known, _)| *known == name) {
            let path = format!("lib/{name}");
            return Some((Key::Embedded(name), path, Some(text.as_bytes().to_vec())));
        }
        notes.push(format!("the library of tec has no `{name}`"));
        let message = format!("cannot find the file `{}`", import.path);
        let mut diag = Diag { notes, ..Diag::new("E0120", import.span, message) };
        diag.help = closest(&name, LIB.iter().map(|(known, _)| *known))
            .map(|known| format!("the library has `{known}`"));
        self.errors.push(diag);
        None
    }
}

fn import(item: &ast::Item) -> Option<&ast::Import> {
    match item {
        ast::Item::Import(import) => Some(import),
        _ => None,
    }
}

/// Decodes a file and removes its byte order mark; returns the text and the error, if any.
fn decode(mut bytes: Vec<u8>, file: u32, path: &str) -> (String, Option<Diag>) {
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.drain(..3);
    }
    if bytes.len() >= u32::MAX as usize {
        let message = format!("cannot read `{path}`: it has {} bytes, 4 GiB at most", bytes.len());
        return (String::new(), Some(Diag::global("E0120", message)));
    }
    match String::from_utf8(bytes) {
        Ok(text) => (text, None),
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            let byte = error.as_bytes()[at];
            let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
            let span = Span { file, start: at as u32, end: at as u32 + 1 };
            let message = format!("the file is not UTF-8: byte 0x{byte:02x} at offset {at}");
            let diag = Diag::new("E0121", span, message);
            (text, Some(diag.help(encoding_help(error.as_bytes()))))
        }
    }
}

/// Returns what to do about a file that is not UTF-8.
fn encoding_help(bytes: &[u8]) -> &'static str {
    match bytes {
        [0x7f, b'E', b'L', b'F', ..] => {
            "this is a compiled module or object; `tec run`, `tec bench` and `tec inspect` take \
             modules, and `tec build` takes `.te` files and `.onnx` models"
        }
        _ if bytes.contains(&0) => "this is a binary file; a `.te` file is text",
        _ => "save the file in the encoding UTF-8",
    }
}

/// Returns the path of a file that another file imports.
fn join(importer: &str, path: &str) -> String {
    match importer.rfind('/') {
        Some(slash) if !path.starts_with('/') => {
            normalize(&format!("{}/{path}", &importer[..slash]))
        }
        _ => normalize(path),
    }
}

/// Removes empty parts, `.` and, if possible, `..` from a path.
fn normalize(path: &str) -> String {
    let is_absolute = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => match parts.last() {
                Some(&last) if last != ".." => {
                    parts.pop();
                }
                None if is_absolute => {}
                _ => parts.push(".."),
            },
            _ => parts.push(part),
        }
    }
    let relative = parts.join("/");
    if is_absolute { format!("/{relative}") } else { relative }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustc_hash::FxHashMap;

    struct Memory(FxHashMap<&'static str, Vec<u8>>);

    impl Loader for Memory {
        fn read(&self, path: &str) -> Result<Vec<u8>, String> {
            self.0.get(path).cloned().ok_or_else(|| "no such file".to_string())
        }
    }

    fn load(files: &[(&'static str, &str)]) -> (Program, Vec<Diag>) {
        let files = files.iter().map(|(path, text)| (*path, text.as_bytes().to_vec()));
        load_program(files.clone().next().unwrap().0, &Memory(files.collect()))
    }

    fn errors(files: &[(&'static str, &str)]) -> Vec<String> {
        load(files).1.iter().map(Diag::to_string).collect()
    }

    #[test]
    fn imports_are_relative_and_read_once() {
        let (program, errors) = load(&[
            ("a/main.te", "import \"x.te\" import \"../b/y.te\" import \"./x.te\""),
            ("a/x.te", "import \"../b/y.te\""),
            ("b/y.te", "def one() = 1"),
        ]);
        assert_eq!(errors, []);
        let paths: Vec<_> = program.sources.files.iter().map(|file| &file.path).collect();
        assert_eq!(paths, ["a/main.te", "a/x.te", "b/y.te"]);
        let imported = |file: &Vec<Imported>| file.iter().map(|one| one.file).collect::<Vec<_>>();
        let imports: Vec<Vec<u32>> = program.imports.iter().map(imported).collect();
        assert_eq!(imports, [vec![1, 2], vec![2], vec![]]);
        assert_eq!(program.files[2].items.len(), 1);
    }

    #[test]
    fn files_of_the_folder_hide_the_library() {
        let (program, errors) = load(&[("main.te", "import \"nn.te\"")]);
        assert_eq!(errors, []);
        assert_eq!(program.sources.files[1].path, "lib/nn.te");
        let (program, errors) = load(&[("main.te", "import \"nn.te\""), ("nn.te", "# mine")]);
        assert_eq!(errors, []);
        assert_eq!(program.sources.files[1].text, "# mine");
    }

    #[test]
    fn import_cycles_are_errors() {
        let cycle = [
            ("main.te", "import \"a.te\""),
            ("a.te", "import \"b.te\""),
            ("b.te", "import \"a.te\""),
        ];
        assert_eq!(errors(&cycle), ["E0122: import cycle: `a.te` -> `b.te` -> `a.te`"]);
        let itself = [("main.te", "import \"./main.te\"")];
        assert_eq!(errors(&itself), ["E0122: import cycle: `main.te` -> `main.te`"]);
    }

    #[test]
    fn a_missing_file_lists_the_places_searched() {
        let (_, errors) = load(&[("a/main.te", "import \"nm.te\"")]);
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].to_string(), "E0120: cannot find the file `nm.te`");
        assert_eq!(errors[0].span, Some(Span { file: 0, start: 7, end: 14 }));
        assert_eq!(
            errors[0].notes,
            ["`a/nm.te`: no such file", "the library of tec has no `nm.te`"]
        );
        assert_eq!(errors[0].help.as_deref(), Some("the library has `nn.te`"));
        let missing = load_program("none.te", &Memory(FxHashMap::default())).1;
        assert_eq!(missing[0].to_string(), "E0120: cannot read `none.te`: no such file");
    }

    #[test]
    fn files_must_be_utf8() {
        let bytes = b"def a() = 1\n# caf\xe9\n".to_vec();
        let (program, errors) =
            load_program("x.te", &Memory(FxHashMap::from_iter([("x.te", bytes)])));
        assert_eq!(errors[0].to_string(), "E0121: the file is not UTF-8: byte 0xe9 at offset 17");
        assert_eq!(program.sources.line_column(errors[0].span.unwrap()), (2, 6));
        let help = |bytes: &[u8]| {
            let files = Memory(FxHashMap::from_iter([("x.te", bytes.to_vec())]));
            load_program("x.te", &files).1[0].help.clone().expect("a help")
        };
        assert_eq!(help(b"# caf\xe9\n"), "save the file in the encoding UTF-8");
        assert_eq!(help(b"PK\0\xe9"), "this is a binary file; a `.te` file is text");
        assert!(help(b"\x7fELF\x02\xf8").starts_with("this is a compiled module or object;"));
        let (program, errors) = load(&[("x.te", "\u{feff}def a() = 1")]);
        assert_eq!(errors, []);
        assert_eq!(program.sources.files[0].text, "def a() = 1");
    }

    #[test]
    fn every_file_reports_its_own_error() {
        let files = [("main.te", "import \"a.te\" import \"b.te\""), ("a.te", "}"), ("b.te", "(")];
        assert_eq!(errors(&files).len(), 2);
    }

    #[test]
    fn paths_are_normalized() {
        for (path, normal) in [
            ("./a//b.te", "a/b.te"),
            ("a/../../b.te", "../b.te"),
            ("/../a.te", "/a.te"),
            ("../../a.te", "../../a.te"),
        ] {
            assert_eq!(normalize(path), normal);
        }
        assert_eq!(join("a/main.te", "/x.te"), "/x.te");
        assert_eq!(join("main.te", "x.te"), "x.te");
    }
}
