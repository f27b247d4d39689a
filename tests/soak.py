"""Runs for so many minutes what draws at random: kills, fuzzing, faults, and tests in any order.

    python -m tests.soak --minutes 30 --seed 7

What is marked `soak` goes on with another seed each time, the guest kernel's beside the others;
between them come some files of the suite in a random order. The same seed makes the same choices
again; how far it comes in its time depends on the machine. It ends with the first failure, and says
how to have that again. What is still running in the end is cut off, and nothing follows from it.
"""

import argparse
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests import capabilities

_TESTS = Path(__file__).resolve().parent
_MARK = "pytest.mark.soak"
#: How long one test draws, in seconds; one that begins late draws for less.
_DRAWS = 60.0
#: What nothing is begun for any more: a control plane or a guest takes a part of it to start.
_TOO_SHORT = 45.0
#: How long what is cut off may take to clear up.
_GOODBYE = 30.0
#: How many files are taken out of the suite at a time.
_SHUFFLED = 6
#: What takes long to make for a few files of it, and what is drawn from all the time.
_NOT_SHUFFLED = ("databases", "node", "kernel", "faults")


class Part(NamedTuple):
    """Arguments of pytest, and the seed of it."""

    arguments: tuple[str, ...]
    seed: int


class Lane(threading.Thread):
    """Does one part after the other until the end, or until something has failed anywhere."""

    def __init__(self, parts: Iterator[Part], end: float, failed: threading.Event) -> None:
        super().__init__()
        self._parts = parts
        self._end = end
        self._failed = failed
        self.passed = 0

    def run(self) -> None:
        for part in self._parts:
            left = self._end - time.monotonic()
            if self._failed.is_set() or left < _TOO_SHORT:
                return
            self._do(part, left)

    def _do(self, part: Part, left: float) -> None:
        seconds = min(_DRAWS, left / 3)
        given = {"LOCALVOLUME_SEED": str(part.seed), "LOCALVOLUME_SOAK_SECONDS": f"{seconds:.0f}"}
        command = (sys.executable, "-m", "pytest", "-q", "-x", *part.arguments)
        variables = (f"{name}={value}" for name, value in given.items())
        shown = " ".join([*variables, "python", *command[1:]])
        # Of its own: from pytest's common one it would have to remove what others left mounted.
        directory = tempfile.mkdtemp(prefix="lv-")
        began = time.monotonic()
        process = subprocess.Popen(
            (*command, f"--basetemp={directory}/soak"),
            env={**os.environ, **given},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        # As Ctrl-C does, so that nothing is left behind; who does not heed it is killed.
        cuts = [
            threading.Timer(left, process.send_signal, (signal.SIGINT,)),
            threading.Timer(left + _GOODBYE, process.kill),
        ]
        for cut in cuts:
            cut.start()
        said, _ = process.communicate()
        for cut in cuts:
            cut.cancel()
        ended = self._end <= time.monotonic()
        took = f"{time.monotonic() - began:.0f} s"
        if process.returncode == 0 or ended:
            shutil.rmtree(directory, ignore_errors=True)
        if process.returncode == 0:
            self.passed += 1
            print(f"passed after {took}: {shown}", flush=True)
        elif ended:
            print(f"cut off after {took}: {shown}", flush=True)
        else:
            self._failed.set()
            print(f"{said}\nFAILED after {took}; again: {shown}", flush=True)


def marked() -> Iterator[Path]:
    """The files with tests of the soak: those in tests/kernel/inside are for a guest."""
    for path in sorted(_TESTS.rglob("test_*.py")):
        if path.parent.name != "kernel" and _MARK in path.read_text(encoding="utf-8"):
            yield path.relative_to(_TESTS.parent)


def drawn(dice: random.Random, files: list[Path]) -> Iterator[Part]:
    """Each of the marked files in turn, and between them some of the suite in a random order."""
    suite = [
        path.relative_to(_TESTS.parent)
        for path in sorted(_TESTS.rglob("test_*.py"))
        if path.relative_to(_TESTS).parts[0] not in _NOT_SHUFFLED
    ]
    while True:
        for path in dice.sample(files, len(files)):
            yield Part(("-m", "soak", str(path)), dice.randrange(2**31))
            seed = dice.randrange(2**31)
            some = map(str, dice.sample(suite, _SHUFFLED))
            yield Part((f"--shuffle={seed}", f"--hypothesis-seed={seed}", *some), seed)


def _in_guests(dice: random.Random, files: list[Path]) -> Iterator[Part]:
    while True:
        for path in dice.sample(files, len(files)):
            test = f"tests/kernel/test_guest.py::test_soak_inside[{path.name}]"
            yield Part(("-m", "soak", test), dice.randrange(2**31))


def main(arguments: list[str]) -> int:
    """The exit code: 1 where something failed, or nothing was seen to its end."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    options = parser.parse_args(arguments)
    capabilities.build()
    # See tests/__main__.py: in the background of a shell it would be ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    print(f"soaking for {options.minutes:g} minutes with seed {options.seed}", flush=True)
    end = time.monotonic() + 60 * options.minutes
    files = list(marked())
    inside = [path for path in files if path.parent.name == "inside"]
    others = [path for path in files if path not in inside]
    failed = threading.Event()
    lanes = [Lane(drawn(random.Random(options.seed), others), end, failed)]
    if not (why_not := capabilities.missing("guest")):
        lanes.append(Lane(_in_guests(random.Random(options.seed), inside), end, failed))
    else:
        print(f"without the guest kernel: {'; '.join(why_not)}", flush=True)
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    passed = sum(lane.passed for lane in lanes)
    print(f"{passed} parts passed with seed {options.seed}")
    return 1 if failed.is_set() or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
