//! Products of small matrices by a warp: the intrinsics that tensor cores compute.
//!
//! `mma_m16n8k16_bf16`: 32 threads add the product of a 16×16 and a 16×8 matrix to a 16×8 one. The
//! thread with `threadIdx.x = lane` holds four elements of the sum, of rows `lane // 4` and that
//! plus 8, columns `lane % 4 * 2` and the next one. Its part is the nest
//! `for half in 0..2, column in 0..2, k in 0..16: c[half, column] = c[half, column] +`
//! `a[half*8 + lane // 4, k] * b[k, lane % 4 * 2 + column]`,
//! which is what the loop IR says and what the interpreter runs, thread by thread.

use super::arith::Facts;
use super::simplify::simplify_expr;
use super::visit::{mentions, substitute};
use super::{BinOp, Buffer, DType, Expr, ExprKind, ForKind, Intrinsic, Stmt, Var};

/// Rows and columns of a thread's part.
pub const HALVES: i64 = 2;

/// A product by a warp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WarpProduct {
    /// In `lib/intrinsics.te`.
    pub name: &'static str,
    /// Elements of the factors.
    pub factor: DType,
    /// Elements of the sum.
    pub sum: DType,
    /// Terms of one element.
    pub terms: i64,
    /// The instruction in PTX.
    pub instruction: &'static str,
}

impl WarpProduct {
    /// All of them.
    pub const ALL: [WarpProduct; 5] = [
        WarpProduct {
            name: "mma_m16n8k16_bf16",
            factor: DType::BFloat16,
            sum: DType::Float32,
            terms: 16,
            instruction: "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
        },
        WarpProduct {
            name: "mma_m16n8k16_f16",
            factor: DType::Float16,
            sum: DType::Float32,
            terms: 16,
            instruction: "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        },
        WarpProduct {
            name: "mma_m16n8k8_tf32",
            factor: DType::Float32,
            sum: DType::Float32,
            terms: 8,
            instruction: "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
        },
        WarpProduct {
            name: "mma_m16n8k32_s8",
            factor: DType::Int8,
            sum: DType::Int32,
            terms: 32,
            instruction: "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32",
        },
        WarpProduct {
            name: "mma_m16n8k32_u8",
            factor: DType::Uint8,
            sum: DType::Int32,
            terms: 32,
            instruction: "mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32",
        },
    ];

    /// The product that an intrinsic is; none if it is of one thread alone.
    pub fn of(name: &str) -> Option<WarpProduct> {
        WarpProduct::ALL.into_iter().find(|product| product.name == name)
    }

    /// Elements of a factor in 16 bytes, a row of `ldmatrix`.
    pub fn row(self) -> i64 {
        16 / self.factor.bytes() as i64
    }
}

/// Whether a statement is computed by a warp together. Its nest stays as it is until a back end
/// takes it.
pub fn is_warp_product(stmt: &Stmt) -> bool {
    matches!(stmt, Stmt::Tensorize { name, .. } if WarpProduct::of(name).is_some())
}

/// An element of a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Element<'a> {
    /// Of which buffer.
    pub buffer: &'a Buffer,
    /// One index per dimension before `flatten_storage`, exactly one after.
    pub indices: &'a [Expr],
}

/// A thread's part of a product.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The variables of the loops: half, column, term.
    pub vars: [&'a Var; 3],
    /// The running sum.
    pub c: Element<'a>,
    /// The factor that moves by rows.
    pub a: Element<'a>,
    /// The factor that moves by columns.
    pub b: Element<'a>,
}

