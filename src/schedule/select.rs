//! Chooses the schedule of a kernel: the one with the longest match of the target, by name or
//! without.
//!
//! `tec tune` writes schedules with the name [`TUNED`]. If one fits the target and the user chose
//! none, the kernel uses it. The last one of a target replaces those before it, so that the output
//! of `tec tune` can be appended to a file any number of times.

use super::directives::check_call;
use super::evaluate::{apply, suggest};
use super::phases::infer_bounds;
use super::state::Schedule;
use crate::diag::{Diag, Result, Span};
use crate::lang::Program;
use crate::lang::ast::{self, Item, ScheduleStmt, ScheduleStmtKind};
use crate::target::Target;
use crate::te::{Defines, Graph};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;

/// The name of the schedules that `tec tune` and `tec best` write.
pub const TUNED: &str = "tuned";

/// The schedule that `--schedule [KERNEL.]NAME` names, with its kernel if one is given.
pub type ScheduleSelector = (Option<String>, String);

/// Writes the automatic schedule of a kernel, and adds notes for the user.
pub type AutoScheduler<'a> = dyn Fn(&Graph, &mut Vec<String>) -> Schedule + 'a;

/// The schedule of a kernel that has none for the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fallback {
    /// The default schedule.
    Default,
    /// The automatic schedule.
    Auto,
}

/// Schedules every kernel. Adds notes for the user, about schedules that the compiler makes.
pub fn schedule_kernels(
    program: &Program,
    graphs: Vec<Graph>,
    target: &Target,
    defines: &Defines,
    ((selector, fallback), auto): ((Option<&ScheduleSelector>, Fallback), &AutoScheduler<'_>),
    notes: &mut Vec<String>,
) -> std::result::Result<Vec<Schedule>, Vec<Diag>> {
    check_items(program)?;
    check_selector(program, &graphs, target, selector).map_err(|diag| vec![*diag])?;
    let mut diags = Vec::new();
    let mut schedules = Vec::new();
    for graph in graphs {
        let wanted = selector
            .filter(|(kernel, _)| kernel.as_ref().is_none_or(|kernel| *kernel == graph.name))
            .map(|(_, name)| &name[..]);
        if let Some(written @ ("default" | "auto")) = wanted {
            notes.extend(note_unused_defines(&graph.name, None, defines));
            schedules.push(match written {
                "auto" => auto(&graph, notes),
                _ => Schedule::new(graph, target),
            });
            continue;
        }
        // A kernel without a schedule of this name ignores the option.
        let named = wanted.and_then(|name| pick(program, &graph.name, Some(name), target));
        let tuned = || pick(program, &graph.name, Some(TUNED), target);
        let unnamed = || pick(program, &graph.name, None, target);
        if let (None, None) = (wanted, tuned()) {
            notes.extend(tuned_elsewhere(program, &graph.name, target));
        }
        let chosen = named.or_else(tuned).or_else(unnamed);
        notes.extend(note_unused_defines(&graph.name, chosen, defines));
        match chosen {
            None => schedules.push(match fallback {
                Fallback::Default => Schedule::new(graph, target),
                Fallback::Auto => auto(&graph, notes),
            }),
            Some(item) => match apply(program, graph, target, defines, item) {
                Ok(schedule) => schedules.push(schedule),
                Err(diag) => diags.push(*diag),
            },
        }
    }
    if diags.is_empty() { Ok(schedules) } else { Err(diags) }
}

/// Applies every schedule of the graphs' kernels, used or not. Returns those that fit the target;
/// infers bounds of the others for a target that they fit.
pub fn schedule_all(
    program: &Program,
    graphs: &[Graph],
    target: &Target,
    defines: &Defines,
) -> (Vec<Schedule>, Vec<Diag>) {
    let (mut schedules, mut diags) = (Vec::new(), check_items(program).err().unwrap_or_default());
    for graph in graphs {
        for item in effective_schedules(program, &graph.name) {
            let apply = |target: &Target| apply(program, graph.clone(), target, defines, item);
            match &item.target {
                Some(name) if !covers(&name.text, target) => {
                    diags.extend(refused_elsewhere(&name.text, &apply));
                }
                _ => match apply(target) {
                    Ok(schedule) => schedules.push(schedule),
                    Err(diag) => diags.push(*diag),
                },
            }
        }
    }
    (schedules, diags)
}

/// Returns the error of a schedule that all targets of a group refuse: of all errors, the one that
/// is last in the source.
fn refused_elsewhere(group: &str, apply: &dyn Fn(&Target) -> Result<Schedule>) -> Option<Diag> {
    let mut refused: Option<Diag> = None;
    let place = |diag: &Diag| diag.span.map(|span| (span.file, span.start));
    // No target of the list has the features that a schedule names.
    let all = Target::all().into_iter().chain(Target::parse(group).ok());
    for target in all.filter(|target| covers(group, target)) {
        match apply(&target).and_then(infer_bounds) {
            Ok(_) => return None,
            Err(diag) if refused.as_ref().is_none_or(|known| place(known) < place(&diag)) => {
                refused = Some((*diag).note(format!("checked for {target}")));
            }
            Err(_) => {}
        }
    }
    refused
}

/// Returns a note for each kernel that ignores `--schedule`, because it has no schedule of this
/// name for the target.
pub fn note_ignored_selector<'a>(
    program: &Program,
    kernels: impl Iterator<Item = &'a str>,
    target: &Target,
    selector: Option<&ScheduleSelector>,
) -> Vec<String> {
    let Some((only, name)) = selector else { return Vec::new() };
    if name == "default" || name == "auto" {
        return Vec::new();
    }
    let concerned = kernels.filter(|kernel| only.as_ref().is_none_or(|only| only == kernel));
    let without = concerned.filter(|kernel| pick(program, kernel, Some(name), target).is_none());
    let note = |kernel: &str| {
        let others = targets_of(program, kernel, name);
        let has = match &others[..] {
            [] => String::new(),
            others => format!(", only for {}", others.join(", ")),
        };
        format!(
            "kernel `{kernel}` has no schedule `{name}` for {target}{has}; it is scheduled as \
             without the option"
        )
    };
    without.map(note).collect()
}

