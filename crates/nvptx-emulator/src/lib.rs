//! Runs PTX text without a GPU and reports what is wrong with it, by line.
//!
//! `ptxas` checks syntax and types. This crate runs the kernel and finds errors that only a run
//! shows: races in shared and global memory, missing and divergent barriers, misaligned and
//! out-of-bounds accesses, uninitialised reads, outputs never written, and `cp.async` data that is
//! used too early. It also counts instructions, bank conflicts and memory sectors.
//!
//! Text that is not supported is an [`Error`] with its line; nothing is skipped or guessed.
//!
//! * [`Module`] parses PTX text,
//! * [`Memory`] holds the buffers of all launches,
//! * [`Launch`] runs a kernel,
//! * [`Report`] has the findings and counters.
//!
//! ```
//! use nvptx_emulator::{FindingKind, Launch, Memory, Module};
//!
//! // Every thread passes a value to its neighbour through shared memory, without a barrier.
//! let text = "
//!     .version 7.0
//!     .target sm_75
//!     .address_size 64
//!     .visible .entry rotate(.param .u64 out) {
//!         .shared .align 4 .b8 tile[256];
//!         .reg .b32 %r<6>; .reg .b64 %rd<4>;
//!         ld.param.u64 %rd0, [out];
//!         mov.u32 %r0, %tid.x;
//!         shl.b32 %r1, %r0, 2;
//!         mov.u32 %r2, tile;
//!         add.s32 %r3, %r2, %r1;
//!         st.shared.u32 [%r3], %r0;
//!         xor.b32 %r4, %r3, 4;
//!         ld.shared.u32 %r5, [%r4];
//!         cvt.u64.u32 %rd1, %r1;
//!         add.s64 %rd2, %rd0, %rd1;
//!         st.global.u32 [%rd2], %r5;
//!         ret;
//!     }";
//! let module = Module::parse(text)?;
//! let mut memory = Memory::new();
//! let out = memory.output("out", 256);
//! let launch = Launch::new(&module, "rotate").block([64, 1, 1]).buffer(out);
//! let report = launch.run(&mut memory)?;
//! let race = report.of(FindingKind::SharedRace).next().expect("there is a race");
//! assert_eq!((race.line, race.other_line), (Some(15), Some(13)));
//!
//! // With a barrier there is no finding.
//! let fixed = text.replace("xor.b32", "bar.sync 0; xor.b32");
//! let module = Module::parse(&fixed)?;
//! let launch = Launch::new(&module, "rotate").block([64, 1, 1]).buffer(out);
//! let report = launch.run(&mut memory)?;
//! assert!(report.is_clean(), "{report}");
//! assert_eq!(memory.read::<u32>(out)[..4], [1, 0, 3, 2]);
//! # Ok::<(), nvptx_emulator::Error>(())
//! ```

mod conflicts;
mod counters;
mod decode;
mod error;
mod exec;
mod float;
mod lanes;
mod launch;
mod memory;
mod needs;
mod parse;
mod report;
mod shadow;
mod ty;

pub use counters::{Counters, InstructionCount};
pub use error::Error;
pub use launch::{Launch, MAX_STATIC_SHARED, MAX_THREADS, Module};
pub use memory::{Access, BufferId, Element, Memory};
pub use report::{Finding, FindingKind, Report};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
