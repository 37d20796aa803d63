//! Warpgroup products (`ir::warp`) by `wgmma`.
//!
//! Four warps start a product together and go on; the tensor cores read both factors from shared
//! memory, where descriptors say how their lines lie (`ir::warpgroup`). Products that follow each
//! other run as one group. The threads wait for it before the next other statement: until then
//! they must not access the sums, nor may shared memory change. In the loop of a pipeline, the
//! products of an iteration run until those of the next one are started:
//!
//! Before: `for (ko) { await; copy; multiply }`
//! After:  `for (ko) { await; copy; start the products; wait for those of the last iteration }`
//!         `wait for all products`
//!
//! `fence.proxy.async` stands before each barrier of a launch with such products. It makes what the
//! thread wrote to shared memory visible to the tensor cores.

use super::ahead::flatten;
use super::emit::{Emitter, Place, view};
use super::tensor::{flat, part_of, sums};
use crate::ir::warp::{WarpProduct, warp_product};
use crate::ir::warpgroup::{Lines, PIECE_BYTES, Threads, is_swizzled, lines_of};
use crate::ir::{Buffer, DType, Expr, Stmt};
use nvptx_builder::{B64, Cmp, Convert, F32, Operand, Pred, Reg, Source, Ty, U64, Wgmma};

/// The bits where a descriptor has the distances, in pieces, and the order of pieces: 1 for lines
/// of 128 bytes (PTX ISA: matrix descriptors).
const LEADING: u32 = 16;
const STRIDE: u32 = 32;
const SWIZZLE: u32 = 62;

/// The factors of a product whose lines are reordered.
pub(super) fn swizzled(product: WarpProduct, nest: &Stmt, threads: Threads<'_>) -> Vec<Buffer> {
    let part = part_of(product, nest);
    let mut found = Vec::new();
    for (which, element) in [&part.a, &part.b].into_iter().enumerate() {
        match is_swizzled(&part, (which, flat(element)), threads) {
            Ok(true) => found.push(element.buffer.clone()),
            Ok(false) => {}
            Err(difference) => {
                crate::bug!("a pass changed `{}`: it {difference}", element.buffer.name)
            }
        }
    }
    found
}

