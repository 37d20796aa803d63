//! Random launches: stages in shared memory that the threads of a block fill together, computed
//! from each other, double-buffered, aligned, or filled by one thread; virtual threads; values in
//! local memory; loops of every kind; tails of constant and of run-time extents.

use super::build::*;
use super::passes::check_passes;
use rand::prelude::*;
use rand_chacha::ChaCha8Rng;
use tec::driver::with_stack;
use tec::ir::{
    BinOp, Buffer, Buffering, DType, Expr, ForKind, Kernel, Param, Scope, Source, Stmt,
    ThreadIndex, UnOp, Var,
};

/// Elements of the input.
const LEN: i64 = 64;

struct Generator {
    rng: ChaCha8Rng,
    input: Buffer,
    out: Buffer,
    n: Var,
    block: Var,
    tx: Var,
    ty: Var,
    /// Threads of a block along x and y, and terms of the outer loop.
    threads: [i64; 2],
    steps: i64,
    step: Var,
    /// Virtual threads, if there are any.
    virtuals: Option<(Var, i64)>,
    /// Elements that a thread keeps.
    width: i64,
}

/// A stage in shared memory.
struct Shared {
    buffer: Buffer,
    fill: Stmt,
}

impl Generator {
    fn new(seed: u64) -> Generator {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let [block, tx, ty, step, v] = vars(["blockIdx.x", "threadIdx.x", "threadIdx.y", "k", "v"]);
        let n = Var::index("n");
        let threads = [rng.random_range(1..6), rng.random_range(1..4)];
        let virtuals = match rng.random_range(0..6) {
            0 | 1 => Some((v, rng.random_range(1..4))),
            2 => Some((v, 17)),
            _ => None,
        };
        let (steps, width) = (rng.random_range(1..5), rng.random_range(1..5));
        let count = virtuals.as_ref().map_or(1, |(_, count)| *count);
        let shape = [count, threads[1], threads[0], width];
        let shape = [Expr::var(&n)].into_iter().chain(shape.map(int)).collect();
        let out = Buffer::new("C", DType::Float32, shape, Scope::Global);
        let input = global("A", &[LEN]);
        Generator { rng, input, out, n, block, tx, ty, threads, steps, step, virtuals, width }
    }

    fn below(&mut self, bound: i64) -> i64 {
        self.rng.random_range(0..bound)
    }

    /// Returns the number of the thread in its block.
    fn thread(&self) -> Expr {
        add(mul(get(&self.ty), self.threads[0]), get(&self.tx))
    }

    /// Returns a sum of some of these values, modulo a number.
    fn mixed(&mut self, parts: &[Expr], bound: i64) -> Expr {
        let mut sum = int(self.below(bound));
        for part in parts {
            if self.below(3) > 0 {
                let by = 1 + self.below(5);
                sum = add(sum, mul(part.clone(), by));
            }
        }
        modulo(sum, bound)
    }

    fn virtual_thread(&self) -> Option<Expr> {
        self.virtuals.as_ref().map(|(var, _)| get(var))
    }

    /// Returns the kind of an inner loop, mostly serial.
    fn kind(&mut self, extent: i64) -> ForKind {
        match self.below(6) {
            0 => ForKind::Unrolled,
            1 if extent > 1 => ForKind::Vectorized,
            2 => ForKind::UnrollHint,
            _ => ForKind::Serial,
        }
    }

    /// `index` along the dimensions of a buffer.
    fn place(&self, buffer: &Buffer, index: Expr) -> Vec<Expr> {
        match &buffer.shape[..] {
            [_] => vec![index],
            [_, row] => {
                let of = |op| Expr::binary(op, index.clone(), row.clone());
                vec![of(BinOp::FloorDiv), of(BinOp::FloorMod)]
            }
            _ => unreachable!("of one or two dimensions"),
        }
    }

    fn length(buffer: &Buffer) -> i64 {
        buffer.shape.iter().map(|extent| extent.as_int().expect("constant") as i64).product()
    }

    /// Returns a shared stage, which may read `from`.
    fn shared(&mut self, name: &str, from: &[Buffer], in_loop: bool) -> Shared {
        let rows = 1 + self.below(3);
        let (row, double) = (1 + self.below(9), in_loop && from.is_empty() && self.below(3) == 0);
        let (shape, strides) = match self.below(4) {
            0 => (vec![int(rows * row)], None),
            1 => (vec![int(rows), int(row)], Some(vec![int(row + self.below(3)), int(1)])),
            _ => (vec![int(rows), int(row)], None),
        };
        // Pipelines in one loop have the same number of stages.
        let stages = 2 + (self.threads[0] % 6) as u32;
        let how = match (double, self.below(2)) {
            (false, _) => Buffering::Single,
            (true, 0) => Buffering::Double,
            (true, _) => Buffering::Pipeline(stages),
        };
        let dtype = DType::Float32;
        let buffer = Buffer::with_layout(name, dtype, shape, Scope::Shared, strides, how);
        let length = rows * row;
        if self.below(6) == 0 {
            return Shared { fill: self.fill_alone(&buffer, length, in_loop), buffer };
        }
        let count = self.threads[0] * self.threads[1];
        let turns = (length + count - 1) / count;
        let f = Var::index("f");
        let element = match self.below(2) {
            0 => add(mul(get(&f), count), self.thread()),
            _ => add(mul(self.thread(), turns), get(&f)),
        };
        let value = self.element(element.clone(), from, in_loop);
        let at = self.place(&buffer, element.clone());
        let mut body = store(&buffer, &at, value);
        if self.below(4) == 0 {
            // A sum in place.
            let r = Var::index("r");
            let term = self.element(add(element.clone(), get(&r)), from, in_loop);
            let sum = add(load(&buffer, &at), term);
            body = block([body, serial(&r, 1 + self.below(3), store(&buffer, &at, sum))]);
        }
        if turns * count != length {
            let inside = Expr::lt(element, int(length));
            body = when(Expr::unary(UnOp::Likely, inside), body);
        }
        let kind = self.kind(turns);
        body = for_kind(&f, turns, kind, body);
        if self.below(2) == 0 {
            let [x, y] = self.threads;
            body = threads(&self.ty, y, threads(&self.tx, x, body));
        }
        Shared { fill: produce(name, body), buffer }
    }

