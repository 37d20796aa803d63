//! `--on`: kernels that are compiled here and run on another machine, by `tec serve` there.
//!
//! [`frame`] has the bytes of the connection, [`message`] the requests and replies, [`store`] the
//! files that are not sent twice. [`client`] is the near side over a [`client::Link`], [`process`]
//! the link that a command makes, [`on`] the option, [`push`] the copy of `tec` that it may start.
//! `cli::serve` is the far side.

pub mod client;
pub mod frame;
pub mod message;
pub mod on;
pub mod process;
pub mod push;
pub mod store;
