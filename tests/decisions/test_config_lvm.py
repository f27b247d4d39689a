"""Pools of logical volumes in our ConfigMap: their keys, and which volume group is whose."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvolume.config.lvcreateoptions import fault_of_options
from localvolume.config.pools import (
    DYNAMIC_PROVISIONER,
    LvmConfig,
    PoolConfig,
    expanded,
    faults_between,
)
from tests.decisions.test_config_pools import build, refused


def one(**keys: Any) -> PoolConfig:
    (pool,) = build({"ssd": {"backend": "lvm", **keys}}).pools
    return pool


def refused_one(**keys: Any) -> dict[str, str]:
    reasons = refused({"ssd": {"backend": "lvm", **keys}})
    return {key.removeprefix("ssd."): reason for key, reason in reasons.items()}


def test_a_volume_group_is_all_it_takes() -> None:
    assert one(volumeGroup="data") == PoolConfig(
        name="ssd",
        host_dir="",
        mount_dir="",
        provisioner=DYNAMIC_PROVISIONER,
        backend="lvm",
        lvm=LvmConfig(group="data"),
    )


def test_every_key_of_thick_and_thin_volumes() -> None:
    """W-22: TopoLVM: options are read and have no effect."""
    thick = one(
        volumeGroup="data",
        classes=["fast"],
        reserve="10Gi",
        stripes=2,
        stripeSize="64Ki",
        lvcreateOptions=["--alloc", "cling", "--readahead=auto"],
        lvmCommandPrefix=["nsenter", "--target", "1", "--mount"],
        undoPeriod="1h",
    )
    assert thick.lvm == LvmConfig(
        group="data",
        stripes=2,
        stripe_bytes=65536,
        options=("--alloc", "cling", "--readahead=auto"),
        command_prefix=("nsenter", "--target", "1", "--mount"),
    )
    assert (thick.classes, thick.reserve_bytes, thick.undo_seconds) == (("fast",), 10 << 30, 3600.0)
    assert thick.lvm.layout() == (2, 65536, thick.lvm.options)
    thin = one(volumeGroupPattern="data-[0-9]+", thinPool="thin", overbook=2.5)
    assert thin.lvm == LvmConfig(pattern="data-[0-9]+", thin_pool="thin")
    assert thin.overbook == 2.5
    tagged = one(volumeGroupPattern="d.*", volumeGroupTag="localvolume.dev/pool")
    assert tagged.lvm == LvmConfig(pattern="d.*", tag="localvolume.dev/pool")


@pytest.mark.parametrize(
    ("keys", "where", "reason"),
    [
        ({}, "volumeGroup", "is missing: a pool with backend lvm needs volumeGroup or"),
        ({"volumeGroup": "a", "volumeGroupPattern": "b"}, "volumeGroupPattern", "volumeGroup is"),
        ({"volumeGroup": "-a"}, "volumeGroup", "'-a' is no name that LVM takes"),
        ({"volumeGroup": "a/b"}, "volumeGroup", "'a/b' is no name that LVM takes"),
        ({"volumeGroup": ".."}, "volumeGroup", "'..' is no name that LVM takes"),
        ({"volumeGroupPattern": "a("}, "volumeGroupPattern", "'a(' is no regular expression"),
        ({"volumeGroupPattern": ""}, "volumeGroupPattern", "must have 1 to 200 characters"),
        (
            {"volumeGroup": "a", "volumeGroupTag": "b"},
            "volumeGroupTag",
            "is for volumeGroupPattern",
        ),
        (
            {"volumeGroupPattern": "a", "volumeGroupTag": "-b"},
            "volumeGroupTag",
            "'-b' is no tag",
        ),
        (
            {"volumeGroupPattern": "a", "volumeGroupTag": "@b"},
            "volumeGroupTag",
            "'@b' is no tag",
        ),
        ({"volumeGroupPattern": "a", "volumeGroupTag": ""}, "volumeGroupTag", "'' is no tag"),
        ({"volumeGroup": "a", "thinPool": "x y"}, "thinPool", "'x y' is no name that LVM takes"),
        ({"volumeGroup": "a", "overbook": 2}, "overbook", "thick volumes take their room at once"),
        ({"volumeGroup": "a", "stripes": 0}, "stripes", "must be a whole number from 1 to 128"),
        ({"volumeGroup": "a", "stripeSize": "3Ki"}, "stripeSize", "stripes must have 4Ki to 1Gi"),
        ({"volumeGroup": "a", "stripeSize": "96Ki"}, "stripeSize", "stripes must have 4Ki to 1Gi"),
        ({"volumeGroup": "a", "stripeSize": "x"}, "stripeSize", "must be a quantity of bytes"),
        ({"volumeGroup": "a", "thinPool": "t", "stripes": 2}, "stripes", "is for thick volumes"),
        (
            {"volumeGroup": "a", "thinPool": "t", "stripeSize": "64Ki"},
            "stripeSize",
            "is for thick volumes",
        ),
        (
            {"volumeGroup": "a", "lvcreateOptions": ["--name=x"]},
            "lvcreateOptions",
            "'--name=x' would decide the name",
        ),
        ({"volumeGroup": "a", "lvmCommandPrefix": [""]}, "lvmCommandPrefix", "'' is no word"),
        ({"volumeGroup": "a", "lvmCommandPrefix": ["-m"]}, "lvmCommandPrefix", "begins with '-m'"),
        ({"volumeGroup": "a", "hostDir": "/mnt/a"}, "hostDir", "is not for backend lvm"),
        ({"volumeGroup": "a", "mountDir": "/mnt/a"}, "mountDir", "is not for backend lvm"),
        ({"volumeGroup": "a", "enforce": "none"}, "enforce", "is not for backend lvm"),
        ({"volumeGroup": "a", "image": "sparse"}, "image", "is not for backend lvm"),
        ({"volumeGroup": "a", "mustBeMounted": False}, "mustBeMounted", "is not for backend lvm"),
        (
            {"volumeGroup": "a", "purgeFilesPerSecond": 5},
            "purgeFilesPerSecond",
            "is not for backend lvm",
        ),
        ({"volumeGrup": "a"}, "volumeGrup", "unknown key; did you mean volumeGroup?"),
    ],
)
def test_what_is_wrong_is_named_at_its_key(keys: dict[str, Any], where: str, reason: str) -> None:
    assert refused_one(**keys)[where].startswith(reason)


@pytest.mark.parametrize("backend", ["directory", "btrfs", "image", None])
def test_keys_of_logical_volumes_are_for_lvm_alone(backend: str | None) -> None:
    keys: dict[str, Any] = {"hostDir": "/mnt/a", "volumeGroup": "a", "thinPool": "t"}
    if backend:
        keys["backend"] = backend
    reasons = refused({"ssd": keys})
    assert reasons == {
        "ssd.thinPool": f"is for backend lvm; this one is {backend or 'directory'}",
        "ssd.volumeGroup": f"is for backend lvm; this one is {backend or 'directory'}",
    }


def test_two_pools_never_share_a_volume_group_or_thin_pool() -> None:
    def two(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
        return {"a": {"backend": "lvm", **first}, "b": {"backend": "lvm", **second}}

    vg, other = {"volumeGroup": "data"}, {"volumeGroup": "else"}
    thin, more = {**vg, "thinPool": "t"}, {**vg, "thinPool": "u"}
    assert refused(two(vg, vg)) == {"b.volumeGroup": "data is pool a's"}
    assert refused(two(thin, thin)) == {"b.thinPool": "data/t is pool a's"}
    for first, second in (
        (vg, other),
        (vg, thin),
        (thin, more),
        (thin, {**other, "thinPool": "t"}),
    ):
        assert len(build(two(first, second)).pools) == 2


def test_a_thin_pool_that_cannot_be_read_is_not_taken_for_thick_volumes() -> None:
    pools = {
        "a": {"backend": "lvm", "volumeGroup": "data"},
        "b": {"backend": "lvm", "volumeGroup": "data", "thinPool": "x y"},
    }
    assert refused(pools).keys() == {"b.thinPool"}


def test_a_pool_without_directories_is_in_nobodys_way() -> None:
    pools = {"ssd": {"backend": "lvm", "volumeGroup": "a"}, "dirs": {"hostDir": "/mnt/dirs"}}
    fast = {"fast": {"hostDir": "/mnt/a", "mountDir": "/mnt/a"}}
    assert len(build({**pools, "hdd": {"backend": "lvm", "volumeGroup": "b"}}, fast).pools) == 3


# --- options of lvcreate -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--alloc", "cling"],
        ["--alloc=normal"],
        ["-r", "256k"],
        ["-rnone"],
        ["--contiguous", "y", "-An"],
        ["--noudevsync", "-y"],
    ],
)
def test_what_changes_nothing_may_be_given(words: list[str]) -> None:
    assert fault_of_options(words) is None


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        *(
            ([word, "x"], f"'{word}' would decide ")
            for word in (
                *("-n", "--name", "-L", "--size", "-l", "--extents", "-V", "--virtualsize"),
                *("-T", "--thin", "--thinpool", "-s", "--snapshot", "--type", "-m", "--mirrors"),
                *("-a", "--activate", "-k", "--setactivationskip", "-K", "-p", "--permission"),
                *("-Z", "--zero", "-W", "--wipesignatures", "--addtag", "--config", "--devices"),
                *("--devicesfile", "--profile", "-t", "--test", "-i", "--stripesize", "--vdo"),
            )
        ),
        (["-L5g"], "'-L5g' would decide the size"),
        (["-Wn"], "'-Wn' would decide the zeroing"),
        (["--zero=n"], "'--zero=n' would decide the zeroing"),
        # LVM takes shortened names.
        (["--wipe", "n"], "'--wipe' is none of the options"),
        (["--zer=n"], "'--zer=n' is none of the options"),
        (["--addt", "x"], "'--addt' is none of the options"),
        (["--alo", "cling"], "'--alo' is none of the options that are taken: --alloc"),
        # Another group, or physical volumes.
        (["othervg"], "'othervg' is none of the options"),
        (["/dev/sdb"], "'/dev/sdb' is none of the options"),
        (["--alloc", "cling", "/dev/sdb"], "'/dev/sdb' is none of the options"),
        (["--"], "'--' is none of the options"),
        (["-"], "'-' is none of the options"),
        ([""], "'' is none of the options"),
        # A value that is an option would hide it.
        (["--alloc", "--zero"], "--alloc cannot be '--zero'"),
        (["--alloc"], "--alloc cannot be ''"),
        (["-r", "-Wn"], "--readahead cannot be '-Wn'"),
        (["-yWn"], "'-yWn' is none of the options"),
        (["--yes=n"], "'--yes=n' is none of the options"),
    ],
)
def test_what_would_change_what_is_relied_on_is_refused(words: list[str], reason: str) -> None:
    assert (fault_of_options(words) or "").startswith(reason)


@given(st.lists(st.text(alphabet="-=anWzyrLx ./", max_size=6), max_size=4))
def test_no_word_is_taken_that_is_not_known(words: list[str]) -> None:
    if fault_of_options(words) is None:
        assert all(word in ("-y", "n", "y") or word[:2] in ("-A", "-C", "-r") for word in words)


# --- patterns ----------------------------------------------------------------------------------


def lvm_pool(name: str, **lvm: Any) -> PoolConfig:
    config = LvmConfig(**lvm)
    return PoolConfig(
        name=name, host_dir="", mount_dir="", provisioner="p", backend="lvm", lvm=config
    )


def untagged(groups: Iterable[str]) -> dict[str, frozenset[str]]:
    return dict.fromkeys(groups, frozenset())


def places(configs: tuple[PoolConfig, ...]) -> dict[str, str]:
    return {config.name: config.lvm.place if config.lvm else "" for config in configs}


def test_a_pattern_becomes_one_pool_for_each_group_that_matches_as_a_whole() -> None:
    plain = PoolConfig(name="d", host_dir="/d", mount_dir="/d", provisioner="p")
    pattern = lvm_pool("data", pattern="vg[0-9]", stripes=2)
    found = expanded([plain, pattern], untagged(["vg1", "vg10", "xvg1", "vg2", "vg2"]))
    assert places(found) == {"d": "", "data.vg1": "vg1", "data.vg2": "vg2"}
    assert found[0] is plain
    assert {one.of for one in found[1:]} == {"data"}
    assert found[1].lvm == LvmConfig(group="vg1", stripes=2)
    assert expanded([pattern], untagged([])) == ()


def test_a_group_is_the_pools_that_names_it_and_else_the_first_patterns() -> None:
    first, second = lvm_pool("a", pattern="vg.*"), lvm_pool("b", pattern="vg.*|x")
    named = lvm_pool("c", group="vg2")
    assert places(expanded([first, second, named], untagged(["vg1", "vg2", "x"]))) == {
        "a.vg1": "vg1", "b.x": "x", "c": "vg2",
    }  # fmt: skip


def test_with_a_tag_only_groups_that_have_it_are_pools() -> None:
    """Or those in which there are volumes already: they must not become nobody's."""
    pattern = lvm_pool("a", pattern="vg.*", tag="localvolume.dev/pool")
    groups = {
        "vg1": frozenset({"localvolume.dev/pool", "other"}),
        "vg2": frozenset({"localvolume.dev/pools"}),
        "vg3": frozenset[str](),
        "x": frozenset({"localvolume.dev/pool"}),
    }
    assert places(expanded([pattern], groups)) == {"a.vg1": "vg1"}
    assert places(expanded([pattern], groups, ["a.vg3", "b.vg2"])) == {
        "a.vg1": "vg1",
        "a.vg3": "vg3",
    }
    # What it leaves may be another's.
    assert places(expanded([pattern, lvm_pool("b", pattern="vg.*")], groups)) == {
        "a.vg1": "vg1", "b.vg2": "vg2", "b.vg3": "vg3",
    }  # fmt: skip
    assert [one.lvm for one in expanded([pattern], groups)] == [LvmConfig(group="vg1")]


