/* Calls the raw entry of a module whose target has tile registers, in a process that may use them
 * or may not: a filter of system calls refuses the permission.
 *
 *     tiles permitted|refused TARGET
 *
 * TARGET is the variant that must run; empty if the call must be refused. */
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

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    if (strcmp(argv[1], "refused") == 0 && !refuse_permission()) return 77;
    float x[3] = {1, 2, 3}, y[3] = {0};
    int32_t status = scale(x, y, 3);
    if (argv[2][0]) {
        EXPECT(status == 0 && y[2] == 7);
        EXPECT(!k_target || strcmp(k_target(), argv[2]) == 0);
    } else {
        EXPECT(status == 3 && y[2] == 0);
        EXPECT(strstr(k_last_error(), "lacks amx-int8, or the system does not permit them"));
    }
    return failures != 0;
}
