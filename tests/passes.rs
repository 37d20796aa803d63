//! Random loop nests, built without the schedule language: split axes with every kind of loop and
//! tail, conditions and gathers that differ between lanes, temporaries, loops whose bounds differ
//! between lanes. The interpreter gives the same results before and after every pass, bit by bit.

use rand::prelude::*;
use rand_chacha::ChaCha8Rng;
use tec::driver::{PASSES, with_stack};
use tec::ir::interp::{self, Tensor, Value};
use tec::ir::print::{Style, print_kernel};
use tec::ir::verify::verify_kernel;
use tec::ir::{
    BinOp, Buffer, DType, Expr, ForKind, Kernel, Param, Role, Scope, Source, Stmt, UnOp, Var,
};
use tec::target::Target;

/// Elements of the inputs.
const LEN: i64 = 24;

struct Generator {
    rng: ChaCha8Rng,
    floats: Buffer,
    /// Elements are indices of the inputs.
    places: Buffer,
    bytes: Buffer,
    out: Buffer,
    totals: Buffer,
    n: Var,
    /// Values of type `index` in scope, none negative, below `LEN`.
    points: Vec<Expr>,
    /// Floating-point values in scope.
    values: Vec<Var>,
}

/// A loop of the nest.
struct Loop {
    var: Var,
    extent: Expr,
    kind: ForKind,
}

impl Generator {
    fn new(seed: u64) -> Generator {
        let n = Var::index("n");
        let tensor = |name: &str, dtype: DType, shape: Vec<Expr>| {
            Buffer::new(name, dtype, shape, Scope::Global)
        };
        let (len, rows) = (Expr::index(LEN), Expr::var(&n));
        Generator {
            rng: ChaCha8Rng::seed_from_u64(seed),
            floats: tensor("A", DType::Float32, vec![len.clone()]),
            places: tensor("P", DType::Int32, vec![len.clone()]),
            bytes: tensor("B", DType::Uint8, vec![len.clone()]),
            out: tensor("C", DType::Float32, vec![rows.clone(), len.clone()]),
            totals: tensor("D", DType::Int32, vec![rows, len]),
            n,
            points: Vec::new(),
            values: Vec::new(),
        }
    }

    fn below(&mut self, bound: i64) -> i64 {
        self.rng.random_range(0..bound)
    }

    /// Returns an index inside every input.
    fn index(&mut self, depth: u32) -> Expr {
        let point = match self.below(5) {
            0 => Expr::index(self.below(LEN)),
            _ => self.points[self.rng.random_range(0..self.points.len())].clone(),
        };
        let len = Expr::index(LEN);
        match self.below(7) {
            0 | 1 if depth > 0 => {
                let place = self.read(self.places.clone(), depth - 1);
                Expr::cast(DType::Index, place)
            }
            2 => Expr::sub(Expr::index(LEN - 1), point),
            3 => {
                let far = Expr::mul(point, Expr::index(self.below(5)));
                let op = if self.rng.random() { BinOp::FloorMod } else { BinOp::Min };
                match op {
                    BinOp::Min => Expr::binary(op, far, Expr::index(LEN - 1)),
                    _ => Expr::binary(op, far, len),
                }
            }
            4 => {
                let by = Expr::index(self.below(4) + 1);
                Expr::binary(BinOp::FloorDiv, point, by)
            }
            _ => point,
        }
    }

    fn read(&mut self, buffer: Buffer, depth: u32) -> Expr {
        let index = self.index(depth);
        Expr::load(&buffer, vec![index])
    }

    fn cond(&mut self, depth: u32) -> Expr {
        if depth == 0 {
            let (a, b) = (self.index(0), self.index(0));
            return Expr::lt(a, b);
        }
        match self.below(6) {
            0 => Expr::and(self.cond(depth - 1), self.guarded_cond()),
            1 => Expr::or(self.cond(depth - 1), self.cond(depth - 1)),
            2 => Expr::not(self.cond(depth - 1)),
            3 => {
                let value = self.value(depth - 1);
                Expr::lt(value, self.value(depth - 1))
            }
            4 => {
                let byte = self.read(self.bytes.clone(), depth - 1);
                Expr::lt(byte, Expr::int(DType::Uint8, 128))
            }
            _ => self.cond(0),
        }
    }

    /// Returns the condition that an index is in bounds, and the index, which may be outside.
    fn outside(&mut self) -> (Expr, Expr) {
        let at = Expr::add(self.index(1), Expr::index(self.below(30) - 15));
        let low = Expr::le(Expr::index(0), at.clone());
        (Expr::and(low, Expr::lt(at.clone(), Expr::index(LEN))), at)
    }

