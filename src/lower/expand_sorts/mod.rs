//! Expand sorts: replaces each `Sort` by loops.
//!
//! Before: `sort order[0], k = (r, 0, n) X[r]`
//! After:  loops that make an unsigned key of each value and sort the pairs of key and position by
//! the digits of the key, the last digit first.
//!
//! Keys are integers whose order is that of the values: signed integers are shifted, the bits of
//! negative floats inverted; -0 becomes 0, a NaN the largest key, and a descending order inverts
//! the key. A key of up to 32 bits and its position are one `uint64`, an *item*; longer keys have
//! positions of their own.
//!
//! If the first few positions are wanted, the values pass a filter: those that cannot be among
//! them, because as many lesser ones were seen, are not stored. A buffer takes the others; when it
//! could overflow, it is sorted and all but the wanted ones are dropped. So each element is sorted
//! a constant number of times, whatever the order of the input.
//!
//! The first pass, because the others know no `Sort`. CPUs only: `schedule` refuses sorts on GPUs.
//! Ensures: no `Sort`.  Declines: nothing.

mod code;
mod filter;
mod items;
mod keys;

use crate::diag::Result;
use crate::ir::visit::map_stmts;
use crate::ir::{DType, Expr, Kernel, SortAxis, Stmt};
use crate::target::Target;
use code::{add, block, for_each, index, let_in, min, mul, set, when};
use filter::Filter;
use items::Items;

/// The number of values between two tests of whether the stored ones are sorted.
const CHUNK: i64 = 256;

/// The number of values that are stored beside the wanted ones, at most.
const SLACK: i64 = 2048;

/// The number of values that are stored beside the wanted ones before they are sorted for the first
/// time: a quarter of these and this many more. The number grows by half each time.
const FIRST_SLACK: i64 = 16;

/// Expands the sorts of a kernel.
pub fn expand_sorts(mut kernel: Kernel, target: &Target) -> Result<Kernel> {
    kernel.body = expand(kernel.body, target);
    Ok(kernel)
}

fn expand(stmt: Stmt, target: &Target) -> Stmt {
    match stmt {
        Stmt::Sort(sort) => expand_sort(&sort, target),
        other => map_stmts(other, &mut |inner| expand(inner, target)),
    }
}

fn expand_sort(sort: &SortAxis, target: &Target) -> Stmt {
    let SortAxis { order, count, extent, .. } = sort;
    let whole = crate::ir::equal::equal(count, extent);
    let few = Expr::lt(add(mul(count.clone(), index(2)), index(SLACK + CHUNK)), extent.clone());
    let choose = |some: Expr, all: &Expr| Expr::select(few.clone(), some, all.clone());
    let capacity = match whole {
        true => extent.clone(),
        false => choose(add(count.clone(), index(SLACK)), extent),
    };
    let items = Items::new(&order.name, key_width(sort), &capacity, target);
    let body = let_in("capacity", items.half_length(&capacity), |half_length| {
        let stored = |from: Expr| {
            for_each("q", count.clone(), |q| {
                set(order, q.clone(), items.place(add(from.clone(), q)))
            })
        };
        if whole {
            let fill = items.store_all(sort);
            let sorted = items.sort(half_length.clone(), extent.clone());
            return block([fill, sorted, stored(mul(items.half(), half_length))]);
        }
        let filter = Filter { sort, items: &items, half_length, capacity, target };
        block([filter.run(choose(index(CHUNK), extent)), stored(index(0))])
    });
    let body = items.allocate(body);
    when(Expr::lt(index(0), min(count.clone(), extent.clone())), body)
}

/// Returns the number of bits of a key.
fn key_width(sort: &SortAxis) -> u32 {
    match sort.key.ty.dtype {
        DType::Index => 64,
        dtype => dtype.bits(),
    }
}
