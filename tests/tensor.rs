//! Products by tensor cores: every intrinsic with factors stored by rows and by columns, in the
//! emulator against the interpreter, and assembled by `ptxas` where there is one.

use crate::support::{answer, ptxas};
use std::process::Command;

/// Intrinsic, types of the factors, type of the sum, terms, elements that are copied at once.
type Product = (&'static str, [&'static str; 2], &'static str, u32, u32);

const INTRINSICS: [Product; 7] = [
    ("mma_m16n8k16_bf16", ["bfloat16"; 2], "float32", 16, 8),
    ("mma_m16n8k16_f16", ["float16"; 2], "float32", 16, 8),
    ("mma_m16n8k8_tf32", ["float32"; 2], "float32", 8, 4),
    ("mma_m16n8k32_s8", ["int8"; 2], "int32", 32, 16),
    ("mma_m16n8k32_u8", ["uint8"; 2], "int32", 32, 16),
    ("mma_m16n8k32_u8_s8", ["uint8", "int8"], "int32", 32, 16),
    ("mma_m16n8k32_s8_u8", ["int8", "uint8"], "int32", 32, 4),
];

/// Returns a product of matrices, `wx` times `wy` warps a block, `rows` times `columns` products a
/// warp. `a` and `b` say whether the factors are transposed.
fn program(
    (name, factors, sum, terms, copied): Product,
    (a, b): (bool, bool),
    tiles: &str,
) -> String {
    let (a_shape, a) = if a { ("l, n", "k, x") } else { ("n, l", "x, k") };
    let (b_shape, b) = if b { ("m, l", "y, k") } else { ("l, m", "k, y") };
    let bytes = if sum == "int32" { 1 } else { 16 / copied };
    let align = 32 / bytes;
    let [left_type, right_type] = factors;
    let of = |element: String| match left_type {
        "float32" => format!("tf32({element})"),
        _ => format!("({element} as {sum})"),
    };
    let (left, right) = (of(format!("A[{a}]")), of(format!("B[{b}]")));
    format!(
        "kernel product(n = 64, m = 64, l = 128) {{
    input A: {left_type}[{a_shape}]
    input B: {right_type}[{b_shape}]
    reduce k: 0..l
    output C[x: n, y: m] = sum({left} * {right}, axis=k)
}}

schedule product({tiles}) for nvptx {{
    let CL = C.cache_write(local, layout=[x // 8, x % 8, y // 8, y % 8 // 2, y % 2])
    let AS = A.cache_read(shared, [CL])
    let BS = B.cache_read(shared, [CL])
    let xb, xw, xv, xg = C.split(x, factors=[wx, rows * 2, 8])
    let yb, yw, yv, yt, yi = C.split(y, factors=[wy, columns, 4, 2])
    C.reorder(xb, yb, xw, yw, xg, yt, xv, yv, yi)
    let lane = C.fuse(xg, yt)
    C.bind(xb, blockIdx.y)
    C.bind(yb, blockIdx.x)
    C.bind(xw, threadIdx.z)
    C.bind(yw, threadIdx.y)
    C.bind(lane, threadIdx.x)
    C.vectorize(yi)
    CL.compute_at(C, lane)
    let ko, kt, ki = CL.split(k, factors=[{steps}, {terms}])
    let row, half = CL.split(p0, factor=2)
    CL.reorder(ko, kt, row, p1, p2, p3, half, p4, ki)
    CL.tensorize(half, {name}, reassociate=true)
    for S in [AS, BS] {{
        S.compute_at(CL, ko)
        S.storage_align(ax0, {align}, {padding})
        let so, si = S.split(ax1, factor={copied})
        let chunk = S.fuse(ax0, so)
        let rest, z, y, x = S.split(chunk, factors=[wx, wy, 32])
        S.bind(z, threadIdx.z)
        S.bind(y, threadIdx.y)
        S.bind(x, threadIdx.x)
        S.vectorize(si)
    }}
}}
",
        steps = 64 / terms,
        padding = 16 / bytes
    )
}

