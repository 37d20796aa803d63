/* The choice among the variants of a module for several CPUs. The entries are compiled for the
 * baseline instruction set, as this file is, so nothing here depends on the result. */
#include "tec_runtime.h"

static const char max_target_name[] = "TEC_MAX_TARGET";

/* The features that TEC_MAX_TARGET permits, with CPU_KNOWN once the variable was read. A value that
 * is no target is not kept: each call reads it again, and fails. */
static uint32_t max_target;

#if defined(__x86_64__)
/* The instructions on tile registers, if the system saves these and permits their use. */
static uint32_t detect_tiles(void) {
    enum { A, B, C, D };
    uint32_t leaf0[4], leaf1[4], leaf7[4], xcr0, high;
    cpuid(0, 0, leaf0);
    cpuid(1, 0, leaf1);
    if (leaf0[A] < 7 || !(leaf1[C] >> 27 & 1)) return 0;
    cpuid(7, 0, leaf7);
    __asm__ volatile("xgetbv" : "=a"(xcr0), "=d"(high) : "c"(0));
    uint32_t bf16 = leaf7[D] >> 22 & 1, tile = leaf7[D] >> 24 & 1, int8 = leaf7[D] >> 25 & 1;
    uint32_t saved = (xcr0 & 0x60000) == 0x60000;
    return tile && saved && permit_tiles() ? bf16 << 14 | int8 << 15 : 0;
}
#else
static uint32_t detect_tiles(void) { return 0; }
#endif

/* The features of the CPU. Asks for those in TILES if `needed` has some: that has effects on the
 * process (larger stacks of signal handlers). */
static COLD uint32_t features_for(uint32_t needed) {
    uint32_t found = cpu_features();
    if (needed & ~found & TILES) {
        found = __atomic_or_fetch(&tec_rt_cpu, detect_tiles(), __ATOMIC_RELAXED);
    }
    return found;
}

static const struct variant *variants_of(const struct variants *table) {
    return (const struct variant *)(table + 1);
}

static const char *variant_text(const struct variants *table, uint32_t offset) {
    return (const char *)table + offset;
}

/* The end of `name` at the beginning of `text`; null if `text` begins with another word. Words of a
 * target's name end before `+`. */
static COLD const char *skip_word(const char *text, const char *name) {
    while (*name && *text == *name) text++, name++;
    return *name || (*text && *text != '+') ? 0 : text;
}

/* The features of the target `text`, a name with features (`x86-avx512+vnni`); 0 if it is none. The
 * targets of a CPU family have at least one feature. */
static COLD uint32_t features_of(const struct variants *table, const char *text) {
    const struct variant *targets = variants_of(table) + table->variants;
    for (uint32_t i = 0; i < table->targets; i++) {
        const char *at = skip_word(text, variant_text(table, targets[i].name));
        uint32_t found = targets[i].features;
        while (at && *at) {
            const char *next = 0;
            for (uint32_t bit = 0; bit < FEATURES && !next; bit++) {
                if (!(targets[i].more >> bit & 1)) continue;
                next = skip_word(at + 1, feature_names[bit]);
                if (next) found |= 1u << bit;
            }
            at = next;
        }
        if (at) return found;
    }
    return 0;
}

/* Reads TEC_MAX_TARGET. Several threads may run this at once; they store the same value. */
static COLD uint32_t permitted_features(const struct variants *table, const char **text,
                                        char room[VARIABLE_BYTES]) {
    uint32_t permitted = __atomic_load_n(&max_target, __ATOMIC_RELAXED);
    *text = read_variable(max_target_name, room);
    if (permitted) return permitted;
    permitted = !*text || !**text ? ~0u : features_of(table, *text);
    if (!permitted) return 0;
    permitted |= CPU_KNOWN;
    __atomic_store_n(&max_target, permitted, __ATOMIC_RELAXED);
    return permitted;
}

/* Writes the value of the variable, at most 64 bytes of it. */
static COLD void put_max_target(struct message *m, const char *text) {
    uint64_t n = 0;
    while (n < 64 && text && text[n]) n++;
    put(m, max_target_name);
    put(m, "=");
    put_bytes(m, text, n);
}

static COLD void refuse_max_target(struct message *m, const struct variants *table,
                                   const char *text) {
    const struct variant *targets = variants_of(table) + table->variants;
    put_max_target(m, text);
    put(m, " is not a target: expected ");
    uint32_t more = 0;
    for (uint32_t i = 0; i < table->targets; i++) {
        if (i) put(m, i + 1 == table->targets ? " or " : ", ");
        put(m, variant_text(table, targets[i].name));
        more |= targets[i].more;
    }
    const char *separator = ", with ";
    for (uint32_t bit = 0; bit < FEATURES; bit++) {
        if (!(more >> bit & 1)) continue;
        put(m, separator);
        put(m, "+");
        put(m, feature_names[bit]);
        separator = " ";
    }
}

static COLD void refuse_variants(struct message *m, const struct variants *table,
                                 uint32_t permitted, const char *text) {
    const struct variant *variants = variants_of(table);
    if (table->variants == 1) {
        put(m, "this CPU lacks ");
        put_features(m, variants[0].features & ~cpu_features());
        put(m, ", or the system does not permit them: the module was compiled for target ");
        put(m, variant_text(table, variants[0].name));
        return;
    }
    put(m, "no variant of the module can run here: ");
    for (uint32_t i = 0; i < table->variants; i++) {
        if (i) put(m, "; ");
        put(m, variant_text(table, variants[i].name));
        if (variants[i].features & ~permitted) {
            put(m, " exceeds ");
            put_max_target(m, text);
            continue;
        }
        put(m, " needs ");
        put_features(m, variants[i].features & ~cpu_features());
    }
}

INTERNAL int32_t tec_rt_select_variant(const struct variants *table, uint32_t *selected,
                                       const struct signature *sig, int32_t packed) {
    const char *text;
    char room[VARIABLE_BYTES];
    uint32_t permitted = table->variants > 1 ? permitted_features(table, &text, room) : ~0u;
    const struct variant *variants = variants_of(table);
    for (uint32_t i = 0; permitted && i < table->variants; i++) {
        uint32_t needed = variants[i].features;
        if (needed & ~permitted || needed & ~features_for(needed)) continue;
        __atomic_store_n(selected, i + 1, __ATOMIC_RELAXED);
        return 0;
    }
    struct message m = {.length = 0};
    if (permitted) {
        refuse_variants(&m, table, permitted, text);
    } else {
        refuse_max_target(&m, table, text);
    }
    return sig ? refuse(&m, sig, "RuntimeError", packed) : raise(&m, "RuntimeError", packed);
}
