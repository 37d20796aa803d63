//! Damaged and hostile models: the importer gives a result or an error, in little memory, and opens
//! no file outside of the folder of the model.
//!
//! `TEC_ONNX_MUTANTS=1000000` sets the number of models, `TEC_ONNX_SEED` the first one, and
//! `TEC_ONNX_MODELS=FOLDER` a folder of models to change besides those of this file.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{FLOAT, INT64, Model, graph, int, ints};
use prost::Message;
use tec_onnx::proto::{GraphProto, ModelProto, NodeProto, StringStringEntryProto, TensorProto};
use tec_onnx::proto::{tensor_shape_proto, type_proto};
use tec_onnx::{Options, import};

/// Counts the bytes that are allocated.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the allocator of the system.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `block` comes from `alloc` with this layout.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The most memory of an import beside four times the file.
const MOST_BYTES: usize = 256 << 20;

/// A generator of pseudo-random numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() >> 11) as usize % end.max(1)
    }

    fn pick<'a, V>(&mut self, values: &'a [V]) -> Option<&'a V> {
        if values.is_empty() { None } else { values.get(self.below(values.len())) }
    }

    /// Numbers at which arithmetic goes wrong.
    fn number(&mut self) -> i64 {
        const EDGES: [i64; 16] = [
            0,
            1,
            -1,
            2,
            3,
            7,
            -2,
            1 << 20,
            (1 << 31) - 1,
            1 << 31,
            -(1 << 31),
            1 << 32,
            1 << 47,
            1 << 62,
            i64::MAX,
            i64::MIN,
        ];
        match self.below(4) {
            0 => self.below(40) as i64 - 8,
            _ => EDGES[self.below(EDGES.len())],
        }
    }
}

