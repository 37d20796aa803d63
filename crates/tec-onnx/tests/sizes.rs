//! Texts of networks whose extents of run time decide shapes and places. `BLESS=1 cargo test -p
//! tec-onnx --test sizes` writes them.

mod common;

use common::{FLOAT, INT32, INT64, Model, golden, int, ints, tensor, text};
use tec_onnx::{Options, import};

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

/// As `torch.nn.functional.interpolate(x, scale_factor=0.5)` is exported: the sizes are a list of
/// floats that are converted together.
#[test]
fn a_list_of_fractions_of_extents_is_a_shape() {
    let model = Model::new(18)
        .input("x", FLOAT, "n 4 h w")
        .floats("half", &[0.5])
        .floats("third", &[1.5])
        .ints("two", &[2])
        .ints("three", &[3])
        .node("Shape", "x", "shape", &[])
        .node("Shape", "x", "kept", &[int("end", 2)])
        .node("Gather", "shape two", "h", &[])
        .node("Gather", "shape three", "w", &[])
        .node("Cast", "h", "h_float", &[int("to", FLOAT.into())])
        .node("Cast", "w", "w_float", &[int("to", FLOAT.into())])
        .node("Mul", "h_float half", "rows_float", &[])
        .node("Floor", "rows_float", "rows", &[])
        .node("Mul", "w_float third", "columns_float", &[])
        .node("Floor", "columns_float", "columns", &[])
        .node("Concat", "rows columns", "list", &[int("axis", 0)])
        .node("Cast", "list", "ends", &[int("to", INT64.into())])
        .node("Concat", "kept ends", "sizes", &[int("axis", 0)])
        .node("Resize", "x - - sizes", "y", &[text("mode", "nearest")])
        .output("y");
    let import = golden("fractions", model);
    assert_eq!(import.outputs[0].shape, "[n, 4, h // 2, (w*3) // 2]");
}

/// As TorchScript exports `torch.arange(n)` of a size, and the shape of an update of a slice.
#[test]
fn places_in_a_list_of_ones_count_up_and_shapes_are_edited() {
    let model = Model::new(13)
        .input("x", FLOAT, "n m")
        .floats("zero", &[0.0])
        .scalar("zeroth", 0)
        .ints("last", &[-1])
        .ints("ones", &[1])
        .node("Shape", "x", "shape", &[])
        .node("Gather", "shape zeroth", "count", &[])
        .node("Unsqueeze", "count axis0", "extent", &[])
        .ints("axis0", &[0])
        .node("ConstantOfShape", "extent", "flags", &[tensor("value", 1)])
        .node("NonZero", "flags", "places", &[])
        .node("Transpose", "places", "column", &[ints("perm", &[1, 0])])
        .node("Cast", "column", "rows", &[int("to", FLOAT.into())])
        .node("Add", "x rows", "y", &[])
        .node("ScatterElements", "shape last ones", "edited", &[int("axis", 0)])
        .node("Expand", "zero edited", "z", &[])
        .output("y")
        .output("z");
    let import = golden("edited_shapes", model);
    assert_eq!(import.outputs[1].shape, "[n, 1]");
}

/// Neither the roundings of a fraction nor the copies of a list may double with each node, or need
/// a stack that is as deep as the model.
#[test]
fn long_chains_of_fractions_and_copies_end() {
    let mut model = Model::new(18)
        .input("x", FLOAT, "n m")
        .floats("half", &[0.5])
        .ints("axis0", &[0])
        .scalar("zeroth", 0)
        .node("Shape", "x", "shape", &[])
        .node("Gather", "shape zeroth", "count", &[])
        .node("Cast", "count", "f0", &[int("to", FLOAT.into())])
        .node("Unsqueeze", "count axis0", "extent", &[])
        .node("ConstantOfShape", "extent", "c0", &[tensor("value", 1)]);
    for at in 0..60 {
        let [from, scaled, to] = [format!("f{at}"), format!("scaled{at}"), format!("f{}", at + 1)];
        model = model
            .node("Mul", &format!("{from} half"), &scaled, &[])
            .node("Floor", &scaled, &format!("floor{at}"), &[])
            .node("Add", &format!("floor{at} floor{at}"), &to, &[]);
    }
    for at in 0..20_000 {
        let (from, wide, to) = (format!("c{at} axis0"), format!("w{at}"), format!("c{}", at + 1));
        model = model.node("Unsqueeze", &from, &wide, &[]).node(
            "Squeeze",
            &format!("{wide} axis0"),
            &to,
            &[],
        );
    }
    let model = model
        .node("Cast", "f60", "rows", &[int("to", INT64.into())])
        .node("Range", "zeroth rows step", "y", &[])
        .scalar("step", 1)
        .node("NonZero", "c20000", "z", &[])
        .output("y")
        .output("z");
    // A refusal is as good as a text.
    let refusal = import(&model.save("chains"), &Options::default()).err();
    assert!(refusal.is_none_or(|error| !error.to_string().is_empty()));
}

