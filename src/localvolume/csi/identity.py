"""The Identity service of CSI: who the driver is, what it serves, and whether it can."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from localvolume.config.provisioner import CSI_DRIVER
from localvolume.csi.wire import messages
from localvolume.csi.wire.server import Handle
from localvolume.dynamic.calls import NotNow
from localvolume.volumes.manifest import NodeFacts

_SERVICES: Final = (
    "CONTROLLER_SERVICE",
    "VOLUME_ACCESSIBILITY_CONSTRAINTS",
    "GROUP_CONTROLLER_SERVICE",
    "SNAPSHOT_ACCESSIBILITY_CONSTRAINTS",
    "SNAPSHOT_METADATA_SERVICE",
)


class KnowsNode(Protocol):
    """What of `dynamic.calls.Volumes` says whether calls can be served."""

    def node(self) -> NodeFacts:
        """This node; raises NotNow until it is known."""
        ...


class IdentityService:
    """Answers whoever wants to know the driver; sidecars ask it first."""

    def __init__(self, volumes: KnowsNode) -> None:
        self._volumes: Final = volumes
        self.handlers: Final[Mapping[str, Handle]] = {
            "GetPluginInfo": self._info,
            "GetPluginCapabilities": self._capabilities,
            "Probe": self._probe,
        }

    async def _info(self, _request: Any) -> Any:
        # The kubelet never asks: an agent without sidecars is spared the import of 2 MB.
        from importlib import metadata

        return messages.GetPluginInfoResponse(
            name=CSI_DRIVER, vendor_version=metadata.version("local-volume-provisioner")
        )

    async def _capabilities(self, _request: Any) -> Any:
        services = [{"service": {"type": name}} for name in _SERVICES]
        return messages.GetPluginCapabilitiesResponse(
            capabilities=[*services, {"volume_expansion": {"type": "ONLINE"}}]
        )

    async def _probe(self, _request: Any) -> Any:
        return messages.ProbeResponse(ready=messages.BoolValue(value=is_ready(self._volumes)))


def is_ready(volumes: KnowsNode) -> bool:
    """Whether the node and its volumes are known, so that calls can be served."""
    try:
        volumes.node()
    except NotNow:
        return False
    return True
