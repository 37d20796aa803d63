//! A random program as a tree that can be printed and made smaller.

use std::fmt::Write;
use tec::ir::DType;

/// An expression: text with expressions in its gaps.
#[derive(Clone, Debug)]
pub struct Ex {
    /// Its type; `Index` for axes and what is made of them.
    pub dtype: DType,
    /// What it is made of, in order.
    pub pieces: Vec<Piece>,
}

/// A part of an expression.
#[derive(Clone, Debug)]
pub enum Piece {
    /// Text as it is.
    Text(String),
    /// An operand.
    Ex(Ex),
}

impl Ex {
    /// Text without operands.
    pub fn text(dtype: DType, text: impl Into<String>) -> Ex {
        Ex { dtype, pieces: vec![Piece::Text(text.into())] }
    }

    /// `template` with `@` standing for the operands.
    pub fn of(dtype: DType, template: &str, operands: Vec<Ex>) -> Ex {
        let mut operands = operands.into_iter();
        let mut pieces = Vec::new();
        for (i, text) in template.split('@').enumerate() {
            if i > 0 {
                pieces.push(Piece::Ex(operands.next().expect("an operand for each @")));
            }
            pieces.push(Piece::Text(text.to_string()));
        }
        assert!(operands.next().is_none(), "more operands than @ in {template}");
        Ex { dtype, pieces }
    }

    /// Its operands.
    pub fn operands(&self) -> impl Iterator<Item = &Ex> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Ex(operand) => Some(operand),
            Piece::Text(_) => None,
        })
    }

    fn print(&self, out: &mut String) {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Ex(operand) => operand.print(out),
            }
        }
    }

    /// Number of nodes.
    pub fn size(&self) -> usize {
        1 + self.operands().map(Ex::size).sum::<usize>()
    }

    /// The `n`th node, counted from the top.
    pub fn node_mut(&mut self, n: &mut usize) -> Option<&mut Ex> {
        if *n == 0 {
            return Some(self);
        }
        *n -= 1;
        for piece in &mut self.pieces {
            if let Piece::Ex(operand) = piece
                && let Some(found) = operand.node_mut(n)
            {
                return Some(found);
            }
        }
        None
    }
}

/// An extent: text, and whether it is a run-time integer.
#[derive(Clone, PartialEq, Debug)]
pub enum Extent {
    /// A constant.
    Const(i64),
    /// `n`.
    Var(&'static str),
}

impl Extent {
    /// As it is written.
    pub fn text(&self) -> String {
        match self {
            Extent::Const(value) => value.to_string(),
            Extent::Var(name) => name.to_string(),
        }
    }
}

/// A tensor that expressions may read.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub shape: Vec<Extent>,
    /// Whether it is an input.
    pub input: bool,
}

/// A reduction's frame.
#[derive(Clone, Debug)]
pub struct Reduce {
    /// `sum`, `argbest`, …
    pub reducer: String,
    /// Axes with start and end.
    pub axes: Vec<(String, String, String)>,
    /// `where=`.
    pub condition: Option<Ex>,
    /// `init=`, one per component.
    pub init: Option<Vec<Ex>>,
    /// `reassociate` does not change a plain loop nest.
    pub reassociate: bool,
}

/// A stage.
#[derive(Clone, Debug)]
pub struct Stage {
    /// `output`, not `compute`.
    pub output: bool,
    /// One name, or one per component; with a type where one is written.
    pub names: Vec<(String, Option<DType>)>,
    /// Axes.
    pub axes: Vec<(String, Extent)>,
    /// A type after the axes.
    pub dtype: Option<DType>,
    /// One value, or one term per component.
    pub values: Vec<Ex>,
    /// For reductions.
    pub reduce: Option<Reduce>,
}

/// A kernel with what stands around it.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Run-time integers.
    pub vars: Vec<&'static str>,
    /// Inputs as declared, by name.
    pub inputs: Vec<(String, String)>,
    /// Statements before the stages: aliases, operators.
    pub lets: Vec<(usize, String)>,
    /// Stages in order.
    pub stages: Vec<Stage>,
}

