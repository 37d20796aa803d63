//! A node with its operands and attributes.

use std::collections::HashMap;

use crate::dtype::DType;
use crate::graph::T;
use crate::narrow::Narrow;
use crate::proto::{AttributeProto, TensorProto};

/// Why a node is not imported.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It is not supported, for this reason.
    Reason(String),
    /// It needs a tensor to be constant: its role, and the tensor.
    NotConstant(String, T),
    /// It reads a value of a node that was refused.
    Operand,
}

impl From<String> for Refusal {
    fn from(reason: String) -> Self {
        Refusal::Reason(reason)
    }
}

impl From<&str> for Refusal {
    fn from(reason: &str) -> Self {
        Refusal::Reason(reason.to_string())
    }
}

pub(crate) type Outcome<R> = Result<R, Refusal>;

/// A node under import.
pub(crate) struct Node<'a> {
    pub(crate) op: &'a str,
    /// The version of the operator set of its domain.
    pub(crate) opset: i64,
    pub(crate) inputs: Vec<Option<T>>,
    /// Names of the outputs, empty for those that are not wanted.
    pub(crate) outputs: Vec<&'a str>,
    /// The number of readers of the value of each input in the graph.
    pub(crate) readers: Vec<usize>,
    pub(crate) attributes: HashMap<&'a str, &'a AttributeProto>,
}

impl<'a> Node<'a> {
    /// Returns a required input.
    pub(crate) fn input(&self, at: usize) -> Outcome<T> {
        let missing = || Refusal::Reason(format!("input {at} is missing"));
        self.optional(at).ok_or_else(missing)
    }

    pub(crate) fn optional(&self, at: usize) -> Option<T> {
        self.inputs.get(at).copied().flatten()
    }

    /// Whether an output is wanted.
    pub(crate) fn has_output(&self, at: usize) -> bool {
        self.outputs.get(at).is_some_and(|name| !name.is_empty())
    }

    pub(crate) fn attribute(&self, name: &str) -> Option<&'a AttributeProto> {
        self.attributes.get(name).copied()
    }

    pub(crate) fn int(&self, name: &str, default: i64) -> i64 {
        self.attribute(name).and_then(|attribute| attribute.i).unwrap_or(default)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.attributes.contains_key(name)
    }

    pub(crate) fn flag(&self, name: &str, default: bool) -> bool {
        self.int(name, i64::from(default)) != 0
    }

    pub(crate) fn float(&self, name: &str, default: f32) -> f64 {
        f64::from(self.attribute(name).and_then(|attribute| attribute.f).unwrap_or(default))
    }

    pub(crate) fn ints(&self, name: &str) -> Option<&'a [i64]> {
        self.attribute(name).map(|attribute| &attribute.ints[..])
    }

    pub(crate) fn floats(&self, name: &str) -> Option<&'a [f32]> {
        self.attribute(name).map(|attribute| &attribute.floats[..])
    }

    pub(crate) fn text(&self, name: &str, default: &'a str) -> &'a str {
        let text = self.attribute(name).and_then(|attribute| attribute.s.as_deref());
        text.and_then(|text| std::str::from_utf8(text).ok()).unwrap_or(default)
    }

    pub(crate) fn strings(&self, name: &str) -> Vec<String> {
        let strings = self.attribute(name).map(|attribute| &attribute.strings[..]).unwrap_or(&[]);
        strings.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect()
    }

    pub(crate) fn tensor(&self, name: &str) -> Option<&'a TensorProto> {
        self.attribute(name).and_then(|attribute| attribute.t.as_ref())
    }

    /// Returns the type with at most 8 bits that an attribute names, if it does.
    pub(crate) fn narrow(&self, name: &str) -> Option<Narrow> {
        let number = self.attribute(name).and_then(|attribute| attribute.i)?;
        Narrow::from_onnx(i32::try_from(number).ok()?)
    }

    /// Returns the element type that an attribute names.
    pub(crate) fn dtype(&self, name: &str) -> Outcome<Option<DType>> {
        match self.attribute(name).and_then(|attribute| attribute.i) {
            None => Ok(None),
            Some(number) => Ok(Some(DType::from_onnx(i32::try_from(number).unwrap_or(-1))?)),
        }
    }
}
