//! The builder of an entry: registers, labels, variables and code.
//!
//! Instructions are methods, too, in a file of `ops` for each family.

use crate::error::{Error, ErrorKind};
use crate::names::Names;
use crate::needs::Feature;
use crate::reg::*;
use crate::target::{Target, Version};
use crate::ty::*;
use std::fmt::Write;

/// A kernel, declared by `.visible .entry`.
///
/// A method that emits an instruction returns the register of the result: a new one, or the one
/// that [`Entry::to`] names. Errors are collected and returned by
/// [`Module::finish`](crate::Module::finish), so code that builds kernels needs no `?`.
#[derive(Clone, Debug)]
pub struct Entry {
    pub(crate) name: String,
    pub(crate) target: Target,
    pub(crate) params: Vec<ParamDecl>,
    pub(crate) directives: Vec<String>,
    pub(crate) dynamic: Option<u32>,
    /// The highest version that an instruction or directive needs.
    pub(crate) version: Version,
    pub(crate) limit: Option<Version>,
    pub(crate) errors: Vec<Error>,
    lines: Vec<Line>,
    counts: [u32; Class::ALL.len()],
    named: Vec<String>,
    /// The declarations of registers with names.
    declared: Vec<String>,
    names: Names,
    labels: Vec<LabelState>,
    vars: Vec<String>,
    static_shared: u64,
    guard: Option<Guard>,
    /// The destinations that `to` named for the next instruction.
    pending: Vec<Reg>,
}

#[derive(Clone, Debug)]
pub(crate) struct ParamDecl {
    pub(crate) text: String,
}

#[derive(Clone, Debug)]
struct LabelState {
    name: String,
    placed: bool,
    used: bool,
}

#[derive(Clone, Debug)]
enum Line {
    Code(String),
    Comment(String),
    Label(Label),
    Blank,
}

impl Entry {
    pub(crate) fn new(name: &str, target: Target, limit: Option<Version>) -> Entry {
        Entry {
            name: name.to_string(),
            target,
            params: Vec::new(),
            directives: Vec::new(),
            dynamic: None,
            version: Version::LOWEST,
            limit,
            errors: Vec::new(),
            lines: Vec::new(),
            counts: [0; Class::ALL.len()],
            named: Vec::new(),
            declared: Vec::new(),
            names: Names::default(),
            labels: Vec::new(),
            vars: Vec::new(),
            static_shared: 0,
            guard: None,
            pending: Vec::new(),
        }
    }

    /// Returns the name of the kernel.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the target.
    pub fn target(&self) -> Target {
        self.target
    }

    /// Returns the bytes of static shared memory so far, without gaps between variables.
    pub fn static_shared(&self) -> u64 {
        self.static_shared
    }

    // ---- parameters, limits, variables ----

    /// Adds a parameter, which [`Entry::ld_param`] loads. Parameters are passed in the order of
    /// these calls.
    pub fn param<T: Static>(&mut self, name: &str) -> Symbol {
        self.param_as(T::STATIC, name)
    }

    /// Like [`Entry::param`], for a type known at run time.
    pub fn param_as(&mut self, ty: Ty, name: &str) -> Symbol {
        // Bits and halves are passed untyped.
        let ty = if ty.is_float() || ty.is_int() { ty } else { ty.untyped() };
        let name = self.symbol_name(name);
        self.params.push(ParamDecl { text: format!(".param .{ty} {name}") });
        Symbol { name, space: Space::Param }
    }

    /// Adds a parameter of 64 bits: a pointer to global memory, aligned to `align` bytes.
    pub fn param_pointer(&mut self, name: &str, align: u32) -> Symbol {
        let name = self.symbol_name(name);
        let text = format!(".param .u64 .ptr .global .align {align} {name}");
        self.params.push(ParamDecl { text });
        Symbol { name, space: Space::Param }
    }

    /// Adds a parameter of `bytes` bytes, such as a tensor map (128 bytes, aligned to 64).
    pub fn param_bytes(&mut self, name: &str, bytes: u32, align: u32) -> Symbol {
        let name = self.symbol_name(name);
        self.params.push(ParamDecl { text: format!(".param .align {align} .b8 {name}[{bytes}]") });
        Symbol { name, space: Space::Param }
    }

    /// Sets the largest block; `ptxas` derives the number of registers from it. A block has at most
    /// 1,024 threads, and at most 64 along z.
    pub fn max_threads(&mut self, x: u32, y: u32, z: u32) {
        self.block_directive(".maxntid", x, y, z);
    }

