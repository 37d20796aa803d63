//! The fast path for tensors with strides.
//!
//! It accepts strides and extents whose products cannot overflow, no negative strides, and of
//! outputs only layouts in which each dimension steps over the whole of the next one, as slices of
//! row-major tensors do. The runtime decides about all others.

use super::checked::{Bytes, CheckedEmitter, View};
use super::checks::ExtentCheck;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};

/// The largest stride and extent of the fast path. The offset of an element is the sum of at most
/// 16 products, so it has at most 31 + 24 + 4 bits, 62 in bytes.
const MAX_STRIDE: i64 = 1 << 31;
const MAX_EXTENT: i64 = 1 << 24;
/// The largest number of dimensions.
const MAX_RANK: usize = 16;

impl CheckedEmitter<'_, '_, '_, '_> {
    /// Emits the tests of the strides. Returns the distance from the first byte to the end.
    pub(super) fn view(
        &mut self,
        view: &View<'_>,
        written: bool,
        slots: &mut [Option<Value>],
    ) -> Bytes {
        let rank = view.extents.len();
        if rank == 0 {
            return Bytes::Const(view.dtype.bytes() as i64);
        }
        let extents: Vec<Value> = (0..rank).map(|dim| self.extent(view, dim)).collect();
        if rank > MAX_RANK {
            let never = self.env.builder.ins().iconst(types::I64, 0);
            self.require(never);
        }
        let strides = self.actual_strides(view, &extents);
        let one = self.env.builder.ins().iconst(types::I64, 1);
        let (mut last, mut inner) = (None, one);
        for dim in (0..rank).rev() {
            let (stride, extent) = (strides[dim], extents[dim]);
            match view.strides[dim] {
                _ if view.extents[dim] == ExtentCheck::Const(1) => {}
                ExtentCheck::Const(expected) => self.require_equal(stride, expected),
                ExtentCheck::Equals(slot) => {
                    let bound = slots[slot].expect("bound by a shape or an earlier stride");
                    let same = self.env.builder.ins().icmp(IntCC::Equal, stride, bound);
                    self.require(same);
                }
                ExtentCheck::Binds(_) | ExtentCheck::Actual(_) => {}
            }
            if let ExtentCheck::Binds(slot) = view.strides[dim] {
                slots[slot] = Some(stride);
            }
            for (value, limit) in [(stride, MAX_STRIDE), (extent, MAX_EXTENT)] {
                let ins = self.env.builder.ins();
                let fits = ins.icmp_imm_u(IntCC::UnsignedLessThan, value, limit);
                self.require(fits);
            }
            if written {
                let ins = self.env.builder.ins();
                let apart = ins.icmp(IntCC::UnsignedGreaterThanOrEqual, stride, inner);
                self.require(apart);
            }
            inner = self.env.builder.ins().imul(stride, extent);
            let steps = self.env.builder.ins().iadd_imm_s(extent, -1);
            let offset = self.env.builder.ins().imul(stride, steps);
            last = Some(match last {
                None => offset,
                Some(sum) => self.env.builder.ins().iadd(sum, offset),
            });
        }
        let last = last.expect("there are dimensions");
        let elements = self.env.builder.ins().iadd_imm_s(last, 1);
        Bytes::Value(self.env.builder.ins().imul_imm_s(elements, view.dtype.bytes() as i64))
    }

    fn extent(&mut self, view: &View<'_>, dim: usize) -> Value {
        match (view.extents[dim], view.actual[dim]) {
            (ExtentCheck::Const(extent), _) => self.env.builder.ins().iconst(types::I64, extent),
            (_, Some(value)) => value,
            (_, None) => crate::bug!("an extent that is not constant has a value"),
        }
    }

    /// Loads the strides, or computes those of a contiguous tensor if there are none.
    fn actual_strides(&mut self, view: &View<'_>, extents: &[Value]) -> Vec<Value> {
        let rank = extents.len();
        let strides = self.load(types::I64, view.tensor, 32);
        let builder = &mut self.env.builder;
        let (given, absent) = (builder.create_block(), builder.create_block());
        let merged = builder.create_block();
        let params = (0..rank).map(|_| builder.append_block_param(merged, types::I64));
        let params: Vec<Value> = params.collect();
        builder.ins().brif(strides, given, &[], absent, &[]);
        builder.switch_to_block(given);
        let loaded: Vec<Value> =
            (0..rank).map(|dim| self.load(types::I64, strides, 8 * dim as i32)).collect();
        self.jump(merged, &loaded);
        self.env.builder.switch_to_block(absent);
        let mut step = self.env.builder.ins().iconst(types::I64, 1);
        let mut steps = vec![step; rank];
        for dim in (0..rank).rev() {
            steps[dim] = step;
            step = self.env.builder.ins().imul(step, extents[dim]);
        }
        self.jump(merged, &steps);
        self.env.builder.switch_to_block(merged);
        params
    }
}
