//! Random programs that every check of the compiler accepts, with the features they use counted.

use super::program::{Ex, Extent, Program, Reduce, Source, Stage};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use tec::ir::DType;

/// How often each feature was generated.
pub type Coverage = BTreeMap<String, u64>;

/// The program of a seed.
pub fn generate(seed: u64, coverage: &mut Coverage) -> Program {
    let random = ChaCha8Rng::seed_from_u64(seed);
    let mut generator = Generator {
        random,
        coverage,
        program: Program::default(),
        sources: Vec::new(),
        scalars: Vec::new(),
        axes: Vec::new(),
        names: 0,
        indices: true,
    };
    generator.program();
    generator.program
}

/// An axis in scope: from `min` to below `end`.
#[derive(Clone)]
struct Axis {
    name: String,
    min: i64,
    end: Extent,
}

struct Generator<'a> {
    random: ChaCha8Rng,
    coverage: &'a mut Coverage,
    program: Program,
    sources: Vec<Source>,
    scalars: Vec<(String, DType)>,
    axes: Vec<Axis>,
    names: usize,
    /// Whether an index may be made of data: not inside another index.
    indices: bool,
}

const FLOATS: [DType; 4] = [DType::Float32, DType::Float64, DType::Float16, DType::BFloat16];

impl Generator<'_> {
    fn count(&mut self, feature: impl Into<String>) {
        *self.coverage.entry(feature.into()).or_insert(0) += 1;
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random.random_range(0..bound)
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }

    fn name(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    fn dtype(&mut self) -> DType {
        if self.one_in(2) {
            self.pick(&[DType::Float32, DType::Int32])
        } else {
            self.pick(&DType::ALL)
        }
    }

    fn extent(&mut self) -> Extent {
        let vars = self.program.vars.clone();
        if !vars.is_empty() && self.one_in(3) {
            self.count("symbolic extent");
            return Extent::Var(self.pick(&vars));
        }
        Extent::Const(self.random.random_range(1..6))
    }

    fn program(&mut self) {
        if self.one_in(3) {
            self.program.vars = if self.one_in(2) { vec!["n"] } else { vec!["n", "m"] };
            self.count("run-time integer");
        }
        for _ in 0..1 + self.below(4) {
            self.input();
        }
        // Small integers that may be used as indices as they are.
        let declaration = "input small: int32[5]".to_string();
        self.program.inputs.push(("small".to_string(), declaration));
        if self.one_in(4) {
            self.aliases();
        }
        let stages = 1 + self.below(3);
        for number in 0..stages {
            let output = number + 1 == stages || self.one_in(3);
            self.stage(output);
        }
    }

    fn input(&mut self) {
        let (name, dtype) = (self.name("A"), self.dtype());
        self.count(format!("input {dtype}"));
        if self.one_in(5) {
            let declaration = format!("input {name}: {dtype}");
            self.program.inputs.push((name.clone(), declaration));
            self.scalars.push((name, dtype));
            self.count("scalar input");
            return;
        }
        let rank = self.pick(&[0, 1, 1, 1, 2, 2, 3]);
        let shape: Vec<Extent> = (0..rank).map(|_| self.extent()).collect();
        self.count(format!("input of rank {rank}"));
        let extents: Vec<String> = shape.iter().map(Extent::text).collect();
        let free = if self.one_in(8) { " layout_free" } else { "" };
        let declaration = format!("input {name}: {dtype}[{}]{free}", extents.join(", "));
        self.program.inputs.push((name.clone(), declaration));
        self.sources.push(Source { name, dtype, shape, input: true });
    }

    /// Another name for a tensor, and kernels used as operators.
    fn aliases(&mut self) {
        let Some(source) = self.sources.first().cloned() else { return };
        let name = self.name("Q");
        let number = source.dtype != DType::Bool;
        let (text, shape) = match (&source.shape[..], self.below(2)) {
            ([extent], 0) if number => {
                self.count("operator");
                (format!("let {name} = doubled({})", source.name), vec![extent.clone()])
            }
            ([Extent::Const(a), Extent::Const(b)], 0) if number => {
                self.count("operator of two stages");
                let shape = vec![Extent::Const(a + 4), Extent::Const(b + 2)];
                (format!("let {name} = padded({}, p=2)", source.name), shape)
            }
            _ => {
                self.count("alias");
                (format!("let {name} = {}", source.name), source.shape.clone())
            }
        };
        self.program.lets.push((0, text));
        self.sources.push(Source { name, dtype: source.dtype, shape, input: false });
    }

    fn stage(&mut self, output: bool) {
        let rank = self.pick(&[0, 1, 1, 2, 2, 3]);
        let axes: Vec<(String, Extent)> =
            ["x", "y", "z"][..rank].iter().map(|name| (name.to_string(), self.extent())).collect();
        self.axes = axes
            .iter()
            .map(|(name, extent)| Axis { name: name.clone(), min: 0, end: extent.clone() })
            .collect();
        self.count(format!("stage of rank {rank}"));
        let mut stage = Stage {
            output,
            names: Vec::new(),
            axes,
            dtype: None,
            values: Vec::new(),
            reduce: None,
        };
        if self.one_in(2) {
            self.map_stage(&mut stage);
        } else {
            self.reduce_stage(&mut stage);
        }
        let shape: Vec<Extent> = stage.axes.iter().map(|(_, extent)| extent.clone()).collect();
        for ((name, _), value) in stage.names.iter().zip(&stage.values) {
            let (name, shape) = (name.clone(), shape.clone());
            self.sources.push(Source { name, dtype: value.dtype, shape, input: false });
        }
        self.program.stages.push(stage);
    }

    fn map_stage(&mut self, stage: &mut Stage) {
        let dtype = self.dtype();
        self.count(format!("map of {dtype}"));
        stage.names = vec![(self.name("S"), None)];
        stage.dtype = self.one_in(3).then_some(dtype);
        let depth = 2 + self.below(4);
        stage.values = vec![self.ex(dtype, depth)];
    }

    fn reduce_stage(&mut self, stage: &mut Stage) {
        let count = self.pick(&[1, 1, 1, 2]);
        let mut axes = Vec::new();
        for _ in 0..count {
            let name = self.name("k");
            let end = self.extent();
            let min = match end {
                Extent::Const(end) => self.random.random_range(0..end),
                Extent::Var(_) => 0,
            };
            axes.push((name.clone(), min.to_string(), end.text()));
            self.axes.push(Axis { name, min, end });
        }
        let (reducer, dtypes) = self.reducer();
        self.count(format!("reducer {reducer}"));
        self.count(format!("reduction of {}", dtypes[dtypes.len() / 2]));
        for dtype in &dtypes {
            let written = (dtypes.len() > 1 && self.one_in(2)).then_some(*dtype);
            stage.names.push((self.name("R"), written));
        }
        let depth = 1 + self.below(3);
        stage.values = dtypes.iter().map(|dtype| self.ex(*dtype, depth)).collect();
        let condition = self.one_in(4).then(|| self.ex(DType::Bool, 2));
        let mut init = None;
        if dtypes.len() == 1 && self.one_in(4) {
            let data_axes = stage.axes.len();
            let all = self.axes.clone();
            self.axes.truncate(data_axes);
            init = Some(vec![self.ex(dtypes[0], 1)]);
            self.axes = all;
            self.count("init=");
        }
        if condition.is_some() {
            self.count("where=");
        }
        let reassociate = self.one_in(10);
        stage.reduce = Some(Reduce { reducer, axes, condition, init, reassociate });
    }

    /// A reducer with its component types.
    fn reducer(&mut self) -> (String, Vec<DType>) {
        let numbers: Vec<DType> =
            DType::ALL.into_iter().filter(|dtype| *dtype != DType::Bool).collect();
        let full: Vec<DType> = numbers.iter().copied().filter(|dtype| !dtype.is_half()).collect();
        let ints: Vec<DType> = full.iter().copied().filter(|dtype| dtype.is_int()).collect();
        let (name, dtypes) = match self.below(14) {
            0..3 => ("sum", vec![self.pick(&full)]),
            3 => ("prod", vec![self.pick(&full)]),
            4 => ("min", vec![self.pick(&numbers)]),
            5 => ("max", vec![self.pick(&numbers)]),
            6 => ("any", vec![DType::Bool]),
            7 => ("all", vec![DType::Bool]),
            8 => ("argmin", vec![self.pick(&ints), self.pick(&numbers)]),
            9 => ("argmax", vec![self.pick(&ints), self.pick(&numbers)]),
            10 => ("product", vec![self.pick(&full)]),
            11 => ("argbest", vec![self.pick(&ints), self.pick(&FLOATS[..2])]),
            12 => {
                let float = self.pick(&FLOATS[..2]);
                ("spread", vec![float, float, self.pick(&ints)])
            }
            _ => match self.below(2) {
                0 => ("least", vec![self.pick(&ints)]),
                _ => ("circle", vec![self.pick(&full)]),
            },
        };
        (name.to_string(), dtypes)
    }

    /// A random expression of a type, at most so deep.
    fn ex(&mut self, dtype: DType, depth: usize) -> Ex {
        if depth == 0 || self.one_in(8) {
            return self.leaf(dtype);
        }
        match self.below(10) {
            0 => self.choice(dtype, depth),
            1 => self.cast(dtype, depth),
            _ if dtype == DType::Bool => self.condition(depth),
            _ if dtype.is_float() => self.float(dtype, depth),
            _ => self.int(dtype, depth),
        }
    }

    fn operands(&mut self, dtype: DType, depth: usize, count: usize) -> Vec<Ex> {
        (0..count).map(|_| self.ex(dtype, depth - 1)).collect()
    }

    /// An operation of `count` operands of its own type.
    fn operation(&mut self, dtype: DType, depth: usize, template: &str) -> Ex {
        self.count(format!("{template} on {}", kind(dtype)));
        let operands = self.operands(dtype, depth, template.matches('@').count());
        Ex::of(dtype, template, operands)
    }

    fn choice(&mut self, dtype: DType, depth: usize) -> Ex {
        let template = self.pick(&["(if @ then @ else @)", "select(@, @, @)", "blend(@, @, @)"]);
        if template.starts_with("blend") && dtype == DType::Bool {
            return self.leaf(dtype);
        }
        self.count(template);
        let mut operands = vec![self.ex(DType::Bool, depth - 1)];
        operands.extend(self.operands(dtype, depth, 2));
        Ex::of(dtype, template, operands)
    }

    fn cast(&mut self, dtype: DType, depth: usize) -> Ex {
        let from = self.pick(&DType::ALL);
        if from == dtype {
            return self.leaf(dtype);
        }
        self.count(format!("cast {from} to {dtype}"));
        let operand = self.ex(from, depth - 1);
        Ex::of(dtype, &format!("(@ as {dtype})"), vec![operand])
    }

    fn float(&mut self, dtype: DType, depth: usize) -> Ex {
        const TEMPLATES: &[&str] = &[
            "(@ + @)",
            "(@ + @)",
            "(@ - @)",
            "(@ * @)",
            "(@ * @)",
            "(@ / @)",
            "(-@)",
            "((@ * @) + @)",
            "(@ - (@ * @))",
            "((@ * @) + (@ * @))",
            "((@ * @) - @)",
            "min(@, @)",
            "max(@, @)",
            "abs(@)",
            "clamp(@, @, @)",
            "floor(@)",
            "ceil(@)",
            "round(@)",
            "trunc(@)",
            "sqrt(@)",
            "fma(@, @, @)",
            "(@ / 3.0)",
            "(@ / 8.0)",
            "rsqrt(@)",
            "exp(@)",
            "exp2(@)",
            "log(@)",
            "log2(@)",
            "tanh(@)",
            "sigmoid(@)",
            "erf(@)",
            "sin(@)",
            "cos(@)",
            "tan(@)",
            "atan(@)",
            "pow(@, @)",
            "square(@)",
            "folded(@, @, @)",
        ];
        let template = self.pick(TEMPLATES);
        self.operation(dtype, depth, template)
    }

    fn int(&mut self, dtype: DType, depth: usize) -> Ex {
        const TEMPLATES: &[&str] = &[
            "(@ + @)",
            "(@ - @)",
            "(@ * @)",
            "(@ // @)",
            "(@ % @)",
            "(@ // 3)",
            "(@ % 4)",
            "(@ & @)",
            "(@ | @)",
            "(@ ^ @)",
            "(@ << @)",
            "(@ >> @)",
            "(@ >> 3)",
            "(-@)",
            "(~@)",
            "abs(@)",
            "popcount(@)",
            "min(@, @)",
            "max(@, @)",
            "clamp(@, @, @)",
            "folded(@, @, @)",
        ];
        let template = self.pick(TEMPLATES);
        self.operation(dtype, depth, template)
    }

    fn condition(&mut self, depth: usize) -> Ex {
        const LOGICAL: &[&str] = &[
            "(@ and @)",
            "(@ or @)",
            "(not @)",
            "any(@, @, @)",
            "all(@, @)",
            "(@ & @)",
            "(@ | @)",
            "(@ ^ @)",
            "(@ == @)",
        ];
        match self.below(8) {
            0..3 => {
                let template = self.pick(LOGICAL);
                self.operation(DType::Bool, depth, template)
            }
            3 => {
                let dtype = self.pick(&FLOATS);
                let operand = self.ex(dtype, depth - 1);
                self.count("is_nan");
                Ex::of(DType::Bool, "is_nan(@)", vec![operand])
            }
            _ => {
                let dtype = self.dtype();
                if dtype == DType::Bool {
                    return self.leaf(dtype);
                }
                let operator = self.pick(&["==", "!=", "<", "<=", ">", ">="]);
                self.count(format!("@ {operator} @ on {}", kind(dtype)));
                let operands = self.operands(dtype, depth, 2);
                Ex::of(DType::Bool, &format!("(@ {operator} @)"), operands)
            }
        }
    }

    fn leaf(&mut self, dtype: DType) -> Ex {
        for _ in 0..3 {
            match self.below(6) {
                0 => return self.literal(dtype),
                1 => {
                    if let Some(ex) = self.axis_value(dtype) {
                        return ex;
                    }
                }
                2 => {
                    if let Some(ex) = self.scalar(dtype) {
                        return ex;
                    }
                }
                _ => {
                    if let Some(ex) = self.load(dtype) {
                        return ex;
                    }
                }
            }
        }
        self.literal(dtype)
    }

    fn literal(&mut self, dtype: DType) -> Ex {
        let text = match dtype {
            DType::Bool => self.pick(&["true", "false"]).to_string(),
            _ if dtype.is_float() => {
                let values = [
                    "0.0", "1.0", "0.5", "3.0", "0.1", "1e-5", "2.5e2", "(-1.0)", "(-0.75)", "7.0",
                ];
                match self.below(8) {
                    0 => format!("inf({dtype})"),
                    1 => format!("(-inf({dtype}))"),
                    2 => format!("max_value({dtype})"),
                    _ => format!("({} as {dtype})", self.pick(&values)),
                }
            }
            _ => match self.below(6) {
                0 => format!("min_value({dtype})"),
                1 => format!("max_value({dtype})"),
                _ => format!("({} as {dtype})", self.below(12)),
            },
        };
        self.count(format!("literal {dtype}"));
        Ex::text(dtype, text)
    }

    fn axis_value(&mut self, dtype: DType) -> Option<Ex> {
        if self.axes.is_empty() {
            return None;
        }
        let axes = self.axes.clone();
        let (a, b) = (self.pick(&axes).name, self.pick(&axes).name);
        if dtype == DType::Bool {
            self.count("condition on axes");
            let operator = self.pick(&["==", "<", "<=", ">="]);
            let text = match self.below(3) {
                0 => format!("({a} {operator} {b})"),
                1 => format!("({a} % 2 {operator} 1)"),
                _ => format!("({a} + 1 {operator} 3)"),
            };
            return Some(Ex::text(dtype, text));
        }
        self.count("axis as a value");
        Some(Ex::text(
            dtype,
            self.pick(&[
                format!("({a} as {dtype})"),
                format!("(({a} * 3 - {b}) as {dtype})"),
                format!("(({a} // 2) as {dtype})"),
            ]),
        ))
    }

    fn scalar(&mut self, dtype: DType) -> Option<Ex> {
        let fits: Vec<String> = self
            .scalars
            .iter()
            .filter(|(_, ty)| *ty == dtype)
            .map(|(name, _)| name.clone())
            .collect();
        if fits.is_empty() {
            return None;
        }
        self.count("scalar read");
        Some(Ex::text(dtype, self.pick(&fits)))
    }

    /// An element of some tensor, cast if none has the type.
    fn load(&mut self, dtype: DType) -> Option<Ex> {
        let fits: Vec<Source> =
            self.sources.iter().filter(|source| source.dtype == dtype).cloned().collect();
        if fits.is_empty() {
            let all = self.sources.clone();
            if all.is_empty() {
                return None;
            }
            let source = self.pick(&all);
            let element = self.element(&source);
            self.count(format!("cast {} to {dtype}", source.dtype));
            return Some(Ex::of(dtype, &format!("(@ as {dtype})"), vec![element]));
        }
        let source = self.pick(&fits);
        Some(self.element(&source))
    }

    /// `A[…]` with indices inside, perhaps under a guard.
    fn element(&mut self, source: &Source) -> Ex {
        let shape = source.shape.clone();
        let mut guards = Vec::new();
        let mut indices = Vec::new();
        for extent in &shape {
            indices.push(self.index(extent, &mut guards));
        }
        let places = vec!["@"; indices.len()].join(", ");
        let load = Ex::of(source.dtype, &format!("{}[{places}]", source.name), indices);
        if guards.is_empty() {
            return load;
        }
        self.count("guarded index");
        let other = self.literal(source.dtype);
        let template = format!("(if {} then @ else @)", guards.join(" and "));
        Ex::of(source.dtype, &template, vec![load, other])
    }

    /// An index expression inside `0 .. extent`; what it needs to be inside goes to `guards`.
    fn index(&mut self, extent: &Extent, guards: &mut Vec<String>) -> Ex {
        let text = |text: String| Ex::text(DType::Index, text);
        let end = extent.text();
        let axes = self.axes.clone();
        let same: Vec<Axis> = axes.iter().filter(|axis| axis.end == *extent).cloned().collect();
        if !same.is_empty() && !self.one_in(4) {
            let axis = self.pick(&same).name;
            return match self.below(6) {
                0 => {
                    self.count("reversed index");
                    text(format!("{end} - 1 - {axis}"))
                }
                1 => {
                    guards.push(format!("{axis} >= 1"));
                    text(format!("{axis} - 1"))
                }
                2 => {
                    guards.push(format!("{axis} + 2 < {end}"));
                    text(format!("{axis} + 2"))
                }
                _ => text(axis),
            };
        }
        if let Extent::Const(extent) = extent
            && (axes.is_empty() || self.one_in(5))
        {
            let value = self.below(*extent as usize);
            return text(value.to_string());
        }
        if self.indices && self.one_in(3) {
            return self.data_index(extent);
        }
        let Some(axis) = (!axes.is_empty()).then(|| self.pick(&axes)) else {
            guards.push(format!("{end} > 0"));
            return text("0".to_string());
        };
        if let (Extent::Const(end), Extent::Const(of_axis)) = (extent, &axis.end)
            && of_axis <= end
        {
            self.count("index with an offset");
            let offset = self.below((end - of_axis + 1) as usize);
            return text(format!("{} + {offset}", axis.name));
        }
        let Axis { name, min, .. } = axis;
        match self.below(3) {
            0 => {
                self.count("index by clamp");
                if matches!(extent, Extent::Var(_)) {
                    guards.push(format!("{end} > 0"));
                }
                text(format!("clamp({name} * 2 - {min}, 0, {end} - 1)"))
            }
            1 => {
                self.count("index under a condition");
                guards.push(format!("{name} < {end}"));
                text(name)
            }
            _ => {
                self.count("index by %");
                if matches!(extent, Extent::Var(_)) {
                    guards.push(format!("{end} > 0"));
                }
                text(format!("({name} * 3 + 1) % {end}"))
            }
        }
    }

    /// An index made of data: of `small` as it is, or of anything in bounds by `clamp`.
    fn data_index(&mut self, extent: &Extent) -> Ex {
        let Extent::Const(end) = *extent else {
            return self.plain_index(extent);
        };
        self.indices = false;
        let index = if end >= 2 && self.one_in(2) {
            self.count("index from an input");
            let five = Extent::Const(5);
            let inner = self.plain_index(&five);
            Ex::of(DType::Index, "small[@]", vec![inner])
        } else {
            self.count("index from data, clamped");
            let dtype = self.dtype();
            let value = self.ex(dtype, 1);
            Ex::of(DType::Index, &format!("clamp(@ as int64, 0, {})", end - 1), vec![value])
        };
        self.indices = true;
        index
    }

    fn plain_index(&mut self, extent: &Extent) -> Ex {
        let fits: Vec<String> = self
            .axes
            .iter()
            .filter(|axis| match (&axis.end, extent) {
                (Extent::Const(of_axis), Extent::Const(end)) => of_axis <= end,
                (of_axis, end) => of_axis == end,
            })
            .map(|axis| axis.name.clone())
            .collect();
        match (fits.is_empty(), extent) {
            (false, _) => Ex::text(DType::Index, self.pick(&fits)),
            (true, Extent::Const(_)) => Ex::text(DType::Index, "0"),
            // The entry check refuses an empty tensor then.
            (true, Extent::Var(_)) => Ex::text(DType::Index, "0"),
        }
    }
}

/// What coverage tells apart.
fn kind(dtype: DType) -> &'static str {
    dtype.name()
}
