"""Whether a volume of one volumeMode can have the content of one of the other. Pure."""

from __future__ import annotations

from typing import Literal

from localvolume.backends.model import Record


def no_mode_change(origin: Record, mode: Literal["Filesystem", "Block"], fs_type: str) -> str:
    """Why no volume of that mode, and of that filesystem ("": the backend's default), can have the
    content of `origin`; "" if one can, or nobody knows before it is looked at."""
    if origin.volume_mode == mode:
        return ""
    is_of = f"{origin.name} is of volumeMode {origin.volume_mode}"
    if mode == "Filesystem":
        # A tenant has written each of its bytes, and the node's kernel mounts them.
        why = f"{is_of}: {fs_type} on one cannot be checked before it is mounted, as ext4 can"
        return "" if fs_type in ("", "ext4") else why
    if origin.backend not in ("image", "lvm"):
        return f"{is_of}, and the backend {origin.backend} keeps files: there are no blocks to have"
    if origin.backend == "lvm" and not origin.sparse:
        # Only Block volumes are zeroed when they are made.
        return (
            f"{is_of}, on a thick logical volume: where its filesystem has written nothing, there"
            " may be what other tenants had, which a Block volume would show"
        )
    return ""
