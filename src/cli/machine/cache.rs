//! The cache of measured rooflines: a file for each in the user's cache directory.
//!
//! If a file is damaged, or of another CPU or version, the machine is measured again and the file
//! is replaced.

use super::{Isa, Machine};
use crate::cli::cache::EntryKind;
use crate::cli::cpu;

/// About 2 KB for each machine, instruction set and number of threads.
const ROOFLINES: EntryKind = EntryKind { prefix: "roofline-", suffix: ".json", max_bytes: 1 << 20 };

/// Returns the cached roofline.
pub fn load(isa: Isa, threads: usize) -> Option<Machine> {
    let text = String::from_utf8(ROOFLINES.load(&key(isa, threads))?).ok()?;
    parse(&text, isa, threads)
}

/// Writes a roofline to the cache; the error is a message. Does nothing without a cache directory.
pub fn store(machine: &Machine) -> Result<(), String> {
    let text = serde_json::to_string_pretty(machine).expect("plain data") + "\n";
    ROOFLINES.store(&key(machine.isa, machine.threads), text.into_bytes())
}

fn key(isa: Isa, threads: usize) -> String {
    let model: String = cpu::model().chars().filter(char::is_ascii_alphanumeric).collect();
    format!("{}-{}-{}-{threads}", model.to_lowercase(), cpu::count(), isa.name())
}

fn parse(text: &str, isa: Isa, threads: usize) -> Option<Machine> {
    let machine: Machine = serde_json::from_str(text).ok()?;
    let same = machine.tec == env!("CARGO_PKG_VERSION")
        && machine.cpu == cpu::model()
        && machine.cpus == cpu::count()
        && machine.isa == isa
        && machine.threads == threads;
    let rates = [machine.peak_f32, machine.peak_f64, machine.peak_i8].into_iter();
    let mut rates = rates.chain(machine.levels.iter().flat_map(|level| [level.read, level.triad]));
    let plausible = rates.all(|rate| rate.is_finite() && rate > 0.0);
    let names: Vec<String> = super::sizes(threads).into_iter().map(|size| size.name).collect();
    let complete = machine.levels.iter().map(|level| &level.name).eq(&names);
    (same && plausible && complete).then_some(machine)
}

#[cfg(test)]
mod tests {
    use super::super::{Level, sizes};
    use super::*;

    #[test]
    fn only_undamaged_files_of_this_machine_are_used() {
        let levels = sizes(3).into_iter().map(|size| Level {
            name: size.name,
            bytes: size.capacity,
            read: 2.0,
            triad: 1.0,
        });
        let machine = Machine {
            tec: env!("CARGO_PKG_VERSION").to_string(),
            cpu: cpu::model(),
            cpus: cpu::count(),
            threads: 3,
            isa: Isa::Sse,
            peak_f32: 1.0,
            peak_f64: 1.0,
            peak_i8: 1.0,
            levels: levels.collect(),
        };
        let text = |machine: &Machine| serde_json::to_string(machine).unwrap();
        assert_eq!(parse(&text(&machine), Isa::Sse, 3), Some(machine.clone()));
        assert_eq!(parse(&text(&machine), Isa::Sse, 2), None);
        assert_eq!(parse(&text(&machine), Isa::Avx2, 3), None);
        let other = |change: fn(&mut Machine)| {
            let mut other = machine.clone();
            change(&mut other);
            parse(&text(&other), Isa::Sse, 3)
        };
        assert_eq!(other(|machine| machine.tec = "0.0.1".to_string()), None);
        assert_eq!(other(|machine| machine.cpu.push('x')), None);
        assert_eq!(other(|machine| machine.peak_f32 = 0.0), None);
        assert_eq!(other(|machine| machine.levels[0].triad = -1.0), None);
        assert_eq!(other(|machine| machine.levels.clear()), None);
        let whole = text(&machine);
        assert_eq!(parse(&whole[..whole.len() / 2], Isa::Sse, 3), None);
        assert_eq!(parse("", Isa::Sse, 3), None);
    }
}
