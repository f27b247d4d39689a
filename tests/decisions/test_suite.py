"""How the suite is shared out, what it says of its cost, and what the soak chooses."""

import itertools
import random
from pathlib import Path

from tests import capabilities, soak
from tests.suite import order, table

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
    assert order.unit_of("tests/kernel/test_a.py::test_b[c]").endswith("::test_b[c]")


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


def test_every_test_of_the_soak_is_found() -> None:
    found = {path.name for path in soak.marked()}
    assert {"test_kill.py", "test_dynamic_kill.py", "test_flex_lvm_kill.py"} <= found
