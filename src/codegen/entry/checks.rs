//! The checks of a kernel's arguments, computed once for the fast path of the compiled entries and,
//! as a blob of bytes, for the runtime's complete check.
//!
//! The blob holds offsets from its own start and no addresses, so it is plain read-only data.
//! `src/runtime/tec_runtime.h` declares its layout.

use super::signature_text;
use crate::bug;
use crate::codegen::ptx::PtxKernel;
use crate::ir::{DType, Kernel, Param, Role, Source, Var};
use crate::target::Target;

/// The check of an extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExtentCheck {
    /// It must be this number.
    Const(i64),
    /// It may be any number, and becomes the run-time integer of this slot.
    Binds(usize),
    /// It must equal the slot of an earlier dimension.
    Equals(usize),
    /// It may be any number and fills this slot; the kernel's check function compares it.
    Actual(usize),
}

/// A parameter of the raw entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CheckedParam {
    /// A tensor, argument `arg` of the checked entries.
    Tensor {
        /// Element type.
        dtype: DType,
        /// One per dimension.
        extents: Vec<ExtentCheck>,
        /// One per dimension; `None` if the tensor must be contiguous. Never `Actual`. They are
        /// checked after all shapes.
        strides: Option<Vec<ExtentCheck>>,
        /// Whether it is written, so that it may share no memory with another tensor.
        output: bool,
        /// Argument number, from 0.
        arg: usize,
        /// The alignment of its address, in bytes.
        alignment: u32,
    },
    /// A scalar of the declared type, or a run-time integer that is no tensor's extent.
    Scalar {
        /// `Index` for a run-time integer.
        dtype: DType,
        /// Argument number, from 0.
        arg: usize,
    },
    /// A run-time integer that is a tensor's extent.
    Bound,
}

/// The checks of a kernel. They fill slots of 64 bits: one for each raw parameter, one for each of
/// [`Kernel::dims`], and on GPUs one for the device number.
#[derive(Clone, Debug)]
pub struct ArgumentChecks {
    /// In the order of the raw entry.
    pub params: Vec<CheckedParam>,
    /// Number of arguments of the checked entries.
    pub args: usize,
    /// Number of slots.
    pub slots: usize,
    /// CPU features, as bits of the runtime's `tec_rt_cpu`.
    pub features: u32,
    /// The slot of the device number; `None` if tensors are in CPU memory.
    pub device_slot: Option<usize>,
}

/// Names of the CPU features in the order of their bits, as in `src/runtime/cpu.c`.
const FEATURES: [&str; 16] = [
    "sse4.1", "avx", "avx2", "f16c", "fma", "avx512f", "avx512bw", "avx512cd", "avx512dq",
    "avx512vl", "bf16", "fp16", "vnni", "neon", "amx-bf16", "amx-int8",
];

impl ArgumentChecks {
    /// The checks of a kernel that is compiled for `target`.
    pub fn new(kernel: &Kernel, launches: Option<&PtxKernel>, target: &Target) -> ArgumentChecks {
        let mut args = 0;
        let mut next_arg = || {
            args += 1;
            args - 1
        };
        let (mut bound, mut bound_strides) = (Vec::new(), Vec::new());
        let mut params = Vec::new();
        for (index, param) in kernel.params.iter().enumerate() {
            params.push(match param {
                Param::Tensor { buffer, role, .. } => CheckedParam::Tensor {
                    dtype: buffer.declared_dtype(),
                    extents: (0..buffer.shape.len())
                        .map(|dim| extent(kernel, (index, dim), &mut bound))
                        .collect(),
                    strides: buffer.strides.as_ref().map(|strides| {
                        let each = (0..strides.len()).map(|dim| (index, dim));
                        each.map(|place| stride(kernel, place, &mut bound_strides)).collect()
                    }),
                    output: role.is_written(),
                    arg: next_arg(),
                    alignment: match launches {
                        Some(launches) => launches.alignments[index],
                        None => buffer.dtype.bytes() as u32,
                    },
                },
                Param::Scalar { dtype, .. } => {
                    CheckedParam::Scalar { dtype: *dtype, arg: next_arg() }
                }
                Param::Runtime { source: None, .. } => {
                    CheckedParam::Scalar { dtype: DType::Index, arg: next_arg() }
                }
                Param::Runtime { .. } => CheckedParam::Bound,
            });
        }
        let features = feature_bits(&target.features);
        let slots = kernel.params.len() + kernel.dims.len();
        let device_slot = target.is_gpu().then_some(slots);
        ArgumentChecks {
            params,
            args,
            slots: slots + usize::from(target.is_gpu()),
            features,
            device_slot,
        }
    }

    /// The DLPack device type of the tensors.
    pub fn device_type(&self) -> i32 {
        if self.device_slot.is_some() { 2 } else { 1 }
    }

