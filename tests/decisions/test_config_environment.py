"""The agent's environment variables and flags, as upstream names them."""

import argparse

import pytest

from localvolume.config.environment import AgentEnvironment, EnvironmentInvalid
from localvolume.config.flags.agent import AGENT_FLAGS
from localvolume.config.flags.listening import ListenAddress, parse_listen_address
from localvolume.config.flags.table import add_flags

KUBELET = "/var/lib/kubelet"


def flags(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_flags(parser, *AGENT_FLAGS)
    return parser.parse_args(arguments)


def test_the_defaults_of_the_environment() -> None:
    environment = AgentEnvironment.read({"MY_NODE_NAME": "node-1.example"})
    assert environment == AgentEnvironment(
        node_name="node-1.example",
        namespace="default",
        job_image=None,
        kubeconfig=None,
        kubelet_directory=KUBELET,
    )


def test_the_whole_environment() -> None:
    environment = AgentEnvironment.read(
        {
            "MY_NODE_NAME": "n",
            "MY_NAMESPACE": "storage",
            "JOB_CONTAINER_IMAGE": "image:v1",
            "KUBECONFIG": "/etc/kubeconfig",
        }
    )
    assert environment.namespace == "storage"
    assert environment.job_image == "image:v1"
    assert environment.kubeconfig == "/etc/kubeconfig"


def test_empty_variables_are_unset() -> None:
    environment = AgentEnvironment.read(
        {"MY_NODE_NAME": "n", "MY_NAMESPACE": "", "JOB_CONTAINER_IMAGE": "", "KUBECONFIG": ""}
    )
    assert environment == AgentEnvironment(node_name="n", kubelet_directory=KUBELET)


@pytest.mark.parametrize(
    ("environ", "reasons"),
    [
        ({}, ["MY_NODE_NAME is not set"]),
        ({"MY_NODE_NAME": ""}, ["MY_NODE_NAME is not set"]),
        ({"MY_NODE_NAME": "Node_1"}, ["MY_NODE_NAME 'Node_1' is no name"]),
        (
            {"MY_NODE_NAME": "n", "MY_POD_NAME": "a b"},
            ["MY_POD_NAME 'a b' is no name of a pod"],
        ),
        (
            {"MY_NAMESPACE": "a.b"},
            ["MY_NODE_NAME is not set", "MY_NAMESPACE 'a.b' is no name of a namespace"],
        ),
    ],
)
def test_all_that_is_wrong_is_named(environ: dict[str, str], reasons: list[str]) -> None:
    with pytest.raises(EnvironmentInvalid) as caught:
        AgentEnvironment.read(environ)
    problems = caught.value.problems
    assert len(problems) == len(reasons)
    for problem, reason in zip(problems, reasons, strict=True):
        assert reason in problem


def test_the_defaults_of_the_flags() -> None:
    args = flags()
    assert args.listen_address == ListenAddress(None, 8080)
    assert args.metrics_path == "/metrics"
    assert args.metrics_certificate is None
    assert args.discovery_period is None
    assert args.config_sync_period is None


def test_all_flags() -> None:
    args = flags(
        "--listen-address=127.0.0.1:0",
        "--metrics-path=/m",
        "--metrics-certificate=/etc/certificate",
        "--discovery-period=1m30s",
        "--config-sync-period",
        "500ms",
    )
    assert args.listen_address == ListenAddress("127.0.0.1", 0)
    assert args.metrics_path == "/m"
    assert args.metrics_certificate == "/etc/certificate"
    assert args.discovery_period == 90
    assert args.config_sync_period == 0.5


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":8080", ListenAddress(None, 8080)),
        ("0.0.0.0:80", ListenAddress("0.0.0.0", 80)),
        ("[::1]:8080", ListenAddress("::1", 8080)),
        ("[::]:65535", ListenAddress("::", 65535)),
        ("localhost:1", ListenAddress("localhost", 1)),
    ],
)
def test_listen_addresses_are_gos(text: str, address: ListenAddress) -> None:
    assert parse_listen_address(text) == address
    assert parse_listen_address(str(address)) == address


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        ("--listen-address=8080", "lacks the colon"),
        ("--listen-address=", "lacks the colon"),
        ("--listen-address=::1:8080", "without brackets"),
        ("--listen-address=:http", "no port"),
        ("--listen-address=:65536", "no port"),
        ("--listen-address=:٨٠", "no port"),
        ("--metrics-path=metrics", "no path"),
        ("--metrics-path=/ready", "readiness"),
        ("--metrics-path=/ready/x", "readiness"),
        ("--metrics-path=/{x}", "no path"),
        ("--metrics-certificate=", "it names no directory"),
        ("--discovery-period=10", "lacks a unit"),
        ("--discovery-period=0s", "shorter than 100ms"),
        ("--config-sync-period=-5s", "shorter than 100ms"),
    ],
)
def test_a_wrong_flag_says_why(argument: str, reason: str) -> None:
    with pytest.raises(argparse.ArgumentError, match=reason):
        flags(argument)


def test_the_manifests_say_whether_the_agent_must_be_confined() -> None:
    def read(**more: str) -> AgentEnvironment:
        return AgentEnvironment.read({"MY_NODE_NAME": "node-1", **more})

    assert not read().confined
    assert not read(MUST_BE_CONFINED="").confined
    assert not read(MUST_BE_CONFINED="false").confined
    assert read(MUST_BE_CONFINED="true").confined
    with pytest.raises(EnvironmentInvalid, match="MUST_BE_CONFINED 'yes' is neither"):
        read(MUST_BE_CONFINED="yes")
