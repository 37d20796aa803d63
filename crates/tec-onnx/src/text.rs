//! Writes the network as text.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;

use crate::context::{Comparison, Context};
use crate::dim::{Dim, REDUCE};
use crate::dtype::Val;
use crate::expr::{E, Names};
use crate::graph::{Def, Graph, Reduce, T, Tensor};
use crate::names::Identifiers;
use crate::typical::typical_calls;

/// The number of columns after which a statement continues on the next line.
const MAX_COLUMNS: usize = 100;

/// A network ready to be written.
pub(crate) struct Network<'a> {
    pub(crate) name: &'a str,
    /// The first line, a comment.
    pub(crate) comment: String,
    pub(crate) context: &'a Context,
    /// Run-time integers in the order of their declaration.
    pub(crate) symbols: Vec<String>,
    pub(crate) inputs: Vec<T>,
    /// The tensor of each output with its name in the model.
    pub(crate) outputs: Vec<(String, T)>,
    /// Updates of `inout` tensors.
    pub(crate) updates: Vec<T>,
}

/// What was written.
pub(crate) struct Written {
    pub(crate) text: String,
    /// The tensors with data, in the order of their declaration, with their names.
    pub(crate) params: Vec<(T, String)>,
    pub(crate) inputs: Vec<String>,
    pub(crate) outputs: Vec<String>,
}

struct Writer<'a> {
    graph: &'a Graph,
    names: HashMap<T, String>,
    /// Names of reduction axes by extent and number among the axes of this extent.
    axes: HashMap<(Dim, usize), String>,
    identifiers: Identifiers,
    text: String,
}

/// Returns the tensors that the outputs and updates need, in the order of their definition.
fn live(graph: &Graph, outputs: &[(String, T)], updates: &[T]) -> BTreeSet<T> {
    let mut live = BTreeSet::new();
    let mut work: Vec<T> = outputs.iter().map(|(_, tensor)| *tensor).collect();
    work.extend(updates);
    while let Some(tensor) = work.pop() {
        if live.insert(tensor) {
            work.extend(graph.operands(tensor));
        }
    }
    live
}

/// A shape in brackets.
pub(crate) fn shape_text(shape: &[Dim]) -> String {
    let dims: Vec<String> = shape.iter().map(|dim| dim.text(&|_| String::new())).collect();
    format!("[{}]", dims.join(", "))
}

