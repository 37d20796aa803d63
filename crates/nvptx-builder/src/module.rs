//! The builder of a module: header, variables, entries, and the text.

use crate::entry::{DYNAMIC_SHARED, Entry, identifier};
use crate::error::{Error, ErrorKind, Errors};
use crate::names::Names;
use crate::reg::{Space, Symbol};
use crate::target::{Target, Version};
use crate::ty::Ty;

/// A builder of a PTX module.
///
/// ```
/// use nvptx_builder::{F32, Ld, Module, Special, St, Target, U64};
///
/// let mut module = Module::new(Target::SM_80);
/// let e = module.entry("twice");
/// let data = e.param::<U64>("data");
/// e.max_threads(256, 1, 1);
/// let base = e.ld_param::<U64>(&data);
/// let base = e.cvta_to_global(base);
/// let i = e.special(Special::TidX);
/// let offset = e.mul_wide(i, 4u32);
/// let address = e.add(base, offset);
/// let x = e.ld::<F32>(Ld::global(), address);
/// let y = e.add(x, x);
/// e.st(St::global(), address, y);
/// let ptx = module.finish().unwrap();
/// assert_eq!(ptx.version.to_string(), "7.0");
/// assert!(ptx.text.contains("add.rn.f32"));
/// ```
#[derive(Clone, Debug)]
pub struct Module {
    target: Target,
    limit: Option<Version>,
    comments: Vec<String>,
    vars: Vec<String>,
    names: Names,
    entries: Vec<Entry>,
    errors: Vec<Error>,
}

/// A finished module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ptx {
    /// The text for `ptxas` and `cuModuleLoadData`.
    pub text: String,
    /// The version in the header: the lowest that target, instructions and directives allow.
    pub version: Version,
    /// The target in the header.
    pub target: Target,
}

impl Module {
    /// Creates an empty module.
    pub fn new(target: Target) -> Module {
        Module {
            target,
            limit: None,
            comments: Vec::new(),
            vars: Vec::new(),
            names: Names::default(),
            entries: Vec::new(),
            errors: Vec::new(),
        }
    }

    /// Returns the target.
    pub fn target(&self) -> Target {
        self.target
    }

    /// Refuses instructions that need a later version, which an older driver does not know. Applies
    /// to entries that are created after this call.
    pub fn limit_version(&mut self, limit: Version) {
        self.limit = Some(limit);
        let needs = self.target.version();
        if needs > limit {
            self.errors.push(Error {
                entry: String::new(),
                instruction: format!(".target {}", self.target),
                kind: ErrorKind::Version { needs, limit },
            });
        }
    }

    /// Adds a comment at the beginning of the text.
    pub fn comment(&mut self, text: &str) {
        self.comments.extend(text.lines().map(str::to_string));
    }

    /// Adds a read-only table in constant memory, which has 64 KiB.
    pub fn constant(&mut self, name: &str, ty: Ty, values: &[u64]) -> Symbol {
        self.table(Space::Const, name, ty, values)
    }

    /// Adds a table in global memory with initial values.
    pub fn global(&mut self, name: &str, ty: Ty, values: &[u64]) -> Symbol {
        self.table(Space::Global, name, ty, values)
    }

    /// Adds a table. Values are printed as bits, so that floats are exact.
    fn table(&mut self, space: Space, name: &str, ty: Ty, values: &[u64]) -> Symbol {
        let name = self.names.unique(identifier(name));
        let (space_name, ty) = (space.suffix(), ty.untyped());
        let values: Vec<String> = values.iter().map(|value| format!("0x{value:x}")).collect();
        let (len, align) = (values.len(), ty.bytes().max(4));
        let mut text = format!("{space_name} .align {align} .{ty} {name}[{len}] = {{");
        for line in values.chunks(8) {
            text += &format!("\n\t{},", line.join(", "));
        }
        if text.ends_with(',') {
            text.pop();
        }
        self.vars.push(text + "\n};\n");
        Symbol { name, space }
    }

    /// Adds an entry. Its name must be unique in the module.
    pub fn entry(&mut self, name: &str) -> &mut Entry {
        let valid = identifier(name);
        if valid != name || name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            self.refuse(name, "the name of an entry consists of letters, digits, `_` and `$`");
        } else if !self.names.insert(valid) {
            self.refuse(name, "the name of an entry or variable is taken");
        }
        self.entries.push(Entry::new(name, self.target, self.limit));
        self.entries.last_mut().expect("it was pushed")
    }

    fn refuse(&mut self, name: &str, message: &str) {
        self.errors.push(Error {
            entry: String::new(),
            instruction: format!(".entry {name}"),
            kind: ErrorKind::Form(message.to_string()),
        });
    }

    /// Returns the text.
    ///
    /// # Errors
    /// All errors of the module and its entries.
    pub fn finish(mut self) -> Result<Ptx, Errors> {
        let mut version = self.target.version();
        let mut dynamic = None;
        for entry in &mut self.entries {
            entry.finish();
            self.errors.append(&mut entry.errors);
            version = version.max(entry.version);
            dynamic = dynamic.max(entry.dynamic);
        }
        if !self.errors.is_empty() {
            return Err(Errors(self.errors));
        }
        let mut text = String::new();
        for line in &self.comments {
            text += &format!("// {line}\n");
        }
        let target = self.target;
        text += &format!(".version {version}\n.target {target}\n.address_size 64\n");
        for var in &self.vars {
            text += &format!("\n{var}");
        }
        if let Some(align) = dynamic {
            text += &format!("\n.extern .shared .align {align} .b8 {DYNAMIC_SHARED}[];\n");
        }
        for entry in &self.entries {
            text += &format!("\n{}", entry.text());
        }
        Ok(Ptx { text, version, target })
    }
}
