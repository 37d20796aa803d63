//! Layouts: the order in which the elements of a tensor lie in a copy of it.
//!
//! Before: `layout=[ax1 // 16, ax0, ax1 % 16]` of a source of shape `n` × 40.
//! After: a copy of shape 3 × `n` × 16. Element `(i, j)` lies at `(j // 16, i, j % 16)`. The
//! element at `(p0, p1, p2)` is `(p1, p0*16 + p2)`, and there is none if `p0*16 + p2 >= 40`.
//!
//! Each dimension is a mixed-radix number: a sum of digits `(ax // d) % m`, each times a constant,
//! its scale. The digits of an axis cover it without gap or overlap. Those of a dimension do not
//! overlap either, and gaps between them are padding. The layout is therefore a bijection up to
//! padding.
//!
//! A [`DigitSum`] is not a linear sum of `ir::arith`. A linear sum merges equal terms, but in a
//! layout `ax0 + ax0` is an overlap to report, not `2*ax0`. Scales are at least 1, never cancel,
//! and divide each other, so sums and products exist only where the result is again a list of
//! digits.

use super::directives::{Call, Value};
use super::state::Schedule;
use crate::diag::{Diag, Result, Span};
use crate::ir::arith::Facts;
use crate::ir::simplify::simplify_expr;
use crate::ir::{BinOp, Expr};
use crate::lang::ast::{self, BinaryOp, ExprKind};

/// A bijection, up to padding, between the elements of a source and the places of a copy.
pub(super) struct Layout {
    /// The extents of the source.
    source: Vec<Expr>,
    /// The digits of each dimension of the copy, by descending scale. Each scale divides the one
    /// before.
    dims: Vec<Vec<Digit>>,
    /// The extents of the copy.
    pub(super) shape: Vec<Expr>,
    facts: Facts,
}

/// `scale * ((axis // div) % modulus)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Digit {
    axis: usize,
    div: i64,
    modulus: Option<i64>,
    scale: i64,
}

/// Parses and checks an argument of a directive as a layout; `argument` is its number.
pub(super) fn parse_layout(
    schedule: &Schedule,
    (call, argument): (&Call, usize),
    name: &str,
    axes: &[String],
    source: &[Expr],
) -> Result<Layout> {
    let parser = Parser { name, axes, rank: source.len() };
    let mut facts = Facts::new();
    schedule.known_facts().iter().for_each(|cond| facts.assume(cond));
    let checker = Checker { name, source, facts: &facts, span: call.span_of(argument) };
    let mut dims = Vec::new();
    for argument in call.list(argument) {
        let Value::Expr(expr) = &argument.value else { crate::bug!("an expression is expected") };
        let sum = parser.sum(expr)?;
        if sum.digits.is_empty() || sum.constant != 0 {
            let text =
                "each dimension of a layout must be a sum of parts of axes, without a constant";
            return Err(parser.refuse(argument.span, text));
        }
        let mut digits = sum.digits;
        digits.sort_by_key(|digit| std::cmp::Reverse(digit.scale));
        // Digits that are always 0 add nothing.
        let constant = |digit: &Digit| checker.values(*digit).as_int().is_some_and(|n| n <= 1);
        if digits.iter().all(constant) {
            digits.truncate(1);
        } else {
            digits.retain(|digit| !constant(digit));
        }
        dims.push((digits, argument.span));
    }
    let (dims, spans): (Vec<Vec<Digit>>, Vec<Span>) = dims.into_iter().unzip();
    // The check of a dimension relies on independent digits.
    (0..source.len()).try_for_each(|axis| checker.axis(axis, &dims))?;
    let mut shape = Vec::new();
    for (digits, span) in dims.iter().zip(spans) {
        shape.push(checker.dimension(digits, span)?);
    }
    Ok(Layout { source: source.to_vec(), dims, shape, facts })
}

impl Layout {
    /// Returns the place of an element in the copy.
    pub(super) fn places(&self, indices: &[Expr]) -> Vec<Expr> {
        let digit = |digit: &Digit| {
            let mut value = divide(indices[digit.axis].clone(), digit.div);
            if let Some(modulus) = digit.modulus {
                value = Expr::binary(BinOp::FloorMod, value, Expr::index(modulus));
            }
            scale(value, digit.scale)
        };
        let sum = |digits: &Vec<Digit>| digits.iter().map(digit).reduce(Expr::add);
        self.dims.iter().map(|digits| sum(digits).expect("no dimension is empty")).collect()
    }

