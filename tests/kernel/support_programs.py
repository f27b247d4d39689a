"""The image's own programs, for a guest: an agent runs these, not those of somebody's machine."""

import shlex
import tarfile
from pathlib import Path

from image import base
from image.running import turn

_CHECKED = 'PATH="$1:$PATH"; test "$(command -v lvm)" = "$1/lvm"; shift; exec "$@"'


def with_programs_of_the_image(directory: Path) -> list[str]:
    """Unpack them below `directory`; returns the words to put before a command that is to use them.

    What is in usr/sbin is what looks after disks. Each is started by the image's loader and with
    its libraries: its C library may be newer than the machine's.
    """
    with turn(), tarfile.open(base.build(allow_newest=True)) as archive:
        members = (member for member in archive if member.name.startswith("./usr/"))
        archive.extractall(directory, members, filter="fully_trusted")
    (loader,) = directory.glob("usr/lib*/ld-linux-*")
    (libraries,) = directory.glob("usr/lib/*-linux-gnu")
    path = directory / "path"
    path.mkdir()
    for program in sorted((directory / "usr/sbin").iterdir()):
        with program.open("rb") as file:
            if file.read(4) != b"\x7fELF":
                continue
        argv = [loader, "--argv0", program.name, "--library-path", libraries, program]
        script = path / program.name
        script.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, argv))} "$@"\n')
        script.chmod(0o755)
    return ["bash", "-ec", _CHECKED, "bash", str(path)]
