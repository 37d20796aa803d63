/* Memory for the temporaries of kernels, kept between calls: fresh pages cost more than most
 * kernels. Without locks: a block belongs to who exchanged it out of its place.
 *
 * At most KEPT blocks are kept, each one that was in use before; a block is given out again if it
 * is large enough and not more than four times too large. Blocks begin 64 bytes after a page
 * boundary. Everything kept is freed when the module is unloaded. */
#include "tec_runtime.h"

void *mmap(void *, size_t, int, int, int, int64_t);
int munmap(void *, size_t);

enum { KEPT = 16, HEADER = 64 };

/* Stands before the memory given out. */
struct block {
    uint64_t bytes; /* of the whole mapping */
};

static struct block *kept[KEPT];

static void unmap(struct block *block) { munmap(block, block->bytes); }

static struct block *take(uint32_t place) {
    return __atomic_exchange_n(&kept[place], 0, __ATOMIC_ACQ_REL);
}

/* Puts a block into a free place; false if there is none. */
static int keep(struct block *block) {
    for (uint32_t i = 0; i < KEPT; i++) {
        struct block *none = 0;
        if (__atomic_load_n(&kept[i], __ATOMIC_RELAXED) == 0
            && __atomic_compare_exchange_n(&kept[i], &none, block, 0, __ATOMIC_ACQ_REL,
                                           __ATOMIC_RELAXED)) {
            return 1;
        }
    }
    return 0;
}

/* `bytes` of uninitialised memory, aligned to 64, or null. Any thread may call it. */
INTERNAL void *tec_rt_workspace_acquire(uint64_t bytes) {
    enum { READ_WRITE = 3, PRIVATE_ANONYMOUS = 0x22 };
    if (bytes > (uint64_t)1 << 62) return 0;
    uint64_t need = (bytes + HEADER + PAGE - 1) & ~(uint64_t)(PAGE - 1);
    for (uint32_t i = 0; i < KEPT; i++) {
        if (__atomic_load_n(&kept[i], __ATOMIC_RELAXED) == 0) continue;
        struct block *block = take(i);
        if (!block) continue;
        if (block->bytes >= need && block->bytes / 4 <= need) return (char *)block + HEADER;
        if (!keep(block)) unmap(block);
    }
    struct block *block = mmap(0, need, READ_WRITE, PRIVATE_ANONYMOUS, -1, 0);
    if (block == (void *)-1) return 0;
    block->bytes = need;
    return (char *)block + HEADER;
}

/* Gives back what `acquire` returned. Of more blocks than there are places the largest stay. */
INTERNAL void tec_rt_workspace_release(void *memory) {
    struct block *block = (struct block *)((char *)memory - HEADER);
    for (uint32_t i = 0; !keep(block); i++) {
        if (i == KEPT) {
            unmap(block);
            return;
        }
        struct block *other = take(i);
        if (other && other->bytes < block->bytes) {
            struct block *larger = block;
            block = other;
            other = larger;
        }
        if (other && !keep(other)) unmap(other);
    }
}

static __attribute__((destructor)) void free_workspace(void) {
    for (uint32_t i = 0; i < KEPT; i++) {
        struct block *block = take(i);
        if (block) unmap(block);
    }
}
