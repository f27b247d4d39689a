"""Reads what disks a node has, what lies on them and who uses them; changes nothing.

A disk is opened only if a filter means it and nothing in sysfs speaks against it.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from typing import Any, Final

from localvolume.config.disks import DisksConfig
from localvolume.config.model import ClassConfig
from localvolume.disks import claim
from localvolume.disks.model import Disk, DiskFacts, Inside
from localvolume.disks.plan.naming import entry_name
from localvolume.disks.plan.owners import Owners
from localvolume.disks.plan.plan import wanted_by, worth_a_look
from localvolume.host.block.blockdev import (
    InUse,
    NotABlockDevice,
    SignatureUnknown,
    exclusive_open,
    flush_buffers,
    read_signature,
    size_bytes,
    users_of,
)
from localvolume.host.block.disklist import BY_ID, RawDisk, list_disks
from localvolume.host.block.sysfs import base_of, block_number, disk_of, listing, read
from localvolume.host.filesystem.mark import read_mark
from localvolume.host.locks import is_device_locked
from localvolume.host.loop.users import loops_on
from localvolume.host.mount.mounts import MountTable, read_mount_table
from localvolume.host.process.commands import CommandMissing, CommandTimedOut
from localvolume.host.process.workers import Hung, Workers
from localvolume.host.tree.entries import device_number
from localvolume.kube.podmounts import PodMounts
from localvolume.volumes.hostdirs import misplaced
from localvolume.volumes.identity import Identity

LISTING_SECONDS: Final = 30.0
LOOKING_SECONDS: Final = 60.0
"""How long reading one disk may take before the disk counts as dead."""


async def look(
    node_name: str,
    config: DisksConfig,
    classes: Iterable[ClassConfig],
    named: Mapping[str, str],
    workers: Workers,
    *,
    recorded: Mapping[str, Identity] | None = None,
    by_id: str = BY_ID,
    pod: PodMounts | None = None,
) -> DiskFacts:
    """All disks of this node. `named` are the names of PersistentVolumes by their host paths,
    `recorded` the identities recorded on them, by name; `pod` is the agent's own pod.

    Raises Hung if even sysfs does not answer, OSError, and ValueError (the mount table).
    """
    disks = await workers.call(
        *("disks", LISTING_SECONDS, _outside, config, tuple(classes), dict(named)),
        *(dict(recorded or {}), by_id, pod),
    )
    found = []
    for disk in disks:
        if worth_a_look(disk, config):
            wanted, _ = wanted_by(disk, config)
            directory = wanted.mount_dir if wanted else ""
            inside = await _look_into(disk, directory, workers)
            disk = dataclasses.replace(disk, inside=inside)
        found.append(disk)
    return DiskFacts(node_name=node_name, config=config, disks=tuple(found))


def described(raw: RawDisk) -> Disk:
    """A disk as sysfs describes it."""
    fields: dict[str, Any] = raw._asdict()
    fields["identity"] = dict(raw.identity)
    return Disk(**fields)


def _outside(
    config: DisksConfig,
    classes: tuple[ClassConfig, ...],
    named: dict[str, str],
    recorded: dict[str, Identity],
    by_id: str,
    pod: PodMounts | None,
) -> list[Disk]:
    """The disks as they look from the outside: none is opened."""
    owners = Owners(
        entries=_entries(classes),
        devices={device: name for path, name in named.items() if (device := block_number(path))},
        paths={name: path for path, name in named.items()},
        recorded=recorded,
    )
    table = read_mount_table()
    disks = []
    for raw in list_disks(by_id):
        # Loop devices that nothing is attached to, empty card readers.
        if raw.size_bytes == 0:
            continue
        disk = described(raw)
        wanted, _ = wanted_by(disk, config)
        place = volume = taken = elsewhere = ""
        if wanted is not None:
            taken = owners.of(disk, disk_number(disk) if disk.parent else "", wanted.host_dir)
            elsewhere = misplaced(pod, wanted.host_dir, wanted.mount_dir) or ""
            name = entry_name(disk)
            if name:  # A disk without an identity has no place.
                volume = named.get(f"{wanted.host_dir}/{name}", "")
                volume = f"PersistentVolume {volume} names its place" if volume else ""
                place = place_problem(wanted.mount_dir, name, table, link=wanted.block)
        disks.append(
            dataclasses.replace(
                disk,
                offered=tuple(owners.entries.get(disk.device, ())),
                named=_named(owners, disk) or volume,
                misplaced=elsewhere,
                place=place,
                taken=taken,
            )
        )
    return disks


def _named(owners: Owners, disk: Disk) -> str:
    name = owners.devices.get(disk.device, "")
    return f"PersistentVolume {name} names it" if name else ""


def _entries(classes: Iterable[ClassConfig]) -> dict[str, list[str]]:
    """The entries of all discovery directories that lead to a device, by its number."""
    found: dict[str, list[str]] = {}
    for directory in sorted({one.mount_dir for one in classes}):
        for name in listing(directory):
            if device := block_number(f"{directory}/{name}"):
                found.setdefault(device, []).append(f"{directory}/{name}")
    return found


def place_problem(directory: str, name: str, table: MountTable, *, link: bool) -> str:
    """Why a filesystem cannot be mounted (or a link made) under that name; "" if it can.

    An empty directory may be there, from an earlier mount.
    """
    try:
        real = os.path.realpath(directory, strict=True)
        if not os.path.isdir(real):
            return f"{directory} is not a directory"
        path = f"{real}/{name}"
        if table.at(path) is not None:
            return f"something is mounted at {directory}/{name} already"
        if os.path.lexists(path) and (
            link or os.path.islink(path) or not os.path.isdir(path) or os.listdir(path)
        ):
            return f"{directory}/{name} is there already"
        holding = table.holding(real)
    except OSError as error:
        return f"{directory} cannot be used: {error.strerror or error}"
    # Without shared propagation, the host and its pods would never see the mount.
    if not link and (holding is None or "shared:" not in holding.propagation):
        return f"{directory} is not mounted with mountPropagation Bidirectional"
    return ""


async def _look_into(disk: Disk, directory: str, workers: Workers) -> Inside:
    try:
        inside = await workers.call(f"disk {disk.name}", LOOKING_SECONDS, _inside, disk, directory)
        if inside.unknown or inside.in_use or inside.users or inside.mounts:
            return inside
        found = await read_signature(disk.node, timeout=LOOKING_SECONDS)
    except (Hung, OSError, ValueError, SignatureUnknown, NotABlockDevice) as error:
        return Inside(unknown=f"it cannot be read: {error}")
    except (CommandMissing, CommandTimedOut) as error:
        return Inside(unknown=f"what it holds is not known: {error}")
    return dataclasses.replace(inside, signature=found.type if found else "")


def disk_number(disk: Disk) -> str:
    """The device number of the disk, or of the disk that a partition is on; "" if it is gone."""
    return read(f"{disk_of(base_of(disk.device))}/dev") or ""


def users_here(disk: Disk) -> list[str]:
    """Who uses it, in words. Loop devices on a partition's whole disk count too: kubelet gives a
    raw volume to pods through a loop device. Raises OSError.
    """
    found = users_of(disk.device)
    if disk.parent:
        found += [f"{disk.parent}: loop device {loop}" for loop in loops_on(disk_number(disk))]
    return found


def _inside(disk: Disk, directory: str) -> Inside:
    """Read the device itself; if possible, nobody else can claim it meanwhile.

    Mounts below `directory` are given with the directory as the configuration spells it.
    """
    real = os.path.realpath(directory)
    mounts = read_mount_table()
    if not mounts.settled:
        return Inside(unknown="the mounts keep changing")
    users = tuple(users_here(disk))
    in_use = ""
    try:
        fd = exclusive_open(disk.node, write=False, device=disk.device)
    except InUse as error:
        in_use = str(error)
        fd = os.open(disk.node, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if device_number(os.fstat(fd).st_rdev) != disk.device:
            return Inside(unknown=f"{disk.node} is another device by now")
        inside = read_inside(fd, disk, idle=not (in_use or users))
    finally:
        os.close(fd)
    if not in_use and is_device_locked(disk.node):
        in_use = "another process is formatting or cleaning it"
    return dataclasses.replace(
        inside,
        users=users,
        in_use=in_use,
        mounts=tuple(
            directory + mount.mount_point.removeprefix(real)
            if mount.mount_point.startswith(f"{real}/")
            else mount.mount_point
            for mount in mounts.of_device(disk.device)
        ),
    )


def read_inside(fd: int, disk: Disk, *, idle: bool) -> Inside:
    """What an open device holds; if it is not `idle`, only its filesystem's mark.

    Raises OSError.
    """
    size = size_bytes(fd)
    if size != disk.size_bytes:
        return Inside(unknown=f"it has {size} bytes, and not {disk.size_bytes} as sysfs says")
    if idle:
        # The kernel may have cached what was read earlier: ask the disk itself.
        flush_buffers(fd)
    mark = read_mark(fd)
    inside = Inside()
    if mark is not None:
        inside = Inside(
            fs_type=mark.fs_type,
            fs_uuid=mark.uuid,
            fs_label=mark.label,
            fs_was_mounted=mark.was_mounted,
        )
    if not idle:
        return inside
    return dataclasses.replace(
        inside, claim=claim.read(fd, size), data_at=claim.first_data(fd, size)
    )
