//! The operators, by family, and the table of them.

mod activation;
mod attention;
mod blocks;
mod contrib;
mod conv;
mod detection;
mod dilated;
mod einsum;
mod elementwise;
mod gather;
mod integer;
mod loss;
mod ml;
mod moved;
mod movement;
mod norm;
mod pool;
mod product;
mod quant;
mod rare;
mod recurrent;
mod reduce;
mod resize;
mod resized;
mod sampling;
mod selection;
mod sequence;
mod shape;
mod signal;
mod slicing;
mod training;
mod windows;

use crate::context::Context;
use crate::graph::T;
use crate::node::{Node, Outcome};

pub(crate) use attention::{flex_result, flex_scores, flex_softmax};
pub(crate) use blocks::Dequantized;
pub(crate) use contrib::grouped;
pub(crate) use dilated::Taps;
pub(crate) use integer::{Integers, observe};
pub(crate) use movement::{element, first_axis_to, stack};
pub(crate) use sequence::Special;

/// Imports a node: returns its outputs.
pub(crate) type Handler = fn(&mut Context, &Node) -> Outcome<Vec<T>>;

/// The operators of the default domain.
const DEFAULT: &[(&str, Handler)] = &[
    ("Abs", elementwise::abs),
    ("Acos", activation::acos),
    ("Acosh", activation::acosh),
    ("Add", elementwise::add),
    ("AffineGrid", sampling::affine_grid),
    ("And", elementwise::and),
    ("ArgMax", reduce::arg_max),
    ("ArgMin", reduce::arg_min),
    ("Asin", activation::asin),
    ("Asinh", activation::asinh),
    ("Atan", elementwise::atan),
    ("Atanh", activation::atanh),
    ("Attention", attention::attention),
    ("AveragePool", pool::average_pool),
    ("BatchNormalization", norm::batch_norm),
    ("Bernoulli", rare::random),
    ("BitCast", rare::bit_cast),
    ("BitShift", elementwise::bit_shift),
    ("BitwiseAnd", elementwise::bitwise_and),
    ("BitwiseNot", elementwise::bitwise_not),
    ("BitwiseOr", elementwise::bitwise_or),
    ("BitwiseXor", elementwise::bitwise_xor),
    ("BlackmanWindow", signal::blackman),
    ("Cast", elementwise::cast),
    ("CastLike", elementwise::cast_like),
    ("CausalConvWithState", attention::causal_conv),
    ("Ceil", elementwise::ceil),
    ("Celu", activation::celu),
    ("CenterCropPad", slicing::center_crop_pad),
    ("Clip", elementwise::clip),
    ("Col2Im", signal::col2im),
    ("Compress", selection::compress),
    ("Concat", movement::concat),
    ("ConcatFromSequence", sequence::concat),
    ("Constant", shape::constant),
    ("ConstantOfShape", shape::constant_of_shape),
    ("Conv", conv::conv),
    ("ConvInteger", quant::conv_integer),
    ("ConvTranspose", conv::conv_transpose),
    ("Cos", elementwise::cos),
    ("Cosh", activation::cosh),
    ("CumProd", reduce::cum_prod),
    ("CumSum", reduce::cum_sum),
    ("DFT", signal::dft),
    ("DeformConv", rare::deform_conv),
    ("DepthToSpace", slicing::depth_to_space),
    ("DequantizeLinear", quant::dequantize),
    ("Det", rare::det),
    ("Div", elementwise::div),
    ("Dropout", elementwise::dropout),
    ("DynamicQuantizeLinear", quant::dynamic_quantize),
    ("Einsum", einsum::einsum),
    ("Elu", activation::elu),
    ("Equal", elementwise::equal),
    ("Erf", elementwise::erf),
    ("Exp", elementwise::exp),
    ("Expand", slicing::expand),
    ("EyeLike", shape::eye_like),
    ("Flatten", movement::flatten),
    ("Floor", elementwise::floor),
    ("GRU", recurrent::gru),
    ("Gather", gather::gather),
    ("GatherElements", gather::gather_elements),
    ("GatherND", gather::gather_nd),
    ("Gelu", activation::gelu),
    ("Gemm", product::gemm),
    ("GlobalAveragePool", pool::global_average_pool),
    ("GlobalLpPool", pool::global_lp_pool),
    ("GlobalMaxPool", pool::global_max_pool),
    ("Greater", elementwise::greater),
    ("GreaterOrEqual", elementwise::greater_or_equal),
    ("GridSample", sampling::grid_sample),
    ("GroupNormalization", norm::group_norm),
    ("HammingWindow", signal::hamming),
    ("HannWindow", signal::hann),
    ("HardSigmoid", activation::hard_sigmoid),
    ("HardSwish", activation::hard_swish),
    ("Hardmax", norm::hardmax),
    ("Identity", elementwise::identity),
    ("ImageDecoder", rare::image_decoder),
    ("InstanceNormalization", norm::instance_norm),
    ("IsInf", elementwise::is_inf),
    ("IsNaN", elementwise::is_nan),
    ("LRN", norm::local_response_norm),
    ("LSTM", recurrent::lstm),
    ("LayerNormalization", norm::layer_norm),
    ("LeakyRelu", activation::leaky_relu),
    ("Less", elementwise::less),
    ("LessOrEqual", elementwise::less_or_equal),
    ("LinearAttention", rare::linear_attention),
    ("Log", elementwise::log),
    ("LogSoftmax", norm::log_softmax),
    ("LpNormalization", pool::lp_normalization),
    ("LpPool", pool::lp_pool),
    ("MatMul", product::matmul),
    ("MatMulInteger", quant::matmul_integer),
    ("Max", elementwise::max),
    ("MaxPool", pool::max_pool),
    ("MaxUnpool", pool::max_unpool),
    ("Mean", elementwise::mean),
    ("MeanVarianceNormalization", norm::mean_variance_norm),
    ("Min", elementwise::min),
    ("Mish", activation::mish),
    ("Mod", elementwise::modulo),
    ("Mul", elementwise::mul),
    ("Neg", elementwise::neg),
    ("Multinomial", rare::random),
    ("NegativeLogLikelihoodLoss", loss::negative_log_likelihood),
    ("NonMaxSuppression", detection::non_max_suppression),
    ("NonZero", selection::non_zero),
    ("Not", elementwise::not),
    ("OneHot", slicing::one_hot),
    ("Optional", sequence::optional),
    ("OptionalGetElement", sequence::get_element),
    ("OptionalHasElement", sequence::has_element),
    ("Or", elementwise::or),
    ("PRelu", activation::prelu),
    ("Pad", slicing::pad),
    ("Pow", elementwise::pow),
    ("QLinearConv", quant::qlinear_conv),
    ("QLinearMatMul", quant::qlinear_matmul),
    ("QuantizeLinear", quant::quantize),
    ("RMSNormalization", norm::rms_norm),
    ("RNN", recurrent::rnn),
    ("RandomNormal", rare::random),
    ("RandomNormalLike", rare::random),
    ("RandomUniform", rare::random),
    ("RandomUniformLike", rare::random),
    ("Range", shape::range),
    ("Reciprocal", elementwise::reciprocal),
    ("ReduceL1", reduce::l1),
    ("ReduceL2", reduce::l2),
    ("ReduceLogSum", reduce::log_sum),
    ("ReduceLogSumExp", reduce::log_sum_exp),
    ("ReduceMax", reduce::max),
    ("ReduceMean", reduce::mean),
    ("ReduceMin", reduce::min),
    ("ReduceProd", reduce::prod),
    ("ReduceSum", reduce::sum),
    ("ReduceSumSquare", reduce::sum_square),
    ("RegexFullMatch", rare::strings),
    ("Relu", activation::relu),
    ("Reshape", movement::reshape),
    ("Resize", resize::resize),
    ("ReverseSequence", slicing::reverse_sequence),
    ("RoiAlign", sampling::roi_align),
    ("RotaryEmbedding", attention::rotary_embedding),
    ("Round", elementwise::round),
    ("STFT", rare::stft),
    ("Scatter", gather::scatter_elements),
    ("ScatterElements", gather::scatter_elements),
    ("ScatterND", gather::scatter_nd),
    ("Selu", activation::selu),
    ("SequenceAt", sequence::at),
    ("SequenceConstruct", sequence::construct),
    ("SequenceEmpty", sequence::empty),
    ("SequenceErase", sequence::erase),
    ("SequenceInsert", sequence::insert),
    ("SequenceLength", sequence::length),
    ("Shape", shape::shape),
    ("Shrink", activation::shrink),
    ("Sigmoid", elementwise::sigmoid),
    ("Sign", elementwise::sign),
    ("SimplifiedLayerNormalization", norm::rms_norm),
    ("Sin", elementwise::sin),
    ("Sinh", activation::sinh),
    ("Size", shape::size),
    ("Slice", slicing::slice),
    ("Softmax", norm::softmax),
    ("SoftmaxCrossEntropyLoss", loss::softmax_cross_entropy),
    ("Softplus", activation::softplus),
    ("Softsign", activation::softsign),
    ("SpaceToDepth", slicing::space_to_depth),
    ("Split", slicing::split),
    ("SplitToSequence", sequence::split),
    ("Sqrt", elementwise::sqrt),
    ("Squeeze", slicing::squeeze),
    ("StringConcat", rare::strings),
    ("StringNormalizer", rare::strings),
    ("StringSplit", rare::strings),
    ("Sub", elementwise::sub),
    ("Sum", elementwise::sum),
    ("SwiGLU", activation::swiglu),
    ("Swish", activation::swish),
    ("Tan", elementwise::tan),
    ("Tanh", elementwise::tanh),
    ("TensorScatter", signal::tensor_scatter),
    ("TfIdfVectorizer", rare::tf_idf),
    ("ThresholdedRelu", activation::thresholded_relu),
    ("Tile", slicing::tile),
    ("TopK", gather::top_k),
    ("Transpose", slicing::transpose),
    ("Trilu", slicing::trilu),
    ("Unique", selection::unique),
    ("Unsqueeze", slicing::unsqueeze),
    ("Upsample", resize::resize),
    ("Where", elementwise::select),
    ("Xor", elementwise::xor),
];