    /// Returns the element at a place of the copy.
    pub(super) fn elements(&self, places: &[Expr]) -> Vec<Expr> {
        let mut indices: Vec<Option<Expr>> = vec![None; self.source.len()];
        for (digit, value) in self.digits(places) {
            let part = scale(value, digit.div);
            let index = &mut indices[digit.axis];
            *index = Some(match index.take() {
                None => part,
                Some(rest) => Expr::add(rest, part),
            });
        }
        // Axes without digits have extent 1.
        indices.into_iter().map(|index| index.unwrap_or_else(|| Expr::index(0))).collect()
    }

    /// Returns each digit with its value at a place, the most significant digits of an axis first.
    fn digits(&self, places: &[Expr]) -> Vec<(Digit, Expr)> {
        let mut values = Vec::new();
        for (digits, place) in self.dims.iter().zip(places) {
            for (at, digit) in digits.iter().enumerate() {
                let mut value = divide(place.clone(), digit.scale);
                if at > 0 {
                    let ratio = digits[at - 1].scale / digit.scale;
                    value = Expr::binary(BinOp::FloorMod, value, Expr::index(ratio));
                }
                values.push((*digit, value));
            }
        }
        values.sort_by_key(|(digit, _)| std::cmp::Reverse(digit.div));
        values
    }

    /// Returns the condition that a place holds an element and is not padding; `None` if it always
    /// holds. `indices` is [`Layout::elements`] of the place.
    pub(super) fn inside(&self, places: &[Expr], indices: &[Expr]) -> Option<Expr> {
        let mut facts = self.facts.clone();
        for (place, extent) in places.iter().zip(&self.shape) {
            let var = place.as_var().expect("a place is an axis of the copy");
            facts.bind(var, &Expr::index(0), extent);
        }
        let digits = self
            .digits(places)
            .into_iter()
            .filter_map(|(digit, value)| Some(Expr::lt(value, Expr::index(digit.modulus?))));
        let elements = indices.iter().zip(&self.source);
        let elements = elements.map(|(index, extent)| Expr::lt(index.clone(), extent.clone()));
        let conditions = digits.chain(elements).filter_map(|cond| {
            let cond = simplify_expr(&cond, &facts);
            (!facts.prove(&cond)).then_some(cond)
        });
        conditions.reduce(Expr::and)
    }
}

fn divide(value: Expr, by: i64) -> Expr {
    match by {
        1 => value,
        _ => Expr::binary(BinOp::FloorDiv, value, Expr::index(by)),
    }
}

fn scale(value: Expr, by: i64) -> Expr {
    match by {
        1 => value,
        _ => Expr::mul(value, Expr::index(by)),
    }
}

/// A sum of digits and a constant, as the user wrote it.
struct DigitSum {
    digits: Vec<Digit>,
    constant: i64,
}

struct Parser<'a> {
    name: &'a str,
    axes: &'a [String],
    rank: usize,
}

impl Parser<'_> {
    fn refuse(&self, span: Span, text: impl Into<String>) -> Box<Diag> {
        Box::new(
            Diag::new("E0354", span, text)
                .help("write parts of axes: `ax0`, `ax0 // 4`, `ax0 % 4`, `ax0 * 8 + ax1 % 8`"),
        )
    }

    fn sum(&self, expr: &ast::Expr) -> Result<DigitSum> {
        let constant = |constant| DigitSum { digits: Vec::new(), constant };
        match &*expr.kind {
            ExprKind::Int(digits) => match digits.parse() {
                Ok(value) => Ok(constant(value)),
                Err(_) => Err(self.refuse(expr.span, "this number is too large")),
            },
            ExprKind::Name(name) => Ok(DigitSum { digits: vec![self.axis(name)?], constant: 0 }),
            ExprKind::Binary(op, a, b, _) => {
                let (a, b) = (self.sum(a)?, self.sum(b)?);
                let result = match op {
                    BinaryOp::Add => add(a, b),
                    BinaryOp::Mul => multiply(a, b),
                    BinaryOp::FloorDiv => part(a, b, |digit, by| digit.quotient(by)),
                    BinaryOp::Mod => part(a, b, |digit, by| digit.remainder(by)),
                    _ => None,
                };
                result.ok_or_else(|| {
                    self.refuse(expr.span, "expected a part of an axis or a sum of such parts")
                })
            }
            _ => Err(self.refuse(expr.span, "expected a part of an axis")),
        }
    }

    fn axis(&self, name: &ast::Name) -> Result<Digit> {
        let numbered = name.text.strip_prefix("ax").and_then(|number| number.parse().ok());
        let numbered = numbered.filter(|axis| *axis < self.rank);
        let own = || self.axes.iter().position(|axis| *axis == name.text);
        if let Some(axis) = numbered.or_else(own) {
            return Ok(Digit { axis, div: 1, modulus: None, scale: 1 });
        }
        let text = format!("`{}` is not an axis of `{}`", name.text, self.name);
        let axes: Vec<String> = (0..self.rank).map(|axis| format!("`ax{axis}`")).collect();
        let note = match &axes[..] {
            [] => "it has one element and no axes".to_string(),
            _ => format!("its axes are {}", axes.join(", ")),
        };
        Err(Box::new(Diag::new("E0354", name.span, text).note(note)))
    }
}

