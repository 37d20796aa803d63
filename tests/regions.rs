//! Random programs with clamped, guarded, mirrored and strided reads, whose stages are computed in
//! tiles: every tile computes the elements that are read and, if extents are constants, few others.
//! No result changes.
//!
//! The elements that a tile reads are counted by evaluating the program here, point by point. The
//! elements that it computes are counted by the interpreter: a counter stands before every store.
//! `TEC_REGIONS=2000 cargo test --test suite regions::` tries more programs.

use crate::support::Random;
use crate::support::differential;
use crate::support::differential::{Case, Verdict};
use std::collections::BTreeMap;
use tec::driver::{self, Options, PassId, Trace};
use tec::ir::interp::{Tensor, Value};
use tec::ir::visit::map_stmts;
use tec::ir::{Buffer, DType, Expr, Kernel, Param, Role, Scope, Stmt};
use tec::target::Target;

/// An index over the axes of a stage: `y`, `x` and the reduction axis `k`.
#[derive(Clone)]
enum Index {
    Axis(usize),
    Int(i64),
    /// The extent of an axis, a run-time integer.
    Extent(usize, i64),
    Op(&'static str, Box<Index>, Box<Index>),
    Abs(Box<Index>),
    If(Box<Test>, Box<Index>, Box<Index>),
}

/// A comparison of two indices, or two conditions.
#[derive(Clone)]
enum Test {
    Compare(&'static str, Index, Index),
    And(Box<Test>, Box<Test>),
    Or(Box<Test>, Box<Test>),
}

/// A value of a stage.
#[derive(Clone)]
enum Term {
    Zero,
    Read(usize, Vec<Index>),
    If(Test, Box<Term>, Box<Term>),
    Sum(Box<Term>, Box<Term>),
}

const AXES: [&str; 3] = ["y", "x", "k"];
/// The run-time extents of the first two.
const EXTENTS: [&str; 2] = ["h", "w"];

fn op(name: &'static str, a: Index, b: Index) -> Index {
    Index::Op(name, Box::new(a), Box::new(b))
}

fn plus(a: Index, by: i64) -> Index {
    match by {
        0 => a,
        1.. => op("+", a, Index::Int(by)),
        _ => op("-", a, Index::Int(-by)),
    }
}

impl Index {
    fn text(&self) -> String {
        match self {
            Index::Axis(at) => AXES[*at].to_string(),
            Index::Int(value) => value.to_string(),
            Index::Extent(axis, _) => EXTENTS[*axis].to_string(),
            Index::Op(name @ ("min" | "max"), a, b) => {
                format!("{name}({}, {})", a.text(), b.text())
            }
            Index::Op(name, a, b) => format!("({} {name} {})", a.text(), b.text()),
            Index::Abs(a) => format!("abs({})", a.text()),
            Index::If(c, a, b) => {
                format!("(if {} then {} else {})", c.text(), a.text(), b.text())
            }
        }
    }

    fn value(&self, at: &[i64; 3]) -> i64 {
        match self {
            Index::Axis(axis) => at[*axis],
            Index::Int(value) | Index::Extent(_, value) => *value,
            Index::Op(name, a, b) => {
                let (a, b) = (a.value(at), b.value(at));
                match *name {
                    "+" => a + b,
                    "-" => a - b,
                    "*" => a * b,
                    "//" => a.div_euclid(b),
                    "%" => a.rem_euclid(b),
                    "min" => a.min(b),
                    "max" => a.max(b),
                    other => panic!("no operation {other}"),
                }
            }
            Index::Abs(a) => a.value(at).abs(),
            Index::If(c, a, b) => if c.holds(at) { a } else { b }.value(at),
        }
    }
}

impl Test {
    fn text(&self) -> String {
        match self {
            Test::Compare(name, a, b) => format!("{} {name} {}", a.text(), b.text()),
            Test::And(a, b) => format!("({} and {})", a.text(), b.text()),
            Test::Or(a, b) => format!("({} or {})", a.text(), b.text()),
        }
    }

