//! Decodes parsed text to [`op::Kernel`]: names become rows, labels positions, opcodes functions.
//!
//! An unknown instruction, modifier, operand or type is an error with its line.

mod arith;
mod control;
mod matrix;
mod memory;
mod mods;
pub(crate) mod op;
mod operand;

use self::mods::Mods;
use self::op::{Inst, Kernel, Op, ParamSlot, SharedVar, Special, Use};
use crate::error::{Error, Result};
use crate::needs::Machine;
use crate::parse::ast::{Arg, Entry, RawInst, Space, StmtKind, Var};
use crate::ty::{Class, Ty};
use std::collections::HashMap;

/// The address of the variables of the module; buffers of a launch are below.
pub(crate) const MODULE_BUFFERS: u64 = 0x40_0000;
/// The bits of an offset in a buffer.
pub(crate) const BUFFER_BITS: u32 = 40;
/// The windows of shared and local memory in the generic address space.
pub(crate) const SHARED_WINDOW: u64 = 1 << 36;
pub(crate) const LOCAL_WINDOW: u64 = 2 << 36;
pub(crate) const WINDOW_BYTES: u64 = 1 << 36;
/// The unmapped bytes between two shared variables, a multiple of the bank period.
const SHARED_GAP: u32 = 1024;

/// Decodes one kernel of a text for `machine`; `vars` are the variables of the module.
pub(crate) fn decode(entry: &Entry, vars: &[Var], machine: Machine) -> Result<Kernel> {
    let mut decoder = Decoder::new(entry, vars, machine)?;
    decoder.collect_labels(entry)?;
    decoder.layout_shared(entry, vars)?;
    let mut next_scope = 1;
    for stmt in &entry.body {
        decoder.line = stmt.line;
        match &stmt.kind {
            StmtKind::Label(_) | StmtKind::Targets(..) => {}
            StmtKind::Open => {
                decoder.scopes.push(Scope { id: next_scope, names: HashMap::new() });
                next_scope += 1;
            }
            StmtKind::Close => {
                decoder.scopes.pop();
            }
            StmtKind::Regs(ty, names) => decoder.registers(*ty, names)?,
            StmtKind::Var(var) => decoder.variable(var)?,
            StmtKind::Inst(raw) => decoder.instruction(raw)?,
        }
    }
    // The end of the text is an implicit `ret`.
    decoder.kernel.names.push("ret".to_string());
    let name = decoder.kernel.names.len() as u32 - 1;
    let line = entry.body.last().map_or(entry.line, |s| s.line);
    let at = decoder.kernel.uses.len() as u32;
    decoder.kernel.code.push(Inst { op: Op::Exit, guard: None, line, uses: (at, at), name });
    let Decoder { mut kernel, consts32, consts64, .. } = decoder;
    kernel.consts32 = to_rows(&consts32);
    kernel.consts64 = to_rows(&consts64);
    Ok(kernel)
}

fn to_rows<T: Copy + Default>(table: &HashMap<T, u32>) -> Vec<[T; 32]> {
    let mut rows = vec![[T::default(); 32]; table.len()];
    for (value, at) in table {
        rows[*at as usize] = [*value; 32];
    }
    rows
}

/// The meaning of a name in a kernel.
#[derive(Clone, Copy, Debug)]
enum Symbol {
    Reg {
        ty: Ty,
        row: u32,
    },
    /// The address of a variable in its space.
    Var {
        space: Space,
        address: u64,
    },
}

struct Scope {
    id: u32,
    names: HashMap<String, Symbol>,
}

struct Decoder {
    kernel: Kernel,
    scopes: Vec<Scope>,
    /// The parent of each scope, by id, and the labels by scope and name.
    labels: HashMap<(u32, String), u32>,
    targets: HashMap<(u32, String), Vec<String>>,
    consts32: HashMap<u32, u32>,
    consts64: HashMap<u64, u32>,
    specials: HashMap<String, (Ty, u32)>,
    name_ids: HashMap<String, u32>,
    machine: Machine,
    line: u32,
}

