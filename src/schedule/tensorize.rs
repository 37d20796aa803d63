//! `tensorize`: the loops of a stage from one of them inwards are an intrinsic of
//! `lib/intrinsics.te`. Whether they are is seen when they are built (`lower::match_intrinsic`).

use super::directives::{Call, Value};
use super::state::{Schedule, Tensorize};
use crate::diag::{Diag, Result, closest};
use crate::ir::warp::WarpProduct;
use crate::lang::intrinsics;
use crate::te::{Body, contract_floats, elaborate, kernel_names};

/// The first GPUs with these products, as compute capability times 10.
const FIRST: u32 = 80;

/// `S.tensorize(i, NAME)`: the nest from loop `i` inwards becomes the intrinsic `NAME`.
pub fn tensorize(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let (axis, name) = (call.axis(0), call.word(1).unwrap_or_default());
    let program = intrinsics();
    let names: Vec<String> =
        kernel_names(&program, &Vec::new()).into_iter().map(|(name, _)| name).collect();
    if !names.iter().any(|known| known == name) {
        let diag = Diag::new("E0377", call.span_of(1), format!("there is no intrinsic `{name}`"));
        return Err(Box::new(match closest(name, names.iter().map(|name| &name[..])) {
            Some(close) => diag.help(format!("did you mean `{close}`?")),
            None => diag.note(format!("there are: {}", names.join(", "))),
        }));
    }
    if let Some(product) = WarpProduct::of(name) {
        check_product(schedule, call, product)?;
        schedule.reassociated |= product.sum.is_float();
    }
    let stage = schedule.stage_mut(call.stage());
    if let Some(old) = &stage.tensorize {
        let text = format!("`{}` is tensorized already", stage.te.name);
        return Err(Box::new(Diag::new("E0377", call.span, text).related(old.span, "here")));
    }
    let Ok(graphs) = elaborate(&program, Some(&[name.to_string()]), &Vec::new()) else {
        crate::bug!("`{name}` of lib/intrinsics.te is wrong")
    };
    let mut intrinsic = graphs.into_iter().next().expect("one kernel is asked for");
    if intrinsic.reassociate {
        check_order(schedule, call, name)?;
        schedule.reassociated = true;
    }
    let stage = schedule.stage_mut(call.stage());
    // Its sums are fused where those of the stage are.
    if matches!(&stage.te.body, Body::Reduce(reduction) if reduction.fused) {
        intrinsic = contract_floats(intrinsic);
    }
    stage.tensorize = Some(Tensorize { axis, intrinsic, span: call.span });
    stage.axis_mut(axis).used = Some(("tensorize", call.span));
    stage.touched = true;
    Ok(Vec::new())
}

/// Whether the stage allows the order in which the intrinsic adds terms.
fn check_order(schedule: &Schedule, call: &Call, name: &str) -> Result<()> {
    let stage = schedule.stage(call.stage());
    let source = match &stage.te.body {
        Body::Reduce(reduction) => reduction.reassociate,
        Body::Map(_) => true,
    };
    if source || schedule.graph.reassociate || call.flag(2) {
        return Ok(());
    }
    let (stage, axis) = (&stage.te.name, &stage.axis(call.axis(0)).name);
    let text = format!("`{name}` changes the order in which `{stage}` adds its terms");
    Err(Box::new(
        Diag::new("E0333", call.span, text)
            .note("another order may round differently, and it takes numbers below 2^-126 for 0")
            .help(format!("allow it: `{stage}.tensorize({axis}, {name}, reassociate=true)`")),
    ))
}

/// Whether the target has the instruction, and whether its order of terms is allowed.
fn check_product(schedule: &Schedule, call: &Call, product: WarpProduct) -> Result<()> {
    let WarpProduct { name, factor, .. } = product;
    let target = &schedule.target;
    if target.gpu.is_none_or(|gpu| gpu.capability < FIRST) {
        let text = format!("`{name}` needs tensor cores that multiply {factor}");
        return Err(Box::new(
            Diag::new("E0403", call.span_of(1), text)
                .note(format!("it needs nvptx-sm_{FIRST} or newer, the target is {target}")),
        ));
    }
    let stage = schedule.stage(call.stage());
    let Body::Reduce(reduction) = &stage.te.body else { return Ok(()) };
    let allowed = call.flag(2) || reduction.reassociate || schedule.graph.reassociate;
    if allowed || !product.sum.is_float() {
        return Ok(());
    }
    let (stage, axis) = (&stage.te.name, &stage.axis(call.axis(0)).name);
    let text = format!("`{name}` adds the terms of `{stage}` in an order of its own");
    Err(Box::new(
        Diag::new("E0389", call.span, text)
            .note("another order may round differently")
            .help(format!("allow it: `{stage}.tensorize({axis}, {name}, reassociate=true)`")),
    ))
}
