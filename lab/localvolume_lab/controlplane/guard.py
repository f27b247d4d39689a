"""Ends what its parent leaves behind: run as a program, it needs only the standard library.

It reads lines from standard input: "+PID" a process group that must not outlive the parent,
"-PID" one that has ended. When the pipe closes, which also kill -9 of the parent does, it kills
the groups that are left and removes the directory named as its argument, if any.

A process of its own rather than PR_SET_PDEATHSIG: that signal comes when the parent's *thread*
ends, and a plane started from a worker thread would die with it.
"""

import contextlib
import os
import shutil
import signal
import sys


def main() -> None:
    groups: set[int] = set()
    for line in sys.stdin:
        pid = int(line[1:])
        if line.startswith("+"):
            groups.add(pid)
        else:
            groups.discard(pid)
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    for directory in sys.argv[1:]:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
