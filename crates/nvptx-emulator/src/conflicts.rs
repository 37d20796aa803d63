//! The cost of an access of a warp: wavefronts of shared memory, sectors of global memory.
//!
//! Shared memory has 32 banks of 4 bytes. An access of up to 4 bytes per lane is one phase of 32
//! lanes, of 8 bytes two phases of 16 lanes, of 16 bytes four phases of 8. The number of wavefronts
//! of a phase is the largest number of different words in a bank. The ideal is one wavefront per
//! phase. Two neighbouring phases of a load are one if all lanes load in pairs: lanes whose numbers
//! differ in bit 0, or in bit 1, have the same address. So did an H200 with 2,016 patterns of
//! addresses.
//!
//! Global memory moves sectors of 32 bytes. The ideal number is that of the accessed bytes, each
//! counted once, divided by 32.

/// The cost of an access, and the ideal cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    pub taken: u32,
    pub ideal: u32,
}

/// Returns the wavefronts of an access of `bytes` (up to 16) by the lanes of `mask`; `loads`: of a
/// load to registers.
pub(crate) fn wavefronts(addresses: &[u32; 32], mask: u32, bytes: u32, loads: bool) -> Cost {
    let unit = bytes.max(4);
    let groups = 128 / unit;
    let paired = loads && unit > 4 && [1, 2].iter().any(|bit| in_pairs(addresses, mask, *bit));
    let lanes = if paired { 2 * groups } else { groups };
    let shift = unit.trailing_zeros();
    let mut cost = Cost { taken: 0, ideal: 0 };
    let mut lane = 0;
    while lane < 32 {
        let phase = mask & (((1u64 << lanes) - 1) << lane) as u32;
        if phase != 0 {
            cost.taken += phase_wavefronts(addresses, phase, shift, groups);
            cost.ideal += 1;
        }
        lane += lanes;
    }
    cost
}

/// Whether lanes whose numbers differ in one bit access the same address.
fn in_pairs(addresses: &[u32; 32], mask: u32, bit: usize) -> bool {
    (0..32).filter(|lane| lane & bit == 0).all(|lane| {
        let both = mask >> lane & 1 == 1 && mask >> (lane | bit) & 1 == 1;
        !both || addresses[lane] == addresses[lane | bit]
    })
}

/// Returns the largest number of different units in a group of banks.
fn phase_wavefronts(addresses: &[u32; 32], phase: u32, shift: u32, groups: u32) -> u32 {
    let mut first = [0u32; 32];
    let mut seen = 0u32;
    let mut clash = false;
    let mut rest = phase;
    while rest != 0 {
        let lane = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        let unit = addresses[lane] >> shift;
        let bank = (unit & (groups - 1)) as usize;
        if seen >> bank & 1 == 0 {
            seen |= 1 << bank;
            first[bank] = unit;
        } else if first[bank] != unit {
            clash = true;
            break;
        }
    }
    if clash { slow_wavefronts(addresses, phase, shift, groups) } else { 1 }
}

fn slow_wavefronts(addresses: &[u32; 32], phase: u32, shift: u32, groups: u32) -> u32 {
    let mut units = [0u32; 32];
    let mut count = 0;
    let mut load = [0u8; 32];
    for lane in (0..32).filter(|lane| phase >> lane & 1 == 1) {
        let unit = addresses[lane] >> shift;
        if !units[..count].contains(&unit) {
            units[count] = unit;
            count += 1;
            load[(unit & (groups - 1)) as usize] += 1;
        }
    }
    u32::from(load.into_iter().max().unwrap_or(0))
}

