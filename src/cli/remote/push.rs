//! `--push`: copies `tec` to a machine that a command reaches, unless it is there.
//!
//! Each step is the command with the words of one program behind it, none of which a shell changes:
//! `ssh` joins them and has them split again, `docker exec` hands them on. The copy lies under its
//! hash below the folder in which the commands start there, the home directory for `ssh`.

use super::client::{FarError, FarResult};
use super::frame::printable;
use crate::module::input::io_text;
use rustix::process::{Pid, Signal, kill_process_group};
use sha2::{Digest, Sha256};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The folder of the copies.
const FOLDER: &str = ".cache/tec/bin";
/// The longest time of the copy itself.
const COPY_LIMIT: Duration = Duration::from_secs(1800);
/// Bytes of an answer that are kept.
const KEPT: u64 = 1 << 16;

/// The option of the commands that have `--on`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct PushArgs {
    /// Copy `tec` to the machine first, unless it is there: this program, or FILE.
    ///
    /// It lies in `.cache/tec/bin` below the folder in which the command starts programs there, and
    /// needs `mkdir`, `dd`, `sha256sum`, `chmod`, `mv` and `uname` (docs/REMOTE.md).
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    #[arg(requires = "on")]
    push: Option<Option<PathBuf>>,
}

impl PushArgs {
    /// Returns the command that starts the far side, after copying `tec` there if asked to.
    pub fn command(&self, command: &str, limit: Duration) -> FarResult<String> {
        let Some(file) = &self.push else { return Ok(command.to_string()) };
        let file = match file {
            Some(file) => file.clone(),
            None => std::env::current_exe().map_err(|error| {
                FarError::Lost(format!("`--push`: this program is not found: {error}"))
            })?,
        };
        push(command, &file, limit)
    }
}

/// Copies a program to a machine, and returns the command that starts the far side with it.
fn push(command: &str, file: &Path, limit: Duration) -> FarResult<String> {
    if command.contains("serve --stdio") {
        let text = "`--push` chooses what is started there: leave out `serve --stdio`";
        return Err(FarError::Lost(text.to_string()));
    }
    let bytes = std::fs::read(file).map_err(|error| {
        FarError::Lost(format!("`--push={}`: {}", file.display(), io_text(&error)))
    })?;
    let wanted = machine_of(&bytes).ok_or_else(|| {
        FarError::Lost(format!("`--push={}`: it is no program of Linux", file.display()))
    })?;
    let hash: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let there = format!("{FOLDER}/tec-{}", &hash[..32]);
    let serve = format!("{command} {there} serve --stdio");
    let run = |words: &str| step(command, words, None, limit);
    if run(&format!("{there} --version")).is_ok_and(|said| said.starts_with("tec ")) {
        return Ok(serve);
    }
    let machine = run("uname -m").map_err(FarError::Lost)?;
    if !machine.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        let text = "it does not start `uname`: a key or a login that only starts `tec serve` \
                    needs no `--push`";
        return Err(FarError::Machine(text.to_string()));
    }
    if machine != wanted {
        return Err(FarError::Machine(format!(
            "its processor is `{machine}`, and {} is for `{wanted}`: name a `tec` for it, \
             `--push=FILE`",
            file.display()
        )));
    }
    eprintln!("note: copying {} MB to `{command}`", bytes.len().div_ceil(1_000_000));
    let part = format!("{there}.{}", std::process::id());
    run(&format!("mkdir -p {FOLDER}")).map_err(FarError::Machine)?;
    let copy = format!("dd of={part} bs=65536");
    step(command, &copy, Some(bytes), COPY_LIMIT).map_err(FarError::Machine)?;
    let sum = run(&format!("sha256sum {part}")).map_err(FarError::Machine)?;
    if sum.split_whitespace().next() != Some(&hash[..]) {
        return Err(FarError::Lost("the copy of tec has other bytes".to_string()));
    }
    run(&format!("chmod 700 {part}")).map_err(FarError::Machine)?;
    run(&format!("mv -f {part} {there}")).map_err(FarError::Machine)?;
    let version = run(&format!("{there} --version"));
    version.map_err(|why| {
        FarError::Machine(format!(
            "the copy of tec does not start there: {why}; a `tec` that is linked with musl needs \
             no libraries, `--push=FILE`"
        ))
    })?;
    Ok(serve)
}

