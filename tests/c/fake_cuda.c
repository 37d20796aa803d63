/* A CUDA driver without a GPU. It has the functions that modules use, logs the calls, and fails if
 * a test requests it. Device memory is memory of the process.
 *
 * A launch is logged with the values of its parameters, by their types in the PTX. With
 * `fake_on_launch` a test can do the work of the kernel.
 *
 * Destroying a context invalidates all objects made in it. A context counts how often it was
 * destroyed and made again (`life`); the use of an object with another count is refused and counted
 * (`fake_misuses`), as is a double release. After a kernel has failed, every function fails in its
 * context. A stream belongs to one context. After the driver's destructor every function fails. */
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int32_t (*LaunchFn)(const char *ptx, const char *kernel, const uint32_t *grid,
                            const uint32_t *block, uint32_t shared, int32_t count,
                            const int32_t *sizes, void **params);

enum { DEVICES = 8, FAILURES = 32, PARAMS = 64, ALLOCATIONS = 256, STREAMS = 8 };

typedef struct {
    int32_t device;
    int32_t primary;
    int32_t life; /* even: destroyed */
    int32_t fault;
    int32_t modules;
} Context;

/* Modules and functions are never freed, so that uses after a context's end are detected. */
typedef struct {
    char *ptx;
    Context *context;
    int32_t life;
    int32_t unloaded;
} Module;

typedef struct {
    Module *module;
    char name[128];
    int32_t params;
    int32_t sizes[PARAMS];
    uint32_t dynamic; /* bytes of shared memory that launches may request */
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
static int32_t retained[DEVICES], modules, misuses, ended;
static struct {
    uint64_t address;
    size_t bytes;
    uint64_t id;
    Context *context;
} allocations[ALLOCATIONS];
static uint64_t allocated;
static struct {
    void *stream;
    Context *context;
} streams[STREAMS];
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
/* Makes a function return `result` from now on; 0 ends the failure. */
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
/* Sets the function that returns the milliseconds between two events, by default 2. */
void fake_on_elapsed(float (*elapsed)(void)) { on_elapsed = elapsed; }
int32_t fake_loaded_modules(void) { return modules; }
/* The number of uses of destroyed objects and of releases of unknown ones. */
int32_t fake_misuses(void) { return misuses; }
int32_t fake_retained(int32_t device) { return retained[device]; }
int32_t fake_allocations(void) {
    int32_t count = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < ALLOCATIONS; i++) count += allocations[i].address != 0;
    pthread_mutex_unlock(&lock);
    return count;
}
/* The allocation that contains an address, with its size; 0 if there is none. */
uint64_t fake_memory(uint64_t address, uint64_t *bytes) {
    for (int i = 0; i < ALLOCATIONS; i++) {
        if (address - allocations[i].address < allocations[i].bytes && allocations[i].address) {
            *bytes = allocations[i].bytes;
            return allocations[i].address;
        }
    }
    return 0;
}
/* Makes a context that is not a primary one. */
void *fake_context(int32_t device) {
    Context *context = calloc(1, sizeof *context);
    context->device = device;
    context->life = 1;
    return context;
}
void *fake_primary(int32_t device) { return &primaries[device]; }
/* Destroys a context with everything made in it. */
void fake_end(void *ended_context) {
    Context *context = ended_context;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < ALLOCATIONS; i++) {
        if (!allocations[i].address || allocations[i].context != context) continue;
        free((void *)(uintptr_t)allocations[i].address);
        allocations[i].address = 0;
    }
    pthread_mutex_unlock(&lock);
    __atomic_add_fetch(&modules, -context->modules, __ATOMIC_SEQ_CST);
    context->life++;
    context->fault = context->modules = 0;
}
/* Makes another context at the address of a destroyed one, as resetting a primary one does. */
void fake_begin(void *context) { ((Context *)context)->life++; }
/* Makes every function in the context fail with `result` from now on. */
void fake_fault(void *context, int32_t result) { ((Context *)context)->fault = result; }
/* Assigns a stream to a context. */
void fake_stream(void *stream, void *context) {
    for (int i = 0; i < STREAMS; i++) {
        if (streams[i].stream && streams[i].stream != stream) continue;
        streams[i].stream = stream;
        streams[i].context = context;
        return;
    }
    abort();
}
/* Makes a context current; null makes none current. */
void fake_set_current(void *context) {
    depth = context != NULL;
    stack[0] = context;
}
int32_t fake_depth(void) { return depth; }

