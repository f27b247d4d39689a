"""The protobuf bodies of `kubectl create namespace` and `create configmap`, sent unasked.

A body is `k8s\\0` and a runtime.Unknown {1: typeMeta {1: apiVersion, 2: kind}, 2: raw}; raw is
the object. Only the fields those commands set are known; numbers from generated.proto of
k8s.io/api/core/v1 and of apimachinery's meta/v1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

MAGIC = b"k8s\0"
CONTENT_TYPE = "application/vnd.kubernetes.protobuf"

_TEXT, _MAP = "text", "map"
_META = {
    1: ("name", _TEXT),
    2: ("generateName", _TEXT),
    3: ("namespace", _TEXT),
    11: ("labels", _MAP),
    12: ("annotations", _MAP),
}
_KINDS: dict[str, dict[int, tuple[str, Any]]] = {
    "Namespace": {1: ("metadata", _META)},
    "ConfigMap": {1: ("metadata", _META), 2: ("data", _MAP)},
    "DeleteOptions": {},
}


class Unreadable(Exception):
    """Not a body of ours; the text says why."""


def decode(body: bytes) -> dict[str, Any]:
    """The object in a protobuf body. Raises Unreadable."""
    if not body.startswith(MAGIC):
        raise Unreadable("no Kubernetes protobuf prefix")
    try:
        envelope = dict(_fields(body[len(MAGIC) :]))
        type_meta = dict(_fields(envelope[1]))
        kind, version = type_meta[2].decode(), type_meta[1].decode()
        if kind not in _KINDS:
            raise Unreadable(f"{kind} is understood as JSON only")
        made = _message(envelope.get(2, b""), _KINDS[kind])
    except (KeyError, IndexError, ValueError) as error:
        raise Unreadable(f"malformed protobuf: {error}") from None
    return {"kind": kind, "apiVersion": version, **made}


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(number, content) of the length-delimited fields; the others are passed over."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire == 2:
            length, at = _varint(data, at)
            yield tag >> 3, data[at : at + length]
            at += length
        elif wire == 0:
            _, at = _varint(data, at)
        elif wire in {1, 5}:
            at += 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _message(data: bytes, known: dict[int, tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for number, content in _fields(data):
        if number not in known:
            continue
        name, shape = known[number]
        if shape == _TEXT:
            if content:
                made[name] = content.decode()
        elif shape == _MAP:
            entry = dict(_fields(content))
            made.setdefault(name, {})[entry.get(1, b"").decode()] = entry.get(2, b"").decode()
        else:
            made[name] = _message(content, shape)
    return made
