//! For each operation, the emulator's results of the PTX equal the interpreter's of the loop IR,
//! bit by bit, and `ptxas`, where present, accepts the text.

use super::compile_ptx;
use crate::emulate::{Emulator, Orders};
use crate::ir::interp::{self, Tensor, Value};
use crate::ir::print::{Style, print_kernel};
use crate::ir::*;
use crate::target::Target;

/// Special values of the operations, and random ones.
fn samples(dtype: DType, count: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let specials: &[f64] = &[
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -2.5,
        3.5,
        1e-40,
        -1e-45,
        65504.0,
        65520.0,
        1e10,
        -1e10,
        3e38,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        2147483647.0,
        -2147483649.0,
        1e19,
        255.5,
        -129.0,
        6e-8,
        1e-300,
        1.0000001,
    ];
    let mut data = Vec::new();
    for i in 0..count {
        let bits = next();
        let pick = bits >> 33;
        let bytes: Vec<u8> = match dtype {
            DType::Float64 | DType::Float32 | DType::Float16 | DType::BFloat16 => {
                let value = match pick % 3 {
                    0 => specials[i % specials.len()],
                    1 => (bits as i64 as f64) / 1e17,
                    _ => (bits as i32 as f64) * 2f64.powi((pick % 60) as i32 - 40),
                };
                match dtype {
                    DType::Float64 => value.to_le_bytes().to_vec(),
                    DType::Float32 => (value as f32).to_le_bytes().to_vec(),
                    _ => half_bits(value, dtype).to_le_bytes().to_vec(),
                }
            }
            DType::Bool => vec![(bits & 1) as u8],
            _ => {
                let (lo, hi) = dtype.int_range();
                let value = match pick % 5 {
                    0 => lo,
                    1 => hi,
                    2 => i128::from(pick % 7) - 3,
                    3 => i128::from(bits as i8),
                    _ => i128::from(bits as i64),
                };
                dtype.wrap(value).to_le_bytes()[..dtype.bytes() as usize].to_vec()
            }
        };
        data.extend(bytes);
    }
    data
}

const COUNT: i64 = 128;

fn tensor(buffer: &Buffer, output: bool) -> Param {
    Param::Tensor {
        buffer: buffer.clone(),
        role: if output { Role::Output } else { Role::Input },
        layout_free: false,
    }
}

fn global(name: &str, dtype: DType) -> Buffer {
    Buffer::new(name, dtype, vec![Expr::index(COUNT)], Scope::Global)
}

fn thread(tag: &str, extent: i64, make: impl FnOnce(Expr) -> Stmt) -> Stmt {
    let var = Var::index(tag.replace('.', "_"));
    let body = Box::new(make(Expr::var(&var)));
    let kind = ForKind::Thread(ThreadIndex::from_name(tag).expect("an index"));
    Stmt::For { var, min: Expr::index(0), extent: Expr::index(extent), kind, body }
}

fn serial(name: &str, extent: i64, make: impl FnOnce(Expr) -> Stmt) -> Stmt {
    let var = Var::index(name);
    let body = make(Expr::var(&var));
    Stmt::serial(var, Expr::index(extent), body)
}

fn kernel(params: Vec<Param>, body: Stmt) -> Kernel {
    Kernel::new("k", params, Stmt::Produce { name: "C".to_string(), body: Box::new(body) })
}

