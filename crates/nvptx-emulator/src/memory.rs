//! Global memory: named buffers in a synthetic address space.
//!
//! Buffer `i` starts at `(i + 1) << 40`, so that an overrun does not hit another buffer. For each
//! byte, the memory records whether it was written. It outlives a launch: the next kernel may read
//! what one wrote.

use crate::decode::{BUFFER_BITS, MODULE_BUFFERS};
use std::sync::Arc;

/// A buffer of a [`Memory`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct BufferId(pub(crate) usize);

/// The allowed accesses to a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Initialised; writes are reported.
    Read,
    /// Uninitialised; reads before writes and unwritten bytes are reported.
    Write,
    /// Initialised; reads and writes are allowed.
    ReadWrite,
    /// Uninitialised; reads before writes are reported, unwritten bytes are not.
    Workspace,
}

/// A type of numbers in buffers and of arguments by value.
pub trait Element: Copy {
    /// The size in bytes.
    const BYTES: usize;
    /// Appends the bytes in little-endian order.
    fn put(self, out: &mut Vec<u8>);
    /// Reads a number from its bytes.
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
    /// The text of the module that declares them.
    pub(crate) module_source: Option<Arc<str>>,
}

/// The byte of uninitialised memory; as a float, it gives a large negative number.
const POISON: u8 = 0xcb;

#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    pub name: String,
    pub access: Access,
    pub data: Vec<u8>,
    pub init: ByteSet,
}

impl Memory {
    /// Creates a memory without buffers.
    pub fn new() -> Self {
        Memory::default()
    }

    /// Adds a buffer that kernels only read.
    pub fn input<T: Element>(&mut self, name: &str, values: &[T]) -> BufferId {
        self.filled(name, Access::Read, values)
    }

    /// Adds a buffer that kernels read and write.
    pub fn inout<T: Element>(&mut self, name: &str, values: &[T]) -> BufferId {
        self.filled(name, Access::ReadWrite, values)
    }

    /// Adds a buffer of `bytes` bytes that kernels must write completely.
    pub fn output(&mut self, name: &str, bytes: usize) -> BufferId {
        self.poisoned(name, Access::Write, bytes)
    }

    /// Adds a buffer of `bytes` bytes for intermediate results.
    pub fn workspace(&mut self, name: &str, bytes: usize) -> BufferId {
        self.poisoned(name, Access::Workspace, bytes)
    }

    /// Returns the bytes of a buffer.
    pub fn bytes(&self, buffer: BufferId) -> &[u8] {
        &self.buffers[buffer.0].data
    }

    /// Returns the values of a buffer; ignores an incomplete value at the end.
    pub fn read<T: Element>(&self, buffer: BufferId) -> Vec<T> {
        self.bytes(buffer).chunks_exact(T::BYTES).map(T::get).collect()
    }

    /// Returns the number of unwritten bytes of a buffer.
    pub fn unwritten(&self, buffer: BufferId) -> usize {
        self.buffers[buffer.0].init.missing()
    }

    /// Returns the address of a buffer in the emulated machine.
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

    /// Returns the index of the buffer whose address range contains an address, and the offset.
    /// Buffers of the launch come first, then variables of the module.
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

/// A set of bytes, one bit for each.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ByteSet {
    /// A word for 16 bytes of memory: an aligned access of up to 16 bytes uses one word.
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

    /// Whether all bytes of an aligned access are in the set.
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

    /// Returns offset and length of the first bytes that are not in the set.
    pub fn first_gap(&self) -> Option<(usize, usize)> {
        if self.is_full {
            return None;
        }
        let start = (0..self.len).find(|at| !self.has(*at, 1))?;
        let end = (start..self.len).find(|at| self.has(*at, 1)).unwrap_or(self.len);
        Some((start, end - start))
    }
}
