"""What a StorageClass may ask of FlexVolume volumes: its parameters, read strictly. Pure.

elastic's classes had none; whatever is not known is refused, for a misspelled parameter would make
every volume of the class another than was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from localvolume.config.mkfsoptions import mkfs_options as mkfs_options
from localvolume.config.syntax.readers import did_you_mean, one_line, quoted
from localvolume.flexvolume.mountoptions import faults_of
from localvolume.flexvolume.protocol import MKFS_OPTIONS
from localvolume.flexvolume.protocol import ON_REMOVAL as ON_REMOVAL
from localvolume.kube.objects import StorageClass

FS_TYPE: Final = "fsType"
CSI_FS_TYPE: Final = "csi.storage.k8s.io/fstype"

OnRemoval = Literal["delete", "overwrite", "discard"]

_ON_REMOVAL: Final[Mapping[str, OnRemoval]] = {
    "delete": "delete",
    "overwrite": "overwrite",
    "discard": "discard",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a class asks of its volumes; None and () where it leaves that to the agents.

    `mkfs` is the text as it was given, of which `mkfs_options` makes arguments.
    """

    fs_type: str | None = None
    mkfs: str = ""
    on_removal: OnRemoval | None = None
    mount_options: tuple[str, ...] = ()


def read_class(storage_class: StorageClass) -> Wish | list[str]:
    """What the class asks for, or all that is wrong with it, one text for each."""
    given, problems = storage_class.parameters, list[str]()
    for name in sorted(given):
        if name not in _CHECKS:
            hint = did_you_mean(name, _CHECKS)
            problems.append(f"parameter {one_line(name)} is not known{hint}")
            continue
        try:
            _CHECKS[name](given[name])
        except ValueError as error:
            problems.append(f"parameter {name}: {error}")
    if problems:
        return problems
    types = {given[name] for name in (FS_TYPE, CSI_FS_TYPE) if name in given}
    if len(types) > 1:
        return [f"parameters {FS_TYPE} and {CSI_FS_TYPE} differ"]
    fs_type = types.pop() if types else None
    text = given.get(MKFS_OPTIONS, "")
    if text.strip() and fs_type is None:
        return [f"parameter {MKFS_OPTIONS} needs {FS_TYPE}: each filesystem has options of its own"]
    try:
        mkfs_options(fs_type or "ext4", text)
    except ValueError as error:
        return [f"parameter {MKFS_OPTIONS}: {error}"]
    if faults := faults_of(storage_class.mount_options):
        return faults
    return Wish(
        fs_type=fs_type,
        mkfs=" ".join(text.split()),
        on_removal=on_removal(given[ON_REMOVAL]) if ON_REMOVAL in given else None,
        mount_options=tuple(storage_class.mount_options),
    )


def on_removal(text: str) -> OnRemoval:
    """What is done with the data of a volume that goes. Raises ValueError."""
    if text not in _ON_REMOVAL:
        hint = did_you_mean(text, _ON_REMOVAL)
        raise ValueError(f"must be {' or '.join(_ON_REMOVAL)}, not {quoted(text)}{hint}")
    return _ON_REMOVAL[text]


def _fs_type(text: str) -> None:
    if text not in ("ext4", "xfs"):
        hint = did_you_mean(text, ("ext4", "xfs"))
        raise ValueError(f"must be ext4 or xfs, not {quoted(text)}{hint}")


_CHECKS: Final[Mapping[str, Callable[[str], object]]] = {
    FS_TYPE: _fs_type,
    CSI_FS_TYPE: _fs_type,
    MKFS_OPTIONS: str,
    ON_REMOVAL: on_removal,
}
