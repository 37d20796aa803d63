//! Tile products ([`crate::ir::tile`]) by the instructions of AMX.
//!
//! ```text
//! T[…] = 0 in four tiles                 tilezero tmm0 … tmm3
//! for (k_o, 0, 16)                       for (k_o, 0, 16)
//!   T[…] += A[…] * B[…], four times        tileloadd tmm4, A[…] …
//!                                          tdpbusd tmm0, tmm4, tmm6 …
//!                                        tilestored T[…], tmm0 …
//! ```
//!
//! A *region* is the largest run of statements with nothing but products whose sums stay in the
//! same places: it keeps the sums in tile registers. The other registers hold factors, which later
//! products of an iteration use again. `ldtilecfg` sets the shapes of all registers. It takes as
//! long as several products, so the function configures the registers once if one configuration
//! suits all of its regions.

use super::address::{Poly, is_index};
use super::inst::{Access, AccessKind, Arg, Inst, Mem};
use super::nest::{Selector, shortened};
use crate::ir::print::print_expr;
use crate::ir::tile::{TILE_REGISTERS, TilePart, TileProduct, TileStep, tile_step};
use crate::ir::visit::{map_stmts, mentions_any, reads_memory, substitute};
use crate::ir::{Buffer, DType, Expr, ForKind, Stmt, Var};
use iced_x86::Code;
use regalloc2::VReg;
use rustc_hash::{FxHashMap, FxHashSet};
use std::num::Wrapping;

/// Bytes of the operand of `ldtilecfg`.
const CONFIG_BYTES: usize = 64;
/// The sums of a region leave registers for one `a` and one `b`.
const MOST_SUMS: usize = TILE_REGISTERS - 2;
/// Bytes of a group of terms, and of a sum.
const GROUP_BYTES: i64 = 4;

/// The shape of a tile register: rows, bytes of a row.
type Shape = (u8, u16);

/// The shapes of the tile registers; `None` for those without a use.
type Config = [Option<Shape>; TILE_REGISTERS];

/// A step of a tile product. Its body in the loop IR is one store with the indices of the first
/// elements ([`with_first_elements`]), so that analyses see which addresses it needs.
#[derive(Clone)]
pub(super) struct Step {
    product: TileProduct,
    step: TileStep,
    /// The nest that it replaces.
    nest: Stmt,
}

impl Step {
    /// Whether the step reads or writes a buffer, for which it must be in memory.
    pub(super) fn mentions(&self, buffer: &Buffer) -> bool {
        match &self.step {
            TileStep::Start { c, .. } => c.buffer == *buffer,
            TileStep::Product { c, a, b, .. } => {
                [c, a, b].into_iter().any(|part| part.buffer == *buffer)
            }
        }
    }
}

/// The steps of a nest, by the index of the store that stands for each.
pub(super) type Steps = FxHashMap<usize, Step>;

/// The state of a region.
pub(super) struct Region {
    /// The places of the sums, and their registers.
    sums: Vec<(Buffer, Poly, u8)>,
    a: FactorRegisters,
    b: FactorRegisters,
    /// Bytes from a row to the next one, in registers.
    strides: FxHashMap<Poly, VReg>,
}

/// The products of a region.
#[derive(Clone)]
struct Products {
    shape: (TileProduct, (i64, i64, i64)),
    /// The places of the sums, with their parts.
    sums: Vec<(Buffer, Poly, TilePart)>,
    /// The places of the factors.
    a: Vec<(Buffer, Poly)>,
    b: Vec<(Buffer, Poly)>,
    /// The distances of rows, with the bytes of an element.
    strides: Vec<(Expr, i64)>,
}

/// Registers for a factor with the places that they hold, the least recently used one first.
struct FactorRegisters(Vec<(u8, Option<(Buffer, Poly)>)>);

impl FactorRegisters {
    /// Returns the register for a place, and whether it has to be loaded.
    fn take(&mut self, place: (Buffer, Poly)) -> (u8, bool) {
        let known = self.0.iter().position(|(_, held)| held.as_ref() == Some(&place));
        let (register, _) = self.0.remove(known.unwrap_or(0));
        self.0.push((register, Some(place)));
        (register, known.is_none())
    }
}

