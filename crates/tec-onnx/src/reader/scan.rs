//! Checks of the wire format before a model is decoded.
//!
//! A decoder turns an empty message of two bytes into a structure of some hundred bytes, and it
//! recurses into nested messages. The scan visits all messages without allocation, adds what their
//! structures need, and refuses files beyond the limits.

use std::mem::size_of;

use crate::error::Error;
use crate::proto;

/// The deepest nesting of messages. Graphs of models nest two or three deep, with five messages
/// each; the recursion limit of the decoder is 100.
const MAX_DEPTH: u32 = 60;

/// Memory that decoded structures may need beyond a multiple of the size of the file.
const FIXED_BYTES: u64 = 192 << 20;

/// Memory of decoded structures for each byte of the file.
const BYTES_PER_BYTE: u64 = 3;

/// The largest number of nodes, those of subgraphs and functions included. Models have thousands.
pub(crate) const MAX_NODES: u64 = 200_000;

/// A kind of message, by what its fields hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Model,
    Graph,
    Node,
    Attribute,
    Tensor,
    SparseTensor,
    ValueInfo,
    Type,
    TensorType,
    ElementType,
    MapType,
    Shape,
    Function,
    Training,
    Annotation,
    Device,
    Sharding,
    ShardedDim,
    /// A message without messages in it.
    Leaf,
    /// Bytes that the decoder does not copy.
    Borrowed,
    /// A string.
    Text,
    /// Packed numbers of variable length.
    Numbers,
    /// Packed numbers of fixed length.
    Fixed,
}

/// Returns what a field of length-delimited wire type holds.
fn field_kind(kind: Kind, field: u64) -> Kind {
    use Kind::{
        Annotation, Attribute, Borrowed, Device, ElementType, Fixed, Function, Graph, Leaf,
        MapType, Model, Node, Numbers, Shape, ShardedDim, Sharding, SparseTensor, Tensor,
        TensorType, Text, Training, Type, ValueInfo,
    };
    match (kind, field) {
        (Model, 7) => Graph,
        (Model, 8 | 14 | 26) => Leaf,
        (Model, 20) => Training,
        (Model, 25) => Function,
        (Training, 1 | 2) => Graph,
        (Training, 3 | 4) => Leaf,
        (Graph, 1) | (Function, 7) => Node,
        (Graph, 5) => Tensor,
        (Graph, 11..=13) | (Function, 12) => ValueInfo,
        (Graph, 14) => Annotation,
        (Graph, 15) => SparseTensor,
        (Graph, 16) | (Function, 9 | 14) | (Annotation, 2) => Leaf,
        (Function, 11) | (Node, 5) => Attribute,
        (Node, 9) => Leaf,
        (Node, 10) => Device,
        (Device, 2) => Sharding,
        (Sharding, 3) => Leaf,
        (Sharding, 4) => ShardedDim,
        (ShardedDim, 2) => Leaf,
        (Attribute, 5 | 10) => Tensor,
        (Attribute, 6 | 11) => Graph,
        (Attribute, 14 | 15) => Type,
        (Attribute, 22 | 23) => SparseTensor,
        (Attribute, 4) => Borrowed,
        // Each of several byte strings is a structure of its own.
        (Attribute, 9) | (Tensor, 6) => Leaf,
        (Attribute, 7) | (Tensor, 4 | 10) => Fixed,
        (Attribute, 8) | (Tensor, 1 | 5 | 7 | 11) => Numbers,
        (Tensor, 3 | 13 | 16) => Leaf,
        (Tensor, 9) => Borrowed,
        (SparseTensor, 1 | 2) => Tensor,
        (ValueInfo, 2) => Type,
        (ValueInfo, 4) => Leaf,
        (Type, 1 | 8) => TensorType,
        (Type, 4 | 9) => ElementType,
        (Type, 5) => MapType,
        (Type, 7) => Leaf,
        (TensorType, 2) => Shape,
        (ElementType, 1) | (MapType, 2) => Type,
        (Shape, 1) => Leaf,
        (Leaf, _) => Numbers,
        _ => Text,
    }
}

/// The size of the structure that a message is decoded to.
fn structure_bytes(kind: Kind) -> usize {
    match kind {
        Kind::Model => size_of::<proto::ModelProto>(),
        Kind::Graph => size_of::<proto::GraphProto>(),
        Kind::Node => size_of::<proto::NodeProto>(),
        Kind::Attribute => size_of::<proto::AttributeProto>(),
        Kind::Tensor => size_of::<proto::TensorProto>(),
        Kind::SparseTensor => size_of::<proto::SparseTensorProto>(),
        Kind::ValueInfo => size_of::<proto::ValueInfoProto>(),
        Kind::Function => size_of::<proto::FunctionProto>(),
        Kind::Training => size_of::<proto::TrainingInfoProto>(),
        Kind::Sharding => size_of::<proto::ShardingSpecProto>(),
        Kind::Borrowed | Kind::Numbers | Kind::Fixed => 0,
        // The remaining structures hold a few strings and vectors. A string has a header in its
        // vector.
        _ => 96,
    }
}

