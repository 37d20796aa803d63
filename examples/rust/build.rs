//! Compiles the kernels and links them into the program.

fn main() -> Result<(), tec_build::Error> {
    tec_build::compile("kernels/saxpy.te")?;
    tec_build::Config::new().define("classes", 10).prepack("W").compile("kernels/dense.te")
}
