"""D13: a pool comes back by copying its files to another disk, where all have other inodes. That is
told, and once the administrator says that it is a copy, its volumes are served again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from localvolume.cli.main import main
from tests.attacks.support_copies import moved_to_another_disk, records_in
from tests.attacks.support_links import behind
from tests.cluster.support_dynamic import Claim, DynamicLab, MadePool
from tests.cluster.support_loops import detach_all
from tests.cluster.test_dynamic_images import _cleared as cleared
from tests.host.support_devices import command
from tests.suite.units import MIB
from tests.suite.until import until

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")


def restamped(dynamic: DynamicLab, pool: MadePool) -> int:
    """Call it while the agent has the pool; its exit status."""
    asked = pool.directory / ".localvolume" / "restamping"
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(main, ["restamp", str(pool.directory)])
        until(lambda: asked.exists() or call.done())
        # What the agent does every two minutes by itself.
        dynamic.settle()
        return call.result()


def told(dynamic: DynamicLab, pool: MadePool) -> None:
    """On the Node, in the metrics, and what to do about it."""
    event = dynamic.event(dynamic.node, "PoolWarning", "volumes cannot be used: ")
    assert " than was made" in event["message"]
    assert event["message"].endswith(f": localvolume restamp {pool.directory}")
    metric = "localvolume_pool_warnings"
    dynamic.until(lambda: dynamic.metric(metric, pool=pool.name), lambda found: found == 1)


def untold(dynamic: DynamicLab, pool: MadePool) -> None:
    metric = "localvolume_pool_warnings"
    dynamic.until(lambda: dynamic.metric(metric, pool=pool.name), lambda found: found == 0)


def grown(dynamic: DynamicLab, claim: Claim, size: str) -> None:
    dynamic.grow(claim, size)
    dynamic.until(
        lambda: dynamic.read_claim(claim),
        lambda found: found and found["status"]["capacity"]["storage"] == size,
    )


def test_what_was_copied_is_told_of_and_served_again_once_that_is_said(
    dynamic: DynamicLab, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = dynamic.pool()
    cls = dynamic.storage_class()
    dynamic.start()
    kept, going = dynamic.claim(cls), dynamic.claim(cls)
    volume, removed = dynamic.made(kept), dynamic.made(going)
    for claim in (kept, going):
        # Until that is said, the records are still written, and would be copied half.
        dynamic.claim_event(claim, "ProvisioningSucceeded")
    names = [one["metadata"]["name"] for one in (volume, removed)]
    for name in names:
        (pool.directory / name / "rows").write_text(f"of {name}")
    before = records_in(pool.directory)
    # The agent runs on, and has the old disk open.
    moved_to_another_disk(dynamic, pool, over=True)
    told(dynamic, pool)
    dynamic.delete(going)
    dynamic.event(names[1], "VolumeFailedDelete", "another directory than was made")
    assert dynamic.volume(names[1]) is not None
    assert sorted(pool.inside()) == sorted(names)

    assert restamped(dynamic, pool) == 0
    said = capsys.readouterr().out
    for claim, name in zip((kept, going), names, strict=True):
        whose = f"default/{claim['metadata']['name']}"
        assert f"{pool.directory}: {name} of {whose}: stamped\n" in said
    dynamic.gone(removed)
    dynamic.until(pool.records, lambda found: found == [f"{names[0]}.json"])
    untold(dynamic, pool)
    grown(dynamic, kept, "12Mi")
    (after,) = records_in(pool.directory).values()
    assert after.inode == os.stat(dynamic.path_of(volume)).st_ino
    assert after.claim_uid == before[names[0]].claim_uid == kept["metadata"]["uid"]
    assert (dynamic.path_of(volume) / "rows").read_text() == f"of {names[0]}"
    assert pool.inside() == [names[0]]
    dynamic.made(dynamic.claim(cls))
    dynamic.delete(kept)
    dynamic.gone(volume)


def test_what_is_half_done_is_told_of_and_nothing_is_removed_meanwhile(dynamic: DynamicLab) -> None:
    pool = dynamic.pool()
    dynamic.start()
    claim = dynamic.claim(dynamic.storage_class())
    volume = dynamic.made(claim)
    name = volume["metadata"]["name"]
    # As a call that was killed leaves it.
    (pool.directory / ".localvolume" / "restamping").touch()
    dynamic.settle()
    dynamic.event(dynamic.node, "PoolProblem", f"call `localvolume restamp {pool.directory}` again")
    dynamic.delete(claim)
    dynamic.event(name, "VolumeFailedDelete", "localvolume restamp")
    assert pool.inside() == [name]
    assert restamped(dynamic, pool) == 0
    dynamic.gone(volume)


@pytest.fixture
def vault(dynamic: DynamicLab) -> Iterator[MadePool]:
    made = dynamic.pool("vault", backend="image", size=128 * MIB)
    with cleared(dynamic, made):
        yield made


def test_images_that_were_copied_are_attached_again(dynamic: DynamicLab, vault: MadePool) -> None:
    cls = dynamic.storage_class()
    dynamic.start()
    claim = dynamic.claim(cls, size="16Mi", volumeMode="Block")
    volume = dynamic.made(claim)
    name, path = volume["metadata"]["name"], dynamic.path_of(volume)
    path.write_bytes(b"a tenant's")
    dynamic.stop()
    command("sync", "-f", vault.directory)
    detach_all(vault.directory)
    moved_to_another_disk(dynamic, vault)
    dynamic.start()
    told(dynamic, vault)
    assert restamped(dynamic, vault) == 0
    image = Path(vault.directory, ".localvolume", "images", f"{name}.img").stat()

    dynamic.until(lambda: behind(path), lambda found: found == (image.st_dev, image.st_ino))
    assert path.read_bytes()[:10] == b"a tenant's"
    untold(dynamic, vault)
    grown(dynamic, claim, "20Mi")
    dynamic.delete(claim)
    dynamic.gone(volume)
    dynamic.until(vault.records, lambda found: not found)
