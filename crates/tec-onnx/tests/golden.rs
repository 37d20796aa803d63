//! Texts of small networks. `BLESS=1 cargo test -p tec-onnx --test golden` writes them.

mod common;

use common::{
    FLOAT, INT32, INT64, Model, UINT8, floats, golden, golden_with, graph, int, ints, reference,
    strings, text,
};
use tec_onnx::{Options, import};

fn convolution() -> Model {
    Model::new(13)
        .input("x", FLOAT, "batch 3 height width")
        .weights("conv.weight", &[8, 3, 7, 7])
        .weights("gamma", &[8])
        .weights("beta", &[8])
        .weights("mean", &[8])
        .weights("var", &[8])
        .node(
            "Conv",
            "x conv.weight",
            "/conv/Conv_output_0",
            &[ints("pads", &[3, 3, 3, 3]), ints("strides", &[2, 2])],
        )
        .node("BatchNormalization", "/conv/Conv_output_0 gamma beta mean var", "bn", &[])
        .node("Relu", "bn", "relu", &[])
        .node("MaxPool", "relu", "pool", &[ints("kernel_shape", &[3, 3]), int("ceil_mode", 0)])
        .node("GlobalAveragePool", "pool", "mean_pool", &[])
        .node("Flatten", "mean_pool", "y", &[])
        .output("y")
}

#[test]
fn a_batch_normalisation_is_folded_into_its_convolution() {
    let import = golden("convolution", convolution());
    let names: Vec<&str> = import.params.iter().map(|param| &param.name[..]).collect();
    assert_eq!(names, ["conv_weight", "gamma", "beta", "mean", "var"]);
    assert_eq!(import.params[0].data.len(), 8 * 3 * 49 * 4);
    assert_eq!(import.inputs[0].shape, "[batch, 3, height, width]");
    assert_eq!(
        (&import.outputs[0].shape[..], import.outputs[0].dtype.name()),
        ("[batch, 8]", "float32")
    );
}

#[test]
fn a_batch_normalisation_keeps_its_place_without_reassociation() {
    let options = Options {
        dims: [("batch", 1), ("height", 9), ("width", 9)].map(|(n, v)| (n.to_string(), v)).to_vec(),
        reassociate: false,
        ..Options::default()
    };
    golden_with("convolution_exact", convolution(), &options);
}

/// Convolutions by Winograd's algorithm, and those that it does not compute or not faster.
fn winograd() -> Model {
    let conv = |model: Model, (from, to): (&str, &str), weights: &[i64], all: &[(&str, &[i64])]| {
        let attributes: Vec<_> = all.iter().map(|(name, values)| ints(name, values)).collect();
        let name = format!("{to}.weight");
        model.weights(&name, weights).node("Conv", &format!("{from} {name}"), to, &attributes)
    };
    let same: (&str, &[i64]) = ("pads", &[1, 1, 1, 1]);
    let mut model =
        Model::new(13).input("x", FLOAT, "batch 16 12 20").input("w", FLOAT, "16 16 3 3");
    model = conv(model, ("x", "same"), &[32, 16, 3, 3], &[same]);
    model = conv(model, ("same", "column"), &[16, 32, 3, 1], &[]);
    model = conv(
        model,
        ("column", "wide"),
        &[24, 16, 3, 5],
        &[("strides", &[1, 2]), ("dilations", &[1, 2]), ("pads", &[2, 0, 0, 4])],
    );
    model = conv(model, ("same", "strided"), &[16, 32, 3, 3], &[("strides", &[2, 1])]);
    model = conv(model, ("same", "dilated"), &[16, 32, 3, 3], &[("dilations", &[2, 1])]);
    model = conv(model, ("same", "tall"), &[16, 32, 5, 3], &[]);
    model = conv(model, ("same", "narrow"), &[8, 32, 3, 3], &[same]);
    model = conv(model, ("same", "flat"), &[16, 32, 11, 1], &[]);
    model = conv(model, ("flat", "low"), &[16, 16, 3, 3], &[same]);
    let two = [ints("pads", &[1, 1, 1, 1]), int("group", 2)];
    model = model.weights("g", &[16, 16, 3, 3]).node("Conv", "same g", "grouped", &two);
    model = model.node("Conv", "x w", "given", &[ints("pads", &[1, 1, 1, 1])]);
    let outputs = ["wide", "strided", "dilated", "tall", "narrow", "low", "grouped", "given"];
    outputs.into_iter().fold(model, |model, name| model.output(name))
}

