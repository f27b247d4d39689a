"""`localvolume plan`: what it says of this host, in every form, and that it changes nothing."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from localvolume.cli.main import main
from localvolume_lab.controlplane import ControlPlane
from tests.host.support_devices import tmpfs
from tests.suite.api import CLASSES, JOBS, MERGE, VOLUMES
from tests.suite.units import MIB


@pytest.fixture
def disks(tmp_path: Path) -> Path:
    directory = tmp_path / "disks"
    directory.mkdir()
    return directory


def configuration(tmp_path: Path, disks: Path, name: str = "fast", **keys: str) -> Path:
    directory = tmp_path / "config"
    directory.mkdir(exist_ok=True)
    lines = [f"{name}:", f"  hostDir: /host{disks}", f"  mountDir: {disks}"]
    lines += [f"  {key}: {value}" for key, value in keys.items()]
    (directory / "storageClassMap").write_text("\n".join(lines) + "\n")
    return directory


def planned(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, dict[str, Any]]:
    """The rows by the entry's name."""
    assert main(["plan", *map(str, words), "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    return {os.path.basename(row["path"]): row for row in rows}


@pytest.mark.needs("root")
class TestOffline:
    @pytest.fixture
    def config(self, tmp_path: Path, disks: Path) -> Iterator[Path]:
        (disks / "plain").mkdir()
        os.mkfifo(disks / "fifo")
        (disks / "ignored.txt").write_text("")
        for name in ("two\nlines", "empty", "full"):
            (disks / name).mkdir()
        with tmpfs(disks / "empty", size=20 * MIB), tmpfs(disks / "full") as full:
            (full / "database").write_text("somebody's")
            yield configuration(tmp_path, disks, namePattern="'[^i]*'")

    def test_each_entry_has_its_verdict_and_reason(
        self, config: Path, disks: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        rows = planned(capsys, "--config", config, "--node", "test-node", "--offline")
        assert {name: row["verdict"] for name, row in rows.items()} == {
            "empty": "publish",
            "full": "hold",
            "plain": "hold",
            "fifo": "hold",
            "two\nlines": "hold",
            "ignored.txt": "skip",
        }
        assert "database" in rows["full"]["reason"]
        assert "firstUse: trust" in rows["full"]["reason"]
        assert "not a valid mount point" in rows["plain"]["reason"]
        assert "fifo" in rows["fifo"]["reason"]
        assert "namePattern" in rows["ignored.txt"]["reason"]

    def test_what_it_would_publish_is_the_whole_object(
        self, config: Path, disks: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        row = planned(capsys, "--config", config, "--node", "test-node", "--offline")["empty"]
        manifest = row["manifest"]
        assert manifest["metadata"]["name"] == row["persistentVolume"]
        assert manifest["spec"]["capacity"] == {"storage": "20Mi"}
        assert manifest["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
        assert manifest["spec"]["local"] == {"path": f"/host{disks}/empty"}

    def test_a_table_has_one_line_per_entry_whatever_its_name(
        self, config: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["plan", "--config", str(config), "--node", "n", "--offline"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 1 + 6
        assert lines[0].split() == ["CLASS", "PATH", "VERDICT", "PV", "CAPACITY", "MODE", "REASON"]
        (published,) = [line for line in lines if " publish " in line]
        assert "20Mi" in published
        assert "Filesystem" in published
        assert any("two\\nlines" in line for line in lines)

    def test_yaml_says_the_same_as_json(
        self, config: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = ["plan", "--config", str(config), "--node", "n", "--offline", "-o"]
        assert main([*words, "json"]) == 0
        as_json = json.loads(capsys.readouterr().out)
        assert main([*words, "yaml"]) == 0
        assert yaml.safe_load(capsys.readouterr().out) == as_json

    def test_it_changes_nothing(self, config: Path, disks: Path) -> None:
        def state() -> list[tuple[str, float, int]]:
            found = [disks, *sorted(disks.rglob("*"))]
            return [(str(p), p.lstat().st_mtime, p.lstat().st_ino) for p in found]

        (config / "storageClassMap").write_text(
            (config / "storageClassMap").read_text() + "  firstUse: clean\n"
        )
        before = state()
        assert main(["plan", "--config", str(config), "--node", "n", "--offline"]) == 0
        assert state() == before
        assert (disks / "full" / "database").read_text() == "somebody's"


def test_an_invalid_configuration_is_named_and_nothing_planned(
    tmp_path: Path, disks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configuration(tmp_path, disks, volumeMode="Tape")
    assert main(["plan", "--config", str(config), "--offline"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "fast.volumeMode" in said.err


def test_a_directory_that_cannot_be_listed_is_a_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configuration(tmp_path, tmp_path / "missing")
    (row,) = planned(capsys, "--config", config, "--node", "n", "--offline").values()
    assert row["verdict"] == "hold"
    assert "cannot be listed" in row["reason"]


def test_a_cluster_that_cannot_be_reached_is_an_error(
    tmp_path: Path, disks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configuration(tmp_path, disks)
    nowhere = str(tmp_path / "no-kubeconfig")
    assert main(["plan", "--config", str(config), "--node", "n", "--kubeconfig", nowhere]) == 3
    assert "no-kubeconfig" in capsys.readouterr().err


@pytest.mark.needs("root")
class TestOnline:
    @pytest.fixture
    def name(self, control_plane: ControlPlane, unique: str) -> Iterator[str]:
        """A node and a class of that name, and no PersistentVolume of it afterwards."""
        control_plane.create_node(unique)
        body = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": unique},
            "provisioner": "kubernetes.io/no-provisioner",
            "reclaimPolicy": "Retain",
        }
        control_plane.request("POST", CLASSES, body)
        yield unique
        for volume in control_plane.request("GET", VOLUMES)["items"]:
            if volume["spec"].get("storageClassName") == unique:
                path = f"{VOLUMES}/{volume['metadata']['name']}"
                patch = {"metadata": {"finalizers": None}}
                kind = MERGE
                control_plane.request("PATCH", path, patch, content_type=kind)
                control_plane.request("DELETE", path)
        control_plane.request("DELETE", f"{CLASSES}/{unique}")
        control_plane.request("DELETE", f"/api/v1/nodes/{unique}")

    def test_it_asks_the_cluster_and_creates_nothing(
        self,
        control_plane: ControlPlane,
        name: str,
        tmp_path: Path,
        disks: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        config = configuration(tmp_path, disks, name)
        kubeconfig = control_plane.kubeconfig
        words = ("--config", config, "--node", name, "--kubeconfig", kubeconfig)
        (disks / "disk").mkdir()
        with tmpfs(disks / "disk", size=20 * MIB) as disk:
            row = planned(capsys, *words)["disk"]
            assert row["verdict"] == "publish"
            assert row["manifest"]["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
            known = control_plane.request("GET", VOLUMES)["items"]
            assert not [one for one in known if one["spec"].get("storageClassName") == name]

            control_plane.request("POST", VOLUMES, row["manifest"])
            # What a plan prints names no record: that is made when the agent offers it.
            assert planned(capsys, *words)["disk"]["verdict"] == "record"

            # As the upstream provisioner leaves one: no label, and a tenant's data in it.
            (disk / "data").write_text("a tenant's")
            path = f"{VOLUMES}/{row['persistentVolume']}"
            patch = {"metadata": {"labels": None}}
            kind = MERGE
            control_plane.request("PATCH", path, patch, content_type=kind)
            adopted = planned(capsys, *words)["disk"]
            assert adopted["verdict"] == "adopt"
            assert adopted["persistentVolume"] == row["persistentVolume"]

    def test_what_a_job_is_at_work_on_is_held(
        self,
        control_plane: ControlPlane,
        name: str,
        tmp_path: Path,
        disks: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        """As the agent would, also for a Job that an older provisioner made."""
        config = configuration(tmp_path, disks, name)
        kubeconfig = control_plane.kubeconfig
        words = ("--config", config, "--node", name, "--kubeconfig", kubeconfig)
        labels = {"kubernetes.io/hostname": name, "pv": "local-pv-1"}
        metadata = {
            "name": f"cleanup-{name}",
            "labels": labels,
            "annotations": {"device": f"{disks}/disk"},
        }
        pod = {"containers": [{"name": "cleaner", "image": "none"}], "restartPolicy": "Never"}
        spec = {"suspend": True, "template": {"spec": pod}}
        path = JOBS
        control_plane.request("POST", path, {"metadata": metadata, "spec": spec})
        try:
            (disks / "disk").mkdir()
            with tmpfs(disks / "disk", size=20 * MIB):
                row = planned(capsys, *words)["disk"]
                assert (row["verdict"], row["code"]) == ("hold", "job")
                assert f"cleanup-{name}" in row["reason"]
                assert planned(capsys, *words, "--namespace", "x")["disk"]["verdict"] == "publish"
        finally:
            control_plane.request("DELETE", f"{path}/cleanup-{name}")

    def test_a_node_that_does_not_exist_is_an_error(
        self,
        control_plane: ControlPlane,
        unique: str,
        tmp_path: Path,
        disks: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        config = configuration(tmp_path, disks)
        kubeconfig = str(control_plane.kubeconfig)
        words = ["--config", str(config), "--node", f"no-{unique}", "--kubeconfig", kubeconfig]
        assert main(["plan", *words]) == 1
        assert f"there is no Node 'no-{unique}'" in capsys.readouterr().err
