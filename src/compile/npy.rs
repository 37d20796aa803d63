//! NumPy files: `--input A=a.npy`, `--output C=c.npy`.

use super::cpu::available_memory;
use crate::diag::{Diag, Result};
use crate::ir::DType;
use crate::ir::interp::Tensor;
use crate::module::input::{self, io_text};
use crate::module::write::OutputFile;
use npyz::{Endianness, NpyHeader, Order, TypeChar, WriterBuilder};
use std::io::{BufReader, Read};
use std::path::Path;

/// Reads a tensor of the given element type. Messages call it `what`.
pub fn read(path: &str, what: &str, dtype: DType) -> Result<Tensor> {
    let wrong = |text: String| Box::new(Diag::global("E0542", format!("{path}: {text}")));
    let file = input::open(Path::new(path)).map_err(wrong)?;
    let mut reader = BufReader::new(file);
    let header = NpyHeader::from_reader(&mut reader)
        .map_err(|error| wrong(format!("not a NumPy file: {error}")))?;
    check_dtype(&header, dtype).map_err(|found| {
        let bytes = if dtype.is_quantized() { ", given as bytes of uint8" } else { "" };
        wrong(format!("`{what}` has element type {dtype}{bytes}, but the array has {found}"))
    })?;
    let dtype = if dtype.is_quantized() { DType::Uint8 } else { dtype };
    if header.order() == Order::Fortran && header.shape().len() > 1 {
        let diag = wrong("the array is in Fortran order".to_string());
        return Err(Box::new(diag.help("save it with `np.save(path, np.ascontiguousarray(a))`")));
    }
    let shape: Vec<i64> = header.shape().iter().map(|extent| *extent as i64).collect();
    let bytes = header.shape().iter().try_fold(dtype.bytes(), |n, extent| n.checked_mul(*extent));
    let bytes = bytes.ok_or_else(|| wrong(format!("shape {shape:?} overflows")))?;
    if let Some(free) = available_memory().filter(|free| *free < bytes) {
        return Err(wrong(format!(
            "the array takes {bytes} bytes, but only {free} bytes of memory are free"
        )));
    }
    // Not allocated in advance, because a damaged header may claim any size.
    let mut data = Vec::new();
    let mut part = reader.take(bytes);
    let read = part.read_to_end(&mut data).map_err(|e| wrong(io_text(&e)))?;
    if (read as u64) < bytes {
        return Err(wrong(format!("truncated: {read} of {bytes} bytes of data")));
    }
    if part.into_inner().read(&mut [0]).map_err(|e| wrong(io_text(&e)))? > 0 {
        let diag = wrong(format!("more bytes follow the {bytes} of an array of shape {shape:?}"));
        return Err(Box::new(diag.help("give a file with one array: `np.save(path, a)`")));
    }
    Ok(Tensor { dtype, shape, data })
}

/// Reads a tensor of the file's own element type. Messages call it `what`.
pub fn read_any(path: &str, what: &str) -> Result<Tensor> {
    let wrong = |text: String| Box::new(Diag::global("E0542", format!("{path}: {text}")));
    let file = input::open(Path::new(path)).map_err(wrong)?;
    let header = NpyHeader::from_reader(BufReader::new(file))
        .map_err(|error| wrong(format!("not a NumPy file: {error}")))?;
    let dtype = DType::ALL.iter().find(|dtype| check_dtype(&header, **dtype).is_ok());
    match dtype {
        Some(dtype) => read(path, what, *dtype),
        None => Err(wrong("its element type is none of the language".to_string())),
    }
}

/// Fails with the element type of the file if it is not `dtype`.
fn check_dtype(header: &NpyHeader, dtype: DType) -> std::result::Result<(), String> {
    let npyz::DType::Plain(found) = header.dtype() else {
        return Err("a structured type".to_string());
    };
    let expected = type_string(dtype);
    let big = found.endianness() == Endianness::Big && found.num_bytes() != Some(1);
    // ml_dtypes saves bfloat16 as two opaque bytes, floats of 8 bits as one.
    let opaque = (dtype == DType::BFloat16 || dtype.is_quantized() && dtype.is_float())
        && found.type_char() == TypeChar::RawData
        && found.num_bytes() == Some(dtype.bytes() as usize);
    let same = found.to_string()[1..] == expected[1..];
    if (same || opaque) && !big {
        return Ok(());
    }
    let known = DType::ALL.iter().find(|dtype| found.to_string()[1..] == type_string(**dtype)[1..]);
    let name = known.map_or(format!("`{found}`"), |dtype| dtype.to_string());
    Err(if big { format!("big-endian {name}") } else { name })
}

fn type_string(dtype: DType) -> &'static str {
    match dtype {
        DType::Float64 => "<f8",
        DType::Float32 => "<f4",
        DType::Float16 => "<f2",
        DType::BFloat16 => "|V2",
        DType::Int8 => "|i1",
        DType::Int16 => "<i2",
        DType::Int32 => "<i4",
        DType::Int64 | DType::Index => "<i8",
        DType::Uint8 => "|u1",
        DType::Uint16 => "<u2",
        DType::Uint32 => "<u4",
        DType::Uint64 => "<u8",
        DType::Bool => "|b1",
        // Their bytes: NumPy has no such types.
        DType::Int4 | DType::Uint4 | DType::Float8E4M3 | DType::Float8E5M2 => "|u1",
    }
}

/// Returns the `.npy` file of a tensor.
pub fn to_file(path: &str, tensor: &Tensor) -> OutputFile {
    let shape: Vec<u64> = tensor.shape.iter().map(|extent| *extent as u64).collect();
    let dtype = type_string(tensor.dtype).parse().expect("a valid type string");
    let mut bytes = Vec::new();
    npyz::WriteOptions::new_header_only()
        .dtype(npyz::DType::Plain(dtype))
        .shape(&shape)
        .writer(&mut bytes)
        .write_header_only()
        .expect("memory can be written");
    bytes.extend_from_slice(&tensor.data);
    OutputFile { path: path.into(), bytes, executable: false }
}
