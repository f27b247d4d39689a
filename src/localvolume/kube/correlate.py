"""Which Events to write: repeats become a count, floods are folded, then stopped.

The rules, and their numbers, are those of client-go's tools/record EventCorrelator, so that our
Events look like those of every other component: per object a budget of 25 that refills by one in
300 s; more than 10 different messages of the same object, type and reason within 10 minutes are
folded into one Event; a repeated Event raises its count.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, Literal, Protocol, Self, TypeVar

EventType = Literal["Normal", "Warning"]
V = TypeVar("V")

BURST: Final = 25
REFILL_SECONDS: Final = 300.0
FOLD_AFTER: Final = 10
FOLD_SECONDS: Final = 600.0
FOLDED: Final = "(combined from similar events): "
# Objects and Events remembered; forgetting one only means that its count starts again.
REMEMBERED: Final = 1024


class Named(Protocol):
    """An object's metadata, or a reference to it."""

    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def namespace(self) -> str: ...


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """What an Event is about. For a Node the UID is its name, as for kubelet and kubectl."""

    kind: str
    name: str
    uid: str
    namespace: str = ""
    api_version: str = "v1"
    resource_version: str = ""

    @classmethod
    def of_volume(cls, it: Named) -> Self:
        """A PersistentVolume, by its metadata."""
        return cls("PersistentVolume", it.name, it.uid)

    @classmethod
    def of_claim(cls, it: Named) -> Self:
        """A claim, by its metadata or a PersistentVolume's claimRef."""
        return cls("PersistentVolumeClaim", it.name, it.uid, it.namespace)

    @classmethod
    def of_node(cls, name: str) -> Self:
        """A Node."""
        return cls("Node", name, name)

    @property
    def identity(self) -> Hashable:
        """Without the resourceVersion: the same object in another state is the same object."""
        return (self.kind, self.namespace, self.name, self.uid, self.api_version)


@dataclass(slots=True)
class Occurrence:
    """One thing that happened, as given; `at` is Unix time in seconds."""

    about: ObjectRef
    type: EventType
    reason: str
    message: str
    at: float


@dataclass(slots=True)
class Record:
    """An Event to write: created while `name` is empty, patched afterwards."""

    first: float
    last: float
    message: str
    count: int = 0
    namespace: str = ""
    name: str = ""


@dataclass(slots=True)
class _Similar:
    last: float
    messages: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Budget:
    left: float
    at: float


class _Lately(Generic[V]):
    """A map that forgets its least recently used entry when it is full."""

    def __init__(self, size: int) -> None:
        self._size: Final = size
        self._of: Final[OrderedDict[Hashable, V]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        value = self._of.pop(key, None)
        if value is None:
            value = make()
        self._of[key] = value
        if len(self._of) > self._size:
            self._of.popitem(last=False)
        return value


class Correlator:
    """Remembers recent Events."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._similar: Final[_Lately[_Similar]] = _Lately(remembered)
        self._records: Final[_Lately[Record]] = _Lately(remembered)
        self._budgets: Final[_Lately[_Budget]] = _Lately(remembered)

    def observe(self, what: Occurrence) -> Record | None:
        """The Event to write for this; None if its object has no budget left."""
        now = what.at
        kind_of = (what.about.identity, what.type, what.reason)
        similar = self._similar.get(kind_of, lambda: _Similar(now))
        if now - similar.last > FOLD_SECONDS:
            similar.messages.clear()
        similar.last = now
        message = what.message
        key: Hashable = (kind_of, message)
        if len(similar.messages) < FOLD_AFTER or message in similar.messages:
            similar.messages.add(message)
        else:
            key, message = kind_of, FOLDED + message
        record = self._records.get(key, lambda: Record(now, now, message))
        record.count += 1
        record.last = now
        record.message = message
        return record if self._may_speak(what.about.identity, now) else None

    def _may_speak(self, identity: Hashable, now: float) -> bool:
        budget = self._budgets.get(identity, lambda: _Budget(BURST, now))
        refilled = budget.left + max(0.0, now - budget.at) / REFILL_SECONDS
        budget.left, budget.at = min(float(BURST), refilled), now
        if budget.left < 1:
            return False
        budget.left -= 1
        return True