/* ---- helpers ---- */

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
        int32_t failure = ended ? DEINITIALIZED : result_of(__func__); \
        if (failure) { \
            note("%s fails with %d\n", __func__, (int)failure); \
            return failure; \
        } \
    } while (0)

/* For functions that work in the current context. */
#define ENTER_CONTEXT() \
    do { \
        ENTER(); \
        if (!current()) return INVALID_CONTEXT; \
        if (current()->fault) return current()->fault; \
    } while (0)

#define ENTER_STREAM(stream) \
    do { \
        ENTER_CONTEXT(); \
        if (!is_stream(stream)) return INVALID_HANDLE; \
    } while (0)

enum {
    INVALID_VALUE = 1,
    DEINITIALIZED = 4,
    INVALID_CONTEXT = 201,
    INVALID_PTX = 218,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500
};

__attribute__((destructor)) static void end(void) { ended = 1; }

static int32_t misuse(int32_t result) {
    __atomic_add_fetch(&misuses, 1, __ATOMIC_SEQ_CST);
    return result;
}

static Context *current(void) { return depth ? stack[depth - 1] : NULL; }

static int is_stream(const void *stream) {
    for (int i = 0; i < STREAMS && stream; i++) {
        if (streams[i].stream == stream) return streams[i].context == current();
    }
    return !stream;
}

static int is_there(const Module *module) {
    return !module->unloaded && module->life == module->context->life;
}

/* The maximum bytes of shared memory of a block. */
static int32_t most_shared(void) {
    switch (capability) {
    case 75: return 64 << 10;
    case 80: case 87: return 163 << 10;
    case 90: case 100: case 103: return 227 << 10;
    default: return 99 << 10;
    }
}

static uint64_t allocate(size_t bytes) {
    void *memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < ALLOCATIONS && memory; i++) {
        if (allocations[i].address) continue;
        allocations[i].address = (uint64_t)(uintptr_t)memory;
        allocations[i].bytes = bytes;
        allocations[i].id = ++allocated;
        allocations[i].context = current();
        pthread_mutex_unlock(&lock);
        return (uint64_t)(uintptr_t)memory;
    }
    abort();
}

static int32_t release(uint64_t address) {
    int found = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < ALLOCATIONS; i++) {
        if (allocations[i].address != address) continue;
        allocations[i].address = 0;
        found = 1;
    }
    pthread_mutex_unlock(&lock);
    if (!found) return misuse(INVALID_VALUE);
    free((void *)(uintptr_t)address);
    return 0;
}

/* Reads the sizes of the parameters of an entry from its text: `.param .u64 name`. Returns -1 if
 * there is no such entry. */
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
    case 4: *name = "CUDA_ERROR_DEINITIALIZED"; return 0;
    case 100: *name = "CUDA_ERROR_NO_DEVICE"; return 0;
    case 101: *name = "CUDA_ERROR_INVALID_DEVICE"; return 0;
    case 201: *name = "CUDA_ERROR_INVALID_CONTEXT"; return 0;
    case 218: *name = "CUDA_ERROR_INVALID_PTX"; return 0;
    case 400: *name = "CUDA_ERROR_INVALID_HANDLE"; return 0;
    case 700: *name = "CUDA_ERROR_ILLEGAL_ADDRESS"; return 0;
    default: return INVALID_VALUE;
    }
}

