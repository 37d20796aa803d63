//! `bind`: the iterations of a loop run on the blocks or threads of a GPU.

use super::annotate_loop::annotate;
use super::call::{Call, Value};
use super::{ArgKind, Directive, Subject, Targets, required};
use crate::diag::{Diag, Result, closest};
use crate::ir::ThreadIndex;
use crate::schedule::state::{Annotation, Schedule};

/// `S.bind(i, INDEX)`: the block or thread with index `i` runs iteration `i`.
pub(super) static BIND: Directive = Directive {
    name: "bind",
    subject: Subject::Stage,
    targets: Targets::Gpus,
    params: &[required("i", ArgKind::Axis), required("index", ArgKind::Word)],
    usage: "bind(i, blockIdx.x), bind(i, threadIdx.x) or bind(i, vthread)",
    run: bind,
    check: None,
};

fn bind(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let word = call.word(1).unwrap_or_default();
    let Some(index) = ThreadIndex::from_name(word) else {
        let names = ThreadIndex::ALL.map(ThreadIndex::name);
        let diag = Diag::new("E0380", call.span_of(1), format!("unknown index `{word}`"));
        return Err(Box::new(match closest(word, names) {
            Some(close) => diag.help(format!("did you mean `{close}`?")),
            None => diag.note(format!("indices: {}", names.join(", "))),
        }));
    };
    let stage = schedule.stage(call.stage());
    let bound = stage.leaves.iter().find_map(|leaf| match stage.axis(*leaf).annotation {
        Some((Annotation::Thread(other), span)) if other == index => Some((*leaf, span)),
        _ => None,
    });
    if let (Some((leaf, span)), true) = (bound, index != ThreadIndex::Virtual) {
        let other = &stage.axis(leaf).name;
        let text = format!("`{}` of `{}` is bound twice", index.name(), stage.te.name);
        return Err(Box::new(
            Diag::new("E0380", call.span, text)
                .related(span, format!("axis `{other}` is bound to it here"))
                .help("fuse the two axes, or bind one of them to another index"),
        ));
    }
    annotate(schedule, call, Annotation::Thread(index))
}