    /// Returns statements that compute everything on the first thread.
    fn fill_alone(&mut self, buffer: &Buffer, length: i64, in_loop: bool) -> Stmt {
        let f = Var::index("f");
        let value = self.element(get(&f), &[], in_loop);
        let at = self.place(buffer, get(&f));
        let body = serial(&f, length, store(buffer, &at, value));
        let first = Expr::eq(self.thread(), int(0));
        produce(&buffer.name, when(first, body))
    }

    /// Returns the value of an element of a shared stage.
    fn element(&mut self, element: Expr, from: &[Buffer], in_loop: bool) -> Expr {
        let mut parts = vec![element, get(&self.block)];
        if in_loop {
            parts.push(get(&self.step));
        }
        if self.below(4) == 0 {
            parts.extend(self.virtual_thread());
        }
        let at = self.mixed(&parts, LEN);
        let mut value = load(&self.input, &[at]);
        for buffer in from {
            if self.below(2) == 0 {
                let at = self.mixed(&parts, Self::length(buffer));
                let at = self.place(buffer, at);
                value = add(value, load(buffer, &at));
            }
        }
        value
    }

    /// `L[j] = L[j] + …` from all shared stages.
    fn update(&mut self, local: &Buffer, shared: &[Buffer]) -> Stmt {
        let j = Var::index("j");
        let mut parts = vec![get(&self.tx), get(&self.ty), get(&j), get(&self.step)];
        parts.extend(self.virtual_thread());
        let mut value = load(local, &[get(&j)]);
        for buffer in shared {
            if self.below(3) == 0 {
                continue;
            }
            let at = self.mixed(&parts, Self::length(buffer));
            let at = self.place(buffer, at);
            value = add(value, load(buffer, &at));
        }
        let body = store(local, &[get(&j)], value);
        let kind = self.kind(self.width);
        for_kind(&j, self.width, kind, body)
    }

    /// Allocates stages around the statements that fill and read them.
    fn around(stages: Vec<Shared>, inner: Stmt) -> Stmt {
        stages
            .into_iter()
            .rev()
            .fold(inner, |inner, stage| allocate(&stage.buffer, block([stage.fill, inner])))
    }

    fn kernel(mut self) -> Kernel {
        let local = buffer("L", &[self.width], Scope::Local);
        let (mut outer, mut inner, mut buffers) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..self.below(5) {
            let stage = self.shared(&format!("S{number}"), &buffers.clone(), false);
            buffers.push(stage.buffer.clone());
            outer.push(stage);
        }
        for number in 0..1 + self.below(2) {
            let stage = self.shared(&format!("T{number}"), &buffers.clone(), true);
            if stage.buffer.buffering == Buffering::Single || self.below(2) == 0 {
                buffers.push(stage.buffer.clone());
            }
            inner.push(stage);
        }
        // A double buffer is filled from nothing of the same iteration, so double buffers come
        // first.
        inner.sort_by_key(|stage| stage.buffer.buffering == Buffering::Single);
        let update = self.update(&local, &buffers);
        let kind = if self.below(4) == 0 { ForKind::Unrolled } else { ForKind::Serial };
        let body = Self::around(inner, update);
        let body = for_kind(&self.step, self.steps, kind, body);
        let i = Var::index("i");
        let start = serial(&i, self.width, store(&local, &[get(&i)], float(0.0)));
        let at = self.virtual_thread().unwrap_or_else(|| int(0));
        let i = Var::index("i");
        let at = [get(&self.block), at, get(&self.ty), get(&self.tx), get(&i)];
        let kind = self.kind(self.width);
        let write = store(&self.out, &at, load(&local, &[get(&i)]));
        let write = for_kind(&i, self.width, kind, write);
        let body = allocate(&local, block([start, body, write]));
        let [x, y] = self.threads;
        let mut body = Self::around(outer, body);
        body = threads(&self.ty, y, threads(&self.tx, x, body));
        if let Some((var, count)) = &self.virtuals {
            body = for_kind(var, *count, ForKind::Thread(ThreadIndex::Virtual), body);
        }
        let body = Stmt::For {
            var: self.block.clone(),
            min: int(0),
            extent: get(&self.n),
            kind: ForKind::Thread(ThreadIndex::Block(0)),
            body: Box::new(body),
        };
        let mut kernel = kernel(&[&self.input], &[&self.out], produce("C", body));
        kernel
            .params
            .push(Param::Runtime { var: self.n.clone(), source: Some(Source::Extent(1, 0)) });
        kernel.facts.push(Expr::le(int(0), get(&self.n)));
        kernel
    }
}

#[test]
fn passes_keep_the_results_of_random_launches() {
    let setting = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let (count, first) = (setting("N", 150), setting("SEED", 0));
    with_stack(|| {
        for seed in first..first + count {
            let kernel = Generator::new(seed).kernel();
            let opt = if seed % 4 == 3 { 0 } else { 3 };
            let checked = std::panic::catch_unwind(|| check_passes(&kernel, opt));
            if let Err(panic) = checked {
                eprintln!("seed {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    });
}
