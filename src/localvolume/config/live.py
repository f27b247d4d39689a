"""The configuration in force: the last one that was valid, and what is wrong with a newer one.

Nothing here logs, counts or sends Events; the caller of `reread` does, by the outcome.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from localvolume.config import loading
from localvolume.config.model import Configuration, ConfigurationInvalid, Problem


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of reading the configuration again.

    `changed`: `configuration` is new and in force. `unchanged`: it is as before, even if an invalid
    edit was reverted. `invalid`: `problems` say why the edit is not in force, and the configuration
    before it still is. `news` is False if the same outcome with the same problems was returned
    before, so that it is reported once.
    """

    result: Literal["changed", "unchanged", "invalid"]
    configuration: Configuration
    problems: tuple[Problem, ...] = ()
    news: bool = True


class LiveConfiguration:
    """Keeps the last good configuration of a directory.

    Raises ConfigurationInvalid on construction: without any good configuration there is nothing to
    keep, and the caller decides whether to wait or to end.
    """

    def __init__(self, directory: str, load: Callable[[str], Configuration] = loading.load) -> None:
        self.directory = directory
        self._load = load
        self.current = load(directory)
        self.problems: tuple[Problem, ...] = ()
        """Why the directory's present content is not in force; empty if it is."""

    def reread(self) -> Outcome:
        """Read the directory again; never raises ConfigurationInvalid. Blocking file reads."""
        before = self.problems
        try:
            configuration = self._load(self.directory)
        except ConfigurationInvalid as invalid:
            self.problems = tuple(invalid.problems)
            return Outcome("invalid", self.current, self.problems, self.problems != before)
        self.problems = ()
        if configuration == self.current and configuration.warnings == self.current.warnings:
            return Outcome("unchanged", self.current, news=bool(before))
        self.current = configuration
        return Outcome("changed", configuration)
