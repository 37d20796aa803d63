//! Frames: the bytes between `tec --on` and `tec serve`.
//!
//! The far side first writes [`MAGIC`]; what a login shell prints before it is skipped. Then both
//! sides write frames: the length of the payload (32 bits, little-endian), the kind (8 bits), a
//! checksum (32 bits), the payload, a line feed. The checksum finds text that something else writes
//! between frames; `ssh` protects the bytes on their way. The line feed is for programs such as
//! `srun`, which hand on whole lines.

use sha2::{Digest, Sha256};
use std::io::{self, ErrorKind, Read, Write};

/// The word before the first frame. Its end shows whether a terminal changes the bytes.
pub const MAGIC: &[u8] = b"\x02tec serve\x03\r\n\x1a\n\0";
/// The bytes of [`MAGIC`] that no terminal changes.
const WORD: usize = 11;
/// Most bytes before [`MAGIC`].
pub const MAX_NOISE: usize = 1 << 20;
/// Most bytes of a message.
pub const MAX_MESSAGE: usize = 4 << 20;
/// Most bytes of a piece of a file.
pub const MAX_DATA: usize = 256 << 10;

/// A frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Frame {
    /// A message, as JSON.
    Message(Vec<u8>),
    /// A piece of a file.
    Data(Vec<u8>),
    /// The far side works on a request.
    Alive,
}

/// Why there is no frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FrameError {
    /// The bytes end between frames.
    Ended,
    /// The bytes end inside of a frame.
    Cut,
    /// They are no frame, with the reason.
    Damaged(String),
    /// [`MAGIC`] does not come, with the last line that came instead.
    NoMagic(String),
    /// A terminal changes the bytes.
    Terminal,
    /// Reading failed.
    Io(String),
}

impl Frame {
    fn parts(&self) -> (u8, &[u8]) {
        match self {
            Frame::Message(payload) => (1, payload),
            Frame::Data(payload) => (2, payload),
            Frame::Alive => (3, &[]),
        }
    }

    /// Returns the bytes of the frame.
    ///
    /// # Panics If the payload is longer than its limit.
    pub fn bytes(&self) -> Vec<u8> {
        let (kind, payload) = self.parts();
        assert!(payload.len() <= limit_of(kind), "a frame of {} bytes", payload.len());
        let mut bytes = Vec::with_capacity(10 + payload.len());
        bytes.extend((payload.len() as u32).to_le_bytes());
        bytes.push(kind);
        bytes.extend(checksum(kind, payload));
        bytes.extend(payload);
        bytes.push(b'\n');
        bytes
    }

    /// Writes the frame.
    pub fn write(&self, output: &mut dyn Write) -> io::Result<()> {
        output.write_all(&self.bytes())?;
        output.flush()
    }

    /// Reads a frame.
    pub fn read(input: &mut dyn Read) -> Result<Frame, FrameError> {
        let mut head = [0; 9];
        match fill(input, &mut head)? {
            0 => return Err(FrameError::Ended),
            9 => {}
            _ => return Err(FrameError::Cut),
        }
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let kind = head[4];
        if length > limit_of(kind) {
            let text = format!("a frame of kind {kind} and {length} bytes");
            return Err(FrameError::Damaged(text));
        }
        let mut payload = vec![0; length + 1];
        if fill(input, &mut payload)? != length + 1 {
            return Err(FrameError::Cut);
        }
        if payload.pop() != Some(b'\n') {
            return Err(FrameError::Damaged("a frame without an end".to_string()));
        }
        if checksum(kind, &payload) != head[5..] {
            return Err(FrameError::Damaged("a frame with a wrong checksum".to_string()));
        }
        Ok(match kind {
            1 => Frame::Message(payload),
            2 => Frame::Data(payload),
            _ => Frame::Alive,
        })
    }
}

/// Most bytes of a payload. A kind that does not exist has a negative limit, so to speak: its frame
/// is refused by its checksum.
fn limit_of(kind: u8) -> usize {
    match kind {
        1 => MAX_MESSAGE,
        2 => MAX_DATA,
        _ => 0,
    }
}

