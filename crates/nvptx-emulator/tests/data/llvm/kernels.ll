; The source of the .ptx files beside it: kernels in LLVM IR that tools/make_llvm.py compiles for
; nvptx64. They use what LLVM's back end chooses by itself: generic and local memory, selections,
; carries, jump tables, predicated loops, constant tables.

target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"

declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)
declare i32 @llvm.nvvm.shfl.sync.bfly.i32(i32, i32, i32, i32)
declare float @llvm.nvvm.ex2.approx.f(float)
declare float @llvm.fma.f32(float, float, float)
declare float @llvm.maximum.f32(float, float)
declare float @llvm.maxnum.f32(float, float)
declare i32 @llvm.ctpop.i32(i32)
declare i32 @llvm.ctlz.i32(i32, i1)
declare i32 @llvm.bitreverse.i32(i32)
declare i32 @llvm.fshl.i32(i32, i32, i32)

@tile = internal addrspace(3) global [1056 x float] undef, align 16
@partial = internal addrspace(3) global [32 x float] undef, align 4
@primes = internal addrspace(4) constant [8 x i32] [i32 2, i32 3, i32 5, i32 7, i32 11, i32 13, i32 17, i32 19]

; Y[i] = a * X[i] + Y[i] for i < n, with a grid-sized stride.
define ptx_kernel void @saxpy(ptr addrspace(1) noalias %x, ptr addrspace(1) noalias %y, float %a, i32 %n, i32 %stride) {
entry:
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %cta = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %ntid = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %base = mul i32 %cta, %ntid
  %first = add i32 %base, %tid
  %any = icmp slt i32 %first, %n
  br i1 %any, label %loop, label %exit
loop:
  %i = phi i32 [ %first, %entry ], [ %next, %loop ]
  %i64 = sext i32 %i to i64
  %px = getelementptr float, ptr addrspace(1) %x, i64 %i64
  %py = getelementptr float, ptr addrspace(1) %y, i64 %i64
  %vx = load float, ptr addrspace(1) %px, align 4
  %vy = load float, ptr addrspace(1) %py, align 4
  %r = call float @llvm.fma.f32(float %a, float %vx, float %vy)
  store float %r, ptr addrspace(1) %py, align 4
  %next = add nsw i32 %i, %stride
  %more = icmp slt i32 %next, %n
  br i1 %more, label %loop, label %exit
exit:
  ret void
}

; The transpose of a 64 x 64 matrix through a padded tile of 32 x 33, 32 x 8 threads as 256.
define ptx_kernel void @transpose(ptr addrspace(1) %in, ptr addrspace(1) %out) {
entry:
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %cta = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %tx = and i32 %tid, 31
  %ty = lshr i32 %tid, 5
  %bx = and i32 %cta, 1
  %by = lshr i32 %cta, 1
  %x0 = shl i32 %bx, 5
  %y0 = shl i32 %by, 5
  br label %load
load:
  %j = phi i32 [ 0, %entry ], [ %j1, %load ]
  %row = add i32 %ty, %j
  %gy = add i32 %y0, %row
  %gx = add i32 %x0, %tx
  %gr = mul i32 %gy, 64
  %gi = add i32 %gr, %gx
  %gi64 = zext i32 %gi to i64
  %gp = getelementptr float, ptr addrspace(1) %in, i64 %gi64
  %v = load float, ptr addrspace(1) %gp, align 4
  %sr = mul i32 %row, 33
  %si = add i32 %sr, %tx
  %sp = getelementptr [1056 x float], ptr addrspace(3) @tile, i32 0, i32 %si
  store float %v, ptr addrspace(3) %sp, align 4
  %j1 = add i32 %j, 8
  %c = icmp ult i32 %j1, 32
  br i1 %c, label %load, label %mid
mid:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  br label %store
store:
  %k = phi i32 [ 0, %mid ], [ %k1, %store ]
  %row2 = add i32 %ty, %k
  %sr2 = mul i32 %tx, 33
  %si2 = add i32 %sr2, %row2
  %sp2 = getelementptr [1056 x float], ptr addrspace(3) @tile, i32 0, i32 %si2
  %v2 = load float, ptr addrspace(3) %sp2, align 4
  %oy = add i32 %x0, %row2
  %ox = add i32 %y0, %tx
  %or = mul i32 %oy, 64
  %oi = add i32 %or, %ox
  %oi64 = zext i32 %oi to i64
  %op = getelementptr float, ptr addrspace(1) %out, i64 %oi64
  store float %v2, ptr addrspace(1) %op, align 4
  %k1 = add i32 %k, 8
  %c2 = icmp ult i32 %k1, 32
  br i1 %c2, label %store, label %done
done:
  ret void
}

