"""Names and places in a pool: which may be used, which overlap, and names in the trash."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from typing import Final

from localvolume.backends.model import OURS, Impossible, Record
from localvolume.config.syntax.names import fault_of_object_name

RECORDS: Final = "records"
MAKING: Final = "making"
IMAGES: Final = "images"
TRASH: Final = "trash"
MARKER: Final = "pool.json"
RESTAMPING: Final = "restamping"
"""While it exists, the records are being rewritten, and no agent works in the pool."""

LOST_AND_FOUND: Final = "lost+found"

# A file name has at most 255 bytes, and the longest suffix that we append is ".img.12345678".
_LONGEST_NAME: Final = 240
_LONGEST_COMPONENT: Final = 255
# Below the 4,096 of a path, with room for the paths of the pool and of kubelet's mounts.
_LONGEST_DIRECTORY: Final = 2048


def fault_of_volume_name(name: str) -> str | None:
    """Why no volume here can have that name; None if one can."""
    if (fault := fault_of_object_name(name)) is not None:
        return fault
    if len(name) > _LONGEST_NAME:
        return f"has {len(name)} characters; {_LONGEST_NAME} are possible for a volume on disk"
    return None


def fault_of_directory(directory: str) -> str | None:
    """Why a volume cannot lie at that place below its pool; None if it can."""
    parts = directory.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "is not a relative path made of names"
    if not directory.isprintable() or any("\ud800" <= one <= "\udfff" for one in directory):
        return "has characters that cannot be printed"
    if any(len(os.fsencode(part)) > _LONGEST_COMPONENT for part in parts):
        return f"has a name of more than {_LONGEST_COMPONENT} bytes"
    if len(os.fsencode(directory)) > _LONGEST_DIRECTORY:
        return f"is longer than {_LONGEST_DIRECTORY} bytes"
    if parts[0].startswith("."):
        return f"begins with a dot: such names are hidden, and {OURS} is the pool's own"
    if parts[0] == LOST_AND_FOUND:
        return "is the filesystem's own"
    return None


def check_directory(directory: str) -> None:
    """Raise Impossible unless a volume can lie at that place below its pool."""
    if (fault := fault_of_directory(directory)) is not None:
        raise Impossible(f"the directory {directory!r} {fault}")


def parents_of(directory: str) -> list[str]:
    """The directories on the way to a place, outermost first: `a`, `a/b` for `a/b/c`."""
    parts = directory.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


def parents_of_all(records: Iterable[Record]) -> set[str]:
    """The directories on the way to the places of volumes."""
    return {parent for one in records if one.directory for parent in parents_of(one.directory)}


def overlapping(directory: str, records: Iterable[Record]) -> Record | None:
    """A volume that lies at, above or below that place; removed ones lie in the trash."""
    for other in records:
        if not other.directory or other.state == "removed":
            continue
        if f"{directory}/".startswith(f"{other.directory}/"):
            return other
        if f"{other.directory}/".startswith(f"{directory}/"):
            return other
    return None


def trash_name(record: Record) -> str:
    """A volume's name in the trash: the same however often its removal is begun again.

    A later volume of the same name has another inode, and so another name there.
    """
    told = f"{record.name}\0{record.inode}\0{record.directory}"
    return f"{record.name}.{hashlib.sha256(told.encode()).hexdigest()[:8]}"
