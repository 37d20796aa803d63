//! Walks over the graphs of a model and defines its tensors.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::RangeInclusive;
use std::path::Path;

use indexmap::IndexSet;

use crate::context::Context;
use crate::dim::Dim;
use crate::dtype::{DType, Val};
use crate::error::{Error, Unsupported, UnsupportedGroup, short};
use crate::frozen;
use crate::graph::{Def, Graph, T, Tensor};
use crate::guess::{self, Guess};
use crate::in_place::Cache;
use crate::names::{Identifiers, base, kernel_name, with_names_of_the_model};
use crate::narrow::Narrow;
use crate::node::{Node, Outcome, Refusal};
use crate::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, ValueInfoProto,
    tensor_shape_proto, type_proto,
};
use crate::reader::{Folder, constant, read};
use crate::run_time::DeclaredShape;
use crate::text::{Network, shape_text, write};
use crate::{Argument, Import, Options, Param, branches, ops};

/// The versions of the default operator set that are supported; of those before 7 some operators.
const OPSETS: RangeInclusive<i64> = 1..=28;

/// The deepest nesting of function calls.
const MAX_CALLS: usize = 16;

/// The largest number of nodes after functions and loops are expanded.
const MAX_EXPANDED: usize = 200_000;

/// Names of dimensions by which exporters say that a size is not known: two of them may differ.
const NAMELESS: &[&str] = &["", "?", "-1", "None", "*"];

/// Operators of the default domain whose result has the shape of the first operand.
const KEEPS_SHAPE: &[&str] = &[
    "Abs",
    "Cast",
    "CastLike",
    "Ceil",
    "Clip",
    "Cos",
    "CumSum",
    "Erf",
    "Exp",
    "Floor",
    "Identity",
    "LeakyRelu",
    "Log",
    "Neg",
    "Not",
    "Reciprocal",
    "Relu",
    "Round",
    "Sigmoid",
    "Sign",
    "Sin",
    "Softmax",
    "Sqrt",
    "Tanh",
    "Trilu",
];

/// Values of a graph by name; `None` is the result of a node that is not supported.
type Values = HashMap<String, Option<T>>;

/// Refused nodes: how many of each operator and reason, and the names of some.
pub(crate) type Refused = BTreeMap<(String, String), (usize, Vec<String>)>;

pub(crate) struct Importer<'a> {
    pub(crate) context: Context,
    pub(crate) options: &'a Options,
    guess: &'a Guess,
    /// Inputs that are updated in place.
    pub(crate) caches: Vec<Cache>,
    functions: HashMap<(&'a str, &'a str), &'a FunctionProto>,
    /// Values that are read as tables of angles only.
    pub(crate) tables: HashSet<&'a str>,
    /// Values of the graphs around the current node, the innermost last.
    scopes: Vec<Values>,
    /// Versions of the operator sets, by domain.
    opsets: HashMap<String, i64>,
    /// Names of dimensions in the text.
    symbols: BTreeMap<String, String>,
    symbol_order: Vec<String>,
    identifiers: Identifiers,
    /// Declared shapes of values of the graph under import, by name.
    declared: HashMap<String, DeclaredShape>,
    pub(crate) refused: Refused,
    pub(crate) not_constant: BTreeSet<T>,
    /// The attributes of the call of the function under import.
    attributes: HashMap<&'a str, &'a AttributeProto>,
    expanded: usize,
    calls: usize,
}

pub(crate) fn import(path: &Path, options: &Options) -> Result<Import, Error> {
    let model = read(path)?;
    let first = attempt(&model, path, options, &Guess::default());
    if let Err(Error::Unsupported(refused)) = &first
        && let Some(import) = guess::import(&model, refused, path, options)
    {
        return Ok(import);
    }
    first
}

