"""What the requests to the Controller service ask for, and what is wrong with them: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from localvolume.backends.handles import handle_of
from localvolume.backends.pool.layout import fault_of_volume_name
from localvolume.csi.capabilities import Kind, kind_of
from localvolume.csi.wire.errors import Aborted, InvalidArgument, NotFound, OutOfRange
from localvolume.dynamic.calls import Wanted
from localvolume.dynamic.classes.parameters import FULL_COPIES, full_copies
from localvolume.dynamic.classes.reserves import RESERVE, Reserve, reserve
from localvolume.volumes.attributes import Attributes, BadAttributes, read
from localvolume.volumes.capacity import GIB
from localvolume.volumes.manifest import NodeFacts
from localvolume.volumes.marks import HOSTNAME_LABEL

DEFAULT_BYTES: Final = GIB
"""The size of a volume whose request names none. Claims always name one, so only calls by hand do
not: every filesystem that we make fits in it, and a small pool has it."""

_METADATA: Final = frozenset(
    {
        "csi.storage.k8s.io/pvc/name",
        "csi.storage.k8s.io/pvc/namespace",
        "csi.storage.k8s.io/pv/name",
    }
)
"""Parameters that external-provisioner adds with --extra-create-metadata: nobody set them."""

_SNAPSHOT_METADATA: Final = frozenset(
    {
        "csi.storage.k8s.io/volumesnapshot/name",
        "csi.storage.k8s.io/volumesnapshot/namespace",
        "csi.storage.k8s.io/volumesnapshotcontent/name",
    }
)
"""What csi-snapshotter adds likewise."""

_GROUP_METADATA: Final = frozenset(
    {
        "csi.storage.k8s.io/volumegroupsnapshot/name",
        "csi.storage.k8s.io/volumegroupsnapshot/namespace",
        "csi.storage.k8s.io/volumegroupsnapshotcontent/name",
    }
)
"""And of a group."""

_FS_TYPES: Final = ("fsType", "csi.storage.k8s.io/fstype")

_AFTER: Final = "after:"


@dataclass(frozen=True, slots=True)
class WantedSnapshot:
    """A snapshot that is asked for: its handle, that of its volume, whether all data may be copied,
    and the reserve that it may have instead."""

    name: str
    source: str
    full_copies: bool = False
    reserve: Reserve | None = None


@dataclass(frozen=True, slots=True)
class WantedGroup:
    """Snapshots that are asked for together: the group's handle, and those of the volumes."""

    name: str
    sources: tuple[str, ...]


def handle_in(request: Any, field: str = "volume_id") -> str | None:
    """The handle that the message has in that field; None if nothing can have it.

    Raises InvalidArgument if it has none.
    """
    handle: str = getattr(request, field)
    if not handle:
        raise InvalidArgument(f"{field} is missing")
    return handle if fault_of_volume_name(handle) is None else None


def wanted(request: Any) -> Wanted:
    """The volume that a CreateVolumeRequest asks for.

    Raises InvalidArgument, OutOfRange, and NotFound for a source that cannot be there.
    """
    if not request.name:
        raise InvalidArgument("name is missing")
    kind = kind_of(request.volume_capabilities)
    attributes = attributes_in(request)
    parameters = parameters_of(request)
    if request.HasField("capacity_range"):
        size, limit = sizes(request.capacity_range)
    else:
        size, limit = 0, 0
    source, from_snapshot = "", False
    if request.HasField("volume_content_source"):
        source, from_snapshot = _source_in(request.volume_content_source)
    elif not size:
        size = min(DEFAULT_BYTES, limit) if limit else DEFAULT_BYTES
    return Wanted(
        name=handle_of(request.name),
        size_bytes=size,
        limit_bytes=limit,
        volume_mode=kind.volume_mode,
        fs_type=fs_type_of(kind, parameters),
        parameters=parameters,
        source=source,
        from_snapshot=from_snapshot,
        attributes=attributes,
    )


def _source_in(content_source: Any) -> tuple[str, bool]:
    """The handle of the source, and whether it is a snapshot."""
    kind = content_source.WhichOneof("type")
    if kind is None:
        raise InvalidArgument("volume_content_source names neither a snapshot nor a volume")
    source, field = getattr(content_source, kind), f"{kind}_id"
    if (handle := handle_in(source, field)) is None:
        raise NotFound(f"there is no {kind} {getattr(source, field)}")
    return handle, kind == "snapshot"


