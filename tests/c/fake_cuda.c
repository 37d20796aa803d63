/* A CUDA driver without a GPU: it has the functions that modules look up, keeps what it is asked
 * in a log, and fails where a test tells it to. Memory of its devices is that of the process.
 *
 * A launch is logged with the values of its parameters, by the types that stand in the PTX; with
 * `fake_on_launch` a test can do what the kernel would do. */
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int32_t (*LaunchFn)(const char *ptx, const char *kernel, const uint32_t *grid,
                            const uint32_t *block, uint32_t shared, int32_t count,
                            const int32_t *sizes, void **params);

enum { DEVICES = 8, FAILURES = 8, PARAMS = 64, ALLOCATIONS = 256 };

typedef struct {
    int32_t device;
    int32_t primary;
} Context;

typedef struct {
    char *ptx;
    Context *context;
} Module;

typedef struct {
    Module *module;
    char name[128];
    int32_t params;
    int32_t sizes[PARAMS];
} Function;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char text[1 << 20];
static size_t length;
static int32_t devices = 2, capability = 90, pools = 1;
static LaunchFn on_launch;
static float (*on_elapsed)(void);
static struct {
    char function[40];
    int32_t result;
} failures[FAILURES];
static Context primaries[DEVICES];
static int32_t retained[DEVICES], modules;
static struct {
    uint64_t address;
    size_t bytes;
} allocations[ALLOCATIONS];
static _Thread_local Context *stack[16];
static _Thread_local int32_t depth;

/* ---- for tests ---- */

const char *fake_log(void) { return text; }
void fake_clear(void) {
    pthread_mutex_lock(&lock);
    length = 0;
    text[0] = 0;
    pthread_mutex_unlock(&lock);
}
void fake_devices(int32_t count, int32_t compute_capability, int32_t has_pools) {
    devices = count;
    capability = compute_capability;
    pools = has_pools;
}
/* From now on the function returns `result`; 0 makes it well again. */
void fake_fail(const char *function, int32_t result) {
    for (int i = 0; i < FAILURES; i++) {
        if (strcmp(failures[i].function, function) && failures[i].function[0]) continue;
        snprintf(failures[i].function, sizeof failures[i].function, "%s", function);
        failures[i].result = result;
        return;
    }
    abort();
}
void fake_on_launch(LaunchFn run) { on_launch = run; }
/* Milliseconds between two events, instead of 2. */
void fake_on_elapsed(float (*elapsed)(void)) { on_elapsed = elapsed; }
int32_t fake_loaded_modules(void) { return modules; }
int32_t fake_allocations(void) {
    int32_t count = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < ALLOCATIONS; i++) count += allocations[i].address != 0;
    pthread_mutex_unlock(&lock);
    return count;
}
/* The memory that an address is in: where it begins, and how long it is. 0 if it is in none. */
uint64_t fake_memory(uint64_t address, uint64_t *bytes) {
    for (int i = 0; i < ALLOCATIONS; i++) {
        if (address - allocations[i].address < allocations[i].bytes && allocations[i].address) {
            *bytes = allocations[i].bytes;
            return allocations[i].address;
        }
    }
    return 0;
}
/* Makes a context current that is not a primary one; null makes none current. */
void *fake_context(int32_t device) {
    Context *context = calloc(1, sizeof *context);
    context->device = device;
    return context;
}
void fake_set_current(void *context) {
    depth = context != NULL;
    stack[0] = context;
}
int32_t fake_depth(void) { return depth; }

/* ---- inside ---- */

static void note(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&lock);
    length += (size_t)vsnprintf(text + length, sizeof text - length, format, arguments);
    if (length > sizeof text / 2) length = 0;
    pthread_mutex_unlock(&lock);
    va_end(arguments);
}

static int32_t result_of(const char *function) {
    for (int i = 0; i < FAILURES; i++) {
        if (strcmp(failures[i].function, function) == 0) return failures[i].result;
    }
    const char *all = getenv("FAKE_CUDA_FAIL");
    size_t n = strlen(function);
    if (all && strncmp(all, function, n) == 0 && all[n] == '=') return atoi(all + n + 1);
    return 0;
}

#define ENTER() \
    do { \
        int32_t failure = result_of(__func__); \
        if (failure) { \
            note("%s fails with %d\n", __func__, (int)failure); \
            return failure; \
        } \
    } while (0)

enum { INVALID_VALUE = 1, INVALID_CONTEXT = 201, NOT_FOUND = 500, INVALID_PTX = 218 };

static uint64_t allocate(size_t bytes) {
    void *memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < ALLOCATIONS && memory; i++) {
        if (allocations[i].address) continue;
        allocations[i].address = (uint64_t)(uintptr_t)memory;
        allocations[i].bytes = bytes;
        pthread_mutex_unlock(&lock);
        return allocations[i].address;
    }
    abort();
}