#[test]
fn convolutions_with_three_rows_are_computed_by_winograd() {
    let text = golden("winograd", winograd()).text;
    assert_eq!(text.matches("winograd_conv2d").count(), 3);
    let without = Options { winograd: false, ..Options::default() };
    let text = import(&winograd().save("no_winograd"), &without).expect("it is imported").text;
    assert_eq!((text.matches("winograd_conv2d").count(), text.matches("conv2d").count()), (0, 11));
}

/// As in DeepLab: at the borders of a small image the windows lie mostly in the padding.
#[test]
fn windows_in_the_padding_become_products_of_parts() {
    let model = Model::new(13)
        .input("x", FLOAT, "batch 3 5 5")
        .weights("conv.weight", &[8, 3, 3, 3])
        .weights("far.weight", &[8, 8, 3, 3])
        .node(
            "Conv",
            "x conv.weight",
            "near",
            &[ints("pads", &[4, 1, 4, 1]), ints("dilations", &[4, 1])],
        )
        .node(
            "Conv",
            "near far.weight",
            "y",
            &[ints("pads", &[9, 9, 9, 9]), ints("dilations", &[9, 9])],
        )
        .output("y");
    let import = golden("dilated", model);
    assert_eq!(import.outputs[0].shape, "[batch, 8, 5, 5]");
}

#[test]
fn convolutions_of_extents_whose_products_overflow_are_imported_or_refused() {
    let huge = i64::MAX.to_string();
    for (extents, weights) in [
        (format!("{huge} 16 12 20"), [16, 16, 3, 3]),
        (format!("1 16 {huge} 20"), [16, 16, 3, 3]),
        (format!("1 16 12 {huge}"), [16, 16, 3, 3]),
        (format!("{huge} 16 {huge} {huge}"), [16, 16, 3, 3]),
        ("1 0 12 20".to_string(), [0, 0, 3, 3]),
        ("1 0 12 20".to_string(), [16, 0, 3, 3]),
    ] {
        let model = Model::new(13)
            .input("x", FLOAT, &extents)
            .weights("w", &weights)
            .node("Conv", "x w", "y", &[])
            .output("y");
        if let Ok(network) = import(&model.save("overflow"), &Options::default()) {
            assert_eq!(network.text.matches("winograd_conv2d").count(), 0, "{extents}");
        }
    }
}

/// Attention as exporters write it: shapes are computed by nodes.
#[test]
fn shape_arithmetic_becomes_expressions() {
    let model = Model::new(14)
        .input("x", FLOAT, "batch sequence 64")
        .scalar("zero", 0)
        .scalar("one", 1)
        .ints("axis0", &[0])
        .ints("heads", &[4, 16])
        .ints("rest", &[-1])
        .node("Shape", "x", "shape", &[])
        .node("Gather", "shape zero", "batch_dim", &[])
        .node("Gather", "shape one", "sequence_dim", &[])
        .node("Unsqueeze", "batch_dim axis0", "batch_1d", &[])
        .node("Unsqueeze", "sequence_dim axis0", "sequence_1d", &[])
        .node("Concat", "batch_1d sequence_1d heads", "split_shape", &[int("axis", 0)])
        .node("Reshape", "x split_shape", "split", &[])
        .node("Transpose", "split", "by_head", &[ints("perm", &[0, 2, 1, 3])])
        .node("Transpose", "split", "turned", &[ints("perm", &[0, 2, 3, 1])])
        .node("MatMul", "by_head turned", "scores", &[])
        .node("Softmax", "scores", "weights", &[int("axis", -1)])
        .node("MatMul", "weights by_head", "mixed", &[])
        .node("Transpose", "mixed", "back", &[ints("perm", &[0, 2, 1, 3])])
        .node("Concat", "batch_1d sequence_1d rest", "joined_shape", &[int("axis", 0)])
        .node("Reshape", "back joined_shape", "y", &[])
        .output("y");
    golden("shapes", model);
}

