"""Calls to an agent's CSI socket, as the kubelet and external-provisioner make them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grpclib.const import Status
from grpclib.exceptions import GRPCError, StreamTerminatedError

from localvolume.csi.wire import messages
from localvolume.host.mount.mounts import Mount, read_mount_table
from tests.host.support_csi_wire import call
from tests.suite.names import CSI
from tests.suite.units import MIB
from tests.suite.until import until

SHARED = "SINGLE_NODE_MULTI_WRITER"
SECONDS = 60.0
"""How long a call may take: what it does goes on without it."""

_MEANWHILE = "something else is being done with"
_NOT_NOTED = "has another claim is not noted in its pool yet"

UNANSWERED = (ConnectionError, FileNotFoundError, StreamTerminatedError, TimeoutError)
"""What a call raises whose agent is not there, or is killed meanwhile."""


class Caller:
    """Calls the driver of one node; `kubelet` is that kubelet's directory."""

    def __init__(self, kubelet: Path) -> None:
        self.kubelet = kubelet
        self._socket = kubelet / "plugins" / CSI / "csi.sock"

    def call(self, rpc: str, **fields: Any) -> Any:
        """The answer. Raises GRPCError, and UNANSWERED.

        A call that came while something else was done with its volume is repeated.
        """

        def answer() -> Any:
            try:
                return asyncio.run(call(self._socket, rpc, SECONDS, **fields))
            except GRPCError as error:
                if _MEANWHILE in (error.message or ""):
                    return None
                raise

        return until(answer, lambda answered: answered is not None, every=0.02)

    def refused(self, rpc: str, **fields: Any) -> tuple[Status, str]:
        """How the call fails."""
        try:
            answer = self.call(rpc, **fields)
        except GRPCError as error:
            return error.status, error.message or ""
        raise AssertionError(f"{rpc} was answered with {answer}")

    # --- the Controller ------------------------------------------------------------------------

    def create(self, name: str, size: int = 32 * MIB, **more: Any) -> str:
        """Have a volume made; returns its handle."""
        answer = self.call("CreateVolume", **self.wanted(name, size, **more))
        assert answer.volume.capacity_bytes == size
        return str(answer.volume.volume_id)

    def wanted(self, name: str, size: int = 32 * MIB, *, block: bool = False) -> dict[str, Any]:
        return {
            "name": name,
            "capacity_range": {"required_bytes": size},
            "volume_capabilities": [capability(block=block)],
        }

    def delete(self, handle: str) -> None:
        self.call("DeleteVolume", volume_id=handle)

    def grow(self, handle: str, size: int) -> None:
        answer = self.call(
            "ControllerExpandVolume", volume_id=handle, capacity_range={"required_bytes": size}
        )
        assert answer.capacity_bytes == size

    def listed(self) -> list[str]:
        return [one.volume.volume_id for one in self.call("ListVolumes").entries]

    # --- the Node ------------------------------------------------------------------------------

    def staging(self, handle: str) -> Path:
        return self.kubelet / "plugins/kubernetes.io/csi" / handle / "globalmount"

    def target(self, handle: str, pod: str = "pod-1") -> Path:
        return self.kubelet / "pods" / pod / "volumes/kubernetes.io~csi" / handle / "mount"

    def to_stage(self, handle: str, *, block: bool = False) -> dict[str, Any]:
        """What NodeStageVolume is told; the kubelet has made the directory."""
        path = self.staging(handle)
        path.mkdir(parents=True, exist_ok=True)
        return {
            "volume_id": handle,
            "staging_target_path": str(path),
            "volume_capability": capability(block=block),
        }

    def to_publish(
        self, handle: str, pod: str = "pod-1", *, block: bool = False, readonly: bool = False
    ) -> dict[str, Any]:
        path = self.target(handle, pod)
        path.parent.mkdir(parents=True, exist_ok=True)
        more = {"target_path": str(path), "readonly": readonly}
        return {**self.to_stage(handle, block=block), **more}

    def stage(self, handle: str, *, block: bool = False) -> Path:
        """As the kubelet does: again, while a new claim of the volume is not on record yet."""
        asked = self.to_stage(handle, block=block)

        def staged() -> bool:
            try:
                self.call("NodeStageVolume", **asked)
            except GRPCError as error:
                if _NOT_NOTED in (error.message or ""):
                    return False
                raise
            return True

        until(staged, every=0.02)
        return self.staging(handle)

    def publish(self, handle: str, pod: str = "pod-1", *, block: bool = False) -> Path:
        self.call("NodePublishVolume", **self.to_publish(handle, pod, block=block))
        return self.target(handle, pod)

    def unpublish(self, handle: str, pod: str = "pod-1") -> None:
        path = str(self.target(handle, pod))
        self.call("NodeUnpublishVolume", volume_id=handle, target_path=path)

    def unstage(self, handle: str) -> None:
        path = str(self.staging(handle))
        self.call("NodeUnstageVolume", volume_id=handle, staging_target_path=path)

    def use(self, handle: str, pod: str = "pod-1") -> Path:
        """All that a pod needs; returns the directory that it has."""
        self.stage(handle)
        return self.publish(handle, pod)

    def leave(self, handle: str, *pods: str) -> None:
        """The opposite."""
        for pod in pods or ("pod-1",):
            self.unpublish(handle, pod)
        self.unstage(handle)

    def mounts(self) -> Sequence[Mount]:
        """All mounts below the kubelet's directory."""
        return [one for one in read_mount_table() if one.mount_point.startswith(f"{self.kubelet}/")]


def capability(*, block: bool = False, mode: str = SHARED) -> dict[str, Any]:
    kind: dict[str, Any] = {"block": {}} if block else {"mount": {}}
    value = messages.VolumeCapability.AccessMode.Mode.Value(mode)
    return {"access_mode": {"mode": value}, **kind}
