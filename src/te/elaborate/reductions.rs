//! Reductions: `sum(A[i, k], axis=k, where=…, init=…, reassociate)` and the like.

use super::Elaborator;
use super::casts::{Operand, cast};
use super::expressions::{Env, count, folds, is_axis};
use super::frame::Frame;
use super::functions::Builtin;
use super::items::Function;
use super::reducers::ReducerKind;
use super::values::{ReduceAxis, SourceType, Typed, Value};
use crate::diag::{Diag, closest};
use crate::ir::{DType, Expr, Var};
use crate::lang::ast::{self, ExprKind};
use crate::te::{Axis, Reduction};

/// A call of a reduction.
pub struct ReductionCall<'a> {
    kind: ReducerKind<'a>,
    name: &'a ast::Name,
    args: &'a [ast::Arg],
}

/// The arguments of a reduction.
struct ReductionArgs<'a> {
    term: &'a ast::Expr,
    axis: &'a ast::Expr,
    condition: Option<&'a ast::Expr>,
    init: Option<&'a ast::Expr>,
    reassociate: bool,
}

impl<'a> Elaborator<'a> {
    /// Returns the reduction that an expression calls, if any. `min`, `max`, `any` and `all` reduce
    /// only with `axis=`.
    pub fn reduction_call(&self, expr: &'a ast::Expr) -> Option<ReductionCall<'a>> {
        let ExprKind::Call(name, args) = &*expr.kind else { return None };
        let kind = match self.items.function(name.span.file, &name.text)? {
            Function::Reducer(reducer) => ReducerKind::Custom(reducer),
            Function::Reduction if folds(name, args) => return None,
            Function::Reduction => ReducerKind::from_name(&name.text)?,
            Function::Builtin(Builtin::Min | Builtin::Max | Builtin::Any | Builtin::All)
                if args.iter().any(is_axis) =>
            {
                ReducerKind::from_name(&name.text)?
            }
            Function::Builtin(_) | Function::Def(_) | Function::Pack(_) => return None,
        };
        Some(ReductionCall { kind, name, args })
    }

    /// Elaborates the reduction of a stage. Returns its element types too.
    pub fn reduction(
        &mut self,
        frame: &Frame<'a>,
        stage: &'a ast::Stage,
        call: ReductionCall<'a>,
        env: Env<'_, 'a>,
        types: &[Option<DType>],
        data_axes: &[Axis],
    ) -> Option<(Vec<DType>, Reduction)> {
        let arguments = self.reduction_arguments(&call)?;
        let found = self.reduction_axes(frame, arguments.axis, env);
        // After a wrong axis the rest is still checked, with poison for the axis.
        let mut locals = env.locals.clone();
        for (name, axes) in &found {
            locals.entry(name).or_insert(axes.value());
        }
        let axes: Option<Vec<Vec<Axis>>> =
            found.into_iter().map(|(_, axes)| axes.known()).collect();
        let axes: Option<Vec<Axis>> = axes.map(|axes| axes.concat());
        let axes = axes.filter(|axes| self.check_axis_names(arguments.axis, data_axes, axes));
        let inner = Env { locals: &locals, ..env };
        let condition = match arguments.condition {
            None => Some(None),
            Some(condition) => self.where_condition(condition, inner),
        };
        let terms = axes.is_some().then(|| self.terms(stage, &call, arguments.term, inner, types));
        let (dtypes, terms) = terms??;
        let combiner = self.combiner(&call.kind, call.name, arguments.term, &dtypes)?;
        let (axes, condition) = (axes?, condition?);
        let around: Vec<Axis> = data_axes.iter().chain(&axes).cloned().collect();
        let (kind, place) = (&call.kind, arguments.term.span);
        self.check_domain(kind, &combiner, (&terms, place), condition.as_ref(), &around)?;
        let identity = match arguments.init {
            None => combiner.identity.clone(),
            Some(init) => {
                let identity = self.init(init, env, &dtypes)?;
                self.check_domain(kind, &combiner, (&identity, init.span), None, data_axes)?;
                identity
            }
        };
        let operator = frame.operator.as_ref().is_some_and(|operator| operator.reassociate);
        let reduction = Reduction {
            axes,
            combiner,
            identity,
            terms,
            condition,
            reassociate: arguments.reassociate || frame.kernel.reassociate || operator,
            fused: false,
        };
        Some((dtypes, reduction))
    }

    fn reduction_arguments(&mut self, call: &ReductionCall<'a>) -> Option<ReductionArgs<'a>> {
        let name = &call.name.text;
        let (mut term, mut axis, mut condition, mut init) = (None, None, None, None);
        let mut reassociate = false;
        for arg in call.args {
            let slot = match &arg.name {
                None => match &*arg.value.kind {
                    ExprKind::Name(word) if term.is_some() && word.text == "reassociate" => {
                        reassociate = true;
                        continue;
                    }
                    _ => &mut term,
                },
                Some(keyword) => match keyword.text.as_str() {
                    "axis" => &mut axis,
                    "where" => &mut condition,
                    "init" => &mut init,
                    other => {
                        let message = format!("`{name}` has no argument `{other}`");
                        let diag = Diag::new("E0216", keyword.span, message);
                        self.error(match closest(other, ["axis", "where", "init"]) {
                            Some(close) => diag.help(format!("did you mean `{close}`?")),
                            None => diag.note("arguments: axis, where, init, reassociate"),
                        });
                        return None;
                    }
                },
            };
            if slot.replace(&arg.value).is_some() {
                let message = match &arg.name {
                    Some(keyword) => format!("`{}` is given twice", keyword.text),
                    None => format!("`{name}` reduces one value, but more are given"),
                };
                let diag = Diag::new("E0216", arg.value.span, message);
                self.error(match arg.name {
                    Some(_) => diag,
                    None => diag.help("a tuple is in parentheses: `((k, A[k]), axis=k)`"),
                });
                return None;
            }
        }
        let Some(term) = term else {
            let message = format!("`{name}` needs a value to reduce");
            self.error(Diag::new("E0216", call.name.span, message));
            return None;
        };
        let Some(axis) = axis else {
            let message = format!("`{name}` needs `axis=`");
            let diag = Diag::new("E0224", call.name.span, message);
            self.error(diag.help("name the reduction axes: `axis=k` or `axis=[k, l]`"));
            return None;
        };
        Some(ReductionArgs { term, axis, condition, init, reassociate })
    }

    /// Checks that no axis of a pack has the name of another axis of the stage (E0202).
    fn check_axis_names(&mut self, list: &ast::Expr, data_axes: &[Axis], axes: &[Axis]) -> bool {
        if axes.is_empty() {
            return false;
        }
        let mut seen: Vec<&str> = data_axes.iter().map(|axis| axis.var.name()).collect();
        for axis in axes {
            let text = axis.var.name();
            if seen.contains(&text) {
                let message = format!("two axes of this stage are named `{text}`");
                let note = "the axes of a pack `k...` are named `k0`, `k1` and so on";
                let diag = Diag::new("E0202", list.span, message).note(note);
                self.error(diag.help("choose another name for the pack"));
                return false;
            }
            seen.push(text);
        }
        true
    }

    /// Returns the axes of `axis=` by name, each with a fresh variable.
    pub fn reduction_axes(
        &mut self,
        frame: &Frame<'a>,
        list: &'a ast::Expr,
        env: Env<'_, 'a>,
    ) -> Vec<(&'a str, NamedAxes)> {
        let items = match &*list.kind {
            ExprKind::List(items) => items.as_slice(),
            _ => std::slice::from_ref(list),
        };
        if items.is_empty() {
            self.error(Diag::new("E0224", list.span, "`axis=` names no reduction axis"));
        }
        let mut axes = Vec::new();
        for item in items {
            let (name, is_pack) = match &*item.kind {
                ExprKind::Expand(pattern) => (pattern, true),
                _ => (item, false),
            };
            let axis = self.reduction_axis(frame, (name, is_pack), env, &axes);
            let name = if let ExprKind::Name(name) = &*name.kind { &name.text } else { "" };
            axes.push((name, axis));
        }
        axes
    }

    fn reduction_axis(
        &mut self,
        frame: &Frame<'a>,
        (item, is_pack): (&'a ast::Expr, bool),
        env: Env<'_, 'a>,
        before: &[(&'a str, NamedAxes)],
    ) -> NamedAxes {
        let wrong = NamedAxes::Wrong;
        let ExprKind::Name(name) = &*item.kind else {
            let message = "`axis=` takes names of reduction axes";
            self.error(Diag::new("E0224", item.span, message));
            return wrong;
        };
        let text = name.text.as_str();
        if before.iter().any(|(other, _)| *other == text) {
            self.error(Diag::new("E0224", item.span, format!("`axis=` names `{text}` twice")));
            return wrong;
        }
        if env.locals.contains_key(text) {
            let message = format!("`{text}` is a data axis of this stage, not a reduction axis");
            let diag = Diag::new("E0224", item.span, message);
            self.error(diag.help("declare another one with `reduce`"));
            return wrong;
        }
        match frame.scope.get(text).map(|entry| (&entry.value, entry)) {
            Some((Value::ReduceAxis(_), _)) if is_pack => {
                let message = format!("`{text}` is one reduction axis, not a pack");
                let diag = Diag::new("E0243", item.span, message);
                self.error(diag.help(format!("write `axis={text}`")));
                wrong
            }
            Some((Value::ReduceAxis(axis), _)) => NamedAxes::Single(new_axis(text, axis)),
            Some((Value::Pack(pack), entry)) if entry.what == "reduction axis" => {
                if !is_pack {
                    let found = pack.describe();
                    let message = format!("`{text}` is {found}, not one reduction axis");
                    let diag = Diag::new("E0243", item.span, message);
                    self.error(diag.help(format!("write `axis={text}...`")));
                    return wrong;
                }
                let axes = pack.elements.iter().enumerate().map(|(place, element)| match element {
                    Value::ReduceAxis(axis) => Some(new_axis(&format!("{text}{place}"), axis)),
                    _ => None,
                });
                axes.collect::<Option<_>>().map_or(wrong, |axes| NamedAxes::pack(text, axes))
            }
            Some((Value::Poison, _)) => wrong,
            Some((_, entry)) => {
                let message = format!("`{text}` is not a reduction axis");
                let diag = Diag::new("E0224", item.span, message);
                self.error(diag.related(entry.span, format!("it is this {}", entry.what)));
                wrong
            }
            None if !self.can_suggest() => {
                let message = format!("unknown reduction axis `{text}`");
                self.error(Diag::new("E0201", item.span, message));
                wrong
            }
            None => {
                let axes = frame.scope.iter().filter(|(_, e)| e.what == "reduction axis");
                let mut axes: Vec<&str> = axes.map(|(name, _)| *name).collect();
                axes.sort_unstable();
                let diag =
                    Diag::new("E0201", item.span, format!("unknown reduction axis `{text}`"));
                self.error(match closest(text, axes.iter().copied()) {
                    Some(close) => diag.help(format!("did you mean `{close}`?")),
                    None => {
                        let known = format!("the reduction axes here are: {}", axes.join(", "));
                        let diag = if axes.is_empty() { diag } else { diag.note(known) };
                        diag.help(format!("declare it: `reduce {text}: 0..n`"))
                    }
                });
                wrong
            }
        }
    }

    fn where_condition(
        &mut self,
        condition: &'a ast::Expr,
        env: Env<'_, 'a>,
    ) -> Option<Option<Expr>> {
        let value = self.eval_whole(condition, env);
        let value = self.number(value, condition);
        match value {
            Value::Bool(true) => Some(None),
            value => Some(Some(self.condition((&value, condition))?.expr)),
        }
    }

    /// Evaluates the components of the reduced value. Returns their element types and values.
    fn terms(
        &mut self,
        stage: &'a ast::Stage,
        call: &ReductionCall<'a>,
        term: &'a ast::Expr,
        env: Env<'_, 'a>,
        types: &[Option<DType>],
    ) -> Option<(Vec<DType>, Vec<Expr>)> {
        let name = &call.name.text;
        let parts = components(term);
        let values: Vec<Value> = parts
            .iter()
            .map(|part| {
                let value = self.eval_whole(part, env);
                self.number(value, part)
            })
            .collect();
        let wanted = call.kind.components();
        if parts.len() != wanted {
            let message = match wanted {
                1 => format!("`{name}` reduces one value, not a tuple"),
                _ => format!("`{name}` reduces a tuple of {wanted}, not of {}", parts.len()),
            };
            self.error(Diag::new("E0227", term.span, message));
            return None;
        }
        self.check_result_count(stage, call.name, wanted, types)?;
        let mut dtypes = Vec::new();
        let mut exprs = Vec::new();
        let mut wrong = false;
        for ((value, part), explicit) in values.iter().zip(parts).zip(types) {
            match self.element_value((value, part), *explicit, wanted > 1) {
                Some((dtype, typed)) => {
                    dtypes.push(dtype);
                    exprs.push(rounded(typed, dtype).expr);
                }
                None => wrong = true,
            }
        }
        (!wrong).then_some((dtypes, exprs))
    }

    /// Checks that the stage has a name for each result (E0227).
    pub fn check_result_count(
        &mut self,
        stage: &'a ast::Stage,
        name: &ast::Name,
        wanted: usize,
        types: &[Option<DType>],
    ) -> Option<()> {
        if types.len() == wanted {
            return Some(());
        }
        let (results, names) = (count(wanted, "result"), count(types.len(), "name"));
        let message = format!("`{}` gives {results}, but the stage has {names}", name.text);
        let diag = Diag::new("E0227", stage.names[0].0.span, message);
        self.error(match wanted {
            1 => diag,
            _ => diag.help("name each result: `output (I, V)[…] = …`"),
        });
        None
    }

    fn init(
        &mut self,
        init: &'a ast::Expr,
        env: Env<'_, 'a>,
        dtypes: &[DType],
    ) -> Option<Vec<Expr>> {
        let parts = components(init);
        if parts.len() != dtypes.len() {
            let (wanted, found) = (dtypes.len(), count(parts.len(), "value"));
            let message = format!("`init=` gives {found}, but the reduction has {wanted}");
            self.error(Diag::new("E0227", init.span, message));
            return None;
        }
        let mut exprs = Vec::new();
        for (part, dtype) in parts.iter().zip(dtypes) {
            let value = self.eval_whole(part, env);
            let value = self.number(value, part);
            exprs.push(self.init_value((&value, part), *dtype));
        }
        exprs.into_iter().collect()
    }

    fn init_value(&mut self, operand: Operand<'_, 'a>, dtype: DType) -> Option<Expr> {
        let index = matches!(operand.0, Value::Scalar(typed) if typed.ty == SourceType::Index);
        let typed = match index && dtype == DType::Int64 {
            true => self.stored(operand)?.1,
            false => {
                let typed = self.adapt_stored(operand, dtype)?;
                rounded(typed, dtype)
            }
        };
        Some(typed.expr)
    }

    /// Refuses element types that a reduction does not take (E0225).
    pub fn check_reduced_type(
        &mut self,
        kind: &ReducerKind<'a>,
        name: &ast::Name,
        term: &'a ast::Expr,
        dtypes: &[DType],
    ) -> Option<()> {
        let parts = components(term);
        let mut fits = Some(());
        for (i, (dtype, part)) in dtypes.iter().zip(parts).enumerate() {
            if self.refuses_quantized_term(name, part, *dtype) {
                fits = None;
                continue;
            }
            let Some(wanted) = kind.refuses(i, *dtype) else { continue };
            fits = None;
            let text = &name.text;
            let diag = if dtype.is_half()
                && !matches!(kind, ReducerKind::ArgMax | ReducerKind::ArgMin)
            {
                let cast = self.with_cast(part, DType::Float32);
                let message = format!("`{text}` of `{dtype}` would round at every step");
                Diag::new("E0225", part.span, message).help(format!(
                    "write `{text}({cast}, …)` and cast the result in a stage of its own"
                ))
            } else {
                let message = format!("`{text}` reduces {wanted}, not `{dtype}`");
                let diag = Diag::new("E0225", part.span, message);
                match (*dtype == DType::Bool, dtype.is_int()) {
                    (true, _) => {
                        let cast = self.with_cast(part, DType::Int32);
                        diag.help(format!("write `any`, `all` or `{text}({cast}, …)`"))
                    }
                    (_, true) => diag.help(format!("compare, as in `{} != 0`", self.excerpt(part))),
                    _ => diag,
                }
            };
            self.error(diag);
        }
        fits
    }
}

/// The axes of a name in `axis=`.
#[derive(Clone)]
pub enum NamedAxes {
    /// A wrong name.
    Wrong,
    /// `k`.
    Single(Axis),
    /// `k...`: the axes that are reduced over, and whether the pack is empty. An empty pack is
    /// reduced over one axis with one value, which no expression names.
    Pack(Vec<Axis>, bool),
}

impl NamedAxes {
    fn pack(name: &str, axes: Vec<Axis>) -> NamedAxes {
        if !axes.is_empty() {
            return NamedAxes::Pack(axes, false);
        }
        let (var, min, extent) = (Var::index(name), Expr::index(0), Expr::index(1));
        NamedAxes::Pack(vec![Axis { var, min, extent }], true)
    }

    /// Returns the value of the name in the terms.
    pub fn value(&self) -> Value {
        let typed =
            |axis: &Axis| Value::Scalar(Typed::new(SourceType::Index, Expr::var(&axis.var), 0));
        match self {
            NamedAxes::Wrong => Value::Poison,
            NamedAxes::Single(axis) => typed(axis),
            NamedAxes::Pack(_, true) => Value::pack(Vec::new()),
            NamedAxes::Pack(axes, false) => Value::pack(axes.iter().map(typed).collect()),
        }
    }

    /// Returns the axes, unless they are wrong.
    pub fn known(self) -> Option<Vec<Axis>> {
        match self {
            NamedAxes::Wrong => None,
            NamedAxes::Single(axis) => Some(vec![axis]),
            NamedAxes::Pack(axes, _) => Some(axes),
        }
    }
}

/// Returns a reduction axis with a fresh variable.
fn new_axis(name: &str, axis: &ReduceAxis) -> Axis {
    Axis { var: Var::index(name), min: axis.min.clone(), extent: axis.extent.clone() }
}

/// Returns the components of a reduced value or an `init=`.
pub fn components(expr: &ast::Expr) -> &[ast::Expr] {
    match &*expr.kind {
        ExprKind::Tuple(parts) => parts,
        _ => std::slice::from_ref(expr),
    }
}

/// Rounds a term or start value to a 16-bit float type, as the running value is rounded.
pub fn rounded(typed: Typed, dtype: DType) -> Typed {
    if dtype.is_half() { cast(&typed, dtype) } else { typed }
}
