"""A long process that is told to stop: its status, and what it says where it takes long."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
from collections.abc import Callable

import pytest

from localvolume.cli.process import run_process
from tests.suite.until import until_async


async def told_to_stop() -> None:
    asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGTERM)
    await asyncio.Event().wait()


async def takes_long(ended: Callable[[], object]) -> None:
    await until_async(ended)


async def ends_slowly(ended: Callable[[], object]) -> None:
    try:
        await told_to_stop()
    finally:
        await takes_long(ended)


def test_it_says_what_it_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    def ended() -> bool:
        return "still stopping" in caplog.text

    with caplog.at_level(logging.INFO):
        assert run_process("agent", lambda: ends_slowly(ended), stopping_seconds=0.2) == 0
    said = [record.getMessage() for record in caplog.records if record.name.startswith("local")]
    assert re.fullmatch(
        r"still stopping, waiting for .*"
        r"\bends_slowly:\d+ > takes_long:\d+ > until_async:\d+ > sleep:\d+",
        said[0],
    )
    assert said[-1] == "stopped"


def test_one_that_stops_at_once_says_so_alone(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert run_process("agent", told_to_stop) == 0
    said = [record.getMessage() for record in caplog.records if record.name.startswith("local")]
    assert said == ["stopped"]
