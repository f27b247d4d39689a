"""Removes what the demo leaves, however it ends: the one process that outlives it.

Run as a program, it reads lines from standard input: "+PID" a process group that must not outlive
the demo, "-PID" one that has ended. When the pipe closes, which also kill -9 of the demo does, it
kills the groups, removes from the cluster what the demo made there (a cluster of the user's only),
then the directory. It is started before anything else is made, in a session of its own, so that a
closed terminal or Ctrl-C does not reach it.
"""

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile


class Keeper:
    """The demo's end of it. `close` has everything removed and waits for that."""

    def __init__(self, directory: str, *, kubeconfig: str = "", name: str = "") -> None:
        """`directory` (absolute) need not exist yet; `kubeconfig` is of the user's cluster."""
        argv = [sys.executable, "-m", __name__, directory]
        if kubeconfig:
            argv += ["--kubeconfig", kubeconfig, "--name", name]
        reading, self._pipe = os.pipe()
        # What it has to complain of must not disappear with the demo's terminal.
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=reading,
                stdout=subprocess.DEVNULL,
                stderr=self._complaints,
                cwd="/",
                start_new_session=True,
            )
        finally:
            os.close(reading)

    def watch(self, group: int) -> None:
        """A process group that ends with us."""
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        """It has ended: its number may be another's soon."""
        self._tell(f"-{group}\n")

    def _tell(self, line: str) -> None:
        # A keeper that somebody killed keeps nothing any more; the demo removes its things anyway.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._pipe, line.encode())

    def close(self, timeout: float) -> str:
        """Have everything removed; returns what could not be, in words ("" for nothing)."""
        os.close(self._pipe)
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return f"process {self._process.pid} is still removing what was made in the cluster"
        self._complaints.seek(0)
        return self._complaints.read().decode("utf-8", "replace").strip()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--kubeconfig", default="")
    parser.add_argument("--name", default="")
    arguments = parser.parse_args()
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        if line.startswith("+"):
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    failed = ""
    if arguments.kubeconfig:
        from localvolume_lab.demo.sweep import sweep_cluster

        failed = sweep_cluster(arguments.kubeconfig, arguments.name)
    shutil.rmtree(arguments.directory, ignore_errors=True)
    if failed:
        sys.stderr.write(f"{failed}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
