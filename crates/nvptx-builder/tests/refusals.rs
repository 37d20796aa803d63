//! Errors name the instruction.

use nvptx_builder::*;

fn errors(emit: impl FnOnce(&mut Entry)) -> String {
    let mut module = Module::new(Target::SM_80);
    emit(module.entry("k"));
    module.finish().unwrap_err().to_string()
}

#[test]
fn types_known_at_run_time_are_checked() {
    let said = errors(|e| {
        let (a, b) = (e.reg_as(Ty::F32), e.reg_as(Ty::S32));
        e.add(a, b);
    });
    assert_eq!(said, "entry `k`: `add.rn.f32`: an operand is s32 where f32 is wanted");
    let said = errors(|e| {
        let a = e.reg_as(Ty::B32);
        e.min(a, a);
    });
    assert_eq!(said, "entry `k`: `min`: its operands are numbers, not b32");
    let said = errors(|e| {
        let (a, dst) = (e.reg::<F32>(), e.reg_as(Ty::F64));
        e.to(dst).add(a, a);
    });
    assert!(said.contains("its 1 result(s) are f32, the destination is [\"f64\"]"), "{said}");
}

#[test]
fn forms_are_checked() {
    let said = errors(|e| {
        let a = e.reg::<U64>();
        e.ld_vec::<F64, 4>(Ld::global(), a);
    });
    assert!(said.contains("needs sm_100 or later, the target is sm_80"), "{said}");
    let said = errors(|e| {
        let a = e.reg::<U64>();
        e.ld_vec::<F32, 3>(Ld::global(), a);
    });
    assert!(said.contains("an access has 1, 2 or 4 elements"), "{said}");
    let said = errors(|e| {
        let tile = e.shared::<F32>("tile", 64, 16);
        e.ld_vec::<F32, 4>(Ld::shared(), tile.at(8));
    });
    assert!(said.contains("the offset 8 is not a multiple of 16"), "{said}");
    let said = errors(|e| {
        let a = e.reg::<U32>();
        e.ld::<F32>(Ld::global(), a);
    });
    assert!(said.contains("`ld.global.f32`: the address is u32"), "{said}");
    let said = errors(|e| {
        let tile = e.shared::<F32>("tile", 64, 16);
        e.ld::<F32>(Ld::global(), &tile);
    });
    assert!(said.contains("`k_tile` is not in this space"), "{said}");
}

#[test]
fn limits_are_checked() {
    let said = errors(|e| e.max_threads(1025, 1, 1));
    assert!(said.contains("a block has 1 to 1,024 threads"), "{said}");
    let said = errors(|e| drop(e.shared::<F32>("tile", 12_289, 16)));
    assert!(said.contains("49156 bytes of static shared memory, the limit is 49152"), "{said}");
    let said = errors(|e| e.bar_sync(16));
    assert!(said.contains("barriers are 0 to 15"), "{said}");
}

#[test]
fn control_flow_is_checked() {
    let said = errors(|e| {
        let nowhere = e.label("nowhere");
        e.bra(nowhere);
    });
    assert!(said.contains("`$nowhere`: the label is branched to and not placed"), "{said}");
    let said = errors(|e| {
        let p = e.reg::<Pred>();
        e.when(p, |e| e.when(!p, |e| e.ret()));
    });
    assert!(said.contains("a condition inside another one"), "{said}");
}

#[test]
fn versions_can_be_limited() {
    let mut module = Module::new(Target::SM_80);
    module.limit_version(Version::new(7, 0));
    let e = module.entry("k");
    let a = e.reg::<U64>();
    e.ld::<F32>(Ld::global().no_allocate(), a);
    let said = module.finish().unwrap_err().to_string();
    assert_eq!(
        said,
        "entry `k`: `ld.global.L1::no_allocate.f32 %f0, [%rd0]` needs PTX 7.4, the limit is 7.0"
    );
}

#[test]
fn names_are_unique() {
    let mut module = Module::new(Target::SM_80);
    module.entry("k");
    module.entry("k");
    assert!(module.finish().unwrap_err().to_string().contains("is taken"));
    let mut module = Module::new(Target::SM_80);
    let e = module.entry("k");
    let (a, b) = (e.reg_named::<F32>("acc"), e.reg_named::<F32>("acc"));
    e.to(a).mov(b);
    let text = module.finish().unwrap().text;
    assert!(text.contains("mov.f32 %acc, %acc_2x;"), "{text}");
}