/// Small models with many operators.
fn seeds() -> Vec<Vec<u8>> {
    let branch = |op: &str| Model::new(13).node(op, "x", "result", &[]).output("result");
    let body = Model::new(13)
        .input("iteration", INT64, "")
        .input("go", INT64, "")
        .input("state", FLOAT, "4")
        .node("Identity", "go", "go_on", &[])
        .node("Tanh", "state", "next", &[])
        .output("go_on")
        .output("next");
    let layers = Model::new(13)
        .input("x", FLOAT, "batch 2 8 8")
        .weights("w", &[2, 2, 3, 3])
        .weights("g", &[2])
        .ints("shape", &[0, -1])
        .node("Conv", "x w", "c", &[ints("pads", &[1, 1, 1, 1])])
        .node("BatchNormalization", "c g g g g", "n", &[])
        .node("MaxPool", "n", "p", &[ints("kernel_shape", &[2, 2]), ints("strides", &[2, 2])])
        .node("Reshape", "p shape", "r", &[])
        .node("Softmax", "r", "y", &[int("axis", -1)])
        .output("y");
    let winograd = Model::new(13)
        .input("x", FLOAT, "batch 16 8 8")
        .weights("w", &[16, 16, 3, 3])
        .weights("b", &[16])
        .node("Conv", "x w b", "c", &[ints("pads", &[1, 1, 1, 1])])
        .node("Conv", "c w", "y", &[])
        .output("y");
    let moves = Model::new(13)
        .input("x", FLOAT, "n 6 8")
        .ints("starts", &[-1, 1])
        .ints("ends", &[-9999, 100])
        .ints("axes", &[1, 2])
        .ints("steps", &[-2, 3])
        .ints("sizes", &[2, 4])
        .ints("pads", &[0, 1, 0, 0, 0, 2])
        .ints("k", &[2])
        .node("Slice", "x starts ends axes steps", "sliced", &[])
        .node("Split", "x sizes", "first second", &[int("axis", 1)])
        .node("Concat", "second x first", "joined", &[int("axis", 1)])
        .node("Pad", "joined pads", "padded", &[])
        .node("TopK", "padded k", "values places", &[])
        .node("ReduceSum", "values axes", "sum", &[])
        .node("Transpose", "sum", "y", &[ints("perm", &[2, 0, 1])])
        .output("sliced")
        .output("y");
    let flow = Model::new(13)
        .input("x", FLOAT, "4")
        .scalar("two", 2)
        .scalar("three", 3)
        .node("Less", "two three", "condition", &[])
        .node(
            "If",
            "condition",
            "chosen",
            &[graph("then_branch", branch("Relu")), graph("else_branch", branch("Exp"))],
        )
        .node("Loop", "two - chosen", "last", &[graph("body", body)])
        .output("last");
    let run_time = Model::new(18)
        .input("x", FLOAT, "1 2 3 4")
        .input("shape", INT64, "2")
        .input("axes", INT64, "1")
        .input("starts", INT64, "1")
        .input("pads", INT64, "4")
        .input("scales", FLOAT, "2")
        .node("Reshape", "x shape", "r", &[])
        .node("ReduceMax", "r axes", "m", &[int("keepdims", 0)])
        .node("Slice", "r starts shape axes", "s", &[])
        .node("Pad", "r pads", "p", &[])
        .node("Resize", "p - scales", "z", &[])
        .shaped_output("r", "4 6")
        .shaped_output("m", "4")
        .shaped_output("s", "4 2")
        .shaped_output("p", "5 8")
        .shaped_output("z", "5 16");
    let attention = Model::new(14)
        .input("x", FLOAT, "batch sequence 64")
        .scalar("one", 1)
        .ints("axis0", &[0])
        .ints("heads", &[0, -1, 4, 16])
        .node("Shape", "x", "shape", &[])
        .node("Gather", "shape one", "s", &[])
        .node("Unsqueeze", "s axis0", "s1", &[])
        .node("ConstantOfShape", "s1", "zeros", &[])
        .node("Reshape", "x heads", "split", &[])
        .node("Transpose", "split", "by_head", &[ints("perm", &[0, 2, 1, 3])])
        .node("Transpose", "split", "turned", &[ints("perm", &[0, 2, 3, 1])])
        .node("MatMul", "by_head turned", "scores", &[])
        .node("Add", "scores zeros", "masked", &[])
        .node("Softmax", "masked", "weights", &[int("axis", -1)])
        .node("MatMul", "weights by_head", "y", &[])
        .output("y");
    let function = Model::new(13)
        .node("Softmax", "a", "b", &[common::reference("axis", "over")])
        .node("Mul", "b b", "c", &[])
        .function("Squared", "a", "c")
        .input("x", FLOAT, "3 4")
        .node("Squared", "x", "y", &[int("over", 0)])
        .local()
        .output("y");
    let models = [layers, winograd, moves, flow, run_time, attention, function];
    let mut files: Vec<Vec<u8>> = models.into_iter().map(Model::encode).collect();
    if let Some(folder) = std::env::var_os("TEC_ONNX_MODELS") {
        files.extend(models_beneath(Path::new(&folder)));
    }
    files
}

/// The small models beneath a folder, in the order of their paths.
fn models_beneath(folder: &Path) -> Vec<Vec<u8>> {
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "onnx") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    let read = |path: &PathBuf| std::fs::read(path).ok().filter(|data| data.len() < 1 << 16);
    paths.iter().filter_map(read).collect()
}