    /// The blob for the runtime's check. `target` is the name of the target, `messages` are the
    /// texts of the kernel's own checks.
    pub fn blob(&self, kernel: &Kernel, target: &str, messages: &[String]) -> Vec<u8> {
        const HEADER: usize = 40;
        const PARAM: usize = 28;
        const EXTENT: usize = 16;
        let count = |p: &CheckedParam| p.extents().len() + p.strides().map_or(0, <[_]>::len);
        let extent_total: usize = self.params.iter().map(count).sum();
        let param_at = HEADER;
        let extents_at = param_at + PARAM * self.params.len();
        let messages_at = extents_at + EXTENT * extent_total;
        let texts_at = messages_at + 4 * messages.len();

        let mut texts = Texts { bytes: Vec::new(), start: texts_at };
        let mut header = Vec::new();
        put_u32(&mut header, self.features);
        put_u32(&mut header, self.params.len() as u32);
        put_u32(&mut header, self.args as u32);
        put_u32(&mut header, messages.len() as u32);
        put_u32(&mut header, texts.add(target));
        put_u32(&mut header, texts.add(&signature_text(kernel)));
        put_u32(&mut header, param_at as u32);
        put_u32(&mut header, messages_at as u32);
        put_u32(&mut header, self.device_type() as u32);
        put_u32(&mut header, self.device_slot.unwrap_or(0) as u32);

        let mut records = Vec::new();
        let mut extents = Vec::new();
        for (checks, param) in self.params.iter().zip(&kernel.params) {
            let in_place = matches!(param, Param::Tensor { role: Role::Inout, .. });
            let (dtype, arg, kind, output, alignment) = match checks {
                CheckedParam::Tensor { dtype, output, arg, alignment, .. } => {
                    let written = u8::from(*output) + u8::from(in_place);
                    (*dtype, *arg as i32, 0, written, *alignment as u16)
                }
                CheckedParam::Scalar { dtype: DType::Index, arg } => {
                    (DType::Int64, *arg as i32, 2, 0, 0)
                }
                CheckedParam::Scalar { dtype, arg } => (*dtype, *arg as i32, 1, 0, 0),
                CheckedParam::Bound => (DType::Int64, -1, 2, 0, 0),
            };
            put_u32(&mut records, texts.add(param.name()));
            put_u32(&mut records, dlpack_dtype(dtype));
            put_u32(&mut records, arg as u32);
            records.extend([kind, output]);
            records.extend(alignment.to_le_bytes());
            put_u32(&mut records, checks.extents().len() as u32);
            put_u32(&mut records, (extents_at + extents.len()) as u32);
            let strides_at = extents_at + extents.len() + EXTENT * checks.extents().len();
            put_u32(&mut records, checks.strides().map_or(0, |_| strides_at as u32));
            for extent in checks.extents().iter().chain(checks.strides().unwrap_or_default()) {
                let (value, kind) = match *extent {
                    ExtentCheck::Const(value) => (value, 0),
                    ExtentCheck::Binds(slot) => (slot as i64, 1),
                    ExtentCheck::Equals(slot) => (slot as i64, 2),
                    ExtentCheck::Actual(slot) => (slot as i64, 3),
                };
                extents.extend(value.to_le_bytes());
                put_u32(&mut extents, kind);
                put_u32(&mut extents, 0);
            }
        }
        let mut offsets = Vec::new();
        for message in messages {
            put_u32(&mut offsets, texts.add(message));
        }
        assert_eq!(header.len(), HEADER, "struct signature");
        assert_eq!(records.len(), PARAM * self.params.len(), "struct param");
        assert_eq!(extents.len(), EXTENT * extent_total, "struct extent");
        [header, records, extents, offsets, texts.bytes].concat()
    }
}

impl CheckedParam {
    /// The extents of a tensor; empty for other parameters.
    pub fn extents(&self) -> &[ExtentCheck] {
        match self {
            CheckedParam::Tensor { extents, .. } => extents,
            _ => &[],
        }
    }
}

impl CheckedParam {
    /// The strides of a tensor that need not be contiguous.
    pub fn strides(&self) -> Option<&[ExtentCheck]> {
        match self {
            CheckedParam::Tensor { strides, .. } => strides.as_deref(),
            _ => None,
        }
    }
}

/// The DLPack type as one word: code, bits, lanes.
pub fn dlpack_dtype(dtype: DType) -> u32 {
    let code = match dtype {
        DType::Float64 | DType::Float32 | DType::Float16 => 2,
        DType::BFloat16 => 4,
        DType::Bool => 6,
        DType::Float8E4M3 => 10,
        DType::Float8E5M2 => 12,
        _ if dtype.is_signed() => 0,
        _ => 1,
    };
    1 << 16 | dtype.bits() << 8 | code
}