impl Decoder {
    fn new(entry: &Entry, vars: &[Var], machine: Machine) -> Result<Self> {
        let mut names = HashMap::new();
        let mut module_buffer = MODULE_BUFFERS;
        for var in vars {
            if matches!(var.space, Space::Global | Space::Const) {
                if var.is_extern {
                    let message = format!("`{}` is not defined in this text", var.name);
                    return Err(Error::at(var.line, message));
                }
                let address = module_buffer << BUFFER_BITS;
                names.insert(var.name.clone(), Symbol::Var { space: var.space, address });
                module_buffer += 1;
            }
        }
        let mut params = Vec::new();
        let mut offset = 0u32;
        for param in &entry.params {
            offset = offset.next_multiple_of(param.align.max(1));
            let address = u64::from(offset);
            names.insert(param.name.clone(), Symbol::Var { space: Space::Param, address });
            params.push(ParamSlot {
                name: param.name.clone(),
                offset,
                bytes: param.bytes,
                is_pointer_size: param.is_pointer_size,
            });
            offset += param.bytes;
        }
        let kernel = Kernel {
            name: entry.name.clone(),
            params,
            param_bytes: offset,
            maxntid: entry.maxntid,
            reqntid: entry.reqntid,
            code: Vec::new(),
            uses: Vec::new(),
            lists: Vec::new(),
            names: Vec::new(),
            consts32: Vec::new(),
            consts64: Vec::new(),
            rows32: 0,
            rows64: 0,
            preds: 0,
            specials: Vec::new(),
            reg_names: Vec::new(),
            shared: Vec::new(),
            dynamic_offset: 0,
            uses_dynamic: false,
            uses_wgmma: false,
            static_bytes: 0,
            local_bytes: 0,
            sites: Vec::new(),
            shared_granule: 4,
            global_granule: 4,
            has_copies: false,
        };
        Ok(Decoder {
            kernel,
            scopes: vec![Scope { id: 0, names }],
            labels: HashMap::new(),
            targets: HashMap::new(),
            consts32: HashMap::new(),
            consts64: HashMap::new(),
            specials: HashMap::new(),
            name_ids: HashMap::new(),
            machine,
            line: entry.line,
        })
    }

    /// Collects labels by scope, with the position of the next instruction.
    fn collect_labels(&mut self, entry: &Entry) -> Result<()> {
        let (mut open, mut next, mut at) = (vec![0], 1, 0);
        for stmt in &entry.body {
            let scope = *open.last().expect("the kernel's scope stays open");
            match &stmt.kind {
                StmtKind::Open => {
                    open.push(next);
                    next += 1;
                }
                StmtKind::Close => {
                    open.pop();
                }
                StmtKind::Inst(_) => at += 1,
                StmtKind::Label(name) => {
                    if self.labels.insert((scope, name.clone()), at).is_some() {
                        return Err(Error::at(stmt.line, format!("label `{name}` twice")));
                    }
                }
                StmtKind::Targets(name, list) => {
                    self.targets.insert((scope, name.clone()), list.clone());
                }
                StmtKind::Regs(..) | StmtKind::Var(_) => {}
            }
        }
        Ok(())
    }

    /// Places the shared variables that the kernel uses, those of the module first, in the order of
    /// the text, with a gap after each.
    fn layout_shared(&mut self, entry: &Entry, vars: &[Var]) -> Result<()> {
        let mut used = std::collections::HashSet::new();
        for stmt in &entry.body {
            if let StmtKind::Inst(raw) = &stmt.kind {
                raw.args.iter().for_each(|arg| names_of(arg, &mut used));
            }
        }
        let module = vars.iter().filter(|v| v.space == Space::Shared);
        let mut dynamic: Vec<&Var> = Vec::new();
        for var in module.filter(|v| used.contains(v.name.as_str())) {
            if var.bytes == 0 {
                dynamic.push(var);
            } else {
                self.place_shared(var)?;
            }
        }
        for stmt in &entry.body {
            match &stmt.kind {
                StmtKind::Var(var) if var.space == Space::Shared && var.bytes > 0 => {
                    self.place_shared(var)?;
                }
                _ => {}
            }
        }
        let align = dynamic.iter().map(|v| v.align).max().unwrap_or(16).max(16);
        let gaps = self.kernel.shared.len() as u32 * SHARED_GAP;
        self.kernel.dynamic_offset = self.kernel.static_bytes.next_multiple_of(align) + gaps;
        self.kernel.uses_dynamic = !dynamic.is_empty();
        let address = u64::from(self.kernel.dynamic_offset);
        for var in dynamic {
            let symbol = Symbol::Var { space: Space::Shared, address };
            self.scopes[0].names.insert(var.name.clone(), symbol);
        }
        Ok(())
    }