pub(crate) fn write(network: &Network) -> Written {
    let graph = &network.context.graph;
    let live = live(graph, &network.outputs, &network.updates);
    let mut writer = Writer {
        graph,
        names: HashMap::new(),
        axes: HashMap::new(),
        identifiers: Identifiers::default(),
        text: String::new(),
    };
    for symbol in &network.symbols {
        writer.identifiers.unique(symbol);
    }
    let mut inputs = Vec::new();
    for tensor in &network.inputs {
        let name = writer.identifiers.unique(&graph[*tensor].name);
        writer.names.insert(*tensor, name.clone());
        inputs.push(name);
    }
    // A stage is declared as an output as long as that keeps the order of the model; the outputs
    // after it are copies.
    let mut declared: HashMap<T, String> = HashMap::new();
    let mut in_order = true;
    let mut last = None;
    let mut outputs = Vec::new();
    for (name, tensor) in &network.outputs {
        let name = writer.identifiers.unique(name);
        let stage = matches!(graph[*tensor].def, Def::Compute { .. } | Def::Call { .. });
        in_order &= stage && last < Some(*tensor);
        if in_order {
            last = Some(*tensor);
            declared.insert(*tensor, name.clone());
            writer.names.insert(*tensor, name.clone());
        }
        outputs.push(name);
    }
    let mut params = Vec::new();
    for tensor in &live {
        if let Def::Update { tensor: own, .. } = &graph[*tensor].def {
            writer.names.insert(*tensor, writer.names[own].clone());
        }
        if !writer.names.contains_key(tensor) {
            let name = writer.identifiers.unique(&graph[*tensor].name);
            writer.names.insert(*tensor, name);
        }
        if matches!(graph[*tensor].def, Def::Data(_)) {
            params.push((*tensor, writer.names[tensor].clone()));
        }
    }

    writer.text = format!("{}\nimport \"onnx.te\" as onnx\n", network.comment);
    for prefix in ["ml", "narrow", "rare"] {
        let mut asserts = network.context.asserts.iter();
        if live.iter().any(|tensor| stage_calls(&graph[*tensor].def, prefix))
            || asserts.any(|own| calls(&own.cond, prefix))
        {
            writeln!(writer.text, "import \"onnx_{prefix}.te\" as {prefix}").expect("a string");
        }
    }
    writer.text.push('\n');
    let symbols: Vec<String> = network.symbols.iter().map(|s| format!("{s}: var")).collect();
    let symbols =
        if symbols.is_empty() { String::new() } else { format!("({})", symbols.join(", ")) };
    let symbols = if symbols.is_empty() { "()".to_string() } else { symbols };
    let order = if network.context.reassociate { " reassociate" } else { "" };
    writeln!(writer.text, "network {}{symbols}{order} {{", network.name).expect("a string");
    let assumptions = network.context.assumptions.iter().cloned();
    let assumptions: BTreeSet<_> = assumptions.chain(graph.narrow_assumptions()).collect();
    let assumptions = without_weaker(assumptions);
    for (a, op, b) in &assumptions {
        let none = |_| String::new();
        // The constant stands last.
        let (a, b) = if *op == "==" && a.as_const().is_some() { (b, a) } else { (a, b) };
        writeln!(writer.text, "    assume {} {op} {}", a.text(&none), b.text(&none))
            .expect("a string");
    }
    let shapes: Vec<_> = network.inputs.iter().map(|input| graph[*input].shape.clone()).collect();
    let calls = typical_calls(&network.symbols, &shapes, &assumptions, network.context, &live);
    for sizes in calls {
        let sizes =
            network.symbols.iter().zip(sizes).map(|(name, size)| format!("{name} = {size}"));
        writeln!(writer.text, "    estimate {}", sizes.collect::<Vec<_>>().join(", "))
            .expect("a string");
    }
    for tensor in &network.inputs {
        let is_inout = matches!(graph[*tensor].def, Def::Inout);
        writer.declare(*tensor, if is_inout { "inout" } else { "input" });
    }
    for (tensor, _) in &params {
        writer.declare(*tensor, "param");
    }
    let mut asserted = BTreeSet::new();
    for assertion in &network.context.asserts {
        let text = writer.expression(&assertion.cond, &[]);
        if asserted.insert(text.clone()) {
            writer.assertion(&text, &assertion.text);
        }
    }
    for tensor in &live {
        let keyword = if declared.contains_key(tensor) { "output" } else { "compute" };
        writer.stage(*tensor, keyword);
    }
    for ((_, tensor), name) in network.outputs.iter().zip(&outputs) {
        if declared.get(tensor) != Some(name) {
            let source = &graph[*tensor];
            let axes = crate::context::axes(&source.shape);
            let body = match network.context.graph.scalar(*tensor) {
                Some(value) => E::Lit(value.clone(), source.dtype),
                None => E::Load(*tensor, axes.into_iter().map(E::Idx).collect()),
            };
            writer.compute("output", name, source, &body, None);
        }
    }
    writer.text += "}\n";
    Written { text: writer.text, params, inputs, outputs }
}

/// Drops bounds that a greater one of the same number implies.
fn without_weaker(all: BTreeSet<Comparison>) -> Vec<Comparison> {
    let bound = |(a, op, b): &Comparison| Some((a.clone(), b.as_const()?)).filter(|_| *op == ">=");
    let mut greatest: HashMap<Dim, i64> = HashMap::new();
    for (number, least) in all.iter().filter_map(bound) {
        let own = greatest.entry(number).or_insert(least);
        *own = least.max(*own);
    }
    let is_weaker =
        |one: &Comparison| bound(one).is_some_and(|(number, least)| greatest[&number] > least);
    all.into_iter().filter(|one| !is_weaker(one)).collect()
}

