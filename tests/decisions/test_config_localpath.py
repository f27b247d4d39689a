"""local-path's ConfigMap: which pools it makes on which node, and what of it is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvolume.config.foreign import localpath, localscripts
from localvolume.config.foreign.localpath import LocalPath
from localvolume.config.loading import Source
from localvolume.config.model import ConfigurationInvalid, Problem
from localvolume.config.pools import faults_between

REST = "DEFAULT_PATH_FOR_NON_LISTED_NODES"


def nodes(**paths: list[str]) -> list[dict[str, Any]]:
    return [{"node": name, "paths": given} for name, given in paths.items()]


def read(config: Any, node: str | None = "n1", **files: str) -> LocalPath:
    text = config if isinstance(config, str) else json.dumps(config)
    sources = [Source("config.json", "config.json", text)]
    sources += [Source(name, name.replace("_", "."), text) for name, text in files.items()]
    return localpath.read(sources, node)


def refused(config: Any, **files: str) -> dict[str, str]:
    with pytest.raises(ConfigurationInvalid) as caught:
        read(config, **files)
    problems = caught.value.problems
    return {problem.key or problem.file: problem.reason for problem in problems}


def dirs(found: LocalPath) -> list[str]:
    return [pool.host_dir for pool in found.pools]


DEFAULT = {"nodePathMap": nodes(**{REST: ["/opt/local-path-provisioner"]})}


# --- which pools


def test_upstreams_default() -> None:
    found = read(DEFAULT)
    (pool,) = found.pools
    assert (pool.host_dir, pool.mount_dir) == ("/opt/local-path-provisioner",) * 2
    assert (pool.provisioner, pool.flavor) == ("rancher.io/local-path", "local-path")
    assert (pool.classes, pool.enforce, pool.must_be_mounted) == ((), False, False)
    assert found.refusal("any") == ""
    assert found.warnings == ()


def test_the_nodes_own_paths_come_before_the_rest() -> None:
    config = {"nodePathMap": nodes(**{REST: ["/opt/x"], "n1": ["/data1", "/data2/"], "n2": []})}
    assert dirs(read(config)) == ["/data1", "/data2"]
    assert dirs(read(config, "n3")) == ["/opt/x"]
    assert read(config).refusal("any") == ""
    assert sorted(dirs(read(config, None))) == ["/data1", "/data2", "/opt/x"]


def test_no_paths_refuse_the_node() -> None:
    found = read({"nodePathMap": nodes(**{REST: ["/opt/x"], "n1": []})})
    assert found.pools == ()
    assert "has no path for node n1" in found.refusal("any")
    found = read({"nodePathMap": [{"node": "n1"}, {"node": "n2", "paths": None}]}, "n2")
    assert "has no path for node n2" in found.refusal("any")


def test_a_node_that_is_not_listed_is_refused() -> None:
    found = read({"nodePathMap": nodes(n2=["/data"])})
    assert found.pools == ()
    assert found.refusal("any") == (f"local-path's configuration names neither node n1 nor {REST}")


def test_names_depend_on_the_path_alone() -> None:
    one = read({"nodePathMap": nodes(n1=["/a", "/b"])})
    two = read({"nodePathMap": nodes(n1=["/b", "/c", "/a"])})
    names = {pool.host_dir: pool.name for pool in two.pools}
    assert [names[pool.host_dir] for pool in one.pools] == [pool.name for pool in one.pools]
    assert len(set(names.values())) == 3
    assert faults_between(two.pools) == []


def test_classes_have_paths_of_their_own() -> None:
    config = {
        "nodePathMap": [],
        "storageClassConfigs": {
            "fast": {"nodePathMap": nodes(**{REST: ["/ssd"], "n2": []})},
            "slow": {"nodePathMap": nodes(**{REST: ["/hdd", "/ssd"]})},
            "other": {"nodePathMap": nodes(n2=["/x"])},
        },
    }
    found = read(config)
    assert {pool.host_dir: pool.classes for pool in found.pools} == {
        "/ssd": ("fast", "slow"),
        "/hdd": ("slow",),
    }
    assert found.refusal("fast") == found.refusal("slow") == ""
    assert "names neither node n1" in found.refusal("other")
    assert found.refusal("unknown") == "local-path's storageClassConfigs does not name the class"
    assert "has no path for node n2" in read(config, "n2").refusal("fast")
    assert found.warnings == ()


def test_the_map_is_not_used_beside_class_configs() -> None:
    config = DEFAULT | {"storageClassConfigs": {"a": {"nodePathMap": nodes(n1=["/a"])}}}
    found = read(config)
    assert dirs(found) == ["/a"]
    assert [warning.key for warning in found.warnings] == ["nodePathMap"]


def test_the_provisioners_name_is_the_agents() -> None:
    source = Source("config.json", "config.json", json.dumps(DEFAULT))
    (pool,) = localpath.read([source], "n1", "cluster.local/paths").pools
    assert pool.provisioner == "cluster.local/paths"


# --- what is refused


@pytest.mark.parametrize(
    ("config", "reasons"),
    [
        ({}, {"nodePathMap": "is missing"}),
        ({"nodePathMap": []}, {"nodePathMap": "is missing"}),
        ({"nodePathmaps": []}, {"nodePathmaps": "did you mean nodePathMap?"}),
        ({"nodePathMap": nodes(n1=["opt"])}, {"nodePathMap[0].paths[0]": "must be an absolute"}),
        ({"nodePathMap": nodes(n1=[""])}, {"nodePathMap[0].paths[0]": "is empty"}),
        ({"nodePathMap": nodes(n1=["/"])}, {"nodePathMap[0].paths[0]": "must not be the root"}),
        ({"nodePathMap": nodes(n1=["/./"])}, {"nodePathMap[0].paths[0]": "must not be the root"}),
        ({"nodePathMap": nodes(n1=["/a", "/a/"])}, {"nodePathMap[0].paths[1]": "a second time"}),
        ({"nodePathMap": nodes(n1=["/a/../b"])}, {"nodePathMap[0].paths[0]": 'not hold ".."'}),
        ({"nodePathMap": nodes(n1=[1])}, {"nodePathMap[0].paths[0]": "absolute path"}),  # type: ignore[list-item]
        ({"nodePathMap": nodes(n1=["/a"]) * 2}, {"nodePathMap[1].node": "a second time"}),
        ({"nodePathMap": [{"paths": ["/a"]}]}, {"nodePathMap[0].node": "is missing"}),
        ({"nodePathMap": [{"node": "", "paths": []}]}, {"nodePathMap[0].node": "is empty"}),
        ({"nodePathMap": [{"node": "n1", "path": []}]},
         {"nodePathMap[0].path": "unknown key; did you mean paths?"}),
        ({"nodePathMap": nodes(DEFAULT_PATH_FOR_NON_LISTED_NODE=["/a"])},
         {"nodePathMap[0].node": "did you mean DEFAULT_PATH_FOR_NON_LISTED_NODES?"}),
        ({"nodePathMap": {"n1": ["/a"]}}, {"nodePathMap": "must be a list"}),
        (DEFAULT | {"cmdTimeoutSeconds": "long"}, {"cmdTimeoutSeconds": "must be a whole number"}),
        (DEFAULT | {"helperPod": {}}, {"helperPod": "unknown key"}),
        ({"storageClassConfigs": {"A_": {"nodePathMap": nodes(n1=["/a"])}}},
         {"storageClassConfigs.A_": "is no name of a StorageClass"}),
        ({"storageClassConfigs": {"a": {}}}, {"storageClassConfigs.a.nodePathMap": "is missing"}),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(config: Any, reasons: dict[str, str]) -> None:
    found = refused(config)
    assert found.keys() == reasons.keys()
    for key, reason in reasons.items():
        assert reason in found[key]


def test_all_that_is_wrong_is_named_at_once() -> None:
    found = refused(
        {"nodePathMap": nodes(n1=["x"]), "setupCommand": "/bin/x", "foo": 1}, teardown="exit 0"
    )
    assert found.keys() == {"nodePathMap[0].paths[0]", "setupCommand", "foo", "teardown"}


def test_a_shared_filesystem_is_refused_with_the_alternative() -> None:
    reason = refused({"sharedFileSystemPath": "/nfs"})["sharedFileSystemPath"]
    assert "is no local volume" in reason
    assert "use a provisioner for shared filesystems" in reason
    config = {"storageClassConfigs": {"a": {"sharedFilesystemPath": "/nfs"}}}
    assert refused(config).keys() == {"storageClassConfigs.a.sharedFileSystemPath"}
    with pytest.raises(ConfigurationInvalid) as caught:
        read(DEFAULT | {"sharedFileSystemPath": "/nfs"})
    assert "exclude each other" in str(caught.value)
    assert dirs(read(DEFAULT | {"sharedFileSystemPath": ""})) == ["/opt/local-path-provisioner"]


def test_paths_inside_one_another_are_refused_on_the_same_node_only() -> None:
    assert (
        "/a/b lies inside /a" in refused({"nodePathMap": nodes(n9=["/a/b", "/a"])})["config.json"]
    )
    config = {
        "storageClassConfigs": {
            "x": {"nodePathMap": nodes(n1=["/a"])},
            "y": {"nodePathMap": nodes(**{REST: ["/a/b"]})},
        }
    }
    assert "/a/b lies inside /a" in refused(config)["config.json"]
    assert dirs(read({"nodePathMap": nodes(n1=["/a"], n2=["/a/b"])}, "n2")) == ["/a/b"]


def test_only_json_is_read() -> None:
    for text in ("nodePathMap: []", "", "{", '{"a": NaN}', "[" * 100_000, "{} {}", '{"a": 1,}'):
        (reason,) = {*refused(text).values()}
        assert "JSON" in reason or "nested" in reason
    assert "given twice" in refused('{"nodePathMap": [], "nodePathMap": []}')["nodePathMap"]
    # The tabs and escapes of JSON, where YAML would have other ideas.
    assert dirs(read('{\t"nodePathMap":[{"node":"n1","paths":["\\/a"]}]}')) == ["/a"]
    assert "must be a mapping" in refused("[]")["config.json"]


def test_a_timeout_means_nothing() -> None:
    (warning,) = read(DEFAULT | {"cmdTimeoutSeconds": 120}).warnings
    assert warning.key == "cmdTimeoutSeconds"
    assert "means nothing" in warning.reason


# --- scripts

OLD = """#!/bin/sh
while getopts "m:s:p:" opt
do
    case $opt in
        p)
        absolutePath=$OPTARG
        ;;
        s)
        sizeInBytes=$OPTARG
        ;;
        m)
        volMode=$OPTARG
        ;;
    esac