    fn holds(&self, at: &[i64; 3]) -> bool {
        match self {
            Test::Compare(name, a, b) => {
                let (a, b) = (a.value(at), b.value(at));
                match *name {
                    "<" => a < b,
                    "<=" => a <= b,
                    ">" => a > b,
                    ">=" => a >= b,
                    "==" => a == b,
                    other => panic!("no comparison {other}"),
                }
            }
            Test::And(a, b) => a.holds(at) && b.holds(at),
            Test::Or(a, b) => a.holds(at) || b.holds(at),
        }
    }
}

impl Term {
    fn text(&self) -> String {
        match self {
            Term::Zero => "0.0".to_string(),
            Term::Read(stage, indices) => {
                let indices: Vec<String> = indices.iter().map(Index::text).collect();
                format!("S{stage}[{}]", indices.join(", "))
            }
            Term::If(c, a, b) => format!("(if {} then {} else {})", c.text(), a.text(), b.text()),
            Term::Sum(a, b) => format!("({} + {})", a.text(), b.text()),
        }
    }

    /// Calls `f` with stage and indices of each element that is read.
    fn reads(&self, at: &[i64; 3], f: &mut dyn FnMut(usize, Vec<i64>)) {
        match self {
            Term::Zero => {}
            Term::Read(stage, indices) => {
                f(*stage, indices.iter().map(|index| index.value(at)).collect());
            }
            Term::If(c, a, b) => if c.holds(at) { a } else { b }.reads(at, f),
            Term::Sum(a, b) => {
                a.reads(at, f);
                b.reads(at, f);
            }
        }
    }
}

/// A program: stages that read earlier ones. `S0` reads the input only, the last is the output.
struct Program {
    /// The extents of each stage, one or two.
    shapes: Vec<Vec<i64>>,
    /// The values of the stages from `S1` on.
    terms: Vec<Term>,
    /// The extent of the output's reduction axis, and which terms it has.
    reduction: Option<(i64, Option<Test>)>,
    /// The split factors of the output's axes.
    factors: Vec<i64>,
    /// For each stage but the last, the loop of the output that it is attached to: the number of
    /// tiled axes that are fixed, or one more for a row of a tile.
    depths: Vec<usize>,
    /// Whether `S0` is attached to the outer loop of `S1` instead.
    nested: bool,
    vectorized: bool,
    /// Whether a box of constant size can contain exactly the elements that are read.
    exact: bool,
    /// Whether the extents, which are equal then, are run-time integers.
    symbolic: bool,
}

/// The random choices of one read.
struct Draw<'a> {
    random: &'a mut Random,
    exact: bool,
    symbolic: bool,
}

impl Draw<'_> {
    fn below(&mut self, bound: u64) -> i64 {
        self.random.below(bound) as i64
    }

    /// Returns the values of a stage of the extents `from` that reads `stage`, of the extents `of`.
    fn term(&mut self, stage: usize, of: &[i64], from: &[i64], reduced: bool) -> Term {
        let mut test = None;
        let mut inside = Vec::new();
        let mut outside = Vec::new();
        let first = 2 - from.len();
        for (dim, (of, from)) in of.iter().zip(from).enumerate() {
            let (guard, index, edge) = self.index(first + dim, *of, *from, reduced);
            inside.push(index);
            outside.push(edge);
            test = match (test, guard) {
                (Some(a), Some(b)) => Some(Test::And(Box::new(a), Box::new(b))),
                (a, b) => a.or(b),
            };
        }
        let read = Term::Read(stage, inside);
        match test {
            None => read,
            Some(test) => {
                // No element replaces those beyond either end.
                let none = outside.iter().any(|index| matches!(index, Index::Int(-1)));
                // Under two conditions the nearest element is far away if only one of them fails.
                let both = matches!(test, Test::And(..)) && self.exact;
                let other = match none || both || self.below(2) == 0 {
                    true => Term::Zero,
                    false => Term::Read(stage, outside),
                };
                Term::If(test, Box::new(read), Box::new(other))
            }
        }
    }