/// Changes bytes.
fn change_bytes(data: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let at = random.below(data.len());
    match random.below(8) {
        0 | 1 => {
            for _ in 0..1 + random.below(4) {
                let at = random.below(data.len());
                if let Some(byte) = data.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
        }
        2 => data.truncate(at),
        3 => {
            // A length or number of any size.
            let mut value = random.number() as u64;
            let mut bytes = Vec::new();
            while value >= 0x80 {
                bytes.push(value as u8 | 0x80);
                value >>= 7;
            }
            bytes.push(value as u8);
            let end = (at + random.below(3)).min(data.len());
            data.splice(at.min(end)..end, bytes);
        }
        4 => {
            let end = (at + random.below(64)).min(data.len());
            data.drain(at.min(end)..end);
        }
        5 => {
            let end = (at + random.below(200)).min(data.len());
            let copy = data[at.min(end)..end].to_vec();
            let to = random.below(data.len());
            data.splice(to..to, copy);
        }
        6 => {
            let from = random.below(other.len());
            let end = (from + random.below(200)).min(other.len());
            let end_at = (at + random.below(200)).min(data.len());
            data.splice(at.min(end_at)..end_at, other[from..end].to_vec());
        }
        _ => {
            if let Some(byte) = data.get_mut(at) {
                *byte = [0, 0x7f, 0x80, 0xff, 0xfe][random.below(5)];
            }
        }
    }
}

/// Changes the structure of a model, which stays decodable.
fn change_model(model: &mut ModelProto, other: &ModelProto, random: &mut Random) {
    let Some(graph) = &mut model.graph else { return };
    match random.below(12) {
        0 | 1 => change_node(graph, random),
        2 => {
            let at = random.below(graph.input.len());
            if let Some(info) = graph.input.get_mut(at) {
                change_shape(info.r#type.as_mut().and_then(|own| own.value.as_mut()), random);
            }
        }
        3 => {
            let at = random.below(graph.output.len());
            if let Some(info) = graph.output.get_mut(at) {
                change_shape(info.r#type.as_mut().and_then(|own| own.value.as_mut()), random);
            }
        }
        4 | 5 => {
            let at = random.below(graph.initializer.len());
            if let Some(tensor) = graph.initializer.get_mut(at) {
                change_tensor(tensor, random);
            }
        }
        6 => {
            let names: Vec<String> =
                graph.node.iter().flat_map(|n| n.output.iter().chain(&n.input)).cloned().collect();
            let at = random.below(graph.node.len());
            if let (Some(node), Some(name)) = (graph.node.get_mut(at), random.pick(&names)) {
                let place = random.below(node.input.len() + 1);
                node.input.insert(place, name.clone());
            }
        }
        7 => {
            let source = other.graph.as_ref().and_then(|graph| random.pick(&graph.node).cloned());
            let place = random.below(graph.node.len() + 1);
            graph.node.extend(source);
            let last = graph.node.len().saturating_sub(1);
            graph.node.swap(place.min(last), last);
        }
        8 => {
            for _ in 0..random.below(70) {
                nest(graph);
            }
        }
        9 => {
            let count = random.below(300);
            if let Some(node) = random.pick(&graph.node).cloned() {
                graph.node.extend(std::iter::repeat_n(node, count));
            }
        }
        10 => {
            let at = random.below(model.opset_import.len());
            if let Some(opset) = model.opset_import.get_mut(at) {
                opset.version = Some(random.below(30) as i64);
            }
        }
        _ => {
            if let Some(function) = model.functions.first_mut() {
                let call = NodeProto {
                    op_type: function.name.clone(),
                    domain: function.domain.clone(),
                    input: function.input.clone(),
                    output: vec!["again".to_string()],
                    ..NodeProto::default()
                };
                function.node.insert(0, call);
            }
        }
    }
}

/// Puts the nodes of a graph into a branch.
fn nest(graph: &mut GraphProto) {
    let inner = GraphProto {
        node: std::mem::take(&mut graph.node),
        output: graph.output.clone(),
        ..GraphProto::default()
    };
    let outputs: Vec<String> = graph.output.iter().filter_map(|info| info.name.clone()).collect();
    let condition = graph.input.first().and_then(|info| info.name.clone()).unwrap_or_default();
    let attribute = |name: &str| tec_onnx::proto::AttributeProto {
        name: Some(name.to_string()),
        g: Some(inner.clone()),
        ..Default::default()
    };
    // Two copies of a branch would double the model with each level.
    graph.node = vec![NodeProto {
        op_type: Some("If".to_string()),
        input: vec![condition],
        output: outputs,
        attribute: vec![attribute("then_branch")],
        ..NodeProto::default()
    }];
}

fn change_node(graph: &mut GraphProto, random: &mut Random) {
    const OPERATORS: &str = "Reshape Slice Pad Tile Expand Resize Conv ConvTranspose MaxPool LSTM \
        GRU RNN Scan Loop If TopK Gather GatherND GatherElements ScatterND ScatterElements Einsum \
        Split Squeeze Unsqueeze ReduceSum CumSum Range OneHot Col2Im DFT Trilu Attention RoiAlign \
        GridSample DepthToSpace SpaceToDepth QLinearConv MatMul Concat Transpose AffineGrid Upsample";
    let operators: Vec<&str> = OPERATORS.split_whitespace().collect();
    let at = random.below(graph.node.len());
    let Some(node) = graph.node.get_mut(at) else { return };
    match random.below(4) {
        0 => node.op_type = random.pick(&operators).map(|name| name.to_string()),
        1 => drop(node.input.pop()),
        2 => node.output.push(format!("extra{at}")),
        _ => {
            let at = random.below(node.attribute.len());
            let Some(attribute) = node.attribute.get_mut(at) else { return };
            attribute.i = attribute.i.map(|_| random.number());
            let at = random.below(attribute.ints.len());
            match random.below(3) {
                0 => attribute.ints.push(random.number()),
                1 => drop(attribute.ints.pop()),
                _ => {
                    if let Some(value) = attribute.ints.get_mut(at) {
                        *value = random.number();
                    }
                }
            }
        }
    }
}

fn change_shape(value: Option<&mut type_proto::Value>, random: &mut Random) {
    let Some(type_proto::Value::TensorType(tensor)) = value else { return };
    if random.below(5) == 0 {
        tensor.elem_type = Some(random.below(30) as i32);
    }
    let Some(shape) = &mut tensor.shape else { return };
    let dim = match random.below(3) {
        0 => tensor_shape_proto::dimension::Value::DimParam("n".to_string()),
        _ => tensor_shape_proto::dimension::Value::DimValue(random.number()),
    };
    let dim = tensor_shape_proto::Dimension { value: Some(dim), ..Default::default() };
    let at = random.below(shape.dim.len() + 1);
    match shape.dim.get_mut(at) {
        Some(place) if random.below(3) > 0 => *place = dim,
        _ => shape.dim.insert(at, dim),
    }
}

fn change_tensor(tensor: &mut TensorProto, random: &mut Random) {
    match random.below(6) {
        0 => tensor.data_type = Some(random.below(30) as i32),
        1 => tensor.dims.push(random.number()),
        2 => drop(tensor.dims.pop()),
        3 => {
            let at = random.below(tensor.int64_data.len());
            if let Some(value) = tensor.int64_data.get_mut(at) {
                *value = random.number();
            }
        }
        4 => {
            const PLACES: [&str; 8] = [
                "../outside",
                "/etc/hostname",
                "link",
                "folder/../../outside",
                "/proc/self/mem",
                "inside",
                ".",
                "",
            ];
            let entry = |key: &str, value: String| StringStringEntryProto {
                key: Some(key.to_string()),
                value: Some(value),
            };
            tensor.data_location = Some(1);
            tensor.raw_data = None;
            tensor.external_data = vec![
                entry("location", PLACES[random.below(PLACES.len())].to_string()),
                entry("offset", random.number().to_string()),
                entry("length", random.number().to_string()),
            ];
        }
        _ => {
            let at = random.below(tensor.dims.len());
            if let Some(value) = tensor.dims.get_mut(at) {
                *value = random.number();
            }
        }
    }
}

fn number_of(variable: &str, default: u64) -> u64 {
    let value = std::env::var(variable).ok();
    value.map_or(default, |value| value.parse().expect("a number"))
}

#[test]
fn hostile_models_are_errors_in_bounded_memory() {
    let folder = tempfile_folder();
    let files = seeds();
    let models: Vec<ModelProto> =
        files.iter().map(|file| ModelProto::decode(&file[..]).expect("a model")).collect();
    let first = number_of("TEC_ONNX_SEED", 1);
    let count = number_of("TEC_ONNX_MUTANTS", 3000);
    let path = folder.join(format!("hostile{first}.onnx"));
    let (mut results, mut slowest, mut largest) = (0, Duration::ZERO, 0);
    let mut total = Duration::ZERO;
    let mut failures: Vec<String> = Vec::new();
    for number in first..first + count {
        let mut random = Random(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let (own, other) = (random.below(files.len()), random.below(files.len()));
        let mut data = files[own].clone();
        if random.below(2) == 0 {
            let mut model = models[own].clone();
            for _ in 0..1 + random.below(3) {
                change_model(&mut model, &models[other], &mut random);
            }
            data = model.encode_to_vec();
        }
        if data == files[own] {
            for _ in 0..1 + random.below(4) {
                change_bytes(&mut data, &files[other], &mut random);
            }
        }
        std::fs::write(&path, &data).expect("a scratch file");
        let before = LIVE.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        let start = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| import(&path, &Options::default()).is_ok()));
        let took = start.elapsed();
        let memory = PEAK.load(Ordering::Relaxed) - before;
        let keep = || {
            let kept = folder.join(format!("kept{number}.onnx"));
            std::fs::copy(&path, &kept).expect("a scratch file");
            kept
        };
        match outcome {
            Ok(ok) => results += u64::from(ok),
            Err(_) => failures.push(format!("a panic: {}", keep().display())),
        }
        if memory > 4 * data.len() + MOST_BYTES {
            let size = data.len();
            failures.push(format!("{memory} bytes for {size} bytes: {}", keep().display()));
        }
        if failures.len() >= 10 {
            break;
        }
        if took > slowest.max(Duration::from_millis(500)) {
            println!("model {number}: {took:?}, {}", keep().display());
        }
        total += took;
        slowest = slowest.max(took);
        largest = largest.max(memory);
    }
    println!(
        "{count} models, {results} imported in {total:?}; slowest {slowest:?}, \
         largest {largest} bytes"
    );
    assert!(failures.is_empty(), "{failures:#?}");
}

/// A folder with a file, a link to a file outside, and a file outside beside it. It is written
/// once, because a file that is written again is empty for a moment, in which another test may read
/// it.
fn tempfile_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let outer = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hostile");
        let folder = outer.join("models");
        std::fs::create_dir_all(folder.join("folder")).expect("a folder for tests");
        let zeros = vec![0; 4096];
        std::fs::write(outer.join("outside"), &zeros).expect("a file");
        std::fs::write(folder.join("inside"), &zeros).expect("a file");
        #[cfg(unix)]
        if !folder.join("link").is_symlink() {
            std::os::unix::fs::symlink(outer.join("outside"), folder.join("link")).expect("a link");
        }
        folder
    })
}

/// External data outside of the folder is refused, however the path is written.
#[test]
fn data_outside_of_the_folder_is_not_opened() {
    let folder = tempfile_folder();
    let absolute = folder.parent().expect("a folder").join("outside");
    let absolute = absolute.to_str().expect("UTF-8");
    let model = |location: &str| {
        let entry = |key: &str, value: &str| StringStringEntryProto {
            key: Some(key.to_string()),
            value: Some(value.to_string()),
        };
        let mut model = Model::new(13).weights("w", &[4]).node("Exp", "w", "y", &[]).output("y");
        let tensor = &mut model.graph.initializer[0];
        tensor.data_location = Some(1);
        tensor.raw_data = None;
        tensor.external_data = vec![entry("location", location), entry("length", "16")];
        let path = folder.join("external.onnx");
        std::fs::write(&path, model.encode()).expect("a scratch file");
        import(&path, &Options::default())
    };
    assert!(model("inside").is_ok());
    for location in ["../outside", absolute, "link", "folder/../../outside", "/proc/self/mem", ""] {
        assert!(model(location).is_err(), "{location}");
    }
}
