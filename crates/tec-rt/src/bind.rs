//! What generated bindings are made of. It is public for them only, and changes with any version.

pub use crate::int::Int;
use crate::{Element, Error};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// Requires, while a crate compiles, that its kernels were compiled for this runtime.
pub const fn require_version(compiler: &str) {
    let (a, b) = (compiler.as_bytes(), env!("CARGO_PKG_VERSION").as_bytes());
    let mut same = a.len() == b.len();
    let mut at = 0;
    while same && at < a.len() {
        same = a[at] == b[at];
        at += 1;
    }
    assert!(same, "tec-build and tec-rt have different versions: give both the same one");
}

/// What messages say about a kernel.
#[derive(Debug)]
pub struct Kernel {
    /// `matmul(A: float32[n, k], …)`.
    pub signature: &'static str,
    /// The name and the element type of each argument.
    pub args: &'static [(&'static str, &'static str)],
}

impl Kernel {
    #[cold]
    fn refuse(&self, arg: usize, text: &str) -> Error {
        let name = self.args[arg].0;
        Error::Shape(format!("argument {} `{name}`: {text} (in `{}`)", arg + 1, self.signature))
    }

    fn tensor_text(&self, arg: usize, shape: &[i64]) -> String {
        format!("{}{shape:?}", self.args[arg].1)
    }

    /// Returns a run-time integer as the kernel takes it.
    pub fn integer(&self, name: &str, value: Int) -> Result<i64, Error> {
        value.0.ok_or_else(|| {
            let signature = self.signature;
            Error::Shape(format!("`{name}` is larger than 2^63 - 1 (in `{signature}`)"))
        })
    }
}

/// A `DLTensor`.
#[repr(C)]
#[derive(Debug)]
pub struct Tensor {
    data: *mut u8,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// A tensor argument that is borrowed for a call.
pub struct Arg<'a, const R: usize> {
    data: *mut u8,
    code: u8,
    bits: u8,
    shape: [i64; R],
    /// In elements; none if it is row-major and contiguous.
    strides: Option<[i64; R]>,
    borrow: PhantomData<&'a mut [u8]>,
}

impl<const R: usize> Arg<'_, R> {
    /// Returns the tensor; it is valid as long as `self`.
    #[inline]
    pub fn tensor(&self) -> Tensor {
        const CPU: i32 = 1;
        Tensor {
            data: self.data,
            device_type: CPU,
            device_id: 0,
            ndim: R as i32,
            code: self.code,
            bits: self.bits,
            lanes: 1,
            shape: self.shape.as_ptr(),
            strides: self.strides.as_ref().map_or(std::ptr::null(), |one| one.as_ptr()),
            byte_offset: 0,
        }
    }

    /// Returns bytes as a tensor of integers of 4 bits with this type code, two in each byte. `last`
    /// is the last extent in elements, which may be odd.
    pub fn of_4_bits(mut self, code: u8, last: Int) -> Self {
        (self.code, self.bits) = (code, 4);
        if let (Some(extent), Some(last)) = (self.shape.last_mut(), last.0) {
            *extent = last;
        }
        self
    }

    /// Returns an extent.
    pub fn extent(&self, dim: usize) -> Int {
        Int::from(self.shape[dim])
    }
}

/// Returns a slice as an input of this shape.
#[inline]
pub fn input<'a, T: Element, const R: usize>(
    kernel: &Kernel,
    arg: usize,
    data: &'a [T],
    shape: [Int; R],
) -> Result<Arg<'a, R>, Error> {
    // The kernel reads inputs only.
    of_slice::<T, R>(kernel, arg, data.as_ptr().cast_mut(), data.len(), shape)
}

/// Returns a slice as an output of this shape.
#[inline]
pub fn output<'a, T: Element, const R: usize>(
    kernel: &Kernel,
    arg: usize,
    data: &'a mut [T],
    shape: [Int; R],
) -> Result<Arg<'a, R>, Error> {
    of_slice::<T, R>(kernel, arg, data.as_mut_ptr(), data.len(), shape)
}

