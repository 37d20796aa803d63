//! Random kernels for schedules: chains of elementwise stages, stencils, windows, reductions,
//! products, paddings and transposes, each of which reads earlier tensors.

mod borders;
mod copies;
mod gathers;
mod recurrence;
mod reductions;
mod triangles;
mod updates;

use crate::generate::Ext;
use crate::schedule::wanted_kinds;

use crate::tree::{Node, Program, StageInfo};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;
use tec::ir::DType;

/// The largest number of elements of a stage, or of its reduction terms.
const MAX_POINTS: i64 = 2500;
/// The same for products that a warp can compute.
const MAX_WARP_POINTS: i64 = 32 * 16 * 128;
/// One program in this many has a recurrence for certain.
const RECURRENCE_PERIOD: u64 = 8;

#[derive(Clone)]
struct Tensor {
    name: String,
    dtype: DType,
    shape: Vec<Ext>,
    computed: bool,
    readers: usize,
}

struct Pipeline {
    rng: ChaCha8Rng,
    name: String,
    tensors: Vec<Tensor>,
    inputs: Vec<Node>,
    body: Vec<Node>,
    items: Vec<Node>,
    stages: Vec<StageInfo>,
    /// Extents to draw from.
    dims: Vec<Ext>,
    /// See [`empty_pipeline`].
    empty: bool,
    /// Whether it runs on a GPU.
    gpu: bool,
    /// Whether it is a network: its tensors are contiguous, and may be updated several times.
    network: bool,
    /// The largest number of elements of the next stages, or of their terms.
    most_points: i64,
    tags: BTreeSet<String>,
    names: usize,
}

/// Returns program number `number` of a run, without a schedule.
pub fn pipeline(seed: u64, number: u64, name: &str) -> Program {
    Pipeline::new(seed, number, name).program(number)
}

/// Returns such a program for a GPU, which has no recurrences.
pub fn pipeline_for_gpu(seed: u64, number: u64, name: &str) -> Program {
    let mut pipeline = Pipeline::new(seed, number, name);
    pipeline.gpu = true;
    pipeline.program(number)
}

/// Returns such a program for a network.
pub fn pipeline_for_network(seed: u64, number: u64, name: &str, empty: bool) -> Program {
    let mut pipeline = Pipeline::new(seed, number, name);
    pipeline.network = true;
    let program = if empty { pipeline.empty(number) } else { pipeline.program(number) };
    program.into_network()
}

/// Returns a program whose tensors have extents `v` and `w`, the first 0 and the second larger than
/// any memory: loops without elements must take no time.
pub fn empty_pipeline(seed: u64, number: u64, name: &str) -> Program {
    Pipeline::new(seed, number, name).empty(number)
}

/// Puts an expression into parentheses, unless it is one word.
fn grouped(text: &str) -> String {
    match text.chars().all(|c| c.is_alphanumeric()) {
        true => text.to_string(),
        false => format!("({text})"),
    }
}

fn derived(ext: &Ext, form: &str, value: i64) -> Ext {
    Ext::plain(form.replace('@', &grouped(&ext.text)), ext.constant, value)
}

fn leaf(text: impl Into<String>) -> Node {
    Node::leaf(DType::Index, text)
}

impl Pipeline {
    fn new(seed: u64, number: u64, name: &str) -> Pipeline {
        Pipeline {
            rng: ChaCha8Rng::seed_from_u64(seed.wrapping_mul(0x51ed_270b_93d1_77c5) ^ number),
            name: name.to_string(),
            tensors: Vec::new(),
            inputs: Vec::new(),
            body: Vec::new(),
            items: Vec::new(),
            stages: Vec::new(),
            dims: Vec::new(),
            empty: false,
            gpu: false,
            network: false,
            most_points: MAX_POINTS,
            tags: BTreeSet::new(),
            names: 0,
        }
    }

    fn empty(&mut self, number: u64) -> Program {
        self.empty = true;
        let mut program = self.program(number);
        // A nonempty tensor of such an extent exceeds the memory; one of 2^31 elements may not.
        let huge = self.pick(&[1 << 40, 1 << 40, 1 << 40, 1 << 62]);
        program.vars = vec![("v".to_string(), 0), ("w".to_string(), huge)];
        program
    }

