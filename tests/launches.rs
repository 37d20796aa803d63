//! Launches: the interpreter finds races and divergent barriers, and the passes keep the results of
//! hand-made launches, random launches and scheduled kernels.

mod barriers;
mod build;
mod interpreter;
mod passes;
mod random;
mod scheduled;