/// The CPU features as bits of the runtime's `tec_rt_cpu`.
pub(super) fn feature_bits(names: &[&str]) -> u32 {
    names.iter().map(|name| feature_bit(name)).fold(0, |bits, bit| bits | bit)
}

fn feature_bit(name: &str) -> u32 {
    match FEATURES.iter().position(|known| *known == name) {
        Some(bit) => 1 << bit,
        None => bug!("the runtime cannot check CPU feature {name}"),
    }
}

/// The check of one dimension; `bound` collects the variables of earlier dimensions.
fn extent(kernel: &Kernel, place: (usize, usize), bound: &mut Vec<Var>) -> ExtentCheck {
    let Param::Tensor { buffer, .. } = &kernel.params[place.0] else {
        bug!("only tensors have extents")
    };
    let expr = &buffer.declared_shape()[place.1];
    if let Some(value) = expr.as_int() {
        return ExtentCheck::Const(value as i64);
    }
    if let Some(var) = expr.as_var() {
        for (slot, param) in kernel.params.iter().enumerate() {
            match param {
                Param::Runtime { var: v, source }
                    if v == var && *source == Some(Source::Extent(place.0, place.1)) =>
                {
                    bound.push(v.clone());
                    return ExtentCheck::Binds(slot);
                }
                Param::Runtime { var: v, .. } if v == var && bound.contains(v) => {
                    return ExtentCheck::Equals(slot);
                }
                _ => {}
            }
        }
    }
    let dim = kernel.dims.iter().position(|dim| (dim.param, dim.dim) == place);
    match dim {
        Some(index) => ExtentCheck::Actual(kernel.params.len() + index),
        None => {
            bug!("kernel {}: nothing checks dimension {} of {}", kernel.name, place.1, buffer.name)
        }
    }
}

/// The check of one stride; `bound` collects the variables of earlier strides.
fn stride(kernel: &Kernel, place: (usize, usize), bound: &mut Vec<Var>) -> ExtentCheck {
    let Param::Tensor { buffer, .. } = &kernel.params[place.0] else {
        bug!("only tensors have strides")
    };
    let expr = buffer.strides.as_ref().map(|strides| &strides[place.1]);
    if let Some(value) = expr.and_then(|stride| stride.as_int()) {
        return ExtentCheck::Const(value as i64);
    }
    let var = expr.and_then(|stride| stride.as_var());
    for (slot, param) in kernel.params.iter().enumerate() {
        match (param, var) {
            (Param::Runtime { var: own, source }, Some(var)) if own == var => {
                if *source == Some(Source::Stride(place.0, place.1)) && !bound.contains(var) {
                    bound.push(var.clone());
                    return ExtentCheck::Binds(slot);
                }
                return ExtentCheck::Equals(slot);
            }
            _ => {}
        }
    }
    bug!("kernel {}: nothing checks stride {} of {}", kernel.name, place.1, buffer.name)
}

/// The NUL-terminated texts after the tables of a blob.
pub(super) struct Texts {
    /// All texts so far.
    pub bytes: Vec<u8>,
    /// The offset of the first one.
    pub start: usize,
}

impl Texts {
    /// Appends `text`, up to its first NUL if it has one. Returns its offset.
    pub fn add(&mut self, text: &str) -> u32 {
        let offset = self.start + self.bytes.len();
        self.bytes.extend(text.bytes().take_while(|byte| *byte != 0));
        self.bytes.push(0);
        offset as u32
    }
}

pub(super) fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend(value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_those_of_the_runtime() {
        let source = include_str!("../../runtime/cpu.c");
        let table = source.split("feature_names[][12] = {").nth(1).expect("the table");
        let table = table.split("};").next().expect("its end");
        let names: Vec<&str> = table
            .split(',')
            .map(|s| s.trim().trim_matches('"'))
            .filter(|s| !s.is_empty())
            .collect();
        assert_eq!(names, FEATURES);
        for target in Target::all() {
            target.features.iter().for_each(|name| assert_ne!(feature_bit(name), 0));
        }
    }

    #[test]
    fn dtypes_are_those_of_dlpack() {
        assert_eq!(dlpack_dtype(DType::Float32), 0x0001_2002);
        assert_eq!(dlpack_dtype(DType::BFloat16), 0x0001_1004);
        assert_eq!(dlpack_dtype(DType::Bool), 0x0001_0806);
        assert_eq!(dlpack_dtype(DType::Uint64), 0x0001_4001);
        assert_eq!(dlpack_dtype(DType::Int8), 0x0001_0800);
        assert_eq!(dlpack_dtype(DType::Int4), 0x0001_0400);
        assert_eq!(dlpack_dtype(DType::Uint4), 0x0001_0401);
        assert_eq!(dlpack_dtype(DType::Float8E4M3), 0x0001_080a);
        assert_eq!(dlpack_dtype(DType::Float8E5M2), 0x0001_080c);
    }
}