/// Vision transformers resize a square grid of positions, whose side is a power of their number.
#[test]
fn a_root_of_a_square_is_a_shape() {
    let model = |count: i64| {
        Model::new(17)
            .input("x", FLOAT, "16 3")
            .ints("count", &[count])
            .floats("half", &[0.5])
            .ints("rest", &[-1])
            .node("Pow", "count half", "side", &[])
            .node("Concat", "side side rest", "shape", &[int("axis", 0)])
            .node("Reshape", "x shape", "y", &[])
            .output("y")
    };
    let imported = |count| import(&model(count).save("root"), &Options::default());
    assert_eq!(imported(16).expect("16 is a square").outputs[0].shape, "[4, 4, 3]");
    assert!(imported(17).is_err());
}

/// Detectors compute the extents of a batch as the greatest of floats.
#[test]
fn the_greatest_of_floats_is_a_shape() {
    let model = Model::new(13)
        .input("x", FLOAT, "12")
        .floats("rows", &[2.0, 3.0, 1.5])
        .node("ReduceMax", "rows", "greatest", &[int("keepdims", 1)])
        .node("Cast", "greatest", "height", &[int("to", INT64.into())])
        .ints("rest", &[-1])
        .node("Concat", "height rest", "shape", &[int("axis", 0)])
        .node("Reshape", "x shape", "y", &[])
        .output("y");
    let import = import(&model.save("greatest"), &Options::default()).expect("a constant shape");
    assert_eq!(import.outputs[0].shape, "[3, 4]");
}

#[test]
fn data_movement_becomes_index_arithmetic() {
    let model = Model::new(13)
        .input("x", FLOAT, "n 6 8")
        .ints("starts", &[-1, 1])
        .ints("ends", &[-9999, 100])
        .ints("axes", &[1, 2])
        .ints("steps", &[-2, 3])
        .ints("sizes", &[2, 4])
        .ints("pads", &[0, 1, 0, 0, 0, 2])
        .ints("flat", &[0, -1])
        .node("Slice", "x starts ends axes steps", "sliced", &[])
        .node("Split", "x sizes", "first second", &[int("axis", 1)])
        .node("Concat", "second x first", "joined", &[int("axis", 1)])
        .node("Pad", "joined pads", "padded", &[])
        .node("Reshape", "padded flat", "y", &[])
        .output("sliced")
        .output("y");
    golden("movement", model);
}

#[test]
fn scalars_become_literals() {
    let model = Model::new(13)
        .input("x", FLOAT, "4")
        .floats("tenth", &[0.1])
        .floats("infinity", &[f32::INFINITY])
        .floats("many", &[1.0, 2.0, 3.0, 4.0])
        .node("Mul", "x tenth", "scaled", &[])
        .node("Min", "scaled infinity", "bounded", &[])
        .node("Div", "bounded many", "y", &[])
        .output("y");
    golden("literals", model);
}

#[test]
fn indices_may_count_from_the_end() {
    let model = Model::new(13)
        .input("ids", INT64, "batch sequence")
        .weights("table", &[100, 8])
        .scalar("last", -1)
        .node("Gather", "table ids", "rows", &[])
        .node("Gather", "rows last", "y", &[int("axis", 1)])
        .output("y");
    golden("gather", model);
}

#[test]
fn outputs_keep_the_order_of_the_model() {
    let model = Model::new(13)
        .input("x", FLOAT, "4")
        .node("Relu", "x", "inner", &[])
        .node("Exp", "inner", "outer", &[])
        .output("outer")
        .output("inner")
        .output("x");
    golden("outputs", model);
}

#[test]
fn functions_are_inlined_with_their_attributes() {
    let model = Model::new(13)
        .node("Softmax", "a", "b", &[reference("axis", "over")])
        .node("Mul", "b b", "c", &[])
        .function("Squared", "a", "c")
        .input("x", FLOAT, "3 4")
        .node("Squared", "x", "first", &[int("over", 0)])
        .local()
        .node("Squared", "first", "y", &[int("over", 1)])
        .local()
        .output("y");
    golden("functions", model);
}

