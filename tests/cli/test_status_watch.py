"""`localvolume status` at a terminal: bars and `--watch`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from localvolume.cli.main import main
from tests.cli.support_page import cluster, said
from tests.suite.until import until_async

BARS = re.compile("[╳▒█░·]")
COLOUR = re.compile("\x1b\\[[0-9;]*3[0-9]m")


@dataclass
class Terminal:
    """What a command has written to its terminal."""

    process: asyncio.subprocess.Process
    descriptor: int
    text: str = ""

    def read(self) -> str:
        with contextlib.suppress(BlockingIOError, OSError):
            while part := os.read(self.descriptor, 65536):
                self.text += part.decode(errors="replace")
        return self.text

    async def shows(self, pattern: str) -> None:
        await until_async(self.read, lambda text: re.search(pattern, text, re.DOTALL))

    async def interrupted(self) -> int:
        """The exit status after Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        return await self.ended()

    async def ended(self) -> int:
        """The exit status. What is written meanwhile is read: a full terminal takes no more."""
        await until_async(
            lambda: (self.read(), self.process.returncode)[1], lambda code: code is not None
        )
        return await self.process.wait()


@contextlib.asynccontextmanager
async def at_a_terminal(*words: str, **environment: str) -> AsyncIterator[Terminal]:
    """`localvolume` with a terminal of its own for what it prints."""
    ours, its = pty.openpty()
    os.set_blocking(ours, False)
    known = {key: text for key, text in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
    env: Mapping[str, str] = {**known, "TERM": "xterm", "COLUMNS": "160", **environment}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "localvolume", *words, stdout=its, stderr=its, env=env
    )
    os.close(its)
    try:
        yield Terminal(process, ours)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(ours)


@pytest.mark.parametrize("plain", [False, True], ids=["colours", "NO_COLOR"])
async def test_at_a_terminal_there_are_bars(tmp_path: Path, plain: bool) -> None:
    async with cluster(tmp_path) as (_, made, kubeconfig):
        made.fill(nodes=2, volumes=3)
        more = {"NO_COLOR": "1"} if plain else {}
        async with at_a_terminal("status", "--kubeconfig", str(kubeconfig), **more) as terminal:
            assert await terminal.ended() == 0
            shown = terminal.read()
        assert len(BARS.findall(shown)) >= 60
        assert bool(COLOUR.search(shown)) is not plain


async def test_in_a_pipe_there_are_neither_bars_nor_escapes(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (_, made, kubeconfig):
        made.fill(nodes=2, volumes=3)
        shown = (await said("status", "--kubeconfig", str(kubeconfig))).decode()
    assert "worker-1" in shown
    assert not BARS.search(shown)
    assert "\x1b" not in shown


async def test_watching_follows_the_cluster_until_ctrl_c(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (_, made, kubeconfig):
        made.fill(nodes=1, volumes=2)
        words = ("status", "--watch", "--every", "1", "--kubeconfig", str(kubeconfig))
        async with at_a_terminal(*words) as terminal:
            await terminal.shows("1 available, 1 bound")
            made.volume("late", "worker-0")
            await terminal.shows("2 available, 1 bound")
            assert await terminal.interrupted() == 0
            assert "Traceback" not in terminal.read()


async def test_watching_with_check_ends_as_the_last_picture_was(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (_, made, kubeconfig):
        made.fill(nodes=1, volumes=2)
        made.annotate("local-pv-00000", health="ReadOnly: it is")
        words = ("status", "--watch", "--check", "--kubeconfig", str(kubeconfig))
        async with at_a_terminal(*words) as terminal:
            await terminal.shows("Ctrl-C ends it.*NODE")
            assert await terminal.interrupted() == 1


async def test_while_the_api_server_is_away_what_is_watched_is_called_old(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as later:
        async with cluster(tmp_path) as (_, made, kubeconfig):
            made.fill(nodes=1, volumes=2)
            words = ("status", "--watch", "--every", "1", "--kubeconfig", str(kubeconfig))
            terminal = await later.enter_async_context(at_a_terminal(*words))
            await terminal.shows("1 available, 1 bound")
        await terminal.shows("OLD, as of .*\r\nThe API server could not be asked since ")
        # What was seen before stays.
        await terminal.shows("OLD, as of.*1 available, 1 bound")
        assert await terminal.interrupted() == 0


async def test_watching_what_was_never_seen_is_an_error(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (_, _made, kubeconfig):
        pass
    async with at_a_terminal("status", "--watch", "--kubeconfig", str(kubeconfig)) as terminal:
        assert await terminal.ended() == 3


def test_only_tables_are_watched(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--watch", "-o", "json"]) == 2
    assert "leave out -o json" in capsys.readouterr().err
