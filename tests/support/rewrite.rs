//! Other orders of a kernel's loops: a loop whose iterations may run in any order must give the
//! same result backwards.

use tec::ir::visit::{map_stmts, rewrite_exprs, substitute};
use tec::ir::{Buffer, DType, Expr, ForKind, Kernel, Param, Role, Scope, Stmt, Var};

/// Returns the kernel with its parallel loops and lanes backwards; none if it has neither.
pub fn backwards(kernel: &Kernel) -> Option<Kernel> {
    let mut found = false;
    let body = reverse(kernel.body.clone(), &mut found);
    found.then(|| Kernel { body, ..kernel.clone() })
}

fn reverse(stmt: Stmt, found: &mut bool) -> Stmt {
    match map_stmts(stmt, &mut |inner| reverse(inner, found)) {
        Stmt::For { var, min, extent, kind: ForKind::Parallel | ForKind::Vectorized, body } => {
            *found = true;
            let last = Expr::sub(Expr::add(min.clone(), extent.clone()), Expr::index(1));
            let first = Expr::add(last, min.clone());
            let mirrored = Expr::sub(first, Expr::var(&var));
            let body = rewrite_exprs(*body, &mut |expr| {
                substitute(expr, &mut |v| (*v == var).then(|| mirrored.clone()))
            });
            Stmt::For { var, min, extent, kind: ForKind::Serial, body: Box::new(body) }
        }
        other => other,
    }
}

/// Returns the kernel with a last output that becomes 1 where two iterations of a parallel loop
/// (with `lanes`, of a vectorized one too) write one element; none if it has no such loop.
pub fn with_owners(kernel: &Kernel, lanes: bool) -> Option<Kernel> {
    let race = Buffer::new("race", DType::Int32, Vec::new(), Scope::Global);
    let mut found = false;
    let body = own(kernel.body.clone(), &race, lanes, &mut found);
    let mut params = kernel.params.clone();
    params.push(Param::Tensor { buffer: race, role: Role::Output, layout_free: false });
    found.then(|| Kernel { body, params, ..kernel.clone() })
}

fn own(stmt: Stmt, race: &Buffer, lanes: bool, found: &mut bool) -> Stmt {
    match map_stmts(stmt, &mut |inner| own(inner, race, lanes, found)) {
        Stmt::For { var, min, extent, kind, body }
            if kind == ForKind::Parallel || (lanes && kind == ForKind::Vectorized) =>
        {
            *found = true;
            let mut written: Vec<(Buffer, Buffer)> = Vec::new();
            let body = mark_stores(*body, &var, race, &mut Vec::new(), &mut written);
            let kind = ForKind::Serial;
            let mut stmt = Stmt::For { var, min, extent, kind, body: Box::new(body) };
            for (buffer, owner) in written {
                let fill = fill(&owner, &buffer);
                let body = Box::new(Stmt::Block(vec![fill, stmt]));
                stmt = Stmt::Allocate { buffer: owner, body };
            }
            stmt
        }
        other => other,
    }
}

/// Marks every element as written by no iteration.
fn fill(owner: &Buffer, buffer: &Buffer) -> Stmt {
    let vars: Vec<Var> = buffer.shape.iter().map(|_| Var::index("f")).collect();
    let indices = vars.iter().map(Expr::var).collect();
    let unowned = Stmt::store(owner, indices, Expr::int(DType::Int64, -1));
    let loops = vars.into_iter().zip(&buffer.shape).rev();
    loops.fold(unowned, |body, (var, extent)| Stmt::serial(var, extent.clone(), body))
}

/// Before each store to a buffer that outlives an iteration, checks whether another iteration wrote
/// the element.
fn mark_stores(
    stmt: Stmt,
    var: &Var,
    race: &Buffer,
    local: &mut Vec<Buffer>,
    written: &mut Vec<(Buffer, Buffer)>,
) -> Stmt {
    match stmt {
        Stmt::Allocate { buffer, body } => {
            local.push(buffer.clone());
            let body = Box::new(mark_stores(*body, var, race, local, written));
            Stmt::Allocate { buffer, body }
        }
        Stmt::Store { buffer, indices, value, mask, nontemporal }
            if buffer != *race && !local.contains(&buffer) =>
        {
            let known = written.iter().find(|(known, _)| *known == buffer);
            let owner = match known {
                Some((_, owner)) => owner.clone(),
                None => {
                    let name = format!("owner.{}", buffer.name);
                    let shape = buffer.shape.clone();
                    let owner = Buffer::new(name, DType::Int64, shape, Scope::Global);
                    written.push((buffer.clone(), owner.clone()));
                    owner
                }
            };
            let me = Expr::cast(DType::Int64, Expr::var(var));
            let whose = Expr::load(&owner, indices.clone());
            let unowned = Expr::eq(whose.clone(), Expr::int(DType::Int64, -1));
            let fine = Expr::or(unowned, Expr::eq(whose, me.clone()));
            let flag = Stmt::store(race, Vec::new(), Expr::int(DType::Int32, 1));
            let then = Box::new(flag);
            let check = Stmt::If { cond: Expr::not(fine), then, otherwise: None };
            let mine = Stmt::store(&owner, indices.clone(), me);
            Stmt::Block(vec![
                check,
                mine,
                Stmt::Store { buffer, indices, value, mask, nontemporal },
            ])
        }
        other => map_stmts(other, &mut |inner| mark_stores(inner, var, race, local, written)),
    }
}
