"""An answer to `why`: the verdict first, then the facts it rests on; as text and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from localvolume.cli.rows import LONGEST, printable, shortened
from localvolume.cli.seeing.kinds import SeenEvent
from localvolume.cli.seeing.said import by_whom, event_shape
from localvolume.cli.seeing.words import age


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`code` is a stable word for programs, `text` one sentence, `then` what happens next, and
    `who` must act for that to happen ("nobody": it goes on by itself)."""

    code: str
    text: str
    then: str
    who: str = "nobody"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """`chain` has pairs of a name and what is known of it; `events` are newest first."""

    about: str
    verdict: Verdict
    chain: Sequence[tuple[str, str]] = ()
    events: Sequence[SeenEvent] = field(default=())

    def shape(self) -> dict[str, Any]:
        return {
            "about": self.about,
            "code": self.verdict.code,
            "reason": self.verdict.text,
            "next": self.verdict.then,
            "who": self.verdict.who,
            "facts": [{"name": name, "value": value} for name, value in self.chain],
            "events": [
                {**event_shape(event), "about": event.involved_object.kind} for event in self.events
            ],
        }

    def text(self, now: float) -> str:
        width = max((len(name) for name, _ in self.chain), default=0)
        lines = [f"{self.about}: {_shown(self.verdict.text)}", ""]
        lines += [_hanging("Next", self.verdict.then, 4), _hanging("Who", self.verdict.who, 4), ""]
        lines += [_hanging(name, value, width) for name, value in self.chain]
        if self.events:
            lines += ["", "Events, newest first:"]
        for event in self.events:
            times = f" x{event.times}" if event.times > 1 else ""
            whom = by_whom(event_shape(event))
            head = f"{age(now, event.seen)} ago{times}, {event.reason}, {whom}"
            lines.append(_hanging(head, event.message, 0))
        return "\n".join(lines)


def _shown(text: str) -> str:
    return printable(shortened(text, LONGEST))


def _hanging(name: str, value: str, width: int) -> str:
    head = f"  {printable(name):<{width}}  "
    return (
        textwrap.fill(
            _shown(value),
            width=100,
            initial_indent=head,
            subsequent_indent=" " * min(len(head), 30),
            break_long_words=False,
            break_on_hyphens=False,
        )
        or head.rstrip()
    )
