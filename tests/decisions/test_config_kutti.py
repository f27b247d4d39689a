"""kutti's environment: one pool of its own provisioner, on the node it names."""

from pathlib import Path

import pytest

from localvolume.config.environment import AgentEnvironment, EnvironmentInvalid
from localvolume.config.foreign import kutti
from localvolume.config.pools import PoolConfig


def problems(environ: dict[str, str]) -> list[str]:
    with pytest.raises(EnvironmentInvalid) as caught:
        kutti.pool(environ)
    return caught.value.problems


def test_both_variables_make_a_pool(tmp_path: Path) -> None:
    environ = {"KUTTI_NODE_NAME": "n1", "KUTTI_ROOT_PATH": f"{tmp_path}/"}
    assert kutti.pool(environ) == PoolConfig(
        name="kutti",
        host_dir=str(tmp_path),
        mount_dir=str(tmp_path),
        provisioner="kuttiproject/provisioner-localvolume",
        flavor="kutti",
        enforce=False,
        must_be_mounted=False,
    )


def test_none_of_them_makes_none() -> None:
    assert kutti.pool({}) is None
    assert kutti.pool({"KUTTI_NODE_NAME": "", "KUTTI_ROOT_PATH": ""}) is None


def test_one_alone_is_refused(tmp_path: Path) -> None:
    assert problems({"KUTTI_NODE_NAME": "n1"}) == [
        "KUTTI_ROOT_PATH is not set, and KUTTI_NODE_NAME is: set both"
    ]
    assert problems({"KUTTI_ROOT_PATH": str(tmp_path)}) == [
        "KUTTI_NODE_NAME is not set, and KUTTI_ROOT_PATH is: set both"
    ]


def test_the_root_must_be_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for root, reason in (
        ("kutti/vols", "must be an absolute path"),
        ("/", "must not be the root directory"),
        ("/kutti/../vols", 'must not hold ".."'),
        (f"{tmp_path}/gone", "is no existing directory"),
        (f"{tmp_path}/file", "is no existing directory"),
    ):
        (problem,) = problems({"KUTTI_NODE_NAME": "n1", "KUTTI_ROOT_PATH": root})
        assert problem.startswith("KUTTI_ROOT_PATH ")
        assert reason in problem


def test_all_problems_at_once() -> None:
    assert len(problems({"KUTTI_ROOT_PATH": "x"})) == 2


def test_the_nodes_name_may_come_from_kutti() -> None:
    assert AgentEnvironment.read({"KUTTI_NODE_NAME": "n1"}).node_name == "n1"
    both = {"KUTTI_NODE_NAME": "n1", "MY_NODE_NAME": "n1"}
    assert AgentEnvironment.read(both).node_name == "n1"


def test_two_names_of_the_node_are_refused() -> None:
    with pytest.raises(EnvironmentInvalid) as caught:
        AgentEnvironment.read({"KUTTI_NODE_NAME": "n1", "MY_NODE_NAME": "n2"})
    assert caught.value.problems == ["KUTTI_NODE_NAME 'n1' is not MY_NODE_NAME 'n2'"]
    with pytest.raises(EnvironmentInvalid) as caught:
        AgentEnvironment.read({"KUTTI_NODE_NAME": "N_1"})
    assert "KUTTI_NODE_NAME 'N_1' is no name of a node" in caught.value.problems[0]