/// Definitions that every program may use.
pub const PRELUDE: &str = "\
def square(x) = x * x
def blend(c, x, y) = if c then x + y else x - y
def folded(x, y, z) = square(x) * y + z
reducer product(a, b) = a * b identity 1
reducer least(a, b) = if a < b then a else b identity max_value
reducer circle(a, b) = a + b + a * b identity 0
reducer argbest((ai, av), (bi, bv)) =
    (if av > bv or (av == bv and ai < bi) then ai else bi, max(av, bv))
    identity (max_value, -inf)
reducer spread((al, ah, ac), (bl, bh, bc)) = (min(al, bl), max(ah, bh), ac + bc)
    identity (inf, -inf, 0)
kernel doubled(len, T: dtype = float32) {
    input X: T[len]
    output Y[i: len] = X[i] + X[i]
}
kernel padded(len, wid, p = 1, T: dtype = float32) {
    input X: T[len, wid]
    compute Z[i: len, j: wid] = X[i, j]
    output Y[i: len + 2*p, j: wid + p] =
        if i < p or i >= len + p or j >= wid then 0 else Z[i - p, j]
}
";

impl Program {
    /// The `.te` file.
    pub fn text(&self) -> String {
        let mut out = String::from(PRELUDE);
        let vars: Vec<String> = self.vars.iter().map(|var| format!("{var}: var")).collect();
        let _ = writeln!(out, "kernel fuzzed({}) {{", vars.join(", "));
        for (_, declaration) in &self.inputs {
            let _ = writeln!(out, "    {declaration}");
        }
        for (position, stage) in self.stages.iter().enumerate() {
            for (_, text) in self.lets.iter().filter(|(before, _)| *before == position) {
                let _ = writeln!(out, "    {text}");
            }
            stage.print(&mut out);
        }
        out.push_str("}\n");
        out
    }
}

impl Stage {
    fn print(&self, out: &mut String) {
        if let Some(reduce) = &self.reduce {
            let axes = reduce.axes.iter();
            let axes: Vec<String> =
                axes.map(|(name, min, end)| format!("{name}: {min}..{end}")).collect();
            let _ = writeln!(out, "    reduce {}", axes.join(", "));
        }
        let names = self.names.iter().map(|(name, dtype)| match dtype {
            Some(dtype) => format!("{name}: {dtype}"),
            None => name.clone(),
        });
        let names: Vec<String> = names.collect();
        let names =
            if names.len() == 1 { names.concat() } else { format!("({})", names.join(", ")) };
        let axes = self.axes.iter().map(|(name, extent)| format!("{name}: {}", extent.text()));
        let axes: Vec<String> = axes.collect();
        let word = if self.output { "output" } else { "compute" };
        let _ = write!(out, "    {word} {names}[{}]", axes.join(", "));
        if let Some(dtype) = self.dtype {
            let _ = write!(out, ": {dtype}");
        }
        out.push_str(" = ");
        match &self.reduce {
            None => self.values[0].print(out),
            Some(reduce) => {
                let _ = write!(out, "{}(", reduce.reducer);
                print_tuple(&self.values, out);
                let axes: Vec<&str> = reduce.axes.iter().map(|(name, ..)| name.as_str()).collect();
                let _ = match axes[..] {
                    [axis] => write!(out, ", axis={axis}"),
                    _ => write!(out, ", axis=[{}]", axes.join(", ")),
                };
                if let Some(condition) = &reduce.condition {
                    out.push_str(", where=");
                    condition.print(out);
                }
                if let Some(init) = &reduce.init {
                    out.push_str(", init=");
                    print_tuple(init, out);
                }
                if reduce.reassociate {
                    out.push_str(", reassociate");
                }
                out.push(')');
            }
        }
        out.push('\n');
    }

    /// Every expression in it.
    pub fn expressions_mut(&mut self) -> Vec<&mut Ex> {
        let mut all: Vec<&mut Ex> = self.values.iter_mut().collect();
        if let Some(reduce) = &mut self.reduce {
            all.extend(reduce.condition.iter_mut());
            all.extend(reduce.init.iter_mut().flatten());
        }
        all
    }
}

fn print_tuple(parts: &[Ex], out: &mut String) {
    if let [only] = parts {
        return only.print(out);
    }
    out.push('(');
    for (i, part) in parts.iter().enumerate() {
        out.push_str(if i > 0 { ", " } else { "" });
        part.print(out);
    }
    out.push(')');
}
