"""A guest kernel (User-mode Linux) for what the machine's own kernel cannot do: quotas, LVM.

Its root is this machine's, read-only, so Python, the tools and this repository are just there;
what may be written is in memory, on its disks, in one directory for results, and in that of
`make coverage`. One process group, which takes everything with it when it is killed.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kernel.support_kernel import Kernel, kernel
from tests.kernel.support_mconsole import ask
from tests.suite import measured

REPOSITORY = Path(__file__).resolve().parents[2]
_INIT = Path(__file__).resolve().with_name("init.sh")
#: What a guest takes, and the tests in it: it has this machine's.
PROGRAMS = (
    *("linux.uml", "modprobe", "mount", "losetup", "unshare", "setpriv", "ps", "blkid", "wipefs"),
    *("mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "mkswap", "lvm", "thin_check", "partx"),
)
#: Set for every process in a guest.
INSIDE = "LOCALVOLUME_GUEST"
#: What a guest leaves in its results when its power is to be cut.
POWER_CUT = "power-cut"


_NICE = -10


class GuestFailed(AssertionError):
    """The guest did not do what it was started for; the text ends with its console."""


class GuestStill(GuestFailed):
    """Nothing happens in the guest any more; the text says what its kernel tells of it."""


class KernelStuck(GuestFailed):
    """The guest's own kernel answers nobody: that says nothing about what was run in it."""


@contextlib.contextmanager
def _on_one_processor() -> Iterator[None]:
    """What is started here stays on one processor, and comes first there, if we may say so.

    A guest's kernel and what runs in it take turns with each system call; between two processors
    each turn waits until the other has woken up. And nothing of a run takes as long as the guests.
    """
    before, nice = os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)
    # Another one for the guests of another worker of pytest-xdist ("gw1").
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    os.sched_setaffinity(0, {sorted(before)[-1 - worker % len(before)]})
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
        os.setpriority(os.PRIO_PROCESS, 0, nice)