/// Reads a nest as a thread's part, or tells what is different.
pub fn thread_part(product: WarpProduct, nest: &Stmt) -> Result<Part<'_>, String> {
    let (mut vars, mut at) = (Vec::new(), nest);
    for extent in [HALVES, HALVES, product.terms] {
        at = single(at);
        let Stmt::For { var, min, extent: count, kind, body } = at else {
            return Err(match at {
                Stmt::If { cond, .. } => format!(
                    "a condition stands inside: `{}`; split so that the factor divides",
                    super::print::print_expr(cond)
                ),
                _ => format!("a loop of {extent} more is expected inside"),
            });
        };
        let name = var.name();
        if *kind != ForKind::Serial {
            return Err(format!("loop `{name}` is not serial"));
        }
        if (min.as_int(), count.as_int()) != (Some(0), Some(extent.into())) {
            let got = super::print::print_expr(count);
            return Err(format!("loop `{name}` has an extent of {got}, {extent} is expected"));
        }
        vars.push(var);
        at = body;
    }
    let (buffer, indices, value) = match single(at) {
        Stmt::Store { buffer, indices, value, mask: None, .. } => (buffer, indices, value),
        Stmt::For { var, .. } => {
            return Err(format!("there is one more loop inside, `{}`", var.name()));
        }
        Stmt::If { cond, .. } => {
            return Err(format!(
                "a condition stands inside: `{}`; split so that the factor divides",
                super::print::print_expr(cond)
            ));
        }
        _ => return Err("it is no sum of products".to_string()),
    };
    let c = Element { buffer, indices };
    let no_sum = || format!("`{}` is no sum of products", super::print::print_expr(value));
    let (old, x, y) = match &value.kind {
        ExprKind::Call(Intrinsic::Fma, args) => (&args[2], &args[0], &args[1]),
        ExprKind::Binary(BinOp::Add, old, term) => match &term.kind {
            ExprKind::Binary(BinOp::Mul, x, y) => (old, x, y),
            _ => return Err(no_sum()),
        },
        _ => return Err(no_sum()),
    };
    let same = |a: &[Expr], b: &[Expr]| {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| super::equal::equal(a, b))
    };
    match &old.kind {
        ExprKind::Load { buffer, indices, mask: None }
            if buffer == c.buffer && same(indices, c.indices) => {}
        _ => return Err(no_sum()),
    }
    if buffer.dtype != product.sum {
        return Err(format!(
            "`{}` holds {}, {} is expected",
            buffer.name, buffer.dtype, product.sum
        ));
    }
    let (x, y) = (factor(product, x)?, factor(product, y)?);
    let moves =
        |element: &Element<'_>, var: &Var| element.indices.iter().any(|index| mentions(index, var));
    let (a, b) = if moves(&x, vars[0]) { (x, y) } else { (y, x) };
    Ok(Part { vars: [vars[0], vars[1], vars[2]], c, a, b })
}

/// Blocks of one statement aside.
fn single(stmt: &Stmt) -> &Stmt {
    match stmt {
        Stmt::Block(stmts) if stmts.len() == 1 => single(&stmts[0]),
        _ => stmt,
    }
}

fn factor(product: WarpProduct, expr: &Expr) -> Result<Element<'_>, String> {
    let shown = || super::print::print_expr(expr);
    let inner = match &expr.kind {
        ExprKind::Cast(inner) if product.factor != DType::Float32 => inner,
        // Float32 factors are rounded where the source says so, and nowhere else.
        ExprKind::Call(Intrinsic::Tf32, args) if product.factor == DType::Float32 => &args[0],
        _ if product.factor == DType::Float32 => {
            return Err(format!(
                "`{0}` is no element rounded to ten bits; the source says so: `tf32({0})`",
                shown()
            ));
        }
        _ => return Err(format!("`{}` is no element of {}", shown(), product.factor)),
    };
    match &inner.kind {
        ExprKind::Load { buffer, indices, mask: None } if expr.ty.dtype == product.sum => {
            if buffer.dtype != product.factor {
                return Err(format!(
                    "`{}` holds {}, {} is expected",
                    buffer.name, buffer.dtype, product.factor
                ));
            }
            Ok(Element { buffer, indices })
        }
        _ => Err(format!("`{}` is no element of {}", shown(), product.factor)),
    }
}

/// `index` where variables have these values.
pub fn index_at(index: &Expr, values: &[(&Var, i64)]) -> Expr {
    let at = substitute(index, &mut |var| {
        let known = values.iter().find(|(other, _)| *other == var);
        known.map(|(_, value)| Expr::index(*value))
    });
    simplify_expr(&at, &Facts::new())
}
