"""The messages of CSI and of the kubelet's registration, by name: `messages.CreateVolumeRequest`.

Enums that no message holds, and their values, are here by name too: `messages.DEGRADED`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import message_factory
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

from localvolume.csi.wire import descriptors, tables


def _made() -> dict[str, Any]:
    pool = descriptors.pool()
    names: dict[str, Any] = {}
    for package, table in (
        (tables.CSI_PACKAGE, tables.CSI_MESSAGES),
        (tables.REGISTRATION_PACKAGE, tables.REGISTRATION_MESSAGES),
    ):
        file = descriptors.file_of(package, table)
        pool.AddSerializedFile(file.SerializeToString())
        for message in file.message_type:
            found = pool.FindMessageTypeByName(f"{package}.{message.name}")
            names[message.name] = message_factory.GetMessageClass(found)
        for enum in file.enum_type:
            names[enum.name] = EnumTypeWrapper(pool.FindEnumTypeByName(f"{package}.{enum.name}"))
            names |= {value.name: value.number for value in enum.value}
    for full_name in descriptors.well_known():
        found = pool.FindMessageTypeByName(full_name)
        names[found.name] = message_factory.GetMessageClass(found)
    return names


_NAMES: Final = _made()

SERVICES: Final[Mapping[str, Mapping[str, descriptors.Signature]]] = {
    **descriptors.signatures(tables.CSI_PACKAGE, tables.CSI_SERVICES),
    **descriptors.signatures(tables.REGISTRATION_PACKAGE, tables.REGISTRATION_SERVICES),
}
"""The RPCs of each service, by the service's full name and their own."""


def __getattr__(name: str) -> Any:
    try:
        return _NAMES[name]
    except KeyError:
        raise AttributeError(f"CSI and the kubelet's registration have no {name}") from None
