"""A thread that acts at random around agents that come and go, and the configuration it edits.

The seed reproduces its choices; what they meet depends on the time.
"""

import abc
import contextlib
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from localvolume_lab.controlplane import ControlPlane, RequestFailed
from tests.faults.support_observer import Watching


class Restless(abc.ABC):
    """Start with `with`, end it with `end`; what fails in it is a violation."""

    def __init__(
        self,
        plane: ControlPlane,
        observer: Watching,
        config: Path,
        settings: dict[str, Any],
        seed: int,
    ) -> None:
        self._plane = plane
        self._observer = observer
        self._config = config
        self._settings = settings
        self._random = random.Random(seed)
        self._ending = threading.Event()
        self._count = 0
        self.done: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._run, name="adversary", daemon=True)

    def __enter__(self) -> Self:
        self.configure()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self._ending.set()
        self._thread.join(300)
        # Else it would go on in the midst of what is done after it.
        assert not self._thread.is_alive(), "the adversary does not end"

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                self.step()
                time.sleep(self._random.uniform(0, 0.08))
        except Exception as error:  # noqa: BLE001 - without its adversary the test shows nothing
            self._observer.violation(f"the adversary failed: {error!r}")

    @abc.abstractmethod
    def step(self) -> None:
        """One thing after the other."""

    def act(self, acts: Mapping[Callable[[], bool], int]) -> None:
        """Do one of them, by their weights; counted if it says that it did something."""
        act = self._random.choices(list(acts), list(acts.values()))[0]
        if act():
            self.done[act.__name__.strip("_")] += 1

    def _delete(self, path: str) -> None:
        with contextlib.suppress(RequestFailed):
            self._plane.request("DELETE", path)

    def configure(self, settings: Mapping[str, Any] | None = None) -> None:
        """Write the configuration, each file replaced in one step."""
        for key, value in (settings or self._settings).items():
            new = self._config.with_name("new")
            new.write_text(json.dumps(value))
            new.rename(self._config / key)
