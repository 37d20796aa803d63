//! Static libraries: the format of GNU `ar`, for macOS that of BSD, with a table of symbols, which
//! linkers require.
//!
//! Before: an object of kernels that refers to the functions `tec_rt_…` of the runtime. After: a
//! library with both. Each library has a runtime of its own, but a program that links several gets
//! one: linkers take a member only if it defines a symbol that is still missing. The symbols of the
//! runtime end in the version of `tec` and a hash of the runtime, so a kernel can only be linked
//! with the runtime that it was compiled for. Libraries of two versions bring two runtimes.

mod rename;

use object::{BinaryFormat, Object, ObjectSymbol};
use rename::rename_symbols;
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
    let is_macho = |(_, object): &(&str, &[u8])| parsed(object).format() == BinaryFormat::MachO;
    match objects.iter().any(is_macho) {
        true => bsd_library(objects),
        false => gnu_library(objects),
    }
}

fn gnu_library(objects: &[(&str, &[u8])]) -> Vec<u8> {
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

/// The name of the table of symbols in the format of BSD.
const BSD_TABLE: &str = "__.SYMDEF";

/// Returns a library in the format of BSD, as `ar` and `libtool` of macOS write it: a long name
/// stands in front of the contents, and contents begin at multiples of 8 bytes.
fn bsd_library(objects: &[(&str, &[u8])]) -> Vec<u8> {
    let symbols: Vec<Vec<String>> = objects.iter().map(|(_, object)| exported(object)).collect();
    let count = symbols.iter().flatten().count();
    let names: String = symbols.iter().flatten().map(|name| format!("{name}\0")).collect();
    let table_size = 4 + 8 * count + 4 + names.len().next_multiple_of(8);
    let mut at = MAGIC.len() + bsd_size(MAGIC.len(), BSD_TABLE, table_size);
    let (mut entries, mut name_at) = (Vec::new(), 0);
    for ((name, object), symbols) in objects.iter().zip(&symbols) {
        let position = u32::try_from(at).expect("objects for macOS have less than 4 GiB");
        for symbol in symbols {
            entries.extend([name_at, position]);
            name_at += symbol.len() as u32 + 1;
        }
        at += bsd_size(at, &format!("{name}.o"), object.len());
    }
    let mut words = vec![8 * count as u32];
    words.extend(entries);
    words.push(names.len().next_multiple_of(8) as u32);
    let mut table: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    table.extend(names.bytes());
    table.resize(table_size, 0);
    let mut out = Vec::with_capacity(at);
    out.extend(MAGIC);
    add_bsd(&mut out, BSD_TABLE, &table);
    for (name, object) in objects {
        add_bsd(&mut out, &format!("{name}.o"), object);
    }
    assert_eq!(out.len(), at, "the positions in the table");
    out
}

/// Bytes of the name of a member at a position: its contents are aligned.
fn bsd_name_size(at: usize, name: &str) -> usize {
    (at + HEADER + name.len()).next_multiple_of(8) - at - HEADER
}

/// Bytes of a member at a position.
fn bsd_size(at: usize, name: &str, size: usize) -> usize {
    HEADER + bsd_name_size(at, name) + size.next_multiple_of(8)
}

fn add_bsd(out: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    let name_size = bsd_name_size(out.len(), name);
    let size = name_size + bytes.len().next_multiple_of(8);
    add_header(out, &format!("#1/{name_size}"), size);
    let start = out.len();
    out.extend(name.bytes());
    out.resize(start + name_size, 0);
    out.extend(bytes);
    out.resize(start + size, b'\n');
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
        let name = header[..16].trim_ascii_end();
        if let Some(size) = name.strip_prefix(b"#1/") {
            let size = std::str::from_utf8(size).ok().and_then(|size| size.parse().ok());
            if let Some((name, contents)) = size.and_then(|size| bytes.split_at_checked(size))
                && !name.starts_with(BSD_TABLE.as_bytes())
            {
                found.push(contents);
            }
        } else if !matches!(name, b"/" | b"//" | b"/SYM64/") {
            // `/` and `//` are tables, `/0` is the name at the beginning of the second one.
            found.push(bytes);
        }
        rest = after.get(bytes.len() % 2..).unwrap_or_default();
    }
    found
}

/// Appends the header of a member of `size` bytes.
fn add_header(out: &mut Vec<u8>, name: &str, size: usize) {
    // Dates and owners are zero, so that two builds are equal.
    let header = format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0, 644);
    assert_eq!(header.len(), HEADER);
    out.extend(header.bytes());
}

fn add(out: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    add_header(out, name, bytes.len());
    out.extend(bytes);
    if bytes.len() % 2 == 1 {
        out.push(b'\n');
    }
}

/// Returns the names of the symbols that an object defines for others.
fn exported(object: &[u8]) -> Vec<String> {
    let file = parsed(object);
    let symbols = file.symbols().filter(|one| one.is_global() && one.is_definition());
    symbols.filter_map(|one| one.name().ok().map(str::to_string)).collect()
}

fn parsed(object: &[u8]) -> object::File<'_> {
    object::File::parse(object).expect("tec made the object")
}
