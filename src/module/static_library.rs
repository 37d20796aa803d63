//! Static libraries: the format of GNU `ar`, with a table of symbols, which linkers require.
//!
//! Before: an object of kernels that refers to the functions `tec_rt_…` of the runtime. After: a
//! library with both. Each library has a runtime of its own, but a program that links several gets
//! one: linkers take a member only if it defines a symbol that is still missing. The symbols of the
//! runtime end in the version of `tec` and a hash of the runtime, so a kernel can only be linked
//! with the runtime that it was compiled for. Libraries of two versions bring two runtimes.

use crate::bug;
use object::elf::{FileHeader64, SHT_SYMTAB, STB_LOCAL};
use object::pe::{IMAGE_SIZEOF_SYMBOL, IMAGE_SYM_CLASS_EXTERNAL, ImageFileHeader};
use object::read::coff::{CoffHeader, Symbol};
use object::read::elf::{FileHeader, SectionHeader, Sym};
use object::{BinaryFormat, LittleEndian, Object, ObjectSymbol};
use sha2::{Digest, Sha256};

/// The first bytes of a static library.
pub const MAGIC: &[u8] = b"!<arch>\n";
/// Bytes of the header of a member.
const HEADER: usize = 60;
/// The beginning of the symbols that kernels and the runtime share.
const RUNTIME_PREFIX: &str = "tec_rt_";

/// Returns the library of a module: `MODULE.o` and `tec_runtime.o`.
pub fn with_runtime(module: &str, mut object: Vec<u8>, runtime: &[u8]) -> Vec<u8> {
    let hash: String = Sha256::digest(runtime)[..4].iter().map(|b| format!("{b:02x}")).collect();
    let version = env!("CARGO_PKG_VERSION");
    let new_name =
        |name: &str| name.starts_with(RUNTIME_PREFIX).then(|| format!("{name}.{version}.{hash}"));
    let mut runtime = runtime.to_vec();
    rename_symbols(&mut object, new_name);
    rename_symbols(&mut runtime, new_name);
    // The positions of members have 32 bits, and only the object may be larger than 4 GiB.
    static_library(&[("tec_runtime", &runtime), (module, &object)])
}

/// Returns a library with objects; their names have no extension.
pub fn static_library(objects: &[(&str, &[u8])]) -> Vec<u8> {
    // Names of more than 16 bytes stand in a table of their own.
    let names: String = objects.iter().map(|(name, _)| format!("{name}.o/\n")).collect();
    let symbols: Vec<Vec<String>> = objects.iter().map(|(_, object)| exported(object)).collect();
    let count = symbols.iter().flatten().count();
    let text_size = symbols.iter().flatten().map(|name| name.len() + 1).sum::<usize>();
    let even = |size: usize| size.next_multiple_of(2);
    let start = MAGIC.len() + HEADER + even(4 + 4 * count + text_size) + HEADER + even(names.len());
    let mut table = (count as u32).to_be_bytes().to_vec();
    let mut at = start;
    for ((_, object), symbols) in objects.iter().zip(&symbols) {
        let position = u32::try_from(at).expect("members begin in the first 4 GiB");
        symbols.iter().for_each(|_| table.extend(position.to_be_bytes()));
        at += HEADER + even(object.len());
    }
    for symbol in symbols.iter().flatten() {
        table.extend(symbol.bytes());
        table.push(0);
    }
    let mut out = Vec::with_capacity(at);
    out.extend(MAGIC);
    add(&mut out, "/", &table);
    add(&mut out, "//", names.as_bytes());
    assert_eq!(out.len(), start, "the positions in the table");
    let mut name_at = 0;
    for (name, object) in objects {
        add(&mut out, &format!("/{name_at}"), object);
        name_at += name.len() + ".o/\n".len();
    }
    out
}

/// Returns the contents of the members of a library, without its tables.
pub fn members(library: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    let mut rest = library.strip_prefix(MAGIC).unwrap_or_default();
    while let Some((header, after)) = rest.split_at_checked(HEADER) {
        let size = std::str::from_utf8(&header[48..58]).ok().and_then(|s| s.trim().parse().ok());
        let Some((bytes, after)) = size.and_then(|size| after.split_at_checked(size)) else {
            break;
        };
        // `/` and `//` are tables, `/0` is the name at the beginning of the second one.
        if !matches!(header[..16].trim_ascii_end(), b"/" | b"//" | b"/SYM64/") {
            found.push(bytes);
        }
        rest = after.get(bytes.len() % 2..).unwrap_or_default();
    }
    found
}

fn add(out: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    // Dates and owners are zero, so that two builds are equal.
    let header = format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 0, 644, bytes.len());
    assert_eq!(header.len(), HEADER);
    out.extend(header.bytes());
    out.extend(bytes);
    if bytes.len() % 2 == 1 {
        out.push(b'\n');
    }
}

/// Returns the names of the symbols that an object defines for others.
fn exported(object: &[u8]) -> Vec<String> {
    let file = object::File::parse(object).expect("tec made the object");
    let symbols = file.symbols().filter(|one| one.is_global() && one.is_definition());
    symbols.filter_map(|one| one.name().ok().map(str::to_string)).collect()
}

/// Gives symbols that other objects see the names that `new_name` returns. In place, because the
/// object of a network holds its weights: a larger table of names is appended.
fn rename_symbols(object: &mut Vec<u8>, new_name: impl Fn(&str) -> Option<String>) {
    let file = object::File::parse(&**object).expect("tec made the object");
    match file.format() {
        BinaryFormat::Coff => rename_coff_symbols(object, new_name),
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
