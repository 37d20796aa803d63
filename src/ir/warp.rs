//! Warp products: products of small matrices that the tensor cores compute for a warp.
//!
//! Example: with `mma_m16n8k16_bf16`, 32 threads add the product of a 16×16 and an 16×8 matrix to a
//! 16×8 matrix. The thread with `threadIdx.x = lane` holds four elements of the sum: rows `lane //
//! 4` and `lane // 4 + 8`, columns `lane % 4 * 2` and the next one. The loop IR holds the part of
//! one thread, which the interpreter runs for each thread:
//!
//! ```text
//! for half in 0..2, column in 0..2, k in 0..16:
//!   c[half, column] = c[half, column] + a[half*8 + lane // 4, k] * b[k, lane % 4 * 2 + column]
//! ```
//!
//! A warpgroup, four warps in a row, computes larger products together: `wgmma_m64nNk16_bf16`. Its
//! warp `w` has rows `16*w` and the 15 next ones, and a thread has `n / 8` times as many elements:
//!
//! ```text
//! for half in 0..2, group in 0..n/8, column in 0..2, k in 0..16:
//!   c[half, group, column] = c[half, group, column]
//!     + a[warp*16 + half*8 + lane // 4, k] * b[k, group*8 + lane % 4 * 2 + column]
//! ```

use super::arith::Facts;
use super::simplify::simplify_expr;
use super::visit::{mentions, substitute};
use super::{BinOp, Buffer, DType, Expr, ExprKind, ForKind, Intrinsic, Stmt, Var};

/// The number of rows, and of columns, of a thread's part.
pub const HALVES: i64 = 2;

/// The warps of a warpgroup.
pub const GROUP_WARPS: i64 = 4;

/// The columns of a warp product, and of a group of a warpgroup product.
pub const COLUMNS: i64 = 8;

/// The most groups of columns of a warpgroup product (PTX ISA: `wgmma`).
const MAX_GROUPS: i64 = 32;

/// The first GPUs with these products, as compute capability times 10 (PTX ISA: `mma.sync`).
pub const FIRST_WITH_PRODUCTS: u32 = 80;

/// The only compute capability, times 10, with warpgroup products; its target ends in `a`.
pub const WARPGROUP_GPU: u32 = 90;

/// A kind of warp product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WarpProduct {
    /// The name in `lib/intrinsics.te`.
    pub name: &'static str,
    /// The element type of `a`, the factor that depends on the row.
    pub a: DType,
    /// The element type of `b`, which has as many bytes.
    pub b: DType,
    /// The element type of the sum.
    pub sum: DType,
    /// The number of terms of an element of the sum.
    pub terms: i64,
    /// The warps that compute it together: 1, or those of a warpgroup.
    pub warps: i64,
}

const fn kind(name: &'static str, a: DType, b: DType, sum: DType, terms: i64) -> WarpProduct {
    WarpProduct { name, a, b, sum, terms, warps: 1 }
}

const fn of_warpgroup(name: &'static str, factors: DType) -> WarpProduct {
    let (a, b, sum, terms) = (factors, factors, DType::Float32, 16);
    WarpProduct { name, a, b, sum, terms, warps: GROUP_WARPS }
}

impl WarpProduct {
    /// All warp products.
    pub const ALL: [WarpProduct; 9] = {
        use DType::{BFloat16, Float16, Float32, Int8, Int32, Uint8};
        [
            kind("mma_m16n8k16_bf16", BFloat16, BFloat16, Float32, 16),
            kind("mma_m16n8k16_f16", Float16, Float16, Float32, 16),
            kind("mma_m16n8k8_tf32", Float32, Float32, Float32, 8),
            kind("mma_m16n8k32_s8", Int8, Int8, Int32, 32),
            kind("mma_m16n8k32_u8", Uint8, Uint8, Int32, 32),
            kind("mma_m16n8k32_u8_s8", Uint8, Int8, Int32, 32),
            kind("mma_m16n8k32_s8_u8", Int8, Uint8, Int32, 32),
            of_warpgroup("wgmma_m64nNk16_bf16", BFloat16),
            of_warpgroup("wgmma_m64nNk16_f16", Float16),
        ]
    };

    /// Returns the warp product with this name; `None` for intrinsics of a single thread.
    pub fn of(name: &str) -> Option<WarpProduct> {
        WarpProduct::ALL.into_iter().find(|product| product.name == name)
    }

    /// Whether a warpgroup computes it.
    pub fn is_by_warpgroup(self) -> bool {
        self.warps == GROUP_WARPS
    }

    /// Returns the number of elements of a factor in 16 bytes, a row of an 8×8 matrix of halves.
    pub fn row(self) -> i64 {
        16 / self.a.bytes() as i64
    }