#[test]
fn values_of_run_time_follow_from_declared_shapes() {
    let model = Model::new(18)
        .input("x", FLOAT, "n 6 8")
        .input("shape", INT64, "2")
        .input("axes", INT64, "1")
        .input("starts", INT64, "1")
        .input("ends", INT64, "1")
        .input("pads", INT64, "6")
        .node("Reshape", "x shape", "reshaped", &[])
        .node("ReduceSum", "x axes", "summed", &[])
        .node("Slice", "x starts ends axes", "sliced", &[])
        .node("Pad", "sliced pads", "padded", &[])
        .shaped_output("reshaped", "n 48")
        .shaped_output("summed", "n 1 8")
        .shaped_output("sliced", "n 6 3")
        .shaped_output("padded", "n 9 3");
    golden("run_time", model);
}

#[test]
fn axes_that_the_declared_shape_leaves_open_are_chosen_by_the_call() {
    let model = Model::new(18)
        .input("x", FLOAT, "3 2 2")
        .input("axes", INT64, "1")
        .node("ReduceMax", "x axes", "y", &[int("keepdims", 0)])
        .shaped_output("y", "3 2");
    golden("choices", model);
}

/// Only one value of the input gives the declared shape, wherever the node is.
#[test]
fn other_values_are_found_by_trial() {
    let model = Model::new(18)
        .input("count", INT64, "")
        .scalar("zero", 0)
        .scalar("one", 1)
        .scalar("two", 2)
        .node("Range", "zero count one", "range", &[])
        .node("Mul", "range two", "y", &[])
        .shaped_output("y", "5");
    golden("trial", model);
}

#[test]
fn ranges_of_floats_over_an_extent_are_known() {
    let model = Model::new(13)
        .input("x", FLOAT, "n 4")
        .floats("zero", &[0.0])
        .floats("two", &[2.0])
        .floats("half", &[0.5])
        .ints("first", &[0])
        .node("Shape", "x", "shape", &[])
        .node("Gather", "shape first", "extent", &[])
        .node("Cast", "extent", "limit", &[int("to", FLOAT.into())])
        .node("Range", "zero limit two", "range", &[])
        .node("Add", "range half", "y", &[])
        .node("Range", "half limit two", "centers", &[])
        .output("y")
        .output("centers");
    let import = golden("range", model);
    assert_eq!(import.outputs[0].shape, "[(n + 1) // 2]");
    // Of 0.5, 2.5, … before n.
    assert_eq!(import.outputs[1].shape, "[(n + 1) // 2]");
}

#[test]
fn constant_branches_are_decided_and_short_loops_written_out() {
    let branch = |op: &str| Model::new(13).node(op, "x", "result", &[]).output("result");
    let body = Model::new(13)
        .input("iteration", INT64, "")
        .input("go", INT64, "")
        .input("state", FLOAT, "4")
        .node("Identity", "go", "go_on", &[])
        .node("Tanh", "state", "next", &[])
        .node("Neg", "next", "scanned", &[])
        .output("go_on")
        .output("next")
        .output("scanned");
    let model = Model::new(13)
        .input("x", FLOAT, "4")
        .scalar("two", 2)
        .scalar("three", 3)
        .node("Less", "two three", "condition", &[])
        .node(
            "If",
            "condition",
            "chosen",
            &[graph("then_branch", branch("Relu")), graph("else_branch", branch("Sorcery"))],
        )
        .node("Loop", "two - chosen", "last all", &[graph("body", body)])
        .output("last")
        .output("all");
    golden("branches", model);
}

/// `x.squeeze(-1)` as PyTorch exports it; `condition` computes `c` from `dim` and `one`.
fn squeezed(condition: impl Fn(Model) -> Model, swapped: bool) -> Model {
    let drop = || Model::new(13).node("Squeeze", "x last", "less", &[]).output("less");
    let keep = || Model::new(13).node("Identity", "x", "same", &[]).output("same");
    let (yes, no) = if swapped { (keep(), drop()) } else { (drop(), keep()) };
    let model = Model::new(13)
        .input("x", FLOAT, "batch 8 w")
        .ints("last", &[-1])
        .ints("one", &[1])
        .node("Shape", "x", "shape", &[])
        .node("Gather", "shape last", "dim", &[int("axis", 0)]);
    condition(model).node("If", "c", "y", &[graph("then_branch", yes), graph("else_branch", no)])
}

