//! A static library with one object: the format of GNU `ar`, with a table of its symbols, which
//! linkers require.

use object::read::elf::ElfFile64;
use object::{Object, ObjectSymbol};

/// Bytes of the header of a member.
const HEADER: usize = 60;

/// Returns the library with an object. `name` is the member's name, without an extension.
pub(crate) fn static_library(name: &str, object: &[u8]) -> Vec<u8> {
    let symbols = exported(object);
    let member = format!("{name}.o/");
    // A name of more than 16 bytes stands in a table of its own.
    let names = format!("{member}\n");
    let table_size = 4 + 4 * symbols.len() + symbols.iter().map(|s| s.len() + 1).sum::<usize>();
    let even = |size: usize| size.next_multiple_of(2);
    let start = 8 + HEADER + even(table_size) + HEADER + even(names.len());
    let mut table = (symbols.len() as u32).to_be_bytes().to_vec();
    let offset = u32::try_from(start).expect("a library begins with its tables");
    symbols.iter().for_each(|_| table.extend(offset.to_be_bytes()));
    for symbol in &symbols {
        table.extend(symbol.bytes());
        table.push(0);
    }
    let mut out = b"!<arch>\n".to_vec();
    add(&mut out, "/", &table);
    add(&mut out, "//", names.as_bytes());
    assert_eq!(out.len(), start, "the offset in the table");
    add(&mut out, "/0", object);
    out
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
    let file = ElfFile64::<object::LittleEndian>::parse(object).expect("tec makes ELF objects");
    let symbols = file.symbols().filter(|one| one.is_global() && one.is_definition());
    symbols.filter_map(|one| one.name().ok().map(str::to_string)).collect()
}
