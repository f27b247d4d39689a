"""What goes over the wire: patches to bytes, answers straight into trimmed structs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

import msgspec

from localvolume.kube.errors import (
    ApiError,
    Status,
    TellTheAdministrator,
    TryAgainLater,
    error_for_status,
)
from localvolume.kube.kinds import Kind
from localvolume.kube.objects import KubeObject

T = TypeVar("T", bound=KubeObject)

ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"
BOOKMARK: Final = "BOOKMARK"
_ERROR: Final = "ERROR"


@dataclass(frozen=True, slots=True)
class MergePatch:
    """RFC 7386: given keys replace, null removes. A metadata.resourceVersion is a precondition."""

    body: Mapping[str, Any]

    @property
    def content_type(self) -> str:
        return "application/merge-patch+json"


@dataclass(frozen=True, slots=True)
class JsonPatch:
    """RFC 6902: a list of operations; a `test` that fails raises LookAgain."""

    body: Sequence[Mapping[str, Any]]

    @property
    def content_type(self) -> str:
        return "application/json-patch+json"


class WatchEvent(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """`type` is ADDED, MODIFIED, DELETED (the last state) or BOOKMARK (only a resourceVersion)."""

    type: str
    object: T


class Page(NamedTuple, Generic[T]):
    """Part of a list. `cont` continues it and is empty on the last page; `size` is in bytes."""

    items: list[T]
    resource_version: str
    cont: str
    size: int


class _ListMeta(msgspec.Struct, rename="camel", gc=False):
    resource_version: str = ""
    cont: str | None = msgspec.field(name="continue", default=None)


class _List(msgspec.Struct, Generic[T], gc=False):
    items: list[T] | None = None
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


class _ErrorEvent(msgspec.Struct, gc=False):
    type: str
    object: Status


_decode_error_event = msgspec.json.Decoder(_ErrorEvent).decode


class Codec(Generic[T]):
    """The decoders for one kind. Made once, because making one walks all types of the kind."""

    def __init__(self, kind: Kind[T]) -> None:
        self._what: Final = kind.kind
        struct = kind.struct
        self._one: Final = cast("Callable[[bytes], T]", msgspec.json.Decoder(struct).decode)
        self._list: Final = cast(
            "Callable[[bytes], _List[T]]", msgspec.json.Decoder(_generic(_List, struct)).decode
        )
        self._event: Final = cast(
            "Callable[[bytes], WatchEvent[T]]",
            msgspec.json.Decoder(_generic(WatchEvent, struct)).decode,
        )

    def one(self, body: bytes) -> T:
        """Decode one object. Raises ApiError if it is not one."""
        try:
            return self._one(body)
        except msgspec.DecodeError as error:
            raise _not_kubernetes(error, self._what) from error

    def page(self, body: bytes) -> Page[T]:
        """Decode a list answer. Raises ApiError if it is not one."""
        try:
            answer = self._list(body)
        except msgspec.DecodeError as error:
            raise _not_kubernetes(error, f"{self._what} list") from error
        meta = answer.metadata
        return Page(answer.items or [], meta.resource_version, meta.cont or "", len(body))

    def event(self, line: bytes) -> WatchEvent[T]:
        """Decode a line of a watch. Raises the ApiError that an ERROR event stands for."""
        try:
            event = self._event(line)
            if event.type != _ERROR:
                return event
        except msgspec.ValidationError as error:
            # Perhaps a Status, which does not decode as our object: tried as an ERROR event
            # below. If it is not one either, it is an object that we cannot read.
            problem: msgspec.DecodeError | None = error
        except msgspec.DecodeError as error:
            raise _not_kubernetes(error, f"{self._what} watch") from error
        else:
            problem = None
        try:
            told = _decode_error_event(line)
        except msgspec.DecodeError as error:
            raise _not_kubernetes(problem or error, f"{self._what} watch") from error
        if told.type != _ERROR and problem is not None:
            raise _not_kubernetes(problem, f"{self._what} watch") from problem
        raise error_for_status(told.object)


_codecs: Final[dict[Kind[Any], Codec[Any]]] = {}


def codec(kind: Kind[T]) -> Codec[T]:
    """The decoders for a kind, kept for good: kinds are few and constant."""
    made: Codec[T] | None = _codecs.get(kind)
    if made is None:
        made = _codecs[kind] = Codec(kind)
    return made


def _generic(struct: Any, parameter: type) -> Any:
    """`struct[parameter]`, which type checkers accept only if the parameter is known to them."""
    return struct[parameter]


def encode(body: object) -> bytes:
    """Encode as JSON. Structs get Kubernetes' field names; read-only mappings are accepted."""
    return msgspec.json.encode(body, enc_hook=_as_dict)


def _as_dict(value: object) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(f"{type(value).__name__} is not JSON")


def _not_kubernetes(error: msgspec.DecodeError, what: str) -> ApiError:
    if isinstance(error, msgspec.ValidationError):
        return TellTheAdministrator(f"a {what} we cannot read: {error}", reason="Unreadable")
    return TryAgainLater(f"a {what} that is not JSON, or was cut: {error}", reason="Unreadable")
