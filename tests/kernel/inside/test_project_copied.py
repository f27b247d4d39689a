"""A pool of directories whose files were copied to another disk, where they are in no project."""

import os
from contextlib import closing
from pathlib import Path

import pytest

from localvolume.backends.directory.backend import DirectoryBackend
from localvolume.backends.model import Record
from localvolume.backends.pool.pool import PoolStore
from localvolume.cli.main import main
from localvolume.config.pools import PoolConfig
from tests.host.support_devices import command
from tests.kernel.inside.support_quota import DISKS, TENANT, fill, formatted
from tests.suite.units import MIB

SIZE = 10 * MIB


def store_at(where: Path) -> PoolStore:
    provisioner = "dynamic.localvolume.dev"
    config = PoolConfig(
        name="p", host_dir=str(where), mount_dir=str(where), provisioner=provisioner
    )
    return PoolStore(config, DirectoryBackend())


@pytest.mark.parametrize("kind", ["xfs", "ext4"])
def test_its_limits_hold_again_once_its_files_are_in_their_projects(kind: str) -> None:
    asked = Record(
        name="pvc-1",
        backend="directory",
        state="making",
        directory="pvc-1",
        size_bytes=SIZE,
        uid=TENANT,
        gid=TENANT,
    )
    with formatted(kind, DISKS["spare"]) as new:
        with formatted(kind, DISKS[kind]) as old:
            first = store_at(old)
            made = first.offered(first.make(asked))
            first.close()
            (old / "pvc-1" / "deep").mkdir()
            (old / "pvc-1" / "deep" / "rows").write_bytes(bytes(4 * MIB))
            (old / "pvc-1" / "link").symlink_to("deep")
            # So that no inode has the number that it had.
            (new / "used-up").mkdir()
            for number in range(200):
                (new / "used-up" / str(number)).touch()
            command("cp", "-a", f"{old}/.", new)
        assert main(["restamp", str(new)]) == 0
        with closing(store_at(new)) as store:
            assert store.attach_all() == {}
            assert "quota project" in store.look().usage["pvc-1"].problem
            # As docs/operations.md has it.
            find, chattr = ("find", new / "pvc-1", "-type"), ("chattr", "-p", str(made.project))
            command(*find, "f", "-exec", *chattr, "{}", "+")
            command(*find, "d", "-exec", *chattr, "+P", "{}", "+")
            usage = store.look().usage["pvc-1"]
            assert usage.problem == ""
            assert usage.used_bytes == pytest.approx(4 * MIB, rel=0.02)
        (new / "pvc-1" / "deep" / "rows").rename(new / "pvc-1" / "rows")
        deep = os.open(new / "pvc-1" / "deep", os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fchown(deep, TENANT, TENANT)
            assert fill(deep) == pytest.approx(6 * MIB, rel=0.03)
        finally:
            os.close(deep)
