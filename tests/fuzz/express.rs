//! Random expressions: operators, constants, and loads whose indices are in bounds in various ways.

use crate::generate::{Axis, Ext, Generator, Tensor};
use crate::table::Op;
use crate::tree::Node;
use rand::RngExt;
use tec::ir::DType;

/// The context of an expression.
#[derive(Clone, Debug)]
pub struct Place {
    /// Axes in scope, data axes first.
    pub axes: Vec<Axis>,
}

impl Generator {
    /// Returns a random expression of at most `depth` levels.
    pub fn expr(&mut self, ty: DType, depth: u32, place: &Place) -> Node {
        if depth == 0 || self.chance(12) {
            return self.leaf(ty, place);
        }
        if self.scope.locals.is_none()
            && self.chance(6)
            && let Some(node) = self.call_def(ty, depth, place)
        {
            return node;
        }
        let fitting: Vec<usize> =
            (0..self.ops.len()).filter(|&at| self.ops[at].result == ty).collect();
        // There are many casts and comparisons, so they get a lower weight.
        let chosen = self.pick(&fitting);
        let mut op = self.ops[chosen].clone();
        for _ in 0..2 {
            if op.name == "as" || (ty == DType::Bool && op.operands.first() != Some(&DType::Bool)) {
                let chosen = self.pick(&fitting);
                op = self.ops[chosen].clone();
            }
        }
        self.apply(&op, depth, place)
    }

    fn call_def(&mut self, ty: DType, depth: u32, place: &Place) -> Option<Node> {
        let defs = self.scope.defs.clone();
        let (name, types, _) = defs.iter().find(|(_, _, result)| *result == ty)?;
        let kids: Vec<Node> = types.iter().map(|ty| self.expr(*ty, depth - 1, place)).collect();
        let places = vec!["$"; kids.len()].join(", ");
        Some(Node::new(ty, format!("{name}({places})"), kids))
    }

    /// Returns an operator with random operands, of which at most one is a constant without a type.
    pub fn apply(&mut self, op: &Op, depth: u32, place: &Place) -> Node {
        self.tags.insert(op.tag());
        let count = op.operands.len();
        let raw = match count >= 2 && self.chance(30) {
            true => self.rng_below(count),
            false => count,
        };
        let mut kids = Vec::new();
        for (at, ty) in op.operands.iter().enumerate() {
            // The constant takes the type of the operand before it.
            let twin = op.operands.iter().filter(|other| *other == ty).count() > 1;
            // An index that depends on data must be clamped, so few indices do.
            if op.result == DType::Index && *ty == DType::Bool && self.chance(85) {
                let sides = vec![self.leaf(DType::Index, place), self.leaf(DType::Index, place)];
                let form = self.pick(&["($ < $)", "($ == $)", "($ >= $)"]);
                kids.push(Node::new(*ty, form, sides));
                continue;
            }
            kids.push(match at == raw && twin && *ty != DType::Bool && op.name != "as" {
                true => self.raw(*ty),
                false => self.expr(*ty, depth.saturating_sub(1), place),
            });
        }
        Node::new(op.result, op.form.clone(), kids)
    }

    fn rng_below(&mut self, count: usize) -> usize {
        self.int(0, count as i64 - 1) as usize
    }

    /// Returns a constant that takes its type from its context.
    fn raw(&mut self, ty: DType) -> Node {
        if ty.is_float() {
            if !self.scope.reals.is_empty() && self.scope.locals.is_none() && self.chance(30) {
                let name = self.scope.reals[0].clone();
                return Node::leaf(ty, name);
            }
            let text = self.pick(&[
                "0",
                "1",
                "2",
                "0.5",
                "0.0",
                "3.0",
                "0.1",
                "1e-3",
                "7",
                "100.0",
                "0.3333",
                "1.0",
                "1024.0",
                "65504.0",
                "2.0",
                "4",
                "10.0",
                "1e-7",
                "16.0",
                "(-0.0)",
                "(-3.5)",
                "(-0)",
                "((0.0 - 1.0) * 0.0)",
                "ceil(-0.5)",
                "max(0.0, -0.0)",
                "1e-44",
                "(-1e-44)",
                "1.00048828125000001",
                "(1.0 / 3.0)",
            ]);
            return Node::leaf(ty, text);
        }
        let text = self.pick(&["0", "1", "2", "3", "4", "5", "7", "8", "16", "31", "100", "127"]);
        let text = if ty == DType::Index && text.len() > 1 { "6" } else { text };
        Node::leaf(ty, text)
    }