fn checksum(kind: u8, payload: &[u8]) -> [u8; 4] {
    let hash = Sha256::new().chain_update([kind]).chain_update(payload).finalize();
    [hash[0], hash[1], hash[2], hash[3]]
}

/// Reads until the buffer is full or the bytes end; returns how many were read.
fn fill(input: &mut dyn Read, buffer: &mut [u8]) -> Result<usize, FrameError> {
    let mut count = 0;
    while count < buffer.len() {
        match input.read(&mut buffer[count..]) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(FrameError::Io(crate::module::input::io_text(&error))),
        }
    }
    Ok(count)
}

/// Reads until [`MAGIC`].
pub fn skip_noise(input: &mut dyn Read) -> Result<(), FrameError> {
    let mut noise = Vec::new();
    loop {
        let mut byte = [0];
        if fill(input, &mut byte)? == 0 {
            return Err(FrameError::NoMagic(last_line(&noise)));
        }
        noise.push(byte[0]);
        if noise.ends_with(&MAGIC[..WORD]) {
            let mut rest = vec![0; MAGIC.len() - WORD];
            return match fill(input, &mut rest)? {
                count if count < rest.len() => Err(FrameError::Cut),
                _ if rest != MAGIC[WORD..] => Err(FrameError::Terminal),
                _ => Ok(()),
            };
        }
        if noise.len() > MAX_NOISE {
            return Err(FrameError::NoMagic(last_line(&noise)));
        }
    }
}

/// Returns the last line of some output, for a message.
fn last_line(bytes: &[u8]) -> String {
    let tail = &bytes[bytes.len().saturating_sub(400)..];
    let text = String::from_utf8_lossy(tail);
    printable(text.trim().lines().last().unwrap_or_default())
}

/// Returns a text of the far side without control characters, which could change the terminal, and
/// with at most 300 characters.
pub fn printable(text: &str) -> String {
    let kept = text.chars().map(|char| if char.is_control() { ' ' } else { char });
    kept.take(300).collect::<String>().trim().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> Vec<Frame> {
        vec![
            Frame::Message(b"{}".to_vec()),
            Frame::Data(vec![7; MAX_DATA]),
            Frame::Alive,
            Frame::Data(Vec::new()),
        ]
    }

    #[test]
    fn frames_survive_the_way_behind_noise() {
        let mut bytes = b"Welcome!\n\x02tec serve\n\x1b[31mmotd".to_vec();
        bytes.extend(MAGIC);
        frames().iter().for_each(|frame| bytes.extend(frame.bytes()));
        let mut input = &bytes[..];
        assert_eq!(skip_noise(&mut input), Ok(()));
        for frame in frames() {
            assert_eq!(Frame::read(&mut input), Ok(frame));
        }
        assert_eq!(Frame::read(&mut input), Err(FrameError::Ended));
    }

    #[test]
    fn every_changed_byte_of_a_short_frame_is_noticed() {
        let bytes = Frame::Message(b"{\"a\":1}".to_vec()).bytes();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                assert!(Frame::read(&mut &changed[..]).is_err(), "bit {bit} of byte {at}");
            }
            let cut = Frame::read(&mut &bytes[..at]);
            assert_eq!(cut, Err(if at == 0 { FrameError::Ended } else { FrameError::Cut }));
        }
    }

    #[test]
    fn a_missing_or_changed_magic_word_is_described() {
        let said = |bytes: &[u8]| skip_noise(&mut { bytes });
        let last = FrameError::NoMagic("tec: not found".to_string());
        assert_eq!(said(b"motd\n\x1btec: not found\n"), Err(last));
        assert_eq!(said(b""), Err(FrameError::NoMagic(String::new())));
        assert!(said(&vec![b'x'; MAX_NOISE + 9]).is_err());
        let through_terminal = b"\x02tec serve\x03\r\r\n\x1a\r\n\0";
        assert_eq!(said(through_terminal), Err(FrameError::Terminal));
        assert_eq!(said(&MAGIC[..12]), Err(FrameError::Cut));
    }
}
