/* Tests the entries of a module for GPUs, linked to this program, with the driver of `fake_cuda.c`.
 * argv[1] selects the part. */
#include "m.h"
#include "support.h"
#include <inttypes.h>
#include <pthread.h>

PackedFn __tvm_ffi_add, __tvm_ffi_chain, __tvm_ffi_gather;

const char *fake_log(void);
void fake_clear(void);
void fake_devices(int32_t count, int32_t capability, int32_t pools);
void fake_fail(const char *function, int32_t result);
void *fake_context(int32_t device);
void *fake_primary(int32_t device);
void fake_end(void *context), fake_begin(void *context), fake_set_current(void *context);
void fake_fault(void *context, int32_t result), fake_stream(void *stream, void *context);
int32_t fake_depth(void), fake_loaded_modules(void), fake_allocations(void), fake_misuses(void);

static _Alignas(16) float a_data[1024], b_data[1024], c_data[1024];
static int64_t thousand[1] = {1000}, other[1] = {999}, zero[1] = {0};

static DLTensor vector(void *data, int64_t *shape, int32_t device) {
    DLTensor t = {0};
    t.data = data;
    t.device.device_type = kDLCUDA;
    t.device.device_id = device;
    t.ndim = 1;
    t.dtype.code = kDLFloat;
    t.dtype.bits = 32;
    t.dtype.lanes = 1;
    t.shape = shape;
    return t;
}

static Cell cell(DLTensor *t) {
    Cell c = {DLTENSOR, 0, {0}};
    c.value.pointer = t;
    return c;
}