    /// Returns a condition whose second part reads out of bounds unless its first part guards it.
    fn guarded_cond(&mut self) -> Expr {
        let (inside, at) = self.outside();
        let byte = Expr::load(&self.bytes, vec![at]);
        let small = Expr::lt(byte, Expr::int(DType::Uint8, 99));
        match self.rng.random() {
            true => Expr::and(inside, small),
            false => Expr::or(Expr::not(inside), small),
        }
    }

    fn value(&mut self, depth: u32) -> Expr {
        let f32 = DType::Float32;
        if depth == 0 {
            return match self.below(4) {
                0 if !self.values.is_empty() => {
                    Expr::var(&self.values[self.rng.random_range(0..self.values.len())])
                }
                1 => Expr::float(f32, [0.0, -0.0, 1.5, -3.0][self.below(4) as usize]),
                _ => self.read(self.floats.clone(), 1),
            };
        }
        match self.below(9) {
            0 => {
                let (inside, at) = self.outside();
                let read = Expr::load(&self.floats, vec![at]);
                let other = self.value(depth - 1);
                match self.below(2) {
                    0 => Expr::if_then_else(inside, read, other),
                    _ => Expr::if_then_else(Expr::not(inside), other, read),
                }
            }
            1 => {
                let (c, t) = (self.cond(depth - 1), self.value(depth - 1));
                Expr::if_then_else(c, t, self.value(depth - 1))
            }
            2 => {
                let (c, t) = (self.cond(depth - 1), self.value(depth - 1));
                Expr::select(c, t, self.value(depth - 1))
            }
            3 => Expr::cast(f32, self.read(self.bytes.clone(), 1)),
            4 => Expr::cast(f32, self.index(1)),
            5 => {
                let var = Var::new("t", f32);
                let value = self.value(depth - 1);
                self.values.push(var.clone());
                let body = self.value(depth - 1);
                self.values.pop();
                Expr::let_in(var, value, body)
            }
            6 => Expr::unary(UnOp::Neg, self.value(depth - 1)),
            7 => self.read(self.floats.clone(), 2),
            _ => {
                let ops = [BinOp::Add, BinOp::Sub, BinOp::Mul, BinOp::Div, BinOp::Min];
                let op = ops[self.below(5) as usize];
                let a = self.value(depth - 1);
                Expr::binary(op, a, self.value(depth - 1))
            }
        }
    }

    /// Returns the statement at one point, which writes only its own element.
    fn work(&mut self, own: &[Expr], depth: u32) -> Stmt {
        if depth == 0 {
            return self.store(own);
        }
        match self.below(8) {
            0 => Stmt::Block(vec![self.work(own, depth - 1), self.work(own, depth - 1)]),
            1 | 2 => {
                let cond = self.cond(2);
                let then = Box::new(self.work(own, depth - 1));
                let otherwise = self.rng.random::<bool>().then(|| self.work(own, depth - 1));
                Stmt::If { cond, then, otherwise: otherwise.map(Box::new) }
            }
            3 => {
                let var = Var::new("v", DType::Float32);
                let value = self.value(2);
                self.values.push(var.clone());
                let body = Box::new(self.work(own, depth - 1));
                self.values.pop();
                Stmt::Let { var, value, body }
            }
            4 | 5 => {
                let var = Var::index("r");
                // A condition that differs between lanes, too.
                let extent = match self.below(3) {
                    0 => Expr::binary(BinOp::Min, self.index(1), Expr::index(4)),
                    _ => Expr::index(self.below(5)),
                };
                let kinds = [ForKind::Serial, ForKind::Unrolled, ForKind::UnrollHint];
                let kind = kinds[self.below(3) as usize].clone();
                self.points.push(Expr::var(&var));
                let body = Box::new(self.work(own, depth - 1));
                self.points.pop();
                Stmt::For { var, min: Expr::index(0), extent, kind, body }
            }
            6 => self.temporary(own, depth),
            _ => self.store(own),
        }
    }

    /// Returns a small buffer that is filled and read.
    fn temporary(&mut self, own: &[Expr], depth: u32) -> Stmt {
        let extent = Expr::index(self.below(4) + 1);
        let local = Buffer::new("T", DType::Float32, vec![extent.clone()], Scope::Local);
        let fill = Var::index("f");
        self.points.push(Expr::var(&fill));
        let value = self.value(2);
        self.points.pop();
        let fill_store = Stmt::store(&local, vec![Expr::var(&fill)], value);
        let fill = Stmt::serial(fill, extent, fill_store);
        let name = "T".to_string();
        let produce = Stmt::Produce { name, body: Box::new(fill) };
        let var = Var::new("u", DType::Float32);
        let value = Expr::load(&local, vec![Expr::index(0)]);
        self.values.push(var.clone());
        let body = Box::new(self.work(own, depth - 1));
        self.values.pop();
        let read = Stmt::Let { var, value, body };
        let body = Box::new(Stmt::Block(vec![produce, read]));
        Stmt::Allocate { buffer: local, body }
    }

