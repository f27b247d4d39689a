"""What is written on a blank disk before mkfs and erased after it: a formatting that was begun.

A killed mkfs leaves a disk that is not blank any more, and may have no signature at all. It is
told from somebody's data by the claim, written several times where mkfs writes least: never does it
overwrite all of them. A filesystem of ours on a disk without any claim is a finished one.
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

COPIES: Final = 8
BLOCK: Final = 4096
_MAGIC: Final = b"localvolume: formatting begun\n"
_HASH: Final = hashlib.sha256().digest_size
# Made here, not at the first use: threads that come to that together have ended the process.
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
    """The claim that a block holds; None where it holds none, or a damaged one."""
    if not block.startswith(_MAGIC):
        return None
    begin = len(_MAGIC) + 2
    end = begin + int.from_bytes(block[len(_MAGIC) : begin], "little")
    if hashlib.sha256(block[:end]).digest() != block[end : end + _HASH]:
        return None
    try:
        # A hash is no proof of who wrote it: a raw device's tenant may write whatever they like.
        return _decode(block[begin:end])
    except (msgspec.MsgspecError, RecursionError):
        return None


def places(size: int) -> Iterator[int]:
    """Where the copies lie on a device of so many bytes."""
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
        put(fd, block, offset)
    os.fsync(fd)


def erase(fd: int, size: int) -> None:
    """Blank the copies that are still there: what mkfs wrote since is left. Raises OSError."""
    for offset in places(size):
        if decode(os.pread(fd, BLOCK, offset)):
            put(fd, bytes(BLOCK), offset)
    os.fsync(fd)


def blank_edges(fd: int, size: int) -> None:
    """Take away what an unfinished mkfs left at both ends. Raises OSError."""
    for start in (0, size - blank.EDGE):
        put(fd, bytes(blank.EDGE), start)
    os.fsync(fd)


def first_data(fd: int, size: int) -> int | None:
    """As `blank.first_data`; the places of the copies are read too. Raises OSError."""
    return blank.first_data(fd, size, [(offset, BLOCK) for offset in places(size)])


def put(fd: int, data: bytes, at: int) -> None:
    """Write all of it, or raise OSError."""
    while data:
        written = os.pwrite(fd, data, at)
        data, at = data[written:], at + written
