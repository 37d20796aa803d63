/* The libraries that a module for GPUs opens: it closes unusable ones and finds those that are
 * loaded later. argv[1] selects the part; the driver is the file in TEC_CUDA_LIBRARY. */
#include "support.h"
#include <dlfcn.h>

typedef int32_t Raw(const float *, const float *, float *, int64_t, void *);

static void *find(void *module, const char *name) {
    void *found = module ? dlsym(module, name) : NULL;
    if (!found) exit(2);
    return found;
}

static int is_open(const char *file) {
    void *library = dlopen(file, RTLD_NOW | RTLD_NOLOAD);
    if (library) dlclose(library);
    return library != NULL;
}

int main(int argc, char **argv) {
    static _Alignas(16) float data[3][8];
    const char *driver = getenv("TEC_CUDA_LIBRARY"), *part = argc > 1 ? argv[1] : "";
    void *module = dlopen("./m.so", RTLD_NOW | RTLD_LOCAL);
    union {
        void *object;
        Raw *raw;
    } add = {find(module, "add")};
    for (int i = 0; i < 3; i++) {
        int32_t code = add.raw(data[0], data[1], data[2], 8, NULL);
        EXPECT(code == (strcmp(part, "late") ? 3 : 0));
    }
    if (strcmp(part, "no_driver") == 0) {
        EXPECT(!is_open(driver));
    } else if (strcmp(part, "no_gpu") == 0) {
        /* Only the module has a handle. */
        void *library = dlopen(driver, RTLD_NOW | RTLD_NOLOAD);
        EXPECT(library && dlclose(library) == 0 && is_open(driver));
        EXPECT(library && dlclose(library) == 0 && !is_open(driver));
    } else {
        union {
            void *object;
            PackedFn *call;
        } packed = {find(module, "__tvm_ffi_add")};
        union {
            void *object;
            const char *(*text)(void);
        } log = {find(dlopen(driver, RTLD_NOW), "fake_log")};
        union {
            void *object;
            void (*bind)(void *, void *);
        } stream = {find(dlopen(driver, RTLD_NOW), "fake_stream")};
        union {
            void *object;
            void *(*of)(int32_t);
        } primary = {find(dlopen(driver, RTLD_NOW), "fake_primary")};
        stream.bind((void *)0x5712ea, primary.of(0));
        int64_t shape[1] = {8};
        DLTensor t[3] = {{0}};
        Cell cells[3], result = {0, 0, {0}};
        for (int i = 0; i < 3; i++) {
            t[i].data = data[i];
            t[i].device.device_type = kDLCUDA;
            t[i].ndim = 1;
            t[i].dtype.code = kDLFloat;
            t[i].dtype.bits = 32;
            t[i].dtype.lanes = 1;
            t[i].shape = shape;
            cells[i] = (Cell){DLTENSOR, 0, {0}};
            cells[i].value.pointer = &t[i];
        }
        EXPECT(packed.call(NULL, cells, 3, &result) == 0);
        EXPECT(!strstr(log.text(), "0x5712ea"));
        void *ffi = dlopen("./libtvm_ffi.so", RTLD_NOW | RTLD_LOCAL);
        EXPECT(ffi != NULL);
        EXPECT(packed.call(NULL, cells, 3, &result) == 0);
        EXPECT(strstr(log.text(), "launch add on 0 stream 0x5712ea") != NULL);
        /* Only this program keeps it open. */
        EXPECT(ffi && dlclose(ffi) == 0 && !is_open("./libtvm_ffi.so"));
    }
    return finish();
}