    fn store(&mut self, own: &[Expr]) -> Stmt {
        if self.below(3) == 0 {
            let old = Expr::load(&self.totals, own.to_vec());
            let step = match self.rng.random() {
                true => Expr::cast(DType::Int32, self.index(1)),
                false => self.read(self.places.clone(), 2),
            };
            return Stmt::store(&self.totals, own.to_vec(), Expr::add(old, step));
        }
        let value = self.value(3);
        let value = match self.rng.random() {
            true => Expr::add(Expr::load(&self.out, own.to_vec()), value),
            false => value,
        };
        Stmt::store(&self.out, own.to_vec(), value)
    }

    /// Returns the loops of an axis, its value and the conditions of its tail.
    fn split(&mut self, name: &str, extent: Expr) -> (Vec<Loop>, Expr, Vec<Expr>) {
        let (mut loops, mut conds) = (Vec::new(), Vec::new());
        let mut outer = extent.clone();
        let mut value: Option<Expr> = None;
        let mut weight = 1;
        for level in 0..self.below(3) {
            let factor = [1, 2, 3, 4, 5, 8, 16, 17][self.below(8) as usize];
            let var = Var::index(format!("{name}{level}"));
            let term = Expr::mul(Expr::var(&var), Expr::index(weight));
            value = Some(match value {
                Some(inner) => Expr::add(term, inner),
                None => term,
            });
            loops.push(Loop { var, extent: Expr::index(factor), kind: ForKind::Serial });
            let up = Expr::add(outer, Expr::index(factor - 1));
            outer = Expr::binary(BinOp::FloorDiv, up, Expr::index(factor));
            weight *= factor;
        }
        let var = Var::index(format!("{name}o"));
        let term = Expr::mul(Expr::var(&var), Expr::index(weight));
        loops.push(Loop { var, extent: outer, kind: ForKind::Serial });
        let value = value.map_or(term.clone(), |inner| Expr::add(term, inner));
        if weight > 1 {
            let inside = Expr::lt(value.clone(), extent);
            conds.push(match self.below(4) {
                0 => inside,
                _ => Expr::unary(UnOp::Likely, inside),
            });
        }
        (loops, value, conds)
    }

    fn nest(&mut self) -> Stmt {
        let rows = Expr::var(&self.n);
        let width = self.below(LEN) + 1;
        let (mut loops, row, mut conds) = self.split("i", rows);
        let (more, column, tail) = self.split("j", Expr::index(width));
        loops.extend(more);
        conds.extend(tail);
        loops.shuffle(&mut self.rng);
        let mut lanes = false;
        for one in &mut loops {
            let constant = one.extent.as_int().is_some();
            one.kind = match self.below(5) {
                0 | 1 if constant && !lanes => {
                    lanes = true;
                    ForKind::Vectorized
                }
                2 if constant => ForKind::Unrolled,
                3 => ForKind::Parallel,
                _ => ForKind::Serial,
            };
        }
        if self.below(3) == 0 {
            // A box that extends beyond its tensor.
            let most = Expr::index(self.below(LEN));
            let inside = Expr::lt(column.clone(), most);
            conds.push(Expr::unary(UnOp::Likely, inside));
        }
        self.points = vec![column.clone(), Expr::binary(BinOp::Min, row.clone(), Expr::index(9))];
        let own = [row, column];
        let mut body = self.work(&own, 3);
        self.points.clear();
        conds.shuffle(&mut self.rng);
        for cond in conds {
            body = Stmt::If { cond, then: Box::new(body), otherwise: None };
        }
        for one in loops {
            let (var, extent, kind) = (one.var, one.extent, one.kind);
            body = Stmt::For { var, min: Expr::index(0), extent, kind, body: Box::new(body) };
        }
        body
    }

