//! The link to a far side: a child process whose standard input and output are the connection.

use super::client::Link;
use super::frame::{Frame, FrameError, printable, skip_noise};
use crate::module::input::io_text;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The time until the hello: `ssh` connects, a job system finds a machine.
pub const HELLO_LIMIT: Duration = Duration::from_secs(60);
/// The longest silence of a far side. It says every second that it works on a request.
pub const SILENCE_LIMIT: Duration = Duration::from_secs(20);
/// Frames that wait for a reader. They bound the memory of a connection.
const WAITING: usize = 4;
/// Bytes of the standard error that are kept.
const KEPT_ERRORS: usize = 4096;
/// The time for a process to end by itself.
const END_LIMIT: Duration = Duration::from_millis(500);

/// A far side behind a command.
pub struct Process {
    child: Child,
    /// None when the connection ends.
    output: Option<SyncSender<Vec<u8>>>,
    input: Receiver<Result<Frame, FrameError>>,
    /// The end of its standard error.
    errors: Arc<Mutex<Vec<u8>>>,
    limits: Limits,
}

/// How long to wait.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For the hello.
    pub hello: Duration,
    /// For each other frame.
    pub silence: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { hello: HELLO_LIMIT, silence: SILENCE_LIMIT }
    }
}

impl Process {
    /// Starts a command in a shell.
    pub fn start(command: &str, limits: Limits) -> Result<Process, String> {
        let cannot = |error: std::io::Error| format!("cannot start it: {}", io_text(&error));
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(command);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C goes to this process only, which ends the far side.
        shell.process_group(0);
        let mut child = shell.spawn().map_err(cannot)?;
        let mut stdin = child.stdin.take().expect("it is piped");
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut stderr = child.stderr.take().expect("it is piped");
        // A thread for each direction: neither side waits for the other to read.
        let (output, pending) = sync_channel::<Vec<u8>>(WAITING);
        std::thread::spawn(move || {
            for bytes in pending {
                if stdin.write_all(&bytes).and_then(|()| stdin.flush()).is_err() {
                    break;
                }
            }
        });
        let (sender, input) = sync_channel(WAITING);
        std::thread::spawn(move || {
            if let Err(error) = skip_noise(&mut stdout) {
                let _ = sender.send(Err(error));
                return;
            }
            loop {
                let frame = Frame::read(&mut stdout);
                let last = frame.is_err();
                if sender.send(frame).is_err() || last {
                    break;
                }
            }
        });
        let errors = Arc::new(Mutex::new(Vec::new()));
        let kept = errors.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 1024];
            while let Ok(count @ 1..) = stderr.read(&mut bytes) {
                let mut kept = kept.lock().expect("no holder panics");
                kept.extend(&bytes[..count]);
                let extra = kept.len().saturating_sub(KEPT_ERRORS);
                kept.drain(..extra);
            }
        });
        Ok(Process { child, output: Some(output), input, errors, limits })
    }

    fn wait(&mut self, limit: Duration, what: &str) -> Result<Frame, String> {
        match self.input.recv_timeout(limit) {
            Ok(Ok(frame)) => Ok(frame),
            Ok(Err(error)) => Err(self.describe(error)),
            Err(RecvTimeoutError::Disconnected) => Err(self.describe(FrameError::Ended)),
            Err(RecvTimeoutError::Timeout) => {
                self.kill();
                let said = self.said().map_or(String::new(), |line| format!(": {line}"));
                Err(format!("{what} within {} s{said}", limit.as_secs_f64()))
            }
        }
    }

    fn describe(&mut self, error: FrameError) -> String {
        match error {
            FrameError::Ended | FrameError::Cut => format!("it ended{}", self.ending(None)),
            FrameError::NoMagic(line) => {
                let line = Some(line).filter(|line| !line.is_empty());
                format!("it ended without a hello{}", self.ending(line))
            }
            FrameError::Terminal => "a terminal between the two sides changes the bytes: with \
                                     `ssh`, leave out `-t`"
                .to_string(),
            FrameError::Damaged(what) => {
                format!("its answer is damaged ({what}): does something else write there?")
            }
            FrameError::Io(why) => format!("its answer cannot be read: {why}"),
        }
    }

    /// Describes how the process ended.
    fn ending(&mut self, printed: Option<String>) -> String {
        let status = self.await_end().map_or(String::new(), |status| format!(" ({status})"));
        let lines = [printed, self.said()].into_iter().flatten().map(|line| format!(": {line}"));
        status + &lines.collect::<String>()
    }

    fn await_end(&mut self) -> Option<std::process::ExitStatus> {
        let begin = Instant::now();
        while begin.elapsed() < END_LIMIT {
            if let Ok(Some(status)) = self.child.try_wait() {
                // What it said last may be on its way.
                std::thread::sleep(Duration::from_millis(20));
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        None
    }

    /// Returns the last line of its standard error.
    fn said(&self) -> Option<String> {
        let kept = self.errors.lock().expect("no holder panics");
        let text = String::from_utf8_lossy(&kept);
        let line = printable(text.trim().lines().last()?);
        (!line.is_empty()).then_some(line)
    }

    /// Ends the process and its children.
    fn kill(&mut self) {
        if let (Ok(None), Some(pid)) =
            (self.child.try_wait(), Pid::from_raw(self.child.id() as i32))
        {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Link for Process {
    fn send(&mut self, frame: &Frame) -> Result<(), String> {
        let mut bytes = frame.bytes();
        let begin = Instant::now();
        loop {
            let Some(output) = &self.output else { return Err("it ended".to_string()) };
            match output.try_send(bytes) {
                Ok(()) => return Ok(()),
                // It ended, or closed its input: what it said before is the reason.
                Err(TrySendError::Disconnected(_)) => {
                    return match self.input.recv_timeout(END_LIMIT) {
                        Ok(Err(error)) => Err(self.describe(error)),
                        _ => Err(format!("it ended{}", self.ending(None))),
                    };
                }
                Err(TrySendError::Full(_)) if begin.elapsed() > self.limits.silence => {
                    self.kill();
                    let seconds = self.limits.silence.as_secs_f64();
                    return Err(format!("it reads nothing within {seconds} s"));
                }
                Err(TrySendError::Full(back)) => {
                    bytes = back;
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
        }
    }

    fn receive(&mut self) -> Result<Frame, String> {
        self.wait(self.limits.silence, "it says nothing")
    }

    fn receive_hello(&mut self) -> Result<Frame, String> {
        self.wait(self.limits.hello, "there is no hello")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The end of its input ends the far side.
        self.output = None;
        self.await_end();
        self.kill();
    }
}
