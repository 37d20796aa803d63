//! Compiles the kernels and links them into the program.

fn main() -> Result<(), tec_build::Error> {
    let mut saxpy = tec_build::Config::new();
    if std::env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("x86_64") {
        // The program runs the code for the most capable target that its CPU supports.
        saxpy.targets(["x86-avx512", "x86-avx2", "x86-64"]);
        // All of them round alike; `x86-64` has no fused multiply-add and would compute it slowly.
        saxpy.fp_contract(false);
    }
    saxpy.compile("kernels/saxpy.te")?;
    tec_build::Config::new().define("classes", 10).prepack("W").compile("kernels/dense.te")
}
