//! The sum of each block of 256 floats: loops, shared memory, barriers and shuffles:
//! `cargo run --example block_sum`.

use nvptx_builder::*;

const THREADS: u32 = 256;

/// Builds the module.
pub fn build(target: Target) -> Result<Ptx, Errors> {
    let mut module = Module::new(target);
    let e = module.entry("block_sum");
    e.max_threads(THREADS, 1, 1);
    let (input, output) = (e.param_pointer("input", 4), e.param_pointer("output", 4));
    let partial = e.shared::<F32>("partial", THREADS / 32, 4);

    let thread = e.special(Special::TidX);
    let block = e.special(Special::CtaidX);
    let i = e.mad(block, THREADS, thread);
    let base = e.ld_param::<U64>(&input);
    let base = e.cvta_to_global(base);
    let address = e.mad_wide(i, 4u32, base);
    let sum = e.reg_named::<F32>("sum");
    e.to(sum).ld::<F32>(Ld::global().nc(), address);

    e.comment("each warp by itself");
    for lanes in [16u32, 8, 4, 2, 1] {
        let other = e.shfl(Shuffle::Bfly, sum, lanes, 31u32, u32::MAX);
        e.to(sum).add(sum, other);
    }
    let lane = e.special(Special::LaneId);
    let first_lane = e.setp(Cmp::Eq, lane, 0u32);
    let warp = e.shr(thread, 5u32);
    let base = e.address_of_shared(&partial);
    let slot = e.mad(warp, 4u32, base);
    e.when(first_lane, |e| e.st(St::shared(), slot, sum));
    e.bar_sync(0);

    e.comment("the first thread: all warps");
    let done = e.label("done");
    let others = e.setp(Cmp::Ne, thread, 0u32);
    e.when(others, |e| e.bra(done));
    let (next, end) = (e.label("warp"), e.add(base, THREADS / 32 * 4));
    let pointer = e.reg_named::<U32>("pointer");
    e.to(pointer).mov(base);
    e.to(sum).mov(0f32);
    e.place(next);
    let x = e.ld::<F32>(Ld::shared(), pointer);
    e.to(sum).add(sum, x);
    e.to(pointer).add(pointer, 4u32);
    let more = e.setp(Cmp::Lt, pointer, end);
    e.when(more, |e| e.bra(next));
    let base = e.ld_param::<U64>(&output);
    let base = e.cvta_to_global(base);
    let address = e.mad_wide(block, 4u32, base);
    e.st(St::global(), address, sum);
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
