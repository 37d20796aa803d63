//! Scans: keeps the running value in a register from one iteration to the next.
//!
//! Before: `for i from 1 { S[i] = S[i - 1]; S[i] = S[i] + A[i] }`
//! After:  `allocate S.acc: register; S.acc[0] = S[0]; for i from 1 { S.acc[0] = S.acc[0] + A[i];
//!          S[i] = S.acc[0] }`
//! An iteration may compute several elements, if the loop over them is unrolled, and go on with
//! several scans, one for each vector of a row. Each copy of an element to its successor ends the
//! accesses to it in the iteration, so the register can take its place.

use super::{Element, Elements, MAX_PROMOTED_ELEMENTS, Promoter, flatten, runs_alone};
use crate::ir::arith::Facts;
use crate::ir::equal::equal;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::{
    for_each_expr, reads_buffer, reads_memory, stored_buffers, substitute, walk_stmt,
};
use crate::ir::{Buffer, Expr, ExprKind, ForKind, Scope, Stmt, Var};

/// The elements that an iteration computes one from the other.
struct Chain {
    /// The element that the iteration before has computed, and its register.
    entry: Element,
    /// The elements of this iteration so far.
    elements: Vec<Expr>,
}

impl Chain {
    fn current(&self) -> &Expr {
        self.elements.last().expect("a chain begins with an element")
    }

    /// Returns the current element with the register.
    fn at_current(&self) -> Element {
        self.entry.with_index(self.current())
    }
}

/// The chains of a loop, and the statements of an iteration that use their registers.
struct Scans<'a> {
    promoter: &'a Promoter<'a>,
    chains: Vec<Chain>,
    stmts: Vec<Stmt>,
}

impl Promoter<'_> {
    /// Whether no element of a scan overlaps one of another scan of the same buffer in an
    /// iteration.
    fn are_chains_disjoint(&self, chains: &[Chain]) -> bool {
        let all = |chain: &Chain| -> Vec<Element> {
            let entry = std::iter::once(&chain.entry.index);
            entry.chain(&chain.elements).map(|index| chain.entry.with_index(index)).collect()
        };
        chains.iter().enumerate().all(|(at, a)| {
            let mut others = chains[..at].iter().filter(|b| b.entry.buffer == a.entry.buffer);
            others.all(|b| all(a).iter().all(|x| all(b).iter().all(|y| self.are_disjoint(x, y))))
        })
    }

    /// Returns a loop that computes scans, with their running values in registers; `None` if it
    /// computes none.
    pub(super) fn carry(&self, nest: &Stmt) -> Option<Stmt> {
        let Stmt::For { var, min, extent, kind, body } = nest else { return None };
        if !self.loads
            || !matches!(kind, ForKind::Serial | ForKind::UnrollHint)
            || extent.as_int().is_some_and(|extent| extent < 1)
        {
            return None;
        }
        let mut flat = Vec::new();
        flatten(vec![(**body).clone()], &mut flat);
        if !flat.iter().any(|stmt| copied(stmt).is_some()) || !runs_alone(nest) {
            return None;
        }
        let mut scans = Scans { promoter: self, chains: Vec::new(), stmts: Vec::new() };
        for stmt in flat {
            scans.add(stmt)?;
        }
        let Scans { chains, mut stmts, .. } = scans;
        if chains.len() > MAX_PROMOTED_ELEMENTS
            || !chains.iter().all(|chain| self.has_room(&chain.entry.register))
            || !chains.iter().all(|chain| follows(chain, var))
            || !self.are_chains_disjoint(&chains)
        {
            return None;
        }
        stmts.extend(chains.iter().map(|chain| chain.at_current().write_back()));
        let first = |chain: &Chain| {
            let index = substitute(&chain.entry.index, &mut |v| (v == var).then(|| min.clone()));
            chain.entry.with_index(&simplify_expr(&index, &Facts::new())).read()
        };
        let mut whole: Vec<Stmt> = chains.iter().map(first).collect();
        let (var, min, body) = (var.clone(), min.clone(), Box::new(Stmt::Block(stmts)));
        whole.push(self.promote_loop(Stmt::For {
            var,
            min,
            extent: extent.clone(),
            kind: kind.clone(),
            body,
        }));
        let whole = chains.iter().rev().fold(Stmt::Block(whole), |body, chain| Stmt::Allocate {
            buffer: chain.entry.register.clone(),
            body: Box::new(body),
        });
        // Without iterations, the first element may lie outside of its tensor.
        Some(match extent.as_int() {
            Some(_) => whole,
            None => {
                let cond = Expr::lt(Expr::index(0), extent.clone());
                Stmt::If { cond, then: Box::new(whole), otherwise: None }
            }
        })
    }
}