static Cell number(int32_t type, int64_t value) {
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
static void *const STREAM = (void *)0x5712ea;

static void reset(int64_t *shape, int32_t device) {
    if (device >= 0 && device < 8) fake_stream(STREAM, fake_primary(device));
    A = vector(a_data, shape, device);
    B = vector(b_data, shape, device);
    C = vector(c_data, shape, device);
    fake_clear();
}

static int32_t add_packed(void) {
    Cell cells[3] = {cell(&A), cell(&B), cell(&C)}, result = {0, 0, {0}};
    return __tvm_ffi_add(NULL, cells, 3, &result);
}

/* Requires a line in the log. */
#define EXPECT_LOG(...) \
    do { \
        char line[512]; \
        snprintf(line, sizeof line, __VA_ARGS__); \
        if (!strstr(fake_log(), line)) { \
            printf("line %d: no %sin\n%s", __LINE__, line, fake_log()); \
            failures++; \
        } \
    } while (0)

/* Allocations that are not freed, other than the marks of contexts. */
static int32_t temporaries(void) { return fake_allocations() - fake_loaded_modules(); }

#define ADDRESS(x) (uint64_t)(uintptr_t)(x)

static void launches(void) {
    reset(thousand, 0);
    EXPECT(add_dl(&A, &B, &C, STREAM) == 0);
    EXPECT_LOG("init 0\n");
    EXPECT_LOG("retain 0\nload on 0\nattribute 8 of chain_0 is 151552\nalloc 1\npool 1 1 0\n"
               "pool attribute 4 is ffffffffffffffff\n");
    EXPECT_LOG("launch add on 0 stream 0x5712ea grid 4 1 1 block 256 1 1 shared 0 params %" PRIx64
               " %" PRIx64 " %" PRIx64 " 3e8\n",
               ADDRESS(a_data), ADDRESS(b_data), ADDRESS(c_data));
    EXPECT(fake_depth() == 0);

    /* The second call loads nothing. */
    fake_clear();
    A.byte_offset = 16;
    EXPECT(add_dl(&A, &B, &C, NULL) == 0);
    EXPECT(strncmp(fake_log(), "launch add on 0 stream (nil) grid 4 1 1", 39) == 0);
    EXPECT(strchr(fake_log(), '\n')[1] == 0);
    EXPECT_LOG("params %" PRIx64 " ", ADDRESS(a_data) + 16);

    /* The raw entry uses the current context, else device 0. */
    reset(thousand, 0);
    EXPECT(add(a_data, b_data, c_data, 257, STREAM) == 0);
    EXPECT_LOG("launch add on 0 stream 0x5712ea grid 2 1 1");
    EXPECT(add_packed() == 0);
    EXPECT_LOG("launch add on 0 stream (nil) grid 4 1 1");

    /* Nothing to do: no launch. */
    reset(zero, 0);
    A.data = B.data = C.data = NULL;
    EXPECT(add_dl(&A, &B, &C, STREAM) == 0);
    EXPECT(fake_log()[0] == 0);

    /* Two launches, temporaries, shared memory, scalars. */
    reset(thousand, 0);
    EXPECT(chain_dl(&A, -1.5, 0x3c00, -3, true, &C, 2, STREAM) == 0);
    const char *at = strstr(fake_log(), "alloc 6144 from the pool stream 0x5712ea\n");
    EXPECT(at != NULL);
    unsigned long long t = 0, t1 = 0, u = 0;
    char format[256];
    snprintf(format, sizeof format,
             "launch chain_0 on 0 stream 0x5712ea grid 1000 2 1 block 32 4 2 shared 151552 params "
             "%" PRIx64 " bff8000000000000 3c00 fd 1 %%llx 7d7\n", ADDRESS(a_data));
    at = strstr(fake_log(), "launch chain_0");
    EXPECT(at && sscanf(at, format, &t) == 1);
    snprintf(format, sizeof format,
             "launch chain_1 on 0 stream 0x5712ea grid 1 1 1 block 1 1 1 shared 0 params "
             "%%llx %%llx %" PRIx64 " 2\n", ADDRESS(c_data));
    at = strstr(fake_log(), "launch chain_1");
    EXPECT(at && sscanf(at, format, &u, &t1) == 2);
    EXPECT(t == t1 && u == t + 4096 && t % 256 == 0);
    EXPECT(at && strstr(at, "\nfree stream 0x5712ea\n"));
    EXPECT(temporaries() == 0);

    Cell cells[7] = {cell(&A), real(-1.5), real(1), number(INT, -3), number(BOOL, 1), cell(&C),
                     number(INT, 2)}, result = {0, 0, {0}};
    fake_clear();
    EXPECT(__tvm_ffi_chain(NULL, cells, 7, &result) == 0);
    EXPECT_LOG(" bff8000000000000 3c00 fd 1 ");
}

/* Checks that differ from those of modules for CPUs, which are in `entries.c`. */
static void checks(void) {
    reset(thousand, 1);
    B.shape = other;
    EXPECT_ERROR(add_dl(&A, &B, &C, NULL), m_last_error(),
                 "argument 2 `b`: expected extent 1000 in dimension 0 (`n`, from dimension 0 of "
                 "argument 1 `a`), got 999 (in `add(a: float32[n], b: float32[n], "
                 "c: float32[n])`)");
    EXPECT_ERROR(add_packed(), m_last_error(), "argument 2 `b`: expected extent 1000");
    reset(thousand, 1);
    B.device.device_type = kDLCPU;
    EXPECT_ERROR(add_dl(&A, &B, &C, NULL), m_last_error(),
                 "argument 2 `b`: expected a tensor on a CUDA device, got one on cpu");
    reset(thousand, 1);
    C.device.device_id = 0;
    EXPECT_ERROR(add_dl(&A, &B, &C, NULL), m_last_error(),
                 "argument 3 `c`: expected a tensor on cuda:1, the device of argument 1 `a`, got "
                 "one on cuda:0");
    reset(thousand, 0);
    C.data = a_data + 12;
    EXPECT_ERROR(add_dl(&A, &B, &C, NULL), m_last_error(),
                 "argument 3 `c`: the output shares memory with argument 1 `a`");
    C.data = c_data;
    A.byte_offset = 8;
    EXPECT_ERROR(add_dl(&A, &B, &C, NULL), m_last_error(),
                 "argument 1 `a`: the data is not aligned to 16 bytes, the size of vectors of 4 "
                 "float32 (in `add");
    EXPECT_ERROR(add_packed(), m_last_error(), "argument 1 `a`: the data is not aligned to 16 byt");
    A.byte_offset = 0;
    C.data = (char *)c_data + 1;
    EXPECT_ERROR(add_dl(&A, &B, &C, NULL), m_last_error(), "argument 3 `c`: the data is not align");
    EXPECT(!strstr(fake_log(), "launch"));
    EXPECT(!strstr(fake_log(), "load"));

    /* A tensor of one element with an odd stride is accepted by the complete check. */
    static int64_t one[1] = {1}, stride[1] = {17};
    reset(one, 0);
    A.strides = stride;
    EXPECT(add_dl(&A, &B, &C, STREAM) == 0);
    EXPECT_LOG("stream 0x5712ea grid 1 1 1");

    /* The grid exceeds the limits of every GPU. */
    reset(thousand, 0);
    EXPECT_ERROR(chain_dl(&A, 0, 0, 0, false, &C, 65536, NULL), m_last_error(),
                 "kernel `chain_0` would be 65536 blocks along blockIdx.y, more than the 65535 of a "
                 "GPU (in `chain(");

    /* The kernel's own check reads an input from a copy, after the previous work on the stream. */
    static int32_t at_data[3] = {0, 999, 5};
    static int64_t three[1] = {3}, four[1] = {4};
    reset(thousand, 1);
    B = vector(at_data, three, 1);
    B.dtype.code = kDLInt;
    C.shape = four;
    EXPECT(gather_dl(&A, &B, &C, STREAM) == 0);
    EXPECT_LOG("copy 12 stream 0x5712ea\nwait stream 0x5712ea\n");
    EXPECT_LOG("launch gather on 1 stream 0x5712ea grid 3 1 1");
    fake_clear();
    at_data[1] = 1000;
    EXPECT_ERROR(gather_dl(&A, &B, &C, STREAM), m_last_error(), "`at[1]` is 1000 (in `gather(");
    EXPECT(!strstr(fake_log(), "launch"));
    at_data[1] = 1;
    C.shape = three;
    EXPECT_ERROR(gather_dl(&A, &B, &C, STREAM), m_last_error(), "`c` has extent 3");
    C.shape = four;
    Cell cells[3] = {cell(&A), cell(&B), cell(&C)}, result = {0, 0, {0}};
    EXPECT(__tvm_ffi_gather(NULL, cells, 3, &result) == 0);
    fake_fail("cuStreamSynchronize", 700);
    EXPECT_ERROR(gather_dl(&A, &B, &C, STREAM), m_last_error(),
                 "a copy of an input: an illegal memory access was encountered "
                 "(CUDA_ERROR_ILLEGAL_ADDRESS)");
}

/* Lets `function` fail with `result`, and tests the message and the code of the raw entry. The next
 * call succeeds. */
static void failing(const char *function, int32_t result, const char *message, int32_t raw) {
    reset(thousand, 0);
    fake_fail(function, result);
    int32_t code = chain(a_data, 0, 0, 0, false, c_data, 1000, 2, NULL);
    if (code != raw || !strstr(m_last_error(), message)) {
        printf("%s: raw gave %d: %s\n", function, (int)code, m_last_error());
        failures++;
    }
    EXPECT_ERROR(chain_dl(&A, 0, 0, 0, false, &C, 2, NULL), m_last_error(), message);
    EXPECT(fake_depth() == 0);
    fake_fail(function, 0);
    EXPECT(chain_dl(&A, 0, 0, 0, false, &C, 2, NULL) == 0);
    EXPECT(temporaries() == 0);
}

/* Failures in the order of a call; after each, the next call tries again. */
static void failures_of_the_driver(void) {
    fake_devices(0, 90, 1);
    reset(thousand, 0);
    EXPECT_ERROR(add_dl(&A, &B, &C, NULL), m_last_error(), "the CUDA driver finds no GPU (in `add");
    fake_devices(2, 75, 1);
    EXPECT_ERROR(add_dl(&A, &B, &C, NULL), m_last_error(),
                 "this GPU has compute capability 7.5: the module was compiled for target "
                 "nvptx-sm_80 (in `add");
    fake_devices(2, 90, 1);
    reset(thousand, 5);
    EXPECT_ERROR(add_dl(&A, &B, &C, NULL), m_last_error(),
                 "no context on the device: invalid device ordinal (CUDA_ERROR_INVALID_DEVICE)");
    reset(thousand, 64);
    EXPECT_ERROR(add_dl(&A, &B, &C, NULL), m_last_error(), "not cuda:64");
    reset(thousand, -1);
    EXPECT_ERROR(add_dl(&A, &B, &C, NULL), m_last_error(),
                 "argument 1 `a`: there is no device cuda:-1 (in `add");
    fake_fail("cuModuleLoadDataEx", 218);
    reset(thousand, 0);
    EXPECT_ERROR(add_dl(&A, &B, &C, NULL), m_last_error(),
                 "the CUDA driver refuses the PTX of the module: a PTX JIT compilation failed "
                 "(CUDA_ERROR_INVALID_PTX): ptxas application ptx input, line 7; fatal (in `add");
    fake_fail("cuModuleLoadDataEx", 0);
    /* Result 1 means out of memory only for temporaries. */
    fake_fail("cuModuleLoadDataEx", 2);
    EXPECT(add(a_data, b_data, c_data, 1000, NULL) == 3);
    EXPECT(strstr(m_last_error(), "loading the PTX: out of memory (CUDA_ERROR_OUT_OF_MEMORY)"));
    fake_fail("cuModuleLoadDataEx", 0);
    fake_fail("cuMemAlloc_v2", 2);
    EXPECT(add(a_data, b_data, c_data, 1000, NULL) == 3);
    EXPECT(strstr(m_last_error(), "memory in the context: out of memory"));
    EXPECT(fake_loaded_modules() == 0);
    fake_fail("cuMemAlloc_v2", 0);
    fake_fail("cuModuleGetFunction", 2);
    EXPECT_ERROR(add_dl(&A, &B, &C, NULL), m_last_error(), "no kernel `add`: out of memory");
    EXPECT(fake_loaded_modules() == 0);
    fake_fail("cuModuleGetFunction", 0);
    fake_fail("cuFuncSetAttribute", 1);
    EXPECT_ERROR(add_dl(&A, &B, &C, NULL), m_last_error(),
                 "shared memory of kernel `chain_0`: invalid argument");
    fake_fail("cuFuncSetAttribute", 0);
    failing("cuCtxGetCurrent", 700, "the current context: an illegal memory access", 3);
    failing("cuCtxPushCurrent_v2", 1, "the context of the device: invalid argument", 3);
    failing("cuMemAllocFromPoolAsync", 2,
            "out of memory for the temporary tensors, 6144 bytes: out of memory "
            "(CUDA_ERROR_OUT_OF_MEMORY) (in `chain(", 1);
    failing("cuMemAllocFromPoolAsync", 700, "memory for the temporary tensors: an illegal", 3);
    failing("cuLaunchKernel", 700,
            "launching kernel `chain_0`: an illegal memory access was encountered "
            "(CUDA_ERROR_ILLEGAL_ADDRESS) (in `chain(", 3);
    failing("cuLaunchKernel", 12345, "launching kernel `chain_0`: unknown error (no name)", 3);
    failing("cuPointerGetAttribute", 700, "the CUDA context: an illegal memory access", 3);
    /* Of two failures the first is reported. */
    fake_fail("cuMemFreeAsync", 1);
    EXPECT_ERROR(chain_dl(&A, 0, 0, 0, false, &C, 2, NULL), m_last_error(),
                 "freeing the temporary tensors: invalid argument");
    fake_fail("cuLaunchKernel", 700);
    EXPECT_ERROR(chain_dl(&A, 0, 0, 0, false, &C, 2, NULL), m_last_error(),
                 "launching kernel `chain_0`: an illegal memory access");
    fake_fail("cuMemFreeAsync", 0);
    fake_fail("cuLaunchKernel", 0);
    EXPECT(fake_misuses() == 0);
}

/* A kernel that does not fit the GPU is refused, but not the others of its module. */
static void small_gpus(void) {
    for (int32_t round = 0; round < 2; round++) {
        fake_devices(2, 86, 1);
        reset(thousand, 0);
        EXPECT(add_dl(&A, &B, &C, NULL) == 0);
        EXPECT_ERROR(chain_dl(&A, 0, 0, 0, false, &C, 2, NULL), m_last_error(),
                     "kernel `chain_0` needs 151552 bytes of shared memory for a block, this GPU "
                     "(no GPU 0) has 101376: the key `gpus` of the manifest says which targets "
                     "have as much (in `chain(");
        EXPECT(chain(a_data, 0, 0, 0, false, c_data, 1000, 2, NULL) == 3);
        EXPECT(!strstr(fake_log(), "launch chain"));
        EXPECT(temporaries() == 0);
    }
    EXPECT(fake_misuses() == 0);
}

/* A context at the address of a destroyed one, or a reset primary one, loads the PTX again. */
static void lives(void) {
    void *own = fake_context(0);
    fake_set_current(own);
    for (int i = 0; i < 5; i++) {
        reset(thousand, 0);
        EXPECT(chain_dl(&A, 0, 0, 0, false, &C, 2, NULL) == 0);
        EXPECT_LOG("load on 0\n");
        EXPECT(chain_dl(&A, 0, 0, 0, false, &C, 2, NULL) == 0);
        EXPECT(fake_loaded_modules() == 1);
        fake_end(own);
        fake_begin(own);
    }
    /* An entry of a destroyed context is reused for another one. */
    void *others[3] = {fake_context(0), fake_context(1), fake_context(0)};
    for (int i = 0; i < 9; i++) {
        int32_t device = i % 3 == 1;
        fake_set_current(others[i % 3]);
        reset(thousand, device);
        EXPECT(add_dl(&A, &B, &C, NULL) == 0);
        if (i < 3) EXPECT_LOG("load on %d\n", (int)device);
        if (i >= 3) EXPECT(!strstr(fake_log(), "load"));
        EXPECT_LOG("launch add on %d", (int)device);
    }
    fake_set_current(NULL);
    for (int i = 0; i < 3; i++) {
        reset(thousand, 1);
        EXPECT(add_dl(&A, &B, &C, STREAM) == 0);
        EXPECT_LOG("load on 1\n");
        fake_end(fake_primary(1));
        fake_begin(fake_primary(1));
    }
    /* A fault of an earlier kernel persists until there is another context. */
    reset(thousand, 0);
    EXPECT(add_dl(&A, &B, &C, STREAM) == 0);
    fake_fault(fake_primary(0), 700);
    for (int i = 0; i < 2; i++) {
        EXPECT_ERROR(add_dl(&A, &B, &C, STREAM), m_last_error(),
                     "the CUDA context: an illegal memory access was encountered "
                     "(CUDA_ERROR_ILLEGAL_ADDRESS) (in `add");
    }
    fake_end(fake_primary(0));
    fake_begin(fake_primary(0));
    EXPECT(add_dl(&A, &B, &C, STREAM) == 0);
    /* A stream of another context. */
    fake_stream(STREAM, own);
    EXPECT_ERROR(add_dl(&A, &B, &C, STREAM), m_last_error(),
                 "launching kernel `add`: invalid resource handle (CUDA_ERROR_INVALID_HANDLE)");
    EXPECT(fake_misuses() == 0);
}

/* A call uses the caller's context if it is on the tensors' device, else the primary one during the
 * call. */
static void contexts(void) {
    void *own = fake_context(1);
    fake_set_current(own);
    reset(thousand, 1);
    EXPECT(add_dl(&A, &B, &C, NULL) == 0);
    EXPECT_LOG("load on 1\n");
    EXPECT(!strstr(fake_log(), "retain"));
    reset(thousand, 0);
    EXPECT(add_dl(&A, &B, &C, NULL) == 0);
    EXPECT_LOG("retain 0\nload on 0\n");
    EXPECT_LOG("launch add on 0");
    EXPECT(fake_depth() == 1);
    fake_clear();
    EXPECT(add(a_data, b_data, c_data, 1, NULL) == 0);
    EXPECT_LOG("launch add on 1");
    fake_set_current(NULL);
    reset(thousand, 1);
    EXPECT(add_dl(&A, &B, &C, NULL) == 0);
    EXPECT_LOG("retain 1\nload on 1\n");
    fake_clear();
    EXPECT(add(a_data, b_data, c_data, 1, NULL) == 0);
    EXPECT_LOG("launch add on 0");
    EXPECT(fake_loaded_modules() == 3);
    EXPECT(fake_depth() == 0);
}

static void *many_calls(void *failed) {
    for (int i = 0; i < 1000; i++) {
        if (chain_dl(&A, 0, 0, 0, false, &C, 2, NULL)) *(int *)failed = 1;
    }
    return NULL;
}

static void threads(void) {
    enum { THREADS = 8 };
    pthread_t running[THREADS];
    int failed[THREADS] = {0};
    reset(thousand, 1);
    for (int i = 0; i < THREADS; i++) pthread_create(&running[i], NULL, many_calls, &failed[i]);
    for (int i = 0; i < THREADS; i++) pthread_join(running[i], NULL);
    for (int i = 0; i < THREADS; i++) EXPECT(!failed[i]);
    EXPECT(fake_loaded_modules() == 1);
    EXPECT(temporaries() == 0);
}

/* Devices without memory pools. */
static void no_pools(void) {
    fake_devices(2, 90, 0);
    reset(thousand, 0);
    EXPECT(chain_dl(&A, 0, 0, 0, false, &C, 2, STREAM) == 0);
    EXPECT_LOG("alloc 6144\n");
    EXPECT_LOG("wait stream 0x5712ea\nfree\n");
    EXPECT(temporaries() == 0);
    fake_fail("cuMemAlloc_v2", 2);
    EXPECT_ERROR(chain_dl(&A, 0, 0, 0, false, &C, 2, NULL), m_last_error(),
                 "out of memory for the temporary tensors, 6144 bytes");
    fake_fail("cuMemAlloc_v2", 0);
    /* A fault of an earlier kernel. */
    fake_fail("cuStreamSynchronize", 700);
    EXPECT_ERROR(chain_dl(&A, 0, 0, 0, false, &C, 2, NULL), m_last_error(),
                 "freeing the temporary tensors: an illegal memory access");
    EXPECT(temporaries() == 0);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {
        {"launches", launches}, {"checks", checks}, {"failures", failures_of_the_driver},
        {"contexts", contexts}, {"threads", threads}, {"no_pools", no_pools},
        {"small_gpus", small_gpus}, {"lives", lives},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (argc != 2 || strcmp(argv[1], parts[i].name)) continue;
        parts[i].run();
        return finish();
    }
    return 2;
}
