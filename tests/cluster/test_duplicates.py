"""The same data by two ways is one volume: never offered twice, never cleaned under a tenant."""

import contextlib
from pathlib import Path

import pytest

from tests.cluster.support_agent import Lab
from tests.host.support_devices import bind, command
from tests.suite.names import FINALIZER, NODE_LABEL

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]


def holds(lab: Lab, kind: str, count: int) -> None:
    """Wait until so many of the class are left alone, all for that reason."""
    lab.holds(lab.classes[kind], {"duplicate": count})


def test_one_device_by_several_names_and_classes(lab: Lab) -> None:
    """Found in one and the same look, where upstream's guard misses its twins."""
    block = lab.add_class("block", volumeMode="Block")
    fs = lab.add_class("fs")
    device = lab.raw_disk()
    for path in (block.path("a"), block.path("b"), fs.path("c")):
        lab.link(device, path)
    # And under the link's name by which it is not known yet.
    alias = lab.directory / "alias"
    alias.symlink_to(device.path)
    lab.unlink_later(block.path("d")).symlink_to(alias)
    lab.start()
    volume = lab.published(block, "a")
    holds(lab, "block", 2)
    holds(lab, "fs", 1)
    lab.settle()
    assert len(lab.volumes()) == 1
    # The name that was published goes: another one takes over, never both at once.
    block.path("a").unlink()
    lab.plane.request("DELETE", f"/api/v1/persistentvolumes/{volume['metadata']['name']}")
    lab.until(lambda: [v["spec"]["local"]["path"] for v in lab.volumes()], lambda p: len(p) == 1)
    lab.published(block, "b")


def test_one_directory_mounted_twice_and_in_part(lab: Lab) -> None:
    fs = lab.add_class("fs")
    store = lab.mount(lab.disk(), lab.directory / "store")
    (store / "dir/sub").mkdir(parents=True)
    (store / "other").mkdir()
    with contextlib.ExitStack() as stack:
        for name, source in (("a-sub", "dir/sub"), ("b", "dir"), ("c", "dir"), ("d", "other")):
            fs.path(name).mkdir()
            stack.enter_context(bind(store / source, fs.path(name)))
        lab.start()
        lab.published(fs, "a-sub")
        lab.published(fs, "d")
        holds(lab, "fs", 2)
        lab.settle()
        assert len(lab.volumes()) == 2


def test_a_released_volume_whose_data_another_tenant_holds(lab: Lab) -> None:
    """Two objects for one directory, as upstream makes them: cleaning one would empty both."""
    fs = lab.add_class("fs")
    store = lab.mount(lab.disk(), lab.directory / "store")
    (store / "dir").mkdir()
    with contextlib.ExitStack() as stack:
        for name in ("one", "two"):
            fs.path(name).mkdir()
            stack.enter_context(bind(store / "dir", fs.path(name)))
        lab.start()
        one = lab.published(fs, "one")
        lab.stop()
        two_spec = {**one["spec"], "local": {"path": fs.host_path("two")}}
        two = lab.remake(
            {**one, "spec": two_spec},
            name=f"{lab.unique}-two",
            labels={NODE_LABEL: lab.node},
            finalizers=[FINALIZER],
            annotations=one["metadata"]["annotations"],
        )
        lab.claim(two)
        one = lab.released(one)
        (fs.path("two") / "precious").write_text("tenant of two")
        lab.start()
        lab.event(one["metadata"]["name"], "VolumeFailedDelete", "offers the same data")
        lab.event(two["metadata"]["name"], "VolumeDuplicate")
        lab.stays(one)
        assert lab.stays(two)["status"]["phase"] == "Bound"
        assert (fs.path("two") / "precious").exists()


def test_a_path_that_another_object_offers(lab: Lab) -> None:
    """Made by hand under a name of its own: no second one is made beside it."""
    fs = lab.add_class("fs")
    lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    lab.stop()
    other = lab.remake(volume, name=f"{lab.unique}-other", labels={NODE_LABEL: lab.node})
    lab.remove(volume)
    lab.start()
    lab.settle()
    assert [v["metadata"]["uid"] for v in lab.volumes()] == [other["metadata"]["uid"]]


def test_two_partitions_and_their_disk(lab: Lab) -> None:
    """Partitions are volumes of their own; the disk around them is in use by them."""
    block = lab.add_class("block", volumeMode="Block")
    disk = lab.raw_disk(32 << 20)
    parts = disk.partition("8MiB", "8MiB")
    lab.stack.callback(disk.forget_partitions)
    for number, part in enumerate(parts):
        lab.unlink_later(block.path(f"part-{number}")).symlink_to(part)
    lab.link(disk, block.path("disk"))
    lab.start()
    volumes = [lab.published(block, f"part-{number}") for number in (0, 1)]
    lab.settle()
    assert len(lab.volumes()) == 2
    lab.until(lambda: sum(lab.held(block).values()), lambda held: held == 1)
    Path(parts[1]).write_bytes(b"precious" * 1000)
    claim = lab.bound(volumes[0])
    lab.bound(volumes[1])
    Path(parts[0]).write_bytes(b"tenant" * 1000)
    lab.delete_claim(claim)
    lab.published(block, "part-0", unlike=volumes[0]["metadata"]["uid"])
    assert not any(Path(parts[0]).read_bytes())
    assert Path(parts[1]).read_bytes().startswith(b"precious")
    assert command("blkid", "-p", "-o", "value", "-s", "PTTYPE", disk.path).strip() == "gpt"