/// Imports a model with values of some of its inputs.
pub(crate) fn attempt(
    model: &ModelProto,
    path: &Path,
    options: &Options,
    guess: &Guess,
) -> Result<Import, Error> {
    let graph = model.graph.as_ref().ok_or_else(|| Error::Decode("no graph".to_string()))?;
    let mut opsets = HashMap::new();
    for opset in &model.opset_import {
        let domain = domain_name(opset.domain.as_deref());
        opsets.insert(domain.to_string(), opset.version.unwrap_or(1));
    }
    check_opset(&opsets)?;
    let key = |f: &'_ FunctionProto| (f.domain.clone(), f.name.clone());
    let mut functions = HashMap::new();
    for function in &model.functions {
        let name =
            (domain_name(function.domain.as_deref()), function.name.as_deref().unwrap_or(""));
        if functions.insert(name, function).is_some() {
            let (_, name) = key(function);
            let name = short(&name.unwrap_or_default());
            return Err(Error::Invalid(format!("the function `{name}` is defined twice")));
        }
    }
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("network");
    let name = match (&options.name, name_of(&graph.name)) {
        (Some(name), _) => name.clone(),
        // Hubs call every file so.
        (None, own) if stem == "model" && !own.is_empty() => kernel_name(own),
        (None, _) => kernel_name(stem),
    };
    let options = &with_names_of_the_model(options, graph, &name);
    let mut importer = Importer {
        context: Context {
            graph: Graph::default(),
            folder: Folder::new(path),
            hint: String::new(),
            assumptions: IndexSet::new(),
            asserts: Vec::new(),
            declared: Vec::new(),
            reassociate: options.reassociate,
            winograd: options.reassociate && options.winograd,
            convolutions: HashMap::new(),
            integers: ops::Integers::default(),
            choices: HashMap::new(),
            split_rows: HashSet::new(),
            new_tokens: None,
            blocks: HashMap::new(),
            narrow: HashMap::new(),
            specials: HashMap::new(),
        },
        options,
        guess,
        caches: Vec::new(),
        tables: branches::tables(graph),
        functions,
        scopes: Vec::new(),
        opsets,
        symbols: BTreeMap::new(),
        symbol_order: Vec::new(),
        identifiers: Identifiers::default(),
        declared: HashMap::new(),
        refused: BTreeMap::new(),
        not_constant: BTreeSet::new(),
        attributes: HashMap::new(),
        expanded: 0,
        calls: 0,
    };
    importer.network(graph, &name, path)
}

/// Refuses versions whose operators may differ from those that are known.
fn check_opset(opsets: &HashMap<String, i64>) -> Result<(), Error> {
    match opsets.get("") {
        Some(version) if !OPSETS.contains(version) => Err(Error::Invalid(format!(
            "opset {version}; supported are {} to {}",
            OPSETS.start(),
            OPSETS.end()
        ))),
        _ => Ok(()),
    }
}

fn domain_name(domain: Option<&str>) -> &str {
    match domain {
        None | Some("ai.onnx") => "",
        Some(domain) => domain,
    }
}

fn name_of(name: &Option<String>) -> &str {
    name.as_deref().unwrap_or("")
}

