"""The UUID of one partition, read from its disk's partition table where the kernel does not tell.

GPT: UEFI specification 2.10, section 5.3. MBR: the disk signature at byte 440 and the partition's
number, written as the kernel, libblkid and udev write it (``6b074af7-01``).
"""

import os
import struct

_GPT_HEADER = 92
_GPT_MOST_ENTRIES = 1024  # the specification asks for 128; more is not a table to believe


def partition_uuid(disk_fd: int, sector_bytes: int, number: int, start_bytes: int) -> str | None:
    """Return the UUID of partition ``number`` (from 1), or None when the table does not have it.

    ``start_bytes`` is where the kernel says the partition begins: a table that says otherwise was
    rewritten since and is not what the kernel's partition came from. Raises OSError.
    """
    header = os.pread(disk_fd, _GPT_HEADER, sector_bytes)
    if header[:8] == b"EFI PART":
        return _gpt(disk_fd, header, sector_bytes, number, start_bytes)
    return _mbr(os.pread(disk_fd, 512, 0), sector_bytes, number, start_bytes)


def _gpt(
    disk_fd: int, header: bytes, sector_bytes: int, number: int, start_bytes: int
) -> str | None:
    if len(header) < _GPT_HEADER:
        return None
    first_entry, entries, entry_bytes = struct.unpack_from("<QII", header, 72)
    if not 1 <= number <= min(entries, _GPT_MOST_ENTRIES) or not 128 <= entry_bytes <= 4096:
        return None
    at = first_entry * sector_bytes + (number - 1) * entry_bytes
    entry = os.pread(disk_fd, 128, at)
    if len(entry) < 128 or struct.unpack_from("<Q", entry, 32)[0] * sector_bytes != start_bytes:
        return None
    # The first three fields of a GUID are little-endian on disk.
    first, second, third = struct.unpack_from("<IHH", entry, 16)
    rest = entry[24:32].hex()
    return f"{first:08x}-{second:04x}-{third:04x}-{rest[:4]}-{rest[4:]}"


def _mbr(sector: bytes, sector_bytes: int, number: int, start_bytes: int) -> str | None:
    if len(sector) < 512 or sector[510:512] != b"\x55\xaa":
        return None
    signature = struct.unpack_from("<I", sector, 440)[0]
    if signature == 0:
        return None
    # Logical partitions (5 and up) are listed elsewhere; their number and the signature do.
    if number <= 4:
        start = struct.unpack_from("<I", sector, 446 + (number - 1) * 16 + 8)[0]
        if start * sector_bytes != start_bytes:
            return None
    return f"{signature:08x}-{number:02x}"
