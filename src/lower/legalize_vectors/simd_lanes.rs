//! The number of lanes of the vectors of a `simd_kernel`, so that all values of a store fit into
//! registers.

use crate::ir::visit::{NodeSet, for_each_child, walk_nodes};
use crate::ir::{Buffer, Expr, ExprKind, Scope};
use crate::simd_ops::{
    MaskedOffsets, TableLookup, VectorAccess, access_form, constant_lanes, element_bytes,
    has_masked_move, has_short_offsets, lane_count, lane_offsets, masks_elements, narrowed_offsets,
};
use crate::target::SimdIsa;
use rustc_hash::FxHashSet;
use std::ops::Range;

/// Returns the number of lanes of the vectors that `lanes` of a store are split into: a power of
/// two; all of them if a register has more and masks turn off the rest; 1 if the store must run
/// lane by lane. `constants` says whether every vector starts at a constant lane.
pub(super) fn simd_lanes(
    index: &Expr,
    value: &Expr,
    mask: Option<&Expr>,
    buffer: &Buffer,
    lanes: Range<u32>,
    constants: bool,
    isa: SimdIsa,
) -> u32 {
    let mut search = LaneSearch {
        lanes: lanes.start as usize..lanes.end as usize,
        isa,
        constants,
        bytes: buffer.dtype.bytes(),
        maskable: true,
        masked: Vec::new(),
        offsets: Vec::new(),
        tables: Vec::new(),
        seen: FxHashSet::default(),
    };
    search.access(buffer, index, mask, true);
    search.expr(value);
    if let Some(mask) = mask {
        search.expr(mask);
    }
    let own = lanes.end - lanes.start;
    let fits_tables = |search: &LaneSearch| {
        let most = (u64::from(isa.bytes()) / search.bytes).max(1) as u32;
        let width = 1 << most.min(own).ilog2();
        search.tables.iter().all(|(table, _)| table.pays(width, isa))
    };
    if !fits_tables(&search) {
        // Each lane is looked up at its 64-bit index.
        for (_, index) in std::mem::take(&mut search.tables) {
            search.bytes = search.bytes.max(8);
            search.expr(&index);
        }
    }
    let most = (u64::from(isa.bytes()) / search.bytes).max(1) as u32;
    let lanes = lanes.end - lanes.start;
    let width = match lanes > 2 && lanes < most && search.maskable {
        true => lanes,
        false => 1 << most.min(lanes).ilog2(),
    };
    let has_form =
        |(access, index): &(VectorAccess, Expr)| access_form(*access, index, width, isa).is_some();
    let own = search.lanes.clone();
    let fits = |(access, index, known): &(VectorAccess, Expr, MaskedOffsets)| {
        let whole = own.len() / width as usize * width as usize;
        known.fits(own.start..own.start + whole, width as usize, access.bytes, isa)
            || has_short_offsets(index) && access_form(*access, index, width, isa).is_some()
    };
    let all = search.masked.iter().all(has_form) && search.offsets.iter().all(fits);
    if all { width } else { 1 }
}

/// Returns after how many vectors of `width` lanes the constants in the indices of a store repeat,
/// but for what each step adds to all lanes alike; `None` if they do not.
pub(super) fn parts_of_a_period(
    exprs: [&Expr; 2],
    mask: Option<&Expr>,
    lanes: Range<u32>,
    width: u32,
) -> Option<u32> {
    let mut known: Vec<Vec<i64>> = Vec::new();
    let mut seen = NodeSet::default();
    for expr in exprs.into_iter().chain(mask) {
        walk_nodes(expr, &mut seen, &mut |node| {
            let plain = matches!(node.kind, ExprKind::Ramp(..) | ExprKind::Broadcast(_));
            if !plain && let Some(constant) = lane_offsets(node) {
                known.push(constant.offsets);
            }
        });
    }
    let (first, last) = (lanes.start as usize, lanes.end as usize);
    let repeats = |offsets: &[i64], by: usize| {
        let step = |lane: usize| offsets[lane + by].checked_sub(offsets[lane]);
        (first..last - by).all(|lane| step(lane).is_some() && step(lane) == step(first))
    };
    let parts = (lanes.end - lanes.start) / width;
    (1..=parts / 2).find(|count| {
        let by = (count * width) as usize;
        known.iter().all(|offsets| repeats(offsets, by))
    })
}