    /// Sets the exact block, instead of [`Entry::max_threads`].
    pub fn required_threads(&mut self, x: u32, y: u32, z: u32) {
        self.block_directive(".reqntid", x, y, z);
    }

    fn block_directive(&mut self, name: &str, x: u32, y: u32, z: u32) {
        let text = format!("{name} {x}, {y}, {z}");
        let threads = u64::from(x) * u64::from(y) * u64::from(z);
        if threads == 0 || threads > 1024 || z > 64 {
            self.refuse(&text, "a block has 1 to 1,024 threads, at most 64 along z");
        }
        self.directives.retain(|one| !one.starts_with(".maxntid") && !one.starts_with(".reqntid"));
        self.directives.push(text);
    }

    /// Sets the least number of blocks on a multiprocessor, which limits the registers of a thread.
    pub fn min_blocks(&mut self, blocks: u32) {
        self.directives.push(format!(".minnctapersm {blocks}"));
    }

    /// Sets the largest number of registers of a thread.
    pub fn max_registers(&mut self, registers: u32) {
        self.directives.push(format!(".maxnreg {registers}"));
    }

    /// Declares static shared memory: `len` elements, aligned to `align` bytes. Vectors of n bytes
    /// need an alignment of n, matrices of `ldmatrix` one of 16.
    pub fn shared<T: Static>(&mut self, name: &str, len: u32, align: u32) -> Symbol {
        self.shared_as(T::STATIC, name, len, align)
    }

    /// Like [`Entry::shared`], for a type known at run time.
    pub fn shared_as(&mut self, ty: Ty, name: &str, len: u32, align: u32) -> Symbol {
        self.static_shared += u64::from(len) * u64::from(ty.bytes());
        if self.static_shared > u64::from(Target::STATIC_SHARED) {
            let message = format!(
                "{} bytes of static shared memory, the limit is {}; use dynamic_shared",
                self.static_shared,
                Target::STATIC_SHARED
            );
            self.refuse(&format!(".shared {name}"), &message);
        }
        self.variable(Space::Shared, ty, name, len, align)
    }

    /// Declares local memory of each thread, for data that needs an address.
    pub fn local<T: Static>(&mut self, name: &str, len: u32, align: u32) -> Symbol {
        self.variable(Space::Local, T::STATIC, name, len, align)
    }

    /// Like [`Entry::local`], for a type known at run time.
    pub fn local_as(&mut self, ty: Ty, name: &str, len: u32, align: u32) -> Symbol {
        self.variable(Space::Local, ty, name, len, align)
    }

    fn variable(&mut self, space: Space, ty: Ty, name: &str, len: u32, align: u32) -> Symbol {
        let ty = if ty.is_float() { ty } else { ty.untyped() };
        let name = self.symbol_name(name);
        let text = format!("{} .align {align} .{ty} {name}[{len}]", space.suffix());
        if !align.is_power_of_two() || align < ty.bytes() {
            self.refuse(&text, "the alignment is a power of two, at least the size of an element");
        }
        self.vars.push(text);
        Symbol { name, space }
    }

    /// Declares dynamic shared memory, whose size the launch sets. All calls in a module return the
    /// same memory, with the largest alignment.
    pub fn dynamic_shared(&mut self, align: u32) -> Symbol {
        self.dynamic = Some(self.dynamic.unwrap_or(1).max(align));
        Symbol { name: DYNAMIC_SHARED.to_string(), space: Space::Shared }
    }

    /// Returns a unique name for a symbol: the name of the entry, then the wanted one.
    fn symbol_name(&mut self, wanted: &str) -> String {
        let wanted = format!("{}_{}", self.name, identifier(wanted));
        self.names.unique(wanted)
    }

    // ---- registers ----

    /// Creates a register without a value.
    pub fn reg<T: Static>(&mut self) -> Reg<T> {
        self.fresh(T::STATIC).cast(T::STATIC)
    }

    /// Like [`Entry::reg`], for a type known at run time.
    pub fn reg_as(&mut self, ty: Ty) -> Reg {
        self.fresh(ty)
    }

    /// Creates a register with a name: `%acc`, or `%acc_2x` if the name is taken.
    pub fn reg_named<T: Static>(&mut self, name: &str) -> Reg<T> {
        self.reg_named_as(T::STATIC, name).cast(T::STATIC)
    }

