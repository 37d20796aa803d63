//! Random programs: parameters, inputs, stages, operators. A program depends only on its seed.

use crate::express::Place;
use crate::survey::survey;
use crate::table::{Op, Reducer, all_ops, all_reducers};
use crate::tree::{Node, Program};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;
use tec::ir::DType;

/// An extent and its properties.
#[derive(Clone, PartialEq, Debug)]
pub struct Ext {
    /// As written.
    pub text: String,
    /// Whether it is a compile-time constant.
    pub constant: bool,
    /// Its value in the run.
    pub value: i64,
    /// `(BASE - k) // s + 1`: positions of a window in `BASE`.
    pub window: Option<(String, i64, i64)>,
    /// `a * b`.
    pub product: Option<(String, String)>,
}

impl Ext {
    /// Returns a literal.
    pub fn literal(value: i64) -> Ext {
        Ext { text: value.to_string(), constant: true, value, window: None, product: None }
    }

    /// Returns an expression.
    pub fn plain(text: impl Into<String>, constant: bool, value: i64) -> Ext {
        Ext { text: text.into(), constant, value, window: None, product: None }
    }

    /// Returns the extent as an expression; literals can be shrunk.
    pub fn node(&self) -> Node {
        Node::leaf(DType::Index, self.text.clone())
    }
}

/// A tensor that may be read.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub shape: Vec<Ext>,
    /// Stage or input.
    pub computed: bool,
    /// Stages that read it, so far.
    pub readers: usize,
}

/// An axis in scope.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Its name.
    pub name: String,
    /// First value.
    pub from: i64,
    /// One past the last.
    pub ext: Ext,
}

/// The state of a kernel under construction.
#[derive(Default)]
pub struct Scope {
    /// Tensors that may be read.
    pub tensors: Vec<Tensor>,
    /// Scalar inputs.
    pub scalars: Vec<(String, DType)>,
    /// Extents to draw from.
    pub exts: Vec<Ext>,
    /// Compile-time integers: names.
    pub constants: Vec<String>,
    /// Run-time integers: names.
    pub vars: Vec<String>,
    /// Run-time integers with any value, often near the ends of their range.
    pub far: Vec<String>,
    /// `real` parameters.
    pub reals: Vec<String>,
    /// `bool` parameters.
    pub bools: Vec<String>,
    /// `dtype` parameters.
    pub dtypes: Vec<(String, DType)>,
    /// `def`s: name and types of operands and result.
    pub defs: Vec<(String, Vec<DType>, DType)>,
    /// Parameters of the `def` whose body is being generated, which can read nothing else.
    pub locals: Option<Vec<(String, DType)>>,
    /// `input` statements.
    pub inputs: Vec<Node>,
    /// Whether the caller gives the inputs, so that no more can be added.
    pub closed: bool,
    names: usize,
}

/// The generator.
pub struct Generator {
    pub rng: ChaCha8Rng,
    /// What was drawn.
    pub tags: BTreeSet<String>,
    /// The kernel being generated.
    pub scope: Scope,
    /// All operators.
    pub ops: Vec<Op>,
    /// The nesting of indices at the current place.
    pub nesting: u32,
    reducers: Vec<Reducer>,
    items: Vec<Node>,
    name: String,
}

/// Makes program number `number` of a run; `name` is its kernel's. The number selects the features
/// that must be drawn; the rest is random.
pub fn generate(seed: u64, number: u64, name: &str) -> Program {
    let rng = ChaCha8Rng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number);
    let mut generator = Generator {
        rng,
        tags: BTreeSet::new(),
        scope: Scope::default(),
        ops: all_ops(),
        nesting: 0,
        reducers: all_reducers(),
        items: Vec::new(),
        name: name.to_string(),
    };
    generator.program(number)
}

impl Generator {
    /// Whether an event of this probability in percent happens.
    pub fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn int(&mut self, low: i64, high: i64) -> i64 {
        self.rng.random_range(low..=high)
    }