static void release(uint64_t address) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < ALLOCATIONS; i++) {
        if (allocations[i].address == address) allocations[i].address = 0;
    }
    pthread_mutex_unlock(&lock);
    free((void *)(uintptr_t)address);
}

static Context *current(void) { return depth ? stack[depth - 1] : NULL; }

/* Sizes of the parameters of an entry, from its text: `.param .u64 name`. -1 if it is not there. */
static int32_t find_params(const char *ptx, const char *name, int32_t *sizes) {
    char head[160];
    snprintf(head, sizeof head, ".entry %s", name);
    const char *at = ptx;
    size_t n = strlen(head);
    while ((at = strstr(at, head)) && at[n] != '(' && at[n] != ' ' && at[n] != '\n') at += n;
    if (!at) return -1;
    const char *end = strpbrk(at, "{");
    int32_t count = 0;
    while ((at = strstr(at, ".param")) && end && at < end && count < PARAMS) {
        int bits = 0;
        if (sscanf(at, ".param .%*1[bsuf]%d", &bits) != 1) return -1;
        sizes[count++] = bits / 8;
        at += 6;
    }
    return count;
}

/* ---- the driver's functions ---- */

int32_t cuInit(uint32_t flags) {
    ENTER();
    note("init %u\n", flags);
    return 0;
}

int32_t cuGetErrorName(int32_t result, const char **name) {
    switch (result) {
    case 1: *name = "CUDA_ERROR_INVALID_VALUE"; return 0;
    case 2: *name = "CUDA_ERROR_OUT_OF_MEMORY"; return 0;
    case 100: *name = "CUDA_ERROR_NO_DEVICE"; return 0;
    case 101: *name = "CUDA_ERROR_INVALID_DEVICE"; return 0;
    case 218: *name = "CUDA_ERROR_INVALID_PTX"; return 0;
    case 700: *name = "CUDA_ERROR_ILLEGAL_ADDRESS"; return 0;
    default: return INVALID_VALUE;
    }
}

int32_t cuGetErrorString(int32_t result, const char **string) {
    switch (result) {
    case 1: *string = "invalid argument"; return 0;
    case 2: *string = "out of memory"; return 0;
    case 100: *string = "no CUDA-capable device is detected"; return 0;
    case 101: *string = "invalid device ordinal"; return 0;
    case 218: *string = "a PTX JIT compilation failed"; return 0;
    case 700: *string = "an illegal memory access was encountered"; return 0;
    default: return INVALID_VALUE;
    }
}

int32_t cuDeviceGetCount(int32_t *count) {
    ENTER();
    *count = devices;
    return 0;
}

int32_t cuDeviceGet(int32_t *device, int32_t ordinal) {
    ENTER();
    if (ordinal < 0 || ordinal >= devices) return 101;
    *device = ordinal;
    return 0;
}

int32_t cuDeviceGetName(char *name, int32_t length, int32_t device) {
    ENTER();
    if (device < 0 || device >= devices) return 101;
    snprintf(name, (size_t)length, "no GPU %d", (int)device);
    return 0;
}

int32_t cuDeviceGetAttribute(int32_t *value, int32_t attribute, int32_t device) {
    ENTER();
    if (device < 0 || device >= devices) return 101;
    *value = attribute == 75 ? capability / 10 : attribute == 76 ? capability % 10 : pools;
    return 0;
}

int32_t cuDevicePrimaryCtxRetain(void **context, int32_t device) {
    ENTER();
    note("retain %d\n", (int)device);
    primaries[device] = (Context){device, 1};
    retained[device]++;
    *context = &primaries[device];
    return 0;
}

int32_t cuDevicePrimaryCtxRelease_v2(int32_t device) {
    ENTER();
    note("release %d\n", (int)device);
    retained[device]--;
    return 0;
}

int32_t cuCtxGetCurrent(void **context) {
    ENTER();
    *context = current();
    return 0;
}

int32_t cuCtxGetDevice(int32_t *device) {
    ENTER();
    if (!current()) return INVALID_CONTEXT;
    *device = current()->device;
    return 0;
}

int32_t cuCtxPushCurrent_v2(void *context) {
    ENTER();
    stack[depth++] = context;
    return 0;
}

int32_t cuCtxPopCurrent_v2(void **context) {
    ENTER();
    if (!depth) return INVALID_CONTEXT;
    *context = stack[--depth];
    return 0;
}

int32_t cuModuleLoadDataEx(void **module, const void *image, uint32_t count, int32_t *options,
                           void **values) {
    int32_t failure = result_of(__func__);
    for (uint32_t i = 0; failure && i + 1 < count; i++) {
        if (options[i] != 5 || options[i + 1] != 6) continue;
        snprintf(values[i], (size_t)values[i + 1], "ptxas application ptx input, line 7; fatal\n");
    }
    ENTER();
    if (!current()) return INVALID_CONTEXT;
    Module *loaded = calloc(1, sizeof *loaded);
    loaded->ptx = strdup(image);
    loaded->context = current();
    *module = loaded;
    __atomic_add_fetch(&modules, 1, __ATOMIC_SEQ_CST);
    note("load on %d\n", (int)current()->device);
    return 0;
}