; Softmax of rows of 128 values, a block of 128 threads each: shuffles, then shared memory.
define ptx_kernel void @softmax(ptr addrspace(1) %in, ptr addrspace(1) %out) {
entry:
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %cta = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %lane = and i32 %tid, 31
  %warp = lshr i32 %tid, 5
  %r0 = shl i32 %cta, 7
  %i = add i32 %r0, %tid
  %i64 = zext i32 %i to i64
  %p = getelementptr float, ptr addrspace(1) %in, i64 %i64
  %v = load float, ptr addrspace(1) %p, align 4
  br label %maxloop
maxloop:
  %d = phi i32 [ 16, %entry ], [ %d1, %maxloop ]
  %m = phi float [ %v, %entry ], [ %m1, %maxloop ]
  %mb = bitcast float %m to i32
  %ob = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %mb, i32 %d, i32 31)
  %o = bitcast i32 %ob to float
  %m1 = call float @llvm.maxnum.f32(float %m, float %o)
  %d1 = lshr i32 %d, 1
  %dc = icmp ne i32 %d1, 0
  br i1 %dc, label %maxloop, label %maxdone
maxdone:
  %leader = icmp eq i32 %lane, 0
  br i1 %leader, label %putmax, label %maxbar
putmax:
  %pm = getelementptr [32 x float], ptr addrspace(3) @partial, i32 0, i32 %warp
  store float %m1, ptr addrspace(3) %pm, align 4
  br label %maxbar
maxbar:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %q0 = load float, ptr addrspace(3) @partial, align 4
  %a1 = getelementptr [32 x float], ptr addrspace(3) @partial, i32 0, i32 1
  %q1 = load float, ptr addrspace(3) %a1, align 4
  %a2 = getelementptr [32 x float], ptr addrspace(3) @partial, i32 0, i32 2
  %q2 = load float, ptr addrspace(3) %a2, align 4
  %a3 = getelementptr [32 x float], ptr addrspace(3) @partial, i32 0, i32 3
  %q3 = load float, ptr addrspace(3) %a3, align 4
  %x01 = call float @llvm.maxnum.f32(float %q0, float %q1)
  %x23 = call float @llvm.maxnum.f32(float %q2, float %q3)
  %max = call float @llvm.maxnum.f32(float %x01, float %x23)
  %diff = fsub float %v, %max
  %scaled = fmul float %diff, 0x3FF7154760000000
  %e = call float @llvm.nvvm.ex2.approx.f(float %scaled)
  br label %sumloop
sumloop:
  %sd = phi i32 [ 16, %maxbar ], [ %sd1, %sumloop ]
  %s = phi float [ %e, %maxbar ], [ %s1, %sumloop ]
  %sb = bitcast float %s to i32
  %tb = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %sb, i32 %sd, i32 31)
  %t = bitcast i32 %tb to float
  %s1 = fadd float %s, %t
  %sd1 = lshr i32 %sd, 1
  %sc = icmp ne i32 %sd1, 0
  br i1 %sc, label %sumloop, label %sumdone
sumdone:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  br i1 %leader, label %putsum, label %sumbar
putsum:
  %ps = getelementptr [32 x float], ptr addrspace(3) @partial, i32 0, i32 %warp
  store float %s1, ptr addrspace(3) %ps, align 4
  br label %sumbar
sumbar:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %w0 = load float, ptr addrspace(3) @partial, align 4
  %w1 = load float, ptr addrspace(3) %a1, align 4
  %w2 = load float, ptr addrspace(3) %a2, align 4
  %w3 = load float, ptr addrspace(3) %a3, align 4
  %y01 = fadd float %w0, %w1
  %y23 = fadd float %w2, %w3
  %sum = fadd float %y01, %y23
  %res = fdiv float %e, %sum
  %po = getelementptr float, ptr addrspace(1) %out, i64 %i64
  store float %res, ptr addrspace(1) %po, align 4
  ret void
}

