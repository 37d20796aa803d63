/* The functions of libtvm_ffi that modules use; every thread has the same stream. */
#include <stdint.h>

void *TVMFFIEnvGetStream(int32_t device_type, int32_t device) {
    (void)device_type, (void)device;
    return (void *)0x5712ea;
}