/// Runs a kernel in both; the outputs must be equal except for the bits of NaNs.
fn check_on(kernel: &Kernel, target: &str, seed: u64) {
    let target = Target::parse(target).unwrap();
    let mut args: Vec<Value> = kernel
        .params
        .iter()
        .enumerate()
        .map(|(at, param)| match param {
            Param::Tensor { buffer, role, .. } => {
                let len = buffer.shape[0].as_int().unwrap() as usize;
                let bytes = len * buffer.dtype.bytes() as usize;
                let data = match *role == Role::Output {
                    true => vec![0; bytes],
                    false => samples(buffer.dtype, len, seed + at as u64),
                };
                Value::Tensor(Tensor { dtype: buffer.dtype, shape: vec![len as i64], data })
            }
            Param::Scalar { dtype, .. } if dtype.is_float() => Value::Float(1.5),
            Param::Scalar { .. } => Value::Int(1),
            Param::Runtime { .. } => Value::Index(37),
        })
        .collect();
    let mut expected = args.clone();
    let shown = print_kernel(kernel, Style::Full);
    interp::run(kernel, &mut expected).unwrap_or_else(|trap| panic!("{trap:?}\n{shown}"));
    let ptx = compile_ptx(std::slice::from_ref(kernel), &target).unwrap();
    let emulator = Emulator::new(&ptx).unwrap_or_else(|e| panic!("{e}\n{}", ptx.text));
    let emulation = emulator.run(kernel, 0, &mut args, Orders::Both).unwrap();
    if let Some(report) = &emulation.report {
        assert!(report.is_clean(), "{report}\n{shown}\n{}", ptx.text);
    }
    for (at, (actual, expected)) in args.iter().zip(&expected).enumerate() {
        let (Value::Tensor(actual), Value::Tensor(expected)) = (actual, expected) else { continue };
        let size = actual.dtype.bytes() as usize;
        let pairs = actual.data.chunks(size).zip(expected.data.chunks(size));
        for (i, (a, e)) in pairs.enumerate() {
            // The emulator fills outputs with this, the interpreter with zeros.
            let unwritten = a.iter().all(|byte| *byte == 0xcb) && e.iter().all(|byte| *byte == 0);
            let same = a == e || unwritten || is_nan(actual.dtype, a) && is_nan(actual.dtype, e);
            assert!(same, "argument {at}[{i}]: {a:x?}, not {e:x?}\n{shown}\n{}", ptx.text);
        }
    }
    assemble(&ptx.text, target.name.strip_prefix("nvptx-").unwrap());
}

fn is_nan(dtype: DType, bytes: &[u8]) -> bool {
    let bits = bytes.iter().rev().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
    match dtype {
        DType::Float64 => f64::from_bits(bits).is_nan(),
        DType::Float32 => f32::from_bits(bits as u32).is_nan(),
        DType::Float16 => half::f16::from_bits(bits as u16).is_nan(),
        DType::BFloat16 => half::bf16::from_bits(bits as u16).is_nan(),
        _ => false,
    }
}