/// Returns the sectors of an access of `bytes` by the lanes of `mask`.
pub(crate) fn sectors(addresses: &[u64; 32], mask: u32, bytes: u32) -> Cost {
    if mask == 0 {
        return Cost { taken: 0, ideal: 0 };
    }
    if mask == !0 && (1..32).all(|i| addresses[i] == addresses[i - 1] + u64::from(bytes)) {
        let (first, end) = (addresses[0], addresses[31] + u64::from(bytes));
        let taken = (end.div_ceil(32) - first / 32) as u32;
        return Cost { taken, ideal: bytes };
    }
    let mut starts = [0u64; 32];
    let mut count = 0;
    let mut touched = [0u64; 64];
    let mut taken = 0;
    for lane in (0..32).filter(|lane| mask >> lane & 1 == 1) {
        let address = addresses[lane];
        if count > 0 && starts[count - 1] == address || starts[..count].contains(&address) {
            continue;
        }
        starts[count] = address;
        count += 1;
        // An aligned access of at most 32 bytes lies in one sector.
        let sector = address / 32;
        if !touched[..taken].contains(&sector) {
            touched[taken] = sector;
            taken += 1;
        }
    }
    let ideal = (count as u32 * bytes).div_ceil(32);
    Cost { taken: taken as u32, ideal }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(f: impl Fn(u32) -> u32) -> [u32; 32] {
        std::array::from_fn(|i| f(i as u32))
    }

    #[test]
    fn bank_conflicts_are_counted() {
        let cost = |f: &dyn Fn(u32) -> u32, bytes| wavefronts(&lanes(f), !0, bytes, true);
        assert_eq!(cost(&|i| i * 4, 4), Cost { taken: 1, ideal: 1 });
        assert_eq!(cost(&|_| 64, 4), Cost { taken: 1, ideal: 1 });
        assert_eq!(cost(&|i| i * 8, 4), Cost { taken: 2, ideal: 1 });
        assert_eq!(cost(&|i| i * 128, 4), Cost { taken: 32, ideal: 1 });
        assert_eq!(cost(&|i| i * 132, 4), Cost { taken: 1, ideal: 1 });
        assert_eq!(cost(&|i| i * 2, 2), Cost { taken: 1, ideal: 1 });
        assert_eq!(cost(&|i| i * 8, 8), Cost { taken: 2, ideal: 2 });
        assert_eq!(cost(&|i| i * 16, 16), Cost { taken: 4, ideal: 4 });
        assert_eq!(cost(&|i| i * 64, 16), Cost { taken: 16, ideal: 4 });
        assert_eq!(cost(&|i| i * 80, 16), Cost { taken: 4, ideal: 4 });
        assert_eq!(cost(&|i| i / 16 * 512, 16), Cost { taken: 2, ideal: 2 });
        assert_eq!(cost(&|i| i / 2 * 16, 16), Cost { taken: 2, ideal: 2 });
        assert_eq!(cost(&|i| i % 2 * 16, 16), Cost { taken: 2, ideal: 2 });
        assert_eq!(cost(&|i| i % 8 * 16, 16), Cost { taken: 4, ideal: 4 });
        assert_eq!(cost(&|_| 64, 8), Cost { taken: 1, ideal: 1 });
        assert_eq!(cost(&|i| i % 8 * 8, 8), Cost { taken: 2, ideal: 2 });
        assert_eq!(wavefronts(&lanes(|_| 64), !0, 16, false), Cost { taken: 4, ideal: 4 });
        assert_eq!(wavefronts(&lanes(|i| i * 128), 3, 4, true), Cost { taken: 2, ideal: 1 });
    }

    #[test]
    fn sectors_of_global_memory_are_counted() {
        let at = |f: &dyn Fn(u64) -> u64| -> [u64; 32] { std::array::from_fn(|i| f(i as u64)) };
        assert_eq!(sectors(&at(&|i| i * 4), !0, 4), Cost { taken: 4, ideal: 4 });
        assert_eq!(sectors(&at(&|i| i * 4 + 4), !0, 4), Cost { taken: 5, ideal: 4 });
        assert_eq!(sectors(&at(&|i| i * 128), !0, 4), Cost { taken: 32, ideal: 4 });
        assert_eq!(sectors(&at(&|_| 128), !0, 4), Cost { taken: 1, ideal: 1 });
        assert_eq!(sectors(&at(&|i| i * 16), !0, 16), Cost { taken: 16, ideal: 16 });
    }
}