    /// Like [`Entry::reg_named`], for a type known at run time.
    pub fn reg_named_as(&mut self, ty: Ty, name: &str) -> Reg {
        let name = self.register_name(name);
        self.declared.push(format!(".reg .{} \t{name}", ty.class().declared()));
        self.named.push(name);
        Reg::new(ty, self.named.len() as u32 - 1, true)
    }

    /// Creates registers with one name and numbers: `%acc_0`, `%acc_1`, …
    pub fn reg_array_as(&mut self, ty: Ty, name: &str, len: u32) -> Vec<Reg> {
        let name = self.register_name(name);
        self.declared.push(format!(".reg .{} \t{name}_<{len}>", ty.class().declared()));
        let first = self.named.len() as u32;
        self.named.extend((0..len).map(|i| format!("{name}_{i}")));
        (first..first + len).map(|index| Reg::new(ty, index, true)).collect()
    }

    /// Returns a unique name for registers. Numbers a name that ends in a digit: it could clash
    /// with an unnamed register (`%r1`) or one of an array.
    fn register_name(&mut self, name: &str) -> String {
        let wanted = format!("%{}", identifier(name));
        let is_free = !wanted.ends_with(|c: char| c.is_ascii_digit());
        match is_free && self.names.insert(wanted.clone()) {
            true => wanted,
            false => self.names.numbered(wanted, "x"),
        }
    }

    pub(crate) fn fresh(&mut self, ty: Ty) -> Reg {
        let count = &mut self.counts[ty.class() as usize];
        *count += 1;
        Reg::new(ty, *count - 1, false)
    }

    /// Makes the next instruction write its result to `dst` instead of a new register:
    /// `e.to(acc).fma(a, b, acc)`.
    pub fn to<T: Kind>(&mut self, dst: Reg<T>) -> &mut Entry {
        self.to_all(&[dst])
    }

    /// Like [`Entry::to`], for instructions with several results.
    pub fn to_all<T: Kind>(&mut self, dst: &[Reg<T>]) -> &mut Entry {
        if !self.pending.is_empty() {
            self.refuse("to", "the destination named before was not written");
        }
        self.pending = dst.iter().map(|reg| reg.erase()).collect();
        self
    }

    // ---- control flow and text ----

    /// Adds a condition to the instructions of `body`: `@%p1 st.global…`. Conditions do not nest;
    /// use a branch, or combine the predicates.
    pub fn when<R>(&mut self, guard: impl Into<Guard>, body: impl FnOnce(&mut Entry) -> R) -> R {
        let guard = guard.into();
        if guard.pred.ty != Ty::Pred {
            self.refuse("@", "the condition is not a predicate");
        }
        if self.guard.replace(guard).is_some() {
            self.refuse("@", "a condition inside another one");
        }
        let result = body(self);
        self.guard = None;
        result
    }

    /// Creates a label; [`Entry::place`] places it.
    pub fn label(&mut self, name: &str) -> Label {
        let name = self.names.unique(format!("${}", identifier(name)));
        self.labels.push(LabelState { name, placed: false, used: false });
        Label(self.labels.len() as u32 - 1)
    }

    /// Places a label before the next instruction.
    pub fn place(&mut self, label: Label) {
        let state = &mut self.labels[label.0 as usize];
        let twice = std::mem::replace(&mut state.placed, true);
        let name = state.name.clone();
        if twice {
            self.refuse(&name, "the label is placed twice");
        }
        self.lines.push(Line::Label(label));
    }

    /// Emits `bra`: continues at the label.
    pub fn bra(&mut self, label: Label) {
        let name = self.use_label(label);
        self.code(Feature::Base, format!("bra {name}"));
    }

    /// Emits `bra.uni`: like [`Entry::bra`], for branches that all threads of the warp take alike.
    pub fn bra_uni(&mut self, label: Label) {
        let name = self.use_label(label);
        self.code(Feature::Base, format!("bra.uni {name}"));
    }

    fn use_label(&mut self, label: Label) -> String {
        let state = &mut self.labels[label.0 as usize];
        state.used = true;
        state.name.clone()
    }

    /// Emits `ret`: ends the thread.
    pub fn ret(&mut self) {
        self.code(Feature::Base, "ret".to_string());
    }

