//! The items of all files: the names that each file sees, and the checks that need no kernel:
//! unique names, names of exported symbols, recursion of `def`s, names in their bodies.
//!
//! A file sees its own items and those of the files that it imports directly. Names of items and
//! names inside a kernel are separate.

use super::expressions::{is_axis, misplaced_reduction};
use super::functions::Builtin;
use super::pack_functions::PackFunction;
use super::reserved::refused_kernel_name;
use super::{Elaborator, own_kernels};
use crate::diag::{Diag, Span, closest};
use crate::ir::DType;
use crate::lang::{Imported, LIBRARY, Program, ast};
use rustc_hash::{FxHashMap, FxHashSet};
use std::borrow::Cow;

/// The function that a name before `(` refers to.
#[derive(Clone, Copy)]
pub enum Function<'a> {
    /// `def`.
    Def(&'a ast::Def),
    /// `reducer`.
    Reducer(&'a ast::Reducer),
    /// `sum`, `argmax`: a reduction only.
    Reduction,
    /// A function of packs.
    Pack(PackFunction),
    /// A built-in function.
    Builtin(Builtin),
}

/// The built-in reductions that are not functions too.
pub const REDUCTIONS: [&str; 6] = ["sum", "prod", "argmax", "argmin", "sort", "argsort"];

#[derive(Clone, Copy)]
enum Item<'a> {
    Def(&'a ast::Def),
    Reducer(&'a ast::Reducer),
    Kernel(&'a ast::Kernel),
    Template(&'a ast::Template),
}

impl<'a> Item<'a> {
    fn of(item: &'a ast::Item) -> Option<Item<'a>> {
        match item {
            ast::Item::Def(def) => Some(Item::Def(def)),
            ast::Item::Reducer(reducer) => Some(Item::Reducer(reducer)),
            ast::Item::Kernel(kernel) => Some(Item::Kernel(kernel)),
            ast::Item::Template(template) => Some(Item::Template(template)),
            ast::Item::Import(_) | ast::Item::Schedule(_) => None,
        }
    }

    fn name(self) -> &'a ast::Name {
        match self {
            Item::Def(def) => &def.name,
            Item::Reducer(reducer) => &reducer.name,
            Item::Kernel(kernel) => &kernel.name,
            Item::Template(template) => &template.name,
        }
    }

    fn what(self) -> &'static str {
        match self {
            Item::Def(_) => "def",
            Item::Reducer(_) => "reducer",
            Item::Kernel(_) => "kernel",
            Item::Template(_) => "template",
        }
    }
}

/// The items that each file sees.
pub struct Items<'a> {
    program: &'a Program,
    /// The items by file and name. Items of a file that is imported under a name have a dot:
    /// `nn.f`.
    visible: Vec<FxHashMap<Cow<'a, str>, Item<'a>>>,
    /// The nodes of the expanded body of each `def`, saturating, by its address; `None` if it is
    /// recursive.
    def_nodes: FxHashMap<*const ast::Def, Option<u64>>,
    /// The `def`s whose bodies are being counted.
    open_defs: FxHashSet<*const ast::Def>,
}

impl<'a> Items<'a> {
    /// Collects the items. If several have the same name, the first one counts.
    pub fn new(program: &'a Program) -> Items<'a> {
        let own = |file: usize| program.files[file].items.iter().filter_map(Item::of);
        let visible = (0..program.files.len())
            .map(|file| {
                let mut names = FxHashMap::default();
                for source in sources(program, file) {
                    for item in own(source) {
                        names.entry(Cow::from(&item.name().text)).or_insert(item);
                    }
                }
                for (alias, imported) in aliases(program, file) {
                    for item in own(imported.file as usize) {
                        let name = format!("{}.{}", alias.text, item.name().text);
                        names.entry(Cow::from(name)).or_insert(item);
                    }
                }
                names
            })
            .collect();
        Items { program, visible, def_nodes: FxHashMap::default(), open_defs: FxHashSet::default() }
    }

    fn get(&self, file: u32, name: &str) -> Option<Item<'a>> {
        self.visible.get(file as usize)?.get(name).copied()
    }

    /// Returns the function that `name(` calls in a file. Kernels are not functions.
    pub fn function(&self, file: u32, name: &str) -> Option<Function<'a>> {
        match self.get(file, name) {
            Some(Item::Def(def)) => Some(Function::Def(def)),
            Some(Item::Reducer(reducer)) => Some(Function::Reducer(reducer)),
            _ if REDUCTIONS.contains(&name) => Some(Function::Reduction),
            _ => match PackFunction::from_name(name) {
                Some(function) => Some(Function::Pack(function)),
                None => Builtin::from_name(name).map(Function::Builtin),
            },
        }
    }

    /// Returns the kernel of this name that a file sees.
    pub fn kernel(&self, file: u32, name: &str) -> Option<&'a ast::Kernel> {
        match self.get(file, name) {
            Some(Item::Kernel(kernel)) => Some(kernel),
            _ => None,
        }
    }

    /// Returns every name that a file can call, for "did you mean".
    pub fn function_names(&self, file: u32) -> Vec<&str> {
        let visible = self.visible.get(file as usize);
        let items = visible.into_iter().flatten();
        let callable = items.filter(|(_, item)| !matches!(item, Item::Template(_)));
        let mut names: Vec<&str> = callable.map(|(name, _)| &**name).collect();
        let built_in = REDUCTIONS.into_iter().chain(Builtin::names()).chain(PackFunction::names());
        for name in built_in {
            names.push(name);
        }
        names.sort_unstable();
        names
    }

    /// Returns the `import` of a file under a name.
    pub fn imported_as(&self, file: u32, alias: &str) -> Option<Span> {
        let imported = aliases(self.program, file as usize).find(|(name, _)| name.text == alias);
        imported.map(|(_, imported)| imported.span)
    }

    /// Returns the path to import for a name that another file declares.
    pub fn elsewhere(&self, file: u32, name: &str) -> Option<&'a str> {
        let name = name.rsplit('.').next().unwrap_or(name);
        let declares = |file: &ast::File| {
            file.items.iter().filter_map(Item::of).any(|item| item.name().text == name)
        };
        let index = self.program.files.iter().position(declares)?;
        let path = |index: usize| &self.program.sources.files[index].path[..];
        let folder = |path: &'a str| path.rfind('/').map_or("", |slash| &path[..=slash]);
        let (found, own) = (path(index), folder(path(file as usize)));
        // A file of the library is shown as `lib/nn.te`, and imported as `nn.te`.
        let is_library = !own.ends_with("lib/") && LIBRARY.contains(&found);
        let own = if is_library { "lib/" } else { own };
        Some(found.strip_prefix(own).unwrap_or(found))
    }

    /// Returns the nodes of the expanded body of a `def`; `None` if it is recursive.
    pub fn def_nodes(&self, def: &'a ast::Def) -> Option<u64> {
        self.def_nodes.get(&std::ptr::from_ref(def)).copied().flatten()
    }
}

