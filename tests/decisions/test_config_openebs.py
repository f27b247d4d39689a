"""OpenEBS hostpath: base paths, the annotation of its classes (O23, O24), graces (O25 to O30)."""

import argparse

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from localvolume.config.environment import EnvironmentInvalid
from localvolume.config.flags.agent import AGENT_FLAGS
from localvolume.config.flags.table import add_flags
from localvolume.config.foreign import openebs
from localvolume.config.foreign.openebs import HostpathClass

ANNOTATION = "cas.openebs.io/config"


def read(*entries: dict[str, object]) -> HostpathClass:
    found = openebs.read_class(
        {"openebs.io/cas-type": "local", ANNOTATION: yaml.safe_dump(list(entries))}
    )
    assert isinstance(found, HostpathClass), found
    return found


def refused(*entries: object) -> list[str]:
    found = openebs.read_class({ANNOTATION: yaml.safe_dump(list(entries))})
    assert isinstance(found, list)
    return [problem.removeprefix(f"{ANNOTATION}: ") for problem in found]


def quota(name: str = "XFSQuota", enabled: object = True, **data: str) -> dict[str, object]:
    return {"name": name, "enabled": enabled, "data": data}


# --- the agent's base paths


def test_base_paths_become_pools() -> None:
    one, two = openebs.pools(["/data/", "/srv"], {})
    assert (one.host_dir, one.mount_dir, one.provisioner) == ("/data", "/data", "openebs.io/local")
    assert (one.flavor, one.enforce, one.must_be_mounted) == ("openebs", False, False)
    assert one.name != two.name
    assert openebs.pools([], {}) == ()


def test_the_variable_counts_as_a_base_path() -> None:
    environ = {"OPENEBS_IO_BASE_PATH": " /data "}
    assert [pool.host_dir for pool in openebs.pools(["/srv", "/data"], environ)] == [
        "/data",
        "/srv",
    ]
    assert openebs.pools([], {"OPENEBS_IO_BASE_PATH": "  "}) == ()


def test_bad_base_paths_are_all_named() -> None:
    with pytest.raises(EnvironmentInvalid) as caught:
        openebs.pools(["/", "/a/.."], {"OPENEBS_IO_BASE_PATH": "data"})
    assert [problem.partition(" ")[0] for problem in caught.value.problems] == [
        "OPENEBS_IO_BASE_PATH",
        "--openebs-base-path",
        "--openebs-base-path",
    ]


def test_the_default_base_path_is_upstreams() -> None:
    def default(*paths: str, **environ: str) -> str:
        return openebs.default_base_path(openebs.pools(paths, environ), environ)

    assert default("/srv", "/var/openebs/local") == "/var/openebs/local"
    assert default("/srv", "/data") == "/srv"
    assert default("/var/openebs/local", OPENEBS_IO_BASE_PATH="/data") == "/data"
    assert default() == ""


def test_the_flags() -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser, *AGENT_FLAGS)
    args = parser.parse_args(["--openebs-base-path=/a", "--openebs-base-path=/b"])
    assert args.openebs_base_path == ["/a", "/b"]
    args = parser.parse_args([])
    assert (args.openebs_base_path, args.local_path_config) == ([], None)
    assert args.local_path_provisioner_name == "rancher.io/local-path"


# --- classes


def test_a_class_without_the_annotation_has_defaults() -> None:
    assert openebs.read_class({}) == HostpathClass()
    assert openebs.read_class({ANNOTATION: "  \n"}) == HostpathClass()
    assert openebs.read_class({ANNOTATION: "[]"}) == HostpathClass()


def test_a_whole_class() -> None:
    assert read(
        {"name": "StorageType", "value": "hostpath"},
        {"name": "BasePath", "value": "/data/hdd/"},
        {"name": "NodeAffinityLabels", "list": ["openebs.io/node", "kubernetes.io/hostname"]},
        quota(softLimitGrace="0%", hardLimitGrace="20%"),
        {"name": "FilePermissions", "enabled": "true", "data": {"mode": "0750", "GID": 1000}},
    ) == HostpathClass(
        base_path="/data/hdd",
        affinity_keys=("openebs.io/node", "kubernetes.io/hostname"),
        quota=True,
        graces=(0.0, 20.0),
        mode="0750",
        gid="1000",
    )


def test_entries_without_data_are_passed_over() -> None:
    """O23: what has no data gives none, and the others keep theirs."""
    assert read({"name": "XFSQuota", "enabled": True}) == HostpathClass(quota=True)
    assert read({"name": "FilePermissions", "enabled": True}, quota(hardLimitGrace="5%")) == (
        HostpathClass(quota=True, graces=(None, 5.0))
    )


def test_lists_are_read_by_their_name() -> None:
    """O24."""
    assert read({"name": "NodeAffinityLabels", "list": ["a", "b/c"]}).affinity_keys == ("a", "b/c")
    assert read({"name": "NodeAffinityLabels"}).affinity_keys == ()


@pytest.mark.parametrize("enabled", [False, "false", "0", "F"])
def test_a_quota_that_is_not_enabled_is_none(enabled: object) -> None:
    assert read(quota(enabled=enabled, hardLimitGrace="5%")) == HostpathClass()
    assert read({"name": "EXT4Quota", "data": {"hardLimitGrace": "5%"}}) == HostpathClass()


def test_both_quotas_mean_one() -> None:
    """Upstream gave both pods one name, and one of the two was never set."""
    same = {"softLimitGrace": "1%", "hardLimitGrace": "2%"}
    assert read(quota(**same), quota("EXT4Quota", **same)).graces == (1.0, 2.0)
    assert refused(quota(**same), quota("EXT4Quota", hardLimitGrace="2%")) == [
        "EXT4Quota: sets other limits than the other quota of this class"
    ]


