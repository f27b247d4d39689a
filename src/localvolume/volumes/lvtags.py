"""The tags that we write on logical volumes: `localvolume.dev/<key>=<value>`.

A tag may contain letters, digits and `_+.-/=!:&#` (lvm(8), "Tags"). `&` and all other bytes of a
value are written as `&` and two hexadecimal digits. All other tags are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

PREFIX: Final = "localvolume.dev/"

OWNER: Final = "owner"
POOL_OWNER: Final = "pool"
FLEX_OWNER: Final = "flexvolume"
"""Values of OWNER: made for a claim and served as a `local` PersistentVolume, or served through
FlexVolume. Neither role touches the other's volumes."""

_LONGEST: Final = 1024
_ESCAPED: Final = re.compile(r"&([0-9a-f]{2})")
_PLAIN: Final = frozenset(
    b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+.-/=!:#"
)


class BadTag(ValueError):
    """A value that no tag can hold, or a tag that we did not write: leave the volume alone."""


def encode(fields: Mapping[str, str]) -> frozenset[str]:
    """The tags for these fields; empty values are left out. Raises BadTag if a tag is too long."""
    tags = {f"{PREFIX}{key}={_escape(value)}" for key, value in fields.items() if value}
    for tag in tags:
        if len(tag) > _LONGEST:
            raise BadTag(f"a tag may have {_LONGEST} characters: {tag[:60]}...")
    return frozenset(tags)


def decode(tags: Iterable[str]) -> dict[str, str]:
    """The fields in our tags. Raises BadTag if a field occurs twice or is malformed."""
    fields: dict[str, str] = {}
    for tag in tags:
        if not tag.startswith(PREFIX):
            continue
        key, equals, value = tag.removeprefix(PREFIX).partition("=")
        if not equals or not key or key in fields:
            raise BadTag(f"{tag!r} is no tag of ours, or not the only one of its key")
        fields[key] = _unescape(value)
    return fields


def change(old: Iterable[str], new: Mapping[str, str]) -> tuple[frozenset[str], frozenset[str]]:
    """Which tags to remove and which to add so that ours are exactly the fields of `new`."""
    wanted = encode(new)
    ours = frozenset(tag for tag in old if tag.startswith(PREFIX))
    return ours - wanted, wanted - ours


def _escape(value: str) -> str:
    data = value.encode()
    return "".join(chr(byte) if byte in _PLAIN else f"&{byte:02x}" for byte in data)


def _unescape(value: str) -> str:
    if not value.isascii() or value.count("&") != len(_ESCAPED.findall(value)):
        raise BadTag(f"{value!r} has an & without its two digits, or what no tag may have")
    data = re.sub(_ESCAPED, lambda found: chr(int(found[1], 16)), value).encode("latin-1")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadTag(f"{value!r} is no text") from error
