/* Tests every check of docs/ABI.md, "What the checked entries check", on a module that is linked to
 * this program. */
#include "m.h"
#include "support.h"

PackedFn __tvm_ffi_add, __tvm_ffi_add_n, __tvm_ffi_window, __tvm_ffi_scalars,
    __tvm_ffi_no_tensors, __tvm_ffi_temporary;

static float a_data[128], b_data[128], c_data[128];
static int64_t hundred[1] = {100}, one_stride[1] = {1};

static DLTensor vector(void *data, int64_t *shape) {
    DLTensor t = {0};
    t.data = data;
    t.device.device_type = kDLCPU;
    t.ndim = 1;
    t.dtype.code = kDLFloat;
    t.dtype.bits = 32;
    t.dtype.lanes = 1;
    t.shape = shape;
    return t;
}

/* A Tensor object: a header of 24 bytes, then the tensor. */
typedef struct {
    char header[24];
    DLTensor tensor;
} Object;

static Cell cell(DLTensor *t) {
    Cell c = {DLTENSOR, 0, {0}};
    c.value.pointer = t;
    return c;
}

static Cell integer(int32_t type, int64_t value) {
    Cell c = {type, 0, {0}};
    c.value.integer = value;
    return c;
}

static Cell real(double value) {
    Cell c = {FLOAT, 0, {0}};
    c.value.real = value;
    return c;
}

static DLTensor A, B, C;

static void reset(void) {
    for (int i = 0; i < 128; i++) {
        a_data[i] = (float)i;
        b_data[i] = (float)(2 * i);
        c_data[i] = -1;
    }
    A = vector(a_data, hundred);
    B = vector(b_data, hundred);
    C = vector(c_data, hundred);
}

static int untouched(void) {
    for (int i = 0; i < 128; i++) {
        if (c_data[i] != -1) return 0;
    }
    return 1;
}

static int added(void) {
    for (int i = 0; i < 100; i++) {
        if (c_data[i] != (float)(3 * i)) return 0;
    }
    return c_data[100] == -1;
}

static int32_t packed(PackedFn *f, DLTensor *a, DLTensor *b, DLTensor *c) {
    Cell args[3] = {cell(a), cell(b), cell(c)}, ret = {0, 0, {0}};
    int32_t status = f(NULL, args, 3, &ret);
    EXPECT(ret.type == 0 && ret.zero == 0 && ret.value.integer == 0);
    return status;
}

/* Makes the call with Tensor objects, as Python does. */
static int32_t packed_objects(PackedFn *f, DLTensor *a, DLTensor *b, DLTensor *c) {
    Object objects[3];
    Cell args[3], ret = {0, 0, {0}};
    DLTensor *tensors[3] = {a, b, c};
    for (int i = 0; i < 3; i++) {
        objects[i].tensor = *tensors[i];
        args[i].type = OBJECT;
        args[i].zero = 0;
        args[i].value.pointer = &objects[i];
    }
    return f(NULL, args, 3, &ret);
}

/* All three kinds of calls refuse with the same text and write nothing. */
static void refused(const char *part, int line) {
    for (int way = 0; way < 3; way++) {
        int32_t status = way == 0 ? add_dl(&A, &B, &C)
                       : way == 1 ? packed(__tvm_ffi_add, &A, &B, &C)
                                  : packed_objects(__tvm_ffi_add, &A, &B, &C);
        if (status != -1 || !strstr(m_last_error(), part) || !untouched()) {
            printf("line %d, way %d: %d: %s\n", line, way, (int)status, m_last_error());
            failures++;
        }
        if (!strstr(m_last_error(), " (in `add(a: float32[100], b: float32[100], c: ")) {
            printf("line %d: no signature: %s\n", line, m_last_error());
            failures++;
        }
    }
    reset();
}
#define REFUSED(part) refused(part, __LINE__)

