//! A 16×8 product of bf16 matrices by one warp: `cp.async`, `ldmatrix` and `mma.sync`:
//! `cargo run --example tensor_core sm_80`.

use nvptx_builder::*;

/// `D[16, 8] = A[16, 16] B[8, 16]ᵀ`, D in float32, all row-major.
pub fn build(target: Target) -> Result<Ptx, Errors> {
    let mut module = Module::new(target);
    let e = module.entry("tensor_core");
    e.max_threads(32, 1, 1);
    let [a, b, d] = ["a", "b", "d"].map(|name| e.param_pointer(name, 16));
    let tile_a = e.shared::<Bf16>("tile_a", 16 * 16, 16);
    let tile_b = e.shared::<Bf16>("tile_b", 8 * 16, 16);
    let [a, b, d] = [a, b, d].map(|param| {
        let pointer = e.ld_param::<U64>(&param);
        e.cvta_to_global(pointer)
    });

    e.comment("A has 32 pieces of 16 bytes, B has 16");
    let lane = e.special(Special::LaneId);
    let (base_a, base_b) = (e.address_of_shared(&tile_a), e.address_of_shared(&tile_b));
    let (to_a, to_b) = (e.mad(lane, 16u32, base_a), e.mad(lane, 16u32, base_b));
    let (from_a, from_b) = (e.mad_wide(lane, 16u32, a), e.mad_wide(lane, 16u32, b));
    e.cp_async(CpAsync::cg(), to_a, from_a);
    let has_b = e.setp(Cmp::Lt, lane, 16u32);
    e.when(has_b, |e| e.cp_async(CpAsync::cg(), to_b, from_b));
    e.cp_async_commit_group();
    e.cp_async_wait_group(0);
    e.bar_sync(0);

    e.comment("lane l names row l % 16 of A, columns 0 or 8; row l % 8 of B, columns 0 or 8");
    let row = e.and(lane, 15u32);
    let half = e.shr(lane, 4u32);
    let address = e.mad(row, 32u32, base_a);
    let address = e.mad(half, 16u32, address);
    let fragment_a = e.ldmatrix::<4>(false, address);
    let row = e.and(lane, 7u32);
    let half = e.bfe(lane, 3u32, 1u32);
    let address = e.mad(row, 32u32, base_b);
    let address = e.mad(half, 16u32, address);
    let fragment_b = e.ldmatrix::<2>(false, address);
    let acc: Vec<Reg<F32>> = (0..4).map(|_| e.mov(0f32)).collect();
    e.to_all(&acc).mma(Mma::BF16, &fragment_a, &fragment_b, &acc);

    e.comment("lane l holds columns 2 * (l % 4) and the next of rows l / 4 and l / 4 + 8");
    let (row, pair) = (e.shr(lane, 2u32), e.and(lane, 3u32));
    let address = e.mad_wide(row, 32u32, d);
    let address = e.mad_wide(pair, 8u32, address);
    e.st_vec(St::global(), address, &acc[..2]);
    e.st_vec(St::global(), address.at(8 * 32), &acc[2..]);
    e.ret();
    module.finish()
}

#[allow(dead_code, reason = "the tests use `build` only")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let target = std::env::args().nth(1).unwrap_or("sm_80".to_string());
    print!("{}", build(target.parse()?)?.text);
    Ok(())
}
