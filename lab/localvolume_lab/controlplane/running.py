"""What a control plane and its nodes have in common: components that start and end together."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from localvolume_lab.controlplane.processes import Component, Guard

#: What starting may take: a sanity bound, far from what it takes on a machine that is busy.
START_SECONDS = 600.0


class Running(ABC):
    """A context manager, or start() and stop()."""

    #: What is raised if a component fails.
    error: type[Exception]
    #: Where the components run, and have their logs; known from start() on.
    directory: Path

    def __init__(self) -> None:
        self._components: dict[str, Component] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    def start(self) -> None:
        """Start everything and wait until it is ready."""

    @abstractmethod
    def stop(self) -> None:
        """End everything; does nothing where nothing runs."""

    def check(self) -> None:
        """Raises `error` if a component that was started and not stopped has ended."""
        for component in self._components.values():
            if (death := component.died()) is not None:
                raise self.error(death)

    @property
    def logs(self) -> dict[str, Path]:
        """The log file of each component that was started, by its name."""
        return {name: component.log for name, component in self._components.items()}

    def _launch(self, name: str, argv: Sequence[str], guard: Guard) -> None:
        log = self.directory / f"{name}.log"
        log.unlink(missing_ok=True)  # of an earlier start in the same directory
        self._components[name] = Component(name, argv, log, guard)
        self._components[name].start()

    def _until(self, condition: Callable[[], bool], deadline: float, what: str) -> None:
        while not condition():
            self.check()
            if time.monotonic() > deadline:
                tails = "\n".join(f"{one.log}:\n{one.tail()}" for one in self._components.values())
                raise self.error(f"waited too long for {what}\n{tails}")
            time.sleep(0.05)