/// Returns notes about values that `-D` gives to parameters of other schedules than the chosen one.
fn note_unused_defines(
    kernel: &str,
    chosen: Option<&ast::Schedule>,
    defines: &Defines,
) -> Vec<String> {
    let chosen = chosen.and_then(|item| item.name.as_ref()).map(|name| &name.text[..]);
    let unused = defines.iter().filter_map(|(of, path, value)| {
        let (schedule, _) = path.split_once('.')?;
        (of.as_deref() == Some(kernel) && chosen != Some(schedule)).then(|| {
            format!(
                "`-D {kernel}.{path}={value}` changes nothing: `{kernel}` does not use its \
                 schedule `{schedule}`; `--schedule {schedule}` does"
            )
        })
    });
    unused.collect()
}

/// Returns a note that `tec tune` wrote schedules for other targets only.
fn tuned_elsewhere(program: &Program, kernel: &str, target: &Target) -> Option<String> {
    let targets = targets_of(program, kernel, TUNED);
    (!targets.is_empty()).then(|| {
        format!(
            "the schedule `{TUNED}` of `{kernel}` is for {}, not for {target}; it is scheduled as \
             without it",
            targets.join(", ")
        )
    })
}

/// Returns the targets for which a kernel has a schedule of this name.
fn targets_of(program: &Program, kernel: &str, name: &str) -> Vec<String> {
    let named = program.schedules_named(kernel, Some(name));
    let mut targets: Vec<String> = named
        .map(|item| item.target.as_ref().map_or("any target".into(), |name| name.text.clone()))
        .collect();
    targets.sort_unstable();
    targets.dedup();
    targets
}

/// Returns all schedules of a program.
fn items(program: &Program) -> impl Iterator<Item = &ast::Schedule> {
    program.files.iter().flat_map(|file| &file.items).filter_map(|item| match item {
        Item::Schedule(schedule) => Some(schedule),
        _ => None,
    })
}

/// Returns all templates of a program.
fn templates(program: &Program) -> impl Iterator<Item = &ast::Template> {
    program.files.iter().flat_map(|file| &file.items).filter_map(|item| match item {
        Item::Template(template) => Some(template),
        _ => None,
    })
}

fn is_named(item: &ast::Schedule, name: Option<&str>) -> bool {
    item.name.as_ref().map(|name| &name.text[..]) == name
}

/// Returns the schedules of a kernel, in source order, without those that a later one of `tec tune`
/// replaces.
fn effective_schedules<'a>(program: &'a Program, kernel: &str) -> Vec<&'a ast::Schedule> {
    let mut all: Vec<&ast::Schedule> = program.schedules_of(kernel).collect();
    let mut seen = FxHashSet::default();
    all.reverse();
    all.retain(|item| {
        let target = item.target.as_ref().map(|target| &target.text[..]);
        !is_named(item, Some(TUNED)) || seen.insert(target)
    });
    all.reverse();
    all
}

/// Returns the schedules of a kernel that fit the target.
pub(super) fn candidates<'a>(
    program: &'a Program,
    kernel: &str,
    target: &Target,
) -> Vec<&'a ast::Schedule> {
    let fits =
        |item: &&ast::Schedule| item.target.as_ref().is_none_or(|name| covers(&name.text, target));
    effective_schedules(program, kernel).into_iter().filter(fits).collect()
}

