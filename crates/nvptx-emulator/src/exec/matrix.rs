//! `ldmatrix` and `stmatrix`: 8x8 matrices of 16-bit elements in shared memory.
//!
//! Lanes `8i` to `8i + 7` hold the addresses of the rows of matrix `i`. Lane `l` holds elements
//! `2 (l % 4)` and the next of row `l / 4`, of the transposed matrix with `.trans`.

use super::Machine;
use super::time_slice::lanes;
use super::warp::Warp;
use crate::decode::SHARED_WINDOW;
use crate::decode::op::Op;
use crate::lanes::R64;
use crate::report::FindingKind;

impl Machine<'_> {
    pub(super) fn matrix(&mut self, warp: &mut Warp, op: &Op, active: u32, pc: u32) {
        if active != !0 {
            self.find(FindingKind::DivergentWarp, warp, active.trailing_zeros(), pc, || {
                format!("runs a matrix instruction with lanes {active:#010x} only")
            });
        }
        let (address, generic, count, trans, regs, site, is_load) = match *op {
            Op::LoadMatrix { address, generic, count, trans, regs, site } => {
                (address, generic, count, trans, regs, site, true)
            }
            Op::StoreMatrix { address, generic, count, trans, regs, site } => {
                (address, generic, count, trans, regs, site, false)
            }
            _ => return,
        };
        let mut addresses: R64 = self.addresses(warp, &address);
        if generic {
            addresses = addresses.map(|a| a.wrapping_sub(SHARED_WINDOW));
        }
        let rows = if count == 4 { !0 } else { (1 << (8 * count)) - 1 };
        let good = self.check_shared(warp, &addresses, rows & active, (16, false), pc);
        let me = self.stamp(warp, site, false);
        for matrix in 0..count {
            let d = self.kernel.lists[(regs + matrix) as usize];
            let mut tile = [[0u16; 8]; 8];
            if !is_load {
                let values = warp.s32(self.kernel, d);
                for (lane, value) in values.iter().enumerate() {
                    place(&mut tile, lane, trans, *value);
                }
            }
            for (row, line) in tile.iter_mut().enumerate() {
                let lane = 8 * matrix + row as u32;
                if good >> lane & 1 == 0 {
                    continue;
                }
                let at = addresses[lane as usize] as usize;
                if is_load {
                    // Two of the lanes that receive values of the row count as readers: at least
                    // one of them is not the thread that wrote it.
                    let [one, other] = receivers(row as u32, trans);
                    self.read_shared(warp, one, at, 16, me, pc);
                    self.read_shared(warp, other, at, 16, me, pc);
                    let data = &self.shared.data[at..at + 16];
                    for (value, pair) in line.iter_mut().zip(data.chunks_exact(2)) {
                        *value = u16::from_le_bytes([pair[0], pair[1]]);
                    }
                } else {
                    self.write_shared(warp, lane, at, 16, me, pc);
                    let data = &mut self.shared.data[at..at + 16];
                    for (value, pair) in line.iter().zip(data.chunks_exact_mut(2)) {
                        pair.copy_from_slice(&value.to_le_bytes());
                    }
                }
            }
            if is_load {
                let mut out = [0; 32];
                for lane in lanes(!0) {
                    out[lane as usize] = take(&tile, lane as usize, trans);
                }
                warp.set32(d, active, &out);
            }
        }
    }
}

/// Returns two lanes that receive values of this row of a matrix.
fn receivers(row: u32, trans: bool) -> [u32; 2] {
    if trans { [row / 2, row / 2 + 4] } else { [4 * row, 4 * row + 1] }
}

fn take(tile: &[[u16; 8]; 8], lane: usize, trans: bool) -> u32 {
    let (row, column) = (lane / 4, 2 * (lane % 4));
    let at = |c: usize| u32::from(if trans { tile[c][row] } else { tile[row][c] });
    at(column) | at(column + 1) << 16
}

fn place(tile: &mut [[u16; 8]; 8], lane: usize, trans: bool, value: u32) {
    let (row, column) = (lane / 4, 2 * (lane % 4));
    for (i, half) in [value as u16, (value >> 16) as u16].into_iter().enumerate() {
        if trans {
            tile[column + i][row] = half;
        } else {
            tile[row][column + i] = half;
        }
    }
}
