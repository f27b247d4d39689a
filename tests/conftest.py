"""What all tests share: the `needs` marker, one real control plane, names that do not collide.

A test marked `needs("loop", ...)` is skipped where the machine lacks that, and the run ends by
saying so in plain words; with CI=true it fails instead, as does every other skip.
"""

import contextlib
import logging
import os
import secrets
from collections.abc import Generator, Iterable, Iterator

import pytest

from localvolume_lab.controlplane import ControlPlane
from tests import capabilities
from tests.suite import untested

pytest_plugins = (
    "tests.suite.chance",
    "tests.suite.costs",
    "tests.suite.order",
    "tests.suite.traced",
    "tests.suite.programs",
)

#: Nothing may go untested where this says so.
IN_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}

# Where mkfs and its like are, and where an ordinary user does not look for programs.
os.environ["PATH"] = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    known = capabilities.known()
    for item in items:
        if "control_plane" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.needs("controlplane"))
        for name in capabilities.needs_of(item):
            if name not in known:
                raise pytest.UsageError(
                    f"{item.nodeid} needs {name!r}, which is none of: {', '.join(known)}"
                )


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what the selected tests need now, before the first of them and in plain sight.

    What a worker needs was built before it was started (__main__.py)."""
    if session.config.option.collectonly or hasattr(session.config, "workerinput"):
        return
    wanted = {name for item in session.items for name in capabilities.needs_of(item)}
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
        capabilities.build(wanted)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    # The same reason only once: "loop" and "ext4" both say that root is missing.
    reasons = dict.fromkeys(
        reason for name in capabilities.needs_of(item) for reason in capabilities.missing(name)
    )
    if reasons:
        item.user_properties += [(untested.LACKING, reason) for reason in reasons]
        pytest.skip("; ".join(reasons))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        reason = _reason(report)
        report.outcome = "failed"
        report.longrepr = f"CI=true, where nothing is skipped: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if IN_CI and report.skipped:
        reason = _reason(report)
        report.outcome = "failed"
        report.longrepr = f"CI=true, where nothing is skipped: {reason}"
    return report


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    where = report.longrepr
    text = where[2] if isinstance(where, tuple) else str(where)
    return text.removeprefix("Skipped: ")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    # Of several processes all is told at the very end (__main__.py).
    if untested.RESULTS in os.environ:
        return
    lacking: list[tuple[str, str]] = []
    reports: Iterable[pytest.TestReport | pytest.CollectReport] = terminalreporter.stats.get(
        "skipped", []
    )
    for report in reports:
        properties = getattr(report, "user_properties", ())
        reasons = [value for name, value in properties if name == untested.LACKING]
        lacking += [(reason, report.nodeid) for reason in reasons or [_reason(report)]]
    if lines := untested.told(lacking):
        terminalreporter.section(untested.TITLE, sep="=")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """A command run in this process sets logging up for itself, to a stream that pytest closes."""
    root = logging.getLogger()
    level, before = root.level, set(root.handlers)
    yield
    for handler in set(root.handlers) - before:
        if type(handler) is logging.StreamHandler:
            root.removeHandler(handler)
    root.setLevel(level)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One real control plane for the whole run, started by the first test that asks for it.

    Tests share it: name what you make after `unique`, and leave it running and unpaused.
    """
    # Events are read in whole to find those of one object: no more of them than tests need.
    kept = ["--event-ttl=10m"]
    directory = tmp_path_factory.mktemp("controlplane")
    with ControlPlane(directory, extra_apiserver_args=kept) as plane:
        yield plane


@pytest.fixture
def unique() -> str:
    """A short name that no other test has, fit for any Kubernetes object and label."""
    return f"t{secrets.token_hex(4)}"
