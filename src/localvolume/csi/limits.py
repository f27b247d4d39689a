"""How large the fields of CSI messages may be (CSI specification, "Size Limits").

The limits hold for both sides. What a caller sends beyond them is refused before anything is done
with it, and what we say is cut.
"""

from __future__ import annotations

from typing import Any, Final

from localvolume.csi.wire.errors import InvalidArgument

STRING_BYTES: Final = 128
MAP_BYTES: Final = 4096

_LARGER: Final = frozenset(
    {"target_path", "staging_target_path", "volume_path", "volume_publish_path"}
)
"""Paths and the like, which may be longer: the system that opens them has limits of its own."""

_UNREAD: Final = frozenset({"secrets"})
"""No call here reads them, so no fault in them matters."""


def check(message: Any) -> None:
    """Raise InvalidArgument, naming the field, if a part of the message is too large."""
    for field, value in message.ListFields():
        if field.name in _UNREAD or field.name in _LARGER:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            _check_map(field.name, value)
        elif field.message_type is not None:
            for one in value if field.is_repeated else [value]:
                check(one)
        elif field.type == field.TYPE_STRING:
            for one in value if field.is_repeated else [value]:
                _check_string(field.name, one)


def short(text: str) -> str:
    """The text, cut to what a field of a message may have."""
    data = text.encode()
    if len(data) <= STRING_BYTES:
        return text
    more = "…"
    return data[: STRING_BYTES - len(more.encode())].decode(errors="ignore") + more


def _check_string(name: str, value: str) -> None:
    if (size := len(value.encode())) > STRING_BYTES:
        raise InvalidArgument(f"{name} has {size} bytes; {STRING_BYTES} are allowed")


def _check_map(name: str, value: Any) -> None:
    size = sum(len(key.encode()) + len(text.encode()) for key, text in value.items())
    if size > MAP_BYTES:
        raise InvalidArgument(f"{name} has {size} bytes in all; {MAP_BYTES} are allowed")