    /// Returns the types of the factors, for messages.
    pub fn factors(self) -> String {
        if self.a == self.b { self.a.to_string() } else { format!("{} by {}", self.a, self.b) }
    }
}

/// Returns the warp product that a statement is.
pub fn warp_product(stmt: &Stmt) -> Option<WarpProduct> {
    match stmt {
        Stmt::Tensorize { name, .. } => WarpProduct::of(name),
        _ => None,
    }
}

/// Whether a statement is a warp product. Passes must not change its nest: the back end matches it.
pub fn is_warp_product(stmt: &Stmt) -> bool {
    warp_product(stmt).is_some()
}

/// An element of a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Element<'a> {
    /// The buffer.
    pub buffer: &'a Buffer,
    /// One index per dimension before `flatten_storage`, exactly one after.
    pub indices: &'a [Expr],
}

/// A thread's part of a product.
#[derive(Clone, Copy, Debug)]
pub struct ThreadPart<'a> {
    /// The loop variables: half, column, term.
    pub vars: [&'a Var; 3],
    /// The loop over groups of columns of a warpgroup product, and its extent.
    pub group: Option<(&'a Var, i64)>,
    /// The running sum.
    pub c: Element<'a>,
    /// The factor that depends on the row.
    pub a: Element<'a>,
    /// The factor that depends on the column.
    pub b: Element<'a>,
}

/// Matches a nest with a thread's part of `product`.
///
/// # Errors
/// The first difference, in words for the user.
pub fn thread_part(product: WarpProduct, nest: &Stmt) -> Result<ThreadPart<'_>, String> {
    let (mut vars, mut group, mut at) = (Vec::new(), None, nest);
    let groups = product.is_by_warpgroup().then_some(None);
    let extents = [Some(HALVES)].into_iter().chain(groups);
    for extent in extents.chain([Some(HALVES), Some(product.terms)]) {
        at = single(at);
        let shown = extent.map_or(format!("2 to {MAX_GROUPS}"), |extent| extent.to_string());
        let Stmt::For { var, min, extent: count, kind, body } = at else {
            return Err(match at {
                Stmt::If { cond, .. } => format!(
                    "a condition stands inside: `{}`; split so that the factor divides",
                    super::print::print_expr(cond)
                ),
                _ => format!("another loop of {shown} iterations is expected inside"),
            });
        };
        let name = var.name();
        if *kind != ForKind::Serial {
            return Err(format!("loop `{name}` is not serial"));
        }
        let got = count.as_int().filter(|_| min.as_int() == Some(0));
        match (extent, got) {
            (Some(extent), Some(got)) if got == i128::from(extent) => vars.push(var),
            (None, Some(got)) if (2..=i128::from(MAX_GROUPS)).contains(&got) => {
                group = Some((var, got as i64));
            }
            _ => {
                let got = super::print::print_expr(count);
                return Err(format!("loop `{name}` has an extent of {got}, {shown} is expected"));
            }
        }
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
    for (element, wanted) in [(&a, product.a), (&b, product.b)] {
        let (name, dtype) = (&element.buffer.name, element.buffer.dtype);
        if dtype != wanted {
            return Err(format!("`{name}` holds {dtype}, {wanted} is expected"));
        }
    }
    Ok(ThreadPart { vars: [vars[0], vars[1], vars[2]], group, c, a, b })
}

/// Returns the only statement of nested blocks, or the block.
fn single(stmt: &Stmt) -> &Stmt {
    match stmt {
        Stmt::Block(stmts) if stmts.len() == 1 => single(&stmts[0]),
        _ => stmt,
    }
}

fn factor(product: WarpProduct, expr: &Expr) -> Result<Element<'_>, String> {
    let shown = || super::print::print_expr(expr);
    let no_element = || Err(format!("`{}` is no element of {}", shown(), product.factors()));
    let inner = match &expr.kind {
        ExprKind::Cast(inner) if product.a != DType::Float32 => inner,
        // A float32 factor must be rounded to TF32 by the source: no pass changes a rounding.
        ExprKind::Call(Intrinsic::Tf32, args) if product.a == DType::Float32 => &args[0],
        _ if product.a == DType::Float32 => {
            return Err(format!(
                "`{0}` is no element rounded to ten bits; the source says so: `tf32({0})`",
                shown()
            ));
        }
        _ => return no_element(),
    };
    match &inner.kind {
        ExprKind::Load { buffer, indices, mask: None } if expr.ty.dtype == product.sum => {
            Ok(Element { buffer, indices })
        }
        _ => no_element(),
    }
}

/// Returns `index` with these values for variables, simplified.
pub fn index_at(index: &Expr, values: &[(&Var, i64)]) -> Expr {
    let at = substitute(index, &mut |var| {
        let known = values.iter().find(|(other, _)| *other == var);
        known.map(|(_, value)| Expr::index(*value))
    });
    simplify_expr(&at, &Facts::new())
}