    /// Returns the condition of a read in one dimension, its index, and the index where the
    /// condition does not hold, which is inside in any case.
    fn index(
        &mut self,
        axis: usize,
        of: i64,
        from: i64,
        reduced: bool,
    ) -> (Option<Test>, Index, Index) {
        let size = if self.symbolic { Index::Extent(axis, of) } else { Index::Int(of) };
        let last = if self.symbolic { plus(size.clone(), -1) } else { Index::Int(of - 1) };
        let zero = Index::Int(0);
        let here = Index::Axis(axis);
        let clamp = |x: Index| op("min", op("max", x, Index::Int(0)), last.clone());
        let mut by = self.below(7) - 3;
        let mut x = here.clone();
        let mut safe = op("min", x.clone(), last.clone());
        if of > from {
            x = op("*", x, Index::Int(of / from));
            safe = x.clone();
        } else if of < from {
            x = op("//", plus(x, self.below(2)), Index::Int(from / of));
            safe = clamp(x.clone());
        }
        if reduced && axis == 1 {
            x = op("+", x, Index::Axis(2));
            by = -self.below(4);
            safe = clamp(here);
        }
        let moved = plus(x, by);
        let compare = |name, a: &Index, b: &Index| Test::Compare(name, a.clone(), b.clone());
        let low = match self.below(2) {
            0 => compare(">=", &moved, &zero),
            _ => compare(">", &moved, &Index::Int(-1)),
        };
        let high = match self.below(2) {
            0 => compare("<", &moved, &size),
            _ => compare("<=", &moved, &last),
        };
        let both = || Test::And(Box::new(low.clone()), Box::new(high.clone()));
        // The condition that can fail, and the nearest element if it does.
        let (guard, edge) = if by < 0 { (low.clone(), &zero) } else { (high.clone(), &last) };
        let edge = edge.clone();
        let one_sided = of == from && !(reduced && axis == 1);
        let choose = |test: Test, inside: &Index, outside: &Index| {
            Index::If(Box::new(test), Box::new(inside.clone()), Box::new(outside.clone()))
        };
        let from_last = op("-", last.clone(), moved.clone());
        let mirrored = op("-", last.clone(), Index::Abs(Box::new(from_last)));
        match self.below(if self.exact { 6 } else { 12 }) {
            0 | 1 => (None, clamp(moved), safe),
            2 => (None, op("max", op("min", moved, last.clone()), zero), safe),
            3 if one_sided => (Some(guard), moved, edge),
            4 if one_sided => (None, choose(guard, &moved, &edge), safe),
            3..=5 if self.exact => (Some(both()), moved, Index::Int(-1)),
            3..=5 => (Some(both()), moved, safe),
            6 => (None, choose(both(), &moved, &safe), safe),
            7 => {
                let index = if of >= 8 { Index::Abs(Box::new(mirrored)) } else { moved };
                (None, clamp(index), safe)
            }
            8 => (None, op("%", op("+", moved, size.clone()), size), safe),
            9 | 10 => {
                let outside = Test::Or(
                    Box::new(compare("<", &moved, &zero)),
                    Box::new(compare(">=", &moved, &size)),
                );
                let far = if self.below(2) == 0 { zero } else { last.clone() };
                (None, choose(outside, &far, &moved), safe)
            }
            _ => {
                let middle = Index::Int(self.below(of.max(1) as u64));
                (None, clamp(op("max", moved, middle)), safe)
            }
        }
    }
}