    /// Returns a constant of a type.
    fn constant(&mut self, ty: DType) -> Node {
        let name = match self.scope.dtypes.iter().find(|(_, of)| *of == ty) {
            Some((name, _)) if self.scope.locals.is_none() => name.clone(),
            _ => ty.to_string(),
        };
        if ty == DType::Bool {
            // A literal `true` has a type, and is folded into its context.
            return Node::leaf(ty, self.pick(&["true", "false"]));
        }
        if ty == DType::Index {
            let value = self.int(0, 6);
            return Node::leaf(ty, value.to_string());
        }
        if self.chance(15) {
            return Node::leaf(ty, format!("{}({name})", self.pick(&["min_value", "max_value"])));
        }
        if ty.is_float() {
            if self.chance(10) {
                return Node::leaf(ty, format!("({}inf({name}))", self.pick(&["", "-"])));
            }
            if self.chance(10) {
                return Node::leaf(ty, format!("(inf({name}) - inf({name}))"));
            }
            let value = match self.chance(10) {
                true => self.pick(&["1e39", "(-1e39)", "65520.0", "1e-60", "(-1e-60)"]).into(),
                false => self.raw(ty).form,
            };
            return Node::leaf(ty, format!("({value} as {name})"));
        }
        let value = match self.chance(30) && ty.is_signed() {
            true => format!("({})", -self.int(1, 128)),
            false => self.int(0, 127).to_string(),
        };
        Node::leaf(ty, format!("({value} as {name})"))
    }

    fn leaf(&mut self, ty: DType, place: &Place) -> Node {
        if let Some(locals) = self.scope.locals.clone() {
            let fitting: Vec<_> = locals.iter().filter(|(_, of)| *of == ty).collect();
            if !fitting.is_empty() {
                return Node::leaf(ty, self.pick(&fitting).0.clone());
            }
            if ty != DType::Index && self.chance(70) {
                let (name, _) = self.pick(&locals);
                return Node::leaf(ty, format!("({name} as {ty})"));
            }
            return self.constant(ty);
        }
        if ty == DType::Index {
            return self.index_leaf(place);
        }
        match self.int(0, 99) {
            0..8 => self.constant(ty),
            8..18 => self.scalar(ty),
            18..24 if !place.axes.is_empty() => {
                self.feature("axis as data");
                let axis = self.pick(&place.axes).name;
                Node::new(ty, format!("($ as {ty})"), vec![Node::leaf(DType::Index, axis)])
            }
            24..34 if ty == DType::Bool && !self.scope.far.is_empty() => {
                self.feature("comparison with an extreme");
                let far = Node::leaf(DType::Index, self.pick(&self.scope.far.clone()));
                let near = self.index_leaf(place);
                let op = self.pick(&["<", "<=", ">", ">=", "==", "!="]);
                let by = self.int(0, 9);
                match self.int(0, 3) {
                    0 => Node::new(ty, format!("($ {op} $)"), vec![far, near]),
                    1 => Node::new(ty, format!("($ + {by} {op} $)"), vec![near, far]),
                    2 => Node::new(ty, format!("($ - {by} {op} $)"), vec![near, far]),
                    _ => {
                        let other = self.index_leaf(place);
                        Node::new(ty, format!("($ {op} $ - $)"), vec![near, far, other])
                    }
                }
            }
            24..26 if ty == DType::Bool && !self.scope.bools.is_empty() => {
                Node::leaf(ty, self.scope.bools[0].clone())
            }
            24..28 if ty == DType::Bool => {
                let (a, b) = (self.index_leaf(place), self.index_leaf(place));
                // Two literals are fine: the comparison is a constant condition.
                Node::new(ty, "($ < $)", vec![a, b])
            }
            28..38 if ty == DType::Bool => {
                self.feature("comparison of integers");
                let op = self.pick(&["<", "<=", ">", ">=", "==", "!="]);
                let mut kids = [self.any_integer(place), self.any_integer(place)];
                if self.chance(30) {
                    kids[self.rng_below(2)] = self.index_leaf(place);
                }
                Node::new(ty, format!("($ {op} $)"), kids.to_vec())
            }
            _ => self.load(ty, place),
        }
    }

