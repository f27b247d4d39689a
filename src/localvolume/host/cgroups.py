"""The control groups of pods, and how fast each may read from and write to a device.

Both layouts are served: v2 (cgroup-v2.rst, "io.max"), and the hierarchy `blkio` of v1
(blkio-controller.rst, "Throttling/Upper limit policy").
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

READ_BYTES: Final = "rbps"
WRITE_BYTES: Final = "wbps"
READ_OPS: Final = "riops"
WRITE_OPS: Final = "wiops"

Limits = Mapping[str, int]
"""By the names of v2, as above: how many a second; 0: any number."""

_MAX: Final = "io.max"
_V1: Final = {
    READ_BYTES: "blkio.throttle.read_bps_device",
    WRITE_BYTES: "blkio.throttle.write_bps_device",
    READ_OPS: "blkio.throttle.read_iops_device",
    WRITE_OPS: "blkio.throttle.write_iops_device",
}

# kubelet's names: pod<UID>, or …-pod<UID with _ for ->.slice where systemd makes the groups.
_POD: Final = re.compile(r"(?:pod|.*-pod)([0-9A-Za-z_-]+?)(?:\.slice)?")
_KUBEPODS: Final = re.compile(r"(?:.*-)?kubepods(?:\.slice)?")
_NOT_KUBELETS: Final = frozenset({"user.slice"})
_DEEPEST: Final = 8

GONE: Final = frozenset({errno.ENOENT, errno.ENODEV})
"""What reading or writing a file of a group raises once the group is gone."""


class NoGroups(Exception):
    """No limits can be kept there; the text says why."""


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """The hierarchy that limits reading and writing: its root, and whether it is v2."""

    root: str
    unified: bool

    def pods(self) -> dict[str, list[str]]:
        """The groups that limits of a pod are set in, by the pod's UID. Raises OSError.

        v2 keeps a limit for all that is below a group. v1 keeps one for the processes of that very
        group, so there each group of the pod has its own.
        """
        found: dict[str, list[str]] = {}
        for uid, path in _pods_in(self.root, inside=False, depth=0):
            below = () if self.unified else _groups_below(path)
            found.setdefault(uid, []).extend((path, *below))
        return found

    def limits(self, group: str, device: str) -> dict[str, int]:
        """What the group has for the device `major:minor`: all four. Raises OSError."""
        if self.unified:
            return _parsed(_read(f"{group}/{_MAX}"), device)
        return {key: _number(_read(f"{group}/{file}"), device) for key, file in _V1.items()}

    def limit(self, group: str, device: str, limits: Limits) -> None:
        """Set these, and leave the others as they are. Raises OSError."""
        if self.unified:
            words = [f"{key}={count or 'max'}" for key, count in limits.items()]
            _write(f"{group}/{_MAX}", f"{device} {' '.join(words)}")
            return
        for key, count in limits.items():
            _write(f"{group}/{_V1[key]}", f"{device} {count}")


def hierarchy_in(directory: str) -> Hierarchy:
    """The one that is mounted at, or below, the host's `/sys/fs/cgroup` as it is seen here.

    Raises NoGroups.
    """
    try:
        controllers = _read(f"{directory}/cgroup.controllers").split()
    except OSError:
        blkio = f"{directory}/blkio"
        if os.path.exists(f"{blkio}/{_V1[READ_BYTES]}"):
            return Hierarchy(blkio, unified=False)
        raise NoGroups(f"{directory} has neither control groups of v2 nor blkio of v1") from None
    if "io" not in controllers:
        raise NoGroups(f"the control groups in {directory} have no controller io")
    return Hierarchy(directory, unified=True)


def _pods_in(directory: str, *, inside: bool, depth: int) -> Iterator[tuple[str, str]]:
    """Pods are not looked into: who owns one may make groups of any name in it."""
    if depth > _DEEPEST:
        return
    for name in _names_in(directory):
        path = f"{directory}/{name}"
        pod = _POD.fullmatch(name) if inside else None
        if pod is not None:
            yield pod[1].replace("_", "-"), path
        elif name not in _NOT_KUBELETS:
            within = inside or _KUBEPODS.fullmatch(name) is not None
            yield from _pods_in(path, inside=within, depth=depth + 1)


def _groups_below(group: str) -> Iterator[str]:
    waiting = [group]
    while waiting:
        here = waiting.pop()
        inside = [f"{here}/{name}" for name in _names_in(here)]
        yield from inside
        waiting += inside


def _names_in(group: str) -> list[str]:
    """The groups in a group; none if it is gone."""
    try:
        with os.scandir(group) as entries:
            return sorted(one.name for one in entries if one.is_dir(follow_symlinks=False))
    except OSError as error:
        if error.errno not in GONE:
            raise
        return []


def _parsed(text: str, device: str) -> dict[str, int]:
    found = dict.fromkeys(_V1, 0)
    for line in text.splitlines():
        number, *words = line.split()
        if number == device:
            said = dict(word.split("=", 1) for word in words)
            found |= {key: int(said[key]) for key in _V1 if said.get(key, "max") != "max"}
    return found


def _number(text: str, device: str) -> int:
    for line in text.splitlines():
        number, _, count = line.partition(" ")
        if number == device:
            return int(count)
    return 0


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()


def _write(path: str, text: str) -> None:
    # Not O_CREAT: a file of that name is there or the group is not.
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode("ascii"))
    finally:
        os.close(fd)
