//! The tensors of an imported network: how each one is defined.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Index;

use bytes::Bytes;

use crate::dim::{Dim, REDUCE, product};
use crate::dtype::{DType, Val, read_element};
use crate::expr::E;
use crate::ratio::Ratio;

/// The largest number of elements of a tensor whose values the importer follows.
const MAX_KNOWN: usize = 4096;

/// The largest number of elements that are evaluated although an operand is not known.
const MAX_PARTIAL: usize = 64;

/// The largest number of elements and terms that are evaluated in all: a second of work. Shape
/// arithmetic of a model needs some thousand.
const MAX_EVALUATED: usize = 20_000_000;

/// A tensor by its number in a [`Graph`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct T(pub(crate) u32);

/// A reduction of a stage; its axes are numbered from [`REDUCE`].
#[derive(Clone, Debug)]
pub(crate) struct Reduce {
    pub(crate) kind: &'static str,
    /// Extents of the reduction axes.
    pub(crate) extents: Vec<Dim>,
    pub(crate) condition: Option<E>,
    pub(crate) init: Option<E>,
}

/// How a tensor is defined.
#[derive(Clone, Debug)]
pub(crate) enum Def {
    /// An input of the network.
    Input,
    /// An input that the network updates in place.
    Inout,
    /// An `inout` tensor after the update of a region, whose extents are `region`, at an offset
    /// along an axis.
    Update { tensor: T, region: Vec<Dim>, axis: usize, offset: Dim, body: E },
    /// Little-endian, row-major data: a parameter of the network.
    Data(Bytes),
    /// Known values, written as literals or as a stage.
    Known,
    /// A stage whose axes are numbered from 0.
    Compute { body: E, reduce: Option<Reduce> },
    /// A pair of stages, of a position and a value; this one is the position.
    Position { kind: &'static str, position: E, value: E, extents: Vec<Dim>, condition: Option<E> },
    /// A stage of positions in the order of a key. Ranks run along `axis`.
    Order { key: E, axis: usize, extent: Dim, descending: bool },
    /// A kernel of the library with tensors and keywords.
    Call { op: &'static str, args: Vec<T>, keys: Vec<(&'static str, String)> },
}

/// A tensor.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    /// The name in the model, or a name made from it.
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<Dim>,
    pub(crate) def: Def,
    /// The values, row-major, if they are few and known.
    pub(crate) vals: Option<Vec<Val>>,
}

impl Tensor {
    /// The number of elements if it is constant.
    pub(crate) fn len(&self) -> Option<usize> {
        self.shape.iter().try_fold(1_usize, |n, dim| n.checked_mul(dim.as_extent()?))
    }
}

/// All tensors in the order of their definition.
#[derive(Default)]
pub(crate) struct Graph {
    pub(crate) tensors: Vec<Tensor>,
    /// The number of elements and terms that were evaluated.
    evaluated: Cell<usize>,
    /// Integers of run time that the model computes in 32 bits, and that must fit them.
    narrow: RefCell<BTreeSet<Dim>>,
    /// Floats that are fractions of integers of run time.
    pub(crate) ratios: BTreeMap<T, Vec<Ratio>>,
    /// Integers of run time that must be exact as floats, with the largest exact one.
    exact: RefCell<BTreeSet<(Dim, i64)>>,
}

impl Index<T> for Graph {
    type Output = Tensor;
    fn index(&self, tensor: T) -> &Tensor {
        &self.tensors[tensor.0 as usize]
    }
}

impl Graph {
    pub(crate) fn push(&mut self, mut tensor: Tensor) -> T {
        if tensor.vals.is_none() {
            tensor.vals = self.values(&tensor);
        }
        let own = T(self.tensors.len() as u32);
        if let Some(ratios) = self.ratios_of(&tensor) {
            self.ratios.insert(own, ratios);
        }
        self.tensors.push(tensor);
        own
    }

    /// Evaluates a tensor whose operands are known.
    fn values(&self, tensor: &Tensor) -> Option<Vec<Val>> {
        let len = tensor.len().filter(|len| *len <= MAX_KNOWN)?;
        // A list of shapes or axes without elements is known.
        if len == 0 && tensor.dtype.is_int() && tensor.shape.len() == 1 {
            return Some(Vec::new());
        }
        match &tensor.def {
            Def::Data(data) => (0..len).map(|at| read_element(tensor.dtype, data, at)).collect(),
            Def::Compute { body, reduce } => {
                // A condition may follow from one operand, and a choice needs one of two.
                let is_partial = matches!(body, E::Bin("and" | "or", ..) | E::If(..))
                    && len <= MAX_PARTIAL
                    && reduce.is_none();
                let mut known = true;
                body.loads(&mut |operand| {
                    known &= self[operand].vals.is_some() || self.ratios.contains_key(&operand);
                });
                let terms = reduce.as_ref().map_or(Some(1), |r| product(&r.extents).as_extent());
                let work = len.saturating_mul(terms.unwrap_or(usize::MAX));
                let total = self.evaluated.get().saturating_add(work);
                if !(known || is_partial) || total > MAX_EVALUATED {
                    return None;
                }
                self.evaluated.set(total);
                let extents: Vec<usize> =
                    tensor.shape.iter().map(Dim::as_extent).collect::<Option<_>>()?;
                let mut values = Vec::with_capacity(len);
                for flat in 0..len {
                    let at = unflatten(flat, &extents);
                    let value = match reduce {
                        None => {
                            body.eval(self, &|id| at.get(usize::from(id)).copied().map(Dim::from))
                        }
                        Some(reduce) => self.fold(body, reduce, &at, tensor.dtype),
                    };
                    values.push(value?);
                }
                values.iter().for_each(|value| self.note_narrow(value, tensor.dtype));
                Some(values)
            }
            _ => None,
        }
    }

