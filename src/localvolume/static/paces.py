"""How long the static role waits before it looks, asks or tries again, and for whom it waits."""

from __future__ import annotations

from dataclasses import dataclass, field

from localvolume.cleaning.paces import CleaningPaces, JobPaces


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticPaces:
    """In seconds, except for `publishers`."""

    cleaning: CleaningPaces = field(default_factory=CleaningPaces)
    jobs: JobPaces = field(default_factory=JobPaces)

    entry: float = 5.0
    """How long a disk may take to say what it is before it counts as dead."""

    patience: float = 1.0
    """How long a look waits for the reading of an entry that no PersistentVolume offers: on a dying
    disk, that may take minutes."""

    directory: float = 10.0
    """How long a discovery directory may take to be listed."""

    stale: float = 20.0
    """After how long an unusable or unoffered entry is read again when somebody looks, and a
    directory listed that could not be."""

    look_again: float = 30.0
    """When to look again at what is held if nothing would report that it was put right."""

    remembered: float = 60.0
    """How long the answer of a live look at PersistentVolumes without our label is relied on."""

    udev: float = 2.0
    """How long udev may take to make the links to a device after the kernel has reported it."""

    first_wait: float = 5.0
    longest_wait: float = 600.0
    """Between two attempts at what failed: doubled each time, half of it at random."""

    publishers: int = 16
    """How many volumes are published at the same time; the client allows no more requests in
    flight."""

    jobs_again: float = 30.0
    """After how long Jobs are asked for again if they are needed and the API server refuses
    them."""

    job_look: float = 30.0
    """How often a Job that does not end is asked for, with its pod; the watch reports the rest."""
