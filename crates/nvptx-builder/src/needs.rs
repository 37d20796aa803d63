//! The target and the PTX version that each instruction needs.
//!
//! The table follows `ptxas` 13.5: `tests/table.rs` assembles each row at its lowest target and
//! version, and checks that `ptxas` refuses it below that version.

use crate::target::{Target, Variant, Version};

/// The requirements of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Needs {
    /// The number of the lowest target that has it.
    pub sm: u16,
    /// The only targets that have it, if it is not portable.
    pub only: &'static [&'static str],
    /// The lowest version of PTX.
    pub version: Version,
}

impl Needs {
    /// Whether code for `target` may use the instruction.
    pub fn met_by(&self, target: Target) -> bool {
        if self.only.is_empty() {
            return target.sm() >= self.sm;
        }
        target.variant() != Variant::Portable && self.only.contains(&target.to_string().as_str())
    }

    /// Returns the lowest target that has it.
    pub fn lowest(&self) -> Target {
        let first = Target::all().find(|target| self.met_by(*target));
        first.expect("every row of the table names a target")
    }

    /// Returns the targets that have it, in words.
    pub fn targets(&self) -> String {
        match self.only {
            [] => format!("sm_{} or later", self.sm),
            [one] => one.to_string(),
            [one, other] => format!("{one} or {other}"),
            [first @ .., last] => format!("one of {} and {last}", first.join(", ")),
        }
    }
}

macro_rules! features {
    ($($(#[$doc:meta])* $name:ident $sm:literal $([$($only:literal)*])? $major:literal $minor:literal;)*) => {
        /// A row of the table: instructions with the same requirements.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
        pub enum Feature {
            $($(#[$doc])* $name,)*
        }

        impl Feature {
            /// All rows, in order.
            pub const ALL: &'static [Feature] = &[$(Feature::$name,)*];

            /// Returns the requirements of its instructions.
            pub fn needs(self) -> Needs {
                match self {
                    $(Feature::$name => Needs {
                        sm: $sm,
                        only: &[$($($only),*)?],
                        version: Version::new($major, $minor),
                    },)*
                }
            }
        }
    };
}

features! {
    /// All instructions without a row of their own.
    Base 75 6 3;
    /// `tanh.approx.f32`
    Tanh 75 7 0;
    /// `ldmatrix`
    Ldmatrix 75 6 5;
    /// `abs` of f16 and f16x2
    HalfAbs 75 6 5;
    /// `mma.m16n8k8` of f16
    MmaTuring 75 6 5;
    /// `.L1::no_allocate`, `.L2::128B` and so on, of loads and stores
    CacheHint 75 7 4;
    /// Loads and stores of `.b128`
    Access128 75 8 3;
    /// `min.NaN`, `max.NaN` of f32; `min`, `max` of halves
    NanMinMax 80 7 0;
    /// `fma`, `neg`, `abs` of bf16 and bf16x2
    Bf16Fma 80 7 0;
    /// `cvt` from f32 to bf16, bf16x2 and f16x2
    CvtToBf16 80 7 0;
    /// `cvt.f32.bf16`
    CvtFromBf16 80 7 1;
    /// `cvt.rna.tf32.f32`
    CvtTf32 80 7 0;
    /// `redux.sync` of integers
    Redux 80 7 0;
    /// `cp.async`
    CpAsync 80 7 0;
    /// `cp.async` with `.L2::128B`
    CpAsyncHint 80 7 4;
    /// `mma`, except for that of Turing
    MmaAmpere 80 7 0;
    /// `mbarrier.init`, `.arrive`, `.test_wait`, `.inval`
    Mbarrier 80 7 0;
    /// `cvt` to and from 8-bit floats
    CvtFp8 89 8 1;
    /// `mma` of 8-bit floats
    MmaFp8 89 8 4;
    /// `add`, `sub`, `mul` of bf16 and bf16x2
    Bf16Add 90 7 8;
    /// `cvt.rn.tf32.f32`
    CvtTf32Rn 90 7 8;
    /// `red.global.add` of bf16 and bf16x2
    RedBf16 90 7 8;
    /// `red.global.add.v2.f32`, `.v4.f32`
    RedVector 90 8 1;
    /// `stmatrix`
    Stmatrix 90 7 8;
    /// `mbarrier.try_wait`
    MbarrierTryWait 90 7 8;
    /// `mbarrier.arrive.expect_tx`
    MbarrierExpectTx 90 8 0;
    /// `cp.async.bulk`, `cp.async.bulk.tensor`, their groups
    CpAsyncBulk 90 8 0;
    /// `fence.proxy.async`, `fence.mbarrier_init`
    FenceProxy 90 8 0;
    /// `barrier.cluster`, `mapa`, `griddepcontrol`
    Cluster 90 7 8;
    /// `elect.sync`
    Elect 90 8 0;
    /// `wgmma`
    Wgmma 90 ["sm_90a"] 8 0;
    /// `setmaxnreg`
    SetMaxNReg 90 ["sm_90a" "sm_100a" "sm_103a" "sm_110a" "sm_120a" "sm_121a"] 8 0;
    /// `add`, `mul`, `fma` of f32x2
    F32x2 100 8 6;
    /// `min`, `max` of three f32
    ThreeInputs 100 8 8;
    /// Loads and stores of `.v8.b32` and `.v4.b64`
    Access256 100 8 8;
    /// `redux.sync` of f32
    ReduxF32 100 ["sm_100a" "sm_103a" "sm_110a"] 8 6;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_name_targets() {
        for &feature in Feature::ALL {
            let needs = feature.needs();
            let lowest = needs.lowest();
            assert_eq!(lowest.sm(), needs.sm, "{feature:?}");
            for name in needs.only {
                assert!(needs.met_by(name.parse().unwrap()), "{feature:?}");
            }
        }
        assert!(!Feature::Wgmma.needs().met_by(Target::SM_90));
        assert!(!Feature::Wgmma.needs().met_by(Target::SM_100A));
        assert!(Feature::CpAsync.needs().met_by(Target::SM_120));
        assert_eq!(Feature::CpAsync.needs().targets(), "sm_80 or later");
    }
}
