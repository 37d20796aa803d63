//! Says which program of a run takes long: a cliff of a schedule or of the compiler itself.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

/// The time after which a program is shown.
const LONG: Duration = Duration::from_secs(30);

/// Shows a program on standard output if this lives longer than [`LONG`].
pub struct Watch {
    done: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub fn start(text: String) -> Watch {
        let (done, waits) = channel();
        let thread = spawn(move || {
            if waits.recv_timeout(LONG) == Err(RecvTimeoutError::Timeout) {
                println!("takes over {} s:\n{text}", LONG.as_secs());
            }
        });
        Watch { done, thread: Some(thread) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // The thread is gone if it has shown the program.
        let _ = self.done.send(());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it does not panic");
        }
    }
}
