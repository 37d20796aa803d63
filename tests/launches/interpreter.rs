//! The semantics of launches in the interpreter.

use super::build::*;
use tec::ir::verify::verify_kernel;
use tec::ir::{Buffer, Expr, Kernel, Scope, Stmt, Var};
use tec::lower::hoist_threads::hoist_threads;
use tec::target::Target;

fn hoisted(kernel: &Kernel) -> Kernel {
    let target = Target::parse("nvptx-sm_80").expect("a target");
    hoist_threads(kernel.clone(), &target).expect("nothing is refused")
}

/// `C[bx*8 + 7 - tx] = A[bx*8 + tx]` through shared memory, `middle` between the two.
fn reversal(fill: impl Fn(Stmt) -> Stmt, middle: Vec<Stmt>) -> Kernel {
    let (a, c) = (global("A", &[32]), global("C", &[32]));
    let s = buffer("S", &[8], Scope::Shared);
    let [bx, tx] = vars(["blockIdx.x", "threadIdx.x"]);
    let at = |i: Expr| add(mul(get(&bx), 8), i);
    let filling = store(&s, &[get(&tx)], load(&a, &[at(get(&tx))]));
    let from = Expr::sub(int(7), get(&tx));
    let read = store(&c, &[at(get(&tx))], load(&s, &[from]));
    let mut stmts = vec![fill(threads(&tx, 8, filling))];
    stmts.extend(middle);
    stmts.push(read);
    let body = allocate(&s, threads(&tx, 8, block(stmts)));
    kernel(&[&a], &[&c], produce("C", threads(&bx, 4, body)))
}

#[test]
fn threads_and_blocks_have_their_indices() {
    let (a, c) = (global("A", &[4, 3, 2, 5]), global("C", &[4, 3, 2, 5]));
    let [by, bx, ty, tx] = vars(["blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x"]);
    let at = [get(&by), get(&bx), get(&ty), get(&tx)];
    let body = store(&c, &at, load(&a, &at));
    let body = threads(&by, 4, threads(&bx, 3, threads(&ty, 2, threads(&tx, 5, body))));
    let kernel = kernel(&[&a], &[&c], produce("C", body));
    let expected: Vec<f32> = (0..120).map(|i| (i % 97) as f32).collect();
    assert_eq!(verified(&kernel), [expected]);
}

#[test]
fn shared_stages_and_barriers_order_threads() {
    let stage = reversal(|fill| produce("S", fill), Vec::new());
    let expected: Vec<f32> = (0..32).map(|i| (i / 8 * 8 + 7 - i % 8) as f32).collect();
    assert_eq!(verified(&stage)[0], expected);
    assert_eq!(verified(&hoisted(&stage))[0], expected);
    let barrier = reversal(|fill| fill, vec![Stmt::Barrier]);
    assert_eq!(verified(&barrier)[0], expected);
    assert_eq!(verified(&hoisted(&barrier)), [expected]);
}

#[test]
fn a_missing_barrier_is_a_race() {
    let text = trapped(&reversal(|fill| fill, Vec::new()));
    assert!(
        text.starts_with(
            "race for S[0]: thread (0, 0, 0) of block (0, 0, 0) accesses what thread (7, 0, 0) \
             of block (0, 0, 0)"
        ) || text.starts_with("read of S[7], which was never written"),
        "{text}"
    );
}

#[test]
fn overwriting_in_a_loop_needs_a_barrier_after_the_readers() {
    // for k { S[tx] = A[k*8 + tx]; barrier; C[tx] += S[7 - tx]; second }
    let make = |second: Vec<Stmt>| {
        let (a, c) = (global("A", &[32]), global("C", &[8]));
        let s = buffer("S", &[8], Scope::Shared);
        let [tx, k] = vars(["threadIdx.x", "k"]);
        let fill = store(&s, &[get(&tx)], load(&a, &[add(mul(get(&k), 8), get(&tx))]));
        let read = load(&s, &[Expr::sub(int(7), get(&tx))]);
        let update = store(&c, &[get(&tx)], add(load(&c, &[get(&tx)]), read));
        let mut body = vec![fill, Stmt::Barrier, update];
        body.extend(second);
        let nest = serial(&k, 4, block(body));
        let start = store(&c, &[get(&tx)], float(0.0));
        let body = allocate(&s, threads(&tx, 8, block([start, nest])));
        kernel(&[&a], &[&c], produce("C", body))
    };
    let expected: Vec<f32> = (0..8).map(|i| (4 * (7 - i) + 48) as f32).collect();
    assert_eq!(verified(&make(vec![Stmt::Barrier])), [expected]);
    let text = trapped(&make(Vec::new()));
    assert!(text.starts_with("race for S["), "{text}");
    assert!(text.contains("since the last barrier"), "{text}");
}

