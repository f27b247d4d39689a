"""`pools`: where volumes are made for claims, what is refused, and which pools go together."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from localvolume.config import loading
from localvolume.config.model import Configuration, ConfigurationInvalid
from localvolume.config.poolkeys import KEYS
from localvolume.config.pools import (
    DYNAMIC_PROVISIONER,
    InlineConfig,
    PoolConfig,
    faults_between,
    name_of,
    overlaps,
)
from localvolume.config.schema import describe
from localvolume.volumes import marks


def build(pools: Any, classes: Any = None) -> Configuration:
    sources = [loading.Source("pools", "pools", yaml.safe_dump(pools, sort_keys=False))]
    if classes is not None:
        sources.append(loading.Source("classes", "storageClassMap", yaml.safe_dump(classes)))
    return loading.build(sources, host_checks=False)


def one(**keys: Any) -> PoolConfig:
    (pool,) = build({"ssd": {"hostDir": "/mnt/ssd", **keys}}).pools
    return pool


def refused(pools: Any, classes: Any = None) -> dict[str, str]:
    with pytest.raises(ConfigurationInvalid) as caught:
        build(pools, classes)
    reasons = {
        problem.key.removeprefix("pools."): problem.reason for problem in caught.value.problems
    }
    assert len(reasons) == len(caught.value.problems), caught.value.problems
    return reasons


def refused_one(**keys: Any) -> dict[str, str]:
    reasons = refused({"ssd": {"hostDir": "/mnt/ssd", **keys}})
    return {key.removeprefix("ssd."): reason for key, reason in reasons.items()}


def test_a_pool_gets_defaults() -> None:
    assert one() == PoolConfig(
        name="ssd",
        host_dir="/mnt/ssd",
        mount_dir="/mnt/ssd",
        provisioner=DYNAMIC_PROVISIONER,
        flavor="native",
        classes=(),
        backend="directory",
        enforce=True,
        sparse=False,
        reserve_bytes=0,
        overbook=1.0,
        must_be_mounted=True,
        undo_seconds=0.0,
        purge_files_per_second=None,
    )


def test_every_key_is_read() -> None:
    assert one(
        mountDir="/pools/ssd/",
        classes=["fast", "faster"],
        backend="image",
        image="sparse",
        reserve="10Gi",
        overbook=1.5,
        mustBeMounted=False,
        undoPeriod="1h",
        purgeFilesPerSecond=500,
    ) == PoolConfig(
        name="ssd",
        host_dir="/mnt/ssd",
        mount_dir="/pools/ssd",
        provisioner=DYNAMIC_PROVISIONER,
        classes=("fast", "faster"),
        backend="image",
        sparse=True,
        reserve_bytes=10 * 2**30,
        overbook=1.5,
        must_be_mounted=False,
        undo_seconds=3600,
        purge_files_per_second=500,
    )
    own = one(inline={"largest": "1Gi", "total": "20Gi"}).inline
    assert own == InlineConfig(largest_bytes=2**30, total_bytes=20 * 2**30)
    assert one(enforce="none").enforce is False
    assert one(backend="image").sparse is False
    assert one(backend="image", image="preallocated").sparse is False
    assert one(backend="btrfs", enforce="quota").enforce is True
    assert one(overbook=2).overbook == 2.0
    assert one(reserve=4096).reserve_bytes == 4096


def test_pools_need_no_discovery_classes() -> None:
    assert build({"ssd": {"hostDir": "/mnt/ssd"}}).warnings == ()
    (warning,) = build({}).warnings
    assert warning.key == "storageClassMap"


def test_the_provisioner_is_the_one_that_marks_know() -> None:
    assert marks.DYNAMIC_PROVISIONER == DYNAMIC_PROVISIONER
    assert one().serves("any", DYNAMIC_PROVISIONER)
    assert not one().serves("any", "other")
    assert one(classes=["a"]).serves("a", DYNAMIC_PROVISIONER)
    assert not one(classes=["a"]).serves("b", DYNAMIC_PROVISIONER)


@pytest.mark.parametrize(
    ("keys", "reasons"),
    [
        ({"hostdirs": "/x"}, {"hostdirs": "unknown key; did you mean hostDir?"}),
        ({"hostDir": "mnt"}, {"hostDir": "must be an absolute path, not 'mnt'"}),
        ({"hostDir": "/"}, {"hostDir": "must not be the root directory"}),
        ({"hostDir": "/a/../b"}, {"hostDir": "must not hold \"..\": '/a/../b'"}),
        ({"mountDir": "x"}, {"mountDir": "must be an absolute path, not 'x'"}),
        ({"backend": "brtfs"}, {"backend": "did you mean btrfs?"}),
        ({"enforce": "yes"}, {"enforce": "must be quota or none"}),
        ({"backend": "image", "enforce": "none"}, {"enforce": "image always enforces"}),
        ({"backend": "btrfs", "enforce": "none"}, {"enforce": "btrfs always enforces"}),
        ({"image": "sparse"}, {"image": "is for backend image"}),
        ({"backend": "btrfs", "image": "preallocated"}, {"image": "is for backend image"}),
        ({"backend": "image", "overbook": 1.5}, {"overbook": "needs image: sparse"}),
        ({"classes": []}, {"classes": "names no class"}),
        ({"classes": ["a", "a"]}, {"classes": "names a twice"}),
        ({"classes": ["A_b"]}, {"classes[0]": "is no name of a StorageClass"}),
        ({"classes": "a"}, {"classes": "must be a list"}),
        ({"reserve": "10%"}, {"reserve": "must be a quantity of bytes"}),
        ({"reserve": "100m"}, {"reserve": "must be a quantity of bytes"}),
        ({"overbook": 0.5}, {"overbook": "must be a number from 1 to 100"}),
        ({"overbook": 101}, {"overbook": "must be a number from 1 to 100"}),
        ({"overbook": "2"}, {"overbook": "must be a number from 1 to 100"}),
        ({"overbook": float("nan")}, {"overbook": "must be a number from 1 to 100"}),
        ({"mustBeMounted": "no"}, {"mustBeMounted": "must be true or false"}),
        ({"undoPeriod": 5}, {"undoPeriod": "must be a duration with its unit"}),
        ({"undoPeriod": "-1s"}, {"undoPeriod": "must be at least 0s"}),
        ({"inline": True}, {"inline": "must be a mapping"}),
        ({"inline": {"total": "1Gi"}}, {"inline.largest": "is missing"}),
        ({"inline": {"largest": "1Gi"}}, {"inline.total": "is missing"}),
        ({"inline": {"largest": "0", "total": "1Gi"}}, {"inline.largest": "a quantity of bytes"}),
        ({"inline": {"largest": "2Gi", "total": "1Gi"}}, {"inline.largest": "more than total"}),
        ({"inline": {"largest": "15Mi", "total": "1Gi"}}, {"inline.largest": "less than 16Mi"}),
        (
            {"enforce": "none", "inline": {"largest": "1Gi", "total": "1Gi"}},
            {"inline": "needs enforce: quota"},
        ),
        ({"purgeFilesPerSecond": 0}, {"purgeFilesPerSecond": "must be a whole number"}),
    ],
)
def test_what_is_wrong_is_named(keys: dict[str, Any], reasons: dict[str, str]) -> None:
    found = refused_one(**keys)
    assert found.keys() == reasons.keys()
    for key, reason in reasons.items():
        assert reason in found[key]


def test_all_that_is_wrong_is_named_at_once() -> None:
    found = refused({"Bad_Name": {}, "b": {"hostDir": "x", "undoperiodd": "1s", "overbook": 0}})
    assert found.keys() == {
        "Bad_Name", "Bad_Name.hostDir", "b.hostDir", "b.undoperiodd", "b.overbook",
    }  # fmt: skip


def test_pools_never_share_a_directory() -> None:
    def two(host: str, mount: str | None = None) -> dict[str, str]:
        second = {"hostDir": host} | ({"mountDir": mount} if mount else {})
        return refused({"a": {"hostDir": "/mnt/a"}, "b": second})

    assert two("/mnt/a", "/m")["b.hostDir"] == "/mnt/a is /mnt/a, the hostDir of pool a"
    assert "lies inside /mnt/a" in two("/mnt/a/b", "/m")["b.hostDir"]
    assert "contains /mnt/a" in two("/mnt", "/m")["b.hostDir"]
    assert "/mnt/a is /mnt/a, the mountDir" in two("/other", "/mnt/a/")["b.mountDir"]
    # A name that only begins alike is another directory.
    assert len(build({"a": {"hostDir": "/mnt/a"}, "b": {"hostDir": "/mnt/ab"}}).pools) == 2


@pytest.mark.parametrize("host", ["/mnt/a", "/mnt/a/pool", "/mnt"])
def test_no_pool_beside_a_discovery_directory(host: str) -> None:
    fast = {"fast": {"hostDir": "/mnt/a", "mountDir": "/discovery/a"}}
    with pytest.raises(ConfigurationInvalid) as caught:
        build({"p": {"hostDir": host, "mountDir": "/elsewhere"}}, fast)
    (problem,) = caught.value.problems
    assert (problem.file, problem.key) == ("pools", "pools")
    assert "hostDir of pool p" in problem.reason
    assert "class fast" in problem.reason
    with pytest.raises(ConfigurationInvalid) as caught:
        build({"p": {"hostDir": "/elsewhere", "mountDir": "/discovery/a/x"}}, fast)
    assert "mountDir of pool p" in caught.value.problems[0].reason
    assert build({"fast": {"hostDir": "/mnt/b"}}, fast).pools[0].name == "fast"


def test_a_pools_key_at_the_top_is_told_where_it_belongs() -> None:
    with pytest.raises(ConfigurationInvalid) as caught:
        loading.build([loading.Source("f", "undoPeriod", "1h")])
    assert "belongs inside a pool of pools" in str(caught.value)


def test_every_key_is_described() -> None:
    documented = {key.name: key for key in describe()}
    assert documented["pools.<pool>.image"].default == "preallocated"
    assert all(f"pools.<pool>.{key.name}" in documented for key in KEYS)


def pool(name: str, directory: str, mount: str = "") -> PoolConfig:
    return PoolConfig(name=name, host_dir=directory, mount_dir=mount or directory, provisioner="p")


def test_pools_of_all_sources_are_compared() -> None:
    assert faults_between([pool("a", "/a"), pool("b", "/b")], [("c", "/c", "/c")]) == []
    assert faults_between([pool("a", "/a"), pool("a", "/b")]) == [
        "pool a at /b has the name of one at /a"
    ]
    assert faults_between([pool("a", "/a"), pool("b", "/a/b")]) == [
        "/a/b of pool b lies inside /a of pool a"
    ]
    assert faults_between([pool("a", "/a"), pool("b", "/b", "/a")]) == [
        "mountDir /a of pool b is mountDir /a of pool a"
    ]
    assert faults_between([pool("a", "/a")], [("c", "/a/d", "/d"), ("e", "/e", "/a/e")]) == [
        "/a of pool a contains /a/d of class c",
        "mountDir /a of pool a contains mountDir /a/e of class e",
    ]


@given(st.lists(st.text(alphabet="ab/", min_size=1, max_size=12).map("/".__add__), unique=True))
def test_names_made_from_directories_are_labels_and_unique(directories: list[str]) -> None:
    made = [name_of("local-path", directory) for directory in directories]
    assert len(set(made)) == len(made)
    assert all(len(name) <= 63 and name.replace("-", "").isalnum() for name in made)


def test_a_name_says_what_it_was_made_from() -> None:
    assert name_of("local-path", "/opt/Local_Path").startswith("local-path-local-path-")
    assert name_of("openebs", "/x/---").startswith("openebs-")
    assert name_of("x", "/a/b") != name_of("x", "/c/b")


def test_overlaps() -> None:
    assert overlaps("/a", "/a") == "is"
    assert overlaps("/a/b", "/a") == "lies inside"
    assert overlaps("/a", "/a/b") == "contains"
    assert overlaps("/a", "/ab") == ""


IN_DEVICES = "in {} are the logical volumes of a pool"


@pytest.mark.parametrize(
    ("keys", "directory", "where"),
    [
        ({"volumeGroup": "fast"}, "/dev/fast", "/dev/fast"),
        ({"volumeGroup": "fast"}, "/dev/fast/below", "/dev/fast"),
        ({"volumeGroup": "fast"}, "/dev/mapper", "/dev/mapper"),
        ({"volumeGroupPattern": "disk-[0-9]+"}, "/dev/disk-7", "/dev/disk-7"),
        ({"volumeGroup": "fast"}, "/dev/disk", ""),
        ({"volumeGroup": "fast"}, "/dev/fast2", ""),
        ({"volumeGroup": "f.st"}, "/dev/fast", ""),
        ({"volumeGroup": "fast"}, "/mnt/fast", ""),
    ],
)
def test_no_discovery_directory_is_where_a_pools_devices_are(
    keys: dict[str, str], directory: str, where: str
) -> None:
    for classes in (
        {"raw": {"hostDir": directory, "mountDir": "/mnt/raw"}},
        {"raw": {"hostDir": "/mnt/raw", "mountDir": directory}},
    ):
        if not where:
            assert build({"p": {"backend": "lvm", **keys}}, classes).pools
            continue
        with pytest.raises(ConfigurationInvalid) as caught:
            build({"p": {"backend": "lvm", **keys}}, classes)
        (problem,) = caught.value.problems
        assert problem.key == "storageClassMap"
        assert IN_DEVICES.format(where) in problem.reason


def test_where_no_volumes_are_made_on_devices_every_directory_may_offer_them() -> None:
    classes = {"raw": {"hostDir": "/dev/mapper", "mountDir": "/dev/mapper"}}
    assert build({"p": {"hostDir": "/mnt/p"}}, classes).pools
