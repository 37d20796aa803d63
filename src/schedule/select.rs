//! Which schedule a kernel is built with.
//!
//! A schedule is known by kernel, name and target. Of those with the wanted name whose target
//! covers the one built for, the most specific is taken; two equally specific ones are an error.

use crate::diag::{Diag, Result, closest};
use crate::lang::Program;
use crate::lang::ast::{Item, Param, Schedule, ScheduleStmt, ScheduleStmtKind};
use crate::target::Target;
use crate::te::Defines;

/// `--schedule [KERNEL.]NAME`.
pub type Chosen = (Option<String>, String);

/// Every schedule of a program.
pub fn schedules(program: &Program) -> impl Iterator<Item = &Schedule> {
    let items = program.files.iter().flat_map(|file| &file.items);
    items.filter_map(|item| match item {
        Item::Schedule(schedule) => Some(schedule),
        _ => None,
    })
}

/// Per kernel the schedule to build it with; `None` is the default one, the plain loop nest.
pub fn select<'a>(
    program: &'a Program,
    kernels: &[&str],
    chosen: Option<&Chosen>,
    target: &Target,
) -> Result<Vec<Option<&'a Schedule>>> {
    if let Some((_, name)) = chosen
        && name == "auto"
    {
        let diag = Diag::global("E0303", "`--schedule auto` is not in this version");
        return Err(Box::new(diag.help("name a schedule of the file, or `default`")));
    }
    if let Some((Some(kernel), _)) = chosen
        && !kernels.contains(&&kernel[..])
    {
        let mut diag = Diag::global("E0303", format!("no kernel `{kernel}` is built here"));
        if let Some(close) = closest(kernel, kernels.iter().copied()) {
            diag = diag.help(format!("did you mean `{close}`?"));
        }
        return Err(Box::new(diag));
    }
    let mut found = false;
    let mut picked = Vec::new();
    for kernel in kernels {
        let wanted = chosen
            .filter(|(of, _)| of.as_ref().is_none_or(|of| of == kernel))
            .map(|(_, name)| &name[..]);
        if wanted == Some("default") {
            found = true;
            picked.push(None);
            continue;
        }
        // A kernel without a schedule of that name is scheduled as if none were asked for.
        let named = wanted.and_then(|name| pick(program, kernel, Some(name), target));
        found |= named.is_some();
        picked.push(named.or_else(|| pick(program, kernel, None, target)));
    }
    match chosen {
        Some((_, name)) if !found && !kernels.is_empty() => {
            Err(Box::new(unknown_schedule(program, kernels, name, target)))
        }
        _ => Ok(picked),
    }
}

fn unknown_schedule(program: &Program, kernels: &[&str], name: &str, target: &Target) -> Diag {
    let mut names = vec!["default".to_string()];
    let mut elsewhere = None;
    for schedule in schedules(program).filter(|s| kernels.contains(&&s.kernel.text[..])) {
        let Some(own) = &schedule.name else { continue };
        if !covers_target(schedule, target) {
            if own.text == name {
                elsewhere = schedule.target.as_ref();
            }
        } else if !names.contains(&own.text) {
            names.push(own.text.clone());
        }
    }
    let mut diag = Diag::global("E0303", format!("no schedule `{name}` for {target}"))
        .note(format!("schedules here: {}", names.join(", ")));
    if let Some(target) = elsewhere {
        diag = diag.note(format!("there is one for {}", target.text));
    }
    match closest(name, names.iter().map(|name| &name[..])) {
        Some(close) => diag.help(format!("did you mean `{close}`?")),
        None => diag,
    }
}

/// The most specific schedule of a kernel with that name, or without one.
fn pick<'a>(
    program: &'a Program,
    kernel: &str,
    name: Option<&str>,
    target: &Target,
) -> Option<&'a Schedule> {
    let fits = |schedule: &&Schedule| {
        schedule.kernel.text == kernel
            && schedule.name.as_ref().map(|name| &name.text[..]) == name
            && covers_target(schedule, target)
    };
    schedules(program).filter(fits).max_by_key(|schedule| specificity(schedule))
}

/// How many components of a target's name a schedule asks for; `cpu` is less than any of them.
fn specificity(schedule: &Schedule) -> usize {
    match &schedule.target {
        None => 0,
        Some(target) if target.text == "cpu" => 1,
        Some(target) => 2 + target.text.matches('-').count(),
    }
}

/// Whether a schedule is for this target.
pub fn covers_target(schedule: &Schedule, target: &Target) -> bool {
    schedule.target.as_ref().is_none_or(|name| covers(&name.text, target))
}

/// Whether a schedule's target, one or more leading components of a name, covers `target`.
fn covers(prefix: &str, target: &Target) -> bool {
    let name = target.name;
    prefix == "cpu"
        || name == prefix
        || (name.starts_with(prefix) && name[prefix.len()..].starts_with('-'))
}

