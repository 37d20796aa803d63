//! Sorts the first few positions: stores only values that may be among them.

use super::code::{add, at, block, each_lane, for_each, index, let_in, min, mul, set, sub, when};
use super::items::Items;
use super::keys::{in_order, key_of, natural_key, unsigned, value_at};
use super::{CHUNK, FIRST_SLACK};
use crate::ir::{BinOp, Buffer, DType, Expr, Scope, SortAxis, Stmt};
use crate::target::Target;

/// The filter of a sort.
pub(super) struct Filter<'a> {
    pub(super) sort: &'a SortAxis,
    pub(super) items: &'a Items,
    /// The distance of the two halves of the items.
    pub(super) half_length: Expr,
    /// The number of items in a half.
    pub(super) capacity: Expr,
    pub(super) target: &'a Target,
}

/// The registers of the filter.
struct State {
    /// The number of stored items.
    filled: Buffer,
    /// The number of items beside the wanted ones at which they are sorted.
    slack: Buffer,
    /// The greatest key that passes.
    bound: Buffer,
}

fn of_index(value: Expr) -> Expr {
    Expr::cast(DType::Int64, value)
}

fn as_index(buffer: &Buffer) -> Expr {
    Expr::cast(DType::Index, at(buffer, index(0)))
}

impl Filter<'_> {
    /// Stores the first `count` items in order from the beginning of the items.
    pub(super) fn run(&self, chunk: Expr) -> Stmt {
        let register =
            |name: &str, dtype| Buffer::new(name, dtype, vec![index(1)], Scope::Register);
        let state = State {
            filled: register("filled", DType::Int64),
            slack: register("slack", DType::Int64),
            bound: register("bound", DType::Uint64),
        };
        let (count, extent) = (&self.sort.count, &self.sort.extent);
        let rounded = add(extent.clone(), sub(chunk.clone(), index(1)));
        let chunks = Expr::binary(BinOp::FloorDiv, rounded, chunk.clone());
        let body = for_each("c", chunks.clone(), |c| {
            let_in("begin", mul(c.clone(), chunk.clone()), |begin| {
                let end = min(add(begin.clone(), chunk.clone()), extent.clone());
                let pass = let_in("end", end, |end| self.chunk(&state, &begin, &end));
                let filled = || as_index(&state.filled);
                let full = Expr::lt(self.capacity.clone(), add(filled(), chunk.clone()));
                let many = Expr::le(add(count.clone(), as_index(&state.slack)), filled());
                let last = Expr::eq(c, sub(chunks.clone(), index(1)));
                let due = Expr::or(Expr::or(full, many), last);
                block([pass, when(due, self.keep_first(&state))])
            })
        });
        let quarter = Expr::binary(BinOp::FloorDiv, count.clone(), index(4));
        let slack = add(quarter, index(FIRST_SLACK));
        let most = Expr::int(DType::Uint64, u64::MAX.into());
        let body = block([
            set(&state.filled, index(0), of_index(index(0))),
            set(&state.slack, index(0), of_index(slack)),
            set(&state.bound, index(0), most),
            body,
        ]);
        let State { filled, slack, bound } = state;
        [filled, slack, bound]
            .into_iter()
            .fold(body, |body, buffer| Stmt::Allocate { buffer, body: Box::new(body) })
    }

    /// Stores the values of a chunk that pass, in ascending order of positions. In a whole chunk,
    /// each lane first finds the least key of the positions that it has in every vector.
    fn chunk(&self, state: &State, begin: &Expr, end: &Expr) -> Stmt {
        let key = natural_key(self.sort, begin.clone()).ty.dtype;
        let lanes = i64::from(self.target.lanes(key)).min(CHUNK);
        let local = |name: &str, dtype| Buffer::new(name, dtype, vec![index(lanes)], Scope::Local);
        let (lane_keys, some) = (local("lane_keys", key), local("some", DType::Int32));
        let number = Buffer::new("number", DType::Int64, vec![index(1)], Scope::Register);
        let most = Expr::int(DType::Uint64, u64::MAX.into());
        let body = let_in("limit", at(&state.bound, index(0)), |limit| {
            // A chunk that is all values of a short axis has no bound.
            let whole = Expr::le(add(begin.clone(), index(CHUNK)), end.clone());
            let tested = Expr::and(Expr::lt(limit.clone(), most), whole);
            let all = for_each("t", sub(end.clone(), begin.clone()), |t| {
                self.value(state, &limit, add(begin.clone(), t))
            });
            let found = for_each("l", index(lanes), |l| {
                let least = Expr::cast(DType::Uint64, at(&lane_keys, l.clone()));
                when(
                    Expr::le(least, limit.clone()),
                    let_in("slot", as_index(&number), |slot| {
                        let next = of_index(add(slot.clone(), index(1)));
                        let lane = set(&some, slot, Expr::cast(DType::Int32, l));
                        block([lane, set(&number, index(0), next)])
                    }),
                )
            });
            let those = for_each("u", index(CHUNK / lanes), |u| {
                let first = add(begin.clone(), mul(u, index(lanes)));
                let_in("first", first, |first| {
                    for_each("q", as_index(&number), |q| {
                        let lane = Expr::cast(DType::Index, at(&some, q));
                        self.value(state, &limit, add(first.clone(), lane))
                    })
                })
            });
            let lanes = index(lanes);
            let test = block([
                self.least_keys(&lane_keys, begin),
                set(&number, index(0), of_index(index(0))),
                found,
            ]);
            let few = Expr::lt(mul(index(2), as_index(&number)), lanes.clone());
            let (then, otherwise) = (Box::new(those), Some(Box::new(all)));
            block([
                set(&number, index(0), of_index(lanes)),
                when(tested, test),
                Stmt::If { cond: few, then, otherwise },
            ])
        });
        [lane_keys, some, number]
            .into_iter()
            .fold(body, |body, buffer| Stmt::Allocate { buffer, body: Box::new(body) })
    }

    /// Stores a bound of the keys of each lane of a chunk: none is less.
    fn least_keys(&self, lane_keys: &Buffer, begin: &Expr) -> Stmt {
        let lanes = lane_keys.shape[0].as_int().expect("a constant") as i64;
        let first_of = Extremes::new(self.sort, lanes);
        let start = each_lane("l", lanes, |l| first_of.start(l));
        let all = for_each("u", index(CHUNK / lanes), |u| {
            each_lane("l", lanes, |l| {
                let place = add(add(begin.clone(), mul(u, index(lanes))), l.clone());
                first_of.add(value_at(self.sort, place), l)
            })
        });
        let keys = each_lane("l", lanes, |l| set(lane_keys, l.clone(), first_of.key(self.sort, l)));
        let body = block([start, all, keys]);
        first_of
            .buffers()
            .fold(body, |body, buffer| Stmt::Allocate { buffer, body: Box::new(body) })
    }

    /// Stores a value if it passes.
    fn value(&self, state: &State, limit: &Expr, place: Expr) -> Stmt {
        key_of(self.sort, place.clone(), |key| {
            let passes = Expr::le(key.clone(), limit.clone());
            let slot = as_index(&state.filled);
            when(
                passes,
                let_in("slot", slot, |slot| {
                    let next = of_index(add(slot.clone(), index(1)));
                    block([self.items.set(slot, key, place), set(&state.filled, index(0), next)])
                }),
            )
        })
    }

    /// Sorts the items, drops all but the first, and lowers the bound.
    fn keep_first(&self, state: &State) -> Stmt {
        let (items, count) = (self.items, &self.sort.count);
        let filled = || as_index(&state.filled);
        let sort = items.sort(self.half_length.clone(), filled());
        let keep = let_in("kept", min(filled(), count.clone()), |kept| {
            let copy = for_each("q", kept.clone(), |q| {
                items.copy(add(self.half_length.clone(), q.clone()), q)
            });
            let one = Expr::int(DType::Uint64, 1);
            // No key is below 0, so items with the key 0 pass once more.
            let greatest = items.key(sub(count.clone(), index(1)));
            let bound = Expr::sub(Expr::binary(BinOp::Max, greatest, one.clone()), one);
            block([
                when(Expr::eq(items.half(), index(1)), copy),
                when(Expr::eq(kept.clone(), count.clone()), set(&state.bound, index(0), bound)),
                set(&state.filled, index(0), of_index(kept)),
            ])
        });
        let slack = || at(&state.slack, index(0));
        let half = Expr::binary(BinOp::Shr, slack(), Expr::int(DType::Int64, 1));
        block([sort, keep, set(&state.slack, index(0), add(slack(), half))])
    }
}

