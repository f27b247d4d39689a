"""What a machine cannot test is skipped with its reason, and fails where CI=true; and what a test
starts it names."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import capabilities
from tests.suite import measured, untested
from tests.suite.programs import programs_in

REPOSITORY = Path(__file__).parents[2]

TESTS = """
import pytest
from tests import capabilities

capabilities.PROBES["root"] = lambda: "mounts need root"
capabilities.PROBES["loop"] = lambda: "mounts need root"
capabilities.PROBES["go"] = lambda: "Go is too old"
capabilities.PROBES["kubectl"] = lambda: None

@pytest.mark.needs("root")
def test_a(): pass

@pytest.mark.needs("root", "loop", "go")
def test_b(): pass

@pytest.mark.needs("kubectl")
def test_c(): pass

def test_d(): pytest.skip("there is no moon")
"""


def run(
    directory: Path, text: str, ci: str, *, path: str = ""
) -> "subprocess.CompletedProcess[str]":
    (directory / "test_x.py").write_text(text)
    environment = {**os.environ, "CI": ci, "COLUMNS": "200"}
    # Measured, it would not see what its tests start (suite/programs.py).
    for name in (untested.RESULTS, *measured.environment()):
        environment.pop(name, None)
    environment["PATH"] = f"{path}{os.pathsep}{environment['PATH']}"
    options = [
        "-q",
        f"--rootdir={directory}",
        f"--junit-xml={directory / 'report.xml'}",
        "-p",
        "tests.conftest",
        "-c",
        "pyproject.toml",
        "-p",
        "no:cacheprovider",
    ]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(directory / "test_x.py")],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_elsewhere_it_is_skipped_and_told_at_the_end(tmp_path: Path) -> None:
    done = run(tmp_path, TESTS, ci="")
    assert done.returncode == 0
    assert "1 passed, 3 skipped" in done.stdout
    told = done.stdout.partition("Not tested on this machine, and why")[2]
    assert "2 tests (" in told
    assert "test_x.py): mounts need root\n" in told
    assert "test_x.py): there is no moon\n" in told
    # As the whole suite tells it, of the reports of its processes.
    report = untested.read(tmp_path / "report.xml")
    assert untested.told(report) == [
        "1 test (test_x.py): Go is too old",
        "2 tests (test_x.py): mounts need root",
        "1 test (test_x.py): there is no moon",
    ]


def test_of_many_files_the_directories_are_told() -> None:
    names = [f"tests/{where}/test_{n}.py::test_a" for where in ("host", "cli") for n in range(2)]
    reason = "there is no sfdisk: install fdisk"
    assert untested.told((reason, name) for name in names) == [
        f"4 tests (tests/cli, tests/host): {reason}",
        "Most of it is tested after: apt-get install fdisk",
    ]


def test_of_a_report_that_was_cut_off_nothing_is_told(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text("<testsuites><testsuite>")
    assert untested.told(untested.read(tmp_path / "report.xml")) == []


def test_in_ci_every_skip_fails(tmp_path: Path) -> None:
    done = run(tmp_path, TESTS, ci="true")
    assert done.returncode == 1
    assert "mounts need root" in done.stdout
    assert "CI=true, where nothing is skipped: there is no moon" in done.stdout
    assert "skipped" not in done.stdout.splitlines()[-1]
    assert "1 passed" in done.stdout


def test_a_module_that_skips_itself_fails_in_ci_too(tmp_path: Path) -> None:
    text = 'import pytest\npytest.skip("no sun", allow_module_level=True)\n'
    done = run(tmp_path, text, ci="true")
    assert done.returncode != 0
    assert "CI=true, where nothing is skipped: no sun" in done.stdout


def test_an_unknown_need_is_an_error(tmp_path: Path) -> None:
    text = 'import pytest\n@pytest.mark.needs("moon")\ndef test_a(): pass\n'
    done = run(tmp_path, text, ci="")
    assert done.returncode == 4
    assert "needs 'moon', which is none of: " in done.stderr


@pytest.mark.parametrize("name", sorted(capabilities.PROBES))
def test_every_missing_capability_is_told_in_words(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine without any command, root, Go or network."""
    code = (
        "import os; os.geteuid = lambda: 1000; os.access = lambda *_, **__: False\n"
        f"from tests import capabilities; print(capabilities.missing({name!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        env={
            "PATH": "/nonexistent",
            "XDG_CACHE_HOME": str(tmp_path),
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *sys.path]),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(done.stdout.split()) >= 6, done.stdout


def test_all_that_is_lacking_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one thing after the other: one command adds it all."""
    monkeypatch.setenv("PATH", "/nonexistent")
    told = capabilities.missing("ext4")
    assert {"there is no losetup: install mount", "there is no mkfs.ext4: install e2fsprogs"} < {
        *told
    }
    assert len(told) == len(set(told))


STARTS = """
import os, subprocess
import pytest
from tests.suite.programs import require

@pytest.fixture
def made(): subprocess.run(["make"])

def test_itself(): subprocess.run(["make"])

def test_by_its_fixture(made): pass

def test_as_nobodys_child(): os.waitpid(os.posix_spawnp("make", ["make"], os.environ), 0)

@pytest.mark.needs("make")
def test_named(made): pass

@pytest.mark.needs("flexclient")
def test_implied(made): pass

def test_required():
    require("make")
    subprocess.run(["make"])
"""


def test_a_test_that_does_not_name_what_it_starts_fails(tmp_path: Path) -> None:
    for name in ("make", "go"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\necho go1.99\n")
        program.chmod(0o755)
    done = run(tmp_path, STARTS, ci="", path=str(tmp_path))
    failed = [line.partition("::")[2] for line in done.stdout.splitlines() if "FAILED" in line]
    assert [line.partition(" ")[0] for line in failed] == [
        "test_itself",
        "test_by_its_fixture",
        "test_as_nobodys_child",
    ], done.stdout
    assert all("starts what it does not need(): ['make']" in line for line in failed)
    assert "3 failed, 3 passed" in done.stdout


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["mount", "/dev/sda", "/srv/chattr"], {"mount"}),
        (["{bin}/mount"], {"mount"}),
        (["/tmp/mine/mount"], set()),
        (["nice", "-n", "10", "setpriv", "--pdeathsig", "KILL", "--", "{bin}/chattr"], {"chattr"}),
        (["setpriv", "--pdeathsig", "KILL", "--", "/tmp/imitation", "mount"], set()),
        (["unshare", "--mount", "mount"], {"unshare", "mount"}),
        (["sh", "-c", "true", "mount"], set()),
    ],
)
def test_the_programs_of_a_command_line(
    argv: list[str], expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For them to be where this machine has them, or nowhere."""
    place = str(Path(shutil.which("mount") or "/bin/mount").parent)
    assert programs_in([word.format(bin=place) for word in argv]) == expected