impl Program {
    fn draw(random: &mut Random) -> Program {
        let symbolic = random.below(4) == 0;
        let exact = !symbolic && random.below(3) > 0;
        let rank = 1 + random.below(2) as usize;
        let count = 2 + random.below(2) as usize;
        let size = |random: &mut Random| match rank {
            _ if symbolic => random.below(24) as i64,
            1 => 4 * (8 + random.below(8) as i64),
            _ => 4 * (4 + random.below(4) as i64),
        };
        let mut shapes = vec![(0..rank).map(|_| size(random)).collect::<Vec<i64>>()];
        for _ in 1..count {
            let before = shapes.last().expect("there is one").clone();
            let change = random.below(8);
            shapes.push(
                before
                    .iter()
                    .map(|of| match change {
                        _ if symbolic => *of,
                        0 => of / 2,
                        1 if !exact => of * 2,
                        _ => *of,
                    })
                    .collect(),
            );
        }
        let reduced = random.below(4) == 0;
        let mut terms = Vec::new();
        for stage in 1..count {
            let output = stage + 1 == count;
            let reads = 1 + random.below(3);
            let mut draw = Draw { random, exact, symbolic };
            let mut term = None;
            for _ in 0..reads {
                let next =
                    draw.term(stage - 1, &shapes[stage - 1], &shapes[stage], reduced && output);
                term = Some(match term {
                    None => next,
                    Some(term) => Term::Sum(Box::new(term), Box::new(next)),
                });
            }
            terms.push(term.expect("there is a read"));
        }
        let extent = 1 + random.below(4) as i64;
        let condition = (random.below(2) == 0).then(|| {
            let end = Index::Int(random.below(5) as i64);
            Test::Compare("<", Index::Axis(2), end)
        });
        let reduction = reduced.then_some((extent, condition));
        // A box has the same size in the last tile, even if that has fewer iterations.
        let output = shapes.last().expect("there is one");
        let factors = output.iter().map(|extent| {
            let all: Vec<i64> = (3..9).filter(|by| !exact || extent % by == 0).collect();
            all.get(random.below(6) as usize % all.len().max(1)).copied().unwrap_or(4)
        });
        let factors = factors.collect();
        let mut depths: Vec<usize> = Vec::new();
        for _ in 1..count {
            // An earlier stage is attached to the same loop or an outer one.
            depths.push(1 + random.below(if rank == 1 { 1 } else { 3 }) as usize);
        }
        depths.sort_unstable();
        let vectorized = random.below(3) == 0;
        let nested = count == 3 && random.below(3) == 0;
        Program { shapes, terms, reduction, factors, depths, nested, vectorized, exact, symbolic }
    }

    fn text(&self) -> String {
        let rank = self.factors.len();
        let names = &AXES[2 - rank..2];
        let extents = |shape: &[i64]| -> Vec<String> {
            match self.symbolic {
                true => EXTENTS[2 - rank..].iter().map(|name| name.to_string()).collect(),
                false => shape.iter().map(|extent| extent.to_string()).collect(),
            }
        };
        let list = |shape: &[i64]| {
            let axes = names.iter().zip(extents(shape));
            let axes = axes.map(|(name, extent)| format!("{name}: {extent}"));
            axes.collect::<Vec<String>>().join(", ")
        };
        let vars: Vec<String> =
            self.vars().iter().map(|(name, _)| format!("{name}: var")).collect();
        let mut text = format!("kernel f({}) {{\n", vars.join(", "));
        text += &format!("    input A: float32[{}]\n", extents(&self.shapes[0]).join(", "));
        if let Some((extent, _)) = &self.reduction {
            text += &format!("    reduce k: 0..{extent}\n");
        }
        let first = format!("A[{}] * 3.0", names.join(", "));
        text += &format!("    compute S0[{}] = {first}\n", list(&self.shapes[0]));
        for (at, term) in self.terms.iter().enumerate() {
            let (kind, mut value) = ("compute", term.text());
            let kind = if at + 1 == self.terms.len() { "output" } else { kind };
            if let (Some((_, condition)), "output") = (&self.reduction, kind) {
                let condition = condition.as_ref().map(|test| format!(", where={}", test.text()));
                value = format!("sum({value}, axis=k{})", condition.unwrap_or_default());
            }
            let stage = at + 1;
            text += &format!("    {kind} S{stage}[{}] = {value}\n", list(&self.shapes[stage]));
        }
        let output = format!("S{}", self.terms.len());
        text += "}\nschedule f {\n";
        for (name, factor) in names.iter().zip(&self.factors) {
            text +=
                &format!("    let {name}o, {name}i = {output}.split({name}, factor={factor})\n");
        }
        if rank == 2 {
            text += &format!("    {output}.reorder(yo, xo, yi, xi)\n");
        }
        let loops = if rank == 1 { &["xo"][..] } else { &["yo", "xo", "yi"] };
        for (stage, depth) in self.depths.iter().enumerate() {
            if stage == 0 && self.nested {
                text += &format!("    S0.compute_at(S1, {})\n", names[0]);
                continue;
            }
            text += &format!("    S{stage}.compute_at({output}, {})\n", loops[depth - 1]);
        }
        if self.vectorized {
            text += &format!("    {output}.vectorize(xi)\n");
        }
        text + "}\n"
    }

