"""Who works in a pool of logical volumes: one agent, with one call at a time per volume."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

from localvolume.backends.model import BackendFailed
from localvolume.backends.pool.root import PoolTaken
from localvolume.host.locks import lock_directory

LOCKS: Final = "/run/localvolume"
"""On a tmpfs that all agents of the machine see: a lock ends with its holder."""

_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")


@dataclass(eq=False)
class _Held:
    """The locked file, for as long as somebody uses it."""

    pool_id: str
    fd: int
    users: int = 1


class Begun(NamedTuple):
    """How often the pool had been closed, and locked, when a call began."""

    closings: int
    takings: int


class Turns:
    """The lock of one pool, taken by the first call that works there and kept until `close`."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._held: _Held | None = None
        self._busy: set[str] = set()
        self._closings = 0
        self._takings = 0

    def begin(self) -> Begun:
        """To be called before the pool is looked at, for `holding`."""
        with self._lock:
            return Begun(self._closings, self._takings)

    @contextmanager
    def holding(self, pool_id: str, begun: Begun) -> Iterator[bool]:
        """Have the pool locked; yields True if it was not yet when the call began, whoever has
        locked it since: another agent may have worked in it after the caller looked at it.

        Raises PoolTaken if another agent has it or it was closed meanwhile, and OSError.
        """
        with self._lock:
            held = self._held
            if held is None or held.pool_id != pool_id:
                if self._closings != begun.closings:
                    raise PoolTaken("it was closed meanwhile")
                self._let_go()
                held = self._held = _Held(pool_id, self._locked(pool_id))
                self._takings += 1
            fresh = self._takings != begun.takings
            held.users += 1
        try:
            yield fresh
        finally:
            with self._lock:
                self._release(held)

    def _locked(self, pool_id: str) -> int:
        if not _ID.fullmatch(pool_id):
            raise BackendFailed(f"{pool_id!r} is no UUID of LVM's")
        os.makedirs(self._directory, mode=0o755, exist_ok=True)
        path = f"{self._directory}/lvm-{pool_id}.lock"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        if not lock_directory(fd):
            os.close(fd)
            raise PoolTaken("another agent works in it; this one waits until it has ended")
        return fd

    def _release(self, held: _Held) -> None:
        held.users -= 1
        if not held.users:
            os.close(held.fd)

    def _let_go(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            self._release(held)

    def close(self) -> None:
        """Release the pool to other agents once everything under way in it has ended."""
        with self._lock:
            self._closings += 1
            self._let_go()

    @contextmanager
    def alone(self, *names: str) -> Iterator[None]:
        """Keep other calls from these volumes; raises BackendFailed if one works with them."""
        with self._lock:
            for name in names:
                if name in self._busy:
                    raise BackendFailed(f"something else is being done with {name}")
            self._busy.update(names)
        try:
            yield
        finally:
            with self._lock:
                self._busy.difference_update(names)

    @property
    def busy(self) -> frozenset[str]:
        """The volumes that something is being done with."""
        with self._lock:
            return frozenset(self._busy)
