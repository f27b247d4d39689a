"""What a program writes to a pipe: always read, kept only in part, split into lines if wanted."""

import asyncio
import os
import re
from collections.abc import Callable

#: Longer lines are cut for ``on_line``; what is kept of the stream is not.
LINE_LIMIT = 4096
_LINE_END = re.compile(rb"[\r\n]")


class Excerpt:
    """The head and the tail of a stream, ``limit`` bytes together."""

    def __init__(self, limit: int) -> None:
        self._head_limit = limit // 2
        self._tail_limit = limit - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()
        self.left_out = 0

    def add(self, data: bytes) -> None:
        room = self._head_limit - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        excess = len(self._tail) - self._tail_limit
        if excess > 0:
            del self._tail[:excess]
            self.left_out += excess

    def text(self) -> str:
        if not self.left_out:
            return _text(self._head + self._tail)
        return f"{_text(self._head)}\n[… {self.left_out} bytes left out …]\n{_text(self._tail)}"


def _text(data: bytes | bytearray) -> str:
    return data.decode("utf-8", "backslashreplace")


class OutputStream:
    """Our end of one pipe: read as the program writes, until nobody holds the other end."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        descriptor: int,
        limit: int,
        on_line: Callable[[str], None] | None,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._loop = loop
        self._descriptor = descriptor
        self._on_line = on_line
        self._failed = failed
        self._line = bytearray()
        self.kept = Excerpt(limit)
        self.ended: asyncio.Future[None] = loop.create_future()
        os.set_blocking(descriptor, False)
        loop.add_reader(descriptor, self._readable)

    def _readable(self) -> None:
        try:
            data = os.read(self._descriptor, 65536)
        except BlockingIOError:
            return
        self.kept.add(data)
        if self._on_line is not None:
            try:
                self._split(data, self._on_line)
            except Exception as error:  # noqa: BLE001 - the caller's own, raised again from run()
                self._on_line = None
                self._failed(error)
        if not data:
            self.close()

    def _split(self, data: bytes, on_line: Callable[[str], None]) -> None:
        *whole, rest = _LINE_END.split(data)
        if not data:  # the end also ends the last line
            whole, rest = [b""], b""
        for piece in whole:
            self._line += piece[: LINE_LIMIT - len(self._line)]
            line, self._line = self._line, bytearray()
            if line:
                on_line(_text(line))
        self._line += rest[: LINE_LIMIT - len(self._line)]

    def close(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
