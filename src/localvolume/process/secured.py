"""TLS and authorization of the endpoints; imported only by processes that have them on."""

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
    """The directory has no certificate with its key; the message says which file, and why."""


class Certificate:
    """The certificate and key in a directory. Raises CertificateInvalid if the first pair is bad.

    Both files are checked for each client, so a new pair serves the next one. Nothing is watched,
    so a symbolic link may be switched as well. If a new pair does not load, the old one stays in
    use, and the log says so once.
    """

    def __init__(self, directory: str) -> None:
        self._directory: Final = directory
        self._lock: Final = threading.Lock()
        # Taken before the files are read, so that what changes meanwhile is read again.
        self._seen = self._stamp()
        self._complained: _Stamp = ()
        self._context = self._read()

    def accept(self, client: socket.socket) -> ssl.SSLSocket:
        """Do the handshake; return the connection with TLS. The caller closes both sockets.

        The client's timeout covers the whole handshake. Raises OSError.
        """
        context = self._current()
        # A duplicate, so that the original can still be used to end the connection.
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
                try:
                    self._context = self._read()
                except CertificateInvalid as error:
                    # Read again for the next client: it may be that no descriptor was free.
                    if stamp != self._complained:
                        self._complained = stamp
                        text = "%s; the previous certificate stays in use"
                        log.error(text, error)  # noqa: TRY400
                else:
                    self._seen = stamp
                    log.info("%s: a new certificate is in use", self._directory)
            return self._context

    def _paths(self) -> tuple[str, str]:
        return os.path.join(self._directory, CERTIFICATE), os.path.join(self._directory, KEY)

    def _stamp(self) -> _Stamp:
        """What identifies both files and their content; None for one that stat fails on."""
        return tuple(_stamp_of(path) for path in self._paths())

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # OpenSSL would keep up to 20,480 sessions of TLS 1.2; it keeps none of TLS 1.3.
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
"""How long an answer counts, as in Kubernetes' own components. A revoked right lasts as long."""

ANSWERS: Final = 64
"""How many answers are kept. If more clients ask, the oldest answer is dropped."""

REVIEW_SECONDS: Final = 3.0
"""How long the API server may take for each of the two questions."""

_WAIT_SECONDS: Final = 2 * REVIEW_SECONDS + 2.0


class Verdict(Enum):
    """Each verdict, with its HTTP status."""

    MAY = "200 OK"
    UNKNOWN = "401 Unauthorized"
    MAY_NOT = "403 Forbidden"
    NOT_ASKED = "503 Service Unavailable"


class Answers:
    """Recent answers. Times are in seconds of a monotonic clock."""

    def __init__(self, seconds: float = ANSWER_SECONDS, most: int = ANSWERS) -> None:
        self._seconds: Final = seconds
        self._most: Final = most
        self._known: Final[dict[bytes, tuple[Verdict, float]]] = {}

    def get(self, token: str, now: float) -> Verdict | None:
        """The answer that still counts; None if the API server must be asked."""
        verdict, until = self._known.get(_digest(token), (None, 0.0))
        return verdict if now < until else None

    def put(self, token: str, verdict: Verdict, now: float) -> None:
        digest = _digest(token)
        self._known.pop(digest, None)
        if len(self._known) >= self._most:
            del self._known[next(iter(self._known))]
        self._known[digest] = verdict, now + self._seconds


class Readers:
    """Judges who may read the page at `path`. Must be made in the event loop of `client`."""

    def __init__(self, client: Client, path: str) -> None:
        self._client: Final = client
        self._path: Final = path
        self._loop: Final = asyncio.get_running_loop()
        self._lock: Final = threading.Lock()
        self._answers: Final = Answers()
        self._fails = False

    def judge(self, authorization: str) -> Verdict:
        """Judge a request by its Authorization header, "" for none.

        Waits for the API server, so it must not be called in the loop's own thread.
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
            # Logged when the failures begin and when they end, not with each scrape.
            changed, self._fails = fails is not self._fails, fails
            if not fails:
                self._answers.put(token, verdict, time.monotonic())
        if changed and fails:
            log.error(
                "nobody may read the metrics, because the API server cannot be asked who may: %s",
                why,
            )
        elif changed:
            log.info("the API server can be asked again who may read the metrics")
        return verdict

    def _ask(self, token: str) -> tuple[Verdict, str]:
        """The verdict, and why the API server gave none, or ""."""
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
    """Stands in for the token, so that no token stays in memory longer than its request."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


REVIEWS: Final = 2
"""How many questions about readers may be in flight."""


@contextlib.asynccontextmanager
async def guarding(secured: Secured, path: str) -> AsyncIterator[Guard]:
    """Provide the guard of the page at `path` within the block.

    Raises CertificateInvalid, and AccessInvalid.
    """
    certificate = Certificate(secured.certificate)
    # A client of its own: requests with false tokens must not delay what the node needs.
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