/// Returns a file and the files that it imports without a name, each once.
fn sources(program: &Program, file: usize) -> Vec<usize> {
    // `imports` has each file once.
    let imports = program.imports.get(file).into_iter().flatten();
    let plain = imports.filter(|import| import.alias.is_none()).map(|import| import.file as usize);
    std::iter::once(file).chain(plain.filter(|import| *import != file)).collect()
}

/// Returns the imports of a file under a name.
fn aliases(program: &Program, file: usize) -> impl Iterator<Item = (&ast::Name, &Imported)> {
    let imports = program.imports.get(file).into_iter().flatten();
    imports.filter_map(|import| Some((import.alias.as_ref()?, import)))
}

impl<'a> Elaborator<'a> {
    /// Checks everything about items that needs no parameters of kernels.
    pub fn check_items(&mut self) {
        for file in 0..self.program.files.len() {
            self.check_names(file);
            for item in &self.program.files[file].items {
                match item {
                    ast::Item::Def(def) => {
                        self.check_params(&def.params.iter().collect::<Vec<_>>());
                        self.expanded_nodes(def, &mut Vec::new());
                        self.check_body(&def.body, def.params.iter().map(|p| p.text.as_str()));
                    }
                    ast::Item::Reducer(reducer) => self.check_reducer_names(reducer),
                    ast::Item::Kernel(kernel) => self.check_kernel_name(&kernel.name),
                    ast::Item::Schedule(schedule) => self.check_schedule(schedule),
                    ast::Item::Template(template) => {
                        let names = template.params.iter().map(|param| &param.name);
                        self.check_params(&names.collect::<Vec<_>>());
                    }
                    ast::Item::Import(_) => {}
                }
            }
        }
    }

