"""Keeps the configuration in force, and reports an edit that is not valid."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass

from localvolume.agent.metrics import AgentMetrics
from localvolume.config import loading
from localvolume.config.live import LiveConfiguration
from localvolume.config.model import Configuration, ConfigurationInvalid, Problem
from localvolume.config.watcher import ConfigWatcher
from localvolume.kube.standing import Say, Standing

log = logging.getLogger(__name__)

EVENT_INVALID = "ConfigurationInvalid"
EVENT_CHANGED = "ConfigurationChanged"


@dataclass(eq=False)
class Reload:
    """Reads the configuration at startup and when it changes; an invalid one never ends the agent.

    Until there is a valid one, `first` waits; afterwards the last valid one stays in force.
    """

    directory: str
    period: float | None
    metrics: AgentMetrics
    say: Say
    load: Callable[[str], Configuration] = loading.load
    _: KW_ONLY
    also: Sequence[str] = ()

    def __post_init__(self) -> None:
        self._watchers = [
            ConfigWatcher(one, self._reread, period=self.period)
            for one in (self.directory, *self.also)
        ]
        self._live: LiveConfiguration | None = None
        self._invalidity = Standing(self.say, EVENT_INVALID, EVENT_CHANGED)
        self._first: asyncio.Future[LiveConfiguration] = asyncio.Future()
        self._on_change: Callable[[Configuration], None] | None = None

    def on_change(self, callback: Callable[[Configuration], None]) -> None:
        """Call this with every valid configuration that differs from the one in force."""
        self._on_change = callback

    def refresh(self) -> None:
        """Look again after a mount: it may have covered the directory."""
        for watcher in self._watchers:
            watcher.refresh()

    async def first(self) -> Configuration:
        """Wait for the first valid configuration, however long it takes."""
        return (await self._first).current

    async def run(self) -> None:
        """Read now and after every change; never returns."""
        for watcher in self._watchers:
            watcher.start()
        self._reread()
        async with asyncio.TaskGroup() as tasks:
            for watcher in self._watchers:
                tasks.create_task(watcher.run())

    def _reread(self) -> None:
        if self._live is None:
            try:
                self._live = LiveConfiguration(self.directory, self.load)
            except ConfigurationInvalid as invalid:
                self._invalid(invalid.problems, "nothing is served until it is corrected")
                return
            self._valid(self._live.current)
            self._first.set_result(self._live)
            return
        outcome = self._live.reread()
        if outcome.result == "invalid":
            if outcome.news:
                self._invalid(list(outcome.problems), "the last valid one stays in force")
            return
        if outcome.result == "changed":
            self._valid(outcome.configuration)
            if self._on_change:
                self._on_change(outcome.configuration)
        elif outcome.news:
            log.info("the configuration is valid again, and as before")
            self._recovered()
        self.metrics.configuration_valid.set(1)

    def _valid(self, configuration: Configuration) -> None:
        self.metrics.configuration_valid.set(1)
        self.metrics.configuration_reloads.labels("valid").inc()
        classes = ", ".join(sorted(configuration.storage_classes)) or "none"
        pools = ", ".join(sorted(pool.name for pool in configuration.pools)) or "none"
        log.info("configuration in force; classes: %s; pools: %s", classes, pools)
        for warning in configuration.warnings:
            log.warning("configuration: %s", warning)
        self._recovered()

    def _recovered(self) -> None:
        """Say that the reported problems are over; they are reported again if they come back."""
        self._invalidity.over("the configuration is valid again")

    def _invalid(self, problems: list[Problem], consequence: str) -> None:
        self.metrics.configuration_valid.set(0)
        text = "; ".join(str(problem) for problem in problems)
        if not self._invalidity.stands(f"invalid configuration, {consequence}: {text}"):
            return
        self.metrics.configuration_reloads.labels("invalid").inc()
        for problem in problems:
            log.error("invalid configuration: %s", problem)