/// What is wrong with the heads of schedules: two for the same, a reserved name.
pub fn check_heads(program: &Program) -> Vec<Diag> {
    let mut diags = Vec::new();
    let all: Vec<&Schedule> = schedules(program).collect();
    let head = |schedule: &Schedule| {
        let name = schedule.name.as_ref().map(|name| name.text.clone());
        let target = schedule.target.as_ref().map(|target| target.text.clone());
        (schedule.kernel.text.clone(), name, target)
    };
    let mut seen = std::collections::HashMap::new();
    for schedule in &all {
        let place = schedule.name.as_ref().map_or(schedule.kernel.span, |name| name.span);
        if let Some(name) = &schedule.name
            && matches!(&name.text[..], "default" | "auto")
        {
            let text = format!("a schedule cannot have the name `{}`", name.text);
            let meaning = match &name.text[..] {
                "default" => "the plain loop nest in declaration order",
                _ => "the schedule that the compiler chooses",
            };
            let note = format!("`--schedule {}` is {meaning}", name.text);
            diags.push(Diag::new("E0302", place, text).note(note));
        }
        if let Some(first) = seen.insert(head(schedule), place) {
            let (kernel, name, target) = head(schedule);
            let name = name.map_or(String::new(), |name| format!(".{name}"));
            let target = target.map_or(String::new(), |target| format!(" for {target}"));
            let text = format!("two schedules `{kernel}{name}`{target} are equally specific");
            diags.push(
                Diag::new("E0302", place, text)
                    .related(first, "the first one is here")
                    .help("give one of them another name or target"),
            );
        }
    }
    diags
}

/// `-D KERNEL.SCHEDULE.t=…` for a schedule, parameter or knob that does not exist.
pub fn check_schedule_defines(program: &Program, defines: &Defines) -> Vec<Diag> {
    let mut diags = Vec::new();
    for (kernel, path, _) in defines {
        let Some((name, param)) = path.split_once('.') else { continue };
        let full = kernel.as_ref().map_or(String::new(), |kernel| format!("{kernel}."));
        let mut known: Vec<&str> = Vec::new();
        let mut any = false;
        for schedule in schedules(program) {
            let of = kernel.as_ref().is_none_or(|kernel| schedule.kernel.text == *kernel);
            if of && schedule.name.as_ref().is_some_and(|own| own.text == name) {
                any = true;
                known.extend(settings(schedule));
            }
        }
        if known.contains(&param) {
            continue;
        }
        let diag = if !any {
            Diag::global("E0311", format!("-D: there is no schedule `{full}{name}`"))
        } else {
            let text = format!("-D: schedule `{full}{name}` has no parameter or knob `{param}`");
            match closest(param, known.iter().copied()) {
                Some(close) => Diag::global("E0311", text).help(format!("did you mean `{close}`?")),
                None => Diag::global("E0311", text),
            }
        };
        diags.push(diag);
    }
    diags
}

/// Names of a schedule's parameters and knobs.
fn settings(schedule: &Schedule) -> Vec<&str> {
    fn knobs<'a>(stmts: &'a [ScheduleStmt], names: &mut Vec<&'a str>) {
        for stmt in stmts {
            match &stmt.kind {
                ScheduleStmtKind::Knob { name, .. } => names.push(&name.text),
                ScheduleStmtKind::If { then, otherwise, .. } => {
                    knobs(then, names);
                    knobs(otherwise, names);
                }
                ScheduleStmtKind::For { body, .. } => knobs(body, names),
                _ => {}
            }
        }
    }
    let mut names: Vec<&str> = schedule.params.iter().map(|p: &Param| &p.name.text[..]).collect();
    knobs(&schedule.body, &mut names);
    names
}

/// The value that `-D` gives to a setting of a schedule.
pub fn setting<'d>(schedule: &Schedule, name: &str, defines: &'d Defines) -> Option<&'d str> {
    let own = schedule.name.as_ref().map(|name| &name.text[..]);
    let fits = |(kernel, path, _): &&(Option<String>, String, String)| {
        let kernel_fits = kernel.as_ref().is_none_or(|k| *k == schedule.kernel.text);
        kernel_fits && path.split_once('.') == Some((own.unwrap_or_default(), name))
    };
    defines.iter().rev().find(fits).map(|(_, _, value)| &value[..])
}

/// The schedule of the same kernel that `use` names.
pub(super) fn find_used<'a>(
    program: &'a Program,
    kernel: &str,
    name: &str,
    target: &Target,
) -> std::result::Result<&'a Schedule, Vec<&'a str>> {
    pick(program, kernel, Some(name), target).ok_or_else(|| {
        let of = schedules(program).filter(|s| s.kernel.text == kernel && covers_target(s, target));
        of.filter_map(|s| s.name.as_ref()).map(|name| &name.text[..]).collect()
    })
}