/// What the scan counts.
struct Counts {
    bytes: u64,
    nodes: u64,
    limit: u64,
}

/// Checks the whole file.
pub(crate) fn scan(data: &[u8]) -> Result<(), Error> {
    let limit = FIXED_BYTES + BYTES_PER_BYTE * data.len() as u64;
    let mut counts = Counts { bytes: 0, nodes: 0, limit };
    message(data, Kind::Model, 0, &mut counts)
}

fn message(mut data: &[u8], kind: Kind, depth: u32, counts: &mut Counts) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(Error::Limit(format!("messages nest deeper than {MAX_DEPTH} levels")));
    }
    counts.nodes += u64::from(kind == Kind::Node);
    if counts.nodes > MAX_NODES {
        return Err(Error::Limit(format!("the model has more than {MAX_NODES} nodes")));
    }
    // A growing vector may have twice the capacity that it needs, and holds its old elements while
    // it moves them.
    counts.bytes += 3 * structure_bytes(kind) as u64;
    while !data.is_empty() {
        let key = varint(&mut data)?;
        let content = match key & 7 {
            0 => {
                varint(&mut data)?;
                // An unpacked number of a repeated field.
                counts.bytes += 16;
                continue;
            }
            fixed @ (1 | 5) => {
                take(&mut data, if fixed == 1 { 8 } else { 4 })?;
                counts.bytes += 16;
                continue;
            }
            2 => {
                let length = varint(&mut data)?;
                take(&mut data, length)?
            }
            other => return Err(malformed(&format!("wire type {other}"))),
        };
        let inner = field_kind(kind, key >> 3);
        match inner {
            Kind::Borrowed => {}
            // A number of one byte becomes one of eight, in a vector of up to twice that capacity.
            Kind::Numbers => {
                let numbers = content.iter().filter(|byte| **byte < 0x80).count();
                counts.bytes += 16 * numbers as u64;
            }
            Kind::Fixed => counts.bytes += 2 * content.len() as u64,
            Kind::Text => counts.bytes += 48 + content.len() as u64,
            Kind::Leaf => counts.bytes += 3 * 96 + 16 * content.len() as u64,
            _ => message(content, inner, depth + 1, counts)?,
        }
        if counts.bytes > counts.limit {
            return Err(Error::Limit(format!(
                "the model would need more than {} MiB of memory beside its data",
                counts.limit >> 20
            )));
        }
    }
    Ok(())
}

fn malformed(what: &str) -> Error {
    Error::Decode(format!("malformed message: {what}"))
}

fn take<'a>(data: &mut &'a [u8], length: u64) -> Result<&'a [u8], Error> {
    let length = usize::try_from(length).ok().filter(|length| *length <= data.len());
    let (head, tail) = data.split_at(length.ok_or_else(|| malformed("a length beyond the end"))?);
    *data = tail;
    Ok(head)
}

fn varint(data: &mut &[u8]) -> Result<u64, Error> {
    let mut value = 0;
    for at in 0..10 {
        let byte = take(data, 1)?[0];
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(malformed("a number of more than ten bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![number << 3 | 2];
        let mut length = content.len();
        while length >= 0x80 {
            bytes.push(length as u8 | 0x80);
            length >>= 7;
        }
        bytes.push(length as u8);
        bytes.extend(content);
        bytes
    }

    #[test]
    fn empty_nodes_are_refused_before_decoding() {
        let nodes: Vec<u8> = [0x0a, 0].repeat(1_000_000);
        let error = scan(&field(7, &nodes)).unwrap_err();
        assert_eq!(error.to_string(), "the model has more than 200000 nodes");
    }

    #[test]
    fn empty_initializers_are_refused_before_decoding() {
        let tensors: Vec<u8> = [0x2a, 0].repeat(20_000_000);
        let error = scan(&field(7, &tensors)).unwrap_err();
        assert!(error.to_string().contains("MiB of memory"), "{error}");
    }

    #[test]
    fn nested_graphs_are_refused_before_decoding() {
        let mut graph = Vec::new();
        for _ in 0..100 {
            graph = field(1, &field(5, &field(6, &graph)));
        }
        let error = scan(&field(7, &graph)).unwrap_err();
        assert_eq!(error.to_string(), "messages nest deeper than 60 levels");
    }

    #[test]
    fn lengths_beyond_the_end_are_errors() {
        assert!(matches!(scan(&[0x3a, 5, 0]), Err(Error::Decode(_))));
        assert!(matches!(scan(&[0x3a]), Err(Error::Decode(_))));
        assert!(matches!(scan(&[0xff; 20]), Err(Error::Decode(_))));
    }
}
