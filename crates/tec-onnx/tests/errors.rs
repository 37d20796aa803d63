//! Models that are refused.

mod common;

use common::{FLOAT, INT32, INT64, Model, int, ints, save, text};
use tec_onnx::{DType, Error, Frozen, Options, import};

fn error(name: &str, model: Model) -> Error {
    import(&model.save(name), &Options::default()).expect_err("an error")
}

#[test]
fn all_unsupported_nodes_are_listed_at_once() {
    let model = Model::new(13)
        .input("x", FLOAT, "4")
        .node("NonZero", "x", "a", &[])
        .node("NonZero", "x", "b", &[])
        .node("Sorcery", "x", "c", &[])
        .node("Add", "a c", "d", &[])
        .output("b")
        .output("d");
    let text = error("unsupported", model).to_string();
    assert_eq!(
        text,
        "3 nodes are not supported:\n  \
         2 × NonZero: the number of results depends on the data; the model must \
         declare the shape of the result (`a`, `b`)\n  \
         1 × Sorcery: the operator is not supported (`c`)"
    );
}

#[test]
fn nodes_that_no_output_needs_are_not_imported() {
    let model = Model::new(13)
        .input("x", FLOAT, "4")
        .node("Sorcery", "x", "unused", &[])
        .node("Relu", "x", "y", &[])
        .output("y");
    assert!(import(&model.save("dead"), &Options::default()).is_ok());
}

fn sliced() -> Model {
    Model::new(13)
        .input("x", FLOAT, "8")
        .input("starts", INT64, "1")
        .input("ends", INT64, "1")
        .node("Slice", "x starts ends", "y", &[])
        .output("y")
}

#[test]
fn inputs_that_must_be_constant_are_named_and_can_be_frozen() {
    let Error::Unsupported(unsupported) = error("frozen", sliced()) else { panic!("a list") };
    assert_eq!(unsupported.freeze, ["starts", "ends"]);
    let one = |value: i64| Frozen::Elements {
        dtype: DType::Int64,
        shape: vec![1],
        data: value.to_le_bytes().to_vec().into(),
    };
    let freeze = vec![("starts".to_string(), one(2)), ("ends".to_string(), one(-1))];
    let options = Options { freeze, ..Options::default() };
    let result = import(&sliced().save("frozen"), &options).expect("a text");
    assert_eq!(result.outputs[0].shape, "[5]");
    assert_eq!(result.inputs.len(), 1);
    let (dtype, shape) = (DType::Int64, vec![2]);
    let longer = Frozen::Elements { dtype, shape, data: vec![0; 16].into() };
    let options = Options { freeze: vec![("ends".to_string(), longer)], ..Options::default() };
    let Err(Error::Option(text)) = import(&sliced().save("frozen"), &options) else {
        panic!("another shape")
    };
    assert_eq!(text, "`ends` is int64[1], but the value given for it is int64[2]");
    let with = |text: &str| {
        let numbers = [("starts", text), ("ends", "-1")];
        let number = |(name, text): (&str, &str)| (name.to_string(), Frozen::Number(text.into()));
        let options = Options { freeze: numbers.map(number).into(), ..Options::default() };
        import(&sliced().save("frozen"), &options)
    };
    assert_eq!(with("2").expect("a text").outputs[0].shape, "[5]");
    let Err(Error::Option(text)) = with("2.5") else { panic!("no integer") };
    assert_eq!(text, "`starts` has elements of type int64, and `2.5` is none");
}

#[test]
fn options_must_name_what_the_model_has() {
    let dims = vec![("batch".to_string(), 1)];
    let error = import(&sliced().save("options"), &Options { dims, ..Options::default() });
    let text = error.expect_err("an error").to_string();
    assert_eq!(text, "the model has no dimension `batch`; its dimensions: none");
}

#[test]
fn options_name_dimensions_as_the_model_or_the_text_does() {
    let model = || {
        Model::new(13).input("x", FLOAT, "p2o.Dim.0 3 n").node("Relu", "x", "y", &[]).output("y")
    };
    let shape = |name: &str| {
        let dims = vec![(name.to_string(), 2)];
        let options = Options { dims, ..Options::default() };
        import(&model().save("dots"), &options).map(|one| one.outputs[0].shape.clone())
    };
    assert_eq!(shape("p2o.Dim.0").expect("a text"), "[2, 3, n]");
    assert_eq!(shape("p2o_Dim_0").expect("a text"), "[2, 3, n]");
    assert_eq!(shape("dots.n").expect("a text"), "[p2o_Dim_0, 3, 2]");
    let text = shape("m").expect_err("an error").to_string();
    assert_eq!(text, "the model has no dimension `m`; its dimensions: n, p2o_Dim_0");
}

#[test]
fn an_option_names_one_of_two_dimensions_with_the_same_identifier() {
    let model = Model::new(13).input("x", FLOAT, "a.b a_b").node("Relu", "x", "y", &[]).output("y");
    let options = Options { dims: vec![("a_b".to_string(), 2)], ..Options::default() };
    let result = import(&model.save("twins"), &options).expect("a text");
    assert_eq!(result.outputs[0].shape, "[a_b, 2]");
}

#[test]
fn dimensions_without_a_name_are_not_equal() {
    let model =
        Model::new(13).input("x", FLOAT, "-1 3 ? ?").node("Relu", "x", "y", &[]).output("y");
    let result = import(&model.save("nameless"), &Options::default()).expect("a text");
    assert_eq!(result.outputs[0].shape, "[x_dim0, 3, x_dim2, x_dim3]");
}

