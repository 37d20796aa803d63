//! What operators use to define tensors.

use std::collections::{BTreeSet, HashMap, HashSet};

use bytes::Bytes;
use indexmap::IndexSet;

use crate::dim::{Dim, REDUCE, TOO_LARGE};
use crate::dtype::{DType, Val, write_elements};
use crate::expr::E;
use crate::graph::{Def, Graph, Reduce, T, Tensor};
use crate::narrow::Narrow;
use crate::node::{Outcome, Refusal};
use crate::ops::{Dequantized, Integers, Special, Taps};
use crate::reader::{Constant, Folder};
use crate::run_time::{Assertion, DeclaredShape};

/// A convolution that a batch normalisation may be folded into.
#[derive(Clone)]
pub(crate) struct Convolution {
    pub(crate) op: &'static str,
    pub(crate) image: T,
    pub(crate) weight: T,
    pub(crate) bias: Option<T>,
    pub(crate) keys: Vec<(&'static str, String)>,
    /// The taps of a convolution that is a sum of their products.
    pub(crate) taps: Option<Taps>,
}

/// A comparison of extents.
pub(crate) type Comparison = (Dim, &'static str, Dim);

/// Comparisons of extents.
pub(crate) type Assumptions = IndexSet<Comparison>;

/// The state of an import.
pub(crate) struct Context {
    pub(crate) graph: Graph,
    pub(crate) folder: Folder,
    /// The name of the first output of the node under import.
    pub(crate) hint: String,
    /// Comparisons of extents that the caller must ensure, in the order of their discovery.
    pub(crate) assumptions: Assumptions,
    /// Conditions on inputs that the entry checks, in the order of their evaluation.
    pub(crate) asserts: Vec<Assertion>,
    /// The declared shapes of the outputs of the node under import.
    pub(crate) declared: Vec<Option<DeclaredShape>>,
    pub(crate) reassociate: bool,
    pub(crate) winograd: bool,
    pub(crate) convolutions: HashMap<T, Convolution>,
    pub(crate) integers: Integers,
    /// Results of two branches: the condition of the first one, and those of both.
    pub(crate) choices: HashMap<T, (T, T, T)>,
    /// Numbers of rows of which one is 0: two stages share the rows of a result.
    pub(crate) split_rows: HashSet<Dim>,
    /// The number of new tokens of a call of a decoder, which is usually 1.
    pub(crate) new_tokens: Option<Dim>,
    /// Weights that are dequantised in blocks.
    pub(crate) blocks: HashMap<T, Dequantized>,
    /// The types of numbers with at most 8 bits that the language cannot compute with.
    pub(crate) narrow: HashMap<T, Narrow>,
    /// Values that are no tensors.
    pub(crate) specials: HashMap<T, Special>,
}

/// Returns the comparison that says that two extents are equal.
fn equality(a: &Dim, b: &Dim) -> (Dim, &'static str, Dim) {
    let (a, b) = a.without_common_factors(b);
    let (a, b) = if a.size() <= b.size() { (a, b) } else { (b, a) };
    // `a == min(a, b)` is `a <= b`.
    match b.as_minimum() {
        Some((x, y)) if *x == a => (a, "<=", y.clone()),
        Some((x, y)) if *y == a => (a, "<=", x.clone()),
        _ => (a, "==", b),
    }
}

/// The axes of a stage of this shape.
pub(crate) fn axes(shape: &[Dim]) -> Vec<Dim> {
    shape.iter().enumerate().map(|(at, extent)| Dim::axis(at, extent)).collect()
}

/// The reduction axis of a number.
pub(crate) fn reduce_axis(at: usize, extent: &Dim) -> Dim {
    Dim::axis(usize::from(REDUCE) + at, extent)
}

impl Context {
    pub(crate) fn dtype(&self, tensor: T) -> DType {
        self.graph[tensor].dtype
    }

    pub(crate) fn shape(&self, tensor: T) -> Vec<Dim> {
        self.graph[tensor].shape.clone()
    }

    pub(crate) fn rank(&self, tensor: T) -> usize {
        self.graph[tensor].shape.len()
    }

    /// The name of a part of the node under import.
    fn part(&self, part: &str) -> String {
        match part {
            "" => self.hint.clone(),
            _ => format!("{}_{part}", self.hint),
        }
    }

    fn define(&mut self, part: &str, dtype: DType, shape: Vec<Dim>, def: Def) -> Outcome<T> {
        for dim in &shape {
            if dim.is_poison() {
                return Err(TOO_LARGE.into());
            }
            if dim.as_const().is_some_and(|value| value < 0) {
                return Err(
                    format!("the extent {} is negative", dim.as_const().unwrap_or(0)).into()
                );
            }
        }
        if shape.len() > 32 {
            return Err("tensors of more than 32 dimensions are not supported".into());
        }
        let name = self.part(part);
        Ok(self.graph.push(Tensor { name, dtype, shape, def, vals: None }))
    }

    /// Refuses expressions that are not well formed.
    fn check(&self, body: &E) -> Outcome<()> {
        if body.is_poison() {
            return Err("an index overflows".into());
        }
        if !body.fits_ranks(&self.graph) {
            return Err("the rank of an operand is not supported".into());
        }
        Ok(())
    }

    /// Defines a stage; `part` is appended to the name of the node.
    pub(crate) fn compute(
        &mut self,
        part: &str,
        dtype: DType,
        shape: Vec<Dim>,
        body: E,
    ) -> Outcome<T> {
        self.check(&body)?;
        // What reads one tensor with the same axes is that tensor.
        if let E::Load(source, index) = &body {
            let same = self.graph[*source].shape == shape && self.graph[*source].dtype == dtype;
            let axes = axes(&shape);
            let plain =
                index.iter().zip(&axes).all(|(e, axis)| matches!(e, E::Idx(d) if d == axis));
            if same && plain {
                return Ok(*source);
            }
        }
        self.define(part, dtype, shape, Def::Compute { body, reduce: None })
    }

    /// Defines a stage that is a reduction.
    pub(crate) fn reduce(
        &mut self,
        part: &str,
        dtype: DType,
        shape: Vec<Dim>,
        body: E,
        reduce: Reduce,
    ) -> Outcome<T> {
        self.check(&body)?;
        for e in reduce.condition.iter().chain(&reduce.init) {
            self.check(e)?;
        }
        if reduce.extents.is_empty() {
            return match reduce.condition {
                None => self.compute(part, dtype, shape, body),
                Some(_) => Err("a reduction over no axis is not supported".into()),
            };
        }
        // The language has no empty constant ranges.
        if reduce.extents.contains(&Dim::zero()) {
            let (low, high) = (f64::NEG_INFINITY, f64::INFINITY);
            let (least, most) = if dtype.is_int() { dtype.int_range() } else { (0, 0) };
            let bound = |float: f64, int: i128| {
                if dtype.is_float() { E::float(float, dtype) } else { E::int(int as i64, dtype) }
            };
            let value = match reduce.kind {
                "any" => E::flag(false),
                "all" => E::flag(true),
                "max" => bound(low, least),
                "min" => bound(high, most),
                "prod" => E::num(1.0, dtype),
                _ => E::num(0.0, dtype),
            };
            return self.compute(part, dtype, shape, value);
        }
        self.define(part, dtype, shape, Def::Compute { body, reduce: Some(reduce) })
    }

    /// Defines a stage with a reduction over axes of the given extents.
    pub(crate) fn fold(
        &mut self,
        part: &str,
        kind: &'static str,
        dtype: DType,
        shape: Vec<Dim>,
        extents: Vec<Dim>,
        body: E,
    ) -> Outcome<T> {
        let reduce = Reduce { kind, extents, condition: None, init: None };
        self.reduce(part, dtype, shape, body, reduce)
    }

    /// Defines the position of the first least or greatest value of a reduction.
    pub(crate) fn position(
        &mut self,
        part: &str,
        kind: &'static str,
        shape: Vec<Dim>,
        extents: Vec<Dim>,
        (position, value): (E, E),
        condition: Option<E>,
    ) -> Outcome<T> {
        if extents.is_empty() || extents.contains(&Dim::zero()) {
            return Err("the position in an empty axis does not exist".into());
        }
        for e in [&position, &value].into_iter().chain(&condition) {
            self.check(e)?;
        }
        let def = Def::Position { kind, position, value, extents, condition };
        self.define(part, DType::Int64, shape, def)
    }

    /// Defines the positions along an axis in the order of a key, over `reduce_axis(0, extent)`.
    pub(crate) fn order(
        &mut self,
        part: &str,
        shape: Vec<Dim>,
        key: E,
        axis: usize,
        extent: Dim,
        descending: bool,
    ) -> Outcome<T> {
        // The language has no empty constant ranges.
        if extent == Dim::zero() {
            return self.compute(part, DType::Int64, shape, E::int(0, DType::Int64));
        }
        self.check(&key)?;
        let def = Def::Order { key, axis, extent, descending };
        self.define(part, DType::Int64, shape, def)
    }

    /// Applies a kernel of the library.
    pub(crate) fn call(
        &mut self,
        part: &str,
        dtype: DType,
        shape: Vec<Dim>,
        op: &'static str,
        args: Vec<T>,
        keys: Vec<(&'static str, String)>,
    ) -> Outcome<T> {
        self.define(part, dtype, shape, Def::Call { op, args, keys })
    }

    /// Defines a constant with its data.
    pub(crate) fn constant(&mut self, part: &str, constant: Constant) -> Outcome<T> {
        let dim = |extent: &u64| match i64::try_from(*extent) {
            Ok(extent) => Ok(Dim::from(extent)),
            Err(_) => Err(Refusal::from("an extent overflows")),
        };
        let shape = constant.shape.iter().map(dim).collect::<Outcome<_>>()?;
        let tensor = self.define(part, constant.dtype, shape, Def::Data(constant.data))?;
        self.narrow.extend(constant.narrow.map(|own| (tensor, own)));
        Ok(tensor)
    }

    /// Defines a constant with extents that are known to fit its data.
    pub(crate) fn data(
        &mut self,
        part: &str,
        dtype: DType,
        shape: Vec<Dim>,
        data: Bytes,
    ) -> Outcome<T> {
        self.define(part, dtype, shape, Def::Data(data))
    }

    /// Defines known values, row-major.
    pub(crate) fn known(
        &mut self,
        part: &str,
        dtype: DType,
        shape: Vec<Dim>,
        vals: Vec<Val>,
    ) -> Outcome<T> {
        if let Some(data) = write_elements(dtype, &vals) {
            return self.define(part, dtype, shape, Def::Data(Bytes::from(data)));
        }
        let name = self.part(part);
        Ok(self.graph.push(Tensor { name, dtype, shape, def: Def::Known, vals: Some(vals) }))
    }

    /// Defines a list of numbers of type int64.
    pub(crate) fn known_ints(&mut self, part: &str, values: &[Dim]) -> Outcome<T> {
        let vals = values.iter().cloned().map(Val::Int).collect();
        self.known(part, DType::Int64, vec![(values.len() as i64).into()], vals)
    }

    /// An element of a tensor, as a literal if it is known.
    pub(crate) fn load(&self, tensor: T, index: impl IntoIterator<Item = Dim>) -> E {
        self.load_at(tensor, index.into_iter().map(E::Idx).collect())
    }

    /// An element of a tensor at computed indices.
    pub(crate) fn load_at(&self, tensor: T, index: Vec<E>) -> E {
        match self.graph.scalar(tensor) {
            Some(value) => E::Lit(value.clone(), self.dtype(tensor)),
            None => E::Load(tensor, index),
        }
    }

    /// The element of a tensor that is broadcast to axes.
    pub(crate) fn load_broadcast(&self, tensor: T, axes: &[Dim]) -> E {
        let shape = &self.graph[tensor].shape;
        // A tensor of more dimensions is refused with the expression.
        let axes = &axes[axes.len().saturating_sub(shape.len())..];
        let index = shape.iter().zip(axes);
        self.load(
            tensor,
            index.map(|(n, axis)| if n.is_one() { Dim::zero() } else { axis.clone() }),
        )
    }

    /// Requires two extents to be equal, at run time if that is not known.
    pub(crate) fn require_equal(&mut self, a: &Dim, b: &Dim) -> Outcome<()> {
        if a == b {
            return Ok(());
        }
        if a.is_poison() || b.is_poison() {
            return Err(TOO_LARGE.into());
        }
        if let (Some(a), Some(b)) = (a.as_const(), b.as_const()) {
            return Err(format!("extents {a} and {b} differ").into());
        }
        self.assumptions.insert(equality(a, b));
        Ok(())
    }

    /// Requires an extent to be at most another one.
    pub(crate) fn require_at_most(&mut self, a: &Dim, b: &Dim) -> Outcome<()> {
        if let (Some(a), Some(b)) = (a.as_const(), b.as_const())
            && a > b
        {
            return Err(format!("extent {a} is larger than extent {b}").into());
        }
        if !(b.clone() - a).is_nonnegative() {
            self.assumptions.insert((a.clone(), "<=", b.clone()));
        }
        Ok(())
    }

    /// Whether two extents are equal in all calls that the network allows.
    pub(crate) fn is_equal(&self, a: &Dim, b: &Dim) -> bool {
        a == b || self.assumptions.contains(&equality(a, b))
    }

    /// Whether two extents differ in all calls that the network allows.
    pub(crate) fn is_unequal(&self, a: &Dim, b: &Dim) -> bool {
        self.assumptions.contains(&(a.clone(), "!=", b.clone()))
    }

    /// Requires that an extent is not 0.
    pub(crate) fn require_elements(&mut self, extent: &Dim) {
        self.require_least(extent, 1);
    }

    /// Requires a number to be at least `least`.
    pub(crate) fn require_least(&mut self, number: &Dim, least: i64) {
        let constant = Dim::from(number.constant());
        let bound = Dim::from(least) - &constant;
        if !(number.clone() - least).is_nonnegative() {
            self.assumptions.insert((number.clone() - &constant, ">=", bound));
        }
    }

    /// The shape that tensors are broadcast to.
    pub(crate) fn broadcast(&mut self, shapes: &[Vec<Dim>]) -> Outcome<Vec<Dim>> {
        let rank = shapes.iter().map(Vec::len).max().unwrap_or(0);
        let mut result: Vec<Dim> = vec![1.into(); rank];
        for shape in shapes {
            for (at, dim) in shape.iter().enumerate() {
                let own = &mut result[rank - shape.len() + at];
                if own.is_one() {
                    *own = dim.clone();
                } else if !dim.is_one() {
                    self.require_equal(&own.clone(), dim)?;
                    // The simpler of equal extents.
                    if dim.size() < own.size() || dim.as_const().is_some() {
                        *own = dim.clone();
                    }
                }
            }
        }
        Ok(result)
    }

    /// Defines an elementwise stage with broadcasting.
    pub(crate) fn elementwise(
        &mut self,
        part: &str,
        dtype: DType,
        inputs: &[T],
        body: impl FnOnce(Vec<E>) -> E,
    ) -> Outcome<T> {
        let shapes: Vec<Vec<Dim>> = inputs.iter().map(|input| self.shape(*input)).collect();
        let shape = self.broadcast(&shapes)?;
        let axes = axes(&shape);
        let loads = inputs.iter().map(|input| self.load_broadcast(*input, &axes)).collect();
        self.compute(part, dtype, shape, body(loads))
    }

    /// Converts a tensor to another type.
    pub(crate) fn cast(&mut self, part: &str, tensor: T, dtype: DType) -> Outcome<T> {
        if self.dtype(tensor) == dtype {
            return Ok(tensor);
        }
        self.elementwise(part, dtype, &[tensor], |mut x| x.remove(0).cast(dtype))
    }

    /// Converts 16-bit floats to float32, in which sums of them are computed.
    pub(crate) fn widen(&mut self, part: &str, tensor: T) -> Outcome<T> {
        if self.dtype(tensor).is_half() {
            self.cast(part, tensor, DType::Float32)
        } else {
            Ok(tensor)
        }
    }

    /// Returns the values of a tensor that must be known.
    pub(crate) fn values(&self, tensor: T, role: &str) -> Outcome<Vec<Val>> {
        match &self.graph[tensor].vals {
            Some(vals) => Ok(vals.clone()),
            None => Err(Refusal::NotConstant(role.to_string(), tensor)),
        }
    }

    /// Returns integers that may depend on run-time integers.
    pub(crate) fn dims(&self, tensor: T, role: &str) -> Outcome<Vec<Dim>> {
        let int = |value: Val| match value {
            Val::Int(dim) => Ok(dim),
            _ => Err(Refusal::from(format!("{role} must be integers"))),
        };
        self.values(tensor, role)?.into_iter().map(int).collect()
    }

    /// Returns constant integers.
    pub(crate) fn ints(&self, tensor: T, role: &str) -> Outcome<Vec<i64>> {
        let int = |value: Val| value.as_int();
        let ints: Option<Vec<i64>> = self.values(tensor, role)?.into_iter().map(int).collect();
        ints.ok_or_else(|| Refusal::NotConstant(role.to_string(), tensor))
    }

    /// Returns constant numbers.
    pub(crate) fn floats(&self, tensor: T, role: &str) -> Outcome<Vec<f64>> {
        let float = |value: Val| value.as_f64();
        let floats: Option<Vec<f64>> = self.values(tensor, role)?.into_iter().map(float).collect();
        floats.ok_or_else(|| Refusal::NotConstant(role.to_string(), tensor))
    }

    /// Returns one constant number.
    pub(crate) fn float(&self, tensor: T, role: &str) -> Outcome<f64> {
        match self.floats(tensor, role)?[..] {
            [value] => Ok(value),
            _ => Err(format!("{role} must have one element").into()),
        }
    }

    /// Returns one integer that may depend on run-time integers.
    pub(crate) fn dim(&self, tensor: T, role: &str) -> Outcome<Dim> {
        match &self.dims(tensor, role)?[..] {
            [value] => Ok(value.clone()),
            _ => Err(format!("{role} must have one element").into()),
        }
    }

    /// Returns the value of a tensor of one element, also of a float, if it is a whole number that
    /// may depend on run-time integers.
    pub(crate) fn whole_number(&self, tensor: T) -> Option<Dim> {
        let own = &self.graph[tensor];
        match own.vals.as_deref() {
            Some([Val::Int(dim)]) => Some(dim.clone()),
            Some([Val::Float(value)]) => {
                let most = own.dtype.largest_exact_integer() as f64;
                (value.fract() == 0.0 && value.abs() <= most).then(|| Dim::from(*value as i64))
            }
            _ => self.graph.whole(tensor),
        }
    }

    /// The inputs of the network that a tensor depends on.
    pub(crate) fn roots(&self, tensor: T) -> BTreeSet<T> {
        let (mut seen, mut roots, mut work) = (BTreeSet::new(), BTreeSet::new(), vec![tensor]);
        while let Some(tensor) = work.pop() {
            if seen.insert(tensor) {
                if matches!(self.graph[tensor].def, Def::Input | Def::Inout) {
                    roots.insert(tensor);
                }
                work.extend(self.graph.operands(tensor));
            }
        }
        roots
    }
}

/// Returns the number of an axis that may count from the end.
pub(crate) fn axis_of(axis: i64, rank: usize) -> Outcome<usize> {
    let positive = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
    let inside = positive.and_then(|axis| usize::try_from(axis).ok()).filter(|axis| *axis < rank);
    inside.ok_or_else(|| format!("axis {axis} is outside of a tensor of rank {rank}").into())
}

/// Returns the numbers of axes that may count from the end, each of them once.
pub(crate) fn axes_of(axes: &[i64], rank: usize) -> Outcome<Vec<usize>> {
    let axes: Vec<usize> = axes.iter().map(|axis| axis_of(*axis, rank)).collect::<Outcome<_>>()?;
    let unique: BTreeSet<usize> = axes.iter().copied().collect();
    if unique.len() != axes.len() {
        return Err("an axis is named twice".into());
    }
    Ok(axes)
}