    /// Returns an integer of any type, with that type.
    fn any_integer(&mut self, place: &Place) -> Node {
        let types: Vec<DType> =
            DType::ALL.iter().copied().filter(|ty| ty.is_int() && *ty != DType::Index).collect();
        let ty = self.pick(&types);
        let value = self.leaf(ty, place);
        Node::new(ty, format!("($ as {ty})"), vec![value])
    }

    fn index_leaf(&mut self, place: &Place) -> Node {
        let mut names: Vec<String> = place.axes.iter().map(|axis| axis.name.clone()).collect();
        if names.is_empty() || self.chance(20) {
            names.extend(self.scope.vars.iter().cloned());
            names.extend(self.scope.constants.iter().cloned());
        }
        if !self.scope.far.is_empty() && self.chance(10) {
            names = self.scope.far.clone();
        }
        match names.is_empty() || self.chance(15) {
            true => self.constant(DType::Index),
            false => Node::leaf(DType::Index, self.pick(&names)),
        }
    }

    fn scalar(&mut self, ty: DType) -> Node {
        let known: Vec<String> = self
            .scope
            .scalars
            .iter()
            .filter(|(_, of)| *of == ty)
            .map(|(name, _)| name.clone())
            .collect();
        if !known.is_empty() {
            return Node::leaf(ty, self.pick(&known));
        }
        if self.scope.closed {
            return self.constant(ty);
        }
        self.tags.insert(format!("scalar {ty}"));
        let name = self.fresh("s");
        let declared = match self.scope.dtypes.iter().find(|(_, of)| *of == ty) {
            Some((param, _)) => param.clone(),
            None => ty.to_string(),
        };
        self.scope.inputs.push(Node::stmt(format!("input {name}: {declared}"), vec![]));
        self.scope.scalars.push((name.clone(), ty));
        Node::leaf(ty, name)
    }

    /// Returns an element of a tensor of a type.
    pub fn load(&mut self, ty: DType, place: &Place) -> Node {
        let fitting: Vec<usize> = (0..self.scope.tensors.len())
            .filter(|&at| self.scope.tensors[at].dtype == ty && self.is_readable(at, place))
            .collect();
        let known = !fitting.is_empty() && self.chance(75);
        if !known
            && !self.scope.closed
            && self.chance(25)
            && let Some(load) = self.quantized(ty, place)
        {
            return load;
        }
        let at = match known {
            true => self.pick(&fitting),
            false if self.scope.closed => {
                // A tensor of another type is read with a cast.
                let any: Vec<usize> = (0..self.scope.tensors.len())
                    .filter(|&at| self.is_readable(at, place))
                    .collect();
                if any.is_empty() {
                    return self.constant(ty);
                }
                let at = self.pick(&any);
                let load = self.element(at, place);
                return Node::new(ty, format!("($ as {ty})"), vec![load]);
            }
            false => self.input(ty, place),
        };
        self.element(at, place)
    }

    /// Returns an element of a new input of a quantized type, which nothing else reads.
    fn quantized(&mut self, ty: DType, place: &Place) -> Option<Node> {
        if !matches!(ty, DType::Int8 | DType::Int32 | DType::Float32) {
            return None;
        }
        let exts = place.axes.iter().map(|axis| axis.ext.clone());
        let exts: Vec<Ext> = exts.filter(|ext| ext.value <= 400).collect();
        if exts.is_empty() {
            return None;
        }
        self.feature("quantized input");
        let (ext, of) = (self.pick(&exts), self.pick(&DType::QUANTIZED));
        let name = self.fresh("Q");
        self.scope.inputs.push(Node::stmt(format!("input {name}: {of}[$]"), vec![ext.node()]));
        let index = self.index(&ext, place);
        Some(Node::new(ty, format!("({name}[$] as {ty})"), vec![index]))
    }

    /// Whether there are valid indices: an empty tensor needs its own empty axes.
    fn is_readable(&self, at: usize, place: &Place) -> bool {
        let fits =
            |ext: &Ext| ext.value > 0 || place.axes.iter().any(|axis| axis.ext.text == ext.text);
        self.scope.tensors[at].shape.iter().all(fits)
    }

