"""What needs a kernel that this machine does not have: the tests in inside/, run in a guest."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from image.running import BuildFailed
from localvolume_lab.controlplane.assets import cache_home
from tests.kernel import fetch
from tests.kernel.support_guest import (
    POWER_CUT,
    Guest,
    GuestFailed,
    GuestStill,
    KernelStuck,
    pytest_inside,
)
from tests.kernel.support_kernel import MODULES, OWN, Kernel, kernel, unfit
from tests.kernel.support_programs import with_programs_of_the_image
from tests.suite import measured, untested
from tests.suite.units import MIB
from tests.suite.until import until

pytestmark = pytest.mark.needs("guest")

#: The last one is for groups that are to be large; it is sparse.
DISKS = dict.fromkeys("abcde", 512 * MIB) | {"f": 12 << 30}
INSIDE = Path(__file__).resolve().with_name("inside")


@dataclass(frozen=True)
class Outcome:
    """One test as it went in the guest: "" where it passed."""

    name: str
    failure: str


def outcomes(report: Path) -> list[Outcome]:
    """Read a JUnit report; a skipped test is one that failed: here is all that it needs."""
    found = []
    for case in ET.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        told = [part for part in case if part.tag in {"failure", "error", "skipped"}]
        texts = (f"{part.tag}: {part.text or part.get('message')}" for part in told)
        found.append(Outcome(name, "\n".join(texts)))
    return found


#: A guest for each of these groups of files, and one for all that is in none. A guest takes ten
#: seconds to start; so few of them take two workers as long as each other. One of them runs with
#: the programs of the image, and the others with the machine's.
_IMAGES, _MACHINES = "test_lvm_[!s]*.py", ("test_*_kill.py", "test_lvm_store*.py")
#: What takes csi-sanity, which not every machine can build.
_SANITY = "test_csi_*.py"
_GROUPS = (_IMAGES, _SANITY, *_MACHINES)
_PASSED_ON = ("LOCALVOLUME_SEED", "LOCALVOLUME_SOAK_SECONDS")


def files_of(group: str) -> list[Path]:
    """The files of a group that are in none before it; "*": of no other group."""
    taken = [path for one in _GROUPS[: [*_GROUPS, "*"].index(group)] for path in INSIDE.glob(one)]
    pattern = "test_*.py" if group == "*" else group
    return sorted(path for path in INSIDE.glob(pattern) if path not in taken)


def soak_files() -> list[str]:
    """Of the files inside those that have tests of the soak."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in INSIDE.glob("test_*.py")}
    return sorted(name for name, text in texts.items() if "pytest.mark.soak" in text)


def run(command: list[str], directory: Path, outage: Sequence[str] = ()) -> tuple[int | None, str]:
    """The command's exit code and the console; None where the guest's own kernel got stuck, or
    where nothing happens in it any more.

    `outage` is the command of a guest before, whose power is cut when that says so.

    User-mode Linux gets stuck now and then under load: that says nothing about what ran in it. And
    where a kill leaves a device suspended whose readers cannot die, nobody in the guest can go on:
    a machine in that state is started anew.
    """
    try:
        if outage:
            with Guest(outage, directory, disks=DISKS) as guest:
                guest.cut_off(POWER_CUT, 1000)
        with Guest(command, directory, disks=DISKS) as guest:
            return guest.wait(3050), guest.console()
    except (GuestStill, KernelStuck) as stuck:
        return None, str(stuck)