    /// Returns a random element.
    pub fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.rng.random_range(0..list.len())].clone()
    }

    pub fn feature(&mut self, name: &str) {
        debug_assert!(crate::table::FEATURES.contains(&name), "{name}");
        self.tags.insert(format!("feature {name}"));
    }

    /// Returns an unused name.
    pub fn fresh(&mut self, prefix: &str) -> String {
        self.scope.names += 1;
        format!("{prefix}{}", self.scope.names)
    }

    /// Returns an item name that is unique among the programs that share a module.
    fn item_name(&mut self, what: &str) -> String {
        let fresh = self.fresh(what);
        format!("{}_{fresh}", self.name)
    }

    fn any_type(&mut self) -> DType {
        self.pick(&DType::ALL)
    }

    fn program(&mut self, number: u64) -> Program {
        let mut params = Vec::new();
        let (mut vars, mut defines) = (Vec::new(), Vec::new());
        self.parameters(&mut params, &mut vars, &mut defines);
        let mut head = self.head();
        if self.chance(25) {
            self.def();
        }
        let mut body = Vec::new();
        let wanted_operators = self.wanted_operators(number);
        for op in wanted_operators {
            self.map_stage(Some(op), &mut body);
        }
        let reducer = self.reducers[number as usize % self.reducers.len()].clone();
        self.reduce_stage(reducer, &mut body);
        for _ in 0..self.int(0, 3) {
            match self.int(0, 9) {
                0..2 => {
                    let reducer = self.pick(&self.reducers.clone());
                    self.reduce_stage(reducer, &mut body);
                }
                2..4 => self.operator(&mut body),
                4 => self.alias(&mut body),
                5 => self.compile_time_if(&mut body),
                _ => self.map_stage(None, &mut body),
            }
        }
        if self.chance(20) {
            self.recurrence(&mut body);
        }
        if self.chance(20) {
            self.sort_stage(&mut body);
        }
        if self.chance(40) {
            self.alias(&mut body);
        }
        if self.chance(10) {
            self.unused_reducer();
        }
        self.last_output(&mut body);
        let reassociate = self.chance(3);
        if self.scope.tensors.iter().any(|tensor| tensor.computed && tensor.readers > 1) {
            self.feature("multi-consumer");
        }
        head.append(&mut self.scope.inputs);
        self.assertion(&mut head);
        head.append(&mut body);
        let stages = survey(&head, &self.scope.tensors, &self.scope.exts);
        if reassociate {
            self.feature("reassociate");
        }
        Program {
            network: false,
            name: self.name.clone(),
            items: std::mem::take(&mut self.items),
            params,
            reassociate,
            body: head,
            vars,
            defines,
            seed: self.rng.random(),
            tags: std::mem::take(&mut self.tags),
            stages,
            schedules: Vec::new(),
        }
    }

    /// Returns the operators that this program must use.
    fn wanted_operators(&mut self, number: u64) -> Vec<Op> {
        let (casts, others): (Vec<Op>, Vec<Op>) =
            self.ops.iter().cloned().partition(|op| op.name == "as");
        let at = |list: &[Op], turn: u64| list[(turn % list.len() as u64) as usize].clone();
        let mut wanted_operators: Vec<Op> =
            (0..2).map(|turn| at(&casts, number * 2 + turn)).collect();
        wanted_operators.extend((0..3).map(|turn| at(&others, number * 3 + turn)));
        wanted_operators
    }

    fn parameters(
        &mut self,
        params: &mut Vec<Node>,
        vars: &mut Vec<(String, i64)>,
        defines: &mut Vec<(String, String)>,
    ) {
        for value in [0, 1] {
            if self.chance(12) {
                self.scope.exts.push(Ext::literal(value));
            }
        }
        for _ in 0..2 {
            let value = self.int(2, 7);
            self.scope.exts.push(Ext::literal(value));
        }
        if self.chance(40) {
            self.feature("constant parameter");
            let value = self.int(1, 6);
            let mut default = value;
            if self.chance(30) {
                self.feature("-D");
                default = self.int(1, 9);
                defines.push(("c".to_string(), value.to_string()));
            }
            params.push(Node::stmt("c = $", vec![Node::leaf(DType::Index, default.to_string())]));
            self.scope.exts.push(Ext::plain("c", true, value));
            self.scope.exts.push(Ext::plain("c + 2", true, value + 2));
            self.scope.constants.push("c".to_string());
        }
        for name in ["n", "m"] {
            if !self.chance(40) {
                continue;
            }
            self.feature("symbolic");
            let value = if self.chance(12) { self.int(0, 1) } else { self.int(2, 7) };
            params.push(Node::stmt(format!("{name}: var"), vec![]));
            vars.push((name.to_string(), value));
            self.scope.vars.push(name.to_string());
            self.scope.exts.push(Ext::plain(name, false, value));
            self.symbolic_expression(name, value);
        }
        if let [(n, a), (m, b)] = &vars[..]
            && self.rng.random_bool(0.5)
        {
            let product = Some((n.clone(), m.clone()));
            let text = format!("{n} * {m}");
            self.scope.exts.push(Ext { product, ..Ext::plain(text, false, a * b) });
        }
        if self.chance(12) {
            self.feature("var as argument");
            params.push(Node::stmt("step: var", vec![]));
            vars.push(("step".to_string(), self.int(-1, 4)));
            self.scope.vars.push("step".to_string());
        }
        for name in ["far", "off"] {
            if self.chance(15) {
                self.feature("extreme run-time integer");
                let (sign, by) = (self.pick(&[-1, 1]), self.int(-2, 9));
                let near: i64 = self.pick(&[i64::MAX, i64::MAX, 1 << 62, 1 << 32, 1 << 31, 0]);
                let value = near.wrapping_mul(sign).saturating_add(by);
                params.push(Node::stmt(format!("{name}: var"), vec![]));
                vars.push((name.to_string(), if self.chance(10) { i64::MIN } else { value }));
                self.scope.far.push(name.to_string());
            }
        }
        if self.chance(20) {
            self.feature("real parameter");
            let value = self.pick(&["0.1", "1e-5", "3.0", "-0.75", "1.0 / 3.0", "-0.0"]);
            params.push(Node::stmt(format!("eps: real = {value}"), vec![]));
            self.scope.reals.push("eps".to_string());
        }
        if self.chance(20) {
            self.feature("bool parameter");
            let value = self.pick(&["true", "false"]);
            params.push(Node::stmt(format!("flag: bool = {value}"), vec![]));
            self.scope.bools.push("flag".to_string());
        }
        if self.chance(20) {
            self.feature("dtype parameter");
            let ty = self.any_type();
            params.push(Node::stmt(format!("T: dtype = {ty}"), vec![]));
            self.scope.dtypes.push(("T".to_string(), ty));
        }
    }

    fn symbolic_expression(&mut self, name: &str, value: i64) {
        let ext = match self.int(0, 8) {
            0 => Ext::plain(format!("{name} + 1"), false, value + 1),
            1 => Ext::plain(format!("2 * {name}"), false, value * 2),
            2 => Ext::plain(format!("{name} // 2"), false, value.div_euclid(2)),
            3 => Ext::plain(format!("({name} + 3) // 4"), false, (value + 3) / 4),
            4 | 5 => {
                let (s, k) = (self.int(1, 2), self.int(1, 3));
                let text = format!("({name} - {k}) // {s} + 1");
                let window = Some((name.to_string(), s, k));
                Ext { window, ..Ext::plain(text, false, (value - k).div_euclid(s) + 1) }
            }
            6 => Ext::plain(format!("max({name}, 3)"), false, value.max(3)),
            7 => Ext::plain(format!("{name} % 4 + 1"), false, value.rem_euclid(4) + 1),
            _ => return,
        };
        self.feature("symbolic expression");
        self.scope.exts.push(ext);
    }

    /// Returns constants, assumptions and assertions.
    fn head(&mut self) -> Vec<Node> {
        let mut head = Vec::new();
        if self.chance(25) {
            self.feature("let constant");
            let value = self.int(1, 3);
            let (text, of) =
                match self.scope.exts.iter().find(|ext| ext.constant && ext.text == "c") {
                    Some(ext) if self.rng.random_bool(0.5) => {
                        (format!("2 * c + {value}"), 2 * ext.value)
                    }
                    _ => (format!("{value} * 1"), 0),
                };
            head.push(Node::stmt(format!("let q = {text}"), vec![]));
            self.scope.exts.push(Ext::plain("q", true, of + value));
            self.scope.constants.push("q".to_string());
        }
        if let Some(name) = self.scope.vars.first().cloned()
            && self.chance(20)
        {
            self.feature("assume");
            let text = self.pick(&["@ >= 1", "@ < 100", "@ >= 0 and @ <= 6", "@ % 1 == 0"]);
            head.push(Node::stmt(format!("assume {}", text.replace('@', &name)), vec![]));
        }
        if let Some(name) = self.scope.vars.last().cloned()
            && self.chance(15)
        {
            // Each value is allowed by the assumptions above.
            self.feature("estimate");
            let value = self.pick(&["1", "2 + 3", "6"]);
            head.push(Node::stmt(format!("estimate {name} = {value}"), vec![]));
        }
        if self.chance(10) {
            self.feature("assert");
            head.push(Node::stmt("assert 1 + 1 == 2, \"arithmetic\"", vec![]));
        }
        head
    }

    /// Adds an assertion about the first element of an input, which may be NaN.
    fn assertion(&mut self, head: &mut Vec<Node>) {
        let has_elements = |tensor: &&Tensor| {
            !tensor.computed && tensor.shape.iter().all(|ext| ext.constant && ext.value > 0)
        };
        let Some(tensor) = self.scope.tensors.iter().find(has_elements) else { return };
        let element = format!("{}[{}]", tensor.name, vec!["0"; tensor.shape.len()].join(", "));
        if self.chance(10) {
            self.feature("assert inputs");
            let text = self.pick(&["@ == @", "@ != @ or @ == @", "not (@ != @)"]);
            let text = text.replace('@', &element);
            head.push(Node::stmt(format!("assert {text}, \"not a number {{0}}\""), vec![]));
        }
    }

    /// Returns axes whose product is small.
    pub fn axes(&mut self, rank: usize, limit: i64) -> Vec<Axis> {
        const NAMES: [&str; 5] = ["i", "j", "x", "y", "z"];
        let mut axes = Vec::new();
        let mut size = 1;
        let start = self.int(0, 1) as usize;
        for at in 0..rank {
            let exts = self.scope.exts.clone();
            let mut ext = self.pick(&exts);
            if size * ext.value.max(1) > limit {
                ext = Ext::literal(self.int(1, 2));
            }
            size *= ext.value.max(1);
            self.note_extent(&ext);
            axes.push(Axis { name: NAMES[start + at].to_string(), from: 0, ext });
        }
        axes
    }

    fn note_extent(&mut self, ext: &Ext) {
        match ext.value {
            0 => self.feature("extent 0"),
            1 => self.feature("extent 1"),
            _ => {}
        }
    }

    fn rank(&mut self) -> usize {
        let rank = self.pick(&[0, 1, 1, 1, 2, 2, 2, 3, 3, 4]);
        self.feature(&format!("rank {rank}"));
        rank
    }

    /// Returns the form of `NAME[i: n, j: m]` and its extents.
    fn stage_head(&mut self, names: &str, axes: &[Axis]) -> (String, Vec<Node>) {
        let places: Vec<String> = axes.iter().map(|axis| format!("{}: $", axis.name)).collect();
        let kids = axes.iter().map(|axis| axis.ext.node()).collect();
        (format!("{names}[{}]", places.join(", ")), kids)
    }

    pub fn kind(&mut self) -> &'static str {
        if self.scope.closed || self.chance(35) { "compute" } else { "output" }
    }

    pub fn add_stage(&mut self, name: &str, dtype: DType, axes: &[Axis]) {
        self.tags.insert(format!("stage {dtype}"));
        let shape = axes.iter().map(|axis| axis.ext.clone()).collect();
        let name = name.to_string();
        self.scope.tensors.push(Tensor { name, dtype, shape, computed: true, readers: 0 });
    }

    /// Adds a stage that is one expression, of this operator if one is given.
    fn map_stage(&mut self, wanted: Option<Op>, body: &mut Vec<Node>) {
        let rank = self.rank();
        let axes = self.axes(rank, 120);
        let place = Place { axes: axes.clone() };
        let value = match wanted {
            Some(op) => self.apply(&op, 2, &place),
            None => {
                let ty = if self.chance(5) { DType::Index } else { self.any_type() };
                self.expr(ty, 4, &place)
            }
        };
        let ty = value.ty.expect("an expression");
        let dtype = if ty == DType::Index { DType::Int64 } else { ty };
        if ty == DType::Index {
            self.feature("axis as data");
        }
        let kind = self.kind();
        let name = self.fresh("S");
        let (head, mut kids) = self.stage_head(&name, &axes);
        let mut form = format!("{kind} {head}");
        if self.chance(10) {
            self.feature("type given");
            form.push_str(&format!(": {dtype}"));
        }
        kids.push(value);
        body.push(Node::stmt(format!("{form} = $"), kids));
        self.add_stage(&name, dtype, &axes);
    }

    /// Adds `reduce` axes and a stage that reduces over them.
    fn reduce_stage(&mut self, reducer: Reducer, body: &mut Vec<Node>) {
        let rank = self.int(0, 2) as usize;
        let axes = self.axes(rank, 40);
        let mut inner = axes.clone();
        let mut names = Vec::new();
        let count = if self.chance(25) { 2 } else { 1 };
        for _ in 0..count {
            let axis = self.reduce_axis(count, body);
            names.push(axis.name.clone());
            inner.push(axis);
        }
        if count > 1 {
            self.feature("reduce over several axes");
        }
        let outer = Place { axes: axes.clone() };
        let place = Place { axes: inner };
        let terms: Vec<Node> = reducer
            .types
            .iter()
            .enumerate()
            .map(|(at, ty)| {
                let is_index =
                    at == 0 && reducer.types.len() == 2 && reducer.name.starts_with("arg");
                match is_index {
                    true => {
                        let axis = place.axes.last().expect("a reduction axis").name.clone();
                        match *ty == DType::Int64 {
                            true => Node::leaf(DType::Int64, axis),
                            false => Node::leaf(*ty, format!("({axis} as {ty})")),
                        }
                    }
                    false => reducer.in_domain(at, self.expr(*ty, 3, &place)),
                }
            })
            .collect();
        let callee = match reducer.item {
            "" => reducer.name.to_string(),
            item => {
                let name = self.item_name(reducer.name);
                self.items.push(Node::stmt(item.replace('@', &name), vec![]));
                name
            }
        };
        self.tags.insert(reducer.tag());
        let tuple = |count: usize| match count {
            1 => "$".to_string(),
            _ => format!("({})", vec!["$"; count].join(", ")),
        };
        let mut form = format!("{callee}({}, axis=", tuple(terms.len()));
        form.push_str(&match &names[..] {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        });
        let mut kids = terms;
        if self.chance(15) {
            self.feature("where=");
            form.push_str(", where=$");
            kids.push(self.expr(DType::Bool, 2, &place));
        }
        if self.chance(12) {
            self.feature("init=");
            form.push_str(&format!(", init={}", tuple(reducer.types.len())));
            for (at, ty) in reducer.types.iter().enumerate() {
                kids.push(reducer.in_domain(at, self.expr(*ty, 1, &outer)));
            }
        }
        if self.chance(5) {
            self.feature("reassociate");
            form.push_str(", reassociate");
        }
        self.push_reduction(&reducer, &axes, format!("{form})"), kids, body);
    }

    fn push_reduction(
        &mut self,
        reducer: &Reducer,
        axes: &[Axis],
        form: String,
        terms: Vec<Node>,
        body: &mut Vec<Node>,
    ) {
        let names: Vec<String> = reducer.types.iter().map(|_| self.fresh("R")).collect();
        let typed = names.len() > 1 && self.chance(50);
        if typed {
            self.feature("tuple with types");
        }
        let shown: Vec<String> = names
            .iter()
            .zip(&reducer.types)
            .map(|(name, ty)| if typed { format!("{name}: {ty}") } else { name.clone() })
            .collect();
        let shown = match &shown[..] {
            [one] => one.clone(),
            many => format!("({})", many.join(", ")),
        };
        let (head, mut kids) = self.stage_head(&shown, axes);
        let kind = self.kind();
        kids.extend(terms);
        body.push(Node::stmt(format!("{kind} {head} = {form}"), kids));
        for (name, ty) in names.iter().zip(&reducer.types) {
            self.add_stage(name, *ty, axes);
        }
    }

    fn reduce_axis(&mut self, count: usize, body: &mut Vec<Node>) -> Axis {
        let name = self.fresh("k");
        let exts = self.scope.exts.clone();
        let mut ext = self.pick(&exts);
        // A range that is empty at compile time is an error.
        let empty = ext.value == 0 && (ext.constant || self.scope.closed);
        if empty || count > 1 && ext.value > 8 {
            ext = Ext::literal(self.int(1, 4));
        }
        let mut from = 0;
        if ext.constant && ext.value > 1 && self.chance(20) {
            self.feature("reduce from");
            from = self.int(1, ext.value - 1);
        }
        if !ext.constant {
            self.feature("symbolic reduction");
        }
        let range = vec![Node::leaf(DType::Index, from.to_string()), ext.node()];
        body.push(Node::stmt(format!("reduce {name}: $..$"), range));
        Axis { name, from, ext }
    }

    fn alias(&mut self, body: &mut Vec<Node>) {
        if self.scope.tensors.is_empty() {
            return;
        }
        self.feature("alias");
        let tensors = self.scope.tensors.clone();
        let tensor = self.pick(&tensors);
        let name = self.fresh("Q");
        body.push(Node::stmt(format!("let {name} = {}", tensor.name), vec![]));
        self.scope.tensors.push(Tensor { name, readers: 0, ..tensor });
    }

    fn compile_time_if(&mut self, body: &mut Vec<Node>) {
        self.feature("compile-time if");
        let conds = ["1 < 2", "2 < 1", "flag", "not flag", "c > 3"];
        let cond = self.pick(&conds);
        let known = match cond.contains("flag") {
            true => !self.scope.bools.is_empty(),
            false => !cond.contains('c') || self.scope.constants.iter().any(|name| name == "c"),
        };
        let cond = if known { cond } else { "1 < 2" };
        // Declarations in a branch are not read afterwards.
        let known = self.scope.tensors.len();
        let mut branches = [Vec::new(), Vec::new()];
        for branch in &mut branches {
            let start = self.scope.tensors.len();
            self.map_stage(None, branch);
            self.scope.tensors.truncate(start.max(known));
        }
        let [then, otherwise] = branches.map(|mut branch| branch.pop().expect("a stage"));
        body.push(Node::stmt(format!("if {cond} {{ $ }} else {{ $ }}"), vec![then, otherwise]));
    }

    /// Adds a `def` for certain types, whose body reads only its parameters.
    fn def(&mut self) {
        self.feature("def");
        let types: Vec<DType> = (0..self.int(1, 2)).map(|_| self.any_type()).collect();
        let result = self.any_type();
        let name = self.item_name("d");
        let names = ["u", "v"];
        let locals: Vec<(String, DType)> =
            names.iter().map(|name| name.to_string()).zip(types.clone()).collect();
        let params: Vec<&str> = names[..types.len()].to_vec();
        self.scope.locals = Some(locals);
        let value = self.expr(result, 3, &Place { axes: Vec::new() });
        self.scope.locals = None;
        self.items.push(Node::stmt(format!("def {name}({}) = $", params.join(", ")), vec![value]));
        self.scope.defs.push((name, types, result));
    }

    /// Adds a kernel that the program uses as an operator.
    fn operator(&mut self, body: &mut Vec<Node>) {
        let tensors: Vec<Tensor> =
            self.scope.tensors.iter().filter(|tensor| tensor.shape.len() <= 3).cloned().collect();
        if tensors.is_empty() {
            return;
        }
        self.feature("operator");
        let tensor = self.pick(&tensors);
        let name = self.item_name("op");
        let rank = tensor.shape.len();
        let dims: Vec<String> = (0..rank).map(|at| format!("d{at}")).collect();
        let mut params: Vec<String> = dims.clone();
        let generic = self.chance(40);
        if generic {
            params.push("U: dtype".to_string());
        }
        params.push("w = 2".to_string());
        // The operator is a separate kernel, of which only the shape of the input is known.
        let ext = |(text, ext): (&String, &Ext)| Ext::plain(text, false, ext.value);
        let exts: Vec<Ext> = dims.iter().zip(&tensor.shape).map(ext).collect();
        let inner = Scope {
            tensors: vec![Tensor { name: "X".to_string(), shape: exts.clone(), ..tensor.clone() }],
            exts: exts.iter().cloned().chain([Ext::literal(2), Ext::literal(3)]).collect(),
            constants: vec!["w".to_string()],
            dtypes: if generic { vec![("U".to_string(), tensor.dtype)] } else { Vec::new() },
            closed: true,
            ..Scope::default()
        };
        let outer = std::mem::replace(&mut self.scope, inner);
        let mut stages = Vec::new();
        let ty = if generic { "U".to_string() } else { tensor.dtype.to_string() };
        stages.push(Node::stmt(format!("input X: {ty}[{}]", dims.join(", ")), vec![]));
        if self.chance(40) {
            self.feature("nested operator");
            match self.chance(50) {
                true => self.map_stage(None, &mut stages),
                false => {
                    let reducer = self.pick(&self.reducers.clone());
                    self.reduce_stage(reducer, &mut stages);
                }
            }
        }
        let axes: Vec<Axis> = match self.chance(60) {
            true => ["a", "b", "e"]
                .iter()
                .zip(exts)
                .map(|(name, ext)| Axis { name: name.to_string(), from: 0, ext })
                .collect(),
            false => self.axes(rank.min(2), 60),
        };
        let result = if self.chance(50) { tensor.dtype } else { self.any_type() };
        let value = self.expr(result, 3, &Place { axes: axes.clone() });
        let (head, mut kids) = self.stage_head("Y", &axes);
        kids.push(value);
        stages.push(Node::stmt(format!("output {head} = $"), kids));
        self.scope = outer;
        let places = vec!["    $\n"; stages.len()].concat();
        let text = format!("kernel {name}({}) {{\n{places}}}", params.join(", "));
        self.items.push(Node::stmt(text, stages));
        let given = if self.chance(50) { ", w=3" } else { "" };
        let result_name = self.fresh("P");
        body.push(Node::stmt(
            format!("let {result_name} = {name}({}{given})", tensor.name),
            vec![],
        ));
        // Extents of the result are the caller's.
        let translate = |ext: &Ext| match dims.iter().position(|dim| *dim == ext.text) {
            Some(at) => tensor.shape[at].clone(),
            None => ext.clone(),
        };
        let shape = axes.iter().map(|axis| translate(&axis.ext)).collect();
        let tensor = Tensor { name: result_name, dtype: result, shape, computed: true, readers: 0 };
        self.scope.tensors.push(tensor);
    }

    /// Adds a reducer that this kernel does not use; only a kernel that is not built may use it.
    fn unused_reducer(&mut self) {
        let own: Vec<Reducer> =
            self.reducers.iter().filter(|reducer| !reducer.item.is_empty()).cloned().collect();
        let reducer = self.pick(&own);
        let name = self.item_name(reducer.name);
        self.items.push(Node::stmt(reducer.item.replace('@', &name), vec![]));
        self.feature("unused reducer");
        if self.chance(50) {
            self.feature("kernel that is not built");
            let count = reducer.types.len();
            let tuple = |parts: Vec<String>| match count {
                1 => parts.concat(),
                _ => format!("({})", parts.join(", ")),
            };
            let inputs: String =
                (0..count).map(|at| format!("input X{at}: {}[n] ", reducer.types[at])).collect();
            let outputs = tuple((0..count).map(|at| format!("Y{at}")).collect());
            let element = |at| Node::leaf(reducer.types[at], format!("X{at}[k]"));
            let terms = (0..count).map(|at| reducer.in_domain(at, element(at)).render()).collect();
            let terms = tuple(terms);
            let kernel = self.item_name("other");
            let text = format!(
                "kernel {kernel}(n) {{ {inputs}reduce k: 0..n \
                 output {outputs}[] = {name}({terms}, axis=k) }}"
            );
            self.items.push(Node::stmt(text, vec![]));
        }
    }

    /// Adds an output at the end that reads a computed tensor.
    fn last_output(&mut self, body: &mut Vec<Node>) {
        let computed: Vec<Tensor> =
            self.scope.tensors.iter().filter(|tensor| tensor.computed).cloned().collect();
        let tensor = self.pick(&computed);
        let names = ["i", "j", "x", "y"];
        let axes: Vec<Axis> = names
            .iter()
            .zip(&tensor.shape)
            .map(|(name, ext)| Axis { name: name.to_string(), from: 0, ext: ext.clone() })
            .collect();
        let (head, mut kids) = self.stage_head("Z", &axes);
        let indices: Vec<&str> = axes.iter().map(|axis| axis.name.as_str()).collect();
        let read = format!("{}[{}]", tensor.name, indices.join(", "));
        kids.push(Node::leaf(tensor.dtype, read));
        body.push(Node::stmt(format!("output {head} = $"), kids));
        if body.iter().filter(|stmt| stmt.form.starts_with("output")).count() > 1 {
            self.feature("several outputs");
        }
    }
}
