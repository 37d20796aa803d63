//! The memory for pairs of key and position, and the loops that sort them.

use super::code::{
    add, at, block, each_lane, for_each, index, let_in, min, mul, set, sub, unrolled, when,
};
use super::keys::natural_key;
use crate::ir::{BinOp, Buffer, DType, Expr, Scope, SortAxis, Stmt};
use crate::target::Target;

/// The largest number of registers of items that are sorted by counting the lesser ones of each.
const COUNTED_REGISTERS: i64 = 24;

/// The number of registers of items that are compared with one item at a time.
const REGISTERS: i64 = 4;

/// From this number of items on, digits have more bits.
const MANY: i64 = 16_384;

/// The bits of a digit, for few and for many items.
const DIGIT_BITS: [u32; 2] = [8, 11];

/// Two halves of memory for items. Sorting moves them from half to half.
pub(super) struct Items {
    /// Keys with positions in their lower 32 bits, or keys of 64 bits.
    keys: Buffer,
    /// The positions of keys of 64 bits.
    places: Option<Buffer>,
    /// The number of items with each digit.
    counts: Buffer,
    /// The half that holds the items: 0 or 1.
    half: Buffer,
    /// A running sum.
    sum: Buffer,
    /// The numbers of lesser items of a vector of items.
    lesser: Buffer,
    /// The number of bits of a key.
    width: u32,
    /// The number of items in a vector.
    lanes: i64,
}

impl Items {
    pub(super) fn new(name: &str, width: u32, capacity: &Expr, target: &Target) -> Items {
        let lanes = REGISTERS * i64::from(target.lanes(DType::Uint64));
        let both = mul(index(2), add(capacity.clone(), index(lanes)));
        let buffer = |what: &str, dtype, extent: &Expr, scope| {
            Buffer::new(format!("{name}.{what}"), dtype, vec![extent.clone()], scope)
        };
        let places = buffer("places", DType::Int32, &both, Scope::Global);
        let bins = index(1 << DIGIT_BITS[1]);
        Items {
            keys: buffer("keys", DType::Uint64, &both, Scope::Global),
            places: (width > 32).then_some(places),
            counts: buffer("counts", DType::Int32, &bins, Scope::Local),
            half: buffer("half", DType::Int64, &index(1), Scope::Register),
            sum: buffer("sum", DType::Int32, &index(1), Scope::Register),
            lesser: buffer("lesser", DType::Uint64, &index(lanes), Scope::Local),
            width,
            lanes,
        }
    }

    /// Returns the distance of the two halves: a half ends with room for the rest of a vector.
    pub(super) fn half_length(&self, capacity: &Expr) -> Expr {
        add(capacity.clone(), index(self.lanes))
    }

    pub(super) fn allocate(&self, body: Stmt) -> Stmt {
        let mut buffers = vec![&self.keys, &self.counts, &self.half, &self.sum, &self.lesser];
        buffers.extend(&self.places);
        buffers.into_iter().rev().fold(body, |body, buffer| Stmt::Allocate {
            buffer: buffer.clone(),
            body: Box::new(body),
        })
    }

    /// Returns the half that holds the items.
    pub(super) fn half(&self) -> Expr {
        Expr::cast(DType::Index, at(&self.half, index(0)))
    }

    /// Stores an item.
    pub(super) fn set(&self, slot: Expr, key: Expr, place: Expr) -> Stmt {
        match &self.places {
            Some(places) => block([
                set(&self.keys, slot.clone(), key),
                set(places, slot, Expr::cast(DType::Int32, place)),
            ]),
            None => {
                let high = Expr::binary(BinOp::Shl, key, Expr::int(DType::Uint64, 32));
                let place = Expr::cast(DType::Uint64, place);
                set(&self.keys, slot, Expr::binary(BinOp::BitOr, high, place))
            }
        }
    }

