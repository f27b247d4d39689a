"""Where each kind of volume is looked at, and what concerns it there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from localvolume.backends.model import PoolReport, Record
from localvolume.config.flexvolume import FlexVolumeConfig
from localvolume.config.model import ClassConfig, Configuration
from localvolume.config.pools import LvmConfig, PoolConfig
from localvolume.health.model import Image, Location
from localvolume.health.plan.paths import Pools, location_of, thin_of, well_placed
from localvolume.kube.objects import (
    CSISource,
    FlexVolumeSource,
    HostPathSource,
    LocalSource,
    Meta,
    PersistentVolume,
    PVSpec,
)
from localvolume.kube.podmounts import PodMounts
from localvolume.volumes import marks
from tests.suite.podmounts import host, pod

CLASS = ClassConfig(name="fast", host_dir="/mnt/disks", mount_dir="/discovery")
CONFIGURATION = Configuration(
    storage_classes={"fast": CLASS},
    flexvolume=FlexVolumeConfig(lvm=LvmConfig(group="flexvg")),
)
POOL = PoolConfig(name="p", host_dir="/mnt/pool", mount_dir="/pools/p", provisioner="x")
IMAGES = replace(POOL, backend="image")
LVM = replace(
    POOL, host_dir="", mount_dir="", backend="lvm", lvm=LvmConfig(group="vg", thin_pool="thin")
)


def static(path: str, identity: str | None = None, **spec: Any) -> PersistentVolume:
    annotations = {marks.IDENTITY_ANNOTATION: identity} if identity else {}
    return PersistentVolume(
        metadata=Meta(name="pv", annotations=annotations),
        spec=PVSpec(storage_class_name="fast", local=LocalSource(path=path), **spec),
    )


def pooled(path: str, pool: str = "p/id", **sources: Any) -> PersistentVolume:
    sources = sources or {"local": LocalSource(path=path)}
    annotations = {marks.POOL_ANNOTATION: pool} if pool else {}
    annotations[marks.PROVISIONED_BY_ANNOTATION] = "rancher.io/local-path"
    return PersistentVolume(
        metadata=Meta(name="pv", annotations=annotations), spec=PVSpec(**sources)
    )


def pools(config: PoolConfig, **report: Any) -> Pools:
    return {config.name: (config, PoolReport(name=config.name, **report))}


def test_static_volumes_are_where_this_process_sees_their_class() -> None:
    filesystem, device = '{"kind": "filesystem"}', '{"kind": "block"}'
    for one, kind in (
        (static("/mnt/disks/a", filesystem), "mount"),
        (static("/mnt/disks/a", device), "device"),
        (static("/mnt/disks/a"), "any"),
        (static("/mnt/disks/a", "nonsense"), "any"),
        (static("/mnt/disks/a", filesystem, volume_mode="Block"), "device"),
    ):
        assert location_of(one, CONFIGURATION, {}) == Location(path="/discovery/a", kind=kind)  # type: ignore[arg-type]


def test_what_lies_in_another_directory_tells_nothing() -> None:
    """Another half of the configuration was edited: volumes are neither well nor gone there."""
    of_class, of_pool = static("/mnt/disks/a"), pooled("/mnt/pool/a")

    def locations(of: PodMounts | None) -> list[bool]:
        known = well_placed(CONFIGURATION, {**pools(POOL), **pools(replace(LVM, name="l"))}, of)
        assert known[1].keys() >= {"l"}
        return [location_of(one, *known) is not None for one in (of_class, of_pool)]

    assert locations(None) == [True, True]
    assert locations(pod(host("/discovery", "/mnt/disks"), host("/pools", "/mnt"))) == [True, False]
    assert locations(pod(host("/discovery", "/mnt"), host("/pools/p", "/mnt/pool"))) == [
        False,
        True,
    ]
    assert well_placed(CONFIGURATION, {}, pod())[0].flexvolume is CONFIGURATION.flexvolume


def test_static_volumes_of_no_class_or_another_directory_are_nowhere() -> None:
    for path in ("/mnt/disks", "/mnt/disks/..", "/mnt/disks/a/b", "/etc/passwd", ""):
        assert location_of(static(path), CONFIGURATION, {}) is None
    assert location_of(static("/mnt/disks/a"), Configuration(), {}) is None


def test_directories_of_a_pool() -> None:
    for one in (
        pooled("/mnt/pool/ns/one"),
        pooled("/mnt/pool/ns/one", pool=""),
        pooled("", pool="", host_path=HostPathSource(path="/mnt/pool/ns/one")),
    ):
        found = location_of(one, Configuration(), pools(POOL))
        assert found is not None
        assert (found.path, found.below, found.kind) == (
            "/pools/p/ns/one",
            "/pools/p",
            "directory",
        )
        assert found.written
        assert found.takes_space


def test_what_lies_in_no_pool_is_nowhere() -> None:
    assert location_of(pooled("/mnt/pool/x", pool="other/id"), Configuration(), pools(POOL)) is None
    for path in ("/mnt/poolside/x", "/mnt/pool/../x", "/etc"):
        for pool in ("", "p/id"):
            assert location_of(pooled(path, pool), Configuration(), pools(POOL)) is None
    assert location_of(pooled("/mnt/pool/x"), Configuration(), {}) is None


def test_only_sparse_images_take_room() -> None:
    one = pooled("/run/localvolume/id/pv")
    for sparse in (False, True):
        record = Record(
            name="pv", size_bytes=1, state="offered", backend="image", directory="", sparse=sparse
        )
        found = location_of(one, Configuration(), pools(IMAGES, records={"pv": record}))
        assert found is not None
        assert (found.path, found.kind, found.below) == (
            "/run/localvolume/id/pv",
            "device",
            "/pools/p",
        )
        assert found.takes_space is sparse
        # With nothing known of it, as the pool is configured.
        found = location_of(one, Configuration(), pools(replace(IMAGES, sparse=sparse)))
        assert found is not None
        assert found.takes_space is sparse


def test_the_image_that_must_be_behind_a_device_is_the_one_on_record() -> None:
    one = pooled("/run/localvolume/id/pv")
    record = Record(
        name="pv", size_bytes=1, state="offered", backend="image", directory="", inode=17
    )
    found = location_of(one, Configuration(), pools(IMAGES, records={"pv": record}))
    assert found is not None
    assert found.image == Image("/pools/p/.localvolume/images", 17)
    # Of what is not known nothing is demanded.
    for records in ({}, {"pv": replace(record, inode=0)}):
        found = location_of(one, Configuration(), pools(IMAGES, records=records))
        assert found is not None
        assert found.image is None


def test_logical_volumes_and_their_thin_pool() -> None:
    one, report = pooled("/dev/vg/pv"), {"data_percent": 81.0, "thin_health": "partial"}
    found = location_of(one, Configuration(), pools(LVM, **report))
    assert found is not None
    assert (found.path, found.kind, found.below) == ("/dev/vg/pv", "device", "")
    thin = thin_of(found, pools(LVM, **report))
    assert thin is not None
    assert (thin.name, thin.data_percent, thin.health) == ("vg/thin", 81.0, "partial")
    assert thin_of(found, pools(LVM, problem="it does not answer", **report)) is None
    assert thin_of(found, pools(replace(LVM, lvm=LvmConfig(group="vg")), **report)) is None
    assert thin_of(found, {}) is None


def test_what_flexvolume_makes_when_it_is_mounted_may_be_absent() -> None:
    one = PersistentVolume(
        metadata=Meta(name="pv"), spec=PVSpec(flex_volume=FlexVolumeSource(driver="a/b"))
    )
    found = location_of(one, CONFIGURATION, {})
    assert found is not None
    assert (found.path, found.kind, found.may_be_absent) == ("/dev/flexvg/pv", "device", True)
    config = FlexVolumeConfig(driver="bindmount", bind_root="/mnt/elastic")
    found = location_of(one, Configuration(flexvolume=config), {})
    assert found is not None
    assert (found.path, found.kind, found.may_be_absent) == ("/mnt/elastic/pv", "directory", True)
    assert location_of(one, Configuration(), {}) is None
    assert location_of(one, Configuration(flexvolume=FlexVolumeConfig(driver="empty")), {}) is None


# --- volumes of our CSI driver -------------------------------------------------------------------

MADE = Record(
    name="handle", size_bytes=1, state="offered", backend="directory", directory="ns/one", inode=17
)


def csi(pool: str = "p/id", handle: str = "handle", driver: str = marks.CSI_DRIVER) -> Any:
    return pooled("", pool, csi=CSISource(driver=driver, volume_handle=handle))


def test_a_csi_volume_is_looked_at_where_a_local_one_of_its_record_would_be() -> None:
    record = replace(MADE, name="pv")
    for config, path, extra in (
        (POOL, "/mnt/pool/ns/one", {}),
        (IMAGES, "/run/localvolume/id/pv", {"backend": "image", "directory": ""}),
        (LVM, "/dev/vg/pv", {"backend": "lvm", "directory": ""}),
    ):
        known = pools(config, id="id", records={"pv": replace(record, **extra)})  # type: ignore[arg-type]
        local = location_of(pooled(path), Configuration(), known)
        assert local is not None
        assert location_of(csi(handle="pv"), Configuration(), known) == local


def test_its_handle_is_its_records_name_whoever_named_the_object() -> None:
    """external-provisioner may call its object otherwise, and never says in which pool it lies."""
    other = {"q": (replace(POOL, name="q", mount_dir="/pools/q"), PoolReport(name="q"))}
    known = {**other, **pools(POOL, id="id", records={"handle": MADE})}
    found = location_of(csi(pool=""), Configuration(), known)
    assert found is not None
    assert (found.path, found.pool) == ("/pools/p/ns/one", "p")
    # In two pools: nobody can tell which it is.
    twice = {**known, "q": (other["q"][0], PoolReport(name="q", records={"handle": MADE}))}
    assert location_of(csi(pool=""), Configuration(), twice) is None


def test_a_pool_that_cannot_be_read_still_says_where_its_csi_volumes_are() -> None:
    lost = {"problem": "nothing is mounted there"}
    for config, path, report in (
        (POOL, "/pools/p/ns/one", {"dormant": {"handle": MADE}}),
        (IMAGES, "/run/localvolume/id/handle", {}),
        (LVM, "/dev/vg/handle", {}),
    ):
        found = location_of(csi(), Configuration(), pools(config, **lost, **report))
        assert found is not None
        assert found.path == path


def test_a_csi_volume_that_no_record_explains_is_nowhere() -> None:
    assert location_of(csi(), Configuration(), pools(POOL)) is None
    assert location_of(csi(pool=""), Configuration(), pools(LVM)) is None
    assert location_of(csi(pool="other/id"), Configuration(), pools(LVM)) is None
    known = pools(POOL, records={"handle": replace(MADE, directory="../x")})
    assert location_of(csi(), Configuration(), known) is None
    for handle in ("", "..", "a/b", "../../sda"):
        for config in (IMAGES, LVM):
            found = location_of(csi(handle=handle), Configuration(), pools(config, id="id"))
            assert found is None


def test_a_volume_of_another_csi_driver_is_nowhere() -> None:
    known = pools(POOL, id="id", records={"handle": MADE, "pv": replace(MADE, name="pv")})
    assert location_of(csi(driver="ebs.csi.aws.com"), Configuration(), known) is None
