//! `C[i] = A[i] + B[i]` for `n` elements, printed: `cargo run --example vector_add sm_80`.

use nvptx_builder::*;

/// Builds the module.
pub fn build(target: Target) -> Result<Ptx, Errors> {
    let mut module = Module::new(target);
    module.comment("C[i] = A[i] + B[i], one thread for each element");
    let e = module.entry("vector_add");
    e.max_threads(256, 1, 1);
    let [a, b, c] = ["a", "b", "c"].map(|name| e.param_pointer(name, 4));
    let n = e.param::<S32>("n");

    let n = e.ld_param::<S32>(&n);
    let (block, thread) = (e.special(Special::CtaidX), e.special(Special::TidX));
    let i = e.mad(block, 256u32, thread).s32();
    let outside = e.setp(Cmp::Ge, i, n);
    let done = e.label("done");
    e.when(outside, |e| e.bra(done));

    e.comment("each address is 4 * i bytes after its pointer");
    let offset = e.mul_wide(i, 4i32).u64();
    let [pa, pb, pc] = [a, b, c].map(|param| {
        let pointer = e.ld_param::<U64>(&param);
        let pointer = e.cvta_to_global(pointer);
        e.add(pointer, offset)
    });
    let x = e.ld::<F32>(Ld::global().nc(), pa);
    let y = e.ld::<F32>(Ld::global().nc(), pb);
    let sum = e.add(x, y);
    e.st(St::global(), pc, sum);
    e.place(done);
    e.ret();
    module.finish()
}

#[allow(dead_code, reason = "the tests use `build` only")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let target = std::env::args().nth(1).unwrap_or("sm_75".to_string());
    print!("{}", build(target.parse()?)?.text);
    Ok(())
}
