//! The nests that `tensorize` names: checked, and marked for the back ends.

use super::{Nests, build_plain_loops};
use crate::diag::Result;
use crate::ir::arith::Facts;
use crate::ir::copy::fresh_copy;
use crate::ir::tile::{MAX_TILE_SIDE, TileProduct, is_zero};
use crate::ir::visit::mentions;
use crate::ir::warp::WarpProduct;
use crate::ir::{Expr, ForKind, Stmt, Var};
use crate::lower::match_intrinsic::{
    in_lanes, instruction_in_lanes, match_intrinsic, without_tails,
};
use crate::lower::match_product::match_product;
use crate::schedule::{Stage, StageBounds, StageId, Tensorize, loop_min};
use crate::target::Target;
use rustc_hash::FxHashMap;

impl Nests<'_> {
    /// Marks the nest of loop `at` if `tensorize` names that loop, after checking that it is the
    /// intrinsic.
    pub(super) fn mark_intrinsic(
        &self,
        id: StageId,
        bounds: &StageBounds,
        at: usize,
        nest: Stmt,
    ) -> Result<Stmt> {
        let (stage, target) = (self.bounded.schedule.stage(id), &self.bounded.schedule.target);
        let asked = stage.annotation::<Tensorize>().map(|(_, asked)| asked);
        let asked = asked.filter(|asked| asked.axis == stage.leaves[at]);
        let Some(tensorize) = asked else { return Ok(nest) };
        let intrinsic = &tensorize.intrinsic;
        let name = intrinsic.name.clone();
        if let Some(product) = WarpProduct::of(&name) {
            match_product(product, (self.bounded, id, stage), tensorize, &nest)?;
            return Ok(Stmt::Tensorize { name, body: Box::new(nest) });
        }
        let mut facts = Facts::new();
        for leaf in &stage.leaves[..at] {
            let (min, extent) = (loop_min(stage, *leaf), &bounds.extents[leaf.0]);
            facts.bind(&stage.axis(*leaf).var, &min, extent);
        }
        if let Some(product) = TileProduct::of(&name) {
            return tile_product((stage, target), tensorize, product, nest, facts);
        }
        let loops = build_plain_loops(intrinsic, target)?;
        let whole = without_tails(&nest);
        match_intrinsic(stage, tensorize, loops, &whole.bare, facts)?;
        if !target.has_intrinsic(&name) {
            return Ok(match whole.has_tails() {
                true => nest,
                false => Stmt::Tensorize { name, body: Box::new(nest) },
            });
        }
        Ok(instruction_in_lanes(name, intrinsic.reassociate, &nest))
    }

    /// Whether the iterations of loop `at` are the lanes of an instruction, or the columns of a
    /// tile product.
    pub(super) fn is_lanes(&self, stage: &Stage, at: usize) -> bool {
        self.instruction(stage).is_some_and(|tensorize| {
            let is_tile = TileProduct::of(&tensorize.intrinsic.name).is_some();
            let first = at.checked_sub(usize::from(is_tile));
            first.is_some_and(|first| tensorize.axis == stage.leaves[first])
        })
    }

    /// Marks the nest that sets the sums of a tile product to 0, from loop `at` inwards.
    pub(super) fn mark_start(&self, stage: &Stage, at: usize, nest: Stmt) -> Stmt {
        let asked = self.instruction(stage).filter(|asked| asked.axis == stage.leaves[at]);
        match asked.and_then(|asked| TileProduct::of(&asked.intrinsic.name)) {
            Some(product) => start_of_tile(product, nest),
            None => nest,
        }
    }

    /// Returns the instruction of a stage, if the target has it.
    fn instruction<'s>(&self, stage: &'s Stage) -> Option<&'s Tensorize> {
        let (_, tensorize) = stage.annotation::<Tensorize>()?;
        self.bounded.schedule.target.has_intrinsic(&tensorize.intrinsic.name).then_some(tensorize)
    }
}

/// Marks a nest that is a tile product. Where it is not whole, rows are computed one by one.
fn tile_product(
    (stage, target): (&Stage, &Target),
    tensorize: &Tensorize,
    product: TileProduct,
    nest: Stmt,
    facts: Facts,
) -> Result<Stmt> {
    let whole = without_tails(&nest);
    let loops = build_plain_loops(&tensorize.with_shape(shape_of(&whole.bare)), target)?;
    match_intrinsic(stage, tensorize, loops, &whole.bare, facts)?;
    if !target.has_intrinsic(product.name) {
        return Ok(nest);
    }
    let name = || product.name.to_string();
    let (start, update) = apart(whole.bare);
    let mut instruction = Stmt::Tensorize { name: name(), body: Box::new(update) };
    if let Some(start) = start {
        instruction = Stmt::Block(vec![start_of_tile(product, start), instruction]);
    }
    Ok(whole.tails.into_iter().fold(instruction, |then, cond| {
        let (start, update) = apart(fresh_copy(&nest, &FxHashMap::default()));
        let rest =
            Stmt::Block(start.into_iter().chain([row_by_row(product, target, update)]).collect());
        Stmt::If { cond, then: Box::new(then), otherwise: Some(Box::new(rest)) }
    }))
}

