/* Detects the features of the running CPU. A feature counts only if the operating system saves its
 * registers (XCR0). */
#include "tec_runtime.h"

/* Names in the order of the bits, as in src/codegen/entry/checks.rs. */
static const char feature_names[][12] = {
    "sse4.1",   "avx",      "avx2",     "f16c", "fma",  "avx512f", "avx512bw",
    "avx512cd", "avx512dq", "avx512vl", "bf16", "fp16", "vnni",    "neon",    "amx-bf16",
    "amx-int8",
};
/* The features that a process must ask the system for. */
enum { TILES = 1 << 14 | 1 << 15 };
enum { FEATURES = sizeof feature_names / sizeof feature_names[0] };

INTERNAL uint32_t tec_rt_cpu IN_DATA = 0;

#if defined(__x86_64__)

static void cpuid(uint32_t leaf, uint32_t subleaf, uint32_t r[4]) {
    __asm__ volatile("cpuid"
                     : "=a"(r[0]), "=b"(r[1]), "=c"(r[2]), "=d"(r[3])
                     : "a"(leaf), "c"(subleaf));
}

static uint32_t detect(void) {
    enum { A, B, C, D };
    uint32_t leaf0[4], leaf1[4], leaf7[4] = {0}, leaf7_1[4] = {0}, xcr0 = 0, high;
    cpuid(0, 0, leaf0);
    cpuid(1, 0, leaf1);
    if (leaf0[A] >= 7) {
        cpuid(7, 0, leaf7);
        if (leaf7[A] >= 1) cpuid(7, 1, leaf7_1);
    }
    if (leaf1[C] >> 27 & 1) __asm__ volatile("xgetbv" : "=a"(xcr0), "=d"(high) : "c"(0));
    uint32_t ymm = (xcr0 & 0x06) == 0x06, zmm = (xcr0 & 0xe6) == 0xe6;
#if defined(__APPLE__)
    /* A thread gets the registers of AVX-512 when it first uses them. */
    zmm = ymm && system_number("hw.optional.avx512f");
#endif
    uint32_t found = leaf1[C] >> 19 & 1;
    if (ymm) {
        found |= (leaf1[C] >> 28 & 1) << 1 | (leaf7[B] >> 5 & 1) << 2 | (leaf1[C] >> 29 & 1) << 3
               | (leaf1[C] >> 12 & 1) << 4;
    }
    if (zmm) {
        found |= (leaf7[B] >> 16 & 1) << 5 | (leaf7[B] >> 30 & 1) << 6 | (leaf7[B] >> 28 & 1) << 7
               | (leaf7[B] >> 17 & 1) << 8 | (leaf7[B] >> 31) << 9
               | (leaf7_1[A] >> 5 & 1) << 10 | (leaf7[D] >> 23 & 1) << 11
               | (leaf7[C] >> 11 & 1) << 12;
    }
    return found;
}

#elif defined(__aarch64__)

/* Every AArch64 with Linux or macOS has NEON. */
static uint32_t detect(void) { return 1u << 13; }

#elif defined(__riscv)

static uint32_t detect(void) { return 0; }

#else
#error "the tec runtime supports x86-64, aarch64 and riscv64"
#endif

/* The features that need no permission, and those in TILES that the process has asked for. Several
 * threads may run this at once; they store the same value. */
static COLD uint32_t cpu_features(void) {
    uint32_t found = __atomic_load_n(&tec_rt_cpu, __ATOMIC_RELAXED);
    if (found == 0) found = __atomic_or_fetch(&tec_rt_cpu, detect() | CPU_KNOWN, __ATOMIC_RELAXED);
    return found;
}