    /// Returns a new input that can be read here.
    fn input(&mut self, ty: DType, place: &Place) -> usize {
        self.tags.insert(format!("input {ty}"));
        let rank = self.pick(&[0, 1, 1, 2, 2, 2, 3, 3, 4]);
        let mut shape = Vec::new();
        let mut size = 1;
        for _ in 0..rank {
            let mut ext = match place.axes.is_empty() || self.chance(25) {
                true => {
                    let exts = self.scope.exts.clone();
                    self.pick(&exts)
                }
                false => self.pick(&place.axes).ext,
            };
            if let Some((base, s, k)) = ext.window.clone()
                && self.chance(60)
            {
                let value = (ext.value - 1) * s + k;
                ext = self.base(&base, value);
            } else if let Some((a, b)) = ext.product.clone()
                && self.chance(60)
            {
                self.feature("reshape //");
                let pair = [self.named(&a), self.named(&b)];
                shape.extend(pair);
                continue;
            }
            if size * ext.value.max(1) > 400 {
                ext = Ext::literal(2);
            }
            size *= ext.value.max(1);
            let usable = ext.value > 0 || place.axes.iter().any(|axis| axis.ext.text == ext.text);
            shape.push(if usable { ext } else { Ext::literal(3) });
        }
        let name = self.fresh("A");
        let declared = match self.scope.dtypes.iter().find(|(_, of)| *of == ty) {
            Some((param, _)) => param.clone(),
            None => ty.to_string(),
        };
        self.declare_input(&name, &declared, ty, shape)
    }

    fn declare_input(&mut self, name: &str, declared: &str, ty: DType, shape: Vec<Ext>) -> usize {
        let places = vec!["$"; shape.len()].join(", ");
        let kids = shape.iter().map(Ext::node).collect();
        let free = match self.chance(4) {
            true => {
                self.feature("layout_free");
                " layout_free"
            }
            false => "",
        };
        let text = format!("input {name}: {declared}[{places}]{free}");
        self.scope.inputs.push(Node::stmt(text, kids));
        let name = name.to_string();
        self.scope.tensors.push(Tensor { name, dtype: ty, shape, computed: false, readers: 0 });
        self.scope.tensors.len() - 1
    }

    fn named(&self, text: &str) -> Ext {
        let known = self.scope.exts.iter().find(|ext| ext.text == text);
        known.cloned().unwrap_or_else(|| Ext::literal(1))
    }

    fn base(&self, text: &str, value: i64) -> Ext {
        let known = self.scope.exts.iter().find(|ext| ext.text == text);
        known.cloned().unwrap_or_else(|| Ext::literal(value.max(1)))
    }

    /// Returns `A[…]`, sometimes under a condition that keeps it in bounds.
    fn element(&mut self, at: usize, place: &Place) -> Node {
        self.scope.tensors[at].readers += 1;
        let tensor = self.scope.tensors[at].clone();
        let ty = tensor.dtype;
        let places = format!("{}[{}]", tensor.name, vec!["$"; tensor.shape.len()].join(", "));
        let padded = !tensor.shape.is_empty() && !place.axes.is_empty() && self.chance(8);
        let mut conds = Vec::new();
        let mut indices: Vec<Node> = Vec::new();
        for ext in &tensor.shape {
            indices.push(match padded && self.chance(60) {
                true => self.guarded(ext, place, &mut conds),
                false => self.index(ext, place),
            });
        }
        self.note_pattern(&tensor, &indices, place);
        let load = Node::new(ty, places, indices);
        if conds.is_empty() {
            return load;
        }
        self.feature("padding");
        let cond = conds.join(" and ");
        let other = self.constant(ty);
        let form = match self.chance(50) {
            true => format!("(if {cond} then $ else $)"),
            false => {
                let form = format!("(if not ({cond}) then $ else $)");
                return Node::new(ty, form, vec![other, load]);
            }
        };
        Node::new(ty, form, vec![load, other])
    }

    fn note_pattern(&mut self, tensor: &Tensor, indices: &[Node], place: &Place) {
        let position = |node: &Node| place.axes.iter().position(|axis| axis.name == node.form);
        let axes: Vec<usize> = indices.iter().filter_map(position).collect();
        if axes.windows(2).any(|pair| pair[0] > pair[1]) {
            self.feature("transpose");
        }
        if tensor.shape.len() < place.axes.len() && axes.len() == tensor.shape.len() {
            self.feature("broadcast");
        }
    }

