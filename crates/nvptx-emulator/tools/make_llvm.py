#!/usr/bin/env python3
"""Compiles tests/data/llvm/kernels.ll for nvptx64 with LLVM: PTX that others wrote.

Needs the wheel llvmlite, whose LLVM has the NVPTX target (`pip install llvmlite==0.50.0`). Writes
one file for each target and optimisation level beside the source.
"""

import pathlib

import llvmlite
import llvmlite.binding as llvm

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "llvm"
# Name of the file, processor, PTX version, optimisation level of passes and code generator.
RUNS = [("sm_70_O0", "sm_70", "ptx63", 0), ("sm_80_O3", "sm_80", "ptx70", 3),
        ("sm_90_O2", "sm_90", "ptx78", 2)]


def main():
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("nvptx64-nvidia-cuda")
    version = ".".join(map(str, llvm.llvm_version_info))
    for name, cpu, features, level in RUNS:
        machine = target.create_target_machine(cpu=cpu, features="+" + features, opt=level)
        module = llvm.parse_assembly((DATA / "kernels.ll").read_text())
        module.verify()
        options = llvm.create_pipeline_tuning_options(speed_level=level)
        builder = llvm.create_pass_builder(machine, options)
        if level > 0:
            builder.getModulePassManager().run(module, builder)
        text = machine.emit_assembly(module)
        head = f"// Made by tools/make_llvm.py: LLVM {version} (llvmlite {llvmlite.__version__}), "
        (DATA / f"{name}.ptx").write_text(f"{head}{cpu}, -O{level}.\n{text.rstrip()}\n")


if __name__ == "__main__":
    main()
