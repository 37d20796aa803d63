//! The text of a schedule: groups of directives, each under a comment.

use crate::diag::scan::RESERVED;
use crate::schedule::Schedule;
use crate::target::Target;
use crate::te::Input;
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;

/// The directives so far, and the names in use.
pub(super) struct ScheduleText {
    kernel: String,
    target: &'static str,
    /// The features of the target that the directives use.
    features: BTreeSet<&'static str>,
    lines: Vec<String>,
    names: FxHashSet<String>,
}

/// Words that are not reserved, but have a meaning where a name may stand.
const TAKEN: [&str; 4] = ["target", "global", "local", "shared"];

impl ScheduleText {
    pub(super) fn new(schedule: &Schedule) -> ScheduleText {
        let graph = &schedule.graph;
        let words = RESERVED.iter().chain(&TAKEN);
        let mut names: FxHashSet<String> = words.map(|word| word.to_string()).collect();
        names.extend(graph.params.iter().chain(&graph.consts).map(|(name, _)| name.clone()));
        names.extend(graph.vars.iter().map(|var| var.name().to_string()));
        names.extend(graph.inputs.iter().map(|input| match input {
            Input::Tensor { buffer, .. } => buffer.name.clone(),
            Input::Scalar { var, .. } => var.name().to_string(),
        }));
        let mut text = ScheduleText {
            kernel: graph.name.clone(),
            target: schedule.target.name,
            features: BTreeSet::new(),
            lines: Vec::new(),
            names,
        };
        text.learn(schedule);
        text
    }

    /// Marks the names of stages and axes as taken.
    pub(super) fn learn(&mut self, schedule: &Schedule) {
        for stage in &schedule.stages {
            self.names.insert(stage.te.name.clone());
            self.names.extend(stage.te.buffers.iter().map(|buffer| buffer.name.clone()));
            self.names.extend(stage.axes.iter().map(|axis| axis.name.clone()));
        }
    }

    /// Returns a new name: `x_o`, `x_o2`, …
    pub(super) fn fresh(&mut self, base: &str, suffix: &str) -> String {
        let base: String = base.chars().map(|c| if c == '.' { '_' } else { c }).collect();
        let numbered = (2..).map(|number| format!("{base}{suffix}{number}"));
        let mut all = std::iter::once(format!("{base}{suffix}")).chain(numbered);
        let name = all.find(|name| !self.names.contains(name)).expect("numbers do not end");
        self.names.insert(name.clone());
        name
    }

    /// Begins a group with a comment: the rule, and why it applies.
    pub(super) fn rule(&mut self, rule: &str, why: &str) {
        let mut line = format!("    # {rule}:");
        for word in why.split_whitespace() {
            if line.len() + 1 + word.len() > 96 {
                self.lines.push(std::mem::replace(&mut line, "    #".to_string()));
            }
            line.push(' ');
            line.push_str(word);
        }
        self.lines.push(line);
    }

    /// Restricts the schedule to targets with the instruction of an intrinsic.
    pub(super) fn need_intrinsic(&mut self, name: &str) {
        self.features.extend(Target::feature_of_intrinsic(name));
    }

    /// Adds a statement.
    pub(super) fn push(&mut self, statement: String) {
        self.lines.push(format!("    {statement}"));
    }

    /// Returns the schedule.
    pub(super) fn finish(&self) -> String {
        let mut text = format!("schedule {} for {}", self.kernel, self.target);
        self.features.iter().for_each(|feature| text.extend(["+", feature]));
        text.push_str(" {");
        for line in &self.lines {
            text.push('\n');
            text.push_str(line);
        }
        text.push_str("\n}\n");
        text
    }
}