/// Returns the rank of a schedule's target, in the order: none, `cpu`, `x86`, `x86-avx512`,
/// `x86-avx512+vnni`, `x86-avx512+bf16+vnni`.
fn specificity(item: &ast::Schedule) -> (usize, usize) {
    match item.target.as_ref().map(|name| &name.text[..]) {
        None => (0, 0),
        Some("cpu") => (1, 0),
        Some(name) => {
            let (base, features) = with_features(name);
            (1 + base.len(), features.count())
        }
    }
}

/// Returns the target of a schedule without its features, and the features.
fn with_features(name: &str) -> (&str, impl Iterator<Item = &str>) {
    let mut parts = name.split('+');
    (parts.next().unwrap_or_default(), parts)
}

/// Returns the schedule of this name for a kernel and a target.
pub fn find<'a>(
    program: &'a Program,
    kernel: &str,
    name: &str,
    target: &Target,
) -> Option<&'a ast::Schedule> {
    pick(program, kernel, Some(name), target)
}

fn pick<'a>(
    program: &'a Program,
    kernel: &str,
    name: Option<&str>,
    target: &Target,
) -> Option<&'a ast::Schedule> {
    // Only schedules of `tec tune`, and those for as many other features, can fit equally well; the
    // last one counts.
    program
        .schedules_named(kernel, name)
        .filter(|item| item.target.as_ref().is_none_or(|name| covers(&name.text, target)))
        .max_by_key(|item| specificity(item))
}

/// Whether the target of a schedule, one or more leading components of a name or a name with
/// features, covers `target`. A target with more features is covered, too.
pub(super) fn covers(of_schedule: &str, target: &Target) -> bool {
    let name = target.name;
    let (prefix, mut features) = with_features(of_schedule);
    let family = (prefix == "cpu" && !target.is_gpu())
        || name == prefix
        || (name.starts_with(prefix) && name[prefix.len()..].starts_with('-'));
    family && features.all(|feature| target.features.contains(&feature))
}

/// Whether a schedule for `old` is used wherever one of the same name for `new` would be: `old` is
/// `new`, or `new` with more features.
pub fn is_narrower(old: &str, new: &str) -> bool {
    let ((old_base, old_features), (new_base, mut new_features)) =
        (with_features(old), with_features(new));
    let old_features: Vec<&str> = old_features.collect();
    old_base == new_base && new_features.all(|feature| old_features.contains(&feature))
}

/// Returns the target of a schedule that contains the statements of schedules for several targets,
/// which differ in their features only: all features of all of them.
pub fn with_all_features<'a>(targets: impl IntoIterator<Item = &'a str>) -> String {
    let (mut base, mut all) = ("", BTreeSet::new());
    for target in targets {
        let (own, features) = with_features(target);
        base = own;
        all.extend(features);
    }
    all.into_iter().fold(base.to_string(), |target, feature| target + "+" + feature)
}

/// Returns the targets that a schedule can name: `cpu`, and one or more leading components of each
/// name.
fn groups() -> Vec<&'static str> {
    let mut groups = vec!["cpu"];
    for Target { name, .. } in Target::all() {
        let ends = name.match_indices('-').map(|(at, _)| at).chain([name.len()]);
        for group in ends.map(|end| &name[..end]) {
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
    }
    groups
}

/// Returns the error for an unknown target of a schedule (E0401), or a feature that its target does
/// not take (E0402).
fn check_target(name: &ast::Name) -> Option<Diag> {
    let groups = groups();
    let (base, mut features) = with_features(&name.text);
    if groups.contains(&base) {
        features.next()?;
        return match Target::parse(&name.text) {
            Ok(_) => None,
            // `cpu` and `x86` are no names of targets.
            Err(diag) if diag.code == "E0401" => {
                let text = format!("`{base}` means several targets and takes no features");
                let help = "name the target: `x86-avx512+vnni`";
                Some(Diag::new("E0402", name.span, text).help(help))
            }
            Err(diag) => Some(Diag { span: Some(name.span), ..*diag }),
        };
    }
    let diag = Diag::new("E0401", name.span, format!("unknown target `{base}`"));
    let diag = suggest(diag, base, groups, "targets");
    Some(match diag.help {
        Some(_) => diag,
        None => diag.help("`cpu` means every CPU, `nvptx` every GPU"),
    })
}

