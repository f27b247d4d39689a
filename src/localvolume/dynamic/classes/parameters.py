"""Reads a StorageClass's parameters and annotations, in each provisioner's format: pure.

Strict in every format: an unknown parameter is a problem. Upstream ignores a misspelled one, and
every volume of the class is then different from what was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from localvolume.config.directories import clean_directory
from localvolume.config.foreign import openebs
from localvolume.config.model import Served
from localvolume.config.pools import Flavor
from localvolume.config.provisioner import CSI_DRIVER
from localvolume.config.syntax import names
from localvolume.config.syntax.durations import parse_duration
from localvolume.config.syntax.readers import did_you_mean, one_line, quoted
from localvolume.dynamic.classes import templates
from localvolume.dynamic.model import ClassFacts, SourceType, Wish
from localvolume.dynamic.plan import paths
from localvolume.dynamic.plan.paths import Unsafe
from localvolume.kube.objects import Meta, PersistentVolumeClaim, StorageClass

FULL_COPIES: Final = "fullCopies"
CSI_FS_TYPE: Final = "csi.storage.k8s.io/fstype"
DEVICE_CLASS: Final = "topolvm.io/device-class"
OPTION_CLASS: Final = "topolvm.io/lvcreate-option-class"

Field = tuple[str, Any]
Reader = Callable[[str], Field]
"""Gives the Wish's field and its value, or raises ValueError saying why not."""

_SOURCES: Final[Mapping[str, SourceType]] = {"local": "local", "hostpath": "hostPath"}
_TRUTH: Final = {"true": True, "false": False, "1": True, "0": False, "t": True, "f": False}
# A claim without any text of a tenant, to find patterns that suit no claim at all.
_PROBE: Final = PersistentVolumeClaim(metadata=Meta(name="x", namespace="x", uid="x"))


def source_of(value: str) -> SourceType:
    """local or hostPath; upper or lower case does not matter. Raises ValueError."""
    if value.casefold() not in _SOURCES:
        raise ValueError(f"must be local or hostPath, not {quoted(value)}")
    return _SOURCES[value.casefold()]


def _pools(value: str) -> Field:
    found = [name.strip() for name in value.split(",")]
    if not all(found):
        raise ValueError(f"must be names of pools, separated by commas, not {quoted(value)}")
    return "pools", frozenset(found)


def _fs_type(value: str) -> Field:
    return "fs_type", _one_of(value, "ext4", "xfs")


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


def full_copies(value: str) -> Field:
    """Whether copies may be made by copying all data: of StorageClasses and snapshot classes."""
    return "full_copies", _one_of(value, "allowed", "refused") == "allowed"


def _affinity_key(value: str) -> Field:
    if fault := names.fault_of_label_key(value):
        raise ValueError(f"{quoted(value)} is no label key: it {fault}")
    return "affinity_keys", (value,)


def _unsafe(value: str) -> Field:
    if value.lower() not in _TRUTH:
        raise ValueError(f"must be true or false, not {quoted(value)}")
    return "unsafe_directory", _TRUTH[value.lower()]


def _path_pattern(value: str) -> Field:
    if not value:
        raise ValueError("is empty; leave it out for the provisioner's own names")
    path = _probe(value).removesuffix("/")
    if fault := paths.fault_of_path(path):
        raise ValueError(f"{quoted(value)} makes paths like {quoted(path)}, which {fault}")
    return "directory", value


def mode(value: str) -> Field:
    """A template of permission bits."""
    template = templates.parse(value)
    if all(part.source == "text" for part in template):
        paths.read_mode(value)
    return "mode", value


def owner(field: str) -> Reader:
    """A reader of a template of a number, for `uid` or `gid`."""

    def read(value: str) -> Field:
        template = templates.parse(value)
        if all(part.source == "text" for part in template):
            paths.read_id(value, "owner" if field == "uid" else "group")
        return field, value

    return read


def _probe(pattern: str) -> str:
    """What a pattern makes if every field of the claim is one harmless letter."""
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