    /// Notes an integer of run time that a computation in 32 bits must not change.
    pub(crate) fn note_narrow(&self, value: &Val, dtype: DType) {
        if let (Val::Int(dim), DType::Int32) = (value, dtype)
            && dim.as_const().is_none()
        {
            self.narrow.borrow_mut().insert(dim.clone());
        }
    }

    /// Notes an integer of run time that must be exact as a float.
    pub(crate) fn note_exact(&self, dim: &Dim, dtype: DType) {
        if dim.as_const().is_none() {
            self.exact.borrow_mut().insert((dim.clone(), dtype.largest_exact_integer()));
        }
    }

    /// The assumptions that make computations in 32 bits and of floats exact.
    pub(crate) fn narrow_assumptions(&self) -> Vec<(Dim, &'static str, Dim)> {
        let mut assumptions = Vec::new();
        for dim in self.narrow.borrow().iter() {
            assumptions.push((dim.clone(), "<=", i64::from(i32::MAX).into()));
            if !dim.is_nonnegative() {
                assumptions.push((dim.clone(), ">=", i64::from(i32::MIN).into()));
            }
        }
        for (dim, most) in self.exact.borrow().iter() {
            assumptions.push((dim.clone(), "<=", (*most).into()));
            if !dim.is_nonnegative() {
                assumptions.push((-dim.clone(), "<=", (*most).into()));
            }
        }
        assumptions
    }

    /// Evaluates a small reduction of integers or conditions, or a least or greatest float.
    fn fold(&self, body: &E, reduce: &Reduce, at: &[i64], dtype: DType) -> Option<Val> {
        // The order of the terms of a sum of floats is the compiler's.
        let is_exact = !dtype.is_float() || matches!(reduce.kind, "min" | "max");
        if reduce.condition.is_some() || reduce.init.is_some() || !is_exact {
            return None;
        }
        let extents: Vec<usize> =
            reduce.extents.iter().map(Dim::as_extent).collect::<Option<_>>()?;
        let len =
            product(&reduce.extents).as_extent().filter(|len| (1..=MAX_KNOWN).contains(len))?;
        let mut result: Option<Val> = None;
        for flat in 0..len {
            let inner = unflatten(flat, &extents);
            let term = body.eval(self, &|id| {
                let axes = if id >= REDUCE { &inner[..] } else { at };
                axes.get(usize::from(id % REDUCE)).copied().map(Dim::from)
            })?;
            result = Some(match (result, reduce.kind) {
                (None, _) => term,
                (Some(Val::Int(a)), "sum") => Val::Int(a + &int(&term)?),
                (Some(Val::Int(a)), "prod") => Val::Int(&a * &int(&term)?),
                (Some(Val::Int(a)), "min") => Val::Int(a.minimum(&int(&term)?)),
                (Some(Val::Int(a)), "max") => Val::Int(a.maximum(&int(&term)?)),
                (Some(Val::Float(a)), kind @ ("min" | "max")) => match term {
                    // Of zeros, the sign would be that of the compiler's choice.
                    Val::Float(b) if !a.is_nan() && !b.is_nan() && (a != 0.0 || b != 0.0) => {
                        Val::Float(if (b < a) == (kind == "min") { b } else { a })
                    }
                    _ => return None,
                },
                _ => return None,
            });
        }
        result
    }

    /// The one value of a tensor with one known element.
    pub(crate) fn scalar(&self, tensor: T) -> Option<&Val> {
        match self[tensor].vals.as_deref() {
            Some([value]) => Some(value),
            _ => None,
        }
    }

    /// The value that all elements of a tensor have, whatever its shape.
    pub(crate) fn constant(&self, mut tensor: T) -> Option<Val> {
        // A model may copy it to other shapes any number of times.
        while let Def::Compute { body: E::Load(of, _), reduce: None } = &self[tensor].def {
            tensor = *of;
        }
        match &self[tensor].def {
            Def::Compute { body, reduce: None } => body.eval(self, &|_| None),
            _ => None,
        }
    }

    /// The operands of a tensor.
    pub(crate) fn operands(&self, tensor: T) -> Vec<T> {
        let mut operands = Vec::new();
        let mut add = |operand| operands.push(operand);
        match &self[tensor].def {
            Def::Input | Def::Inout | Def::Data(_) | Def::Known => {}
            Def::Update { tensor, body, .. } => {
                add(*tensor);
                body.loads(&mut add);
            }
            Def::Compute { body, reduce } => {
                body.loads(&mut add);
                for e in reduce.iter().flat_map(|r| r.condition.iter().chain(&r.init)) {
                    e.loads(&mut add);
                }
            }
            Def::Position { position, value, condition, .. } => {
                for e in [position, value].into_iter().chain(condition) {
                    e.loads(&mut add);
                }
            }
            Def::Order { key, .. } => key.loads(&mut add),
            Def::Call { args, .. } => operands.extend(args),
        }
        operands.sort();
        operands.dedup();
        operands
    }
}

fn int(value: &Val) -> Option<Dim> {
    if let Val::Int(dim) = value { Some(dim.clone()) } else { None }
}

pub(crate) fn unflatten(mut flat: usize, extents: &[usize]) -> Vec<i64> {
    let mut at = vec![0; extents.len()];
    for (index, extent) in at.iter_mut().zip(extents).rev() {
        *index = (flat % extent) as i64;
        flat /= extent;
    }
    at
}
