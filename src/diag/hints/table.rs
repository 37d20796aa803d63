//! The table of hints. The first row that matches is used.

use super::Hint;
use super::Place::{self, Anywhere, File, Kernel, Option, Schedule};

/// Names of element types in other languages, and the `.te` name; empty if it is the same.
pub const TYPES: [(&str, &str); 15] = [
    ("float64 float32 float16 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool", ""),
    ("float f32 fp32 single Float32 float32_t real32", "float32"),
    ("double f64 fp64 Float64 float64_t real64", "float64"),
    ("half f16 fp16 Float16 float16_t __half", "float16"),
    ("bf16 bfloat bfloat16_t __nv_bfloat16", "bfloat16"),
    ("int8_t i8 s8 char schar", "int8"),
    ("int16_t i16 s16 short", "int16"),
    ("int int32_t i32 s32 Int32", "int32"),
    ("int64_t i64 s64 long ptrdiff_t ssize_t intp Int64 index", "int64"),
    ("uint8_t u8 uchar byte", "uint8"),
    ("uint16_t u16 ushort", "uint16"),
    ("uint32_t u32 uint unsigned", "uint32"),
    ("uint64_t u64 ulong size_t usize", "uint64"),
    ("boolean bool_ bool8", "bool"),
    ("int4 uint4", "int8"),
];

/// Modules whose functions have a prefix in Python or C++.
pub const MODULES: [&str; 14] = [
    "np", "numpy", "te", "tir", "tvm", "topi", "T", "torch", "F", "jnp", "math", "std", "tl", "hl",
];

const fn hint(
    place: Place,
    codes: &'static str,
    pattern: &'static str,
    help: &'static str,
) -> Hint {
    Hint { place, codes, pattern, help }
}

const TEXT: &str = "a file is a list of `import`, `def`, `reducer`, `kernel` and `schedule`";
const REDUCED: &str = "a reduction axis is declared by `reduce {k}: {a}..{b}`";
const SORTED: &str = "`sort(A[i, r], axis=r, at=p)` is the element of rank `p`, and `argsort` \
    gives its position; a data axis `p: k` with `descending=true` gives the k greatest";
const SCANNED: &str = "a stage does not read itself. A running sum is a reduction: \
    `reduce k: 0..n`, then `output {s}[i: n] = sum(A[k], axis=k, where=k <= i)`; each step of \
    another recurrence is a stage of its own, or a call";
const BOUNDS: &str = "bounds are the same for all elements: take the whole range, and leave terms \
    out by `sum(…, axis={z}, where={z} < {e})`";
const OPERAND: &str = "as an operand, `if` and `not` need parentheses";
const POWER: &str = "a power is `pow({x}, {y})`";
const NO_PREFIX: &str = "functions have no prefix: `{f}(…)`";
const EXTENT: &str = "an extent is a parameter in the declaration `input {X}`";

const MACOS: &str = "write `aarch64-macos`, or `x86-avx2-macos` for a processor of Intel";
const MACOS_X86: &str = "write `x86-64-macos`, `x86-avx2-macos` or `x86-avx512-macos`";
const WINDOWS: &str = "write `x86-64-windows`, `x86-avx2-windows` or `x86-avx512-windows`";