static void accepted(int line) {
    for (int way = 0; way < 3; way++) {
        int32_t status = way == 0 ? add_dl(&A, &B, &C)
                       : way == 1 ? packed(__tvm_ffi_add, &A, &B, &C)
                                  : packed_objects(__tvm_ffi_add, &A, &B, &C);
        if (status != 0 || !added()) {
            printf("line %d, way %d: %d: %s\n", line, way, (int)status, m_last_error());
            failures++;
        }
        for (int i = 0; i < 128; i++) c_data[i] = -1;
    }
    reset();
}
#define ACCEPTED() accepted(__LINE__)

static void fixed_shapes(void) {
    reset();
    EXPECT(add(a_data, b_data, c_data) == 0 && added());
    reset();
    ACCEPTED();
    A.strides = B.strides = C.strides = one_stride;
    ACCEPTED();

    /* 1: the type of the argument. */
    EXPECT_ERROR(add_dl(NULL, &B, &C), m_last_error(), "argument 1 `a`: the tensor is a null");
    EXPECT_ERROR(packed(__tvm_ffi_add, &A, NULL, &C), m_last_error(), "argument 2 `b`: the tensor");
    Cell args[4] = {cell(&A), cell(&B), cell(&C), cell(&C)}, ret = {0, 0, {0}};
    EXPECT_ERROR(__tvm_ffi_add(NULL, args, 2, &ret), m_last_error(), "expected 3 arguments, got 2");
    EXPECT_ERROR(__tvm_ffi_add(NULL, NULL, 0, &ret), m_last_error(), "expected 3 arguments, got 0");
    EXPECT_ERROR(__tvm_ffi_add(NULL, args, 4, &ret), m_last_error(), "expected 3 arguments, got 4");
    static const int32_t types[] = {0, 1, 2, 3, 4, 5, 6, 8, 11, 65, 71, 74, 78, 128, -1};
    static const char *const names[] = {
        "None",  "int", "bool", "float",  "a pointer", "a dtype",   "a device", "str",
        "str",   "str", "a list", "an object", "a big int", "an object", "an object",
    };
    for (int i = 0; i < (int)(sizeof types / sizeof types[0]); i++) {
        char text[64];
        args[1].type = types[i];
        snprintf(text, sizeof text, "argument 2 `b`: expected a tensor, got %s (in", names[i]);
        EXPECT_ERROR(__tvm_ffi_add(NULL, args, 3, &ret), m_last_error(), text);
    }
    EXPECT(untouched());

    /* 2: the number of dimensions, which is checked before the shape is read. */
    B.ndim = 2, B.shape = NULL;
    REFUSED("argument 2 `b`: expected 1 dimension, got 2");
    B.ndim = 0, B.shape = NULL;
    REFUSED("argument 2 `b`: expected 1 dimension, got 0");
    B.ndim = -1;
    REFUSED("argument 2 `b`: expected 1 dimension, got -1");
    B.shape = NULL;
    REFUSED("argument 2 `b`: the shape is a null pointer");

    /* 3: data type. */
    C.dtype.bits = 64;
    REFUSED("argument 3 `c`: expected dtype float32, got float64");
    A.dtype.code = kDLInt;
    REFUSED("argument 1 `a`: expected dtype float32, got int32");
    A.dtype.code = 5, A.dtype.bits = 64;
    REFUSED("got complex64");
    A.dtype.code = kDLBool, A.dtype.bits = 8;
    REFUSED("got bool");
    A.dtype.lanes = 4;
    REFUSED("got float32x4");
    A.dtype.code = 99;
    REFUSED("got DLPack type code 99 with bits 32");

    /* 4: device. */
    B.device.device_type = 2;
    REFUSED("argument 2 `b`: expected a tensor on the CPU, got one on cuda");
    B.device.device_type = 77;
    REFUSED("got one on device type 77");

    /* 5: shape. */
    int64_t other[1] = {99};
    B.shape = other;
    REFUSED("argument 2 `b`: expected extent 100 in dimension 0, got 99");
    other[0] = -100;
    B.shape = other;
    REFUSED("expected extent 100 in dimension 0, got -100");

    /* 6: strides. */
    for (int64_t stride = -1; stride <= 2; stride++) {
        if (stride == 1) continue;
        int64_t strides[1] = {stride};
        A.strides = strides;
        REFUSED("argument 1 `a`: expected a contiguous row-major tensor, but the stride of");
    }

    /* 7 and 8: data. */
    C.data = NULL;
    REFUSED("argument 3 `c`: the data is a null pointer");
    A.data = (char *)a_data + 1;
    REFUSED("argument 1 `a`: the data is not aligned to 4 bytes, the size of float32");
    A.byte_offset = 2;
    REFUSED("the data is not aligned to 4 bytes");
    A.data = (char *)a_data - 8, A.byte_offset = 8;
    ACCEPTED();

    /* Shared memory. */
    C.data = a_data + 99;
    REFUSED("argument 3 `c`: the output shares memory with argument 1 `a`");
    C.data = b_data;
    REFUSED("argument 3 `c`: the output shares memory with argument 2 `b`");
    B.data = a_data;
    EXPECT(add_dl(&A, &B, &C) == 0 && c_data[5] == 10);
    float area[300] = {0};
    A.data = area, C.data = area + 100, B.data = area + 200;
    EXPECT(add_dl(&A, &B, &C) == 0);
    reset();
}