    /// Emits `trap`: the launch fails.
    pub fn trap(&mut self) {
        self.code(Feature::Base, "trap".to_string());
    }

    /// Adds a comment with the lines of `text`.
    pub fn comment(&mut self, text: &str) {
        self.lines.extend(text.lines().map(|line| Line::Comment(line.to_string())));
    }

    /// Adds an empty line.
    pub fn blank(&mut self) {
        self.lines.push(Line::Blank);
    }

    /// Emits an instruction that this crate does not know, without its semicolon. `{0}`, `{1}`, …
    /// stand for the registers. Checks only what `needs` says.
    pub fn raw(&mut self, needs: Feature, text: &str, regs: &[Reg]) {
        let mut out = text.to_string();
        for (i, reg) in regs.iter().enumerate() {
            out = out.replace(&format!("{{{i}}}"), &self.name_of(*reg));
        }
        self.code(needs, out);
    }

    // ---- helpers of the instructions ----

    /// Emits an instruction. Records an error if the target does not have it.
    pub(crate) fn code(&mut self, feature: Feature, text: String) {
        let needs = feature.needs();
        if !needs.met_by(self.target) {
            let kind = ErrorKind::Target { needs, target: self.target };
            self.error(&text, kind);
        } else if self.limit.is_some_and(|limit| needs.version > limit) {
            let limit = self.limit.expect("it was compared");
            self.error(&text, ErrorKind::Version { needs: needs.version, limit });
        } else {
            self.version = self.version.max(needs.version);
        }
        let guard = match self.guard {
            None => String::new(),
            Some(Guard { pred, negated }) => {
                format!("@{}{} ", if negated { "!" } else { "" }, self.name_of(pred))
            }
        };
        self.lines.push(Line::Code(format!("{guard}{text}")));
    }

    /// Emits `name dst, srcs…` with one result. Checks each source against the type next to it.
    pub(crate) fn inst<T: Kind>(
        &mut self,
        feature: Feature,
        name: &str,
        ty: Ty,
        srcs: &[(Value, Ty)],
    ) -> Reg<T> {
        let dst = self.destination(name, ty);
        let mut text = format!("{name} {}", self.name_of(dst));
        for &(value, want) in srcs {
            let source = self.source(name, value, want);
            write!(text, ", {source}").expect("strings take everything");
        }
        self.code(feature, text);
        Reg::new(T::TY.unwrap_or(ty), dst.index, dst.named)
    }

    /// Emits `name srcs…` without a result.
    pub(crate) fn effect(&mut self, feature: Feature, name: &str, srcs: &[(Value, Ty)]) {
        let srcs: Vec<String> =
            srcs.iter().map(|&(value, want)| self.source(name, value, want)).collect();
        let space = if srcs.is_empty() { "" } else { " " };
        self.code(feature, format!("{name}{space}{}", srcs.join(", ")));
    }

    /// Returns the destination of an instruction with one result.
    pub(crate) fn destination(&mut self, name: &str, ty: Ty) -> Reg {
        self.destinations(name, ty, 1)[0]
    }

    /// Returns the destinations of an instruction.
    pub(crate) fn destinations(&mut self, name: &str, ty: Ty, count: usize) -> Vec<Reg> {
        if self.pending.is_empty() {
            return (0..count).map(|_| self.fresh(ty)).collect();
        }
        let named = std::mem::take(&mut self.pending);
        let fits = |reg: &Reg| reg.ty.class() == ty.class();
        if named.len() == count && named.iter().all(fits) {
            return named;
        }
        let types: Vec<&str> = named.iter().map(|reg| reg.ty.name()).collect();
        let message = format!("its {count} result(s) are {ty}, the destination is {types:?}");
        self.refuse(name, &message);
        (0..count).map(|_| self.fresh(ty)).collect()
    }

    /// Returns the text of an operand that must have the type `ty`.
    pub(crate) fn source(&mut self, name: &str, value: Value, ty: Ty) -> String {
        let have = value.ty();
        if have.class() != ty.class() || have.bits() != ty.bits() {
            self.refuse(name, &format!("an operand is {have} where {ty} is wanted"));
        }
        match value {
            Value::Reg(reg) => self.name_of(reg),
            Value::Imm(_, bits) => match ty {
                Ty::F32 => format!("0f{bits:08X}"),
                Ty::F64 => format!("0d{bits:016X}"),
                Ty::S16 => (bits as i16).to_string(),
                Ty::S32 => (bits as i32).to_string(),
                Ty::S64 => (bits as i64).to_string(),
                Ty::B16 | Ty::B32 | Ty::B64 if bits > 0xffff => format!("0x{bits:x}"),
                Ty::F16 | Ty::Bf16 | Ty::F16x2 | Ty::Bf16x2 | Ty::Tf32 => format!("0x{bits:x}"),
                Ty::Pred | Ty::B128 => {
                    self.refuse(name, &format!("there are no constants of type {ty}"));
                    bits.to_string()
                }
                _ => bits.to_string(),
            },
        }
    }