    /// Returns an index that may be out of bounds, and adds the condition that keeps it in bounds.
    fn guarded(&mut self, ext: &Ext, place: &Place, conds: &mut Vec<String>) -> Node {
        let axis = self.pick(&place.axes).name;
        let by = self.int(0, 3);
        let index = match self.int(0, 3) {
            0 => format!("{axis} - {by}"),
            1 => format!("{axis} + {by}"),
            2 => format!("2*{axis} - {by}"),
            _ => format!("{by} - {axis}"),
        };
        let end = &ext.text;
        conds.push(match self.int(0, 2) {
            0 => format!("all({index} >= 0, {index} < {end})"),
            1 => format!("{index} >= 0 and {index} <= {end} - 1"),
            _ => format!("not (0 > {index} or {index} >= {end})"),
        });
        Node::leaf(DType::Index, index)
    }

    /// Returns an index into an extent that is not 0 or is that of an axis. Nested indices are
    /// simple ones, so that generation terminates.
    fn index(&mut self, ext: &Ext, place: &Place) -> Node {
        self.nesting += 1;
        let index = self.index_at(ext, place);
        self.nesting -= 1;
        index
    }

    fn index_at(&mut self, ext: &Ext, place: &Place) -> Node {
        let direct: Vec<Axis> =
            place.axes.iter().filter(|axis| axis.ext.text == ext.text).cloned().collect();
        if !direct.is_empty() && (ext.value == 0 || self.chance(55)) {
            let name = self.pick(&direct).name;
            return match self.chance(15) {
                true => {
                    self.feature("reversed");
                    Node::leaf(DType::Index, format!("({}) - 1 - {name}", ext.text))
                }
                false => Node::leaf(DType::Index, name),
            };
        }
        if let Some(node) = self.structured(ext, place)
            && self.chance(60)
        {
            return node;
        }
        match self.int(0, if self.nesting > 1 { 3 } else { 9 }) {
            0 if self.chance(20) => {
                self.feature("index product of sums");
                let index = Node::leaf(DType::Index, self.product_of_sums(place));
                Node::new(DType::Index, format!("$ % ({})", ext.text), vec![index])
            }
            0..2 => {
                self.feature("index modulo");
                let index = self.expr(DType::Index, 2, place);
                Node::new(DType::Index, format!("$ % ({})", ext.text), vec![index])
            }
            2..4 => {
                self.feature("index clamped");
                let index = self.expr(DType::Index, 2, place);
                let form = format!("clamp($, 0, ({}) - 1)", ext.text);
                Node::new(DType::Index, form, vec![index])
            }
            4..8 => self.index_of_data(ext, place),
            8 if ext.constant => {
                let value = self.int(0, ext.value - 1);
                Node::leaf(DType::Index, value.to_string())
            }
            _ => self.contained(ext, place),
        }
    }

    /// Returns a polynomial of many terms: the product of two sums of all names.
    fn product_of_sums(&mut self, place: &Place) -> String {
        let axes = place.axes.iter().map(|axis| axis.name.clone());
        let names: Vec<String> = axes.chain(self.scope.vars.iter().cloned()).collect();
        let mut sum = || {
            let mut terms = names.clone();
            terms.retain(|_| self.chance(80));
            terms.push(self.int(0, 9).to_string());
            terms.join(" + ")
        };
        format!("({}) * ({})", sum(), sum())
    }

