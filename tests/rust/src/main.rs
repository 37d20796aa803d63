//! Calls bindings with right and with wrong arguments. It ends with status 0 if all is as it should
//! be.

#![deny(missing_docs, unused, unreachable_pub)]

use half::{bf16, f16};
use ndarray::{Array0, Array1, Array2, ArrayD, IxDyn};
use tec_rt::Error;

tec_rt::include_kernels!("kinds");
tec_rt::include_kernels!("match");
tec_rt::include_kernels!("packed");

fn assert_send_sync<T: Send + Sync>() {}

#[track_caller]
fn refused(result: Result<(), Error>, expected: &str) {
    let error = result.expect_err(expected);
    assert!(error.to_string().contains(expected), "{error:?}\nis not: {expected}");
}

fn halves() {
    let x = [f16::from_f32(1.5), f16::from_f32(-2.0)];
    let y = [bf16::from_f32(4.0), bf16::from_f32(8.0)];
    let mut z = [0.0; 2];
    kinds::halves(f16::from_f32(2.0), bf16::from_f32(0.5), &x, &y, &mut z).unwrap();
    assert_eq!(z, [5.0, 0.0]);
    // The same bits without the crate `half`.
    let bits = x.map(|one| tec_rt::F16(one.to_bits()));
    let others = y.map(|one| tec_rt::BF16(one.to_bits()));
    let (alpha, beta) = (tec_rt::F16(0x4000), tec_rt::BF16(0x3f00));
    let mut again = [1.0; 2];
    kinds::halves(alpha, beta, &bits, &others, &mut again).unwrap();
    assert_eq!(z, again);
    let mut array = Array1::zeros(2);
    let (x, y) = (Array1::from(x.to_vec()), Array1::from(y.to_vec()));
    kinds::nd::halves(alpha, beta, x.view(), y.view(), array.view_mut()).unwrap();
    assert_eq!(array.to_vec(), z);
}

fn scalars() {
    let mut b = [false; 3];
    kinds::logic(true, &[true, false, true], &mut b).unwrap();
    assert_eq!(b, [false, true, false]);
    kinds::logic(false, &[], &mut []).unwrap();

    let x = Array2::from_shape_fn((3, 5), |(i, j)| (i * 5 + j) as f64);
    let mut t = [0.0];
    kinds::total(2.0, 7, x.as_slice().unwrap(), &[0.5], &mut t, 3, 5).unwrap();
    assert_eq!(t, [217.5]);
    let mut t = Array0::zeros(());
    kinds::nd::total(2.0, 7, x.view(), Array0::from_elem((), 0.5).view(), t.view_mut()).unwrap();
    assert_eq!(t[()], 217.5);
}

fn extents() {
    let x = [0, 10, 20, 30];
    let mut y = [0; 2];
    kinds::window(&x, &mut y, 1).unwrap();
    assert_eq!(y, [10, 20]);
    refused(kinds::window(&x, &mut y, 3), "x");
    refused(kinds::window(&x, &mut y, -1), "x");
    refused(kinds::window(&x, &mut y, i64::MAX), "x");
    assert!(matches!(kinds::window(&x, &mut y, 3), Err(Error::Arguments(_))));

    let x = [1.0; 3 * 5];
    let mut y = [0.0; 3 * 3];
    kinds::derived(&x, &mut y, 3).unwrap();
    assert_eq!(y, [1.0; 9]);
    refused(kinds::derived(&x, &mut y, 4), "float32[4, 6] has 24 elements, the slice has 15");
    refused(kinds::derived(&x, &mut y, usize::MAX), "dimension 0 is not a 64-bit integer");
    let huge = i64::MAX as usize - 8;
    refused(kinds::derived(&x, &mut y, huge), "more elements than memory");
    // The products of extents overflow, but there are no elements.
    let (huge, mut t) = (1 << 40, [1.0]);
    kinds::total(1.0, 3, &[], &[0.5], &mut t, 0, huge).unwrap();
    assert_eq!(t, [3.5]);
    refused(kinds::total(1.0, 3, &[0.0], &[0.5], &mut t, huge, huge), "more elements than memory");
    refused(kinds::total(1.0, 3, &[0.0], &[], &mut t, 1, 1), "`bias`");

    let x = ArrayD::from_shape_fn(IxDyn(&[2, 2, 1, 3, 1, 2, 2]), |at| at[6] as i16);
    let mut y = ArrayD::zeros(x.raw_dim());
    kinds::nd::deep(x.view(), y.view_mut()).unwrap();
    assert!(y.indexed_iter().all(|(at, value)| *value == 1 - at[6] as i16));
    let flat = x.clone().into_shape_with_order(IxDyn(&[48])).unwrap();
    refused(kinds::nd::deep(flat.view(), y.view_mut()), "expected 7 dimensions, got 1");
}

fn arrays() {
    let x = Array2::from_shape_fn((3, 5), |(i, j)| (10 * i + j) as f32);
    let mut y = Array2::zeros((3, 3));
    kinds::nd::derived(x.view(), y.view_mut()).unwrap();
    assert_eq!(y, x.slice(ndarray::s![.., ..3]));
    let turned = Array2::<f32>::zeros((5, 3));
    refused(kinds::nd::derived(turned.t(), y.view_mut()), "not row-major and contiguous");
    let part = Array2::<f32>::zeros((3, 6));
    let part = part.slice(ndarray::s![.., ..5]);
    refused(kinds::nd::derived(part, y.view_mut()), "not row-major and contiguous");
    let mut other = Array2::zeros((4, 3));
    refused(kinds::nd::derived(x.view(), other.view_mut()), "expected extent 3 in dimension 0");
}