/// Factors of 8 and 32 bits have their terms next to each other.
fn layouts(factor: &str) -> &'static [(bool, bool)] {
    const ALL: [(bool, bool); 4] = [(false, true), (false, false), (true, false), (true, true)];
    if factor.ends_with("float16") { &ALL } else { &ALL[..1] }
}

#[test]
fn products_match_the_interpreter() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("product.te");
    let path = file.to_str().expect("UTF-8");
    for intrinsic in INTRINSICS {
        for layout in layouts(intrinsic.1[0]) {
            for tiles in
                ["wx = 1, wy = 2, rows = 2, columns = 2", "wx = 2, wy = 1, rows = 1, columns = 4"]
            {
                let what = format!("{} {layout:?} {tiles}", intrinsic.0);
                std::fs::write(&file, program(intrinsic, *layout, tiles)).expect("it is written");
                let run = ["run", "--target", "nvptx-sm_80", "--emulate", "--verify"];
                let (good, said) = answer(&[&run[..], &[path]].concat());
                assert!(good && said.contains("no findings"), "{what}:\n{said}");
                assert!(said.contains("mma.sync.aligned"), "{what}:\n{said}");
                let exact = said.contains("bit-identical");
                assert!(exact || intrinsic.2 == "float32", "{what}:\n{said}");
            }
        }
    }
}

#[test]
fn ptxas_accepts_every_intrinsic() {
    let Some(ptxas) = ptxas() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let (file, text) = (folder.path().join("product.te"), folder.path().join("product.ptx"));
    for intrinsic in INTRINSICS {
        let tiles = "wx = 1, wy = 2, rows = 2, columns = 2";
        std::fs::write(&file, program(intrinsic, (false, true), tiles)).expect("it is written");
        for arch in ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"] {
            let target = format!("nvptx-{arch}");
            let out = text.to_str().expect("UTF-8");
            let (good, said) =
                answer(&["build", "--target", &target, "-o", out, file.to_str().expect("UTF-8")]);
            assert!(good, "{} on {arch}:\n{said}", intrinsic.0);
            let output = Command::new(&ptxas)
                .args(["-v", &format!("-arch={arch}"), "-o", "/dev/null"])
                .arg(&text)
                .output()
                .expect("ptxas runs");
            let said =
                String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
            let clean = output.status.success() && said.contains("0 bytes spill stores");
            assert!(clean, "{} on {arch}:\n{said}", intrinsic.0);
        }
    }
}

/// The products of warpgroups, with their factors.
const OF_WARPGROUPS: [(&str, &str); 2] =
    [("wgmma_m64nNk16_bf16", "bfloat16"), ("wgmma_m64nNk16_f16", "float16")];

/// Returns a product of matrices by warpgroups; `a` and `b` say whether the factors are transposed,
/// `buffering` how their copies are buffered.
fn of_warpgroups(
    (name, factor): (&str, &str),
    (a, b): (bool, bool),
    (tiles, line, buffering): (&str, u32, &str),
) -> String {
    let (a_shape, a) = if a { ("l, n", "k, x") } else { ("n, l", "x, k") };
    let (b_shape, b) = if b { ("m, l", "y, k") } else { ("l, m", "k, y") };
    // Lines of 8 elements may be padded.
    let pad = if line == 8 { "S.storage_align(p0, 64, 8)" } else { "" };
    let steps = if line == 8 { 2 } else { 4 };
    let on_loop = match buffering {
        "pipeline" => "CL.unroll(kt)\n    CL.pipeline(ko, stages=4)",
        _ => "",
    };
    let on_copy = if buffering == "double_buffer" { "S.double_buffer()" } else { "" };
    format!(
        "kernel product(n = 128, m = 128, l = 256) {{
    input A: {factor}[{a_shape}]
    input B: {factor}[{b_shape}]
    reduce k: 0..l
    output C[x: n, y: m] = sum((A[{a}] as float32) * (B[{b}] as float32), axis=k)
}}

