//! Properties of this machine from the operating system: the CPU's name and its data caches.

use std::fs::read_to_string;

/// A data cache of the first CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cache {
    /// 1 is the nearest.
    pub level: u32,
    /// Its size.
    pub bytes: u64,
    /// How many CPUs share it.
    pub shared_by: u64,
}

/// Returns the CPU's name, or its family if the name is unknown.
pub fn model() -> String {
    let info = read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = info.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_string())
    });
    named.unwrap_or_else(|| std::env::consts::ARCH.to_string())
}

/// Returns the number of CPUs that this process may use.
pub fn count() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get())
}

/// Returns the smaller of `threads` and the number of CPUs.
pub fn at_most(threads: usize) -> usize {
    threads.min(count())
}

/// Free memory in bytes; none if the system does not report it.
pub fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// Returns the data caches, nearest first; typical sizes if the system reports none.
pub fn caches() -> Vec<Cache> {
    let mut caches: Vec<Cache> = (0..8).filter_map(cache).collect();
    caches.sort_by_key(|cache| cache.level);
    caches.dedup_by_key(|cache| cache.level);
    if caches.is_empty() {
        let usual = [(1, 32 << 10, 1), (2, 512 << 10, 1), (3, 16 << 20, count() as u64)];
        caches = usual.map(|(level, bytes, shared_by)| Cache { level, bytes, shared_by }).into();
    }
    caches
}

fn cache(index: usize) -> Option<Cache> {
    let read = |what: &str| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{what}");
        read_to_string(path).ok().map(|text| text.trim().to_string())
    };
    if read("type")? == "Instruction" {
        return None;
    }
    let (level, bytes) = (read("level")?.parse().ok()?, size(&read("size")?)?);
    let shared_by = read("shared_cpu_list").map_or(1, |list| count_listed(&list));
    (bytes > 0).then_some(Cache { level, bytes, shared_by })
}

/// Parses a size such as `48K` to bytes.
fn size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// Counts the CPUs of a list such as `0-3,8`; at least one.
fn count_listed(list: &str) -> u64 {
    let count = |range: &str| -> Option<u64> {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.trim().parse::<u64>().ok()?, last.trim().parse::<u64>().ok()?);
        Some(last.checked_sub(first)? + 1)
    };
    list.split(',').filter_map(count).sum::<u64>().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_lists_are_read() {
        assert_eq!(size("48K"), Some(48 << 10));
        assert_eq!(size("32M"), Some(32 << 20));
        assert_eq!(size("512"), Some(512));
        assert_eq!(size("3X"), None);
        assert_eq!(size(""), None);
        assert_eq!(count_listed("0-3,8"), 5);
        assert_eq!(count_listed("2"), 1);
        assert_eq!(count_listed("nonsense"), 1);
    }

    #[test]
    fn this_machine_has_caches_of_growing_levels() {
        let caches = caches();
        assert!(caches.windows(2).all(|pair| pair[0].level < pair[1].level), "{caches:?}");
        assert!(!caches.is_empty() && !model().is_empty() && count() > 0);
    }
}