#[test]
fn blocks_race_for_global_memory() {
    let c = global("C", &[1]);
    let [bx] = vars(["blockIdx.x"]);
    let body = threads(&bx, 2, store(&c, &[int(0)], float(1.0)));
    let text = trapped(&kernel(&[], &[&c], produce("C", body)));
    assert!(text.starts_with("race for C[0]: thread (0, 0, 0) of block (1, 0, 0)"), "{text}");
    assert!(text.contains("in the same launch"), "{text}");
    // Consecutive launches are ordered.
    let [bx, by] = vars(["blockIdx.x", "blockIdx.x"]);
    let (t, c) = (global("T", &[4]), global("C", &[4]));
    let first = threads(&bx, 4, store(&t, &[get(&bx)], Expr::cast(t.dtype, get(&bx))));
    let from = Expr::sub(int(3), get(&by));
    let second = threads(&by, 4, store(&c, &[get(&by)], load(&t, &[from])));
    let body = allocate(&t, block([produce("T", first), produce("C", second)]));
    assert_eq!(verified(&kernel(&[], &[&c], body)), [vec![3.0, 2.0, 1.0, 0.0]]);
}

#[test]
fn a_barrier_under_a_divergent_condition_is_refused() {
    let c = global("C", &[8]);
    let [tx] = vars(["threadIdx.x"]);
    let write = store(&c, &[get(&tx)], float(1.0));
    let half = when(Expr::lt(get(&tx), int(4)), Stmt::Barrier);
    let body = threads(&tx, 8, block([half, write]));
    let kernel = kernel(&[], &[&c], produce("C", body));
    let error = verify_kernel(&kernel).expect_err("threads diverge");
    assert_eq!(error, "a barrier where threads diverge: (threadIdx.x < 4)");
    let text = trapped(&kernel);
    assert!(text.starts_with("threads diverge: thread ("), "{text}");
}

/// Each thread has its own stage in local memory, also across barriers.
#[test]
fn local_memory_is_private() {
    let c = global("C", &[8]);
    let l = buffer("L", &[1], Scope::Local);
    let [tx] = vars(["threadIdx.x"]);
    let stmts = [
        store(&l, &[int(0)], Expr::cast(c.dtype, get(&tx))),
        Stmt::Barrier,
        store(&c, &[get(&tx)], load(&l, &[int(0)])),
    ];
    let body = threads(&tx, 8, allocate(&l, block(stmts)));
    let expected = (0..8).map(|i| i as f32).collect::<Vec<_>>();
    assert_eq!(verified(&kernel(&[], &[&c], produce("C", body))), [expected]);
}

#[test]
fn serial_loops_around_blocks_run_in_every_thread() {
    let c = global("C", &[3, 4]);
    let [k, bx, tx] = vars(["k", "blockIdx.x", "threadIdx.x"]);
    let at = add(mul(get(&bx), 2), get(&tx));
    let value = Expr::cast(c.dtype, add(mul(get(&k), 10), at.clone()));
    let body = threads(&bx, 2, threads(&tx, 2, store(&c, &[get(&k), at], value)));
    let kernel = kernel(&[], &[&c], produce("C", serial(&k, 3, body)));
    let expected = verified(&kernel);
    assert_eq!(expected[0][4..8], [10.0, 11.0, 12.0, 13.0]);
    assert_eq!(verified(&hoisted(&kernel)), expected);
}

#[test]
fn the_verifier_checks_launches() {
    let error =
        |body: Stmt, c: &Buffer| verify_kernel(&kernel(&[], &[c], body)).expect_err("it is wrong");
    let c = global("C", &[8]);
    let [tx, other, k] = vars(["threadIdx.x", "threadIdx.x", "k"]);
    let write = |var: &Var| store(&c, &[get(var)], float(1.0));
    assert_eq!(
        error(threads(&tx, 8, write(&tx)), &c),
        "a loop over threadIdx.x outside of a produce"
    );
    let twice = block([threads(&tx, 8, write(&tx)), threads(&other, 8, write(&other))]);
    assert_eq!(error(produce("C", twice), &c), "threadIdx.x has two variables");
    let uneven = block([threads(&tx, 8, write(&tx)), threads(&tx, 4, write(&tx))]);
    assert!(error(produce("C", uneven), &c).starts_with("threadIdx.x has two extents"));
    let launches = block([
        produce("C", threads(&tx, 8, write(&tx))),
        produce("C", threads(&tx, 8, write(&tx))),
    ]);
    assert!(error(launches, &c).starts_with("threadIdx.x has the variable of another launch"));
    let s = buffer("S", &[8], Scope::Shared);
    assert_eq!(error(allocate(&s, Stmt::nothing()), &c), "shared buffer S is allocated here");
    let g = global("G", &[8]);
    let inside = threads(&tx, 8, allocate(&g, write(&tx)));
    assert_eq!(error(produce("C", inside), &c), "global buffer G is allocated here");
    assert_eq!(error(Stmt::Barrier, &c), "a barrier outside of a launch");
    // A loop with as many iterations as the thread's number.
    let uneven = Stmt::serial(k, get(&tx), Stmt::Barrier);
    let text = error(produce("C", threads(&tx, 8, uneven)), &c);
    assert_eq!(text, "a barrier where threads diverge: threadIdx.x");
    let again = threads(&tx, 8, threads(&tx, 8, write(&tx)));
    verified(&kernel(&[], &[&c], produce("C", again)));
}
