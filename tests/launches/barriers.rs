//! The places of barriers.

use super::build::*;
use super::passes::{after, check_barriers_are_needed, check_passes, count_barriers};
use tec::ir::print::{Style, print_kernel};
use tec::ir::{Expr, Kernel, Scope, Stmt};

/// Returns the text after `insert_barriers`, without its first and last line.
fn barriers(kernel: &Kernel) -> String {
    let kernel =
        after(&after(&after(kernel, "flatten_storage"), "hoist_threads"), "insert_barriers");
    let text = print_kernel(&kernel, Style::Simple);
    let lines: Vec<&str> = text.lines().filter(|line| !line.contains("// attr")).collect();
    let lines = lines.iter().map(|line| line.strip_prefix("  ").unwrap_or(line));
    lines.collect::<Vec<_>>()[1..].join("\n")
}

fn seven_minus(index: Expr) -> Expr {
    Expr::sub(int(7), index)
}

#[test]
fn no_barrier_if_a_thread_reads_only_its_own_writes() {
    let (a, c) = (global("A", &[8, 4]), global("C", &[8, 4]));
    let s = buffer("S", &[8, 4], Scope::Shared);
    let [tx, i, j, k] = vars(["threadIdx.x", "i", "j", "k"]);
    let at = |var| [get(&tx), get(var)];
    let fill = produce("S", serial(&i, 4, store(&s, &at(&i), load(&a, &at(&i)))));
    let value = load(&s, &[get(&tx), Expr::sub(int(3), get(&j))]);
    let read = serial(&j, 4, store(&c, &at(&j), value));
    let body = serial(&k, 3, allocate(&s, block([fill, read])));
    let kernel = kernel(&[&a], &[&c], produce("C", threads(&tx, 8, body)));
    assert_eq!(count_barriers(&check_passes(&kernel, 0)), 0);
    assert_eq!(count_barriers(&check_passes(&kernel, 3)), 0);
}