/// Replaces the nest of each step of a tile product by one store with the first indices.
///
/// Before: `for (i, 0, 16) { for (j, 0, 16) { … C[x + i*64 + j] = … } }`
/// After:  `C[x] = C[x] + A[…]*B[…]`
pub(super) fn with_first_elements(stmt: Stmt, steps: &mut Steps) -> Stmt {
    let Stmt::Tensorize { name, body } = &stmt else {
        return map_stmts(stmt, &mut |inner| with_first_elements(inner, steps));
    };
    let Some(product) = TileProduct::of(name) else { return stmt };
    let Some(step) = tile_step(product, body) else { return stmt };
    let nothing = match product.sum.is_float() {
        true => Expr::float(product.sum, 0.0),
        false => Expr::int(product.sum, 0),
    };
    let first = |part: &TilePart| Expr::load(&part.buffer, vec![part.first.clone()]);
    let (c, value) = match &step {
        TileStep::Start { c, .. } => (c, nothing),
        TileStep::Product { c, a, b, .. } => {
            let (x, y) = (Expr::cast(product.sum, first(a)), Expr::cast(product.sum, first(b)));
            (c, Expr::add(first(c), Expr::mul(x, y)))
        }
    };
    // A node of its own: steps may share the index.
    let index = Expr::add(c.first.clone(), Expr::index(0));
    let store = Stmt::store(&c.buffer, vec![index.clone()], value);
    let (name, nest) = (name.clone(), (**body).clone());
    steps.insert(index.id(), Step { product, step, nest });
    Stmt::Tensorize { name, body: Box::new(store) }
}

