//! PTX of LLVM (tools/make_llvm.py) parses, computes correct values and has no findings.

mod common;

use common::numbers;
use half::f16;
use nvptx_emulator::{Launch, Memory, Module, Report};

const FILES: [&str; 3] = [
    include_str!("data/llvm/sm_70_O0.ptx"),
    include_str!("data/llvm/sm_80_O3.ptx"),
    include_str!("data/llvm/sm_90_O2.ptx"),
];

fn for_each_file(test: impl Fn(&Module)) {
    for text in FILES {
        test(&Module::parse(text).unwrap());
    }
}

#[track_caller]
fn clean(report: &Report) {
    assert!(report.is_clean(), "{report}");
}

#[test]
fn saxpy_is_correct() {
    for_each_file(|module| {
        let (x, y) = (numbers(1000, 1), numbers(1000, 2));
        let mut memory = Memory::new();
        let (px, py) = (memory.input("x", &x), memory.inout("y", &y));
        let report = Launch::new(module, "saxpy")
            .grid([3, 1, 1])
            .block([96, 1, 1])
            .buffer(px)
            .buffer(py)
            .value(1.5f32)
            .value(1000)
            .value(288)
            .run_twice(&mut memory)
            .unwrap();
        clean(&report);
        let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| 1.5f32.mul_add(*x, *y)).collect();
        assert_eq!(memory.read::<f32>(py), expected);
    });
}

#[test]
fn transpose_is_correct() {
    for_each_file(|module| {
        let x = numbers(64 * 64, 5);
        let mut memory = Memory::new();
        let (px, py) = (memory.input("x", &x), memory.output("y", 4 * 64 * 64));
        let report = Launch::new(module, "transpose")
            .grid([4, 1, 1])
            .block([256, 1, 1])
            .buffer(px)
            .buffer(py)
            .run_twice(&mut memory)
            .unwrap();
        clean(&report);
        assert_eq!(report.counters.bank_conflicts(), 0, "{report}");
        let expected: Vec<f32> = (0..64 * 64).map(|i| x[i % 64 * 64 + i / 64]).collect();
        assert_eq!(memory.read::<f32>(py), expected);
    });
}

#[test]
fn softmax_is_correct() {
    for_each_file(|module| {
        let x = numbers(5 * 128, 6);
        let mut memory = Memory::new();
        let (px, py) = (memory.input("x", &x), memory.output("y", 4 * 5 * 128));
        let report = Launch::new(module, "softmax")
            .grid([5, 1, 1])
            .block([128, 1, 1])
            .buffer(px)
            .buffer(py)
            .run_twice(&mut memory)
            .unwrap();
        clean(&report);
        let got = memory.read::<f32>(py);
        for (row, out) in x.chunks(128).zip(got.chunks(128)) {
            let sum: f64 = row.iter().map(|v| f64::from(*v).exp()).sum();
            for (v, y) in row.iter().zip(out) {
                let expected = f64::from(*v).exp() / sum;
                assert!((f64::from(*y) - expected).abs() < 1e-6 * expected, "{y} {expected}");
            }
        }
    });
}

#[test]
fn bit_operations_are_correct() {
    const PRIMES: [u32; 8] = [2, 3, 5, 7, 11, 13, 17, 19];
    for_each_file(|module| {
        let x: Vec<i32> = (0..96).map(|i: i32| i.wrapping_mul(-1640531527) >> (i % 5)).collect();
        let mut memory = Memory::new();
        let (px, py) = (memory.input("x", &x), memory.output("y", 4 * 96));
        let report = Launch::new(module, "bits")
            .block([96, 1, 1])
            .buffer(px)
            .buffer(py)
            .value(-7)
            .run_twice(&mut memory)
            .unwrap();
        clean(&report);
        let expected = |(i, v): (usize, &i32)| -> i32 {
            match i % 9 {
                0 => v.count_ones() as i32,
                1 => v.leading_zeros() as i32,
                2 => v.reverse_bits(),
                3 => v.rotate_left(i as u32 & 31),
                4 => v.wrapping_div(-7),
                5 => v.wrapping_rem(-7),
                6 => {
                    let w = i128::from(i64::from(*v) * i64::from(*v));
                    (w.wrapping_sub(1).wrapping_mul(w) as u128 >> 60) as i32
                }
                7 => PRIMES[*v as usize & 7] as i32,
                _ => (f64::from(*v) / 3.0) as i32,
            }
        };
        let expected: Vec<i32> = x.iter().enumerate().map(expected).collect();
        assert_eq!(memory.read::<i32>(py), expected);
    });
}

#[test]
fn histogram_is_correct() {
    for_each_file(|module| {
        let x: Vec<u8> =
            (0..64 * 50).map(|i: u32| (i.wrapping_mul(2654435761) >> 13) as u8).collect();
        let mut memory = Memory::new();
        let (px, py) = (memory.input("x", &x), memory.inout("y", &[0u32; 16]));
        let report = Launch::new(module, "histogram")
            .block([64, 1, 1])
            .buffer(px)
            .buffer(py)
            .value(50)
            .run_twice(&mut memory)
            .unwrap();
        clean(&report);
        let mut expected = vec![0u32; 16];
        x.iter().for_each(|v| expected[usize::from(v & 15)] += 1);
        assert_eq!(memory.read::<u32>(py), expected);
    });
}

#[test]
fn halves_are_correct() {
    for_each_file(|module| {
        let x: Vec<f16> = numbers(256, 9).into_iter().map(f16::from_f32).collect();
        let mut memory = Memory::new();
        let (px, py) = (memory.input("x", &x), memory.output("y", 512));
        let report = Launch::new(module, "halves")
            .block([256, 1, 1])
            .buffer(px)
            .buffer(py)
            .run_twice(&mut memory)
            .unwrap();
        clean(&report);
        let expected: Vec<f16> = x
            .iter()
            .map(|v| {
                let t = f16::from_f32(v.to_f32() * v.to_f32());
                let u = f16::from_f32(t.to_f32() + v.to_f32());
                let x = f16::from_f32(u.to_f32() * v.to_f32());
                if x.to_f32() < 0.0 { u } else { x }
            })
            .collect();
        assert_eq!(memory.read::<f16>(py), expected);
    });
}
