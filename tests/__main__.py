"""Runs the whole suite, and tells what each part of it cost.

Guest kernels keep a processor busy for a long time and need no other part: two workers have them.
The rest is shared by more workers than there are processors, as most tests wait for what they look
at. Each of these has a control plane of its own, and as root mounts of its own: a node takes a copy
of all mounts that there are, and with them would hold what others unmount. That is so with
`--shuffle SEED` alone, too; with other arguments there is one process, and they are pytest's.
"""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import BinaryIO

from tests import capabilities
from tests.kernel import support_guest
from tests.suite import table, untested

_PYTEST = (sys.executable, "-m", "pytest")
_KERNEL = "tests/kernel"
_RESULTS = Path("build/test-results")
_PARTS = ("guest", "rest")
_GUESTS = 2
_WORKERS = 6
_OWN_MOUNTS = ("unshare", "--mount", "--propagation", "private")


def main(arguments: list[str]) -> int:
    """The exit code: 0 where everything passed, else that of the first that failed."""
    # A shell has what it runs in the background ignore Ctrl-C, and tests of it would wait for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if arguments and not (arguments[0] == "--shuffle" and len(arguments) == 2):
        return subprocess.call([*_PYTEST, *arguments])
    shutil.rmtree(_RESULTS, ignore_errors=True)
    _RESULTS.mkdir(parents=True)
    os.environ[untested.RESULTS] = str(_RESULTS.absolute())
    # Once, in plain sight, and not by each worker.
    capabilities.build()
    # What is cut off by its time limit is told of, too.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    compile_once(["src", "lab", "tests"], f"{_KERNEL}/inside")
    # Not pytest's own, whose paths are too long for a socket's below a worker's.
    directory = tempfile.mkdtemp(prefix="lv-")
    guest = _Beside([*_pytest("guest", directory), _KERNEL, *arguments, *_workers(_GUESTS)])
    try:
        compile_once([], f"--ignore={_KERNEL}")
        rest = [*_pytest("rest", directory), f"--ignore={_KERNEL}", *arguments]
        codes = [subprocess.call([*rest, *_workers(_WORKERS)])]
        codes.append(guest.wait())
        if not any(codes):
            shutil.rmtree(directory)
    finally:
        guest.tell()
        told = table.table(cost for path in _RESULTS.glob("*.xml") for cost in table.read(path))
        (_RESULTS / "costs.txt").write_text(told)
        print(f"\n{told}", flush=True)
        lacking = (one for name in _PARTS for one in untested.read(_RESULTS / f"{name}.xml"))
        if lines := untested.told(lacking):
            print("", f"{untested.TITLE}:", *lines, sep="\n", flush=True)
    return next((code for code in codes if code), 0)


def compile_once(directories: list[str], *tests: str) -> None:
    """Compile the modules in those directories, and those tests as pytest does.

    Each worker would do it for itself, and each guest, which cannot keep what it has compiled; and
    where this is switched off each of the agents as well.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if directories:
        subprocess.call([sys.executable, "-m", "compileall", "-q", "-j0", *directories])
    # What is wrong with them is told by who runs them.
    environment = {**os.environ, support_guest.INSIDE: "1"}
    collect = [*_PYTEST, "--collect-only", "-q", *tests]
    subprocess.run(collect, env=environment, capture_output=True, check=False)


def _pytest(name: str, directory: str) -> list[str]:
    return [*_PYTEST, f"--junit-xml={_RESULTS / name}.xml", f"--basetemp={directory}/{name}"]


def _workers(count: int) -> list[str]:
    """The options that share tests between workers, where there is more than one processor."""
    if (os.cpu_count() or 1) < 2:
        return []
    python = [sys.executable]
    if os.geteuid() == 0 and capabilities.works([*_OWN_MOUNTS, "true"]):
        python = [*_OWN_MOUNTS, *python]
    return ["--dist=loadfile", f"--tx={count}*popen//python={shlex.join(python)}"]


class _Beside:
    """A process with a part of the tests, and what it says."""

    def __init__(self, command: list[str]) -> None:
        self._output: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - for as long as we live
        # Of this process group: what ends us (Ctrl-C) ends it too.
        self._process = subprocess.Popen(command, stdout=self._output, stderr=subprocess.STDOUT)

    def wait(self) -> int:
        return self._process.wait()

    def tell(self) -> None:
        """End it if it runs, and print what it has said."""
        if self._process.poll() is None:
            # As Ctrl-C does: killed, it would leave its guest behind.
            self._process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(60)
        self._process.kill()
        self._process.wait()
        print("\nBeside it, in guest kernels:", flush=True)
        self._output.seek(0)
        sys.stdout.buffer.write(self._output.read())
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
