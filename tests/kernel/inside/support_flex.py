"""A driver of logical volumes for FlexVolume, and a look at what it does: for tests."""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localvolume.config.flexvolume import FlexVolumeConfig
from localvolume.config.pools import LvmConfig
from localvolume.flexvolume.driver import (
    TAG_CLAIM,
    TAG_CLAIM_UID,
    TAG_GONE_SINCE,
    TAG_POLICY,
    TAG_PV_UID,
    Owned,
    Volume,
)
from localvolume.flexvolume.drivers.lvm.driver import LvmDriver
from localvolume.host.lvm.commands import LogicalVolume, Lvm
from localvolume.volumes.moments import written
from tests.host.support_images import run_here
from tests.suite.units import MIB

TAGS = {TAG_PV_UID: "uid-1", TAG_CLAIM: "ns/claim", TAG_CLAIM_UID: "c-1", TAG_POLICY: "Delete"}


def volume(name: str = "pvc-1", **fields: Any) -> Volume:
    return Volume(**{"name": name, "size_bytes": 20 * MIB, "tags": TAGS, **fields})


def gone() -> dict[str, str]:
    """What is noted of a volume whose PersistentVolume is gone."""
    return {TAG_GONE_SINCE: written(time.time())}


@dataclass
class FlexLvm:
    """A driver over one volume group; `target("a")` is a kubelet's directory."""

    lvm: Lvm
    group: str
    where: Path
    thin_pool: str = ""
    prefix: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    driver: LvmDriver = field(init=False)

    def __post_init__(self) -> None:
        config = LvmConfig(
            group=self.group,
            thin_pool=self.thin_pool,
            command_prefix=self.prefix,
            options=self.options,
        )
        self.driver = LvmDriver(FlexVolumeConfig(lvm=config), run_here)

    def target(self, name: str = "a") -> str:
        return str(self.where / f"target-{name}")

    def lv(self, name: str) -> LogicalVolume:
        found = self.lvm.volume(self.group, name)
        assert found is not None
        return found

    def names(self) -> set[str]:
        return {one.name for one in self.lvm.volumes(self.group)}

    def owned(self, name: str) -> Owned:
        return next(one for one in self.driver.list_volumes() if one.name == name)

    def noted(self, name: str) -> dict[str, str]:
        return dict(self.owned(name).tags)

    def write(self, text: str, target: str = "a") -> None:
        with open(f"{self.target(target)}/file", "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())

    def read(self, target: str = "a") -> str:
        return Path(self.target(target), "file").read_text()

    def room(self, target: str = "a") -> int:
        found = os.statvfs(self.target(target))
        return found.f_blocks * found.f_frsize
