"""Failures while a volume is made: what is tried again soon, what late, what elsewhere."""

import os
import shutil
import time
from pathlib import Path

import pytest

from tests.cluster.support_dynamic import PROVISIONER, DynamicLab
from tests.suite.api import VOLUMES
from tests.suite.names import NODE_LABEL, PROVISIONED_BY, SELECTED

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")


def _failures(lab: DynamicLab, cls: str) -> float:
    labels = {"class": cls, "source": ""}
    name = "controller_persistentvolumeclaim_provision_failed_total"
    return lab.metric(name, **labels) or 0


def test_an_ordinary_failure_is_tried_again(dynamic: DynamicLab) -> None:
    """L101, E12: what lies in the volume's place is not ours; it goes, and nothing else changes."""
    dynamic.hurry_dynamic(first_wait=0.3)
    pool = dynamic.pool()
    pattern = "{{ .PVC.Namespace }}/{{ .PVC.Name }}"
    cls = dynamic.storage_class(parameters={"pathPattern": pattern})
    dynamic.start()
    name = f"{dynamic.unique}-data"
    stranger = pool.directory / "default" / name
    stranger.mkdir(parents=True)
    claim = dynamic.claim(cls, name=name)
    dynamic.claim_event(claim, "ProvisioningFailed")
    dynamic.until(lambda: _failures(dynamic, cls), lambda count: count >= 2)
    assert dynamic.volume_of(claim) is None
    stranger.rmdir()
    volume = dynamic.made(claim)
    assert dynamic.path_of(volume) == stranger


@pytest.mark.needs("xfs")
def test_what_cannot_be_done_is_tried_late(dynamic: DynamicLab) -> None:
    """L102, L103: an xfs of 16Mi can never be made; after the long wait it is tried once more."""
    dynamic.hurry_dynamic(first_wait=0.1, longest_wait=16.0)
    dynamic.pool(backend="image", size=256 << 20)
    cls = dynamic.storage_class(parameters={"fsType": "xfs"})
    dynamic.start()
    asked = time.monotonic()
    claim = dynamic.claim(cls, size="16Mi")
    dynamic.claim_event(claim, "ProvisioningFailed", "xfs")
    dynamic.until(lambda: _failures(dynamic, cls), lambda count: count >= 1)
    began = time.monotonic()
    while time.monotonic() < began + 2:
        dynamic.settle()
        # A machine that takes so long for this may have come to the second attempt.
        assert _failures(dynamic, cls) == 1 or time.monotonic() > asked + 16
    dynamic.until(lambda: _failures(dynamic, cls), lambda count: count >= 2)


def test_no_room_after_all_sends_it_elsewhere(
    dynamic: DynamicLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E13: the disk was filled while it was made: nothing stays behind."""
    pool = dynamic.pool(backend="image", size=64 << 20)
    cls = dynamic.storage_class()
    programs = tmp_path / "programs"
    programs.mkdir()
    mkfs = programs / "mkfs.ext4"
    full, real = pool.directory / "others", shutil.which("mkfs.ext4")
    mkfs.write_text(f'#!/bin/sh\nfallocate -l 40M "{full}" && exec "{real}" "$@"\n')
    mkfs.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    dynamic.start()
    claim = dynamic.claim(cls, size="32Mi", annotations={SELECTED: dynamic.node})
    dynamic.claim_event(claim, "ProvisioningFailed", "another node is to be chosen")

    def given_back() -> bool:
        found = dynamic.read_claim(claim)
        assert found is not None
        meta = found["metadata"]
        return NODE_LABEL not in meta.get("labels", {}) and SELECTED not in meta["annotations"]

    dynamic.until(given_back, bool)
    dynamic.until(pool.records, lambda left: left == [])
    assert list((pool.directory / ".localvolume" / "images").iterdir()) == []


def test_another_object_of_its_name_is_not_taken_for_its_own(dynamic: DynamicLab) -> None:
    """Made for the same claim, but in another pool: by another node, or from a backup."""
    dynamic.hurry_dynamic(first_wait=0.1)
    dynamic.pool()
    claim = dynamic.claim(dynamic.storage_class())
    name = f"pvc-{claim['metadata']['uid']}"
    ref = {"namespace": "default", "name": claim["metadata"]["name"]}
    there = dynamic.objects.make(
        VOLUMES,
        {
            "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}},
            "spec": {
                # Too little for the claim, which is thus not bound to it.
                "capacity": {"storage": "1Mi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": claim["spec"]["storageClassName"],
                "hostPath": {"path": "/nowhere"},
                "claimRef": {**ref, "uid": claim["metadata"]["uid"]},
            },
        },
    )
    dynamic.start()
    dynamic.claim_event(claim, "ProvisioningFailed", "another PersistentVolume has the name")
    dynamic.plane.request("DELETE", f"{VOLUMES}/{name}")
    assert dynamic.made(claim)["metadata"]["uid"] != there["metadata"]["uid"]


def test_both_roles_read_the_same_informers(dynamic: DynamicLab) -> None:
    """L99, L100: prepared volumes and made ones are served by one agent, each by its own rules."""
    dynamic.pool()
    cls = dynamic.storage_class()
    disks = dynamic.directory / "disks"
    disks.mkdir()
    dynamic.mount(dynamic.disk(), disks / "one")
    static = dynamic.storage_class("disks", provisioner="kubernetes.io/no-provisioner")
    dynamic.settings["storageClassMap"] = {static: {"hostDir": "/mnt/d", "mountDir": str(disks)}}
    dynamic.start()
    claim = dynamic.claim(cls)
    made = dynamic.made(claim)

    def prepared() -> list[str]:
        return [
            volume["metadata"]["name"]
            for volume in dynamic.volumes()
            if volume["spec"]["storageClassName"] == static
            and volume["status"].get("phase") == "Available"
        ]

    assert len(dynamic.until(prepared, bool)) == 1
    dynamic.delete(claim)
    dynamic.gone(made)
    dynamic.settle()
    assert len(prepared()) == 1
    log = dynamic.log()
    assert not [line for line in log if made["metadata"]["name"] in line and "left alone" in line]