fn add(a: DigitSum, b: DigitSum) -> Option<DigitSum> {
    let constant = a.constant.checked_add(b.constant)?;
    Some(DigitSum { digits: a.digits.into_iter().chain(b.digits).collect(), constant })
}

fn multiply(a: DigitSum, b: DigitSum) -> Option<DigitSum> {
    let (sum, by) = match (a.digits.is_empty(), b.digits.is_empty()) {
        (_, true) => (a, b.constant),
        (true, _) => (b, a.constant),
        _ => return None,
    };
    if by < 1 && !sum.digits.is_empty() {
        return None;
    }
    let scale = |digit: Digit| Some(Digit { scale: digit.scale.checked_mul(by)?, ..digit });
    let digits = sum.digits.into_iter().map(scale).collect::<Option<_>>()?;
    Some(DigitSum { digits, constant: sum.constant.checked_mul(by)? })
}

fn part(a: DigitSum, b: DigitSum, of: impl Fn(Digit, i64) -> Option<Digit>) -> Option<DigitSum> {
    let ([digit], true) = (&a.digits[..], b.digits.is_empty() && b.constant >= 1) else {
        return None;
    };
    if digit.scale != 1 || a.constant != 0 {
        return None;
    }
    Some(DigitSum { digits: vec![of(*digit, b.constant)?], constant: 0 })
}

impl Digit {
    fn quotient(self, by: i64) -> Option<Digit> {
        let modulus = match self.modulus {
            Some(modulus) if modulus % by != 0 => return None,
            modulus => modulus.map(|modulus| modulus / by),
        };
        Some(Digit { div: self.div.checked_mul(by)?, modulus, ..self })
    }

    fn remainder(self, by: i64) -> Option<Digit> {
        let modulus = match self.modulus {
            Some(modulus) if modulus <= by => modulus,
            Some(modulus) if modulus % by != 0 => return None,
            _ => by,
        };
        Some(Digit { modulus: Some(modulus), ..self })
    }

    fn text(self) -> String {
        match (self.div, self.modulus) {
            (1, None) => format!("ax{}", self.axis),
            (div, None) => format!("ax{} // {div}", self.axis),
            (1, Some(modulus)) => format!("ax{} % {modulus}", self.axis),
            (div, Some(modulus)) => format!("(ax{} // {div}) % {modulus}", self.axis),
        }
    }
}

struct Checker<'a> {
    name: &'a str,
    source: &'a [Expr],
    facts: &'a Facts,
    span: Span,
}

