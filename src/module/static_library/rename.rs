//! New names for symbols of an object that is written already.

use super::parsed;
use crate::bug;
use object::elf::{FileHeader64, SHT_SYMTAB, STB_LOCAL};
use object::macho::{MachHeader64, N_EXT};
use object::pe::{IMAGE_SIZEOF_SYMBOL, IMAGE_SYM_CLASS_EXTERNAL, ImageFileHeader};
use object::read::coff::{CoffHeader, Symbol};
use object::read::elf::{FileHeader, SectionHeader, Sym};
use object::read::macho::{MachHeader, Nlist};
use object::{BinaryFormat, LittleEndian};

/// Gives symbols that other objects see the names that `new_name` returns. In place, because the
/// object of a network holds its weights: a larger table of names is appended.
pub(super) fn rename_symbols(object: &mut Vec<u8>, new_name: impl Fn(&str) -> Option<String>) {
    match parsed(object).format() {
        BinaryFormat::Coff => rename_coff_symbols(object, new_name),
        BinaryFormat::MachO => rename_macho_symbols(object, new_name),
        _ => rename_elf_symbols(object, new_name),
    }
}

/// In COFF the names are the end of the file, so new ones are appended.
fn rename_coff_symbols(object: &mut Vec<u8>, new_name: impl Fn(&str) -> Option<String>) {
    let Some((start, renamed)) = new_coff_names(object, new_name) else {
        bug!("an object without a table of symbols");
    };
    for (at, name) in renamed {
        let offset = (object.len() - start) as u32;
        // Four zeros, then the position of a long name.
        object[at..at + 4].fill(0);
        object[at + 4..at + 8].copy_from_slice(&offset.to_le_bytes());
        object.extend(name.bytes());
        object.push(0);
    }
    let size = (object.len() - start) as u32;
    object[start..start + 4].copy_from_slice(&size.to_le_bytes());
}

/// Returns where the names begin, and the positions of symbols with their new names.
fn new_coff_names(
    object: &[u8],
    new_name: impl Fn(&str) -> Option<String>,
) -> Option<(usize, Vec<(usize, String)>)> {
    let header = ImageFileHeader::parse(object, &mut 0).ok()?;
    let symbols = header.symbols(object).ok()?;
    let first = header.pointer_to_symbol_table() as usize;
    let names = first + symbols.len() * IMAGE_SIZEOF_SYMBOL;
    let size = object.get(names..names + 4)?.try_into().ok()?;
    assert_eq!(
        names + u32::from_le_bytes(size) as usize,
        object.len(),
        "nothing follows the names"
    );
    let mut renamed = Vec::new();
    for (index, symbol) in symbols.iter() {
        let name = std::str::from_utf8(symbol.name(symbols.strings()).ok()?).ok()?;
        if symbol.storage_class() == IMAGE_SYM_CLASS_EXTERNAL
            && let Some(name) = new_name(name)
        {
            renamed.push((first + index.0 * IMAGE_SIZEOF_SYMBOL, name));
        }
    }
    Some((names, renamed))
}

fn rename_elf_symbols(object: &mut Vec<u8>, new_name: impl Fn(&str) -> Option<String>) {
    let Some(Names { moved, table, section }) = new_names(object, new_name) else {
        bug!("an object without a table of symbols");
    };
    for (at, name) in moved {
        object[at..at + 4].copy_from_slice(&name.to_le_bytes());
    }
    let position = object.len() as u64;
    // The fields `sh_offset` and `sh_size`.
    object[section + 24..section + 32].copy_from_slice(&position.to_le_bytes());
    object[section + 32..section + 40].copy_from_slice(&(table.len() as u64).to_le_bytes());
    object.extend(table);
}

/// The names of the symbols of an ELF object.
struct Names {
    /// The positions of fields `st_name` in the object, with their new values.
    moved: Vec<(usize, u32)>,
    /// The old names and the new ones.
    table: Vec<u8>,
    /// The position of the header of the section of names.
    section: usize,
}