/// Returns the extents of the loops over rows, columns and groups; where one is no tile's, the
/// largest that is.
fn shape_of(nest: &Stmt) -> [i64; 3] {
    let mut shape = [MAX_TILE_SIDE; 3];
    let mut at = nest;
    for side in &mut shape {
        let (extent, body) = match at {
            Stmt::For { extent, body, .. } => (extent, body),
            _ => break,
        };
        let extent = extent.as_int().and_then(|extent| i64::try_from(extent).ok());
        *side = extent.filter(|extent| (2..=MAX_TILE_SIDE).contains(extent)).unwrap_or(*side);
        at = match &**body {
            // Start values, then the loops over terms.
            Stmt::Block(stmts) => stmts.last().unwrap_or(body),
            body => body,
        };
    }
    shape
}

/// Separates the nest of the start values from that of the terms.
///
/// Before: `for (i) { for (j) { C[i, j] = 0; for (q) … } }`
/// After:  `for (i) { for (j) { C[i, j] = 0 } }`, `for (i) { for (j) { for (q) … } }`
fn apart(nest: Stmt) -> (Option<Stmt>, Stmt) {
    match nest {
        Stmt::For { var, min, extent, kind, body } => {
            let (start, update) = apart(*body);
            let start = start.map(|start| {
                let body = Box::new(start);
                let (var, min, extent) = (var.clone(), min.clone(), extent.clone());
                let nest = Stmt::For { var, min, extent, kind: kind.clone(), body };
                fresh_copy(&nest, &FxHashMap::default())
            });
            (start, Stmt::For { var, min, extent, kind, body: Box::new(update) })
        }
        Stmt::If { cond, then, otherwise: None } => {
            let (start, update) = apart(*then);
            let under = |body: Stmt| {
                let (cond, then) = (cond.clone(), Box::new(body));
                Stmt::If { cond, then, otherwise: None }
            };
            (start.map(under), under(update))
        }
        Stmt::Block(mut stmts) if stmts.len() == 2 => {
            let update = stmts.pop().expect("there are two");
            (stmts.pop(), update)
        }
        other => (None, other),
    }
}

/// Returns the start of a tile product: rows of vectors, which a tile register can hold if all of
/// them are 0.
fn start_of_tile(product: TileProduct, nest: Stmt) -> Stmt {
    let whole = without_tails(&nest);
    let Stmt::For { var, min, extent, kind, body } = whole.bare else { return nest };
    let body = match *body {
        Stmt::For { var, min, extent, body, .. } => {
            Box::new(Stmt::For { var, min, extent, kind: ForKind::Vectorized, body })
        }
        _ => return nest,
    };
    let zero = matches!(innermost(&body), Stmt::Store { value, .. } if is_zero(value));
    let rows = Stmt::For { var, min, extent, kind, body };
    if !zero {
        return nest;
    }
    let start = Stmt::Tensorize { name: product.name.to_string(), body: Box::new(rows) };
    whole.tails.into_iter().fold(start, |then, cond| {
        let rest = fresh_copy(&nest, &FxHashMap::default());
        Stmt::If { cond, then: Box::new(then), otherwise: Some(Box::new(rest)) }
    })
}

fn innermost(stmt: &Stmt) -> &Stmt {
    match stmt {
        Stmt::For { body, .. } => innermost(body),
        Stmt::Block(stmts) if stmts.len() == 1 => innermost(&stmts[0]),
        other => other,
    }
}

/// Returns the nest of a tile product on vectors, for tiles that are not whole.
///
/// Before: `for (i) { for (j) { for (q) { for (k) { C[i, j] = … } } } }`
/// After:  `for (i) { for (q) { vectorized (j) { for (k) { C[i, j] = … } } } }`
fn row_by_row(product: TileProduct, target: &Target, nest: Stmt) -> Stmt {
    let (mut loops, mut conditions): (Vec<(Var, Expr, Expr)>, Vec<Expr>) = Default::default();
    let mut at = nest;
    let store = loop {
        at = match at {
            Stmt::For { var, min, extent, body, .. } => {
                loops.push((var, min, extent));
                *body
            }
            Stmt::If { cond, then, otherwise: None } => {
                conditions.push(cond);
                *then
            }
            other => break other,
        };
    };
    let [rows, columns, groups, terms] = &loops[..] else {
        crate::bug!("compared with the intrinsic's nest");
    };
    let mut inside = store;
    let wrap = |over: &(Var, Expr, Expr), inside: Stmt, left: &mut Vec<Expr>| {
        let (own, others) =
            std::mem::take(left).into_iter().partition(|cond| mentions(cond, &over.0));
        *left = others;
        let own: Vec<Expr> = own;
        let body = own.into_iter().fold(inside, |body, cond| Stmt::If {
            cond,
            then: Box::new(body),
            otherwise: None,
        });
        let (var, min, extent) = over.clone();
        Stmt::For { var, min, extent, kind: ForKind::Serial, body: Box::new(body) }
    };
    inside = wrap(terms, inside, &mut conditions);
    inside = wrap(columns, inside, &mut conditions);
    inside = match product.in_lanes.filter(|name| target.has_intrinsic(name)) {
        Some(name) => instruction_in_lanes(name.to_string(), product.sum.is_float(), &inside),
        None => in_lanes(inside, false),
    };
    inside = wrap(groups, inside, &mut conditions);
    inside = wrap(rows, inside, &mut conditions);
    conditions.into_iter().fold(inside, |then, cond| Stmt::If {
        cond,
        then: Box::new(then),
        otherwise: None,
    })
}
