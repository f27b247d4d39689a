"""The one plane that is up for a person: where it is, whether it is, and how it is ended."""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from localvolume_lab.controlplane.assets import cache_home
from localvolume_lab.controlplane.plane import PlaneFailed


@dataclass(frozen=True)
class Running:
    """What the process that holds the plane says of itself; `nodes` are the processes that hold
    the namespaces of its real nodes, by their names."""

    pid: int
    ready: bool
    nodes: Mapping[str, int] = field(default_factory=dict)


def directory() -> Path:
    """Its kubeconfig and logs; always the same place, so that any shell finds it."""
    return cache_home() / "up"


def kubeconfig() -> Path:
    return directory() / "kubeconfig"


def _lock_path() -> Path:
    return cache_home() / "up.lock"


@contextlib.contextmanager
def holding() -> Iterator[int]:
    """Be the process whose plane it is; yields the lock's descriptor for `say_ready`.

    The lock ends with the process, however that ends, so a stale entry cannot mislead anybody.
    Raises PlaneFailed where another process holds it.
    """
    cache_home().mkdir(parents=True, exist_ok=True)
    descriptor = os.open(_lock_path(), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PlaneFailed(
                "a control plane is up already: `python -m localvolume_lab.controlplane down` "
                "ends it"
            ) from None
        _write(descriptor, Running(os.getpid(), ready=False))
        yield descriptor
    finally:
        os.close(descriptor)


def say_ready(descriptor: int, nodes: Mapping[str, int]) -> None:
    _write(descriptor, Running(os.getpid(), ready=True, nodes=nodes))


def _write(descriptor: int, state: Running) -> None:
    text = json.dumps(asdict(state)).encode()
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text, 0)


def running() -> Running | None:
    """The plane that is up or coming up, or None."""
    try:
        descriptor = os.open(_lock_path(), os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            with contextlib.suppress(ValueError):  # read in the middle of a write
                return Running(**json.loads(os.pread(descriptor, 4096, 0)))
            return Running(pid=0, ready=False)
        return None
    finally:
        os.close(descriptor)


def start(options: Sequence[str], timeout: float) -> Running:
    """Have a process of its own hold the plane, `up` with these options; returns when it is ready.

    Raises PlaneFailed.
    """
    directory().mkdir(mode=0o700, parents=True, exist_ok=True)
    log_path = directory() / "up.log"
    with open(log_path, "wb") as log:
        holder = subprocess.Popen(
            [sys.executable, "-m", "localvolume_lab.controlplane", "up", *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    deadline = time.monotonic() + timeout
    while (state := running()) is None or state.pid != holder.pid or not state.ready:
        if holder.poll() is not None:
            raise PlaneFailed(log_path.read_text(encoding="utf-8", errors="replace").strip())
        if time.monotonic() > deadline:
            holder.terminate()
            holder.wait()
            raise PlaneFailed(f"it was not ready after {timeout:.0f} s; see {log_path}")
        time.sleep(0.05)
    # It outlives us by intent, and so it is not ours to wait for.
    holder.returncode = 0
    return state


def stop(timeout: float = 120.0) -> bool:
    """End the plane that is up; False where none is; raises PlaneFailed if it does not end."""
    if (state := running()) is None:
        return False
    deadline = time.monotonic() + timeout
    asked = False
    while (state := running()) is not None:
        if state.pid and not asked:
            os.kill(state.pid, signal.SIGTERM)
            asked = True
        if time.monotonic() > deadline:
            raise PlaneFailed(f"process {state.pid} holds the control plane and does not end")
        time.sleep(0.05)
    return True
