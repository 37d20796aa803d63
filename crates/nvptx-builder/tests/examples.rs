//! `ptxas` accepts the output of the examples for every target with their instructions.

mod ptxas;

#[path = "../examples/block_sum.rs"]
mod block_sum;
#[path = "../examples/saxpy.rs"]
mod saxpy;
#[path = "../examples/tensor_core.rs"]
mod tensor_core;
#[path = "../examples/vector_add.rs"]
mod vector_add;

use nvptx_builder::*;

#[test]
fn ptxas_accepts_the_examples() {
    let Some(ptxas) = ptxas::find() else { return };
    for target in Target::all() {
        let mut texts = vec![
            vector_add::build(target),
            saxpy::build(target, Ty::F32),
            saxpy::build(target, Ty::F64),
            block_sum::build(target),
        ];
        if target.sm() >= 80 {
            texts.push(tensor_core::build(target));
        }
        for ptx in texts {
            let ptx = ptx.unwrap();
            if let Err(said) = ptxas::assemble(&ptxas, &ptx.text, &target.to_string()) {
                panic!("{target}:\n{said}\n{}", ptx.text);
            }
        }
    }
}

#[test]
fn versions_are_the_lowest() {
    let version = |ptx: Result<Ptx, Errors>| ptx.unwrap().version.to_string();
    assert_eq!(version(vector_add::build(Target::SM_75)), "6.3");
    assert_eq!(version(vector_add::build(Target::SM_90)), "7.8");
    assert_eq!(version(tensor_core::build(Target::SM_80)), "7.0");
    assert_eq!(version(block_sum::build(Target::SM_120)), "8.7");
}

#[test]
fn errors_name_what_a_target_lacks() {
    let errors = tensor_core::build(Target::SM_75).unwrap_err();
    let first = errors.0[0].to_string();
    assert_eq!(
        first,
        "entry `tensor_core`: `cp.async.cg.shared.global [%r3], [%rd6], 16` needs sm_80 or later, \
         the target is sm_75"
    );
}

#[test]
fn texts_have_named_registers_and_comments() {
    let text = vector_add::build(Target::SM_75).unwrap().text;
    assert!(text.starts_with("// C[i] = A[i] + B[i], one thread for each element\n.version 6.3\n"));
    assert!(text.contains("\t@%p0 bra $done;\n\t// each address is"));
}