    /// Returns an index of a window, a reshape or a sum of axes, if one fits.
    fn structured(&mut self, ext: &Ext, place: &Place) -> Option<Node> {
        let leaf = |text: String| Some(Node::leaf(DType::Index, text));
        for axis in &place.axes {
            if let Some((base, s, k)) = &axis.ext.window
                && *base == ext.text
            {
                self.feature("strided window");
                let inner = place.axes.iter().find(|inner| {
                    inner.ext.constant && inner.ext.value <= *k && inner.name != axis.name
                });
                let offset = match inner {
                    Some(inner) => inner.name.clone(),
                    None => self.int(0, k - 1).to_string(),
                };
                return leaf(format!("{}*{s} + {offset}", axis.name));
            }
            if let Some((a, b)) = &axis.ext.product {
                if *a == ext.text {
                    self.feature("reshape //");
                    return leaf(format!("{} // {b}", axis.name));
                }
                if *b == ext.text {
                    return leaf(format!("{} % {b}", axis.name));
                }
            }
        }
        if let Some((a, b)) = &ext.product {
            let find = |text: &str| place.axes.iter().find(|axis| axis.ext.text == text);
            if let (Some(x), Some(y)) = (find(a), find(b)) {
                self.feature("reshape merged");
                return leaf(format!("{} * {b} + {}", x.name, y.name));
            }
        }
        let constant: Vec<Axis> = place
            .axes
            .iter()
            .filter(|axis| axis.ext.constant && axis.ext.value > 0)
            .cloned()
            .collect();
        if !ext.constant || constant.is_empty() {
            return None;
        }
        let late =
            constant.iter().find(|axis| axis.from > 0 && axis.ext.value - axis.from <= ext.value);
        if let Some(axis) = late
            && self.rng.random_bool(0.5)
        {
            return leaf(format!("{} - {}", axis.name, axis.from));
        }
        let (a, b) = (self.pick(&constant), self.pick(&constant));
        let (la, lb) = (a.ext.value - 1, b.ext.value - 1);
        let last = ext.value - 1;
        if la * (lb + 1) + lb <= last && a.name != b.name {
            self.feature("reshape merged");
            return leaf(format!("{}*{} + {}", a.name, lb + 1, b.name));
        }
        if la * 2 + lb <= last && a.name != b.name {
            self.feature("strided window");
            return leaf(format!("{}*2 + {}", a.name, b.name));
        }
        if la + lb <= last && a.name != b.name {
            return leaf(format!("{} + {}", a.name, b.name));
        }
        if la * 2 < last {
            self.feature("strided window");
            return leaf(format!("{}*2 + 1", a.name));
        }
        if la <= last {
            return leaf(format!("{} + {}", a.name, last - la));
        }
        let by = la / ext.value + 1;
        self.feature("reshape //");
        leaf(format!("{} // {by}", a.name))
    }

    /// Returns an index that depends on data.
    fn index_of_data(&mut self, ext: &Ext, place: &Place) -> Node {
        let types = [DType::Int32, DType::Int64, DType::Uint8, DType::Int8, DType::Uint64];
        let ty = self.pick(&types);
        let end = match ext.constant {
            true => format!("({})", ext.text),
            false => format!("(({}) as {ty})", ext.text),
        };
        let choice = self.int(0, 9);
        if choice == 0 && !self.scope.closed && ext.value > 0 {
            self.feature("index of an input unclamped");
            let shape = match place.axes.first() {
                Some(axis) if axis.ext.value > 0 => vec![axis.ext.clone()],
                _ => Vec::new(),
            };
            let index = place.axes.first().map(|axis| axis.name.clone());
            let index = if shape.is_empty() { None } else { index };
            let name = format!("I{}_{}", ext.value, self.fresh("x"));
            self.declare_input(&name, &ty.to_string(), ty, shape);
            return Node::leaf(ty, format!("{name}[{}]", index.unwrap_or_default()));
        }
        if choice == 1 && !self.scope.closed {
            self.feature("index by a scalar");
            let index = self.scalar(ty);
            return Node::new(ty, format!("$ % {end}"), vec![index]);
        }
        let index = self.expr(ty, 1, place);
        match choice % 2 == 0 {
            true => {
                self.feature("index of data modulo");
                Node::new(ty, format!("$ % {end}"), vec![index])
            }
            false => {
                self.feature("index of data clamped");
                Node::new(ty, format!("clamp($, 0, {end} - 1)"), vec![index])
            }
        }
    }

    /// Returns a common index: an axis that is at most as long, a shift that a check may
    /// refuse, 0.
    fn contained(&mut self, ext: &Ext, place: &Place) -> Node {
        let shorter: Vec<Axis> = place
            .axes
            .iter()
            .filter(|axis| axis.ext.constant && ext.constant && axis.ext.value <= ext.value)
            .cloned()
            .collect();
        if !shorter.is_empty() {
            return Node::leaf(DType::Index, self.pick(&shorter).name);
        }
        let symbolic: Vec<Axis> = place
            .axes
            .iter()
            .filter(|axis| !(axis.ext.constant && ext.constant) && axis.ext.value <= ext.value)
            .cloned()
            .collect();
        if !symbolic.is_empty() && self.chance(50) {
            self.feature("index shifted at risk");
            let axis = self.pick(&symbolic);
            let risk = axis.ext.text != ext.text && !self.scope.closed && self.chance(25);
            let by = match risk {
                true => 1,
                false => ext.value - axis.ext.value,
            };
            return Node::leaf(DType::Index, format!("{} + {by}", axis.name));
        }
        Node::leaf(DType::Index, "0")
    }
}
