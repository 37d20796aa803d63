//! Makes a failing program smaller while it fails in the same way.

use super::program::{Ex, Program, Stage};
use tec::ir::DType;

/// No more programs than this are tried.
const MAX_TRIALS: usize = 600;

/// The smallest program found for which `fails` still holds.
pub fn shrink(program: Program, fails: &mut dyn FnMut(&Program) -> bool) -> Program {
    let mut best = program;
    let mut trials = 0;
    loop {
        let mut improved = false;
        let mut candidates = candidates(&best);
        candidates.sort_by_key(size);
        for candidate in candidates {
            if trials == MAX_TRIALS {
                return best;
            }
            trials += 1;
            if fails(&candidate) {
                best = candidate;
                improved = true;
                break;
            }
        }
        if !improved {
            return best;
        }
    }
}

fn size(program: &Program) -> usize {
    let of_stage = |stage: &Stage| -> usize {
        let mut stage = stage.clone();
        let sizes: usize = stage.expressions_mut().iter().map(|ex| ex.size()).sum();
        let frame = stage.axes.len() + stage.reduce.map_or(0, |reduce| 2 + reduce.axes.len());
        10 + sizes + frame
    };
    let stages: usize = program.stages.iter().map(of_stage).sum();
    stages + 3 * program.inputs.len() + 3 * program.lets.len() + 3 * program.vars.len()
}

fn candidates(program: &Program) -> Vec<Program> {
    let mut all = Vec::new();
    let mut propose = |change: &dyn Fn(&mut Program) -> bool| {
        let mut candidate = program.clone();
        if change(&mut candidate) {
            all.push(candidate);
        }
    };
    for i in 0..program.stages.len() {
        propose(&|p| {
            p.stages.remove(i);
            let last = p.stages.last_mut();
            last.map(|stage| stage.output = true).is_some()
        });
        propose(&|p| p.stages[i].reduce.as_mut().and_then(|r| r.condition.take()).is_some());
        propose(&|p| p.stages[i].reduce.as_mut().and_then(|r| r.init.take()).is_some());
        let reductions = program.stages[i].reduce.as_ref().map_or(0, |reduce| reduce.axes.len());
        for axis in 0..reductions {
            propose(&|p| {
                let axes = &mut p.stages[i].reduce.as_mut().expect("a reduction").axes;
                axes.len() > 1 && axes.remove(axis).0.len() > 1
            });
        }
        if program.stages[i].values.len() == 1 {
            propose(&|p| p.stages[i].reduce.take().is_some());
        }
        for axis in 0..program.stages[i].axes.len() {
            propose(&|p| {
                p.stages[i].axes.remove(axis);
                true
            });
        }
        propose(&|p| p.stages[i].dtype.take().is_some());
    }
    for i in 0..program.inputs.len() {
        propose(&|p| {
            p.inputs.remove(i);
            true
        });
    }
    for i in 0..program.lets.len() {
        propose(&|p| {
            p.lets.remove(i);
            true
        });
    }
    for i in 0..program.vars.len() {
        propose(&|p| {
            p.vars.remove(i);
            true
        });
    }
    for i in 0..program.stages.len() {
        all.extend(smaller_expressions(program, i));
    }
    all
}

/// Every node of a stage replaced by an operand of its type or by a literal.
fn smaller_expressions(program: &Program, stage: usize) -> Vec<Program> {
    let mut all = Vec::new();
    let count = program.stages[stage].clone().expressions_mut().len();
    for which in 0..count {
        let size = program.stages[stage].clone().expressions_mut()[which].size();
        for node in 0..size {
            let mut copy = program.clone();
            let mut expressions = copy.stages[stage].expressions_mut();
            let found = expressions[which].node_mut(&mut node.clone()).expect("a node");
            for replacement in replacements(found) {
                let mut candidate = program.clone();
                let mut expressions = candidate.stages[stage].expressions_mut();
                let found = expressions[which].node_mut(&mut node.clone()).expect("a node");
                *found = replacement;
                all.push(candidate);
            }
        }
    }
    all
}

fn replacements(ex: &Ex) -> Vec<Ex> {
    let mut all: Vec<Ex> = ex.operands().filter(|op| op.dtype == ex.dtype).cloned().collect();
    if ex.operands().next().is_some() {
        let literals: &[&str] = match ex.dtype {
            DType::Bool => &["true", "false"],
            DType::Index => &["0"],
            _ => &["1", "0"],
        };
        let typed = |text: &&str| match ex.dtype {
            DType::Bool | DType::Index => text.to_string(),
            dtype => format!("({text} as {dtype})"),
        };
        all.extend(literals.iter().map(|text| Ex::text(ex.dtype, typed(text))));
    }
    all
}