#[test]
fn equalities_of_sizes_decide_for_which_calls_a_network_is() {
    let equal = |model: Model| model.node("Equal", "dim one", "c", &[]);
    let import = golden("squeezed", squeezed(equal, false).output("y"));
    assert_eq!(import.outputs[0].shape, "[batch, 8]");
    // The declared rank says that the axis stays.
    let import = golden("unsqueezed", squeezed(equal, false).shaped_output("y", "batch 8 w"));
    assert_eq!(import.outputs[0].shape, "[batch, 8, w]");
    // A second condition on the same sizes is decided in the same way.
    let keep = || Model::new(13).node("Relu", "y", "b", &[]).output("b");
    let drop = || Model::new(13).node("Sorcery", "y", "a", &[]).output("a");
    let twice = squeezed(equal, false).shaped_output("y", "batch 8 w").node(
        "If",
        "c",
        "z",
        &[graph("then_branch", drop()), graph("else_branch", keep())],
    );
    let import = golden("unsqueezed_twice", twice.output("z"));
    assert_eq!(import.outputs[1].shape, "[batch, 8, w]");
    // The same condition in other words.
    let unequal = |model: Model| {
        let is_zero = |model: Model| model.scalar("zero", 0).node("Equal", "number zero", "c", &[]);
        is_zero(model.node("Equal", "dim one", "own", &[]).node(
            "Cast",
            "own",
            "number",
            &[int("to", INT64.into())],
        ))
    };
    let import = golden("squeezed", squeezed(unequal, true).output("y"));
    assert_eq!(import.outputs[0].shape, "[batch, 8]");
}

#[test]
fn a_second_condition_is_decided_by_the_first() {
    let again = |name: &str, op: &str, from: &str, to: &str| {
        Model::new(13).node(op, from, to, &[]).output(name)
    };
    let model = squeezed(|model| model.node("Equal", "dim one", "c", &[]), false)
        .node("Equal", "dim one", "again", &[])
        .node("Not", "again", "differs", &[])
        .node(
            "If",
            "differs",
            "z",
            &[
                graph("then_branch", again("a", "Sorcery", "y", "a")),
                graph("else_branch", again("b", "Relu", "y", "b")),
            ],
        )
        .output("z");
    let import = golden("squeezed_twice", model);
    assert_eq!(import.outputs[0].shape, "[batch, 8]");
}

#[test]
fn quantised_chains_are_integers_with_their_channels_last() {
    let pads = || ints("pads", &[1, 1, 1, 1]);
    let model = Model::new(13)
        .input("x", FLOAT, "1 3 8 8")
        .level("in", 0.25, 119)
        .level("act", 0.5, 0)
        .level("sum", 0.75, 128)
        .quantized_weights("w1", &[8, 3, 3, 3], 8, 3)
        .quantized_bias("b1", 8, 0.125)
        .quantized_weights("w2", &[8, 1, 3, 3], 8, 3)
        .quantized_weights("w3", &[8, 5], 5, 3)
        .requantized("x", "in", "image")
        .node("Conv", "image w1 b1", "conv", &[pads()])
        .node("Relu", "conv", "relu", &[])
        .requantized("relu", "act", "a")
        .node("MaxPool", "a", "pool", &[ints("kernel_shape", &[3, 3]), pads()])
        .requantized("pool", "act", "p")
        .node("Conv", "p w2", "depthwise", &[pads(), int("group", 8)])
        .requantized("depthwise", "act", "d")
        .node("Add", "d p", "added", &[])
        .requantized("added", "sum", "s")
        .node("GlobalAveragePool", "s", "mean", &[])
        .requantized("mean", "sum", "m")
        .node("Flatten", "m", "flat", &[])
        .requantized("flat", "sum", "f")
        .node("Gemm", "f w3", "product", &[])
        .requantized("product", "act", "y")
        .output("y");
    golden("quantized", model);
}

