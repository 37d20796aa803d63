//! Elaboration: a kernel's syntax with parameter values becomes a stage graph.
//!
//! Before: parsed files, `-D` options. After: one [`Graph`] for each kernel to build, with every
//! name resolved, every type fixed, every `def`, operator and compile-time `if` expanded, and only
//! the stages that an output needs. Every semantic error is reported: a wrong value becomes
//! [`Value::Poison`](values::Value), which suppresses errors that follow from it.

mod arithmetic;
mod casts;
mod comparisons;
mod constants;
mod domains;
mod estimates;
mod expressions;
mod frame;
mod functions;
mod items;
mod kernels;
mod operators;
mod pack_functions;
#[cfg(test)]
mod pack_tests;
mod packs;
mod parameters;
mod quantized;
mod reals;
mod recurrences;
mod reducers;
mod reductions;
mod reserved;
mod sorts;
mod stages;
mod statements;
mod strides;
#[cfg(test)]
mod tests;
mod updates;
mod values;

use super::Graph;
use crate::diag::{Diag, Span};
use crate::ir::DType;
use crate::lang::{Program, ast};
use casts::find_constants;
use items::Items;
use rustc_hash::{FxHashMap, FxHashSet};

pub(super) use reducers::arg_combiner;
pub use reserved::refused_kernel_name;

/// `-D` options in the order given: optional kernel name, parameter name, value as written.
pub type Defines = [(Option<String>, String, String)];

/// The largest number of nodes of an expanded expression.
const MAX_NODES: u64 = 4 << 20;

/// Returns the names of the kernels of the main file, in source order, and whether each can be
/// built because all its parameters have values.
pub fn kernel_names(program: &Program, defines: &Defines) -> Vec<(String, bool)> {
    own_kernels(program)
        .map(|kernel| {
            let complete = parameters::missing(kernel, defines).is_none();
            (kernel.name.text.clone(), complete)
        })
        .collect()
}

/// Checks every definition of the program and elaborates the named kernels (all that can be built
/// if `None`). Reports every semantic error, not only the first.
pub fn elaborate(
    program: &Program,
    kernels: Option<&[String]>,
    defines: &Defines,
) -> Result<Vec<Graph>, Vec<Diag>> {
    let mut elaborator = Elaborator::new(program, defines);
    elaborator.check_items();
    elaborator.check_defines();
    let mut graphs = Vec::new();
    for kernel in elaborator.kernels_to_build(kernels) {
        graphs.push(elaborator.build_kernel(kernel));
    }
    elaborator.check_unused_reducers();
    if elaborator.diags.is_empty() {
        return Ok(graphs);
    }
    let mut diags = elaborator.diags;
    diags.sort_by_key(|diag| diag.span.map(|span| (span.file, span.start)));
    Err(diags)
}

/// Returns the kernels of the main file.
fn own_kernels(program: &Program) -> impl Iterator<Item = &ast::Kernel> {
    program.files.first().into_iter().flat_map(|file| &file.items).filter_map(|item| match item {
        ast::Item::Kernel(kernel) => Some(kernel),
        _ => None,
    })
}

/// The state of elaboration.
struct Elaborator<'a> {
    program: &'a Program,
    defines: &'a Defines,
    items: Items<'a>,
    diags: Vec<Diag>,
    /// Whether errors are dropped, because something is only tried.
    muted: bool,
    /// Whether an `assert` or `assume` of the current kernel failed, which may cause later errors.
    stopped: bool,
    /// The errors that were reported: an operator that is used twice reports once.
    reported: FxHashSet<(&'static str, Option<Span>, String)>,
    /// The `def`s and operators being expanded, outermost first, with the place of each call.
    calls: Vec<(Span, String)>,
    /// The graph of the kernel that is being built.
    graph: Graph,
    /// The kernel that is being built.
    building: Option<&'a ast::Kernel>,
    /// The operators being expanded, to refuse recursion.
    operators: Vec<&'a ast::Kernel>,
    /// The stage of a `scan` that is being elaborated, if it belongs to a recurrence.
    member: Option<recurrences::CurrentMember>,
    /// The `update` that is being elaborated.
    updating: Option<crate::te::Update>,
    /// The stages of the `scan` that is being elaborated, for suggestions.
    scan_names: Vec<&'a str>,
    /// The place of each load of the current stage.
    load_spans: FxHashMap<usize, Span>,
    /// The reads of stages without a type, by place: the stage and its declaration.
    untyped_reads: FxHashMap<Span, (String, Span)>,
    /// The stages without a type that were reported.
    reported_untyped: FxHashSet<Span>,
    /// The nodes visited in the bodies of `def`s for the current expression.
    def_nodes: u64,
    /// The number of nested `def`s being expanded.
    def_depth: usize,
    /// The statements executed in operators for the current kernel.
    operator_statements: u64,
    /// The nodes visited in the bodies of operators for the current kernel.
    operator_nodes: u64,
    /// The number of values that the packs of the current kernel were expanded to.
    expanded_values: u64,
    /// The operators that the current kernel uses: declaration, call and name.
    operator_calls: Vec<(Span, Span, String)>,
    /// The reducers, with the types that they were checked for.
    checked_reducers: reducers::CheckedReducers,
    /// The reducers that are wrong for all types.
    wrong_reducers: FxHashSet<*const ast::Reducer>,
}

