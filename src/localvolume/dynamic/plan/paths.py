"""Decides where in its pool a volume lies and who owns it, by what classes and tenants wrote: pure.

Names, labels, annotations and patterns decide this, and tenants write most of them. Whatever they
write, the result is a path strictly below the pool, outside our own directory, that no other volume
uses: without `allowUnsafePathPattern` it is at or below `<namespace>/<name>` of the claim, and with
it, `conflicts` still keeps it apart from every other volume.

Nothing here looks at the disk; the code that uses the path deals with links.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from localvolume.backends.model import OURS
from localvolume.backends.pool.layout import fault_of_directory
from localvolume.config.pools import Flavor, PoolConfig
from localvolume.config.syntax import names
from localvolume.dynamic.classes import templates
from localvolume.dynamic.model import Wish
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim
from localvolume.volumes import affinity
from localvolume.volumes.manifest import NodeFacts
from localvolume.volumes.marks import (
    HOSTNAME_LABEL,
    NODE_LABEL,
    POOL_ANNOTATION,
    PROVISIONED_BY_ANNOTATION,
    node_key,
)

_LONGEST_NAME: Final = 255
_MODE: Final = re.compile(r"0?[0-7]{3,4}")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,9}")
# 2**32 - 1 would be -1, which chown takes for "leave it as it is".
_HIGHEST_ID: Final = 2**32 - 2
_HIGHEST_MODE: Final = 0o3777


class Unsafe(ValueError):
    """The claim must not get what its class and its own text ask for; the message says why."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The permission bits and the owner of a new volume's directory."""

    mode: int
    uid: int
    gid: int


def directory_of(wish: Wish, flavor: Flavor, claim: PersistentVolumeClaim, pv_name: str) -> str:
    """The volume's path below its pool, with "/" between its parts. Raises Unsafe."""
    meta = claim.metadata
    for what, name in (("namespace", meta.namespace), ("name", meta.name), ("volume", pv_name)):
        # The API server ensures this; a "/" or ".." here would lead to another claim's volume.
        if fault := names.fault_of_object_name(name):
            raise Unsafe(f"{name!r} is no name of a claim's {what}: it {fault}")
    if not wish.directory:
        if flavor == "local-path":
            # Cutting it off does no harm: the first part alone is unique.
            return f"{pv_name}_{meta.namespace}_{meta.name}"[:_LONGEST_NAME]
        return pv_name
    path = _rendered(wish.directory, claim, pv_name)
    path = path.removesuffix("/")
    if fault := fault_of_path(path):
        raise Unsafe(f"the path pattern makes {_shown(path)}, which {fault}")
    own = f"{meta.namespace}/{meta.name}"
    if not wish.unsafe_directory and path != own and not path.startswith(f"{own}/"):
        raise Unsafe(
            f"the path pattern makes {_shown(path)}, which does not begin with {own!r}: "
            "it must begin with {{ .PVC.Namespace }}/{{ .PVC.Name }}"
        )
    return path


def owner_of(wish: Wish, claim: PersistentVolumeClaim, pv_name: str) -> Owner:
    """Mode and owner as the class's templates give them for this claim. Raises Unsafe."""
    return Owner(
        mode=read_mode(_rendered(wish.mode, claim, pv_name)),
        uid=read_id(_rendered(wish.uid, claim, pv_name), "owner"),
        gid=read_id(_rendered(wish.gid, claim, pv_name), "group"),
    )


def conflicts(path: str, others: Iterable[str]) -> str | None:
    """Why `path` cannot be a volume's beside those at `others`; None if it can.

    It must not be one of them, hold one or lie in one. The text continues "the directory x ...".
    """
    for other in others:
        if not other:
            continue
        if path == other:
            return "is another volume's"
        if path.startswith(f"{other}/"):
            return f"lies inside another volume's, {_shown(other)}"
        if other.startswith(f"{path}/"):
            return f"holds another volume's, {_shown(other)}"
    return None


