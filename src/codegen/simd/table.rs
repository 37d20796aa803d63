//! The iced codes of the vector instructions that exist in every width.
//!
//! An instruction has five forms: VEX with 16 and 32 bytes (AVX2), EVEX with 16, 32 and 64 bytes
//! (AVX-512). A form that does not exist is `INVALID`.
//! Names and semantics: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2.

use super::inst::Width;
use crate::target::SimdIsa;
use iced_x86::Code;

/// The forms of an instruction, in the order of the table.
pub(super) const ALL_FORMS: [(Width, SimdIsa); 5] = [
    (Width::X, SimdIsa::Avx2),
    (Width::Y, SimdIsa::Avx2),
    (Width::X, SimdIsa::Avx512),
    (Width::Y, SimdIsa::Avx512),
    (Width::Z, SimdIsa::Avx512),
];

macro_rules! instructions {
    ($($name:ident, $elem:literal, $vx:ident, $vy:ident, $ex:ident, $ey:ident, $ez:ident;)*) => {
        /// An instruction on packed elements: `dst, src…, src or memory`.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(super) enum VOp {
            $(#[doc = stringify!($name)] $name,)*
        }

        impl VOp {
            #[cfg(test)]
            pub(super) const ALL: &[VOp] = &[$(VOp::$name,)*];

            /// The forms, in the order of [`ALL_FORMS`].
            fn forms(self) -> [Code; 5] {
                match self {
                    $(VOp::$name => {
                        [Code::$vx, Code::$vy, Code::$ex, Code::$ey, Code::$ez]
                    })*
                }
            }

            /// Bytes of the element that a memory operand of EVEX may broadcast; 0 if none.
            pub(super) fn broadcast_bytes(self) -> u8 {
                match self {
                    $(VOp::$name => $elem,)*
                }
            }
        }
    };
}

impl VOp {
    /// The code for a width, or `None` if the instruction set lacks it.
    pub(super) fn code(self, width: Width, isa: SimdIsa) -> Option<Code> {
        let place = ALL_FORMS.iter().position(|form| *form == (width, isa))?;
        let code = self.forms()[place];
        (code != Code::INVALID).then_some(code)
    }
}

