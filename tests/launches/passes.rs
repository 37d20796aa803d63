//! A launch after every pass: the same results in every order of threads, no race, and no
//! unnecessary barrier.

use super::build::{outputs, verified};
use tec::driver::PASSES;
use tec::ir::print::{Style, print_kernel};
use tec::ir::verify::verify_kernel;
use tec::ir::visit::map_stmts;
use tec::ir::{Kernel, Stmt};
use tec::target::Target;

pub fn gpu() -> Target {
    Target::parse("nvptx-sm_80").expect("a target")
}

/// Returns the kernel after the pass of this name.
pub fn after(kernel: &Kernel, name: &str) -> Kernel {
    let pass = PASSES.iter().find(|pass| pass.name == name).expect("a pass");
    (pass.run)(kernel.clone(), &gpu()).expect("nothing is refused")
}

/// Runs every pass, compares all results with those of the kernel, and gives the final form.
pub fn check_passes(kernel: &Kernel, opt: u8) -> Kernel {
    let expected = verified(kernel);
    check_passes_against(kernel, opt, &expected)
}

/// As [`check_passes`], with known results.
pub fn check_passes_against(kernel: &Kernel, opt: u8, expected: &[Vec<f32>]) -> Kernel {
    let original = print_kernel(kernel, Style::Full);
    let mut kernel = kernel.clone();
    for pass in PASSES.iter().filter(|pass| pass.runs(&gpu(), opt)) {
        let before = print_kernel(&kernel, Style::Full);
        kernel = (pass.run)(kernel, &gpu()).expect("nothing is refused");
        let after = print_kernel(&kernel, Style::Full);
        let name = pass.name;
        let texts = || format!("first:\n{original}\nbefore:\n{before}\nafter:\n{after}");
        verify_kernel(&kernel).unwrap_or_else(|error| panic!("{name}: {error}\n{}", texts()));
        let results = outputs(&kernel);
        let results = results.unwrap_or_else(|trap| panic!("{name}: {trap}\n{}", texts()));
        let bits = |lists: &[Vec<f32>]| -> Vec<Vec<u32>> {
            let bits = |list: &Vec<f32>| list.iter().map(|value| value.to_bits()).collect();
            lists.iter().map(bits).collect()
        };
        assert_eq!(bits(&results), bits(expected), "{name}\n{}", texts());
    }
    kernel
}

/// Returns the number of barriers in the text of a kernel.
pub fn count_barriers(kernel: &Kernel) -> usize {
    let mut count = 0;
    let mut see = |stmt: &Stmt| count += usize::from(matches!(stmt, Stmt::Barrier));
    tec::ir::visit::walk_stmt(&kernel.body, &mut see, &mut |_| {});
    count
}

/// Returns the kernel without its barrier of this number.
fn without_barrier(kernel: &Kernel, number: usize) -> Kernel {
    fn drop_one(stmt: Stmt, left: &mut isize) -> Stmt {
        match stmt {
            Stmt::Barrier => {
                *left -= 1;
                if *left == -1 { Stmt::nothing() } else { Stmt::Barrier }
            }
            other => map_stmts(other, &mut |inner| drop_one(inner, left)),
        }
    }
    let body = drop_one(kernel.body.clone(), &mut (number as isize));
    Kernel { body, ..kernel.clone() }
}

/// Checks that removing any one barrier causes a race. Returns the number of barriers.
pub fn check_barriers_are_needed(kernel: &Kernel) -> usize {
    let count = count_barriers(kernel);
    for number in 0..count {
        let broken = without_barrier(kernel, number);
        assert_eq!(count_barriers(&broken), count - 1);
        if outputs(&broken).is_ok() {
            let text = print_kernel(kernel, Style::Full);
            panic!("barrier {number} of {count} is not needed:\n{text}");
        }
    }
    count
}