def passes(
    tmp_path: Path,
    subtests: pytest.Subtests,
    capsys: pytest.CaptureFixture[str],
    name: str,
    files: list[Path],
    *options: str,
    before: Sequence[str] = (),
    outage: Sequence[str] = (),
) -> None:
    """Run the files in a guest, and tell of each test as one of this process.

    `before`: words of a command that comes before that of the tests. `outage`: arguments of the
    tests in a guest before, whose power is cut.
    """
    # A guest's environment is its own.
    given = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    given |= measured.environment()
    # There is another home in it, and what was built for tests is in this one's.
    given["XDG_CACHE_HOME"] = str(cache_home().parents[1])
    variables = (f"{name}={value}" for name, value in given.items())
    environment = ["env", *variables]
    command = [*before, *environment, *pytest_inside(*options, *map(str, files))]
    first = [*environment, *pytest_inside(*outage)] if outage else ()
    code, console = run(command, tmp_path / "first", first)
    report = tmp_path / "first" / "junit.xml"
    if code is None:
        with capsys.disabled():
            print(f"\n{name}: the guest is stuck; once more. {console}")
        code, console = run(command, tmp_path / "second", first)
        report = tmp_path / "second" / "junit.xml"
    assert report.exists(), console
    if results := os.environ.get(untested.RESULTS):
        kept = "".join(letter for letter in name if letter.isalnum() or letter in "_-")
        shutil.copyfile(report, Path(results, f"inside-{kept or 'others'}.xml"))
    found = outcomes(report)
    for outcome in found:
        with subtests.test(outcome.name):
            if outcome.failure:
                pytest.fail(outcome.failure, pytrace=False)
    ran = {outcome.name.partition("::")[0] for outcome in found}
    assert ran >= {path.stem for path in files}, console
    assert code == 0, console


@pytest.mark.parametrize(
    "group",
    [
        pytest.param(_IMAGES, marks=pytest.mark.needs("image")),
        pytest.param(_SANITY, marks=pytest.mark.needs("csi-sanity")),
        *_MACHINES,
        "*",
    ],
)
def test_everything_inside_passes_in_the_guest(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    subtests: pytest.Subtests,
    capsys: pytest.CaptureFixture[str],
    group: str,
) -> None:
    seed = request.config.getoption("--shuffle")
    shuffled = ("--shuffle", seed) if seed else ()
    before = with_programs_of_the_image(tmp_path / "image") if group == _IMAGES else ()
    passes(tmp_path, subtests, capsys, group, files_of(group), *shuffled, before=before)


