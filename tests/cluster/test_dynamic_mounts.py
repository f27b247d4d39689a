"""A pool whose disk is away, another one, or read-only: nothing is done there until it is back."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.cluster.support_dynamic import Claim, DynamicLab, MadePool
from tests.cluster.support_replaced import in_place_of, scheduled
from tests.host.support_devices import LoopDevice, command, unmount
from tests.suite.names import KUTTI, NODE_LABEL, SELECTED

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

FAILED = "VolumeFailedDelete"


def _pool(lab: DynamicLab, name: str = "fast") -> tuple[MadePool, LoopDevice]:
    """A pool and the disk that is mounted there."""
    made = lab.pool(name, mounted=False)
    disk = lab.disk("ext4")
    lab.mount(disk, made.directory)
    return made, disk


def _unmount(where: Path) -> None:
    """As an administrator has to while the agent runs, which has the pool open."""
    subprocess.run(["umount", "--lazy", str(where)], check=True, timeout=60)


def _not_ready(lab: DynamicLab, text: str) -> None:
    lab.until(lambda: lab.http("/ready"), lambda got: got[0] == 500 and text in got[1])


def _ready(lab: DynamicLab) -> None:
    lab.until(lambda: lab.http("/ready")[0], lambda status: status == 200)


def _given_back(lab: DynamicLab, claim: Claim, text: str) -> None:
    """The claim is without node, and its Event says why."""
    lab.claim_event(claim, "ProvisioningFailed", text)
    found = lab.until(
        lambda: lab.read_claim(claim),
        lambda c: c and NODE_LABEL not in c["metadata"].get("labels", {}),
    )
    assert found is not None
    notes = found["metadata"]["annotations"]
    assert SELECTED not in notes
    assert notes["localvolume.dev/not-here"].startswith(f"{lab.node} ")


def _again(lab: DynamicLab, claim: Claim) -> None:
    """The controller sends the claim here once more."""
    lab.patch_claim(claim, {"metadata": {"labels": {NODE_LABEL: lab.node}}})


@pytest.mark.parametrize("replaced", ["nothing", "another disk"])
def test_a_disk_that_goes_while_the_agent_runs(dynamic: DynamicLab, replaced: str) -> None:
    """Facts, section 6, #137 and #221: an unmounted disk. Nothing is written below it; claims go
    elsewhere, what is released is held, /ready says so; with the disk, all goes on."""
    pool, disk = _pool(dynamic)
    cls = dynamic.storage_class()
    dynamic.start()
    claim = dynamic.claim(cls)
    volume = dynamic.made(claim)
    where = dynamic.path_of(volume)
    (where / "rows").write_text("precious")
    dynamic.until(lambda: dynamic.http("/ready")[0], lambda status: status == 200)

    _unmount(pool.directory)
    if replaced == "another disk":
        dynamic.mount(dynamic.disk("ext4"), pool.directory)
    _not_ready(dynamic, "pool fast")
    new = dynamic.claim(cls)
    _given_back(dynamic, new, "pool fast: ")
    dynamic.delete(claim)
    dynamic.event(volume["metadata"]["name"], FAILED, "pool fast: ")
    dynamic.settle()
    assert dynamic.metric("localvolume_pool_problem", pool="fast") == 1
    assert set(os.listdir(pool.directory)) <= {"lost+found"}

    if replaced == "another disk":
        _unmount(pool.directory)
    dynamic.mount(disk, pool.directory)
    _ready(dynamic)
    dynamic.gone(volume)
    assert not where.exists()
    _again(dynamic, new)
    dynamic.made(new)


def test_a_disk_that_is_away_when_the_agent_starts(dynamic: DynamicLab) -> None:
    """The PersistentVolumes know which disk it was."""
    pool, disk = _pool(dynamic)
    cls = dynamic.storage_class()
    dynamic.start()
    claim = dynamic.claim(cls)
    volume = dynamic.made(claim)
    dynamic.stop()
    unmount(pool.directory)
    dynamic.start()
    dynamic.delete(claim)
    dynamic.event(volume["metadata"]["name"], FAILED, "pool fast: ")
    assert os.listdir(pool.directory) == []
    dynamic.mount(disk, pool.directory)
    dynamic.gone(volume)


@pytest.mark.parametrize("blank", [True, False], ids=["blank", "another pool"])
def test_another_disk_when_the_agent_starts(dynamic: DynamicLab, blank: bool) -> None:
    """Nothing is removed from it, and it does not become the pool that it is not."""
    pool, disk = _pool(dynamic)
    other, other_disk = _pool(dynamic, "slow")
    cls = dynamic.storage_class(parameters={"pool": "fast"})
    dynamic.start()
    claim = dynamic.claim(cls)
    volume = dynamic.made(claim)
    dynamic.stop()
    for one in (pool, other):
        unmount(one.directory)
    del dynamic.settings["pools"]["slow"]
    dynamic.mount(dynamic.disk("ext4") if blank else other_disk, pool.directory)
    impostor = dynamic.path_of(volume)
    impostor.mkdir()
    (impostor / "rows").write_text("another's")
    before = sorted(str(path) for path in pool.directory.rglob("*"))
    dynamic.start()
    dynamic.delete(claim)
    dynamic.event(volume["metadata"]["name"], FAILED, "another disk")
    _not_ready(dynamic, "pool fast")
    new = dynamic.claim(cls)
    _given_back(dynamic, new, "another disk")
    dynamic.settle()
    assert sorted(str(path) for path in pool.directory.rglob("*")) == before
    assert (impostor / "rows").read_text() == "another's"
    unmount(pool.directory)
    dynamic.mount(disk, pool.directory)
    dynamic.gone(volume)


def test_a_disk_that_becomes_read_only(dynamic: DynamicLab) -> None:
    """As ext4 does after an error."""
    pool, _ = _pool(dynamic)
    cls = dynamic.storage_class()
    dynamic.start()
    claim = dynamic.claim(cls)
    volume = dynamic.made(claim)
    # While the last of its making is being written, it cannot be made read-only.
    dynamic.claim_event(claim, "ProvisioningSucceeded")
    command("mount", "-o", "remount,ro", pool.directory)
    _not_ready(dynamic, "read-only")
    _given_back(dynamic, dynamic.claim(cls), "read-only")
    dynamic.delete(claim)
    dynamic.event(volume["metadata"]["name"], FAILED, "read-only")
    assert dynamic.path_of(volume).is_dir()
    command("mount", "-o", "remount,rw", pool.directory)
    _ready(dynamic)
    dynamic.gone(volume)


def test_the_other_pools_of_the_node_go_on(dynamic: DynamicLab) -> None:
    """One disk that is away is no reason to serve nobody."""
    pool, _ = _pool(dynamic)
    other, _ = _pool(dynamic, "slow")
    cls = dynamic.storage_class()
    dynamic.start()
    dynamic.made(dynamic.claim(cls))
    _unmount(pool.directory)
    _not_ready(dynamic, "pool fast")
    for _ in range(3):
        volume = dynamic.made(dynamic.claim(cls))
        assert dynamic.path_of(volume).parent == other.directory


def test_a_replaced_provisioners_disk_that_is_away(dynamic: DynamicLab) -> None:
    """kutti and local-path may be on the root filesystem; but not where their volumes are known to
    have been on another (facts, section 8, 10: `DirectoryOrCreate` hid it)."""
    where = dynamic.directory / "vols"
    where.mkdir()
    disk = dynamic.disk("ext4")
    dynamic.mount(disk, where)
    pool = MadePool("vols", where)
    others = in_place_of(dynamic, "kutti", pool)
    cls = dynamic.storage_class(provisioner=KUTTI, waits=True)
    dynamic.start(others=others)
    claim = scheduled(dynamic, cls)
    volume = dynamic.made(claim)
    dynamic.stop()
    unmount(where)
    dynamic.start(others=others)
    _given_back(dynamic, scheduled(dynamic, cls), "its disk is not mounted")
    dynamic.delete(claim)
    dynamic.event(volume["metadata"]["name"], FAILED, "its disk is not mounted")
    assert os.listdir(where) == []
    dynamic.mount(disk, where)
    dynamic.gone(volume)


def test_on_the_root_filesystem_only_if_the_pool_may(dynamic: DynamicLab) -> None:
    """`mustBeMounted`, which is so unless it is said otherwise."""
    pool = dynamic.pool(mounted=False)
    if os.stat("/").st_dev != os.stat(pool.directory).st_dev:
        pytest.skip("temporary files are on a filesystem of their own here")
    cls = dynamic.storage_class()
    dynamic.start()
    _given_back(dynamic, dynamic.claim(cls), "mount its disk, or set mustBeMounted: false")
    assert os.listdir(pool.directory) == []
    dynamic.settings["pools"]["fast"]["mustBeMounted"] = False
    dynamic.configure()
    _ready(dynamic)
    assert dynamic.path_of(dynamic.made(dynamic.claim(cls))).parent == pool.directory
