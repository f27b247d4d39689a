"""Faults to order: what the server should do wrong, to which requests, how many times.

A rule matches by verb, resource, name and namespace; the first rule with a count left wins and is
used up by one. Rules about answers see every request; rules about watches see watches only.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Literal

from localvolume_lab.sandbox.refusals import Refusal

Verb = Literal[
    "*", "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"
]
Action = Literal["answer", "drop", "lose", "delay", "close", "cut", "silence", "expire"]

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


@dataclass(eq=False)
class Fault:
    """One rule. `left`: uses left, None for no limit. `skip`: matching requests let through first.

    `hits` counts its uses; `hit` is set by the first.
    """

    action: Action
    verb: Verb = "*"
    resource: str = "*"
    name: str = "*"
    namespace: str = "*"
    left: int | None = 1
    skip: int = 0
    status: int = 0
    reason: str = ""
    message: str = ""
    retry_after: int | None = None
    seconds: float = 0.0
    after: int = 0
    hits: int = 0
    hit: asyncio.Event = field(default_factory=asyncio.Event)

    def matches(self, request: RequestInfo) -> bool:
        """Whether the rule is about this request, its count aside."""
        return (
            self.verb in ("*", request.verb)
            and self.resource in ("*", request.resource)
            and self.name in ("*", request.name)
            and self.namespace in ("*", request.namespace)
            and (request.verb == "watch" or self.action not in _WATCH_ACTIONS)
        )

    def refusal(self) -> Refusal:
        """The answer of an `answer` rule."""
        reason = self.reason or _REASONS.get(self.status, "")
        message = self.message or f"ordered fault: {self.status} {reason}"
        return Refusal(self.status, reason, message, retry_after=self.retry_after)


_WATCH_ACTIONS = frozenset({"close", "cut", "silence", "expire"})


@dataclass(frozen=True)
class RequestInfo:
    """One request as faults and the request log see it. `at`: loop time in seconds."""

    verb: str
    resource: str
    name: str
    namespace: str
    subresource: str
    at: float


class Faults:
    """The rules, in the order they were given."""

    def __init__(self) -> None:
        self.rules: list[Fault] = []

    def add(self, fault: Fault) -> Fault:
        """Append a rule; returns it, so that its hits can be watched."""
        self.rules.append(fault)
        return fault

    def answer(
        self,
        status: int,
        *,
        verb: Verb = "*",
        resource: str = "*",
        name: str = "*",
        namespace: str = "*",
        times: int | None = 1,
        skip: int = 0,
        retry_after: int | None = None,
        reason: str = "",
        message: str = "",
    ) -> Fault:
        """Answer with a Status of this code; the request is not carried out."""
        return self.add(
            Fault(
                "answer", verb, resource, name, namespace, times, skip,
                status=status, reason=reason, message=message, retry_after=retry_after,
            )
        )  # fmt: skip

    def drop(
        self, *, verb: Verb = "*", resource: str = "*", name: str = "*", times: int | None = 1
    ) -> Fault:
        """Cut the connection instead of answering; the request is not carried out."""
        return self.add(Fault("drop", verb, resource, name, left=times))

    def lose(
        self, *, verb: Verb = "*", resource: str = "*", name: str = "*", times: int | None = 1
    ) -> Fault:
        """Carry the request out, then cut the connection: the client cannot know it was done."""
        return self.add(Fault("lose", verb, resource, name, left=times))

    def delay(
        self,
        seconds: float,
        *,
        verb: Verb = "*",
        resource: str = "*",
        name: str = "*",
        times: int | None = 1,
    ) -> Fault:
        """Wait before the request is looked at; other rules then still apply."""
        return self.add(Fault("delay", verb, resource, name, left=times, seconds=seconds))

    def close_watch(self, *, resource: str = "*", after: int = 0, times: int | None = 1) -> Fault:
        """End a watch cleanly after `after` events."""
        return self.add(Fault("close", "watch", resource, left=times, after=after))

    def cut_watch(self, *, resource: str = "*", after: int = 0, times: int | None = 1) -> Fault:
        """Send `after` events, then half of one, and cut the connection."""
        return self.add(Fault("cut", "watch", resource, left=times, after=after))

    def silence_watch(self, *, resource: str = "*", after: int = 0, times: int | None = 1) -> Fault:
        """After `after` events send nothing more, no bookmark either, and keep the connection."""
        return self.add(Fault("silence", "watch", resource, left=times, after=after))

    def expire_watch(self, *, resource: str = "*", after: int = 0, times: int | None = 1) -> Fault:
        """After `after` events send an ERROR event with a 410 Status, as a compaction does."""
        return self.add(Fault("expire", "watch", resource, left=times, after=after))

    def clear(self) -> None:
        """Be well again."""
        self.rules.clear()

    def take_delays(self, request: RequestInfo) -> list[Fault]:
        """Every delay rule that applies, each used up by one."""
        delays = [rule for rule in self.rules if rule.action == "delay"]
        return [rule for rule in delays if self._use(rule, request)]

    def take(self, request: RequestInfo, actions: frozenset[Action]) -> Fault | None:
        """The first rule for this request among `actions`, used up by one; or None."""
        return next(
            (rule for rule in self.rules if rule.action in actions and self._use(rule, request)),
            None,
        )

    def _use(self, rule: Fault, request: RequestInfo) -> bool:
        if rule.left == 0 or not rule.matches(request):
            return False
        if rule.skip > 0:
            rule.skip -= 1
            return False
        if rule.left is not None:
            rule.left -= 1
        rule.hits += 1
        rule.hit.set()
        return True
