//! `--prefix`: names of functions that differ between the modules of a program.

use super::Compiled;
use crate::diag::{Diag, Result};
use crate::ir::PrepackRole;
use crate::te::refused_kernel_name;

impl Compiled {
    /// Puts a prefix in front of the name of each function. Schedules keep the names of the source.
    pub fn add_prefix(&mut self, prefix: &str) -> Result<()> {
        for one in &mut self.bounded {
            add(prefix, &mut one.schedule.graph.name)?;
            if let Some(PrepackRole::Pack { of, .. } | PrepackRole::Prepacked { of, .. }) =
                &mut one.prepack_role
            {
                add(prefix, of)?;
            }
        }
        for network in &mut self.networks {
            add(prefix, &mut network.code.entry.name)?;
        }
        Ok(())
    }
}

fn add(prefix: &str, name: &mut String) -> Result<()> {
    let new = format!("{prefix}{name}");
    let is_word = prefix.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let why = match is_word && !new.starts_with(|c: char| c.is_ascii_digit()) {
        true => refused_kernel_name(&new),
        false => Some("a name is letters, digits and `_`, and no digit first".to_string()),
    };
    if let Some(why) = why {
        let text = format!("a kernel cannot be named `{new}`");
        return Err(Box::new(
            Diag::global("E0203", text).note(why).help("choose another prefix with `--prefix`"),
        ));
    }
    *name = new;
    Ok(())
}
