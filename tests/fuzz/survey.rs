//! Derives the properties of stages that schedules need from the statements of a random program.

use crate::generate::{Ext, Tensor};
use crate::pipeline::reads;
use crate::tree::{Node, StageInfo};
use std::collections::HashMap;

/// Returns the stages that `body` declares; `tensors` and `exts` are those of the generator.
pub fn survey(body: &[Node], tensors: &[Tensor], exts: &[Ext]) -> Vec<StageInfo> {
    let ext = |node: &Node| {
        let known = exts.iter().find(|ext| ext.text == node.form).cloned();
        let literal = || node.form.parse().ok().map(Ext::literal);
        known.or_else(literal).unwrap_or_else(|| Ext::plain(node.form.clone(), false, 4))
    };
    let names = || tensors.iter().map(|tensor| &tensor.name[..]);
    let mut ranges: HashMap<String, Ext> = HashMap::new();
    let mut aliases: HashMap<String, String> = HashMap::new();
    let mut stages: Vec<StageInfo> = Vec::new();
    for (place, node) in body.iter().enumerate() {
        let text = node.render();
        if let Some(rest) = node.form.strip_prefix("reduce ") {
            let name = rest.split(':').next().unwrap_or_default();
            ranges.insert(name.to_string(), ext(&node.kids[1]));
            continue;
        }
        let output = node.form.starts_with("output ");
        if !output && !node.form.starts_with("compute ") {
            if let Some((alias, of)) = text.strip_prefix("let ").and_then(|t| t.split_once(" = "))
                && names().any(|name| name == of)
            {
                aliases.insert(alias.to_string(), of.to_string());
                continue;
            }
            // Tensors that an operator or a branch reads have readers that a schedule cannot name.
            for read in names().filter(|name| mentions(&text, name)) {
                let read = aliases.get(read).map_or(read, |of| of);
                stages.iter_mut().filter(|s| s.named(read)).for_each(|s| s.pinned = true);
            }
            continue;
        }
        let head = node.form.split(['[']).next().unwrap_or_default();
        let components: Vec<String> = head
            .split(' ')
            .skip(1)
            .collect::<String>()
            .split(['(', ')', ','])
            .filter(|part| !part.is_empty())
            .map(|part| part.split(':').next().unwrap_or_default().to_string())
            .collect();
        let inside = node.form.split(['[', ']']).nth(1).unwrap_or_default();
        let axes: Vec<(String, Ext)> = inside
            .split(", ")
            .filter_map(|axis| axis.split_once(':'))
            .zip(&node.kids)
            .map(|((name, _), kid)| (name.to_string(), ext(kid)))
            .collect();
        let body = node.form.split_once(" = ").map_or("", |(_, body)| body);
        // No directive names the axis of a sort.
        let sorts = body.starts_with("sort(") || body.starts_with("argsort(");
        let reduce = if sorts { Vec::new() } else { reduced(body) };
        let reducer = body.split('(').next().unwrap_or_default();
        let ordered = ["first", "affine", "argmin", "argmax"].iter();
        let commutes = reduce.is_empty() || !ordered.clone().any(|name| reducer.contains(name));
        let of = |name: &String| tensors.iter().find(|tensor| tensor.name == *name);
        let float = components.iter().filter_map(of).any(|tensor| tensor.dtype.is_float());
        let resolve = |name: String| aliases.get(&name).cloned().unwrap_or(name);
        let reads: Vec<String> = reads(&text, names()).into_iter().map(resolve).collect();
        stages.push(StageInfo {
            name: components[0].clone(),
            others: components[1..].to_vec(),
            axes,
            exact: commutes && (reduce.is_empty() || !float),
            reduce: reduce
                .iter()
                .filter_map(|name| Some((name.clone(), ranges.get(name)?.clone())))
                .collect(),
            output,
            commutes,
            reads,
            place,
            pinned: false,
            dot: false,
            prefix: None,
            scatter: None,
            steps: 0,
            earlier: Vec::new(),
            update: false,
        });
    }
    // A reader of any component reads the stage.
    let first: HashMap<String, String> = stages
        .iter()
        .flat_map(|stage| stage.others.iter().map(|other| (other.clone(), stage.name.clone())))
        .collect();
    for stage in &mut stages {
        for read in &mut stage.reads {
            if let Some(name) = first.get(read) {
                read.clone_from(name);
            }
        }
    }
    // The compiler drops stages that no output needs.
    let mut needed: Vec<usize> = (0..stages.len()).filter(|at| stages[*at].output).collect();
    let mut next = 0;
    while next < needed.len() {
        let reads = stages[needed[next]].reads.clone();
        for (at, stage) in stages.iter().enumerate() {
            if reads.contains(&stage.name) && !needed.contains(&at) {
                needed.push(at);
            }
        }
        next += 1;
    }
    let dropped: Vec<StageInfo> =
        (0..stages.len()).filter(|at| !needed.contains(at)).map(|at| stages[at].clone()).collect();
    stages.retain(|stage| dropped.iter().all(|other| other.name != stage.name));
    for stage in &mut stages {
        // The dropped readers of a stage may be needed in unknown ways.
        stage.pinned |= dropped.iter().any(|other| other.reads.contains(&stage.name));
    }
    stages
}

/// Returns the names in `axis=k` or `axis=[k, l]`.
fn reduced(body: &str) -> Vec<String> {
    let Some((_, rest)) = body.rsplit_once("axis=") else { return Vec::new() };
    let list = match rest.strip_prefix('[') {
        Some(list) => list.split(']').next().unwrap_or_default(),
        None => rest.split([',', ')']).next().unwrap_or_default(),
    };
    list.split(", ").map(str::to_string).collect()
}

fn mentions(text: &str, name: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
}
