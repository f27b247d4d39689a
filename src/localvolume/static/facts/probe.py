"""One entry of a discovery directory, read from the host: what it is and what lies in it.

Reads only; called in worker threads, since a dead disk may never answer.
"""

from __future__ import annotations

import dataclasses
import os

from localvolume.host.block.blank import first_data
from localvolume.host.block.blockdev import (
    BlockDevice,
    InUse,
    NotABlockDevice,
    exclusive_open,
    probe_block_device,
)
from localvolume.host.filesystem.errors import device_failure, kernel_name, mounted_failure
from localvolume.host.filesystem.filesystems import (
    Changed,
    identity_of_mount,
    looks_empty,
    probe_filesystem,
)
from localvolume.host.locks import is_device_locked, is_directory_locked
from localvolume.host.mount.mounts import Mount
from localvolume.host.tree.entries import EntryKind, classify
from localvolume.static.model import Content, Entry, Problem

EMPTY = Content("empty")
BEING_CLEANED = Content("busy", "another process is cleaning it")


def probe(entry: Entry, mount: Mount | None, *, offered: bool) -> Entry:
    """The entry with everything that can be read of it; `mount` is what is mounted on its path.

    What lies in it is looked at only if no PersistentVolume offers it: a tenant's data is none of
    our business. Never raises OSError: what cannot be read is a `Problem`.
    """
    try:
        kind = classify(entry.path)
        if kind.kind is EntryKind.DIRECTORY:
            return _directory(entry, mount, offered)
        if kind.kind is EntryKind.BLOCK:
            return _block(entry, offered)
        if kind.kind is EntryKind.DANGLING:
            return _problem(entry, "gone", "it is a link that leads nowhere")
        return _problem(entry, "wrong-kind", f"it is a {kind.kind.value}")
    except FileNotFoundError:
        return _problem(entry, "gone", f"{entry.path} does not exist")
    except (Changed, NotABlockDevice) as error:
        return _problem(entry, "unknown", f"it changed while it was read: {error}")
    except OSError as error:
        return _problem(entry, "unknown", f"it cannot be read: {error.strerror or error}")


def _problem(entry: Entry, code: str, text: str) -> Entry:
    return dataclasses.replace(entry, problem=Problem(code, text))  # type: ignore[arg-type]


def _directory(entry: Entry, mount: Mount | None, offered: bool) -> Entry:
    if mount is None:
        return _problem(entry, "gone", f"{entry.path} is not a valid mount point")
    # The table may be older than the removal, which the kernel does not report.
    if mount.root.endswith("//deleted") or os.stat(entry.path).st_nlink == 0:
        return _problem(entry, "unknown", "the directory mounted here has been removed")
    filesystem = probe_filesystem(entry.path, mount)
    content, unwell = None, ""
    if not offered:
        unwell = str(mounted_failure(mount))
        emptiness = looks_empty(entry.path)
        content = EMPTY if emptiness.empty else Content("holds", emptiness.found or "data")
        if is_directory_locked(entry.path):
            content = BEING_CLEANED
    return dataclasses.replace(
        entry,
        kind="filesystem",
        size_bytes=filesystem.total_bytes,
        identity=identity_of_mount(mount, filesystem),
        device=mount.device,
        root=mount.root,
        mount_id=mount.mount_id,
        content=content,
        unwell=unwell,
    )


def _block(entry: Entry, offered: bool) -> Entry:
    device = probe_block_device(entry.path)
    if device.size_bytes == 0:
        return _problem(entry, "gone", "the device has no size: nothing is attached to it")
    return dataclasses.replace(
        entry,
        kind="block",
        size_bytes=device.size_bytes,
        identity=device.identity,
        device=device.device,
        content=None if offered else _use_of(entry.path, device),
        unwell="" if offered else str(device_failure(kernel_name(device.device))),
    )


def _use_of(path: str, device: BlockDevice) -> Content:
    """Whether something uses the device, or data is found on it.

    Its signature is read separately, by a command.
    """
    users = [*(f"partition {name}" for name in device.partitions), *device.holders]
    if users:
        return Content("busy", f"the device is in use: {', '.join(users)}")
    try:
        os.close(exclusive_open(path, write=False))
    except InUse as error:
        return Content("busy", f"the device is in use: {error}")
    if is_device_locked(path):
        return BEING_CLEANED
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        at = first_data(fd, device.size_bytes)
    finally:
        os.close(fd)
    if at is None:
        return EMPTY
    return Content("traces", f"data that nothing recognises (byte {at} is not zero)")