static void other_shapes(void) {
    double in[12], out[12] = {0};
    for (int i = 0; i < 12; i++) in[i] = i;
    int64_t shape[3] = {3, 1, 4}, strides[3] = {4, 999, 1};
    DLTensor a = vector(in, shape), c = vector(out, shape);
    a.ndim = c.ndim = 3, a.dtype.bits = c.dtype.bits = 64, a.strides = strides;
    EXPECT(fixed_dl(&a, &c) == 0 && out[11] == 11);
    strides[0] = 8;
    EXPECT_ERROR(fixed_dl(&a, &c), m_last_error(), "stride of dimension 0 is 8 instead of 4 el");
    strides[0] = 4, shape[1] = 2;
    EXPECT_ERROR(fixed_dl(&a, &c), m_last_error(), "expected extent 1 in dimension 1, got 2");

    float from = 7, to = 0;
    a = vector(&from, NULL), c = vector(&to, NULL);
    a.ndim = c.ndim = 0;
    EXPECT(single_dl(&a, &c) == 0 && to == 7);

    /* No elements: strides and data do not matter. */
    int64_t none[2] = {4, 0}, odd[2] = {77, -5};
    a = vector(NULL, none), c = vector(NULL, none);
    a.ndim = c.ndim = 2, a.strides = odd;
    EXPECT(empty_dl(&a, &c) == 0);

    float eight[8] = {1}, first[16];
    int64_t n8[1] = {8};
    a = vector(eight, n8), c = vector(first, n8);
    DLTensor d = vector(first + 8, n8);
    EXPECT(both_dl(&a, &c, &d) == 0 && first[8] == 1);
    d.data = first + 7;
    EXPECT_ERROR(both_dl(&a, &c, &d), m_last_error(),
                 "argument 3 `d`: the output shares memory with argument 2 `c`");
}

