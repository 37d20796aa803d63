//! `tensorize`: a loop nest becomes an intrinsic of `lib/intrinsics.te`. When the loops are built,
//! `lower::match_intrinsic` checks that they compute what the intrinsic does.

use super::call::{Call, Value};
use super::{ArgKind, Directive, Subject, Targets, optional, required};
use crate::diag::{Diag, Result, Span, closest};
use crate::ir::warp::{FIRST_WITH_PRODUCTS, WARPGROUP_GPU, WarpProduct};
use crate::lang::intrinsics;
use crate::schedule::state::{AxisId, Schedule};
use crate::target::Gpu;
use crate::te::{Body, Defines, Graph, contract_floats, elaborate, kernel_names};

/// The annotation of `tensorize`: the nest from `axis` inwards is an intrinsic.
#[derive(Clone, Debug)]
pub struct Tensorize {
    /// The outermost loop of the nest.
    pub axis: AxisId,
    /// The meaning of the intrinsic, whose name is that of the graph.
    pub intrinsic: Graph,
    /// Whether the stage fuses products and sums.
    fused: bool,
    /// The directive.
    pub span: Span,
}

impl Tensorize {
    /// Returns the intrinsic of a tile product with these rows, columns and groups of terms.
    pub fn with_shape(&self, shape: [i64; 3]) -> Graph {
        let defines = ["rows", "columns", "groups"].into_iter().zip(shape);
        let defines: Vec<_> =
            defines.map(|(name, value)| (None, name.to_string(), value.to_string())).collect();
        let graph = intrinsic(&self.intrinsic.name, &defines);
        // The intrinsic fuses products and sums if the stage does.
        if self.fused { contract_floats(graph) } else { graph }
    }
}

/// Returns the meaning of an intrinsic.
fn intrinsic(name: &str, defines: &Defines) -> Graph {
    let Ok(graphs) = elaborate(intrinsics(), Some(&[name.to_string()]), defines) else {
        crate::bug!("`{name}` of lib/intrinsics.te is wrong")
    };
    graphs.into_iter().next().expect("one kernel is asked for")
}

/// `S.tensorize(i, NAME)`: replaces the nest from loop `i` inwards by the intrinsic `NAME`.
pub(super) static TENSORIZE: Directive = Directive {
    name: "tensorize",
    subject: Subject::Stage,
    targets: Targets::All,
    params: &[
        required("i", ArgKind::Axis),
        required("intrinsic", ArgKind::Word),
        optional("reassociate", ArgKind::Bool),
    ],
    usage: "tensorize(i, NAME) or tensorize(i, NAME, reassociate=true)",
    run: tensorize,
    check: None,
};

fn tensorize(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let (axis, name) = (call.axis(0), call.word(1).unwrap_or_default());
    let program = intrinsics();
    let names: Vec<String> =
        kernel_names(program, &Vec::new()).into_iter().map(|(name, _)| name).collect();
    if !names.iter().any(|known| known == name) {
        let diag = Diag::new("E0377", call.span_of(1), format!("unknown intrinsic `{name}`"));
        return Err(Box::new(match closest(name, names.iter().map(|name| &name[..])) {
            Some(close) => diag.help(format!("did you mean `{close}`?")),
            None => diag.note(format!("intrinsics: {}", names.join(", "))),
        }));
    }
    if let Some(product) = WarpProduct::of(name) {
        check_product(schedule, call, product)?;
        schedule.reassociated |= product.sum.is_float();
    }
    let stage = schedule.stage_mut(call.stage());
    if let Some((old, _)) = stage.annotation::<Tensorize>() {
        let text = format!("`{}` already has a `tensorize`", stage.te.name);
        return Err(Box::new(Diag::new("E0377", call.span, text).related(old.span, "here")));
    }
    let mut intrinsic = intrinsic(name, &[]);
    if intrinsic.reassociate {
        check_order(schedule, call, name)?;
        schedule.reassociated = true;
    }
    let stage = schedule.stage_mut(call.stage());
    // The intrinsic fuses products and sums if the stage does.
    let fused = matches!(&stage.te.body, Body::Reduce(reduction) if reduction.fused);
    if fused {
        intrinsic = contract_floats(intrinsic);
    }
    let tensorize = Tensorize { axis, intrinsic, fused, span: call.span };
    stage.annotate(call.directive, Some(axis), call.span, tensorize);
    Ok(Vec::new())
}

/// Refuses an intrinsic that adds terms in another order, if nothing allows that (E0333).
fn check_order(schedule: &Schedule, call: &Call, name: &str) -> Result<()> {
    let stage = schedule.stage(call.stage());
    let source = match &stage.te.body {
        Body::Reduce(reduction) => reduction.reassociate,
        Body::Map(_) | Body::Sort(_) => true,
    };
    if source || schedule.graph.reassociate || call.flag(2) {
        return Ok(());
    }
    let (stage, axis) = (&stage.te.name, &stage.axis(call.axis(0)).name);
    let text = format!("`{name}` changes the order in which `{stage}` adds its terms");
    Err(Box::new(
        Diag::new("E0333", call.span, text)
            .note(
                "another order may round differently, and the instruction flushes subnormal \
                 numbers to 0",
            )
            .help(format!("allow it: `{stage}.tensorize({axis}, {name}, reassociate=true)`")),
    ))
}

/// Refuses a product that the target does not have (E0403), or whose order of terms nothing allows
/// (E0389).
fn check_product(schedule: &Schedule, call: &Call, product: WarpProduct) -> Result<()> {
    let name = product.name;
    let target = &schedule.target;
    if target.gpu.is_none_or(|gpu| gpu.capability < FIRST_WITH_PRODUCTS) {
        let text = format!("`{name}` needs tensor cores that multiply {}", product.factors());
        let first = FIRST_WITH_PRODUCTS;
        return Err(Box::new(
            Diag::new("E0403", call.span_of(1), text)
                .note(format!("it needs nvptx-sm_{first} or later, but the target is {target}")),
        ));
    }
    let has_groups = |gpu: Gpu| gpu.specific && gpu.capability == WARPGROUP_GPU;
    if product.is_by_warpgroup() && !target.gpu.is_some_and(has_groups) {
        let text = format!("`{name}` needs the products of warpgroups");
        return Err(Box::new(
            Diag::new("E0403", call.span_of(1), text)
                .note(format!("only nvptx-sm_{WARPGROUP_GPU}a has them, the target is {target}")),
        ));
    }
    let stage = schedule.stage(call.stage());
    let Body::Reduce(reduction) = &stage.te.body else { return Ok(()) };
    let allowed = call.flag(2) || reduction.reassociate || schedule.graph.reassociate;
    if allowed || !product.sum.is_float() {
        return Ok(());
    }
    let (stage, axis) = (&stage.te.name, &stage.axis(call.axis(0)).name);
    let text = format!("`{name}` adds the terms of `{stage}` in another order");
    Err(Box::new(
        Diag::new("E0389", call.span, text)
            .note("another order may round differently")
            .help(format!("allow it: `{stage}.tensorize({axis}, {name}, reassociate=true)`")),
    ))
}