/// The first values in order of each lane of a block.
struct Extremes {
    /// The least or greatest value; numbers only.
    extreme: Buffer,
    /// Descending floats: the greatest pattern without its sign, which tells whether there is a
    /// NaN. In ascending order, NaNs stand behind all that pass.
    magnitude: Option<Buffer>,
    descending: bool,
}

impl Extremes {
    fn new(sort: &SortAxis, lanes: i64) -> Extremes {
        let dtype = sort.key.ty.dtype;
        let buffer = |name, dtype| Buffer::new(name, dtype, vec![index(lanes)], Scope::Local);
        let unsigned = unsigned(dtype.bits());
        let magnitude =
            (dtype.is_float() && sort.descending).then(|| buffer("magnitude", unsigned));
        Extremes { extreme: buffer("extreme", dtype), magnitude, descending: sort.descending }
    }

    fn buffers(&self) -> impl Iterator<Item = Buffer> {
        std::iter::once(self.extreme.clone()).chain(self.magnitude.clone())
    }

    fn start(&self, l: Expr) -> Stmt {
        let dtype = self.extreme.dtype;
        let last = match (dtype.is_float(), self.descending) {
            (true, true) => Expr::float(dtype, f64::NEG_INFINITY),
            (true, false) => Expr::float(dtype, f64::INFINITY),
            (false, true) => Expr::int(dtype, dtype.int_range().0),
            (false, false) => Expr::int(dtype, dtype.int_range().1),
        };
        let zero = |buffer: &Buffer| set(buffer, l.clone(), Expr::int(buffer.dtype, 0));
        let magnitude = self.magnitude.as_ref().map(zero);
        block([set(&self.extreme, l.clone(), last)].into_iter().chain(magnitude))
    }

