"""What a cleaning reports: progress while it runs, then a receipt or why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from localvolume.cleaning.method import Method

Result = Literal["proved", "done", "signatures-only"]

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class CleaningFailed(Exception):
    """The volume is not clean: keep it from everybody, say so, and try again after a while.

    `touched`: whether anything may have been destroyed already.
    """

    def __init__(self, reason: str, *, touched: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.touched = touched


class CleaningRefused(CleaningFailed):
    """What is there is not what was planned, or somebody uses it. Nothing was touched.

    Look at the facts again before another attempt.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason, touched=False)


class CleaningStopped(Exception):
    """The cleaning was told to stop before its end: the volume is not clean; begin again later."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a cleaning is. `total_bytes` is None if it cannot be known.

    Bytes are those written or discarded, over all passes (delete-files: the size of what was
    deleted); `step` names what is being done.
    """

    done_bytes: int
    total_bytes: int | None
    done_files: int
    step: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was done, and how far it is proved.

    `bytes`: the size of what was cleaned: the device, or the files deleted. `files`: files and
    directories deleted. `samples`: places read back. `result`:

    - `proved`: the method claims that no content is left, and reading back agreed;
    - `done`: it succeeded, but what it left was not read back (an administrator's command);
    - `signatures-only`: no filesystem, table or superblock is recognised any more; the content
      between them is still there.
    """

    method: Method
    bytes: int
    files: int
    seconds: float
    samples: int
    result: Result
    detail: str = ""

    def summary(self) -> str:
        """One line for an Event."""
        size = human_size(self.bytes)
        if self.method.name == "delete-files":
            what = "file or directory" if self.files == 1 else "files and directories"
            size = f"{self.files} {what}, {size}"
        parts = [f"{self.method}: {size} in {self.seconds:.1f} s", self.result.replace("-", " ")]
        if self.samples:
            parts[-1] += f" ({self.samples} samples read back)"
        if self.detail:
            parts.append(self.detail)
        return ", ".join(parts)

    def as_dict(self) -> dict[str, str | int | float]:
        """For a JSON log record; bytes and seconds as numbers."""
        return {
            "method": str(self.method),
            "bytes": self.bytes,
            "files": self.files,
            "seconds": round(self.seconds, 3),
            "samples": self.samples,
            "result": self.result,
            "detail": self.detail,
        }


def human_size(size_bytes: int) -> str:
    """A size for people, in binary units: 1536 is `1.5 KiB`."""
    size, unit = float(size_bytes), _UNITS[0]
    for larger in _UNITS[1:]:
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
