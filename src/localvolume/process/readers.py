"""Who may read the metrics: who may `get` their path, as the API server says of a bearer token."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
import time
from concurrent.futures import CancelledError
from enum import Enum
from typing import Final

from localvolume.kube.client import Client
from localvolume.kube.errors import ApiError
from localvolume.kube.reviews import may_get, owner_of

log = logging.getLogger(__name__)

ANSWER_SECONDS: Final = 10.0
"""How long an answer counts, as in Kubernetes' own components: so long a right outlives its end."""

ANSWERS: Final = 64
"""How many answers are kept. Where more ask, the oldest is asked for anew."""

REVIEW_SECONDS: Final = 3.0
"""How long the API server may take for each of the two questions."""

_WAIT_SECONDS: Final = 2 * REVIEW_SECONDS + 2.0


class Verdict(Enum):
    """Each with the status that tells it."""

    MAY = "200 OK"
    UNKNOWN = "401 Unauthorized"
    MAY_NOT = "403 Forbidden"
    NOT_ASKED = "503 Service Unavailable"


class Answers:
    """What was answered a short while ago. Times are in seconds of a clock that never jumps."""

    def __init__(self, seconds: float = ANSWER_SECONDS, most: int = ANSWERS) -> None:
        self._seconds: Final = seconds
        self._most: Final = most
        self._known: Final[dict[bytes, tuple[Verdict, float]]] = {}

    def get(self, token: str, now: float) -> Verdict | None:
        """What still counts; None where it is to be asked."""
        verdict, until = self._known.get(_digest(token), (None, 0.0))
        return verdict if now < until else None

    def put(self, token: str, verdict: Verdict, now: float) -> None:
        digest = _digest(token)
        self._known.pop(digest, None)
        if len(self._known) >= self._most:
            del self._known[next(iter(self._known))]
        self._known[digest] = verdict, now + self._seconds


class Readers:
    """Judges whoever asks for the page at `path`. Made in the event loop that `client` is of."""

    def __init__(self, client: Client, path: str) -> None:
        self._client: Final = client
        self._path: Final = path
        self._loop: Final = asyncio.get_running_loop()
        self._lock: Final = threading.Lock()
        self._answers: Final = Answers()
        self._fails = False

    def judge(self, authorization: str) -> Verdict:
        """What a request's Authorization header, "" for none, is good for.

        Called in any thread but the loop's, where it waits for the API server.
        """
        words = authorization.split()
        if len(words) != 2 or words[0].lower() != "bearer":
            return Verdict.UNKNOWN
        token = words[1]
        with self._lock:
            known = self._answers.get(token, time.monotonic())
        if known is not None:
            return known
        verdict, why = self._ask(token)
        with self._lock:
            fails = bool(why)
            # Told when it begins and when it ends, not with each scrape.
            changed, self._fails = fails is not self._fails, fails
            if not fails:
                self._answers.put(token, verdict, time.monotonic())
        if changed and fails:
            log.error("nobody may read the metrics, as the API server cannot be asked who: %s", why)
        elif changed:
            log.info("the API server answers again who may read the metrics")
        return verdict

    def _ask(self, token: str) -> tuple[Verdict, str]:
        """The verdict, and why there is none."""
        review = self._review(token)
        try:
            answer = asyncio.run_coroutine_threadsafe(review, self._loop)
        except RuntimeError as error:
            review.close()
            return Verdict.NOT_ASKED, f"the process is ending: {error}"
        try:
            return answer.result(_WAIT_SECONDS), ""
        except ApiError as error:
            return Verdict.NOT_ASKED, str(error)
        except TimeoutError:
            answer.cancel()
            return Verdict.NOT_ASKED, f"no answer within {_WAIT_SECONDS:g} s"
        except (CancelledError, RuntimeError) as error:
            return Verdict.NOT_ASKED, f"the process is ending: {error}"

    async def _review(self, token: str) -> Verdict:
        user = await owner_of(self._client, token)
        if user is None:
            return Verdict.UNKNOWN
        allowed = await may_get(self._client, user, self._path)
        return Verdict.MAY if allowed else Verdict.MAY_NOT


def _digest(token: str) -> bytes:
    """In its place: no token stays in memory for longer than its request."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
