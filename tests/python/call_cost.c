/* Measures one call of each entry of vector_add_var.te with three tensors of one element.
 *   call_cost MODULE.so */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct tensor {
    void *data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};

struct any {
    int32_t type;
    uint32_t zero;
    void *value;
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

enum { BATCHES = 41, CALLS = 100000 };

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Prints the median and the minimum of all batches, per call. */
#define MEASURE(name, call)                                                     \
    do {                                                                        \
        double each[BATCHES];                                                   \
        for (int batch = 0; batch < BATCHES; batch++) {                         \
            double start = now();                                               \
            for (int i = 0; i < CALLS; i++)                                     \
                if (call) return 1;                                             \
            each[batch] = (now() - start) / CALLS;                              \
        }                                                                       \
        qsort(each, BATCHES, sizeof *each, ascending);                          \
        printf("  %-34s %6.1f ns   (min %.1f)\n", name, each[BATCHES / 2], each[0]); \
    } while (0)

int main(int count, char **arguments) {
    void *module = count == 2 ? dlopen(arguments[1], RTLD_NOW) : 0;
    if (!module) {
        fprintf(stderr, "%s\n", count == 2 ? dlerror() : "usage: call_cost MODULE.so");
        return 2;
    }
    int32_t (*raw)(float *, float *, float *, int64_t) = dlsym(module, "vector_add_var");
    int32_t (*checked)(struct tensor *, struct tensor *, struct tensor *) =
        dlsym(module, "vector_add_var_dl");
    int32_t (*packed)(void *, struct any *, int32_t, struct any *) =
        dlsym(module, "__tvm_ffi_vector_add_var");
    float data[3][1] = {{1}, {2}, {0}};
    int64_t shape = 1, stride = 1;
    struct tensor t[3];
    struct any args[3], ret = {0, 0, 0};
    for (int i = 0; i < 3; i++) {
        t[i] = (struct tensor){data[i], 1, 0, 1, 2, 32, 1, &shape, &stride, 0};
        args[i] = (struct any){7, 0, &t[i]};
    }
    MEASURE("raw entry", raw(data[0], data[1], data[2], 1));
    MEASURE("checked entry _dl, DLTensor *", checked(&t[0], &t[1], &t[2]));
    MEASURE("checked entry of tvm-ffi, packed", packed(0, args, 3, &ret));
    return data[2][0] != 3;
}
