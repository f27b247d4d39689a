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
from collections import deque
from collections.abc import Iterator
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
_ROOT_ITEM, _ROOT_BACKREF, _ROOT_REF = 132, 144, 156
_MOST = (1 << 64) - 1
# transid, objectid, offset, type, length; the item follows.
_HEADER = struct.Struct("=QQQII")
_SEARCH_BYTES = 1 << 18
#: Room for the answer where few items are expected, each much smaller than that.
FEW_BYTES = 1 << 12


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

    Its name is gone at once; the kernel frees its space afterwards, and lists it without a name
    until then. Raises OSError: ENOENT if there is none, ENOTEMPTY when others lie inside it,
    EROFS when it lies in a read-only one, EPERM when it is the default or is being sent.
    """
    if not FIRST_ID <= identity <= LAST_ID:
        raise ValueError(f"no subvolume has the id {identity}")
    request = bytearray(4096)
    struct.pack_into("=Q", request, 16, _SPEC_BY_ID)
    struct.pack_into("=Q", request, 56, identity)
    fcntl.ioctl(fd, _IOC_SNAP_DESTROY_V2, request)


def read_ids(fd: int) -> set[int]:
    """The ids of all subvolumes of the filesystem, also of those that the kernel still frees."""
    items = search(fd, _ROOT_TREE, (5, _ROOT_ITEM, 0), (LAST_ID, _ROOT_ITEM, _MOST))
    return {item.objectid for item in items if item.type == _ROOT_ITEM}


def is_listed(fd: int, identity: int) -> bool:
    """Whether there is a subvolume with that id, or the kernel still frees it."""
    return _has_any(fd, identity, _ROOT_ITEM)


def is_named(fd: int, identity: int) -> bool:
    """Whether there is a subvolume with that id which nobody has deleted."""
    return _has_any(fd, identity, _ROOT_BACKREF)


def _has_any(fd: int, identity: int, kind: int) -> bool:
    return any(True for _ in _items(fd, identity, kind))


def read_inside(fd: int, identity: int) -> Iterator[int]:
    """Yield the ids of all subvolumes that lie in that one, at any depth; outer before inner.

    Each is looked up by its name, and only when the caller asks for it. Deleted ones have no name,
    so they cost nothing here: a tenant can leave any number of them for the kernel to free.
    """
    seen, waiting = {identity}, deque([identity])
    while waiting:
        for item in _items(fd, waiting.popleft(), _ROOT_REF):
            # A tenant may move them while they are read, and so have one found again for ever.
            if item.offset not in seen:
                seen.add(item.offset)
                waiting.append(item.offset)
                yield item.offset


def _items(fd: int, identity: int, kind: int) -> Iterator[Item]:
    first, last = (identity, kind, 0), (identity, kind, _MOST)
    return search(fd, _ROOT_TREE, first, last, FEW_BYTES)


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
    fd: int,
    tree: int,
    first: tuple[int, int, int],
    last: tuple[int, int, int],
    most_bytes: int = _SEARCH_BYTES,
) -> Iterator[Item]:
    """Yield the items of a tree whose keys (objectid, type, offset) lie in a range, in order.

    Keys are compared as a whole: where objectids differ, the range includes other types, too. The
    items are read in pieces of at most `most_bytes`.
    """
    buffer = array.array("B", bytes(112 + most_bytes))
    while first <= last:
        struct.pack_into(
            "=7Q4I4Q",
            buffer,
            0,
            *(tree, first[0], last[0], first[2], last[2], 0, _MOST),
            *(first[1], last[1], 0xFFFFFFFF, 0),
            *(0, 0, 0, 0),
        )
        struct.pack_into("=Q", buffer, 104, most_bytes)
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
