"""A tenant's data on the demo's volumes, and looking for it afterwards."""

from __future__ import annotations

import os

from localvolume.host.block import operations
from localvolume_lab.demo.machine import MIB, Disk

SECRET = b"the tenant's secret: rosebud\n"
# Somewhere in the middle: not where a signature would be looked for.
_OFFSET = 20 * MIB


class Tenant:
    """Somebody with a claim: writes as a pod would, through the volume's path."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def write(self) -> str:
        """Write; returns the command that would do the same."""
        if self._disk.block:
            return self._write_device()
        return write_file(self._disk.path)

    def _write_device(self) -> str:
        descriptor = os.open(self._disk.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, SECRET, _OFFSET)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        seek = _OFFSET // MIB
        return f'echo "{SECRET.decode().strip()}" | dd of={self._disk.path} bs=1M seek={seek}'


def write_file(directory: str) -> str:
    """Write into a volume's directory; returns the command that would do the same."""
    path = f"{directory}/secret.txt"
    with open(path, "wb") as file:
        file.write(SECRET)
        os.fsync(file.fileno())
    return f'echo "{SECRET.decode().strip()}" > {path}'


def written(directory: str) -> bool:
    """Whether what `write_file` wrote is there, as it was."""
    try:
        with open(f"{directory}/secret.txt", "rb") as file:
            return file.read() == SECRET
    except FileNotFoundError:
        return False


def is_there(path: str) -> bool:
    """Whether there is anything at all at that path."""
    return os.path.lexists(path)


def write_text(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def contents(directory: str) -> list[str]:
    """The names in it, sorted."""
    return sorted(os.listdir(directory))


def find_on_device(path: str) -> list[int]:
    """Every place (bytes from the start) where the tenant's data begins."""
    found: list[int] = []
    # What spans two blocks is found too: each block is looked at with the end of the one before.
    before, start = b"", 0
    for block in _blocks(path):
        text = before + block
        at = text.find(SECRET)
        while at >= 0:
            found.append(start - len(before) + at)
            at = text.find(SECRET, at + 1)
        start += len(block)
        before = block[-len(SECRET) + 1 :]
    return found


def unlike_zero(path: str) -> tuple[int, int | None]:
    """The size of a device, and the first byte of it that is not zero, None where all are."""
    start = 0
    for block in _blocks(path):
        if block.count(0) != len(block):
            rest = block.lstrip(b"\0")
            return start, start + len(block) - len(rest)
        start += len(block)
    return start, None


def _blocks(path: str) -> list[bytes]:
    """The whole of a (small) device, from the device itself and not from our own memory of it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        operations.flush_buffers(descriptor)
        blocks = []
        while block := os.read(descriptor, MIB):
            blocks.append(block)
        return blocks
    finally:
        os.close(descriptor)