static void symbolic_shapes(void) {
    int64_t n[1] = {100}, m[1] = {100};
    reset();
    A.shape = B.shape = n, C.shape = m;
    EXPECT(add_n_dl(&A, &B, &C) == 0 && added());
    EXPECT(packed(__tvm_ffi_add_n, &A, &B, &C) == 0);
    m[0] = 99;
    EXPECT_ERROR(add_n_dl(&A, &B, &C), m_last_error(),
                 "argument 3 `c`: expected extent 100 in dimension 0 (`n`, from dimension 0 of "
                 "argument 1 `a`), got 99");
    n[0] = m[0] = -1;
    EXPECT_ERROR(add_n_dl(&A, &B, &C), m_last_error(),
                 "argument 1 `a`: the extent of dimension 0 is negative: -1");
    n[0] = m[0] = 0, A.data = B.data = C.data = NULL;
    EXPECT(add_n_dl(&A, &B, &C) == 0);
    n[0] = m[0] = INT64_MAX / 2, A.data = B.data = C.data = a_data;
    EXPECT_ERROR(add_n_dl(&A, &B, &C), m_last_error(), "more bytes than 63 bits count");
    n[0] = m[0] = 1;
    int64_t stride[1] = {-9};
    A.strides = stride, C.data = c_data;
    EXPECT(add_n_dl(&A, &B, &C) == 0);

    int64_t shape[2] = {3, 4}, strides[2] = {4, 1};
    float in[12] = {0}, out[12];
    in[11] = 11;
    DLTensor a = vector(in, shape), c = vector(out, shape);
    a.ndim = c.ndim = 2, a.strides = strides;
    EXPECT(rows_dl(&a, &c) == 0 && out[11] == 11);
    strides[0] = 5;
    EXPECT_ERROR(rows_dl(&a, &c), m_last_error(), "stride of dimension 0 is 5 instead of 4");
    strides[0] = 3, strides[1] = 3;
    EXPECT_ERROR(rows_dl(&a, &c), m_last_error(), "stride of dimension 1 is 3 instead of 1");
    strides[0] = 4, strides[1] = 77, shape[0] = 12, shape[1] = 1;
    EXPECT_ERROR(rows_dl(&a, &c), m_last_error(), "stride of dimension 0 is 4 instead of 1");
    strides[0] = 1;
    EXPECT(rows_dl(&a, &c) == 0);
    shape[0] = INT64_C(1) << 40, shape[1] = INT64_C(1) << 40, a.strides = NULL;
    EXPECT_ERROR(rows_dl(&a, &c), m_last_error(), "more bytes than 63 bits count");
    shape[1] = 0;
    EXPECT(rows_dl(&a, &c) == 0);
}

/* The kernel's own conditions. */
static void conditions(void) {
    int64_t n[1] = {100}, m[1] = {98};
    reset();
    A.shape = n, C.shape = m;
    EXPECT(window_dl(&A, &C, 3) == 0 && c_data[97] == 97 + 99);
    Cell args[3] = {cell(&A), cell(&C), integer(INT, 3)}, ret = {0, 0, {0}};
    EXPECT(__tvm_ffi_window(NULL, args, 3, &ret) == 0);
    reset();
    A.shape = n, C.shape = m, m[0] = 97;
    EXPECT_ERROR(window_dl(&A, &C, 3), m_last_error(),
                 "`c` has extent 97, but `n - 2` is 98 \xe2\x80\x93 too bad (in `window(a: ");
    EXPECT_ERROR(__tvm_ffi_window(NULL, args, 3, &ret), m_last_error(), "`c` has extent 97");
    m[0] = 98;
    EXPECT_ERROR(window_dl(&A, &C, INT64_C(1) << 40), m_last_error(),
                 "64-bit overflow in the condition of: square ? (in");
    EXPECT(untouched());
    m[0] = -2, n[0] = 0;
    EXPECT_ERROR(window_dl(&A, &C, 3), m_last_error(), "the extent of dimension 0 is negative: -2");
    args[2] = real(3);
    EXPECT_ERROR(__tvm_ffi_window(NULL, args, 3, &ret), m_last_error(), "is negative: -2");

    Cell k = integer(INT, 7);
    EXPECT(no_tensors(7) == 0 && no_tensors_dl(7) == 0);
    EXPECT(__tvm_ffi_no_tensors(NULL, &k, 1, &ret) == 0);
    k.type = BOOL;
    EXPECT(__tvm_ffi_no_tensors(NULL, &k, 1, &ret) == 0);
    k.type = FLOAT;
    EXPECT_ERROR(__tvm_ffi_no_tensors(NULL, &k, 1, &ret), m_last_error(),
                 "argument 1 `k`: expected int, got float (in `no_tensors(k: int)`)");
}

static void memory(void) {
    reset();
    for (int64_t m = 100; m < 3000000; m *= 3) {
        for (int i = 0; i < 100; i++) c_data[i] = -1;
        EXPECT(temporary_dl(&A, &C, m) == 0 && c_data[99] == 99);
        EXPECT(temporary(a_data, c_data, m) == 0);
    }
    reset();
    EXPECT_ERROR(temporary_dl(&A, &C, INT64_C(1) << 46), m_last_error(),
                 "out of memory for the temporary tensors (in `temporary(");
    EXPECT_ERROR(temporary_dl(&A, &C, INT64_MAX), m_last_error(), "out of memory");
    EXPECT(temporary(a_data, c_data, INT64_C(1) << 46) == 1);
    Cell args[3] = {cell(&A), cell(&C), integer(INT, INT64_C(1) << 46)}, ret = {0, 0, {0}};
    EXPECT_ERROR(__tvm_ffi_temporary(NULL, args, 3, &ret), m_last_error(), "out of memory");
    EXPECT(untouched());
}