    fn check_names(&mut self, file: usize) {
        let mut seen: FxHashMap<&str, Item<'a>> = FxHashMap::default();
        for source in sources(self.program, file) {
            for item in self.program.files[source].items.iter().filter_map(Item::of) {
                let name = item.name();
                let Some(first) = seen.get(name.text.as_str()) else {
                    seen.insert(&name.text, item);
                    self.check_builtin_name(item);
                    continue;
                };
                let (text, other) = (&name.text, first.name().span);
                let what = first.what();
                if other.file == name.span.file {
                    // Duplicates of an imported file are reported with that file.
                    if source == file {
                        let diag =
                            Diag::new("E0202", name.span, format!("`{text}` is declared twice"));
                        self.error(diag.related(other, format!("the {what} is first here")));
                    }
                    continue;
                }
                let import = self.import_of(file, source);
                let place = match other.file as usize == file {
                    true => other,
                    false => import,
                };
                let diag = Diag::new("E0202", place, format!("`{text}` is declared in two files"));
                let here = format!("a {} is here", item.what());
                let import = self.text(import);
                self.error(
                    diag.related(other, format!("a {what} is here")).related(name.span, here).help(
                        format!(
                            "import the file under a name, `import {import} as other`, and write \
                             `other.{text}(…)`"
                        ),
                    ),
                );
            }
        }
        self.check_aliases(file, &seen);
    }

    /// Checks that names of imports are unique among each other and the items of the file.
    fn check_aliases(&mut self, file: usize, items: &FxHashMap<&str, Item<'a>>) {
        let mut seen: FxHashMap<&str, Span> = FxHashMap::default();
        for (alias, _) in aliases(self.program, file) {
            let text = alias.text.as_str();
            let item = items.get(text).map(|item| (item.name().span, item.what()));
            let first = seen.insert(text, alias.span).map(|span| (span, "import"));
            let Some((span, what)) = first.or(item) else { continue };
            let diag = Diag::new("E0202", alias.span, format!("`{text}` is declared twice"));
            self.error(diag.related(span, format!("the {what} is here")));
        }
    }

    /// Returns the `import` without a name of another file.
    fn import_of(&self, file: usize, imported: usize) -> Span {
        let is_it = |one: &&Imported| one.alias.is_none() && one.file as usize == imported;
        self.program.imports[file].iter().find(is_it).expect("it is imported").span
    }

    fn check_builtin_name(&mut self, item: Item<'a>) {
        let name = item.name();
        if matches!(item, Item::Kernel(_) | Item::Template(_)) {
            return;
        }
        let text = name.text.as_str();
        if REDUCTIONS.contains(&text)
            || Builtin::from_name(text).is_some()
            || PackFunction::from_name(text).is_some()
        {
            let message = format!("`{}` is a function of the language", name.text);
            self.error(Diag::new("E0203", name.span, message).help("choose another name"));
        }
    }

    fn check_kernel_name(&mut self, name: &ast::Name) {
        let text = name.text.as_str();
        let Some(why) = refused_kernel_name(text) else { return };
        let message = format!("a kernel cannot be named `{text}`");
        self.error(Diag::new("E0203", name.span, message).note(why).help("choose another name"));
    }

    fn check_schedule(&mut self, schedule: &ast::Schedule) {
        let name = &schedule.kernel;
        let file = name.span.file;
        if self.items.kernel(file, &name.text).is_some() {
            return;
        }
        let message = format!("schedule for an unknown kernel `{}`", name.text);
        let diag = Diag::new("E0301", name.span, message);
        if !self.can_suggest() {
            return self.error(diag);
        }
        let kernels = self.items.function_names(file);
        let kernels = kernels.into_iter().filter(|k| self.items.kernel(file, k).is_some());
        let close = closest(&name.text, kernels).map(|close| format!("did you mean `{close}`?"));
        self.error(match close {
            Some(help) => diag.help(help),
            None => diag,
        });
    }

