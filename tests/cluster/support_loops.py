"""What images of a pool have outside of it: loop devices, and links to those in /run."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path

from localvolume.host.block.blockdev import InUse
from localvolume.host.loop.attach import Loop, StillInUse, attached, detach
from tests.suite.until import until

LINKS = Path("/run/localvolume")


def loops_of(pool: Path) -> list[Loop]:
    """The loop devices that stand on files of the pool, also where those are deleted."""
    return [loop for loop in attached() if _backing(loop).startswith(f"{pool}/")]


def detach_all(pool: Path) -> None:
    """Have no loop device stand on files of the pool."""

    # udev opens a device that was written to for a moment, and that may be long on a busy machine.
    def left() -> list[Loop]:
        for loop in (loops := loops_of(pool)):
            with contextlib.suppress(StillInUse, InUse):
                detach(loop)
        return loops

    until(left, lambda loops: not loops)


def links_of(pool: Path) -> Path | None:
    """Where the links of the pool are, None if it was never begun."""
    marker = pool / ".localvolume" / "pool.json"
    return LINKS / json.loads(marker.read_text())["id"] if marker.exists() else None


def release(pool: Path) -> None:
    """Have the pool's disk free to be unmounted, and /run as before."""
    detach_all(pool)
    if (links := links_of(pool)) is not None:
        shutil.rmtree(links, ignore_errors=True)
    # Others of this machine may have links there.
    with contextlib.suppress(OSError):
        LINKS.rmdir()


def _backing(loop: Loop) -> str:
    """The file that it stands on, "" once it is detached: anybody's may be, at any moment."""
    with contextlib.suppress(OSError):
        return Path(f"/sys/block/{os.path.basename(loop.node)}/loop/backing_file").read_text()
    return ""