fn nibbles() {
    // Odd numbers of elements: the last byte is half empty.
    for n in 0..6 {
        let (a, b) = ([0x21, 0xf8, 0x0f], [0xff, 0x10, 0x02]);
        let bytes = usize::div_ceil(n, 2);
        let mut c = vec![0; n];
        kinds::nibbles(&a[..bytes], &b[..bytes], &mut c).unwrap();
        assert_eq!(c, [16, 17, -8, 0, 1][..n]);
        refused(kinds::nibbles(&a[..bytes], &b[1..], &mut vec![0; n + 5]), "`left`");
    }
}

fn views() {
    let a = Array2::from_shape_fn((4, 6), |(i, j)| (10 * i + j) as f32);
    let b = Array2::from_shape_fn((3, 4), |(i, j)| (1000 * j + 100 * i) as f32);
    let mut c = Array2::zeros((8, 3));
    let every_other = c.slice_mut(ndarray::s![..;-2, ..]);
    kinds::nd::views(a.slice(ndarray::s![.., 2..5]), b.t(), every_other).unwrap();
    for ((i, j), value) in c.indexed_iter() {
        let row = 3 - i / 2;
        let sum = 1010 * row + 100 * j + j + 2;
        assert_eq!(*value, if i % 2 == 1 { sum as f32 } else { 0.0 });
    }
    let one = Array1::from_elem(1, 2.0);
    let same = one.broadcast((4, 3)).unwrap();
    let part = a.slice(ndarray::s![.., ..3]);
    kinds::nd::views(part, same, c.slice_mut(ndarray::s![..4, ..])).unwrap();
    assert_eq!(c[[3, 2]], 34.0);
    let columns = a.slice(ndarray::s![.., ..6;2]);
    refused(kinds::nd::views(columns, b.t(), c.slice_mut(ndarray::s![..4, ..])), "stride 1");
}

fn names() {
    let mut c = [0.0; 2];
    r#match::r#loop(&[1.0, 2.0], &[3.0, 4.0], &mut c).unwrap();
    assert_eq!(c, [4.0, 6.0]);
    let mut c = [0.0; 6];
    r#match::Upper(&[1.0; 6], &mut c, 2, 3).unwrap();
    assert_eq!(c, [-1.0; 6]);
    r#match::call_0_(&[1.0; 6], &[2.0; 6], &mut c, 2, 3).unwrap();
    assert_eq!(c, [3.0; 6]);
    r#match::MANIFEST_(&[1.0; 6], &mut c, 2, 3).unwrap();
    assert_eq!(c, [1.0; 6]);
}

fn packed_operands() {
    assert_send_sync::<packed::ProductPackedB>();
    let (n, l, m) = (3, 4, 5);
    let make = |count: usize, factor: usize| -> Vec<f32> {
        (0..count).map(|at| (at * factor % 7) as f32).collect()
    };
    let (a, b, c) = (make(n * l, 1), make(l * m, 2), make(l * m, 3));
    let (mut whole, mut d) = (vec![0.0; n * m], vec![1.0; n * m]);
    packed::product(&a, &b, &c, &mut whole, n, l, m).unwrap();
    let pb = packed::ProductPackedB::pack(&b, l, m).unwrap();
    let pc = packed::ProductPackedC::pack(&c, l, m).unwrap();
    packed::product_prepacked(&a, &pb, &pc, &mut d, n).unwrap();
    assert_eq!(whole, d);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut d = vec![1.0; n * m];
                packed::product_prepacked(&a, &pb, &pc, &mut d, n).unwrap();
                assert_eq!(whole, d);
            });
        }
    });
    let shape = |rows: usize, data: &[f32]| {
        Array2::from_shape_vec((rows, data.len() / rows), data.to_vec()).unwrap()
    };
    let from_array = packed::nd::product_pack_B(shape(l, &b).view()).unwrap();
    let mut array = Array2::zeros((n, m));
    let a2 = shape(n, &a);
    packed::nd::product_prepacked(a2.view(), &from_array, &pc, array.view_mut()).unwrap();
    assert_eq!(array.as_slice().unwrap(), whole);
    // The same number of tiles, but not the same extent.
    let wider = packed::ProductPackedC::pack(&make(l * 6, 3), l, 6).unwrap();
    let result = packed::product_prepacked(&a, &pb, &wider, &mut d, n);
    refused(result, "it was packed for `m` = 6, not for 5");
    let mut wide = Array2::zeros((n, 6));
    let result = packed::nd::product_prepacked(a2.view(), &pb, &pc, wide.view_mut());
    refused(result, "it was packed for `m` = 5, not for 6");
    let error = packed::ProductPackedB::pack(&b, l, m + 1).unwrap_err();
    assert!(matches!(error, Error::Shape(_)), "{error:?}");
    let empty = packed::ProductPackedB::pack(&[], 0, 1 << 62);
    refused(empty.map(|_| ()), "larger than memory");
}

fn main() {
    tec_rt::set_num_threads(2);
    halves();
    scalars();
    extents();
    arrays();
    names();
    nibbles();
    views();
    packed_operands();
    assert!(kinds::MANIFEST.contains("\"compiler\": \"tec "));
}
