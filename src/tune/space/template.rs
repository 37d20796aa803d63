//! A schedule with knobs as a space: each knob is a question, and a candidate is the schedule with
//! constants in their places.

use super::ask::Asker;
use crate::lang::Program;
use crate::lang::ast::{Expr, Schedule, ScheduleStmt, ScheduleStmtKind};
use crate::tune::{Candidate, Question, Space};

/// The space of a schedule of the program: its `knob`s, in the order in which they stand.
pub fn of_schedule(program: &Program, item: &Schedule) -> impl Space + use<> {
    let text = |span: crate::diag::Span| {
        let file = &program.sources.files[span.file as usize].text;
        file[span.start as usize..span.end as usize].to_string()
    };
    let mut parts = Vec::new();
    let mut at = item.span.start;
    let between = |from: u32, to: u32| {
        let file = &program.sources.files[item.span.file as usize].text;
        file[from as usize..to as usize].to_string()
    };
    let mut knobs: Vec<&ScheduleStmt> = Vec::new();
    find_knobs(&item.body, &mut knobs);
    for stmt in knobs {
        let ScheduleStmtKind::Knob { name, default, choices } = &stmt.kind else { continue };
        let of = |expr: &Expr| text(expr.span);
        parts.push(Part::Text(between(at, stmt.span.start)));
        parts.push(Part::Knob {
            name: name.text.clone(),
            default: of(default),
            choices: choices.iter().map(of).collect(),
        });
        at = stmt.span.end;
    }
    parts.push(Part::Text(between(at, item.span.end)));
    Template { stage: item.kernel.text.clone(), parts }
}

fn find_knobs<'a>(body: &'a [ScheduleStmt], found: &mut Vec<&'a ScheduleStmt>) {
    for stmt in body {
        match &stmt.kind {
            ScheduleStmtKind::Knob { .. } => found.push(stmt),
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
    Knob { name: String, default: String, choices: Vec<String> },
}

impl Space for Template {
    fn replay(&self, answer: &mut dyn FnMut(&Question) -> usize) -> Candidate {
        let mut asker = Asker::new(answer);
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Knob { name, default, choices } => {
                    let mut all: Vec<&String> = Vec::new();
                    for choice in std::iter::once(default).chain(choices) {
                        if !all.contains(&choice) {
                            all.push(choice);
                        }
                    }
                    let chosen = asker.pick(&self.stage, name, &all, &default);
                    text.push_str(&format!("let {name} = {chosen}"));
                }
            }
        }
        Candidate { decisions: asker.decisions, text }
    }
}
