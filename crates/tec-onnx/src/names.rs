//! Names of the model as identifiers of the language.

use std::collections::{HashMap, HashSet};

use crate::Options;
use crate::proto::{GraphProto, tensor_shape_proto, type_proto};

/// The largest number of characters of an identifier.
const MAX_CHARS: usize = 72;
/// Most characters of the name of a network.
const MAX_SYMBOL: usize = 200;

/// Words that are no names of tensors: those of the language, and its functions.
const RESERVED: &str = "\
    import def reducer kernel network schedule input param reduce compute output let if then \
    else assume assert for in use knob or and not as identity true false onnx ml narrow rare \
    bool auto_inline_injective float64 float32 float16 bfloat16 int8 int16 int32 int64 uint8 \
    uint16 uint32 uint64 index min max abs clamp floor ceil round trunc sqrt rsqrt exp exp2 \
    expm1 log log2 tanh sigmoid erf sin cos tan atan pow fma tf32 popcount is_nan min_value max_value \
    inf sum prod any all argmin argmax select state scan";

/// Names that a kernel cannot have because the C library or C uses them.
const C_NAMES: &str = "\
    auto break case char const continue default do double else enum extern float for goto if \
    inline int long register restrict return short signed sizeof static struct switch typedef \
    union unsigned void volatile while bool class delete explicit export false friend mutable \
    namespace new operator private protected public template this throw true try typename \
    using virtual acos asin atan ceil cos cosh erf exp fabs floor fmod gamma index log main \
    malloc free pow printf rand round select send sin sinh sqrt tan tanh time write read \
    remove rename link y0 y1 yn j0 j1 jn abs div exit signal system atoi qsort puts";

/// The identifiers that are taken.
#[derive(Default)]
pub(crate) struct Identifiers {
    taken: HashSet<String>,
    /// The number that the next name of a base gets.
    numbers: HashMap<String, usize>,
}

impl Identifiers {
    /// Makes an identifier of a name, readable and unique.
    pub(crate) fn unique(&mut self, name: &str) -> String {
        let base = base(name);
        let mut own = base.clone();
        while !self.taken.insert(own.clone()) {
            let number = self.numbers.entry(base.clone()).or_insert(1);
            *number += 1;
            own = format!("{base}_{number}");
        }
        own
    }
}

/// Returns the identifier that a name gets if no other name has the same one.
pub(crate) fn base(name: &str) -> String {
    let mut base = identifier(name);
    if RESERVED.split_whitespace().any(|word| word == base) || is_axis(&base) {
        base.push('_');
    }
    base
}

/// Returns the options with the names that dimensions have in the model, instead of those in the
/// text or of `NETWORK.DIMENSION`.
pub(crate) fn with_names_of_the_model(
    options: &Options,
    graph: &GraphProto,
    network: &str,
) -> Options {
    let mut names: Vec<String> = Vec::new();
    for info in &graph.input {
        let value = info.r#type.as_ref().and_then(|own| own.value.as_ref());
        let Some(type_proto::Value::TensorType(tensor)) = value else { continue };
        let dims = tensor.shape.iter().flat_map(|shape| &shape.dim);
        for (at, dim) in dims.enumerate() {
            names.push(match &dim.value {
                Some(tensor_shape_proto::dimension::Value::DimParam(name)) => name.clone(),
                _ => format!("{}_dim{at}", info.name.as_deref().unwrap_or_default()),
            });
        }
    }
    let mut options = options.clone();
    for (own, _) in &mut options.dims {
        if names.contains(own) {
            continue;
        }
        if let Some(dim) = own.strip_prefix(network).and_then(|rest| rest.strip_prefix('.')) {
            *own = dim.to_string();
        }
        if let Some(name) = names.iter().find(|name| base(name) == *own)
            && !names.contains(own)
        {
            *own = name.clone();
        }
    }
    options
}

/// Whether the text uses this name for axes: `i0`, `k12`.
fn is_axis(name: &str) -> bool {
    let digits = name.strip_prefix(['i', 'k']);
    digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

fn identifier(name: &str) -> String {
    // Exporters write paths of modules, with a mark for the output.
    let name = name.strip_suffix("_output_0").or(name.strip_suffix(":0")).unwrap_or(name);
    let mut text = String::new();
    for c in name.chars().take(4 * MAX_CHARS) {
        if c.is_ascii_alphanumeric() {
            text.push(c);
        } else if !text.is_empty() && !text.ends_with('_') {
            text.push('_');
        }
    }
    let mut text = text.trim_end_matches('_').to_string();
    if text.len() > MAX_CHARS {
        // The end of a path tells more than its beginning.
        text = text.split_off(text.len() - MAX_CHARS).trim_start_matches('_').to_string();
    }
    if text.is_empty() || text.starts_with(|c: char| c.is_ascii_digit()) {
        text.insert(0, 't');
    }
    text
}

/// Makes the name of a kernel, which is a symbol of C.
pub(crate) fn kernel_name(name: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    // A long name that needs no change stays whole.
    let is_symbol = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.len() <= MAX_SYMBOL
        && name.chars().all(is_word);
    let mut text = if is_symbol { name.to_string() } else { identifier(name) };
    let all = C_NAMES.split_whitespace().chain(RESERVED.split_whitespace());
    if all.into_iter().any(|word| word == text) || text.starts_with("tec_") || text.ends_with("_dl")
    {
        text = format!("net_{text}");
        if text.ends_with("_dl") {
            text.push('_');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_identifiers() {
        let mut names = Identifiers::default();
        assert_eq!(names.unique("/layer1/conv1/Conv_output_0"), "layer1_conv1_Conv");
        assert_eq!(names.unique("layer1.conv1.Conv"), "layer1_conv1_Conv_2");
        assert_eq!(names.unique("123"), "t123");
        assert_eq!(names.unique("output"), "output_");
        assert_eq!(names.unique("i0"), "i0_");
        assert_eq!(names.unique("größe"), "gr_e");
        assert_eq!(names.unique(""), "t");
        assert!(names.unique(&"x".repeat(1 << 20)).len() <= MAX_CHARS);
    }

    #[test]
    fn kernels_have_names_that_c_permits() {
        assert_eq!(kernel_name("exp"), "net_exp");
        assert_eq!(kernel_name("my-model.v2"), "my_model_v2");
        assert_eq!(kernel_name("_x"), "x");
    }
}