int32_t cuGetErrorString(int32_t result, const char **string) {
    switch (result) {
    case 1: *string = "invalid argument"; return 0;
    case 2: *string = "out of memory"; return 0;
    case 4: *string = "driver shutting down"; return 0;
    case 100: *string = "no CUDA-capable device is detected"; return 0;
    case 101: *string = "invalid device ordinal"; return 0;
    case 201: *string = "invalid device context"; return 0;
    case 218: *string = "a PTX JIT compilation failed"; return 0;
    case 400: *string = "invalid resource handle"; return 0;
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
    switch (attribute) {
    case 75: *value = capability / 10; return 0;
    case 76: *value = capability % 10; return 0;
    case 97: *value = most_shared(); return 0;
    case 115: *value = pools; return 0;
    default: return INVALID_VALUE;
    }
}

int32_t cuDevicePrimaryCtxRetain(void **context, int32_t device) {
    ENTER();
    note("retain %d\n", (int)device);
    pthread_mutex_lock(&lock);
    if (!retained[device]++) {
        primaries[device].device = device;
        primaries[device].primary = 1;
        primaries[device].life++;
    }
    pthread_mutex_unlock(&lock);
    *context = &primaries[device];
    return 0;
}

int32_t cuDevicePrimaryCtxRelease_v2(int32_t device) {
    ENTER();
    note("release %d\n", (int)device);
    if (retained[device] <= 0) return misuse(INVALID_CONTEXT);
    if (!--retained[device]) fake_end(&primaries[device]);
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
    if (((Context *)context)->life % 2 == 0) return misuse(INVALID_CONTEXT);
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
    ENTER_CONTEXT();
    Module *loaded = calloc(1, sizeof *loaded);
    loaded->ptx = strdup(image);
    loaded->context = current();
    loaded->life = current()->life;
    *module = loaded;
    __atomic_add_fetch(&modules, 1, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&current()->modules, 1, __ATOMIC_SEQ_CST);
    note("load on %d\n", (int)current()->device);
    return 0;
}

int32_t cuModuleUnload(void *module) {
    ENTER_CONTEXT();
    Module *loaded = module;
    if (!is_there(loaded)) return misuse(INVALID_HANDLE);
    note("unload\n");
    loaded->unloaded = 1;
    __atomic_add_fetch(&modules, -1, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&loaded->context->modules, -1, __ATOMIC_SEQ_CST);
    return 0;
}

int32_t cuModuleGetFunction(void **function, void *module, const char *name) {
    ENTER_CONTEXT();
    Function *found = calloc(1, sizeof *found);
    found->module = module;
    found->dynamic = 48 << 10;
    snprintf(found->name, sizeof found->name, "%s", name);
    found->params = find_params(found->module->ptx, name, found->sizes);
    if (found->params < 0) return NOT_FOUND;
    *function = found;
    return 0;
}

int32_t cuFuncSetAttribute(void *function, int32_t attribute, int32_t value) {
    ENTER_CONTEXT();
    Function *changed = function;
    if (attribute == 8) {
        if (value < 0 || value > most_shared()) return INVALID_VALUE;
        changed->dynamic = (uint32_t)value;
    }
    note("attribute %d of %s is %d\n", (int)attribute, changed->name, (int)value);
    return 0;
}

int32_t cuLaunchKernel(void *function, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx,
                       uint32_t by, uint32_t bz, uint32_t shared, void *stream, void **params,
                       void **extra) {
    ENTER_STREAM(stream);
    Function *launched = function;
    if (!is_there(launched->module)) return misuse(INVALID_HANDLE);
    if (launched->module->context != current()) return misuse(INVALID_CONTEXT);
    if (shared > launched->dynamic) return INVALID_VALUE;
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
    ENTER_CONTEXT();
    *address = allocate(bytes);
    note("alloc %zu\n", bytes);
    return 0;
}

int32_t cuMemFree_v2(uint64_t address) {
    ENTER_CONTEXT();
    note("free\n");
    return release(address);
}

int32_t cuPointerGetAttribute(void *value, int32_t attribute, uint64_t address) {
    ENTER();
    if (current() && current()->fault) return current()->fault;
    int32_t result = INVALID_VALUE;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < ALLOCATIONS && attribute == 7; i++) {
        if (address - allocations[i].address >= allocations[i].bytes) continue;
        if (!allocations[i].address) continue;
        *(uint64_t *)value = allocations[i].id;
        result = 0;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

int32_t cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
    ENTER_CONTEXT();
    memcpy((void *)(uintptr_t)to, from, bytes);
    return 0;
}

int32_t cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
    ENTER_CONTEXT();
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return 0;
}

int32_t cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
    ENTER_STREAM(stream);
    note("copy %zu stream %p\n", bytes, stream);
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return 0;
}

int32_t cuStreamSynchronize(void *stream) {
    ENTER_STREAM(stream);
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
    ENTER_STREAM(stream);
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
    ENTER_STREAM(stream);
    (void)pool;
    *address = allocate(bytes);
    note("alloc %zu from the pool stream %p\n", bytes, stream);
    return 0;
}

int32_t cuMemFreeAsync(uint64_t address, void *stream) {
    ENTER_STREAM(stream);
    note("free stream %p\n", stream);
    return release(address);
}
