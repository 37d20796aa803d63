//! The elements of `param`s from a `.safetensors` file, which is mapped, not read.

use crate::codegen::ConstantBytes;
use crate::diag::{Diag, Result};
use crate::ir::DType;
use memmap2::Mmap;
use rustc_hash::FxHashMap;
use safetensors::{Dtype, SafeTensors};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The elements of a `param`.
#[derive(Clone)]
pub struct ParamData {
    /// The element type.
    pub dtype: DType,
    /// The extents.
    pub shape: Vec<u64>,
    /// The elements, row-major, little-endian.
    pub bytes: ConstantBytes,
}

/// The params of a file's networks, by name.
pub type Params = FxHashMap<String, ParamData>;

/// A part of a mapped file.
struct Mapped {
    map: Arc<Mmap>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        &self.map[self.range.clone()]
    }
}

/// Maps a `.safetensors` file. Tensors of a type that the language lacks are left out.
pub fn read_params(path: &Path) -> Result<Params> {
    let failed = |why: String| {
        Box::new(Diag::global("E0701", format!("cannot read `{}`: {why}", path.display())))
    };
    let file = super::input::open(path).map_err(failed)?;
    // SAFETY: as with every compiler, a file that changes while it is read gives wrong output.
    let map = unsafe { Mmap::map(&file) }.map_err(|e| failed(super::input::io_text(&e)))?;
    let map = Arc::new(map);
    let tensors = SafeTensors::deserialize(&map)
        .map_err(|error| failed(format!("it is not a safetensors file ({error})")))?;
    let start = map.as_ptr().addr();
    let known = tensors.iter().filter_map(|(name, tensor)| {
        let offset = tensor.data().as_ptr().addr() - start;
        let range = offset..offset + tensor.data().len();
        let bytes = Arc::new(Mapped { map: map.clone(), range });
        let shape = tensor.shape().iter().map(|extent| *extent as u64).collect();
        Some((name.to_string(), ParamData { dtype: dtype(tensor.dtype())?, shape, bytes }))
    });
    Ok(known.collect())
}

fn dtype(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::BOOL => DType::Bool,
        Dtype::U8 => DType::Uint8,
        Dtype::I8 => DType::Int8,
        Dtype::U16 => DType::Uint16,
        Dtype::I16 => DType::Int16,
        Dtype::U32 => DType::Uint32,
        Dtype::I32 => DType::Int32,
        Dtype::U64 => DType::Uint64,
        Dtype::I64 => DType::Int64,
        Dtype::F16 => DType::Float16,
        Dtype::BF16 => DType::BFloat16,
        Dtype::F32 => DType::Float32,
        Dtype::F64 => DType::Float64,
        _ => return None,
    })
}
