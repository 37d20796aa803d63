//! Unwind tables of COFF objects: `.pdata` lists the functions, `.xdata` says what their prologues
//! do to the stack (Microsoft, "x64 exception handling").
//!
//! Cranelift's own tables (0.135) lose the distance between the frame pointer and the saved
//! registers, and scale offsets of general registers by 16, not 8.

use super::{Function, Prologue, RBP, SavedBelow, SavedRegister};
use cranelift_object::object::write::{Object, Relocation};
use cranelift_object::object::{RelocationEncoding, RelocationFlags, RelocationKind, SectionKind};

/// Adds the tables of the functions.
pub(super) fn write_tables(object: &mut Object<'_>, functions: &[Function]) {
    let mut section = |name: &str| {
        object.add_section(Vec::new(), name.as_bytes().to_vec(), SectionKind::ReadOnlyData)
    };
    let (xdata, pdata) = (section(".xdata"), section(".pdata"));
    let infos = object.section_symbol(xdata);
    let mut written: Vec<(Vec<u8>, u64)> = Vec::new();
    for Function { symbol, bytes, prologue } in functions {
        // A leaf function that saves nothing needs no entry.
        if prologue.pushes.is_empty() {
            continue;
        }
        let info = prologue.unwind_info();
        let known = written.iter().find(|(known, _)| *known == info).map(|(_, at)| *at);
        let info_at = known.unwrap_or_else(|| {
            let at = object.append_section_data(xdata, &info, 4);
            written.push((info, at));
            at
        });
        let entry = object.append_section_data(pdata, &[0; 12], 4);
        let fields = [(*symbol, 0), (*symbol, *bytes as i64), (infos, info_at as i64)];
        for (field, (symbol, addend)) in fields.into_iter().enumerate() {
            let flags = RelocationFlags::Generic {
                kind: RelocationKind::ImageOffset,
                encoding: RelocationEncoding::Generic,
                size: 32,
            };
            let offset = entry + 4 * field as u64;
            let relocation = Relocation { offset, symbol, addend, flags };
            object.add_relocation(pdata, relocation).expect("a relocation of COFF");
        }
    }
}

impl Prologue {
    /// Returns the `UNWIND_INFO`. Saved registers have offsets from a base below the frame pointer.
    /// The unwinder reads them, sets `rsp` to the base, and needs an allocation to come back to the
    /// frame pointer, under which the pushed registers are.
    fn unwind_info(&self) -> Vec<u8> {
        const PUSH: u8 = 0;
        const ALLOC_LARGE: u8 = 1;
        const SET_FRAME: u8 = 3;
        const SAVE: u8 = 4;
        const SAVE_XMM: u8 = 8;
        /// The base has four bits, in units of 16 bytes.
        const MAX_BASE: u32 = 240;
        let base = self.saves.iter().map(|save| save.below).max().unwrap_or(0).next_multiple_of(16);
        assert!(base <= MAX_BASE && (self.frame.is_some() || base == 0), "{self:?}");
        let mut codes: Vec<Vec<u8>> = Vec::new();
        let offset = |end: usize| u8::try_from(end).expect("a prologue of at most 255 bytes");
        for (end, register) in &self.pushes {
            codes.push(vec![offset(*end), PUSH | register << 4]);
        }
        if let Some(end) = self.frame {
            if base > 0 {
                let units = (base / 8) as u8;
                codes.push(vec![offset(end), ALLOC_LARGE, units, 0]);
            }
            codes.push(vec![offset(end), SET_FRAME]);
        }
        for SavedBelow { end, register, below } in &self.saves {
            let at = base - below;
            let unit = if matches!(register, SavedRegister::General(_)) { 8 } else { 16 };
            assert!(at.is_multiple_of(unit), "{self:?}");
            let (operation, units) = match register {
                SavedRegister::General(number) => (SAVE | number << 4, at / 8),
                SavedRegister::Vector(number) => (SAVE_XMM | number << 4, at / 16),
            };
            codes.push(vec![offset(*end), operation, units as u8, 0]);
        }
        let length = codes.last().map_or(0, |code| code[0]);
        codes.reverse();
        let codes = codes.concat();
        let frame = if self.frame.is_some() { RBP | ((base / 16) << 4) as u8 } else { 0 };
        let mut info = vec![1, length, (codes.len() / 2) as u8, frame];
        info.extend(codes);
        info.resize(info.len().next_multiple_of(4), 0);
        info
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushes_alone_need_no_frame() {
        let prologue = Prologue { pushes: vec![(1, 3), (3, 12)], ..Prologue::default() };
        assert_eq!(prologue.unwind_info(), [1, 3, 2, 0, 3, 0xc0, 1, 0x30]);
    }

    #[test]
    fn saved_registers_have_offsets_from_the_base() {
        let save = |end, register, below| SavedBelow { end, register, below };
        let prologue = Prologue {
            pushes: vec![(1, RBP)],
            frame: Some(4),
            saves: vec![
                save(16, SavedRegister::General(6), 48),
                save(24, SavedRegister::Vector(6), 32),
            ],
        };
        let expected = [
            &[1, 24, 8, 0x35][..], // version, length, codes, rbp - 3 * 16
            &[24, 0x68, 1, 0],     // xmm6 at 16
            &[16, 0x64, 0, 0],     // rsi at 0
            &[4, 0x03],            // rsp = base
            &[4, 0x01, 6, 0],      // rsp += 48
            &[1, 0x50],            // pop rbp
        ];
        assert_eq!(prologue.unwind_info(), expected.concat());
    }
}