#[inline]
fn of_slice<'a, T: Element, const R: usize>(
    kernel: &Kernel,
    arg: usize,
    data: *mut T,
    len: usize,
    shape: [Int; R],
) -> Result<Arg<'a, R>, Error> {
    let shape = match extents_of(len, &shape) {
        Some(shape) => shape,
        None => check_slice(kernel, arg, len, shape)?,
    };
    let (data, strides) = (data.cast(), None);
    Ok(Arg { data, code: T::CODE, bits: T::BITS, shape, strides, borrow: PhantomData })
}

/// Returns the extents if none is negative and their product is `len`; none also if the product
/// overflows, as that of an empty tensor may.
#[inline]
fn extents_of<const R: usize>(len: usize, shape: &[Int; R]) -> Option<[i64; R]> {
    let mut extents = [0; R];
    let mut count = 1usize;
    for (extent, value) in extents.iter_mut().zip(shape) {
        *extent = value.0?;
        count = count.checked_mul(usize::try_from(*extent).ok()?)?;
    }
    (count == len).then_some(extents)
}

/// The complete check of a slice: returns the extents or the error.
#[cold]
fn check_slice<const R: usize>(
    kernel: &Kernel,
    arg: usize,
    len: usize,
    shape: [Int; R],
) -> Result<[i64; R], Error> {
    let shape = extents(kernel, arg, shape)?;
    let count = elements(&shape);
    if count == Some(len) {
        return Ok(shape);
    }
    let tensor = kernel.tensor_text(arg, &shape);
    let text = match count {
        Some(count) => format!("{tensor} has {count} elements, the slice has {len}"),
        None => format!("{tensor} has more elements than memory, the slice has {len}"),
    };
    Err(kernel.refuse(arg, &text))
}

/// Returns the extents of a tensor, none of them negative.
fn extents<const R: usize>(
    kernel: &Kernel,
    arg: usize,
    shape: [Int; R],
) -> Result<[i64; R], Error> {
    let mut extents = [0; R];
    for (dim, extent) in shape.into_iter().enumerate() {
        let wrong =
            |text: &str| kernel.refuse(arg, &format!("the extent of dimension {dim} {text}"));
        extents[dim] = match extent.0 {
            None => return Err(wrong("is not a 64-bit integer")),
            Some(extent) if extent < 0 => return Err(wrong(&format!("is negative: {extent}"))),
            Some(extent) => extent,
        };
    }
    Ok(extents)
}

/// Returns the number of elements; none if it overflows.
fn elements(shape: &[i64]) -> Option<usize> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1usize, |count, extent| count.checked_mul(usize::try_from(*extent).ok()?))
}

/// Returns the result of a call of a checked entry.
#[inline]
pub fn status(code: i32) -> Result<(), Error> {
    if code == 0 { Ok(()) } else { Err(Error::last()) }
}

/// A packed operand: a tensor in the memory layout of a schedule, and the run-time integers that it
/// was packed for.
pub struct Packed<const R: usize> {
    data: Buffer,
    code: u8,
    bits: u8,
    shape: [i64; R],
    integers: &'static [&'static str],
    values: Vec<Int>,
}

