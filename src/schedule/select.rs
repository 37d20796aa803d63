//! Which schedule a kernel is built with. This version applies only `default`, the plain loop
//! nest in declaration order; a file whose own schedule would be chosen is refused, not ignored.

use crate::diag::{Diag, Result};
use crate::lang::Program;
use crate::lang::ast::{Item, Schedule};
use crate::target::Target;
use crate::te::Graph;

/// Checks that every kernel's schedule is `default`, by choice or because the file has no other
/// for this target.
pub fn select(
    program: &Program,
    graphs: &[Graph],
    chosen: Option<&(Option<String>, String)>,
    target: &Target,
) -> Result<()> {
    if let Some((Some(kernel), _)) = chosen
        && !graphs.iter().any(|graph| graph.name == *kernel)
    {
        let mut diag = Diag::global("E0303", format!("no kernel `{kernel}` is built here"));
        if let Some(close) = crate::diag::closest(kernel, graphs.iter().map(|g| &g.name[..])) {
            diag = diag.help(format!("did you mean `{close}`?"));
        }
        return Err(Box::new(diag));
    }
    let mut found = false;
    for graph in graphs {
        let wanted = chosen
            .filter(|(kernel, _)| kernel.as_ref().is_none_or(|kernel| *kernel == graph.name))
            .map(|(_, name)| &name[..]);
        found |= wanted == Some("default");
        if wanted == Some("default") {
            continue;
        }
        // A kernel without a schedule of that name is scheduled as if none were asked for.
        let named = wanted.and_then(|name| pick(program, graph, Some(name), target));
        if let Some(schedule) = named.or_else(|| pick(program, graph, None, target)) {
            return Err(Box::new(not_in_this_version(schedule)));
        }
    }
    match chosen {
        Some((_, name)) if !found && !graphs.is_empty() => {
            let diag = Diag::global("E0303", format!("no schedule `{name}` for {target}"));
            Err(Box::new(diag.note("schedules here: default")))
        }
        _ => Ok(()),
    }
}

/// The schedule of `graph` with that name, or without one.
fn pick<'a>(
    program: &'a Program,
    graph: &Graph,
    name: Option<&str>,
    target: &Target,
) -> Option<&'a Schedule> {
    let items = program.files.iter().flat_map(|file| &file.items);
    let mut schedules = items.filter_map(|item| match item {
        Item::Schedule(schedule) => Some(schedule),
        _ => None,
    });
    schedules.find(|schedule| {
        schedule.kernel.text == graph.name
            && schedule.name.as_ref().map(|name| &name.text[..]) == name
            && schedule.target.as_ref().is_none_or(|name| covers(&name.text, target))
    })
}

/// Whether a schedule's target, one or more leading components of a name, covers `target`.
fn covers(prefix: &str, target: &Target) -> bool {
    let name = target.name;
    prefix == "cpu"
        || name == prefix
        || (name.starts_with(prefix) && name[prefix.len()..].starts_with('-'))
}

fn not_in_this_version(schedule: &Schedule) -> Diag {
    let name = schedule.name.as_ref().map_or(String::new(), |name| format!(".{}", name.text));
    let text =
        format!("schedule `{}{name}` cannot be applied in this version", schedule.kernel.text);
    Diag::new("E0302", schedule.span, text)
        .help("build with `--schedule default`, the plain loop nest in declaration order")
}
