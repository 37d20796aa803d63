//! Random kernels worth scheduling: chains of elementwise stages, stencils, windows, reductions,
//! products, paddings, transposes, each reading what came before.

use crate::generate::Ext;
use crate::schedule::wishes;
use crate::table::{Reducer, all_reducers};
use crate::tree::{Node, Program, StageInfo};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;
use tec::ir::DType;

/// Elements of a stage, terms of a reduction included.
const MAX_POINTS: i64 = 2500;

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
    tags: BTreeSet<String>,
    names: usize,
}

/// Program number `number` of a run; no schedule yet.
pub fn pipeline(seed: u64, number: u64, name: &str) -> Program {
    Pipeline::new(seed, number, name).program(number)
}

/// One whose tensors have extents `v` and `w`, with the first 0 and the other beyond any memory: to
/// compute nothing takes no time.
pub fn empty_pipeline(seed: u64, number: u64, name: &str) -> Program {
    let mut pipeline = Pipeline::new(seed, number, name);
    pipeline.empty = true;
    let mut program = pipeline.program(number);
    let huge = pipeline.pick(&[1 << 40, 1 << 40, 1 << 40, 1 << 31, 1 << 62]);
    program.vars = vec![("v".to_string(), 0), ("w".to_string(), huge)];
    program
}

