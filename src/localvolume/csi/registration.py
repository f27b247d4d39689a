"""The kubelet's Registration service: where the driver is, and what the kubelet makes of it.

The kubelet watches its directory for sockets, asks each that appears, registers the driver, and
says how that went. A socket that is removed ends the registration. A kubelet that starts looks at
all sockets that are there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from localvolume.config.provisioner import CSI_DRIVER
from localvolume.csi.wire import messages
from localvolume.csi.wire.server import Handle

_TYPE: Final = "CSIPlugin"
_VERSIONS: Final = ("1.0.0",)
"""Of the kubelet's plugin interface, as node-driver-registrar says it; 2 and up are refused."""


class RegistrationService:
    """Answers the kubelet. `told` is told why the driver is not registered, "" once it is."""

    def __init__(self, endpoint: str, told: Callable[[str], object]) -> None:
        self._endpoint: Final = endpoint
        self._told: Final = told
        self.handlers: Final[Mapping[str, Handle]] = {
            "GetInfo": self._info,
            "NotifyRegistrationStatus": self._status,
        }

    async def _info(self, _request: Any) -> Any:
        return messages.PluginInfo(
            type=_TYPE, name=CSI_DRIVER, endpoint=self._endpoint, supported_versions=_VERSIONS
        )

    async def _status(self, request: Any) -> Any:
        self._told("" if request.plugin_registered else request.error or "it gave no reason")
        return messages.RegistrationStatusResponse()
