"""OpenEBS' hostpath engine: base paths of the agent, and the annotation of its StorageClasses.

A class may only choose among the agent's base paths: the right to write StorageClasses must not
include having directories made and removed anywhere on the hosts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from yaml.nodes import Node, ScalarNode

from localvolume.config.directories import clean_directory, directory
from localvolume.config.environment import EnvironmentInvalid
from localvolume.config.pools import PoolConfig, name_of
from localvolume.config.syntax import document, names
from localvolume.config.syntax.readers import (
    GO_TRUTH,
    Place,
    did_you_mean,
    items,
    keys,
    list_of,
    quoted,
    text,
)
from localvolume.config.variables import OPENEBS_IO_BASE_PATH

PROVISIONER: Final = "openebs.io/local"
CONFIG_ANNOTATION: Final = "cas.openebs.io/config"
ENGINE_ANNOTATION: Final = "openebs.io/cas-type"
DEFAULT_BASE_PATH: Final = "/var/openebs/local"

_QUOTAS: Final = ("XFSQuota", "EXT4Quota")
_NAMES: Final = ("StorageType", "BasePath", "NodeAffinityLabels", *_QUOTAS, "FilePermissions")
_FORMS: Final = {"StorageType": ("value",), "BasePath": ("value",), "NodeAffinityLabels": ("list",)}
_DEVICE: Final = "is for volumes on whole block devices; storageClassMap offers those"
_GONE: Final = {
    "FSType": _DEVICE,
    "BlockDeviceSelectors": _DEVICE,
    "BlockDeviceTag": _DEVICE,
    "NodeAffinityLabel": "is not heeded any more; NodeAffinityLabels takes a list",
}
_GRACE: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})%")
_HIGHEST_GRACE: Final = 100.0
_KIB: Final = 1024

Graces = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostpathClass:
    """What a class says. "" and () stand for the defaults.

    With `quota`, `graces` None means that the limit is the size; else they are the soft and hard
    limits in per cent above it, None for no such limit. `mode`, `uid` and `gid` are text as given.
    """

    base_path: str = ""
    affinity_keys: tuple[str, ...] = ()
    quota: bool = False
    graces: Graces | None = None
    mode: str = ""
    uid: str = ""
    gid: str = ""


def pools(base_paths: Iterable[str], environ: Mapping[str, str]) -> tuple[PoolConfig, ...]:
    """A pool for each base path of the flags and of the environment.

    Raises EnvironmentInvalid.
    """
    found: dict[str, None] = {}
    problems: list[str] = []
    variable = OPENEBS_IO_BASE_PATH.read(environ)
    given = [("--openebs-base-path", path) for path in base_paths]
    for where, path in [*([(OPENEBS_IO_BASE_PATH.name, variable)] if variable else []), *given]:
        try:
            found[clean_directory(path)] = None
        except ValueError as error:
            problems.append(f"{where} {error}")
    if problems:
        raise EnvironmentInvalid(problems)
    return tuple(
        PoolConfig(
            name=name_of("openebs", path),
            host_dir=path,
            mount_dir=path,
            provisioner=PROVISIONER,
            flavor="openebs",
            enforce=False,
            must_be_mounted=False,
        )
        for path in found
    )


def default_base_path(pools_: Iterable[PoolConfig], environ: Mapping[str, str]) -> str:
    """Where a class without BasePath has its volumes; "" if there is no base path.

    The environment's path, else upstream's default if it is in `pools_`, else the first of these.
    """
    paths = [pool.host_dir for pool in pools_]
    if OPENEBS_IO_BASE_PATH.read(environ) or DEFAULT_BASE_PATH not in paths:
        return paths[0] if paths else ""
    return DEFAULT_BASE_PATH


def grace(given: str) -> float | None:
    """Per cent above the size, at most 100; None for "". Raises ValueError."""
    if not given:
        return None
    match = _GRACE.fullmatch(given)
    if match is None:
        raise ValueError(f'must be a percentage like "20%", not {quoted(given)}')
    return min(float(match.group(1)), _HIGHEST_GRACE)


def limit_bytes(size_bytes: int, per_cent: float | None) -> int | None:
    """The quota limit that a grace stands for, in whole KiB as in upstream; None: no limit."""
    if per_cent is None:
        return None
    exact = size_bytes * (1 + Fraction(repr(per_cent)) / 100)
    return -(-exact // _KIB) * _KIB


def read_class(annotations: Mapping[str, str]) -> HostpathClass | list[str]:
    """What the annotations of a StorageClass say, or a list of all that is wrong with them."""
    place = Place(CONFIG_ANNOTATION, "")
    engine = annotations.get(ENGINE_ANNOTATION, "local")
    if engine != "local":
        place.problem(f"{ENGINE_ANNOTATION} {quoted(engine)} is another engine than local")
    values: dict[str, object] = {}
    try:
        node = document.compose(annotations.get(CONFIG_ANNOTATION, ""))
    except document.Unreadable as error:
        place.problem(str(error))
        node = None
    if node is not None and not document.is_null(node):
        values = _entries(node, place)
    return [str(problem) for problem in place.problems] or HostpathClass(**values)  # type: ignore[arg-type]  # by field


def _entries(node: Node, place: Place) -> dict[str, object]:
    values: dict[str, object] = {}
    seen: set[str] = set()
    quotas: list[tuple[Graces | None, Place]] = []
    for item, where in items(node, place):
        before = len(place.problems)
        entry = keys(item, where, ("name", "value", "enabled", "data", "list"))
        name = text(*entry["name"]) if "name" in entry else None
        if name is None:
            if len(place.problems) == before:
                where.problem("has no name")
            continue
        where = Place(place.file, name, place.problems)
        if name in seen:
            where.problem("is given twice")
            continue
        seen.add(name)
        if name in _GONE:
            where.problem(_GONE[name])
        elif name not in _NAMES:
            where.problem("is not known" + did_you_mean(name, _NAMES))
        else:
            # The same parts, at places named after the entry.
            parts = {key: (value, where.at(key)) for key, (value, _) in entry.items()}
            values |= _entry(name, parts, where, quotas)
    if quotas:
        values["quota"] = True
        values["graces"] = quotas[0][0]
        if any(graces != quotas[0][0] for graces, _ in quotas):
            quotas[1][1].problem("sets other limits than the other quota of this class")
    return values


def _entry(
    name: str,
    entry: Mapping[str, tuple[Node, Place]],
    place: Place,
    quotas: list[tuple[Graces | None, Place]],
) -> dict[str, object]:
    """What one entry says, by the field of HostpathClass."""
    forms = _FORMS.get(name, ("enabled", "data"))
    for other in sorted(entry.keys() - {"name", *forms}):
        place.problem(f"takes {' and '.join(forms)}, not {other}")
    if forms[0] not in entry:
        return {}
    match name:
        case "StorageType":
            value = text(*entry["value"])
            if value == "device":
                place.problem(f"{quoted(value)} {_DEVICE}")
            elif value is not None and value.strip() not in ("", "hostpath"):
                place.problem(f"must be hostpath, not {quoted(value)}")
        case "BasePath":
            if path := directory(*entry["value"]):
                return {"base_path": path}
        case "NodeAffinityLabels":
            return {"affinity_keys": list_of(_label_key)(*entry["list"])}
        case "FilePermissions" if _is_enabled(entry):
            return _data(entry, {"mode": "mode", "UID": "uid", "GID": "gid"})
        case _ if name in _QUOTAS and _is_enabled(entry):
            quotas.append((_graces(entry, place), place))
    return {}


def _is_enabled(entry: Mapping[str, tuple[Node, Place]]) -> bool:
    """Read as in Go, except that a word that is neither is a problem."""
    node, place = entry["enabled"]
    if isinstance(node, ScalarNode) and node.tag == document.BOOLEAN:
        return document.truth(node)
    given = str(node.value).strip() if isinstance(node, ScalarNode) else ""
    if given not in GO_TRUTH:
        place.problem("must be true or false")
    return GO_TRUTH.get(given, False)


def _data(entry: Mapping[str, tuple[Node, Place]], fields: Mapping[str, str]) -> dict[str, object]:
    if "data" not in entry:
        return {}
    found = {
        fields[key]: value.strip()
        for key, where in keys(*entry["data"], fields).items()
        if (value := text(*where)) is not None
    }
    return dict(found)


def _graces(entry: Mapping[str, tuple[Node, Place]], place: Place) -> Graces | None:
    given = _data(entry, {"softLimitGrace": "soft", "hardLimitGrace": "hard"})
    graces: dict[str, float | None] = {"soft": None, "hard": None}
    for key in graces:
        try:
            graces[key] = grace(str(given.get(key, "")))
        except ValueError as error:
            place.at("data").at(f"{key}LimitGrace").problem(str(error))
    soft, hard = graces["soft"], graces["hard"]
    if soft is not None and hard is not None and soft > hard:
        place.at("data").problem("has a softLimitGrace above the hardLimitGrace")
    return None if soft is None and hard is None else (soft, hard)


def _label_key(node: Node, place: Place) -> str | None:
    key = text(node, place)
    if key is not None and (fault := names.fault_of_label_key(key)):
        place.problem(f"{quoted(key)} is no label key: it {fault}")
        return None
    return key
