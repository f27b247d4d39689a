"""A pool on a filesystem without project quotas, where sizes must be enforced: said everywhere.

The filesystem is a real one, and so is its inability: an ext4 that was made without the features.
"""

from __future__ import annotations

import subprocess

import pytest

from tests.cluster.support_dynamic import DynamicLab, MadePool
from tests.host.support_devices import command, unmount

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

WHY = "sizes cannot be enforced"
EVENT = "PoolProblem"


def _problem(lab: DynamicLab) -> float | None:
    return lab.metric("localvolume_pool_problem", pool="fast")


def _room(lab: DynamicLab) -> float | None:
    return lab.metric("localvolume_pool_room_bytes", pool="fast")


def _unready(lab: DynamicLab) -> str:
    """What /ready says while it is not."""
    status, said = lab.until(lambda: lab.http("/ready"), lambda found: found[0] == 500, 60)
    assert status == 500
    return str(said)


def _pool(lab: DynamicLab) -> MadePool:
    """As README has it: `backend: directory`, and nothing said of `enforce`."""
    return lab.pool(enforce="quota")


def _said(lab: DynamicLab) -> list[str]:
    return [line for line in lab.log() if WHY in line and line.startswith("ERROR pool fast")]


def _run(line: str) -> str:
    """What the command says if it fails."""
    done = subprocess.run(line.split(), capture_output=True, text=True, timeout=60, check=False)
    return done.stderr or "failed" if done.returncode else ""


def test_a_pool_that_cannot_enforce_has_a_problem(dynamic: DynamicLab) -> None:
    """Before: ready, no problem, room in the metric, and nothing for the scheduler."""
    pool = _pool(dynamic)
    dynamic.storage_class(waits=True)
    dynamic.start()
    dynamic.until(lambda: _problem(dynamic), lambda found: found == 1, 60)
    assert _room(dynamic) is None
    assert WHY in _unready(dynamic)
    device = command("findmnt", "-no", "SOURCE", str(pool.directory)).strip()
    text = dynamic.event(dynamic.node, EVENT, "pool fast: sizes")["message"]
    for wanted in (
        f"umount {pool.directory};",
        f"tune2fs -O project,quota -Q prjquota {device};",
        f"mount -o prjquota {device} {pool.directory};",
        "enforce: none",
    ):
        assert wanted in text
    dynamic.settle()
    assert len(_said(dynamic)) == 1


def test_the_commands_are_those_that_mend_it(dynamic: DynamicLab) -> None:
    """As they are said, while the agent runs. The last one needs a kernel with the quota format."""
    pool = _pool(dynamic)
    dynamic.start()
    text = dynamic.event(dynamic.node, EVENT, "on the host")["message"]
    listed = text.partition("on the host: ")[2].partition("; and prjquota")[0].split("; ")
    unmounting, tuning, mounting = listed
    # A look may be under way, which holds it open for a moment.
    dynamic.until(lambda: _run(unmounting), lambda failed: not failed, 30)
    assert not _run(tuning)
    device = mounting.split()[-2]
    features = command("tune2fs", "-l", device)
    assert "project" in features
    assert "quota" in features
    if _run(mounting):
        # This kernel lacks what the text says that it needs; tests/kernel has one with it.
        assert "quota_v2" in text
        return
    dynamic.until(lambda: _problem(dynamic), lambda found: found == 0, 60)
    # Until then the pool is open.
    dynamic.stop()
    unmount(pool.directory)


def test_a_class_that_asks_for_no_limits_is_served(dynamic: DynamicLab) -> None:
    """Only those that ask for more are told that they cannot have it."""
    pool = _pool(dynamic)
    modest = dynamic.storage_class("modest", parameters={"enforce": "none"})
    dynamic.start()
    volume = dynamic.made(dynamic.claim(modest))
    assert pool.inside() == [volume["metadata"]["name"]]
    dynamic.settle()
    # Nobody asks for what it cannot do.
    assert _problem(dynamic) == 0
    assert dynamic.http("/ready")[0] == 200
    strict = dynamic.storage_class("strict")
    claim = dynamic.claim(strict)
    dynamic.claim_event(claim, "ProvisioningFailed", WHY)
    dynamic.until(lambda: _problem(dynamic), lambda found: found == 1, 60)
    assert f"class {strict} is not served" in _unready(dynamic)
    dynamic.made(dynamic.claim(modest))


def test_what_nobody_asks_of_a_pool_is_no_problem(dynamic: DynamicLab) -> None:
    """`enforce: none` is its administrator's word."""
    dynamic.pool()
    cls = dynamic.storage_class()
    dynamic.start()
    dynamic.made(dynamic.claim(cls))
    dynamic.settle()
    assert _problem(dynamic) == 0
    assert (_room(dynamic) or 0) > 0
