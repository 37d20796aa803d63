/* Packs weights once and calls the kernel that reads them packed: raw and checked entries, constant
 * and run-time extents. */
#include "support.h"
#include "mm.h"
#include "rt.h"

enum { N = 70, CALLS = 2 };

static float *numbers(int64_t count, int seed) {
    float *values = malloc(sizeof(float) * (size_t)(count + 1));
    for (int64_t i = 0; i < count; i++) values[i] = (float)((i * 37 + seed * 11) % 101) / 7.0f;
    return values;
}

/* Memory for a packed input, filled with NaN. */
static void *room(int64_t bytes) {
    void *memory = aligned_alloc(64, (size_t)((bytes + 127) / 64 * 64));
    memset(memory, 0xff, (size_t)bytes);
    return memory;
}

static DLTensor tensor(void *data, int ndim, int64_t *shape) {
    DLTensor t = {data, {kDLCPU, 0}, ndim, {kDLFloat, 32, 1}, shape, NULL, 0};
    return t;
}

static int same(const float *a, const float *b, int64_t count) {
    return memcmp(a, b, sizeof(float) * (size_t)count) == 0;
}

/* Constant extents. */
static void fixed(void) {
    float *b = numbers(N * N, 1);
    int64_t bytes = matmul_add_pack_B_bytes();
    EXPECT(bytes >= (int64_t)sizeof(float) * N * N && bytes % (int64_t)(sizeof(float) * N) == 0);
    void *packed = room(bytes), *again = room(bytes);
    EXPECT(matmul_add_pack_B(b, packed) == 0);
    int64_t shape[2] = {N, N}, width = 0;
    /* The packed shape is [panels, N, width]. The width is a few vectors: 16 or 64 lanes. */
    for (int64_t w = 16; w <= 64; w *= 4) {
        if ((N + w - 1) / w * w * N * (int64_t)sizeof(float) == bytes) width = w;
    }
    int64_t panels[3] = {(N + width - 1) / width, N, width};
    DLTensor tb = tensor(b, 2, shape), tp = tensor(again, 3, panels);
    EXPECT(matmul_add_pack_B_dl(&tb, &tp) == 0);
    EXPECT(memcmp(packed, again, (size_t)bytes) == 0);
    for (int call = 0; call < CALLS; call++) {
        float *a = numbers(N * N, 2 + call), *c = numbers(N * N, 5 + call);
        float *expected = numbers(N * N, 0), *raw = numbers(N * N, 0), *dl = numbers(N * N, 0);
        EXPECT(matmul_add(a, b, c, expected) == 0);
        EXPECT(matmul_add_prepacked(a, packed, c, raw) == 0);
        EXPECT(same(raw, expected, N * N));
        DLTensor ta = tensor(a, 2, shape), tc = tensor(c, 2, shape), to = tensor(dl, 2, shape);
        EXPECT_ERROR(matmul_add_prepacked_dl(&ta, &tb, &tc, &to), mm_last_error(),
                     "argument 2 `B`: expected 3 dimensions, got 2");
        panels[0] -= 1;
        EXPECT_ERROR(matmul_add_prepacked_dl(&ta, &tp, &tc, &to), mm_last_error(),
                     "argument 2 `B`: expected extent");
        panels[0] += 1;
        tp.data = dl;
        EXPECT_ERROR(matmul_add_prepacked_dl(&ta, &tp, &tc, &to), mm_last_error(), "memory");
        tp.data = again;
        EXPECT(matmul_add_prepacked_dl(&ta, &tp, &tc, &to) == 0);
        EXPECT(same(dl, expected, N * N));
        free(a), free(c), free(expected), free(raw), free(dl);
    }
    free(b), free(packed), free(again);
}

/* Run-time extents, both inputs packed. */
static void run_time(int64_t n, int64_t l, int64_t m) {
    float *a = numbers(n * l, 3), *b = numbers(l * m, 4);
    int64_t of_a = rt_pack_A_bytes(n, l), of_b = rt_pack_B_bytes(l, m);
    EXPECT(of_a == (n + 3) / 4 * l * 4 * (int64_t)sizeof(float));
    EXPECT(of_b == (m + 31) / 32 * l * 32 * (int64_t)sizeof(float));
    void *pa = room(of_a), *pb = room(of_b);
    EXPECT(rt_pack_A(a, pa, n, l) == 0);
    EXPECT(rt_pack_B(b, pb, l, m) == 0);
    float *expected = numbers(n * m, 0), *actual = numbers(n * m, 1);
    EXPECT(rt(a, b, expected, n, l, m) == 0);
    EXPECT(rt_prepacked(pa, pb, actual, n, l, m) == 0);
    EXPECT(same(actual, expected, n * m));
    int64_t rows[3] = {(n + 3) / 4, l, 4}, columns[3] = {(m + 31) / 32 + 1, l, 32};
    int64_t shape[2] = {n, m};
    DLTensor ta = tensor(pa, 3, rows), tb = tensor(pb, 3, columns), tc = tensor(actual, 2, shape);
    EXPECT_ERROR(rt_prepacked_dl(&ta, &tb, &tc), rt_last_error(),
                 "argument 2 `B`: extent of dimension 0 must be `(m + 31) // 32`");
    free(a), free(b), free(pa), free(pb), free(expected), free(actual);
}

int main(void) {
    fixed();
    run_time(37, 21, 50);
    run_time(4, 8, 32);
    run_time(1, 1, 1);
    return failures != 0;
}
