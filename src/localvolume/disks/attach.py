"""A finished filesystem is mounted in its class's directory, a raw disk linked to there.

Done in worker threads: a dead disk may never answer. What is mounted is looked at before anybody
sees it, and what is there already is never covered.
"""

from __future__ import annotations

import contextlib
import errno
import os

from localvolume.disks.facts import place_problem
from localvolume.disks.model import Disk
from localvolume.host.block.blockdev import InUse, NotABlockDevice
from localvolume.host.block.disklist import BY_ID
from localvolume.host.block.sysfs import block_number
from localvolume.host.filesystem.mark import read_mark
from localvolume.host.mount.detached import open_mount, put_mount
from localvolume.host.mount.mounts import read_mount_table
from localvolume.host.tree.beneath import open_beneath
from localvolume.host.tree.entries import device_number

_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def mount(disk: Disk, fs_type: str, fs_uuid: str, directory: str, name: str) -> str:
    """Mount the filesystem of that UUID at `directory`/`name`; returns that path.

    Raises OSError, NotABlockDevice (also where the disk is another by now), InUse.
    """
    path = f"{directory}/{name}"
    _must_be_free(directory, name, link=False)
    # Open until the end: no other disk can get the device's number meanwhile.
    pin = os.open(disk.node, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if device_number(os.fstat(pin).st_rdev) != disk.device:
            raise NotABlockDevice(f"{disk.node} is another device by now")
        mark = read_mark(pin)
        if mark is None or (mark.fs_type, mark.uuid) != (fs_type, fs_uuid):
            raise NotABlockDevice(f"{disk.node} does not hold the filesystem {fs_uuid} any more")
        try:
            mounted = open_mount(disk.node, fs_type)
        except OSError as error:
            if error.errno == errno.EBUSY:
                raise InUse(disk.node, ()) from error
            raise
        try:
            if device_number(_device_of(mounted)) != disk.device:
                raise NotABlockDevice(f"{disk.node} is another device by now")
            _put(mounted, directory, name, path)
        finally:
            os.close(mounted)
    finally:
        os.close(pin)
    return path


def _device_of(mount_fd: int) -> int:
    root = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=mount_fd)
    try:
        return os.fstat(root).st_dev
    finally:
        os.close(root)


def _put(mount_fd: int, directory: str, name: str, path: str) -> None:
    root = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=root)
        # Neither a link nor what is mounted there already is followed.
        place = open_beneath(root, name, _DIRECTORY)
        try:
            put_mount(mount_fd, place, path)
        finally:
            os.close(place)
    finally:
        os.close(root)


def link(disk: Disk, directory: str, name: str, target: str, *, by_id: str = BY_ID) -> str:
    """Make `directory`/`name` a link to `target` in /dev/disk/by-id; returns its path.

    Raises OSError, NotABlockDevice where the target does not lead to the disk.
    """
    if block_number(f"{by_id}/{target}") != disk.device:
        raise NotABlockDevice(f"{by_id}/{target} does not lead to {disk.node} any more")
    _must_be_free(directory, name, link=True)
    root = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.symlink(f"{by_id}/{target}", name, dir_fd=root)
    finally:
        os.close(root)
    return f"{directory}/{name}"


def _must_be_free(directory: str, name: str, *, link: bool) -> None:
    if problem := place_problem(directory, name, read_mount_table(), link=link):
        raise OSError(errno.EEXIST, problem, f"{directory}/{name}")
