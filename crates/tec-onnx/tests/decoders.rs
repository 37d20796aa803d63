//! Texts of decoders of onnxruntime. `BLESS=1 cargo test -p tec-onnx --test decoders` writes them.

mod common;

use common::{FLOAT, INT64, Model, UINT8, golden, golden_with, int, ints};
use tec_onnx::{Error, Options, import};

/// The attention of a layer, with the numbers of tokens from a mask.
fn grouped() -> Model {
    Model::new(14)
        .input("q", FLOAT, "batch new 32")
        .input("k", FLOAT, "batch new 16")
        .input("v", FLOAT, "batch new 16")
        .input("mask", INT64, "batch total")
        .input("past.key", FLOAT, "batch 1 past 16")
        .input("past.value", FLOAT, "batch 1 past 16")
        .weights("cos", &[64, 4])
        .weights("sin", &[64, 4])
        .ints("one", &[1])
        .scalar("axis", 1)
        .node("ReduceSum", "mask one", "sum", &[int("keepdims", 0)])
        .node("Sub", "sum one", "last", &[])
        .node("Cast", "last", "seqlens_k", &[int("to", 6)])
        .node("Shape", "mask", "shape", &[])
        .node("Gather", "shape axis", "count", &[int("axis", 0)])
        .node("Cast", "count", "total_length", &[int("to", 6)])
        .node(
            "GroupQueryAttention",
            "q k v past.key past.value seqlens_k total_length cos sin",
            "y present.key present.value",
            &[
                int("num_heads", 2),
                int("kv_num_heads", 1),
                int("do_rotary", 1),
                int("local_window_size", 8),
                int("smooth_softmax", 1),
            ],
        )
        .domain("com.microsoft")
        .output("y")
        .output("present.key")
        .output("present.value")
}

#[test]
fn grouped_attention_appends_to_caches_of_any_length() {
    let import = golden("grouped", grouped());
    let shown: Vec<_> = import.outputs.iter().map(|one| &one.shape[..]).collect();
    let cache = "[batch, 1, max(total, past), 16]";
    assert_eq!(shown, ["[batch, new, 32]", cache, cache]);
}

#[test]
fn caches_of_grouped_attention_are_updated_in_place() {
    let in_place = vec![("past.*".to_string(), "present.*".to_string())];
    let options = Options { in_place, ..Options::default() };
    let import = golden_with("grouped_in_place", grouped(), &options);
    let shown: Vec<_> =
        import.inputs.iter().filter(|one| one.inout).map(|one| &one.shape[..]).collect();
    assert_eq!(shown, ["[batch, 1, capacity, 16]"; 2]);
    assert_eq!(import.outputs.len(), 1);
}

#[test]
fn both_caches_of_grouped_attention_are_in_place() {
    let in_place = vec![("past.key".to_string(), "present.key".to_string())];
    let options = Options { in_place, ..Options::default() };
    let error = import(&grouped().save("one_cache"), &options).expect_err("one is not named");
    let Error::Unsupported(refused) = error else { panic!("{error}") };
    assert_eq!(refused.groups[0].reason, "keys and values must both be in place");
}

#[test]
fn forms_of_grouped_attention_that_are_not_supported_are_named() {
    let refused = |attribute: &str, value: i64| {
        let model = Model::new(14)
            .input("q", FLOAT, "1 new 48")
            .raw("last", common::INT32, &[1], vec![0; 4])
            .raw("total", common::INT32, &[], vec![1, 0, 0, 0])
            .node(
                "GroupQueryAttention",
                "q - - - - last total",
                "y",
                &[int("num_heads", 1), int("kv_num_heads", 1), int(attribute, value)],
            )
            .domain("com.microsoft")
            .output("y");
        let error = import(&model.save(attribute), &Options::default()).expect_err("refused");
        let Error::Unsupported(refused) = error else { panic!("{error}") };
        refused.groups[0].reason.clone()
    };
    for (name, value) in [("sliding_window_cache", 1), ("qk_output", 1)] {
        let reason = refused(name, value);
        assert!(reason.starts_with(&format!("`{name}` is not supported")), "{reason}");
    }
}

/// Weights of four bits in blocks: a table, a product, and weights that a node dequantises.
#[test]
fn blocks_of_weights_are_read_packed() {
    let int4 = 22;
    let model = Model::new(21)
        .input("ids", INT64, "batch new")
        .raw("table", UINT8, &[10, 16], vec![0x31; 160])
        .weights("table_scales", &[10, 2])
        .raw("w", UINT8, &[64, 2, 8], vec![0x52; 1024])
        .weights("w_scales", &[64, 2])
        .raw("w_zeros", UINT8, &[64, 1], vec![0x87; 64])
        .raw("u", int4, &[64, 16], (0..512).map(|at| (at % 251) as u8).collect())
        .weights("u_scales", &[4, 16])
        .node(
            "GatherBlockQuantized",
            "table ids table_scales",
            "x",
            &[int("block_size", 16), int("bits", 4)],
        )
        .domain("com.microsoft")
        .node(
            "MatMulNBits",
            "x w w_scales w_zeros",
            "hidden",
            &[int("K", 32), int("N", 64), int("bits", 4), int("block_size", 16)],
        )
        .domain("com.microsoft")
        .node("DequantizeLinear", "u u_scales", "wide", &[int("axis", 0), int("block_size", 16)])
        .node("MatMul", "hidden wide", "y", &[])
        .output("y");
    let import = golden("blocks", model);
    // The elements 0, -8, 0 and -8 of a column of `u` are neighbours, with 8 added.
    let packed = import.params.iter().find(|own| own.name.contains("packed")).expect("a param");
    assert_eq!(packed.shape, [16, 4, 8]);
    assert_eq!(packed.data[..2], [0x08, 0x08]);
}

/// A sum over blocks of many rows reads unpacked weights.
#[test]
fn products_of_many_rows_unpack_weights_first() {
    let model = Model::new(21)
        .input("x", FLOAT, "64 32")
        .raw("w", UINT8, &[16, 32], vec![0x52; 512])
        .weights("s", &[16, 2])
        .node("DequantizeLinear", "w s", "wide", &[int("axis", 1), int("block_size", 16)])
        .node("Transpose", "wide", "turned", &[ints("perm", &[1, 0])])
        .node("MatMul", "x turned", "y", &[])
        .output("y");
    let import = import(&model.save("many_rows"), &Options::default()).expect("an import");
    assert!(import.text.contains("y_unpacked_tiles"), "{}", import.text);
    assert!(!import.text.contains("y_offsets"), "{}", import.text);
}
