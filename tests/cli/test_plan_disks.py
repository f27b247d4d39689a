"""`localvolume plan` and `check-config` on disks: each with its verdict, and how to approve."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localvolume.cli.main import main
from tests.host.support_devices import LoopDevice, command, loop_device
from tests.host.support_disks import odd_size, shared_directory


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    with shared_directory(tmp_path / "fast") as directory:
        yield directory


@pytest.fixture
def size() -> int:
    return odd_size()


@pytest.fixture
def config(tmp_path: Path, directory: Path, size: int) -> Path:
    made = tmp_path / "config"
    made.mkdir()
    classes = {"fast": {"hostDir": "/host/fast", "mountDir": str(directory)}}
    (made / "storageClassMap").write_text(json.dumps(classes))
    write(made, size, [])
    return made


def write(config: Path, size: int, approved: list[str]) -> None:
    match = {"minSize": str(size), "maxSize": str(size), "transport": "loop"}
    filters = [{"name": "loops", "class": "fast", "match": match, "fsType": "ext4"}]
    (config / "disks").write_text(json.dumps({"filters": filters, "approved": approved}))


@pytest.fixture
def disks(size: int) -> Iterator[list[LoopDevice]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(loop_device(size)) for _ in range(2)]


def rows(capsys: pytest.CaptureFixture[str], config: Path) -> dict[str, dict[str, Any]]:
    assert main(["plan", "--config", str(config), "--node", "n", "--offline", "-o", "json"]) == 0
    return {row["path"]: row for row in json.loads(capsys.readouterr().out)}


@pytest.mark.needs("root", "loop")
class TestPlan:
    def test_each_disk_has_a_verdict_a_reason_and_the_plan_it_is_in(
        self, config: Path, disks: list[LoopDevice], capsys: pytest.CaptureFixture[str]
    ) -> None:
        blank, used = disks
        command("mkswap", used.path)
        found = rows(capsys, config)
        assert found[blank.path]["verdict"] == "format"
        assert found[blank.path]["approved"] is False
        assert found[blank.path]["plan"].startswith("sha256:")
        assert found[blank.path]["volumePath"].startswith("/host/fast/")
        assert (found[used.path]["verdict"], found[used.path]["code"]) == ("hold", "signature")
        assert found[used.path]["reason"] == "it holds swap"

    def test_the_table_says_how_to_approve(
        self,
        config: Path,
        size: int,
        disks: list[LoopDevice],
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        digest = rows(capsys, config)[disks[0].path]["plan"]
        arguments = ["plan", "--config", str(config), "--node", "n", "--offline"]
        assert main(arguments) == 0
        said = capsys.readouterr().out
        assert f"approved:\n  - {digest}" in said
        assert "is not approved" in said
        line = next(line for line in said.splitlines() if line.startswith(disks[0].path))
        assert "loops" in line
        assert "it is blank" in line
        write(config, size, [digest])
        assert main(arguments) == 0
        said = capsys.readouterr().out
        assert f"The plan {digest} is approved" in said
        # Looking changes nothing.
        assert command("wipefs", disks[0].path) == ""

    def test_another_node_has_another_digest(
        self, config: Path, disks: list[LoopDevice], capsys: pytest.CaptureFixture[str]
    ) -> None:
        digest = rows(capsys, config)[disks[0].path]["plan"]
        main(["plan", "--config", str(config), "--node", "m", "--offline", "-o", "json"])
        other = {row["path"]: row for row in json.loads(capsys.readouterr().out)}
        assert other[disks[0].path]["plan"] not in ("", digest)


@pytest.mark.needs("root")
class TestCheckConfig:
    def test_filters_are_counted(self, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check-config", str(config)]) == 0
        assert "1 filter of disks" in capsys.readouterr().out

    def test_what_is_wrong_is_named(self, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (config / "disks").write_text(json.dumps({"aproved": []}))
        assert main(["check-config", str(config)]) == 1
        assert "disks.aproved: unknown key; did you mean approved?" in capsys.readouterr().out
