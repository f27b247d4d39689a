"""What can go wrong between us and the API server, named by what the caller must do."""

from __future__ import annotations

import re
from typing import Final

import msgspec

__all__ = [
    "AccessInvalid",
    "AlreadyThere",
    "ApiError",
    "ListAgain",
    "LookAgain",
    "NotThere",
    "TellTheAdministrator",
    "TryAgainLater",
    "error_for_answer",
    "error_for_status",
    "without_credentials",
]


_CREDENTIALS: Final = re.compile(r"(?<=://)[^/?#\s]*@")


def without_credentials(text: str) -> str:
    """The text, and no name or password within the URLs in it."""
    return _CREDENTIALS.sub("", text)


class AccessInvalid(Exception):
    """There is no usable access to the API server. The message names file, field and reason."""


LONGEST_WAIT_SECONDS: Final = 120.0
"""The longest wait a server may ask for. Longer ones are cut to this: they may be a mistake."""


class ApiError(Exception):
    """A request failed.

    `status` is the HTTP status (0: there was no answer), `reason` the machine-readable reason of
    the Kubernetes Status object (or a word of ours), `message` the text for people. `after` is how
    many seconds the server asked us to wait, at most LONGEST_WAIT_SECONDS; None if it did not say.
    """

    after: float | None = None
    server: str = ""
    """Whom the request was for, without credentials; set when the error leaves its client."""
    source: str = ""
    """Where our access to that server was read: a kubeconfig and its context, for messages."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status: Final = status
        self.reason: Final = reason
        self.message: Final = message

    def __str__(self) -> str:
        what = " ".join(part for part in (str(self.status or ""), self.reason) if part)
        return f"{self.message} ({what})" if what else self.message


class TryAgainLater(ApiError):
    """The server is absent, late, overloaded or unwell: 429, 5xx, timeouts, refused connections."""

    def __init__(
        self, message: str, *, status: int = 0, reason: str = "", after: float | None = None
    ) -> None:
        super().__init__(message, status=status, reason=reason)
        self.after = None if after is None else min(after, LONGEST_WAIT_SECONDS)


class LookAgain(ApiError):
    """409 Conflict: a precondition, a test or a resourceVersion no longer holds.

    Read the object again and decide again; nothing was changed.
    """


class AlreadyThere(ApiError):
    """409 AlreadyExists: an object of that name exists."""


class NotThere(ApiError):
    """404: no such object (or no such kind on this server)."""


class ListAgain(ApiError):
    """410 Expired or Gone: a resourceVersion or continue token is too old; list from the start."""


class TellTheAdministrator(ApiError):
    """Retrying the same request cannot help.

    400, 401 (after one renewal of the credentials), 403, 405, 413, 415, 422, a certificate that
    does not verify, or an answer that is not from a Kubernetes API server.
    """


class _Cause(msgspec.Struct, gc=False):
    reason: str | None = None
    message: str | None = None


class _Details(msgspec.Struct, gc=False, rename="camel"):
    kind: str | None = None
    name: str | None = None
    causes: list[_Cause] | None = None
    retry_after_seconds: float | None = None


class Status(msgspec.Struct, gc=False):
    """The fields we use of meta/v1 Status, the body of every error answer."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: _Details | None = None


_decode_status = msgspec.json.Decoder(Status).decode

_ABSENT = {404: NotThere, 410: ListAgain}


def error_for_answer(
    status: int, body: bytes, *, retry_after: str | None = None, json_patch: bool = False
) -> ApiError:
    """The error for an HTTP answer of 300 or more.

    `retry_after` is the header as received; only seconds, as API servers send, are understood.
    `json_patch`: the request was a JSON patch; see `error_for_status`.
    """
    try:
        parsed = _decode_status(body)
    except msgspec.DecodeError:
        # A proxy's error page, or a truncated answer: all that we can report is its beginning.
        text = body[:200].decode("utf-8", "replace").strip()
        parsed = Status(message=text or f"HTTP status {status} without a message")
    seconds = _seconds(retry_after)
    return error_for_status(parsed, status=status, retry_after=seconds, json_patch=json_patch)


def error_for_status(
    body: Status, *, status: int = 0, retry_after: float | None = None, json_patch: bool = False
) -> ApiError:
    """The error for a Status object: an answer's body, or the object of a watch's ERROR event.

    API servers answer a JSON patch that does not apply (a `test` fails, a path is missing) with a
    bare 422: that is a conflict, and comes back as LookAgain. If an object fails validation, the
    details name it (seen with kube-apiserver 1.34).
    """
    status = status or body.code or 0
    reason = body.reason or ""
    message = body.message or f"HTTP status {status} without a message"
    details = body.details
    causes = (details.causes if details else None) or []
    told = [cause.message for cause in causes if cause.message and cause.message not in message]
    if told:
        message = f"{message}: {'; '.join(told)}"
    if json_patch and status == 422 and not (details and (details.kind or details.name)):
        return LookAgain(message, status=status, reason=reason)
    if status == 409:
        kind = AlreadyThere if reason == "AlreadyExists" else LookAgain
        return kind(message, status=status, reason=reason)
    if status in _ABSENT:
        return _ABSENT[status](message, status=status, reason=reason)
    if status in (408, 429) or status >= 500 or status == 0:
        if any(cause.reason == "ResourceVersionTooLarge" for cause in causes):
            reason = "ResourceVersionTooLarge"
        after = retry_after
        if after is None and details and details.retry_after_seconds:
            after = details.retry_after_seconds
        return TryAgainLater(message, status=status, reason=reason, after=after)
    return TellTheAdministrator(message, status=status, reason=reason)


def _seconds(header: str | None) -> float | None:
    try:
        seconds = float(header) if header else None
    except ValueError:
        return None
    # "nan" and negative numbers parse too, and would make a wait endless or nonsense.
    return seconds if seconds is not None and 0 <= seconds < float("inf") else None
