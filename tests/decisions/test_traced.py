"""Branches after a failure that a coroutine has awaited count as met where they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import coverage

from tests.suite import measured

PROGRAM = """
import asyncio
from tests.suite import traced


async def deals_with_it():
    failing = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(failing.set_exception, ValueError())
    try:
        await failing
    except ValueError:
        return "failed"


async def main():
    said = await deals_with_it()
    assert said == "failed"
    assert asyncio.current_task().cancel()
    await asyncio.sleep(60)


traced.pytest_configure()
try:
    asyncio.run(main())
except asyncio.CancelledError:
    print("cancelled")
"""


def test_what_follows_a_failure_that_was_awaited_is_measured(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    data = tmp_path / "data"
    given = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), measured.DATA: str(data)}
    given.pop(measured.CONFIGURATION, None)
    argv = [sys.executable, "-m", "coverage", "run", "--branch", f"--data-file={data}"]
    done = subprocess.run(
        [*argv, str(program)], env=given, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("cancelled\n", "")
    found = coverage.CoverageData(str(data))
    found.read()
    met = found.lines(str(program)) or []
    lines = PROGRAM.splitlines()
    assert lines.index('        return "failed"') + 1 in met
    assert lines.index('    assert said == "failed"') + 1 in met
