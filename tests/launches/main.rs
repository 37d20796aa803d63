//! Launches, made by hand: what the interpreter says of races and of threads that do not meet, and
//! that the passes keep the results.

mod build;
mod interpreter;