/// Every hint.
pub const TABLE: &[Hint] = &[
    // Targets.
    hint(
        Option,
        "E0401",
        "aarch64|arm64|arm64e|arm|armv8 ** apple|darwin|mac|macos|macosx|osx",
        "write `aarch64-macos`",
    ),
    hint(Option, "E0401", "x86_64|amd64|x64|x86 ** apple|darwin|mac|macosx|osx", MACOS_X86),
    hint(Option, "E0401", "apple|darwin|mac|macos|macosx|osx", MACOS),
    hint(Option, "E0401", "aarch64|arm64|armv8|neoverse|arm", "write `aarch64`"),
    hint(Option, "E0401?", "x86_64|amd64 - pc|w64 - windows|mingw32", WINDOWS),
    hint(Option, "E0401?", "windows|win32|win64|mingw|mingw64|msvc", WINDOWS),
    hint(
        Option,
        "E0401?",
        "x86_64|amd64|x64|x86|sse4",
        "write `x86-64`, `x86-avx2` or `x86-avx512`",
    ),
    hint(Option, "E0401", "avx2|haswell|znver3|avx", "write `x86-avx2`"),
    hint(Option, "E0401", "avx512|skylake|znver4|znver5|icelake", "write `x86-avx512`"),
    hint(Option, "E0401", "riscv64|riscv64gc|rv64gc|riscv", "write `riscv64`"),
    hint(Option, "E0401", "llvm|host|cpu|c", "write `native` for this machine's CPU"),
    hint(Option, "E0401", "cuda|gpu|nvidia|ptx|nvptx64|nvptx", "name the GPU: `nvptx-sm_80`"),
    hint(
        Option,
        "E0401",
        "sm_70|sm_75|sm_80|sm_86|sm_87|sm_89|sm_90|sm_90a|sm_100|sm_120",
        "the name of a GPU is `nvptx-sm_80` and the like",
    ),
    // Files.
    hint(
        File,
        "E0101",
        "import @ $m as $n",
        "write the file in quotes: `import \"{m}.te\" as {n}`",
    ),
    hint(File, "E0101", "import @ $m", "write the file in quotes: `import \"{m}.te\"`"),
    hint(File, "E0101", "from", "write `import \"FILE.te\"`, or `import \"FILE.te\" as NAME`"),
    hint(File, "E0101", "$f = lambda *p : *e", "write `def {f}({p}) = {e}`"),
    hint(File, "E0101", "fn|func|function|fun $f ( *p )", "write `def {f}({p}) = …`"),
    hint(File, "E0101", "$f ( *p ) = *e ;", "write `def {f}({p}) = {e}`"),
    hint(File, "E0101", "<t> $f (", "write `def {f}(x) = …`"),
    hint(File, "E0101", "void|__global__|extern|static|template|prim_func|class|struct", TEXT),
    hint(File, "E0101", "def $f ( *p ) @ { return *e ; }", "write `def {f}({p}) = {e}`"),
    hint(File, "E0101", "def $f ( *p ) @ { return *e }", "write `def {f}({p}) = {e}`"),
    hint(
        File,
        "E0101",
        "def $f ( *p ) @ { *e }",
        "a `def` is one expression: `def {f}({p}) = {e}`",
    ),
    hint(File, "E0101", "def $f ( *p ) @ : return *e", "write `def {f}({p}) = {e}`"),
    hint(File, "E0101", "def $f ( *p ) @ : *e", "a `def` is one expression: `def {f}({p}) = {e}`"),
    hint(File, "E0106", "def $f ( *p ) @ ->", "a `def` has no types: `def {f}({p}) = …`"),
    hint(File, "E0101", "def $f ( ** $x @ : $t", "a parameter of a `def` has no type: `{x}`"),
    // Parameters and inputs.
    hint(
        Kernel,
        "E0101",
        "kernel $k ( ** $X : <t> @ [ *e ]",
        "tensors are declared in the kernel: `input {X}: {t}[{e}]`",
    ),
    hint(
        Kernel,
        "E0101",
        "kernel $k ( ** <t> @ $n",
        "a compile-time integer is `{n} = 1`, a run-time integer `{n}: var`; tensors and scalars \
         are declared in the kernel by `input`",
    ),
    hint(
        Kernel,
        "E0101",
        "input <t> @ $X [ *e ]",
        "the type follows the name: `input {X}: {t}[{e}]`",
    ),
    hint(Kernel, "E0101", "input <t> @ $x", "the type follows the name: `input {x}: {t}`"),
    hint(
        Kernel,
        "E0101",
        "input $X : layout_free @ <t> [ *e ]",
        "the word follows the type: `input {X}: {t}[{e}] layout_free`",
    ),
    hint(
        Kernel,
        "E0101",
        "input $X @ [ $i : *e , $j : *f , $k : ** ] : <t>",
        "an input has extents without axes, as in `input {X}: {t}[{e}, {f}]`",
    ),
    hint(
        Kernel,
        "E0101",
        "input $X @ [ $i : *e , $j : *f ] : <t>",
        "an input has extents without axes: `input {X}: {t}[{e}, {f}]`",
    ),
    hint(
        Kernel,
        "E0101",
        "input $X @ [ $i : *e ] : <t>",
        "an input has extents without axes: `input {X}: {t}[{e}]`",
    ),
    hint(Kernel, "E0101", "input $X @ [ *e ] : <t>", "write `input {X}: {t}[{e}]`"),
    hint(
        Kernel,
        "E0101",
        "input $X : <t> [ $i @ : *e , $j : *f , $k : ** ]",
        "an input has extents without axes, as in `input {X}: {t}[{e}, {f}]`",
    ),
    hint(
        Kernel,
        "E0101",
        "input $X : <t> [ $i @ : *e , $j : *f ]",
        "an input has extents without axes: `input {X}: {t}[{e}, {f}]`",
    ),
    hint(
        Kernel,
        "E0101",
        "input $X : <t> [ $i @ : *e ]",
        "an input has extents without axes: `input {X}: {t}[{e}]`",
    ),
    hint(Kernel, "E0101", "Float @ ( #b )", "write `float{b}`"),
    hint(Kernel, "E0101", "Int @ ( #b )", "write `int{b}`"),
    hint(Kernel, "E0101", "UInt @ ( #b )", "write `uint{b}`"),
    hint(Kernel, "E0101 E0106", ": @ 's", "write a type without quotes: `{s}`"),
    hint(Kernel, "E0101", "<t> $X [ *e ]", "an input is declared by `input {X}: {t}[{e}]`"),
    hint(Kernel, "E0101", "<t> $x = *v", "a constant is declared by `let {x} = …`"),
    hint(Kernel, "E0101", "let $P @ [", "a stage is declared by `compute {P}[…] = …` or `output`"),
    hint(Kernel, "E0101", "const|var|val|auto|static", "a constant is declared by `let x = …`"),
    hint(Kernel, "E0101", "$X = <m> placeholder ( *s )", "write `input {X}: float32[n]`"),
    hint(Kernel, "E0101", "$X = <m> var ( *s )", "write `{X}: var` among the kernel's parameters"),
    // Reduction axes.
    hint(Kernel, "E0101", "$k = <m> reduce_axis ( ( *a , *b )", REDUCED),
    hint(Kernel, "E0101", "let $k = <m> reduce_axis ( ( *a , *b ) , ** @ 's", REDUCED),
    hint(Kernel, "E0201 E0109", "let $k = @ <m> reduce_axis ( ( *a , *b )", REDUCED),
    hint(Kernel, "E0101", "$k : range ( *a , *b ) @", "a range is `{k}: {a}..{b}`"),
    hint(Kernel, "E0101", "$k : range ( *n ) @", "a range is `{k}: 0..{n}`"),
    hint(
        Kernel,
        "E0101",
        "reduce ** $k : ( *a , *b ) @",
        "write a range without parentheses: `{k}: {a}..{b}`",
    ),
    hint(Kernel, "E0101", "reduce ** $k @ in %a .. %b", "write `reduce {k}: {a}..{b}`"),
    hint(Kernel, "E0101", "reduce ** $k @ in range ( %n )", "write `reduce {k}: 0..{n}`"),
    hint(
        Kernel,
        "E0101",
        "reduce ** $k : %a @ : %b",
        "write two points between the ends: `{k}: {a}..{b}`",
    ),
    hint(Kernel, "E0101", "reduce ** $k : %n @", "a range has two ends: `{k}: 0..{n}`"),
    hint(
        Kernel,
        "E0215",
        "reduce ** $z : %a .. ** @ %e",
        "bounds are the same for all elements: take the whole range, and leave terms out by \
         `sum(…, axis={z}, where={z} as int64 < {e} as int64)`",
    ),
    hint(Kernel, "E0201?", "reduce ** $z : %a .. ** @ $e", BOUNDS),
    hint(Kernel, "E0224", "axis = @ ( *k )", "write several axes in brackets: `axis=[{k}]`"),
    hint(Kernel, "E0224", "axis = @ #k", "axes are given by name: `reduce k: 0..m`, then `axis=k`"),
    hint(Kernel, "E0224", "axis = @ - #k", "axes are given by name: `axis=k`"),
    hint(
        Kernel,
        "E0216",
        "$f ( ** @ keepdims|keepdim =",
        "an extent of 1 is an axis of the stage: `C[i: n, one: 1] = {f}(…)`",
    ),
    hint(Kernel, "E0216", "$f ( *x , ** @ dtype = <t>", "cast the terms: `{f}({(x)} as {t}, …)`"),
    hint(
        Kernel,
        "E0216",
        "sum|prod|max|min|any|all ( *x , @ $k )",
        "axes are given by name: `axis={k}`",
    ),
    // Stages.
    hint(
        Kernel,
        "E0101",
        "compute $C @ = <m> compute ( ( $n , ) , lambda $i : *e )",
        "write `{C}[{i}: {n}] = {e}`",
    ),
    hint(
        Kernel,
        "E0101",
        "compute $C @ = <m> compute (",
        "write axes and extents together: `{C}[i: n, j: m] = …`",
    ),
    hint(
        Kernel,
        "E0101",
        "$C = <m> compute ( ( $n , ) , lambda $i : *e )",
        "write `compute {C}[{i}: {n}] = {e}`, or `output`",
    ),
    hint(
        Kernel,
        "E0101",
        "$C = <m> compute ( ( $n , $m ) , lambda $i , $j : *e )",
        "write `compute {C}[{i}: {n}, {j}: {m}] = {e}`, or `output`",
    ),
    hint(
        Kernel,
        "E0101",
        "$C = <m> compute (",
        "write axes and extents together: `compute {C}[i: n, j: m] = …`, or `output`",
    ),
    hint(
        Kernel,
        "E0101",
        "compute $C @ =",
        "a stage has axes: `{C}[i: n] = …`, or `{C}[] = …` for one element",
    ),
    hint(
        Kernel,
        "E0101",
        "output|compute ** [|, $x @ in|= %e",
        "an axis and its extent are `{x}: {e}`",
    ),
    hint(
        Kernel,
        "E0101",
        "output|compute $C [ ** $x : 0 @ .. %e",
        "an axis begins at 0: `{x}: {e}`",
    ),
    hint(
        Kernel,
        "E0101",
        "output|compute $h [ $a @ [ *i ]",
        "a stage computes every element in its place, `{h}[j: m] = …`; what comes from several \
         places is a reduction with `where={a}[k] as int64 == j as int64`",
    ),
    hint(
        Kernel,
        "E0101",
        "output|compute $C [ ** @ ]|,",
        "each axis has a name and an extent: `{C}[i: n, j: m]`",
    ),
    hint(
        Kernel,
        "E0101",
        "output|compute $C @ (",
        "write axes in brackets, each with an extent: `{C}[i: n, j: m]`",
    ),
    hint(
        Kernel,
        "E0101",
        "output|compute $C @ : <t> [ *e ]",
        "axes follow the name, then the type: `{C}[i: {e}]: {t} = …`",
    ),
    hint(
        Kernel,
        "E0101",
        "output|compute <t> @ $C",
        "the type follows the axes: `{C}[i: n]: {t} = …`",
    ),
    hint(
        Kernel,
        "E0101",
        "$h [ $a [ $k ] ] += %v",
        "a stage computes every element in its place: `reduce {k}: 0..n`, then `output {h}[j: m] \
         = sum({v}, axis={k}, where={a}[{k}] as int64 == j as int64)`",
    ),
    hint(
        Kernel,
        "E0101",
        "$h [ *i ] += %v",
        "an element is computed once: sum it by `output {h}[…] = sum({v}, axis=k)` over `reduce \
         k: 0..n`",
    ),
    hint(
        Kernel,
        "E0101",
        "$h [ *i ] -=|*=|/=",
        "an element is computed once, by `output {h}[…] = …`",
    ),
    hint(
        Kernel,
        "E0101",
        "$f ( *i ) =|+=",
        "write axes in brackets, each with an extent: `compute {f}[i: n, j: m] = …`, or `output`",
    ),
    hint(Kernel, "E0101", "return", "a result is declared by `output C[i: n] = …`"),
    hint(
        Kernel,
        "E0101",
        "sum|prod|max|min|any|all ( *x @ for $k in range ( *n ) )",
        "write `sum({x}, axis={k})`, with `reduce {k}: 0..{n}` before the stage",
    ),
    hint(
        Kernel,
        "E0101",
        "for|while",
        "a kernel has no loops: a stage computes every element of its axes",
    ),
    hint(Kernel, "E0101", "pass|print|printf", "a kernel consists of declarations alone"),
    hint(
        Anywhere,
        "E0101",
        "if *c @ : %a else %b",
        "a choice of values is `if {c} then {a} else {b}`",
    ),
    hint(Kernel, "E0101", "if *c @ :", "write the statements of an `if` in braces: `if {c} { … }`"),
    hint(
        Kernel,
        "E0101",
        "let $x = *e in",
        "name the value in a stage of its own: `compute {x}[…] = {e}`",
    ),
    // Values.
    hint(Kernel, "E0214?", "$A ( *i )", "write indices in brackets: `{A}[{i}]`"),
    hint(
        Kernel,
        "E0101",
        "$A [ *i ] @ [ *j ]",
        "write all indices in one pair of brackets: `{A}[{i}, {j}]`",
    ),
    hint(Kernel, "E0101", "%x @ . astype|to|cast|view ( 't )", "a cast is `{(x)} as {t}`"),
    hint(Kernel, "E0101", "%x @ . astype|to|cast|view ( <m> <t> )", "a cast is `{(x)} as {t}`"),
    hint(Kernel, "E0201 E0109", "@ $x . astype|to|cast ( <m> <t> )", "a cast is `{x} as {t}`"),
    hint(Kernel, "E0101", "( <t> ) @ %x", "a cast is `{x} as {t}`"),
    hint(Kernel, "E0101 E0106", "cast ( *x , @ 't", "a cast is `{(x)} as {t}`"),
    hint(Kernel, "E0201 E0109", "<m> cast ( *x , <t> )", "a cast is `{(x)} as {t}`"),
    hint(Kernel, "E0106 E0101", "float ( @ 's )", "a constant of a type is `{s}(float32)`"),
    hint(Kernel, "E0201 E0109", "<m> <t> ( *x )", "a cast is `{(x)} as {t}`"),
    hint(Kernel, "E0201", "<t>", "write `{t}`"),
    hint(
        Kernel,
        "E0101",
        "output|compute ** = *a if *c @ else %b",
        "a choice of values is `if {c} then {a} else {b}`",
    ),
    hint(
        Kernel,
        "E0101",
        "(|,|[|= *a @ if *c else *b )|,|]",
        "a choice of values is `if {c} then {a} else {b}`",
    ),
    hint(
        Kernel,
        "E0106",
        "=|(|,|[ *c @ ? *a : %b",
        "a choice of values is `if {c} then {a} else {b}`",
    ),
    hint(
        Kernel,
        "E0201 E0109",
        "<m> if_then_else|where|ifelse|ite|cond|Select ( *c , *a , *b )",
        "a choice of values is `if {c} then {a} else {b}`",
    ),
    hint(Kernel, "E0101", "= if *c @ {|:", "a choice of values is `if {c} then a else b`"),
    hint(
        Kernel,
        "E0101",
        "= if *c then *a @ }|input|reduce|compute|output|let",
        "a choice has two values: `if {c} then {a} else 0`",
    ),
    hint(
        Kernel,
        "E0101",
        "= *a @ where *c",
        "a condition of terms is an argument: `sum(…, axis=k, where={c})`; of values it is `if \
         {c} then {a} else 0`",
    ),
    hint(Anywhere, "E0101", "if *a @ = %b", "equality is `==`: `{a} == {b}`"),
    hint(Anywhere, "E0101", "assume|assert *a @ = %b", "equality is `==`: `{a} == {b}`"),
    hint(Kernel, "E0101", "= *a @ = %b", "equality is `==`: `{a} == {b}`"),
    hint(
        Anywhere,
        "E0107",
        "*a &|^ *b @ ==|!=|<|<=|>|>=",
        "conditions are joined by `and`, `or` and `not`",
    ),
    hint(
        Anywhere,
        "E0107",
        "==|!=|<|<=|>|>= *a @ ==|!=|<|<=|>|>=",
        "join two comparisons by `and`: `a < b and b < c`",
    ),
    hint(
        Kernel,
        "E0201 E0109",
        "output|compute $C [ *d ] = @ <m> mean|average|avg ( *x , axis = *k )",
        "a mean is a sum, divided by the count in the next stage: `compute S[{d}] = sum({x}, \
         axis={k})`, then `output {C}[{d}] = S[…] / count`",
    ),
    hint(
        Kernel,
        "E0201 E0109",
        "<m> mean|average|avg (",
        "a mean is a `sum`, divided by the count in the next stage",
    ),
    hint(Kernel, "E0201 E0109", "<m> topk|partition|median|unique (", SORTED),
    hint(
        Kernel,
        "E0201 E0109",
        "<m> cumsum|cumprod|scan|accumulate ( *a )",
        "a running sum is a reduction: `reduce k: 0..n`, then `sum(A[k], axis=k, where=k <= i)`",
    ),
    hint(
        Kernel,
        "E0201 E0109",
        "<m> matmul|dot|einsum|gemm|tensordot|mm|bmm ( *a , *b )",
        "a product is `sum(A[i, k] * B[k, j], axis=k)`, or an operator of the library: `import \
         \"nn.te\"`",
    ),
    hint(Kernel, "E0106", "$A @ \\@ $B", "a product is `sum({A}[i, k] * {B}[k, j], axis=k)`"),
    hint(Kernel, "E0201 E0109", "<m> relu|ReLU ( *x )", "write `max({x}, 0.0)`"),
    hint(Kernel, "E0201 E0109", "<m> maximum|fmax|fmaxf ( *x )", "write `max({x})`"),
    hint(Kernel, "E0201 E0109", "<m> minimum|fmin|fminf ( *x )", "write `min({x})`"),
    hint(Kernel, "E0201 E0109", "<m> clip|clamp|clampf ( *x )", "write `clamp({x})`"),
    hint(Kernel, "E0201 E0109", "<m> fabs|fabsf|absolute ( *x )", "write `abs({x})`"),
    hint(Kernel, "E0201 E0109", "<m> power|powf ( *x )", "write `pow({x})`"),
    hint(
        Kernel,
        "E0201 E0109",
        "<m> expf|expm1f|logf|sqrtf|tanhf|sinf|cosf|floorf|ceilf|roundf|rsqrtf|erff ( *x )",
        "functions have the same name for all types, without an `f`: `exp(x)`, `sqrt(x)`",
    ),
    hint(Kernel, "E0201 E0109", "<m> isnan ( *x )", "write `is_nan({x})`"),
    hint(Kernel, "E0201 E0109", "<m> square ( *x )", "write `{(x)} * {(x)}`"),
    hint(Kernel, "E0201 E0109", "<m> reciprocal ( *x )", "write `1.0 / {(x)}`"),
    hint(Kernel, "E0201 E0109", "<m> len ( $X )", EXTENT),
    hint(Kernel, "E0201 E0109", "$X . shape|size|ndim|width|height|extent|dim", EXTENT),
    hint(Kernel, "E0201 E0109", "<m> inf|INFINITY|infinity|Inf", "write `inf(float32)`"),
    hint(Kernel, "E0201 E0109", "<m> FLT_MAX", "write `max_value(float32)`"),
    hint(Kernel, "E0201 E0109", "<m> DBL_MAX", "write `max_value(float64)`"),
    hint(Kernel, "E0201 E0109", "<m> INT_MAX", "write `max_value(int32)`"),
    hint(Kernel, "E0201 E0109", "<m> INT_MIN", "write `min_value(int32)`"),
    hint(
        Kernel,
        "E0201 E0109",
        "<m> nan|NAN|NaN",
        "there is no NaN constant: `inf(float32) - inf(float32)` is NaN",
    ),
    hint(Kernel, "E0201 E0109", "<m> pi|PI|M_PI", "write the number: `3.141592653589793`"),
    hint(Kernel, "E0201 E0109", "std|np|te|tir|tvm|topi|T|torch|F|jnp|math|hl . $f (", NO_PREFIX),
    hint(Kernel, "E0201 E0109", "tvm . $m . $f (", NO_PREFIX),
    hint(Kernel, "E0106", "std @ :: $f (", NO_PREFIX),
    hint(Kernel, "E0201", "output|compute $s [ ** = ** @ $s [", SCANNED),
    hint(
        Kernel,
        "E0101",
        "[ ** @ : ]|,",
        "a stage computes single elements: name an axis in place of `:`",
    ),
    hint(
        Kernel,
        "E0101",
        "$A [ ** @ : ** ]|,",
        "a stage computes single elements: name an axis in place of a range",
    ),
    hint(Kernel, "E0101", "=|(|,|+|-|*|/ @ | *x |", "write `abs({x})`"),
    hint(Kernel, "E0101", "*a < @ > *b", "write `!=`"),
    hint(Anywhere, "E0101", "%a @ mod %b", "write `{a} % {b}`"),
    hint(Anywhere, "E0101", "@ xor", "write `!=` for conditions, `^` for integers"),
    hint(Anywhere, "E0101", "+|-|*|/|//|%|<<|>>|&|^|==|!=|<|<=|>|>= @ if|not", OPERAND),
    hint(Anywhere, "E0201 E0312", "True", "write `true`"),
    hint(Anywhere, "E0201 E0312", "False", "write `false`"),
    hint(Kernel, "E0201", "None|null|nullptr|NULL", "every element has a value: write 0"),
    // Schedules.
    hint(Schedule, "E0101", "elif|elseif|elsif @", "write `else if`"),
    hint(
        Schedule,
        "E0101",
        "AutoInlineInjective|auto_inline|AutoInline|auto_inline_all @ (",
        "write `auto_inline_injective()`",
    ),
    hint(
        Schedule,
        "E0101",
        "auto_inline_injective ( @ $s",
        "it takes no arguments: it inlines what it can in the whole kernel",
    ),
    hint(
        Schedule,
        "E0101",
        ". bind ( *i , te . thread_axis ( @ 's",
        "write a thread index without quotes: `bind({i}, {s})`",
    ),
    hint(Schedule, "E0101 E0106", ". $d ( ** @ 's", "write names without quotes: `{s}`"),
    hint(
        Schedule,
        "E0101",
        "$s @ [ $C ] . $d (",
        "a directive begins with its stage: `{C}.{d}(…)`",
    ),
    hint(
        Schedule,
        "E0101",
        "$s [ $C ] @ . $d (",
        "a directive begins with its stage: `{C}.{d}(…)`",
    ),
    hint(
        Schedule,
        "E0109",
        "$C . op . axis|reduce_axis [ #n ]",
        "an axis is given by its name in the kernel: `{C}.split(i, factor=4)`",
    ),
    hint(
        Schedule,
        "E0306",
        "$i . vectorize|unroll|parallel ( )",
        "a directive begins with its stage: `STAGE.vectorize({i})`",
    ),
    hint(
        Schedule,
        "E0101",
        "$a @ , $b = $C . $d (",
        "new names are declared by `let`: `let {a}, {b} = {C}.{d}(…)`",
    ),
    hint(
        Schedule,
        "E0101",
        "$a @ = $C . $d (",
        "a new name is declared by `let`: `let {a} = {C}.{d}(…)`",
    ),
    hint(Schedule, "E0101", "$a @ =", "a new name is declared by `let {a} = …`"),
    hint(
        Schedule,
        "E0101",
        "$C . $d ( ** ) @ . $e (",
        "each directive is a statement: `{C}.{e}(…)`",
    ),
    hint(
        Schedule,
        "E0312",
        "$C . split ( $i , @ $o , $n , %f )",
        "new axes are declared by `let`: `let {o}, {n} = {C}.split({i}, factor={f})`",
    ),
    hint(
        Schedule,
        "E0101",
        "$d @ ( $C , *i )",
        "a directive begins with its stage: `{C}.{d}({i})`",
    ),
    hint(
        Schedule,
        "E0308",
        "$C . unroll|vectorize|parallel ( $i , ** @ #n )",
        "split the axis first: `let o, l = {C}.split({i}, factor={n})`, then the directive on `l`",
    ),
    hint(
        Schedule,
        "E0305",
        "$C . @ inline|inlined|compute_inlined|store_inline",
        "write `{C}.compute_inline()`",
    ),
    hint(
        Schedule,
        "E0309",
        "$C . reorder ( @ [ *a ]",
        "write the axes without brackets: `{C}.reorder({a})`",
    ),
    // Numbers and signs.
    hint(Anywhere, "E0103", "$n:.f", "write `{n}.0`"),
    hint(Anywhere, "E0103", "$n:.F", "write `{n}.0`"),
    hint(Anywhere, "E0103", "$n:f", "a constant takes the type of the other operand: `{n}`"),
    hint(Anywhere, "E0103", "$n:F", "a constant takes the type of the other operand: `{n}`"),
    hint(Anywhere, "E0103", "$n:UL", "a constant takes the type of the other operand: `{n}`"),
    hint(Anywhere, "E0103", "$n:L", "a constant takes the type of the other operand: `{n}`"),
    hint(Anywhere, "E0103", "$n:u", "a constant takes the type of the other operand: `{n}`"),
    hint(Anywhere, "E0103", "$n:U", "a constant takes the type of the other operand: `{n}`"),
    hint(Anywhere, "E0106", ";", "statements end without a semicolon"),
    hint(Anywhere, "E0106", "&&", "write `and`"),
    hint(Anywhere, "E0106", "||", "write `or`"),
    hint(Anywhere, "E0106", "!", "write `not`"),
    hint(Anywhere, "E0106", "%x @ \\** %y", POWER),
    hint(Kernel, "E0209", "%x @ ^ %y", POWER),
    hint(Anywhere, "E0106", "?", "a choice of values is `if c then a else b`"),
    hint(Anywhere, "E0106", "'", "a string is written in double quotes"),
    hint(Anywhere, "E0106", "+=|-=|*=|/=", "a value is computed once, by `=`"),
    hint(Anywhere, "E0106", "/*", "a comment begins with `#` and ends at the end of the line"),
    hint(Anywhere, "E0106", "//", "a comment begins with `#`"),
    hint(Anywhere, "E0101", "// $w @ $v", "a comment begins with `#`"),
    hint(Anywhere, "E0201?", "// @ $w", "if this is a comment, it begins with `#`"),
    hint(Anywhere, "E0106", "×|·|⋅", "write `*`"),
    hint(Anywhere, "E0106", "÷", "write `/`, or `//` for integers"),
    hint(Anywhere, "E0106", "≤", "write `<=`"),
    hint(Anywhere, "E0106", "≥", "write `>=`"),
    hint(Anywhere, "E0106", "≠", "write `!=`"),
    hint(Anywhere, "E0106", "–|—|−", "write `-`"),
    hint(Anywhere, "E0106", "“|”|‘|’|„", "a string is written in double quotes: `\"`"),
    hint(Anywhere, "E0101", "else|}|{ @ elif|elseif|elsif", "write `else if`"),
    hint(
        Kernel,
        "E0227",
        "$f ( @ *x , axis = $k )",
        "reduce pairs of position and value: `{f}(({k}, {x}), axis={k})`",
    ),
    hint(Kernel, "E0260?", "$A [ - #k ]", "indices count from 0, not from the end: `{A}[n - {k}]`"),
    hint(Anywhere, "E0101", "\"\"", "a comment begins with `#`"),
];