impl Emitter<'_> {
    /// Starts a warpgroup product; `body` is its nest.
    pub(super) fn warpgroup_product(&mut self, product: WarpProduct, body: &Stmt) {
        let [a, b] = [0, 1].map(|which| self.descriptor(product, body, which));
        let (buffer, indices) = sums(product, body);
        let transposed = (a.1, b.1);
        let element = if product.a == DType::BFloat16 { Ty::Bf16 } else { Ty::F16 };
        let count = indices.len() as u32;
        let how = Wgmma::new(2 * count, element).transposed(transposed.0, transposed.1);
        let accumulate = self.always();
        match self.place(&buffer) {
            Place::Registers(regs) => {
                let at = |index: &Expr| match index.as_int().map(usize::try_from) {
                    Some(Ok(at)) => regs[at].typed::<F32>().expect("sums are float32"),
                    _ => crate::bug!("an index of `{}` is not constant", buffer.name),
                };
                let sums: Vec<Reg<F32>> = indices.iter().map(at).collect();
                self.begin_products();
                self.e.wgmma(how, &sums, a.0, b.0, accumulate);
            }
            Place::Memory(memory) => {
                self.end_products();
                let load = |index: &Expr| {
                    let old = self.expr(&Expr::load(&buffer, vec![index.clone()]));
                    let sum = self.e.reg_as(Ty::F32);
                    self.e.to(sum).mov(old);
                    sum.typed::<F32>().expect("sums are float32")
                };
                let sums: Vec<Reg<F32>> = indices.iter().map(load).collect();
                self.begin_products();
                self.e.wgmma(how, &sums, a.0, b.0, accumulate);
                self.end_products();
                for (index, sum) in indices.iter().zip(&sums) {
                    let address = self.address(&memory, buffer.dtype.bytes() as u32, index);
                    self.store_chunk(
                        &memory,
                        buffer.dtype,
                        address,
                        &[sum.erase().operand()],
                        None,
                    );
                }
                *self.changes.entry(memory.id).or_insert(0) += 1;
            }
        }
        self.next_statement();
    }

    /// Whether the products of an iteration run on while the next one copies: the body of a
    /// pipeline's loop that consists of its wait, copies, and products with sums in registers.
    pub(super) fn runs_on(&self, body: &Stmt) -> bool {
        let mut stmts = Vec::new();
        flatten(body, &mut stmts);
        let Some((Stmt::AwaitCopies { products_run: true, .. }, rest)) = stmts.split_first() else {
            return false;
        };
        let copies = rest.iter().take_while(|stmt| matches!(stmt, Stmt::CopyGroup { .. })).count();
        let is_product = |stmt: &&Stmt| match (stmt, warp_product(stmt)) {
            (Stmt::Tensorize { body, .. }, Some(product)) if product.is_by_warpgroup() => {
                matches!(self.place(&sums(product, body).0), Place::Registers(_))
            }
            _ => false,
        };
        copies < rest.len() && rest[copies..].iter().all(is_product)
    }

    /// Emits such a body. The products of the previous iteration run until those of this one are
    /// started.
    pub(super) fn body_running_on(&mut self, body: &Stmt) {
        self.stmt(body);
        self.e.wgmma_commit_group();
        self.e.wgmma_wait_group(1);
        self.products = false;
    }

    fn begin_products(&mut self) {
        if !self.products {
            self.e.wgmma_fence();
            self.products = true;
        }
    }

    /// Waits for the products that run.
    pub(super) fn end_products(&mut self) {
        if self.products {
            self.e.wgmma_commit_group();
            self.e.wgmma_wait_group(0);
            self.products = false;
        }
    }

    /// Waits for the products that run, unless the statement is another one or only contains some.
    pub(super) fn end_products_before(&mut self, stmt: &Stmt) {
        let goes_on = match stmt {
            Stmt::Block(_) | Stmt::Produce { .. } | Stmt::Prefetch { .. } => true,
            Stmt::Tensorize { name, .. } => {
                WarpProduct::of(name).is_some_and(WarpProduct::is_by_warpgroup)
            }
            _ => false,
        };
        if !goes_on {
            self.end_products();
        }
    }

    /// Makes what this thread wrote to shared memory visible to the products behind a barrier.
    pub(super) fn fence_for_products(&mut self) {
        if self.accumulate.is_some() {
            self.e.fence_proxy_async();
        }
    }

    /// Prepares a launch with warpgroup products.
    pub(super) fn prepare_products(&mut self) {
        let zero = self.e.mov(Operand::int(Ty::U32, 0));
        let always = self.e.setp(Cmp::Eq, zero.operand(), Operand::int(Ty::U32, 0));
        self.accumulate = Some(always);
    }

    /// The predicate with which a product adds to its sums.
    fn always(&self) -> Reg<Pred> {
        self.accumulate.expect("the launch has warpgroup products")
    }

    /// The descriptor of a factor, and whether it is transposed; `which` is 0 for `a`, 1 for `b`.
    fn descriptor(&mut self, product: WarpProduct, nest: &Stmt, which: usize) -> (Reg<B64>, bool) {
        let part = part_of(product, nest);
        let element = if which == 0 { &part.a } else { &part.b };
        let memory = match self.place(element.buffer) {
            Place::Memory(memory) => memory,
            Place::Registers(_) => crate::bug!("`{}` is in registers", element.buffer.name),
        };
        let lane = self.lane.clone().expect("the launch has lanes");
        let warp = self.warp.clone().expect("the launch has warpgroups");
        let threads = Threads { lane: &lane, warp: &warp };
        let place = (&self.facts, &[][..]);
        let Lines { first, stride, leading, swizzled, transposed } =
            match lines_of(product, &part, (which, flat(element)), threads, place) {
                Ok(lines) => lines,
                Err(difference) => {
                    crate::bug!("a pass changed `{}`: it {difference}", element.buffer.name)
                }
            };
        let bytes = element.buffer.dtype.bytes() as i64;
        let (pointer, offset) = self.pointer_and_offset(&memory, bytes as u32, &first);
        let pieces = |elements: i64| (elements * bytes / PIECE_BYTES) as u64;
        let mode = u64::from(swizzled) << SWIZZLE;
        let strides = pieces(leading) << LEADING | pieces(stride) << STRIDE | mode;
        let (pointer, offset) = match offset % PIECE_BYTES {
            0 => (pointer, offset),
            _ => (self.e.add(pointer, Operand::int(pointer.ty(), offset)), 0),
        };
        let address = view(pointer.operand(), Ty::U32);
        let piece = self.e.shr(address, 4u32);
        let piece: Reg<U64> = self.e.cvt(Convert::Usual, piece.operand());
        let fields = strides.wrapping_add((offset / PIECE_BYTES) as u64);
        let descriptor = self.e.add(piece.operand(), fields);
        let descriptor = descriptor.erase().view(Ty::B64).and_then(Reg::typed);
        (descriptor.expect("64 bits"), transposed)
    }
}
