//! Operators of the domain `com.microsoft`, which onnxruntime writes when it optimises or quantises
//! a model. Most are a few operators of the default domain.

mod attention;
mod blocks;
mod fused;
pub(crate) mod grouped;
mod quantized;

use std::collections::HashMap;

use crate::context::Context;
use crate::graph::T;
use crate::node::{Node, Outcome};
use crate::ops::{Handler, quant, recurrent};
use crate::proto::AttributeProto;

/// The operators of `com.microsoft`.
pub(super) const TABLE: &[(&str, Handler)] = &[
    ("Attention", attention::attention),
    ("BiasGelu", fused::bias_gelu),
    ("DequantizeLinear", quant::dequantize),
    ("DynamicQuantizeLSTM", recurrent::dynamic_quantize_lstm),
    ("DynamicQuantizeMatMul", quantized::dynamic_quantize_matmul),
    ("EmbedLayerNormalization", fused::embed_layer_norm),
    ("FastGelu", fused::fast_gelu),
    ("FusedConv", fused::conv),
    ("FusedGemm", fused::gemm),
    ("FusedMatMul", fused::matmul),
    ("GatherBlockQuantized", blocks::gather_blocks),
    ("Gelu", fused::gelu),
    ("GroupQueryAttention", grouped::group_query_attention),
    ("MatMulIntegerToFloat", quantized::matmul_integer_to_float),
    ("MatMulNBits", blocks::matmul_n_bits),
    ("MultiHeadAttention", attention::multi_head_attention),
    ("QGemm", quantized::gemm),
    ("QLinearAdd", quantized::add),
    ("QLinearAveragePool", quantized::average_pool),
    ("QLinearConcat", quantized::concat),
    ("QLinearGlobalAveragePool", quantized::global_average_pool),
    ("QLinearLeakyRelu", quantized::leaky_relu),
    ("QLinearMul", quantized::mul),
    ("QLinearSigmoid", quantized::sigmoid),
    ("QLinearSoftmax", quantized::softmax),
    ("QuantizeLinear", quant::quantize),
    ("QuickGelu", fused::quick_gelu),
    ("RotaryEmbedding", attention::rotary_embedding),
    ("SkipLayerNormalization", fused::skip_layer_norm),
    ("SkipSimplifiedLayerNormalization", fused::skip_rms_norm),
    ("TransposeMatMul", fused::matmul),
];

/// The version of the default operator set by which parts are imported.
const OPSET: i64 = 17;

/// Imports an operator of the default domain as a part of a node.
fn apply(
    cx: &mut Context,
    part: &str,
    (op, handler): (&str, Handler),
    inputs: &[Option<T>],
    attributes: HashMap<&str, &AttributeProto>,
) -> Outcome<T> {
    let node = Node {
        op,
        opset: OPSET,
        inputs: inputs.to_vec(),
        outputs: vec!["result"],
        readers: vec![0; inputs.len()],
        attributes,
    };
    let hint = cx.hint.clone();
    if !part.is_empty() {
        cx.hint = format!("{hint}_{part}");
    }
    let declared = std::mem::take(&mut cx.declared);
    let result = handler(cx, &node);
    (cx.hint, cx.declared) = (hint, declared);
    result?.into_iter().next().ok_or_else(|| "a part has no result".into())
}

fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto { name: Some(name.to_string()), i: Some(value), ..Default::default() }
}

fn float(name: &str, value: f64) -> AttributeProto {
    let f = Some(value as f32);
    AttributeProto { name: Some(name.to_string()), f, ..Default::default() }
}

fn named(list: &[AttributeProto]) -> HashMap<&str, &AttributeProto> {
    list.iter().map(|a| (a.name.as_deref().unwrap_or(""), a)).collect()
}
