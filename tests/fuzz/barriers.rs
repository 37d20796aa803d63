//! Barriers of random launches: if any one is removed, the interpreter must find a race.
//!
//! Some races do not happen with every run-time size: a loop that runs once has no next iteration,
//! and a thread beyond the end reads nothing. Some barriers may therefore be unnecessary in a run,
//! and the test limits their share.

use crate::differential;
use crate::run::{Setup, Source};
use tec::driver::{self, Options, Trace, with_stack};
use tec::ir::interp::Trap;
use tec::ir::print::{Style, print_kernel};
use tec::ir::visit::map_stmts;
use tec::ir::{Kernel, Stmt};
use tec::target::Target;

/// The largest share of barriers that may be unnecessary, in percent. It is 12 % over 1,200
/// programs.
const MAX_UNNECESSARY_PERCENT: u64 = 20;

/// The barriers of a program that are removed, so that one program does not decide a run of 240,
/// which has about 110.
const MAX_BARRIERS: usize = 4;

/// Removes the barriers of `n` programs one at a time; panics if too many are unnecessary.
pub fn are_needed(n: u64, seed: u64) {
    let (mut needed, mut unnecessary, mut shown) = (0u64, 0u64, Vec::new());
    with_stack(|| {
        crate::damage::be_quiet();
        let target = Target::parse("nvptx-sm_80").expect("a target");
        for number in 0..n {
            let program = Source::Threads.program(seed, number);
            let setup = Setup { program, options: Options::new(target.clone()) };
            let Ok(interpreted) = differential::interpret(&setup.case(), &setup.options()) else {
                continue;
            };
            if interpreted.expected.is_err() {
                continue;
            }
            for barrier in 0..MAX_BARRIERS {
                let Some(broken) = without(&interpreted.kernel, barrier) else { break };
                let mut args = interpreted.args.clone();
                match driver::interpret(&broken, &mut args, &mut Trace::default()) {
                    Ok(Err(Trap::Bug(_))) => needed += 1,
                    Ok(_) => {
                        unnecessary += 1;
                        shown.push((
                            number,
                            barrier,
                            print_kernel(&interpreted.kernel, Style::Full),
                        ));
                    }
                    Err(failure) => panic!("program {number}: {failure:?}"),
                }
            }
        }
    });
    let rate = needed as f64 * 100.0 / (needed + unnecessary).max(1) as f64;
    println!("{needed} barriers needed, {unnecessary} unnecessary: {rate:.1} %");
    if std::env::var_os("TEC_FUZZ_SHOW").is_some() {
        for (number, barrier, text) in &shown {
            println!("program {number}, barrier {barrier}:\n{text}");
        }
    }
    assert!(n < 100 || needed >= n / 10, "{needed} barriers in {n} programs");
    assert!(
        unnecessary * 100 <= (needed + unnecessary) * MAX_UNNECESSARY_PERCENT,
        "{unnecessary} of {} are unnecessary",
        needed + unnecessary
    );
}

/// Returns the kernel without barrier `number`, if it has so many.
fn without(kernel: &Kernel, number: usize) -> Option<Kernel> {
    fn drop_one(stmt: Stmt, left: &mut Option<usize>) -> Stmt {
        match (stmt, *left) {
            (Stmt::Barrier, Some(0)) => {
                *left = None;
                Stmt::nothing()
            }
            (Stmt::Barrier, Some(more)) => {
                *left = Some(more - 1);
                Stmt::Barrier
            }
            (other, _) => map_stmts(other, &mut |inner| drop_one(inner, left)),
        }
    }
    let mut left = Some(number);
    let body = drop_one(kernel.body.clone(), &mut left);
    left.is_none().then(|| Kernel { body, ..kernel.clone() })
}