/* One output for each scalar type, in order. */
static union {
    double f64;
    float f32;
    uint16_t half;
    int8_t i8;
    int16_t i16;
    int32_t i32;
    int64_t i64;
    uint64_t u64;
    uint8_t u8;
} out[14];
static DLTensor outs[14];
static const struct {
    uint8_t code, bits;
} types[14] = {
    {kDLFloat, 64}, {kDLFloat, 32}, {kDLFloat, 16}, {kDLBfloat, 16}, {kDLInt, 8},
    {kDLInt, 16},   {kDLInt, 32},   {kDLInt, 64},   {kDLUInt, 8},    {kDLUInt, 16},
    {kDLUInt, 32},  {kDLUInt, 64},  {kDLBool, 8},   {kDLInt, 64},
};

static void scalar_values(int line) {
    int ok = out[0].f64 == 0.1 && out[1].f32 == 0.1f && out[2].half == 0x2e66
          && out[3].half == 0x3dcd && out[4].i8 == -128 && out[5].i16 == -32768
          && out[6].i32 == INT32_MIN && out[7].i64 == INT64_MIN && out[8].u8 == 255
          && out[9].half == 65535 && out[10].i32 == -1 && out[11].u64 == UINT64_MAX
          && out[12].u8 == 1 && out[13].i64 == -5;
    if (!ok) {
        printf("line %d: wrong scalars\n", line);
        failures++;
    }
    memset(out, 0, sizeof out);
}

static int32_t call_scalars(const Cell in[14]) {
    Cell args[28], ret = {0, 0, {0}};
    for (int i = 0; i < 13; i++) args[i] = in[i];
    for (int i = 0; i < 14; i++) args[13 + i] = cell(&outs[i]);
    args[27] = in[13];
    return __tvm_ffi_scalars(NULL, args, 28, &ret);
}

/* Rounds a double to a half by a call. */
static uint16_t half_of(double value, int which) {
    Cell in[14];
    for (int i = 0; i < 14; i++) in[i] = integer(INT, 0);
    in[which] = real(value);
    EXPECT(call_scalars(in) == 0);
    return out[which].half;
}