/// The operators that are the same in the versions 1 to 7 of the default domain.
const SINCE_VERSION_1: &[&str] = &[
    "ArgMax",
    "ArgMin",
    "Constant",
    "Conv",
    "ConvTranspose",
    "DepthToSpace",
    "Flatten",
    "Gather",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "Hardmax",
    "Identity",
    "If",
    "LRN",
    "LogSoftmax",
    "LpNormalization",
    "MatMul",
    "MaxPool",
    "Not",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
    "Shape",
    "Size",
    "Slice",
    "Softmax",
    "Softplus",
    "Softsign",
    "SpaceToDepth",
    "Squeeze",
    "TopK",
    "Transpose",
    "Unsqueeze",
];

/// Refuses operators of versions that are not known.
pub(crate) fn check_version(domain: &str, node: &Node, declared: bool) -> Outcome<()> {
    if domain.is_empty() && declared && node.opset < 7 && !SINCE_VERSION_1.contains(&node.op) {
        return Err(format!("opset {}; the oldest one supported is 7", node.opset).into());
    }
    Ok(())
}

/// Returns how an operator is imported.
pub(crate) fn find(domain: &str, op: &str) -> Option<Handler> {
    let table = match domain {
        "" => DEFAULT,
        "ai.onnx.ml" => ml::TABLE,
        "ai.onnx.preview.training" => training::TABLE,
        "com.microsoft" => contrib::TABLE,
        _ => return None,
    };
    table.iter().find(|(name, _)| *name == op).map(|(_, handler)| *handler)
}
