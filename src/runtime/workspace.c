/* Memory for the temporaries of kernels. It is kept between calls, because fresh pages cost more
 * time than most kernels. It needs no locks: a block belongs to the thread that took it from its
 * place.
 *
 * At most PLACES blocks are kept after use. A block is reused if it is large enough and not more
 * than four times too large. A thread searches first where it left its last block, so it tends to
 * get memory in its core's cache and not to contend with other threads. Blocks begin 64 bytes after
 * a page boundary, large ones after one of a huge page. Unloading the module frees all. */
#include "tec_runtime.h"

enum { PLACES = 64, HEADER = 64 };

/* The header before the memory of a block. */
struct block {
    uint64_t bytes; /* of the whole mapping */
    uint64_t class;
};

/* The address of the block in each place, 0 if there is none. The low bits hold its size class, so
 * that a search does not touch the blocks. */
static uint64_t places[PLACES];

/* Sizes of blocks are powers of two, from one page on, and three steps between each two of them.
 * The bytes of the rounding take no memory until they are touched. */
enum { CLASSES_PER_DOUBLING = 4 };
/* The number of classes between a size and four times that size. */
enum { TOO_LARGE = 2 * CLASSES_PER_DOUBLING };

static uint64_t class_bytes(uint32_t class) {
    uint64_t least = (uint64_t)PAGE << class / CLASSES_PER_DOUBLING;
    return least + least / CLASSES_PER_DOUBLING * (class % CLASSES_PER_DOUBLING);
}

/* Returns the least class of at least `bytes`. */
static uint32_t class_of(uint64_t bytes) {
    uint32_t class = 0;
    while (class_bytes(class + CLASSES_PER_DOUBLING) < bytes) class += CLASSES_PER_DOUBLING;
    while (class_bytes(class) < bytes) class++;
    return class;
}

/* The place where this thread begins its searches. */
static uint32_t own_place(void) {
    uint64_t thread = thread_address() / HEADER;
    return (uint32_t)(thread * 0x9e3779b97f4a7c15u >> 32) % PLACES;
}

static uint32_t class_in(uint64_t place) { return (uint32_t)(place % PAGE); }
static struct block *block_in(uint64_t place) { return (struct block *)(place - place % PAGE); }

static void unmap(struct block *block) { unmap_memory(block, block->bytes); }

/* Replaces `before` in a place by `now`; false if the place has changed. */
static int replace(uint32_t place, uint64_t before, uint64_t now) {
    return __atomic_compare_exchange_n(&places[place], &before, now, 0, __ATOMIC_ACQ_REL,
                                       __ATOMIC_RELAXED);
}

/* Takes the block that fits best; null if there is none. */
static struct block *take(uint32_t class) {
    for (;;) {
        uint32_t best = 0, best_class = class + TOO_LARGE + 1;
        uint64_t found = 0;
        for (uint32_t i = 0, at = own_place(); i < PLACES && best_class != class; i++) {
            uint64_t there = __atomic_load_n(&places[at], __ATOMIC_RELAXED);
            if (there && class_in(there) >= class && class_in(there) < best_class) {
                best = at, best_class = class_in(there), found = there;
            }
            if (++at == PLACES) at = 0;
        }
        if (!found) return 0;
        if (replace(best, found, 0)) return block_in(found);
    }
}

static COLD struct block *map(uint64_t bytes) {
    struct block *block = map_memory(&bytes);
    if (block) block->bytes = bytes;
    return block;
}

/* Returns `bytes` of uninitialised memory, aligned to 64 bytes, or null. Any thread may call it. */
INTERNAL void *tec_rt_workspace_acquire(uint64_t bytes) {
    if (bytes > (uint64_t)1 << 62) return 0;
    uint32_t class = class_of(bytes + HEADER);
    struct block *block = take(class);
    if (!block) {
        block = map(class_bytes(class));
        if (!block) return 0;
        block->class = class;
    }
    return (char *)block + HEADER;
}

/* Releases memory of `acquire`. If there are more blocks than places, the largest are kept. */
INTERNAL void tec_rt_workspace_release(void *memory) {
    struct block *block = (struct block *)((char *)memory - HEADER);
    for (;;) {
        uint32_t least = 0, least_class = (uint32_t)block->class;
        uint64_t found = 0;
        for (uint32_t i = 0, at = own_place(); i < PLACES; i++) {
            uint64_t there = __atomic_load_n(&places[at], __ATOMIC_RELAXED);
            if (!there && replace(at, 0, (uintptr_t)block | block->class)) return;
            if (there && class_in(there) < least_class) {
                least = at, least_class = class_in(there), found = there;
            }
            if (++at == PLACES) at = 0;
        }
        if (!found) {
            unmap(block);
            return;
        }
        if (replace(least, found, (uintptr_t)block | block->class)) {
            unmap(block_in(found));
            return;
        }
    }
}

static __attribute__((destructor)) void free_workspace(void) {
    for (uint32_t i = 0; i < PLACES; i++) {
        uint64_t there = __atomic_exchange_n(&places[i], 0, __ATOMIC_ACQ_REL);
        if (there) unmap(block_in(there));
    }
}