impl Writer<'_> {
    fn line(&mut self, head: &str, body: &str) {
        let one_line = 4 + head.len() + 1 + body.len() <= MAX_COLUMNS;
        let separator = if one_line { " " } else { "\n        " };
        // A long choice has a line for each case.
        let body = match one_line || 8 + body.len() <= MAX_COLUMNS {
            true => body.to_string(),
            false => body.replace(" else ", "\n        else "),
        };
        writeln!(self.text, "    {head}{separator}{body}").expect("a string");
    }

    /// Writes an assertion, with line breaks after operands.
    fn assertion(&mut self, condition: &str, text: &str) {
        self.text += "    assert";
        let mut column = 10;
        let condition = format!("{condition},");
        for part in condition.split(' ').chain([&format!("\"{text}\"")[..]]) {
            let width = 1 + part.chars().count();
            if column + width > MAX_COLUMNS {
                self.text += "\n        ";
                column = 8 + width - 1;
            } else {
                self.text.push(' ');
                column += width;
            }
            self.text += part;
        }
        self.text.push('\n');
    }

    fn declare(&mut self, tensor: T, keyword: &str) {
        let Tensor { dtype, shape, .. } = &self.graph[tensor];
        let name = &self.names[&tensor];
        let shape = shape_text(shape);
        writeln!(self.text, "    {keyword} {name}: {}{shape}", dtype.name()).expect("a string");
    }

    fn stage(&mut self, tensor: T, keyword: &str) {
        let own = &self.graph[tensor];
        let name = self.names[&tensor].clone();
        match &own.def {
            Def::Input | Def::Inout | Def::Data(_) => {}
            Def::Update { region, axis, offset, body, .. } => {
                let none = |_| String::new();
                let place = |(at, extent): (usize, &Dim)| {
                    let extent = extent.text(&none);
                    match at == *axis && *offset != Dim::zero() {
                        true => format!("{} + i{at}: {extent}", range_end(offset)),
                        false => format!("i{at}: {extent}"),
                    }
                };
                let places: Vec<String> = region.iter().enumerate().map(place).collect();
                let body = self.expression(body, &[]);
                self.line(&format!("update {name}[{}] =", places.join(", ")), &body);
            }
            Def::Known => {
                let body = known_body(own);
                self.compute("compute", &name, own, &body, None);
            }
            Def::Compute { body, reduce } => {
                self.compute(keyword, &name, own, body, reduce.as_ref());
            }
            Def::Position { kind, position, value, extents, condition } => {
                let axes = self.reduce_axes(extents);
                let second = self.identifiers.unique(&format!("{name}_value"));
                let head = format!("compute ({name}: int64, {second}){} =", declare_axes(own));
                let position = match position {
                    // An axis of one element has no name in expressions.
                    E::Idx(dim) if dim.as_const() == Some(0) => axes[0].clone(),
                    other => self.expression(other, &axes),
                };
                let mut body = format!("{kind}(({position}, {}), ", self.expression(value, &axes));
                write!(body, "axis={}", axis_list(&axes)).expect("a string");
                if let Some(condition) = condition {
                    write!(body, ", where={}", self.expression(condition, &axes))
                        .expect("a string");
                }
                self.line(&head, &(body + ")"));
            }
            Def::Order { key, axis, extent, descending } => {
                let axes = self.reduce_axes(std::slice::from_ref(extent));
                let key = self.expression(key, &axes);
                let order = if *descending { ", descending=true" } else { "" };
                let body = format!("argsort({key}, axis={}, at=i{axis}{order})", axes[0]);
                self.line(&format!("{keyword} {name}{}: int64 =", declare_axes(own)), &body);
            }
            Def::Call { op, args, keys } => {
                let mut list: Vec<String> =
                    args.iter().map(|arg| self.names[arg].clone()).collect();
                list.extend(keys.iter().map(|(key, value)| format!("{key}={value}")));
                let keyword = if keyword == "compute" { "let" } else { keyword };
                let file = if op.contains('.') { "" } else { "onnx." };
                let call = format!("{file}{op}({})", list.join(", "));
                self.line(&format!("{keyword} {name} ="), &call);
            }
        }
    }

    fn compute(
        &mut self,
        keyword: &str,
        name: &str,
        stage: &Tensor,
        body: &E,
        reduce: Option<&Reduce>,
    ) {
        let extents = reduce.map_or(&[][..], |reduce| &reduce.extents);
        let axes = self.reduce_axes(extents);
        let mut body = self.expression(body, &axes);
        if let Some(Reduce { kind, condition, init, .. }) = reduce {
            body = format!("{kind}({body}, axis={}", axis_list(&axes));
            if let Some(condition) = condition {
                write!(body, ", where={}", self.expression(condition, &axes)).expect("a string");
            }
            if let Some(init) = init {
                write!(body, ", init={}", self.expression(init, &axes)).expect("a string");
            }
            body.push(')');
        }
        let dtype = match stage.dtype {
            crate::DType::Float32 => String::new(),
            other => format!(": {}", other.name()),
        };
        self.line(&format!("{keyword} {name}{}{dtype} =", declare_axes(stage)), &body);
    }

    /// Declares the reduction axes that are new, and returns the names of all.
    fn reduce_axes(&mut self, extents: &[Dim]) -> Vec<String> {
        let mut names = Vec::new();
        let mut new = Vec::new();
        for (at, extent) in extents.iter().enumerate() {
            let nth = extents[..at].iter().filter(|other| *other == extent).count();
            let next = format!("k{}", self.axes.len());
            let name = self.axes.entry((extent.clone(), nth)).or_insert_with(|| {
                new.push(format!("{next}: 0..{}", range_end(extent)));
                next
            });
            names.push(name.clone());
        }
        if !new.is_empty() {
            self.line("reduce", &new.join(", "));
        }
        names
    }

    fn expression(&self, e: &E, reduce: &[String]) -> String {
        let axis = |id: u16| match id.checked_sub(REDUCE) {
            None => format!("i{id}"),
            Some(at) => reduce[usize::from(at)].clone(),
        };
        e.text(&Names { axis: &axis, tensor: &|tensor| self.names[&tensor].clone() })
    }
}

