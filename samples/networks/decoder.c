/* Generates text with decoder.te, token by token. The caches belong to the caller; the module
 * appends to them in place. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "decoder.h"

enum { ROWS = 64, VOCAB = 96, D = 64 };

static float keys[2 * ROWS * D], values[2 * ROWS * D];

/* The checked entry would take DLTensors instead, and check shapes, positions and tokens. */
static int32_t next(const int32_t *tokens, int64_t count, int64_t position) {
    float logits[VOCAB];
    if (decoder(tokens, keys, values, logits, count, position) != 0) return -1;
    int32_t best = 0;
    for (int32_t token = 1; token < VOCAB; token++) {
        if (logits[token] > logits[best]) best = token;
    }
    return best;
}

int main(void) {
    const char *prompt = "Once upon a time";
    int32_t tokens[ROWS];
    int64_t length = (int64_t)strlen(prompt), done = 0;
    for (int64_t at = 0; at < length; at++) tokens[at] = prompt[at] - 32;
    while (length < ROWS) {
        /* The whole prompt first, then one token in each call. */
        int32_t token = next(tokens + done, length - done, done);
        if (token < 0) return 1;
        done = length;
        tokens[length++] = token;
    }
    for (int64_t at = 0; at < length; at++) putchar(32 + tokens[at]);
    putchar('\n');
    return 0;
}
