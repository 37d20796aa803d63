//! Compiles the kernels of this crate.

fn main() -> Result<(), tec_build::Error> {
    tec_build::compile("kernels/saxpy.te")
}