def test_thin_pools_of_a_group_are_places_of_their_own() -> None:
    thick, thin = lvm_pool("a", pattern="vg.*"), lvm_pool("b", pattern="vg.*", thin_pool="t")
    named = lvm_pool("c", group="vg2", thin_pool="t")
    assert places(expanded([thick, thin, named], untagged(["vg1", "vg2"]))) == {
        "a.vg1": "vg1", "a.vg2": "vg2", "b.vg1": "vg1/t", "c": "vg2/t",
    }  # fmt: skip


def test_what_is_no_name_of_a_group_is_none() -> None:
    """Names come from annotations, too."""
    names = ["", ".", "..", "a/b", "-a", "a b", "a\n", "x" * 128]
    assert expanded([lvm_pool("a", pattern="(?s:.*)")], untagged(names)) == ()


@given(
    st.lists(st.sampled_from(["vg.*", "vg1", ".*"]), max_size=4),
    st.lists(st.sampled_from(["vg1", "vg2", "x"]), max_size=3),
    st.lists(st.sampled_from(["vg1", "vg2", "vg3", "x"])),
)
def test_no_two_pools_have_a_place_or_a_name_in_common(
    patterns: list[str], names: list[str], groups: list[str]
) -> None:
    configs = [lvm_pool(f"p{n}", pattern=pattern) for n, pattern in enumerate(patterns)]
    configs += [lvm_pool(f"n-{name}", group=name) for name in dict.fromkeys(names)]
    found = places(expanded(configs, untagged(groups)))
    assert len(set(found.values())) == len(found)
    assert set(found.values()) - set(names) <= set(groups)


def test_pools_of_all_sources_are_compared() -> None:
    one, two = lvm_pool("a", group="vg"), lvm_pool("b", group="vg")
    thin = lvm_pool("c", group="vg", thin_pool="t")
    assert faults_between([one, two]) == ["vg of pool b is that of pool a"]
    assert faults_between([one, thin]) == []
    assert faults_between([one, lvm_pool("a", group="x")]) == [
        "pool a at x has the name of one at vg"
    ]
    pattern = lvm_pool("a", pattern="vg.*")
    assert faults_between([pattern, lvm_pool("a.vg1", group="x")]) == [
        "pool a.vg1 has a name that a volume group of pool a may get"
    ]
    assert faults_between([pattern, one])[0].startswith(
        "pool a at vg has the name of one at volume"
    )
    directory = PoolConfig(name="d", host_dir="/d", mount_dir="/d", provisioner="p")
    assert faults_between([one, directory], [("c", "/c", "/c")]) == []