    /// Stores the items of all values.
    pub(super) fn store_all(&self, sort: &SortAxis) -> Stmt {
        let (extent, lanes) = (&sort.extent, index(self.lanes));
        let store = |place: Expr| {
            let key = Expr::cast(DType::Uint64, natural_key(sort, place.clone()));
            self.set(place.clone(), key, place)
        };
        let vectors = Expr::binary(BinOp::FloorDiv, extent.clone(), lanes.clone());
        let whole = for_each("v", vectors.clone(), |v| {
            let_in("first", mul(v, lanes.clone()), |first| {
                each_lane("l", self.lanes, |l| store(add(first.clone(), l)))
            })
        });
        let_in("whole", mul(vectors, lanes), |stored| {
            let rest = for_each("t", sub(extent.clone(), stored.clone()), |t| {
                store(add(stored.clone(), t))
            });
            block([whole, rest])
        })
    }

    /// Copies an item.
    pub(super) fn copy(&self, from: Expr, to: Expr) -> Stmt {
        let of = |buffer| set(buffer, to.clone(), at(buffer, from.clone()));
        block(std::iter::once(&self.keys).chain(&self.places).map(of))
    }

    /// Returns the position of an item.
    pub(super) fn place(&self, slot: Expr) -> Expr {
        Expr::cast(DType::Int32, at(self.places.as_ref().unwrap_or(&self.keys), slot))
    }

    /// Returns the key of an item.
    pub(super) fn key(&self, slot: Expr) -> Expr {
        let item = at(&self.keys, slot);
        match self.places {
            Some(_) => item,
            None => Expr::binary(BinOp::Shr, item, Expr::int(DType::Uint64, 32)),
        }
    }

    /// Sorts the first items of half 0, in ascending order of positions. Sets the half.
    pub(super) fn sort(&self, half_length: Expr, filled: Expr) -> Stmt {
        let_in("filled", filled, |filled| {
            let few = Expr::le(filled.clone(), index(COUNTED_REGISTERS / REGISTERS * self.lanes));
            let start = set(&self.half, index(0), Expr::int(DType::Int64, 0));
            let counted = self.sort_by_counting(&half_length, &filled);
            let digits = self.sort_by_digits(&half_length, &filled);
            let (then, otherwise) = (Box::new(counted), Some(Box::new(digits)));
            block([start, Stmt::If { cond: few, then, otherwise }])
        })
    }

    /// Moves each item to the place that the number of lesser ones gives, a vector of items at a
    /// time. The last one is filled up.
    fn sort_by_counting(&self, half_length: &Expr, filled: &Expr) -> Stmt {
        let lanes = index(self.lanes);
        let rounded = add(filled.clone(), index(self.lanes - 1));
        let vectors = Expr::binary(BinOp::FloorDiv, rounded, lanes.clone());
        let zero = Expr::int(DType::Uint64, 0);
        let fill =
            unrolled("l", self.lanes, |l| set(&self.keys, add(filled.clone(), l), zero.clone()));
        let moved = for_each("v", vectors, |v| {
            let_in("first", mul(v, lanes.clone()), |first| {
                let start = each_lane("l", self.lanes, |l| set(&self.lesser, l, zero.clone()));
                let count = for_each("j", filled.clone(), |j| {
                    each_lane("l", self.lanes, |l| {
                        let (sum, one) = (at(&self.lesser, l.clone()), Expr::int(DType::Uint64, 1));
                        let less = self.is_less(&j, &add(first.clone(), l.clone()));
                        set(&self.lesser, l, Expr::select(less, add(sum.clone(), one), sum))
                    })
                });
                let rest = min(lanes, sub(filled.clone(), first.clone()));
                let copies = for_each("l", rest, |l| {
                    let place = Expr::cast(DType::Index, at(&self.lesser, l.clone()));
                    self.copy(add(first.clone(), l), add(half_length.clone(), place))
                });
                block([start, count, copies])
            })
        });
        block([fill, moved, set(&self.half, index(0), Expr::int(DType::Int64, 1))])
    }