impl<'a> Importer<'a> {
    fn network(&mut self, graph: &'a GraphProto, name: &str, path: &Path) -> Result<Import, Error> {
        self.scopes.push(Values::new());
        self.find_caches(graph)?;
        let mut inputs = Vec::new();
        let initialized: HashSet<&str> =
            graph.initializer.iter().map(|tensor| name_of(&tensor.name)).collect();
        for info in &graph.input {
            if !initialized.contains(name_of(&info.name)) {
                inputs.extend(self.input(info)?);
            }
        }
        self.initializers(graph)?;
        self.check_options()?;
        self.declare_shapes(graph);
        let outputs: Vec<&str> = graph.output.iter().map(|info| name_of(&info.name)).collect();
        self.nodes(&graph.node, &outputs)?;
        let mut results = Vec::new();
        for output in &outputs {
            let value = self.lookup(output)?;
            if !self.is_cache(output, value)?
                && let Some(value) = value
            {
                results.extend(self.output(output, value));
            }
        }
        self.report()?;

        let used: BTreeSet<T> = results.iter().map(|(_, tensor)| *tensor).collect();
        let file = path.file_name().and_then(|name| name.to_str()).unwrap_or("model");
        let opset = self.opsets.get("").copied().unwrap_or(0);
        let network = Network {
            name,
            comment: format!("# {}, opset {opset}, imported by tec.", short(file)),
            context: &self.context,
            symbols: self.symbol_order.clone(),
            inputs: inputs.clone(),
            outputs: results.clone(),
            updates: self.updates(),
        };
        let written = write(&network);
        debug_assert!(used.len() <= results.len());
        let argument = |name: &String, model_name: &str, tensor: T| {
            let Tensor { dtype, shape, def, .. } = &self.context.graph[tensor];
            Argument {
                inout: matches!(def, Def::Inout),
                name: name.clone(),
                model_name: model_name.to_string(),
                dtype: *dtype,
                shape: shape_text(shape),
            }
        };
        let graph = &self.context.graph;
        let param = |(tensor, name): &(T, String)| {
            let own = &graph[*tensor];
            let Def::Data(data) = &own.def else { return None };
            let shape = own.shape.iter().map(|dim| dim.as_extent().map(|n| n as u64));
            let shape = shape.collect::<Option<_>>()?;
            Some(Param { name: name.clone(), dtype: own.dtype, shape, data: data.clone() })
        };
        Ok(Import {
            name: name.to_string(),
            params: written.params.iter().filter_map(param).collect(),
            inputs: (written.inputs.iter().zip(&inputs))
                .map(|(name, tensor)| argument(name, &graph[*tensor].name, *tensor))
                .collect(),
            outputs: (written.outputs.iter().zip(&results))
                .map(|(name, (model_name, tensor))| argument(name, model_name, *tensor))
                .collect(),
            text: written.text,
            files: self.context.folder.files(),
        })
    }

    /// Declares an input, or the parameter that replaces it.
    fn input(&mut self, info: &ValueInfoProto) -> Result<Option<T>, Error> {
        let name = name_of(&info.name).to_string();
        let fail = |reason: String| Error::Invalid(format!("input `{}`: {reason}", short(&name)));
        if let Some((_, frozen)) = self.options.freeze.iter().find(|(own, _)| *own == name) {
            let value = frozen::constant(info, frozen, &self.options.dims)
                .map_err(|text| Error::Option(format!("`{}` {text}", short(&name))))?;
            self.context.hint = name.clone();
            let tensor = self.context.constant("", value).map_err(|error| fail(reason(&error)))?;
            self.set(&name, Some(tensor));
            return Ok(None);
        }
        let mut value = info.r#type.as_ref().and_then(|own| own.value.as_ref());
        // The caller passes the element of an optional value.
        if let Some(type_proto::Value::OptionalType(own)) = value {
            value = own.elem_type.as_ref().and_then(|own| own.value.as_ref());
        }
        let Some(type_proto::Value::TensorType(tensor)) = value else {
            self.refuse("input", &name, "only tensors can be inputs".to_string());
            self.set(&name, None);
            return Ok(None);
        };
        let number = tensor.elem_type.unwrap_or(0);
        let narrow = Narrow::from_onnx(number);
        let dtype = match narrow.map_or_else(|| DType::from_onnx(number), |own| Ok(own.carrier())) {
            Ok(dtype) => dtype,
            Err(reason) => {
                self.refuse("input", &name, reason);
                self.set(&name, None);
                return Ok(None);
            }
        };
        let Some(shape) = &tensor.shape else {
            self.refuse("input", &name, "its rank is unknown".to_string());
            self.set(&name, None);
            return Ok(None);
        };
        let mut extents = Vec::new();
        for (at, dim) in shape.dim.iter().enumerate() {
            extents.push(match &dim.value {
                Some(tensor_shape_proto::dimension::Value::DimValue(value)) if *value >= 0 => {
                    Dim::from(*value)
                }
                Some(tensor_shape_proto::dimension::Value::DimValue(_)) => {
                    self.symbol(&format!("{name}_dim{at}")).map_err(fail)?
                }
                Some(tensor_shape_proto::dimension::Value::DimParam(symbol))
                    if !NAMELESS.contains(&symbol.trim()) =>
                {
                    self.symbol(symbol).map_err(fail)?
                }
                _ => self.symbol(&format!("{name}_dim{at}")).map_err(fail)?,
            });
        }
        if extents.len() > 32 {
            return Err(fail("more than 32 dimensions".to_string()));
        }
        if let Some(own) = narrow {
            return Ok(self.narrow_input(&name, own, extents));
        }
        let guessed = self.guess.inputs.iter().find(|own| own.name == name);
        let vals = guessed.map(|own| own.values.iter().map(|v| Val::Int((*v).into())).collect());
        let rank = extents.len();
        let tensor = Tensor { name: name.clone(), dtype, shape: extents, def: Def::Input, vals };
        if let Some(tensor) = self.cache_input(tensor.clone())? {
            return Ok(Some(tensor));
        }
        let tensor = self.context.graph.push(tensor);
        for (at, allowed) in guessed.iter().flat_map(|own| &own.allowed).enumerate() {
            self.context.hint = name.clone();
            self.context.assert_element(tensor, (at, rank), allowed);
        }
        self.set(&name, Some(tensor));
        Ok(Some(tensor))
    }

