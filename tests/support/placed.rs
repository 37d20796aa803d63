//! The memory of the tensors of a call: between guard bytes, and with random strides where the
//! kernel takes any.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use tec::ir::interp::Tensor;
use tec::ir::{Buffer, DType};
use tec::module::load::Arg;

/// The number of guard bytes around every tensor, which must not change.
const FENCE: usize = 64;
const FENCE_BYTE: u8 = 0xa7;

/// A tensor in memory.
#[derive(Clone)]
pub struct Placed {
    like: Tensor,
    /// In elements; `None` if the kernel takes contiguous tensors.
    strides: Option<Vec<i64>>,
    memory: Vec<u8>,
    /// The place of the first element.
    start: usize,
    /// The type and the extents that the caller of the kernel gives, if elements share bytes.
    declared: Option<(DType, Vec<i64>)>,
}

impl Placed {
    /// Copies a tensor to memory of its own. `last` is its last extent as the kernel declares it.
    pub fn new(
        buffer: &Buffer,
        tensor: &Tensor,
        last: Option<i64>,
        rng: &mut ChaCha8Rng,
    ) -> Placed {
        let size = tensor.dtype.bytes() as usize;
        let (mut strides, mut first, mut span) = (None, 0, tensor.data.len() / size);
        if let (Some(declared), true) = (&buffer.strides, !tensor.data.is_empty()) {
            let rank = declared.len();
            // A last stride of 1 stays, and with it the order of the dimensions.
            let is_free = declared.iter().all(|stride| stride.as_var().is_some());
            let mut order: Vec<usize> = (0..rank).rev().collect();
            for at in 0..rank {
                if is_free && rng.random_bool(0.4) {
                    order.swap(at, rng.random_range(0..rank));
                }
            }
            let mut own = vec![1; rank];
            let mut step = if is_free && rng.random_bool(0.3) { 2 } else { 1 };
            for dim in order {
                own[dim] = step;
                step = step * tensor.shape[dim] + rng.random_range(0..4) * i64::from(rank > 1);
                if is_free && rng.random_bool(0.2) {
                    first += (tensor.shape[dim] - 1) * own[dim];
                    own[dim] = -own[dim];
                }
            }
            (strides, span) = (Some(own), step as usize + 2);
        }
        let memory = vec![FENCE_BYTE; 2 * FENCE + span * size];
        let start = FENCE + first as usize * size;
        let mut shape = tensor.shape.clone();
        if let (4, Some(bytes)) = (buffer.declared_dtype().bits(), shape.last_mut()) {
            let elements = *bytes * 2;
            *bytes = if last == Some(elements - 1) { elements - 1 } else { elements };
        }
        let declared = (buffer.declared.is_some() && buffer.strides.is_none())
            .then(|| (buffer.declared_dtype(), shape));
        let mut placed = Placed { like: tensor.clone(), strides, memory, start, declared };
        for (element, at) in placed.places().into_iter().enumerate() {
            let data = &tensor.data[element * size..][..size];
            placed.memory[at..at + size].copy_from_slice(data);
        }
        placed
    }

    /// Returns the place of each element, in row-major order.
    fn places(&self) -> Vec<usize> {
        let size = self.like.dtype.bytes() as usize;
        let count = self.like.data.len() / size;
        let Some(strides) = &self.strides else {
            return (0..count).map(|element| self.start + element * size).collect();
        };
        let place = |mut element: i64| {
            let mut at = self.start as i64;
            for (extent, stride) in self.like.shape.iter().zip(strides).rev() {
                at += element % extent * stride * size as i64;
                element /= extent;
            }
            at as usize
        };
        (0..count as i64).map(place).collect()
    }

    /// Returns the argument of a call.
    pub fn argument(&mut self, written: bool) -> Arg<'_> {
        if let Some((dtype, shape)) = &self.declared {
            return Arg::Quantized(*dtype, shape.clone().into(), &mut self.memory[self.start..]);
        }
        let (dtype, shape) = (self.like.dtype, &self.like.shape[..]);
        match (&self.strides, written) {
            (Some(strides), _) => Arg::View(dtype, shape, strides, &mut self.memory, self.start),
            (None, true) => Arg::Output(dtype, shape, &mut self.memory[self.start..]),
            (None, false) => Arg::Input(dtype, shape, &self.memory[self.start..]),
        }
    }

    /// Returns the elements.
    pub fn tensor(&self) -> Tensor {
        let size = self.like.dtype.bytes() as usize;
        let elements = self.places().into_iter();
        let data = elements.flat_map(|at| self.memory[at..at + size].iter().copied());
        Tensor { data: data.collect(), ..self.like.clone() }
    }

    /// Whether a call changed nothing, or only elements.
    pub fn is_kept(&self, before: &Placed, except_elements: bool) -> bool {
        let mut now = self.memory.clone();
        if except_elements {
            let size = self.like.dtype.bytes() as usize;
            for at in self.places() {
                now[at..at + size].copy_from_slice(&before.memory[at..at + size]);
            }
        }
        now == before.memory
    }
}