    pub(crate) fn name_of(&self, reg: Reg) -> String {
        if reg.named {
            return self.named[reg.index as usize].clone();
        }
        format!("%{}{}", reg.ty.class().prefix(), reg.index)
    }

    /// Returns the text of an address in `space`, in brackets.
    pub(crate) fn address(&mut self, name: &str, space: Space, address: &Address) -> String {
        let base = match &address.base {
            Base::Symbol(symbol) => {
                if symbol.space != space {
                    let message = format!("`{}` is not in this space", symbol.name);
                    self.refuse(name, &message);
                }
                symbol.name.clone()
            }
            Base::Reg(reg) => {
                let short = matches!(space, Space::Shared | Space::Local | Space::Const);
                match reg.ty.class() {
                    Class::B64 => {}
                    Class::B32 if short => {}
                    _ => {
                        let message = format!("the address is {}", reg.ty);
                        self.refuse(name, &message);
                    }
                }
                self.name_of(*reg)
            }
        };
        match address.offset {
            0 => format!("[{base}]"),
            offset => {
                if i32::try_from(offset).is_err() {
                    self.refuse(name, &format!("the offset {offset} is out of 32 bits"));
                }
                format!("[{base}+{offset}]")
            }
        }
    }

    /// Records an error of an instruction.
    pub(crate) fn refuse(&mut self, instruction: &str, message: &str) {
        self.error(instruction, ErrorKind::Form(message.to_string()));
    }

    fn error(&mut self, instruction: &str, kind: ErrorKind) {
        let (entry, instruction) = (self.name.clone(), instruction.to_string());
        self.errors.push(Error { entry, instruction, kind });
    }

    // ---- text ----

    /// Checks that all labels are placed and all destinations written.
    pub(crate) fn finish(&mut self) {
        for state in self.labels.clone() {
            if state.used && !state.placed {
                self.refuse(&state.name, "the label is branched to and not placed");
            }
        }
        if !self.pending.is_empty() {
            self.refuse("to", "the destination named last was not written");
        }
    }

    pub(crate) fn text(&self) -> String {
        let mut out = format!(".visible .entry {}(", self.name);
        for (i, param) in self.params.iter().enumerate() {
            let comma = if i + 1 < self.params.len() { "," } else { "" };
            write!(out, "\n\t{}{comma}", param.text).expect("strings take everything");
        }
        out += if self.params.is_empty() { ")\n" } else { "\n)\n" };
        for directive in &self.directives {
            out += &format!("{directive}\n");
        }
        out += "{\n";
        for class in Class::ALL {
            let count = self.counts[class as usize];
            if count > 0 {
                let (declared, prefix) = (class.declared(), class.prefix());
                out += &format!("\t.reg .{declared} \t%{prefix}<{count}>;\n");
            }
        }
        for declared in &self.declared {
            out += &format!("\t{declared};\n");
        }
        for var in &self.vars {
            out += &format!("\t{var};\n");
        }
        out += "\n";
        for line in &self.lines {
            match line {
                Line::Code(text) => out += &format!("\t{text};\n"),
                Line::Comment(text) => out += &format!("\t// {text}\n"),
                Line::Label(label) => out += &format!("{}:\n", self.labels[label.0 as usize].name),
                Line::Blank => out += "\n",
            }
        }
        if !matches!(self.lines.iter().rev().find(|line| !matches!(line, Line::Comment(_) | Line::Blank)),
            Some(Line::Code(text)) if text == "ret")
        {
            out += "\tret;\n";
        }
        out + "}\n"
    }
}

pub(crate) const DYNAMIC_SHARED: &str = "dynamic_shared";

/// Replaces all characters that PTX does not allow in names by `_`.
pub(crate) fn identifier(name: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
    name.chars().map(|c| if allowed(c) { c } else { '_' }).collect()
}
