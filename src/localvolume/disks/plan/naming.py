"""Names of a disk that outlive a reboot: its identity, its volume's name, its filesystem's UUID.

All of them are computed. A filesystem's UUID alone tells that it is ours, belongs to an approved
plan and was made for this very disk, so nothing needs to be remembered.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Mapping
from typing import Any, Final

from localvolume.config.disks import DiskFilter
from localvolume.disks.model import Disk

LABEL: Final = "localvolume"
"""The label of the filesystems we make; xfs has room for 12 characters."""

_NAMESPACE: Final = uuid.UUID("6d1c4b7e-0a52-5f0e-9d0c-4b3c1e0f7a11")
_LONGEST: Final = 200
# Links that say what the disk is come before those that say how it is attached.
_LINKS: Final = ("wwn-", "nvme-eui.", "nvme-", "scsi-", "ata-", "virtio-")


def stable(identity: Mapping[str, str]) -> dict[str, str]:
    """The part of a disk's identity by which it is known; empty if there is none to rely on.

    This is the least that tells it from others: what else can be seen may depend on udev.
    """
    whole: dict[str, str] = {}
    for kind in ("wwn", "serial", "loopFile"):
        value = identity.get(kind, "")
        if tells(value):
            whole = {kind: value}
            break
    if not whole:
        return {}
    if kind == "serial" and "model" in identity:
        whole["model"] = identity["model"]
    if kind == "loopFile":
        whole |= {key: identity[key] for key in ("loopInode", "loopOffset") if key in identity}
    if "partUuid" in identity:
        whole["partUuid"] = identity["partUuid"]
    return whole


def tells(value: str) -> bool:
    """Whether the value is more than the zeros that some disks give as their name."""
    return bool(re.sub(r"\A(naa|eui|nvme|uuid|t10)\.|[0\W_]", "", value))


def entry_name(disk: Disk) -> str:
    """The name of the disk's entry in the discovery directory, always the same; "" for a disk that
    has no identity to rely on."""
    identity = stable(disk.identity)
    words = [f"{kind}-{identity[kind]}" for kind in ("wwn", "serial") if kind in identity]
    if "loopFile" in identity:
        words.append(f"loop-{identity['loopFile']}")
    if "partUuid" in identity:
        words.append(f"part-{identity['partUuid']}")
    plain = "-".join(words)
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", plain)[:_LONGEST]
    # A name that was changed to fit may have become the same as another.
    if safe == plain and len(identity) == len(words):
        return safe
    return f"{safe}-{hashlib.sha256(written(identity).encode()).hexdigest()[:8]}"


def link_entry_name(disk: Disk, digest: str) -> str:
    """The same for a link, which has no UUID: its name says under which plan it was made."""
    return f"{entry_name(disk)}-{digest.removeprefix('sha256:')[:8]}"


def best_link(disk: Disk) -> str:
    """The link in /dev/disk/by-id to point to; "" if there is none."""
    ranked = [
        (rank, name)
        for name in disk.links
        for rank, prefix in enumerate((*_LINKS, ""))
        if name.startswith(prefix)
    ]
    return min(ranked)[1] if ranked else ""


def uuid_of(digest: str, disk: Disk, wanted: DiskFilter) -> str:
    """The UUID of the filesystem made on that disk under the plan of that digest."""
    words = (digest, written(stable(disk.identity)), wanted.class_name)
    return str(uuid.uuid5(_NAMESPACE, "\n".join(words)))


def line_of(disk: Disk, wanted: DiskFilter) -> str:
    """What is done to one disk, as one line of the text that the digest is computed from."""
    return written(
        {
            "disk": stable(disk.identity),
            "bytes": disk.size_bytes,
            "filter": wanted.name,
            "match": wanted.match.given(),
            "class": wanted.class_name,
            "path": f"{wanted.host_dir}/{entry_name(disk)}",
            "do": "link" if wanted.block else "format",
            "link": best_link(disk) if wanted.block else "",
            "fsType": wanted.fs_type,
            "mkfsOptions": list(wanted.mkfs_options),
        }
    )


def text_of(node_name: str, lines: list[str]) -> str:
    """The text of a node's plan, the same in whatever order its disks were found."""
    return "\n".join([f"localvolume disks 1 {written(node_name)}", *sorted(lines)]) + "\n"


def digest_of(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def written(value: Any) -> str:
    """One line, always the same for the same value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