    fn kernel(mut self) -> Kernel {
        let mut stmts = Vec::new();
        for buffer in [self.out.clone(), self.totals.clone()] {
            let (i, j) = (Var::index("i"), Var::index("j"));
            let zero = Expr::cast(buffer.dtype, Expr::int(DType::Int32, 0));
            let store = Stmt::store(&buffer, vec![Expr::var(&i), Expr::var(&j)], zero);
            let row = Stmt::serial(j, Expr::index(LEN), store);
            stmts.push(Stmt::serial(i, Expr::var(&self.n), row));
        }
        for _ in 0..1 + self.below(2) {
            stmts.push(self.nest());
        }
        let tensor = |buffer: &Buffer, output| Param::Tensor {
            buffer: buffer.clone(),
            role: if output { Role::Output } else { Role::Input },
            layout_free: false,
        };
        let params = vec![
            tensor(&self.floats, false),
            tensor(&self.places, false),
            tensor(&self.bytes, false),
            tensor(&self.out, true),
            tensor(&self.totals, true),
            Param::Runtime { var: self.n.clone(), source: Some(Source::Extent(3, 0)) },
        ];
        Kernel {
            facts: vec![Expr::le(Expr::index(0), Expr::var(&self.n))],
            ..Kernel::new("k", params, Stmt::Block(stmts))
        }
    }
}

fn arguments(seed: u64, rows: i64) -> Vec<Value> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let tensor =
        |dtype: DType, shape: Vec<i64>, data: Vec<u8>| Value::Tensor(Tensor { dtype, shape, data });
    let floats = (0..LEN).flat_map(|_| rng.random_range(-4f32..4.0).to_le_bytes()).collect();
    let places = (0..LEN).flat_map(|_| rng.random_range(0..LEN as i32).to_le_bytes()).collect();
    let bytes = (0..LEN).map(|_| rng.random()).collect();
    let empty = vec![0; (rows * LEN * 4) as usize];
    vec![
        tensor(DType::Float32, vec![LEN], floats),
        tensor(DType::Int32, vec![LEN], places),
        tensor(DType::Uint8, vec![LEN], bytes),
        tensor(DType::Float32, vec![rows, LEN], empty.clone()),
        tensor(DType::Int32, vec![rows, LEN], empty),
        Value::Index(rows),
    ]
}

/// Returns the outputs, with every NaN the same.
fn results(kernel: &Kernel, seed: u64, rows: i64) -> Result<(Vec<u32>, Vec<u8>), String> {
    let mut args = arguments(seed, rows);
    interp::run(kernel, &mut args).map_err(|trap| format!("{trap:?}"))?;
    let (Value::Tensor(out), Value::Tensor(totals)) = (&args[3], &args[4]) else {
        unreachable!("tensors stay tensors")
    };
    let canonical = |bytes: &[u8]| {
        let value = f32::from_le_bytes(bytes.try_into().expect("four bytes"));
        if value.is_nan() { f32::NAN.to_bits() } else { value.to_bits() }
    };
    Ok((out.data.chunks_exact(4).map(canonical).collect(), totals.data.clone()))
}

fn check(seed: u64) {
    let mut kernel = Generator::new(seed).kernel();
    verify_kernel(&kernel).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    let rows = [0, 1, 5, 8, 19];
    let expected: Vec<_> = rows
        .iter()
        .map(|rows| results(&kernel, seed, *rows))
        .map(|result| result.unwrap_or_else(|trap| panic!("seed {seed}, as made: {trap}")))
        .collect();
    let original = print_kernel(&kernel, Style::Full);
    let target = Target::native();
    // One kernel in four is compiled without optimisation.
    let opt = if seed % 4 == 3 { 0 } else { 3 };
    for pass in PASSES.iter().filter(|pass| pass.runs(&target, opt)) {
        let before = print_kernel(&kernel, Style::Full);
        kernel = (pass.run)(kernel, &target).expect("nothing is refused");
        let after = print_kernel(&kernel, Style::Full);
        let texts = || format!("first:\n{original}\nbefore:\n{before}\nafter:\n{after}");
        let name = pass.name;
        if let Err(error) = verify_kernel(&kernel) {
            panic!("seed {seed}, {name}: {error}\n{}", texts());
        }
        let gone = match name {
            "partition_loops" => Some("likely("),
            "vectorize_loops" => Some("vectorized "),
            _ => None,
        };
        if let Some(gone) = gone {
            assert!(!after.contains(gone), "seed {seed}: {gone} after {name}\n{}", texts());
        }
        for (rows, expected) in rows.iter().zip(&expected) {
            match results(&kernel, seed, *rows) {
                Ok(actual) if actual == *expected => {}
                Ok(_) => panic!("seed {seed}, {name}: other results for n={rows}\n{}", texts()),
                Err(trap) => panic!("seed {seed}, {name}, n={rows}: {trap}\n{}", texts()),
            }
        }
    }
}

#[test]
fn passes_keep_the_results_of_random_nests() {
    let setting = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let (count, first) = (setting("N", 300), setting("SEED", 0));
    std::thread::scope(|scope| {
        for half in 0..2 {
            let seeds = (first + half..first + count).step_by(2);
            scope.spawn(move || with_stack(|| seeds.for_each(check)));
        }
    });
}