    /// Checks that the parameters of a `def` or reducer are unique.
    pub fn check_params(&mut self, params: &[&'a ast::Name]) {
        let mut seen: FxHashMap<&str, Span> = FxHashMap::default();
        for param in params {
            if let Some(first) = seen.insert(&param.text, param.span) {
                let message = format!("`{}` is declared twice", param.text);
                let diag = Diag::new("E0202", param.span, message);
                self.error(diag.related(first, "the parameter is first here"));
            }
        }
    }

    /// Counts the nodes of the expanded body of a `def`; reports recursion (E0204).
    fn expanded_nodes(&mut self, def: &'a ast::Def, path: &mut Vec<&'a ast::Def>) -> Option<u64> {
        if let Some(known) = self.items.def_nodes.get(&std::ptr::from_ref(def)) {
            return *known;
        }
        if self.items.open_defs.contains(&std::ptr::from_ref(def)) {
            let start = path.iter().position(|other| std::ptr::eq(*other, def)).expect("open");
            let mut names: Vec<&str> = path[start..].iter().map(|d| d.name.text.as_str()).collect();
            names.push(&def.name.text);
            let message = format!("`{}` is recursive: {}", def.name.text, names.join(" → "));
            self.error(Diag::new("E0204", def.name.span, message));
            return None;
        }
        path.push(def);
        self.items.open_defs.insert(def);
        let mut total = Some(0u64);
        let mut callees = Vec::new();
        let file = def.name.span.file;
        walk(&def.body, &mut |expr| {
            total = total.map(|n| n.saturating_add(1));
            if let ast::ExprKind::Call(name, _) = &*expr.kind
                && let Some(Function::Def(callee)) = self.items.function(file, &name.text)
            {
                callees.push(callee);
            }
        });
        for callee in callees {
            let nodes = self.expanded_nodes(callee, path);
            total = total.zip(nodes).map(|(a, b)| a.saturating_add(b));
        }
        path.pop();
        self.items.open_defs.remove(&std::ptr::from_ref(def));
        self.items.def_nodes.insert(def, total);
        total
    }

    /// Checks the body of a `def` or reducer, a scalar function of these names only.
    pub fn check_body<'n>(
        &mut self,
        body: &'a ast::Expr,
        names: impl IntoIterator<Item = &'n str>,
    ) {
        let names: FxHashSet<&str> = names.into_iter().collect();
        let mut wrong = Vec::new();
        walk(body, &mut |expr| match &*expr.kind {
            ast::ExprKind::Name(name) => {
                let text = name.text.as_str();
                if names.contains(text) || DType::from_name(text).is_some() {
                    return;
                }
                let mut sorted: Vec<&str> = Vec::new();
                if self.can_suggest() && wrong.len() < 100 {
                    sorted.extend(names.iter().copied());
                    sorted.sort_unstable();
                }
                let diag = Diag::new("E0201", name.span, format!("unknown name `{text}`"));
                wrong.push(match closest(text, sorted) {
                    Some(close) => diag.help(format!("did you mean `{close}`?")),
                    None => diag.note("a `def` or `reducer` sees its own parameters only"),
                });
            }
            ast::ExprKind::Call(name, args) => {
                match self.items.function(name.span.file, &name.text) {
                    None if wrong.len() < 100 => wrong.push(self.unknown_function(name)),
                    None => {
                        let message = format!("unknown function `{}`", name.text);
                        wrong.push(Diag::new("E0201", name.span, message));
                    }
                    Some(Function::Reduction | Function::Reducer(_)) => {
                        wrong.push(misplaced_reduction(name));
                    }
                    Some(Function::Builtin(_)) if args.iter().any(is_axis) => {
                        wrong.push(misplaced_reduction(name));
                    }
                    Some(_) => {}
                }
            }
            ast::ExprKind::Index(name, _) => {
                let message = format!("`{}` is read as a tensor in a scalar function", name.text);
                let diag = Diag::new("E0215", expr.span, message);
                wrong.push(diag.help("pass the element as an argument"));
            }
            _ => {}
        });
        for diag in wrong {
            self.error(diag);
        }
    }

    /// `SCHEDULE.t` for each parameter and knob of a kernel's schedules.
    fn schedule_settings(&self, kernel: &str) -> Vec<String> {
        let mut settings = Vec::new();
        for item in self.program.schedules_of(kernel) {
            let Some(schedule) = &item.name else { continue };
            let mut names = item.params.iter().map(|param| &param.name.text[..]).collect();
            knobs(&item.body, &mut names);
            settings.extend(names.iter().map(|name| format!("{}.{name}", schedule.text)));
        }
        settings
    }