    fn place_shared(&mut self, var: &Var) -> Result<()> {
        if var.init.is_some() {
            return Err(Error::at(var.line, "shared memory has no initial values"));
        }
        let real = u64::from(self.kernel.static_bytes.next_multiple_of(var.align));
        if real + var.bytes > 1 << 24 {
            return Err(Error::at(var.line, format!("`{}` is too large", var.name)));
        }
        self.kernel.static_bytes = (real + var.bytes) as u32;
        let offset = real as u32 + self.kernel.shared.len() as u32 * SHARED_GAP;
        let (name, bytes) = (var.name.clone(), var.bytes as u32);
        let symbol = Symbol::Var { space: Space::Shared, address: u64::from(offset) };
        self.scopes[0].names.insert(name.clone(), symbol);
        self.kernel.shared.push(SharedVar { name, offset, bytes });
        Ok(())
    }

    fn registers(&mut self, ty: Ty, names: &[(String, Option<u32>)]) -> Result<()> {
        if ty.class() == Class::R128 {
            return Err(Error::at(self.line, "128-bit registers are not supported"));
        }
        for (name, count) in names {
            match count {
                None => self.register(ty, name.clone()),
                Some(count) if *count > 1 << 20 => {
                    return Err(Error::at(self.line, format!("{count} registers are too many")));
                }
                Some(count) => {
                    // A register of a range is resolved at its first use.
                    for i in 0..*count {
                        self.register(ty, format!("{name}{i}"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Declares a register; `row_of` assigns its row at the first use.
    fn register(&mut self, ty: Ty, name: String) {
        let scope = self.scopes.last_mut().expect("the kernel's scope stays open");
        scope.names.insert(name, Symbol::Reg { ty, row: u32::MAX });
    }

    fn new_row(&mut self, ty: Ty, name: &str) -> u32 {
        let (row, key): (u32, fn(u32) -> Use) = match ty.class() {
            Class::Pred => (next(&mut self.kernel.preds), Use::Pred),
            Class::R64 => (next(&mut self.kernel.rows64), Use::R64),
            _ => (next(&mut self.kernel.rows32), Use::R32),
        };
        self.kernel.reg_names.push((key(row), name.to_string()));
        row
    }

    /// Declares a variable of the kernel; shared ones were placed before.
    fn variable(&mut self, var: &Var) -> Result<()> {
        match var.space {
            Space::Shared => Ok(()),
            Space::Local => {
                let offset = self.kernel.local_bytes.next_multiple_of(var.align.max(16));
                let symbol = Symbol::Var { space: Space::Local, address: u64::from(offset) };
                let scope = self.scopes.last_mut().expect("the kernel's scope stays open");
                scope.names.insert(var.name.clone(), symbol);
                // The gap prevents an overrun from hitting the next variable.
                self.kernel.local_bytes = offset + (var.bytes as u32).next_multiple_of(16) + 16;
                Ok(())
            }
            _ => Err(Error::at(var.line, "only shared and local variables live in a kernel")),
        }
    }

    fn instruction(&mut self, raw: &RawInst) -> Result<()> {
        let start = self.kernel.uses.len() as u32;
        let guard = match &raw.guard {
            Some((name, negated)) => Some((self.pred_reg(name)?, *negated)),
            None => None,
        };
        let mut mods = Mods::new(&raw.op, self.line);
        let op = self.operation(&mut mods, &raw.args)?;
        mods.finish()?;
        self.machine.check(&raw.op, raw.args.len(), self.line)?;
        let end = self.kernel.uses.len() as u32;
        let name = match self.name_ids.get(&raw.op) {
            Some(id) => *id,
            None => {
                let id = self.kernel.names.len() as u32;
                self.kernel.names.push(raw.op.clone());
                self.name_ids.insert(raw.op.clone(), id);
                id
            }
        };
        self.kernel.code.push(Inst { op, guard, line: self.line, uses: (start, end), name });
        Ok(())
    }

    fn operation(&mut self, mods: &mut Mods<'_>, args: &[Arg]) -> Result<Op> {
        if let Some(op) = self.arithmetic(mods, args)? {
            return Ok(op);
        }
        if let Some(op) = self.memory(mods, args)? {
            return Ok(op);
        }
        if let Some(op) = self.control(mods, args)? {
            return Ok(op);
        }
        if let Some(op) = self.matrix(mods, args)? {
            return Ok(op);
        }
        Err(mods.unknown())
    }

    /// Creates a memory access site for the current instruction.
    fn site(&mut self) -> u32 {
        self.kernel.sites.push(self.kernel.code.len() as u32);
        self.kernel.sites.len() as u32 - 1
    }

    fn special(&mut self, name: &str) -> Option<(Ty, u32)> {
        if let Some(found) = self.specials.get(name) {
            return Some(*found);
        }
        let axis = |special: fn(usize) -> Special, rest: &str| match rest {
            ".x" => Some(special(0)),
            ".y" => Some(special(1)),
            ".z" => Some(special(2)),
            _ => None,
        };
        let special = if let Some(rest) = name.strip_prefix("%tid") {
            axis(Special::Tid, rest)?
        } else if let Some(rest) = name.strip_prefix("%ntid") {
            axis(Special::Ntid, rest)?
        } else if let Some(rest) = name.strip_prefix("%ctaid") {
            axis(Special::Ctaid, rest)?
        } else if let Some(rest) = name.strip_prefix("%nctaid") {
            axis(Special::Nctaid, rest)?
        } else {
            match name {
                "%laneid" => Special::LaneId,
                "%warpid" => Special::WarpId,
                "%nwarpid" => Special::NWarpId,
                "%smid" => Special::SmId,
                "%nsmid" => Special::NSmId,
                "%gridid" => Special::GridId,
                "%lanemask_eq" => Special::LaneMask(0),
                "%lanemask_le" => Special::LaneMask(1),
                "%lanemask_lt" => Special::LaneMask(2),
                "%lanemask_ge" => Special::LaneMask(3),
                "%lanemask_gt" => Special::LaneMask(4),
                "%dynamic_smem_size" => Special::DynamicShared,
                "%total_smem_size" => Special::TotalShared,
                _ => return None,
            }
        };
        let ty = if special == Special::GridId { Ty::U64 } else { Ty::U32 };
        let row = self.new_row(ty, name);
        self.kernel.specials.push((special, row));
        self.specials.insert(name.to_string(), (ty, row));
        Some((ty, row))
    }
}

fn next(counter: &mut u32) -> u32 {
    *counter += 1;
    *counter - 1
}

/// Calls `f` with all names of an operand.
fn names_of<'a>(arg: &'a Arg, out: &mut std::collections::HashSet<&'a str>) {
    match arg {
        Arg::Name(name) | Arg::Addr(Some(name), _) | Arg::Sum(name, _) => {
            out.insert(name);
        }
        Arg::Vec(parts) => parts.iter().for_each(|part| names_of(part, out)),
        Arg::Pair(a, b) => {
            names_of(a, out);
            names_of(b, out);
        }
        Arg::Not(a) => names_of(a, out),
        Arg::Int(_) | Arg::F32(_) | Arg::F64(_) | Arg::Addr(None, _) | Arg::Sink => {}
    }
}
