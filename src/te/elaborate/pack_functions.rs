//! The functions of packs: `rank`, `shape`, `find`, `without`, `broadcast`, `broadcast_index`.

use super::Elaborator;
use super::expressions::{Env, count};
use super::values::{Pack, Value};
use crate::diag::{Diag, Span};
use crate::ir::Expr;
use crate::lang::ast;
use num_traits::ToPrimitive;
use std::rc::Rc;

/// A function whose first argument is a whole pack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PackFunction {
    /// `rank(S)`, `rank(X)`: the number of elements or dimensions.
    Rank,
    /// `shape(X)`: the extents of a tensor.
    Shape,
    /// `find(p, x)`: the place of the first element that is `x`; -1 if there is none.
    Find,
    /// `without(S, axes)`: the elements whose places are not in a list.
    Without,
    /// `broadcast(A, B, …)`: the extents of the result by NumPy's rules.
    Broadcast,
    /// `broadcast_index(i, A)`: for each extent of `A` the axis that indexes it.
    BroadcastIndex,
}

const FUNCTIONS: [(&str, PackFunction); 6] = [
    ("rank", PackFunction::Rank),
    ("shape", PackFunction::Shape),
    ("find", PackFunction::Find),
    ("without", PackFunction::Without),
    ("broadcast", PackFunction::Broadcast),
    ("broadcast_index", PackFunction::BroadcastIndex),
];

impl PackFunction {
    /// Returns the function of this name.
    pub fn from_name(name: &str) -> Option<PackFunction> {
        FUNCTIONS.iter().find(|(known, _)| *known == name).map(|(_, function)| *function)
    }

    /// Returns the names of all functions.
    pub fn names() -> impl Iterator<Item = &'static str> {
        FUNCTIONS.iter().map(|(name, _)| *name)
    }

    /// Whether the result is a pack.
    pub fn gives_pack(self) -> bool {
        !matches!(self, PackFunction::Rank | PackFunction::Find)
    }

    /// Whether a number of arguments is right, and for messages which one is.
    fn takes(self, given: usize) -> (bool, &'static str) {
        match self {
            PackFunction::Rank | PackFunction::Shape => (given == 1, "1 argument"),
            PackFunction::Broadcast => (given > 0, "at least 1 argument"),
            _ => (given == 2, "2 arguments"),
        }
    }
}

impl<'a> Elaborator<'a> {
    /// Evaluates a function of packs. Whole arguments and bounds of slices belong to `env`.
    pub fn call_pack_function(
        &mut self,
        function: PackFunction,
        name: &'a ast::Name,
        args: &'a [ast::Arg],
        env: Env<'_, 'a>,
    ) -> Value {
        let (fits, takes) = function.takes(args.len());
        if let Some(keyword) = args.iter().find_map(|arg| arg.name.as_ref()) {
            let message = format!("`{}` has no argument `{}`", name.text, keyword.text);
            self.error(Diag::new("E0216", keyword.span, message));
            return Value::Poison;
        }
        if !fits {
            let message = format!("`{}` takes {takes}, not {}", name.text, args.len());
            self.error(Diag::new("E0216", name.span, message));
            return Value::Poison;
        }
        let result = match function {
            PackFunction::Rank => self.rank_of(&args[0].value, env),
            PackFunction::Shape => self.shape_of(&args[0].value, env),
            PackFunction::Find => self.find(&args[0].value, &args[1].value, env),
            PackFunction::Without => self.without(&args[0].value, &args[1].value, env),
            PackFunction::Broadcast => self.broadcast(name, args, env),
            PackFunction::BroadcastIndex => self.broadcast_index(name, args, env),
        };
        result.unwrap_or(Value::Poison)
    }

    fn rank_of(&mut self, arg: &'a ast::Expr, env: Env<'_, 'a>) -> Option<Value> {
        match self.whole(arg, env) {
            Value::Tensor(tensor) => Some(Value::int(tensor.rank)),
            Value::Pack(pack) => Some(Value::int(pack.elements.len())),
            Value::Poison => None,
            other => {
                let (text, found) = (self.excerpt(arg), other.describe());
                let message = format!("`rank` takes a pack or a tensor; `{text}` is {found}");
                self.error(Diag::new("E0243", arg.span, message));
                None
            }
        }
    }

    fn shape_of(&mut self, arg: &'a ast::Expr, env: Env<'_, 'a>) -> Option<Value> {
        match self.whole(arg, env) {
            Value::Tensor(tensor) => {
                let buffer = tensor.buffer.as_ref()?;
                Some(Value::pack(buffer.shape.iter().map(Value::index).collect()))
            }
            Value::Poison => None,
            other => {
                let (text, found) = (self.excerpt(arg), other.describe());
                let message = format!("`shape` takes a tensor; `{text}` is {found}");
                self.error(Diag::new("E0243", arg.span, message));
                None
            }
        }
    }

    fn find(
        &mut self,
        list: &'a ast::Expr,
        wanted: &'a ast::Expr,
        env: Env<'_, 'a>,
    ) -> Option<Value> {
        let list = self.constants_of(list, env);
        let wanted = self.place(wanted, env)?;
        let place = list?.iter().position(|element| *element == wanted);
        Some(Value::int(place.map_or(-1, |place| place as i64)))
    }