int32_t cuModuleUnload(void *module) {
    ENTER();
    Module *loaded = module;
    note("unload\n");
    free(loaded->ptx);
    free(loaded);
    __atomic_add_fetch(&modules, -1, __ATOMIC_SEQ_CST);
    return 0;
}

int32_t cuModuleGetFunction(void **function, void *module, const char *name) {
    ENTER();
    Function *found = calloc(1, sizeof *found);
    found->module = module;
    snprintf(found->name, sizeof found->name, "%s", name);
    found->params = find_params(found->module->ptx, name, found->sizes);
    if (found->params < 0) return NOT_FOUND;
    *function = found;
    return 0;
}

int32_t cuFuncSetAttribute(void *function, int32_t attribute, int32_t value) {
    ENTER();
    note("attribute %d of %s is %d\n", (int)attribute, ((Function *)function)->name, (int)value);
    return 0;
}

int32_t cuLaunchKernel(void *function, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx,
                       uint32_t by, uint32_t bz, uint32_t shared, void *stream, void **params,
                       void **extra) {
    ENTER();
    Function *launched = function;
    if (launched->module->context != current()) return INVALID_CONTEXT;
    if (!gx || !gy || !gz || gy > 65535 || gz > 65535 || bx * by * bz > 1024 || extra) {
        return INVALID_VALUE;
    }
    char values[2048];
    size_t n = 0;
    values[0] = 0;
    for (int32_t i = 0; i < launched->params; i++) {
        uint64_t value = 0;
        memcpy(&value, params[i], (size_t)launched->sizes[i]);
        n += (size_t)snprintf(values + n, sizeof values - n, " %llx", (unsigned long long)value);
    }
    note("launch %s on %d stream %p grid %u %u %u block %u %u %u shared %u params%s\n",
         launched->name, (int)current()->device, stream, gx, gy, gz, bx, by, bz, shared, values);
    if (!on_launch) return 0;
    uint32_t grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
    return on_launch(launched->module->ptx, launched->name, grid, block, shared,
                     launched->params, launched->sizes, params);
}

int32_t cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    ENTER();
    *address = allocate(bytes);
    note("alloc %zu\n", bytes);
    return 0;
}

int32_t cuMemFree_v2(uint64_t address) {
    ENTER();
    release(address);
    note("free\n");
    return 0;
}

int32_t cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
    ENTER();
    memcpy((void *)(uintptr_t)to, from, bytes);
    return 0;
}

int32_t cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
    ENTER();
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return 0;
}

int32_t cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
    ENTER();
    note("copy %zu stream %p\n", bytes, stream);
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return 0;
}

int32_t cuStreamSynchronize(void *stream) {
    ENTER();
    note("wait stream %p\n", stream);
    return 0;
}

int32_t cuEventCreate(void **event, uint32_t flags) {
    ENTER();
    (void)flags;
    *event = malloc(1);
    return 0;
}

int32_t cuEventDestroy_v2(void *event) {
    ENTER();
    free(event);
    return 0;
}

int32_t cuEventRecord(void *event, void *stream) {
    ENTER();
    (void)event;
    note("event stream %p\n", stream);
    return 0;
}

int32_t cuEventSynchronize(void *event) {
    ENTER();
    (void)event;
    return 0;
}

int32_t cuEventElapsedTime(float *milliseconds, void *start, void *end) {
    ENTER();
    if (!start || !end) return INVALID_VALUE;
    *milliseconds = on_elapsed ? on_elapsed() : 2;
    return 0;
}

int32_t cuMemPoolCreate(void **pool, const void *properties) {
    ENTER();
    const int32_t *words = properties;
    note("pool %d %d %d\n", (int)words[0], (int)words[2], (int)words[3]);
    *pool = malloc(1);
    return 0;
}

int32_t cuMemPoolDestroy(void *pool) {
    ENTER();
    note("no pool\n");
    free(pool);
    return 0;
}

int32_t cuMemPoolSetAttribute(void *pool, int32_t attribute, void *value) {
    ENTER();
    (void)pool;
    note("pool attribute %d is %llx\n", (int)attribute, *(unsigned long long *)value);
    return 0;
}

int32_t cuMemAllocFromPoolAsync(uint64_t *address, size_t bytes, void *pool, void *stream) {
    ENTER();
    (void)pool;
    *address = allocate(bytes);
    note("alloc %zu from the pool stream %p\n", bytes, stream);
    return 0;
}

int32_t cuMemFreeAsync(uint64_t address, void *stream) {
    ENTER();
    release(address);
    note("free stream %p\n", stream);
    return 0;
}
