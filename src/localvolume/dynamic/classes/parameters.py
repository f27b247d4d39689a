"""A StorageClass's parameters and annotations, whoever's they are, read into one Wish: pure.

Strict in every format: what is not known is a problem, for upstream passes over a misspelled
parameter and every volume of the class is then another than was asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from localvolume.config.foreign import openebs
from localvolume.config.model import Served
from localvolume.config.pools import Flavor
from localvolume.config.syntax.readers import did_you_mean, one_line, quoted
from localvolume.dynamic.classes.values import (
    CSI_FS_TYPE,
    LOCAL_PATH,
    READERS,
    Reader,
    mode,
    owner,
    source_of,
)
from localvolume.dynamic.model import ClassFacts, SourceType, Wish
from localvolume.dynamic.plan.places import Unsafe
from localvolume.kube.objects import PersistentVolumeClaim, StorageClass

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
    """What the class asks of its volumes, or all that is wrong with it, one text for each.

    `openebs_base_path` is where classes of OpenEBS without BasePath have their volumes
    (openebs.default_base_path), and `openebs_base_paths` are all that a class may choose from; None
    where that is not known.
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
    if flavor == "local-path":
        _local_path(storage_class, fields, problems)
    elif flavor == "openebs":
        _openebs(storage_class, openebs_base_path, openebs_base_paths, fields, problems)
    elif flavor == "kutti":
        fields["mode"] = _KUTTI_MODE
    return problems or Wish(**fields)


def read_claim(claim: PersistentVolumeClaim, class_facts: ClassFacts) -> SourceType:
    """How the claim's PersistentVolume names its directory. Raises places.Unsafe.

    Claims may choose (annotation `volumeType`) where their class has a choice: local-path's only.
    """
    default = class_facts.wish.source
    if default is None:
        return "local"
    try:
        return source_of(claim.metadata.annotations.get(VOLUME_TYPE_ANNOTATION, default))
    except ValueError as error:
        raise Unsafe(f"annotation {VOLUME_TYPE_ANNOTATION} {error}") from error


def _local_path(storage_class: StorageClass, fields: dict[str, Any], problems: list[str]) -> None:
    """Annotations say what the class's parameters do not."""
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
    """A class of a provisioner that is served here, as it is to be read for that."""
    wish = read_class(
        found,
        flavor=served.flavor,
        openebs_base_path=served.default_host_dir,
        openebs_base_paths=served.host_dirs,
    )
    if isinstance(wish, list):
        return ClassFacts(object=found, problem="; ".join(wish))
    return ClassFacts(object=found, wish=wish)