/// An expression that needs brackets as an operand.
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
            tags: BTreeSet::new(),
            names: 0,
        }
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
            // While shapes are drawn all extents are small.
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
        if wishes(number).contains(&"tensorize") {
            self.dot();
        }
        self.choose_outputs();
        let mut body = std::mem::take(&mut self.inputs);
        body.append(&mut self.body);
        Program {
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

    /// What nothing reads is an output, and some of what is read.
    fn choose_outputs(&mut self) {
        for at in 0..self.stages.len() {
            let name = self.stages[at].name.clone();
            let read = self.stages.iter().any(|stage| stage.reads.contains(&name));
            let output = !read || self.chance(10);
            self.stages[at].output = output;
            let head = if output { "output" } else { "compute" };
            let place = self.stages[at].place;
            let form = &mut self.body[place].form;
            *form = form.replacen("stage", head, 1);
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

    /// Extents whose product is small.
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
        self.inputs.push(Node::stmt(format!("input {name}: {dtype}[{places}]"), kids));
        let tensor = Tensor { name, dtype, shape, computed: false, readers: 0 };
        self.tensors.push(tensor.clone());
        tensor
    }

    /// A tensor of this type that has this shape: an old one or a new input.
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
        match self.int(0, 24) {
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
            _ => {}
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
        if points > MAX_POINTS || shape.iter().any(|ext| ext.value < 0) {
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
        let whole = |read: String| {
            let of = self.stages.iter().find(|stage| stage.named(&read));
            of.map_or(read, |stage| stage.name.clone())
        };
        let reads: Vec<String> = reads.into_iter().map(whole).collect();
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
        });
        for (name, dtype) in names.into_iter().zip(dtypes) {
            let shape = shape.clone();
            self.tensors.push(Tensor { name, dtype: *dtype, shape, computed: true, readers: 0 });
        }
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

    /// An expression of one value.
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
            // The nearest floats of 1/49 and 1/103 are less than these.
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

    fn transpose(&mut self, tensor: &Tensor) {
        self.tag("transpose");
        let mut order: Vec<usize> = (0..tensor.shape.len()).collect();
        for at in 0..order.len() {
            let other = self.int(at as i64, order.len() as i64 - 1) as usize;
            order.swap(at, other);
        }
        let shape: Vec<Ext> = order.iter().map(|at| tensor.shape[*at].clone()).collect();
        let axes = self.axes(&shape);
        let mut indices = vec![String::new(); order.len()];
        order.iter().zip(&axes).for_each(|(at, (name, _))| indices[*at] = name.clone());
        let mut value = self.load(tensor, &indices);
        if self.chance(30) {
            value = self.unary(value);
        }
        self.map(&axes, value);
    }

    /// Positions of a window along a dimension: its extent, stride and dilation.
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

    /// What may reduce elements of a type.
    fn reducer(&mut self, ty: DType) -> Reducer {
        let fits = |reducer: &&Reducer| {
            let last = *reducer.types.last().expect("a component");
            last == ty && reducer.types.len() <= 2 && reducer.name != "mean"
        };
        let all: Vec<Reducer> = all_reducers().iter().filter(fits).cloned().collect();
        let usual = ["sum", "sum", "max", "min", "argmax", "prod"];
        let wanted = self.pick(&usual);
        match all.iter().find(|reducer| reducer.name == wanted) {
            Some(reducer) if self.chance(75) => reducer.clone(),
            _ => self.pick(&all),
        }
    }

    /// Adds a reduction of `term` over `reduce`.
    fn push_reduction(
        &mut self,
        axes: &[(String, Ext)],
        reduce: &[(String, Ext)],
        reducer: &Reducer,
        term: Node,
        condition: Option<String>,
    ) {
        let callee = match reducer.item {
            "" => reducer.name.to_string(),
            item => {
                let fresh = self.fresh(reducer.name);
                let name = format!("{}_{fresh}", self.name);
                self.items.push(Node::stmt(item.replace('@', &name), vec![]));
                name
            }
        };
        let mut kids = Vec::new();
        for (at, ty) in reducer.types.iter().enumerate() {
            kids.push(match at + 1 == reducer.types.len() {
                true => term.clone(),
                false if reducer.name.starts_with("arg") => {
                    let axis = &reduce[reduce.len() - 1].0;
                    Node::leaf(*ty, format!("({axis} as {ty})"))
                }
                false => term.clone(),
            });
        }
        let places = match kids.len() {
            1 => "$".to_string(),
            count => format!("({})", vec!["$"; count].join(", ")),
        };
        let names: Vec<&str> = reduce.iter().map(|(name, _)| &name[..]).collect();
        let axis = match names[..] {
            [one] => one.to_string(),
            _ => format!("[{}]", names.join(", ")),
        };
        let mut form = format!("{callee}({places}, axis={axis}");
        if let Some(condition) = condition {
            form.push_str(&format!(", where={condition}"));
        }
        if self.chance(4) {
            form.push_str(", reassociate");
        }
        form.push(')');
        // Of equals the first one counts.
        let commutes = !["first", "affine", "argmin", "argmax"].contains(&reducer.name);
        let exact = commutes && reducer.types.iter().all(|ty| !ty.is_float());
        self.stage(axes, reduce, &form, kids, &reducer.types, (exact, commutes));
    }

    /// A convolution along one or two dimensions.
    fn window(&mut self, tensor: &Tensor) {
        if tensor.dtype.is_half() {
            return;
        }
        self.tag("window");
        let mut shape = tensor.shape.clone();
        let names: Vec<String> = self.axes(&shape).into_iter().map(|(name, _)| name).collect();
        let mut indices = names.clone();
        let mut reduce: Vec<(String, Ext)> = Vec::new();
        for at in 0..shape.len() {
            if reduce.len() == 2 || (at + 1 < shape.len() && self.chance(40)) {
                continue;
            }
            let taps = self.int(2, 3);
            let Some((ext, stride, dilation)) = self.positions(&shape[at], taps) else { return };
            shape[at] = ext;
            let k = self.fresh("k");
            let place =
                if stride == 1 { names[at].clone() } else { format!("{}*{stride}", names[at]) };
            indices[at] = match dilation {
                1 => format!("{place} + {k}"),
                _ => format!("{place} + {k}*{dilation}"),
            };
            reduce.push((k, Ext::literal(taps)));
        }
        if reduce.is_empty() {
            return;
        }
        let axes = self.axes(&shape);
        let mut term = self.load(tensor, &indices);
        let reducer = match self.chance(70) {
            true => {
                let shape: Vec<Ext> = reduce.iter().map(|(_, ext)| ext.clone()).collect();
                let weights = self.companion(tensor.dtype, &shape);
                let load = self.load_plain(&weights, &reduce);
                term = Node::new(tensor.dtype, "($ * $)", vec![term, load]);
                let sum =
                    |reducer: &Reducer| reducer.name == "sum" && reducer.types[0] == tensor.dtype;
                all_reducers().into_iter().find(sum).expect("all numbers are added")
            }
            false => self.reducer(tensor.dtype),
        };
        self.push_reduction(&axes, &reduce, &reducer, term, None);
    }

    fn reduce(&mut self, tensor: &Tensor) {
        self.tag("reduction");
        let rank = tensor.shape.len();
        let first = self.int(0, rank as i64 - 1) as usize;
        let mut gone = vec![first];
        if rank > 1 && self.chance(35) {
            gone.push((first + 1) % rank);
        }
        // An empty constant range is an error.
        if gone.iter().any(|at| tensor.shape[*at].constant && tensor.shape[*at].value < 1) {
            return;
        }
        let mut shape = tensor.shape.clone();
        let mut kept = 0;
        shape.retain(|_| {
            kept += 1;
            !gone.contains(&(kept - 1))
        });
        let axes = self.axes(&shape);
        let reduce: Vec<(String, Ext)> =
            gone.iter().map(|at| (self.fresh("k"), tensor.shape[*at].clone())).collect();
        let mut names = axes.iter();
        let indices: Vec<String> = (0..rank)
            .map(|at| match gone.iter().position(|g| *g == at) {
                Some(place) => reduce[place].0.clone(),
                None => names.next().expect("an axis").0.clone(),
            })
            .collect();
        let mut term = self.load(tensor, &indices);
        if self.chance(40) {
            term = self.unary(term);
        }
        let reducer = self.reducer(tensor.dtype);
        let condition = match axes.first() {
            Some((axis, _)) if self.chance(15) => {
                self.tag("where");
                Some(format!("{} <= {axis}", reduce[0].0))
            }
            _ => None,
        };
        self.push_reduction(&axes, &reduce, &reducer, term, condition);
    }

    fn product(&mut self, tensor: &Tensor) {
        if tensor.dtype.is_half() || (tensor.shape[1].constant && tensor.shape[1].value < 1) {
            return;
        }
        self.tag("product");
        let dims = self.dims.clone();
        let mut columns = vec![self.pick(&dims)];
        self.limit(&mut columns, 12);
        let other = self.companion(tensor.dtype, &[tensor.shape[1].clone(), columns[0].clone()]);
        let k = self.fresh("k");
        let reduce = [(k.clone(), tensor.shape[1].clone())];
        let axes = self.axes(&[tensor.shape[0].clone(), columns.remove(0)]);
        let a = self.load(tensor, &[axes[0].0.clone(), k.clone()]);
        let b = self.load(&other, &[k, axes[1].0.clone()]);
        let term = Node::new(tensor.dtype, "($ * $)", vec![a, b]);
        let sum = |reducer: &Reducer| reducer.name == "sum" && reducer.types[0] == tensor.dtype;
        let sum = all_reducers().into_iter().find(sum).expect("all numbers are added");
        self.push_reduction(&axes, &reduce, &sum, term, None);
    }

    /// What the intrinsic for tests computes.
    fn dot(&mut self) {
        let terms = Ext::literal(4 * self.int(1, 3));
        let dims = self.dims.clone();
        let (n, m) = (self.pick(&dims), self.pick(&dims));
        let a = self.input(DType::Int32, vec![n.clone(), terms.clone()]);
        let b = self.input(DType::Int32, vec![m.clone(), terms.clone()]);
        let axes = self.axes(&[n, m]);
        let k = self.fresh("k");
        let loads = [
            self.load(&a, &["i".to_string(), k.clone()]),
            self.load(&b, &["j".to_string(), k.clone()]),
        ];
        let kids = vec![Node::new(DType::Int32, "($ * $)", loads.to_vec())];
        let form = format!("sum($, axis={k})");
        let count = self.stages.len();
        self.stage(&axes, &[(k, terms)], &form, kids, &[DType::Int32], (true, true));
        if let Some(stage) = self.stages.get_mut(count) {
            stage.dot = true;
        }
    }

    fn padding(&mut self, tensor: &Tensor) {
        self.tag("padding");
        let mut shape = tensor.shape.clone();
        let names: Vec<String> = self.axes(&shape).into_iter().map(|(name, _)| name).collect();
        let mut indices = names.clone();
        let mut conds = Vec::new();
        for at in 0..shape.len() {
            let pad = self.int(0, 2);
            if pad > 0 {
                let ext = grouped(&shape[at].text);
                conds.push(format!("{} >= {pad} and {} < {ext} + {pad}", names[at], names[at]));
                indices[at] = format!("{} - {pad}", names[at]);
                shape[at] =
                    derived(&shape[at], &format!("@ + {}", 2 * pad), shape[at].value + 2 * pad);
            }
        }
        if conds.is_empty() {
            return;
        }
        let axes = self.axes(&shape);
        let load = self.load(tensor, &indices);
        let zero = Node::leaf(tensor.dtype, format!("(1 as {})", tensor.dtype));
        let form = format!("(if {} then $ else $)", conds.join(" and "));
        self.map(&axes, Node::new(tensor.dtype, form, vec![load, zero]));
    }

    /// Reversed, repeated, enlarged, thinned along one dimension.
    fn reindex(&mut self, tensor: &Tensor) {
        let mut shape = tensor.shape.clone();
        let at = self.int(0, shape.len() as i64 - 1) as usize;
        let ext = shape[at].clone();
        let names: Vec<String> = self.axes(&shape).into_iter().map(|(name, _)| name).collect();
        let mut indices = names.clone();
        let name = &names[at];
        let text = grouped(&ext.text);
        let by = self.int(2, 9);
        let (kind, new, index) = match self.int(0, 6) {
            0 => ("reversed", ext.clone(), format!("{text} - 1 - {name}")),
            1 if ext.value > 0 && ext.constant => {
                ("repeated", derived(&ext, "@ + 3", ext.value + 3), format!("{name} % {text}"))
            }
            2 | 3 => {
                let form = format!("{by} * @");
                ("enlarged", derived(&ext, &form, ext.value * by), format!("{name} // {by}"))
            }
            4 if ext.value > 0 && ext.constant => {
                ("rotated", ext.clone(), format!("({name} - {by}) % {text}"))
            }
            5 if ext.value >= by && ext.constant => {
                ("periodic", derived(&ext, "@ + 3", ext.value + 3), format!("{name} % {by}"))
            }
            _ => ("thinned", derived(&ext, "@ // 2", ext.value / 2), format!("2*{name} + 1")),
        };
        self.tag(kind);
        shape[at] = new;
        indices[at] = index;
        let axes = self.axes(&shape);
        let value = self.load(tensor, &indices);
        self.map(&axes, value);
    }

    fn concat(&mut self, tensor: &Tensor) {
        self.tag("concat");
        let other = self.companion(tensor.dtype, &tensor.shape);
        let mut shape = tensor.shape.clone();
        let at = self.int(0, shape.len() as i64 - 1) as usize;
        let ext = grouped(&shape[at].text);
        shape[at] = derived(&shape[at], "2 * @", shape[at].value * 2);
        let axes = self.axes(&shape);
        let mut indices: Vec<String> = axes.iter().map(|(name, _)| name.clone()).collect();
        let first = self.load(tensor, &indices);
        let name = indices[at].clone();
        indices[at] = format!("{name} - {ext}");
        let second = self.load(&other, &indices);
        let form = format!("(if {name} < {ext} then $ else $)");
        self.map(&axes, Node::new(tensor.dtype, form, vec![first, second]));
    }

    fn broadcast(&mut self, tensor: &Tensor) {
        self.tag("broadcast");
        let dims = self.dims.clone();
        let mut shape = vec![self.pick(&dims)];
        self.limit(&mut shape, 9);
        shape.extend(tensor.shape.iter().cloned());
        let axes = self.axes(&shape);
        let value = self.load_plain(tensor, &axes[1..]);
        let other = self.companion(tensor.dtype, &shape[..1]);
        let load = self.load_plain(&other, &axes[..1]);
        let value = self.binary(value, load);
        self.map(&axes, value);
    }

    /// Two dimensions as one.
    fn reshape(&mut self, tensor: &Tensor) {
        let [a, b] = &tensor.shape[..] else { return };
        if b.value < 1 || !b.constant {
            return;
        }
        self.tag("reshape");
        let text = format!("{} * {}", grouped(&a.text), grouped(&b.text));
        let ext = Ext::plain(text, a.constant && b.constant, a.value * b.value);
        let axes = self.axes(&[ext]);
        let by = grouped(&b.text);
        let value = self.load(tensor, &[format!("i // {by}"), format!("i % {by}")]);
        self.map(&axes, value);
    }
}

/// The tensors of `names` that a statement reads.
pub fn reads<'a>(text: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let body = text.split_once('=').map_or("", |(_, body)| body);
    let read = |name: &&str| {
        body.match_indices(*name)
            .any(|(at, _)| !body[..at].ends_with(word) && body[at + name.len()..].starts_with('['))
    };
    names.filter(read).map(str::to_string).collect()
}
