"""How far the first build is: a live line on a terminal, a sentence now and then elsewhere."""

import sys
import time
from typing import TYPE_CHECKING, Self

from localvolume_lab.controlplane.assets import Say

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

#: Seconds between two sentences where there is no terminal (a CI log).
EVERY = 20.0


class Progress:
    """Counts steps of one phase at a time."""

    def __init__(self, say: Say, *, live: bool | None = None) -> None:
        self._say = say
        self._live = sys.stderr.isatty() if live is None else live
        self._rich: RichProgress | None = None
        self._task: TaskID | None = None
        self._name, self._done = "", 0
        self._total: int | None = None
        self._started = self._said = time.monotonic()

    def __enter__(self) -> Self:
        if self._live:
            # rich only for people: it costs a tenth of a second to import.
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as RichProgress

            self._rich = RichProgress(
                TextColumn("  {task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=Console(stderr=True),
            )
            self._rich.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._rich is not None:
            self._rich.stop()

    def phase(self, name: str, total: int | None) -> None:
        """A new count starts; `total` is None where it is not known."""
        self._name, self._total, self._done = name, total, 0
        if self._rich is not None:
            if self._task is not None:
                self._rich.stop_task(self._task)
            self._task = self._rich.add_task(name, total=total)

    def step(self) -> None:
        self._done += 1
        if self._rich is not None and self._task is not None:
            self._rich.update(self._task, advance=1)
            return
        now = time.monotonic()
        if now - self._said >= EVERY:
            self._said = now
            self._say(self.sentence(now))

    def sentence(self, now: float) -> str:
        of = f" of {self._total:,}" if self._total else ""
        minutes, seconds = divmod(int(now - self._started), 60)
        return f"  {self._name}: {self._done:,}{of} ({minutes} min {seconds:02} s)"
