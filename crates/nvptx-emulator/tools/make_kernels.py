#!/usr/bin/env python3
"""Writes the hand-made kernels of the tests: tests/data/{sgemm,bf16_mma,bf16_ldmatrix}.ptx.

They are the structures that fast kernels have: a float32 product with 128x128x8 tiles, 8x8 values
a thread and double-buffered shared memory, and two bf16 products by mma.sync with a two-stage
cp.async pipeline, whose fragments come by ld.shared and by ldmatrix.
"""

import pathlib

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data"


def header(version, target, what):
    return [f"// {what}", f".version {version}", f".target {target}", ".address_size 64", ""]


def sgemm():
    """C[M,N] = A[M,K] B[K,N]; M and N multiples of 128, K of 8; 256 threads."""
    pitch = 132
    out = header("7.0", "sm_75", "Made by tools/make_kernels.py: float32 product, double buffer.")
    out += [
        ".visible .entry sgemm(.param .u64 pA, .param .u64 pB, .param .u64 pC,",
        "    .param .u32 pN, .param .u32 pK)",
        ".maxntid 256, 1, 1",
        "{",
        f"    .shared .align 16 .b8 As[{2 * 8 * pitch * 4}];",
        f"    .shared .align 16 .b8 Bs[{2 * 8 * 128 * 4}];",
        "    .reg .pred %p<4>;",
        "    .reg .b32 %r<64>;",
        "    .reg .b64 %rd<32>;",
        "    .reg .f32 %c<64>, %a<8>, %b<8>, %la<4>, %lb<4>;",
        "    ld.param.u64 %rd0, [pA];",
        "    ld.param.u64 %rd1, [pB];",
        "    ld.param.u64 %rd2, [pC];",
        "    ld.param.u32 %r0, [pN];",
        "    ld.param.u32 %r1, [pK];",
        "    cvta.to.global.u64 %rd0, %rd0;",
        "    cvta.to.global.u64 %rd1, %rd1;",
        "    cvta.to.global.u64 %rd2, %rd2;",
        "    mov.u32 %r2, %tid.x;",
        "    mov.u32 %r3, %ctaid.x;",
        "    mov.u32 %r4, %ctaid.y;",
        "    // The place of this thread in the tile of A: row tid / 2, column 4 (tid % 2).",
        "    shr.u32 %r5, %r2, 1;",
        "    and.b32 %r6, %r2, 1;",
        "    shl.b32 %r6, %r6, 2;",
        "    shl.b32 %r7, %r4, 7;",
        "    add.u32 %r7, %r7, %r5;",
        "    mad.lo.u32 %r7, %r7, %r1, %r6;",
        "    mul.wide.u32 %rd3, %r7, 4;",
        "    add.u64 %rd3, %rd0, %rd3;",
        "    // In the tile of B: row tid / 32, column 4 (tid % 32).",
        "    shr.u32 %r8, %r2, 5;",
        "    and.b32 %r9, %r2, 31;",
        "    shl.b32 %r9, %r9, 2;",
        "    shl.b32 %r10, %r3, 7;",
        "    add.u32 %r10, %r10, %r9;",
        "    mad.lo.u32 %r10, %r8, %r0, %r10;",
        "    mul.wide.u32 %rd4, %r10, 4;",
        "    add.u64 %rd4, %rd1, %rd4;",
        "    mul.wide.u32 %rd5, %r0, 32;",
        "    mov.u32 %r11, As;",
        "    mov.u32 %r12, Bs;",
        f"    mad.lo.u32 %r13, %r6, {pitch}, %r5;",
        "    shl.b32 %r13, %r13, 2;",
        "    add.u32 %r13, %r11, %r13;",
        "    shl.b32 %r14, %r2, 4;",
        "    add.u32 %r14, %r12, %r14;",
        "    // This thread's values: rows 4 ty and 64 + 4 ty, columns 4 tx and 64 + 4 tx.",
        "    and.b32 %r15, %r2, 15;",
        "    shr.u32 %r16, %r2, 4;",
        "    shl.b32 %r17, %r16, 4;",
        "    add.u32 %r17, %r11, %r17;",
        "    shl.b32 %r18, %r15, 4;",
        "    add.u32 %r18, %r12, %r18;",
    ]
    out += [f"    mov.f32 %c{i}, 0f00000000;" for i in range(64)]

    def fetch(guard=""):
        return [
            f"    {guard}ld.global.nc.v4.f32 {{%la0, %la1, %la2, %la3}}, [%rd3];",
            f"    {guard}ld.global.nc.v4.f32 {{%lb0, %lb1, %lb2, %lb3}}, [%rd4];",
        ]

    def put(guard=""):
        lines = [f"    {guard}st.shared.f32 [%r13+{i * pitch * 4}], %la{i};" for i in range(4)]
        return lines + [f"    {guard}st.shared.v4.f32 [%r14], {{%lb0, %lb1, %lb2, %lb3}};"]

    out += fetch() + put()
    out += [
        f"    mov.u32 %r20, {8 * pitch * 4};",
        "    mov.u32 %r21, 4096;",
        "    shr.u32 %r22, %r1, 3;",
        "    bar.sync 0;",
        "LOOP:",
        "    sub.u32 %r22, %r22, 1;",
        "    setp.ne.u32 %p0, %r22, 0;",
        "    @%p0 add.u64 %rd3, %rd3, 32;",
        "    @%p0 add.u64 %rd4, %rd4, %rd5;",
    ]
    out += fetch("@%p0 ")
    for k in range(8):
        for half in (0, 256):
            first = half // 64
            regs = ", ".join(f"%a{first + i}" for i in range(4))
            out.append(f"    ld.shared.v4.f32 {{{regs}}}, [%r17+{k * pitch * 4 + half}];")
        for half in (0, 256):
            first = half // 64
            regs = ", ".join(f"%b{first + i}" for i in range(4))
            out.append(f"    ld.shared.v4.f32 {{{regs}}}, [%r18+{k * 512 + half}];")
        for i in range(8):
            for j in range(8):
                c = f"%c{8 * i + j}"
                out.append(f"    fma.rn.f32 {c}, %a{i}, %b{j}, {c};")
    out += [
        "    // The other buffer: forward, then back.",
        "    add.u32 %r13, %r13, %r20;",
        "    add.u32 %r14, %r14, %r21;",
    ]
    out += put("@%p0 ")
    out += [
        "    add.u32 %r17, %r17, %r20;",
        "    add.u32 %r18, %r18, %r21;",
        "    neg.s32 %r20, %r20;",
        "    neg.s32 %r21, %r21;",
        "    bar.sync 0;",
        "    @%p0 bra LOOP;",
        "    shl.b32 %r30, %r4, 7;",
        "    shl.b32 %r31, %r16, 2;",
        "    add.u32 %r30, %r30, %r31;",
        "    shl.b32 %r32, %r3, 7;",
        "    shl.b32 %r33, %r15, 2;",
        "    add.u32 %r32, %r32, %r33;",
        "    mad.lo.u32 %r32, %r30, %r0, %r32;",
        "    mul.wide.u32 %rd6, %r32, 4;",
        "    add.u64 %rd6, %rd2, %rd6;",
        "    mul.wide.u32 %rd7, %r0, 4;",
        "    mul.wide.u32 %rd8, %r0, 240;",
    ]
    for i in range(8):
        for half in (0, 256):
            first = 8 * i + half // 64
            regs = ", ".join(f"%c{first + j}" for j in range(4))
            out.append(f"    st.global.v4.f32 [%rd6+{half}], {{{regs}}};")
        out.append("    add.u64 %rd6, %rd6, %rd7;")
        if i == 3:
            out.append("    add.u64 %rd6, %rd6, %rd8;")
    out += ["    ret;", "}"]
    return out


