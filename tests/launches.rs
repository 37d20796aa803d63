//! Launches: what the interpreter says of races and of threads that do not meet, and that the
//! passes keep the results, of launches made by hand, of random ones and of scheduled kernels.

mod barriers;
mod build;
mod interpreter;
mod passes;
mod random;
mod scheduled;