impl Selector<'_> {
    /// Selects the statements of a block: those that make a region together, and others one by one.
    pub(super) fn block(&mut self, stmts: &[Stmt]) {
        if self.region.is_some() || self.steps.is_empty() {
            return stmts.iter().for_each(|stmt| self.stmt(stmt));
        }
        let mut flat = Vec::new();
        flatten(stmts, &mut flat);
        let mut starts: Vec<Step> = Vec::new();
        let mut at = 0;
        while let Some(stmt) = flat.get(at) {
            if let Some(step) = self.step_of(stmt)
                && matches!(step.step, TileStep::Start { .. })
            {
                starts.push(step.clone());
                at += 1;
                continue;
            }
            let (count, products) = self.products_of(&flat[at..]);
            match products {
                Some(products) => {
                    let stmts = &flat[at..at + count];
                    self.run_region(std::mem::take(&mut starts), products, stmts);
                    at += count;
                }
                None => {
                    starts.drain(..).for_each(|start| self.stmt(&start.nest));
                    self.stmt(stmt);
                    at += 1;
                }
            }
        }
        starts.drain(..).for_each(|start| self.stmt(&start.nest));
    }

    /// Selects a statement that is a region; `false` if it is none.
    pub(super) fn single_region(&mut self, stmt: &Stmt) -> bool {
        if self.region.is_some() || self.steps.is_empty() {
            return false;
        }
        let (_, products) = self.products_of(&[stmt]);
        let Some(products) = products else { return false };
        self.run_region(Vec::new(), products, &[stmt]);
        true
    }

    fn step_of(&self, stmt: &Stmt) -> Option<&Step> {
        let Stmt::Tensorize { body, .. } = stmt else { return None };
        let Stmt::Store { indices, .. } = &**body else { return None };
        self.steps.get(&indices[0].id())
    }

    /// Returns how many of the statements, from the first on, make a region, and its products.
    fn products_of(&mut self, stmts: &[&Stmt]) -> (usize, Option<Products>) {
        let mut found: Option<Products> = None;
        for (count, stmt) in stmts.iter().enumerate() {
            let mut steps = Vec::new();
            let (mut bound, mut lets) = (FxHashSet::default(), FxHashMap::default());
            let only = self.only_products(stmt, &mut bound, &mut lets, &mut steps);
            let joined = match only && !steps.is_empty() {
                true => self.with_steps(found.clone(), &steps, &bound, &lets),
                false => None,
            };
            match joined {
                Some(joined) => found = Some(joined),
                None => return (count, found),
            }
        }
        (stmts.len(), found)
    }

    /// Whether a statement has nothing but products, prefetches and loops. Adds the products, the
    /// variables of loops, and definitions.
    fn only_products(
        &self,
        stmt: &Stmt,
        bound: &mut FxHashSet<Var>,
        lets: &mut FxHashMap<Var, Expr>,
        steps: &mut Vec<Step>,
    ) -> bool {
        match stmt {
            Stmt::Block(stmts) => {
                stmts.iter().all(|stmt| self.only_products(stmt, bound, lets, steps))
            }
            Stmt::For { var, kind, body, .. } if *kind != ForKind::Parallel => {
                bound.insert(var.clone());
                self.only_products(body, bound, lets, steps)
            }
            Stmt::Let { var, value, body } if is_index(value) && !reads_memory(value) => {
                let value = substitute(value, &mut |var| lets.get(var).cloned());
                lets.insert(var.clone(), value);
                self.only_products(body, bound, lets, steps)
            }
            Stmt::Prefetch { .. } => true,
            _ => match self.step_of(stmt) {
                Some(step) if matches!(step.step, TileStep::Product { .. }) => {
                    steps.push(step.clone());
                    true
                }
                _ => false,
            },
        }
    }

    /// Adds products to those of a region; `None` if they do not fit into it.
    fn with_steps(
        &mut self,
        before: Option<Products>,
        steps: &[Step],
        bound: &FxHashSet<Var>,
        lets: &FxHashMap<Var, Expr>,
    ) -> Option<Products> {
        let mut all = before;
        let outside = |expr: &Expr| {
            let expr = substitute(expr, &mut |var| lets.get(var).cloned());
            (!mentions_any(&expr, bound)).then_some(expr)
        };
        for Step { product, step, .. } in steps {
            let TileStep::Product { c, a, b, shape } = step else { return None };
            let shape = (*product, *shape);
            let products = all.get_or_insert_with(|| Products::new(shape));
            let c =
                TilePart { first: outside(&c.first)?, stride: outside(&c.stride)?, ..c.clone() };
            for part in [&c, a, b] {
                let stride = (outside(&part.stride)?, part.buffer.dtype.bytes() as i64);
                products.strides.push(stride);
            }
            let mut place = |part: &TilePart| (part.buffer.clone(), self.poly(&part.first));
            let (sum, a, b) = (place(&c), place(a), place(b));
            let known =
                products.sums.iter().any(|(buffer, at, _)| (buffer, at) == (&sum.0, &sum.1));
            if !known {
                products.sums.push((sum.0, sum.1, c));
            }
            for (factors, place) in [(&mut products.a, a), (&mut products.b, b)] {
                if !factors.contains(&place) {
                    factors.push(place);
                }
            }
            let factors = products.a.iter().chain(&products.b);
            let overlap = |(read, _): &(Buffer, Poly)| {
                products.sums.iter().any(|(written, ..)| written == read)
            };
            if products.shape != shape
                || products.sums.len() > MOST_SUMS
                || factors.into_iter().any(overlap)
            {
                return None;
            }
        }
        all
    }

    fn run_region(&mut self, starts: Vec<Step>, products: Products, stmts: &[&Stmt]) {
        let (_, (rows, columns, groups)) = products.shape;
        let bytes = |groups: i64| (groups * GROUP_BYTES) as u16;
        let of_sums: Shape = (rows as u8, bytes(columns));
        let (of_a, of_b): (Shape, Shape) = ((of_sums.0, bytes(groups)), (groups as u8, of_sums.1));
        // `a` and the sums often have the same shape, so they are neighbours: the registers of
        // other regions then need no other configuration.
        let count = products.sums.len();
        let for_b = products.b.len().min(TILE_REGISTERS - count - 1);
        let for_a = products.a.len().min(TILE_REGISTERS - count - for_b);
        let numbers = |from: usize, count: usize| (from..from + count).map(|number| number as u8);
        let mut config: Config = [None; TILE_REGISTERS];
        config[..count].fill(Some(of_sums));
        config[count..count + for_a].fill(Some(of_a));
        config[TILE_REGISTERS - for_b..].fill(Some(of_b));
        let config = self.configs.find(config);
        self.b.emit(Code::VEX_Ldtilecfg_m512, vec![Arg::Imm(config as i64)]);

        let mut strides = FxHashMap::default();
        for (stride, bytes) in &products.strides {
            let key = &self.poly(stride) * Wrapping(*bytes);
            strides.entry(key).or_insert_with(|| self.distance_in_bytes(stride, *bytes));
        }
        let free = |from, count| {
            FactorRegisters(numbers(from, count).map(|number| (number, None)).collect())
        };
        let mut region = Region {
            sums: Vec::new(),
            a: free(count, for_a),
            b: free(TILE_REGISTERS - for_b, for_b),
            strides,
        };
        let mut left: Vec<Option<Step>> = starts.into_iter().map(Some).collect();
        let mut loads = Vec::new();
        for ((buffer, place, part), number) in products.sums.iter().zip(numbers(0, count)) {
            region.sums.push((buffer.clone(), place.clone(), number));
            let start = left.iter_mut().find(|start| {
                start.as_ref().is_some_and(|start| self.is_start_of(start, place, part, of_sums))
            });
            match start {
                Some(start) => {
                    *start = None;
                    self.b.emit(Code::VEX_Tilezero_tmm, vec![Arg::Tile(number)]);
                }
                None => loads.push((part, number)),
            }
        }
        left.into_iter().flatten().for_each(|start| self.stmt(&start.nest));
        for (part, number) in loads {
            self.load_tile(&region, part, number);
        }
        self.region = Some(region);
        stmts.iter().for_each(|stmt| self.stmt(stmt));
        let region = self.region.take().expect("regions are not nested");
        for ((_, _, part), (_, _, number)) in products.sums.iter().zip(&region.sums) {
            self.mark(|| format!("{} = tile", text_of(part)));
            let mem = self.tile_address(&region, part);
            let args = vec![Arg::Mem(mem), Arg::Tile(*number)];
            let mut inst = Inst::new(Code::VEX_Tilestored_sibmem_tmm, args);
            let buffer = self.number(&part.buffer);
            inst.access = Some(Access { buffer, kind: AccessKind::Write });
            self.b.push(inst);
        }
        stmts.iter().for_each(|stmt| self.forget_stored(stmt));
    }

    /// A number of elements of this many bytes, in bytes, in a register.
    fn distance_in_bytes(&mut self, elements: &Expr, bytes: i64) -> VReg {
        let (terms, constant) = self.terms(elements);
        match terms.term_count() {
            0 => self.b.imm(constant.wrapping_mul(bytes)),
            _ => {
                let elements = self.sum(&terms, constant);
                self.b.mul_imm(elements, bytes)
            }
        }
    }

    /// Whether a step sets these sums to 0, and nothing else.
    fn is_start_of(&mut self, start: &Step, place: &Poly, part: &TilePart, shape: Shape) -> bool {
        let TileStep::Start { c, shape: (rows, columns) } = &start.step else { return false };
        let own: Shape = (*rows as u8, (*columns * GROUP_BYTES) as u16);
        c.buffer == part.buffer
            && own == shape
            && self.poly(&c.first) == *place
            && self.poly(&c.stride) == self.poly(&part.stride)
    }

    /// Selects a product of the region.
    pub(super) fn tile_product(&mut self, stmt: &Stmt) {
        let Some(Step { product, step, nest }) = self.step_of(stmt).cloned() else {
            crate::bug!("a tile product of another form: {stmt:?}");
        };
        let Some(mut region) = self.region.take() else { return self.stmt(&nest) };
        let TileStep::Product { c, a, b, .. } = step else {
            crate::bug!("a start in a region of products");
        };
        self.mark(|| {
            let (c, a, b) = (text_of(&c), text_of(&a), text_of(&b));
            shortened(format!("{c} += {}({a}, {b})", product.name))
        });
        let place = self.poly(&c.first);
        let sum = region.sums.iter().find(|(buffer, at, _)| *buffer == c.buffer && *at == place);
        let Some((.., sum)) = sum else { crate::bug!("a sum that is in no register") };
        let mut args = vec![Arg::Tile(*sum)];
        for is_b in [true, false] {
            let part = if is_b { &b } else { &a };
            let place = (part.buffer.clone(), self.poly(&part.first));
            let registers = if is_b { &mut region.b } else { &mut region.a };
            let (register, is_new) = registers.take(place);
            if is_new {
                self.load_tile(&region, part, register);
            }
            args.insert(1, Arg::Tile(register));
        }
        self.b.emit(code_of(product), args);
        self.region = Some(region);
    }

    /// Forgets which factors are in registers, at the beginning and the end of a loop's body.
    pub(super) fn forget_factors(&mut self) {
        if let Some(region) = &mut self.region {
            for (_, held) in region.a.0.iter_mut().chain(&mut region.b.0) {
                *held = None;
            }
        }
    }

    fn load_tile(&mut self, region: &Region, part: &TilePart, register: u8) {
        let mem = self.tile_address(region, part);
        let args = vec![Arg::Tile(register), Arg::Mem(mem)];
        let mut inst = Inst::new(Code::VEX_Tileloadd_tmm_sibmem, args);
        let buffer = self.number(&part.buffer);
        inst.access = Some(Access { buffer, kind: AccessKind::Read });
        self.b.push(inst);
    }

    /// The address of a part: that of its first element, and the distance of its rows as index.
    fn tile_address(&mut self, region: &Region, part: &TilePart) -> Mem {
        let mut mem = self.address(&part.buffer, &part.first);
        if mem.index.is_some() {
            mem = Mem::at(self.b.lea(mem));
        }
        let bytes = part.buffer.dtype.bytes() as i64;
        let stride = region.strides[&(&self.poly(&part.stride) * Wrapping(bytes))];
        Mem { index: Some((stride, 1)), ..mem }
    }

    /// Completes the configurations at the end of the function, and frees the tile registers: the
    /// system saves registers in use at each switch of threads.
    pub(super) fn finish_tiles(&mut self) {
        let configs = std::mem::take(&mut self.configs.0);
        if configs.is_empty() {
            return;
        }
        self.b.emit(Code::VEX_Tilerelease, Vec::new());
        let pool: Vec<Mem> = configs.iter().map(|config| self.b.pool(bytes_of(config))).collect();
        let is_config = |inst: &Inst| inst.code == Code::VEX_Ldtilecfg_m512;
        let blocks = &mut self.b.func.blocks;
        if let [config] = pool[..] {
            blocks.iter_mut().for_each(|block| block.insts.retain(|inst| !is_config(inst)));
            // Behind the function's argument.
            blocks[0].insts.insert(1, Inst::new(Code::VEX_Ldtilecfg_m512, vec![Arg::Mem(config)]));
            return;
        }
        for inst in blocks.iter_mut().flat_map(|block| &mut block.insts) {
            if let [Arg::Imm(number)] = inst.args[..]
                && is_config(inst)
            {
                inst.args = vec![Arg::Mem(pool[number as usize])];
            }
        }
    }
}

