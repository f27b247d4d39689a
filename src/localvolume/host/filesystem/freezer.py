"""The process that freezes filesystems and thaws them: run as a program, of the library alone.

    python -I -S freezer.py FREEZE THAW SECONDS PLACE NAME NOTE ROOT LINE...

FREEZE and THAW are ioctl numbers, PLACE, NOTE and ROOT descriptors: of a directory, of the file
NAME in it, and of the root of each filesystem, in order, each with its LINE in that file. A line is
written before its filesystem is frozen, and the file goes once nothing is frozen.

Nothing is left frozen while this process lives: it thaws what it froze, the last one first, once
its input ends (whoever started it has ended, or wants so) or the time is over. What somebody else
froze stays frozen. It says on its output, a line each: "froze" for each filesystem, "failed" with
its number and the error, and at the end how it went (`main`).
"""

import contextlib
import errno
import fcntl
import os
import select
import sys
import threading
import time


class Freezer:
    """The filesystems that are frozen now, by one thread, and thawed by another."""

    def __init__(self, freeze: int, thaw: int, note: int, roots: list[tuple[int, str]]) -> None:
        self._freeze, self._thaw, self._note, self._roots = freeze, thaw, note, roots
        self._lock = threading.Lock()
        self._held: list[int] = []
        self._ended = False
        #: The error of a filesystem that is not thawed, 0 if all are.
        self.fault = 0
        #: Whether somebody else thawed one.
        self.torn = False

    def freeze_all(self) -> None:
        """Freeze one after the other; a disk may take its time, or for ever."""
        for number, (root, line) in enumerate(self._roots):
            before = os.fstat(self._note).st_size
            try:
                os.write(self._note, f"{line}\n".encode())
                fcntl.ioctl(root, self._freeze, 0)
            except OSError as error:
                # Whoever has it frozen, it is none of ours.
                os.ftruncate(self._note, before)
                say(f"failed {number} {error.errno}")
                return
            with self._lock:
                if self._ended:
                    self._thaw_one(root)
                    return
                self._held.append(root)
                say("froze")

    def thaw_all(self) -> None:
        """Thaw what is frozen; what is just being frozen is thawed once it is."""
        with self._lock:
            self._ended = True
            while self._held:
                self._thaw_one(self._held.pop())

    def _thaw_one(self, root: int) -> None:
        try:
            fcntl.ioctl(root, self._thaw, 0)
        except OSError as error:
            if error.errno == errno.EINVAL:
                self.torn = True
            else:
                self.fault = error.errno or errno.EIO


def say(line: str) -> None:
    """Tell it to whoever started this, if that still listens."""
    with contextlib.suppress(BrokenPipeError):
        os.write(1, f"{line}\n".encode())


def main(arguments: list[str]) -> None:
    """Says at the end "thawed", "late" if the time was over before, "torn" if somebody else thawed
    one, or "stuck" with the error if one is frozen still."""
    freeze, thaw, seconds, place, name, note, *roots = arguments
    pairs = [(int(root), line) for root, line in zip(roots[::2], roots[1::2], strict=True)]
    freezer = Freezer(int(freeze), int(thaw), int(note), pairs)
    deadline = time.monotonic() + float(seconds)
    thread = threading.Thread(target=freezer.freeze_all)
    thread.start()
    ended = False
    while not ended and (left := deadline - time.monotonic()) > 0:
        # Nothing is ever written to it: it is readable once it has ended.
        ended = bool(select.select([0], [], [], left)[0])
    freezer.thaw_all()
    outcome = "thawed" if ended else "late"
    thread.join()
    if freezer.fault:
        say(f"stuck {freezer.fault}")
        return
    os.unlink(name, dir_fd=int(place))
    say("torn" if freezer.torn else outcome)


if __name__ == "__main__":
    main(sys.argv[1:])
