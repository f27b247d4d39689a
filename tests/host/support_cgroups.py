"""Control groups of pods, as a kubelet makes them, in a part of this machine's own hierarchy."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from localvolume.host.cgroups import Hierarchy, hierarchy_in
from tests.suite.until import until

UNIFIED = Path("/sys/fs/cgroup/cgroup.controllers")


@dataclass(frozen=True)
class Groups:
    """`directory` is what an agent takes for the host's `/sys/fs/cgroup`."""

    directory: Path
    hierarchy: Hierarchy

    def pod(self, uid: str, *, systemd: bool = False) -> str:
        """The group of a burstable pod, with one of a container in it."""
        root = Path(self.hierarchy.root)
        if systemd:
            name = f"kubepods-burstable-pod{uid.replace('-', '_')}.slice"
            pod = root / "kubepods.slice/kubepods-burstable.slice" / name
        else:
            pod = root / "kubepods/burstable" / f"pod{uid}"
        (pod / "container").mkdir(parents=True, exist_ok=True)
        _hand_down(root, pod)
        return str(pod)

    def has(self, group: str, device: str) -> dict[str, int]:
        """The limits of a group that are any."""
        return {key: one for key, one in self.hierarchy.limits(group, device).items() if one}


@contextlib.contextmanager
def control_groups() -> Iterator[Groups]:
    """Nothing of them stays."""
    unified = UNIFIED.exists()
    above = Path("/sys/fs/cgroup" if unified else "/sys/fs/cgroup/blkio")
    root = Path(tempfile.mkdtemp(prefix="localvolume-test-", dir=above))
    try:
        if unified:
            _hand_down(above, root)
            yield Groups(root, hierarchy_in(str(root)))
        else:
            with tempfile.TemporaryDirectory(prefix="lv-cgroup-") as name:
                Path(name, "blkio").symlink_to(root)
                yield Groups(Path(name), hierarchy_in(name))
    finally:
        for directory, _, _ in os.walk(root, topdown=False):
            until(lambda one=directory: _removed(one), bool)  # type: ignore[misc]


def written_in(group: str, path: Path, size: int) -> float:
    """The seconds that a process of a pod takes to write so many bytes, past every cache."""
    # In the group before it opens anything.
    code = (
        "import mmap, os, sys\n"
        "group, path, size = sys.argv[1:]\n"
        "open(f'{group}/container/cgroup.procs', 'w').write('0')\n"
        "fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT)\n"
        "block = mmap.mmap(-1, 1 << 18)\n"
        "for _ in range(int(size) // len(block)):\n"
        "    os.write(fd, block)\n"
    )
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, group, str(path), str(size)],
        check=True,
        timeout=300,
    )
    return time.monotonic() - began


def _hand_down(root: Path, to: Path) -> None:
    """Have the group, and those above it, know the controller io (v2)."""
    if not UNIFIED.exists():
        return
    for one in reversed([parent for parent in to.parents if parent.is_relative_to(root)]):
        (one / "cgroup.subtree_control").write_text("+io")


def _removed(directory: str) -> bool:
    """A process that has ended is in its group for a moment yet."""
    with contextlib.suppress(OSError):
        os.rmdir(directory)
    return not os.path.isdir(directory)