impl Products {
    fn new(shape: (TileProduct, (i64, i64, i64))) -> Products {
        let (sums, a, b, strides) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Products { shape, sums, a, b, strides }
    }
}

/// The configurations of a function. Each has the shapes of regions that do not contradict.
#[derive(Default)]
pub(super) struct Configs(Vec<Config>);

impl Configs {
    /// Returns the number of a configuration with these shapes.
    fn find(&mut self, shapes: Config) -> usize {
        let agree = |known: &Config| {
            known.iter().zip(&shapes).all(|(x, y)| x.is_none() || y.is_none() || x == y)
        };
        let at = self.0.iter().position(agree).unwrap_or_else(|| {
            self.0.push([None; TILE_REGISTERS]);
            self.0.len() - 1
        });
        for (known, shape) in self.0[at].iter_mut().zip(shapes) {
            *known = known.or(shape);
        }
        at
    }
}

/// The operand of `ldtilecfg` (Intel SDM, volume 1, "TILECFG"): the palette, bytes of the rows from
/// byte 16 on, numbers of rows from byte 48 on.
fn bytes_of(config: &Config) -> Vec<u8> {
    let mut bytes = vec![0; CONFIG_BYTES];
    bytes[0] = 1;
    for (number, (rows, row_bytes)) in
        config.iter().map(|shape| shape.unwrap_or((0, 0))).enumerate()
    {
        bytes[16 + 2 * number..][..2].copy_from_slice(&row_bytes.to_le_bytes());
        bytes[48 + number] = rows;
    }
    bytes
}

fn code_of(product: TileProduct) -> Code {
    match (product.a, product.b) {
        (DType::Uint8, DType::Int8) => Code::VEX_Tdpbusd_tmm_tmm_tmm,
        (DType::Int8, DType::Uint8) => Code::VEX_Tdpbsud_tmm_tmm_tmm,
        (DType::Int8, _) => Code::VEX_Tdpbssd_tmm_tmm_tmm,
        (DType::Uint8, _) => Code::VEX_Tdpbuud_tmm_tmm_tmm,
        _ => Code::VEX_Tdpbf16ps_tmm_tmm_tmm,
    }
}

fn text_of(part: &TilePart) -> String {
    format!("{}[{}]", part.buffer.name, print_expr(&part.first))
}

/// The statements of nested blocks in one list.
fn flatten<'s>(stmts: &'s [Stmt], flat: &mut Vec<&'s Stmt>) {
    for stmt in stmts {
        match stmt {
            Stmt::Block(inner) => flatten(inner, flat),
            other => flat.push(other),
        }
    }
}
