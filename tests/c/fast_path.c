/* The fast path of an entry accepts no call that the complete check refuses. `quick` has a fast
 * path; `thorough` has none, because of a float16 scalar. Both take the same tensors. */
#include "m.h"
#include "support.h"

PackedFn __tvm_ffi_quick, __tvm_ffi_thorough;

static uint64_t state = 0x9e3779b97f4a7c15u;

static uint32_t below(uint32_t n) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32) % n;
}

static int64_t some_extent(void) {
    static const int64_t values[] = {0,         1,         2,         3,          5,
                                     -1,        INT64_MIN, INT64_MAX, (int64_t)1 << 31,
                                     1 << 20,   (int64_t)1 << 61, (int64_t)1 << 40};
    return values[below(12)];
}

/* Copies the last message without the name of the function. */
static void take_message(char *out) {
    const char *text = m_last_error(), *end = strstr(text, " (in `");
    size_t n = end ? (size_t)(end - text) : strlen(text);
    memcpy(out, text, n);
    out[n] = 0;
}

int main(void) {
    enum { ROUNDS = 40000 };
    long accepted = 0;
    for (int round = 0; round < ROUNDS && failures < 10; round++) {
        int64_t n = 1 + below(4), m = 1 + below(4);
        int64_t shapes[3][2] = {{n, m}, {m, 3}, {n, 3}}, strides[3][2] = {{m, 1}, {3, 1}, {3, 1}};
        DLTensor tensors[3];
        Cell args[4];
        memset(tensors, 0, sizeof tensors);
        memset(args, 0, sizeof args);
        for (int i = 0; i < 3; i++) {
            DLTensor *t = &tensors[i];
            t->data = (void *)(uintptr_t)(0x10000 + 64 * i);
            t->device.device_type = kDLCPU;
            t->ndim = 2;
            t->dtype.code = kDLFloat, t->dtype.bits = 32, t->dtype.lanes = 1;
            t->shape = shapes[i];
            t->strides = below(3) ? strides[i] : NULL;
            args[i].type = DLTENSOR;
            args[i].value.pointer = t;
        }
        args[3].type = FLOAT;
        /* Changes up to three properties of the arguments. */
        for (uint32_t changes = below(4); changes > 0; changes--) {
            int i = (int)below(3), k = (int)below(2);
            DLTensor *t = &tensors[i];
            switch (below(12)) {
            case 0: shapes[i][k] = some_extent(); break;
            case 1: strides[i][k] = some_extent(); break;
            case 2: n = some_extent(), shapes[0][0] = shapes[2][0] = n; break;
            case 3: m = some_extent(), shapes[0][1] = shapes[1][0] = strides[0][0] = m; break;
            case 4: t->data = (void *)(uintptr_t)(0x10000 + 4 * below(48)); break;
            case 5: t->byte_offset = below(9); break;
            case 6: t->ndim = (int32_t)below(4); break;
            case 7: t->dtype.bits = below(2) ? 32 : 16; break;
            case 8: t->device.device_type = (int)below(3); break;
            case 9: t->data = NULL; break;
            case 10: args[i].type = (int32_t)below(12); break;
            case 11: args[i].value.pointer = below(4) ? t : NULL; break;
            }
        }
        Cell ret = {0, 0, {0}};
        char quick_text[2048] = "", thorough_text[2048] = "";
        int32_t quick_status = __tvm_ffi_quick(NULL, args, 3, &ret);
        if (quick_status != 0) take_message(quick_text);
        int32_t thorough_status = __tvm_ffi_thorough(NULL, args, 4, &ret);
        if (thorough_status != 0) take_message(thorough_text);
        accepted += quick_status == 0;
        if (quick_status != thorough_status || strcmp(quick_text, thorough_text) != 0) {
            printf("round %d: %d, %d\n%s\n%s\n", round, (int)quick_status, (int)thorough_status,
                   quick_text, thorough_text);
            failures++;
        }
    }
    EXPECT(accepted > ROUNDS / 5 && accepted < ROUNDS * 4 / 5);
    return finish();
}
