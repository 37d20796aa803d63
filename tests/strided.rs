//! Loads of elements at a stride of three or four: rows of every width up to 100, between pages
//! that must not be accessed, so that no byte before the first or after the last element is read.

use crate::support;
use crate::support::compile;
use libloading::os::unix::{Library, Symbol};
use memmap2::MmapMut;
use std::ffi::{c_int, c_void};
use tec::driver::{self, Options};
use tec::ir::DType;
use tec::module::load::Arg;
use tec::target::Target;

const PAGE: usize = 4096;

/// A page between two that must not be accessed.
struct Guarded(MmapMut);

impl Guarded {
    fn new() -> Guarded {
        let mut pages = MmapMut::map_anon(3 * PAGE).expect("three pages");
        let start = pages.as_mut_ptr();
        let this = Library::this();
        // SAFETY: the type is that of the C library, and nothing is in the pages.
        unsafe {
            type Protect = unsafe extern "C" fn(*mut c_void, usize, c_int) -> c_int;
            let protect: Symbol<Protect> = this.get(b"mprotect\0").expect("a function of libc");
            for page in [start, start.add(2 * PAGE)] {
                assert_eq!(protect(page.cast(), PAGE, 0), 0);
            }
        }
        Guarded(pages)
    }

    /// Copies bytes to the beginning or the end of the page.
    fn place(&mut self, bytes: &[u8], at_end: bool) -> &[u8] {
        let start = if at_end { 2 * PAGE - bytes.len() } else { PAGE };
        let place = &mut self.0[start..start + bytes.len()];
        place.copy_from_slice(bytes);
        place
    }
}

/// The types of the elements and of the result.
const TYPES: [(&str, &str); 19] = [
    ("uint8", "uint8"),
    ("int16", "int16"),
    ("uint8", "int32"),
    ("int8", "int32"),
    ("uint8", "float32"),
    ("int8", "float32"),
    ("uint8", "uint16"),
    ("uint16", "float32"),
    ("int16", "int32"),
    ("uint8", "int64"),
    ("int8", "int64"),
    ("uint16", "float64"),
    ("float32", "float32"),
    ("int32", "float32"),
    ("int32", "uint8"),
    ("float64", "float64"),
    ("uint8", "bfloat16"),
    ("int8", "float16"),
    ("uint8", "bool"),
];

fn element(dtype: DType, value: i64) -> Vec<u8> {
    match dtype {
        DType::Float32 => (value as f32).to_le_bytes().to_vec(),
        DType::Float64 => (value as f64).to_le_bytes().to_vec(),
        DType::Float16 => half::f16::from_f32(value as f32).to_le_bytes().to_vec(),
        DType::BFloat16 => half::bf16::from_f32(value as f32).to_le_bytes().to_vec(),
        DType::Bool => vec![u8::from(value != 0)],
        _ => value.to_le_bytes()[..dtype.bytes() as usize].to_vec(),
    }
}

fn check(from: DType, to: DType, stride: i64, lanes: u32, extent: Option<i64>, options: &Options) {
    let n = extent.map_or("n: var".to_string(), |extent| format!("n = {extent}"));
    let text = format!(
        "kernel k({n}) {{\n    input x: {from}[{stride} * n - {}]\n    \
         output y[i: n] = x[{stride} * i] as {to}\n}}\n\
         schedule k.s {{\n    y.split(i, factor={lanes})\n    y.vectorize(i_i)\n}}\n",
        stride - 1
    );
    let (_, module) = compile(&text, options);
    let kernel = module.kernel("k").expect("a kernel");
    let mut memory = Guarded::new();
    let widths = extent.map_or(1..=100, |extent| extent..=extent);
    for width in widths {
        let values: Vec<i64> = (0..stride * width - stride + 1).map(|at| at * 37 + 11).collect();
        let wrap = |value: &i64| match from.is_float() {
            true => *value,
            false => from.wrap(i128::from(*value)) as i64,
        };
        let values: Vec<i64> = values.iter().map(wrap).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|value| element(from, *value)).collect();
        let expected: Vec<u8> =
            values.iter().step_by(stride as usize).flat_map(|value| element(to, *value)).collect();
        for at_end in [false, true] {
            let mut result = vec![0x55; expected.len()];
            let x = memory.place(&bytes, at_end);
            let (inputs, outputs) = ([values.len() as i64], [width]);
            let args = vec![Arg::Input(from, &inputs, x), Arg::Output(to, &outputs, &mut result)];
            kernel.call(args).expect("it runs");
            let what = format!("{from} to {to}, stride {stride}, {lanes} lanes, width {width}");
            assert_eq!(result, expected, "{}: {what}", options.target);
        }
    }
}

fn strided(target: &str) {
    let target = Target::parse(target).expect("a target");
    if !support::runs_here(&target, "loads of strided bytes") {
        return;
    }
    let mut options = Options::new(target);
    options.schedule = Some((None, "s".to_string()));
    for (number, (from, to)) in (0..).zip(TYPES) {
        let [from, to] = [from, to].map(|name| DType::from_name(name).expect("a type"));
        for stride in [3, 4] {
            for lanes in [8, 16, 32, 64] {
                check(from, to, stride, lanes, None, &options);
            }
            // One vector and its rest.
            for extent in [6 + number, 23 + stride * number] {
                check(from, to, stride, 64, Some(extent), &options);
            }
        }
    }
}

#[test]
fn every_third_and_fourth_element_avx2() {
    driver::with_stack(|| strided("x86-avx2"));
}

#[test]
fn every_third_and_fourth_element_avx512() {
    driver::with_stack(|| strided("x86-avx512"));
}
