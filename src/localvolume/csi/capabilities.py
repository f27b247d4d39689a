"""What the capabilities of a request ask of a volume, and whether a volume has them: pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from localvolume.backends.model import Record, filesystem_of
from localvolume.csi.wire import messages
from localvolume.csi.wire.errors import InvalidArgument

_MODES: Final = messages.VolumeCapability.AccessMode.Mode
_ON_ONE_NODE: Final = frozenset(
    _MODES.Value(name)
    for name in (
        "SINGLE_NODE_WRITER",
        "SINGLE_NODE_READER_ONLY",
        "SINGLE_NODE_SINGLE_WRITER",
        "SINGLE_NODE_MULTI_WRITER",
    )
)


@dataclass(frozen=True, slots=True)
class Kind:
    """What a volume is to its pods; the filesystem "" is whichever it has."""

    volume_mode: Literal["Filesystem", "Block"] = "Filesystem"
    fs_type: str = ""


class NotHad(InvalidArgument):
    """The capability is well-formed, and no volume of this driver has it."""


def kind_of(capabilities: Sequence[Any]) -> Kind:
    """The one kind of volume that has all of them. Raises InvalidArgument and NotHad."""
    if not capabilities:
        raise InvalidArgument("volume_capabilities is missing")
    for one in capabilities:
        _check_form(one)
    for one in capabilities:
        _check_had(one)
    types = {one.WhichOneof("access_type") for one in capabilities}
    if len(types) > 1:
        raise NotHad("a volume is either mounted or a block device: ask for one of the two")
    if types == {"block"}:
        return Kind("Block")
    named = sorted({one.mount.fs_type for one in capabilities} - {""})
    if len(named) > 1:
        raise NotHad(f"a volume has one filesystem, and fs_type is {' and '.join(named)}")
    return Kind("Filesystem", "".join(named))


def misfit(kind: Kind, record: Record) -> str:
    """Why the volume is not of that kind; "" if it is."""
    if kind.volume_mode != record.volume_mode:
        return f"its volume mode is {record.volume_mode}, not {kind.volume_mode}"
    if kind.fs_type and kind.fs_type != (has := filesystem_of(record)):
        return f"it has {has or 'no filesystem of its own'}, not {kind.fs_type}"
    return ""


def _check_form(capability: Any) -> None:
    if capability.WhichOneof("access_type") is None:
        raise InvalidArgument("a volume capability has no access_type")
    if capability.access_mode.mode == _MODES.Value("UNKNOWN"):
        raise InvalidArgument("a volume capability has no access_mode")


def _check_had(capability: Any) -> None:
    mode = capability.access_mode.mode
    if mode not in _ON_ONE_NODE:
        name = _MODES.Name(mode) if mode in _MODES.values() else mode
        raise NotHad(f"access mode {name} is not possible: the volume is on one node")
    if capability.mount.volume_mount_group:
        raise NotHad("volume_mount_group is not served: the kubelet sets a volume's group")