static void scalar_arguments(void) {
    static int64_t one[1] = {1};
    for (int i = 0; i < 14; i++) {
        outs[i] = vector(&out[i], one);
        outs[i].dtype.code = types[i].code, outs[i].dtype.bits = types[i].bits;
    }
    EXPECT(scalars(0.1, 0.1f, 0x2e66, 0x3dcd, -128, -32768, INT32_MIN, INT64_MIN, 255, 65535,
                   UINT32_MAX, UINT64_MAX, true, &out[0].f64, &out[1].f32, &out[2].half,
                   &out[3].half, &out[4].i8, &out[5].i16, &out[6].i32, &out[7].i64, &out[8].u8,
                   &out[9].half, (uint32_t *)&out[10].i32, &out[11].u64, (bool *)&out[12].u8,
                   &out[13].i64, -5)
           == 0);
    scalar_values(__LINE__);
    DLTensor *o = outs;
    EXPECT(scalars_dl(0.1, 0.1f, 0x2e66, 0x3dcd, -128, -32768, INT32_MIN, INT64_MIN, 255, 65535,
                      UINT32_MAX, UINT64_MAX, true, o, o + 1, o + 2, o + 3, o + 4, o + 5, o + 6,
                      o + 7, o + 8, o + 9, o + 10, o + 11, o + 12, o + 13, -5)
           == 0);
    scalar_values(__LINE__);
    Cell in[14] = {
        real(0.1), real(0.1), real(0.1), real(0.1),
        integer(INT, -128), integer(INT, -32768), integer(INT, INT32_MIN), integer(INT, INT64_MIN),
        integer(INT, 255), integer(INT, 65535), integer(INT, UINT32_MAX), integer(POINTER, -1),
        integer(BOOL, 1), integer(INT, -5),
    };
    EXPECT(call_scalars(in) == 0);
    scalar_values(__LINE__);
    /* Ints are accepted for floats and bools. */
    for (int i = 0; i < 4; i++) in[i] = integer(INT, 3);
    in[12] = integer(INT, 8), in[11] = integer(INT, 5);
    EXPECT(call_scalars(in) == 0 && out[0].f64 == 3 && out[1].f32 == 3 && out[2].half == 0x4200
           && out[3].half == 0x4040 && out[11].u64 == 5 && out[12].u8 == 1);
    /* An int argument for a float32 is rounded once. */
    in[1] = integer(INT, (INT64_C(1) << 54) + (INT64_C(1) << 30) + 1);
    EXPECT(call_scalars(in) == 0);
    EXPECT(out[1].f32 == 18014400656965632.0f);
    in[1] = integer(INT, 3);

    static const struct {
        int which;
        int64_t value;
        const char *text;
    } ranges[] = {
        {4, 128, "argument 5 `s_int8`: 128 does not fit int8"},
        {4, -129, "-129 does not fit int8"},
        {5, 32768, "does not fit int16"},
        {6, INT64_C(1) << 31, "2147483648 does not fit int32"},
        {8, 256, "does not fit uint8"},
        {8, -1, "argument 9 `s_uint8`: -1 does not fit uint8"},
        {9, 65536, "does not fit uint16"},
        {10, INT64_C(1) << 32, "does not fit uint32"},
        {11, -1, "-1 does not fit uint64"},
    };
    for (int i = 0; i < (int)(sizeof ranges / sizeof ranges[0]); i++) {
        Cell kept = in[ranges[i].which];
        in[ranges[i].which] = integer(INT, ranges[i].value);
        EXPECT_ERROR(call_scalars(in), m_last_error(), ranges[i].text);
        in[ranges[i].which] = kept;
    }
    for (int i = 0; i < 14; i++) {
        Cell kept = in[i];
        in[i] = integer(11, 0);
        EXPECT_ERROR(call_scalars(in), m_last_error(), ", got str (in `scalars(");
        in[i] = kept;
    }
    in[7] = real(1);
    EXPECT_ERROR(call_scalars(in), m_last_error(), "argument 8 `s_int64`: expected int, got float");
    in[7] = integer(78, 1);
    EXPECT_ERROR(call_scalars(in), m_last_error(), "expected int, got a big int");

    /* Rounding to halves: ties, carries, denormals, overflow, NaN. */
    EXPECT(half_of(1.0 + 1.0 / 2048, 2) == 0x3c00 && half_of(1.0 + 3.0 / 2048, 2) == 0x3c02);
    EXPECT(half_of(65519.999, 2) == 0x7bff && half_of(65520, 2) == 0x7c00);
    EXPECT(half_of(-1e300, 2) == 0xfc00 && half_of(0x1p-24, 2) == 1 && half_of(0x1p-25, 2) == 0);
    EXPECT(half_of(0x1.000001p-25, 2) == 1 && half_of(0x1.ffcp-15, 2) == 0x0400);
    EXPECT(half_of(-0.0, 2) == 0x8000 && half_of(4e-320, 2) == 0 && half_of(0x1p-1022, 3) == 0);
    EXPECT(half_of(1e39, 3) == 0x7f80 && half_of(0x1.ffp127, 3) == 0x7f80);
    EXPECT(half_of(0x1p-133, 3) == 1 && half_of(0x1p-134, 3) == 0);
    double zero = 0;
    EXPECT((half_of(zero / zero, 2) & 0x7fff) > 0x7c00);
    EXPECT((half_of(zero / zero, 3) & 0x7fff) > 0x7f80);
}

int main(void) {
    fixed_shapes();
    other_shapes();
    symbolic_shapes();
    conditions();
    memory();
    scalar_arguments();
    EXPECT(strstr(m_manifest(), "\"module\": \"m\"") != NULL);
    m_set_num_threads(2);
    m_set_parallel_for(NULL, NULL);
    return finish();
}
