"""Whether a volume of one volumeMode can have the content of one of the other. Pure."""

from __future__ import annotations

from typing import Literal

from localvolume.backends.model import Record


def no_mode_change(origin: Record, mode: Literal["Filesystem", "Block"]) -> str:
    """Why no volume of that mode can have the content of `origin`, "" if one can."""
    if origin.volume_mode == mode:
        return ""
    is_of = f"{origin.name} is of volumeMode {origin.volume_mode}"
    if mode == "Filesystem":
        # A tenant has written each of its bytes, and the node's kernel would mount them.
        return f"{is_of}: what is on a Block volume is never mounted as a filesystem"
    if origin.backend not in ("image", "lvm"):
        return f"{is_of}, and the backend {origin.backend} keeps files: it has no blocks to give"
    if origin.backend == "lvm" and not origin.sparse:
        # Only Block volumes are zeroed when they are made.
        return (
            f"{is_of}, on a thick logical volume: where its filesystem has written nothing, there"
            " may be what other tenants had, which a Block volume would show"
        )
    return ""
