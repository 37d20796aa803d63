//! Loads of elements of several rows in turns, row by row.
//!
//! Before: `P[ramp(0, 1, 64)] = B[ramp(0, 1, 64) % 4 * n + ramp(0, 1, 64) // 4]`
//! After:  `allocate B.rows: int8[64] register`, `B.rows[ramp(0, 1, 16)] = B[ramp(0, 1, 16)]`,
//! `B.rows[ramp(16, 1, 16)] = B[ramp(n, 1, 16)]`, …,
//! `P[ramp(0, 1, 64)] = B.rows[ramp(0, 1, 64) % 4 * 16 + ramp(0, 1, 64) // 4]`

use super::ramp;
use crate::ir::visit::reads_memory;
use crate::ir::{BinOp, Buffer, Expr, ExprKind, Scope, Stmt, Type};
use crate::simd_ops::{lane_offsets, rows_in_turns};
use crate::target::SimdIsa;

/// Loads the rows of a copy by themselves, if their distance is known at run time only or a mask
/// turns off elements.
pub(super) fn load_rows(store: Stmt, isa: SimdIsa) -> Stmt {
    let Stmt::Store { value, mask: None, .. } = &store else { return store };
    let ExprKind::Load { buffer, indices, mask } = &value.kind else { return store };
    let (bytes, index) = (buffer.dtype.bytes(), &indices[0]);
    let known = || lane_offsets(index).is_some_and(|known| known.load(bytes, isa).is_some());
    let is_plain = matches!(index.kind, ExprKind::Ramp(..) | ExprKind::Broadcast(_));
    let reads = reads_memory(index) || mask.as_ref().is_some_and(reads_memory);
    if is_plain || reads || buffer.scope == Scope::Register || mask.is_none() && known() {
        return store;
    }
    let Some(rows) = rows_in_turns(index, mask.as_ref(), bytes, isa) else { return store };
    let (lanes, count) = (index.ty.lanes, rows.len() as u32);
    let each = lanes / count;
    let name = format!("{}.rows", buffer.name);
    let elements = vec![Expr::index(lanes.into())];
    let tile = Buffer::new(name, buffer.dtype, elements, Scope::Register);
    let fill = (0..count).zip(rows).map(|(number, row)| {
        let ty = Type { dtype: buffer.dtype, lanes: each };
        let (buffer, indices) = (buffer.clone(), vec![ramp(row.first, 1, each)]);
        let value = Expr::new(ty, ExprKind::Load { buffer, indices, mask: row.mask });
        let first = Expr::index((number * each).into());
        Stmt::store(&tile, vec![ramp(first, 1, each)], value)
    });
    let mut stmts: Vec<Stmt> = fill.collect();
    let lane = ramp(Expr::index(0), 1, lanes);
    let all = |value: u32| {
        let value = Expr::index(value.into());
        Expr::new(lane.ty, ExprKind::Broadcast(value))
    };
    let row = Expr::binary(BinOp::FloorMod, lane.clone(), all(count));
    let column = Expr::binary(BinOp::FloorDiv, lane.clone(), all(count));
    let place = Expr::add(Expr::mul(row, all(each)), column);
    let value = Expr::load(&tile, vec![place]);
    let Stmt::Store { buffer, indices, mask, nontemporal, .. } = store else { unreachable!() };
    stmts.push(Stmt::Store { buffer, indices, value, mask, nontemporal });
    Stmt::Allocate { buffer: tile, body: Box::new(Stmt::Block(stmts)) }
}