/// Checks everything that does not depend on the kernel, in all statements, whether they run or
/// not.
fn check_statements(stmts: &[ScheduleStmt], diags: &mut Vec<Diag>) {
    for stmt in stmts {
        match &stmt.kind {
            ScheduleStmtKind::Directive { directive, args, .. } => {
                diags.extend(check_call(directive, args).err().map(|diag| *diag));
            }
            ScheduleStmtKind::If { then, otherwise, .. } => {
                check_statements(then, diags);
                check_statements(otherwise, diags);
            }
            ScheduleStmtKind::For { body, .. } => check_statements(body, diags),
            _ => {}
        }
    }
}

/// Refuses the knobs of a template, which no `-D` could name (E0316).
fn check_knobs(stmts: &[ScheduleStmt], diags: &mut Vec<Diag>) {
    for stmt in stmts {
        match &stmt.kind {
            ScheduleStmtKind::Knob { name, .. } => {
                let diag = Diag::new("E0316", stmt.span, "a template has no knobs");
                diags.push(diag.help(format!(
                    "make `{}` a parameter; the schedule can give it a knob",
                    name.text
                )));
            }
            ScheduleStmtKind::If { then, otherwise, .. } => {
                check_knobs(then, diags);
                check_knobs(otherwise, diags);
            }
            ScheduleStmtKind::For { body, .. } => check_knobs(body, diags),
            _ => {}
        }
    }
}

/// Checks all schedules before any is applied: targets, statements, and that kernel, name and
/// target identify a schedule. `default` and `auto` are reserved names. A schedule of `tec tune`
/// replaces earlier ones of the same file.
fn check_items(program: &Program) -> std::result::Result<(), Vec<Diag>> {
    let mut seen: FxHashMap<_, Span> = FxHashMap::default();
    let mut diags = Vec::new();
    for template in templates(program) {
        check_statements(&template.body, &mut diags);
        check_knobs(&template.body, &mut diags);
    }
    for item in items(program) {
        diags.extend(item.target.as_ref().and_then(check_target));
        check_statements(&item.body, &mut diags);
        let text = |name: &Option<ast::Name>| name.as_ref().map(|name| name.text.clone());
        // `+vnni+bf16` is `+bf16+vnni`.
        let target = text(&item.target)
            .map(|name| Target::parse(&name).map_or(name, |target| target.to_string()));
        let key = (item.kernel.text.clone(), text(&item.name), target);
        if let Some(name) = item.name.as_ref().filter(|n| n.text == "default" || n.text == "auto") {
            let text = format!("a schedule cannot have the name `{}`", name.text);
            diags.push(Diag::new("E0304", name.span, text).help("choose another name"));
        } else if let Some(first) = seen.insert(key, item.kernel.span)
            && !(is_named(item, Some(TUNED)) && first.file == item.kernel.span.file)
        {
            let text = format!("two schedules of `{}` fit equally well", item.kernel.text);
            diags.push(
                Diag::new("E0304", item.kernel.span, text).related(first, "the first is here"),
            );
        }
    }
    if diags.is_empty() { Ok(()) } else { Err(diags) }
}

/// Checks that the kernel and the schedule of `--schedule` exist (E0303).
pub fn check_selector(
    program: &Program,
    graphs: &[Graph],
    target: &Target,
    selector: Option<&ScheduleSelector>,
) -> Result<()> {
    let Some((kernel, name)) = selector else { return Ok(()) };
    if let Some(kernel) = kernel
        && !graphs.iter().any(|graph| graph.name == *kernel)
    {
        let mut diag = Diag::global("E0303", format!("no kernel `{kernel}` is built here"));
        if let Some(close) = crate::diag::closest(kernel, graphs.iter().map(|g| &g.name[..])) {
            diag = diag.help(format!("did you mean `{close}`?"));
        }
        return Err(Box::new(diag));
    }
    let of = |graph: &&Graph| kernel.as_ref().is_none_or(|kernel| *kernel == graph.name);
    let mut concerned = graphs.iter().filter(of);
    if name == "default"
        || name == "auto"
        || graphs.is_empty()
        || concerned.any(|graph| pick(program, &graph.name, Some(name), target).is_some())
    {
        return Ok(());
    }
    // A kernel whose schedules of this name are for other targets ignores the option.
    if graphs.iter().filter(of).any(|g| !targets_of(program, &g.name, name).is_empty()) {
        return Ok(());
    }
    let all = graphs.iter().filter(of).flat_map(|g| candidates(program, &g.name, target));
    let mut names: Vec<&str> = vec!["auto", "default"];
    names.extend(all.filter_map(|item| item.name.as_ref()).map(|name| &name.text[..]));
    names.sort_unstable();
    names.dedup();
    let diag = Diag::global("E0303", format!("no schedule `{name}` for {target}"));
    Err(Box::new(suggest(diag, name, names, "schedules here")))
}
