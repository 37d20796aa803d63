/* Calls kernels of static libraries and prints the bits of the results and the messages, which are
 * the same on every system. On Windows it also checks that calls keep the registers that belong to
 * their caller, and that the stack can be unwound from every instruction; on macOS that it can be
 * unwound through kernels. */
#if defined(_WIN32)
#include <windows.h>
#elif defined(__APPLE__)
#include <unwind.h>
#endif

#include "product.h"
#include "rows.h"
#include "several.h"
#include "small.h"
#include "soft.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#if !defined(_WIN32)
#include <sys/wait.h>
#include <unistd.h>
#endif

/* Those of support.h, whose other names are types of windows.h. */
static int failures;

#define EXPECT(condition) \
    do { \
        if (!(condition)) { \
            printf("line %d: failed: %s\n", __LINE__, #condition); \
            failures++; \
        } \
    } while (0)

/* Requires that a call fails with a message that contains `part`. */
#define EXPECT_ERROR(call, message, part) \
    do { \
        EXPECT((call) == -1); \
        EXPECT(strstr((message), (part)) != NULL); \
    } while (0)

enum { N = 320, ROWS = 64, COLUMNS = 512 };

static float a[N * N], b[N * N], c[N * N];
static float x[ROWS * COLUMNS], y[ROWS * COLUMNS];

/* A number from -1 to 1. */
static double next(void) {
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)state / 9223372036854775808.0;
}

static void fill(float *values, int n) {
    for (int i = 0; i < n; i++) values[i] = (float)next();
}

/* FNV-1a of the bits. */
static void print_bits(const char *what, const void *bytes, size_t n) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) hash = (hash ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3u;
    printf("%s %08x%08x\n", what, (unsigned)(hash >> 32), (unsigned)hash);
}

static DLTensor tensor(void *data, int32_t ndim, int64_t *shape, DLDataType dtype) {
    DLTensor made = {data, {kDLCPU, 0}, ndim, dtype, shape, NULL, 0};
    return made;
}

static const DLDataType f32 = {kDLFloat, 32, 1}, f64 = {kDLFloat, 64, 1}, i32 = {kDLInt, 32, 1};

static void test_product(void) {
    fill(a, N * N);
    fill(b, N * N);
    EXPECT(matmul(a, b, c) == 0);
    double largest = 0;
    for (int i = 0; i < N; i += 7) {
        for (int j = 0; j < N; j++) {
            double sum = 0;
            for (int k = 0; k < N; k++) sum += (double)a[i * N + k] * b[k * N + j];
            largest = fmax(largest, fabs(sum - c[i * N + j]));
        }
    }
    EXPECT(largest < 1e-4);
    print_bits("matmul", c, sizeof c);
    for (int threads = 1; threads <= 4; threads++) {
        static float again[N * N];
        product_set_num_threads(threads);
        EXPECT(matmul(a, b, again) == 0 && memcmp(c, again, sizeof c) == 0);
    }
}

/* A child of fork() has none of the threads, but may need some. qemu (7.2) starts none in a child,
 * and it runs the programs for AArch64. */
static void test_fork(void) {
#if !defined(_WIN32) && defined(__x86_64__)
    pid_t child = fork();
    if (child == 0) {
        static float again[N * N];
        product_set_num_threads(3);
        _exit(matmul(a, b, again) != 0 || memcmp(c, again, sizeof c) != 0);
    }
    int status = -1;
    EXPECT(child > 0 && waitpid(child, &status, 0) == child && status == 0);
#endif
}

static void test_softmax(void) {
    fill(x, ROWS * COLUMNS);
    EXPECT(softmax(x, y) == 0);
    for (int i = 0; i < ROWS; i++) {
        double sum = 0;
        for (int j = 0; j < COLUMNS; j++) sum += y[i * COLUMNS + j];
        EXPECT(fabs(sum - 1) < 1e-5);
    }
    print_bits("softmax", y, sizeof y);
}

