"""Subvolumes of btrfs by ioctl: create, identify, list, delete, commit. No path is ever joined.

Numbers and layouts are those of linux/btrfs.h and linux/btrfs_tree.h. A subvolume is deleted by its
id (Linux 5.7), so that no concurrent rename can ever make the call delete another one. All
functions take a descriptor of any directory in the filesystem, not one opened with O_PATH, and
raise OSError; those that read trees need CAP_SYS_ADMIN.
"""

import array
import fcntl
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from localvolume.host.syscalls import BTRFS_MAGIC, fstatfs, ioc

_MAGIC = 0x94
_IOC_SYNC = ioc(0, _MAGIC, 8, 0)
_IOC_TREE_SEARCH_V2 = ioc(3, _MAGIC, 17, 112)
_IOC_INO_LOOKUP = ioc(3, _MAGIC, 18, 4096)
_IOC_WAIT_SYNC = ioc(1, _MAGIC, 22, 8)
_IOC_SNAP_CREATE_V2 = ioc(1, _MAGIC, 23, 4096)
_IOC_SUBVOL_CREATE_V2 = ioc(1, _MAGIC, 24, 4096)
_IOC_START_SYNC = ioc(2, _MAGIC, 24, 8)
_IOC_SNAP_DESTROY_V2 = ioc(1, _MAGIC, 63, 4096)
_SPEC_BY_ID = 1 << 4
_NAME_MAX = 255

#: The inode number of the root directory of every subvolume.
ROOT_INODE = 256
#: The lowest id of subvolumes that people make (5 is the filesystem's top level).
FIRST_ID = 256
LAST_ID = (1 << 64) - 257

_ROOT_TREE = 1
_ROOT_ITEM, _ROOT_REF = 132, 156
_MOST = (1 << 64) - 1
# transid, objectid, offset, type, length; the item follows.
_HEADER = struct.Struct("=QQQII")
_SEARCH_BYTES = 1 << 18


class Item(NamedTuple):
    """One item of a tree: its key, and its bytes as they are on disk (little-endian)."""

    objectid: int
    type: int
    offset: int
    data: bytes


def is_btrfs(fd: int) -> bool:
    return fstatfs(fd).magic == BTRFS_MAGIC


def subvolume_id(fd: int) -> int | None:
    """Return the id of the subvolume whose root directory ``fd`` is; None if it is not one."""
    if os.fstat(fd).st_ino != ROOT_INODE or not is_btrfs(fd):
        return None
    request = bytearray(4096)
    struct.pack_into("=QQ", request, 0, 0, ROOT_INODE)
    fcntl.ioctl(fd, _IOC_INO_LOOKUP, request)
    found: int = struct.unpack_from("=Q", request)[0]
    return found


def create_subvolume(directory: int, name: str) -> None:
    """Make an empty subvolume ``name`` in ``directory``; it is on disk when this returns.

    Its mode is 0777 less the umask. Raises FileExistsError, OSError.
    """
    fcntl.ioctl(directory, _IOC_SUBVOL_CREATE_V2, _named(name))


def snapshot_subvolume(directory: int, name: str, source: int) -> None:
    """Make a writable subvolume ``name`` in ``directory`` with the content of another one.

    ``source`` is the root directory of that, open for reading. What is on disk is in it, and most
    of what was written before, but not all of a file that is being written to. Subvolumes inside
    the source are not: empty directories stand in their places. Raises FileExistsError, OSError.
    """
    request = _named(name)
    struct.pack_into("=q", request, 0, source)
    fcntl.ioctl(directory, _IOC_SNAP_CREATE_V2, request)


def _named(name: str) -> bytearray:
    """A request that names what is to be made."""
    encoded = os.fsencode(name)
    if name in ("", ".", "..") or b"/" in encoded or len(encoded) > _NAME_MAX:
        raise ValueError(f"not a name: {name!r}")
    request = bytearray(4096)
    request[56 : 56 + len(encoded)] = encoded
    return request


