"""How the suite is shared out, what it says of its cost and of branches, what the soak chooses."""

import itertools
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests import capabilities, soak
from tests.suite import branches, order, table
from tests.suite.branches import Exempt, judge

TESTS = Path(order.__file__).resolve().parents[1]
REPORT = """<testsuites><testsuite>
<testcase classname="tests.host.test_a" name="test_one"><properties>
<property name="setup_seconds" value="1.5"/><property name="call_seconds" value="2"/>
<property name="teardown_seconds" value="0.5"/><property name="processor_seconds" value="0.25"/>
</properties></testcase>
<testcase classname="tests.host.test_a.TestMore" name="test_two"><properties>
<property name="call_seconds" value="1"/><property name="processor_seconds" value="0.5"/>
</properties></testcase>
<testcase classname="tests.kernel.inside.test_b" name="test_within"><properties>
<property name="call_seconds" value="0.1"/><property name="processor_seconds" value="0.1"/>
</properties></testcase>
<testcase classname="tests.kernel.test_b" name="test_without_costs"/>
</testsuite></testsuites>"""


def test_costs_are_added_up_by_directory_and_the_dearest_named(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    lines = [line.split() for line in table.table(table.read(report)).splitlines()]
    assert ["2", "1.5", "3.0", "0.5", "0.8", "tests/host"] in lines
    assert ["2", "1.5", "3.0", "0.5", "0.8", "all"] in lines
    assert ["1", "0.0", "0.1", "0.0", "0.1", "tests/kernel/inside"] in lines
    assert lines[-3:-1] == [
        ["1.5", "2.0", "0.5", "0.2", "tests/host/test_a.py::test_one"],
        ["0.0", "1.0", "0.0", "0.5", "tests/host/test_a.py::TestMore::test_two"],
    ]


def test_a_report_that_was_cut_off_costs_nothing(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT[:300])
    assert list(table.read(report)) == []
    assert list(table.read(tmp_path / "none.xml")) == []


def test_one_command_adds_what_several_tests_lack() -> None:
    reasons = [
        "there is no sfdisk: install fdisk",
        "a real kubelet needs containerd, runc: install containerd runc",
        "mounts and loop devices need root: run as root",
    ]
    assert capabilities.remedy(reasons) == "apt-get install containerd fdisk runc"
    assert capabilities.remedy(reasons[2:]) is None


def test_a_file_stays_together_and_so_does_what_shares_a_node() -> None:
    assert order.unit_of("tests/host/test_a.py::TestB::test_c[x/y]") == "tests/host/test_a.py"
    assert order.unit_of("tests/node/test_a.py::test_b") == "tests/node"
    inner = "tests/node/installed"
    assert order.unit_of(f"{inner}/test_a.py::test_b") == inner
    assert order.unit_of("tests/kernel/test_a.py::test_b[c]").endswith("::test_b[c]")


def test_what_takes_longest_is_handed_out_first() -> None:
    directories = {path.parent for path in TESTS.rglob("test_*.py") if path.parent.name != "inside"}
    files = [f"{path.relative_to(TESTS.parent)}/test_a.py::test_b" for path in directories]
    parts = (Path(file).parts[1] for file in sorted(sorted(files), key=order.rank))
    names = list(dict.fromkeys(parts))
    assert names[:4] == ["kernel", "node", "faults", "monitoring"]
    assert names.index("cluster") < names.index("host") < names.index("decisions")
    assert names[-2:] == ["decisions", "docs"]


def test_a_report_goes_from_worker_to_worker_as_it_is_but_for_what_is_no_utf_8() -> None:
    skipped = {"longrepr": ("tests/a.py", 3, "Skipped: no root"), "sections": [("out", "a\udcff")]}
    assert order.encodable(skipped) == {**skipped, "sections": [("out", "a\\udcff")]}


def test_the_same_seed_chooses_the_same() -> None:
    files = [Path(name) for name in "abc"]

    def parts(seed: int) -> list[soak.Part]:
        return list(itertools.islice(soak.drawn(random.Random(seed), files), 12))

    assert parts(7) == parts(7)
    assert parts(7) != parts(8)
    marked = [part.arguments[-1] for part in parts(7) if "soak" in part.arguments]
    assert sorted(marked[:3]) == ["a", "b", "c"], "each of them once in a turn"


def test_a_part_of_the_soak_has_a_directory_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pytest's common one, what another run has left mounted there would fail it."""
    where, common = tmp_path / "where", tmp_path / "common"
    common.mkdir()
    monkeypatch.setenv("PYTEST_DEBUG_TEMPROOT", str(common))
    test = tmp_path / "test_part.py"
    test.write_text(f"def test_it(tmp_path):\n    open({str(where)!r}, 'w').write(str(tmp_path))\n")
    end = time.monotonic() + 600
    lane = soak.Lane(iter([soak.Part((str(test),), 1)]), end, threading.Event())
    lane.run()
    assert lane.passed == 1
    used = Path(where.read_text())
    assert not used.is_relative_to(common)
    assert not used.exists()
    assert list(common.iterdir()) == []


def test_every_test_of_the_soak_is_found() -> None:
    found = {path.name for path in soak.marked()}
    assert {"test_kill.py", "test_dynamic_kill.py", "test_flex_lvm_kill.py"} <= found


A, B, COMMAND = (
    "src/localvolume/disks/a.py",
    "src/localvolume/disks/b.py",
    "src/localvolume/cli/main.py",
)
SOURCES = {
    A: ["def one(x):", "    if x:", "        return 1", "    return 2"],
    B: ["def two(x):", "    while x:", "        x -= 1"],
    COMMAND: ["if True:", "    pass"],
}
NEVER = Exempt("localvolume.disks.a", "one", "if x:", "the kernel never does that")


def _met(branches_of: int, met: int, **functions: list[tuple[int, int]]) -> dict[str, Any]:
    """What coverage.py reports of a file: so many branches, and of each function those missed."""
    return {
        "summary": {
            "num_statements": 10,
            "covered_lines": 9,
            "num_branches": branches_of,
            "covered_branches": met,
        },
        "functions": {name: {"missing_branches": missed} for name, missed in functions.items()},
    }


FILES = {
    A: _met(10, 9, one=[(2, 3)]),
    B: _met(10, 9, two=[(2, -1)]),
    COMMAND: _met(4, 0, main=[(1, 2)]),
}


def _judged(*exceptions: Exempt) -> branches.Findings:
    return judge(FILES, SOURCES.__getitem__, exceptions)


def test_too_little_of_a_held_package_is_told_and_of_another_is_not() -> None:
    findings = _judged()
    assert not findings.enough
    told = {line.split()[0]: line for line in branches.table(findings).splitlines()}
    assert " ".join(told["disks"].split()) == "disks 18 of 20 18 of 20 0 90.0 % below 95%"
    assert " ".join(told["cli"].split()) == "cli 9 of 10 0 of 4 0 0.0 %"
    assert [str(one) for one in findings.missed] == [
        f"{COMMAND}:1 in main: if True: -> line 2",
        f"{A}:2 in one: if x: -> line 3",
        f"{B}:2 in two: while x: -> its end",
    ]


def test_an_exception_counts_as_met_and_is_no_longer_told() -> None:
    findings = _judged(NEVER)
    assert findings.enough, "19 of 20 is 95 %"
    assert "95.0 %  enough" in branches.table(findings)
    assert A not in {one.path for one in findings.missed}


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"line": "return 1"}, "no branch is missed there"),
        ({"function": "other"}, "no branch is missed there"),
        ({"module": "localvolume.disks.gone"}, "no branch is missed there"),
        ({}, "named twice"),
    ],
)
def test_an_exception_that_nothing_needs_is_an_error(changed: dict[str, str], why: str) -> None:
    needless = Exempt(**{**vars(NEVER), **changed})
    findings = _judged(NEVER, needless)
    assert [why in one for one in findings.stale] == [True]
    assert not findings.enough
    assert "exception to remove: " + findings.stale[0] in branches.table(findings)


