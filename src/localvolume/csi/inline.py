"""What the kubelet asks for when a pod's spec has a volume of its own: pure.

The pod's owner writes the attributes, and the kubelet adds to them who the pod is. Only the size
and the pool's name are read, and nothing else is accepted: no path, option or name of the host.
"""

from __future__ import annotations

import re
from typing import Any, Final

from localvolume.config.pools import LEAST_INLINE_BYTES
from localvolume.config.syntax.names import fault_of_object_name
from localvolume.config.syntax.readers import did_you_mean, one_line, quoted
from localvolume.config.syntax.resources import amount
from localvolume.csi.capabilities import kind_of
from localvolume.csi.wire.errors import InvalidArgument, OutOfRange
from localvolume.dynamic.calls import WantedInline
from localvolume.volumes.capacity import quantity

SIZE: Final = "size"
POOL: Final = "pool"

_KUBELETS: Final = "csi.storage.k8s.io/"
_EPHEMERAL: Final = f"{_KUBELETS}ephemeral"
_POD: Final = tuple(f"{_KUBELETS}pod.{one}" for one in ("namespace", "name", "uid"))
_ADDED: Final = frozenset({_EPHEMERAL, *_POD, f"{_KUBELETS}serviceAccount.name"})
_HANDLE: Final = re.compile(r"csi-[0-9a-f]{64}")
_UID: Final = re.compile(r"[0-9a-f][0-9a-f-]{0,62}[0-9a-f]")
_MOST_BYTES: Final = 1 << 60


def is_handle(name: str) -> bool:
    """Whether the kubelet gives a pod's own volume such a handle. No volume of a claim has one."""
    return _HANDLE.fullmatch(name) is not None


def is_asked_for(request: Any) -> bool:
    """Whether a NodePublishVolumeRequest is for a pod's own volume.

    The kubelet itself says so, whatever the pod's spec or a PersistentVolume says.
    """
    told: str = request.volume_context.get(_EPHEMERAL, "")
    return told == "true"


def wanted(request: Any) -> WantedInline:
    """The volume that the request asks for. Raises InvalidArgument, OutOfRange."""
    said = dict(request.volume_context)
    if not is_handle(request.volume_id):
        raise InvalidArgument(
            f"volume_id {quoted(request.volume_id)} is not one that the kubelet gives to a pod's"
            " own volume"
        )
    if request.secrets:
        raise InvalidArgument("no secret is used: leave nodePublishSecretRef out")
    kind = kind_of([request.volume_capability])
    if kind.volume_mode == "Block":
        raise InvalidArgument("a pod's own volume is a filesystem, not a block device")
    own = {key: text for key, text in said.items() if key not in _ADDED}
    for key in sorted(own.keys() - {SIZE, POOL}):
        raise InvalidArgument(
            f"volumeAttributes: {one_line(key)} is not known{did_you_mean(key, (SIZE, POOL))}"
        )
    namespace, name, uid = (said.get(key, "") for key in _POD)
    if fault_of_object_name(namespace) or fault_of_object_name(name) or not _UID.fullmatch(uid):
        raise InvalidArgument(
            "the kubelet does not say whose pod it is: the CSIDriver must have podInfoOnMount: true"
        )
    # What the pod's owner may have written counts for nothing beside the kubelet's own path.
    if f"/pods/{uid}/volumes/" not in request.target_path:
        raise InvalidArgument(f"target_path {quoted(request.target_path)} is not of pod {uid}")
    return WantedInline(
        name=request.volume_id,
        size_bytes=_size(own.get(SIZE, "")),
        pod=f"{namespace}/{name}",
        pod_uid=uid,
        fs_type=kind.fs_type,
        pool=own.get(POOL, ""),
    )


def _size(text: str) -> int:
    if not text:
        raise InvalidArgument(f"volumeAttributes: {SIZE} is missing; give it a quantity like 1Gi")
    size = amount(text)
    if size is None or size.denominator != 1 or not 0 < size <= _MOST_BYTES:
        raise InvalidArgument(
            f"volumeAttributes: {SIZE} must be a quantity of bytes like 1Gi, not {quoted(text)}"
        )
    if size < LEAST_INLINE_BYTES:
        raise OutOfRange(
            f"volumeAttributes: {SIZE} must be at least {quantity(LEAST_INLINE_BYTES)},"
            f" not {quoted(text)}"
        )
    return int(size)