@pytest.mark.parametrize("what", ["kept", "given-up"])
def test_a_node_whose_power_is_cut_starts_again(
    tmp_path: Path, subtests: pytest.Subtests, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    """Two guests on the same disks: the first one is cut off in the midst of its work."""
    first, then = (INSIDE / "outage" / f"test_{name}.py" for name in ("before", "after"))
    chosen = ("-k", what)
    passes(tmp_path, subtests, capsys, what, [then], *chosen, outage=(*chosen, str(first)))


@pytest.mark.soak
@pytest.mark.parametrize("name", soak_files())
def test_soak_inside(
    tmp_path: Path, subtests: pytest.Subtests, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    passes(tmp_path, subtests, capsys, name, [INSIDE / name], "-m", "soak")


def test_every_file_is_in_one_group() -> None:
    files = [path for group in (*_GROUPS, "*") for path in files_of(group)]
    assert sorted(files) == sorted(INSIDE.glob("test_*.py"))
    assert all(files_of(group) for group in (*_GROUPS, "*"))


def test_a_guest_whose_command_fails_or_hangs_is_told(tmp_path: Path) -> None:
    with Guest(["bash", "-c", "echo said; exit 3"], tmp_path) as guest:
        assert guest.wait(300) == 3
        assert "said" in guest.console()
    with Guest(["sleep", "1000"], tmp_path) as guest:
        until(guest.console, lambda console: "the guest runs" in console, seconds=300)
        with pytest.raises(GuestFailed) as failed:
            guest.wait(3)
    assert "not done after 3 s; its kernel says:" in str(failed.value)
    assert failed.type is GuestFailed


@pytest.mark.parametrize(
    "chosen", [one for one in dict.fromkeys((OWN, kernel())) if unfit(one) is None]
)
def test_each_kernel_that_is_there_has_what_tests_ask_of_it(tmp_path: Path, chosen: Kernel) -> None:
    """The machine's own as well, which serves where no other can be had."""
    modules = [f"/run/modprobe -a {name}" for name in ("dm-thin-pool", "dm-flakey", "xfs", "btrfs")]
    command = ["bash", "-ec", "; ".join([*modules, "uname -r >/run/results/release"])]
    with Guest(command, tmp_path, disks={"a": MIB}, kernel=chosen) as guest:
        assert guest.wait(300) == 0, guest.console()
    assert (tmp_path / "release").read_text().strip() in os.listdir(chosen.modules)


def test_with_amx_the_older_kernel_is_not_started(tmp_path: Path) -> None:
    processor = tmp_path / "cpuinfo"
    processor.write_text("flags\t\t: avx512f amx_tile amx_int8\n")
    assert "make guest-kernel" in str(unfit(OWN, processor))
    assert unfit(Kernel("newer", MODULES), processor) is None
    processor.write_text("flags\t\t: avx512f\n")
    assert unfit(OWN, processor) is None


@pytest.mark.parametrize(
    ("chosen", "command"),
    [
        (Kernel("false", MODULES), "true"),
        (Kernel("no-such-program", MODULES), "true"),
        (kernel(), "false"),
    ],
)
def test_a_kernel_in_which_nothing_runs_is_not_taken(chosen: Kernel, command: str) -> None:
    with pytest.raises(BuildFailed):
        fetch.prove(chosen, command)


def test_a_guest_ends_with_what_has_started_it(tmp_path: Path) -> None:
    """However that ends: here it is killed, as by a time limit."""
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from tests.kernel.support_guest import Guest\n"
        "from tests.suite.until import until\n"
        "with Guest(['sleep', '1000'], Path(sys.argv[1])) as guest:\n"
        "    until(guest.console, lambda said: 'the guest runs' in said, seconds=300)\n"
        "    print(guest.pid, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    with tempfile.TemporaryDirectory(prefix="lv-") as directory:  # it cannot clear up itself
        ended = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            timeout=600,
            env={**os.environ, "TMPDIR": directory},
        )
        assert ended.returncode == -signal.SIGKILL
        until(lambda: _of_group(int(ended.stdout)), lambda left: not left)


def _of_group(group: int) -> list[str]:
    """The processes of a group that have not ended (proc(5), /proc/PID/stat: state, pgrp)."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            if fields[0] != "Z" and int(fields[2]) == group:
                found.append(process.name)
    return found


def test_a_guest_that_is_still_is_given_up(tmp_path: Path) -> None:
    with Guest(["sleep", "1000"], tmp_path, still_seconds=3.0) as guest:
        until(guest.console, lambda console: "the guest runs" in console, seconds=300)
        with pytest.raises(GuestFailed) as failed:
            guest.wait(600)
    assert "did nothing for 3 s; its kernel says:" in str(failed.value)
    assert failed.type is GuestStill


def test_a_kernel_that_answers_nobody_is_told_from_what_runs_in_it(tmp_path: Path) -> None:
    """Here it is stopped; where it is stuck, nothing else can be seen of it either."""
    with Guest(["sleep", "1000"], tmp_path, answer_seconds=2.0) as guest:
        until(guest.console, lambda console: "the guest runs" in console, seconds=300)
        guest.pause()
        with pytest.raises(KernelStuck):
            guest.wait(1)


@pytest.mark.parametrize(
    ("case", "failure"),
    [
        ("<testcase classname='a.b' name='c'/>", ""),
        ("<testcase classname='a.b' name='c'><skipped message='why'/></testcase>", "skipped: why"),
        ("<testcase classname='a.b' name='c'><failure>what</failure></testcase>", "failure: what"),
        ("<testcase classname='a.b' name='c'><error>what</error></testcase>", "error: what"),
    ],
)
def test_an_outcome_is_read_for_what_it_is(tmp_path: Path, case: str, failure: str) -> None:
    report = tmp_path / "junit.xml"
    report.write_text(f"<testsuites><testsuite>{case}</testsuite></testsuites>")
    assert outcomes(report) == [Outcome("b::c", failure)]
