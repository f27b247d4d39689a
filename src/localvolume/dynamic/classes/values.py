"""The values of StorageClass parameters: each read into one field of a Wish."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from localvolume.config.directories import clean_directory
from localvolume.config.pools import Flavor
from localvolume.config.syntax import names
from localvolume.config.syntax.durations import parse_duration
from localvolume.config.syntax.readers import did_you_mean, quoted
from localvolume.dynamic.classes import templates
from localvolume.dynamic.model import SourceType
from localvolume.dynamic.plan import places
from localvolume.kube.objects import Meta, PersistentVolumeClaim

CSI_FS_TYPE: Final = "csi.storage.k8s.io/fstype"
DEVICE_CLASS: Final = "topolvm.io/device-class"
OPTION_CLASS: Final = "topolvm.io/lvcreate-option-class"

Field = tuple[str, Any]
Reader = Callable[[str], Field]
"""Gives the Wish's field and its value, or raises ValueError saying why not."""

_SOURCES: Final[Mapping[str, SourceType]] = {"local": "local", "hostpath": "hostPath"}
_TRUTH: Final = {"true": True, "false": False, "1": True, "0": False, "t": True, "f": False}
# A claim with none of a tenant's text in it, to find what no claim at all could have.
_PROBE: Final = PersistentVolumeClaim(metadata=Meta(name="x", namespace="x", uid="x"))


def source_of(value: str) -> SourceType:
    """local or hostPath, in whatever case. Raises ValueError."""
    if value.casefold() not in _SOURCES:
        raise ValueError(f"must be local or hostPath, not {quoted(value)}")
    return _SOURCES[value.casefold()]


def _pools(value: str) -> Field:
    found = [name.strip() for name in value.split(",")]
    if not all(found):
        raise ValueError(f"must be names of pools, separated by commas, not {quoted(value)}")
    return "pools", frozenset(found)


def _node_path(value: str) -> Field:
    return "host_dirs", frozenset({clean_directory(value)})


def _fs_type(value: str) -> Field:
    return "fs_type", _one_of(value, "ext4", "xfs")


def _enforce(value: str) -> Field:
    return "enforce", _one_of(value, "none", "quota") == "quota"


def _on_removal(value: str) -> Field:
    return "overwrite", _one_of(value, "delete", "overwrite") == "overwrite"


def _on_lvm_removal(value: str) -> Field:
    chosen = _one_of(value, "delete", "overwrite", "discard")
    return ("discard", True) if chosen == "discard" else ("overwrite", chosen == "overwrite")


def _undo_period(value: str) -> Field:
    seconds = parse_duration(value)
    if seconds < 0:
        raise ValueError(f"must not be negative: {quoted(value)}")
    return "undo_seconds", seconds


def _affinity_key(value: str) -> Field:
    if fault := names.fault_of_label_key(value):
        raise ValueError(f"{quoted(value)} is no label key: it {fault}")
    return "affinity_keys", (value,)


def _device_class(value: str) -> Field:
    return "device_class", value


def _option_class(value: str) -> Field:
    return "option_class", value


def _unsafe(value: str) -> Field:
    if value.lower() not in _TRUTH:
        raise ValueError(f"must be true or false, not {quoted(value)}")
    return "unsafe_directory", _TRUTH[value.lower()]


def _path_pattern(value: str) -> Field:
    if not value:
        raise ValueError("is empty; leave it out for the provisioner's own names")
    path = _probe(value).removesuffix("/")
    if fault := places.fault_of_path(path):
        raise ValueError(f"{quoted(value)} makes paths like {quoted(path)}, which {fault}")
    return "directory", value


def mode(value: str) -> Field:
    """A template of permission bits."""
    template = templates.parse(value)
    if all(part.source == "text" for part in template):
        places.read_mode(value)
    return "mode", value


def owner(field: str) -> Reader:
    """A reader of a template of a number, for `uid` or `gid`."""

    def read(value: str) -> Field:
        template = templates.parse(value)
        if all(part.source == "text" for part in template):
            places.read_id(value, "owner" if field == "uid" else "group")
        return field, value

    return read


def _probe(pattern: str) -> str:
    """What a pattern makes where every field of the claim is one harmless letter."""
    template = templates.parse(pattern)
    plain = tuple(
        part if part.source == "text" else templates.Part("text", "x") for part in template
    )
    return templates.render(plain, _PROBE, "x")


def _one_of(value: str, *choices: str) -> str:
    if value not in choices:
        among = " or ".join([", ".join(choices[:-1]), choices[-1]])
        raise ValueError(f"must be {among}, not {quoted(value)}{did_you_mean(value, choices)}")
    return value


# Ours in every format that has parameters: older provisioners pass over them.
_OURS: Final[Mapping[str, Reader]] = {
    "enforce": _enforce,
    "onRemoval": _on_removal,
    "undoPeriod": _undo_period,
}
_NATIVE: Final[Mapping[str, Reader]] = {
    **_OURS,
    "onRemoval": _on_lvm_removal,
    DEVICE_CLASS: _device_class,
    OPTION_CLASS: _option_class,
    "pool": _pools,
    "fsType": _fs_type,
    CSI_FS_TYPE: _fs_type,
    "mode": mode,
    "uid": owner("uid"),
    "gid": owner("gid"),
    "pathPattern": _path_pattern,
    "nodeAffinityKey": _affinity_key,
}
LOCAL_PATH: Final[Mapping[str, Reader]] = {
    **_OURS,
    "nodePath": _node_path,
    "pathPattern": _path_pattern,
    "allowUnsafePathPattern": _unsafe,
    "nodeAffinityKey": _affinity_key,
    "userPattern": owner("uid"),
    "groupPattern": owner("gid"),
    "permPattern": mode,
}
READERS: Final[Mapping[Flavor, Mapping[str, Reader]]] = {
    "native": _NATIVE,
    "local-path": LOCAL_PATH,
    "openebs": {"onRemoval": _on_removal, "undoPeriod": _undo_period},
    "kutti": {},
}