static int32_t host_threads(int32_t (*task)(void *, int64_t, int64_t), void *data, int64_t n,
                            void *user) {
    ++*(int *)user;
    for (int64_t i = n - 1; i >= 0; i--) {
        int32_t result = task(data, i, i + 1);
        if (result) return result;
    }
    return 0;
}

static void test_rows(void) {
    int32_t at[5] = {3, 0, 2, 2, 1};
    int64_t by_at[] = {5}, by_table[] = {4, COLUMNS}, by_rows[] = {5, COLUMNS};
    DLTensor table = tensor(x, 2, by_table, f32), index = tensor(at, 1, by_at, i32);
    DLTensor rows = tensor(y, 2, by_rows, f32);
    EXPECT(take_rows_dl(&table, &index, 0.5f, -3, &rows) == 0);
    for (int j = 0; j < COLUMNS; j++) {
        EXPECT(fabs(y[j] - (0.5 * exp(x[3 * COLUMNS + j]) - 3)) < 1e-5);
    }
    print_bits("rows", y, 5 * COLUMNS * sizeof *y);
    /* All arguments of the raw entry: four registers, the rest on the stack. */
    static float raw[5 * COLUMNS];
    EXPECT(take_rows(x, at, 0.5f, -3, raw, 4, COLUMNS, 5) == 0);
    EXPECT(memcmp(raw, y, sizeof raw) == 0);
    int calls = 0;
    rows_set_parallel_for(host_threads, &calls);
    memset(y, 0, sizeof y);
    EXPECT(take_rows_dl(&table, &index, 0.5f, -3, &rows) == 0 && calls == 1);
    EXPECT(memcmp(raw, y, sizeof raw) == 0);
    rows_set_parallel_for(NULL, NULL);
    /* Failing checks. */
    at[2] = 4;
    EXPECT_ERROR(take_rows_dl(&table, &index, 1, 0, &rows), rows_last_error(), "extent is 4");
    puts(rows_last_error());
    at[2] = 2;
    rows.dtype = f64;
    EXPECT_ERROR(take_rows_dl(&table, &index, 1, 0, &rows), rows_last_error(), "float64");
    puts(rows_last_error());
    EXPECT_ERROR(take_rows_dl(&table, NULL, 1, 0, &rows), rows_last_error(), "null");
    puts(rows_last_error());
    /* Small arguments on the stack, next to each other on AArch64 with macOS. */
    int64_t wide[3] = {1, 2, 3}, sums[3] = {0};
    EXPECT(many(wide, -1, -2, -3, -4, 250, -6, -7, -8, -900, -10, -110000, 240, -13, sums, 3) == 0);
    for (int i = 0; i < 3; i++) {
        int64_t sum = -1 - 2 * 2 - 3 * 3 - 4 * 4 + 5 * 250 - 6 * 6 - 7 * 7 - 8 * 8 - 9 * 900;
        EXPECT(sums[i] == wide[i] + sum - 10 * 10 - 11 * 110000 + 12 * 240 - 13);
    }
    double in[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, out[3];
    int64_t n = 12, m = 3;
    DLTensor from = tensor(in, 1, &n, f64), to = tensor(out, 1, &m, f64);
    EXPECT(spread_dl(&from, &to) == 0 && out[0] == 44 && out[2] == 60);
    n = 11;
    EXPECT_ERROR(spread_dl(&from, &to), rows_last_error(), "does not hold: n is 11");
    puts(rows_last_error());
}

static void test_several(void) {
    float values[100], results[100];
    fill(values, 100);
    EXPECT(cubes(values, results, 100) == 0);
    for (int i = 0; i < 100; i++) EXPECT(fabs(results[i] - pow(values[i], 3) - 1) < 1e-6);
    print_bits("cubes", results, sizeof results);
#if defined(__x86_64__)
    EXPECT(several_target() != NULL);
    fprintf(stderr, "the variant is %s\n", several_target());
#endif
    EXPECT(strstr(several_manifest(), "\"module\": \"several\"") != NULL);
}

#if defined(_WIN32)

/* ---- registers: rbx, rbp, rsi, rdi, r12 to r15, xmm6 to xmm15 ---- */

enum { GENERAL = 8, VECTORS = 10 };
struct kept {
    uint64_t general[GENERAL];
    uint64_t vectors[VECTORS][2];
};
struct kept expected, found;
int stepped;

/* Calls a function with `expected` in the registers, by single steps if `stepped`, and stores what
 * it leaves in `found`. */
uint64_t call_keeping(void *function, const void *, const void *, const void *, const void *);
extern const char after_call[];

#define EACH_VECTOR(of) \
    of(6) of(7) of(8) of(9) of(10) of(11) of(12) of(13) of(14) of(15)
#define QUOTED(token) #token
#define SAVE(n) "movups %xmm" QUOTED(n) ", 0x30 + 16 * (" QUOTED(n) " - 6)(%rsp)\n"
#define RESTORE(n) "movups 0x30 + 16 * (" QUOTED(n) " - 6)(%rsp), %xmm" QUOTED(n) "\n"
#define SET(n) "movups 64 + 16 * (" QUOTED(n) " - 6)(%r11), %xmm" QUOTED(n) "\n"
#define STORE(n) "movups %xmm" QUOTED(n) ", 64 + 16 * (" QUOTED(n) " - 6)(%r11)\n"

__asm__(".globl call_keeping, after_call\n"
        "call_keeping:\n"
        "push %rbx\npush %rbp\npush %rsi\npush %rdi\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "sub $0xe8, %rsp\n"
        EACH_VECTOR(SAVE)
        "mov %rcx, %rax\nmov %rdx, %rcx\nmov %r8, %rdx\nmov %r9, %r8\n"
        "mov 0xe8 + 64 + 40(%rsp), %r9\n"
        "lea expected(%rip), %r11\n"
        "mov (%r11), %rbx\nmov 8(%r11), %rbp\nmov 16(%r11), %rsi\nmov 24(%r11), %rdi\n"
        "mov 32(%r11), %r12\nmov 40(%r11), %r13\nmov 48(%r11), %r14\nmov 56(%r11), %r15\n"
        EACH_VECTOR(SET)
        "cmpl $0, stepped(%rip)\n"
        "je 1f\n"
        "pushfq\norl $0x100, (%rsp)\npopfq\n"
        "1: call *%rax\n"
        "after_call:\n"
        "lea found(%rip), %r11\n"
        "mov %rbx, (%r11)\nmov %rbp, 8(%r11)\nmov %rsi, 16(%r11)\nmov %rdi, 24(%r11)\n"
        "mov %r12, 32(%r11)\nmov %r13, 40(%r11)\nmov %r14, 48(%r11)\nmov %r15, 56(%r11)\n"
        EACH_VECTOR(STORE)
        EACH_VECTOR(RESTORE)
        "add $0xe8, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rdi\npop %rsi\npop %rbp\npop %rbx\n"
        "ret\n");

static void expect_kept(const char *name, void *function, const void *p, const void *q,
                        const void *r, const void *s) {
    memset(&found, 0, sizeof found);
    call_keeping(function, p, q, r, s);
    if (memcmp(&found, &expected, sizeof found) == 0) return;
    printf("%s changes registers of its caller\n", name);
    failures++;
}

/* ---- unwinding ---- */

static struct {
    uint64_t steps;
    uint64_t frames;
    int wrong;
} walks;

static int is_module(uint64_t rip) {
    uint64_t base = (uint64_t)GetModuleHandle(NULL);
    const IMAGE_NT_HEADERS64 *headers =
        (const IMAGE_NT_HEADERS64 *)(base + ((const IMAGE_DOS_HEADER *)base)->e_lfanew);
    return rip - base < headers->OptionalHeader.SizeOfImage;
}

static void refuse(const CONTEXT *at, const char *why) {
    if (walks.wrong++ < 10) {
        const uint8_t *code = (const uint8_t *)at->Rip;
        printf("at %p (%02x %02x %02x): %s\n", (void *)at->Rip, code[0], code[1], code[2], why);
    }
}

/* Walks to the caller of the kernel, which must have its registers there. */
static void walk(const CONTEXT *from) {
    CONTEXT at = *from;
    for (int frame = 0; at.Rip != (uint64_t)after_call; frame++) {
        if (frame == 30) return refuse(from, "the walk does not end");
        if (!is_module(at.Rip) && is_module(from->Rip) && frame > 0) {
            return refuse(from, "the walk leaves the program");
        }
        uint64_t base, establisher;
        void *data;
        RUNTIME_FUNCTION *entry = RtlLookupFunctionEntry(at.Rip, &base, NULL);
        if (entry) {
            RtlVirtualUnwind(UNW_FLAG_NHANDLER, base, at.Rip, entry, &at, &data, &establisher,
                             NULL);
        } else {
            at.Rip = *(const uint64_t *)at.Rsp;
            at.Rsp += 8;
        }
        walks.frames++;
    }
    const uint64_t general[GENERAL] = {at.Rbx, at.Rbp, at.Rsi, at.Rdi,
                                       at.R12, at.R13, at.R14, at.R15};
    /* Between the restoration of registers and that of the stack pointer, an exception overwrites
     * where the registers were saved. Only a debugger looks there, from another thread. */
    if (memcmp((const void *)from->Rip, "\x48\x89\xec", 3) == 0) return;
    if (memcmp(general, expected.general, sizeof general) != 0) {
        refuse(from, "a general register is not that of the caller");
    }
    if (memcmp(&at.Xmm6, expected.vectors, sizeof expected.vectors) != 0) {
        refuse(from, "a vector register is not that of the caller");
    }
}

static LONG CALLBACK on_step(EXCEPTION_POINTERS *exception) {
    enum { TRAP_FLAG = 0x100 };
    CONTEXT *at = exception->ContextRecord;
    if (exception->ExceptionRecord->ExceptionCode != (DWORD)EXCEPTION_SINGLE_STEP) {
        return EXCEPTION_CONTINUE_SEARCH;
    }
    walks.steps++;
    walk(at);
    at->EFlags = at->Rip == (uint64_t)after_call ? at->EFlags & ~TRAP_FLAG : at->EFlags | TRAP_FLAG;
    return EXCEPTION_CONTINUE_EXECUTION;
}

static void expect_unwound(const char *name, void *function, const void *p, const void *q,
                           const void *r, const void *s) {
    memset(&walks, 0, sizeof walks);
    stepped = 1;
    expect_kept(name, function, p, q, r, s);
    stepped = 0;
    EXPECT(walks.steps > 100 && walks.frames > walks.steps);
    fprintf(stderr, "%s: %d walks, %d frames\n", name, (int)walks.steps, (int)walks.frames);
    failures += walks.wrong != 0;
}

/* Called by the runtime, which the body of a kernel calls. */
static int32_t walk_from_host(int32_t (*task)(void *, int64_t, int64_t), void *data, int64_t n,
                              void *user) {
    CONTEXT here;
    (void)user;
    RtlCaptureContext(&here);
    walks.frames = 0;
    walk(&here);
    return task(data, 0, n);
}

static DWORD CALLBACK fail_elsewhere(void *unused) {
    (void)unused;
    EXPECT_ERROR(softmax_dl(NULL, NULL), soft_last_error(), "(in `softmax(");
    return 0;
}

static void test_system(void) {
    for (int i = 0; i < GENERAL; i++) expected.general[i] = 0x1111111100000000u + i;
    for (int i = 0; i < VECTORS; i++) {
        expected.vectors[i][0] = 0x2222222200000000u + i;
        expected.vectors[i][1] = 0x3333333300000000u + i;
    }
    int64_t square[] = {N, N}, matrix[] = {ROWS, COLUMNS};
    DLTensor A = tensor(a, 2, square, f32), B = tensor(b, 2, square, f32);
    DLTensor C = tensor(c, 2, square, f32);
    DLTensor X = tensor(x, 2, matrix, f32), Y = tensor(y, 2, matrix, f32);
    expect_kept("matmul", matmul, a, b, c, NULL);
    expect_kept("matmul_dl", matmul_dl, &A, &B, &C, NULL);
    expect_kept("softmax", softmax, x, y, NULL, NULL);
    expect_kept("softmax_dl", softmax_dl, &X, &Y, NULL, NULL);
    expect_kept("a refused call", softmax_dl, &X, &A, NULL, NULL);
    expect_kept("cubes", cubes, x, y, (void *)1000, NULL);

    /* Messages belong to a thread. */
    EXPECT_ERROR(matmul_dl(NULL, NULL, NULL), product_last_error(), "(in `matmul(");
    HANDLE thread = CreateThread(NULL, 0, fail_elsewhere, NULL, 0, NULL);
    EXPECT(thread && WaitForSingleObject(thread, INFINITE) == 0);
    EXPECT(strstr(product_last_error(), "(in `matmul(") != NULL);

    product_set_parallel_for(walk_from_host, NULL);
    memset(&walks, 0, sizeof walks);
    expect_kept("matmul", matmul, a, b, c, NULL);
    EXPECT(walks.frames > 3);
    product_set_parallel_for(NULL, NULL);
    AddVectoredExceptionHandler(1, on_step);
    /* Serial, because only this thread is stepped. */
    product_set_num_threads(1);
    expect_unwound("small", small, a, b, c, NULL);
    expect_unwound("small_dl", small_dl, NULL, NULL, NULL, NULL);
    expect_unwound("framed", framed, a, c, NULL, NULL);
    expect_unwound("cubes", cubes, x, y, (void *)100, NULL);
    EXPECT(walks.wrong == 0);
}

#elif defined(__APPLE__)

/* The functions on the stack of a task's caller. */
static struct {
    int frames;
    int has_kernel;
    int has_caller;
} walk;

static void test_system(void);

static _Unwind_Reason_Code visit(struct _Unwind_Context *context, void *kernel) {
    void *function = _Unwind_FindEnclosingFunction((void *)(_Unwind_GetIP(context) - 1));
    walk.frames++;
    if (function == kernel) walk.has_kernel = 1;
    if (function == (void *)test_system) walk.has_caller = walk.has_kernel;
    return _URC_NO_REASON;
}

static int32_t walk_from_host(int32_t (*task)(void *, int64_t, int64_t), void *data, int64_t n,
                              void *kernel) {
    memset(&walk, 0, sizeof walk);
    _Unwind_Backtrace(visit, kernel);
    return task(data, 0, n);
}

static void test_system(void) {
    int64_t square[] = {N, N};
    DLTensor A = tensor(a, 2, square, f32), B = tensor(b, 2, square, f32);
    DLTensor C = tensor(c, 2, square, f32);
    product_set_parallel_for(walk_from_host, (void *)matmul);
    EXPECT(matmul(a, b, c) == 0);
    EXPECT(walk.frames >= 5 && walk.has_caller);
    product_set_parallel_for(walk_from_host, (void *)matmul_dl);
    EXPECT(matmul_dl(&A, &B, &C) == 0);
    EXPECT(walk.frames >= 5 && walk.has_caller);
    product_set_parallel_for(NULL, NULL);
}

#else

static void test_system(void) {}

#endif

int main(void) {
    test_product();
    test_fork();
    test_softmax();
    test_rows();
    test_several();
    test_system();
    return failures != 0;
}
