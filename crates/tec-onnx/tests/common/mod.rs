//! Builds small models.
#![allow(dead_code, reason = "no test uses all of it")]

use std::path::{Path, PathBuf};

use prost::Message;
use tec_onnx::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    TensorProto, TensorShapeProto, TypeProto, ValueInfoProto, tensor_shape_proto, type_proto,
};
use tec_onnx::{Import, Options, import};

/// A graph under construction.
#[derive(Default)]
pub struct Model {
    pub graph: GraphProto,
    pub functions: Vec<FunctionProto>,
    pub opset: i64,
}

/// The types of `TensorProto.DataType` that tests use.
pub const FLOAT: i32 = 1;
pub const UINT8: i32 = 2;
pub const INT8: i32 = 3;
pub const INT32: i32 = 6;
pub const INT64: i32 = 7;

fn info(name: &str, dtype: i32, shape: &str) -> ValueInfoProto {
    let dim = |text: &str| tensor_shape_proto::Dimension {
        value: Some(match text.parse() {
            Ok(value) => tensor_shape_proto::dimension::Value::DimValue(value),
            Err(_) => tensor_shape_proto::dimension::Value::DimParam(text.to_string()),
        }),
        ..Default::default()
    };
    let dim = shape.split_whitespace().map(dim).collect();
    let tensor =
        type_proto::Tensor { elem_type: Some(dtype), shape: Some(TensorShapeProto { dim }) };
    let value = Some(type_proto::Value::TensorType(tensor));
    ValueInfoProto {
        name: Some(name.to_string()),
        r#type: Some(TypeProto { value, ..Default::default() }),
        ..Default::default()
    }
}

/// An attribute with one integer.
pub fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto { name: Some(name.to_string()), i: Some(value), ..Default::default() }
}

/// An attribute with a list of integers.
pub fn ints(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto { name: Some(name.to_string()), ints: values.to_vec(), ..Default::default() }
}

/// An attribute with a list of floats.
pub fn floats(name: &str, values: &[f32]) -> AttributeProto {
    AttributeProto { name: Some(name.to_string()), floats: values.to_vec(), ..Default::default() }
}

/// An attribute with a string.
pub fn text(name: &str, value: &str) -> AttributeProto {
    let s = Some(value.as_bytes().to_vec().into());
    AttributeProto { name: Some(name.to_string()), s, ..Default::default() }
}

/// An attribute with a tensor of one int64.
pub fn tensor(name: &str, value: i64) -> AttributeProto {
    let t = TensorProto {
        data_type: Some(INT64),
        dims: vec![1],
        raw_data: Some(value.to_le_bytes().to_vec().into()),
        ..Default::default()
    };
    AttributeProto { name: Some(name.to_string()), t: Some(t), ..Default::default() }
}

/// An attribute with a list of strings, separated by spaces.
pub fn strings(name: &str, values: &str) -> AttributeProto {
    let strings = values.split(' ').map(|text| text.as_bytes().to_vec().into()).collect();
    AttributeProto { name: Some(name.to_string()), strings, ..Default::default() }
}

/// An attribute that takes the value of an attribute of the function's call.
pub fn reference(name: &str, of: &str) -> AttributeProto {
    AttributeProto {
        name: Some(name.to_string()),
        ref_attr_name: Some(of.to_string()),
        ..Default::default()
    }
}

/// An attribute with a graph whose nodes are those of a model.
pub fn graph(name: &str, model: Model) -> AttributeProto {
    let g = Some(model.graph);
    AttributeProto { name: Some(name.to_string()), g, ..Default::default() }
}

impl Model {
    pub fn new(opset: i64) -> Self {
        Model { opset, ..Default::default() }
    }

    /// Adds an input; its shape has numbers and names: `"batch 3"`.
    pub fn input(mut self, name: &str, dtype: i32, shape: &str) -> Self {
        self.graph.input.push(info(name, dtype, shape));
        self
    }

    pub fn output(mut self, name: &str) -> Self {
        self.graph.output.push(info(name, FLOAT, ""));
        self
    }

    /// Adds an output with a declared shape.
    pub fn shaped_output(mut self, name: &str, shape: &str) -> Self {
        self.graph.output.push(info(name, FLOAT, shape));
        self
    }

    /// Adds weights, all of them 0.5.
    pub fn weights(mut self, name: &str, dims: &[i64]) -> Self {
        let count: i64 = dims.iter().product();
        self.graph.initializer.push(TensorProto {
            name: Some(name.to_string()),
            data_type: Some(FLOAT),
            dims: dims.to_vec(),
            raw_data: Some(0.5_f32.to_le_bytes().repeat(count as usize).into()),
            ..Default::default()
        });
        self
    }

    pub fn floats(mut self, name: &str, values: &[f32]) -> Self {
        self.graph.initializer.push(TensorProto {
            name: Some(name.to_string()),
            data_type: Some(FLOAT),
            dims: vec![values.len() as i64],
            float_data: values.to_vec(),
            ..Default::default()
        });
        self
    }

    /// Adds a tensor with the given bytes.
    pub fn raw(mut self, name: &str, dtype: i32, dims: &[i64], data: Vec<u8>) -> Self {
        self.graph.initializer.push(TensorProto {
            name: Some(name.to_string()),
            data_type: Some(dtype),
            dims: dims.to_vec(),
            raw_data: Some(data.into()),
            ..Default::default()
        });
        self
    }