done

"""
K3S = '#!/bin/sh\nset -eu\nmkdir -m 0777 -p "${VOL_DIR}"\nchmod 700 "${VOL_DIR}/.."'


@pytest.mark.parametrize(
    "setup",
    [
        '#!/bin/sh\nset -eu\nmkdir -m 0777 -p "$VOL_DIR"',
        '#! /bin/sh\n\n# make it\n  set -e\n\tmkdir  -m 0777  -p "$VOL_DIR"  # here\n\n',
        '#!/bin/sh\nset -eu\nmkdir -m 0777 -p "${VOL_DIR}"\n',
        "mkdir -m 0777 -p $VOL_DIR\r\n",
        OLD + "mkdir -m 0777 -p ${absolutePath}",
    ],
)
@pytest.mark.parametrize(
    "teardown",
    ['#!/bin/sh\nset -eu\nrm -rf "$VOL_DIR"\n',
     'rm -rf "${VOL_DIR}"', OLD + "rm -rf ${absolutePath}"],
)  # fmt: skip
def test_upstreams_own_scripts_are_taken_silently(setup: str, teardown: str) -> None:
    assert read(DEFAULT, setup=setup, teardown=teardown).warnings == ()


@pytest.mark.parametrize(
    "setup",
    [
        "",
        "exit 0",
        'mkdir -m 0700 -p "$VOL_DIR"',
        'mkdir -p "$VOL_DIR"',
        'mkdir -m 0777 -p "$VOL_DIR/data"',
        'mkdir -m 0777 -p "$VOL_DIRECTORY"',
        'mkdir -m 0777 -p "$VOL_DIR" /host/etc',
        'mkdir -m 0777 -p "$VOL_DIR"; xfs_quota -x',
        'mkdir -m 0777 -p "$VOL_DIR" && curl x',
        'mkdir -m 0777 -p "$VOL_DIR"\nchown 1000:1000 "$VOL_DIR"',
        'mkdir -m 0777 -p "$VOL_DIR"\nchmod 755 "$VOL_DIR/.."',
        K3S + "\nreboot",
        'mkdir -m 0777 -p "$VOL_DIR',
        OLD.replace("volMode=$OPTARG", "reboot") + "mkdir -m 0777 -p ${absolutePath}",
        'rm -rf "$VOL_DIR"',
    ],
)
def test_other_scripts_are_refused_with_what_does_it_here(setup: str) -> None:
    reason = refused(DEFAULT, setup=setup)["setup"]
    assert "nothing that a configuration brings is run as root" in reason
    assert "permPattern, userPattern, groupPattern" in reason
    assert "enforce: quota" in reason


@pytest.mark.parametrize(
    "teardown",
    ["", 'rm -rf "$VOL_DIR" /x', 'rm -rf "$VOL_DIR/.."', 'mv "$VOL_DIR" /trash', 'shred "$VOL_DIR"',
     'rm -rf "$VOL_DIR"\nchmod 700 "$VOL_DIR/.."'],
)  # fmt: skip
def test_other_teardowns_are_refused_with_what_does_it_here(teardown: str) -> None:
    assert "onRemoval: overwrite" in refused(DEFAULT, teardown=teardown)["teardown"]


def test_commands_are_refused_like_scripts() -> None:
    found = refused(DEFAULT | {"setupCommand": "/manager", "teardownCommand": "/manager"})
    assert "permPattern" in found["setupCommand"]
    assert "onRemoval" in found["teardownCommand"]
    assert read(DEFAULT | {"setupCommand": "", "teardownCommand": None}).warnings == ()


def test_k3s_script_is_taken_with_a_warning() -> None:
    (warning,) = read(DEFAULT, setup=K3S).warnings
    assert warning.file == "setup"
    assert "chmod 700" in warning.reason


def test_no_helper_pods_are_used() -> None:
    (warning,) = read(DEFAULT, helperPod_yaml="kind: Pod").warnings
    assert "without helper pods" in warning.reason


@given(st.text(alphabet='mkdir-0777p "$VOL_DIR;&|`()\n#', max_size=60))
def test_nothing_unknown_is_taken_for_a_default(script: str) -> None:
    if localscripts.judge(script, "setup") != "other":
        commands = [line for line in script.splitlines() if line.strip() and line.strip()[0] != "#"]
        assert len(commands) == 1
        assert commands[0].replace('"', "").split()[0] == "mkdir"


# --- files


def test_a_directory_is_read_with_its_scripts(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(DEFAULT))
    (tmp_path / "helperPod.yaml").write_text("kind: Pod")
    (tmp_path / "..data").mkdir()
    assert len(localpath.load(str(tmp_path), "n1").warnings) == 1
    (tmp_path / "teardown").write_text("exit 0")
    (tmp_path / "setups").write_text("")
    with pytest.raises(ConfigurationInvalid) as caught:
        localpath.load(str(tmp_path), "n1")
    assert [(problem.file, problem.reason[:33]) for problem in caught.value.problems] == [
        ("setups", "is none of local-path's files; di"),
        ("teardown", "is not run: nothing that a config"),
    ]
    found = localpath.load(str(tmp_path / "config.json"), "n1")
    assert dirs(found) == ["/opt/local-path-provisioner"]


def test_what_cannot_be_read_is_invalid(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationInvalid, match="cannot be read"):
        localpath.load(str(tmp_path / "gone"), "n1")
    with pytest.raises(ConfigurationInvalid, match=r"config\.json: is missing"):
        localpath.load(str(tmp_path), "n1")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False)
        | st.sampled_from(["", "/", "/a", "/a/b", "n1", REST, "a"]) | st.text(max_size=4),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
            st.sampled_from(
                ["nodePathMap", "node", "paths", "storageClassConfigs", "sharedFileSystemPath", "a"]
            ) | st.text(max_size=3), inner, max_size=4),
        max_leaves=14,
    )
)  # fmt: skip
def test_any_json_is_read_or_refused(tree: Any) -> None:
    problems: list[Problem] = []
    try:
        found = read(tree)
    except ConfigurationInvalid as invalid:
        problems = invalid.problems
        found = LocalPath(refusals={})
    assert problems or found.pools or found.refusal("any")
    assert all(len(str(problem).splitlines()) == 1 for problem in problems)
    assert faults_between(found.pools) == []
