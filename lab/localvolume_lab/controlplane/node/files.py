"""Which files of this machine a program in an image needs beside itself."""

import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from localvolume_lab.controlplane.node.requirements import NodeFailed, program


def libraries(programs: Iterable[Path]) -> dict[str, Path]:
    """The shared libraries of ELF files and their loader: where they must be, and the file.

    Raises NodeFailed where one is not found.
    """
    paths = [str(path) for path in programs if _is_elf(path)]
    if not paths:
        return {}
    # It fails for a static program among others, and says so; the others are told all the same.
    argv = [program("ldd"), *paths]
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(
        argv, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    if absent := re.findall(r"(\S+) => not found", done.stdout):
        raise NodeFailed(f"libraries are missing on this machine: {', '.join(sorted(set(absent)))}")
    found = set(re.findall(r"(?:^|=>)\s*(/\S+) \(0x", done.stdout, re.MULTILINE))
    # Loaded by the C library itself when a thread ends early; ldd cannot know.
    for library in sorted(found):
        beside = Path(library).parent / "libgcc_s.so.1"
        if Path(library).name == "libc.so.6" and beside.exists():
            found.add(str(beside))
    return {name: Path(name) for name in sorted(found)}


def _is_elf(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"