    /// Adds a scale and a zero point of type uint8, `NAME_s` and `NAME_z`.
    pub fn level(self, name: &str, scale: f32, zero: u8) -> Self {
        self.raw(&format!("{name}_s"), FLOAT, &[], scale.to_le_bytes().to_vec()).raw(
            &format!("{name}_z"),
            UINT8,
            &[],
            vec![zero],
        )
    }

    /// Adds equal int8 weights and their scales by output channel, `NAME_s`; dequantised as `NAME`.
    pub fn quantized_weights(self, name: &str, dims: &[i64], channels: i64, value: u8) -> Self {
        let count: i64 = dims.iter().product();
        let inputs = format!("{name}_q {name}_s");
        let axis = dims.iter().position(|n| *n == channels).unwrap_or(0) as i64;
        self.raw(&format!("{name}_q"), INT8, dims, vec![value; count as usize])
            .raw(
                &format!("{name}_s"),
                FLOAT,
                &[channels],
                0.5_f32.to_le_bytes().repeat(channels as usize),
            )
            .node("DequantizeLinear", &inputs, name, &[int("axis", axis)])
    }

    /// Adds an int32 bias, all of it 7, with one scale; dequantised as `NAME`.
    pub fn quantized_bias(self, name: &str, channels: i64, scale: f32) -> Self {
        let data = 7_i32.to_le_bytes().repeat(channels as usize);
        self.raw(&format!("{name}_q"), INT32, &[channels], data)
            .raw(&format!("{name}_s"), FLOAT, &[], scale.to_le_bytes().to_vec())
            .node("DequantizeLinear", &format!("{name}_q {name}_s"), name, &[])
    }

    /// Quantises and dequantises a value by a level: `FROM` becomes `TO_q` and `TO`.
    pub fn requantized(self, from: &str, level: &str, to: &str) -> Self {
        let (scale, zero) = (format!("{level}_s"), format!("{level}_z"));
        self.node("QuantizeLinear", &format!("{from} {scale} {zero}"), &format!("{to}_q"), &[])
            .node("DequantizeLinear", &format!("{to}_q {scale} {zero}"), to, &[])
    }

    pub fn ints(mut self, name: &str, values: &[i64]) -> Self {
        self.graph.initializer.push(TensorProto {
            name: Some(name.to_string()),
            data_type: Some(INT64),
            dims: vec![values.len() as i64],
            int64_data: values.to_vec(),
            ..Default::default()
        });
        self
    }

    pub fn scalar(mut self, name: &str, value: i64) -> Self {
        self.graph.initializer.push(TensorProto {
            name: Some(name.to_string()),
            data_type: Some(INT64),
            int64_data: vec![value],
            ..Default::default()
        });
        self
    }

    /// Adds a node; inputs and outputs are separated by spaces.
    pub fn node(
        mut self,
        op: &str,
        inputs: &str,
        outputs: &str,
        attribute: &[AttributeProto],
    ) -> Self {
        let names = |text: &str| text.split(' ').map(|n| n.replace('-', "")).collect();
        self.graph.node.push(NodeProto {
            op_type: Some(op.to_string()),
            input: if inputs.is_empty() { Vec::new() } else { names(inputs) },
            output: names(outputs),
            attribute: attribute.to_vec(),
            ..Default::default()
        });
        self
    }

    /// Moves the nodes to a function of this name; its inputs and outputs are separated by spaces.
    pub fn function(mut self, name: &str, inputs: &str, outputs: &str) -> Self {
        let names = |text: &str| text.split(' ').map(String::from).collect();
        self.functions.push(FunctionProto {
            name: Some(name.to_string()),
            domain: Some("local".to_string()),
            input: names(inputs),
            output: names(outputs),
            node: std::mem::take(&mut self.graph.node),
            ..Default::default()
        });
        self
    }

    /// Makes the last node a call of a local function.
    pub fn local(mut self) -> Self {
        if let Some(node) = self.graph.node.last_mut() {
            node.domain = Some("local".to_string());
        }
        self
    }

    /// Moves the last node to another domain.
    pub fn domain(mut self, domain: &str) -> Self {
        if let Some(node) = self.graph.node.last_mut() {
            node.domain = Some(domain.to_string());
        }
        self
    }

    pub fn encode(self) -> Vec<u8> {
        let opset = OperatorSetIdProto { domain: None, version: Some(self.opset) };
        let domain = Some("local".to_string());
        let local = OperatorSetIdProto { domain, version: Some(1) };
        let model = ModelProto {
            opset_import: vec![opset, local],
            functions: self.functions,
            graph: Some(self.graph),
            ..Default::default()
        };
        model.encode_to_vec()
    }

    /// Writes the model to a file of this name in a folder for tests.
    pub fn save(self, name: &str) -> PathBuf {
        save(name, &self.encode())
    }
}

pub fn save(name: &str, data: &[u8]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = folder.join(format!("{name}.onnx"));
    std::fs::write(&path, data).expect("a folder for tests");
    path
}

/// Compares the text of a model with `golden/NAME.te`, which `BLESS=1` writes.
#[track_caller]
pub fn golden_with(name: &str, model: Model, options: &Options) -> Import {
    let result = import(&model.save(name), options).unwrap_or_else(|error| panic!("{error}"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.te"));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &result.text).expect("a writable folder");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(result.text, expected, "BLESS=1 writes the new text");
    result
}

#[track_caller]
pub fn golden(name: &str, model: Model) -> Import {
    golden_with(name, model, &Options::default())
}
