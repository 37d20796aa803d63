//! Schedules with one statement on each line, as the tuner writes them: each line is parsed once,
//! because thousands of candidates share their lines.

use super::{Builder, Grammar, Rule, depth, expr, parse_file};
use crate::lang::ast::{Item, Schedule, ScheduleStmt};
use pest::Parser;
use rustc_hash::FxHashMap;
use std::sync::{Mutex, PoisonError};

/// The lines that were parsed; `None` for one that is no statement.
#[derive(Default)]
pub struct ParsedLines {
    heads: Mutex<FxHashMap<String, Option<Schedule>>>,
    statements: Mutex<FxHashMap<String, Option<ScheduleStmt>>>,
}

impl ParsedLines {
    /// Parses a text that is one schedule with one statement on each line. `None` if it has another
    /// form, or an error. The spans of a statement are places in its line, not in the text.
    pub fn parse(&self, text: &str) -> Option<Schedule> {
        let mut lines = text.lines().map(str::trim).filter(|line| {
            // Comments and empty lines.
            !line.is_empty() && !line.starts_with('#')
        });
        let head = lines.next()?;
        let mut schedule = look_up(&self.heads, head, || parse_head(head))?;
        loop {
            match lines.next()? {
                "}" => break,
                line => {
                    let statement = look_up(&self.statements, line, || parse_statement(line))?;
                    schedule.body.push(statement);
                }
            }
        }
        schedule.span.start = 0;
        schedule.span.end = text.len() as u32;
        lines.next().is_none().then_some(schedule)
    }
}

fn look_up<T: Clone>(
    table: &Mutex<FxHashMap<String, Option<T>>>,
    line: &str,
    parse: impl FnOnce() -> Option<T>,
) -> Option<T> {
    let open = || table.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = open().get(line) {
        return known.clone();
    }
    let parsed = parse();
    open().insert(line.to_string(), parsed.clone());
    parsed
}

/// `schedule NAME for TARGET {`
fn parse_head(line: &str) -> Option<Schedule> {
    let mut file = parse_file(&format!("{line}\n}}"), 0).ok()?;
    match (file.items.pop(), file.items.is_empty()) {
        (Some(Item::Schedule(schedule)), true) if schedule.body.is_empty() => Some(schedule),
        _ => None,
    }
}

/// Parses a line that is one whole statement. The next line cannot continue it: statements begin
/// with a name or a reserved word, which continues no expression.
fn parse_statement(line: &str) -> Option<ScheduleStmt> {
    depth::check_nesting(line, 0).ok()?;
    let pair = Grammar::parse(Rule::schedule_stmt, line).ok()?.next()?;
    if pair.as_span().end() != line.len() {
        return None;
    }
    Builder { file: 0, operators: expr::operators() }.schedule_stmt(pair).ok()
}
