"""How long a cleaning waits for the disk, and how often it says how far it is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningPaces:
    """In seconds, except for `step_bytes`."""

    step: float = 180.0
    """How long a single step may take. A step aims at half a second; a disk that remaps bad sectors
    may need tens of seconds for one, and the kernel's own timeouts and resets reach two minutes."""

    step_bytes: int = 1 << 40
    """How much of a device a single step writes or discards at most."""

    first_slice: float = 10.0
    """How long the first call that deletes files goes on; each further one takes twice as long."""

    progress: float = 1.0
    """The least time between two reports of progress."""

    gone: float = 2.0
    """How long processes that a command left may take to end after their group was killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPaces:
    """For a Job that cleans, in seconds."""

    starting: int = 600
    """Added to a class's cleaningTimeout, as the Job must be scheduled and start first."""

    kept: int = 3600
    """How long a finished Job is kept, unless its PersistentVolume goes earlier and takes it."""
