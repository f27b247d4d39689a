"""What TLS and authorization of the endpoints take; imported by processes that have them on."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError
from enum import Enum
from typing import Final

from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.errors import ApiError
from localvolume.kube.reviews import may_get, owner_of
from localvolume.process.guard import Guard, Secured

log = logging.getLogger(__name__)


CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"

_Stamp = tuple[tuple[int, int, int, int] | None, ...]


class CertificateInvalid(OSError):
    """There is no certificate with its key in the directory: which file, and why."""


class Certificate:
    """The pair in a directory. Raises CertificateInvalid where there is none to begin with.

    Both files are looked at for each client, so a new pair serves the next one; nothing is watched,
    and a link that is exchanged is as good as a file. A new pair that does not load leaves the old
    one in use, and the log says so once.
    """

    def __init__(self, directory: str) -> None:
        self._directory: Final = directory
        self._lock: Final = threading.Lock()
        # Before they are read: what changes meanwhile is read once more.
        self._seen = self._stamp()
        self._context = self._read()

    def accept(self, client: socket.socket) -> ssl.SSLSocket:
        """The same connection with TLS, after the handshake; the caller closes both sockets.

        The client's timeout is for all of the handshake. Raises OSError.
        """
        context = self._current()
        # A socket of its own, as the other goes on to be good for ending the connection.
        own = client.dup()
        try:
            secured = context.wrap_socket(own, server_side=True, do_handshake_on_connect=False)
        except BaseException:
            own.close()
            raise
        try:
            secured.do_handshake()
        except BaseException:
            secured.close()
            raise
        return secured

    def _current(self) -> ssl.SSLContext:
        with self._lock:
            stamp = self._stamp()
            if stamp != self._seen:
                self._seen = stamp
                try:
                    self._context = self._read()
                except CertificateInvalid as error:
                    log.error("%s; the certificate of before stays in use", error)  # noqa: TRY400
                else:
                    log.info("%s: a new certificate is in use", self._directory)
            return self._context

    def _paths(self) -> tuple[str, str]:
        return os.path.join(self._directory, CERTIFICATE), os.path.join(self._directory, KEY)

    def _stamp(self) -> _Stamp:
        """Which files these are; None for what cannot be seen."""
        return tuple(_stamp_of(path) for path in self._paths())

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # Of TLS 1.2, OpenSSL would keep up to 20,480 sessions; of 1.3 it keeps none.
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0
        try:
            for path in self._paths():
                # OpenSSL's errors do not name the file.
                with open(path, "rb"):
                    pass
            # The password keeps OpenSSL from asking for one at the terminal.
            context.load_cert_chain(*self._paths(), password="")
        except ssl.SSLError as error:
            where = f"{self._directory}: {CERTIFICATE} and {KEY}"
            raise CertificateInvalid(f"{where} are no certificate with its key: {error}") from error
        except (OSError, ValueError) as error:
            raise CertificateInvalid(f"the certificate cannot be read: {error}") from error
        return context


def _stamp_of(path: str) -> tuple[int, int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


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


REVIEWS: Final = 2
"""How many questions about readers may be in flight."""


@contextlib.asynccontextmanager
async def guarding(secured: Secured, path: str) -> AsyncIterator[Guard]:
    """The guard of the page at `path`, for as long as the block.

    Raises CertificateInvalid, and AccessInvalid.
    """
    certificate = Certificate(secured.certificate)
    # A client of its own: whoever knocks with false tokens delays nothing that the node needs.
    async with Client(
        find_access(secured.kubeconfig),
        user_agent="localvolume-metrics",
        timeout=REVIEW_SECONDS,
        concurrency=REVIEWS,
        on_request=secured.on_request,
    ) as client:
        readers = Readers(client, path)

        def refusal(authorization: str) -> str:
            verdict = readers.judge(authorization)
            return "" if verdict is Verdict.MAY else verdict.value

        yield Guard(certificate.accept, refusal)
