"""A real Prometheus for tests: it scrapes given processes each second, and is asked by its API."""

from __future__ import annotations

import json
import math
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import yaml

from localvolume_lab.controlplane.ports import free_ports
from tests.suite.until import until

SECONDS = 150.0
"""A generous bound for what takes a second or two on a quiet machine."""


class QueryRefused(Exception):
    """The API answered that the query cannot be run; the text says why."""


class Prometheus:
    """Runs while it is entered. `scrape`: ports of this machine by the labels of their targets;
    `jobs`: whole scrape configurations beside these."""

    def __init__(
        self,
        directory: Path,
        scrape: Mapping[int, Mapping[str, str]],
        rules: Path,
        jobs: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.directory = directory
        self.port = free_ports(1)[0]
        self._config: dict[str, Any] = {
            "global": {
                "scrape_interval": "1s",
                "scrape_timeout": "1s",
                "evaluation_interval": "1s",
            },
            "rule_files": [str(rules)],
            # A job of our target labels wins over that of its configuration.
            "scrape_configs": [
                {
                    "job_name": f"port-{port}",
                    "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": dict(labels)}],
                }
                for port, labels in scrape.items()
            ]
            + [dict(job) for job in jobs],
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._began = 0.0

    def __enter__(self) -> Self:
        self.directory.mkdir(exist_ok=True)
        config = self.directory / "prometheus.yml"
        config.write_text(yaml.safe_dump(self._config))
        self._began = time.time()
        with (self.directory / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={config}",
                    f"--storage.tsdb.path={self.directory / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                    "--log.level=warn",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            self._until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(15)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _until_ready(self) -> None:
        log = self.directory / "log"

        def ready() -> bool:
            try:
                url = f"http://127.0.0.1:{self.port}/-/ready"
                with urllib.request.urlopen(url, timeout=5):
                    return True
            except OSError:
                return False

        def check() -> None:
            assert self._process is not None
            assert self._process.poll() is None, f"prometheus ended: {log.read_text()}"

        until(ready, seconds=SECONDS, check=check, said=log.read_text)

    # --- asking --------------------------------------------------------------------------------

    def ask(self, page: str, **parameters: str) -> Any:
        """The `data` of an answer of /api/v1; raises QueryRefused."""
        query = urllib.parse.urlencode(
            {name.rstrip("_"): value for name, value in parameters.items()}
        )
        url = f"http://127.0.0.1:{self.port}/api/v1/{page}?{query}"
        try:
            with urllib.request.urlopen(url, timeout=30) as got:
                return json.load(got)["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise QueryRefused(json.load(error).get("error", error.reason)) from None

    def now(self, query: str) -> list[tuple[dict[str, str], float]]:
        """What an expression is now: labels and value of each series."""
        found = self.ask("query", query=query)["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]

    def ever(self, query: str) -> list[dict[str, str]]:
        """The labels of the series that have had a value since it was started."""
        found = self.ask(
            "query_range",
            query=query,
            start=f"{self._began:.3f}",
            # The steps are counted from the start: one more, and the newest values are in it.
            end=f"{time.time() + 1:.3f}",
            step="1",
        )["result"]
        return [
            one["metric"]
            for one in found
            if any(not math.isnan(float(value)) for _, value in one["values"])
        ]

    def until(self, query: str, seconds: float = SECONDS) -> list[tuple[dict[str, str], float]]:
        """What an expression is, once it has a value; fails after `seconds`."""
        return until(lambda: self.now(query), seconds=seconds, every=0.2, said=lambda: query)
