//! Texts of networks whose extents of run time decide shapes and places. `BLESS=1 cargo test -p
//! tec-onnx --test sizes` writes them.

mod common;

use common::{FLOAT, INT64, Model, golden, int, ints, text};

#[test]
fn sums_of_extents_are_converted_as_a_whole() {
    let model = Model::new(18)
        .input("x", FLOAT, "n m")
        .scalar("one", 1)
        .node("Size", "x", "count", &[])
        .node("Cast", "count", "factor", &[int("to", FLOAT.into())])
        .node("Mul", "x factor", "y", &[])
        .node("Sub", "count one", "last", &[])
        .node("Shape", "x", "shape", &[])
        .node("Expand", "last shape", "z", &[])
        .output("y")
        .output("z");
    golden("cast_extents", model);
}

/// Quotients of extents are shapes; that of `h - 1` is one for calls in which it is not negative.
#[test]
fn quotients_of_extents_are_shapes() {
    let model = Model::new(18)
        .input("x", FLOAT, "1 4 h w")
        .weights("kernel", &[8, 4, 3, 3])
        .ints("two", &[2])
        .ints("one", &[1])
        .ints("batch", &[1, 8])
        .ints("channels", &[1, 4])
        .ints("rest", &[-1])
        .node("Conv", "x kernel", "conv", &[ints("strides", &[2, 2]), ints("pads", &[1, 1, 1, 1])])
        .node("Shape", "x", "sides", &[int("start", 2)])
        .node("Shape", "x", "height", &[int("start", 2), int("end", 3)])
        .node("Sub", "height one", "last", &[])
        .node("Div", "last two", "quotient", &[])
        .node("Add", "quotient one", "rows", &[])
        .node("Concat", "batch rows rest", "shape", &[int("axis", 0)])
        .node("Reshape", "conv shape", "y", &[])
        .node("Div", "sides two", "half", &[])
        .node("Concat", "channels half", "sizes", &[int("axis", 0)])
        .node("Resize", "x - - sizes", "z", &[text("mode", "nearest")])
        .output("y")
        .output("z");
    let import = golden("quotients", model);
    assert_eq!(import.outputs[1].shape, "[1, 4, h // 2, w // 2]");
}