def test_what_falls_just_short_never_looks_like_enough() -> None:
    files = {A: _met(10000, 9499)}
    findings = judge(files, SOURCES.__getitem__, [])
    assert "94.9 %  below 95%" in branches.table(findings)


@pytest.mark.parametrize("left_out", ["module", "function", "line", "reason"])
def test_an_exception_is_complete_and_has_a_reason(tmp_path: Path, left_out: str) -> None:
    file = tmp_path / "uncovered.toml"

    def write(fields: dict[str, str]) -> None:
        lines = (f'{key} = "{value}"' for key, value in fields.items())
        file.write_text("\n".join(["[[uncovered]]", *lines]))

    write(vars(NEVER))
    assert branches.read(file) == [NEVER]
    for wrong in (
        {key: value for key, value in vars(NEVER).items() if key != left_out},
        {**vars(NEVER), "reason": " "},
        {**vars(NEVER), "lines": "7"},
    ):
        write(wrong)
        with pytest.raises(ValueError, match="an exception"):
            branches.read(file)


def test_the_exceptions_that_there_are_name_lines_that_there_are() -> None:
    root = Path(__file__).resolve().parents[2]

    def lines(module: str) -> list[str] | None:
        place = root / "src" / module.replace(".", "/")
        for path in (place.with_suffix(".py"), place / "__init__.py"):
            if path.is_file():
                return path.read_text(encoding="utf-8").splitlines()
        return None

    assert branches.unfounded(branches.read(root / "tests/uncovered.toml"), lines) == []
    gone = [
        Exempt("localvolume.nowhere", "", "if x:", "none"),
        Exempt("localvolume.disks.plan.plan", "", "if there is none:", "none"),
    ]
    assert [one.partition(" localvolume")[0] for one in branches.unfounded(gone, lines)] == [
        "there is no module",
        "there is no such line in",
    ]