/// A bias with another scale, a sum that may overflow, a value with two readers, and a scale that is
/// not constant.
#[test]
fn other_quantised_forms_stay_as_written() {
    let model = Model::new(13)
        .input("x", FLOAT, "1 70000")
        .input("scale", FLOAT, "")
        .level("act", 0.5, 128)
        .quantized_weights("w1", &[70000, 2], 2, 127)
        .quantized_weights("w2", &[2, 3], 3, 3)
        .quantized_bias("b2", 3, 0.3)
        .requantized("x", "act", "a")
        .node("MatMul", "a w1", "overflows", &[])
        .requantized("overflows", "act", "b")
        .node("Gemm", "b w2 b2", "biased", &[])
        .requantized("biased", "act", "c")
        .node("MatMul", "b w2", "twice", &[])
        .requantized("twice", "act", "d")
        .node("MatMul", "b w2", "scaled", &[])
        .node("QuantizeLinear", "scaled scale act_z", "e_q", &[])
        .node("DequantizeLinear", "e_q scale act_z", "e", &[])
        .node("Sum", "c d twice e", "y", &[])
        .output("y");
    golden("quantized_as_written", model);
}

#[test]
fn qlinear_operators_are_the_same_integers() {
    let model = Model::new(13)
        .input("x", UINT8, "1 4 6 6")
        .level("in", 0.25, 3)
        .level("w", 0.5, 130)
        .level("act", 0.5, 0)
        .raw("w", UINT8, &[8, 4, 1, 1], vec![131; 32])
        .raw("b", INT32, &[8], 7_i32.to_le_bytes().repeat(8))
        .node("QLinearConv", "x in_s in_z w w_s w_z act_s act_z b", "y", &[])
        .output("y");
    golden("qlinear", model);
}

/// One attention layer of a decoder, whose cache of keys grows by `new` rows.
fn cached() -> Model {
    Model::new(17)
        .input("q", FLOAT, "batch new 8")
        .input("k", FLOAT, "batch new 8")
        .input("past.0.key", FLOAT, "batch past 8")
        .node("Concat", "past.0.key k", "present.0.key", &[int("axis", -2)])
        .node("Transpose", "present.0.key", "columns", &[ints("perm", &[0, 2, 1])])
        .node("MatMul", "q columns", "scores", &[])
        .node("Softmax", "scores", "weights", &[])
        .node("MatMul", "weights present.0.key", "y", &[])
        .output("y")
        .output("present.0.key")
}

#[test]
fn a_cache_is_updated_in_place() {
    let in_place = vec![("past.*.key".to_string(), "present.*.key".to_string())];
    let options = Options { in_place, ..Options::default() };
    let import = golden_with("cache", cached(), &options);
    let shown: Vec<_> = import.inputs.iter().map(|one| (&one.shape[..], one.inout)).collect();
    let expected =
        [("[batch, new, 8]", false), ("[batch, new, 8]", false), ("[batch, capacity, 8]", true)];
    assert_eq!(shown, expected);
    assert_eq!(import.outputs.len(), 1);
}

/// The shapes of Keras: int32, with the greatest number as the end of a slice.
#[test]
fn shapes_that_are_computed_in_32_bits_are_known() {
    let model = Model::new(13)
        .input("x", FLOAT, "batch 4 6")
        .raw("end", INT32, &[1], i32::MAX.to_le_bytes().to_vec())
        .raw("begin", INT32, &[1], 0_i32.to_le_bytes().to_vec())
        .raw("rest", INT32, &[1], (-1_i32).to_le_bytes().to_vec())
        .ints("any", &[-1])
        .ints("four", &[4])
        .node("Slice", "x begin end", "sliced", &[])
        .node("Shape", "sliced", "shape", &[])
        .node("Cast", "shape", "narrow", &[int("to", 6)])
        .node("Slice", "narrow begin one", "first", &[])
        .raw("one", INT32, &[1], 1_i32.to_le_bytes().to_vec())
        .node("Concat", "first rest", "flat", &[int("axis", 0)])
        .node("Cast", "flat", "wide", &[int("to", 7)])
        .node("Reshape", "sliced wide", "y", &[])
        // The `expand` of TorchScript: -1 keeps an extent.
        .node("Cast", "first", "first64", &[int("to", 7)])
        .node("Concat", "first64 four", "to", &[int("axis", 0)])
        .node("Equal", "to any", "keeps", &[])
        .node("Where", "keeps four to", "chosen", &[])
        .node("Expand", "scalar chosen", "z", &[])
        .weights("scalar", &[1])
        .output("y")
        .output("z");
    golden("narrow_shapes", model);
}

