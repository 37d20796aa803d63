//! The output of the PTX back end for modules, the emulator and the manifest: the text, and the
//! description of its launches.
//!
//! A kernel of a `.te` file is a list of launches in order, each of one `.entry` of the text. All
//! writes of a launch are visible to the next one. The host computes the grid, the bytes of
//! temporaries and the values of [`LaunchParam::Index`] from the run-time integers of a call.

use crate::ir::Expr;
use crate::target::Target;

/// The PTX of a module.
#[derive(Clone, Debug)]
pub struct PtxModule {
    /// The whole text: `.version`, `.target`, data, all entries.
    pub text: String,
    /// `.version`: the lowest that has all used instructions.
    pub version: (u32, u32),
    /// The kernels, in order.
    pub kernels: Vec<PtxKernel>,
    /// Notes for the user, such as vectors that are accessed element by element.
    pub notes: Vec<String>,
}

/// How to run one kernel.
#[derive(Clone, Debug)]
pub struct PtxKernel {
    /// The kernel's name.
    pub name: String,
    /// Temporaries in global memory, allocated for a call.
    pub workspaces: Vec<Workspace>,
    /// In order.
    pub launches: Vec<Launch>,
    /// The alignment of each parameter that is a tensor, in bytes: the size of its elements or of
    /// the vectors that access it.
    pub alignments: Vec<u32>,
}

/// A temporary tensor in global memory. It begins at a multiple of 256 bytes and is uninitialised
/// before the first launch.
#[derive(Clone, Debug)]
pub struct Workspace {
    /// The tensor's name.
    pub name: String,
    /// Its size, of type `index`, over the kernel's run-time integers.
    pub bytes: Expr,
}

/// A launch of one `.entry`.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The entry's name in the text.
    pub name: String,
    /// Blocks in x, y and z: type `index`, over the kernel's run-time integers, 1 if no axis is
    /// bound. If one of them is 0 or less, the launch is skipped.
    pub grid: [Expr; 3],
    /// Threads of a block in x, y and z; as in `.reqntid` or `.maxntid`.
    pub block: [u32; 3],
    /// Bytes of the entry's `.shared` variables.
    pub static_shared: u32,
    /// Bytes of `.extern .shared` memory that a launch must request.
    pub dynamic_shared: u32,
    /// The entry's parameters, in order.
    pub params: Vec<LaunchParam>,
}

/// The argument for a parameter of an `.entry`.
#[derive(Clone, Debug)]
pub enum LaunchParam {
    /// The parameter of this number in [`Kernel::params`](crate::ir::Kernel::params): a tensor's
    /// address (`.u64`, in global memory), a scalar in its declared type (`.f64`, `.f32`, `.b16`
    /// for the bits of halves, `.s8` to `.u64`, `.u8` for `bool`, 0 or 1), or a run-time integer
    /// (`.s64`).
    Param(usize),
    /// The address of a [`PtxKernel::workspaces`] (`.u64`, in global memory).
    Workspace(usize),
    /// A value of type `index` over the kernel's run-time integers (`.s64`).
    Index(Expr),
}

impl PtxKernel {
    /// Bytes of all temporaries.
    pub fn workspace_bytes(&self) -> Expr {
        let bytes = self.workspaces.iter().map(|workspace| workspace.bytes.clone());
        bytes.reduce(Expr::add).unwrap_or_else(|| Expr::index(0))
    }

    /// Whether a GPU has the shared memory of all launches.
    pub fn fits(&self, gpu: &Target) -> bool {
        let most = gpu.gpu.map_or(0, |gpu| gpu.shared_bytes);
        self.launches.iter().all(|launch| launch.shared() <= most)
    }

    /// The numbers that the host computes for a call, all of type `index`: the bytes of each
    /// temporary, then the grid and the [`LaunchParam::Index`] values of each launch.
    pub fn numbers(&self) -> Vec<Expr> {
        let mut numbers: Vec<Expr> = self.workspaces.iter().map(|w| w.bytes.clone()).collect();
        for launch in &self.launches {
            numbers.extend(launch.grid.iter().cloned());
            numbers.extend(launch.params.iter().filter_map(|param| match param {
                LaunchParam::Index(value) => Some(value.clone()),
                LaunchParam::Param(_) | LaunchParam::Workspace(_) => None,
            }));
        }
        numbers
    }
}

impl Launch {
    /// Bytes of shared memory of a block.
    pub fn shared(&self) -> u32 {
        self.static_shared + self.dynamic_shared
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.block.iter().product()
    }
}
