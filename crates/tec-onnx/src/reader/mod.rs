//! Reads a model: maps the file, checks its structure, decodes it, and finds the data of tensors.

mod external;
mod scan;

use std::path::Path;

use bytes::Bytes;
use half::{bf16, f16};
use prost::Message;

use crate::dtype::DType;
use crate::error::{Error, short};
use crate::narrow::Narrow;
use crate::proto::{ModelProto, TensorProto};

pub(crate) use external::Folder;

/// Maps a file. The data lives as long as any part of it.
///
/// The file must not shrink while the import and its parameters are in use.
fn map(path: &Path) -> Result<Bytes, Error> {
    let fail = |source| Error::Io { path: path.to_path_buf(), source };
    let file = std::fs::File::open(path).map_err(fail)?;
    map_file(&file).map_err(fail)
}

fn map_file(file: &std::fs::File) -> std::io::Result<Bytes> {
    let data = file.metadata()?;
    if !data.is_file() {
        return Err(std::io::Error::other("not a regular file"));
    }
    if data.len() == 0 {
        return Ok(Bytes::new());
    }
    // Safety: the mapping is read-only and private. Writers of the file could change the data, as
    // they could between two reads; every value that is read is checked after it was copied.
    let map = unsafe { memmap2::MmapOptions::new().map(file)? };
    Ok(Bytes::from_owner(map))
}

/// Reads and decodes a model.
pub(crate) fn read(path: &Path) -> Result<ModelProto, Error> {
    let data = map(path)?;
    decode(data)
}

fn decode(data: Bytes) -> Result<ModelProto, Error> {
    if data.is_empty() {
        return Err(Error::Decode("the file is empty".to_string()));
    }
    scan::scan(&data)?;
    let model = ModelProto::decode(data).map_err(|error| Error::Decode(error.to_string()))?;
    if model.graph.is_none() {
        return Err(Error::Decode("the file has no graph".to_string()));
    }
    Ok(model)
}

/// A tensor of the model with its data, little-endian and row-major.
#[derive(Clone, Debug)]
pub(crate) struct Constant {
    pub(crate) dtype: DType,
    /// The type of the numbers, if it has at most 8 bits.
    pub(crate) narrow: Option<Narrow>,
    pub(crate) shape: Vec<u64>,
    pub(crate) data: Bytes,
}

/// The number of bytes of a tensor.
pub(crate) fn data_bytes(dtype: DType, shape: &[u64]) -> Option<usize> {
    let count = shape.iter().try_fold(1_u64, |count, dim| count.checked_mul(*dim))?;
    usize::try_from(count.checked_mul(dtype.bytes() as u64)?).ok()
}

/// Returns the data of a tensor, which is borrowed from the file if it is stored as raw data.
pub(crate) fn constant(tensor: &TensorProto, folder: &Folder) -> Result<Constant, String> {
    let number = tensor.data_type.unwrap_or(0);
    let narrow = Narrow::from_onnx(number);
    let dtype = match narrow {
        Some(own) => own.carrier(),
        None => DType::from_onnx(number)?,
    };
    let negative =
        || format!("the tensor `{}` has a negative dimension", short(tensor_name(tensor)));
    let shape: Vec<u64> = tensor
        .dims
        .iter()
        .map(|dim| u64::try_from(*dim).map_err(|_| negative()))
        .collect::<Result<_, _>>()?;
    let elements = data_bytes(dtype, &shape).filter(|bytes| isize::try_from(*bytes).is_ok());
    let elements = elements.ok_or_else(|| {
        format!("the size of the tensor `{}` overflows", short(tensor_name(tensor)))
    })?;
    let count = elements / dtype.bytes();
    let bytes = narrow.map_or(elements, |own| count.div_ceil(8 / own.bits()));
    if tensor.segment.is_some() {
        return Err("segments of tensors are not supported".to_string());
    }
    let data = if tensor.data_location == Some(1) {
        folder.data(tensor, bytes)?
    } else if let Some(raw) = &tensor.raw_data {
        raw.clone()
    } else {
        // The codes of narrow types are packed in bytes.
        typed_data(tensor, if narrow.is_some() { DType::Uint8 } else { dtype })?
    };
    if data.len() != bytes {
        return Err(format!(
            "the tensor `{}` has {} bytes of data; its shape needs {bytes}",
            short(tensor_name(tensor)),
            data.len()
        ));
    }
    let data = narrow.map_or(data.clone(), |own| own.decode(&data, count).into());
    Ok(Constant { dtype, narrow, shape, data })
}

