"""Which devices LVM is shown: none whose bytes a tenant may write.

LVM believes what it reads. A tenant who can write to a device can write a volume group onto it,
with any name, tag and UUID, and LVM would list it beside the administrator's. If two groups have
the same name, LVM refuses every command on either. So each command gets a list, made for this one
command, of the only devices that it may look at. The list leaves out:

- loop devices: the kubelet puts one on every Block volume, images are served through one, and
  whoever may set one up decides what lies behind it;
- network block devices and ZFS volumes, which other drivers hand out;
- logical volumes;
- devices that discovery directories offer, and any on which a loop device stands;
- whatever the kernel makes of one of these: partitions, and what device mapper or RAID stack on it.

Disks, their partitions, multipath devices, RAID and LUKS on them are shown. LVM itself recognises
and ignores the members of a multipath device or RAID.

If the host's LVM has a devices file (lvmdevices(8)), LVM looks at what that names and ignores the
list: the file is the administrator's own, and the way to name a loop device.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from localvolume.host.block import sysfs
from localvolume.host.block.sysfs import block_number, listing, read, uevent
from localvolume.host.loop.users import DELETED, loop_status
from localvolume.host.tree.entries import device_number

_HANDED_OUT: Final = re.compile(r"(loop|nbd|rbd|drbd|zd)[0-9]")
# Other characters would have a meaning in a pattern.
_NODE: Final = re.compile(r"/dev/[A-Za-z0-9/_-]+")
_LEADS_NOWHERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})
_NOTHING_ELSE: Final = '"r|.*|"'
_TOLD: Final = 5
_FILTER: Final = re.compile(r"^\s*(?:devices/)?(filter|global_filter)\s*=", re.MULTILINE)


class Block(NamedTuple):
    """A block device as sysfs describes it, with the kernel's name."""

    name: str
    #: ``/dev/sda1``.
    node: str
    #: ``major:minor``.
    device: str
    #: Device mapper's UUID for it (``LVM-...``, ``CRYPT-...``); "" for other devices.
    uuid: str = ""
    #: The names of the devices it is made of: a partition's disk, or what lies below any other.
    made_of: tuple[str, ...] = ()


def hidden(blocks: Iterable[Block], given: Collection[str]) -> dict[str, str]:
    """The devices that LVM may not see, by name, each with the reason.

    `given` holds the numbers of the devices that tenants are given.
    """
    by_name = {one.name: one for one in blocks}
    found: dict[str, str] = {}
    for one in by_name.values():
        if kind := _HANDED_OUT.match(one.name):
            found[one.name] = f"{kind[1]} devices are handed out"
        elif one.uuid.startswith("LVM-"):
            found[one.name] = "it is a logical volume"
        elif one.device in given:
            found[one.name] = "it is a tenant's"
    # Devices made of these, at any depth.
    left = [one for one in by_name.values() if one.name not in found]
    while children := {
        one.name: f"it is made of {below}"
        for one in left
        for below in one.made_of
        if below in found
    }:
        found |= children
        left = [one for one in left if one.name not in found]
    return found


def shown(blocks: Sequence[Block], hidden: Collection[str]) -> list[str]:
    """The nodes of all devices not hidden, as far as a pattern can name them."""
    nodes = {one.node for one in blocks if one.name not in hidden and _NODE.fullmatch(one.node)}
    return sorted(nodes)


def accepting(nodes: Iterable[str], key: str, more: str = "") -> str:
    """LVM's configuration for looking at these nodes only: `key` is the filter to set, `more`
    holds other settings of the same section.

    Hints are off: LVM writes them for the host's commands too, which have another filter.
    """
    patterns = [f'"a|^{node}$|"' for node in nodes]
    settings = ['hints="none"', *([more] if more else [])]
    return f"devices{{{' '.join(settings)} {key}=[{','.join([*patterns, _NOTHING_ELSE])}]}}"


def free_filter(configuration: str) -> str:
    """The filter that LVM's configuration (what `lvmconfig` prints) does not use; "" if none.

    LVM looks at devices that pass both. A command's option replaces the setting in the file, so it
    must not be the filter with which the administrator hides devices.
    """
    used = set(_FILTER.findall(configuration))
    return next((key for key in ("global_filter", "filter") if key not in used), "")


def blocks() -> list[Block]:
    """All block devices that the kernel has."""
    found = []
    for name in listing(f"{sysfs.SYS}/class/block"):
        base = sysfs.real(f"{sysfs.SYS}/class/block/{name}")
        device, devname = read(f"{base}/dev"), uevent(base).get("DEVNAME")
        if device is None or devname is None:
            continue  # it is just being removed
        disk = sysfs.disk_of(base)
        below = listing(f"{base}/slaves") if disk == base else [os.path.basename(disk)]
        uuid = read(f"{base}/dm/uuid") or ""
        found.append(Block(name, f"/dev/{devname}", device, uuid, tuple(below)))
    return found


def given(directories: Iterable[str]) -> set[str]:
    """The numbers of the devices that tenants are given: those offered in these directories, and
    those with a loop device on them, as the kubelet sets it up.

    Raises OSError: a device that cannot be looked at may be a tenant's.
    """
    found = set()
    for directory in directories:
        try:
            with os.scandir(directory) as entries:
                # Mount points are skipped: a filesystem may not answer, and its disk is mounted.
                paths = [one.path for one in entries if not one.is_dir(follow_symlinks=False)]
        except (FileNotFoundError, NotADirectoryError):
            continue
        found |= {number for path in paths if (number := _device_at(path))}
    return found | _below_loops()


def _device_at(path: str) -> str:
    """The number of the block device that the entry leads to, or "" if it leads to none."""
    try:
        status = os.stat(path)
    except OSError as error:
        if error.errno in _LEADS_NOWHERE:
            return ""
        raise
    return device_number(status.st_rdev) if stat.S_ISBLK(status.st_mode) else ""


def _below_loops() -> set[str]:
    found = set()
    for name in listing(f"{sysfs.SYS}/block"):
        backing = read(f"{sysfs.SYS}/block/{name}/loop/backing_file")
        if not backing:
            continue
        if status := loop_status(f"/dev/{name}"):
            found.add(status.rdevice)
        elif number := block_number(backing.removesuffix(DELETED)):
            # Its own node is not visible here; that of its backing device may be.
            found.add(number)
    return found


def explained(hidden: Mapping[str, str]) -> str:
    """What LVM is not shown, for people who miss a group; "" if nothing worth naming."""
    names = [name for name, why in sorted(hidden.items()) if "logical volume" not in why]
    if not names:
        return ""
    more = f" and {len(names) - _TOLD} more" if len(names) > _TOLD else ""
    return (
        f"LVM is not shown {', '.join(names[:_TOLD])}{more}: a tenant may write to these, unless"
        " the host's LVM names them in its devices file"
    )
