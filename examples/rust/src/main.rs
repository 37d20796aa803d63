//! Calls kernels on slices and on arrays, and shows what an error says.

use ndarray::{Array1, Array2, array};

tec_rt::include_kernels!("saxpy");
tec_rt::include_kernels!("dense");

fn main() -> Result<(), tec_rt::Error> {
    // Slices. The length is a run-time integer.
    let x: Vec<f32> = (0..1000u16).map(f32::from).collect();
    let y = vec![1.0; x.len()];
    let mut z = vec![0.0; x.len()];
    saxpy::saxpy(2.0, &x, &y, &mut z)?;
    println!("z[10] = {}", z[10]);

    // Arrays. The weights are packed once, for any number of calls and of rows.
    let weights = Array2::from_shape_fn((64, 10), |(k, j)| (k * 10 + j) as f32 / 640.0);
    let packed = dense::nd::dense_pack_W(weights.view())?;
    let bias = Array1::from_elem(10, -16.0f32);
    for rows in [1, 3] {
        let features = Array2::from_elem((rows, 64), 0.5f32);
        let mut classes = Array2::zeros((rows, 10));
        dense::nd::dense_prepacked(features.view(), &packed, bias.view(), classes.view_mut())?;
        println!("{rows} row(s): classes[0] = {:.2}", classes.row(0));
    }

    // A kernel of another crate, which has the same name.
    println!("smooth = {:?}", smoothing::smooth(&[0.0, 3.0, 6.0, 9.0])?);

    // Errors say which argument is wrong.
    if let Err(error) = saxpy::saxpy(2.0, &x, &y[1..], &mut z) {
        println!("{error}");
    }
    let features = Array2::<f32>::zeros((4, 64));
    let mut picked = Array2::zeros((2, 64));
    let index = array![3, 4];
    match dense::nd::gather_rows(features.view(), index.view(), picked.view_mut()) {
        Err(tec_rt::Error::Arguments(text)) => println!("{text}"),
        other => println!("{other:?}"),
    }
    Ok(())
}