#[test]
fn shapes_that_overflow_are_errors() {
    let large = i64::MAX.to_string();
    let model = Model::new(13)
        .input("x", FLOAT, &format!("{large} {large}"))
        .node("Flatten", "x", "y", &[int("axis", 2)])
        .output("y");
    let text = error("overflow", model).to_string();
    assert!(text.contains("overflows"), "{text}");
}

#[test]
fn values_that_no_node_computes_are_errors() {
    let model = Model::new(13).node("Relu", "nothing", "y", &[]).output("y");
    assert_eq!(error("missing", model).to_string(), "invalid model: no node computes `nothing`");
}

/// Every prefix and many single changes of a valid file give a result or an error.
#[test]
fn damaged_files_are_errors() {
    let model = || {
        Model::new(13)
            .input("x", FLOAT, "batch 2 8 8")
            .weights("w", &[2, 2, 3, 3])
            .ints("shape", &[0, -1])
            .node("Conv", "x w", "c", &[common::ints("pads", &[1, 1, 1, 1])])
            .node("Reshape", "c shape", "r", &[])
            .node("Softmax", "r", "y", &[])
            .output("y")
    };
    let data = model().encode();
    for end in 0..data.len() {
        let _ = import(&save("damaged", &data[..end]), &Options::default());
    }
    for at in 0..data.len() {
        for flip in [1, 0x40, 0xff] {
            let mut changed = data.clone();
            changed[at] ^= flip;
            let _ = import(&save("damaged", &changed), &Options::default());
        }
    }
}

#[test]
fn names_in_messages_are_short() {
    let name = "x".repeat(100_000);
    let model = Model::new(13).node("Relu", &name, "y", &[]).output("y");
    assert!(error("long", model).to_string().len() < 200);
}

#[test]
fn caches_that_cannot_be_updated_in_place_are_refused() {
    let model = |dim: &str, first: &str| {
        Model::new(17)
            .input("past", FLOAT, dim)
            .input("new", FLOAT, "1 4")
            .node("Concat", first, "joined", &[int("axis", 0)])
            .node("Identity", "joined", "present", &[])
            .node("Relu", "past", "other", &[])
            .output("present")
            .output("other")
    };
    let refused = |model: Model, past: &str, present: &str| {
        let in_place = vec![(past.to_string(), present.to_string())];
        let options = Options { in_place, ..Options::default() };
        match import(&model.save("in_place"), &options) {
            Ok(import) => import.text,
            Err(error) => error.to_string(),
        }
    };
    let plain = || model("rows 4", "past new");
    assert!(refused(plain(), "past", "present").contains("update past[rows + i0: 1, i1: 4]"));
    let cases = [
        (plain(), "past.*", "present", "either both names have one `*`, or neither has"),
        (plain(), "key", "present", "the model has no such input"),
        (plain(), "past", "absent", "no output `absent`"),
        (plain(), "past", "other", "the output `other` is not `past` with rows behind it"),
        (model("rows 4", "new past"), "past", "present", "no single node appends rows to it"),
        (model("capacity 4", "past new"), "past", "present", "a dimension `capacity` of its own"),
    ];
    for (model, past, present, text) in cases {
        let error = refused(model, past, present);
        assert!(error.contains(text), "{past} {present}: {error}");
    }
}

#[test]
fn initial_states_have_the_rank_and_the_batch_of_the_input() {
    let with = |state: &str| {
        let model = Model::new(14)
            .input("x", FLOAT, "2 n 4")
            .weights("w", &[1, 32, 4])
            .weights("r", &[1, 32, 8])
            .input("h", FLOAT, state)
            .node("LSTM", "x w r - - h", "y", &[int("hidden_size", 8)])
            .output("y");
        import(&model.save("states"), &Options::default())
    };
    let text = with("1 m 8").expect("a text").text;
    assert!(text.contains("assume m == n") || text.contains("assume n == m"), "{text}");
    for rank in ["", "8", "1 8", "1 1 1 8"] {
        assert!(matches!(with(rank), Err(Error::Unsupported(_))), "{rank}");
    }
}

#[test]
fn padding_and_masks_of_run_time_that_have_no_form_are_refused() {
    let padded = |kernel: i64, stride: i64| {
        let attributes = [ints("strides", &[stride]), text("auto_pad", "SAME_UPPER")];
        Model::new(13)
            .input("x", FLOAT, "1 4 n")
            .weights("w", &[8, 4, kernel])
            .node("Conv", "x w", "y", &attributes)
            .output("y")
    };
    assert!(import(&padded(3, 2).save("padded"), &Options::default()).is_ok());
    let reason = error("padded", padded(2, 3)).to_string();
    assert!(reason.contains("`auto_pad` of a run-time extent is not supported"), "{reason}");
    // The ends of the sequences, and their starts.
    let masked = Model::new(17)
        .input("x", FLOAT, "2 5 8")
        .input("mask", INT32, "4")
        .weights("w", &[8, 24])
        .weights("b", &[24])
        .node("Attention", "x w b mask", "y", &[int("num_heads", 2)])
        .domain("com.microsoft")
        .output("y");
    let reason = error("starts", masked).to_string();
    assert!(reason.contains("extents 4 and 2 differ"), "{reason}");
}
