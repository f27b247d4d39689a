"""D6: two pools whose directories lie on one filesystem: its room is promised once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from localvolume.volumes.capacity import bytes_of
from tests.cluster.support_dynamic import Claim, DynamicLab, MadePool
from tests.cluster.test_dynamic_images import _cleared as cleared
from tests.host.support_devices import command
from tests.suite.api import CAPACITIES
from tests.suite.names import NODE_LABEL
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

Place = Callable[[DynamicLab], dict[str, Path]]


def directories(lab: DynamicLab) -> dict[str, Path]:
    """Two directories of one ext4."""
    where = lab.mount(lab.disk(size=256 * MIB), lab.directory / "disk")
    for name in ("a", "b"):
        (where / name).mkdir()
    return {name: where / name for name in ("a", "b")}


def subvolumes(lab: DynamicLab) -> dict[str, Path]:
    """Two subvolumes of one btrfs, each mounted by itself: to stat(2) they are two devices."""
    disk = lab.disk("btrfs", size=512 * MIB)
    whole = lab.mount(disk, lab.directory / "disk")
    for name in ("a", "b"):
        command("btrfs", "subvolume", "create", whole / name)
    made = {
        name: lab.mount(disk, lab.directory / name, options=f"subvol={name}") for name in ("a", "b")
    }
    assert made["a"].stat().st_dev != made["b"].stat().st_dev
    return made


class Shared:
    """The node with both pools, `a` and `b`, and a class for each."""

    def __init__(self, lab: DynamicLab, place: Place, stack: ExitStack, **first: str) -> None:
        self.lab = lab
        first = first or {"enforce": "none"}
        for name, where in place(lab).items():
            keys = first if name == "a" else {"enforce": "none"}
            lab.settings["pools"][name] = {"hostDir": str(where), **keys}
            if first.get("backend") == "image":
                stack.enter_context(cleared(lab, MadePool(name, where)))
        self.classes = {
            name: lab.storage_class(name, parameters={"pool": name}) for name in ("a", "b")
        }
        self.mode = "Block" if first.get("backend") == "image" else "Filesystem"

    def claim(self, pool: str, size: int) -> Claim:
        mode = self.mode if pool == "a" else "Filesystem"
        return self.lab.claim(self.classes[pool], size=str(size), volumeMode=mode)

    def published(self) -> dict[str, int]:
        """What the scheduler is told of each pool's class."""
        query = f"labelSelector={NODE_LABEL}%3D{self.lab.node}"
        items = self.lab.plane.request("GET", f"{CAPACITIES}?{query}")["items"]
        names = {cls: pool for pool, cls in self.classes.items()}
        return {names[one["storageClassName"]]: bytes_of(one["capacity"]) or 0 for one in items}

    def measured(self) -> dict[str, float]:
        """What /metrics tell of each pool's room."""
        found = {
            name: self.lab.metric("localvolume_pool_room_bytes", pool=name) for name in ("a", "b")
        }
        return {name: room for name, room in found.items() if room is not None}

    def begin(self) -> dict[str, int]:
        """The room of both while nothing is promised."""
        self._say(lambda name, room: room > 64 * MIB)
        return self.published()

    def less(self, before: Mapping[str, int], by: int) -> None:
        """Wait until both have less than before by that much, for the scheduler and in metrics."""
        self._say(lambda name, room: room <= before[name] - by)

    def _say(self, right: Callable[[str, float], bool]) -> None:
        def both(found: Mapping[str, float]) -> bool:
            return len(found) == 2 and all(right(name, room) for name, room in found.items())

        self.lab.until(self.measured, both)
        self.lab.until(self.published, both)


@pytest.fixture
def shared(dynamic: DynamicLab, request: pytest.FixtureRequest) -> Iterator[Shared]:
    """What a test asks for as its parameter: where the pools lie, and what the first of them is."""
    place, keys = request.param
    with ExitStack() as stack:
        made = Shared(dynamic, place, stack, **keys)
        dynamic.start()
        yield made


@pytest.mark.parametrize(
    "shared",
    [
        pytest.param((directories, {}), id="directories"),
        pytest.param((directories, {"backend": "image"}), id="images"),
        pytest.param((subvolumes, {}), id="subvolumes", marks=pytest.mark.needs("btrfs")),
    ],
    indirect=True,
)
def test_two_pools_on_one_filesystem_do_not_promise_its_room_twice(shared: Shared) -> None:
    lab = shared.lab
    before = shared.begin()
    room = min(before.values())
    most, little = room * 6 // 10, room // 10
    first = shared.claim("a", most)
    lab.made(first)
    # What one has promised is missing from both. Of images 91 parts in a hundred are room.
    shared.less(before, by=most * 9 // 10)

    second = shared.claim("b", most)
    lab.claim_event(
        second, "ProvisioningFailed", "of room left on the filesystem that it shares with pool a"
    )
    assert lab.volume_of(second) is None

    third = shared.claim("b", little)
    grown = lab.made(third)
    shared.less(before, by=(most + little) * 9 // 10)
    lab.grow(third, str(most))
    lab.claim_event(
        third, "VolumeResizeFailed", "of room left on the filesystem that it shares with pool a"
    )
    size = lab.volume(grown["metadata"]["name"])
    assert size is not None
    assert bytes_of(size["spec"]["capacity"]["storage"]) == bytes_of(
        grown["spec"]["capacity"]["storage"]
    )

    # What the first gives back, the third may have.
    lab.delete(first)

    def capacity() -> int:
        there = lab.volume(grown["metadata"]["name"])
        assert there is not None
        return bytes_of(there["spec"]["capacity"]["storage"]) or 0

    lab.until(capacity, lambda found: found >= most)


@pytest.mark.parametrize("shared", [pytest.param((directories, {}), id="")], indirect=True)
def test_what_a_pool_has_promised_counts_also_while_it_cannot_be_used(shared: Shared) -> None:
    lab = shared.lab
    room = shared.begin()["b"]
    most = room * 6 // 10
    lab.made(shared.claim("a", most))
    lab.stop()
    # An agent that has never seen it whole.
    Path(lab.settings["pools"]["a"]["hostDir"]).chmod(0o777)
    lab.start()
    lab.until(shared.published, lambda found: found.get("a") == 0)
    second = shared.claim("b", most)
    lab.claim_event(
        second, "ProvisioningFailed", "of room left on the filesystem that it shares with pool a"
    )
    assert lab.volume_of(second) is None
    # Each class's room is written by itself, and the former agent may not have told the last.
    lab.until(lambda: shared.published()["b"], lambda left: 0 < left < room - most + MIB)