/// The needs of the operations of a store.
struct LaneSearch {
    /// The lanes of the store.
    lanes: Range<usize>,
    isa: SimdIsa,
    /// Whether [`lane_offsets`] of an index are those of its vectors, too.
    constants: bool,
    /// Bytes of the longest element that is computed with.
    bytes: u64,
    /// Whether masks can select any number of lanes: every access is to consecutive elements or to
    /// one, or a load that is shuffled, gathered or a column of a tile.
    maskable: bool,
    /// The accesses under masks, with their indices.
    masked: Vec<(VectorAccess, Expr)>,
    /// The loads under constant masks at constant distances. Those that are far apart are gathered.
    offsets: Vec<(VectorAccess, Expr, MaskedOffsets)>,
    /// The lookups in tables, with the indices as they stand.
    tables: Vec<(TableLookup, Expr)>,
    seen: FxHashSet<usize>,
}

impl LaneSearch {
    fn expr(&mut self, expr: &Expr) {
        if expr.ty.lanes == 1 || !self.seen.insert(expr.id()) {
            return;
        }
        match &expr.kind {
            // Lanes of a `let` are in memory.
            ExprKind::Var(_) => self.maskable &= masks_elements(expr.ty.dtype.bytes(), self.isa),
            ExprKind::Load { buffer, indices, mask } => {
                self.bytes = self.bytes.max(buffer.dtype.bytes());
                if mask.is_none()
                    && let Some(table) = TableLookup::of(buffer, &indices[0])
                {
                    self.maskable = false;
                    self.expr(&table.index);
                    self.tables.push((table, indices[0].clone()));
                    return;
                }
                self.access(buffer, &indices[0], mask.as_ref(), false);
                mask.iter().for_each(|mask| self.expr(mask));
                return;
            }
            ExprKind::Binary(op, a, b) if lane_count(*op, a, b).is_some() => return,
            ExprKind::Binary(op, a, b)
                if self.constants
                    && op.is_comparison()
                    && constant_lanes(a).is_some()
                    && constant_lanes(b).is_some() =>
            {
                return;
            }
            // Constants are narrowed at compile time.
            ExprKind::Cast(_) if self.constants && narrowed_offsets(expr).is_some() => {
                self.bytes = self.bytes.max(expr.ty.dtype.bytes());
                return;
            }
            _ => {}
        }
        self.bytes = self.bytes.max(element_bytes(expr, self.isa));
        for_each_child(expr, &mut |child| self.expr(child));
    }

    fn access(&mut self, buffer: &Buffer, index: &Expr, mask: Option<&Expr>, is_store: bool) {
        let bytes = buffer.dtype.bytes();
        let constant = if self.constants && !is_store { mask } else { None };
        if let Some(mask) = constant.filter(|_| !has_masked_move(index, bytes, self.isa))
            && let Some(known) = MaskedOffsets::of(index, mask)
        {
            self.maskable = false;
            let access = VectorAccess { bytes, masked: true, is_store };
            self.offsets.push((access, index.clone(), known));
            return;
        }
        if mask.is_some() {
            self.masked.push((VectorAccess { bytes, masked: true, is_store }, index.clone()));
        }
        match &index.kind {
            ExprKind::Ramp(_, stride) if stride.as_int() == Some(1) => {
                self.maskable &= masks_elements(bytes, self.isa);
            }
            ExprKind::Broadcast(_) => {}
            _ => {
                // Long offsets are computed as a vector.
                let constant = self.constants && mask.is_none();
                let constant = if constant { lane_offsets(index) } else { None };
                // Partial loads and a shuffle.
                let shuffled = constant.as_ref().is_some_and(|known| {
                    let own = known.part(self.lanes.clone());
                    own.is_some_and(|own| own.load(bytes, self.isa).is_some())
                });
                let strided = matches!(index.kind, ExprKind::Ramp(..));
                let is_column = strided && buffer.scope == Scope::Register;
                let gathered = strided && bytes >= 4 && has_short_offsets(index);
                self.maskable &= (shuffled || is_column || gathered)
                    && !is_store
                    && masks_elements(bytes, self.isa);
                if constant.is_none() && !has_short_offsets(index) {
                    self.bytes = self.bytes.max(8);
                    self.expr(index);
                }
            }
        }
    }
}
