"""What is remembered of entries between two looks, and for how long that holds."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field

from localvolume.host.mount.mounts import Mount
from localvolume.static.facts.probe import EMPTY
from localvolume.static.model import Entry
from localvolume.volumes.record import Unreadable


@dataclass(slots=True)
class Changes:
    """What the kernel has reported since the last look; other entries need not be read again.

    `paths` are entries that were made, removed or renamed, and whole discovery directories;
    `devices` are block devices ("major:minor") that came, went or changed; `host` says that
    directories and the mount table must be read again, `everything` that nothing counts as known.
    """

    host: bool = True
    everything: bool = False
    paths: set[str] = field(default_factory=set)
    devices: set[str] = field(default_factory=set)

    def add(self, others: Changes) -> None:
        """Add what these others report."""
        self.host |= others.host
        self.everything |= others.everything
        self.paths |= others.paths
        self.devices |= others.devices

    def concern(self, entry: Entry) -> bool:
        """Whether the entry must be read again because of these changes."""
        return (
            self.everything
            or entry.path in self.paths
            or os.path.dirname(entry.path) in self.paths
            or entry.device in self.devices
            # What led nowhere may lead to that device now: a link, or a node without a medium.
            or (bool(self.devices) and entry.problem is not None)
        )


@dataclass(slots=True)
class Known:
    """What an entry was when it was last read; `read_at` by time.monotonic()."""

    entry: Entry
    mount: Mount | None
    read_at: float
    outdated: bool = False
    """Something has happened to it since that reading began."""

    @property
    def untold(self) -> bool:
        """Whether it could not be told what the entry is, or what lies in it."""
        problem, content = self.entry.problem, self.entry.content
        if problem is not None:
            return problem.code == "unknown"
        return content is not None and content.state == "unknown"

    def is_fresh(
        self, mount: Mount | None, offered: bool, changes: Changes, stale_seconds: float
    ) -> bool:
        """Whether what was read still holds: the same mount, untouched, and nothing left open.

        If the entry is not usable, or neither offered nor empty, it holds for `stale_seconds` only.
        """
        if self.outdated or self.mount != mount or changes.concern(self.entry):
            return False
        if not offered and self.entry.problem is None and self.entry.content is None:
            return False
        fit = self.entry.content == EMPTY and not self.entry.unwell
        unknown = self.entry.problem is not None or isinstance(self.entry.recorded, Unreadable)
        settled = not unknown and (offered or fit)
        return settled or time.monotonic() - self.read_at < stale_seconds
