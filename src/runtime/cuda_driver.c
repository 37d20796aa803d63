/* The CUDA driver, for cuda.c: the functions that it uses, opening the library, texts of
 * results. */
#include "tec_runtime.h"

typedef int32_t cu_result;
typedef int32_t cu_device;
typedef uint64_t cu_address;
typedef struct cu_context_data *cu_context;
typedef struct cu_module_data *cu_module;
typedef struct cu_function_data *cu_function;
typedef struct cu_pool_data *cu_pool;
typedef void *cu_stream;

enum {
    CU_INVALID_VALUE = 1,
    CU_OUT_OF_MEMORY = 2,
    /* CUjit_option */
    CU_JIT_ERROR_LOG = 5,
    CU_JIT_ERROR_LOG_BYTES = 6,
    /* CUdevice_attribute */
    CU_CAPABILITY_MAJOR = 75,
    CU_CAPABILITY_MINOR = 76,
    CU_MAX_SHARED_OF_BLOCK = 97, /* including what a function must request */
    CU_HAS_MEMORY_POOLS = 115,
    /* CUpointer_attribute */
    CU_BUFFER_ID = 7,
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

/* The functions of the driver that are used: our name, the driver's, the parameters. */
#define DRIVER(X) \
    X(init, "cuInit", (uint32_t)) \
    X(error_name, "cuGetErrorName", (cu_result, const char **)) \
    X(error_string, "cuGetErrorString", (cu_result, const char **)) \
    X(device_count, "cuDeviceGetCount", (int32_t *)) \
    X(device_get, "cuDeviceGet", (cu_device *, int32_t)) \
    X(device_name, "cuDeviceGetName", (char *, int32_t, cu_device)) \
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
    X(pointer_attribute, "cuPointerGetAttribute", (void *, int32_t, cu_address)) \
    X(copy_to_host, "cuMemcpyDtoHAsync_v2", (void *, cu_address, size_t, cu_stream)) \
    X(stream_wait, "cuStreamSynchronize", (cu_stream))

/* Functions that drivers before CUDA 11.2 lack. */
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
static uint32_t driver_found, driver_ready;

extern __attribute__((weak, visibility("default"))) char *dlerror(void);

/* The lock for loading the driver and the PTX. 0: free, 1: held, 2: held and awaited. */
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

/* Opens the driver's library and finds its functions. On failure closes it, writes the reason and
 * returns 0. */
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
        if (dlclose) dlclose(library);
        return 0;
    }
    return 1;
}

static COLD int start_driver(struct message *m) {
    if (!driver_found) driver_found = (uint32_t)find_driver(m);
    if (!driver_found) return 0;
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

/* Whether there are a driver and a GPU; if not, writes the reason. After a failure the next call
 * tries again. */
static int cuda_ready(struct message *m) {
    if (__atomic_load_n(&driver_ready, __ATOMIC_ACQUIRE)) return 1;
    lock_cuda();
    int ready = driver_ready || start_driver(m);
    if (ready) __atomic_store_n(&driver_ready, 1, __ATOMIC_RELEASE);
    unlock_cuda();
    return ready;
}