def delete_subvolume(fd: int, identity: int) -> None:
    """Delete the subvolume with that id, wherever it lies and whatever is in it.

    Its name is gone at once; the kernel frees its space afterwards, and lists it without a parent
    until then. Raises OSError: ENOENT if there is none, ENOTEMPTY when others lie inside it,
    EROFS when it lies in a read-only one, EPERM when it is the default or is being sent.
    """
    if not FIRST_ID <= identity <= LAST_ID:
        raise ValueError(f"no subvolume has the id {identity}")
    request = bytearray(4096)
    struct.pack_into("=Q", request, 16, _SPEC_BY_ID)
    struct.pack_into("=Q", request, 56, identity)
    fcntl.ioctl(fd, _IOC_SNAP_DESTROY_V2, request)


class Subvolumes(NamedTuple):
    """All subvolumes of a filesystem: the ids, and for those with a name, the one they lie in.

    An id without a parent is the top level, or the kernel is still freeing it.
    """

    ids: set[int]
    parents: dict[int, int]

    def inside(self, identity: int) -> list[int]:
        """Return the ids of all that lie in that one, at any depth; inner before outer."""
        return self.inside_each([identity])[identity]

    def inside_each(self, identities: Iterable[int]) -> dict[int, list[int]]:
        """The same for several."""
        children: dict[int, list[int]] = {}
        for child, parent in self.parents.items():
            children.setdefault(parent, []).append(child)
        return {identity: _below(children, identity) for identity in identities}


def _below(children: Mapping[int, list[int]], identity: int) -> list[int]:
    found, waiting = [], [identity]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    # Each was found after the one it lies in.
    found.reverse()
    return found


class TooMany(Exception):
    """There are more subvolumes than were to be read."""


def read_subvolumes(fd: int, most: int | None = None) -> Subvolumes:
    """List all subvolumes of the filesystem; raises TooMany if more than `most` have a name."""
    found = Subvolumes(set(), {})
    for item in search(fd, _ROOT_TREE, (5, _ROOT_ITEM, 0), (LAST_ID, _ROOT_REF, _MOST)):
        if most is not None and len(found.parents) > most:
            raise TooMany
        if item.type == _ROOT_ITEM:
            found.ids.add(item.objectid)
        elif item.type == _ROOT_REF:
            found.parents[item.offset] = item.objectid
    return found


def commit(fd: int) -> None:
    """Wait until all changes to the filesystem's trees are on disk.

    Unlike syncfs, this does not write out everybody's file contents first.
    """
    request = bytearray(8)
    fcntl.ioctl(fd, _IOC_START_SYNC, request)
    fcntl.ioctl(fd, _IOC_WAIT_SYNC, bytes(request))


def sync_and_clean(fd: int) -> None:
    """Write out everything, and wake the kernel's thread that frees deleted subvolumes."""
    fcntl.ioctl(fd, _IOC_SYNC)


def search(
    fd: int, tree: int, first: tuple[int, int, int], last: tuple[int, int, int]
) -> Iterator[Item]:
    """Yield the items of a tree whose keys (objectid, type, offset) lie in a range, in order.

    Keys are compared as a whole: where objectids differ, the range includes other types, too.
    """
    buffer = array.array("B", bytes(112 + _SEARCH_BYTES))
    while first <= last:
        struct.pack_into(
            "=7Q4I4Q",
            buffer,
            0,
            *(tree, first[0], last[0], first[2], last[2], 0, _MOST),
            *(first[1], last[1], 0xFFFFFFFF, 0),
            *(0, 0, 0, 0),
        )
        struct.pack_into("=Q", buffer, 104, _SEARCH_BYTES)
        fcntl.ioctl(fd, _IOC_TREE_SEARCH_V2, buffer)
        count = struct.unpack_from("=I", buffer, 64)[0]
        if not count:
            return
        position = 112
        for _ in range(count):
            _, objectid, offset, kind, length = _HEADER.unpack_from(buffer, position)
            position += _HEADER.size
            yield Item(objectid, kind, offset, buffer[position : position + length].tobytes())
            position += length
        first = _after(objectid, kind, offset)


def _after(objectid: int, kind: int, offset: int) -> tuple[int, int, int]:
    if offset < _MOST:
        return objectid, kind, offset + 1
    if kind < 0xFF:
        return objectid, kind + 1, 0
    return objectid + 1, 0, 0
