//! Pipelines: shared memory is copied several iterations ahead, and each iteration waits only for
//! the copies that it reads.
//!
//! Before: `for (i, 0, n) { allocate S[8] pipeline(3)  produce S { S[…] = f(i) }  … S[…] … }`
//! After:  `allocate S[3, 8]`
//!         `copy_group { if 0 < n { produce S { S[0, …] = f(0) } } }`
//!         `copy_group { if 1 < n { produce S { S[1, …] = f(1) } } }`
//!         `for (i, 0, n) {`
//!         `  await_copies(in_flight=1)`
//!         `  copy_group { if likely(i + 2 < n) { produce S { S[(i + 2) % 3, …] = f(i + 2) } } }`
//!         `  … S[i % 3, …] …`
//!         `}`
//! Before iteration `i` waits, groups `0 ..= i + 1` have been issued; after it, all but the last
//! are complete. All threads have then finished iteration `i - 1`, so its copy may be filled again.
//! Groups for iterations after the last one are empty but count.
//!
//! With warpgroup products and at least four copies, those of iteration `i - 1` still run when
//! iteration `i` fills a copy. So it fills that of iteration `i - 2`, one iteration less ahead. Of
//! three copies, one would be begun one iteration before its use, and the wait would cost more.

use super::{BufferedStage, Injected, Loop, into_copies};
use crate::ir::visit::walk_stmt;
use crate::ir::warp::warp_product;
use crate::ir::{Buffering, Expr, Stmt};
use rustc_hash::FxHashMap;

/// Fills the buffers of a pipeline ahead. Without any, the loop stays as it is.
pub(super) fn inject(head: &Loop, body: Stmt, found: Vec<BufferedStage>) -> Injected {
    let Some(Buffering::Pipeline(count)) = found.first().map(|one| one.how) else {
        return Injected { before: None, body, allocated: Vec::new() };
    };
    let mut copies = FxHashMap::default();
    let allocated = found.iter().flat_map(|one| one.add_copies(count, &mut copies)).collect();
    let group = |at: &Expr, number: &Expr, later: bool| {
        let fills = found.iter().map(|one| one.fill_at(at, head, &copies, count)).collect();
        Stmt::CopyGroup { body: Box::new(head.if_iteration_exists(number, fills, later)) }
    };
    // Products of a warpgroup read their copy until the next iteration has started its own.
    let products_run = count > 3 && has_warpgroup_product(&body);
    let ahead = i64::from(count) - if products_run { 2 } else { 1 };
    let first = (0..ahead).map(|number| {
        let number = Expr::index(number);
        let at = match head.min.as_int() {
            Some(0) => number.clone(),
            _ => Expr::add(head.min.clone(), number.clone()),
        };
        group(&at, &number, false)
    });
    let before = Some(Stmt::Block(first.collect()));
    let next = group(&head.after(ahead), &Expr::index(ahead), true);
    let body = into_copies(body, &copies, &head.copy(&Expr::var(&head.var), count));
    let wait = Stmt::AwaitCopies { in_flight: ahead as u32 - 1, products_run };
    let body = Stmt::Block(vec![wait, next, body]);
    Injected { before, body, allocated }
}

fn has_warpgroup_product(body: &Stmt) -> bool {
    let mut found = false;
    let mut see = |stmt: &Stmt| {
        found |= warp_product(stmt).is_some_and(|product| product.is_by_warpgroup());
    };
    walk_stmt(body, &mut see, &mut |_| {});
    found
}
