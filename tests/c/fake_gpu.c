/* A GPU for `tec tune`, with the driver of fake_cuda.c: every launch adds one to 64 numbers and
 * takes a time that depends on its block.
 *
 * FAKE_GPU_KILLS=N: blocks of N threads access memory illegally, which ruins the context.
 * FAKE_GPU_WRONG=N: blocks of N threads compute the last element wrongly. */
#include <stdint.h>
#include <stdlib.h>

typedef int32_t (*LaunchFn)(const char *ptx, const char *kernel, const uint32_t *grid,
                            const uint32_t *block, uint32_t shared, int32_t count,
                            const int32_t *sizes, void **params);
void fake_on_launch(LaunchFn run);
void fake_on_elapsed(float (*elapsed)(void));

enum { COUNT = 64, ILLEGAL = 700 };

static int dead;
static float milliseconds;

static int is_block(const char *variable, uint32_t threads) {
    const char *text = getenv(variable);
    return text && (uint32_t)atoi(text) == threads;
}

static int32_t launch(const char *ptx, const char *kernel, const uint32_t *grid,
                      const uint32_t *block, uint32_t shared, int32_t count,
                      const int32_t *sizes, void **params) {
    (void)ptx, (void)kernel, (void)grid, (void)shared, (void)sizes;
    uint32_t threads = block[0] * block[1] * block[2];
    if (is_block("FAKE_GPU_KILLS", threads)) dead = 1;
    if (dead) return ILLEGAL;
    if (count != 2) return 1;
    /* Parameters are in the order of their first use; the result holds a pattern at first. */
    static int output = -1;
    if (output < 0) output = **(uint32_t **)params[0] == 0xa5a5a5a5 ? 0 : 1;
    const float *from = *(float **)params[1 - output];
    float *to = *(float **)params[output];
    for (int i = 0; i < COUNT; i++) to[i] = from[i] + 1;
    if (is_block("FAKE_GPU_WRONG", threads)) to[COUNT - 1] += 1;
    milliseconds += 1 + (float)threads / 64;
    return 0;
}

static float elapsed(void) {
    float all = milliseconds;
    milliseconds = 0;
    return all;
}

__attribute__((constructor)) static void start(void) {
    fake_on_launch(launch);
    fake_on_elapsed(elapsed);
}
