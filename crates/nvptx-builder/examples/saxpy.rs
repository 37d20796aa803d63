//! `Y[i] = a * X[i] + Y[i]`, four elements at once, for a type that is known at run time only:
//! `cargo run --example saxpy f64 sm_90`.

use nvptx_builder::*;

/// Builds the module. The number of elements is a multiple of four times the number of threads.
pub fn build(target: Target, ty: Ty) -> Result<Ptx, Errors> {
    let mut module = Module::new(target);
    let e = module.entry("saxpy");
    e.max_threads(128, 1, 1);
    let [x, y] = ["x", "y"].map(|name| e.param_pointer(name, 16));
    let a = e.param_as(ty, "a");
    // The elements of 16 bytes.
    let lanes = (16 / ty.bytes()) as usize;

    let a = e.ld_param_as(ty, &a);
    let (block, thread) = (e.special(Special::CtaidX), e.special(Special::TidX));
    let i = e.mad(block, 128u32, thread);
    let offset = e.mul_wide(i, 16u32);
    let [x, y] = [x, y].map(|param| {
        let pointer = e.ld_param::<U64>(&param);
        let pointer = e.cvta_to_global(pointer);
        e.add(pointer, offset)
    });
    let xs = e.ld_vec_as(ty, lanes, Ld::global().nc(), x);
    let ys = e.ld_vec_as(ty, lanes, Ld::global(), y);
    let sums: Vec<Reg> = xs.iter().zip(&ys).map(|(x, y)| e.fma(a, *x, *y)).collect();
    e.st_vec(St::global(), y, &sums);
    e.ret();
    module.finish()
}

#[allow(dead_code, reason = "the tests use `build` only")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let ty = match args.next().as_deref() {
        None | Some("f32") => Ty::F32,
        Some("f64") => Ty::F64,
        Some(other) => return Err(format!("`{other}` is neither f32 nor f64").into()),
    };
    let target = args.next().unwrap_or("sm_75".to_string());
    print!("{}", build(target.parse()?, ty)?.text);
    Ok(())
}
