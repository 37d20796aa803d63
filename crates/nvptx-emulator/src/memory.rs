//! Global memory: named buffers in a synthetic address space.
//!
//! Buffer `i` starts at `(i + 1) << 40`, so nothing lies near it and an address that runs over
//! its end hits nothing. Each byte remembers whether it was ever written. The memory outlives a
//! launch: what one kernel wrote the next may read.

use crate::decode::{BUFFER_BITS, MODULE_BUFFERS};
use std::sync::Arc;

/// A buffer of a [`Memory`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct BufferId(pub(crate) usize);

/// What a program may do with a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Initialised; a write is reported.
    Read,
    /// Poisoned; a read before a write is reported, and so are bytes never written.
    Write,
    /// Initialised; may be read and written.
    ReadWrite,
    /// Poisoned like `Write`, but need not be written.
    Workspace,
}

/// A number that can lie in a buffer or be an argument by value.
pub trait Element: Copy {
    /// Its size in bytes.
    const BYTES: usize;
    /// Appends its bytes, little-endian.
    fn put(self, out: &mut Vec<u8>);
    /// Reads it from its bytes.
    fn get(bytes: &[u8]) -> Self;
}

macro_rules! element {
    ($($ty:ty),*) => {$(
        impl Element for $ty {
            const BYTES: usize = size_of::<$ty>();
            fn put(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn get(bytes: &[u8]) -> Self {
                <$ty>::from_le_bytes(bytes.try_into().expect("as many bytes as the type has"))
            }
        }
    )*};
}
element!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64, half::f16, half::bf16);

/// The buffers of a program.
///
/// ```
/// use nvptx_emulator::Memory;
/// let mut memory = Memory::new();
/// let a = memory.input("A", &[1.0f32, 2.0]);
/// let c = memory.output("C", 8);
/// assert_eq!(memory.read::<f32>(a), [1.0, 2.0]);
/// assert_eq!(memory.unwritten(c), 8);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Memory {
    pub(crate) buffers: Vec<Buffer>,
    /// The variables of modules, by name, at their fixed addresses.
    pub(crate) module: Vec<Buffer>,
    /// The text of the module whose variables they are.
    pub(crate) module_source: Option<Arc<str>>,
}

/// The byte that uninitialised memory holds: as a float it is a large negative number.
const POISON: u8 = 0xcb;

#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    pub name: String,
    pub access: Access,
    pub data: Vec<u8>,
    pub init: ByteSet,
}

impl Memory {
    /// No buffers.
    pub fn new() -> Self {
        Memory::default()
    }

    /// A buffer that kernels only read.
    pub fn input<T: Element>(&mut self, name: &str, values: &[T]) -> BufferId {
        self.filled(name, Access::Read, values)
    }

    /// A buffer that kernels read and write.
    pub fn inout<T: Element>(&mut self, name: &str, values: &[T]) -> BufferId {
        self.filled(name, Access::ReadWrite, values)
    }

    /// A buffer of so many bytes that kernels must write in full.
    pub fn output(&mut self, name: &str, bytes: usize) -> BufferId {
        self.poisoned(name, Access::Write, bytes)
    }

    /// A buffer of so many bytes for results between kernels.
    pub fn workspace(&mut self, name: &str, bytes: usize) -> BufferId {
        self.poisoned(name, Access::Workspace, bytes)
    }

    /// The bytes of a buffer.
    pub fn bytes(&self, buffer: BufferId) -> &[u8] {
        &self.buffers[buffer.0].data
    }

    /// The values of a buffer; bytes at its end that make no whole value are left out.
    pub fn read<T: Element>(&self, buffer: BufferId) -> Vec<T> {
        self.bytes(buffer).chunks_exact(T::BYTES).map(T::get).collect()
    }

    /// How many bytes of the buffer nothing has written.
    pub fn unwritten(&self, buffer: BufferId) -> usize {
        self.buffers[buffer.0].init.missing()
    }

    /// The buffer's address in the emulated machine.
    pub fn address(&self, buffer: BufferId) -> u64 {
        (buffer.0 as u64 + 1) << BUFFER_BITS
    }