    /// Returns the run-time integers.
    fn vars(&self) -> Vec<(String, i64)> {
        let names = EXTENTS[2 - self.factors.len()..].iter().map(|name| name.to_string());
        let vars = names.zip(self.shapes[0].iter().copied());
        vars.filter(|_| self.symbolic).collect()
    }

    /// Returns the number of elements of the smallest boxes around what the iterations of each
    /// attached stage's loop read, summed over the iterations. All elements of a box count as
    /// computed.
    fn used(&self) -> Vec<usize> {
        let rank = self.factors.len();
        let output = self.terms.len();
        let tile = |y: i64, x: i64| match rank {
            1 => vec![x / self.factors[0]],
            _ => vec![y / self.factors[0], x / self.factors[1], y % self.factors[0]],
        };
        let rows = if rank == 2 { self.shapes[output][0] } else { 1 };
        let mut points: Vec<(Vec<i64>, [i64; 3])> = Vec::new();
        for (y, x) in
            (0..rows).flat_map(|y| (0..self.shapes[output][rank - 1]).map(move |x| (y, x)))
        {
            for k in 0..self.reduction.as_ref().map_or(1, |(extent, _)| *extent) {
                let condition = self.reduction.as_ref().and_then(|(_, test)| test.as_ref());
                if condition.is_none_or(|test| test.holds(&[y, x, k])) {
                    points.push((tile(y, x), [y, x, k]));
                }
            }
        }
        let mut used = Vec::new();
        for stage in (0..output).rev() {
            let mut boxes: BTreeMap<Vec<i64>, Vec<(i64, i64)>> = BTreeMap::new();
            for (iteration, at) in &points {
                let mut iteration = iteration.clone();
                match stage == 0 && self.nested {
                    true => iteration.push(at[2 - rank]),
                    false => iteration.truncate(self.depths[stage]),
                }
                self.terms[stage].reads(at, &mut |_, indices| {
                    let new = || indices.iter().map(|index| (*index, *index)).collect();
                    let hull = boxes.entry(iteration.clone()).or_insert_with(new);
                    for ((low, high), index) in hull.iter_mut().zip(&indices) {
                        (*low, *high) = ((*low).min(*index), (*high).max(*index));
                    }
                });
            }
            points.clear();
            for (iteration, hull) in boxes {
                let (x_low, x_high) = hull[rank - 1];
                let (y_low, y_high) = if rank == 2 { hull[0] } else { (0, 0) };
                for y in y_low..=y_high {
                    points.extend((x_low..=x_high).map(|x| (iteration.clone(), [y, x, 0])));
                }
            }
            used.push(points.len());
        }
        used.reverse();
        used
    }
}

/// Returns the kernel with one more output: the number of stores into `S0`, `S1` and so on.
fn with_counters(kernel: &Kernel, stages: usize) -> Kernel {
    let counters =
        Buffer::new("counters", DType::Int64, vec![Expr::index(stages as i64)], Scope::Global);
    let zero = |stage: usize| {
        Stmt::store(&counters, vec![Expr::index(stage as i64)], Expr::int(DType::Int64, 0))
    };
    let mut body: Vec<Stmt> = (0..stages).map(zero).collect();
    body.push(count_stores(kernel.body.clone(), &counters, stages));
    let body = Stmt::Block(body);
    let mut params = kernel.params.clone();
    params.push(Param::Tensor { buffer: counters, role: Role::Output, layout_free: false });
    Kernel { body, params, ..kernel.clone() }
}