# Ours in every format that has parameters: older provisioners ignore them.
_OURS: Final[Mapping[str, Reader]] = {
    "enforce": lambda value: ("enforce", _one_of(value, "none", "quota") == "quota"),
    "onRemoval": _on_removal,
    "undoPeriod": _undo_period,
}
_NATIVE: Final[Mapping[str, Reader]] = {
    **_OURS,
    "onRemoval": _on_lvm_removal,
    DEVICE_CLASS: lambda value: ("device_class", value),
    OPTION_CLASS: lambda value: ("option_class", value),
    "pool": _pools,
    "fsType": _fs_type,
    CSI_FS_TYPE: _fs_type,
    "mode": mode,
    "uid": owner("uid"),
    "gid": owner("gid"),
    "pathPattern": _path_pattern,
    "nodeAffinityKey": _affinity_key,
    FULL_COPIES: full_copies,
}
LOCAL_PATH: Final[Mapping[str, Reader]] = {
    **_OURS,
    "nodePath": lambda value: ("host_dirs", frozenset({clean_directory(value)})),
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


VOLUME_TYPE_ANNOTATION: Final = "volumeType"
DEFAULT_TYPE_ANNOTATION: Final = "defaultVolumeType"
_KUTTI_MODE: Final = "0755"


def read_class(
    storage_class: StorageClass,
    *,
    flavor: Flavor,
    openebs_base_path: str = "",
    openebs_base_paths: Collection[str] | None = None,
) -> Wish | list[str]:
    """Returns what the class asks of its volumes, or its problems, one text for each.

    `openebs_base_path` is where OpenEBS classes without BasePath have their volumes
    (openebs.default_base_path), and `openebs_base_paths` are all that a class may choose from; None
    if that is not known.
    """
    problems: list[str] = []
    fields: dict[str, Any] = {}
    readers = READERS[flavor]
    parameters = storage_class.parameters
    for name, value in sorted(parameters.items()):
        if name not in readers:
            problems.append(f"parameter {one_line(name)} is not known{_hint(name, readers)}")
        else:
            _read(f"parameter {name}", readers[name], value, fields, problems)
    both = {parameters[name] for name in ("fsType", CSI_FS_TYPE) if name in parameters}
    if len(both) > 1:
        problems.append(f"parameters fsType and {CSI_FS_TYPE} differ")
    if FULL_COPIES in parameters and storage_class.provisioner != CSI_DRIVER:
        problems.append(f"parameter {FULL_COPIES}: only volumes of {CSI_DRIVER} are copied")
    if flavor == "local-path":
        _local_path(storage_class, fields, problems)
    elif flavor == "openebs":
        _openebs(storage_class, openebs_base_path, openebs_base_paths, fields, problems)
    elif flavor == "kutti":
        fields["mode"] = _KUTTI_MODE
    return problems or Wish(**fields)


def read_claim(claim: PersistentVolumeClaim, class_facts: ClassFacts) -> SourceType:
    """How the claim's PersistentVolume names its directory. Raises paths.Unsafe.

    Claims may choose (annotation `volumeType`) if their class lets them: only local-path's do.
    """
    default = class_facts.wish.source
    if default is None:
        return "local"
    try:
        return source_of(claim.metadata.annotations.get(VOLUME_TYPE_ANNOTATION, default))
    except ValueError as error:
        raise Unsafe(f"annotation {VOLUME_TYPE_ANNOTATION} {error}") from error


def _local_path(storage_class: StorageClass, fields: dict[str, Any], problems: list[str]) -> None:
    """Annotations count where the class's parameters say nothing."""
    annotations = storage_class.metadata.annotations
    for name in ("allowUnsafePathPattern", "userPattern", "groupPattern", "permPattern"):
        if name in annotations and name not in storage_class.parameters:
            reader = LOCAL_PATH[name]
            _read(f"annotation {name}", reader, annotations[name], fields, problems)
    given = annotations.get(DEFAULT_TYPE_ANNOTATION, "hostPath")
    _read(
        f"annotation {DEFAULT_TYPE_ANNOTATION}",
        lambda value: ("source", source_of(value)),
        given,
        fields,
        problems,
    )


def _openebs(
    storage_class: StorageClass,
    base_path: str,
    base_paths: Collection[str] | None,
    fields: dict[str, Any],
    problems: list[str],
) -> None:
    said = openebs.read_class(storage_class.metadata.annotations)
    if isinstance(said, list):
        problems += said
        return
    if said.base_path and base_paths is not None and said.base_path not in base_paths:
        problems.append(
            f"BasePath {quoted(said.base_path)} is none of the agents' base paths "
            f"({', '.join(sorted(base_paths)) or 'there are none'}): a class must not choose any "
            "directory of the hosts; --openebs-base-path allows one"
        )
    if path := said.base_path or base_path:
        fields["host_dirs"] = frozenset({path})
    if said.affinity_keys:
        fields["affinity_keys"] = said.affinity_keys
    if said.quota:
        fields["enforce"] = True
        fields["quota_graces"] = said.graces
    for name, value, read in (
        ("mode", said.mode, mode),
        ("UID", said.uid, owner("uid")),
        ("GID", said.gid, owner("gid")),
    ):
        # No templates here, as upstream has none.
        if "{{" in value:
            problems.append(f"FilePermissions.data.{name} {quoted(value)} is no number")
        elif value:
            _read(f"FilePermissions.data.{name}", read, value, fields, problems)


def _read(
    what: str, reader: Reader, value: str, fields: dict[str, Any], problems: list[str]
) -> None:
    try:
        field, result = reader(value)
    except ValueError as error:
        problems.append(f"{what}: {error}")
    else:
        fields[field] = result


def _hint(name: str, readers: Mapping[str, Reader]) -> str:
    if not readers:
        return ": classes of this provisioner take none"
    return did_you_mean(name, readers)


def facts_of_class(found: StorageClass, served: Served) -> ClassFacts:
    """Reads a class as the format of its provisioner, which is served here, requires."""
    wish = read_class(
        found,
        flavor=served.flavor,
        openebs_base_path=served.default_host_dir,
        openebs_base_paths=served.host_dirs,
    )
    if isinstance(wish, list):
        return ClassFacts(object=found, problem="; ".join(wish))
    return ClassFacts(object=found, wish=wish)
