//! A random program as a tree of pieces of text, which the generator builds and the shrinker cuts.

use crate::generate::Ext;
use std::collections::BTreeSet;
use tec::ir::DType;

/// A piece of text with places (`$`) for other pieces.
#[derive(Clone, Debug)]
pub struct Node {
    /// The type of an expression; none for statements and items.
    pub ty: Option<DType>,
    /// The text; each `$` stands for a child.
    pub form: String,
    /// The children.
    pub kids: Vec<Node>,
}

impl Node {
    /// Returns an expression.
    pub fn new(ty: DType, form: impl Into<String>, kids: Vec<Node>) -> Node {
        Node { ty: Some(ty), form: form.into(), kids }
    }

    /// Returns an expression without parts.
    pub fn leaf(ty: DType, form: impl Into<String>) -> Node {
        Node::new(ty, form, Vec::new())
    }

    /// Returns a statement, an item or a parameter.
    pub fn stmt(form: impl Into<String>, kids: Vec<Node>) -> Node {
        Node { ty: None, form: form.into(), kids }
    }

    /// Returns the text.
    pub fn render(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) {
        let mut kids = self.kids.iter();
        for (index, piece) in self.form.split('$').enumerate() {
            if index > 0
                && let Some(kid) = kids.next()
            {
                kid.write(text);
            }
            text.push_str(piece);
        }
    }

    /// Returns the number of pieces.
    pub fn size(&self) -> usize {
        1 + self.kids.iter().map(Node::size).sum::<usize>()
    }

    /// Returns the piece at a position in preorder; `at` counts down.
    pub fn nth(&mut self, at: &mut usize) -> Option<&mut Node> {
        if *at == 0 {
            return Some(self);
        }
        *at -= 1;
        self.kids.iter_mut().find_map(|kid| kid.nth(at))
    }
}

/// The properties of a stage that a schedule depends on.
#[derive(Clone, Debug)]
pub struct StageInfo {
    /// Its name; that of the first component for a tuple.
    pub name: String,
    /// Names of further components.
    pub others: Vec<String>,
    /// Data axes.
    pub axes: Vec<(String, Ext)>,
    /// Reduction axes, in the order of the terms.
    pub reduce: Vec<(String, Ext)>,
    /// Whether it is an output.
    pub output: bool,
    /// Whether any order of its terms gives the same bits.
    pub exact: bool,
    /// Whether its reducer is commutative.
    pub commutes: bool,
    /// Stages and inputs that it reads.
    pub reads: Vec<String>,
    /// Its statement in the kernel's body.
    pub place: usize,
    /// Whether the intrinsic `dot4_i32` may compute it.
    pub dot: bool,
    /// The axis along which it is a prefix reduction, and whether a scan along it keeps the order
    /// of the terms.
    pub prefix: Option<(String, bool)>,
    /// The axis along which its terms can be scattered.
    pub scatter: Option<String>,
    /// Whether unknown stages read it too, so that it stays at the root.
    pub pinned: bool,
    /// The number of its first axes that are steps of a recurrence.
    pub steps: usize,
    /// Stages of the same recurrence whose earlier steps it reads.
    pub earlier: Vec<String>,
    /// Whether it updates an `inout` tensor, whose name it has.
    pub update: bool,
}

impl StageInfo {
    /// Whether this is one of its names.
    pub fn named(&self, name: &str) -> bool {
        self.name == name || self.others.iter().any(|other| other == name)
    }
}

/// A statement of a schedule.
#[derive(Clone, Debug)]
pub struct Line {
    /// The text.
    pub node: Node,
    /// The kinds of directives that it counts as.
    pub kinds: Vec<&'static str>,
    /// The names that it declares.
    pub results: Vec<String>,
}

/// A schedule.
#[derive(Clone, Debug, Default)]
pub struct ScheduleText {
    /// Its name.
    pub name: String,
    /// Its parameters.
    pub params: Vec<Node>,
    /// Its target, if not all.
    pub target: Option<String>,
    /// Whether it uses an alias of the kernel.
    pub by_aliases: bool,
    /// Its statements.
    pub body: Vec<Line>,
}

/// A kernel with everything that it depends on.
#[derive(Clone, Debug)]
pub struct Program {
    /// Whether it is a network, and some of its inputs are params.
    pub network: bool,
    /// The kernel's name.
    pub name: String,
    /// The items before it: `def`, `reducer`, other kernels.
    pub items: Vec<Node>,
    /// Parameters, in order.
    pub params: Vec<Node>,
    /// Whether `reassociate` follows the parameters.
    pub reassociate: bool,
    /// The kernel's statements.
    pub body: Vec<Node>,
    /// Run-time integers and the values of the run.
    pub vars: Vec<(String, i64)>,
    /// The values of `-D`.
    pub defines: Vec<(String, String)>,
    /// The seed of the random data.
    pub seed: u64,
    /// The entries of the table that it uses; see `table`.
    pub tags: BTreeSet<String>,
    /// Stages that a schedule may name.
    pub stages: Vec<StageInfo>,
    /// Schedules; if there are any, the program is built with the one named `s`.
    pub schedules: Vec<ScheduleText>,
}

/// Whether a statement declares an input tensor whose extents are numbers.
fn has_constant_shape(stmt: &str) -> bool {
    let shape = stmt.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    let is_constant =
        |shape: &str| shape.chars().all(|c| c.is_ascii_digit() || matches!(c, ' ' | ','));
    stmt.starts_with("input ") && shape.is_some_and(|(shape, _)| is_constant(shape))
}

impl Program {
    /// Makes it a network; some of its inputs of constant shape become params.
    pub fn into_network(self) -> Program {
        Program { network: true, ..self }
    }

    /// Returns the text of the file.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for item in &self.items {
            text.push_str(&item.render());
            text.push_str("\n\n");
        }
        let word = if self.reassociate { " reassociate" } else { "" };
        let params: Vec<String> = self.params.iter().map(Node::render).collect();
        let kind = if self.network { "network" } else { "kernel" };
        text.push_str(&format!("{kind} {}({}){} {{\n", self.name, params.join(", "), word));
        for (at, stmt) in self.body.iter().enumerate() {
            let mut stmt = stmt.render().replace('\n', "\n    ");
            if self.network && at % 2 == 0 && has_constant_shape(&stmt) {
                stmt = stmt.replacen("input", "param", 1).replace(" layout_free", "");
            }
            text.push_str(&format!("    {stmt}\n"));
        }
        text.push_str("}\n");
        for schedule in &self.schedules {
            let params: Vec<String> = schedule.params.iter().map(Node::render).collect();
            let params = match params.is_empty() {
                true => String::new(),
                false => format!("({})", params.join(", ")),
            };
            let target = schedule.target.iter().map(|target| format!(" for {target}"));
            let target: String = target.collect();
            let head = format!("\nschedule {}.{}{params}{target} {{\n", self.name, schedule.name);
            text.push_str(&head);
            for line in &schedule.body {
                text.push_str(&format!("    {}\n", line.node.render()));
            }
            text.push_str("}\n");
        }
        text
    }
}
