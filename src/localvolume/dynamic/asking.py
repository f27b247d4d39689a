"""Asks the API server about something again and again, for as long as a claim waits for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from localvolume.kube.backoff import Backoff
from localvolume.kube.errors import ApiError

log = logging.getLogger(__name__)

FIRST_WAIT: Final = 1.0
LONGEST_WAIT: Final = 60.0
"""How long until the API server is asked again."""

Told = TypeVar("Told")


@dataclass(frozen=True, slots=True)
class Question(Generic[Told]):
    """`what` it is about, and `ask`, which raises ApiError where the answer may be had soon."""

    what: str
    ask: Callable[[], Awaitable[Told]]


class Asking(Generic[Told]):
    """Asks each question until nobody waits for it; `wake` is called when an answer is news."""

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        self._told: dict[str, Told] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    def look(self, questions: Mapping[str, Question[Told]]) -> Mapping[str, Told]:
        """The answers to these so far, by their keys; begins to ask the rest, and ends others."""
        over = {key for key, task in self._asking.items() if task.done()}
        for key in over | (self._asking.keys() - questions.keys()):
            self._asking.pop(key).cancel()
            self._told.pop(key, None)
        for key in questions.keys() - self._asking.keys():
            self._asking[key] = asyncio.create_task(self._keep_asking(key, questions[key]))
        return dict(self._told)

    async def stop(self) -> None:
        """Ask no more."""
        tasks = list(self._asking.values())
        self._asking.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_asking(self, key: str, question: Question[Told]) -> None:
        backoff = Backoff(FIRST_WAIT, LONGEST_WAIT, spread=0.5)
        while True:
            try:
                told = await question.ask()
            except ApiError as error:
                # An unavailable API server says nothing of what it has.
                log.warning("%s: %s", question.what, error)
                await asyncio.sleep(backoff.next(error.after))
                continue
            if self._told.get(key) != told:
                self._told[key] = told
                self._wake()
            await asyncio.sleep(backoff.next())