fn tensor_name(tensor: &TensorProto) -> &str {
    tensor.name.as_deref().unwrap_or("")
}

/// Converts the typed fields of a tensor.
fn typed_data(tensor: &TensorProto, dtype: DType) -> Result<Bytes, String> {
    fn collect<const N: usize>(values: impl Iterator<Item = [u8; N]>) -> Vec<u8> {
        values.flatten().collect()
    }
    let ints = &tensor.int32_data;
    let outside = || format!("a value of `{}` does not fit its type", short(tensor_name(tensor)));
    let (low, high) = dtype.int_range();
    let fits = |value: i128| dtype.is_float() || (low..=high).contains(&value);
    if !ints.iter().all(|value| fits((*value).into()) || dtype == DType::Bool)
        || !tensor.uint64_data.iter().all(|value| fits((*value).into()))
    {
        return Err(outside());
    }
    Ok(Bytes::from(match dtype {
        DType::Float32 => collect(tensor.float_data.iter().map(|v| v.to_le_bytes())),
        DType::Float64 => collect(tensor.double_data.iter().map(|v| v.to_le_bytes())),
        DType::Float16 => {
            collect(ints.iter().map(|v| f16::from_bits(*v as u16).to_bits().to_le_bytes()))
        }
        DType::BFloat16 => {
            collect(ints.iter().map(|v| bf16::from_bits(*v as u16).to_bits().to_le_bytes()))
        }
        DType::Int32 => collect(ints.iter().map(|v| v.to_le_bytes())),
        DType::Int16 | DType::Uint16 => collect(ints.iter().map(|v| (*v as u16).to_le_bytes())),
        DType::Float8E4M3Fn | DType::Float8E5M2 | DType::Int4 | DType::Uint4 => Vec::new(),
        DType::Int8 | DType::Uint8 => collect(ints.iter().map(|v| (*v as u8).to_le_bytes())),
        DType::Bool => collect(ints.iter().map(|v| [u8::from(*v != 0)])),
        DType::Int64 => collect(tensor.int64_data.iter().map(|v| v.to_le_bytes())),
        DType::Uint32 => collect(tensor.uint64_data.iter().map(|v| (*v as u32).to_le_bytes())),
        DType::Uint64 => collect(tensor.uint64_data.iter().map(|v| v.to_le_bytes())),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_that_disagrees_with_the_shape_is_an_error() {
        let folder = Folder::new(Path::new("."));
        let mut tensor = TensorProto {
            name: Some("w".to_string()),
            data_type: Some(1),
            dims: vec![2, 3],
            raw_data: Some(Bytes::from(vec![0; 23])),
            ..Default::default()
        };
        let error = constant(&tensor, &folder).unwrap_err();
        assert_eq!(error, "the tensor `w` has 23 bytes of data; its shape needs 24");
        tensor.dims = vec![-1, 3];
        assert_eq!(
            constant(&tensor, &folder).unwrap_err(),
            "the tensor `w` has a negative dimension"
        );
        tensor.dims = vec![1 << 40, 1 << 40];
        assert_eq!(constant(&tensor, &folder).unwrap_err(), "the size of the tensor `w` overflows");
    }

    #[test]
    fn files_that_are_no_models_are_errors() {
        assert!(matches!(decode(Bytes::new()), Err(Error::Decode(_))));
        assert!(matches!(
            decode(Bytes::from_static(b"PK\x03\x04 not a model")),
            Err(Error::Decode(_))
        ));
    }
}