def relative_place(
    volume: PersistentVolume, pools: Sequence[PoolConfig]
) -> tuple[PoolConfig, str] | str:
    """The pool, and the path below it, of a volume that another provisioner made; or why none.

    Looks only at pools of the provisioner that, as the PersistentVolume says, made it.
    """
    spec = volume.spec
    if (spec.local is None) == (spec.host_path is None):
        return "it names no directory of a node"
    path = spec.local.path if spec.local is not None else spec.host_path.path  # type: ignore[union-attr]
    provisioner = volume.metadata.annotations.get(PROVISIONED_BY_ANNOTATION, "")
    if not provisioner:
        return "it does not say which provisioner made it"
    if not path.startswith("/") or _fault_of_parts(path[1:]):
        return f"its path {_shown(path)} is not a clean absolute one"
    # A pool of logical volumes has no directory: nothing lies in it that a path could name.
    pools = [pool for pool in pools if pool.provisioner == provisioner and pool.host_dir]
    beneath = [pool for pool in pools if path.startswith(f"{pool.host_dir}/")]
    if not beneath:
        if any(pool.host_dir == path for pool in pools):
            return f"its path {_shown(path)} is a whole pool"
        return f"its path {_shown(path)} lies in no pool of {provisioner} on this node"
    pool = max(beneath, key=lambda one: len(one.host_dir))
    place = path.removeprefix(f"{pool.host_dir}/")
    if place.partition("/")[0].casefold() == OURS:
        return f"its path {_shown(path)} is none of a volume's"
    return pool, place


def is_surely_elsewhere(
    volume: PersistentVolume, node: NodeFacts, pool_ids: Collection[str]
) -> bool:
    """Whether the volume lies on another node than this one, which has the pools of those ids.

    Its label, its affinity and its pool must all say so: each one alone may have been written by
    hand, or be shared.
    """
    meta = volume.metadata
    label, said = meta.labels.get(NODE_LABEL, ""), meta.annotations.get(POOL_ANNOTATION, "")
    pool_id = said.rpartition("/")[2]
    if not label or label == node_key(node.name) or not pool_id or pool_id in pool_ids:
        return False
    return bool(affinity.required_terms(volume)) and not is_here(volume, node)


def is_here(volume: PersistentVolume, node: NodeFacts) -> bool:
    """Whether the volume's affinity means this node; kutti wrote names for hostnames."""
    as_name = {**node.labels, HOSTNAME_LABEL: node.name}
    return any(
        affinity.matches(term, node.name, labels)
        for term in affinity.required_terms(volume)
        for labels in (node.labels, as_name)
    )


def _rendered(text: str, claim: PersistentVolumeClaim, pv_name: str) -> str:
    try:
        return templates.render(templates.parse(text), claim, pv_name)
    except (templates.BadTemplate, templates.MissingValue) as error:
        raise Unsafe(str(error)) from error


def fault_of_path(path: str) -> str:
    """What is wrong with a path below a pool, "" if nothing is; continues "x, which ..."."""
    if path.startswith("/"):
        return "is absolute: it must lie below the pool"
    if fault := _fault_of_parts(path):
        return fault
    # The pool itself checks this too. Here it refuses a class whose volumes could never be made.
    return fault_of_directory(path) or ""


def _fault_of_parts(path: str) -> str:
    # Lone surrogates, control characters and invisible ones are all not printable.
    if not path.isprintable():
        return "has a character that cannot be printed"
    for part in path.split("/"):
        if part in ("", ".", ".."):
            return f"has {part!r} between its slashes" if part else "has an empty part"
        if len(part.encode()) > _LONGEST_NAME:
            return f"has a part of more than {_LONGEST_NAME} bytes"
    return ""


def read_mode(text: str) -> int:
    """An octal mode without setuid. Raises Unsafe."""
    if not _MODE.fullmatch(text) or int(text, 8) > _HIGHEST_MODE:
        raise Unsafe(
            f"{_shown(text)} is no mode: it must be an octal number of at most "
            f"{_HIGHEST_MODE:04o}, like 0750"
        )
    return int(text, 8)


def read_id(text: str, what: str) -> int:
    """The number of an owner or a group. Raises Unsafe."""
    if not _NUMBER.fullmatch(text) or int(text) > _HIGHEST_ID:
        raise Unsafe(f"{_shown(text)} is no {what}: it must be a number of at most {_HIGHEST_ID}")
    return int(text)


def _shown(text: str) -> str:
    shown = repr(text)
    return shown if len(shown) <= 120 else f"{shown[:116]}...{shown[-1]}"
