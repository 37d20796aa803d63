//! The modifiers of an opcode. A modifier that the decoder does not take is an error.

use crate::error::{Error, Result};
use crate::ty::Ty;

pub(crate) struct Mods<'a> {
    pub opcode: &'a str,
    pub root: &'a str,
    parts: Vec<(&'a str, bool)>,
    pub line: u32,
}

impl<'a> Mods<'a> {
    pub fn new(opcode: &'a str, line: u32) -> Self {
        let mut split = opcode.split('.');
        let root = split.next().unwrap_or_default();
        Mods { opcode, root, parts: split.map(|p| (p, false)).collect(), line }
    }

    /// Takes a modifier; returns whether it was present.
    pub fn has(&mut self, name: &str) -> bool {
        match self.parts.iter_mut().find(|(p, used)| *p == name && !used) {
            Some(part) => {
                part.1 = true;
                true
            }
            None => false,
        }
    }

    /// Takes the first of these names that is present.
    pub fn one_of(&mut self, names: &[&'static str]) -> Option<&'static str> {
        names.iter().find(|name| self.has(name)).copied()
    }

    pub fn need_one_of(&mut self, names: &[&'static str]) -> Result<&'static str> {
        self.one_of(names).ok_or_else(|| self.error(format!("needs one of .{}", names.join(", ."))))
    }

    /// Takes the next type, in the order of the text.
    pub fn ty(&mut self) -> Result<Ty> {
        self.maybe_ty().ok_or_else(|| self.error("needs a type"))
    }

    pub fn maybe_ty(&mut self) -> Option<Ty> {
        for part in &mut self.parts {
            if !part.1
                && let Some(ty) = Ty::parse(part.0)
            {
                part.1 = true;
                return Some(ty);
            }
        }
        None
    }

    /// Checks that all modifiers were taken.
    pub fn finish(&self) -> Result<()> {
        match self.parts.iter().find(|(_, used)| !used) {
            Some((part, _)) => Err(self.error(format!("unknown or unfit modifier `.{part}`"))),
            None => Ok(()),
        }
    }

    /// Creates an error for this instruction.
    pub fn error(&self, message: impl std::fmt::Display) -> Error {
        Error::at(self.line, format!("`{}`: {message}", self.opcode))
    }

    pub fn unknown(&self) -> Error {
        Error::at(self.line, format!("unknown instruction `{}`", self.opcode))
    }
}
