//! Targets and versions of PTX.

use std::fmt;
use std::str::FromStr;

/// A version of the PTX language, as in `.version 7.8`. A driver refuses text of a later version
/// than its own, so a module gets the lowest possible one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Version {
    /// The number before the dot.
    pub major: u8,
    /// The number after the dot.
    pub minor: u8,
}

impl Version {
    /// The lowest version of this crate: that of `sm_75`.
    pub const LOWEST: Version = Version::new(6, 3);

    /// Creates the version `major.minor`.
    pub const fn new(major: u8, minor: u8) -> Version {
        Version { major, minor }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The suffix of a target.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Variant {
    /// `sm_90`: also runs on every later GPU.
    Portable,
    /// `sm_100f`: the GPUs of one family.
    Family,
    /// `sm_90a`: this GPU only, with all of its instructions.
    Specific,
}

/// The target of a module, as in `.target sm_90a`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Target {
    sm: u16,
    variant: Variant,
}

/// The targets with the lowest version of PTX that knows each.
const TARGETS: &[(u16, Variant, Version)] = {
    use Variant::*;
    const fn v(major: u8, minor: u8) -> Version {
        Version::new(major, minor)
    }
    &[
        (75, Portable, v(6, 3)),
        (80, Portable, v(7, 0)),
        (86, Portable, v(7, 1)),
        (87, Portable, v(7, 4)),
        (88, Portable, v(9, 0)),
        (89, Portable, v(7, 8)),
        (90, Portable, v(7, 8)),
        (90, Specific, v(8, 0)),
        (100, Portable, v(8, 6)),
        (100, Family, v(8, 8)),
        (100, Specific, v(8, 6)),
        (103, Portable, v(8, 8)),
        (103, Family, v(8, 8)),
        (103, Specific, v(8, 8)),
        (110, Portable, v(9, 0)),
        (110, Family, v(9, 0)),
        (110, Specific, v(9, 0)),
        (120, Portable, v(8, 7)),
        (120, Family, v(8, 8)),
        (120, Specific, v(8, 7)),
        (121, Portable, v(8, 8)),
        (121, Family, v(8, 8)),
        (121, Specific, v(8, 8)),
    ]
};

impl Target {
    /// `sm_75`: Turing.
    pub const SM_75: Target = Target { sm: 75, variant: Variant::Portable };
    /// `sm_80`: Ampere.
    pub const SM_80: Target = Target { sm: 80, variant: Variant::Portable };
    /// `sm_86`: Ampere for desktops.
    pub const SM_86: Target = Target { sm: 86, variant: Variant::Portable };
    /// `sm_89`: Ada.
    pub const SM_89: Target = Target { sm: 89, variant: Variant::Portable };
    /// `sm_90`: Hopper.
    pub const SM_90: Target = Target { sm: 90, variant: Variant::Portable };
    /// `sm_90a`: Hopper, with `wgmma`.
    pub const SM_90A: Target = Target { sm: 90, variant: Variant::Specific };
    /// `sm_100`: Blackwell for servers.
    pub const SM_100: Target = Target { sm: 100, variant: Variant::Portable };
    /// `sm_100a`: Blackwell for servers, with all of its instructions.
    pub const SM_100A: Target = Target { sm: 100, variant: Variant::Specific };
    /// `sm_120`: Blackwell for desktops.
    pub const SM_120: Target = Target { sm: 120, variant: Variant::Portable };

    /// Returns all targets, ascending.
    pub fn all() -> impl Iterator<Item = Target> {
        TARGETS.iter().map(|&(sm, variant, _)| Target { sm, variant })
    }

    /// Returns the number in the name.
    pub fn sm(self) -> u16 {
        self.sm
    }

    /// Returns the suffix.
    pub fn variant(self) -> Variant {
        self.variant
    }

    /// Returns the lowest version of PTX that knows it.
    pub fn version(self) -> Version {
        let row = TARGETS.iter().find(|row| (row.0, row.1) == (self.sm, self.variant));
        row.expect("targets are made from the table only").2
    }

    /// The largest static shared memory of a block in bytes. More memory must be
    /// [dynamic](crate::Entry::dynamic_shared).
    pub const STATIC_SHARED: u32 = 48 * 1024;

    /// Returns the largest dynamic shared memory of a block in bytes.
    pub fn max_shared(self) -> u32 {
        let kib = match self.sm {
            75 => 64,
            80 | 87 => 163,
            86 | 88 | 89 | 120 | 121 => 99,
            _ => 227,
        };
        kib * 1024
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = match self.variant {
            Variant::Portable => "",
            Variant::Family => "f",
            Variant::Specific => "a",
        };
        write!(f, "sm_{}{letter}", self.sm)
    }
}

/// The error of an unknown target name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownTarget(pub String);

impl fmt::Display for UnknownTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown target `{}`; targets are sm_75 to sm_121", self.0)
    }
}

impl std::error::Error for UnknownTarget {}

impl FromStr for Target {
    type Err = UnknownTarget;

    fn from_str(name: &str) -> Result<Target, UnknownTarget> {
        let found = Target::all().find(|target| target.to_string() == name);
        found.ok_or_else(|| UnknownTarget(name.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_to_what_they_print() {
        for target in Target::all() {
            assert_eq!(target.to_string().parse(), Ok(target));
        }
        assert!("sm_70".parse::<Target>().is_err());
        assert!("90".parse::<Target>().is_err());
        assert_eq!("sm_90a".parse::<Target>().unwrap().version(), Version::new(8, 0));
    }
}
