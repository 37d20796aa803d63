//! Each instruction once, with its row of the table and the beginning of its text.

use nvptx_builder::*;

/// The row, the text of the instruction, and the code that emits it.
pub type Case = (Feature, &'static str, fn(&mut Entry));

fn tile(e: &mut Entry) -> Reg<U32> {
    let tile = e.shared::<B64>("tile", 1024, 128);
    e.address_of_shared(&tile)
}

macro_rules! cases {
    ($($feature:ident $text:literal |$e:ident $(, $reg:ident : $ty:ident)*| $body:expr;)*) => {
        /// All cases.
        pub const CASES: &[Case] = &[$(
            (Feature::$feature, $text, |$e: &mut Entry| {
                $(let $reg = $e.reg::<$ty>();)*
                let _ = $body;
            }),
        )*];
    };
}

cases! {
    Base "add.s32" |e, a: S32, b: S32| e.add(a, b);
    Base "add.u64" |e, a: U64, b: U64| e.add(a, b);
    Base "add.rn.f32" |e, a: F32, b: F32| e.add(a, b);
    Base "add.rz.f32" |e, a: F32, b: F32| e.add_rounded(Rounding::Rz, a, b);
    Base "add.rn.f64" |e, a: F64| e.add(a, 1.0f64);
    Base "add.rn.f16" |e, a: F16, b: F16| e.add(a, b);
    Base "add.rn.f16x2" |e, a: F16x2, b: F16x2| e.add(a, b);
    Base "sub.s16" |e, a: S16, b: S16| e.sub(a, b);
    Base "sub.rn.f32" |e, a: F32| e.sub(1.0f32, a);
    Base "sub.rm.f64" |e, a: F64, b: F64| e.sub_rounded(Rounding::Rm, a, b);
    Base "mul.lo.u16" |e, a: U16, b: U16| e.mul(a, b);
    Base "mul.lo.s32" |e, a: S32| e.mul(a, -7i32);
    Base "mul.lo.u64" |e, a: U64, b: U64| e.mul(a, b);
    Base "mul.rn.f32" |e, a: F32, b: F32| e.mul(a, b);
    Base "mul.rp.f32" |e, a: F32, b: F32| e.mul_rounded(Rounding::Rp, a, b);
    Base "mul.rn.f16x2" |e, a: F16x2, b: F16x2| e.mul(a, b);
    Base "mul.hi.s64" |e, a: S64, b: S64| e.mul_hi(a, b);
    Base "mul.wide.s32" |e, a: S32| e.mul_wide(a, 4i32);
    Base "mul.wide.u16" |e, a: U16, b: U16| e.mul_wide(a, b);
    Base "mad.lo.s32" |e, a: S32, b: S32| e.mad(a, b, 3i32);
    Base "mad.hi.u32" |e, a: U32, b: U32, c: U32| e.mad_hi(a, b, c);
    Base "mad.wide.u32" |e, a: U32, b: U32, c: U64| e.mad_wide(a, b, c);
    Base "fma.rn.f32" |e, a: F32, b: F32, c: F32| e.fma(a, b, c);
    Base "fma.rz.f64" |e, a: F64, b: F64, c: F64| e.fma_rounded(Rounding::Rz, a, b, c);
    Base "fma.rn.f16" |e, a: F16, b: F16, c: F16| e.fma(a, b, c);
    Base "fma.rn.f16x2" |e, a: F16x2, b: F16x2, c: F16x2| e.fma(a, b, c);
    Base "div.u32" |e, a: U32, b: U32| e.div(a, b);
    Base "div.s64" |e, a: S64, b: S64| e.div(a, b);
    Base "div.rn.f32" |e, a: F32, b: F32| e.div(a, b);
    Base "div.rn.f64" |e, a: F64, b: F64| e.div(a, b);
    Base "div.full.f32" |e, a: F32, b: F32| e.div_full(a, b);
    Base "div.approx.f32" |e, a: F32, b: F32| e.div_approx(a, b);
    Base "rem.s32" |e, a: S32, b: S32| e.rem(a, b);
    Base "rem.u16" |e, a: U16, b: U16| e.rem(a, b);
    Base "min.s32" |e, a: S32, b: S32| e.min(a, b);
    Base "max.u64" |e, a: U64, b: U64| e.max(a, b);
    Base "min.f32" |e, a: F32, b: F32| e.min(a, b);
    Base "max.f64" |e, a: F64, b: F64| e.max(a, b);
    Base "neg.s32" |e, a: U32| e.neg(a);
    Base "neg.f32" |e, a: F32| e.neg(a);
    Base "neg.f16" |e, a: F16| e.neg(a);
    Base "abs.s16" |e, a: S16| e.abs(a);
    Base "abs.f64" |e, a: F64| e.abs(a);
    HalfAbs "abs.f16x2" |e, a: F16x2| e.abs(a);
    Base "rcp.rn.f32" |e, a: F32| e.rcp(a);
    Base "rcp.rn.f64" |e, a: F64| e.rcp(a);
    Base "sqrt.rn.f32" |e, a: F32| e.sqrt(a);
    Base "sqrt.rn.f64" |e, a: F64| e.sqrt(a);
    Base "rcp.approx.f32" |e, a: F32| e.approx(Approx::Rcp, a);
    Base "sqrt.approx.f32" |e, a: F32| e.approx(Approx::Sqrt, a);
    Base "rsqrt.approx.f32" |e, a: F32| e.approx(Approx::Rsqrt, a);
    Base "ex2.approx.f32" |e, a: F32| e.approx(Approx::Ex2, a);
    Base "ex2.approx.ftz.f32" |e, a: F32| e.approx_ftz(Approx::Ex2, a);
    Base "lg2.approx.f32" |e, a: F32| e.approx(Approx::Lg2, a);
    Base "sin.approx.f32" |e, a: F32| e.approx(Approx::Sin, a);
    Base "cos.approx.ftz.f32" |e, a: F32| e.approx_ftz(Approx::Cos, a);
    Base "dp4a.s32.u32" |e, a: S32, b: U32, c: S32| e.dp4a(a, b, c);
    Base "dp4a.u32.u32" |e, a: U32, b: U32, c: U32| e.dp4a(a, b, c);

    Base "and.b32" |e, a: U32| e.and(a, 255u32);
    Base "and.pred" |e, a: Pred, b: Pred| e.and(a, b);
    Base "or.b64" |e, a: B64, b: B64| e.or(a, b);
    Base "xor.b16" |e, a: S16, b: S16| e.xor(a, b);
    Base "not.pred" |e, a: Pred| e.not(a);
    Base "not.b32" |e, a: U32| e.not(a);
    Base "shl.b64" |e, a: U64| e.shl(a, 3u32);
    Base "shr.s16" |e, a: S16| e.shr(a, 3u32);
    Base "shr.b32" |e, a: B32, n: U32| e.shr(a, n);
    Base "shr.u32" |e, a: U32, n: U32| e.shr(a, n);
    Base "shf.l.wrap.b32" |e, a: B32, b: B32, n: U32| e.shf_l(a, b, n);
    Base "shf.r.wrap.b32" |e, a: B32, b: B32| e.shf_r(a, b, 8u32);
    Base "lop3.b32" |e, a: B32, b: B32, c: B32| e.lop3(a, b, c, 0x96);
    Base "prmt.b32" |e, a: B32, b: B32| e.prmt(a, b, 0x5410u32);
    Base "bfe.s32" |e, a: S32| e.bfe(a, 8u32, 8u32);
    Base "bfe.u64" |e, a: U64, n: U32| e.bfe(a, n, 8u32);
    Base "bfi.b32" |e, a: B32, b: B32| e.bfi(a, b, 8u32, 8u32);
    Base "popc.b64" |e, a: U64| e.popc(a);
    Base "clz.b32" |e, a: U32| e.clz(a);
    Base "brev.b32" |e, a: U32| e.brev(a);
    Base "mov.f32" |e, a: F32| { e.to(a).mov(-0.5f32) };
    Base "mov.f64" |e, a: F64| { e.to(a).mov(0.1f64) };
    Base "mov.pred" |e, a: Pred| e.mov(a);
    Base "mov.b16" |e| e.mov(Operand::bits(Ty::F16, 0x3c00));
    Base "mov.b32" |e, a: F32| e.bitcast::<B32, F32>(a);
    Base "mov.b64" |e, a: U64| e.bitcast::<F64, U64>(a);
    Base "mov.b64 %rd0, {%r0, %r1}" |e, a: B32, b: B32| e.pack::<B64, B32>(&[a, b]);
    Base "mov.b32 {%h0, %h1}" |e, a: F16x2| e.unpack::<F16, F16x2>(a);
    Base "mov.b64 %rd0, {%f0, %f1}" |e, a: F32, b: F32| e.pack::<F32x2, F32>(&[a, b]);

    Base "setp.lt.s32" |e, a: S32, b: S32| e.setp(Cmp::Lt, a, b);
    Base "setp.ne.b16" |e, a: B16| e.setp(Cmp::Ne, a, 0u16);
    Base "setp.geu.f32" |e, a: F32, b: F32| e.setp(Cmp::Geu, a, b);
    Base "setp.nan.f64" |e, a: F64| e.setp(Cmp::Nan, a, a);
    Base "setp.lt.f16" |e, a: F16, b: F16| e.setp(Cmp::Lt, a, b);
    Base "setp.lt.and.u64" |e, a: U64, b: U64, p: Pred|
        e.setp_combined(Cmp::Lt, Combine::And, a, b, !p);
    Base "setp.eq.or.s32" |e, a: S32, p: Pred| e.setp_combined(Cmp::Eq, Combine::Or, a, 0i32, p);
    Base "setp.ne.xor.f32" |e, a: F32, p: Pred|
        e.setp_combined(Cmp::Ne, Combine::Xor, a, 0f32, p);
    Base "selp.f32" |e, a: F32, b: F32, p: Pred| e.selp(a, b, p);
    Base "selp.s32" |e, p: Pred| e.selp(Operand::int(Ty::S32, 1), Operand::int(Ty::S32, 0), p);
    Base "selp.b16" |e, a: F16, b: F16, p: Pred| e.selp(a, b, p);
    Base "selp.u64" |e, a: U64, b: U64, p: Pred| e.selp(a, b, p);

    Base "cvt.f32.f16" |e, a: F16| e.cvt::<F32, F16>(Convert::Usual, a);
    Base "cvt.rn.f16.f32" |e, a: F32| e.cvt::<F16, F32>(Convert::Usual, a);
    Base "cvt.rn.f16.f64" |e, a: F64| e.cvt::<F16, F64>(Convert::Usual, a);
    Base "cvt.rz.f16.f32" |e, a: F32| e.cvt::<F16, F32>(Convert::Rz, a);
    Base "cvt.f64.f32" |e, a: F32| e.cvt::<F64, F32>(Convert::Usual, a);
    Base "cvt.rn.f32.f64" |e, a: F64| e.cvt::<F32, F64>(Convert::Usual, a);
    Base "cvt.rzi.s32.f32" |e, a: F32| e.cvt::<S32, F32>(Convert::Usual, a);
    Base "cvt.rni.s32.f32" |e, a: F32| e.cvt::<S32, F32>(Convert::Rni, a);
    Base "cvt.rzi.u64.f64" |e, a: F64| e.cvt::<U64, F64>(Convert::Usual, a);
    Base "cvt.rmi.f32.f32" |e, a: F32| e.cvt::<F32, F32>(Convert::Rmi, a);
    Base "cvt.rni.f64.f64" |e, a: F64| e.cvt::<F64, F64>(Convert::Rni, a);
    Base "cvt.sat.f32.f32" |e, a: F32| e.cvt::<F32, F32>(Convert::Sat, a);
    Base "cvt.rn.f32.s32" |e, a: S32| e.cvt::<F32, S32>(Convert::Usual, a);
    Base "cvt.rn.f32.s64" |e, a: S64| e.cvt::<F32, S64>(Convert::Usual, a);
    Base "cvt.rn.f64.u32" |e, a: U32| e.cvt::<F64, U32>(Convert::Usual, a);
    Base "cvt.s64.s32" |e, a: S32| e.cvt::<S64, S32>(Convert::Usual, a);
    Base "cvt.u32.u16" |e, a: U16| e.cvt::<U32, U16>(Convert::Usual, a);
    Base "cvt.sat.u8.s32" |e, a: S32| e.cvt_as(Ty::U8, Convert::Sat, a);
    Base "cvt.sat.s16.s32" |e, a: S32| e.cvt::<S16, S32>(Convert::Sat, a);
    Base "cvt.s32.s8" |e, a: S32| e.extend_low(Ty::S8, a);
    Base "cvt.u32.u16" |e, a: U32| e.extend_low(Ty::U16, a);
    Base "mov.b32 %r0, {%h1, %h0}" |e, a: Bf16| e.bf16_to_f32(a);

    Base "ld.param.u64" |e| { let p = e.param::<U64>("p"); e.ld_param::<U64>(&p) };
    Base "ld.param.u8" |e| {
        let p = e.param_as(Ty::U8, "p");
        e.ld_extended(Ty::U8, Ty::U32, Ld::from(Space::Param), &p)
    };
    Base "ld.param.b16" |e| { let p = e.param_as(Ty::F16, "p"); e.ld_param::<F16>(&p) };
    Base "ld.global.f32" |e, a: U64| e.ld::<F32>(Ld::global(), a.at(-4));
    Base "ld.global.nc.v4.f32" |e, a: U64| e.ld_vec::<F32, 4>(Ld::global().nc(), a.at(16));
    Base "ld.global.nc.b16" |e, a: U64| e.ld::<F16>(Ld::global().nc(), a);
    Base "ld.global.cs.v2.b32" |e, a: U64| e.ld_vec::<B32, 2>(Ld::global().cache(Cache::Cs), a);
    Base "ld.global.ca.f64" |e, a: U64| e.ld::<F64>(Ld::global().cache(Cache::Ca), a);
    Base "ld.volatile.global.u32" |e, a: U64| e.ld::<U32>(Ld::global().volatile(), a);
    Base "ld.global.s8" |e, a: U64| e.ld_extended(Ty::S8, Ty::S32, Ld::global(), a);
    Base "ld.global.nc.u16" |e, a: U64| e.ld_extended(Ty::U16, Ty::U64, Ld::global().nc(), a);
    Base "ld.global.v4.u8" |e, a: U64| e.ld_vec_as(Ty::U8, 4, Ld::global(), a);
    Base "ld.shared.v4.f32" |e| { let t = tile(e); e.ld_vec::<F32, 4>(Ld::shared(), t.at(32)) };
    Base "ld.shared.v2.f64" |e| {
        let t = e.shared::<F64>("t", 4, 16);
        e.ld_vec::<F64, 2>(Ld::shared(), &t)
    };
    Base "ld.local.f32" |e, i: U64| {
        let l = e.local::<F32>("l", 8, 4);
        let base = e.address_of(&l);
        let at = e.add(base, i);
        e.ld::<F32>(Ld::local(), at)
    };
    Base "ld.f32" |e, a: U64| e.ld::<F32>(Ld::from(Space::Generic), a);
    Base "st.global.f32" |e, a: U64, x: F32| e.st(St::global(), a.at(8), x);
    Base "st.global.f32 [%rd0], 0f3F800000" |e, a: U64| e.st(St::global(), a, 1f32);
    Base "st.global.cs.v4.f32" |e, a: U64, x: F32|
        e.st_vec(St::global().cache(Cache::Cs), a, &[x, x, x, x]);
    Base "st.global.u8" |e, a: U64, x: U32|
        e.st_truncated(Ty::U8, St::global(), a, x.erase().operand());
    Base "st.shared.v2.b32" |e, x: B32| { let t = tile(e); e.st_vec(St::shared(), t, &[x, x]) };
    Base "st.local.b16" |e, x: F16| {
        let l = e.local::<F16>("l", 8, 2);
        e.st(St::local(), l.at(4), x)
    };
    Base ".extern .shared .align 16" |e, x: F32| {
        let t = e.dynamic_shared(16);
        e.st(St::shared(), &t, x)
    };
    Base "prefetch.global.L2" |e, a: U64| e.prefetch(Level::L2, a);
    Base "prefetch.global.L1" |e, a: U64| e.prefetch(Level::L1, a);
    Base "atom.global.add.f32" |e, a: U64, x: F32| e.atom(AtomOp::Add, Space::Global, a, x);
    Base "atom.global.add.u64" |e, a: U64, x: S64| e.atom(AtomOp::Add, Space::Global, a, x);
    Base "atom.global.max.s32" |e, a: U64, x: S32| e.atom(AtomOp::Max, Space::Global, a, x);
    Base "atom.shared.exch.b32" |e, x: U32| {
        let t = tile(e);
        e.atom(AtomOp::Exch, Space::Shared, t, x)
    };
    Base "atom.global.cas.b64" |e, a: U64, x: U64, y: U64|
        e.atom_cas(Space::Global, a, x, y);
    Base "atom.global.add.noftz.f16" |e, a: U64, x: F16|
        e.atom(AtomOp::Add, Space::Global, a, x);
    Base "red.global.add.f64" |e, a: U64, x: F64| e.red(AtomOp::Add, Space::Global, a, x);
    Base "red.global.add.s32" |e, a: U64, x: S32| e.red(AtomOp::Add, Space::Global, a, x);
    Base "red.global.add.noftz.f16x2" |e, a: U64, x: F16x2|
        e.red(AtomOp::Add, Space::Global, a, x);
    Base "red.shared.or.b32" |e, x: U32| { let t = tile(e); e.red(AtomOp::Or, Space::Shared, t, x) };
    Base "cvta.to.global.u64" |e, a: U64| e.cvta_to_global(a);
    Base "cvta.to.shared.u64" |e, a: U64| e.cvta_to_shared(a);
    Base "cvta.shared.u64" |e, a: U64| e.cvta_from_shared(a);
    Base "mov.u32 %r0, k0_tile" |e| tile(e);
    Base "mov.u64" |e| { let t = e.shared::<F32>("t", 4, 4); e.address_of(&t) };

    Base "bar.sync 0" |e| e.bar_sync(0);
    Base "bar.sync 1, 64" |e| e.bar_sync_some(1, 64);
    Base "bar.arrive 2, 64" |e| e.bar_arrive(2, 64);
    Base "barrier.sync 3" |e| e.barrier_sync(3);
    Base "bar.red.and.pred" |e, p: Pred| e.bar_red(Reduce::And, 0, p);
    Base "bar.red.popc.u32" |e, p: Pred| e.bar_red_popc(0, p);
    Base "bar.warp.sync" |e| e.bar_warp_sync(u32::MAX);
    Base "membar.gl" |e| e.membar(Scope::Gpu);
    Base "membar.cta" |e| e.membar(Scope::Cta);
    Base "fence.acq_rel.gpu" |e| e.fence_acq_rel(Scope::Gpu);
    Base "fence.sc.sys" |e| e.fence_sc(Scope::Sys);
    Base "%tid.x" |e| e.special(Special::TidX);
    Base "%laneid" |e| e.special(Special::LaneId);
    Base "%lanemask_lt" |e| e.special(Special::LanemaskLt);
    Base "%dynamic_smem_size" |e| e.special(Special::DynamicSmemSize);
    Base "%globaltimer" |e| e.special64(Special64::GlobalTimer);
    Base "shfl.sync.bfly.b32" |e, a: F32| e.shfl(Shuffle::Bfly, a, 16u32, 31u32, u32::MAX);
    Base "shfl.sync.up.b32" |e, a: S32, n: U32| e.shfl(Shuffle::Up, a, n, 0u32, u32::MAX);
    Base "vote.sync.any.pred" |e, p: Pred| e.vote(Vote::Any, p, u32::MAX);
    Base "vote.sync.ballot.b32" |e, p: Pred| e.ballot(p, u32::MAX);
    Base "match.any.sync.b64" |e, a: U64| e.match_any(a, u32::MAX);
    Base "match.all.sync.b32" |e, a: U32| e.match_all(a, u32::MAX);
    Base "activemask.b32" |e| e.activemask();
    Base "@%p0 bra $done" |e, p: Pred| {
        let done = e.label("done");
        e.when(p, |e| e.bra(done));
        e.trap();
        e.place(done);
    };
    Base "@!%p0 bra.uni $done" |e, p: Pred| {
        let done = e.label("done");
        e.when(!p, |e| e.bra_uni(done));
        e.place(done);
    };
    Base ".minnctapersm 2" |e| e.min_blocks(2);
    Base ".reqntid 32, 4, 2" |e| e.required_threads(32, 4, 2);
    Base ".maxnreg 64" |e| e.max_registers(64);
    Base "%acc" |e, a: F32| { let acc = e.reg_named::<F32>("acc"); e.to(acc).mov(a) };

    Base ".reg .f32 \t%acc_<4>" |e, a: F32| {
        let acc = e.reg_array_as(Ty::F32, "acc", 4);
        e.to(acc[3]).mov(a.erase())
    };

    Tanh "tanh.approx.f32" |e, a: F32| e.approx(Approx::Tanh, a);
    Ldmatrix "ldmatrix.sync.aligned.m8n8.x4.shared.b16" |e| {
        let t = tile(e);
        e.ldmatrix::<4>(false, t)
    };
    Ldmatrix "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16" |e| {
        let t = tile(e);
        e.ldmatrix::<2>(true, t)
    };
    MmaTuring "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32" |e, a: B32, c: F32|
        e.mma(Mma::F16_K8, &[a; 2], &[a], &[c; 4]);
    CacheHint "ld.global.nc.L1::no_allocate.L2::128B.v4.f32" |e, a: U64|
        e.ld_vec::<F32, 4>(Ld::global().nc().no_allocate().l2(L2::B128), a);
    CacheHint "st.global.L1::no_allocate.f32" |e, a: U64, x: F32|
        e.st(St::global().no_allocate(), a, x);
    Access128 "ld.global.b128" |e, a: U64| e.ld::<B128>(Ld::global(), a);
    Access128 "mov.b128 %q0, {%rd0, %rd0}" |e, a: B64| e.pack::<B128, B64>(&[a, a]);
    NanMinMax "max.NaN.f32" |e, a: F32, b: F32| e.max_nan(a, b);
    NanMinMax "min.NaN.f32" |e, a: F32, b: F32| e.min_nan(a, b);
    NanMinMax "max.f16x2" |e, a: F16x2, b: F16x2| e.max(a, b);
    NanMinMax "min.bf16" |e, a: Bf16, b: Bf16| e.min(a, b);
    Bf16Fma "fma.rn.bf16" |e, a: Bf16, b: Bf16, c: Bf16| e.fma(a, b, c);
    Bf16Fma "fma.rn.bf16x2" |e, a: Bf16x2, b: Bf16x2, c: Bf16x2| e.fma(a, b, c);
    Bf16Fma "neg.bf16" |e, a: Bf16| e.neg(a);
    Bf16Fma "abs.bf16x2" |e, a: Bf16x2| e.abs(a);
    CvtToBf16 "cvt.rn.bf16.f32" |e, a: F32| e.cvt::<Bf16, F32>(Convert::Usual, a);
    CvtToBf16 "cvt.rn.bf16x2.f32" |e, a: F32, b: F32| e.cvt_pair::<Bf16x2>(a, b);
    CvtToBf16 "cvt.rn.f16x2.f32" |e, a: F32, b: F32| e.cvt_pair::<F16x2>(a, b);
    CvtFromBf16 "cvt.f32.bf16" |e, a: Bf16| e.cvt::<F32, Bf16>(Convert::Usual, a);
    CvtTf32 "cvt.rna.tf32.f32" |e, a: F32| e.cvt::<Tf32, F32>(Convert::Rna, a);
    Redux "redux.sync.add.s32" |e, a: S32| e.redux(Redux::Add, a, u32::MAX);
    Redux "redux.sync.max.u32" |e, a: U32| e.redux(Redux::Max, a, u32::MAX);
    Redux "redux.sync.xor.b32" |e, a: B32| e.redux(Redux::Xor, a, u32::MAX);
    CpAsync "cp.async.ca.shared.global [%r0], [%rd0], 4" |e, a: U64| {
        let t = tile(e);
        e.cp_async(CpAsync::ca(4), t, a)
    };
    CpAsync "cp.async.cg.shared.global" |e, a: U64, n: U32| {
        let t = tile(e);
        e.cp_async_zero_fill(CpAsync::cg(), t.at(16), a.at(16), n)
    };
    CpAsync "cp.async.commit_group" |e| e.cp_async_commit_group();
    CpAsync "cp.async.wait_group 1" |e| e.cp_async_wait_group(1);
    CpAsync "cp.async.wait_all" |e| e.cp_async_wait_all();
    CpAsyncHint "cp.async.cg.shared.global.L2::128B" |e, a: U64| {
        let t = tile(e);
        e.cp_async(CpAsync::cg().l2(L2::B128), t, a)
    };
    MmaAmpere "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" |e, a: B32, c: F32|
        e.mma(Mma::F16, &[a; 4], &[a; 2], &[c; 4]);
    MmaAmpere "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16" |e, a: B32, c: F16x2|
        e.mma(Mma::F16_F16, &[a; 4], &[a; 2], &[c; 2]);
    MmaAmpere "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32" |e, a: B32, c: F32|
        e.mma(Mma::BF16_K8, &[a; 2], &[a], &[c; 4]);
    MmaAmpere "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32" |e, a: B32, c: F32|
        e.mma(Mma::BF16, &[a; 4], &[a; 2], &[c; 4]);
    MmaAmpere "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32" |e, a: B32, c: F32|
        e.mma(Mma::TF32_K4, &[a; 2], &[a], &[c; 4]);
    MmaAmpere "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32" |e, a: Tf32, c: F32|
        e.mma(Mma::TF32, &[a; 4], &[a; 2], &[c; 4]);
    MmaAmpere "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64" |e, a: F64|
        e.mma(Mma::F64, &[a], &[a], &[a; 2]);
    MmaAmpere "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32" |e, a: B32, c: S32|
        e.mma(Mma::S8_K16, &[a; 2], &[a], &[c; 4]);
    MmaAmpere "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32" |e, a: B32, c: S32|
        e.mma(Mma::S8, &[a; 4], &[a; 2], &[c; 4]);
    MmaAmpere "mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32" |e, a: B32, c: S32|
        e.mma(Mma::U8, &[a; 4], &[a; 2], &[c; 4]);
    MmaAmpere "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32" |e, a: B32, c: S32|
        e.mma(Mma::U8_S8, &[a; 4], &[a; 2], &[c; 4]);
    MmaAmpere "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32" |e, a: B32, c: S32|
        e.mma(Mma::S8_U8, &[a; 4], &[a; 2], &[c; 4]);
    Mbarrier "mbarrier.init.shared.b64" |e| { let t = tile(e); e.mbarrier_init(t, 1u32) };
    Mbarrier "mbarrier.inval.shared.b64" |e| { let t = tile(e); e.mbarrier_inval(t) };
    Mbarrier "mbarrier.arrive.shared.b64" |e| { let t = tile(e); e.mbarrier_arrive(t) };
    Mbarrier "mbarrier.test_wait.shared.b64" |e, s: B64| {
        let t = tile(e);
        e.mbarrier_test_wait(t, s)
    };
    CvtFp8 "cvt.rn.satfinite.e4m3x2.f32" |e, a: F32, b: F32| e.cvt_pair::<E4m3x2>(a, b);
    CvtFp8 "cvt.rn.f16x2.e5m2x2" |e, a: E5m2x2| e.cvt_from_fp8(a);
    MmaFp8 "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32" |e, a: B32, c: F32|
        e.mma(Mma::E4M3, &[a; 4], &[a; 2], &[c; 4]);
    MmaFp8 "mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32" |e, a: B32, c: F32|
        e.mma(Mma::E5M2, &[a; 4], &[a; 2], &[c; 4]);
    Bf16Add "add.rn.bf16" |e, a: Bf16, b: Bf16| e.add(a, b);
    Bf16Add "mul.rn.bf16x2" |e, a: Bf16x2, b: Bf16x2| e.mul(a, b);
    Bf16Add "setp.lt.bf16" |e, a: Bf16, b: Bf16| e.setp(Cmp::Lt, a, b);
    Bf16Add "cvt.rn.bf16.s32" |e, a: S32| e.cvt::<Bf16, S32>(Convert::Usual, a);
    CvtTf32Rn "cvt.rn.tf32.f32" |e, a: F32| e.cvt::<Tf32, F32>(Convert::Rn, a);
    RedBf16 "red.global.add.noftz.bf16x2" |e, a: U64, x: Bf16x2|
        e.red(AtomOp::Add, Space::Global, a, x);
    RedVector "red.global.add.v4.f32" |e, a: U64, x: F32| e.red_vec(a, &[x; 4]);
    Stmatrix "stmatrix.sync.aligned.m8n8.x4.shared.b16" |e, a: B32| {
        let t = tile(e);
        e.stmatrix(false, t, &[a; 4])
    };
    MbarrierTryWait "mbarrier.try_wait.parity.shared.b64" |e| {
        let t = tile(e);
        e.mbarrier_try_wait_parity(t, 0u32)
    };
    MbarrierExpectTx "mbarrier.arrive.expect_tx.shared.b64" |e| {
        let t = tile(e);
        e.mbarrier_arrive_expect_tx(t, 4096u32)
    };
    CpAsyncBulk "cp.async.bulk.shared::cluster.global" |e, a: U64| {
        let t = tile(e);
        e.cp_async_bulk(t.at(128), a, 1024u32, t)
    };
    CpAsyncBulk "cp.async.bulk.tensor.2d.shared::cluster.global" |e, map: U64, i: S32, j: S32| {
        let t = tile(e);
        e.cp_async_bulk_tensor(t.at(128), TensorMap { map }, &[i, j], t)
    };
    CpAsyncBulk "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group"
    |e, map: U64, i: S32, j: S32| {
        let t = tile(e);
        e.cp_async_bulk_tensor_store(TensorMap { map }, &[i, j], t)
    };
    CpAsyncBulk "cp.async.bulk.commit_group" |e| e.cp_async_bulk_commit_group();
    CpAsyncBulk "cp.async.bulk.wait_group.read 0" |e| e.cp_async_bulk_wait_group_read(0);
    FenceProxy "fence.proxy.async.shared::cta" |e| e.fence_proxy_async();
    FenceProxy "fence.mbarrier_init.release.cluster" |e| e.fence_mbarrier_init();
    Cluster "barrier.cluster.arrive" |e| e.cluster_sync();
    Cluster "mapa.shared::cluster.u32" |e| { let t = tile(e); e.mapa(t, 1u32) };
    Cluster "griddepcontrol.wait" |e| e.griddepcontrol_wait();
    Cluster "griddepcontrol.launch_dependents" |e| e.griddepcontrol_launch_dependents();
    Elect "elect.sync" |e| e.elect(u32::MAX);
    Wgmma "wgmma.fence.sync.aligned" |e| e.wgmma_fence();
    Wgmma "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16" |e, a: B64, b: B64, p: Pred| {
        let d: Vec<Reg<F32>> = (0..4).map(|_| e.reg()).collect();
        e.wgmma_fence();
        e.wgmma(Wgmma::new(8, Ty::Bf16), &d, a, b, p);
        e.wgmma_commit_group();
        e.wgmma_wait_group(0);
    };
    SetMaxNReg "setmaxnreg.inc.sync.aligned.u32 232" |e| e.set_max_registers(true, 232);
    F32x2 "fma.rn.f32x2" |e, a: F32x2, b: F32x2, c: F32x2| e.fma_x2(a, b, c);
    F32x2 "add.rn.f32x2" |e, a: F32x2, b: F32x2| e.add_x2(a, b);
    F32x2 "mul.rn.f32x2" |e, a: F32x2, b: F32x2| e.mul_x2(a, b);
    ThreeInputs "max.f32 %f3, %f0, %f1, %f2" |e, a: F32, b: F32, c: F32| e.max3(a, b, c);
    ThreeInputs "min.f32 %f3, %f0, %f1, %f2" |e, a: F32, b: F32, c: F32| e.min3(a, b, c);
    Access256 "ld.global.v8.f32" |e, a: U64| e.ld_vec::<F32, 8>(Ld::global(), a);
    Access256 "st.global.v4.b64" |e, a: U64, x: B64| e.st_vec(St::global(), a, &[x; 4]);
    ReduxF32 "redux.sync.max.f32" |e, a: F32| e.redux(Redux::Max, a, u32::MAX);
}
