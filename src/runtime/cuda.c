/* Launches the kernels of a module for NVIDIA GPUs through the CUDA driver, which is found when the
 * first call comes: nothing of CUDA is needed to build a module or to load it. Before: the blob of
 * the kernel's launches, the words of its parameters, the numbers that its plan function computed.
 * After: every launch is on the caller's stream; nothing is waited for.
 *
 * The PTX is loaded once for each context (the driver compiles it then) and stays until the
 * module is unloaded. A context is the caller's current one if it belongs to the device of the
 * tensors, else the device's primary context, which is made current for the time of the call. */
#include "tec_runtime.h"

/* ---- the driver ---- */

typedef int32_t cu_result;
typedef int32_t cu_device;
typedef uint64_t cu_address;
typedef struct cu_context_data *cu_context;
typedef struct cu_module_data *cu_module;
typedef struct cu_function_data *cu_function;
typedef struct cu_pool_data *cu_pool;
typedef void *cu_stream;

enum {
    CU_OUT_OF_MEMORY = 2,
    /* CUjit_option */
    CU_JIT_ERROR_LOG = 5,
    CU_JIT_ERROR_LOG_BYTES = 6,
    /* CUdevice_attribute */
    CU_CAPABILITY_MAJOR = 75,
    CU_CAPABILITY_MINOR = 76,
    CU_HAS_MEMORY_POOLS = 115,
    /* CUfunction_attribute */
    CU_MAX_DYNAMIC_SHARED = 8,
    /* CUmemPool_attribute, CUmemAllocationType, CUmemLocationType */
    CU_RELEASE_THRESHOLD = 4,
    CU_ALLOCATION_PINNED = 1,
    CU_LOCATION_DEVICE = 1
};

/* CUmemPoolProps. */
struct pool_properties {
    int32_t allocation;
    int32_t handles;
    int32_t location;
    int32_t device;
    void *security;
    uint64_t most;
    uint8_t reserved[56];
};

/* What is used of the driver: our name, the driver's, the parameters. */
#define DRIVER(X) \
    X(init, "cuInit", (uint32_t)) \
    X(error_name, "cuGetErrorName", (cu_result, const char **)) \
    X(error_string, "cuGetErrorString", (cu_result, const char **)) \
    X(device_count, "cuDeviceGetCount", (int32_t *)) \
    X(device_get, "cuDeviceGet", (cu_device *, int32_t)) \
    X(device_attribute, "cuDeviceGetAttribute", (int32_t *, int32_t, cu_device)) \
    X(primary_retain, "cuDevicePrimaryCtxRetain", (cu_context *, cu_device)) \
    X(primary_release, "cuDevicePrimaryCtxRelease_v2", (cu_device)) \
    X(context_current, "cuCtxGetCurrent", (cu_context *)) \
    X(context_device, "cuCtxGetDevice", (cu_device *)) \
    X(context_push, "cuCtxPushCurrent_v2", (cu_context)) \
    X(context_pop, "cuCtxPopCurrent_v2", (cu_context *)) \
    X(module_load, "cuModuleLoadDataEx", \
      (cu_module *, const void *, uint32_t, int32_t *, void **)) \
    X(module_unload, "cuModuleUnload", (cu_module)) \
    X(module_function, "cuModuleGetFunction", (cu_function *, cu_module, const char *)) \
    X(function_attribute, "cuFuncSetAttribute", (cu_function, int32_t, int32_t)) \
    X(launch, "cuLaunchKernel", \
      (cu_function, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, \
       cu_stream, void **, void **)) \
    X(alloc, "cuMemAlloc_v2", (cu_address *, size_t)) \
    X(free, "cuMemFree_v2", (cu_address)) \
    X(copy_to_host, "cuMemcpyDtoHAsync_v2", (void *, cu_address, size_t, cu_stream)) \
    X(stream_wait, "cuStreamSynchronize", (cu_stream))

/* What drivers before CUDA 11.2 lack. */
#define NEW_DRIVER(X) \
    X(pool_create, "cuMemPoolCreate", (cu_pool *, const struct pool_properties *)) \
    X(pool_destroy, "cuMemPoolDestroy", (cu_pool)) \
    X(pool_set, "cuMemPoolSetAttribute", (cu_pool, int32_t, void *)) \
    X(pool_alloc, "cuMemAllocFromPoolAsync", (cu_address *, size_t, cu_pool, cu_stream)) \
    X(pool_free, "cuMemFreeAsync", (cu_address, cu_stream))