/// Whether an expression calls a function of a file of the library.
fn calls(e: &E, prefix: &str) -> bool {
    e.contains(&|e| match e {
        E::Call(name, _) => name.split_once('.').is_some_and(|(own, _)| own == prefix),
        _ => false,
    })
}

/// Whether a stage calls something of a file of the library.
fn stage_calls(def: &Def, prefix: &str) -> bool {
    match def {
        Def::Input | Def::Inout | Def::Data(_) | Def::Known => false,
        Def::Call { op, .. } => op.split_once('.').is_some_and(|(own, _)| own == prefix),
        Def::Update { body, .. } | Def::Order { key: body, .. } => calls(body, prefix),
        Def::Compute { body, reduce } => {
            let inner = reduce.iter().flat_map(|own| own.condition.iter().chain(&own.init));
            calls(body, prefix) || inner.into_iter().any(|e| calls(e, prefix))
        }
        Def::Position { position, value, condition, .. } => {
            [position, value].into_iter().chain(condition).any(|e| calls(e, prefix))
        }
    }
}

fn axis_list(axes: &[String]) -> String {
    if axes.len() == 1 { axes[0].clone() } else { format!("[{}]", axes.join(", ")) }
}

/// The end of a range, in parentheses unless it is a name or number.
fn range_end(extent: &Dim) -> String {
    let (text, level) = extent.print(&|_| String::new());
    if level < 2 { format!("({text})") } else { text }
}

fn declare_axes(stage: &Tensor) -> String {
    let axis = |(at, dim): (usize, &Dim)| format!("i{at}: {}", dim.text(&|_| String::new()));
    let axes: Vec<String> = stage.shape.iter().enumerate().map(axis).collect();
    format!("[{}]", axes.join(", "))
}

/// Known values that depend on run-time integers, as a choice by position.
fn known_body(tensor: &Tensor) -> E {
    let values = tensor.vals.as_deref().unwrap_or(&[]);
    let flat = {
        let axes = crate::context::axes(&tensor.shape);
        let zero = Dim::zero();
        tensor.shape.iter().zip(&axes).fold(zero, |flat, (extent, axis)| &flat * extent + axis)
    };
    let literal = |value: &Val| match value {
        Val::Int(dim) => E::dim(dim, tensor.dtype),
        other => E::Lit(other.clone(), tensor.dtype),
    };
    let mut values = values.iter().enumerate().rev();
    let Some((_, last)) = values.next() else { return E::int(0, tensor.dtype) };
    let mut body = literal(last);
    for (at, value) in values {
        let here = E::Bin("==", E::Idx(flat.clone()).into(), E::Idx((at as i64).into()).into());
        body = here.choose(literal(value), body);
    }
    body
}