impl<const R: usize> Packed<R> {
    /// Allocates an operand of this shape, to be written as the argument `arg` of the kernel that
    /// packs. `T` is the type of its elements.
    pub fn new<T: Element>(
        kernel: &Kernel,
        arg: usize,
        shape: [Int; R],
        integers: &'static [&'static str],
        values: &[Int],
    ) -> Result<Packed<R>, Error> {
        let shape = extents(kernel, arg, shape)?;
        let bytes = elements(&shape).and_then(|count| count.checked_mul(size_of::<T>()));
        let data = bytes.and_then(Buffer::zeroed).ok_or_else(|| {
            let tensor = kernel.tensor_text(arg, &shape);
            Error::Memory(format!("out of memory for the packed {tensor}"))
        })?;
        let (code, bits, values) = (T::CODE, T::BITS, values.to_vec());
        Ok(Packed { data, code, bits, shape, integers, values })
    }

    fn arg(&self) -> Arg<'_, R> {
        let Packed { code, bits, shape, .. } = *self;
        let (data, strides) = (self.data.start.as_ptr(), None);
        Arg { data, code, bits, shape, strides, borrow: PhantomData }
    }

    /// Returns it as an input.
    pub fn input(&self) -> Arg<'_, R> {
        self.arg()
    }

    /// Returns it as the output of the kernel that packs.
    pub fn output(&mut self) -> Arg<'_, R> {
        self.arg()
    }

    /// Returns a run-time integer that it was packed for.
    pub fn integer(&self, name: &str) -> Int {
        let at = self.integers.iter().position(|one| *one == name);
        self.values[at.expect("bindings name the integers that they give")]
    }

    /// Requires that it was packed for this value of a run-time integer.
    pub fn require(
        &self,
        kernel: &Kernel,
        arg: usize,
        name: &str,
        value: Int,
    ) -> Result<(), Error> {
        match (self.integer(name).0, value.0) {
            (own, other) if own == other => Ok(()),
            (Some(own), Some(other)) => {
                let text = format!("it was packed for `{name}` = {own}, not for {other}");
                Err(kernel.refuse(arg, &text))
            }
            _ => Err(kernel.refuse(arg, &format!("`{name}` is not a 64-bit integer"))),
        }
    }

    /// Returns the bytes in memory.
    pub fn bytes(&self) -> usize {
        self.data.layout.size()
    }
}

impl<const R: usize> fmt::Debug for Packed<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Packed");
        for (name, value) in self.integers.iter().zip(&self.values) {
            text.field(name, &value.0);
        }
        text.field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

/// Memory that begins at a multiple of 64 bytes, a cache line.
struct Buffer {
    start: NonNull<u8>,
    layout: Layout,
}

impl Buffer {
    /// Allocates zeros; none without memory.
    fn zeroed(bytes: usize) -> Option<Buffer> {
        let layout = Layout::from_size_align(bytes.max(1), 64).ok()?;
        // SAFETY: the layout has at least one byte.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Buffer { start, layout })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and freed once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

// SAFETY: the buffer owns its memory, which is plain bytes. It is written through `&mut` only.
unsafe impl Send for Buffer {}
// SAFETY: as above; shared references only read.
unsafe impl Sync for Buffer {}

#[cfg(feature = "ndarray")]
pub use arrays::{array_input, array_output, strided_input, strided_output};

#[cfg(feature = "ndarray")]
mod arrays {
    use super::{Arg, Element, Error, Kernel, PhantomData};
    use ndarray::{ArrayRef, ArrayView, ArrayViewMut, Dimension};

    /// Returns an array as an input.
    pub fn array_input<'a, T: Element, D: Dimension, const R: usize>(
        kernel: &Kernel,
        arg: usize,
        array: &ArrayView<'a, T, D>,
    ) -> Result<Arg<'a, R>, Error> {
        require_standard(kernel, arg, array)?;
        strided_input(kernel, arg, array)
    }