    fn filled<T: Element>(&mut self, name: &str, access: Access, values: &[T]) -> BufferId {
        let mut data = Vec::with_capacity(values.len() * T::BYTES);
        values.iter().for_each(|v| v.put(&mut data));
        let init = ByteSet::new(data.len(), true);
        self.push(Buffer { name: name.to_string(), access, data, init })
    }

    fn poisoned(&mut self, name: &str, access: Access, bytes: usize) -> BufferId {
        let (data, init) = (vec![POISON; bytes], ByteSet::new(bytes, false));
        self.push(Buffer { name: name.to_string(), access, data, init })
    }

    fn push(&mut self, buffer: Buffer) -> BufferId {
        self.buffers.push(buffer);
        BufferId(self.buffers.len() - 1)
    }

    /// The index of the buffer that an address may lie in, and the offset inside of it: buffers
    /// of the launch first, then the variables of the module.
    #[inline]
    pub(crate) fn locate(&self, address: u64) -> Option<(usize, u64)> {
        let (high, offset) = (address >> BUFFER_BITS, address & ((1 << BUFFER_BITS) - 1));
        if high >= MODULE_BUFFERS {
            let at = (high - MODULE_BUFFERS) as usize;
            return (at < self.module.len()).then_some((self.buffers.len() + at, offset));
        }
        let at = (high as usize).wrapping_sub(1);
        (at < self.buffers.len()).then_some((at, offset))
    }

    #[inline]
    pub(crate) fn buffer(&self, at: usize) -> &Buffer {
        let own = self.buffers.len();
        if at < own { &self.buffers[at] } else { &self.module[at - own] }
    }

    #[inline]
    pub(crate) fn buffer_mut(&mut self, at: usize) -> &mut Buffer {
        let own = self.buffers.len();
        if at < own { &mut self.buffers[at] } else { &mut self.module[at - own] }
    }

    pub(crate) fn count(&self) -> usize {
        self.buffers.len() + self.module.len()
    }
}

/// One bit a byte: initialised, or mapped.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ByteSet {
    /// 16 bytes of memory a word, so an aligned access of up to 16 bytes touches one.
    words: Vec<u16>,
    len: usize,
    is_full: bool,
}

impl ByteSet {
    pub fn new(len: usize, full: bool) -> Self {
        let words = vec![if full { !0 } else { 0 }; len.div_ceil(16)];
        ByteSet { words, len, is_full: full }
    }

    #[inline]
    fn mask(offset: usize, bytes: u32) -> u16 {
        (((1u32 << bytes) - 1) << (offset & 15)) as u16
    }

    /// Whether all bytes of an aligned access are in the set; outside of it none is.
    #[inline]
    pub fn has(&self, offset: usize, bytes: u32) -> bool {
        if self.is_full {
            return offset + bytes as usize <= self.len;
        }
        let mask = Self::mask(offset, bytes);
        self.words.get(offset >> 4).is_some_and(|w| w & mask == mask)
    }

    #[inline]
    pub fn add(&mut self, offset: usize, bytes: u32) {
        if !self.is_full {
            self.words[offset >> 4] |= Self::mask(offset, bytes);
        }
    }

    pub fn add_range(&mut self, start: usize, len: usize) {
        (start..start + len).for_each(|at| self.add(at, 1));
    }

    pub fn clear(&mut self) {
        self.words.fill(0);
        self.is_full = false;
    }

    pub fn missing(&self) -> usize {
        if self.is_full {
            return 0;
        }
        (0..self.len).filter(|at| !self.has(*at, 1)).count()
    }

    /// The first bytes that are not in the set: offset and length.
    pub fn first_gap(&self) -> Option<(usize, usize)> {
        if self.is_full {
            return None;
        }
        let start = (0..self.len).find(|at| !self.has(*at, 1))?;
        let end = (start..self.len).find(|at| self.has(*at, 1)).unwrap_or(self.len);
        Some((start, end - start))
    }
}
