//! Stages that reduce: windows, products, reductions of any kind.

use super::{MAX_POINTS, MAX_WARP_POINTS, Pipeline, Tensor};
use crate::generate::Ext;
use crate::table::{Reducer, all_reducers};
use crate::tree::Node;
use tec::ir::DType;

impl Pipeline {
    /// Returns a reducer for elements of a type.
    pub(super) fn reducer(&mut self, ty: DType) -> Reducer {
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
    pub(super) fn push_reduction(
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
        // Of equal values, the first one is the result.
        let commutes = !["first", "affine", "argmin", "argmax"].contains(&reducer.name);
        let exact = commutes && reducer.types.iter().all(|ty| !ty.is_float());
        self.stage(axes, reduce, &form, kids, &reducer.types, (exact, commutes));
    }

    /// Returns a condition for `where=`: comparisons of a reduction axis with an axis, with data or
    /// with the other reduction axis.
    fn condition(&mut self, axes: &[(String, Ext)], reduce: &[(String, Ext)]) -> Option<String> {
        let k = self.pick(reduce).0;
        let (axis, ext) = if axes.is_empty() { return None } else { self.pick(axes) };
        let by = self.int(0, 4);
        let mut terms = Vec::new();
        for _ in 0..self.int(1, 2) {
            terms.push(match self.int(0, 11) {
                0 | 1 => format!("{k} <= {axis}"),
                2 => format!("{k} > {axis} - {by}"),
                3 => format!("{axis} + {by} >= {k}"),
                4 => format!("2 * {k} < {axis} + {by}"),
                5 => format!("{k} == {axis}"),
                6 => format!("{k} - {axis} <= {by} and {axis} - {k} <= {by}"),
                7 if reduce.len() == 2 => format!("{} <= {}", reduce[0].0, reduce[1].0),
                8 | 9 => {
                    let dtype = self.pick(&[DType::Int32, DType::Uint8, DType::Int64]);
                    let ends = self.companion(dtype, std::slice::from_ref(&ext));
                    let sign = self.pick(&["<", ">=", "<=", ">"]);
                    format!("({k} as int64) {sign} ({}[{axis}] as int64)", ends.name)
                }
                10 => format!("{k} % 2 == {axis} % 2"),
                _ => format!("{k} >= {axis}"),
            });
        }
        self.tag("where");
        Some(terms.join(" and "))
    }

    /// Adds a convolution along one or two dimensions.
    pub(super) fn window(&mut self, tensor: &Tensor) {
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

    pub(super) fn reduce(&mut self, tensor: &Tensor) {
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
        let condition = if self.chance(25) { self.condition(&axes, &reduce) } else { None };
        self.push_reduction(&axes, &reduce, &reducer, term, condition);
    }

    /// Adds a prefix reduction along an axis of a tensor, sometimes of several terms for each
    /// element.
    pub(super) fn prefix(&mut self, tensor: &Tensor) {
        let at = self.int(0, tensor.shape.len() as i64 - 1) as usize;
        if tensor.dtype.is_half() || (tensor.shape[at].constant && tensor.shape[at].value < 1) {
            return;
        }
        self.tag("prefix");
        let mut shape = tensor.shape.clone();
        if self.chance(20) {
            let dims = self.dims.clone();
            shape[at] = self.pick(&dims);
        }
        let axes = self.axes(&shape);
        let (i, k) = (axes[at].0.clone(), self.fresh("k"));
        let mut reduce = vec![(k.clone(), tensor.shape[at].clone())];
        let mut indices: Vec<String> = axes.iter().map(|(name, _)| name.clone()).collect();
        indices[at] = k.clone();
        let mut term = self.load(tensor, &indices);
        let mut first = true;
        if self.chance(20) {
            let many = Ext::literal(self.int(2, 3));
            let weights = self.companion(tensor.dtype, std::slice::from_ref(&many));
            let r = (self.fresh("r"), many);
            let load = self.load_plain(&weights, std::slice::from_ref(&r));
            term = Node::new(tensor.dtype, "($ * $)", vec![term, load]);
            first = self.chance(80);
            reduce.insert(usize::from(first), r);
        }
        let by = self.int(1, 3);
        let (comparison, forward) = match self.int(0, 8) {
            0 | 1 => (format!("{k} <= {i}"), true),
            2 => (format!("{k} < {i}"), true),
            3 => (format!("{i} >= {k}"), true),
            4 => (format!("{k} + {by} <= {i}"), true),
            5 => (format!("not ({k} > {i} - {by})"), true),
            6 => (format!("{k} >= {i}"), false),
            7 => (format!("{i} + {by} < {k}"), false),
            _ => (format!("{k} > {i}"), false),
        };
        let condition = match self.chance(20) {
            true => {
                let of = self.companion(DType::Int32, &tensor.shape[at..=at]);
                format!("{comparison} and {}[{k}] != 0", of.name)
            }
            false => comparison,
        };
        let reducer = self.reducer(tensor.dtype);
        let count = self.stages.len();
        self.push_reduction(&axes, &reduce, &reducer, term, Some(condition));
        // With another extent, the last element may have several terms from the start.
        let fits = forward
            || (shape[at].constant && tensor.shape[at].constant)
                && shape[at].value >= tensor.shape[at].value;
        if let Some(stage) = self.stages.get_mut(count) {
            stage.prefix = fits.then_some((i, first && forward));
        }
    }

    /// Adds a reduction that a directive makes linear, of some tensor.
    pub(super) fn linear_reduction(&mut self, directive: &str) {
        for _ in 0..3 {
            let all = self.tensors.clone();
            let tensor = self.pick(&all);
            let count = self.stages.len();
            match directive {
                _ if tensor.shape.is_empty() => {}
                "scan" | "scan blocks" => self.prefix(&tensor),
                _ => self.scattered(&tensor),
            }
            if self.stages.len() > count {
                return;
            }
        }
    }

    /// Adds a reduction whose terms belong to one element each, along an axis of a tensor.
    pub(super) fn scattered(&mut self, tensor: &Tensor) {
        let at = self.int(0, tensor.shape.len() as i64 - 1) as usize;
        if tensor.dtype.is_half() || (tensor.shape[at].constant && tensor.shape[at].value < 1) {
            return;
        }
        self.tag("scattered");
        let mut shape = tensor.shape.clone();
        let dims = self.dims.clone();
        shape[at] = self.pick(&dims);
        let axes = self.axes(&shape);
        let (b, k) = (axes[at].0.clone(), self.fresh("k"));
        let reduce = vec![(k.clone(), tensor.shape[at].clone())];
        let mut indices: Vec<String> = axes.iter().map(|(name, _)| name.clone()).collect();
        indices[at] = k.clone();
        let term = self.load(tensor, &indices);
        let of = self.pick(&[DType::Int32, DType::Uint8, DType::Int64, DType::Int16]);
        let place = self.companion(of, &tensor.shape[at..=at]);
        let read = format!("{}[{k}]", place.name);
        let by = self.int(2, 9);
        let comparison = match self.int(0, 6) {
            0 => format!("{read} == {b}"),
            1 | 2 => format!("{b} == {read} % {by}"),
            3 => format!("{read} % {by} == {b} + 1"),
            4 => format!("{k} // {by} == {b} - 1"),
            5 => format!("{k} % {by} == {b}"),
            _ => format!("{k} + {b} == {by}"),
        };
        let condition = match self.int(0, 4) {
            0 => format!("{read} >= 3 and {comparison}"),
            1 => format!("{comparison} and {b} + {k} > 2"),
            _ => comparison,
        };
        let reducer = self.reducer(tensor.dtype);
        let count = self.stages.len();
        self.push_reduction(&axes, &reduce, &reducer, term, Some(condition));
        if let Some(stage) = self.stages.get_mut(count) {
            stage.scatter = Some(b);
        }
    }

    pub(super) fn product(&mut self, tensor: &Tensor) {
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
        let condition = if self.chance(25) { self.condition(&axes, &reduce) } else { None };
        self.push_reduction(&axes, &reduce, &sum, term, condition);
    }

    /// Adds a product of signed and unsigned bytes for the intrinsics of a CPU, often of whole
    /// vectors and whole instructions.
    pub(super) fn byte_product(&mut self) {
        let literal = |this: &mut Self, values: &[i64]| Ext::literal(this.pick(values));
        let (mut left, mut right) = match self.chance(60) {
            true => (DType::Uint8, DType::Int8),
            false => (DType::Int8, DType::Uint8),
        };
        let (n, m, l);
        let warp = self.gpu && self.chance(50);
        if warp {
            self.tag("warp product");
            (n, m) = (literal(self, &[16, 16, 32]), literal(self, &[8, 16]));
            l = literal(self, &[32, 32, 64, 128]);
            match self.int(0, 3) {
                0 => left = right,
                1 => right = left,
                _ => {}
            }
        } else {
            self.tag("byte product");
            n = literal(self, &[1, 2, 3, 5]);
            m = literal(self, &[16, 16, 32, 32, 48, 64, 17, 21, 40]);
            l = literal(self, &[4, 4, 8, 8, 12, 3, 6]);
        }
        let transposed = self.chance(40);
        let left_transposed = warp && self.chance(25);
        let shape = if left_transposed { [&l, &n] } else { [&n, &l] };
        let a = self.companion(left, &shape.map(Ext::clone));
        let shape = if transposed { [m.clone(), l.clone()] } else { [l.clone(), m.clone()] };
        let b = self.companion(right, &shape);
        let k = self.fresh("k");
        let axes = self.axes(&[n, m]);
        let place = |a: &str, b: &str| [a.to_string(), b.to_string()];
        let column = if transposed { place("j", &k) } else { place(&k, "j") };
        let row = if left_transposed { place(&k, "i") } else { place("i", &k) };
        let mut factors = vec![self.load(&a, &row), self.load(&b, &column)];
        if self.chance(50) {
            factors.reverse();
        }
        let term = Node::new(DType::Int32, "(($ as int32) * ($ as int32))", factors);
        let sum = |reducer: &Reducer| reducer.name == "sum" && reducer.types[0] == DType::Int32;
        let sum = all_reducers().into_iter().find(sum).expect("all numbers are added");
        if warp {
            self.most_points = MAX_WARP_POINTS;
        }
        self.push_reduction(&axes, &[(k, l)], &sum, term, None);
        self.most_points = MAX_POINTS;
    }

    /// Adds a stage that the intrinsic `dot4_i32` can compute.
    pub(super) fn dot(&mut self) {
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
}