@pytest.mark.parametrize(
    ("entry", "reasons"),
    [
        ({"name": "BasPath", "value": "/x"}, ["BasPath: is not known; did you mean BasePath?"]),
        ({"value": "/x"}, ["[0]: has no name"]),
        ("BasePath", ["[0]: must be a mapping, not a single value"]),
        ({"name": "BasePath", "value": "x"}, ["BasePath.value: must be an absolute path, not 'x'"]),
        ({"name": "BasePath", "value": "/a/../b"}, ["BasePath.value: must not hold"]),
        ({"name": "BasePath", "list": ["/x"]}, ["BasePath: takes value, not list"]),
        ({"name": "StorageType", "value": "device"}, ["StorageType: 'device' is for"]),
        ({"name": "StorageType", "value": "zfs"}, ["StorageType: must be hostpath"]),
        ({"name": "FSType", "value": "xfs"}, ["FSType: is for volumes on whole block devices"]),
        ({"name": "BlockDeviceSelectors", "data": {}}, ["BlockDeviceSelectors: is for volumes"]),
        ({"name": "BlockDeviceTag", "value": "x"}, ["BlockDeviceTag: is for volumes"]),
        ({"name": "NodeAffinityLabel", "value": "x"}, ["NodeAffinityLabel: is not heeded"]),
        ({"name": "NodeAffinityLabels", "list": ["-"]}, ["NodeAffinityLabels.list[0]: '-' is no"]),
        ({"name": "XFSQuota", "enabled": "si"}, ["XFSQuota.enabled: must be true or false"]),
        ({"name": "XFSQuota", "value": "x"}, ["XFSQuota: takes enabled and data, not value"]),
        (quota(softlimit="1%"), ["XFSQuota.data.softlimit: unknown key; did you mean softLimitG"]),
        (quota(softLimitGrace="9%", hardLimitGrace="8%"), ["XFSQuota.data: has a softLimitGrace"]),
        ({"name": "BasePath", "valu": "/x"}, ["[0].valu: unknown key; did you mean value?"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(entry: object, reasons: list[str]) -> None:
    found = refused(entry)
    assert len(found) == len(reasons), found
    for problem, reason in zip(found, reasons, strict=True):
        assert problem.startswith(reason)


def test_all_that_is_wrong_is_named_at_once() -> None:
    assert len(refused({"name": "X"}, {"name": "BasePath", "value": "/"}, {"name": "FSType"})) == 3
    assert refused({"name": "StorageType"}, {"name": "StorageType"}) == [
        "StorageType: is given twice"
    ]


def test_what_is_no_list_is_refused() -> None:
    for text in ("a: b", "hostpath", "- [", "a: &a [*a]", "[[[[1]]]]"):
        assert isinstance(openebs.read_class({ANNOTATION: text}), list)
    assert openebs.read_class({"openebs.io/cas-type": "cstor"}) == [
        f"{ANNOTATION}: openebs.io/cas-type 'cstor' is another engine than local"
    ]


# --- quotas


@pytest.mark.parametrize(
    ("grace", "size", "limit"),
    [
        ("0%", 5000, 5),  # O26
        ("200%", 5_000_000, 9766),  # O27
        (".5%", 1000, 1),  # O28
        ("5.%", 1024, 2),
        ("20%", 10 * 2**20, 12 * 1024),
        ("100%", 1024, 2),
    ],
)
def test_a_limit_is_the_size_and_the_grace_in_whole_kib(grace: str, size: int, limit: int) -> None:
    assert openebs.limit_bytes(size, openebs.grace(grace)) == limit * 1024


def test_no_grace_is_no_limit() -> None:
    """O25; with no grace at all, the size itself is the limit: graces None."""
    assert openebs.grace("") is None
    assert openebs.limit_bytes(5000, None) is None
    assert read(quota()).graces is None
    assert read(quota(softLimitGrace="", hardLimitGrace="")) == HostpathClass(quota=True)
    assert read(quota(softLimitGrace="3%", hardLimitGrace="")).graces == (3.0, None)


@pytest.mark.parametrize("grace", ["10", "%", ".%", "-1%", "1%%", "x%", " 1%", "1e2%", "١%"])
def test_what_is_no_percentage_is_refused(grace: str) -> None:
    """O29, O30."""
    with pytest.raises(ValueError, match="must be a percentage"):
        openebs.grace(grace)
    if grace.strip() == grace:
        assert "must be a percentage" in refused(quota(softLimitGrace=grace))[0]


def test_graces_are_compared_once_capped() -> None:
    assert read(quota(softLimitGrace="300%", hardLimitGrace="200%")).graces == (100.0, 100.0)


@given(st.integers(1, 2**60), st.floats(0, 100))
def test_a_limit_is_never_below_the_size(size: int, grace: float) -> None:
    limit = openebs.limit_bytes(size, grace)
    assert limit is not None
    assert limit >= size
    assert limit % 1024 == 0
    assert limit <= 2 * size + 1024


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(
        ["BasePath", "StorageType", "XFSQuota", "/x", "true", "1%", "hostpath"]
    ) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["name", "value", "enabled", "data", "list", "softLimitGrace", "mode"]),
        inner, max_size=4),
    max_leaves=12,
))  # fmt: skip
def test_any_annotation_is_read_or_refused(tree: object) -> None:
    found = openebs.read_class({ANNOTATION: yaml.safe_dump(tree, allow_unicode=True)})
    assert isinstance(found, HostpathClass) or (found and all(found))