#[test]
fn an_image_of_run_time_extents_is_resized() {
    let model = Model::new(13)
        .input("x", FLOAT, "1 2 h w")
        .input("like", FLOAT, "1 2 rows columns")
        .floats("scales", &[1.0, 1.0, 1.5, 2.0])
        .node("Shape", "like", "sizes", &[])
        .node("Resize", "x - - sizes", "y", &[text("mode", "linear")])
        .node("Resize", "x - scales", "z", &[text("mode", "nearest")])
        .output("y")
        .output("z");
    golden("resize", model);
}

#[test]
fn trees_are_walked_in_a_recurrence() {
    let model = Model::new(17)
        .input("x", FLOAT, "rows 3")
        .node(
            "TreeEnsembleRegressor",
            "x",
            "y",
            &[
                ints("nodes_treeids", &[0, 0, 0, 1]),
                ints("nodes_nodeids", &[0, 1, 2, 0]),
                ints("nodes_featureids", &[2, 0, 0, 0]),
                strings("nodes_modes", "BRANCH_LT LEAF LEAF LEAF"),
                floats("nodes_values", &[0.5, 0.0, 0.0, 0.0]),
                ints("nodes_truenodeids", &[1, 0, 0, 0]),
                ints("nodes_falsenodeids", &[2, 0, 0, 0]),
                ints("target_treeids", &[0, 0, 1]),
                ints("target_nodeids", &[1, 2, 0]),
                ints("target_ids", &[0, 0, 0]),
                floats("target_weights", &[1.0, 2.0, 3.0]),
            ],
        )
        .domain("ai.onnx.ml")
        .output("y");
    let import = golden("trees", model);
    let value = import.params.iter().find(|param| param.name == "y_value").expect("a param");
    // `x < 0.5` is `x <=` the number before.
    assert_eq!(value.data[..4], 0.5_f32.next_down().to_le_bytes());
}