impl Scans<'_> {
    /// Adds the next statement of the iteration; `None` if it accesses other elements of a scan.
    fn add(&mut self, stmt: Stmt) -> Option<()> {
        if let Some((buffer, from, to)) = copied(&stmt) {
            let before = self
                .chains
                .iter_mut()
                .find(|chain| chain.entry.buffer == *buffer && equal(chain.current(), from));
            if let Some(chain) = before {
                self.stmts.push(chain.at_current().write_back());
                chain.elements.push(to.clone());
                return Some(());
            }
            let begun = self.chains.iter().any(|chain| chain.entry.buffer == *buffer);
            if begun || !self.stmts.iter().any(|earlier| accesses(earlier, buffer)) {
                let entry = Element::new(buffer, from, None);
                self.chains.push(Chain { entry, elements: vec![to.clone()] });
                return Some(());
            }
            return None;
        }
        let mut stmt = stmt;
        let mut seen: Vec<Buffer> = Vec::new();
        for chain in &self.chains {
            let buffer = &chain.entry.buffer;
            if seen.contains(buffer) || !accesses(&stmt, buffer) {
                continue;
            }
            seen.push(buffer.clone());
            let same = self.chains.iter().filter(|chain| chain.entry.buffer == *buffer);
            let list = same.map(Chain::at_current).collect();
            let elements = Elements { list, ..self.promoter.elements_of(buffer) };
            if !elements.are_all_accesses(&stmt) {
                return None;
            }
            stmt = elements.redirect(stmt);
        }
        self.stmts.push(stmt);
        Some(())
    }
}

/// Returns buffer, source and destination of a store that copies an element of memory to another
/// place of the same buffer.
fn copied(stmt: &Stmt) -> Option<(&Buffer, &Expr, &Expr)> {
    let Stmt::Store { buffer, indices, value, mask: None, .. } = stmt else { return None };
    let ExprKind::Load { buffer: source, indices: from, mask: None } = &value.kind else {
        return None;
    };
    let (from, to) = (from.first()?, indices.first()?);
    let fits = source == buffer
        && buffer.scope != Scope::Register
        && !reads_memory(from)
        && !reads_memory(to)
        && !equal(from, to);
    fits.then_some((buffer, from, to))
}

/// Whether the last element of an iteration is the one that the next iteration begins with.
fn follows(chain: &Chain, var: &Var) -> bool {
    let next = Expr::add(Expr::var(var), Expr::index(1));
    let next = substitute(&chain.entry.index, &mut |v| (v == var).then(|| next.clone()));
    let last = chain.at_current();
    let next = chain.entry.with_index(&next);
    let (Some(a), Some(b)) = (last.lanes(), next.lanes()) else { return false };
    let distance = Expr::sub(a.first.clone(), b.first.clone());
    let distance = simplify_expr(&distance, &Facts::new());
    a.lanes == b.lanes && a.stride == b.stride && distance.as_int() == Some(0)
}

/// Whether a statement loads from a buffer or stores to it.
fn accesses(stmt: &Stmt, buffer: &Buffer) -> bool {
    let mut found = stored_buffers(stmt).contains(buffer);
    walk_stmt(
        stmt,
        &mut |inner| for_each_expr(inner, &mut |expr| found |= reads_buffer(expr, buffer)),
        &mut |_| {},
    );
    found
}
