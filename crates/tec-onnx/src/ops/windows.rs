//! The windows of convolutions and pools.

use crate::dim::Dim;
use crate::node::{Node, Outcome};

/// The letters of the spatial dimensions in names of keywords.
pub(crate) fn letters(rank: usize) -> &'static [usize] {
    // Positions in "dhw".
    &[0, 1, 2][3 - rank..]
}

/// Names of keywords by what they set and by dimension.
pub(crate) fn key(kind: &str, dimension: usize) -> &'static str {
    let names = match kind {
        "k" => ["kd", "kh", "kw"],
        "p" => ["pd", "ph", "pw"],
        "p2" => ["pd2", "ph2", "pw2"],
        "s" => ["sd", "sh", "sw"],
        "d" => ["dd", "dh", "dw"],
        _ => ["od", "oh", "ow"],
    };
    names[dimension]
}

/// How windows lie on the spatial dimensions.
#[derive(Clone, Debug)]
pub(crate) struct Windows {
    pub(crate) kernel: Vec<i64>,
    pub(crate) begin: Vec<Dim>,
    pub(crate) end: Vec<Dim>,
    pub(crate) strides: Vec<i64>,
    pub(crate) dilations: Vec<i64>,
    /// Extents of the result.
    pub(crate) out: Vec<Dim>,
    /// The extents that the library computes from the others.
    pub(crate) expected: Vec<Dim>,
}

pub(crate) fn positive(values: Option<&[i64]>, rank: usize, name: &str) -> Outcome<Vec<i64>> {
    let values = values.filter(|v| !v.is_empty()).map_or(vec![1; rank], <[i64]>::to_vec);
    if values.len() != rank || values.iter().any(|v| !(1..=1 << 31).contains(v)) {
        return Err(format!("`{name}` must be {rank} positive numbers").into());
    }
    Ok(values)
}

/// The elements before an axis to which `auto_pad` adds `total`, which is between `least` and
/// `most`: the lesser half, or the greater one.
fn part_of_pad(total: &Dim, (least, most): (i64, i64), greater: bool) -> Dim {
    let more = i64::from(greater);
    match ((least + more) / 2, (most + more) / 2) {
        (low, high) if low == high => low.into(),
        _ => (total.clone() + more).div(&2.into()),
    }
}

impl Windows {
    /// Reads the attributes of a convolution or pool over the given extents; `auto_pad` must add
    /// constant numbers of elements.
    pub(crate) fn new(node: &Node, extents: &[Dim], kernel: &[i64]) -> Outcome<Windows> {
        let windows = Windows::with_any_pads(node, extents, kernel)?;
        match windows.has_constant_pads() {
            true => Ok(windows),
            false => Err("`auto_pad` of a run-time extent is not supported".into()),
        }
    }

    pub(crate) fn has_constant_pads(&self) -> bool {
        self.begin.iter().chain(&self.end).all(|pad| pad.as_const().is_some())
    }

