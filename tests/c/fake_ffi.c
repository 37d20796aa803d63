/* What modules ask libtvm_ffi for: here every thread has one stream. */
#include <stdint.h>

void *TVMFFIEnvGetStream(int32_t device_type, int32_t device) {
    (void)device_type, (void)device;
    return (void *)0x5712ea;
}