impl Checker<'_> {
    /// Returns the number of places that a digit takes.
    fn range(&self, digit: Digit) -> Expr {
        match digit.modulus {
            Some(modulus) => Expr::index(modulus),
            None => self.values(digit),
        }
    }

    /// Returns the number of values that a digit has.
    fn values(&self, digit: Digit) -> Expr {
        let up = Expr::add(self.source[digit.axis].clone(), Expr::index(digit.div - 1));
        let values = simplify_expr(&divide(up, digit.div), self.facts);
        match (digit.modulus, values.as_int()) {
            (None, _) => values,
            (Some(modulus), Some(values)) if values <= i128::from(modulus) => {
                Expr::index(values as i64)
            }
            (Some(modulus), _) => Expr::index(modulus),
        }
    }

    /// Returns the extent of a dimension, after checking that its digits do not overlap.
    fn dimension(&self, digits: &[Digit], span: Span) -> Result<Expr> {
        for pair in digits.windows(2) {
            let (high, low) = (pair[0], pair[1]);
            let ratio = high.scale / low.scale;
            if ratio * low.scale != high.scale {
                let text = format!(
                    "each factor must be a multiple of the next smaller one, and {} is not a \
                     multiple of {}",
                    high.scale, low.scale
                );
                return Err(Box::new(Diag::new("E0354", span, text)));
            }
            let values = self.values(low);
            let Some(count) = values.as_int() else {
                let text = format!(
                    "`{}` is added to another part, so its extent must be constant; it is `{}`",
                    low.text(),
                    crate::ir::print::print_expr(&values)
                );
                return Err(Box::new(
                    Diag::new("E0354", span, text).help("make it a separate dimension"),
                ));
            };
            if i128::from(ratio) < count {
                let (mut a, mut b) = (vec![0; self.source.len()], vec![0; self.source.len()]);
                a[high.axis] = high.div;
                b[low.axis] = ratio * low.div;
                return Err(self.collision(&a, &b, span));
            }
        }
        let (first, last) = (digits[0], digits[digits.len() - 1]);
        if last.scale != 1 {
            let text = format!(
                "this layout is not a bijection: the positions of `{}` in this dimension are \
                 multiples of {}",
                self.name, last.scale
            );
            return Err(Box::new(
                Diag::new("E0353", span, text).help("divide the factors by their common divisor"),
            ));
        }
        Ok(simplify_expr(&scale(self.range(first), first.scale), self.facts))
    }

    /// Checks that the digits of an axis determine each of its values, and do not overlap.
    fn axis(&self, axis: usize, dims: &[Vec<Digit>]) -> Result<()> {
        let extent = &self.source[axis];
        let mut digits: Vec<Digit> =
            dims.iter().flatten().copied().filter(|digit| digit.axis == axis).collect();
        digits.sort_by_key(|digit| digit.div);
        // The digits so far distinguish the values below this one.
        let mut limit: i64 = 1;
        let mut previous: Option<Digit> = None;
        let at = |value: i64| {
            let mut indices = vec![0; self.source.len()];
            indices[axis] = value;
            indices
        };
        for digit in digits {
            let overlap =
                previous.filter(|previous| previous.modulus.is_none() || digit.div < limit);
            if let Some(previous) = overlap {
                return Err(self.overlap(previous, digit));
            }
            if digit.div > limit && !self.at_most(extent, limit) {
                return Err(self.collision(&at(0), &at(limit), self.span));
            }
            limit = match digit.modulus {
                Some(modulus) => digit.div.saturating_mul(modulus),
                None => i64::MAX,
            };
            previous = Some(digit);
        }
        if !self.at_most(extent, limit) {
            return Err(self.collision(&at(0), &at(limit), self.span));
        }
        Ok(())
    }

    fn at_most(&self, extent: &Expr, limit: i64) -> bool {
        limit == i64::MAX || self.facts.prove(&Expr::le(extent.clone(), Expr::index(limit)))
    }

    fn collision(&self, a: &[i64], b: &[i64], span: Span) -> Box<Diag> {
        let show = |indices: &[i64]| {
            let indices: Vec<String> = indices.iter().map(i64::to_string).collect();
            format!("`{}[{}]`", self.name, indices.join(", "))
        };
        let text = format!(
            "this layout is not a bijection: {} and {} have the same position",
            show(a),
            show(b)
        );
        let names = a.iter().zip(b).enumerate().filter(|(_, (a, b))| a != b);
        let names: Vec<String> = names.map(|(axis, _)| format!("`ax{axis}`")).collect();
        Box::new(
            Diag::new("E0353", span, text)
                .help(format!("each value of {} needs a position", names.join(", "))),
        )
    }

    /// Returns the error for two digits of an axis that overlap, so that some pairs of their values
    /// never occur.
    fn overlap(&self, low: Digit, high: Digit) -> Box<Diag> {
        let value = |digit: Digit, of: i64| {
            let value = of / digit.div;
            digit.modulus.map_or(value, |modulus| value % modulus)
        };
        let last = self.source[low.axis].as_int().unwrap_or(1 << 16).min(1 << 16) as i64;
        let occurring: rustc_hash::FxHashSet<(i64, i64)> =
            (0..last).map(|of| (value(low, of), value(high, of))).collect();
        let pairs = (0..64).flat_map(|high| (0..64).map(move |low| (low, high)));
        let missing = pairs.into_iter().find(|pair| !occurring.contains(pair));
        let axis = format!("`ax{}`", low.axis);
        let (low, high) = (low.text(), high.text());
        let text = match missing {
            Some((a, b)) => format!(
                "this layout is not a bijection: no value of {axis} satisfies `{low}` = {a} and \
                 `{high}` = {b}"
            ),
            None => format!("this layout is not a bijection: `{low}` and `{high}` overlap"),
        };
        Box::new(
            Diag::new("E0353", self.span, text)
                .note(format!("both contain the same part of {axis}"))
                .help("use each part of an axis once: `ax0 // 8` and `ax0 % 8`"),
        )
    }
}
