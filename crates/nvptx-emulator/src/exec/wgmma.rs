//! `wgmma`: products of matrices in shared memory by the four warps of a warpgroup.
//!
//! Each warp computes its 16 rows by itself when it starts a product, by the model of `mma`. Until
//! the warp waits for the product's group, its sums and the bytes that it reads are in flight:
//! accesses of the sums and writes of the bytes are reported. Reads count when the product starts
//! and again when the warp waits.
//!
//! Ordinary stores and `cp.async` write through another path (proxy) than the tensor cores read.
//! A product that reads bytes that their writer did not fence with `fence.proxy.async` is reported.

use super::mma::fast_product;
use super::time_slice::lanes;
use super::warp::Warp;
use super::{Machine, show};
use crate::decode::op::{Elem, Use, Wgmma};
use crate::float::{NAN32, bf16_to_f32, f16_to_f32};
use crate::report::FindingKind;

/// Bytes of the pieces that descriptors address.
const PIECE: u32 = 16;
/// Terms of a product.
const TERMS: usize = 16;
/// Rows of a warp.
const ROWS: usize = 16;

/// A product that the warp has not waited for.
#[derive(Clone, Debug)]
pub(super) struct Product {
    /// The number of its group.
    group: u32,
    /// The first of its rows of sums in [`crate::decode::op::Kernel::lists`], and their number.
    sums: (u32, u32),
    site: u32,
    pc: u32,
    /// The pieces that it reads, by their number in shared memory.
    pieces: Vec<u32>,
}

/// A matrix in shared memory (PTX ISA: matrix descriptors).
#[derive(Clone, Copy, Debug)]
struct Descriptor {
    start: u32,
    leading: u32,
    stride: u32,
    /// Pieces of a swizzled row: 1 without swizzle.
    width: u32,
    /// Whether a piece has rows (of `a`; columns of `b`) of one term instead of terms of one row.
    transposed: bool,
}

impl Descriptor {
    fn new(bits: u64, transposed: bool) -> Descriptor {
        let field = |at: u32| ((bits >> at & 0x3fff) as u32) * PIECE;
        let width = [1, 8, 4, 2][(bits >> 62) as usize];
        Descriptor { start: field(0), leading: field(16), stride: field(32), width, transposed }
    }

    /// The address of the piece with this row and term.
    fn piece(&self, row: u32, term: u32) -> u32 {
        let (outer, inner) = if self.transposed { (row, term) } else { (term, row) };
        let offset = match (self.width, self.transposed) {
            (1, false) => row / 8 * self.stride + term / 8 * self.leading + row % 8 * PIECE,
            (1, true) => row / 8 * self.stride + term / 8 * self.leading + term % 8 * PIECE,
            (width, false) => row / 8 * self.stride + inner % 8 * width * PIECE + outer / 8 * PIECE,
            (width, true) => {
                let piece = outer / 8;
                piece % width * PIECE
                    + piece / width * self.leading
                    + inner % 8 * width * PIECE
                    + inner / 8 * self.stride
            }
        };
        let address = self.start.wrapping_add(offset);
        // A swizzle moves the pieces of a row by the number of the row.
        address ^ (address >> 7 & (self.width - 1)) << 4
    }
}