/// Thousands of choices in one expression would take minutes to schedule.
#[test]
fn many_indices_of_run_time_are_computed() {
    let rows: Vec<i64> = (0..64).collect();
    let model = Model::new(17)
        .input("x", FLOAT, "b n")
        .scalar("one", 1)
        .ints("rows", &rows)
        .weights("table", &[100, 4])
        .node("Shape", "x", "shape", &[])
        .node("Gather", "shape one", "n", &[])
        .node("Sub", "n rows", "places", &[])
        .node("Gather", "table places", "y", &[])
        .output("y");
    golden("many_places", model);
}

#[test]
fn one_element_of_an_axis_is_broadcast() {
    let model = Model::new(18)
        .input("x", FLOAT, "n m")
        .ints("zero", &[0])
        .ints("one", &[1])
        .ints("two", &[2])
        .ints("last", &[-1])
        .ints("before", &[-2])
        .node("Slice", "x zero one zero", "first", &[])
        .node("Slice", "x one two one", "second", &[])
        .node("Slice", "x before last one", "third", &[])
        .node("Sub", "x first", "a", &[])
        .node("Sub", "a second", "b", &[])
        .node("Sub", "b third", "y", &[])
        .output("y");
    let import = golden("single", model);
    assert_eq!(import.outputs[0].shape, "[n, m]");
}

#[test]
fn constant_indices_bound_a_run_time_extent() {
    let bytes = |values: &[i64]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
    let model = Model::new(18)
        .input("x", FLOAT, "n m")
        .ints("pair", &[1, 3])
        .ints("ends", &[0, -1])
        .ints("many", &[2, 0, 1])
        .raw("rows", INT64, &[2, 2], bytes(&[0, 4, 5, -3]))
        .raw("elements", INT64, &[1, 2], bytes(&[0, 1]))
        .node("Gather", "x pair", "a", &[int("axis", 0)])
        .node("Gather", "x ends", "b", &[int("axis", 1)])
        .node("Gather", "x many", "c", &[int("axis", 1)])
        .node("GatherND", "x rows", "d", &[])
        .node("GatherElements", "x elements", "e", &[int("axis", 1)])
        .output("a")
        .output("b")
        .output("c")
        .output("d")
        .output("e");
    golden("constant_indices", model);
}

#[test]
fn one_scale_has_no_axis() {
    let model = Model::new(17)
        .input("x", FLOAT, "4")
        .level("in", 0.25, 3)
        .node("QuantizeLinear", "x in_s in_z", "q", &[int("axis", 1)])
        .node("DequantizeLinear", "q in_s in_z", "y", &[int("axis", 1)])
        .output("y");
    golden("one_scale", model);
}

/// As in onnxruntime.
#[test]
fn a_signal_of_two_dimensions_is_real() {
    let model = Model::new(17)
        .input("x", FLOAT, "batch 64")
        .scalar("step", 16)
        .scalar("length", 32)
        .weights("window", &[32])
        .node("STFT", "x step window length", "y", &[])
        .output("y");
    let import = golden("signal", model);
    assert_eq!(import.outputs[0].shape, "[batch, 3, 17, 2]");
}