/// Returns what `uname -m` prints on the machines that a program is for.
fn machine_of(program: &[u8]) -> Option<&'static str> {
    // The ELF header: magic number, 64 bits, little end first; the machine at byte 18.
    if program.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    match u16::from_le_bytes([*program.get(18)?, *program.get(19)?]) {
        62 => Some("x86_64"),
        183 => Some("aarch64"),
        243 => Some("riscv64"),
        _ => None,
    }
}

/// Runs a program on the machine, with `input` as its standard input, and returns the last line
/// that it prints. Errors are sentences.
fn step(
    command: &str,
    words: &str,
    input: Option<Vec<u8>>,
    limit: Duration,
) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("cannot start it: {}", io_text(&error));
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(format!("{command} {words}"));
    shell.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    shell.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = shell.spawn().map_err(cannot)?;
    // Threads write and read, so that no side waits for the other.
    if let (Some(mut pipe), Some(bytes)) = (child.stdin.take(), input) {
        std::thread::spawn(move || pipe.write_all(&bytes));
    }
    let said = last_line(child.stdout.take().expect("it is piped"));
    let errors = last_line(child.stderr.take().expect("it is piped"));
    let program = words.split(' ').next().unwrap_or(words);
    let Some(succeeded) = wait(&mut child, limit) else {
        return Err(format!("`{program}` does not end within {} s", limit.as_secs_f64()));
    };
    // A process in the background may keep the pipes open.
    let line = |reader: JoinHandle<String>| {
        let begin = Instant::now();
        while !reader.is_finished() && begin.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(2));
        }
        if reader.is_finished() { reader.join().unwrap_or_default() } else { String::new() }
    };
    let (said, errors) = (line(said), line(errors));
    match succeeded {
        true => Ok(said),
        false => {
            let why = if errors.is_empty() { said } else { errors };
            Err(format!("`{program}` fails{}{why}", if why.is_empty() { "" } else { ": " }))
        }
    }
}

/// Reads a pipe to its end, and returns the last line that is not empty.
fn last_line(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = (&mut pipe).take(KEPT).read_to_end(&mut bytes);
        let _ = std::io::copy(&mut pipe, &mut std::io::sink());
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let lines = text.lines().rev().map(printable);
        lines.map(|line| line.trim().to_string()).find(|line| !line.is_empty()).unwrap_or_default()
    })
}

/// Waits for the end of a process, and returns whether it succeeded; ends it after the limit.
fn wait(child: &mut Child, limit: Duration) -> Option<bool> {
    let begin = Instant::now();
    while begin.elapsed() < limit {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status.success());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    if let Some(pid) = Pid::from_raw(child.id() as i32) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
    let _ = child.wait();
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_linux_are_told_apart() {
        let program = |machine: u16| {
            let mut bytes = b"\x7fELF\x02\x01".to_vec();
            bytes.resize(18, 0);
            bytes.extend(machine.to_le_bytes());
            bytes
        };
        assert_eq!(machine_of(&program(62)), Some("x86_64"));
        assert_eq!(machine_of(&program(183)), Some("aarch64"));
        assert_eq!(machine_of(&program(243)), Some("riscv64"));
        assert_eq!(machine_of(&program(3)), None);
        assert_eq!(machine_of(b"#!/bin/sh"), None);
        assert_eq!(machine_of(b"\x7fELF\x02\x01"), None);
    }

    #[test]
    fn the_last_line_counts_and_errors_are_sentences() {
        let limit = Duration::from_secs(20);
        let run = |words: &str| step("", words, None, limit);
        assert_eq!(run("printf 'hello\\nx86_64\\n\\n'"), Ok("x86_64".to_string()));
        assert_eq!(step("", "cat", Some(b"abc".to_vec()), limit), Ok("abc".to_string()));
        let failed = run("ls /nowhere-at-all").expect_err("there is no such folder");
        assert!(failed.starts_with("`ls` fails: "), "{failed}");
        let late = step("", "sleep 30", None, Duration::from_millis(50));
        assert_eq!(late, Err("`sleep` does not end within 0.05 s".to_string()));
    }
}
