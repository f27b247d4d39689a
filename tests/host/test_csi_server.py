"""The server of CSI calls on real sockets: who gets which answer, and whose socket it is."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import stat
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from grpclib.client import Channel, UnaryStreamMethod
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from localvolume.backends.model import BackendFailed
from localvolume.csi.wire import messages
from localvolume.csi.wire.errors import CallFailed
from localvolume.csi.wire.server import Handle, Server
from localvolume.dynamic import calls
from localvolume.host.process.workers import Hung
from tests.host.support_csi_wire import RPCS, Counts, call, call_on, serving, status


class Work:
    """Handlers that take note of what is asked, and end when they are told to."""

    def __init__(self) -> None:
        self.begun: asyncio.Queue[str] = asyncio.Queue()
        self.go = asyncio.Event()
        self.made: list[str] = []

    async def create(self, request: Any) -> Any:
        self.begun.put_nowait(request.name)
        await self.go.wait()
        self.made.append(request.name)
        return messages.CreateVolumeResponse(volume=messages.Volume(volume_id=request.name))

    async def delete(self, request: Any) -> Any:
        self.made.remove(request.volume_id)
        return messages.DeleteVolumeResponse()

    @property
    def handlers(self) -> dict[str, Handle]:
        return {"CreateVolume": self.create, "DeleteVolume": self.delete}


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as short:  # a socket's path must be
        yield Path(short) / "csi.sock"


def raising(error: Exception) -> dict[str, Handle]:
    async def handle(_request: Any) -> Any:
        raise error

    return {"DeleteVolume": handle}


async def test_every_rpc_without_a_handler_is_unimplemented(path: Path) -> None:
    async with serving(path, {}):
        for rpc in RPCS:
            assert await status(path, rpc) == (
                Status.UNIMPLEMENTED,
                "this driver does not serve it",
            )


async def test_equal_calls_are_joined_and_another_is_aborted(path: Path) -> None:
    work, counts = Work(), Counts()
    async with serving(path, work.handlers, counts):
        first = asyncio.create_task(call(path, "CreateVolume", name="v", parameters={"a": "b"}))
        assert await work.begun.get() == "v"
        again = asyncio.create_task(call(path, "CreateVolume", name="v", parameters={"a": "b"}))
        assert (await status(path, "CreateVolume", name="v"))[0] is Status.ABORTED
        code, text = await status(path, "DeleteVolume", volume_id="v")
        assert code is Status.ABORTED
        assert text == "v: CreateVolume is under way; repeat DeleteVolume when that has ended"
        other = asyncio.create_task(call(path, "CreateVolume", name="w"))
        assert await work.begun.get() == "w"
        work.go.set()
        assert {one.volume.volume_id for one in await asyncio.gather(first, again, other)} == {
            "v",
            "w",
        }
        assert sorted(work.made) == ["v", "w"]
        await call(path, "DeleteVolume", volume_id="v")
        assert work.made == ["w"]
    assert sorted(counts.seen) == [
        ("CreateVolume", "Aborted"),
        ("CreateVolume", "OK"),
        ("CreateVolume", "OK"),
        ("DeleteVolume", "Aborted"),
        ("DeleteVolume", "OK"),
    ]


async def test_work_goes_on_when_its_caller_gives_up(path: Path) -> None:
    """The repeated call joins it, or gets what it made."""
    work = Work()
    async with serving(path, work.handlers):
        while work.begun.empty():  # a slow machine may not even begin before the deadline
            with pytest.raises((TimeoutError, GRPCError)) as gave_up:
                await call(path, "CreateVolume", timeout=0.2, name="v")
            # The server is told of the deadline in whole milliseconds, and may be the first to see
            # that it is over.
            if isinstance(gave_up.value, GRPCError):
                assert gave_up.value.status is Status.DEADLINE_EXCEEDED
        assert await work.begun.get() == "v"
        again = asyncio.create_task(call(path, "CreateVolume", name="v"))
        gone = asyncio.create_task(call(path, "CreateVolume", name="w"))
        assert await work.begun.get() == "w"
        gone.cancel()
        work.go.set()
        assert (await again).volume.volume_id == "v"
        assert (await call(path, "CreateVolume", name="w")).volume.volume_id == "w"
    assert work.made[:2] in (["v", "w"], ["w", "v"])
    assert work.made.count("v") == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (calls.Wrong("a"), Status.INVALID_ARGUMENT),
        (calls.OutOfRange("a"), Status.OUT_OF_RANGE),
        (calls.Differs("a"), Status.ALREADY_EXISTS),
        (calls.Unknown("a"), Status.NOT_FOUND),
        (calls.InUse("a"), Status.FAILED_PRECONDITION),
        (calls.NoRoom("a"), Status.RESOURCE_EXHAUSTED),
        (calls.NotNow("a"), Status.UNAVAILABLE),
        (BackendFailed("a"), Status.UNAVAILABLE),
        (Hung("a", 1.0, "a"), Status.UNAVAILABLE),
        (OSError("a"), Status.UNAVAILABLE),
        (RuntimeError("a"), Status.UNAVAILABLE),
        *((one("a"), one.status) for one in CallFailed.__subclasses__()),
    ],
    ids=repr,
)
async def test_each_error_has_its_status(path: Path, error: Exception, code: Status) -> None:
    async with serving(path, raising(error)):
        assert await status(path, "DeleteVolume", volume_id="v") == (code, "a")


async def test_texts_are_never_empty_and_may_be_anything(path: Path) -> None:
    for error, text in [
        (RuntimeError(), "RuntimeError"),
        (RuntimeError("über\nzwei: /a\udcff"), "über\nzwei: /a\\udcff"),
    ]:
        async with serving(path, raising(error)):
            assert await status(path, "DeleteVolume") == (Status.UNAVAILABLE, text)


async def test_a_wrong_answer_is_a_mistake_of_ours(path: Path) -> None:
    async def handle(_request: Any) -> Any:
        return messages.ProbeResponse()

    async with serving(path, {"DeleteVolume": handle}):
        assert await status(path, "DeleteVolume") == (
            Status.UNAVAILABLE,
            "answered with a ProbeResponse",
        )


async def test_failures_are_logged_once_and_tell_no_secret(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with serving(path, raising(calls.NoRoom("too little room"))):
        await status(path, "DeleteVolume", volume_id="v", secrets={"key": "hush"})
    # asyncio may tell of what an earlier test left behind.
    ours = [one for one in caplog.records if one.name.startswith("localvolume.")]
    (said,) = [one for one in ours if one.levelno >= logging.WARNING]
    assert said.getMessage() == "DeleteVolume v: ResourceExhausted: too little room"
    assert "hush" not in caplog.text


async def test_calls_under_way_are_answered_before_the_server_ends(path: Path) -> None:
    work = Work()
    async with serving(path, work.handlers) as server:
        waits = asyncio.create_task(call(path, "CreateVolume", name="v"))
        await work.begun.get()
        ends = asyncio.create_task(server.close())
        while path.exists():
            await asyncio.sleep(0)
        work.go.set()
        assert (await waits).volume.volume_id == "v"
        await ends


# --- the socket ----------------------------------------------------------------------------------


async def ready(_request: Any) -> Any:
    return messages.ProbeResponse(ready=messages.BoolValue(value=True))


async def test_a_stale_socket_is_replaced_and_nobody_else_may_connect(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    async with serving(path, {"Probe": ready}):
        assert (await call(path, "Probe")).ready.value
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert [one.name for one in path.parent.iterdir()] == [path.name]
    assert not path.exists()


async def test_what_is_no_socket_is_left_alone(path: Path) -> None:
    path.write_text("mine")
    with pytest.raises(OSError, match="is no socket"):
        await Server(str(path), {}, Counts()).ensure()
    assert path.read_text() == "mine"


async def test_connections_end_with_the_server(path: Path) -> None:
    channel = Channel(path=str(path))
    try:
        async with serving(path, {"Probe": ready}):
            assert (await call_on(channel, "Probe")).ready.value
        with pytest.raises(FileNotFoundError):  # it has to connect anew
            await call_on(channel, "Probe")
    finally:
        channel.close()


async def test_a_socket_that_vanished_is_made_again(path: Path) -> None:
    async with serving(path, {"Probe": ready}) as server:
        path.unlink()
        assert not server.is_ours()
        await server.ensure()
        assert server.is_ours()
        assert (await call(path, "Probe")).ready.value


async def test_the_newer_server_has_the_socket_until_it_is_gone(path: Path) -> None:
    async def older(_request: Any) -> Any:
        return messages.ProbeResponse()

    async with serving(path, {"Probe": older}) as old:
        async with serving(path, {"Probe": ready}):
            await old.ensure()
            await old.renew()
            assert not old.is_ours()
            assert (await call(path, "Probe")).ready.value
        assert not path.exists()
        await old.ensure()
        assert not (await call(path, "Probe")).ready.value
        # Another was killed: its socket stays, and nobody answers there.
        with socket.socket(socket.AF_UNIX) as killed:
            killed.bind(f"{path}.new")
        os.rename(f"{path}.new", path)
        await old.ensure()
        assert not (await call(path, "Probe")).ready.value


async def test_an_older_server_does_not_remove_the_newer_ones_socket(path: Path) -> None:
    old = Server(str(path), {}, Counts())
    await old.ensure()
    async with serving(path, {"Probe": ready}):
        await old.close()
        assert (await call(path, "Probe")).ready.value


class Streams:
    """Answers of three messages, of which the second waits until it is told to go."""

    def __init__(self, error: Exception | None = None) -> None:
        self.go = asyncio.Event()
        self.error = error
        self.ended = asyncio.Event()

    async def allocated(self, request: Any) -> AsyncIterator[Any]:
        if not request.snapshot_id:
            raise calls.Wrong("snapshot_id is missing")
        return self._messages()

    async def _messages(self) -> AsyncIterator[Any]:
        try:
            yield messages.GetMetadataAllocatedResponse(volume_capacity_bytes=1)
            await self.go.wait()
            yield messages.GetMetadataAllocatedResponse(volume_capacity_bytes=2)
            if self.error is not None:
                raise self.error
            yield messages.GetMetadataAllocatedResponse(volume_capacity_bytes=3)
        finally:
            self.ended.set()

    @property
    def handlers(self) -> dict[str, Handle]:
        return {"GetMetadataAllocated": self.allocated}


@contextlib.asynccontextmanager
async def streaming(path: Path, **fields: Any) -> AsyncIterator[Any]:
    """A stream that is asked for, and read message by message."""
    one = RPCS["GetMetadataAllocated"]
    request = messages.GetMetadataAllocatedRequest(**fields)
    channel = Channel(path=str(path))
    method = UnaryStreamMethod[Any, Any](
        channel, one.path, type(request), messages.GetMetadataAllocatedResponse
    )
    try:
        async with method.open() as stream:
            await stream.send_message(request, end=True)
            yield stream
    finally:
        channel.close()


async def test_a_stream_has_all_messages_and_is_counted_once(path: Path) -> None:
    streams, counts = Streams(), Counts()
    async with serving(path, streams.handlers, counts):
        async with streaming(path, snapshot_id="s") as stream:
            # Each is sent when it is there, not in the end.
            assert (await stream.recv_message()).volume_capacity_bytes == 1
            assert counts.seen == []
            streams.go.set()
            assert [one.volume_capacity_bytes async for one in stream] == [2, 3]
        code, text = await status(path, "GetMetadataAllocated")
        assert (code, text) == (Status.INVALID_ARGUMENT, "snapshot_id is missing")
    assert counts.seen == [
        ("GetMetadataAllocated", "OK"),
        ("GetMetadataAllocated", "InvalidArgument"),
    ]


async def test_a_stream_that_fails_half_way_does_not_end_well(path: Path) -> None:
    streams, counts = Streams(calls.Unknown("it is gone")), Counts()
    streams.go.set()
    async with serving(path, streams.handlers, counts):
        with pytest.raises(GRPCError) as caught:
            await call(path, "GetMetadataAllocated", snapshot_id="s")
    assert (caught.value.status, caught.value.message) == (Status.NOT_FOUND, "it is gone")
    assert counts.seen == [("GetMetadataAllocated", "NotFound")]


async def test_a_caller_that_gives_up_ends_its_stream(path: Path) -> None:
    streams, counts = Streams(), Counts()
    async with serving(path, streams.handlers, counts):
        async with streaming(path, snapshot_id="s") as stream:
            await stream.recv_message()
            await stream.cancel()
        await streams.ended.wait()
        while not counts.seen:
            await asyncio.sleep(0.01)
    assert counts.seen == [("GetMetadataAllocated", "Canceled")]


async def test_a_stream_ends_with_its_server_and_says_so(path: Path) -> None:
    streams, counts = Streams(), Counts()
    server = Server(str(path), streams.handlers, counts)
    await server.ensure()

    async def read() -> Status:
        try:
            async with streaming(path, snapshot_id="s") as stream:
                await stream.recv_message()
                begun.set()
                assert await stream.recv_message() is None
        except GRPCError as error:
            return error.status
        return Status.OK

    begun = asyncio.Event()
    reading = asyncio.create_task(read())
    await begun.wait()
    closing = asyncio.create_task(server.close())
    while path.exists():
        await asyncio.sleep(0.01)
    streams.go.set()
    assert await reading is Status.UNAVAILABLE
    await closing
    assert counts.seen == [("GetMetadataAllocated", "Unavailable")]