#[rustfmt::skip]
instructions! {
    AddPs, 4,
        VEX_Vaddps_xmm_xmm_xmmm128, VEX_Vaddps_ymm_ymm_ymmm256,
        EVEX_Vaddps_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vaddps_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vaddps_zmm_k1z_zmm_zmmm512b32_er;
    AddPd, 8,
        VEX_Vaddpd_xmm_xmm_xmmm128, VEX_Vaddpd_ymm_ymm_ymmm256,
        EVEX_Vaddpd_xmm_k1z_xmm_xmmm128b64,
        EVEX_Vaddpd_ymm_k1z_ymm_ymmm256b64,
        EVEX_Vaddpd_zmm_k1z_zmm_zmmm512b64_er;
    SubPs, 4,
        VEX_Vsubps_xmm_xmm_xmmm128, VEX_Vsubps_ymm_ymm_ymmm256,
        EVEX_Vsubps_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vsubps_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vsubps_zmm_k1z_zmm_zmmm512b32_er;
    SubPd, 8,
        VEX_Vsubpd_xmm_xmm_xmmm128, VEX_Vsubpd_ymm_ymm_ymmm256,
        EVEX_Vsubpd_xmm_k1z_xmm_xmmm128b64,
        EVEX_Vsubpd_ymm_k1z_ymm_ymmm256b64,
        EVEX_Vsubpd_zmm_k1z_zmm_zmmm512b64_er;
    MulPs, 4,
        VEX_Vmulps_xmm_xmm_xmmm128, VEX_Vmulps_ymm_ymm_ymmm256,
        EVEX_Vmulps_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vmulps_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vmulps_zmm_k1z_zmm_zmmm512b32_er;
    MulPd, 8,
        VEX_Vmulpd_xmm_xmm_xmmm128, VEX_Vmulpd_ymm_ymm_ymmm256,
        EVEX_Vmulpd_xmm_k1z_xmm_xmmm128b64,
        EVEX_Vmulpd_ymm_k1z_ymm_ymmm256b64,
        EVEX_Vmulpd_zmm_k1z_zmm_zmmm512b64_er;
    ScalefPs, 4,
        INVALID, INVALID,
        EVEX_Vscalefps_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vscalefps_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vscalefps_zmm_k1z_zmm_zmmm512b32_er;
    ScalefPd, 8,
        INVALID, INVALID,
        EVEX_Vscalefpd_xmm_k1z_xmm_xmmm128b64,
        EVEX_Vscalefpd_ymm_k1z_ymm_ymmm256b64,
        EVEX_Vscalefpd_zmm_k1z_zmm_zmmm512b64_er;
    DivPs, 4,
        VEX_Vdivps_xmm_xmm_xmmm128, VEX_Vdivps_ymm_ymm_ymmm256,
        EVEX_Vdivps_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vdivps_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vdivps_zmm_k1z_zmm_zmmm512b32_er;
    DivPd, 8,
        VEX_Vdivpd_xmm_xmm_xmmm128, VEX_Vdivpd_ymm_ymm_ymmm256,
        EVEX_Vdivpd_xmm_k1z_xmm_xmmm128b64,
        EVEX_Vdivpd_ymm_k1z_ymm_ymmm256b64,
        EVEX_Vdivpd_zmm_k1z_zmm_zmmm512b64_er;
    MinPs, 4,
        VEX_Vminps_xmm_xmm_xmmm128, VEX_Vminps_ymm_ymm_ymmm256,
        EVEX_Vminps_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vminps_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vminps_zmm_k1z_zmm_zmmm512b32_sae;
    MinPd, 8,
        VEX_Vminpd_xmm_xmm_xmmm128, VEX_Vminpd_ymm_ymm_ymmm256,
        EVEX_Vminpd_xmm_k1z_xmm_xmmm128b64,
        EVEX_Vminpd_ymm_k1z_ymm_ymmm256b64,
        EVEX_Vminpd_zmm_k1z_zmm_zmmm512b64_sae;
    MaxPs, 4,
        VEX_Vmaxps_xmm_xmm_xmmm128, VEX_Vmaxps_ymm_ymm_ymmm256,
        EVEX_Vmaxps_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vmaxps_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vmaxps_zmm_k1z_zmm_zmmm512b32_sae;
    MaxPd, 8,
        VEX_Vmaxpd_xmm_xmm_xmmm128, VEX_Vmaxpd_ymm_ymm_ymmm256,
        EVEX_Vmaxpd_xmm_k1z_xmm_xmmm128b64,
        EVEX_Vmaxpd_ymm_k1z_ymm_ymmm256b64,
        EVEX_Vmaxpd_zmm_k1z_zmm_zmmm512b64_sae;
    SqrtPs, 4,
        VEX_Vsqrtps_xmm_xmmm128, VEX_Vsqrtps_ymm_ymmm256,
        EVEX_Vsqrtps_xmm_k1z_xmmm128b32,
        EVEX_Vsqrtps_ymm_k1z_ymmm256b32,
        EVEX_Vsqrtps_zmm_k1z_zmmm512b32_er;
    SqrtPd, 8,
        VEX_Vsqrtpd_xmm_xmmm128, VEX_Vsqrtpd_ymm_ymmm256,
        EVEX_Vsqrtpd_xmm_k1z_xmmm128b64,
        EVEX_Vsqrtpd_ymm_k1z_ymmm256b64,
        EVEX_Vsqrtpd_zmm_k1z_zmmm512b64_er;
    Fma231Ps, 4,
        VEX_Vfmadd231ps_xmm_xmm_xmmm128, VEX_Vfmadd231ps_ymm_ymm_ymmm256,
        EVEX_Vfmadd231ps_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vfmadd231ps_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vfmadd231ps_zmm_k1z_zmm_zmmm512b32_er;
    Fma231Pd, 8,
        VEX_Vfmadd231pd_xmm_xmm_xmmm128, VEX_Vfmadd231pd_ymm_ymm_ymmm256,
        EVEX_Vfmadd231pd_xmm_k1z_xmm_xmmm128b64,
        EVEX_Vfmadd231pd_ymm_k1z_ymm_ymmm256b64,
        EVEX_Vfmadd231pd_zmm_k1z_zmm_zmmm512b64_er;
    Fma213Ps, 4,
        VEX_Vfmadd213ps_xmm_xmm_xmmm128, VEX_Vfmadd213ps_ymm_ymm_ymmm256,
        EVEX_Vfmadd213ps_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vfmadd213ps_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vfmadd213ps_zmm_k1z_zmm_zmmm512b32_er;
    Fma213Pd, 8,
        VEX_Vfmadd213pd_xmm_xmm_xmmm128, VEX_Vfmadd213pd_ymm_ymm_ymmm256,
        EVEX_Vfmadd213pd_xmm_k1z_xmm_xmmm128b64,
        EVEX_Vfmadd213pd_ymm_k1z_ymm_ymmm256b64,
        EVEX_Vfmadd213pd_zmm_k1z_zmm_zmmm512b64_er;
    Fmsub231Ps, 4,
        VEX_Vfmsub231ps_xmm_xmm_xmmm128, VEX_Vfmsub231ps_ymm_ymm_ymmm256,
        EVEX_Vfmsub231ps_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vfmsub231ps_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vfmsub231ps_zmm_k1z_zmm_zmmm512b32_er;
    Fmsub231Pd, 8,
        VEX_Vfmsub231pd_xmm_xmm_xmmm128, VEX_Vfmsub231pd_ymm_ymm_ymmm256,
        EVEX_Vfmsub231pd_xmm_k1z_xmm_xmmm128b64,
        EVEX_Vfmsub231pd_ymm_k1z_ymm_ymmm256b64,
        EVEX_Vfmsub231pd_zmm_k1z_zmm_zmmm512b64_er;
    Fmsub213Ps, 4,
        VEX_Vfmsub213ps_xmm_xmm_xmmm128, VEX_Vfmsub213ps_ymm_ymm_ymmm256,
        EVEX_Vfmsub213ps_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vfmsub213ps_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vfmsub213ps_zmm_k1z_zmm_zmmm512b32_er;
    Fmsub213Pd, 8,
        VEX_Vfmsub213pd_xmm_xmm_xmmm128, VEX_Vfmsub213pd_ymm_ymm_ymmm256,
        EVEX_Vfmsub213pd_xmm_k1z_xmm_xmmm128b64,
        EVEX_Vfmsub213pd_ymm_k1z_ymm_ymmm256b64,
        EVEX_Vfmsub213pd_zmm_k1z_zmm_zmmm512b64_er;
    Fnmadd231Ps, 4,
        VEX_Vfnmadd231ps_xmm_xmm_xmmm128, VEX_Vfnmadd231ps_ymm_ymm_ymmm256,
        EVEX_Vfnmadd231ps_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vfnmadd231ps_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vfnmadd231ps_zmm_k1z_zmm_zmmm512b32_er;
    Fnmadd231Pd, 8,
        VEX_Vfnmadd231pd_xmm_xmm_xmmm128, VEX_Vfnmadd231pd_ymm_ymm_ymmm256,
        EVEX_Vfnmadd231pd_xmm_k1z_xmm_xmmm128b64,
        EVEX_Vfnmadd231pd_ymm_k1z_ymm_ymmm256b64,
        EVEX_Vfnmadd231pd_zmm_k1z_zmm_zmmm512b64_er;
    Fnmadd213Ps, 4,
        VEX_Vfnmadd213ps_xmm_xmm_xmmm128, VEX_Vfnmadd213ps_ymm_ymm_ymmm256,
        EVEX_Vfnmadd213ps_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vfnmadd213ps_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vfnmadd213ps_zmm_k1z_zmm_zmmm512b32_er;
    Fnmadd213Pd, 8,
        VEX_Vfnmadd213pd_xmm_xmm_xmmm128, VEX_Vfnmadd213pd_ymm_ymm_ymmm256,
        EVEX_Vfnmadd213pd_xmm_k1z_xmm_xmmm128b64,
        EVEX_Vfnmadd213pd_ymm_k1z_ymm_ymmm256b64,
        EVEX_Vfnmadd213pd_zmm_k1z_zmm_zmmm512b64_er;
    RoundPs, 4,
        VEX_Vroundps_xmm_xmmm128_imm8, VEX_Vroundps_ymm_ymmm256_imm8,
        EVEX_Vrndscaleps_xmm_k1z_xmmm128b32_imm8,
        EVEX_Vrndscaleps_ymm_k1z_ymmm256b32_imm8,
        EVEX_Vrndscaleps_zmm_k1z_zmmm512b32_imm8_sae;
    RoundPd, 8,
        VEX_Vroundpd_xmm_xmmm128_imm8, VEX_Vroundpd_ymm_ymmm256_imm8,
        EVEX_Vrndscalepd_xmm_k1z_xmmm128b64_imm8,
        EVEX_Vrndscalepd_ymm_k1z_ymmm256b64_imm8,
        EVEX_Vrndscalepd_zmm_k1z_zmmm512b64_imm8_sae;
    AddB, 0,
        VEX_Vpaddb_xmm_xmm_xmmm128, VEX_Vpaddb_ymm_ymm_ymmm256,
        EVEX_Vpaddb_xmm_k1z_xmm_xmmm128,
        EVEX_Vpaddb_ymm_k1z_ymm_ymmm256,
        EVEX_Vpaddb_zmm_k1z_zmm_zmmm512;
    AddW, 0,
        VEX_Vpaddw_xmm_xmm_xmmm128, VEX_Vpaddw_ymm_ymm_ymmm256,
        EVEX_Vpaddw_xmm_k1z_xmm_xmmm128,
        EVEX_Vpaddw_ymm_k1z_ymm_ymmm256,
        EVEX_Vpaddw_zmm_k1z_zmm_zmmm512;
    AddD, 4,
        VEX_Vpaddd_xmm_xmm_xmmm128, VEX_Vpaddd_ymm_ymm_ymmm256,
        EVEX_Vpaddd_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vpaddd_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vpaddd_zmm_k1z_zmm_zmmm512b32;
    AddQ, 8,
        VEX_Vpaddq_xmm_xmm_xmmm128, VEX_Vpaddq_ymm_ymm_ymmm256,
        EVEX_Vpaddq_xmm_k1z_xmm_xmmm128b64,
        EVEX_Vpaddq_ymm_k1z_ymm_ymmm256b64,
        EVEX_Vpaddq_zmm_k1z_zmm_zmmm512b64;
    SubB, 0,
        VEX_Vpsubb_xmm_xmm_xmmm128, VEX_Vpsubb_ymm_ymm_ymmm256,
        EVEX_Vpsubb_xmm_k1z_xmm_xmmm128,
        EVEX_Vpsubb_ymm_k1z_ymm_ymmm256,
        EVEX_Vpsubb_zmm_k1z_zmm_zmmm512;
    SubW, 0,
        VEX_Vpsubw_xmm_xmm_xmmm128, VEX_Vpsubw_ymm_ymm_ymmm256,
        EVEX_Vpsubw_xmm_k1z_xmm_xmmm128,
        EVEX_Vpsubw_ymm_k1z_ymm_ymmm256,
        EVEX_Vpsubw_zmm_k1z_zmm_zmmm512;
    SubD, 4,
        VEX_Vpsubd_xmm_xmm_xmmm128, VEX_Vpsubd_ymm_ymm_ymmm256,
        EVEX_Vpsubd_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vpsubd_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vpsubd_zmm_k1z_zmm_zmmm512b32;
    SubQ, 8,
        VEX_Vpsubq_xmm_xmm_xmmm128, VEX_Vpsubq_ymm_ymm_ymmm256,
        EVEX_Vpsubq_xmm_k1z_xmm_xmmm128b64,
        EVEX_Vpsubq_ymm_k1z_ymm_ymmm256b64,
        EVEX_Vpsubq_zmm_k1z_zmm_zmmm512b64;
    MulW, 0,
        VEX_Vpmullw_xmm_xmm_xmmm128, VEX_Vpmullw_ymm_ymm_ymmm256,
        EVEX_Vpmullw_xmm_k1z_xmm_xmmm128,
        EVEX_Vpmullw_ymm_k1z_ymm_ymmm256,
        EVEX_Vpmullw_zmm_k1z_zmm_zmmm512;
    MulHighUW, 0,
        VEX_Vpmulhuw_xmm_xmm_xmmm128, VEX_Vpmulhuw_ymm_ymm_ymmm256,
        EVEX_Vpmulhuw_xmm_k1z_xmm_xmmm128,
        EVEX_Vpmulhuw_ymm_k1z_ymm_ymmm256,
        EVEX_Vpmulhuw_zmm_k1z_zmm_zmmm512;
    MulD, 4,
        VEX_Vpmulld_xmm_xmm_xmmm128, VEX_Vpmulld_ymm_ymm_ymmm256,
        EVEX_Vpmulld_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vpmulld_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vpmulld_zmm_k1z_zmm_zmmm512b32;
    MulQ, 8,
        INVALID, INVALID,
        EVEX_Vpmullq_xmm_k1z_xmm_xmmm128b64,
        EVEX_Vpmullq_ymm_k1z_ymm_ymmm256b64,
        EVEX_Vpmullq_zmm_k1z_zmm_zmmm512b64;
    MulDq, 8,
        VEX_Vpmuldq_xmm_xmm_xmmm128, VEX_Vpmuldq_ymm_ymm_ymmm256,
        EVEX_Vpmuldq_xmm_k1z_xmm_xmmm128b64,
        EVEX_Vpmuldq_ymm_k1z_ymm_ymmm256b64,
        EVEX_Vpmuldq_zmm_k1z_zmm_zmmm512b64;
    MulUdq, 8,
        VEX_Vpmuludq_xmm_xmm_xmmm128, VEX_Vpmuludq_ymm_ymm_ymmm256,
        EVEX_Vpmuludq_xmm_k1z_xmm_xmmm128b64,
        EVEX_Vpmuludq_ymm_k1z_ymm_ymmm256b64,
        EVEX_Vpmuludq_zmm_k1z_zmm_zmmm512b64;
    MinSB, 0,
        VEX_Vpminsb_xmm_xmm_xmmm128, VEX_Vpminsb_ymm_ymm_ymmm256,
        EVEX_Vpminsb_xmm_k1z_xmm_xmmm128,
        EVEX_Vpminsb_ymm_k1z_ymm_ymmm256,
        EVEX_Vpminsb_zmm_k1z_zmm_zmmm512;
    MinSW, 0,
        VEX_Vpminsw_xmm_xmm_xmmm128, VEX_Vpminsw_ymm_ymm_ymmm256,
        EVEX_Vpminsw_xmm_k1z_xmm_xmmm128,
        EVEX_Vpminsw_ymm_k1z_ymm_ymmm256,
        EVEX_Vpminsw_zmm_k1z_zmm_zmmm512;
    MinSD, 4,
        VEX_Vpminsd_xmm_xmm_xmmm128, VEX_Vpminsd_ymm_ymm_ymmm256,
        EVEX_Vpminsd_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vpminsd_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vpminsd_zmm_k1z_zmm_zmmm512b32;
    MinSQ, 8,
        INVALID, INVALID,
        EVEX_Vpminsq_xmm_k1z_xmm_xmmm128b64,
        EVEX_Vpminsq_ymm_k1z_ymm_ymmm256b64,
        EVEX_Vpminsq_zmm_k1z_zmm_zmmm512b64;
    MinUB, 0,
        VEX_Vpminub_xmm_xmm_xmmm128, VEX_Vpminub_ymm_ymm_ymmm256,
        EVEX_Vpminub_xmm_k1z_xmm_xmmm128,
        EVEX_Vpminub_ymm_k1z_ymm_ymmm256,
        EVEX_Vpminub_zmm_k1z_zmm_zmmm512;
    MinUW, 0,
        VEX_Vpminuw_xmm_xmm_xmmm128, VEX_Vpminuw_ymm_ymm_ymmm256,
        EVEX_Vpminuw_xmm_k1z_xmm_xmmm128,
        EVEX_Vpminuw_ymm_k1z_ymm_ymmm256,
        EVEX_Vpminuw_zmm_k1z_zmm_zmmm512;
    MinUD, 4,
        VEX_Vpminud_xmm_xmm_xmmm128, VEX_Vpminud_ymm_ymm_ymmm256,
        EVEX_Vpminud_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vpminud_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vpminud_zmm_k1z_zmm_zmmm512b32;
    MinUQ, 8,
        INVALID, INVALID,
        EVEX_Vpminuq_xmm_k1z_xmm_xmmm128b64,
        EVEX_Vpminuq_ymm_k1z_ymm_ymmm256b64,
        EVEX_Vpminuq_zmm_k1z_zmm_zmmm512b64;
    MaxSB, 0,
        VEX_Vpmaxsb_xmm_xmm_xmmm128, VEX_Vpmaxsb_ymm_ymm_ymmm256,
        EVEX_Vpmaxsb_xmm_k1z_xmm_xmmm128,
        EVEX_Vpmaxsb_ymm_k1z_ymm_ymmm256,
        EVEX_Vpmaxsb_zmm_k1z_zmm_zmmm512;
    MaxSW, 0,
        VEX_Vpmaxsw_xmm_xmm_xmmm128, VEX_Vpmaxsw_ymm_ymm_ymmm256,
        EVEX_Vpmaxsw_xmm_k1z_xmm_xmmm128,
        EVEX_Vpmaxsw_ymm_k1z_ymm_ymmm256,
        EVEX_Vpmaxsw_zmm_k1z_zmm_zmmm512;
    MaxSD, 4,
        VEX_Vpmaxsd_xmm_xmm_xmmm128, VEX_Vpmaxsd_ymm_ymm_ymmm256,
        EVEX_Vpmaxsd_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vpmaxsd_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vpmaxsd_zmm_k1z_zmm_zmmm512b32;
    MaxSQ, 8,
        INVALID, INVALID,
        EVEX_Vpmaxsq_xmm_k1z_xmm_xmmm128b64,
        EVEX_Vpmaxsq_ymm_k1z_ymm_ymmm256b64,
        EVEX_Vpmaxsq_zmm_k1z_zmm_zmmm512b64;
    MaxUB, 0,
        VEX_Vpmaxub_xmm_xmm_xmmm128, VEX_Vpmaxub_ymm_ymm_ymmm256,
        EVEX_Vpmaxub_xmm_k1z_xmm_xmmm128,
        EVEX_Vpmaxub_ymm_k1z_ymm_ymmm256,
        EVEX_Vpmaxub_zmm_k1z_zmm_zmmm512;
    MaxUW, 0,
        VEX_Vpmaxuw_xmm_xmm_xmmm128, VEX_Vpmaxuw_ymm_ymm_ymmm256,
        EVEX_Vpmaxuw_xmm_k1z_xmm_xmmm128,
        EVEX_Vpmaxuw_ymm_k1z_ymm_ymmm256,
        EVEX_Vpmaxuw_zmm_k1z_zmm_zmmm512;
    MaxUD, 4,
        VEX_Vpmaxud_xmm_xmm_xmmm128, VEX_Vpmaxud_ymm_ymm_ymmm256,
        EVEX_Vpmaxud_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vpmaxud_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vpmaxud_zmm_k1z_zmm_zmmm512b32;
    MaxUQ, 8,
        INVALID, INVALID,
        EVEX_Vpmaxuq_xmm_k1z_xmm_xmmm128b64,
        EVEX_Vpmaxuq_ymm_k1z_ymm_ymmm256b64,
        EVEX_Vpmaxuq_zmm_k1z_zmm_zmmm512b64;
    AbsB, 0,
        VEX_Vpabsb_xmm_xmmm128, VEX_Vpabsb_ymm_ymmm256,
        EVEX_Vpabsb_xmm_k1z_xmmm128,
        EVEX_Vpabsb_ymm_k1z_ymmm256,
        EVEX_Vpabsb_zmm_k1z_zmmm512;
    AbsW, 0,
        VEX_Vpabsw_xmm_xmmm128, VEX_Vpabsw_ymm_ymmm256,
        EVEX_Vpabsw_xmm_k1z_xmmm128,
        EVEX_Vpabsw_ymm_k1z_ymmm256,
        EVEX_Vpabsw_zmm_k1z_zmmm512;
    AbsD, 4,
        VEX_Vpabsd_xmm_xmmm128, VEX_Vpabsd_ymm_ymmm256,
        EVEX_Vpabsd_xmm_k1z_xmmm128b32,
        EVEX_Vpabsd_ymm_k1z_ymmm256b32,
        EVEX_Vpabsd_zmm_k1z_zmmm512b32;
    AbsQ, 8,
        INVALID, INVALID,
        EVEX_Vpabsq_xmm_k1z_xmmm128b64,
        EVEX_Vpabsq_ymm_k1z_ymmm256b64,
        EVEX_Vpabsq_zmm_k1z_zmmm512b64;
    And, 4,
        VEX_Vpand_xmm_xmm_xmmm128, VEX_Vpand_ymm_ymm_ymmm256,
        EVEX_Vpandd_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vpandd_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vpandd_zmm_k1z_zmm_zmmm512b32;
    AndQ, 8,
        VEX_Vpand_xmm_xmm_xmmm128, VEX_Vpand_ymm_ymm_ymmm256,
        EVEX_Vpandq_xmm_k1z_xmm_xmmm128b64,
        EVEX_Vpandq_ymm_k1z_ymm_ymmm256b64,
        EVEX_Vpandq_zmm_k1z_zmm_zmmm512b64;
    Or, 4,
        VEX_Vpor_xmm_xmm_xmmm128, VEX_Vpor_ymm_ymm_ymmm256,
        EVEX_Vpord_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vpord_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vpord_zmm_k1z_zmm_zmmm512b32;
    OrQ, 8,
        VEX_Vpor_xmm_xmm_xmmm128, VEX_Vpor_ymm_ymm_ymmm256,
        EVEX_Vporq_xmm_k1z_xmm_xmmm128b64,
        EVEX_Vporq_ymm_k1z_ymm_ymmm256b64,
        EVEX_Vporq_zmm_k1z_zmm_zmmm512b64;
    Xor, 4,
        VEX_Vpxor_xmm_xmm_xmmm128, VEX_Vpxor_ymm_ymm_ymmm256,
        EVEX_Vpxord_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vpxord_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vpxord_zmm_k1z_zmm_zmmm512b32;
    XorQ, 8,
        VEX_Vpxor_xmm_xmm_xmmm128, VEX_Vpxor_ymm_ymm_ymmm256,
        EVEX_Vpxorq_xmm_k1z_xmm_xmmm128b64,
        EVEX_Vpxorq_ymm_k1z_ymm_ymmm256b64,
        EVEX_Vpxorq_zmm_k1z_zmm_zmmm512b64;
    SllvW, 0,
        INVALID, INVALID,
        EVEX_Vpsllvw_xmm_k1z_xmm_xmmm128,
        EVEX_Vpsllvw_ymm_k1z_ymm_ymmm256,
        EVEX_Vpsllvw_zmm_k1z_zmm_zmmm512;
    SllvD, 4,
        VEX_Vpsllvd_xmm_xmm_xmmm128, VEX_Vpsllvd_ymm_ymm_ymmm256,
        EVEX_Vpsllvd_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vpsllvd_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vpsllvd_zmm_k1z_zmm_zmmm512b32;
    SllvQ, 8,
        VEX_Vpsllvq_xmm_xmm_xmmm128, VEX_Vpsllvq_ymm_ymm_ymmm256,
        EVEX_Vpsllvq_xmm_k1z_xmm_xmmm128b64,
        EVEX_Vpsllvq_ymm_k1z_ymm_ymmm256b64,
        EVEX_Vpsllvq_zmm_k1z_zmm_zmmm512b64;
    SrlvW, 0,
        INVALID, INVALID,
        EVEX_Vpsrlvw_xmm_k1z_xmm_xmmm128,
        EVEX_Vpsrlvw_ymm_k1z_ymm_ymmm256,
        EVEX_Vpsrlvw_zmm_k1z_zmm_zmmm512;
    SrlvD, 4,
        VEX_Vpsrlvd_xmm_xmm_xmmm128, VEX_Vpsrlvd_ymm_ymm_ymmm256,
        EVEX_Vpsrlvd_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vpsrlvd_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vpsrlvd_zmm_k1z_zmm_zmmm512b32;
    SrlvQ, 8,
        VEX_Vpsrlvq_xmm_xmm_xmmm128, VEX_Vpsrlvq_ymm_ymm_ymmm256,
        EVEX_Vpsrlvq_xmm_k1z_xmm_xmmm128b64,
        EVEX_Vpsrlvq_ymm_k1z_ymm_ymmm256b64,
        EVEX_Vpsrlvq_zmm_k1z_zmm_zmmm512b64;
    SravW, 0,
        INVALID, INVALID,
        EVEX_Vpsravw_xmm_k1z_xmm_xmmm128,
        EVEX_Vpsravw_ymm_k1z_ymm_ymmm256,
        EVEX_Vpsravw_zmm_k1z_zmm_zmmm512;
    SravD, 4,
        VEX_Vpsravd_xmm_xmm_xmmm128, VEX_Vpsravd_ymm_ymm_ymmm256,
        EVEX_Vpsravd_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vpsravd_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vpsravd_zmm_k1z_zmm_zmmm512b32;
    SravQ, 8,
        INVALID, INVALID,
        EVEX_Vpsravq_xmm_k1z_xmm_xmmm128b64,
        EVEX_Vpsravq_ymm_k1z_ymm_ymmm256b64,
        EVEX_Vpsravq_zmm_k1z_zmm_zmmm512b64;
    CmpEqB, 0,
        VEX_Vpcmpeqb_xmm_xmm_xmmm128, VEX_Vpcmpeqb_ymm_ymm_ymmm256,
        INVALID,
        INVALID,
        INVALID;
    CmpEqW, 0,
        VEX_Vpcmpeqw_xmm_xmm_xmmm128, VEX_Vpcmpeqw_ymm_ymm_ymmm256,
        INVALID,
        INVALID,
        INVALID;
    CmpEqD, 0,
        VEX_Vpcmpeqd_xmm_xmm_xmmm128, VEX_Vpcmpeqd_ymm_ymm_ymmm256,
        INVALID,
        INVALID,
        INVALID;
    CmpEqQ, 0,
        VEX_Vpcmpeqq_xmm_xmm_xmmm128, VEX_Vpcmpeqq_ymm_ymm_ymmm256,
        INVALID,
        INVALID,
        INVALID;
    CmpGtB, 0,
        VEX_Vpcmpgtb_xmm_xmm_xmmm128, VEX_Vpcmpgtb_ymm_ymm_ymmm256,
        INVALID,
        INVALID,
        INVALID;
    CmpGtW, 0,
        VEX_Vpcmpgtw_xmm_xmm_xmmm128, VEX_Vpcmpgtw_ymm_ymm_ymmm256,
        INVALID,
        INVALID,
        INVALID;
    CmpGtD, 0,
        VEX_Vpcmpgtd_xmm_xmm_xmmm128, VEX_Vpcmpgtd_ymm_ymm_ymmm256,
        INVALID,
        INVALID,
        INVALID;
    CmpGtQ, 0,
        VEX_Vpcmpgtq_xmm_xmm_xmmm128, VEX_Vpcmpgtq_ymm_ymm_ymmm256,
        INVALID,
        INVALID,
        INVALID;
    CvtDq2Ps, 4,
        VEX_Vcvtdq2ps_xmm_xmmm128, VEX_Vcvtdq2ps_ymm_ymmm256,
        EVEX_Vcvtdq2ps_xmm_k1z_xmmm128b32,
        EVEX_Vcvtdq2ps_ymm_k1z_ymmm256b32,
        EVEX_Vcvtdq2ps_zmm_k1z_zmmm512b32_er;
    CvtPs2Dq, 4,
        VEX_Vcvtps2dq_xmm_xmmm128, VEX_Vcvtps2dq_ymm_ymmm256,
        EVEX_Vcvtps2dq_xmm_k1z_xmmm128b32,
        EVEX_Vcvtps2dq_ymm_k1z_ymmm256b32,
        EVEX_Vcvtps2dq_zmm_k1z_zmmm512b32_er;
    CvtTps2Dq, 4,
        VEX_Vcvttps2dq_xmm_xmmm128, VEX_Vcvttps2dq_ymm_ymmm256,
        EVEX_Vcvttps2dq_xmm_k1z_xmmm128b32,
        EVEX_Vcvttps2dq_ymm_k1z_ymmm256b32,
        EVEX_Vcvttps2dq_zmm_k1z_zmmm512b32_sae;
    CvtUdq2Ps, 4,
        INVALID, INVALID,
        EVEX_Vcvtudq2ps_xmm_k1z_xmmm128b32,
        EVEX_Vcvtudq2ps_ymm_k1z_ymmm256b32,
        EVEX_Vcvtudq2ps_zmm_k1z_zmmm512b32_er;
    CvtTps2Udq, 4,
        INVALID, INVALID,
        EVEX_Vcvttps2udq_xmm_k1z_xmmm128b32,
        EVEX_Vcvttps2udq_ymm_k1z_ymmm256b32,
        EVEX_Vcvttps2udq_zmm_k1z_zmmm512b32_sae;
    CvtQq2Pd, 8,
        INVALID, INVALID,
        EVEX_Vcvtqq2pd_xmm_k1z_xmmm128b64,
        EVEX_Vcvtqq2pd_ymm_k1z_ymmm256b64,
        EVEX_Vcvtqq2pd_zmm_k1z_zmmm512b64_er;
    CvtUqq2Pd, 8,
        INVALID, INVALID,
        EVEX_Vcvtuqq2pd_xmm_k1z_xmmm128b64,
        EVEX_Vcvtuqq2pd_ymm_k1z_ymmm256b64,
        EVEX_Vcvtuqq2pd_zmm_k1z_zmmm512b64_er;
    CvtTpd2Qq, 8,
        INVALID, INVALID,
        EVEX_Vcvttpd2qq_xmm_k1z_xmmm128b64,
        EVEX_Vcvttpd2qq_ymm_k1z_ymmm256b64,
        EVEX_Vcvttpd2qq_zmm_k1z_zmmm512b64_sae;
    CvtTpd2Uqq, 8,
        INVALID, INVALID,
        EVEX_Vcvttpd2uqq_xmm_k1z_xmmm128b64,
        EVEX_Vcvttpd2uqq_ymm_k1z_ymmm256b64,
        EVEX_Vcvttpd2uqq_zmm_k1z_zmmm512b64_sae;
    ShufB, 0,
        VEX_Vpshufb_xmm_xmm_xmmm128, VEX_Vpshufb_ymm_ymm_ymmm256,
        EVEX_Vpshufb_xmm_k1z_xmm_xmmm128,
        EVEX_Vpshufb_ymm_k1z_ymm_ymmm256,
        EVEX_Vpshufb_zmm_k1z_zmm_zmmm512;
    PermD, 4,
        INVALID, VEX_Vpermd_ymm_ymm_ymmm256,
        INVALID,
        EVEX_Vpermd_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vpermd_zmm_k1z_zmm_zmmm512b32;
    PermT2D, 4,
        INVALID, INVALID,
        EVEX_Vpermt2d_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vpermt2d_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vpermt2d_zmm_k1z_zmm_zmmm512b32;
    UnpckLBw, 0,
        VEX_Vpunpcklbw_xmm_xmm_xmmm128, VEX_Vpunpcklbw_ymm_ymm_ymmm256,
        EVEX_Vpunpcklbw_xmm_k1z_xmm_xmmm128,
        EVEX_Vpunpcklbw_ymm_k1z_ymm_ymmm256,
        EVEX_Vpunpcklbw_zmm_k1z_zmm_zmmm512;
    UnpckHBw, 0,
        VEX_Vpunpckhbw_xmm_xmm_xmmm128, VEX_Vpunpckhbw_ymm_ymm_ymmm256,
        EVEX_Vpunpckhbw_xmm_k1z_xmm_xmmm128,
        EVEX_Vpunpckhbw_ymm_k1z_ymm_ymmm256,
        EVEX_Vpunpckhbw_zmm_k1z_zmm_zmmm512;
    UnpckLWd, 0,
        VEX_Vpunpcklwd_xmm_xmm_xmmm128, VEX_Vpunpcklwd_ymm_ymm_ymmm256,
        EVEX_Vpunpcklwd_xmm_k1z_xmm_xmmm128,
        EVEX_Vpunpcklwd_ymm_k1z_ymm_ymmm256,
        EVEX_Vpunpcklwd_zmm_k1z_zmm_zmmm512;
    UnpckHWd, 0,
        VEX_Vpunpckhwd_xmm_xmm_xmmm128, VEX_Vpunpckhwd_ymm_ymm_ymmm256,
        EVEX_Vpunpckhwd_xmm_k1z_xmm_xmmm128,
        EVEX_Vpunpckhwd_ymm_k1z_ymm_ymmm256,
        EVEX_Vpunpckhwd_zmm_k1z_zmm_zmmm512;
    UnpckLDq, 4,
        VEX_Vpunpckldq_xmm_xmm_xmmm128, VEX_Vpunpckldq_ymm_ymm_ymmm256,
        EVEX_Vpunpckldq_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vpunpckldq_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vpunpckldq_zmm_k1z_zmm_zmmm512b32;
    UnpckHDq, 4,
        VEX_Vpunpckhdq_xmm_xmm_xmmm128, VEX_Vpunpckhdq_ymm_ymm_ymmm256,
        EVEX_Vpunpckhdq_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vpunpckhdq_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vpunpckhdq_zmm_k1z_zmm_zmmm512b32;
    UnpckHQdq, 8,
        VEX_Vpunpckhqdq_xmm_xmm_xmmm128, VEX_Vpunpckhqdq_ymm_ymm_ymmm256,
        EVEX_Vpunpckhqdq_xmm_k1z_xmm_xmmm128b64,
        EVEX_Vpunpckhqdq_ymm_k1z_ymm_ymmm256b64,
        EVEX_Vpunpckhqdq_zmm_k1z_zmm_zmmm512b64;
    UnpckLQdq, 8,
        VEX_Vpunpcklqdq_xmm_xmm_xmmm128, VEX_Vpunpcklqdq_ymm_ymm_ymmm256,
        EVEX_Vpunpcklqdq_xmm_k1z_xmm_xmmm128b64,
        EVEX_Vpunpcklqdq_ymm_k1z_ymm_ymmm256b64,
        EVEX_Vpunpcklqdq_zmm_k1z_zmm_zmmm512b64;
    PackUsWb, 0,
        VEX_Vpackuswb_xmm_xmm_xmmm128, VEX_Vpackuswb_ymm_ymm_ymmm256,
        EVEX_Vpackuswb_xmm_k1z_xmm_xmmm128,
        EVEX_Vpackuswb_ymm_k1z_ymm_ymmm256,
        EVEX_Vpackuswb_zmm_k1z_zmm_zmmm512;
    PackUsDw, 4,
        VEX_Vpackusdw_xmm_xmm_xmmm128, VEX_Vpackusdw_ymm_ymm_ymmm256,
        EVEX_Vpackusdw_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vpackusdw_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vpackusdw_zmm_k1z_zmm_zmmm512b32;
    DotU8I8, 4,
        INVALID, INVALID,
        EVEX_Vpdpbusd_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vpdpbusd_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vpdpbusd_zmm_k1z_zmm_zmmm512b32;
    DotI16, 4,
        INVALID, INVALID,
        EVEX_Vpdpwssd_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vpdpwssd_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vpdpwssd_zmm_k1z_zmm_zmmm512b32;
    MulAddUbSw, 0,
        VEX_Vpmaddubsw_xmm_xmm_xmmm128, VEX_Vpmaddubsw_ymm_ymm_ymmm256,
        EVEX_Vpmaddubsw_xmm_k1z_xmm_xmmm128,
        EVEX_Vpmaddubsw_ymm_k1z_ymm_ymmm256,
        EVEX_Vpmaddubsw_zmm_k1z_zmm_zmmm512;
    SadBw, 0,
        VEX_Vpsadbw_xmm_xmm_xmmm128, VEX_Vpsadbw_ymm_ymm_ymmm256,
        EVEX_Vpsadbw_xmm_xmm_xmmm128,
        EVEX_Vpsadbw_ymm_ymm_ymmm256,
        EVEX_Vpsadbw_zmm_zmm_zmmm512;
    MulAddW, 0,
        VEX_Vpmaddwd_xmm_xmm_xmmm128, VEX_Vpmaddwd_ymm_ymm_ymmm256,
        EVEX_Vpmaddwd_xmm_k1z_xmm_xmmm128,
        EVEX_Vpmaddwd_ymm_k1z_ymm_ymmm256,
        EVEX_Vpmaddwd_zmm_k1z_zmm_zmmm512;
    DotBf16, 4,
        INVALID, INVALID,
        EVEX_Vdpbf16ps_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vdpbf16ps_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vdpbf16ps_zmm_k1z_zmm_zmmm512b32;
}
