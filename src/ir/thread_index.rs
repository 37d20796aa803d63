//! The indices of a GPU's blocks and threads, which loops stand for.

use std::fmt;

/// What a loop of a launch is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ThreadIndex {
    /// `blockIdx`: 0 is x, 1 is y, 2 is z.
    Block(usize),
    /// `threadIdx`, likewise.
    Thread(usize),
    /// `vthread`: the work of several threads, done by one. The iterations do not depend on each
    /// other; `inject_virtual_threads` interleaves them.
    Virtual,
}

impl ThreadIndex {
    /// All of them.
    pub const ALL: [ThreadIndex; 7] = [
        ThreadIndex::Block(0),
        ThreadIndex::Block(1),
        ThreadIndex::Block(2),
        ThreadIndex::Thread(0),
        ThreadIndex::Thread(1),
        ThreadIndex::Thread(2),
        ThreadIndex::Virtual,
    ];

    /// The index of a name: `blockIdx.x`, `vthread`.
    pub fn from_name(name: &str) -> Option<ThreadIndex> {
        ThreadIndex::ALL.into_iter().find(|index| index.name() == name)
    }

    /// As in schedules and in loops.
    pub fn name(self) -> &'static str {
        match self {
            ThreadIndex::Block(at) => ["blockIdx.x", "blockIdx.y", "blockIdx.z"][at],
            ThreadIndex::Thread(at) => ["threadIdx.x", "threadIdx.y", "threadIdx.z"][at],
            ThreadIndex::Virtual => "vthread",
        }
    }

    /// Whether threads of one block differ in it.
    pub fn is_thread(self) -> bool {
        matches!(self, ThreadIndex::Thread(_))
    }

    /// Whether blocks differ in it.
    pub fn is_block(self) -> bool {
        matches!(self, ThreadIndex::Block(_))
    }
}

impl fmt::Display for ThreadIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
