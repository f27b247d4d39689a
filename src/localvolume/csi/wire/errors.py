"""Why a call fails, as gRPC says it: each error is named by its status."""

from __future__ import annotations

from typing import ClassVar, Final

from grpclib.const import Status

from localvolume.backends.model import BackendFailed
from localvolume.dynamic import calls
from localvolume.host.process.workers import Hung


class CallFailed(Exception):
    """The call is answered with this status; the text says why, to whoever asked for a volume."""

    status: ClassVar[Status]


class InvalidArgument(CallFailed):
    """It can never be served as it is."""

    status = Status.INVALID_ARGUMENT


class NotFound(CallFailed):
    """There is no such volume, or not at that path."""

    status = Status.NOT_FOUND


class AlreadyExists(CallFailed):
    """The name or the path is taken by something that differs from what is asked for."""

    status = Status.ALREADY_EXISTS


class FailedPrecondition(CallFailed):
    """Not in the state that the volume is in: change that first."""

    status = Status.FAILED_PRECONDITION


class ResourceExhausted(CallFailed):
    """This node has too little room: another may have enough."""

    status = Status.RESOURCE_EXHAUSTED


class OutOfRange(CallFailed):
    """The sizes that it asks for cannot be had."""

    status = Status.OUT_OF_RANGE


class Aborted(CallFailed):
    """Another call for the same volume is under way: repeat this one later."""

    status = Status.ABORTED


class Unavailable(CallFailed):
    """Nothing is wrong with the call: repeat it."""

    status = Status.UNAVAILABLE


class Unimplemented(CallFailed):
    """This driver does not serve the call."""

    status = Status.UNIMPLEMENTED


_OF_REFUSED: Final[dict[type[calls.Refused], type[CallFailed]]] = {
    calls.Wrong: InvalidArgument,
    calls.OutOfRange: OutOfRange,
    calls.Differs: AlreadyExists,
    calls.Unknown: NotFound,
    calls.InUse: FailedPrecondition,
    calls.Apart: FailedPrecondition,
    calls.NoRoom: ResourceExhausted,
    calls.NotTold: FailedPrecondition,
    calls.NotNow: Unavailable,
}

EXPECTED: Final = (CallFailed, calls.Refused, BackendFailed, Hung, OSError)
"""What a call may raise without a mistake of ours."""


def failure_of(error: BaseException) -> CallFailed:
    """What the caller is told of an error.

    Whatever it is, the call may be repeated unless the error is known to be final. So an unexpected
    one is UNAVAILABLE: callers take INTERNAL and UNKNOWN to mean that nothing was made, and a
    volume would be left behind.
    """
    if isinstance(error, CallFailed):
        made: type[CallFailed] = type(error)
    else:
        made = next(
            (failed for refused, failed in _OF_REFUSED.items() if isinstance(error, refused)),
            Unavailable,
        )
    text = str(error) or type(error).__name__
    # A path that is no UTF-8 has characters that gRPC cannot send.
    return made(text.encode(errors="backslashreplace").decode())
