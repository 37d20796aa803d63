"""Puts the binary `tec` into the wheel, as a script, and names the wheel after the machine.

The binary is the file of the environment variable TEC_BINARY, so that a compiler that exists is not
compiled again; without the variable, `cargo build --release` makes it.
"""

import os
import pathlib
import platform
import re
import subprocess

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# The oldest C library that a tag can name.
OLDEST_GLIBC = 17


def glibc_minor(binary: bytes) -> int | None:
    """The x of the oldest glibc 2.x with all symbols of a program; None if it uses none."""
    versions = [int(found) for found in re.findall(rb"GLIBC_2\.(\d+)[\0.]", binary)]
    return max([OLDEST_GLIBC, *versions]) if versions else None


class BinaryHook(BuildHookInterface):
    """The build hook."""

    def initialize(self, version, build_data):
        """Adds the binary to a wheel."""
        if version == "editable":
            raise RuntimeError("tec-compiler has no editable form: build a wheel")
        tree = pathlib.Path(self.root).parent
        named = os.environ.get("TEC_BINARY")
        if named is None:
            subprocess.run(["cargo", "build", "--release"], cwd=tree, check=True)
        binary = pathlib.Path(named).resolve() if named else tree / "target/release/tec"
        minor = glibc_minor(binary.read_bytes())
        system = "linux" if minor is None else f"manylinux_2_{minor}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{system}_{platform.machine()}"
        build_data["shared_scripts"][str(binary)] = "tec"
