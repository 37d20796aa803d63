/* A replacement of libtvm_ffi.so that records raised errors. */
#include <stdint.h>
#include <string.h>

static char raised[4096];

void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message) {
    strcpy(raised, kind);
    strcat(raised, ": ");
    strncat(raised, message, sizeof raised - 100);
}

/* Returns the error raised since the last call. */
const char *fake_take_raised(void) {
    static char taken[4096];
    strcpy(taken, raised);
    raised[0] = 0;
    return taken;
}

struct byte_array {
    const char *data;
    uint64_t size;
};
struct any {
    int32_t type;
    uint32_t zero;
    const char *text;
};

int32_t TVMFFIStringFromByteArray(const struct byte_array *in, struct any *out) {
    static char text[4096];
    memcpy(text, in->data, in->size);
    text[in->size] = 0;
    out->type = 65;
    out->text = text;
    return 0;
}