    /// Takes the shapes that a graph declares for its values.
    fn declare_shapes(&mut self, graph: &GraphProto) {
        for info in graph.output.iter().chain(&graph.value_info) {
            let value = info.r#type.as_ref().and_then(|own| own.value.as_ref());
            let Some(type_proto::Value::TensorType(tensor)) = value else { continue };
            let Some(shape) = &tensor.shape else { continue };
            let extent = |dim: &tensor_shape_proto::Dimension| match &dim.value {
                Some(tensor_shape_proto::dimension::Value::DimValue(value)) if *value >= 0 => {
                    Some(Dim::from(*value))
                }
                Some(tensor_shape_proto::dimension::Value::DimParam(name)) => {
                    match self.option(name) {
                        Some(value) => i64::try_from(value).ok().map(Dim::from),
                        None => self.symbols.get(name).map(|own| Dim::symbol(own)),
                    }
                }
                _ => None,
            };
            let shape = shape.dim.iter().map(extent).collect();
            self.declared.entry(name_of(&info.name).to_string()).or_insert(shape);
        }
    }

    /// The value that the options give to a dimension.
    fn option(&self, name: &str) -> Option<u64> {
        self.options.dims.iter().find(|(own, _)| own == name).map(|(_, value)| *value)
    }

    /// The dimension of a name: a constant by the options, or a run-time integer.
    pub(crate) fn symbol(&mut self, name: &str) -> Result<Dim, String> {
        if let Some(value) = self.option(name) {
            let value = i64::try_from(value);
            self.symbols.entry(name.to_string()).or_default();
            return value.map(Dim::from).map_err(|_| "the dimension is too large".to_string());
        }
        if let Some(own) = self.symbols.get(name) {
            return Ok(Dim::symbol(own));
        }
        let own = self.identifiers.unique(name);
        self.symbols.insert(name.to_string(), own.clone());
        self.symbol_order.push(own.clone());
        Ok(Dim::symbol(&own))
    }

    /// Options must name things that the model has.
    fn check_options(&self) -> Result<(), Error> {
        for (name, _) in &self.options.dims {
            if !self.symbols.contains_key(name) {
                let known: Vec<String> = self.symbols.keys().map(|own| base(own)).collect();
                return Err(Error::Option(format!(
                    "the model has no dimension `{}`; its dimensions: {}",
                    short(name),
                    if known.is_empty() { "none".to_string() } else { known.join(", ") }
                )));
            }
        }
        for (name, _) in &self.options.freeze {
            if !self.scopes[0].contains_key(name) {
                return Err(Error::Option(format!("the model has no input `{}`", short(name))));
            }
        }
        Ok(())
    }