    /// `KERNEL.SCHEDULE.t` for each schedule of these kernels with a parameter or knob `t`.
    fn full_settings(&self, kernels: &[&'a ast::Kernel], name: &str) -> Vec<String> {
        let mut full = Vec::new();
        for kernel in kernels {
            let kernel = &kernel.name.text;
            let settings = self.schedule_settings(kernel).into_iter();
            let settings = settings.filter(|s| s.split_once('.').is_some_and(|(_, t)| t == name));
            full.extend(settings.map(|setting| format!("{kernel}.{setting}")));
        }
        full
    }

    /// Checks that every `-D` names a parameter of a kernel or schedule of the file (E0217).
    pub fn check_defines(&mut self) {
        for (kernel_name, name, _) in self.defines {
            let own: Vec<&'a ast::Kernel> = own_kernels(self.program).collect();
            let kernels: Vec<&'a ast::Kernel> = own
                .iter()
                .filter(|k| kernel_name.as_ref().is_none_or(|wanted| k.name.text == *wanted))
                .copied()
                .collect();
            if let (Some(wanted), true) = (kernel_name, kernels.is_empty()) {
                self.error(unknown_kernel(wanted, &own));
                continue;
            }
            let settings = match kernel_name {
                Some(kernel) => self.schedule_settings(kernel),
                None => Vec::new(),
            };
            let params = kernels.iter().flat_map(|k| &k.params).map(|p| p.name.text.as_str());
            let dotted = name.contains('.') && kernel_name.is_some();
            let params: Vec<&str> = match dotted {
                true => settings.iter().map(|setting| &setting[..]).collect(),
                false => params.collect(),
            };
            if params.contains(&name.as_str()) {
                continue;
            }
            let message = match kernel_name {
                Some(kernel) if dotted => {
                    format!("-D: no schedule of `{kernel}` has a parameter or knob `{name}`")
                }
                Some(kernel) => format!("-D: the kernel `{kernel}` has no parameter `{name}`"),
                None => format!("-D: no kernel has a parameter `{name}`"),
            };
            let diag = Diag::global("E0217", message);
            let full = self.full_settings(&kernels, name);
            if let (Some(first), false) = (full.first(), dotted) {
                let all: Vec<String> = full.iter().map(|full| format!("`-D {full}=…`")).collect();
                let help = format!("write {}", all.join(" or "));
                let (schedule, _) = first.rsplit_once('.').unwrap_or((first, ""));
                self.error(diag.note(format!("the schedule `{schedule}` has one")).help(help));
                continue;
            }
            self.error(match closest(name, params.iter().copied()) {
                Some(close) => diag.help(format!("did you mean `{close}`?")),
                None if params.is_empty() => diag,
                None => diag.note(format!("parameters: {}", params.join(", "))),
            });
        }
    }
}

/// Collects the names of knobs.
fn knobs<'a>(stmts: &'a [ast::ScheduleStmt], names: &mut Vec<&'a str>) {
    use ast::ScheduleStmtKind::{For, If, Knob};
    for stmt in stmts {
        match &stmt.kind {
            Knob { name, .. } => names.push(&name.text),
            If { then, otherwise, .. } => {
                knobs(then, names);
                knobs(otherwise, names);
            }
            For { body, .. } => knobs(body, names),
            _ => {}
        }
    }
}

/// Returns the error for a kernel that the main file does not have.
pub fn unknown_kernel(name: &str, own: &[&ast::Kernel]) -> Diag {
    let names: Vec<&str> = own.iter().map(|kernel| kernel.name.text.as_str()).collect();
    let diag = Diag::global("E0218", format!("unknown kernel `{name}`"));
    match closest(name, names.iter().copied()) {
        Some(close) => diag.help(format!("did you mean `{close}`?")),
        None if names.is_empty() => diag.note("the file has no kernels"),
        None => diag.note(format!("kernels: {}", names.join(", "))),
    }
}

/// Calls `f` on an expression and everything below it.
pub fn walk<'a>(expr: &'a ast::Expr, f: &mut dyn FnMut(&'a ast::Expr)) {
    use ast::ExprKind::*;
    f(expr);
    match &*expr.kind {
        Int(_) | Real(_) | Bool(_) | Name(_) | Dotted(_) | Star => {}
        Unary(_, a) | Cast(a, _) | Expand(a) => walk(a, f),
        Binary(_, a, b, _) => {
            walk(a, f);
            walk(b, f);
        }
        If(a, b, c) => {
            walk(a, f);
            walk(b, f);
            walk(c, f);
        }
        Index(_, exprs) | Tuple(exprs) | List(exprs) => exprs.iter().for_each(|e| walk(e, f)),
        Range(a, b) => a.iter().chain(b).for_each(|e| walk(e, f)),
        Call(_, args) | DottedCall(_, args) => args.iter().for_each(|arg| walk(&arg.value, f)),
    }
}
