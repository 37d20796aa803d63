//! Tiles in registers, which are written by rows and read by columns.
//!
//! A row comes in chunks of 16 bytes with `16 / bytes of an element` elements. The chunks of rows
//! that are this number of rows apart are joined in one register, a chunk in each quarter. Then the
//! quarters are transposed by interleaving whole registers: after `log2` steps register `i` holds
//! column `i`.

use super::inst::Width;
use super::nest::Selector;
use super::plan::TileColumn;
use super::table::VOp;
use crate::ir::Buffer;
use crate::ir::limits::ROW_CHUNK_BYTES;
use crate::ir::visit::reads_buffer;
use regalloc2::VReg;

impl Selector<'_> {
    /// A column of a tile. All columns of the same rows are computed together.
    pub(super) fn tile_column(&mut self, buffer: &Buffer, column: TileColumn) -> VReg {
        let key = (buffer.clone(), column);
        let known = self.scopes.iter().rev().find_map(|scope| scope.columns.get(&key));
        if let Some(value) = known {
            return *value;
        }
        let TileColumn { first, stride, lanes } = column;
        let rows_before = first - first % stride;
        let columns = self.tile_columns(buffer, rows_before, stride, lanes);
        let scope = self.scopes.last_mut().expect("a scope");
        for (number, value) in columns.iter().enumerate() {
            let column = TileColumn { first: rows_before + number as i64, stride, lanes };
            scope.columns.insert((buffer.clone(), column), *value);
        }
        columns[(first % stride) as usize]
    }

    /// Forgets what was computed from a buffer in registers that is written.
    pub(super) fn forget_register(&mut self, buffer: &Buffer) {
        for scope in &mut self.scopes {
            scope.columns.retain(|(other, _), _| other != buffer);
            scope.conditions.retain(|(cond, _)| !reads_buffer(cond, buffer));
        }
        self.forget_addresses(&|index| reads_buffer(index, buffer));
    }

    /// All columns of `lanes` rows, the first of which begins with element `from`.
    fn tile_columns(&mut self, buffer: &Buffer, from: i64, stride: i64, lanes: u32) -> Vec<VReg> {
        let bytes = buffer.dtype.bytes();
        let chunk_elements = (ROW_CHUNK_BYTES / bytes) as i64;
        let width = Width::of(bytes * u64::from(lanes));
        let quarters = (width.bytes() / 16) as i64;
        // Row by row, so that loads from one row stand together.
        let mut chunks: Vec<Vec<Vec<VReg>>> = Vec::new();
        let parts = self.registers[buffer].clone();
        for row in 0..chunk_elements {
            let in_chunk = |chunk: i64, this: &mut Self| {
                let of_quarter = |quarter: i64| {
                    let row = quarter * chunk_elements + row;
                    let place = from + row * stride + chunk * chunk_elements;
                    if row < i64::from(lanes) { parts[&place] } else { None }
                };
                let found: Vec<Option<VReg>> = (0..quarters).map(of_quarter).collect();
                found.into_iter().map(|part| part.unwrap_or_else(|| this.b.zero())).collect()
            };
            chunks.push((0..stride / chunk_elements).map(|chunk| in_chunk(chunk, self)).collect());
        }
        let mut joined: Vec<Vec<VReg>> = vec![Vec::new(); (stride / chunk_elements) as usize];
        for row in chunks {
            for (chunk, parts) in row.into_iter().enumerate() {
                let whole = self.join(parts);
                joined[chunk].push(whole);
            }
        }
        joined.into_iter().flat_map(|rows| self.transpose_quarters(rows, bytes, width)).collect()
    }

    /// Transposes the square of elements in every quarter of `rows`.
    fn transpose_quarters(&mut self, rows: Vec<VReg>, bytes: u64, width: Width) -> Vec<VReg> {
        let (low, high) = match bytes {
            1 => (VOp::UnpckLBw, VOp::UnpckHBw),
            2 => (VOp::UnpckLWd, VOp::UnpckHWd),
            4 => (VOp::UnpckLDq, VOp::UnpckHDq),
            _ => (VOp::UnpckLQdq, VOp::UnpckHQdq),
        };
        let (count, mut now) = (rows.len(), rows);
        for _ in 0..count.ilog2() {
            let mut next = Vec::with_capacity(count);
            for place in 0..count / 2 {
                let (a, b) = (now[place], now[place + count / 2]);
                next.push(self.b.op2(low, width, a, b));
                next.push(self.b.op2(high, width, a, b));
            }
            now = next;
        }
        now
    }
}