    fn initializers(&mut self, graph: &GraphProto) -> Result<(), Error> {
        for tensor in &graph.initializer {
            let name = name_of(&tensor.name).to_string();
            let value = match constant(tensor, &self.context.folder) {
                Ok(value) => value,
                Err(reason) if reason.contains("is not supported") => {
                    self.refuse("initializer", &name, reason);
                    self.set(&name, None);
                    continue;
                }
                Err(reason) => return Err(Error::Invalid(reason)),
            };
            self.context.hint = name.clone();
            let tensor = self.context.constant("", value);
            let tensor = tensor.map_err(|error| Error::Invalid(reason(&error)))?;
            self.set(&name, Some(tensor));
        }
        for tensor in &graph.sparse_initializer {
            let name =
                tensor.values.as_ref().map_or("", |values| name_of(&values.name)).to_string();
            self.refuse("initializer", &name, "sparse tensors are not supported".to_string());
            self.set(&name, None);
        }
        Ok(())
    }

    pub(crate) fn set(&mut self, name: &str, value: Option<T>) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.to_string(), value);
        }
    }

    fn lookup(&self, name: &str) -> Result<Option<T>, Error> {
        let value = self.scopes.iter().rev().find_map(|scope| scope.get(name));
        value.copied().ok_or_else(|| Error::Invalid(format!("no node computes `{}`", short(name))))
    }

    pub(crate) fn refuse(&mut self, operator: &str, node: &str, reason: String) {
        let entry = self.refused.entry((operator.to_string(), reason)).or_default();
        entry.0 += 1;
        if entry.1.len() < 3 {
            entry.1.push(short(node));
        }
    }

    /// Fails if a node was refused.
    fn report(&self) -> Result<(), Error> {
        if self.refused.is_empty() {
            return Ok(());
        }
        let groups =
            self.refused.iter().map(|((operator, reason), (count, nodes))| UnsupportedGroup {
                operator: operator.clone(),
                reason: reason.clone(),
                count: *count,
                nodes: nodes.clone(),
            });
        let roots: BTreeSet<T> =
            self.not_constant.iter().flat_map(|tensor| self.context.roots(*tensor)).collect();
        let freeze = roots.iter().map(|root| self.context.graph[*root].name.clone()).collect();
        Err(Error::Unsupported(Unsupported { groups: groups.collect(), freeze }))
    }

    /// Imports the nodes of a graph that its outputs need.
    fn nodes(&mut self, nodes: &'a [NodeProto], outputs: &[&'a str]) -> Result<(), Error> {
        let mut needed: HashMap<&str, usize> = HashMap::new();
        for name in outputs {
            *needed.entry(name).or_default() += 1;
        }
        let mut is_live = vec![false; nodes.len()];
        for (node, is_live) in nodes.iter().zip(&mut is_live).rev() {
            *is_live = node.output.iter().any(|name| needed.contains_key(&name[..]));
            if *is_live {
                count_reads(node, &mut needed);
            }
            // The operand of an elementwise function has the shape of its result.
            if *is_live
                && KEEPS_SHAPE.contains(&name_of(&node.op_type))
                && let (Some(input), Some(output)) = (node.input.first(), node.output.first())
                && let Some(shape) = self.declared.get(output).cloned()
            {
                self.declared.entry(input.clone()).or_insert(shape);
            }
        }
        for (node, is_live) in nodes.iter().zip(is_live) {
            if is_live {
                self.node(node, &needed)?;
            }
        }
        Ok(())
    }

    fn node(&mut self, proto: &'a NodeProto, readers: &HashMap<&str, usize>) -> Result<(), Error> {
        self.expanded += 1;
        if self.expanded > MAX_EXPANDED {
            return Err(Error::Limit(format!("more than {MAX_EXPANDED} nodes after expansion")));
        }
        let mut inputs = Vec::new();
        let mut failed = false;
        for name in &proto.input {
            let value = if name.is_empty() { None } else { self.lookup(name)? };
            failed |= value.is_none() && !name.is_empty();
            inputs.push(value);
        }
        let outputs: Vec<&str> = proto
            .output
            .iter()
            .map(|name| if readers.contains_key(&name[..]) { &name[..] } else { "" })
            .collect();
        let first = outputs.iter().find(|name| !name.is_empty()).copied().unwrap_or("");
        let mut attributes = HashMap::new();
        for attribute in &proto.attribute {
            // An attribute of a function's body may take the value of one of the call.
            let value = match name_of(&attribute.ref_attr_name) {
                "" => Some(attribute),
                reference => self.attributes.get(reference).copied(),
            };
            if let Some(value) = value {
                attributes.insert(name_of(&attribute.name), value);
            }
        }
        let domain = domain_name(proto.domain.as_deref());
        let node = Node {
            op: name_of(&proto.op_type),
            opset: self.opsets.get(domain).copied().unwrap_or(1),
            readers: proto
                .input
                .iter()
                .map(|name| readers.get(&name[..]).copied().unwrap_or(0))
                .collect(),
            inputs,
            outputs,
            attributes,
        };
        self.context.hint = first.to_string();
        let declared = node.outputs.iter().map(|name| self.declared.get(*name).cloned());
        self.context.declared = declared.collect();
        let outcome = if failed { Err(Refusal::Operand) } else { self.apply(domain, &node)? };
        match outcome {
            Ok(values) => {
                for (at, name) in node.outputs.iter().enumerate() {
                    if !name.is_empty() {
                        let value = values.get(at).copied();
                        if value.is_none() {
                            let reason = format!("output {at} is not supported");
                            self.refuse(&full_name(domain, node.op), first, reason);
                        }
                        self.set(name, value);
                    }
                }
            }
            Err(refusal) => {
                if let Refusal::NotConstant(_, tensor) = &refusal {
                    self.not_constant.insert(*tensor);
                    // Operands of the same kind would be the next ones to be asked for.
                    for other in node.inputs.iter().skip(1).flatten() {
                        let own = &self.context.graph[*other];
                        let is_int = own.dtype == DType::Int64 || own.dtype == DType::Int32;
                        if is_int && own.shape.len() <= 1 && own.vals.is_none() {
                            self.not_constant.insert(*other);
                        }
                    }
                }
                if !matches!(refusal, Refusal::Operand) {
                    let label = match name_of(&proto.name) {
                        "" => first.to_string(),
                        name => name.to_string(),
                    };
                    self.refuse(&full_name(domain, node.op), &label, reason(&refusal));
                }
                for name in &node.outputs {
                    self.set(name, None);
                }
            }
        }
        Ok(())
    }

    fn apply(&mut self, domain: &'a str, node: &Node<'a>) -> Result<Outcome<Vec<T>>, Error> {
        if let Some(function) = self.functions.get(&(domain, node.op)).copied() {
            return self.function(function, node);
        }
        let checked = ops::check_version(domain, node, self.opsets.contains_key(""));
        let checked = checked.and_then(|()| self.context.check_narrow(domain, node));
        if let Err(refusal) = checked.and_then(|()| self.context.check_special(domain, node)) {
            return Ok(Err(refusal));
        }
        if let Some(appended) = self.append(node).filter(|_| domain.is_empty()) {
            return Ok(appended);
        }
        if let Some(attended) = self.attend_in_place(domain, node) {
            return Ok(attended);
        }
        match (domain, node.op) {
            ("", "If") => return self.branch(node),
            ("", "Loop") => return self.unrolled_loop(node),
            ("", "Scan") => return self.unrolled_scan(node),
            ("", "SequenceMap") => return self.sequence_map(node),
            ("ai.onnx.preview", "FlexAttention") => return self.flex_attention(node),
            _ => {}
        }
        Ok(match ops::find(domain, node.op) {
            // What is not understood stays as written.
            Some(handler) => handler(&mut self.context, node).and_then(|values| {
                let _ = ops::observe(&mut self.context, node, &values);
                self.context.move_narrow(node, &values)?;
                Ok(values)
            }),
            None => Err("the operator is not supported".into()),
        })
    }

    /// Imports a subgraph with the given values of its inputs.
    pub(crate) fn body(
        &mut self,
        body: &'a GraphProto,
        arguments: &[T],
    ) -> Result<Outcome<Vec<T>>, Error> {
        self.scopes.push(Values::new());
        for (info, value) in body.input.iter().zip(arguments) {
            self.set(name_of(&info.name), Some(*value));
        }
        self.initializers(body)?;
        self.declare_shapes(body);
        let outputs: Vec<&str> = body.output.iter().map(|info| name_of(&info.name)).collect();
        self.nodes(&body.node, &outputs)?;
        let mut values = Vec::new();
        for output in outputs {
            values.push(self.lookup(output)?);
        }
        self.scopes.pop();
        Ok(values.into_iter().collect::<Option<Vec<T>>>().ok_or(Refusal::Operand))
    }

    /// Imports the body of a function in place of a node.
    fn function(
        &mut self,
        function: &'a FunctionProto,
        node: &Node<'a>,
    ) -> Result<Outcome<Vec<T>>, Error> {
        if self.calls >= MAX_CALLS {
            return Err(Error::Limit(format!(
                "functions call each other more than {MAX_CALLS} deep"
            )));
        }
        self.calls += 1;
        let mut scope = Values::new();
        for (at, name) in function.input.iter().enumerate() {
            if let Some(value) = node.optional(at) {
                scope.insert(name.clone(), Some(value));
            }
        }
        let outer = std::mem::replace(&mut self.scopes, vec![scope]);
        let mut attributes: HashMap<&'a str, &'a AttributeProto> = HashMap::new();
        for default in &function.attribute_proto {
            attributes.insert(name_of(&default.name), default);
        }
        attributes.extend(&node.attributes);
        let attributes = std::mem::replace(&mut self.attributes, attributes);
        let mut opsets = self.opsets.clone();
        for opset in &function.opset_import {
            let domain = domain_name(opset.domain.as_deref()).to_string();
            opsets.insert(domain, opset.version.unwrap_or(1));
        }
        check_opset(&opsets)?;
        let opsets = std::mem::replace(&mut self.opsets, opsets);
        let shapes = std::mem::take(&mut self.context.declared);
        let named = function.output.iter().cloned().zip(shapes);
        let inner = named.filter_map(|(name, shape)| Some((name, shape?))).collect();
        let declared = std::mem::replace(&mut self.declared, inner);
        let outputs: Vec<&str> = function.output.iter().map(|name| &name[..]).collect();
        self.nodes(&function.node, &outputs)?;
        let mut values = Vec::new();
        for output in outputs {
            values.push(self.lookup(output)?);
        }
        self.scopes = outer;
        self.declared = declared;
        self.attributes = attributes;
        self.opsets = opsets;
        self.calls -= 1;
        Ok(values.into_iter().collect::<Option<Vec<T>>>().ok_or(Refusal::Operand))
    }
}

/// Counts the values that a node reads, those of its subgraphs included.
fn count_reads<'a>(node: &'a NodeProto, reads: &mut HashMap<&'a str, usize>) {
    for name in node.input.iter().filter(|name| !name.is_empty()) {
        *reads.entry(name).or_default() += 1;
    }
    for attribute in &node.attribute {
        for graph in attribute.g.iter().chain(&attribute.graphs) {
            for inner in &graph.node {
                count_reads(inner, reads);
            }
            for output in &graph.output {
                *reads.entry(name_of(&output.name)).or_default() += 1;
            }
        }
    }
}

fn full_name(domain: &str, op: &str) -> String {
    if domain.is_empty() { short(op) } else { format!("{}.{}", short(domain), short(op)) }
}

pub(crate) fn reason(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Reason(reason) => reason.clone(),
        Refusal::NotConstant(role, _) => format!("{role} must be constant"),
        Refusal::Operand => "an operand is not supported".to_string(),
    }
}
