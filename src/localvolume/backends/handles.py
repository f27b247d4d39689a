"""The handles of volumes and snapshots: what CSI knows them by, and the names of their records."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from localvolume.backends.pool.layout import fault_of_volume_name

_LONGEST: Final = 80
_MADE: Final = re.compile(r"csi-[0-9a-f]{40}")
_LVM_RESERVES: Final = re.compile("snapshot|pvmove")


def handle_of(name: str) -> str:
    """The handle of the volume that is asked for by that name, and the name of its record.

    A name that every backend can take is the handle itself; any other is replaced by its digest.
    LVM doubles each "-", and has its group's name before it. Names that look like a digest are
    replaced too, so that two names never have the same handle.
    """
    fits = (
        fault_of_volume_name(name) is None
        and len(name) + name.count("-") <= _LONGEST
        and not _LVM_RESERVES.match(name)
        and not _MADE.fullmatch(name)
    )
    return name if fits else _digest(name)


def member_handle(group: str, source: str) -> str:
    """The handle of the snapshot of that volume in a group: no name that is asked for has it."""
    return _digest(f"{group}/{source}")


def _digest(text: str) -> str:
    return f"csi-{hashlib.sha256(text.encode()).hexdigest()[:40]}"
