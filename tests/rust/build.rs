//! Compiles kernels with every kind of argument.

fn main() -> Result<(), tec_build::Error> {
    tec_build::compile("kernels/kinds.te")?;
    // The name of a keyword.
    tec_build::Config::new().module("match").compile("kernels/names.te")?;
    let mut packed = tec_build::Config::new();
    packed.prepack("B").prepack("C").schedule("packed").compile("kernels/packed.te")
}
