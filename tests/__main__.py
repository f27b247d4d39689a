"""Runs the whole suite, in three processes beside each other: of two processors one would be idle
half of the time, as most tests wait for what they look at.

What starts nodes has mounts of its own: a node takes a copy of all mounts that there are, and with
them holds what others would unmount. The guest kernel alone keeps one processor busy for as long
as all else takes. The first process is seen at work, the others are told of once they have
ended. With arguments there is one process, and they are pytest's.
"""

import os
import signal
import subprocess
import sys
import tempfile
from typing import BinaryIO

_PYTEST = (sys.executable, "-m", "pytest", "--durations=15")
_KERNEL = ("tests/kernel",)
#: Those that start nodes, and as many others as make it last as long as what is in none.
_NODES = (
    *("tests/chart", "tests/contract", "tests/decisions", "tests/docs"),
    *("tests/host", "tests/monitoring", "tests/node"),
)
_OWN_MOUNTS = ("unshare", "--mount", "--propagation", "private")


def main(arguments: list[str]) -> int:
    """The exit code: 0 where everything passed, else that of the first that failed."""
    if arguments or (os.cpu_count() or 1) < 2:
        return subprocess.call([*_PYTEST, *arguments])
    # What is cut off by its time limit is told of, too.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    own_mounts = _OWN_MOUNTS if os.geteuid() == 0 else ()
    others = [_Other(_KERNEL), _Other(_NODES, *own_mounts)]
    try:
        ignored = (f"--ignore={path}" for path in (*_KERNEL, *_NODES))
        codes = [subprocess.call([*_PYTEST, *ignored])]
        codes += [other.wait() for other in others]
    finally:
        for other in others:
            other.tell()
    return next((code for code in codes if code), 0)


class _Other:
    """A process with a part of the tests, and what it says."""

    def __init__(self, paths: tuple[str, ...], *runner: str) -> None:
        self._paths = paths
        self._output: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - for as long as we live
        # Of this process group: what ends us (Ctrl-C) ends it too.
        self._process = subprocess.Popen(
            [*runner, *_PYTEST, *paths], stdout=self._output, stderr=subprocess.STDOUT
        )

    def wait(self) -> int:
        return self._process.wait()

    def tell(self) -> None:
        """End it if it runs, and print what it has said."""
        self._process.kill()
        self._process.wait()
        print(f"\nBeside it, {', '.join(self._paths)}:", flush=True)
        self._output.seek(0)
        sys.stdout.buffer.write(self._output.read())
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
