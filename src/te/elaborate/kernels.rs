//! Builds a kernel: parameters, statements, outputs; then drops the stages that no output needs and
//! checks every index.

use super::Elaborator;
use super::frame::Frame;
use super::parameters::show;
use super::stages::for_each_load;
use super::values::Value;
use crate::diag::{Diag, Span};
use crate::ir::{Buffer, ExprKind};
use crate::lang::ast;
use crate::te::quantized::expand_quantized;
use crate::te::{Graph, check_bounds};
use rustc_hash::FxHashSet;

impl<'a> Elaborator<'a> {
    /// Builds the graph of a kernel. Wrong parts are reported and missing in the graph.
    pub fn build_kernel(&mut self, kernel: &'a ast::Kernel) -> Graph {
        let (name, span) = (kernel.name.text.clone(), kernel.name.span);
        let (reassociate, network) = (kernel.reassociate, kernel.network);
        self.graph = Graph { name, span, reassociate, network, ..empty_graph() };
        self.building = Some(kernel);
        self.stopped = false;
        self.operator_statements = 0;
        self.operator_nodes = 0;
        self.expanded_values = 0;
        self.operator_calls.clear();
        let mut frame = Frame::new(kernel);
        let (vars, params) = self.bind_parameters(&mut frame);
        self.graph.vars = vars;
        self.graph.params = params;
        self.statements(&mut frame, &kernel.body);
        if !frame.has_output {
            let message = format!("the kernel `{}` has no output", kernel.name.text);
            let help = "declare the result with `output C[i: n] = …`";
            self.error(Diag::new("E0235", kernel.name.span, message).help(help));
        }
        self.check_updated(&frame);
        self.check_estimates();
        self.graph.consts = constants(&frame);
        self.building = None;
        let mut graph = std::mem::replace(&mut self.graph, empty_graph());
        self.check_dropped(&graph);
        drop_unneeded(&mut graph);
        self.check_indices(&mut graph);
        self.check_quantized(&graph);
        self.stopped = false;
        if self.diags.is_empty() {
            expand_quantized(&mut graph);
        }
        graph
    }

    /// Checks the stages that no output needs, before they are dropped.
    fn check_dropped(&mut self, graph: &Graph) {
        let mut pruned = graph.clone();
        drop_unneeded(&mut pruned);
        if pruned.stages.len() < graph.stages.len() {
            self.check_indices(&mut graph.clone());
        }
    }

    fn check_indices(&mut self, graph: &mut Graph) {
        let mut diags = Vec::new();
        check_bounds(graph, &mut diags);
        for mut diag in diags {
            let inside = |outer: Span, inner: Span| {
                outer.file == inner.file && outer.start <= inner.start && inner.end <= outer.end
            };
            let calls = self.operator_calls.iter();
            let calls = calls.filter(|(kernel, ..)| diag.span.is_some_and(|s| inside(*kernel, s)));
            for (_, call, name) in calls.take(4).cloned().collect::<Vec<_>>() {
                diag = diag.related(call, format!("`{name}` is used here"));
            }
            self.error(diag);
        }
    }
}

/// Returns the compile-time constants (`let`) of a kernel.
fn constants(frame: &Frame) -> Vec<(String, String)> {
    let known = frame
        .scope
        .iter()
        .filter(|(_, entry)| entry.what == "constant" && !matches!(entry.value, Value::Pack(_)));
    let shown = known.filter_map(|(name, entry)| Some((name.to_string(), show(&entry.value)?)));
    let mut constants: Vec<(String, String)> = shown.collect();
    constants.sort();
    constants
}

/// Returns an empty graph.
pub fn empty_graph() -> Graph {
    Graph {
        name: String::new(),
        span: Span::default(),
        params: Vec::new(),
        consts: Vec::new(),
        aliases: Vec::new(),
        vars: Vec::new(),
        inputs: Vec::new(),
        stages: Vec::new(),
        dropped: Vec::new(),
        outputs: Vec::new(),
        assumes: Vec::new(),
        asserts: Vec::new(),
        estimates: Vec::new(),
        reassociate: false,
        network: false,
        part_of_network: false,
        dims: Vec::new(),
        checks: Vec::new(),
    }
}

/// Drops the stages that no output needs.
fn drop_unneeded(graph: &mut Graph) {
    // A recurrence is needed as a whole: each of its stages depends on all of them.
    let mut recurrences = FxHashSet::default();
    let mut keep = needed_stages(graph, &recurrences);
    loop {
        let kept = graph.stages.iter().zip(&keep).filter(|(_, is_needed)| **is_needed);
        let found: FxHashSet<usize> =
            kept.filter_map(|(stage, _)| Some(stage.recurrence.as_ref()?.id)).collect();
        if found == recurrences {
            break;
        }
        recurrences = found;
        keep = needed_stages(graph, &recurrences);
    }
    let mut keep = keep.into_iter();
    let dropped = &mut graph.dropped;
    graph.stages.retain(|stage| {
        let is_needed = keep.next().expect("one for each stage");
        if !is_needed {
            dropped.push(stage.name.clone());
        }
        is_needed
    });
}

/// Returns for each stage whether an output or one of these recurrences needs it.
fn needed_stages(graph: &Graph, recurrences: &FxHashSet<usize>) -> Vec<bool> {
    let mut needed: FxHashSet<Buffer> = FxHashSet::default();
    let mut keep: Vec<bool> = Vec::with_capacity(graph.stages.len());
    for stage in graph.stages.iter().rev() {
        let belongs = stage.recurrence.as_ref().is_some_and(|of| recurrences.contains(&of.id));
        let is_read = stage.buffers.iter().any(|buffer| needed.contains(buffer));
        keep.push(stage.output || belongs || is_read);
        if keep.last() == Some(&true) {
            for_each_load(&stage.body, &mut |load| {
                if let ExprKind::Load { buffer, .. } = &load.kind {
                    needed.insert(buffer.clone());
                }
            });
        }
    }
    keep.reverse();
    keep
}