fn count_stores(stmt: Stmt, counters: &Buffer, stages: usize) -> Stmt {
    let stmt = map_stmts(stmt, &mut |inner| count_stores(inner, counters, stages));
    let Stmt::Store { buffer, .. } = &stmt else { return stmt };
    let Some(stage) = (0..stages).find(|stage| buffer.name == format!("S{stage}")) else {
        return stmt;
    };
    let at = vec![Expr::index(stage as i64)];
    let more = Expr::add(Expr::load(counters, at.clone()), Expr::int(DType::Int64, 1));
    Stmt::Block(vec![Stmt::store(counters, at, more), stmt])
}

/// Returns the number of elements that each attached stage computes.
fn computed(
    interpreted: &differential::Interpreted,
    options: &Options,
    stages: usize,
) -> Vec<usize> {
    let built = driver::lower(
        &interpreted.bounded,
        options,
        Some(PassId::BuildLoops),
        &mut Trace::default(),
    );
    let built = built.unwrap_or_else(|_| panic!("the program was lowered before"));
    let kernel = with_counters(&built, stages);
    let mut args = interpreted.args.clone();
    let shape = vec![stages as i64];
    args.push(Value::Tensor(Tensor { dtype: DType::Int64, shape, data: vec![0; 8 * stages] }));
    let result = differential::run(&kernel, &args, "counters");
    let Ok(Ok(values)) = result else { panic!("the kernel ran before: {result:?}") };
    let Some(Value::Tensor(counters)) = values.last() else { panic!("counters are a tensor") };
    let count = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().expect("8 bytes")) as usize;
    counters.data.chunks(8).map(count).collect()
}

fn compare_regions(programs: u64, seed: u64) {
    let options = Options::new(Target::parse("x86-avx2").expect("a target"));
    let mut random = Random(seed);
    let (mut refused, mut ratios) = (Vec::new(), Vec::new());
    for at in 0..programs {
        let program = Program::draw(&mut random);
        let text = program.text();
        let case =
            Case { text: text.clone(), kernel: "f".to_string(), vars: program.vars(), seed: at };
        let interpreted = match differential::interpret(&case, &options) {
            Ok(interpreted) => interpreted,
            Err(Verdict::Refused(codes, message)) => {
                refused.push((codes, message, text));
                continue;
            }
            Err(verdict) => panic!("{verdict:?}\n{text}"),
        };
        if at % 8 == 0 && options.target.runs_here() {
            let module = differential::link(&[&interpreted], &options)
                .unwrap_or_else(|v| panic!("{v:?}\n{text}"));
            let verdict = differential::call(&interpreted, &module);
            assert!(matches!(verdict, Verdict::Same { .. }), "{verdict:?}\n{text}");
        }
        if interpreted.expected.is_err() {
            continue;
        }
        let used = program.used();
        let computed = computed(&interpreted, &options, used.len());
        for (stage, (computed, used)) in computed.iter().zip(&used).enumerate() {
            assert!(computed >= used, "S{stage}: {computed} computed, {used} used\n{text}");
            if program.exact && *used > 0 {
                ratios.push((*computed as f64 / *used as f64, stage, text.clone()));
            }
        }
    }
    assert!(
        refused.len() as u64 * 20 <= programs,
        "{} refused: {:?}",
        refused.len(),
        refused.first()
    );
    ratios.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mean = ratios.iter().map(|(ratio, ..)| ratio).sum::<f64>() / ratios.len() as f64;
    let (worst, stage, text) = &ratios[0];
    println!("{} boxes: mean {mean}, worst {worst}", ratios.len());
    assert!(mean <= 1.05, "mean {mean}, worst {worst} of S{stage}\n{text}");
}

#[test]
fn a_tile_computes_few_elements_that_it_does_not_read() {
    let programs = std::env::var("TEC_REGIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(100);
    let seed = std::env::var("TEC_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(5);
    driver::with_stack(move || compare_regions(programs, seed));
}