    /// Returns an array as an output.
    pub fn array_output<'a, T: Element, D: Dimension, const R: usize>(
        kernel: &Kernel,
        arg: usize,
        array: &'a mut ArrayViewMut<'_, T, D>,
    ) -> Result<Arg<'a, R>, Error> {
        require_standard(kernel, arg, array)?;
        strided_output(kernel, arg, array)
    }

    /// Returns an array as an input with strides.
    pub fn strided_input<'a, T: Element, D: Dimension, const R: usize>(
        kernel: &Kernel,
        arg: usize,
        array: &ArrayView<'a, T, D>,
    ) -> Result<Arg<'a, R>, Error> {
        // The kernel reads inputs only.
        of_array::<T, R>(kernel, arg, array.as_ptr().cast_mut(), array.shape(), array.strides())
    }

    /// Returns an array as an output with strides.
    pub fn strided_output<'a, T: Element, D: Dimension, const R: usize>(
        kernel: &Kernel,
        arg: usize,
        array: &'a mut ArrayViewMut<'_, T, D>,
    ) -> Result<Arg<'a, R>, Error> {
        let data = array.as_mut_ptr();
        of_array::<T, R>(kernel, arg, data, array.shape(), array.strides())
    }

    fn require_standard<T: Element, D: Dimension>(
        kernel: &Kernel,
        arg: usize,
        array: &ArrayRef<T, D>,
    ) -> Result<(), Error> {
        if array.is_standard_layout() {
            return Ok(());
        }
        let text = "the array is not row-major and contiguous; `as_standard_layout` copies it";
        Err(kernel.refuse(arg, text))
    }

    fn of_array<'a, T: Element, const R: usize>(
        kernel: &Kernel,
        arg: usize,
        data: *mut T,
        shape: &[usize],
        strides: &[isize],
    ) -> Result<Arg<'a, R>, Error> {
        let ranks = (<[usize; R]>::try_from(shape), <[isize; R]>::try_from(strides));
        let (Ok(shape), Ok(strides)) = ranks else {
            let text = format!("expected {R} dimensions, got {}", shape.len());
            return Err(kernel.refuse(arg, &text));
        };
        // An array in memory has at most `isize::MAX` elements along an axis.
        let shape = shape.map(|extent| extent as i64);
        let (data, strides) = (data.cast(), Some(strides.map(|stride| stride as i64)));
        Ok(Arg { data, code: T::CODE, bits: T::BITS, shape, strides, borrow: PhantomData })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: Kernel = Kernel { signature: "f(a: int8[n, m])", args: &[("a", "int8")] };

    fn check(data: &[i8], shape: [i64; 2]) -> Result<[i64; 2], String> {
        let shape = shape.map(Int::from);
        input(&KERNEL, 0, data, shape).map(|arg| arg.shape).map_err(|error| error.to_string())
    }

    #[test]
    fn slices_have_as_many_elements_as_their_shape() {
        assert_eq!(check(&[0; 6], [2, 3]), Ok([2, 3]));
        assert_eq!(check(&[], [0, i64::MAX]), Ok([0, i64::MAX]));
        let text = "argument 1 `a`: int8[2, 4] has 8 elements, the slice has 6 \
                    (in `f(a: int8[n, m])`)";
        assert_eq!(check(&[0; 6], [2, 4]), Err(text.to_string()));
        let text = check(&[0; 6], [-2, -3]).unwrap_err();
        assert!(text.contains("the extent of dimension 0 is negative: -2"), "{text}");
        // 2^32 * 2^32 is 0 in 64 bits.
        let text = check(&[], [1 << 32, 1 << 32]).unwrap_err();
        assert!(text.contains("more elements than memory"), "{text}");
    }

    #[test]
    fn operands_are_aligned_and_know_what_they_were_packed_for() {
        let (shape, values) = ([Int::from(3_i64), Int::from(5_i64)], [Int::from(7_i64)]);
        let mut packed = Packed::<2>::new::<i16>(&KERNEL, 0, shape, &["n"], &values).unwrap();
        assert_eq!((packed.bytes(), packed.integer("n")), (30, values[0]));
        assert_eq!(packed.output().data.addr() % 64, 0);
        assert!(packed.require(&KERNEL, 0, "n", values[0]).is_ok());
        let error = packed.require(&KERNEL, 0, "n", Int::from(8_i64)).unwrap_err();
        assert!(error.message().contains("packed for `n` = 7, not for 8"), "{error}");
        let huge = [Int::from(1_i64 << 40), Int::from(1_i64 << 20)];
        let error = Packed::<2>::new::<i64>(&KERNEL, 0, huge, &[], &[]).unwrap_err();
        assert!(matches!(error, Error::Memory(_)), "{error}");
    }

    #[test]
    #[should_panic(expected = "different versions")]
    fn kernels_of_another_version_are_refused() {
        require_version("0.0.1");
    }
}