#[test]
fn a_linear_classifier_has_labels_and_probabilities() {
    let model = Model::new(17)
        .input("x", FLOAT, "rows 2")
        .node(
            "LinearClassifier",
            "x",
            "label scores",
            &[
                floats("coefficients", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
                floats("intercepts", &[0.1, 0.2, 0.3]),
                ints("classlabels_ints", &[3, 5, 9]),
                text("post_transform", "SOFTMAX"),
            ],
        )
        .domain("ai.onnx.ml")
        .node("ZipMap", "scores", "maps", &[ints("classlabels_int64s", &[3, 5, 9])])
        .domain("ai.onnx.ml")
        .output("label")
        .output("maps");
    golden("classifier", model);
}

#[test]
fn operators_of_onnxruntime_are_those_that_they_join() {
    let model = Model::new(17)
        .input("x", FLOAT, "batch 5 8")
        .weights("w", &[8, 24])
        .weights("b", &[24])
        .weights("gamma", &[8])
        .node("Attention", "x w b", "attended", &[int("num_heads", 2)])
        .domain("com.microsoft")
        .node("SkipLayerNormalization", "attended x gamma gamma", "normal", &[])
        .domain("com.microsoft")
        .node("BiasGelu", "normal gamma", "gelu", &[])
        .domain("com.microsoft")
        .node("FusedMatMul", "gelu normal", "y", &[int("transB", 1)])
        .domain("com.microsoft")
        .output("y");
    golden("contrib", model);
}

/// Numbers of at most 8 bits: an input of codes, packed weights, an output of two bits.
#[test]
fn narrow_types_are_numbers_between_their_codes() {
    let (e4m3fn, e5m2fnuz, int4, uint2) = (17, 20, 22, 25);
    let model = Model::new(25)
        .input("x", e4m3fn, "batch 8")
        .input("z", e5m2fnuz, "3 5")
        .raw("w", int4, &[8, 3], (0..12).map(|at| 0x10 + at).collect())
        .floats("scale", &[0.5, 0.25, 2.0])
        .floats("unit", &[1.0])
        .raw("zero", uint2, &[1], vec![1])
        .node("Cast", "x", "numbers", &[int("to", 1)])
        .node("DequantizeLinear", "w scale", "weights", &[int("axis", 1)])
        .node("MatMul", "numbers weights", "y", &[])
        .node("Cast", "y", "narrow", &[int("to", 19), int("saturate", 0)])
        .node("Transpose", "z", "turned", &[])
        .node("Cast", "z", "wide", &[int("to", 1)])
        .node("QuantizeLinear", "wide unit zero", "q", &[])
        .output("y")
        .output("narrow")
        .output("turned")
        .output("q");
    let import = golden("narrow", model);
    let shown: Vec<_> =
        import.inputs.iter().map(|one| (one.dtype.name(), &one.shape[..])).collect();
    assert_eq!(shown, [("float8_e4m3fn", "[batch, 8]"), ("uint8", "[3, 5]")]);
    let shown: Vec<_> =
        import.outputs.iter().map(|one| (one.dtype.name(), &one.shape[..])).collect();
    let expected = [
        ("float32", "[batch, 3]"),
        ("float8_e5m2", "[batch, 3]"),
        ("uint8", "[5, 3]"),
        ("uint8", "[4]"),
    ];
    assert_eq!(shown, expected);
    // Two elements of `w` are in a byte, the first one in the low half.
    assert_eq!(import.params[0].data[..4], [0, 1, 1, 1]);
}

#[test]
fn sequences_are_lists_of_the_importer() {
    let model = Model::new(17)
        .input("x", FLOAT, "batch 6")
        .scalar("two", 2)
        .scalar("last", -1)
        .node("SplitToSequence", "x two", "parts", &[int("axis", 1)])
        .node("SequenceAt", "parts last", "end", &[])
        .node("SequenceInsert", "parts end two", "more", &[])
        .node("SequenceLength", "more", "count", &[])
        .node("ConcatFromSequence", "more", "y", &[int("axis", 1)])
        .output("y")
        .output("count")
        .output("parts");
    let import = golden("sequences", model);
    let names: Vec<&str> = import.outputs.iter().map(|one| &one.name[..]).collect();
    assert_eq!(names, ["y", "count", "parts_0", "parts_1", "parts_2"]);
}

/// Operators of `onnx_rare.te`, a choice of rows, and a loop whose declared result says how often
/// it runs.
#[test]
fn a_suppression_has_a_constant_number_of_rows() {
    let model = Model::new(13)
        .input("boxes", FLOAT, "2 100 4")
        .input("scores", FLOAT, "2 3 100")
        .input("overlap", FLOAT, "1")
        .ints("most", &[5])
        .ints("axis", &[1])
        .ints("last", &[2])
        .node("NonMaxSuppression", "boxes scores most overlap", "all", &[])
        .node("Gather", "all last", "column", &[int("axis", 1)])
        .node("Squeeze", "column axis", "places", &[])
        .input("least", FLOAT, "")
        .input("at_run_time", INT64, "")
        .node(
            "NonMaxSuppression",
            "boxes scores at_run_time - least",
            "few",
            &[int("center_point_box", 1)],
        )
        .node("NonMaxSuppression", "boxes scores", "none", &[])
        .output("places")
        .shaped_output("few", "7 3")
        .shaped_output("none", "2 3");
    golden("suppression", model);
}

#[test]
fn rare_operators_are_calls_and_stages() {
    let body = Model::new(27)
        .input("iteration", INT64, "")
        .input("go", INT64, "")
        .input("state", FLOAT, "rows")
        .node("Identity", "go", "go_on", &[])
        .node("Tanh", "state", "next", &[])
        .node("Identity", "next", "scanned", &[])
        .output("go_on")
        .output("next")
        .output("scanned");
    let model = Model::new(27)
        .input("x", FLOAT, "4")
        .input("divisor", FLOAT, "4")
        .input("rows", 9, "4")
        .input("trip", INT64, "")
        .input("qkv", FLOAT, "1 steps 8")
        .node("Mod", "x divisor", "rest", &[int("fmod", 1)])
        .node("Compress", "rest rows", "chosen", &[int("axis", 0)])
        .node("Loop", "trip - x", "state scan", &[graph("body", body)])
        .node(
            "LinearAttention",
            "qkv qkv qkv",
            "attended",
            &[int("q_num_heads", 2), int("kv_num_heads", 2), text("update_rule", "linear")],
        )
        .shaped_output("chosen", "3")
        .shaped_output("scan", "2 4")
        .output("attended");
    golden("rare", model);
}