/// Sums over 16 + 16 terms in place of 256.
#[test]
fn long_transforms_have_two_steps() {
    let model = Model::new(20)
        .input("x", FLOAT, "batch 256 1")
        .scalar("axis", 1)
        .node("DFT", "x  axis", "y", &[int("onesided", 1)])
        .output("y");
    let import = golden("transform", model);
    assert_eq!(import.outputs[0].shape, "[batch, 129, 2]");
}

/// The library pads by constants: other padding is a stage, or windows reach beyond the operand.
#[test]
fn windows_cover_run_time_extents() {
    let pool = |model: Model, op: &str, y: &str, kernel: i64, (name, value): (&str, &str)| {
        let mode = if value.is_empty() { int(name, 1) } else { text(name, value) };
        let attributes = [ints("kernel_shape", &[kernel]), ints("strides", &[2]), mode];
        model.node(op, "x", y, &attributes).output(y)
    };
    let (upper, lower, ceil) =
        (("auto_pad", "SAME_UPPER"), ("auto_pad", "SAME_LOWER"), ("ceil_mode", ""));
    let model = Model::new(19).input("x", FLOAT, "1 4 n").weights("kernel", &[8, 4, 3]);
    let strides = [ints("strides", &[2]), text("auto_pad", "SAME_UPPER")];
    let mut model = model.node("Conv", "x kernel", "conv", &strides).output("conv");
    model = model
        .weights("one", &[8, 4, 1])
        .node("Conv", "x one", "shortcut", &strides)
        .output("shortcut");
    model = pool(model, "MaxPool", "max2", 2, upper);
    model = pool(model, "MaxPool", "max3", 3, upper);
    model = pool(model, "MaxPool", "low3", 3, lower);
    model = pool(model, "AveragePool", "mean3", 3, upper);
    model = pool(model, "MaxPool", "ceil2", 2, ceil);
    model = pool(model, "AveragePool", "ceil3", 3, ceil);
    let import = golden("windows", model);
    let shapes: Vec<&str> = import.outputs.iter().map(|one| &one.shape[..]).collect();
    assert_eq!(
        shapes[..7],
        [&["[1, 8, (n + 1) // 2]"; 2][..], &["[1, 4, (n + 1) // 2]"; 5]].concat()
    );
}

/// The lengths of sequences, as onnxruntime writes a mask of zeros at their ends.
#[test]
fn masks_of_onnxruntime_are_lengths() {
    let model = Model::new(17)
        .input("ids", INT32, "batch 5")
        .input("mask", INT32, "batch 5")
        .weights("words", &[20, 8])
        .weights("positions", &[16, 8])
        .weights("gamma", &[8])
        .weights("w", &[8, 24])
        .weights("b", &[24])
        .node(
            "EmbedLayerNormalization",
            "ids - words positions - gamma gamma mask",
            "embedded lengths",
            &[],
        )
        .domain("com.microsoft")
        .node("Attention", "embedded w b lengths", "y", &[int("num_heads", 2)])
        .domain("com.microsoft")
        .output("y");
    golden("mask_lengths", model);
}

/// A division that rounds down, as PyTorch exports it: 1 is subtracted if the signs differ and there
/// is a remainder. Of sizes no sign differs.
#[test]
fn conditions_follow_from_one_operand() {
    let model = Model::new(18)
        .input("x", FLOAT, "n 4")
        .ints("three", &[3])
        .ints("zero", &[0])
        .node("Shape", "x", "size", &[int("end", 1)])
        .node("Div", "size three", "quotient", &[])
        .node("Mod", "size three", "rest", &[])
        .node("Less", "size zero", "negative", &[])
        .node("Less", "three zero", "other", &[])
        .node("Xor", "negative other", "differ", &[])
        .node("Equal", "rest zero", "divides", &[])
        .node("Not", "divides", "remains", &[])
        .node("And", "remains differ", "down", &[])
        .node("Cast", "down", "one", &[int("to", INT64.into())])
        .node("Sub", "quotient one", "floor", &[])
        .node("ConstantOfShape", "floor", "y", &[])
        .output("y");
    let import = import(&model.save("floor"), &Options::default()).expect("a text");
    assert_eq!(import.outputs[0].shape, "[n // 3]");
}
