//! Shrinks a finding: drops statements, replaces subexpressions by an operand or a constant, and
//! makes numbers smaller, as long as `differential` reports the same finding.

use crate::differential::Verdict;
use crate::run::Setup;
use crate::tree::{Node, Program};
use std::time::{Duration, Instant};
use tec::ir::DType;

/// The time for one finding.
const LIMIT: Duration = Duration::from_secs(40);

/// Returns the smallest program found with the same finding, and its details.
pub fn shrink(setup: &Setup, what: &str, details: &str) -> (Setup, String) {
    let best = Setup { program: setup.program.clone(), options: setup.options.clone() };
    let mut shrinker = Shrinker {
        best,
        class: class(what),
        text: format!("{what}\n{details}"),
        end: Instant::now() + LIMIT,
    };
    while shrinker.round() {}
    (shrinker.best, shrinker.text)
}

/// Returns the class of a finding, which shrinking must keep.
fn class(what: &str) -> String {
    what.split(':').next().unwrap_or_default().to_string()
}

struct Shrinker {
    best: Setup,
    class: String,
    text: String,
    end: Instant,
}

impl Shrinker {
    fn is_over(&self) -> bool {
        Instant::now() > self.end
    }

    /// Keeps a candidate that has a finding of the same class.
    fn attempt(&mut self, program: Program) -> bool {
        if self.is_over() {
            return false;
        }
        let candidate = Setup { program, options: self.best.options.clone() };
        match candidate.compare() {
            Verdict::Wrong(what, details) if class(&what) == self.class => {
                self.best = candidate;
                self.text = format!("{what}\n{details}");
                true
            }
            _ => false,
        }
    }

    /// Makes one pass over the program; true if it became smaller.
    fn round(&mut self) -> bool {
        let directives = self.drop_directives();
        let statements = self.drop_statements();
        let pieces = self.replace_pieces();
        let numbers = self.smaller_numbers();
        (directives || statements || pieces || numbers) && !self.is_over()
    }

    /// Drops directives, alone or with all that use their results.
    fn drop_directives(&mut self) -> bool {
        let mut changed = false;
        for schedule in 0..self.best.program.schedules.len() {
            let mut at = self.best.program.schedules[schedule].body.len();
            while at > 0 {
                at = (at - 1).min(self.best.program.schedules[schedule].body.len());
                let mut program = self.best.program.clone();
                let body = &mut program.schedules[schedule].body;
                if at >= body.len() {
                    continue;
                }
                let line = body.remove(at);
                if self.attempt(program.clone()) {
                    changed = true;
                    continue;
                }
                let mut gone: Vec<String> = line.results.clone();
                program.schedules[schedule].body.retain(|other| {
                    let text = other.node.render();
                    let word = |c: char| !c.is_alphanumeric() && c != '_';
                    let named = text.split(word).any(|word| gone.iter().any(|name| name == word));
                    if named {
                        gone.extend(other.results.iter().cloned());
                    }
                    !named
                });
                changed |= !line.results.is_empty() && self.attempt(program);
            }
        }
        changed
    }

    fn drop_statements(&mut self) -> bool {
        let mut changed = false;
        for list in [body as fn(&mut Program) -> &mut Vec<Node>, items, params] {
            let mut at = list(&mut self.best.program).len();
            while at > 0 {
                at -= 1;
                let mut program = self.best.program.clone();
                list(&mut program).remove(at);
                changed |= self.attempt(program);
            }
        }
        changed
    }

    fn replace_pieces(&mut self) -> bool {
        let mut changed = false;
        let mut place = 0;
        while place < total(&mut self.best.program) && !self.is_over() {
            let candidates = candidates(nth(&mut self.best.program, place));
            let better = candidates.into_iter().any(|candidate| {
                let mut program = self.best.program.clone();
                *nth(&mut program, place) = candidate;
                self.attempt(program)
            });
            changed |= better;
            if !better {
                place += 1;
            }
        }
        changed
    }

    fn smaller_numbers(&mut self) -> bool {
        let mut changed = false;
        for at in 0..self.best.program.vars.len() {
            while self.best.program.vars[at].1 > 0 {
                let value = self.best.program.vars[at].1;
                let smaller = [value / 2, value - 1].into_iter().any(|value| {
                    let mut program = self.best.program.clone();
                    program.vars[at].1 = value;
                    self.attempt(program)
                });
                if !smaller {
                    break;
                }
                changed = true;
            }
        }
        changed
    }
}

fn body(program: &mut Program) -> &mut Vec<Node> {
    &mut program.body
}

fn items(program: &mut Program) -> &mut Vec<Node> {
    &mut program.items
}

fn params(program: &mut Program) -> &mut Vec<Node> {
    &mut program.params
}

/// Returns all pieces that can become smaller.
fn pieces(program: &mut Program) -> Vec<&mut Node> {
    let lines = program.schedules.iter_mut().flat_map(|schedule| &mut schedule.body);
    let lines = lines.map(|line| &mut line.node);
    program
        .params
        .iter_mut()
        .chain(&mut program.body)
        .chain(&mut program.items)
        .chain(lines)
        .collect()
}

fn total(program: &mut Program) -> usize {
    pieces(program).iter().map(|node| node.size()).sum()
}

fn nth(program: &mut Program, mut at: usize) -> &mut Node {
    let found = pieces(program).into_iter().find_map(|node| node.nth(&mut at));
    found.expect("a place below the total")
}

/// Returns the replacements of a piece, simplest first.
fn candidates(node: &Node) -> Vec<Node> {
    let Some(ty) = node.ty else { return Vec::new() };
    let mut simple = Vec::new();
    if ty == DType::Index {
        if let Ok(value) = node.form.parse::<i64>() {
            let smaller = [0, 1, value / 2, value - 1];
            let smaller = smaller.into_iter().filter(|other| (0..value).contains(other));
            simple.extend(smaller.map(|value| Node::leaf(ty, value.to_string())));
            return simple;
        }
        simple.extend(["0", "1"].map(|text| Node::leaf(ty, text)));
    } else if ty == DType::Bool {
        simple.extend(["true", "false"].map(|text| Node::leaf(ty, text)));
    } else {
        simple.extend(["0", "1"].map(|text| Node::leaf(ty, format!("({text} as {ty})"))));
    }
    // A constant is not replaced by another one of its size, so that shrinking terminates.
    simple.retain(|_| !node.kids.is_empty() || !node.form.contains(" as "));
    simple.retain(|other| other.form != node.form && !["true", "false"].contains(&&*node.form));
    // Parts of the same type, at any depth.
    fn parts<'a>(node: &'a Node, ty: DType, found: &mut Vec<&'a Node>) {
        for kid in &node.kids {
            if kid.ty == Some(ty) {
                found.push(kid);
            } else {
                parts(kid, ty, found);
            }
        }
    }
    let mut found = Vec::new();
    parts(node, ty, &mut found);
    simple.extend(found.into_iter().cloned());
    simple
}