def bf16(ldmatrix):
    """C[M,N] (f32) = A[M,K] B; 64x64x32 tiles, 4 warps of 32x32 values.

    Without ldmatrix B comes transposed, as [N,K]; with it row by row, as [K,N].
    """
    what = "fragments by ldmatrix" if ldmatrix else "fragments by ld.shared"
    name = "bf16_ldmatrix" if ldmatrix else "bf16_mma"
    pitch_a = 80
    pitch_b = 144 if ldmatrix else 80
    stage_a = 64 * pitch_a
    stage_b = 32 * pitch_b if ldmatrix else 64 * pitch_b
    out = header("7.0", "sm_80", f"Made by tools/make_kernels.py: bf16 product, {what}.")
    out += [
        f".visible .entry {name}(.param .u64 pA, .param .u64 pB, .param .u64 pC,",
        "    .param .u32 pN, .param .u32 pK)",
        ".maxntid 128, 1, 1",
        "{",
        f"    .shared .align 16 .b8 As[{2 * stage_a}];",
        f"    .shared .align 16 .b8 Bs[{2 * stage_b}];",
        "    .reg .pred %p<4>;",
        "    .reg .b32 %r<64>, %a<8>, %b<8>;",
        "    .reg .b64 %rd<32>;",
        "    .reg .f32 %c<32>;",
        "    ld.param.u64 %rd0, [pA];",
        "    ld.param.u64 %rd1, [pB];",
        "    ld.param.u64 %rd2, [pC];",
        "    ld.param.u32 %r0, [pN];",
        "    ld.param.u32 %r1, [pK];",
        "    cvta.to.global.u64 %rd0, %rd0;",
        "    cvta.to.global.u64 %rd1, %rd1;",
        "    cvta.to.global.u64 %rd2, %rd2;",
        "    mov.u32 %r2, %tid.x;",
        "    mov.u32 %r3, %ctaid.x;",
        "    mov.u32 %r4, %ctaid.y;",
        "    and.b32 %r5, %r2, 31;",
        "    shr.u32 %r6, %r2, 5;",
        "    // Copies of A: rows tid / 4 and 32 more, 16 bytes at 16 (tid % 4).",
        "    shr.u32 %r7, %r2, 2;",
        "    and.b32 %r8, %r2, 3;",
        "    shl.b32 %r9, %r4, 6;",
        "    add.u32 %r9, %r9, %r7;",
        "    shl.b32 %r10, %r8, 3;",
        "    mad.lo.u32 %r9, %r9, %r1, %r10;",
        "    mul.wide.u32 %rd3, %r9, 2;",
        "    add.u64 %rd3, %rd0, %rd3;",
        "    mul.wide.u32 %rd5, %r1, 64;",
        "    add.u64 %rd4, %rd3, %rd5;",
        "    mov.u32 %r11, As;",
        f"    mad.lo.u32 %r12, %r7, {pitch_a}, %r11;",
        "    shl.b32 %r13, %r8, 4;",
        "    add.u32 %r12, %r12, %r13;",
        "    mov.u32 %r14, Bs;",
    ]
    if ldmatrix:
        out += [
            "    // Copies of B: rows tid / 8 and 16 more, 16 bytes at 16 (tid % 8).",
            "    shr.u32 %r15, %r2, 3;",
            "    and.b32 %r16, %r2, 7;",
            "    shl.b32 %r17, %r3, 6;",
            "    shl.b32 %r18, %r16, 3;",
            "    add.u32 %r17, %r17, %r18;",
            "    mad.lo.u32 %r17, %r15, %r0, %r17;",
            "    mul.wide.u32 %rd6, %r17, 2;",
            "    add.u64 %rd6, %rd1, %rd6;",
            "    mul.wide.u32 %rd8, %r0, 32;",
            "    add.u64 %rd7, %rd6, %rd8;",
            "    mul.wide.u32 %rd9, %r0, 64;",
            f"    mad.lo.u32 %r19, %r15, {pitch_b}, %r14;",
            "    shl.b32 %r20, %r16, 4;",
            "    add.u32 %r19, %r19, %r20;",
        ]
        second_b = 16 * pitch_b
    else:
        out += [
            "    // Copies of B, whose rows are the columns of the product: as those of A.",
            "    shl.b32 %r15, %r3, 6;",
            "    add.u32 %r15, %r15, %r7;",
            "    mad.lo.u32 %r15, %r15, %r1, %r10;",
            "    mul.wide.u32 %rd6, %r15, 2;",
            "    add.u64 %rd6, %rd1, %rd6;",
            "    add.u64 %rd7, %rd6, %rd5;",
            "    mov.u64 %rd9, 64;",
            f"    mad.lo.u32 %r19, %r7, {pitch_b}, %r14;",
            "    add.u32 %r19, %r19, %r13;",
        ]
        second_b = 32 * pitch_b
    out += [
        "    // The warp's values: rows 32 (warp / 2), columns 32 (warp % 2).",
        "    shr.u32 %r21, %r6, 1;",
        "    shl.b32 %r21, %r21, 5;",
        "    and.b32 %r22, %r6, 1;",
        "    shl.b32 %r22, %r22, 5;",
        "    shr.u32 %r23, %r5, 2;",
        "    and.b32 %r24, %r5, 3;",
    ]
    if ldmatrix:
        out += [
            "    and.b32 %r25, %r5, 15;",
            "    shr.u32 %r26, %r5, 4;",
            "    shl.b32 %r26, %r26, 4;",
            "    add.u32 %r27, %r21, %r25;",
            f"    mad.lo.u32 %r27, %r27, {pitch_a}, %r11;",
            "    add.u32 %r27, %r27, %r26;",
            f"    mad.lo.u32 %r28, %r25, {pitch_b}, %r14;",
            "    add.u32 %r28, %r28, %r26;",
            "    shl.b32 %r29, %r22, 1;",
            "    add.u32 %r28, %r28, %r29;",
        ]
    else:
        out += [
            "    shl.b32 %r25, %r24, 2;",
            "    add.u32 %r27, %r21, %r23;",
            f"    mad.lo.u32 %r27, %r27, {pitch_a}, %r11;",
            "    add.u32 %r27, %r27, %r25;",
            "    add.u32 %r28, %r22, %r23;",
            f"    mad.lo.u32 %r28, %r28, {pitch_b}, %r14;",
            "    add.u32 %r28, %r28, %r25;",
        ]
    out += [f"    mov.f32 %c{i}, 0f00000000;" for i in range(32)]

    def copies(guard=""):
        return [
            f"    {guard}cp.async.cg.shared.global [%r12], [%rd3], 16;",
            f"    {guard}cp.async.cg.shared.global [%r12+{32 * pitch_a}], [%rd4], 16;",
            f"    {guard}cp.async.cg.shared.global [%r19], [%rd6], 16;",
            f"    {guard}cp.async.cg.shared.global [%r19+{second_b}], [%rd7], 16;",
            "    cp.async.commit_group;",
        ]

    out += copies()
    out += [
        f"    mov.u32 %r30, {stage_a};",
        f"    mov.u32 %r31, {stage_b};",
        "    shr.u32 %r32, %r1, 5;",
        "LOOP:",
        "    sub.u32 %r32, %r32, 1;",
        "    setp.ne.u32 %p0, %r32, 0;",
        "    add.u32 %r12, %r12, %r30;",
        "    add.u32 %r19, %r19, %r31;",
        "    add.u64 %rd3, %rd3, 64;",
        "    add.u64 %rd4, %rd4, 64;",
        "    add.u64 %rd6, %rd6, %rd9;",
        "    add.u64 %rd7, %rd7, %rd9;",
    ]
    out += copies("@%p0 ")
    out += ["    cp.async.wait_group 1;", "    bar.sync 0;"]
    for k in range(2):
        for i in range(2):
            base = 16 * i * pitch_a + 32 * k
            if ldmatrix:
                regs = ", ".join(f"%a{4 * i + j}" for j in range(4))
                out.append(
                    f"    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{{regs}}}, [%r27+{base}];"
                )
            else:
                for j, at in enumerate((0, 8 * pitch_a, 16, 8 * pitch_a + 16)):
                    out.append(f"    ld.shared.b32 %a{4 * i + j}, [%r27+{base + at}];")
        for n in range(2) if ldmatrix else range(4):
            if ldmatrix:
                regs = ", ".join(f"%b{4 * n + j}" for j in range(4))
                base = 16 * k * pitch_b + 32 * n
                out.append(
                    f"    ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {{{regs}}}, [%r28+{base}];"
                )
            else:
                for j in range(2):
                    at = 8 * n * pitch_b + 32 * k + 16 * j
                    out.append(f"    ld.shared.b32 %b{2 * n + j}, [%r28+{at}];")
        for i in range(2):
            for n in range(4):
                c = ", ".join(f"%c{16 * i + 4 * n + j}" for j in range(4))
                a = ", ".join(f"%a{4 * i + j}" for j in range(4))
                b = f"%b{2 * n}, %b{2 * n + 1}"
                out.append(
                    f"    mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                    f"{{{c}}}, {{{a}}}, {{{b}}}, {{{c}}};"
                )
    out += [
        "    add.u32 %r27, %r27, %r30;",
        "    add.u32 %r28, %r28, %r31;",
        "    neg.s32 %r30, %r30;",
        "    neg.s32 %r31, %r31;",
        "    bar.sync 0;",
        "    @%p0 bra LOOP;",
        "    shl.b32 %r40, %r4, 6;",
        "    add.u32 %r40, %r40, %r21;",
        "    add.u32 %r40, %r40, %r23;",
        "    shl.b32 %r41, %r3, 6;",
        "    add.u32 %r41, %r41, %r22;",
        "    shl.b32 %r42, %r24, 1;",
        "    add.u32 %r41, %r41, %r42;",
        "    mad.lo.u32 %r41, %r40, %r0, %r41;",
        "    mul.wide.u32 %rd10, %r41, 4;",
        "    add.u64 %rd10, %rd2, %rd10;",
        "    mul.wide.u32 %rd11, %r0, 32;",
    ]
    for i in range(2):
        for half in range(2):
            for n in range(4):
                c = 16 * i + 4 * n + 2 * half
                out.append(f"    st.global.v2.f32 [%rd10+{32 * n}], {{%c{c}, %c{c + 1}}};")
            out.append("    add.u64 %rd10, %rd10, %rd11;")
    out += ["    ret;", "}"]
    return out


def main():
    kernels = {"sgemm": sgemm(), "bf16_mma": bf16(False), "bf16_ldmatrix": bf16(True)}
    for name, lines in kernels.items():
        (DATA / f"{name}.ptx").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
