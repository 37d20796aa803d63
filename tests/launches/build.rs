//! Short names for the loop IR of launches.

use tec::ir::interp::{self, Order, Tensor, Trap, Value};
use tec::ir::print::{Style, print_kernel};
use tec::ir::verify::verify_kernel;
use tec::ir::{
    BinOp, Buffer, DType, Expr, ForKind, Kernel, Param, Role, Scope, Stmt, ThreadIndex, Var,
};

pub fn buffer(name: &str, shape: &[i64], scope: Scope) -> Buffer {
    let shape = shape.iter().map(|extent| Expr::index(*extent)).collect();
    Buffer::new(name, DType::Float32, shape, scope)
}

pub fn global(name: &str, shape: &[i64]) -> Buffer {
    buffer(name, shape, Scope::Global)
}

pub fn int(value: i64) -> Expr {
    Expr::index(value)
}

pub fn get(var: &Var) -> Expr {
    Expr::var(var)
}

pub fn add(a: Expr, b: Expr) -> Expr {
    Expr::add(a, b)
}

pub fn mul(a: Expr, b: i64) -> Expr {
    Expr::mul(a, int(b))
}

pub fn modulo(a: Expr, b: i64) -> Expr {
    Expr::binary(BinOp::FloorMod, a, int(b))
}

pub fn load(buffer: &Buffer, indices: &[Expr]) -> Expr {
    Expr::load(buffer, indices.to_vec())
}

pub fn store(buffer: &Buffer, indices: &[Expr], value: Expr) -> Stmt {
    Stmt::store(buffer, indices.to_vec(), value)
}

pub fn float(value: f64) -> Expr {
    Expr::float(DType::Float32, value)
}

pub fn block(stmts: impl Into<Vec<Stmt>>) -> Stmt {
    Stmt::Block(stmts.into())
}

pub fn produce(name: &str, body: Stmt) -> Stmt {
    Stmt::Produce { name: name.into(), body: Box::new(body) }
}

pub fn allocate(buffer: &Buffer, body: Stmt) -> Stmt {
    Stmt::Allocate { buffer: buffer.clone(), body: Box::new(body) }
}

pub fn when(cond: Expr, then: Stmt) -> Stmt {
    Stmt::If { cond, then: Box::new(then), otherwise: None }
}

pub fn for_kind(var: &Var, extent: i64, kind: ForKind, body: Stmt) -> Stmt {
    let (min, extent) = (int(0), int(extent));
    Stmt::For { var: var.clone(), min, extent, kind, body: Box::new(body) }
}

pub fn serial(var: &Var, extent: i64, body: Stmt) -> Stmt {
    for_kind(var, extent, ForKind::Serial, body)
}

/// Returns a loop over the thread index that the variable is named after.
pub fn threads(var: &Var, extent: i64, body: Stmt) -> Stmt {
    for_kind(
        var,
        extent,
        ForKind::Thread(ThreadIndex::from_name(var.name()).expect("an index")),
        body,
    )
}

/// Variables of these names.
pub fn vars<const N: usize>(names: [&str; N]) -> [Var; N] {
    names.map(Var::index)
}

pub fn kernel(inputs: &[&Buffer], outputs: &[&Buffer], body: Stmt) -> Kernel {
    let param = |buffer: &&Buffer, output| Param::Tensor {
        buffer: (*buffer).clone(),
        role: if output { Role::Output } else { Role::Input },
        layout_free: false,
    };
    let inputs = inputs.iter().map(|buffer| param(buffer, false));
    Kernel::new("k", inputs.chain(outputs.iter().map(|buffer| param(buffer, true))).collect(), body)
}

/// Inputs hold 0, 1, 2 … modulo 97, times 10 to the power of the input's number; outputs hold
/// values that must not be read. Every run-time integer is `n`.
fn arguments(kernel: &Kernel, n: i64) -> Vec<Value> {
    let mut scale = 1.0;
    let tensor = |param: &Param| {
        let Param::Tensor { buffer, role, .. } = param else { return Value::Index(n) };
        let extent = |extent: &Expr| extent.as_int().map_or(n, |extent| extent as i64);
        let shape: Vec<i64> = buffer.shape.iter().map(extent).collect();
        let len: i64 = shape.iter().product();
        let value = |i: i64| if *role == Role::Output { f32::NAN } else { (i % 97) as f32 * scale };
        let data = (0..len).flat_map(|i| value(i).to_le_bytes()).collect();
        scale *= 10.0;
        Value::Tensor(Tensor { dtype: DType::Float32, shape, data })
    };
    kernel.params.iter().map(tensor).collect()
}

/// Returns the outputs for some values of the run-time integers, equal in several orders of
/// threads; or the interpreter's error.
pub fn outputs(kernel: &Kernel) -> Result<Vec<Vec<f32>>, String> {
    let mut all = Vec::new();
    let symbolic = kernel.params.iter().any(|param| matches!(param, Param::Runtime { .. }));
    for n in if symbolic { vec![0, 1, 7, 13] } else { vec![0] } {
        all.extend(outputs_for(kernel, n)?);
    }
    Ok(all)
}

fn outputs_for(kernel: &Kernel, n: i64) -> Result<Vec<Vec<f32>>, String> {
    let mut results = Vec::new();
    for order in [Order::Ascending, Order::Shuffled(1), Order::Shuffled(2)] {
        let mut args = arguments(kernel, n);
        interp::run_in_order(kernel, &mut args, order).map_err(|trap| match trap {
            Trap::Check(text) | Trap::Memory(text) | Trap::Bug(text) => text,
        })?;
        let floats = |value: &Value| {
            let Value::Tensor(tensor) = value else { panic!("tensors only") };
            let floats = tensor.data.chunks_exact(4);
            floats.map(|b| f32::from_le_bytes(b.try_into().expect("four"))).collect::<Vec<_>>()
        };
        let is_output = |param: &Param| param.is_written();
        let both = kernel.params.iter().zip(&args).filter(|(param, _)| is_output(param));
        results.push(both.map(|(_, value)| floats(value)).collect::<Vec<_>>());
    }
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "the order of threads matters");
    Ok(results.remove(0))
}

/// [`outputs`] of a correct kernel.
pub fn verified(kernel: &Kernel) -> Vec<Vec<f32>> {
    let text = || print_kernel(kernel, Style::Full);
    verify_kernel(kernel).unwrap_or_else(|error| panic!("{error}\n{}", text()));
    outputs(kernel).unwrap_or_else(|error| panic!("{error}\n{}", text()))
}

/// Returns the interpreter's error.
pub fn trapped(kernel: &Kernel) -> String {
    match outputs(kernel) {
        Err(text) => text,
        Ok(_) => panic!("it passes:\n{}", print_kernel(kernel, Style::Full)),
    }
}
