"""The node's control groups: made before kubelet wants them, and removed whatever it left."""

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

PREFIX = "localvolume-node-"
#: What kubelet needs on either layout; where v1 lacks one, it has no hierarchy at all.
NEEDED = ("cpu", "cpuset", "memory", "pids")
#: What kubelet wants handed down on v2 where the machine has it.
_HANDED_DOWN = (*NEEDED, "hugetlb")


@dataclass(frozen=True)
class Layout:
    """Where control groups are: every hierarchy of v1, or the single one of v2."""

    hierarchies: tuple[str, ...]
    unified: bool


def layout(mountinfo: str = "/proc/self/mountinfo") -> Layout:
    """Read from the mount table; a v2 hierarchy beside those of v1 counts as one more of them."""
    points: dict[str, list[str]] = {"cgroup": [], "cgroup2": []}
    with open(mountinfo, encoding="utf-8") as file:
        for line in file:
            before, _, after = line.partition(" - ")
            if (kind := after.split()[0]) in points:
                points[kind].append(before.split()[4])
    unified = "/sys/fs/cgroup" in points["cgroup2"]
    found = ["/sys/fs/cgroup"] if unified else [*points["cgroup"], *points["cgroup2"]]
    return Layout(tuple(dict.fromkeys(found)), unified)


def lacking(found: Layout) -> str | None:
    """Why kubelet cannot use the control groups here; None where it can."""
    if found.unified:
        names = set(_read("/sys/fs/cgroup/cgroup.controllers").split())
    else:
        names = {part for path in found.hierarchies for part in os.path.basename(path).split(",")}
    if absent := [name for name in NEEDED if name not in names]:
        return f"there is no control group controller for {', '.join(absent)}"
    # For root this is false where they are mounted read-only, as in most containers.
    if not all(os.access(path, os.W_OK) for path in found.hierarchies):
        return "the control groups are read-only"
    return None


def own_name() -> str:
    """A name that tells whose the groups are: this process, and no later one of its number."""
    return f"{PREFIX}{os.getpid()}-{_started(os.getpid())}"


def make(name: str) -> None:
    """Make the groups `name` in every hierarchy, ready for kubelet; raises OSError."""
    found = layout()
    for hierarchy in found.hierarchies:
        group = f"{hierarchy}/{name}"
        os.makedirs(group, exist_ok=True)
        # A group of v1 takes no process before it is told which processors and memory it has.
        for file in ("cpuset.cpus", "cpuset.mems"):
            if not found.unified and os.path.exists(f"{hierarchy}/{file}"):
                _write(f"{group}/{file}", _read(f"{hierarchy}/{file}"))
    if found.unified:
        for group in ("/sys/fs/cgroup", f"/sys/fs/cgroup/{name}"):
            _hand_down(group)


def _hand_down(group: str) -> None:
    """Let groups beneath have the controllers (v2); raises OSError where that is not allowed."""
    given = _read(f"{group}/cgroup.controllers").split()
    already = _read(f"{group}/cgroup.subtree_control").split()
    for controller in _HANDED_DOWN:
        if controller in given and controller not in already:
            try:
                _write(f"{group}/cgroup.subtree_control", f"+{controller}")
            except OSError as error:
                # EBUSY in the outermost group of a container, where its own processes are.
                reason = f"{controller} cannot be handed down to groups beneath: {error.strerror}"
                raise OSError(error.errno, reason, group) from None


def remove(name: str, seconds: float = 60.0) -> list[str]:
    """Remove the groups `name`, whose processes were killed; what is left after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        left = [group for group in _groups(name) if not _rmdir(group)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.02)  # killed processes leave their groups a little later


def thaw(name: str) -> None:
    """What runc froze for an instant, and could not thaw again, is deaf even to SIGKILL."""
    for group in _groups(name):
        for file, word in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
            if os.path.exists(f"{group}/{file}"):
                with contextlib.suppress(OSError):
                    _write(f"{group}/{file}", word)


def remove_stale() -> None:
    """Remove groups of nodes whose keeper was killed; what still has processes stays."""
    for hierarchy in layout().hierarchies:
        for entry in os.listdir(hierarchy):
            if entry.startswith(PREFIX) and not _alive(entry):
                remove(entry, seconds=0)


def _alive(name: str) -> bool:
    pid, _, started = name.removeprefix(PREFIX).partition("-")
    return pid.isdecimal() and _started(int(pid)) == started


def _started(pid: int) -> str:
    """When a process began, in ticks since boot (proc(5), stat field 22); "" where it is gone."""
    try:
        return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _groups(name: str) -> Iterator[str]:
    """All groups beneath, the deepest first."""
    for hierarchy in layout().hierarchies:
        for group, _, _ in os.walk(f"{hierarchy}/{name}", topdown=False):
            yield group


def _rmdir(group: str) -> bool:
    try:
        os.rmdir(group)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