    fn without(
        &mut self,
        list: &'a ast::Expr,
        places: &'a ast::Expr,
        env: Env<'_, 'a>,
    ) -> Option<Value> {
        let pack = self.whole_pack(list, env);
        let removed = self.constants_of(places, env)?;
        let pack = pack?;
        let length = pack.elements.len() as i64;
        if let Some(wrong) = removed.iter().find(|place| !(0..length).contains(place)) {
            let text = self.excerpt(list);
            self.outside(&text, *wrong, &pack, places.span);
            return None;
        }
        let kept = pack.elements.iter().enumerate();
        let kept = kept.filter(|(place, _)| !removed.contains(&(*place as i64)));
        Some(Value::pack(kept.map(|(_, value)| value.clone()).collect()))
    }

    /// Returns the elements of a pack of constants; a single integer is a pack of one element.
    fn constants_of(&mut self, expr: &'a ast::Expr, env: Env<'_, 'a>) -> Option<Vec<i64>> {
        let values = match self.whole(expr, env) {
            Value::Pack(pack) => pack.elements.clone(),
            value => vec![value],
        };
        let mut constants = Vec::new();
        for value in values {
            match &value {
                Value::Int(int) if int.to_i64().is_some() => constants.extend(int.to_i64()),
                Value::Poison => return None,
                other => {
                    let (text, found) = (self.excerpt(expr), other.describe());
                    let message = format!("`{text}` holds {found}, not a compile-time integer");
                    self.error(Diag::new("E0245", expr.span, message));
                    return None;
                }
            }
        }
        Some(constants)
    }

    fn broadcast(
        &mut self,
        name: &'a ast::Name,
        args: &'a [ast::Arg],
        env: Env<'_, 'a>,
    ) -> Option<Value> {
        let packs: Vec<Option<Rc<Pack>>> =
            args.iter().map(|arg| self.whole_pack(&arg.value, env)).collect();
        let packs = packs.into_iter().collect::<Option<Vec<_>>>()?;
        let rank = packs.iter().map(|pack| pack.elements.len()).max().unwrap_or(0);
        let mut result = Vec::with_capacity(rank);
        // Dimensions are aligned at the last one.
        for from_end in (1..=rank).rev() {
            let mut extent: Option<Expr> = None;
            for pack in &packs {
                let Some(place) = pack.elements.len().checked_sub(from_end) else { continue };
                let next = self.extent((&pack.elements[place], &args[0].value), "an extent")?;
                extent = match extent {
                    None => Some(next),
                    Some(one) if one.as_int() == Some(1) => Some(next),
                    Some(first) => {
                        match next.as_int() == Some(1) || self.same_extent(&first, &next) {
                            true => Some(first),
                            false => {
                                self.refuse_broadcast(name, &packs, from_end, (&first, &next));
                                return None;
                            }
                        }
                    }
                };
            }
            result.extend(extent.as_ref().map(Value::index));
        }
        Some(Value::pack(result))
    }

    /// Reports extents that do not broadcast (E0246).
    fn refuse_broadcast(
        &mut self,
        name: &ast::Name,
        packs: &[Rc<Pack>],
        from_end: usize,
        (first, next): (&Expr, &Expr),
    ) {
        let shapes: Vec<String> = packs.iter().map(|pack| format!("`{}`", pack.text())).collect();
        let dimension = match from_end {
            1 => "in the last dimension".to_string(),
            n => format!("{n} dimensions from the end"),
        };
        let show = |extent: &Expr| Pack { elements: vec![Value::index(extent)] }.text();
        let show = |extent: &Expr| show(extent).trim_matches(['[', ']']).to_string();
        let (first, next, shapes) = (show(first), show(next), shapes.join(" and "));
        let message = format!(
            "the shapes {shapes} do not broadcast: {dimension} they have `{first}` and `{next}`"
        );
        let is_constant = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let diag = Diag::new("E0246", name.span, message);
        self.error(match is_constant(&first) && is_constant(&next) {
            true => diag.help("extents must be equal, or one of them the constant 1"),
            false => diag
                .help(format!("state that they are equal: `assume {first} == {next}`"))
                .note("a run-time integer that is 1 is not broadcast"),
        });
    }

    fn broadcast_index(
        &mut self,
        name: &'a ast::Name,
        args: &'a [ast::Arg],
        env: Env<'_, 'a>,
    ) -> Option<Value> {
        let axes = self.whole_pack(&args[0].value, env);
        let extents = self.whole_pack(&args[1].value, env);
        let (axes, extents) = (axes?, extents?);
        let Some(left_out) = axes.elements.len().checked_sub(extents.elements.len()) else {
            self.refuse_rank(name.span, &axes, &extents);
            return None;
        };
        let index = axes.elements[left_out..].iter().zip(&extents.elements);
        let index = index.map(|(axis, extent)| match extent {
            Value::Int(int) if int.to_i64() == Some(1) => Value::int(0),
            _ => axis.clone(),
        });
        Some(Value::pack(index.collect()))
    }

    fn refuse_rank(&mut self, span: Span, axes: &Pack, extents: &Pack) {
        let (axes, extents) = (axes.elements.len(), extents.elements.len());
        let message = format!(
            "{} cannot index a tensor of {} by broadcasting",
            count(axes, "axis").replace("axiss", "axes"),
            count(extents, "dimension"),
        );
        let help = "a tensor is broadcast to a shape of the same or a higher rank";
        self.error(Diag::new("E0246", span, message).help(help));
    }
}
