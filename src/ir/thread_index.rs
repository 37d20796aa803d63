//! The indices of GPU blocks and threads.

use std::fmt;

/// An index that a loop of a launch binds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ThreadIndex {
    /// `blockIdx`: 0 is x, 1 is y, 2 is z.
    Block(usize),
    /// `threadIdx`: 0 is x, 1 is y, 2 is z.
    Thread(usize),
    /// `vthread`: a virtual thread, one of several whose work one thread does. The iterations are
    /// independent; `inject_virtual_threads` interleaves them.
    Virtual,
}

impl ThreadIndex {
    /// All indices.
    pub const ALL: [ThreadIndex; 7] = [
        ThreadIndex::Block(0),
        ThreadIndex::Block(1),
        ThreadIndex::Block(2),
        ThreadIndex::Thread(0),
        ThreadIndex::Thread(1),
        ThreadIndex::Thread(2),
        ThreadIndex::Virtual,
    ];

    /// Returns the index with this name, such as `blockIdx.x`.
    pub fn from_name(name: &str) -> Option<ThreadIndex> {
        ThreadIndex::ALL.into_iter().find(|index| index.name() == name)
    }

    /// Returns the name in schedules and dumps.
    pub fn name(self) -> &'static str {
        match self {
            ThreadIndex::Block(at) => ["blockIdx.x", "blockIdx.y", "blockIdx.z"][at],
            ThreadIndex::Thread(at) => ["threadIdx.x", "threadIdx.y", "threadIdx.z"][at],
            ThreadIndex::Virtual => "vthread",
        }
    }

    /// Whether it is a thread index.
    pub fn is_thread(self) -> bool {
        matches!(self, ThreadIndex::Thread(_))
    }

    /// Whether it is a block index.
    pub fn is_block(self) -> bool {
        matches!(self, ThreadIndex::Block(_))
    }
}

impl fmt::Display for ThreadIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
