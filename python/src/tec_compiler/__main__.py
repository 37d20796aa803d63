"""`python -m tec_compiler` runs the command `tec`; `--cmake-dir` prints the package for CMake."""

import os
import sys

from ._binary import cmake_dir, find_tec


def main() -> None:
    """Runs the command."""
    if sys.argv[1:] == ["--cmake-dir"]:
        print(cmake_dir())
        return
    tec = str(find_tec())
    os.execv(tec, [tec, *sys.argv[1:]])


if __name__ == "__main__":
    main()