    /// Reads the attributes; the padding may depend on run-time extents.
    pub(crate) fn with_any_pads(node: &Node, extents: &[Dim], kernel: &[i64]) -> Outcome<Windows> {
        let rank = extents.len();
        let kernel = positive(Some(kernel), rank, "kernel_shape")?;
        let strides = positive(node.ints("strides"), rank, "strides")?;
        let dilations = positive(node.ints("dilations"), rank, "dilations")?;
        let pads =
            node.ints("pads").filter(|v| !v.is_empty()).map_or(vec![0; 2 * rank], <[i64]>::to_vec);
        if pads.len() != 2 * rank || pads.iter().any(|v| !(0..=1 << 31).contains(v)) {
            return Err(format!("`pads` must be {} numbers from 0 up", 2 * rank).into());
        }
        let ceil = node.flag("ceil_mode", false);
        let auto = node.text("auto_pad", "NOTSET");
        let mut windows = Windows {
            kernel: kernel.clone(),
            begin: Vec::new(),
            end: Vec::new(),
            strides: strides.clone(),
            dilations: dilations.clone(),
            out: Vec::new(),
            expected: Vec::new(),
        };
        for (at, n) in extents.iter().enumerate() {
            let (k, s, d) = (kernel[at], strides[at], dilations[at]);
            let span = (k - 1) * d + 1;
            let floor =
                |begin: &Dim, end: &Dim| (n.clone() + begin + end - span).div(&s.into()) + 1;
            let (begin, end, out) = match auto {
                "SAME_UPPER" | "SAME_LOWER" => {
                    let out = (n.clone() + (s - 1)).div(&s.into());
                    let total = (out.clone() - 1) * s + span - n;
                    // The last window begins at one of the last `s` elements.
                    let range = ((span - s).max(0), span - 1);
                    let total = match span < s {
                        _ if range.0 == range.1 => range.0.into(),
                        true => total.maximum(&Dim::zero()),
                        false => total,
                    };
                    let begin = part_of_pad(&total, range, auto == "SAME_LOWER");
                    (begin.clone(), total - &begin, out)
                }
                "VALID" => {
                    let out = floor(&Dim::zero(), &Dim::zero());
                    (Dim::zero(), Dim::zero(), out)
                }
                _ => {
                    let (begin, end) = (Dim::from(pads[at]), Dim::from(pads[at + rank]));
                    let mut out = floor(&begin, &end);
                    // A last window that begins in the padding after the end is dropped.
                    if ceil && pads[at + rank] + s <= span {
                        out = (n.clone() + &begin + &end - span + (s - 1)).div(&s.into()) + 1;
                    } else if ceil {
                        out = (n.clone() + &begin - 1).div(&s.into()) + 1;
                    }
                    (begin, end, out)
                }
            };
            if out.as_const().is_some_and(|out| out < 1) {
                return Err(format!("a window of {span} does not fit its extent").into());
            }
            windows.expected.push(floor(&begin, &end));
            windows.begin.push(begin);
            windows.end.push(end);
            windows.out.push(out);
        }
        Ok(windows)
    }

    /// Replaces padding of run time at the ends by windows that reach beyond them, over the given
    /// extents; whether there is no other.
    pub(crate) fn reach_beyond(&mut self, extents: &[Dim]) -> bool {
        if self.begin.iter().any(|pad| pad.as_const().is_none()) {
            return false;
        }
        for (at, n) in extents.iter().enumerate() {
            if self.end[at].as_const().is_none() {
                let span = (self.kernel[at] - 1) * self.dilations[at] + 1;
                let room = n.clone() + &self.begin[at] + &self.begin[at] - span;
                self.end[at] = self.begin[at].clone();
                self.expected[at] = room.div(&self.strides[at].into()) + 1;
            }
        }
        true
    }

    /// Takes all padding off, which the operand has from now on; returns that of each of its
    /// dimensions, of which the first two have none.
    pub(crate) fn take_pads(&mut self) -> Vec<(Dim, Dim)> {
        let none = || vec![Dim::zero(); self.kernel.len()];
        let begin = std::mem::replace(&mut self.begin, none());
        let end = std::mem::replace(&mut self.end, none());
        let outer = [(Dim::zero(), Dim::zero()), (Dim::zero(), Dim::zero())];
        outer.into_iter().chain(begin.into_iter().zip(end)).collect()
    }

    /// The keywords of a call, without those that have their default value.
    pub(crate) fn keys(&self, with_kernel: bool) -> Vec<(&'static str, String)> {
        let text = |dim: &Dim| dim.text(&|_| String::new());
        let mut keys = Vec::new();
        let letters = letters(self.kernel.len());
        let each = || letters.iter().copied().enumerate();
        if with_kernel {
            keys.extend(each().map(|(at, l)| (key("k", l), self.kernel[at].to_string())));
        }
        for (at, l) in each() {
            if self.begin[at] != Dim::zero() {
                keys.push((key("p", l), text(&self.begin[at])));
            }
        }
        for (at, l) in each() {
            if self.end[at] != self.begin[at] {
                keys.push((key("p2", l), text(&self.end[at])));
            }
        }
        for (kind, values) in [("s", &self.strides), ("d", &self.dilations)] {
            let used = each().filter(|(at, _)| values[*at] != 1);
            keys.extend(used.map(|(at, l)| (key(kind, l), values[at].to_string())));
        }
        for (at, l) in each() {
            if self.out[at] != self.expected[at] {
                keys.push((key("o", l), text(&self.out[at])));
            }
        }
        if self.out != self.expected {
            keys.push(("beyond", "true".to_string()));
        }
        keys
    }
}
