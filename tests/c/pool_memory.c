/* The workspace: alignment, reuse of blocks, release. */
#include "pool.h"

enum { BLOCKS = 100, PLACES = 64 };

static const uint64_t megabyte = 1 << 20;

static int aligned(void *memory, uint64_t bytes) {
    /* Large blocks are in huge pages. */
    uint64_t page = bytes >= 2 * megabyte ? 2 * megabyte : 4096;
    return ((uintptr_t)memory - 64) % page == 0;
}

/* Bytes of all anonymous mappings. */
static uint64_t mapped(void) {
    char line[1024];
    uint64_t bytes = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to, inode = 0;
        if (sscanf(line, "%lx-%lx %*s %*s %*s %lu", &from, &to, &inode) < 2) continue;
        if (inode == 0) bytes += to - from;
    }
    fclose(maps);
    return bytes;
}

static void of_every_size(void) {
    for (uint64_t bytes = 1; bytes <= 40 * megabyte; bytes += 1 + bytes / 3) {
        char *memory = pool_acquire(bytes);
        EXPECT(memory && aligned(memory, bytes));
        memory[0] = 1, memory[bytes - 1] = 2;
        pool_release(memory);
        EXPECT(pool_acquire(bytes) == memory && memory[bytes - 1] == 2);
        pool_release(memory);
    }
    EXPECT(pool_acquire((uint64_t)-1) == NULL);
    EXPECT(pool_acquire(((uint64_t)1 << 62) + 1) == NULL);
    EXPECT(pool_acquire((uint64_t)1 << 50) == NULL);
}

static void the_best_fit(void) {
    char *small = pool_acquire(100000), *large = pool_acquire(300000);
    pool_release(large);
    pool_release(small);
    EXPECT(pool_acquire(90000) == small);
    EXPECT(pool_acquire(90000) == large);
    EXPECT(pool_acquire(90000) != large);
    pool_release(large);
    /* A block that is far too large is not used. */
    char *smaller = pool_acquire(10000);
    EXPECT(smaller != large && smaller != small);
}

static void the_largest_stay(void) {
    static char *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        uint64_t bytes = 5000 * (uint64_t)(i + 1);
        blocks[i] = pool_acquire(bytes);
        memset(blocks[i], i, bytes);
    }
    for (int i = 0; i < BLOCKS; i++) {
        EXPECT(blocks[i][0] == i && blocks[i][5000 * (i + 1) - 1] == i);
    }
    for (int i = 0; i < BLOCKS; i++) pool_release(blocks[i]);
    int known = 0;
    for (int i = BLOCKS; i-- > 0;) {
        char *again = pool_acquire(5000 * (uint64_t)(i + 1));
        for (int k = 0; k < BLOCKS; k++) known += blocks[k] == again;
        if (i >= BLOCKS - PLACES) EXPECT(known == BLOCKS - i);
    }
}

int main(void) {
    load_pool();
    pool_release(pool_acquire(1));
    unload_pool();
    void (*tests[])(void) = {of_every_size, the_best_fit, the_largest_stay};
    for (int i = 0; i < 3; i++) {
        load_pool();
        tests[i]();
        unload_pool();
    }
    /* Unloading the library frees released blocks. */
    uint64_t before = mapped();
    load_pool();
    void *memory[3];
    for (int i = 0; i < 3; i++) memory[i] = pool_acquire(megabyte << i);
    EXPECT(mapped() >= before + 7 * megabyte);
    for (int i = 0; i < 3; i++) pool_release(memory[i]);
    unload_pool();
    EXPECT(mapped() == before);
    return finish();
}
