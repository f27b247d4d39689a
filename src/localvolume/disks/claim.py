"""The claim: written on a blank disk before mkfs, erased after it, it says that formatting began.

A killed mkfs leaves a disk that is not blank any more, and may have no signature at all. The claim
tells that from somebody's data. Its copies lie where mkfs writes least, so that mkfs never
overwrites all of them. A filesystem of ours on a disk without a claim is finished.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from typing import Final

import msgspec

from localvolume.disks.model import Claim
from localvolume.host.block import blank
from localvolume.host.syscalls import write_at

COPIES: Final = 8
BLOCK: Final = 4096
_MAGIC: Final = b"localvolume: formatting begun\n"
_HASH: Final = hashlib.sha256().digest_size
# Made here, not at first use: threads that did so at the same time have crashed the process.
_decode: Final = msgspec.json.Decoder(Claim).decode


def encode(claim: Claim) -> bytes:
    body = json.dumps(
        {"digest": claim.digest, "uuid": claim.uuid, "identity": dict(claim.identity)},
        sort_keys=True,
    ).encode()
    packed = _MAGIC + len(body).to_bytes(2, "little") + body
    packed += hashlib.sha256(packed).digest()
    if len(packed) > BLOCK:
        raise ValueError("the disk's identity is too long")
    return packed.ljust(BLOCK, b"\0")


def decode(block: bytes) -> Claim | None:
    """The claim that a block holds; None if it holds none, or a damaged one."""
    if not block.startswith(_MAGIC):
        return None
    begin = len(_MAGIC) + 2
    end = begin + int.from_bytes(block[len(_MAGIC) : begin], "little")
    if hashlib.sha256(block[:end]).digest() != block[end : end + _HASH]:
        return None
    try:
        # The hash does not prove who wrote it: the tenant of a raw device may write anything.
        return _decode(block[begin:end])
    except (msgspec.MsgspecError, RecursionError):
        return None


def places(size: int) -> Iterator[int]:
    """The offsets of the copies on a device of `size` bytes."""
    for number in range(COPIES):
        yield size * (2 * number + 1) // (2 * COPIES) // BLOCK * BLOCK


def read(fd: int, size: int) -> Claim | None:
    """The claim on an open device. Raises OSError."""
    for offset in places(size):
        if claim := decode(os.pread(fd, BLOCK, offset)):
            return claim
    return None


def write(fd: int, size: int, claim: Claim) -> None:
    """Write all copies, through to the device. Raises OSError."""
    block = encode(claim)
    for offset in places(size):
        write_at(fd, block, offset)
    os.fsync(fd)


def erase(fd: int, size: int) -> None:
    """Blank the copies that are left, but not what mkfs wrote over others. Raises OSError."""
    for offset in places(size):
        if decode(os.pread(fd, BLOCK, offset)):
            write_at(fd, bytes(BLOCK), offset)
    os.fsync(fd)


def blank_edges(fd: int, size: int) -> None:
    """Erase what an unfinished mkfs left at both ends. Raises OSError."""
    for start in (0, size - blank.EDGE):
        write_at(fd, bytes(blank.EDGE), start)
    os.fsync(fd)


def first_data(fd: int, size: int) -> int | None:
    """Like `blank.first_data`, but reads the places of the copies too. Raises OSError."""
    return blank.first_data(fd, size, [(offset, BLOCK) for offset in places(size)])
