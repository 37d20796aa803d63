//! Selection and the table of `simd_ops` agree: selection has instructions for every form of the
//! table, and stops with a bug at every operation without a form.

use super::super::{Closure, NestCode, compile_nest};
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, Scope, Stmt, Type, UnOp};
use crate::simd_ops;
use crate::target::{SimdIsa, Target};
use std::panic::catch_unwind;

/// An operation on one operand: a conversion, a unary operation, or a binary one of it and itself.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Unary(UnOp),
    Binary(BinOp),
    Convert(DType),
}

impl Operation {
    fn of(self, a: Expr) -> Expr {
        match self {
            Operation::Unary(op) => Expr::unary(op, a),
            Operation::Binary(op) => Expr::new(a.ty, ExprKind::Binary(op, a.clone(), a)),
            Operation::Convert(to) => Expr::cast(to, a),
        }
    }

    fn is_shift(self) -> bool {
        matches!(self, Operation::Binary(BinOp::Shl | BinOp::Shr))
    }
}

/// All operations whose results are numbers, on all types.
fn operations() -> Vec<(DType, Operation)> {
    use BinOp::*;
    use UnOp::*;
    let unary = [Neg, BitNot, Abs, Floor, Ceil, Round, Trunc, Sqrt, Popcount];
    let binary =
        [Add, Sub, Mul, Div, FloorDiv, FloorMod, Min, Max, BitAnd, BitOr, BitXor, Shl, Shr];
    let mut all = Vec::new();
    for dtype in DType::ALL.into_iter().chain([DType::Index]) {
        // Arithmetic on 16-bit floats is expanded before selection, that on `bool` are masks.
        if !dtype.is_half() && dtype != DType::Bool {
            all.extend(unary.map(|op| (dtype, Operation::Unary(op))));
            all.extend(binary.map(|op| (dtype, Operation::Binary(op))));
        }
        let others = DType::ALL.into_iter().filter(|to| *to != dtype && dtype != DType::Index);
        all.extend(others.map(|to| (dtype, Operation::Convert(to))));
    }
    all
}

/// The type that a tensor holds elements of a type in.
fn stored(dtype: DType) -> DType {
    if dtype == DType::Index { DType::Int64 } else { dtype }
}

/// The code of `out[i] = operation(a[i])` for all lanes of a vector. The table is not asked whether
/// the operation has a form.
fn compile_lanewise(isa: SimdIsa, lanes: u32, dtype: DType, operation: Operation) -> NestCode {
    let buffer = |name: &str, dtype| {
        Buffer::new(name, stored(dtype), vec![Expr::index(lanes.into())], Scope::Global)
    };
    let ty = Type { dtype: DType::Index, lanes };
    let ramp = Expr::new(ty, ExprKind::Ramp(Expr::index(0), Expr::index(1)));
    let input = buffer("a", dtype);
    let value = operation.of(Expr::cast(dtype, Expr::load(&input, vec![ramp.clone()])));
    let output = buffer("out", value.ty.dtype);
    let store = Stmt::store(&output, vec![ramp], Expr::cast(output.dtype, value));
    let closure = Closure { buffers: vec![(input, 0), (output, 8)], ..Default::default() };
    let name = match isa {
        SimdIsa::Avx2 => "x86-avx2",
        SimdIsa::Avx512 => "x86-avx512",
    };
    compile_nest(&store, &closure, &Target::parse(name).expect("a target"))
}

/// The operation on one element of a type.
fn of_one_lane(dtype: DType, operation: Operation) -> Expr {
    let one = Buffer::new("x", stored(dtype), vec![Expr::index(1)], Scope::Global);
    operation.of(Expr::cast(dtype, Expr::load(&one, vec![Expr::index(0)])))
}

/// The powers of two up to the most lanes with elements of `bytes` bytes.
fn lane_counts(bytes: u64, isa: SimdIsa) -> impl Iterator<Item = u32> {
    let most = isa.bytes() / bytes as u32;
    (1..=most.ilog2()).map(|log| 1 << log)
}

/// Selection stops with a bug if it lacks an instruction for a form of the table.
#[test]
fn every_form_of_the_table_is_selected() {
    let mut compiled = 0;
    for isa in [SimdIsa::Avx2, SimdIsa::Avx512] {
        for (dtype, operation) in operations() {
            let one = of_one_lane(dtype, operation);
            if simd_ops::check_node(&one, isa).is_ok() {
                for lanes in lane_counts(simd_ops::element_bytes(&one, isa), isa) {
                    compile_lanewise(isa, lanes, dtype, operation);
                    compiled += 1;
                }
            }
        }
    }
    assert!(compiled > 1000, "{compiled} nests");
}

/// The converse: an operation that the table lacks would make the test above fail if it were there,
/// because selection does not compile it to something else.
#[test]
fn operations_without_a_form_are_bugs() {
    let mut refused = 0;
    let mut selected = Vec::new();
    for isa in [SimdIsa::Avx2, SimdIsa::Avx512] {
        for (dtype, operation) in operations() {
            // Shifts of indices have instructions; the table refuses all but constant amounts.
            if dtype == DType::Index && operation.is_shift() {
                continue;
            }
            let one = of_one_lane(dtype, operation);
            if simd_ops::check_node(&one, isa).is_err() {
                let lanes = isa.bytes() / simd_ops::element_bytes(&one, isa) as u32;
                match catch_unwind(|| compile_lanewise(isa, lanes, dtype, operation)) {
                    Ok(_) => selected.push((isa, dtype, operation)),
                    Err(_) => refused += 1,
                }
            }
        }
    }
    assert!(selected.is_empty(), "{selected:#?}");
    assert!(refused > 20, "{refused} operations");
}