impl<'a> Elaborator<'a> {
    fn new(program: &'a Program, defines: &'a Defines) -> Elaborator<'a> {
        Elaborator {
            program,
            defines,
            items: Items::new(program),
            diags: Vec::new(),
            muted: false,
            stopped: false,
            reported: FxHashSet::default(),
            calls: Vec::new(),
            graph: kernels::empty_graph(),
            building: None,
            operators: Vec::new(),
            member: None,
            updating: None,
            scan_names: Vec::new(),
            load_spans: FxHashMap::default(),
            untyped_reads: FxHashMap::default(),
            reported_untyped: FxHashSet::default(),
            def_nodes: 0,
            def_depth: 0,
            operator_statements: 0,
            operator_nodes: 0,
            expanded_values: 0,
            operator_calls: Vec::new(),
            checked_reducers: reducers::CheckedReducers::default(),
            wrong_reducers: FxHashSet::default(),
        }
    }

    /// Reports an error, once, with the calls that led to it.
    fn error(&mut self, mut diag: Diag) {
        if self.muted || self.stopped {
            return;
        }
        if !self.reported.insert((diag.code, diag.span, diag.message.clone())) {
            return;
        }
        for (span, name) in self.calls.iter().rev().take(4) {
            diag = diag.related(*span, format!("`{name}` is used here"));
        }
        self.diags.push(diag);
    }

    /// Calls `f` and drops its errors.
    fn quietly<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        let muted = std::mem::replace(&mut self.muted, true);
        let result = f(self);
        self.muted = muted;
        result
    }

    /// Whether an error may still suggest similar names. Only the first errors of a file do,
    /// because a suggestion compares a name with all others.
    fn can_suggest(&self) -> bool {
        self.diags.len() < 100
    }

    /// Returns the source text of a span.
    fn text(&self, span: Span) -> &'a str {
        let text = self.program.sources.files.get(span.file as usize).map_or("", |f| &f.text);
        text.get(span.start as usize..span.end as usize).unwrap_or("")
    }

    /// Returns the source text of an expression, or `…` if it is long.
    fn excerpt(&self, expr: &ast::Expr) -> String {
        let text = self.text(expr.span);
        if text.is_empty() || text.len() > 40 || text.contains(['\n', '#']) {
            return "…".to_string();
        }
        text.to_string()
    }

    /// Returns the expression with a cast, as the user would write it.
    fn with_cast(&self, expr: &ast::Expr, ty: impl std::fmt::Display) -> String {
        use ast::ExprKind::*;
        let (text, ty) = (self.excerpt(expr), ty.to_string());
        if ty == DType::Float64.to_string()
            && let Some(text) = self.with_cast_constants(expr, text.clone(), &ty)
        {
            return text;
        }
        match *expr.kind {
            Unary(..) | Binary(..) | If(..) => format!("({text}) as {ty}"),
            _ => format!("{text} as {ty}"),
        }
    }

    /// Returns the text of an expression of constants with casts of the arguments of functions:
    /// `sqrt(2.0 as float64)`, as `sqrt(2.0)` is float32. `None` for any other expression.
    fn with_cast_constants(&self, expr: &ast::Expr, text: String, ty: &str) -> Option<String> {
        let (mut constants, mut text) = (Vec::new(), text);
        if !find_constants(expr, &mut constants) || constants.is_empty() {
            return None;
        }
        for constant in constants.iter().rev() {
            let start = constant.span.start.checked_sub(expr.span.start)? as usize;
            let end = constant.span.end.checked_sub(expr.span.start)? as usize;
            text.get(start..end)?;
            text.replace_range(start..end, &self.with_cast(constant, ty));
        }
        Some(text)
    }

    /// Returns the kernels to build.
    fn kernels_to_build(&mut self, names: Option<&[String]>) -> Vec<&'a ast::Kernel> {
        let own: Vec<&'a ast::Kernel> = own_kernels(self.program).collect();
        let Some(names) = names else {
            let defines = self.defines;
            return own
                .into_iter()
                .filter(|kernel| parameters::missing(kernel, defines).is_none())
                .collect();
        };
        let mut chosen = Vec::new();
        for name in names {
            match own.iter().find(|kernel| kernel.name.text == *name) {
                None => self.error(items::unknown_kernel(name, &own)),
                Some(kernel) => match parameters::missing(kernel, self.defines) {
                    None => chosen.push(*kernel),
                    Some(param) => self.error(parameters::missing_value(kernel, param)),
                },
            }
        }
        chosen
    }
}