impl Machine<'_> {
    pub(super) fn wgmma_fence(&mut self, warp: &mut Warp) {
        warp.fenced = true;
    }

    pub(super) fn wgmma_commit(&mut self, warp: &mut Warp) {
        warp.product_groups += 1;
    }

    pub(super) fn wgmma(&mut self, warp: &mut Warp, op: &Wgmma, active: u32, pc: u32) {
        let lane = active.trailing_zeros();
        let threads: u32 = self.setup.block.iter().product();
        let is_whole = (warp.index / 4 + 1) * 4 * 32 <= threads;
        if active != !0 || !is_whole {
            self.find(FindingKind::DivergentWarp, warp, lane, pc, || match is_whole {
                true => format!("runs a warpgroup instruction with lanes {active:#010x} only"),
                false => "runs a warpgroup instruction in fewer than four warps".to_string(),
            });
        }
        if !warp.fenced {
            self.find(FindingKind::MissingFence, warp, lane, pc, || {
                "starts a product with no wgmma.fence since the last wait".to_string()
            });
            warp.fenced = true;
        }
        let kernel = self.kernel;
        let [a, b] = [(op.a, op.transposed.0), (op.b, op.transposed.1)].map(|(src, transposed)| {
            let bits = warp.s64(kernel, src);
            let agree = lanes(active).all(|i| bits[i as usize] == bits[lane as usize]);
            (Descriptor::new(bits[lane as usize], transposed), agree)
        });
        if !(a.1 && b.1) {
            self.find(FindingKind::DivergentWarp, warp, lane, pc, || {
                "has different descriptors in the threads of a warp".to_string()
            });
        }
        let first = warp.index % 4 * ROWS as u32;
        let mut pieces = Vec::new();
        let rows = self.read_factor(warp, op, (&a.0, first, ROWS as u32), &mut pieces, pc);
        let columns = self.read_factor(warp, op, (&b.0, 0, op.n), &mut pieces, pc);
        for piece in &pieces {
            self.shared.read_by_products[*piece as usize] += 1;
        }
        self.check_sums(warp, op, active, pc);
        let accumulate = warp.pred(op.accumulate);
        let rows = rows.concat();
        for group in 0..op.n as usize / 8 {
            let mut b = [0.0; TERMS * 8];
            for (column, terms) in columns[group * 8..][..8].iter().enumerate() {
                for (term, value) in terms.iter().enumerate() {
                    b[term * 8 + column] = *value;
                }
            }
            let mut sums = [[0.0; 8]; ROWS];
            let at = |i: usize| kernel.lists[op.d as usize + group * 4 + i] as usize;
            // Registers of a group: two columns of row `lane / 4`, then of the row 8 below.
            let place = |i: usize, lane: usize| (lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2);
            for i in 0..4 {
                for lane in 0..32 {
                    let (row, column) = place(i, lane);
                    if accumulate >> lane & 1 == 1 {
                        let old = f32::from_bits(warp.r32[at(i)][lane]);
                        sums[row][column] = f64::from(old);
                    }
                }
            }
            fast_product(&rows, &b, &mut sums, TERMS);
            for i in 0..4 {
                let out = std::array::from_fn(|lane| {
                    let (row, column) = place(i, lane);
                    let sum = sums[row][column];
                    if sum.is_nan() { NAN32 } else { (sum as f32).to_bits() }
                });
                warp.set32(at(i) as u32, active, &out);
                warp.init32[at(i)] = 0;
            }
        }
        let (group, sums) = (warp.product_groups, (op.d, op.n / 2));
        warp.products.push(Product { group, sums, site: op.site, pc, pieces });
    }

    /// Checks that the sums are known, or in flight.
    fn check_sums(&mut self, warp: &mut Warp, op: &Wgmma, active: u32, pc: u32) {
        let accumulates = warp.pred(op.accumulate) & active;
        for i in 0..op.n / 2 {
            let row = self.kernel.lists[(op.d + i) as usize];
            let missing = accumulates & !warp.init32[row as usize];
            if missing != 0 && !self.is_sum_in_flight(warp, row) {
                let lane = missing.trailing_zeros();
                self.find(FindingKind::UninitialisedRegister, warp, lane, pc, || {
                    "adds to a sum that was not written".to_string()
                });
                return;
            }
        }
    }

    /// Reads the elements of rows of `a` or columns of `b`, and notes the pieces.
    fn read_factor(
        &mut self,
        warp: &Warp,
        op: &Wgmma,
        (matrix, first, count): (&Descriptor, u32, u32),
        pieces: &mut Vec<u32>,
        pc: u32,
    ) -> Vec<[f64; TERMS]> {
        let mut elements = vec![[0.0; TERMS]; count as usize];
        let me = self.stamp(warp, op.site, false);
        let outer = if matrix.transposed { (count / 8, TERMS as u32) } else { (count, 2) };
        for i in 0..outer.0 {
            for j in 0..outer.1 {
                let (row, term) = match matrix.transposed {
                    true => (i * 8, j),
                    false => (i, j * 8),
                };
                let at = matrix.piece(first + row, term);
                let data = self.read_piece(warp, at, me, pc);
                pieces.extend(data.map(|_| at / PIECE));
                let data = data.unwrap_or_default();
                for (e, half) in data.chunks_exact(2).enumerate() {
                    let bits = u32::from(u16::from_le_bytes([half[0], half[1]]));
                    let value = match op.elem {
                        Elem::F16 => f16_to_f32(bits),
                        _ => bf16_to_f32(bits),
                    };
                    let (row, term) = match matrix.transposed {
                        true => (row as usize + e, term as usize),
                        false => (row as usize, term as usize + e),
                    };
                    elements[row][term] = f64::from(value);
                }
            }
        }
        elements
    }

    /// Reads a piece, as two lanes: at least one of them is not the thread that wrote it.
    fn read_piece(
        &mut self,
        warp: &Warp,
        at: u32,
        me: crate::shadow::Stamp,
        pc: u32,
    ) -> Option<[u8; PIECE as usize]> {
        let place = at as usize;
        if place + PIECE as usize > self.shared.data.len() || !self.shared.mapped.has(place, PIECE)
        {
            self.find(FindingKind::OutOfBounds, warp, 0, pc, || {
                format!("reads a matrix at {at:#x} of shared memory, outside all variables")
            });
            return None;
        }
        for lane in [0, 1] {
            self.read_shared(warp, lane, place, PIECE, me, pc);
        }
        let words = place / 4..(place + PIECE as usize) / 4;
        let writer = words.map(|word| self.shared.unfenced[word]).find(|writer| *writer != 0);
        if let Some(writer) = writer {
            let name = self.shared_name(u64::from(at));
            let writer = show(self.thread(u32::from(writer) - 1));
            self.find(FindingKind::MissingFence, warp, 0, pc, || {
                format!(
                    "reads {name}, which thread {writer} wrote with no fence.proxy.async after it"
                )
            });
        }
        self.shared.data[place..][..PIECE as usize].try_into().ok()
    }

    /// Waits until at most `groups` groups of products run.
    pub(super) fn wgmma_wait(&mut self, warp: &mut Warp, groups: u32, pc: u32) {
        warp.fenced = false;
        let running = std::mem::take(&mut warp.products);
        let committed = warp.product_groups;
        let (done, rest): (Vec<Product>, Vec<Product>) =
            running.into_iter().partition(|product| product.group + groups < committed);
        warp.products = rest;
        for product in &done {
            let me = self.stamp(warp, product.site, false);
            for piece in &product.pieces {
                self.shared.read_by_products[*piece as usize] -= 1;
                let at = (piece * PIECE) as usize;
                for lane in [0, 1] {
                    self.read_shared(warp, lane, at, PIECE, me, product.pc);
                }
            }
        }
        // The sums of products that are done become readable once.
        let mut rows: Vec<(u32, u32)> = Vec::new();
        for product in &done {
            let (first, count) = product.sums;
            let lists = &self.kernel.lists[first as usize..][..count as usize];
            rows.extend(lists.iter().map(|row| (*row, product.pc)));
        }
        rows.sort_unstable();
        rows.dedup_by_key(|(row, _)| *row);
        for (row, product) in rows {
            if self.is_sum_in_flight(warp, row) {
                continue;
            }
            let written = std::mem::replace(&mut warp.init32[row as usize], !0);
            if written != 0 {
                let name = self.register_name(Use::R32(row));
                let lane = written.trailing_zeros();
                self.find(FindingKind::InFlight, warp, lane, pc, || {
                    let line = self.kernel.code[product as usize].line;
                    format!("wrote {name} while the wgmma at line {line} ran, which adds to it")
                });
            }
        }
    }

    /// Whether a product that runs adds to the register.
    pub(super) fn is_sum_in_flight(&self, warp: &Warp, row: u32) -> bool {
        warp.products.iter().any(|product| {
            let (first, count) = product.sums;
            self.kernel.lists[first as usize..][..count as usize].contains(&row)
        })
    }

    /// `fence.proxy.async`: products may read what these threads wrote.
    pub(super) fn proxy_fence(&mut self, warp: &Warp, active: u32) {
        for writer in &mut self.shared.unfenced {
            if *writer != 0 {
                let tid = u32::from(*writer) - 1;
                if tid / 32 == warp.index && active >> (tid % 32) & 1 == 1 {
                    *writer = 0;
                }
            }
        }
    }

    /// Checks and notes a write to shared memory in a kernel with products.
    pub(super) fn write_beside_products(
        &mut self,
        warp: &Warp,
        lane: u32,
        at: usize,
        bytes: u32,
        pc: u32,
    ) {
        if self.shared.unfenced.is_empty() {
            return;
        }
        let end = at + bytes as usize;
        let pieces = at / PIECE as usize..end.div_ceil(PIECE as usize);
        if pieces.into_iter().any(|piece| self.shared.read_by_products[piece] != 0) {
            let name = self.shared_name(at as u64);
            self.find(FindingKind::InFlight, warp, lane, pc, || {
                format!("writes {name}, which a wgmma that runs may read")
            });
        }
        self.shared.unfenced[at / 4..end.div_ceil(4)].fill((warp.index * 32 + lane + 1) as u16);
    }
}