struct driver {
#define MEMBER(name, symbol, parameters) cu_result(*name) parameters;
    DRIVER(MEMBER)
    NEW_DRIVER(MEMBER)
#undef MEMBER
};

static const char driver_symbols[][32] = {
#define SYMBOL(name, symbol, parameters) symbol,
    DRIVER(SYMBOL)
    NEW_DRIVER(SYMBOL)
#undef SYMBOL
};

enum {
    DRIVER_FUNCTIONS = sizeof driver_symbols / sizeof driver_symbols[0],
#define ONE(name, symbol, parameters) +1
    NEEDED_FUNCTIONS = 0 DRIVER(ONE)
#undef ONE
};

static struct driver driver;
static uint32_t driver_ready;

extern __attribute__((weak, visibility("default"))) char *dlerror(void);

/* One thread at a time loads the driver, or the PTX. 0: open, 1: locked, 2: and someone waits. */
static uint32_t cuda_lock;

static COLD void lock_cuda(void) {
    uint32_t open = 0;
    if (__atomic_compare_exchange_n(&cuda_lock, &open, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        return;
    }
    while (__atomic_exchange_n(&cuda_lock, 2, __ATOMIC_ACQUIRE) != 0) futex_wait(&cuda_lock, 2);
}

static COLD void unlock_cuda(void) {
    if (__atomic_exchange_n(&cuda_lock, 0, __ATOMIC_RELEASE) == 2) futex_wake(&cuda_lock);
}

/* "an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS)". */
static COLD void put_result(struct message *m, cu_result result) {
    const char *text = 0, *name = 0;
    if (driver.error_string(result, &text) || !text) text = "unknown error";
    if (driver.error_name(result, &name) || !name) name = "no name";
    put(m, text);
    put(m, " (");
    put(m, name);
    put(m, ")");
}

/* Opens the driver's library and finds its functions; false with the reason in the message. */
static COLD int find_driver(struct message *m) {
    enum { NOW = 2 };
    const char *file = getenv("TEC_CUDA_LIBRARY");
    if (!file || !*file) file = "libcuda.so.1";
    if (!dlopen || !dlsym) {
        put(m, "this program cannot load libraries, so there is no CUDA driver");
        return 0;
    }
    void *library = dlopen(file, NOW);
    if (!library) {
        const char *why = dlerror ? dlerror() : 0;
        put(m, "no CUDA driver: ");
        put(m, why ? why : file);
        return 0;
    }
    void **functions = (void **)&driver;
    for (uint32_t i = 0; i < DRIVER_FUNCTIONS; i++) {
        const char *name = driver_symbols[i];
        functions[i] = dlsym(library, name);
        if (functions[i] || i >= NEEDED_FUNCTIONS) continue;
        put(m, "the CUDA driver ");
        put(m, file);
        put(m, " has no function ");
        put(m, name);
        return 0;
    }
    return 1;
}

static COLD int start_driver(struct message *m) {
    if (!find_driver(m)) return 0;
    int32_t devices = 0;
    cu_result result = driver.init(0);
    if (!result) result = driver.device_count(&devices);
    if (result) {
        put(m, "the CUDA driver does not start: ");
        put_result(m, result);
        return 0;
    }
    if (devices < 1) put(m, "the CUDA driver finds no GPU");
    return devices > 0;
}

/* Whether there is a driver and a GPU; if not, why. What fails is tried again by the next call. */
static int cuda_ready(struct message *m) {
    if (__atomic_load_n(&driver_ready, __ATOMIC_ACQUIRE)) return 1;
    lock_cuda();
    int ready = driver_ready || start_driver(m);
    if (ready) __atomic_store_n(&driver_ready, 1, __ATOMIC_RELEASE);
    unlock_cuda();
    return ready;
}

/* ---- what is loaded ---- */

/* A module in a context; never changed once it is in the list. */
struct loaded {
    struct loaded *next;
    uint64_t bytes; /* of this */
    cu_context context;
    cu_module module;
    cu_pool pool; /* for temporaries; null if the device has no pools */
    cu_function functions[];
};

enum { MAX_DEVICES = 64 };

/* Primary contexts that this module holds, by device. */
static cu_context primary[MAX_DEVICES];

/* One text of PTX is in a shared object, but several may be in a program: each has its list. The
 * lists in use are linked for the end. */
struct cuda_state {
    struct loaded *first;
    struct cuda_state *next;
};

static struct cuda_state *states;

/* Runs when this shared object is unloaded, or, before the driver's own end, when the process
 * exits. The list of functions to call then is kept by the address of `unload_key`. */
extern __attribute__((weak, visibility("default"))) int __cxa_atexit(void (*)(void *), void *,
                                                                     void *);
extern __attribute__((weak, visibility("default"))) void __cxa_finalize(void *);
static char unload_key;
static uint32_t unload_registered;

static COLD void unload_all(void *unused) {
    (void)unused;
    for (struct cuda_state *state = states; state; state = state->next) {
        for (struct loaded *one = state->first, *next; one; one = next) {
            next = one->next;
            cu_context popped;
            if (!driver.context_push(one->context)) {
                driver.module_unload(one->module);
                if (one->pool) driver.pool_destroy(one->pool);
                driver.context_pop(&popped);
            }
            munmap(one, one->bytes);
        }
        state->first = 0;
    }
    for (int32_t i = 0; i < MAX_DEVICES; i++) {
        if (primary[i]) driver.primary_release(i);
        primary[i] = 0;
    }
}

static __attribute__((destructor)) void finalize_cuda(void) {
    if (unload_registered && __cxa_finalize) __cxa_finalize(&unload_key);
}

/* ---- a call ---- */

/* What a parameter of an entry is given. */
enum { CUDA_PARAM = 0, CUDA_WORKSPACE = 1, CUDA_NUMBER = 2 };

struct cuda_param {
    uint32_t kind;
    uint32_t index; /* of the word, the temporary, the number */
};

struct cuda_launch {
    uint32_t name; /* offset */
    uint32_t function; /* in `loaded` */
    uint32_t block[3];
    uint32_t dynamic_shared;
    uint32_t grid; /* the first of three numbers */
    uint32_t params;
    uint32_t param_at; /* offset: struct cuda_param [params] */
};

/* The blob of a kernel; offsets count from its start. */
struct cuda_kernel {
    uint32_t capability; /* 80: what the GPU must have at least */
    uint32_t exact;      /* and it must have just that */
    uint32_t functions;  /* of the whole module */
    uint32_t name_at;    /* offset: uint32_t [functions], offsets of names */
    uint32_t workspaces; /* the first numbers are their bytes */
    uint32_t launches;
    uint32_t launch_at; /* offset: struct cuda_launch [launches] */
    uint32_t dynamic_at; /* offset: uint32_t [functions], bytes of dynamic shared memory */
};

/* Made by compiled code; all but the signature, the place and `packed` only for launches. */
struct cuda_call {
    struct cuda_state *state;
    const struct cuda_kernel *kernel;
    const struct signature *sig;
    const char *ptx;
    const uint64_t *words;   /* the raw parameters */
    const int64_t *numbers;  /* by the kernel's plan */
    cu_address *temporaries; /* room for the address of each */
    const void **values;     /* room for the parameters of a launch */
    cu_stream stream;
    int32_t device; /* -1: that of the current context */
    int32_t packed;
};

static const void *blob_at(const struct cuda_call *call, uint32_t offset) {
    return (const char *)call->kernel + offset;
}

static COLD int32_t refuse_cuda(struct message *m, const struct cuda_call *call,
                                const char *kind, int32_t code) {
    refuse(m, call->sig, kind, call->packed);
    return code;
}

/* "`what` `name`: the driver's reason"; `name` may be null. */
static COLD int32_t fail_cuda(const struct cuda_call *call, const char *what, const char *name,
                              cu_result result) {
    struct message m = {.length = 0};
    put(&m, what);
    if (name) {
        put(&m, " `");
        put(&m, name);
        put(&m, "`");
    }
    put(&m, ": ");
    put_result(&m, result);
    int memory = result == CU_OUT_OF_MEMORY;
    return refuse_cuda(&m, call, memory ? "MemoryError" : "RuntimeError",
                       memory ? FAILED_MEMORY : FAILED_CUDA);
}

/* ---- contexts ---- */

static COLD int32_t retain_primary(const struct cuda_call *call, int32_t device,
                                   cu_context *context) {
    cu_device handle;
    cu_result result = 0;
    lock_cuda();
    *context = primary[device];
    if (!*context) {
        result = driver.device_get(&handle, device);
        if (!result) result = driver.primary_retain(context, handle);
        if (!result) __atomic_store_n(&primary[device], *context, __ATOMIC_RELEASE);
    }
    unlock_cuda();
    return result ? fail_cuda(call, "no context on the device", 0, result) : 0;
}

/* Makes a context of the call's device current. `*pushed` is null if it was already. */
static int32_t enter_context(const struct cuda_call *call, cu_context *context,
                             cu_context *pushed) {
    cu_device device = -1;
    *pushed = 0;
    cu_result result = driver.context_current(context);
    if (!result && *context) result = driver.context_device(&device);
    if (result) return fail_cuda(call, "the current context", 0, result);
    if (*context && (call->device < 0 || call->device == device)) return 0;
    int32_t wanted = call->device < 0 ? 0 : call->device;
    if (wanted >= MAX_DEVICES) {
        struct message m = {.length = 0};
        put(&m, "a module serves the devices cuda:0 to cuda:63, not cuda:");
        put_int(&m, wanted);
        return refuse_cuda(&m, call, "ValueError", FAILED_CUDA);
    }
    *context = __atomic_load_n(&primary[wanted], __ATOMIC_ACQUIRE);
    if (!*context) {
        int32_t failed = retain_primary(call, wanted, context);
        if (failed) return failed;
    }
    result = driver.context_push(*context);
    if (result) return fail_cuda(call, "the context of the device", 0, result);
    *pushed = *context;
    return 0;
}

static void leave_context(cu_context pushed) {
    cu_context popped;
    if (pushed) driver.context_pop(&popped);
}

/* ---- loading the PTX ---- */

/* The current context's device must have what the PTX was made for. */
static COLD int32_t check_capability(const struct cuda_call *call, cu_device device) {
    int32_t major = 0, minor = 0;
    cu_result result = driver.device_attribute(&major, CU_CAPABILITY_MAJOR, device);
    if (!result) result = driver.device_attribute(&minor, CU_CAPABILITY_MINOR, device);
    if (result) return fail_cuda(call, "the device's compute capability", 0, result);
    uint32_t has = (uint32_t)(10 * major + minor), wants = call->kernel->capability;
    if (call->kernel->exact ? has == wants : has >= wants) return 0;
    struct message m = {.length = 0};
    put(&m, "this GPU has compute capability ");
    put_int(&m, major);
    put(&m, ".");
    put_int(&m, minor);
    put(&m, ": the module was compiled for target ");
    put(&m, text_at(call->sig, call->sig->target));
    return refuse_cuda(&m, call, "RuntimeError", FAILED_CUDA);
}

static COLD int32_t load_ptx(const struct cuda_call *call, cu_module *module) {
    char log[1024];
    int32_t options[] = {CU_JIT_ERROR_LOG, CU_JIT_ERROR_LOG_BYTES};
    void *values[] = {log, (void *)sizeof log};
    log[0] = 0;
    cu_result result = driver.module_load(module, call->ptx, 2, options, values);
    if (!result) return 0;
    if (result == CU_OUT_OF_MEMORY) return fail_cuda(call, "loading the PTX", 0, result);
    struct message m = {.length = 0};
    put(&m, "the CUDA driver refuses the PTX of the module: ");
    put_result(&m, result);
    log[sizeof log - 1] = 0;
    if (log[0]) put(&m, ": ");
    uint32_t length = 0;
    while (log[length]) length++;
    while (length && (log[length - 1] == '\n' || log[length - 1] == ' ')) log[--length] = 0;
    put(&m, log);
    return refuse_cuda(&m, call, "RuntimeError", FAILED_CUDA);
}

static COLD int32_t find_functions(const struct cuda_call *call, struct loaded *loaded) {
    const uint32_t *names = blob_at(call, call->kernel->name_at);
    const uint32_t *dynamic = blob_at(call, call->kernel->dynamic_at);
    for (uint32_t i = 0; i < call->kernel->functions; i++) {
        const char *name = blob_at(call, names[i]);
        cu_function *function = &loaded->functions[i];
        cu_result result = driver.module_function(function, loaded->module, name);
        if (result) return fail_cuda(call, "no kernel", name, result);
        if (!dynamic[i]) continue;
        result = driver.function_attribute(*function, CU_MAX_DYNAMIC_SHARED, (int32_t)dynamic[i]);
        if (result) return fail_cuda(call, "shared memory of kernel", name, result);
    }
    return 0;
}

/* A pool of the module's own, whose memory stays from call to call. Without one, temporaries are
 * allocated and freed by each call, which then waits for its kernels. */
static COLD cu_pool make_pool(cu_device device) {
    int32_t has = 0;
    if (!driver.pool_create || !driver.pool_destroy || !driver.pool_set || !driver.pool_alloc
        || !driver.pool_free || driver.device_attribute(&has, CU_HAS_MEMORY_POOLS, device)
        || !has) {
        return 0;
    }
    struct pool_properties properties = {
        .allocation = CU_ALLOCATION_PINNED, .location = CU_LOCATION_DEVICE, .device = device};
    cu_pool pool = 0;
    uint64_t keep = UINT64_MAX;
    if (driver.pool_create(&pool, &properties)) return 0;
    driver.pool_set(pool, CU_RELEASE_THRESHOLD, &keep);
    return pool;
}

/* Loads the module into the current context; the lock is held. */
static COLD int32_t load_locked(const struct cuda_call *call, struct loaded *loaded) {
    cu_device device;
    cu_result result = driver.context_device(&device);
    if (result) return fail_cuda(call, "the current context", 0, result);
    int32_t failed = check_capability(call, device);
    if (!failed) failed = load_ptx(call, &loaded->module);
    if (failed) return failed;
    failed = find_functions(call, loaded);
    if (failed) {
        driver.module_unload(loaded->module);
        return failed;
    }
    loaded->pool = make_pool(device);
    if (!unload_registered && __cxa_atexit && __cxa_finalize) {
        unload_registered = __cxa_atexit(unload_all, 0, &unload_key) == 0;
    }
    if (!call->state->first) {
        call->state->next = states;
        states = call->state;
    }
    return 0;
}

static struct loaded *find_loaded(const struct cuda_call *call, cu_context context) {
    struct loaded *one = __atomic_load_n(&call->state->first, __ATOMIC_ACQUIRE);
    while (one && one->context != context) one = one->next;
    return one;
}

static COLD int32_t load_module(const struct cuda_call *call, cu_context context,
                                struct loaded **found) {
    enum { READ_WRITE = 3, PRIVATE_ANONYMOUS = 0x22 };
    lock_cuda();
    int32_t failed = 0;
    *found = find_loaded(call, context);
    if (!*found) {
        uint64_t bytes = sizeof(struct loaded) + call->kernel->functions * sizeof(cu_function);
        struct loaded *loaded = mmap(0, bytes, READ_WRITE, PRIVATE_ANONYMOUS, -1, 0);
        if (loaded == (void *)-1) {
            failed = fail_cuda(call, "loading the PTX", 0, CU_OUT_OF_MEMORY);
        } else {
            *loaded = (struct loaded){call->state->first, bytes, context, 0, 0};
            failed = load_locked(call, loaded);
            if (failed) {
                munmap(loaded, bytes);
            } else {
                *found = loaded;
                __atomic_store_n(&call->state->first, loaded, __ATOMIC_RELEASE);
            }
        }
    }
    unlock_cuda();
    return failed;
}

/* ---- temporaries ---- */

enum { TEMPORARY_ALIGNMENT = 256 };

/* Bytes of all temporaries; -1 if they are too many to count. */
static int64_t temporary_bytes(const struct cuda_call *call) {
    int64_t total = 0;
    for (uint32_t i = 0; i < call->kernel->workspaces; i++) {
        int64_t bytes = call->numbers[i];
        if (bytes < 0 || bytes > INT64_MAX - TEMPORARY_ALIGNMENT - total) return -1;
        total += (bytes + TEMPORARY_ALIGNMENT - 1) / TEMPORARY_ALIGNMENT * TEMPORARY_ALIGNMENT;
    }
    return total;
}

static COLD int32_t fail_temporaries(const struct cuda_call *call, int64_t bytes,
                                     cu_result result) {
    struct message m = {.length = 0};
    put(&m, "out of memory for the temporary tensors");
    if (bytes > 0) {
        put(&m, ", ");
        put_int(&m, bytes);
        put(&m, " bytes");
    }
    put(&m, ": ");
    put_result(&m, result);
    return refuse_cuda(&m, call, "MemoryError", FAILED_MEMORY);
}

static int32_t allocate_temporaries(const struct cuda_call *call, const struct loaded *loaded,
                                    int64_t bytes, cu_address *address) {
    *address = 0;
    if (bytes == 0) return 0;
    if (bytes < 0) return fail_temporaries(call, bytes, CU_OUT_OF_MEMORY);
    cu_result result = loaded->pool
        ? driver.pool_alloc(address, (size_t)bytes, loaded->pool, call->stream)
        : driver.alloc(address, (size_t)bytes);
    if (result == CU_OUT_OF_MEMORY) return fail_temporaries(call, bytes, result);
    return result ? fail_cuda(call, "memory for the temporary tensors", 0, result) : 0;
}

static int32_t free_temporaries(const struct cuda_call *call, const struct loaded *loaded,
                                cu_address address) {
    cu_result result;
    if (!address) return 0;
    if (loaded->pool) {
        result = driver.pool_free(address, call->stream);
    } else {
        /* The kernels that use it have to be done. */
        result = driver.stream_wait(call->stream);
        cu_result freed = driver.free(address);
        if (!result) result = freed;
    }
    return result ? fail_cuda(call, "freeing the temporary tensors", 0, result) : 0;
}

/* ---- launches ---- */

/* A grid without blocks is no error: nothing is launched, however large it is otherwise. */
static int is_empty(const int64_t grid[3]) { return grid[0] <= 0 || grid[1] <= 0 || grid[2] <= 0; }

/* Before anything is launched: what no GPU takes. */
static int32_t check_grids(const struct cuda_call *call) {
    static const int64_t most[3] = {INT32_MAX, 65535, 65535};
    const struct cuda_launch *launches = blob_at(call, call->kernel->launch_at);
    for (uint32_t i = 0; i < call->kernel->launches; i++) {
        const int64_t *grid = call->numbers + launches[i].grid;
        if (is_empty(grid)) continue;
        for (uint32_t k = 0; k < 3; k++) {
            if (grid[k] <= most[k]) continue;
            struct message m = {.length = 0};
            put(&m, "kernel `");
            put(&m, blob_at(call, launches[i].name));
            put(&m, "` would be ");
            put_int(&m, grid[k]);
            put(&m, " blocks along blockIdx.");
            put_bytes(&m, &"xyz"[k], 1);
            put(&m, ", more than the ");
            put_int(&m, most[k]);
            put(&m, " of a GPU");
            return refuse_cuda(&m, call, "ValueError", FAILED_CUDA);
        }
    }
    return 0;
}

static int32_t launch_one(const struct cuda_call *call, const struct loaded *loaded,
                          const struct cuda_launch *launch) {
    const int64_t *grid = call->numbers + launch->grid;
    if (is_empty(grid)) return 0;
    const struct cuda_param *params = blob_at(call, launch->param_at);
    const void **values = call->values;
    for (uint32_t i = 0; i < launch->params; i++) {
        uint32_t index = params[i].index;
        switch (params[i].kind) {
        case CUDA_PARAM: values[i] = call->words + index; break;
        case CUDA_WORKSPACE: values[i] = call->temporaries + index; break;
        default: values[i] = call->numbers + index;
        }
    }
    const uint32_t *block = launch->block;
    cu_result result = driver.launch(
        loaded->functions[launch->function], (uint32_t)grid[0], (uint32_t)grid[1],
        (uint32_t)grid[2], block[0], block[1], block[2], launch->dynamic_shared, call->stream,
        (void **)values, 0);
    return result ? fail_cuda(call, "launching kernel", blob_at(call, launch->name), result) : 0;
}

/* All launches, in a context that is current. */
static int32_t run_launches(const struct cuda_call *call, cu_context context) {
    struct loaded *loaded = find_loaded(call, context);
    cu_address block;
    int32_t failed = loaded ? 0 : load_module(call, context, &loaded);
    if (!failed) {
        failed = allocate_temporaries(call, loaded, temporary_bytes(call), &block);
    }
    if (failed) return failed;
    cu_address next = block;
    for (uint32_t i = 0; i < call->kernel->workspaces; i++) {
        call->temporaries[i] = next;
        uint64_t bytes = (uint64_t)call->numbers[i];
        next += (bytes + TEMPORARY_ALIGNMENT - 1) / TEMPORARY_ALIGNMENT * TEMPORARY_ALIGNMENT;
    }
    const struct cuda_launch *launches = blob_at(call, call->kernel->launch_at);
    for (uint32_t i = 0; i < call->kernel->launches && !failed; i++) {
        failed = launch_one(call, loaded, &launches[i]);
    }
    int32_t freed = free_temporaries(call, loaded, block);
    return failed ? failed : freed;
}

/* Launches what a kernel consists of. 0, or the code of a failure, which was raised. */
INTERNAL int32_t tec_rt_cuda_launch(const struct cuda_call *call) {
    struct message m = {.length = 0};
    if (!cuda_ready(&m)) return refuse_cuda(&m, call, "RuntimeError", FAILED_CUDA);
    cu_context context, pushed;
    int32_t failed = check_grids(call);
    if (!failed) failed = enter_context(call, &context, &pushed);
    if (failed) return failed;
    failed = run_launches(call, context);
    leave_context(pushed);
    return failed;
}

/* ---- the stream of packed calls ---- */

typedef void *get_stream_fn(int32_t device_type, int32_t device);
extern __attribute__((weak, visibility("default"))) get_stream_fn TVMFFIEnvGetStream;

/* The stream that tvm-ffi has for this thread; null, the default stream, where there is none. */
INTERNAL void *tec_rt_cuda_stream(int32_t device) {
    static uint32_t searched;
    static get_stream_fn *found;
    get_stream_fn *get_stream = TVMFFIEnvGetStream;
    if (!get_stream) {
        if (!__atomic_load_n(&searched, __ATOMIC_ACQUIRE)) {
            void *address = find(0, "TVMFFIEnvGetStream");
            __atomic_store_n(&found, (get_stream_fn *)address, __ATOMIC_RELAXED);
            __atomic_store_n(&searched, 1, __ATOMIC_RELEASE);
        }
        get_stream = __atomic_load_n(&found, __ATOMIC_RELAXED);
    }
    return get_stream ? get_stream(DEVICE_CUDA, device) : 0;
}

/* ---- inputs that the kernel's own checks read ---- */

/* A copy in this machine's memory of `bytes` at `address` on the device, when all that is on the
 * stream is done. 0, or the code of a failure, which was raised. */
INTERNAL COLD int32_t tec_rt_cuda_fetch(const struct cuda_call *call, uint64_t address,
                                        uint64_t bytes, void **copy) {
    struct message m = {.length = 0};
    *copy = 0;
    if (!cuda_ready(&m)) return refuse_cuda(&m, call, "RuntimeError", FAILED_CUDA);
    void *memory = tec_rt_workspace_acquire(bytes);
    if (!memory) return fail_cuda(call, "a copy of an input", 0, CU_OUT_OF_MEMORY);
    cu_context context, pushed;
    int32_t failed = enter_context(call, &context, &pushed);
    if (!failed) {
        cu_result result = 0;
        if (bytes) result = driver.copy_to_host(memory, address, bytes, call->stream);
        if (!result) result = driver.stream_wait(call->stream);
        if (result) failed = fail_cuda(call, "a copy of an input", 0, result);
        leave_context(pushed);
    }
    if (failed) {
        tec_rt_workspace_release(memory);
        return failed;
    }
    *copy = memory;
    return 0;
}

