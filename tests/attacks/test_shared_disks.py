"""S5: a disk that several nodes see is offered by one of them, and not erased under another's."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.support_gate import fill
from tests.cluster.support_agent import Class, Lab, lab_for
from tests.cluster.support_objects import Objects
from tests.faults.support_proxy import Order, proxy_for
from tests.suite.units import MIB

pytestmark = [
    pytest.mark.needs("root", "loop", "sfdisk", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]

RECORDS = b"the other tenant's records "
TERM = {"matchExpressions": [{"key": "san", "operator": "In", "values": ["east"]}]}


@pytest.fixture
def other(objects: Objects, unique: str, tmp_path: Path) -> Iterator[Lab]:
    """A second node, which sees the same disks."""
    (tmp_path / "other").mkdir()
    with lab_for(objects, f"{unique}b", tmp_path / "other") as lab:
        lab.hurry(first_wait=0.4, look_again=0.5, stale=0.3)
        yield lab


def shared(lab: Lab, path: str, **keys: Any) -> Class:
    """A class of disks of all nodes of the SAN, with one of them."""
    block = lab.add_class("block", volumeMode="Block", selector=[TERM], **keys)
    lab.unlink_later(block.path("lun")).symlink_to(path)
    return block


@pytest.fixture
def lun(lab: Lab) -> str:
    disk = lab.raw_disk(16 * MIB)
    lab.stack.callback(disk.forget_partitions)
    return disk.partition("8MiB")[0]


def test_one_node_offers_it(lab: Lab, other: Lab, lun: str) -> None:
    here, there = shared(lab, lun), shared(other, lun)
    lab.start()
    volume = lab.published(here, "lun")
    other.start()
    other.until(lambda: other.held(there), lambda held: held == {"duplicate": 1})
    name = volume["metadata"]["name"]
    said = f"the PersistentVolume {name} of another node has this disk"
    other.until(lambda: other.logged(said), bool)
    other.settle()
    assert other.volumes() == []
    other.stop()
    # Once the first node's is gone, the other may.
    lab.stop()
    lab.remove(volume)
    other.start()
    other.published(there, "lun")


def test_what_two_nodes_offer_already_is_not_erased_under_the_other(
    lab: Lab, other: Lab, lun: str
) -> None:
    """As releases before this one left it: both are bound, and one claim is deleted."""
    here, there = shared(lab, lun), shared(other, lun)
    for one, cls in ((lab, here), (other, there)):
        one.settings["storageClassMap"][cls.name].pop("selector")
        one.start()
    volume, theirs = lab.published(here, "lun"), other.published(there, "lun")
    claim = lab.bound(volume)
    second = other.bound(theirs)
    fill(lun, RECORDS)
    other.stop()
    lab.stop()
    lab.settings["storageClassMap"][here.name]["selector"] = [TERM]
    lab.start()
    lab.delete_claim(claim)
    name = volume["metadata"]["name"]
    lab.event(name, "VolumeFailedDelete", "of another node has this disk")
    with open(lun, "rb") as disk:
        assert RECORDS in disk.read(MIB)
    other.delete_claim(second)
    other.until(lambda: other.phase(theirs["metadata"]["name"]), lambda phase: phase == "Released")
    other.remove(theirs)
    lab.published(here, "lun", unlike=volume["metadata"]["uid"])


def offers(lab: Lab) -> float:
    """How many volumes this node has offered, and found to be offered by no other since."""
    count = lab.metric("local_volume_provisioner_persistentvolume_discovery_total", mode="Block")
    return count or 0


def test_who_comes_second_takes_its_offer_back(lab: Lab, other: Lab, lun: str) -> None:
    """It does not see the other's before it has written its own."""
    here, there = shared(lab, lun), shared(other, lun)
    with proxy_for(lab.plane, lab.directory) as proxy:
        lab.kubeconfig = proxy.kubeconfig
        created = Order("hold", ("post",))
        proxy.orders.append(created)
        lab.start(wait=False)
        lab.until(lambda: created.met, bool)
        other.start()
        first = other.published(there, "lun")
        other.until(lambda: offers(other), bool)
        created.release()
        said = f"is withdrawn: the PersistentVolume {first['metadata']['name']} of another node"
        lab.until(lambda: lab.logged(said), bool)
        lab.until(lab.volumes, lambda found: not found)
        lab.holds(here, {"duplicate": 1})
        other.stays(first)
        assert offers(lab) == 0
        lab.stop()


def test_of_two_at_the_same_moment_one_stays(lab: Lab, other: Lab, lun: str) -> None:
    """Both see the other's after they have written their own, and take theirs back."""
    for one in (lab, other):
        shared(one, lun)
    with (
        proxy_for(lab.plane, lab.directory) as proxy,
        proxy_for(other.plane, other.directory) as second,
    ):
        posts = [Order("hold", ("post",), times=1) for _ in range(2)]
        lists = [Order("hold", ("list",)) for _ in range(2)]
        for one, before, post in zip((lab, other), (proxy, second), posts, strict=True):
            one.hurry(remembered=0.5)
            one.kubeconfig = before.kubeconfig
            before.orders.append(post)
            one.start(wait=False)
        # Each has looked whether another offers the disk.
        lab.until(lambda: [post.met for post in posts], all)
        proxy.orders.insert(0, lists[0])
        second.orders.insert(0, lists[1])
        for post in posts:
            post.release()
        lab.until(lambda: [post.answered for post in posts], all)
        for asked in lists:
            asked.release()
        lab.until(lambda: sum("is withdrawn" in line for line in lab.log()), lambda n: n >= 2)
        # Each tries again at its own time, until one finds no other beside its own.
        lab.until(lambda: offers(lab) + offers(other), lambda count: count == 1)
        lab.until(lambda: len(lab.volumes()) + len(other.volumes()), lambda count: count == 1)
        lab.settle()
        other.settle()
        assert offers(lab) + offers(other) == 1
        lab.stop()
        other.stop()
