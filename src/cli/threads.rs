//! The number of threads for parallel loops without `--threads`. It is the same as in a module
//! that a program calls (`src/runtime/threads.c`).

use super::cpu;

/// The largest number of threads in the pool of a module (`src/runtime/pool.c`).
pub const MAX_THREADS: i64 = 512;

/// Returns the number in `TEC_NUM_THREADS`, else one per CPU that this process may use.
pub fn usual() -> usize {
    let named = std::env::var("TEC_NUM_THREADS").ok();
    let named = named.as_deref().and_then(parse);
    named.unwrap_or_else(cpu::count).min(MAX_THREADS as usize)
}

/// Parses a decimal number from 1 to 65536, as the runtime reads it.
fn parse(text: &str) -> Option<usize> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = if digits { text.parse().ok() } else { None };
    number.filter(|number| (1..=65536).contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_the_runtime_reads_them() {
        assert_eq!(parse("3"), Some(3));
        assert_eq!(parse("007"), Some(7));
        assert_eq!(parse("65536"), Some(65536));
        for text in ["", "0", "-1", "+2", " 2", "2x", "65537", "99999999999999999999"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
        assert!(usual() > 0);
    }
}
