"""What an agent's Events say of its Node, for as long as that is so.

The API server forgets an Event after an hour. So what stands is said again each hour, and that it
is over is said once: `localvolume status` reads both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from localvolume.kube.correlate import EventType

AGAIN_SECONDS: Final = 3600.0

Say = Callable[[EventType, str, str], object]
"""Sends an Event about the Node: type, reason, message."""


class Standing:
    """What stands of one subject: Warnings with `reason`, until a Normal Event with `over`."""

    def __init__(self, say: Say, reason: str, over: str) -> None:
        self._say: Final = say
        self._reason: Final = reason
        self._over: Final = over
        self._texts: Sequence[str] = ()
        self._alarm: asyncio.TimerHandle | None = None

    def stands(self, *texts: str) -> Sequence[str]:
        """These stand now, and no others: says those that are new, and returns them."""
        news = [text for text in texts if text not in self._texts]
        self._texts = texts
        self._tell(news)
        if self._alarm is None:
            self._alarm = asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._again)
        return news

    def over(self, text: str) -> bool:
        """Nothing stands any more. Says so if something did, and returns whether it did."""
        stood = bool(self._texts)
        self.forget()
        if stood:
            self._say("Normal", self._over, text)
        return stood

    def forget(self) -> None:
        """Nothing is said of it any more, not even that it is over."""
        self._texts = ()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _again(self) -> None:
        self._alarm = None
        self._tell(self._texts)
        self.stands(*self._texts)

    def _tell(self, texts: Sequence[str]) -> None:
        for text in texts:
            self._say("Warning", self._reason, text)
