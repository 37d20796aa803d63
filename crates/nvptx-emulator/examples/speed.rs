//! Prints the thread instructions per second of the emulator on one core.
//!
//! `cargo run --release -p nvptx-emulator --example speed`

use nvptx_emulator::{BufferId, Launch, Memory, Module};
use std::time::Instant;

const SAXPY: &str = "
.version 7.0
.target sm_75
.address_size 64
.visible .entry saxpy(.param .u64 X, .param .u64 Y, .param .f32 a, .param .u32 n) {
    .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .f32 %f<8>;
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mad.lo.u32 %r3, %r1, %r2, %r0;
    ld.param.u32 %r4, [n];
    setp.ge.u32 %p0, %r3, %r4;
    @%p0 bra END;
    ld.param.u64 %rd0, [X];
    ld.param.u64 %rd1, [Y];
    ld.param.f32 %f0, [a];
    mul.wide.u32 %rd2, %r3, 4;
    add.s64 %rd3, %rd0, %rd2;
    add.s64 %rd4, %rd1, %rd2;
    ld.global.f32 %f1, [%rd3];
    ld.global.f32 %f2, [%rd4];
    fma.rn.f32 %f3, %f1, %f0, %f2;
    st.global.f32 [%rd4], %f3;
END:
    ret;
}";

fn main() -> Result<(), nvptx_emulator::Error> {
    let sgemm = include_str!("../tests/data/sgemm.ptx");
    measure("sgemm 256x256x256", sgemm, |launch, memory| {
        let [a, b] = ["A", "B"].map(|name| memory.input(name, &vec![0.5f32; 256 * 256]));
        let c = memory.output("C", 4 * 256 * 256);
        let launch = launch.grid([2, 2, 1]).block([256, 1, 1]);
        pointers(launch, &[a, b, c]).value(256u32).value(256u32)
    })?;
    for (name, text) in [
        ("bf16 by ld.shared 256x256x256", include_str!("../tests/data/bf16_mma.ptx")),
        ("bf16 by ldmatrix 256x256x256", include_str!("../tests/data/bf16_ldmatrix.ptx")),
    ] {
        measure(name, text, |launch, memory| {
            let [a, b] = ["A", "B"].map(|name| memory.input(name, &vec![0x3f00u16; 256 * 256]));
            let c = memory.output("C", 4 * 256 * 256);
            let launch = launch.grid([4, 4, 1]).block([128, 1, 1]);
            pointers(launch, &[a, b, c]).value(256u32).value(256u32)
        })?;
    }
    measure("saxpy 2^20", SAXPY, |launch, memory| {
        let x = memory.input("X", &vec![0.5f32; 1 << 20]);
        let y = memory.inout("Y", &vec![0.25f32; 1 << 20]);
        let launch = launch.grid([4096, 1, 1]).block([256, 1, 1]);
        pointers(launch, &[x, y]).value(2.0f32).value(1u32 << 20)
    })
}

fn pointers<'a>(launch: Launch<'a>, buffers: &[BufferId]) -> Launch<'a> {
    buffers.iter().fold(launch, |launch, buffer| launch.buffer(*buffer))
}

fn measure(
    name: &str,
    text: &str,
    set: impl for<'a> Fn(Launch<'a>, &mut Memory) -> Launch<'a>,
) -> Result<(), nvptx_emulator::Error> {
    let module = Module::parse(text)?;
    let kernel = module.kernels().next().expect("the text has a kernel").to_string();
    let mut best = f64::INFINITY;
    let mut count = 0;
    for _ in 0..5 {
        let mut memory = Memory::new();
        let launch = set(Launch::new(&module, &kernel), &mut memory);
        let start = Instant::now();
        let report = launch.run(&mut memory)?;
        best = best.min(start.elapsed().as_secs_f64());
        assert!(report.is_clean(), "{report}");
        count = report.counters.thread_instructions();
    }
    let speed = count as f64 / best / 1e6;
    println!("{name}: {count} thread instructions in {:.1} ms, {speed:.0} M/s", best * 1e3);
    Ok(())
}