    /// Whether the item at `j` stands before the one at `i`.
    fn is_less(&self, j: &Expr, i: &Expr) -> Expr {
        let (other, item) = (at(&self.keys, j.clone()), at(&self.keys, i.clone()));
        let less = Expr::lt(other.clone(), item.clone());
        if self.places.is_none() {
            return less;
        }
        let equal = Expr::eq(other, item);
        let before = Expr::binary(BinOp::BitAnd, equal, Expr::lt(j.clone(), i.clone()));
        Expr::binary(BinOp::BitOr, less, before)
    }

    /// Sorts by one digit after the other, the lowest first. A digit that all items share is left
    /// out.
    fn sort_by_digits(&self, half_length: &Expr, filled: &Expr) -> Stmt {
        let many = Expr::le(index(MANY), filled.clone());
        let choose = |of: &dyn Fn(u32) -> i64| {
            let [few, much] = DIGIT_BITS.map(|bits| index(of(bits)));
            Expr::select(many.clone(), much, few)
        };
        let bits = choose(&|bits| bits.into());
        let bins = choose(&|bits| 1 << bits);
        let passes = choose(&|bits| self.width.div_ceil(bits).into());
        let first = self.unused_bits();
        let_in("bins", bins, |bins| {
            let_in("bits", bits, |bits| {
                for_each("pass", passes, |pass| {
                    let shift = add(index(first), mul(pass, bits));
                    let_in("shift", shift, |shift| {
                        let_in("from", mul(self.half(), half_length.clone()), |from| {
                            self.sort_by_digit(half_length, filled, &bins, &shift, &from)
                        })
                    })
                })
            })
        })
    }

    /// Returns the number of bits of an item that are below its key.
    fn unused_bits(&self) -> i64 {
        if self.places.is_some() { 0 } else { 32 }
    }

    fn sort_by_digit(
        &self,
        half_length: &Expr,
        filled: &Expr,
        bins: &Expr,
        shift: &Expr,
        from: &Expr,
    ) -> Stmt {
        let (zero, one) = (Expr::int(DType::Int32, 0), Expr::int(DType::Int32, 1));
        let mask = sub(bins.clone(), index(1));
        let digit = |slot: Expr| {
            let key = Expr::cast(DType::Index, at(&self.keys, slot));
            Expr::binary(BinOp::BitAnd, Expr::binary(BinOp::Shr, key, shift.clone()), mask.clone())
        };
        let slot = |i: Expr| add(from.clone(), i);
        let counts = |digit: Expr| at(&self.counts, digit);
        let clear = for_each("v", bins.clone(), |v| set(&self.counts, v, zero.clone()));
        let count = for_each("i", filled.clone(), |i| {
            let_in("digit", digit(slot(i)), |digit| {
                let next = add(counts(digit.clone()), one.clone());
                set(&self.counts, digit, next)
            })
        });
        let differs =
            Expr::lt(Expr::cast(DType::Index, counts(digit(slot(index(0))))), filled.clone());
        let sum = || at(&self.sum, index(0));
        let places = for_each("v", bins.clone(), |v| {
            let_in("number", counts(v.clone()), |number| {
                block([set(&self.counts, v, sum()), set(&self.sum, index(0), add(sum(), number))])
            })
        });
        let to = sub(half_length.clone(), from.clone());
        let moved = let_in("to", to, |to| {
            for_each("i", filled.clone(), |i| {
                let_in("digit", digit(slot(i.clone())), |digit| {
                    let_in("place", counts(digit.clone()), |place| {
                        let slot_of = add(to.clone(), Expr::cast(DType::Index, place.clone()));
                        block([
                            self.copy(slot(i), slot_of),
                            set(&self.counts, digit, add(place, one.clone())),
                        ])
                    })
                })
            })
        });
        let other = Expr::sub(Expr::int(DType::Int64, 1), at(&self.half, index(0)));
        let swap = set(&self.half, index(0), other);
        let moved = block([set(&self.sum, index(0), zero.clone()), places, moved, swap]);
        block([clear, count, when(differs, moved)])
    }
}