@dataclass
class Guest:
    """A guest that runs one command and is then switched off.

        with Guest(["true"], tmp_path, disks={"a": 1 << 30}) as guest:
            assert guest.wait(60) == 0

    `results` is a directory that the guest sees as /run/results. `disks` are sparse files of so
    many bytes: "a" is /dev/ubda, and so on; they are kept, so another guest may find them again.
    """

    command: Sequence[str]
    results: Path
    disks: Mapping[str, int] = field(default_factory=dict)
    memory: str = "512M"
    kernel: Kernel = field(default_factory=kernel)
    still_seconds: float = 300.0
    """One that writes neither to its console nor to its disks for so long does nothing any more."""
    answer_seconds: float = 30.0
    """How long its kernel may take to answer."""

    def __enter__(self) -> Self:
        self.results.mkdir(parents=True, exist_ok=True)
        (self.results / "code").unlink(missing_ok=True)
        (self.results / "command").write_text("".join(f"{word}\n" for word in self.command))
        # Not among the results: it holds sockets, whose paths must be short.
        self._own = Path(tempfile.mkdtemp(prefix="localvolume-guest-"))
        try:
            with (self.results / "console").open("wb") as console, _on_one_processor():
                self._process = subprocess.Popen(
                    self._argv(),
                    stdin=subprocess.DEVNULL,
                    stdout=console,
                    stderr=subprocess.STDOUT,
                    # So that one signal ends all of its processes and reaches nobody else.
                    start_new_session=True,
                )
        except BaseException:
            shutil.rmtree(self._own, ignore_errors=True)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()
        shutil.rmtree(self._own, ignore_errors=True)

    def _argv(self) -> list[str]:
        return [
            # However this process ends: its guest ends with it.
            *("setpriv", "--pdeathsig", "TERM", "--"),
            self.kernel.program,
            *self.kernel.options,
            f"uml_dir={self._own}",
            f"mem={self.memory}",
            "root=/dev/root",
            "rootfstype=hostfs",
            "rootflags=/",
            "ro",
            "quiet",
            "con=null",
            "con0=null,fd:1",
            *(f"ubd{letter}={self._disk(letter, size)}" for letter, size in self.disks.items()),
            f"init={_INIT}",
            # What the kernel does not know becomes the environment of its first process.
            f"RESULTS={self.results}",
            f"REPOSITORY={REPOSITORY}",
            f"MODULES={self.kernel.modules}",
            *([f"MEASURED={directory}"] if (directory := measured.directory()) else []),
        ]

    def _disk(self, letter: str, size: int) -> Path:
        path = self.results / f"disk-{letter}"
        with path.open("ab") as file:
            file.truncate(size)
        return path

    def wait(self, timeout: float) -> int:
        """Wait for the command and return its exit code; raises GuestFailed if there is none:
        GuestStill where nothing happens any more, KernelStuck where its own kernel is to blame."""
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            try:
                self._process.wait(max(0.0, min(left, 5.0)))
                break
            except subprocess.TimeoutExpired:
                if left <= 0:
                    raise self._gave_up(f"was not done after {timeout:.0f} s") from None
                if self._still() > self.still_seconds:
                    why = f"did nothing for {self.still_seconds:.0f} s"
                    raise self._gave_up(why, GuestStill) from None
        try:
            return int((self.results / "code").read_text())
        except (FileNotFoundError, ValueError):
            raise self._failed("the guest ended before its command did") from None

    def cut_off(self, at: str, timeout: float) -> None:
        """Cut its power as soon as its command has left a file of that name in the results.

        Raises what `wait` does; also where the command ends before.
        """
        deadline = time.monotonic() + timeout
        while not (self.results / at).exists():
            if self._process.poll() is not None:
                raise self._failed(f"the guest ended before it was at {at!r}")
            if time.monotonic() > deadline:
                raise self._gave_up(f"was not at {at!r} after {timeout:.0f} s")
            if self._still() > self.still_seconds:
                raise self._gave_up(f"did nothing for {self.still_seconds:.0f} s", GuestStill)
            time.sleep(0.05)
        self.kill()

    def _still(self) -> float:
        """For how many seconds nothing was written."""
        written = [self.results / "console", *self.results.glob("disk-*")]
        return time.time() - max(path.stat().st_mtime for path in written)

    def _gave_up(self, why: str, kind: type[GuestFailed] = GuestFailed) -> GuestFailed:
        # As loud as need be to tell which tasks are blocked.
        ask(self._own, "sysrq 8", self.answer_seconds)
        blocked = ask(self._own, "sysrq w", self.answer_seconds)
        self.kill()
        if blocked is None:
            return self._failed(f"the guest {why}, and its kernel does not answer", KernelStuck)
        return self._failed(f"the guest {why}; its kernel says: {blocked}", kind)

    @property
    def pid(self) -> int:
        """The first of its processes, whose group has them all."""
        return self._process.pid

    def pause(self) -> None:
        """Have its kernel do nothing any more."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def kill(self) -> None:
        """Cut its power."""
        # Also when the first of its processes has ended: the others are in the same group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def console(self) -> str:
        """All that the guest's kernel and its command have said so far."""
        return (self.results / "console").read_text(errors="replace")

    def _failed(self, why: str, kind: type[GuestFailed] = GuestFailed) -> GuestFailed:
        return kind(f"{why}; its console:\n{self.console()[-20_000:]}")


def pytest_inside(*arguments: str) -> list[str]:
    """The command that runs tests of this repository in a guest, reported in results/junit.xml."""
    options = ("-p", "no:cacheprovider", "--basetemp=/run/tmp/pytest")
    report = ("-o", "junit_family=xunit2", "--junit-xml=/run/results/junit.xml")
    return [sys.executable, "-m", "pytest", *options, *report, *arguments]