#[test]
fn barriers_stand_before_readers_and_before_the_next_writers() {
    let (a, c) = (global("A", &[4, 8]), global("C", &[4, 8]));
    let s = buffer("S", &[8], Scope::Shared);
    let [tx, k] = vars(["threadIdx.x", "k"]);
    let fill = produce("S", store(&s, &[get(&tx)], load(&a, &[get(&k), get(&tx)])));
    let read = store(&c, &[get(&k), get(&tx)], load(&s, &[seven_minus(get(&tx))]));
    let body = serial(&k, 4, allocate(&s, block([fill, read])));
    let kernel = kernel(&[&a], &[&c], produce("C", threads(&tx, 8, body)));
    let expected = "allocate S[float32 * 8]
for (k, 0, 4) {
  tvm_storage_sync(\"shared\")
  S[threadIdx.x] = A[((k*8) + threadIdx.x)]
  tvm_storage_sync(\"shared\")
  C[((k*8) + threadIdx.x)] = S[(7 - threadIdx.x)]
}
}";
    assert_eq!(barriers(&kernel), expected);
    assert_eq!(check_barriers_are_needed(&check_passes(&kernel, 3)), 2);
}

#[test]
fn one_barrier_orders_two_stages() {
    let (a, c) = (global("A", &[8]), global("C", &[8]));
    let (s, t) = (buffer("S", &[8], Scope::Shared), buffer("T", &[8], Scope::Shared));
    let [tx] = vars(["threadIdx.x"]);
    let fill = |buffer| produce("S", store(buffer, &[get(&tx)], load(&a, &[get(&tx)])));
    let from = [seven_minus(get(&tx))];
    let sum = add(load(&s, &from), load(&t, &from));
    let body = block([fill(&s), fill(&t), store(&c, &[get(&tx)], sum)]);
    let body = allocate(&s, allocate(&t, threads(&tx, 8, body)));
    let kernel = kernel(&[&a], &[&c], produce("C", body));
    assert_eq!(check_barriers_are_needed(&check_passes(&kernel, 3)), 1);
}

/// `S[0]` is written by thread 0 alone, read by all.
#[test]
fn barriers_stand_around_the_work_of_one_thread() {
    let (a, c) = (global("A", &[4, 5]), global("C", &[4, 8]));
    let s = buffer("S", &[1], Scope::Shared);
    let [tx, k, i] = vars(["threadIdx.x", "k", "i"]);
    let start = store(&s, &[int(0)], float(0.0));
    let sum = add(load(&s, &[int(0)]), load(&a, &[get(&k), get(&i)]));
    let fill = block([start, serial(&i, 5, store(&s, &[int(0)], sum))]);
    let fill = produce("S", when(Expr::eq(get(&tx), int(0)), fill));
    let read = store(&c, &[get(&k), get(&tx)], load(&s, &[int(0)]));
    let body = serial(&k, 4, allocate(&s, block([fill, read])));
    let kernel = kernel(&[&a], &[&c], produce("C", threads(&tx, 8, body)));
    assert_eq!(check_barriers_are_needed(&check_passes(&kernel, 0)), 2);
    assert_eq!(check_barriers_are_needed(&check_passes(&kernel, 3)), 2);
}

/// A condition on the block is the same for all threads; a barrier under it does not order what
/// follows the condition.
#[test]
fn barriers_stand_under_uniform_conditions() {
    let (a, c) = (global("A", &[2, 8]), global("C", &[2, 8]));
    let s = buffer("S", &[8], Scope::Shared);
    let [bx, tx] = vars(["blockIdx.x", "threadIdx.x"]);
    let fill = |at: Expr| produce("S", store(&s, &[at], load(&a, &[get(&bx), get(&tx)])));
    let again = when(Expr::lt(get(&bx), int(1)), fill(seven_minus(get(&tx))));
    let from = modulo(add(get(&tx), int(3)), 8);
    let read = store(&c, &[get(&bx), get(&tx)], load(&s, &[from]));
    let body = allocate(&s, threads(&tx, 8, block([fill(get(&tx)), again, read])));
    let kernel = kernel(&[&a], &[&c], produce("C", threads(&bx, 2, body)));
    assert_eq!(check_barriers_are_needed(&check_passes(&kernel, 3)), 2);
}

/// There is no race within one iteration, but the next one overwrites elements that a slow thread
/// still reads.
#[test]
fn a_barrier_separates_iterations_of_an_outer_loop() {
    let (a, c) = (global("A", &[3, 8]), global("C", &[3, 4, 8]));
    let s = buffer("S", &[8], Scope::Shared);
    let [tx, k, j] = vars(["threadIdx.x", "k", "j"]);
    let fill = produce("S", store(&s, &[get(&tx)], load(&a, &[get(&k), get(&tx)])));
    let from = modulo(add(get(&tx), get(&j)), 8);
    let read = store(&c, &[get(&k), get(&j), get(&tx)], load(&s, &[from]));
    let body = serial(&k, 3, allocate(&s, block([fill, serial(&j, 4, read)])));
    let kernel = kernel(&[&a], &[&c], produce("C", threads(&tx, 8, body)));
    let expected = "allocate S[float32 * 8]
for (k, 0, 3) {
  tvm_storage_sync(\"shared\")
  S[threadIdx.x] = A[((k*8) + threadIdx.x)]
  tvm_storage_sync(\"shared\")
  for (j, 0, 4) {
    C[((k*(4*8)) + ((j*8) + threadIdx.x))] = S[floormod((threadIdx.x + j), 8)]
  }
}
}";
    assert_eq!(barriers(&kernel), expected);
    assert_eq!(check_barriers_are_needed(&check_passes(&kernel, 3)), 2);
}

/// One barrier serves the readers of one stage and the writers of the next.
#[test]
fn one_barrier_serves_readers_and_the_next_writers() {
    let (a, c) = (global("A", &[4, 8]), global("C", &[4, 8]));
    let (s, t) = (buffer("S", &[8], Scope::Shared), buffer("T", &[8], Scope::Shared));
    let [tx, k] = vars(["threadIdx.x", "k"]);
    let at = [get(&k), get(&tx)];
    let first = produce("S", store(&s, &[get(&tx)], load(&a, &at)));
    let turned = [seven_minus(get(&tx))];
    let second = produce("T", store(&t, &[get(&tx)], load(&s, &turned)));
    let read = store(&c, &at, load(&t, &turned));
    // S, sync, T from S, sync, C from T: S of the next iteration is after that sync.
    let stages: [Stmt; 3] = [first, second, read];
    let body = serial(&k, 4, allocate(&s, allocate(&t, block(stages))));
    let kernel = kernel(&[&a], &[&c], produce("C", threads(&tx, 8, body)));
    assert_eq!(check_barriers_are_needed(&check_passes(&kernel, 3)), 2);
}

/// A buffer that is no longer read is reused; the next stage waits for its last readers.
#[test]
fn consecutive_stages_share_memory() {
    let (a, c) = (global("A", &[8]), global("C", &[8]));
    let stages = ["S", "T", "U"].map(|name| buffer(name, &[8], Scope::Shared));
    let [tx] = vars(["threadIdx.x"]);
    let turned = [seven_minus(get(&tx))];
    let fill = |to: usize, from: Expr| produce("S", store(&stages[to], &[get(&tx)], from));
    let read = store(&c, &[get(&tx)], load(&stages[2], &turned));
    let last = allocate(&stages[2], block([fill(2, load(&stages[1], &turned)), read]));
    let middle = allocate(&stages[1], block([fill(1, load(&stages[0], &turned)), last]));
    let body = allocate(&stages[0], block([fill(0, load(&a, &[get(&tx)])), middle]));
    let kernel = kernel(&[&a], &[&c], produce("C", threads(&tx, 8, body)));
    let done = check_passes(&kernel, 3);
    let text = print_kernel(&done, Style::Full);
    assert_eq!(text.matches("allocate").count(), 2, "{text}");
    assert_eq!(check_barriers_are_needed(&done), 3, "{text}");
}

#[test]
fn a_warp_product_needs_all_its_threads() {
    let c = global("C", &[32]);
    let [tx, ty, k] = vars(["threadIdx.x", "threadIdx.y", "k"]);
    let body = store(&c, &[get(&tx)], float(1.0));
    let product =
        || Stmt::Tensorize { name: "mma_m16n8k16_bf16".to_string(), body: Box::new(body.clone()) };
    let launch = |inner| produce("C", threads(&ty, 2, threads(&tx, 32, inner)));
    let run = |inner| {
        let kernel = kernel(&[], &[&c], launch(inner));
        let kernel = after(&after(&kernel, "flatten_storage"), "hoist_threads");
        tec::lower::insert_barriers::insert_barriers(kernel, &super::passes::gpu())
    };
    // A condition, and a loop, that differ between the threads of one warp.
    let some = when(Expr::lt(get(&tx), int(16)), product());
    let kind = tec::ir::ForKind::Serial;
    let (var, min, extent) = (k.clone(), int(0), get(&tx));
    let often = Stmt::For { var, min, extent, kind, body: Box::new(product()) };
    for inner in [some, often] {
        let error = run(inner).expect_err("some lanes only");
        assert_eq!(error.code, "E0378");
        assert!(error.message.contains("only some threads of a warp"), "{error}");
    }
    // Different warps may take different branches.
    let warps = when(Expr::lt(get(&ty), int(1)), product());
    assert!(run(warps).is_ok());
    assert!(run(serial(&k, 4, product())).is_ok());
}

#[test]
fn guarded_reads_outside_of_the_region_need_no_barrier() {
    let (a, c) = (global("A", &[8]), global("C", &[8]));
    let s = buffer("S", &[16], Scope::Shared);
    let [tx] = vars(["threadIdx.x"]);
    let fill = |at: i64| {
        let value = load(&a, &[seven_minus(get(&tx))]);
        produce("S", store(&s, &[add(get(&tx), int(at))], value))
    };
    // The second half is filled while the first one is read in reverse, inside the first half only.
    let back = Expr::sub(int(11), get(&tx));
    let inside = Expr::lt(back.clone(), int(8));
    let value = Expr::if_then_else(inside, load(&s, &[back]), float(0.0));
    let read = store(&c, &[get(&tx)], value);
    let body = allocate(&s, block([fill(0), read, fill(8)]));
    let kernel = kernel(&[&a], &[&c], produce("C", threads(&tx, 8, body)));
    assert_eq!(check_barriers_are_needed(&check_passes(&kernel, 3)), 1);
}