    fn int(&mut self, low: i64, high: i64) -> i64 {
        self.rng.random_range(low..=high)
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.rng.random_range(0..list.len())].clone()
    }

    fn fresh(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    fn tag(&mut self, name: &str) {
        self.tags.insert(format!("stage kind {name}"));
    }

    fn program(&mut self, number: u64) -> Program {
        let (mut params, mut vars) = (Vec::new(), Vec::new());
        for name in ["n", "m"] {
            let value = self.pick(&[3, 4, 5, 6, 7, 8, 8, 9, 10, 12, 13, 16, 17]);
            params.push(Node::stmt(format!("{name} = $"), vec![leaf(value.to_string())]));
            self.dims.push(Ext::plain(name, true, value));
        }
        if self.empty {
            self.tag("empty, but for a huge extent");
            // All extents are small while shapes are drawn.
            self.dims = ["v", "w"].map(|name| Ext::plain(name, false, 4)).to_vec();
            params.extend(["v: var", "w: var"].map(|form| Node::stmt(form, vec![])));
        } else if self.chance(35) {
            let value = self.pick(&[0, 1, 2, 3, 5, 6, 8, 8, 11, 16]);
            params.push(Node::stmt("v: var", vec![]));
            vars.push(("v".to_string(), value));
            self.dims.push(Ext::plain("v", false, value));
            if self.chance(40) {
                self.dims.push(Ext::plain("2 * v", false, 2 * value));
            }
            self.tag("symbolic");
        }
        let ty = self.any_type();
        let rank = self.pick(&[1, 2, 2, 2, 3]);
        let mut shape = if self.empty { self.dims.clone() } else { Vec::new() };
        while shape.len() < rank {
            let dims = self.dims.clone();
            shape.push(self.pick(&dims));
        }
        self.limit(&mut shape, 600);
        self.input(ty, shape);
        let wanted = self.int(2, 6) as usize;
        let mut tries = 0;
        while self.stages.len() < wanted && tries < 40 {
            tries += 1;
            self.step();
        }
        if self.stages.is_empty() {
            let tensor = self.tensors[0].clone();
            self.elementwise(&tensor);
        }
        let wanted = wanted_kinds(number);
        if wanted.contains(&"tensorize") {
            self.dot();
        }
        if wanted.contains(&"store_at") || wanted.contains(&"store_root") {
            self.stencils();
        }
        if wanted.contains(&"skew of steps") && !self.gpu {
            self.table();
        }
        for kind in ["scan", "scan blocks", "scatter"].iter().filter(|kind| wanted.contains(kind)) {
            self.linear_reduction(kind);
        }
        if number % RECURRENCE_PERIOD == 6 && !self.gpu {
            let shaped = |tensor: &&Tensor| !tensor.shape.is_empty();
            let shaped: Vec<Tensor> = self.tensors.iter().filter(shaped).cloned().collect();
            let tensor = self.pick(&shaped);
            self.recurrence(&tensor);
            self.step();
        }
        if number % gathers::GATHER_PERIOD == 4 {
            let shaped = |tensor: &&Tensor| !tensor.shape.is_empty();
            let shaped: Vec<Tensor> = self.tensors.iter().filter(shaped).cloned().collect();
            let tensor = self.pick(&shaped);
            self.gathered(&tensor);
            self.step();
        }
        if number % updates::UPDATE_PERIOD == 2 {
            self.update();
            self.step();
        }
        self.choose_outputs();
        let mut body = std::mem::take(&mut self.inputs);
        body.append(&mut self.body);
        Program {
            network: false,
            name: self.name.clone(),
            items: std::mem::take(&mut self.items),
            params,
            reassociate: self.chance(2),
            body,
            vars,
            defines: Vec::new(),
            seed: self.rng.random(),
            tags: std::mem::take(&mut self.tags),
            stages: std::mem::take(&mut self.stages),
            schedules: Vec::new(),
        }
    }

    /// Makes outputs of the stages that no output needs, and of some others.
    fn choose_outputs(&mut self) {
        let mut needed: Vec<String> = Vec::new();
        for at in (0..self.stages.len()).rev() {
            let output = self.stages[at].update
                || !needed.contains(&self.stages[at].name)
                || self.chance(10);
            self.stages[at].output = output;
            let mut next = needed.len();
            needed.push(self.stages[at].name.clone());
            while let Some(name) = needed.get(next).cloned() {
                next += 1;
                let of = self.stages.iter().filter(|stage| stage.named(&name));
                let read: Vec<String> =
                    of.flat_map(|s| s.reads.iter().chain(&s.earlier)).cloned().collect();
                needed.extend(
                    read.into_iter().filter(|name| !needed.contains(name)).collect::<Vec<_>>(),
                );
            }
            let head = if output { "output" } else { "compute" };
            let (place, name) = (self.stages[at].place, self.stages[at].name.clone());
            declare(&mut self.body[place], &name, head);
            let own = &self.stages[at];
            let plain = own.others.is_empty() && own.steps == 0 && !own.update;
            if output && plain && !self.strides(own.axes.len()).is_empty() {
                let form = &mut self.body[place].form;
                *form = form.replacen("] = ", "] strided = ", 1);
            }
        }
        let offset = self.inputs.len();
        self.stages.iter_mut().for_each(|stage| stage.place += offset);
    }

    fn any_type(&mut self) -> DType {
        use DType::*;
        self.pick(&[
            Float32, Float32, Float32, Float32, Float32, Float32, Int32, Int32, Int32, Float64,
            Int64, Int8, Uint8, Float16,
        ])
    }

    /// Replaces extents so that their product is at most `most`.
    fn limit(&mut self, shape: &mut [Ext], most: i64) {
        let mut size = 1;
        for ext in shape {
            if size * ext.value.max(1) > most {
                *ext = Ext::literal(self.int(1, 4));
            }
            size *= ext.value.max(1);
        }
    }

    fn input(&mut self, dtype: DType, shape: Vec<Ext>) -> Tensor {
        let name = self.fresh("A");
        let places = vec!["$"; shape.len()].join(", ");
        let kids = shape.iter().map(Ext::node).collect();
        let strides = self.strides(shape.len());
        self.inputs.push(Node::stmt(format!("input {name}: {dtype}[{places}]{strides}"), kids));
        let tensor = Tensor { name, dtype, shape, computed: false, readers: 0 };
        self.tensors.push(tensor.clone());
        tensor
    }

    /// Returns ` strided` for some of the arguments that can be.
    fn strides(&mut self, rank: usize) -> &'static str {
        if rank > 0 && !self.network && !self.gpu && self.chance(12) {
            self.tag("strided");
            return " strided";
        }
        ""
    }

    /// Returns a tensor of this type and shape: an earlier one or a new input.
    fn companion(&mut self, dtype: DType, shape: &[Ext]) -> Tensor {
        let same = |tensor: &&Tensor| {
            tensor.dtype == dtype
                && tensor.shape.len() == shape.len()
                && tensor.shape.iter().zip(shape).all(|(a, b)| a.text == b.text)
        };
        let fitting: Vec<Tensor> = self.tensors.iter().filter(same).cloned().collect();
        match fitting.is_empty() || self.chance(15) {
            true => self.input(dtype, shape.to_vec()),
            false => self.pick(&fitting),
        }
    }

    fn step(&mut self) {
        let unread: Vec<Tensor> =
            self.tensors.iter().filter(|t| t.computed && t.readers == 0).cloned().collect();
        let all = self.tensors.clone();
        let tensor = match unread.is_empty() || self.chance(25) {
            true => self.pick(&all),
            false => self.pick(&unread),
        };
        let rank = tensor.shape.len();
        match self.int(0, 35) {
            0..4 => self.elementwise(&tensor),
            4 | 5 if rank > 1 => self.transpose(&tensor),
            6..9 if rank > 0 => self.stencil(&tensor),
            9..12 if rank > 0 => self.window(&tensor),
            12..15 if rank > 0 => self.reduce(&tensor),
            15 | 16 if rank == 2 => self.product(&tensor),
            17 | 18 if rank > 0 => self.padding(&tensor),
            19 if rank > 0 => self.reindex(&tensor),
            20 if rank > 0 => self.concat(&tensor),
            21 if rank < 3 => self.broadcast(&tensor),
            22 if rank == 2 => self.reshape(&tensor),
            23 => self.byte_product(),
            32 if self.gpu => self.byte_product(),
            24 | 25 | 35 if rank > 0 => self.prefix(&tensor),
            26 | 27 if rank > 0 => self.scattered(&tensor),
            28 if rank > 0 && !self.gpu => self.recurrence(&tensor),
            29 => self.update(),
            30 | 31 if rank > 0 => self.bordered(&tensor),
            33 | 34 if rank > 1 => self.triangle(&tensor),
            _ => {}
        }
    }

    /// Adds stencils, each of which reads the one before.
    fn stencils(&mut self) {
        for _ in 0..self.int(2, 3) {
            let shaped = self.tensors.iter().rfind(|tensor| !tensor.shape.is_empty());
            let tensor = shaped.expect("inputs have a shape").clone();
            match self.chance(70) {
                true => self.bordered(&tensor),
                false => self.stencil(&tensor),
            }
        }
    }

    fn axes(&self, shape: &[Ext]) -> Vec<(String, Ext)> {
        let names = ["i", "j", "x", "y", "z"];
        names.iter().map(|name| name.to_string()).zip(shape.iter().cloned()).collect()
    }

    fn load(&self, tensor: &Tensor, indices: &[String]) -> Node {
        Node::leaf(tensor.dtype, format!("{}[{}]", tensor.name, indices.join(", ")))
    }

    fn load_plain(&self, tensor: &Tensor, axes: &[(String, Ext)]) -> Node {
        let names: Vec<String> = axes.iter().map(|(name, _)| name.clone()).collect();
        self.load(tensor, &names)
    }

    /// Adds `stage NAME[…] = VALUE`; `choose_outputs` makes `stage` an `output` or `compute`.
    fn stage(
        &mut self,
        axes: &[(String, Ext)],
        reduce: &[(String, Ext)],
        form: &str,
        kids: Vec<Node>,
        dtypes: &[DType],
        order: (bool, bool),
    ) {
        let shape: Vec<Ext> = axes.iter().map(|(_, ext)| ext.clone()).collect();
        let points: i64 = axes.iter().chain(reduce).map(|(_, ext)| ext.value.max(1)).product();
        if points > self.most_points || shape.iter().any(|ext| ext.value < 0) {
            return;
        }
        for (name, ext) in reduce {
            self.body.push(Node::stmt(format!("reduce {name}: 0..$"), vec![ext.node()]));
        }
        let names: Vec<String> = dtypes.iter().map(|_| self.fresh("S")).collect();
        let shown = match &names[..] {
            [one] => one.clone(),
            many => format!("({})", many.join(", ")),
        };
        let places: Vec<String> = axes.iter().map(|(name, _)| format!("{name}: $")).collect();
        let mut all: Vec<Node> = shape.iter().map(Ext::node).collect();
        all.extend(kids);
        let place = self.body.len();
        let node = Node::stmt(format!("stage {shown}[{}] = {form}", places.join(", ")), all);
        let reads = reads(&node.render(), self.tensors.iter().map(|tensor| &tensor.name[..]));
        let reads: Vec<String> = reads.into_iter().map(|read| self.whole(read)).collect();
        for tensor in &mut self.tensors {
            tensor.readers += usize::from(reads.contains(&tensor.name));
        }
        self.body.push(node);
        self.stages.push(StageInfo {
            name: names[0].clone(),
            axes: axes.to_vec(),
            reduce: reduce.to_vec(),
            output: false,
            exact: order.0,
            commutes: order.1,
            reads,
            place,
            others: names[1..].to_vec(),
            pinned: false,
            dot: false,
            prefix: None,
            scatter: None,
            steps: 0,
            earlier: Vec::new(),
            update: false,
        });
        for (name, dtype) in names.into_iter().zip(dtypes) {
            let shape = shape.clone();
            self.tensors.push(Tensor { name, dtype: *dtype, shape, computed: true, readers: 0 });
        }
    }

    /// Returns the name of the stage of a component.
    fn whole(&self, read: String) -> String {
        let of = self.stages.iter().find(|stage| stage.named(&read));
        of.map_or(read, |stage| stage.name.clone())
    }

    fn map(&mut self, axes: &[(String, Ext)], value: Node) {
        let mut value = value;
        if self.chance(12) {
            let to = self.any_type();
            value = Node::new(to, format!("($ as {to})"), vec![value]);
        }
        let dtype = value.ty.expect("an expression");
        self.stage(axes, &[], "$", vec![value], &[dtype], (true, true));
    }

    /// Returns an expression of one value.
    fn unary(&mut self, value: Node) -> Node {
        let ty = value.ty.expect("an expression");
        let forms: &[&str] = match ty {
            _ if ty.is_float() => &[
                "($ * 0.5)",
                "($ + 1.5)",
                "max($, 0)",
                "abs($)",
                "(3 - $)",
                "sqrt(abs($))",
                "floor($)",
                "(if $ > 1 then 2.5 else 0.25)",
                "($ / 3)",
            ],
            _ if ty.is_signed() => &[
                "($ * 3)",
                "($ + 7)",
                "max($, 1)",
                "abs($)",
                "(5 - $)",
                "($ // (-7))",
                "($ % 5)",
                "($ // 8)",
                "($ // 49)",
                "($ % 16)",
                "($ % 103)",
                "(if $ > 1 then 2 else 3)",
                "(-$)",
            ],
            // As floats, 1/49 and 1/103 are rounded down, so products may be below the quotient.
            _ => &[
                "($ * 3)",
                "($ + 7)",
                "max($, 1)",
                "($ // 3)",
                "($ // 103)",
                "($ % 8)",
                "($ % 49)",
                "($ ^ 9)",
            ],
        };
        let form = self.pick(forms).to_string();
        if form.starts_with("(if") {
            let form = form.replace("2.5", &format!("(2.5 as {ty})"));
            let form = form.replace("then 2 ", &format!("then (2 as {ty}) "));
            return Node::new(ty, form, vec![value]);
        }
        Node::new(ty, form, vec![value])
    }

    fn binary(&mut self, a: Node, b: Node) -> Node {
        let ty = a.ty.expect("an expression");
        let form = self.pick(&["($ + $)", "($ - $)", "($ * $)", "max($, $)", "min($, $)"]);
        Node::new(ty, form, vec![a, b])
    }

    fn elementwise(&mut self, tensor: &Tensor) {
        self.tag("elementwise");
        let axes = self.axes(&tensor.shape);
        let mut value = self.load_plain(tensor, &axes);
        if self.chance(60) {
            value = self.unary(value);
        }
        if self.chance(60) {
            let other = self.companion(tensor.dtype, &tensor.shape);
            let load = self.load_plain(&other, &axes);
            value = self.binary(value, load);
        } else if !axes.is_empty() && self.chance(50) {
            self.tag("broadcast");
            let at = self.int(0, axes.len() as i64 - 1) as usize;
            let other = self.companion(tensor.dtype, &tensor.shape[at..at + 1]);
            let load = self.load_plain(&other, &axes[at..at + 1]);
            value = self.binary(value, load);
        }
        self.map(&axes, value);
    }

    /// Returns the number of positions of a window along a dimension, its stride and dilation.
    fn positions(&mut self, ext: &Ext, taps: i64) -> Option<(Ext, i64, i64)> {
        let (stride, dilation) = (self.pick(&[1, 1, 1, 2, 3]), self.pick(&[1, 1, 1, 2]));
        let span = (taps - 1) * dilation + 1;
        if ext.value < span {
            return None;
        }
        let value = (ext.value - span) / stride + 1;
        let form = match stride {
            1 if span == 1 => "@".to_string(),
            1 => format!("@ - {}", span - 1),
            _ => format!("(@ - {span}) // {stride} + 1"),
        };
        Some((derived(ext, &form, value), stride, dilation))
    }

    fn stencil(&mut self, tensor: &Tensor) {
        let rank = tensor.shape.len();
        let mut shape = tensor.shape.clone();
        let mut points: Vec<Vec<String>> = vec![Vec::new()];
        let names: Vec<String> = self.axes(&shape).into_iter().map(|(name, _)| name).collect();
        for at in 0..rank {
            let taps = match self.chance(60) {
                true => self.int(2, 3),
                false => 1,
            };
            let Some((ext, stride, dilation)) = self.positions(&tensor.shape[at], taps) else {
                return;
            };
            let (stride, ext) =
                if taps == 1 { (1, tensor.shape[at].clone()) } else { (stride, ext) };
            shape[at] = ext;
            let index = |tap: i64| {
                let place = match stride {
                    1 => names[at].clone(),
                    _ => format!("{}*{stride}", names[at]),
                };
                if tap == 0 { place } else { format!("{place} + {}", tap * dilation) }
            };
            let extend = |point: &Vec<String>, tap| [&point[..], &[index(tap)]].concat();
            points = points
                .iter()
                .flat_map(|point| (0..taps).map(|tap| extend(point, tap)).collect::<Vec<_>>())
                .collect();
            if points.len() > 9 {
                return;
            }
        }
        self.tag("stencil");
        let axes = self.axes(&shape);
        let mut value = self.load(tensor, &points[0]);
        for point in &points[1..] {
            let load = self.load(tensor, point);
            let ty = tensor.dtype;
            value = match self.chance(80) {
                true => Node::new(ty, "($ + $)", vec![value, load]),
                false => self.binary(value, load),
            };
        }
        self.map(&axes, value);
    }
}

/// Replaces the word `stage` in front of a name.
fn declare(node: &mut Node, name: &str, head: &str) {
    let rest = node.form.strip_prefix("stage ").map(|rest| rest.trim_start_matches('('));
    let after = rest.and_then(|rest| rest.strip_prefix(name));
    if after.is_some_and(|after| after.starts_with(['[', ','])) {
        node.form = node.form.replacen("stage", head, 1);
    }
    node.kids.iter_mut().for_each(|kid| declare(kid, name, head));
}

/// Returns the tensors of `names` that a statement reads.
pub fn reads<'a>(text: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let body = text.split_once('=').map_or("", |(_, body)| body);
    let read = |name: &&str| {
        body.match_indices(*name)
            .any(|(at, _)| !body[..at].ends_with(word) && body[at + name.len()..].starts_with('['))
    };
    names.filter(read).map(str::to_string).collect()
}
