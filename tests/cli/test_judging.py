"""`check-config` and `plan` say of pools and directories what the agent would say of them."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume.cli.main import main
from localvolume.cli.planning.facts import offline
from localvolume.cli.planning.pools import look, pool_rows
from localvolume.config.loading import load
from localvolume.config.model import Served
from localvolume.config.provisioner import OURS
from localvolume.dynamic.classes.parameters import facts_of_class
from localvolume.dynamic.plan.world import World
from localvolume.kube.objects import Meta, StorageClass
from tests.decisions.support_dynamic import NODE
from tests.host.support_devices import filesystem, tmpfs

ENFORCED = "sizes cannot be enforced: project quotas are off"


def written(tmp_path: Path, where: Path, *lines: str) -> Path:
    config = tmp_path / "config"
    config.mkdir(exist_ok=True)
    (config / "pools").write_text("\n".join(["fast:", f"  hostDir: {where}", *lines]) + "\n")
    return config


def checked(config: Path, capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    assert main(["check-config", *(words or ("--host-checks",)), str(config)]) == status
    return capsys.readouterr().out


def planned(config: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Why pools are held, by name."""
    words = ["--config", str(config), "--node", "node-1", "--offline", "-o", "json"]
    assert main(["plan", *words]) == 0
    rows = json.loads(capsys.readouterr().out)
    return {row["pool"]: row["reason"] for row in rows if row["verdict"] == "hold"}


@pytest.fixture
def ext4() -> Iterator[Path]:
    """README's own example: nobody thought of project quotas."""
    with filesystem("ext4") as where:
        yield where


@pytest.mark.needs("root", "loop", "ext4")
def test_a_pool_that_cannot_enforce(
    tmp_path: Path, ext4: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = written(tmp_path, ext4, "  backend: directory")
    (problem,) = checked(config, capsys, status=1).splitlines()
    assert problem.startswith("pools.fast: on this machine,")
    assert ENFORCED in problem
    assert "tune2fs -O project,quota -Q prjquota /dev/loop" in problem
    assert ENFORCED in planned(config, capsys)["fast"]
    # Nothing was made there by looking.
    assert [one.name for one in ext4.iterdir()] == ["lost+found"]
    assert checked(config, capsys, "--no-host-checks") == "good: 1 pool\n"


@pytest.mark.needs("root", "loop", "ext4")
def test_a_pool_that_can_do_what_it_says(
    tmp_path: Path, ext4: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = written(tmp_path, ext4, "  enforce: none")
    assert checked(config, capsys) == "good: 1 pool\n"
    assert planned(config, capsys) == {}


@pytest.mark.needs("root", "loop", "ext4")
@pytest.mark.parametrize("provisioner", sorted(OURS))
def test_a_class_that_asks_for_more_than_the_pool_can_do(
    tmp_path: Path, ext4: Path, provisioner: str
) -> None:
    """Whichever of our provisioners serves it: both make the same volumes."""
    config = load(str(written(tmp_path, ext4, "  enforce: none", "  backend: directory")))
    asking = StorageClass(
        metadata=Meta(name="strict"), provisioner=provisioner, parameters={"enforce": "quota"}
    )
    asked = facts_of_class(asking, Served(provisioner, "native"))
    pools, without, _ = asyncio.run(look(config, (), None))
    world = World(offline(NODE, pools))
    (row,) = pool_rows(pools, without, world, [asked])
    assert (row["verdict"], row["pool"]) == ("hold", "fast")
    assert ENFORCED in row["reason"]
    (row,) = pool_rows(pools, without, world, ())
    assert row["verdict"] == "serve"


def test_a_pool_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = written(tmp_path, tmp_path / "away")
    assert "No such file or directory" in checked(config, capsys, status=1)
    assert "No such file or directory" in planned(config, capsys)["fast"]


@pytest.mark.needs("root")
def test_a_pool_that_others_may_write_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = tmp_path / "pool"
    where.mkdir()
    with tmpfs(where, options="mode=0755"):
        config = written(tmp_path, where, "  enforce: none")
        assert checked(config, capsys) == "good: 1 pool\n"
        where.chmod(0o777)
        assert "chmod go-w" in checked(config, capsys, status=1)
        assert "chmod go-w" in planned(config, capsys)["fast"]


def test_a_directory_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config"
    config.mkdir()
    away = tmp_path / "away"
    text = f"fast:\n  hostDir: {away}\n  mountDir: {away}\n"
    (config / "storageClassMap").write_text(text)
    said = checked(config, capsys, status=1)
    assert f"the discovery directory {away} cannot be listed: No such file" in said
    away.mkdir()
    assert checked(config, capsys) == "good: 1 class\n"


@pytest.mark.needs("root")
def test_whether_this_machine_is_a_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a kubelet is, check-config says what the agent would; elsewhere, that it did not."""
    config = written(tmp_path, tmp_path / "away")
    kubelet = tmp_path / "kubelet"
    monkeypatch.setenv("KUBELET_DIR", str(kubelet))
    assert main(["check-config", str(config)]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[0] == "good: 1 pool"
    assert "No executables, directories or pools were looked at" in said
    assert main(["check-config", "-o", "yaml", str(config)]) == 0
    assert "valid: true\nhostChecks: false\n" in capsys.readouterr().out
    (kubelet / "pods").mkdir(parents=True)
    assert main(["check-config", str(config)]) == 1
    said = capsys.readouterr().out
    assert "the pool cannot be used" in said
    assert "good" not in said
    assert main(["check-config", "-o", "json", str(config)]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["valid"], found["hostChecks"]) == (False, True)
    assert [one["key"] for one in found["problems"]] == ["pools.fast"]
    assert checked(config, capsys, "--no-host-checks") == "good: 1 pool\n"
    monkeypatch.setenv("KUBELET_DIR", "none")
    assert "No executables" in checked(config, capsys, "-o", "text")


def test_pools_of_what_is_replaced_are_planned_as_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the flags and the environment of the agent, which has no ConfigMap of ours."""
    away, data = tmp_path / "away", tmp_path / "data"
    data.mkdir()
    monkeypatch.setenv("KUTTI_ROOT_PATH", str(data))
    monkeypatch.setenv("KUTTI_NODE_NAME", "n")
    words = ["--config", str(tmp_path / "none"), "--openebs-base-path", str(away)]
    assert main(["plan", *words, "--node", "n", "--offline", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert sorted(row["path"] for row in rows) == [str(away), str(data)]
    assert "No such file or directory" in rows[0]["reason"]
    monkeypatch.setenv("KUTTI_ROOT_PATH", "data")
    assert main(["plan", *words, "--node", "n", "--offline"]) != 0
    assert "KUTTI_ROOT_PATH" in capsys.readouterr().err