fn new_names(object: &[u8], new_name: impl Fn(&str) -> Option<String>) -> Option<Names> {
    let endian = LittleEndian;
    let header = FileHeader64::<LittleEndian>::parse(object).ok()?;
    let sections = header.sections(endian, object).ok()?;
    let of_symbols = sections.iter().find(|one| one.sh_type(endian) == SHT_SYMTAB)?;
    let link = of_symbols.sh_link(endian) as usize;
    let names = sections.section(object::SectionIndex(link)).ok()?.data(endian, object).ok()?;
    let symbols = of_symbols.data_as_array::<object::elf::Sym64<_>, _>(endian, object).ok()?;
    let mut table = names.to_vec();
    let mut moved = Vec::new();
    for (index, symbol) in symbols.iter().enumerate() {
        let name = names.get(symbol.st_name(endian) as usize..)?.split(|byte| *byte == 0).next()?;
        let Some(name) = new_name(std::str::from_utf8(name).ok()?) else { continue };
        if symbol.st_bind() == STB_LOCAL {
            continue;
        }
        let at = of_symbols.sh_offset(endian) as usize + index * size_of_val(symbol);
        moved.push((at, u32::try_from(table.len()).ok()?));
        table.extend(name.bytes());
        table.push(0);
    }
    let section = header.e_shoff(endian) as usize + link * header.e_shentsize(endian) as usize;
    Some(Names { moved, table, section })
}

/// In Mach-O, too, the names are the end of the file.
fn rename_macho_symbols(object: &mut Vec<u8>, new_name: impl Fn(&str) -> Option<String>) {
    let Some(MachoNames { start, size_at, renamed }) = new_macho_names(object, new_name) else {
        bug!("an object without a table of symbols");
    };
    for (at, name) in renamed {
        let offset = (object.len() - start) as u32;
        object[at..at + 4].copy_from_slice(&offset.to_le_bytes());
        object.extend(name.bytes());
        object.push(0);
    }
    object.resize(object.len().next_multiple_of(8), 0);
    let size = (object.len() - start) as u32;
    object[size_at..size_at + 4].copy_from_slice(&size.to_le_bytes());
}

/// The new names of the symbols of a Mach-O object.
struct MachoNames {
    /// Where the names begin.
    start: usize,
    /// The position of the field with the size of the names.
    size_at: usize,
    /// The positions of fields `n_strx` with the names of their symbols.
    renamed: Vec<(usize, String)>,
}

/// The offset of the field `strsize` in the command `LC_SYMTAB`.
const STRSIZE_AT: usize = 20;

/// C names have an underscore in front of them there.
fn new_macho_names(object: &[u8], new_name: impl Fn(&str) -> Option<String>) -> Option<MachoNames> {
    let endian = LittleEndian;
    let header = MachHeader64::<LittleEndian>::parse(object, 0).ok()?;
    let mut commands = header.load_commands(endian, object, 0).ok()?;
    let (symtab, size_at) = loop {
        let command = commands.next().ok()??;
        if let Some(symtab) = command.symtab().ok()? {
            break (symtab, command.offset() as usize + STRSIZE_AT);
        }
    };
    let symbols = symtab.symbols::<MachHeader64<LittleEndian>, _>(endian, object).ok()?;
    let start = symtab.stroff.get(endian) as usize;
    assert_eq!(
        start + symtab.strsize.get(endian) as usize,
        object.len(),
        "nothing follows the names"
    );
    let first = symtab.symoff.get(endian) as usize;
    let mut renamed = Vec::new();
    for (index, symbol) in symbols.iter().enumerate() {
        let name = std::str::from_utf8(symbol.name(endian, symbols.strings()).ok()?).ok()?;
        if symbol.n_type().contains(N_EXT)
            && let Some(name) = name.strip_prefix('_').and_then(&new_name)
        {
            renamed.push((first + index * size_of_val(symbol), format!("_{name}")));
        }
    }
    Some(MachoNames { start, size_at, renamed })
}
