"""How long a cleaning waits for the disk, and how often it says how far it is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningPaces:
    """In seconds, but for `step_bytes`."""

    step: float = 180.0
    """How long a single step may take. A step aims at half a second; a disk that remaps bad sectors
    may need tens of seconds for one, and the kernel's own timeouts and resets reach two minutes."""

    step_bytes: int = 1 << 40
    """How much of a device a single step writes or discards at most."""

    first_slice: float = 10.0
    """How long the first call that deletes files goes on; each further one twice as long."""

    progress: float = 1.0
    """The least time between two words on the progress."""

    gone: float = 2.0
    """How long what a command left running may take to end, whose process group was killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPaces:
    """Of a Job that cleans, in seconds."""

    starting: int = 600
    """What a class's cleaningTimeout is lengthened by for the Job: to be scheduled and to start."""

    kept: int = 3600
    """How long a finished Job is kept. It goes earlier, with its PersistentVolume."""