/// Runs `ptxas` on the text, if `TEC_PTXAS` names it.
fn assemble(text: &str, arch: &str) {
    use std::io::Write;
    let Some(ptxas) = std::env::var_os("TEC_PTXAS") else { return };
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let run = std::process::Command::new(ptxas)
        .arg(format!("-arch=compute_{}", arch.trim_start_matches("sm_")))
        .arg(file.path())
        .args(["-o", "/dev/null"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}\n{text}");
}

fn check(kernel: &Kernel) {
    check_on(kernel, "nvptx-sm_80", 1);
}

/// `C[i] = f(A[i], B[i], D[i])` for every i, with halves computed as float32.
fn map(from: DType, to: DType, f: impl Fn(Expr, Expr, Expr) -> Expr) -> Kernel {
    let (a, b, d) = (global("A", from), global("B", from), global("D", from));
    let c = global("C", to);
    let body = thread("blockIdx.x", COUNT / 32, |block| {
        thread("threadIdx.x", 32, |lane| {
            let i = Expr::add(Expr::mul(block, Expr::index(32)), lane);
            let load = |buffer: &Buffer| {
                Expr::cast(from.compute_type(), Expr::load(buffer, vec![i.clone()]))
            };
            let value = f(load(&a), load(&b), load(&d));
            Stmt::store(&c, vec![i.clone()], Expr::cast(to, value))
        })
    });
    let params = vec![tensor(&a, false), tensor(&b, false), tensor(&d, false), tensor(&c, true)];
    kernel(params, body)
}

const INTS: [DType; 8] = [
    DType::Int8,
    DType::Int16,
    DType::Int32,
    DType::Int64,
    DType::Uint8,
    DType::Uint16,
    DType::Uint32,
    DType::Uint64,
];

#[test]
fn integers_equal_the_interpreter() {
    use BinOp::*;
    for dtype in INTS {
        let ops = [Add, Sub, Mul, FloorDiv, FloorMod, Min, Max, BitAnd, BitOr, BitXor, Shl, Shr];
        for op in ops {
            check(&map(dtype, dtype, |a, b, _| Expr::binary(op, a, b)));
        }
        for op in [UnOp::Neg, UnOp::Abs, UnOp::BitNot, UnOp::Popcount] {
            check(&map(dtype, dtype, |a, _, _| Expr::unary(op, a)));
        }
        for op in [Eq, Ne, Lt, Le, Gt, Ge] {
            check(&map(dtype, DType::Bool, |a, b, _| Expr::binary(op, a, b)));
        }
        check(&map(dtype, dtype, |a, b, d| {
            Expr::select(Expr::lt(a.clone(), b.clone()), d, Expr::add(a, b))
        }));
    }
}

#[test]
fn divisions_by_constants_equal_the_interpreter() {
    for dtype in INTS {
        for divisor in [0, 1, 2, 3, 7, 64, 100, -1, -2, -3, -128] {
            let (lo, _) = dtype.int_range();
            if lo <= divisor {
                for op in [BinOp::FloorDiv, BinOp::FloorMod] {
                    let by = Expr::int(dtype, divisor);
                    check(&map(dtype, dtype, |a, _, _| Expr::binary(op, a, by.clone())));
                }
            }
        }
    }
}

#[test]
fn floats_equal_the_interpreter() {
    use BinOp::*;
    for dtype in [DType::Float32, DType::Float64, DType::Float16, DType::BFloat16] {
        for op in [Add, Sub, Mul, Div, Min, Max] {
            check(&map(dtype, dtype, |a, b, _| Expr::binary(op, a, b)));
        }
        let ops =
            [UnOp::Neg, UnOp::Abs, UnOp::Floor, UnOp::Ceil, UnOp::Round, UnOp::Trunc, UnOp::Sqrt];
        for op in ops {
            check(&map(dtype, dtype, |a, _, _| Expr::unary(op, a)));
        }
        check(&map(dtype, dtype, |a, b, d| Expr::call(Intrinsic::Fma, vec![a, b, d])));
        check(&map(dtype, dtype, |a, b, d| {
            let a = Expr::unary(UnOp::Neg, a);
            Expr::sub(Expr::call(Intrinsic::Fma, vec![a, b, d.clone()]), Expr::unary(UnOp::Neg, d))
        }));
        check(&map(dtype, DType::Bool, |a, _, _| Expr::unary(UnOp::IsNan, a)));
        for op in [Eq, Ne, Lt, Le, Gt, Ge] {
            check(&map(dtype, DType::Bool, |a, b, _| Expr::binary(op, a, b)));
        }
    }
    // The bits show the sign of a NaN.
    check(&map(DType::Float32, DType::Int32, |a, _, _| {
        Expr::bitcast(DType::Int32, Expr::unary(UnOp::Neg, Expr::unary(UnOp::Abs, a)))
    }));
    check(&map(DType::Float64, DType::Uint64, |a, _, _| {
        Expr::bitcast(DType::Uint64, Expr::unary(UnOp::Neg, a))
    }));
}

#[test]
fn conversions_equal_the_interpreter() {
    for from in DType::ALL {
        for to in DType::ALL {
            let kernel = map(from, to, |a, _, _| a);
            check_on(&kernel, "nvptx-sm_80", 3);
            if to == DType::BFloat16 {
                check_on(&kernel, "nvptx-sm_75", 4);
            }
        }
        if !from.is_half() {
            check(&map(from, DType::Int64, |a, _, _| {
                Expr::cast(DType::Int64, Expr::cast(DType::Index, a))
            }));
        }
    }
}

#[test]
fn halves_are_cast_directly() {
    let (a, c) = (global("A", DType::Float64), global("C", DType::Float16));
    let (b, d) = (global("B", DType::Int16), global("D", DType::BFloat16));
    let body = thread("threadIdx.x", COUNT, |i| {
        let wide = Expr::load(&a, vec![i.clone()]);
        let bits = Expr::bitcast(DType::BFloat16, Expr::load(&b, vec![i.clone()]));
        Stmt::Block(vec![
            Stmt::store(&c, vec![i.clone()], Expr::cast(DType::Float16, wide)),
            Stmt::store(&d, vec![i], bits),
        ])
    });
    let params = vec![tensor(&a, false), tensor(&b, false), tensor(&c, true), tensor(&d, true)];
    check(&kernel(params, body));
}

#[test]
fn truth_values_equal_the_interpreter() {
    use BinOp::*;
    let bool = DType::Bool;
    for op in [BitAnd, BitOr, BitXor, And, Or, Eq, Ne, Lt, Le, Gt, Ge] {
        check(&map(bool, bool, |a, b, _| Expr::binary(op, a, b)));
    }
    check(&map(bool, bool, |a, b, d| Expr::select(a, Expr::not(b), d)));
    check(&map(bool, bool, |a, _, _| Expr::and(a, Expr::bool(true))));
    check(&map(bool, bool, |a, _, _| Expr::or(a, Expr::bool(false))));
}

/// The branch that is not taken would read outside of the tensor.
#[test]
fn branches_are_lazy() {
    let (a, c) = (global("A", DType::Float32), global("C", DType::Float32));
    let body = thread("threadIdx.x", COUNT, |i| {
        let inside = Expr::lt(i.clone(), Expr::index(COUNT - 5));
        let far = Expr::load(&a, vec![Expr::add(i.clone(), Expr::index(5))]);
        let near = Expr::load(&a, vec![Expr::sub(i.clone(), Expr::index(5))]);
        let twice = Expr::mul(far.clone(), far);
        Stmt::store(&c, vec![i], Expr::if_then_else(inside, twice, near))
    });
    check(&kernel(vec![tensor(&a, false), tensor(&c, true)], body));

    // A branch too long for predicates.
    let body = thread("threadIdx.x", COUNT, |i| {
        let inside = Expr::lt(i.clone(), Expr::index(COUNT - 40));
        let sum = (1..40)
            .map(|k| Expr::load(&a, vec![Expr::add(i.clone(), Expr::index(k))]))
            .reduce(|x, y| Expr::binary(BinOp::Div, x, y))
            .unwrap();
        let and = Expr::and(
            inside.clone(),
            Expr::lt(Expr::load(&a, vec![Expr::add(i.clone(), Expr::index(40))]), sum.clone()),
        );
        let value = Expr::cast(DType::Float32, and);
        let zero = Expr::float(DType::Float32, 0.0);
        Stmt::store(&c, vec![i], Expr::add(value, Expr::if_then_else(inside, sum, zero)))
    });
    check(&kernel(vec![tensor(&a, false), tensor(&c, true)], body));
}

/// Loops, registers, local memory, shared memory, barriers.
#[test]
fn nests_equal_the_interpreter() {
    let f32 = DType::Float32;
    let (a, c) = (global("A", f32), global("C", f32));
    let acc = Buffer::new("acc", f32, vec![Expr::index(4)], Scope::Local);
    let tile = Buffer::new("tile", f32, vec![Expr::index(32)], Scope::Shared);
    let body = thread("blockIdx.x", 4, |block| {
        let base = Expr::mul(block, Expr::index(32));
        let inner = thread("threadIdx.x", 8, |lane| {
            let at = |k: Expr| Expr::add(Expr::mul(lane.clone(), Expr::index(4)), k);
            let fill = serial("k", 4, |k| {
                let index = Expr::add(base.clone(), at(k.clone()));
                Stmt::store(&tile, vec![at(k)], Expr::load(&a, vec![index]))
            });
            let clear = serial("j", 4, |j| Stmt::store(&acc, vec![j], Expr::float(f32, 0.0)));
            let sum = serial("r", 32, |r| {
                serial("j", 4, |j| {
                    let x = Expr::load(&tile, vec![r.clone()]);
                    let y = Expr::load(&tile, vec![at(j.clone())]);
                    let old = Expr::load(&acc, vec![j.clone()]);
                    Stmt::store(&acc, vec![j], Expr::call(Intrinsic::Fma, vec![x, y, old]))
                })
            });
            let write = serial("j", 4, |j| {
                let index = Expr::add(base.clone(), at(j.clone()));
                Stmt::store(&c, vec![index], Expr::load(&acc, vec![j]))
            });
            let all = Stmt::Block(vec![fill, Stmt::Barrier, clear, sum, write]);
            Stmt::Allocate { buffer: acc.clone(), body: Box::new(all) }
        });
        Stmt::Allocate { buffer: tile.clone(), body: Box::new(inner) }
    });
    check(&kernel(vec![tensor(&a, false), tensor(&c, true)], body));
}

/// An index that depends on data, and a local buffer that stays in memory.
#[test]
fn gathers_equal_the_interpreter() {
    let (a, c) = (global("A", DType::Uint8), global("C", DType::Int16));
    let table = Buffer::constant("table", DType::Int16, (0..256).map(|x| x * 200).collect());
    let local = Buffer::new("local", DType::Int16, vec![Expr::index(8)], Scope::Local);
    let body = thread("threadIdx.x", COUNT, |i| {
        let fill = serial("k", 8, |k| {
            let value = Expr::add(Expr::load(&table, vec![k.clone()]), Expr::int(DType::Int16, 3));
            Stmt::store(&local, vec![k], value)
        });
        let data = Expr::cast(DType::Index, Expr::load(&a, vec![i.clone()]));
        let eighth = Expr::binary(BinOp::FloorMod, data.clone(), Expr::index(8));
        let value = Expr::add(Expr::load(&table, vec![data]), Expr::load(&local, vec![eighth]));
        let all = Stmt::Block(vec![fill, Stmt::store(&c, vec![i], value)]);
        Stmt::Allocate { buffer: local.clone(), body: Box::new(all) }
    });
    check(&kernel(vec![tensor(&a, false), tensor(&c, true)], body));
}

/// Vectors of every type: aligned and not, masked, strided.
#[test]
fn vectors_equal_the_interpreter() {
    let lanes_of = |value: Expr, lanes: u32| {
        let ty = Type { dtype: value.ty.dtype, lanes };
        Expr::new(ty, ExprKind::Broadcast(value))
    };
    for dtype in DType::ALL {
        for (lanes, shift, stride) in [(2, 0, 1), (4, 0, 1), (8, 0, 1), (4, 1, 1), (4, 0, 2)] {
            let (a, c) = (global("A", dtype), global("C", dtype));
            let body = thread("threadIdx.x", COUNT / 32, |i| {
                let first = Expr::mul(i, Expr::index(16));
                let ramp = |base: Expr, stride: i64| {
                    let ty = Type { dtype: DType::Index, lanes: lanes as u32 };
                    Expr::new(ty, ExprKind::Ramp(base, Expr::index(stride)))
                };
                let from = Expr::add(first.clone(), Expr::index(shift));
                let index = ramp(from, stride);
                let ty = Type { dtype, lanes: lanes as u32 };
                let kind = ExprKind::Load { buffer: a.clone(), indices: vec![index], mask: None };
                let low = Expr::lt(first.clone(), Expr::index(32));
                let mask = Some(lanes_of(low, lanes as u32)).filter(|_| shift == 1);
                Stmt::Store {
                    buffer: c.clone(),
                    indices: vec![ramp(first, 1)],
                    value: Expr::new(ty, kind),
                    mask,
                    nontemporal: false,
                }
            });
            let kernel = kernel(vec![tensor(&a, false), tensor(&c, true)], body);
            check(&kernel);
        }
    }
}

/// Run-time extents and strides, several launches, a temporary.
#[test]
fn run_time_extents_equal_the_interpreter() {
    let f32 = DType::Float32;
    let n = Var::index("n");
    let scale = Var::new("scale", f32);
    let extent = Expr::var(&n);
    let (a, c) = (global("A", f32), global("C", f32));
    let square = Expr::mul(extent.clone(), Expr::index(3));
    let t = Buffer::new("T", f32, vec![square], Scope::Global);
    let blocks =
        Expr::binary(BinOp::FloorDiv, Expr::add(extent.clone(), Expr::index(7)), Expr::index(8));
    let grid = |tag: &str, make: &dyn Fn(Expr) -> Stmt| {
        let var = Var::index(tag);
        let body = thread("threadIdx.x", 8, |lane| {
            let i = Expr::add(Expr::mul(Expr::var(&var), Expr::index(8)), lane);
            let then = Box::new(make(i.clone()));
            Stmt::If { cond: Expr::lt(i, extent.clone()), then, otherwise: None }
        });
        let (min, kind) = (Expr::index(0), ForKind::Thread(ThreadIndex::Block(0)));
        let body = Box::new(body);
        let nest = Stmt::For { var: var.clone(), min, extent: blocks.clone(), kind, body };
        Stmt::Produce { name: tag.to_string(), body: Box::new(nest) }
    };
    let first = grid("T", &|i| {
        serial("j", 3, |j| {
            let at = Expr::add(Expr::mul(j.clone(), extent.clone()), i.clone());
            let value = Expr::load(&a, vec![Expr::add(i.clone(), j)]);
            Stmt::store(&t, vec![at], Expr::mul(value, Expr::var(&scale)))
        })
    });
    let second = grid("C", &|i| {
        let sum = (0..3)
            .map(|j| {
                let at = Expr::add(Expr::mul(extent.clone(), Expr::index(j)), i.clone());
                Expr::load(&t, vec![at])
            })
            .reduce(Expr::add)
            .unwrap();
        Stmt::store(&c, vec![i], sum)
    });
    // A `let` around the launches, from a scalar: each launch computes it.
    let squared = Var::new("squared", f32);
    let third = grid("D", &|i| {
        let old = Expr::load(&c, vec![i.clone()]);
        Stmt::store(&c, vec![i], Expr::mul(old, Expr::var(&squared)))
    });
    let body = Stmt::Let {
        var: squared.clone(),
        value: Expr::mul(Expr::var(&scale), Expr::var(&scale)),
        body: Box::new(Stmt::Block(vec![first, second, third])),
    };
    let body = Stmt::Allocate { buffer: t, body: Box::new(body) };
    let params = vec![
        tensor(&a, false),
        Param::Scalar { var: scale, dtype: f32 },
        tensor(&c, true),
        Param::Runtime { var: n.clone(), source: None },
    ];
    let mut kernel = kernel(params, Stmt::nothing());
    kernel.body = body;
    kernel.facts = vec![Expr::le(Expr::index(0), Expr::var(&n))];
    check(&kernel);
}
