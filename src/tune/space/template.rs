//! The space of a schedule with knobs: each knob is a choice, and a candidate is the schedule with
//! constants in place of its knobs.

use super::chooser::Chooser;
use crate::diag::Result;
use crate::lang::Program;
use crate::lang::ast::{Name, Schedule, ScheduleStmt, ScheduleStmtKind};
use crate::schedule::{Knob, apply_with_knobs};
use crate::target::Target;
use crate::te::{Defines, Graph};
use crate::tune::{Candidate, Choice, Space};

/// Returns the space of a schedule of the program: its `knob`s, in order. Knobs of a schedule that
/// it uses, and knobs in a branch that is not taken by default, keep their defaults.
///
/// # Errors An error if the schedule is refused with all defaults.
pub fn of_schedule(
    program: &Program,
    graph: &Graph,
    target: &Target,
    defines: &Defines,
    item: &Schedule,
) -> Result<impl Space + use<>> {
    let (_, known) = apply_with_knobs(program, graph.clone(), target, defines, item)?;
    let source = &program.sources.files[item.span.file as usize].text;
    let between = |from: u32, to: u32| source[from as usize..to as usize].to_string();
    let mut stmts = Vec::new();
    find_knobs(&item.body, &mut stmts);
    let mut parts = Vec::new();
    let mut at = item.span.start;
    for (stmt, name) in stmts {
        // A knob in a loop was recorded several times, with the same values.
        let Some(knob) = known.iter().find(|knob| knob.span == name.span) else { continue };
        parts.push(Part::Text(between(at, stmt.span.start)));
        parts.push(Part::Knob { name: name.text.clone(), knob: knob.clone() });
        at = stmt.span.end;
    }
    parts.push(Part::Text(between(at, item.span.end)));
    Ok(Template { stage: item.kernel.text.clone(), parts })
}

fn find_knobs<'a>(body: &'a [ScheduleStmt], found: &mut Vec<(&'a ScheduleStmt, &'a Name)>) {
    for stmt in body {
        match &stmt.kind {
            ScheduleStmtKind::Knob { name, .. } => found.push((stmt, name)),
            ScheduleStmtKind::If { then, otherwise, .. } => {
                find_knobs(then, found);
                find_knobs(otherwise, found);
            }
            ScheduleStmtKind::For { body, .. } => find_knobs(body, found),
            _ => {}
        }
    }
}

/// The text of a schedule with gaps.
struct Template {
    stage: String,
    parts: Vec<Part>,
}

enum Part {
    Text(String),
    Knob { name: String, knob: Knob },
}

impl Space for Template {
    fn replay(&self, answer: &mut dyn FnMut(&Choice) -> usize) -> Candidate {
        let mut chooser = Chooser::new(answer);
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Knob { name, knob } => {
                    let mut choices = knob.choices.clone();
                    choices.dedup();
                    let chosen = chooser.pick(&self.stage, name, &choices, &knob.value);
                    text.push_str(&format!("let {name} = {chosen}"));
                }
            }
        }
        text.push('\n');
        Candidate { decisions: chooser.decisions, text }
    }
}