; Bits: population, leading zeros, reversal, rotation, division, 128-bit product, jump table.
define ptx_kernel void @bits(ptr addrspace(1) %in, ptr addrspace(1) %out, i32 %divisor) {
entry:
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %i64 = zext i32 %tid to i64
  %p = getelementptr i32, ptr addrspace(1) %in, i64 %i64
  %v = load i32, ptr addrspace(1) %p, align 4
  %kind = urem i32 %tid, 9
  switch i32 %kind, label %other [
    i32 0, label %k0
    i32 1, label %k1
    i32 2, label %k2
    i32 3, label %k3
    i32 4, label %k4
    i32 5, label %k5
    i32 6, label %k6
    i32 7, label %k7
  ]
k0:
  %r0 = call i32 @llvm.ctpop.i32(i32 %v)
  br label %end
k1:
  %r1 = call i32 @llvm.ctlz.i32(i32 %v, i1 false)
  br label %end
k2:
  %r2 = call i32 @llvm.bitreverse.i32(i32 %v)
  br label %end
k3:
  %r3 = call i32 @llvm.fshl.i32(i32 %v, i32 %v, i32 %tid)
  br label %end
k4:
  %r4 = sdiv i32 %v, %divisor
  br label %end
k5:
  %r5 = srem i32 %v, %divisor
  br label %end
k6:
  %w = sext i32 %v to i64
  %w2 = mul i64 %w, %w
  %w3 = sext i64 %w2 to i128
  %w4 = add i128 %w3, 340282366920938463463374607431768211455
  %w5 = mul i128 %w4, %w3
  %w6 = lshr i128 %w5, 60
  %r6 = trunc i128 %w6 to i32
  br label %end
k7:
  %m7 = and i32 %v, 7
  %pp = getelementptr [8 x i32], ptr addrspace(4) @primes, i32 0, i32 %m7
  %r7 = load i32, ptr addrspace(4) %pp, align 4
  br label %end
other:
  %f = sitofp i32 %v to double
  %g = fdiv double %f, 3.0
  %h = fptosi double %g to i32
  br label %end
end:
  %r = phi i32 [ %r0, %k0 ], [ %r1, %k1 ], [ %r2, %k2 ], [ %r3, %k3 ], [ %r4, %k4 ], [ %r5, %k5 ], [ %r6, %k6 ], [ %r7, %k7 ], [ %h, %other ]
  %po = getelementptr i32, ptr addrspace(1) %out, i64 %i64
  store i32 %r, ptr addrspace(1) %po, align 4
  ret void
}

; A table in local memory with a run-time index, through generic pointers, and 16-bit values.
define ptx_kernel void @histogram(ptr %in, ptr %out, i32 %n) {
entry:
  %bins = alloca [16 x i16], align 4
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  br label %clear
clear:
  %b = phi i32 [ 0, %entry ], [ %b1, %clear ]
  %pb = getelementptr [16 x i16], ptr %bins, i32 0, i32 %b
  store i16 0, ptr %pb, align 2
  %b1 = add i32 %b, 1
  %bc = icmp ult i32 %b1, 16
  br i1 %bc, label %clear, label %count
count:
  %i = phi i32 [ 0, %clear ], [ %i1, %count ]
  %row = mul i32 %tid, %n
  %at = add i32 %row, %i
  %at64 = zext i32 %at to i64
  %p = getelementptr i8, ptr %in, i64 %at64
  %v = load i8, ptr %p, align 1
  %bin = and i8 %v, 15
  %bin32 = zext i8 %bin to i32
  %q = getelementptr [16 x i16], ptr %bins, i32 0, i32 %bin32
  %old = load i16, ptr %q, align 2
  %new = add i16 %old, 1
  store i16 %new, ptr %q, align 2
  %i1 = add i32 %i, 1
  %ic = icmp ult i32 %i1, %n
  br i1 %ic, label %count, label %sum
sum:
  %k = phi i32 [ 0, %count ], [ %k1, %sum ]
  %pk = getelementptr [16 x i16], ptr %bins, i32 0, i32 %k
  %c = load i16, ptr %pk, align 2
  %c32 = zext i16 %c to i32
  %k64 = zext i32 %k to i64
  %po = getelementptr i32, ptr %out, i64 %k64
  %r = atomicrmw add ptr %po, i32 %c32 monotonic
  %k1 = add i32 %k, 1
  %kc = icmp ult i32 %k1, 16
  br i1 %kc, label %sum, label %done
done:
  ret void
}

; Halves: a sum of products of f16 in f32, and a polynomial in f16.
define ptx_kernel void @halves(ptr addrspace(1) %in, ptr addrspace(1) %out) {
entry:
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %i64 = zext i32 %tid to i64
  %p = getelementptr half, ptr addrspace(1) %in, i64 %i64
  %v = load half, ptr addrspace(1) %p, align 2
  %w = fpext half %v to float
  %s = fmul float %w, %w
  %t = fptrunc float %s to half
  %u = fadd half %t, %v
  %x = fmul half %u, %v
  %neg = fcmp olt half %x, 0xH0000
  %y = select i1 %neg, half %u, half %x
  %po = getelementptr half, ptr addrspace(1) %out, i64 %i64
  store half %y, ptr addrspace(1) %po, align 2
  ret void
}