    fn add(&self, value: Expr, l: Expr) -> Stmt {
        let op = if self.descending { BinOp::Max } else { BinOp::Min };
        // The second operand is the result if the first is a NaN.
        let first = Expr::binary(op, value.clone(), at(&self.extreme, l.clone()));
        let magnitude = self.magnitude.as_ref().map(|buffer| {
            let dtype = buffer.dtype;
            let all = Expr::int(dtype, (1 << (dtype.bits() - 1)) - 1);
            let pattern = Expr::binary(BinOp::BitAnd, Expr::bitcast(dtype, value), all);
            let greater = Expr::binary(BinOp::Max, pattern, at(buffer, l.clone()));
            set(buffer, l.clone(), greater)
        });
        block([set(&self.extreme, l, first)].into_iter().chain(magnitude))
    }

    /// Returns the least key, 0 for a NaN that stands first.
    fn key(&self, sort: &SortAxis, l: Expr) -> Expr {
        let key = in_order(sort, at(&self.extreme, l.clone()));
        let Some(magnitude) = &self.magnitude else { return key };
        let dtype = magnitude.dtype;
        let infinity = Expr::float(self.extreme.dtype, f64::INFINITY);
        let nan = Expr::lt(Expr::bitcast(dtype, infinity), at(magnitude, l));
        Expr::select(nan, Expr::int(dtype, 0), key)
    }
}
