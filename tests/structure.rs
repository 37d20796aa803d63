//! Imports between the files and folders of one folder of `src` form no cycle, except where the
//! list below says why.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The cycles: the folder, its files and folders, the reason.
const CYCLES: [(&str, &[&str], &str); 6] = [
    ("codegen::clif", &["emit", "storage", "task"], EMITTER),
    ("codegen::ptx", &["address", "emit", "memory", "pending"], EMITTER),
    ("codegen::simd", &["address", "amx", "mask", "nest", "plan", "value"], EMITTER),
    (
        "schedule",
        &[
            "annotations",
            "bounds",
            "converted_copy",
            "derived_stage",
            "directives",
            "evaluate",
            "fused",
            "in_place",
            "inline",
            "layout",
            "legality",
            "phases",
            "reads",
            "recurrence",
            "select",
            "sliding",
            "sorts",
            "state",
            "step_order",
            "storage",
            "threads",
            "whole_tiles",
        ],
        "a stage keeps the annotations that its directives declare, and directives change stages; \
         a directive that adds a stage runs phases again",
    ),
    (
        "te::elaborate",
        &["expressions", "functions", "items", "pack_functions", "packs"],
        "an expression calls functions, whose bodies are expressions, and expands packs of them",
    ),
    (
        "tune::model",
        &["gpu", "ops", "plan", "tile", "traffic", "walk"],
        "the walk over a program costs its operations, those of GPUs by warps; both need the walk",
    ),
];

const EMITTER: &str =
    "the emitter's fields have types of the files that extend it with methods for these fields";

/// The imports of each module.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Adds the modules under a folder with their texts, without tests.
fn read(folder: &Path, module: &str, found: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(folder).expect("a folder of the tree") {
        let path = entry.expect("a readable entry").path();
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a plain name");
        let own = match name {
            "mod" | "lib" => module.to_string(),
            _ if module.is_empty() => name.to_string(),
            _ => format!("{module}::{name}"),
        };
        if path.is_dir() {
            read(&path, &own, found);
        } else if path.extension().is_some_and(|end| end == "rs") && name != "tests" {
            let text = std::fs::read_to_string(&path).expect("UTF-8");
            let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
            let code = text[..end].lines().map(|line| line.split("//").next().unwrap_or(line));
            found.insert(own, code.collect::<Vec<_>>().join("\n"));
        }
    }
}

/// The paths of `a::{b, c::{d}}` behind a prefix.
fn expand(prefix: &str, tree: &str, paths: &mut Vec<String>) {
    let (mut depth, mut start) = (0, 0);
    let mut items = Vec::new();
    for (at, char) in tree.char_indices() {
        match char {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                items.push(&tree[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    items.push(&tree[start..]);
    for item in items.into_iter().map(str::trim) {
        match item.split_once('{') {
            Some((path, rest)) => {
                let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
                expand(&format!("{prefix}{path}"), inner, paths);
            }
            None => paths.push(format!("{prefix}{item}")),
        }
    }
}

/// Returns the paths in a text that begin with `crate` or `super`: those of `use`, and others.
fn paths_in(text: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for part in text.split("use ").skip(1) {
        let tree = part.split(';').next().unwrap_or(part);
        if ["crate::", "super::", "self::"].iter().any(|root| tree.starts_with(root)) {
            expand("", tree, &mut paths);
        }
    }
    for root in ["crate::", "super::"] {
        for (at, _) in text.match_indices(root) {
            let inside = text[..at].ends_with("::");
            let is_path = |char: char| char.is_alphanumeric() || "_:".contains(char);
            let end = text[at..].find(|char| !is_path(char)).unwrap_or(text.len() - at);
            if !inside {
                paths.push(text[at..at + end].to_string());
            }
        }
    }
    paths
}

/// Returns the module that a path of another module leads into.
fn target<'m>(module: &str, path: &str, known: &'m BTreeMap<String, String>) -> Option<&'m str> {
    let mut from: Vec<&str> = module.split("::").filter(|part| !part.is_empty()).collect();
    let mut parts = path.split("::").peekable();
    match parts.next()? {
        "crate" => from.clear(),
        "self" => {}
        "super" => {
            from.pop();
            while parts.next_if_eq(&"super").is_some() {
                from.pop();
            }
        }
        _ => return None,
    }
    from.extend(parts);
    while !from.is_empty() {
        if let Some((name, _)) = known.get_key_value(&from.join("::")) {
            return Some(name);
        }
        from.pop();
    }
    None
}

/// Returns the part of a module's path below a folder, up to the next `::`.
fn child<'m>(folder: &str, module: &'m str) -> Option<&'m str> {
    let rest = match folder {
        "" => module,
        _ => module.strip_prefix(folder)?.strip_prefix("::")?,
    };
    rest.split("::").next().filter(|name| !name.is_empty())
}

/// Everything that can be reached from a node.
fn reachable<'g>(from: &'g str, graph: &'g Imports) -> BTreeSet<&'g str> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(node) = open.pop() {
        for next in graph.get(node).into_iter().flatten() {
            if found.insert(&next[..]) {
                open.push(next);
            }
        }
    }
    found
}

#[test]
fn imports_inside_a_folder_form_only_the_listed_cycles() {
    let mut modules = BTreeMap::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "", &mut modules);
    let imports = modules.iter().flat_map(|(module, text)| {
        let paths = paths_in(text).into_iter();
        let targets = paths.filter_map(|path| target(module, &path, &modules));
        targets.map(|to| (&module[..], to)).collect::<Vec<_>>()
    });
    let imports: BTreeSet<(&str, &str)> = imports.filter(|(user, used)| user != used).collect();
    assert!(imports.len() > 500, "only {} imports found", imports.len());
    let parent =
        |module: &String| module.rsplit_once("::").map_or("", |(parent, _)| parent).to_string();
    let folders: BTreeSet<String> = modules.keys().map(parent).collect();
    let mut cycles = BTreeSet::new();
    for folder in &folders {
        let mut graph = Imports::new();
        for (user, used) in &imports {
            if let (Some(user), Some(used)) = (child(folder, user), child(folder, used)) {
                graph.entry(user.to_string()).or_default().insert(used.to_string());
            }
        }
        graph.iter_mut().for_each(|(user, used)| {
            used.remove(user);
        });
        for user in graph.keys() {
            let from_here = reachable(user, &graph);
            if from_here.contains(&user[..]) {
                let back = |used: &&&str| reachable(used, &graph).contains(&user[..]);
                let cycle: Vec<&str> = from_here.iter().filter(back).copied().collect();
                cycles.insert((folder.clone(), cycle.join(" ")));
            }
        }
    }
    let listed = CYCLES.iter().map(|(folder, modules, _)| (folder.to_string(), modules.join(" ")));
    assert_eq!(cycles, listed.collect());
}
