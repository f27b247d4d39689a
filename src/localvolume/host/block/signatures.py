"""What a block device holds by its own bytes: a filesystem, swap, LVM, a partition table, nothing.

libblkid knows them all. This asks its command ``wipefs``, which lists them unless told to wipe.
``blkid --probe`` would be the obvious one, but it exits with 2, "nothing found", also when the
device cannot be opened or read, and a dying disk must not pass for an empty one. libblkid itself
takes an unreadable block for one without signature, so the ranges where signatures lie are read
here first.
"""

import os
import stat
from typing import Final, NamedTuple

import msgspec

from localvolume.host.block.sysfs import base_of, read
from localvolume.host.process.commands import run
from localvolume.host.tree.entries import device_number

#: Bytes at both ends of a device that must be readable before "nothing found" is believed. All of
#: libblkid's signatures lie within (btrfs at 64 KiB, ZFS labels 512 KiB, RAID up to 128 KiB, GPT).
EDGE_BYTES = 2 << 20

# A partition table's parts, and what to call the whole.
_PARTS = {"PMBR": "gpt"}


class NotABlockDevice(Exception):
    """The path leads to something else: the entry is wrong, or was replaced."""


class SignatureUnknown(Exception):
    """The device could not be read, or the answer not understood: it must not pass for empty."""


class Signature(NamedTuple):
    """What a device's own bytes say it holds."""

    #: As libblkid names it (``ext4``, ``LVM2_member``, ``gpt``); ``ambivalent`` when they disagree.
    type: str
    label: str | None
    uuid: str | None
    #: Every kind found, in the order of their offsets on the device.
    found: tuple[str, ...] = ()


class _Found(msgspec.Struct, gc=False):
    type: str
    uuid: str | None = None
    label: str | None = None


class _Answer(msgspec.Struct, gc=False):
    signatures: list[_Found] = []


# Made here, not at the first use: threads that did so at the same time have crashed the process.
_decode: Final = msgspec.json.Decoder(_Answer).decode


async def read_signature(path: str, *, timeout: float = 30.0) -> Signature | None:
    """Say what the device at ``path`` holds; None when it is readable and holds no signature.

    Opens it read-only. Raises ``NotABlockDevice``, ``SignatureUnknown``, OSError and, after
    ``timeout`` seconds for each of its three steps, ``CommandTimedOut``.
    """
    found = os.stat(path)
    if not stat.S_ISBLK(found.st_mode):
        raise NotABlockDevice(f"{path} is not a block device")
    sectors = read(f"{base_of(device_number(found.st_rdev))}/size")
    if sectors is None:
        raise SignatureUnknown(f"{path}: the kernel has no such block device")
    size = int(sectors) * 512
    for start in (0, max(0, size - EDGE_BYTES)):
        await _must_read(path, start, min(EDGE_BYTES, size), timeout)
    done = await run(["wipefs", "--json", path], timeout=timeout)
    if done.returncode != 0 or done.truncated:
        raise SignatureUnknown(f"{path}: wipefs: {done.stderr.strip() or done.returncode}")
    return parse(path, done.stdout)


def parse(path: str, text: str) -> Signature | None:
    """Read the answer of ``wipefs --json``; older releases print nothing at all for "none"."""
    if not text.strip():
        return None
    try:
        signatures = _decode(text).signatures
    except msgspec.MsgspecError as error:
        raise SignatureUnknown(f"{path}: wipefs answers what cannot be read: {error}") from error
    if not signatures:
        return None
    kinds = tuple(dict.fromkeys(_PARTS.get(one.type, one.type) for one in signatures))
    if len(kinds) > 1:
        return Signature("ambivalent", None, None, kinds)
    # Copies (the second GPT) may leave out what the first says.
    label = next((one.label for one in signatures if one.label), None)
    uuid = next((one.uuid for one in signatures if one.uuid), None)
    return Signature(kinds[0], label, uuid, kinds)


async def _must_read(path: str, start: int, length: int, timeout: float) -> None:
    """Read a range with a command, as reading a dead disk never returns; raises if it fails."""
    done = await run(
        [
            "dd",
            f"if={path}",
            "of=/dev/null",
            "bs=65536",
            "iflag=skip_bytes,count_bytes",
            f"skip={start}",
            f"count={length}",
            "status=none",
        ],
        timeout=timeout,
        env={"LC_ALL": "C"},
    )
    if done.returncode != 0:
        raise SignatureUnknown(f"{path} cannot be read: {done.stderr.strip()}")
