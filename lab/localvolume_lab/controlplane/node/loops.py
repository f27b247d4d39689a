"""Loop devices that a node leaves: kubelet's own for raw block volumes, those of its files, and
those that an agent in it attached to images in a pool, wherever that lies."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterable, Mapping

from localvolume.host.loop.users import LoopStatus, loop_status

_LOOP_CLR_FD = 0x4C01  # linux/loop.h

_LINKS = "run/localvolume"
"""Where an agent's links are, `<pool id>/<volume>`, that lead to the devices of images."""


def beneath(directory: str) -> dict[str, LoopStatus]:
    """What is attached to which loop device ("/dev/loop3"), where it is a file in `directory`."""
    found = {}
    for entry in os.listdir("/sys/block"):
        backing, device = _backing(entry), f"/dev/{entry}"
        ours = backing is not None and backing.startswith(f"{directory}/")
        if ours and (status := _status(device)) is not None:
            found[device] = status
    return found


def linked(root: str) -> dict[str, LoopStatus]:
    """What an agent has attached in the node whose / is `root` (/proc/PID/root): /run is the node's
    own, so are the links there.

    A link may be older than what is attached now: only the image of the volume it names counts.
    """
    found = {}
    for place, _, names in os.walk(f"{root}/{_LINKS}"):
        for name in names:
            try:
                device = os.readlink(f"{place}/{name}")
            except OSError:  # no link, or just gone
                continue
            backing = _backing(os.path.basename(device))
            theirs = backing is not None and os.path.basename(backing) == f"{name}.img"
            if theirs and (status := _status(device)) is not None:
                found[device] = status
    return found


def detach(devices: Iterable[str]) -> None:
    """Detach them; one that is still open or mounted detaches itself when that ends."""
    for device in devices:
        with contextlib.suppress(OSError):  # it may just have gone
            descriptor = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.ioctl(descriptor, _LOOP_CLR_FD)
            finally:
                os.close(descriptor)


def wait_gone(devices: Mapping[str, LoopStatus], seconds: float = 60.0) -> list[str]:
    """Until they are detached; those that are not after `seconds`.

    Known by what is attached: the path that the kernel shows is another one without its mounts.
    """
    deadline = time.monotonic() + seconds
    while left := [device for device, was in devices.items() if _status(device) == was]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    return left


def _status(device: str) -> LoopStatus | None:
    try:
        return loop_status(device)
    except OSError:  # just on its way out
        return None


def _backing(name: str) -> str | None:
    try:
        with open(f"/sys/block/{name}/loop/backing_file", encoding="utf-8") as file:
            return file.read().rstrip("\n").removesuffix(" (deleted)")
    except OSError:
        return None