def wanted_snapshot(request: Any) -> WantedSnapshot:
    """What a CreateSnapshotRequest asks for.

    Raises InvalidArgument, and NotFound for a volume that cannot be there.
    """
    if not request.name:
        raise InvalidArgument("name is missing")
    source = handle_in(request, "source_volume_id")
    known = _SNAPSHOT_METADATA | {FULL_COPIES, RESERVE}
    if names := ", ".join(sorted(request.parameters.keys() - known)):
        raise InvalidArgument(f"parameters of snapshots that are not known: {names}")
    try:
        _, full = full_copies(request.parameters.get(FULL_COPIES, "refused"))
    except ValueError as error:
        raise InvalidArgument(f"parameter {FULL_COPIES}: {error}") from error
    try:
        said = request.parameters.get(RESERVE)
        room = None if said is None else reserve(said)
    except ValueError as error:
        raise InvalidArgument(f"parameter {RESERVE}: {error}") from error
    if source is None:
        raise NotFound(f"there is no volume {request.source_volume_id}")
    return WantedSnapshot(handle_of(request.name), source, full, room)


def attributes_in(request: Any) -> Attributes:
    """What its mutable parameters say. Raises InvalidArgument."""
    try:
        return read(request.mutable_parameters)
    except BadAttributes as error:
        raise InvalidArgument(f"mutable parameters: {error}") from error


def wanted_group(request: Any) -> WantedGroup:
    """What a CreateVolumeGroupSnapshotRequest asks for.

    Raises InvalidArgument, and NotFound for volumes that cannot be there.
    """
    if not request.name:
        raise InvalidArgument("name is missing")
    sources = tuple(request.source_volume_ids)
    if not all(sources):
        raise InvalidArgument("source_volume_ids has an empty one")
    if not sources:
        raise InvalidArgument("source_volume_ids is missing")
    if len(set(sources)) < len(sources):
        raise InvalidArgument("source_volume_ids names a volume twice")
    if names := ", ".join(sorted(request.parameters.keys() - _GROUP_METADATA)):
        raise InvalidArgument(f"a group of snapshots has no parameters: {names}")
    if never := [one for one in sources if fault_of_volume_name(one) is not None]:
        raise NotFound(f"there is no volume {', '.join(never)}")
    return WantedGroup(handle_of(request.name), sources)


def parameters_of(request: Any) -> dict[str, str]:
    """The parameters that the StorageClass has."""
    return {key: text for key, text in request.parameters.items() if key not in _METADATA}


def fs_type_of(kind: Kind, parameters: Mapping[str, str]) -> str:
    """The filesystem that both ask for, "" for none. Raises InvalidArgument if they differ."""
    if kind.volume_mode == "Block":
        return ""
    named = {text for key in _FS_TYPES if (text := parameters.get(key, ""))}
    both = sorted(named | {kind.fs_type} - {""})
    if len(both) > 1:
        raise InvalidArgument(
            f"the parameters and the fs_type of the capabilities differ: {' and '.join(both)}"
        )
    return "".join(both)


def sizes(capacity_range: Any) -> tuple[int, int]:
    """The least and the most bytes, 0 for none. Raises InvalidArgument and OutOfRange."""
    required, limit = capacity_range.required_bytes, capacity_range.limit_bytes
    if required < 0 or limit < 0:
        raise InvalidArgument("capacity_range has a negative size")
    if not required and not limit:
        raise InvalidArgument("capacity_range has neither required_bytes nor limit_bytes")
    if limit and required > limit:
        raise OutOfRange(f"required_bytes {required} is more than limit_bytes {limit}")
    return required, limit


def topology_of(node: NodeFacts) -> dict[str, dict[str, str]]:
    """Where a volume of this node can be used, as a Topology."""
    return {"segments": {HOSTNAME_LABEL: node.hostname}}


def is_here(topology: Any, node: NodeFacts) -> bool:
    """Whether the topology is this node's."""
    return dict(topology.segments) == topology_of(node)["segments"]


def may_be_here(requirement: Any, node: NodeFacts) -> bool:
    """Whether a volume on this node meets the TopologyRequirement; what is preferred is no must."""
    return not requirement.requisite or any(is_here(one, node) for one in requirement.requisite)


def page(names: Sequence[str], request: Any) -> tuple[list[str], str]:
    """The names that the request asks for, of names in order, and the token for the rest.

    A token says after which name to go on, so a page neither repeats nor misses a volume when
    others come and go. Raises InvalidArgument and Aborted.
    """
    most, token = request.max_entries, request.starting_token
    if most < 0:
        raise InvalidArgument("max_entries is negative")
    after = token.removeprefix(_AFTER)
    if token and (after == token or not after):
        raise Aborted("starting_token is none of this driver's: begin again without one")
    left = [name for name in names if name > after]
    if not most or len(left) <= most:
        return left, ""
    return left[:most], f"{_AFTER}{left[most - 1]}"