schedule product({tiles}) for nvptx {{
    let CL = C.cache_write(local, layout=[x // 8, x % 8, y // 8, y % 8 // 2, y % 2])
    let AS = A.cache_read(shared, [CL], layout=[ax1 // {line}, ax0, ax1 % {line}])
    let BS = B.cache_read(shared, [CL], layout=[ax1 // {line}, ax0, ax1 % {line}])
    let xb, xg, xw, xv, xl = C.split(x, factors=[wx, 4, 2, 8])
    let yb, yg, yv, yt, yi = C.split(y, factors=[wy, groups, 4, 2])
    C.reorder(xb, yb, xg, yg, xw, xl, yt, xv, yv, yi)
    let group = C.fuse(xg, yg)
    let lane = C.fuse(xl, yt)
    C.bind(xb, blockIdx.y)
    C.bind(yb, blockIdx.x)
    C.bind(group, threadIdx.z)
    C.bind(xw, threadIdx.y)
    C.bind(lane, threadIdx.x)
    CL.compute_at(C, lane)
    let ko, kt, ki = CL.split(k, factors=[{steps}, 16])
    CL.reorder(ko, kt, p1, p3, p0, p2, p4, ki)
    {on_loop}
    CL.tensorize(p0, {name}, reassociate=true)
    for S in [AS, BS] {{
        S.compute_at(CL, ko)
        {pad}
        let so, si = S.split(p2, factor=8)
        S.reorder(p1, p0, so, si)
        let chunk = S.fuse(p1, p0, so)
        let rest, z, y, x = S.split(chunk, factors=[wx * wy, 4, 32])
        S.bind(z, threadIdx.z)
        S.bind(y, threadIdx.y)
        S.bind(x, threadIdx.x)
        S.vectorize(si)
        {on_copy}
    }}
}}
"
    )
}

#[test]
fn products_of_warpgroups_match_the_interpreter() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("product.te");
    let path = file.to_str().expect("UTF-8");
    let forms = [
        ("wx = 1, wy = 2, groups = 2", 8, "pipeline"),
        ("wx = 2, wy = 1, groups = 8", 8, "none"),
        ("wx = 1, wy = 1, groups = 8", 64, "pipeline"),
        ("wx = 2, wy = 1, groups = 16", 64, "pipeline"),
        ("wx = 1, wy = 2, groups = 8", 64, "none"),
        ("wx = 1, wy = 1, groups = 16", 64, "double_buffer"),
    ];
    for intrinsic in OF_WARPGROUPS {
        for layout in layouts(intrinsic.1) {
            for form in forms {
                let what = format!("{} {layout:?} {form:?}", intrinsic.0);
                let text = of_warpgroups(intrinsic, *layout, form);
                std::fs::write(&file, text).expect("it is written");
                let run = ["run", "--target", "nvptx-sm_90a", "--emulate", "--verify"];
                let (good, said) = answer(&[&run[..], &[path]].concat());
                assert!(good && said.contains("no findings"), "{what}:\n{said}");
            }
        }
    }
}

/// The sums of a warpgroup's products stay in registers, and their groups overlap.
#[test]
fn ptxas_accepts_products_of_warpgroups() {
    let Some(ptxas) = ptxas() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let (file, text) = (folder.path().join("product.te"), folder.path().join("product.ptx"));
    let path = file.to_str().expect("UTF-8");
    for intrinsic in OF_WARPGROUPS {
        for (tiles, line) in [("wx = 1, wy = 1, groups = 2", 8), ("wx = 2, wy = 1, groups = 8", 64)]
        {
            let program = of_warpgroups(intrinsic, (false, true), (tiles, line, "pipeline"));
            std::fs::write(&file, program).expect("it is written");
            let out = text.to_str().expect("UTF-8");
            let (good, said) = answer(&["build", "--target", "nvptx-sm_90a", "-o", out, path]);
            assert!(good, "{}:\n{said}", intrinsic.0);
            let written = std::fs::read_to_string(&text).expect("the text");
            assert!(written.contains("wgmma.wait_group.sync.aligned 1;"), "{written}");
            let output = Command::new(&ptxas)
                .args(["-v", "-arch=sm_90a", "-o", "/dev/null"])
                .arg(&text)
                .output()
                .expect("ptxas runs");
            let said =
                String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
            let clean = output.status.success() && said.contains("0 bytes spill stores");
            assert!(clean && !said.contains("serialized"), "{}:\n{said}", intrinsic.0);
        }
    }
}
