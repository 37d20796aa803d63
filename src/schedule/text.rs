//! Schedules as text without a file: parsed and applied like those that a user wrote.

use super::evaluate::apply;
use super::select::covers;
use super::state::Schedule;
use crate::diag::{Diag, Result, SourceFile, Sources};
use crate::lang::ast::{File, Item};
use crate::lang::{ParsedLines, Program, parse_file};
use crate::target::Target;
use crate::te::{Defines, Graph};

/// Applies the only schedule of `text` to the kernel. Errors have places in `text`.
pub fn apply_text(
    graph: &Graph,
    target: &Target,
    defines: &Defines,
    text: &str,
) -> Result<Schedule> {
    apply_file(graph, target, defines, text, parse_file(text, 0)?)
}

/// Like [`apply_text`], but parses each line once, in `parsed`. `None` if the schedule is refused
/// or does not have one statement on each line; [`apply_text`] then returns the error.
pub fn apply_lines(
    graph: &Graph,
    target: &Target,
    defines: &Defines,
    text: &str,
    parsed: &ParsedLines,
) -> Option<Schedule> {
    let file = File { items: vec![Item::Schedule(parsed.parse(text)?)] };
    apply_file(graph, target, defines, text, file).ok()
}

fn apply_file(
    graph: &Graph,
    target: &Target,
    defines: &Defines,
    text: &str,
    file: File,
) -> Result<Schedule> {
    let refuse = |text: String| Err(Box::new(Diag::global("E0303", text)));
    let path = format!("{}.schedule", graph.name);
    let sources = Sources { files: vec![SourceFile { path, text: text.to_string() }] };
    let program = Program::new(sources, vec![file], vec![Vec::new()]);
    let [Item::Schedule(item)] = &program.files[0].items[..] else {
        return refuse("the text is not one schedule".to_string());
    };
    if item.kernel.text != graph.name {
        let (of, name) = (&item.kernel.text, &graph.name);
        return refuse(format!("the schedule is for kernel `{of}`, not for `{name}`"));
    }
    if let Some(name) = item.target.as_ref().filter(|name| !covers(&name.text, target)) {
        return refuse(format!("the schedule is for {}, not for {target}", name.text));
    }
    apply(&program, graph.clone(), target, defines, item)
}
