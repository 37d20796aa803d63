/* Makes one call with a failing or insufficient driver and prints the message. argv[1] is the
 * entry, argv[2] the failure (FUNCTION=RESULT), argv[3] the compute capability of the GPUs. */
#include "m.h"
#include "support.h"
#include <dlfcn.h>

PackedFn __tvm_ffi_add;

int main(int argc, char **argv) {
    if (argc > 2) setenv("FAKE_CUDA_FAIL", argv[2], 1);
    if (argc > 3) {
        void (*devices)(int32_t, int32_t, int32_t);
        void *driver = dlopen("./libfake_cuda.so", RTLD_NOW);
        if (!driver) return 3;
        *(void **)&devices = dlsym(driver, "fake_devices");
        devices(1, atoi(argv[3]), 1);
    }
    static _Alignas(16) float data[3][8];
    int64_t shape[1] = {8};
    DLTensor t[3] = {{0}};
    Cell cells[3], result = {0, 0, {0}};
    for (int i = 0; i < 3; i++) {
        t[i].data = data[i];
        t[i].device.device_type = strcmp(argv[1], "cpu") ? kDLCUDA : kDLCPU;
        t[i].ndim = 1;
        t[i].dtype.code = kDLFloat;
        t[i].dtype.bits = 32;
        t[i].dtype.lanes = 1;
        t[i].shape = shape;
        cells[i] = (Cell){DLTENSOR, 0, {0}};
        cells[i].value.pointer = &t[i];
    }
    int32_t code, expected = -1;
    if (strcmp(argv[1], "raw") == 0) {
        expected = 3;
        code = add(data[0], data[1], data[2], 8, NULL);
    } else if (strcmp(argv[1], "packed") == 0) {
        code = __tvm_ffi_add(NULL, cells, 3, &result);
    } else {
        code = add_dl(&t[0], &t[1], &t[2], NULL);
    }
    if (code == 0) {
        printf("no error\n");
        return 0;
    }
    printf("%s\n", m_last_error());
    return code != expected;
}
