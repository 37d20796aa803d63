/* Calls the raw entry of a module whose target has tile registers, in a process that may use them
 * or may not: a filter of system calls refuses the permission.
 *
 *     tiles permitted|refused TARGET
 *
 * TARGET is the variant that must run, or `refused` if the call must be. KERNEL_product or
 * KERNEL_negated says which kernel the module has. */
#include "k.h"
#include "support.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* Lets arch_prctl(ARCH_REQ_XCOMP_PERM) fail. Returns 0 if there are no filters here. */
static int refuse_permission(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023 };
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH_REQ_XCOMP_PERM, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof code[0], code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
        && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

const char *k_target(void) __attribute__((weak));

/* Calls the kernel. Returns its status, or -1 if it computed something else. */
static int32_t call(void) {
#ifdef KERNEL_product
    static uint8_t a[16][64];
    static int8_t b[16][64];
    static int32_t c[16][16];
    for (int i = 0; i < 16; i++) {
        for (int k = 0; k < 64; k++) {
            a[i][k] = (uint8_t)(i * 37 + k * 11);
            b[i][k] = (int8_t)(k - 5 * i);
        }
    }
    int32_t status = product(&a[0][0], &b[0][0], &c[0][0]), sum = 0;
    for (int k = 0; k < 64; k++) sum += a[3][k] * b[k / 4][7 * 4 + k % 4];
    return status == 0 && c[3][7] != sum ? -1 : status;
#else
    static int8_t a[64] = {1, 2, 3}, c[64];
    int32_t status = negated(a, c);
    return status == 0 && c[2] != -3 ? -1 : status;
#endif
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    if (strcmp(argv[1], "refused") == 0 && !refuse_permission()) return 77;
    int32_t status = call();
    if (strcmp(argv[2], "refused") == 0) {
        EXPECT(status == 3);
        EXPECT(strstr(k_last_error(), "lacks amx-int8, or the system does not permit them"));
    } else {
        EXPECT(status == 0);
        EXPECT(!k_target || strcmp(k_target(), argv[2]) == 0);
    }
    return failures != 0;
}
