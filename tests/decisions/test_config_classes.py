"""The keys of a class: what is taken, what is refused, and in which words."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from localvolume.cleaning.method import choose_method
from localvolume.config import loading
from localvolume.config.model import ClassConfig, Configuration, ConfigurationInvalid


def build(classes: dict[str, Any] | str, *, host_checks: bool = False) -> Configuration:
    text = classes if isinstance(classes, str) else yaml.safe_dump(classes, sort_keys=False)
    source = loading.Source("storageClassMap", "storageClassMap", text)
    return loading.build([source], host_checks=host_checks)


def one(**keys: Any) -> ClassConfig:
    return build({"c": {"hostDir": "/mnt/c", "mountDir": "/mnt/c", **keys}}).storage_classes["c"]


def refused(classes: dict[str, Any] | str, *, host_checks: bool = False) -> dict[str, str]:
    """The reasons by key, without the leading `storageClassMap.`."""
    with pytest.raises(ConfigurationInvalid) as caught:
        build(classes, host_checks=host_checks)
    problems = caught.value.problems
    assert all(problem.file == "storageClassMap" for problem in problems)
    reasons = {problem.key.removeprefix("storageClassMap."): problem.reason for problem in problems}
    assert len(reasons) == len(problems), problems
    return reasons


def refused_one(*, host_checks: bool = False, **keys: Any) -> dict[str, str]:
    reasons = refused(
        {"c": {"hostDir": "/mnt/c", "mountDir": "/mnt/c", **keys}}, host_checks=host_checks
    )
    return {key.removeprefix("c."): reason for key, reason in reasons.items()}


def warnings_of(**keys: Any) -> dict[str, str]:
    configuration = build({"c": {"hostDir": "/mnt/c", "mountDir": "/mnt/c", **keys}})
    prefix = "storageClassMap.c."
    return {warn.key.removeprefix(prefix): warn.reason for warn in configuration.warnings}


def test_a_class_gets_defaults() -> None:
    assert one() == ClassConfig(
        name="c",
        host_dir="/mnt/c",
        mount_dir="/mnt/c",
        block_cleaner_command=None,
        volume_mode="Filesystem",
        access_mode="ReadWriteOnce",
        fs_type="",
        name_pattern="*",
        selector=(),
        first_use="require-empty",
        cleaning_concurrency=1,
        cleaning_timeout_seconds=None,
    )


def test_a_full_class() -> None:
    config = build(
        """
        local-storage:
          hostDir: /mnt/disks/
          mountDir: //mnt/./local
          blockCleanerCommand: [/scripts/shred.sh, 2]
          volumeMode: Block
          AccessMode: ReadWriteOncePod
          fstype: xfs
          namePattern: "nvme*,sd[a-z]"
          selector:
          - matchexpressions:
            - {key: kubernetes.io/hostname, operator: In, values: [a, b]}
          firstUse: clean
          cleaningConcurrency: 4
          cleaningTimeout: 6h
        """
    ).storage_classes["local-storage"]
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["a", "b"]}
    assert config == ClassConfig(
        name="local-storage",
        host_dir="/mnt/disks",
        mount_dir="/mnt/local",
        block_cleaner_command=("/scripts/shred.sh", "2"),
        volume_mode="Block",
        access_mode="ReadWriteOncePod",
        fs_type="xfs",
        name_pattern="nvme*,sd[a-z]",
        selector=({"matchExpressions": [expression]},),
        first_use="clean",
        cleaning_concurrency=4,
        cleaning_timeout_seconds=21600,
    )


def test_empty_values_mean_the_default_as_upstream() -> None:
    assert one(volumeMode="", namePattern="", fsType="", selector=None, accessMode=None) == one()


@pytest.mark.parametrize(
    ("keys", "key", "reason"),
    [
        ({"volumeMode": "block"}, "volumeMode", "unsupported volume mode block"),
        ({"accessMode": "RWO"}, "accessMode", "must be ReadWriteOnce, "),
        ({"accessMode": "ReadWriteones"}, "accessMode", "did you mean ReadWriteOnce?"),
        ({"fsType": "ext4 -F"}, "fsType", "one word"),
        ({"fsType": ["ext4"]}, "fsType", "must be text, not a list"),
        ({"namePattern": "a[,b"}, "namePattern", "'a[' is no pattern"),
        ({"firstUse": "empty"}, "firstUse", "require-empty, trust or clean"),
        ({"cleaningConcurrency": 0}, "cleaningConcurrency", "from 1 to 64, not '0'"),
        ({"cleaningConcurrency": 1.5}, "cleaningConcurrency", "whole number"),
        ({"cleaningConcurrency": "2"}, "cleaningConcurrency", "whole number"),
        ({"cleaningTimeout": 30}, "cleaningTimeout", "with its unit"),
        ({"cleaningTimeout": "0s"}, "cleaningTimeout", "at least 1s"),
        ({"cleaningTimeout": "1 hour"}, "cleaningTimeout", "unknown unit"),
        ({"hostdirs": "/x"}, "hostdirs", "did you mean hostDir?"),
        ({"colour": "blue"}, "colour", "unknown key"),
        ({"mountDir": None}, "mountDir", "is missing"),
        ({"mountDir": ""}, "mountDir", "absolute"),
        ({"hostDir": "mnt/c"}, "hostDir", "must be an absolute path, not 'mnt/c'"),
        ({"hostDir": "/"}, "hostDir", "root directory"),
        ({"hostDir": "//./"}, "hostDir", "root directory"),
        ({"hostDir": "/mnt/../c"}, "hostDir", 'must not hold ".."'),
        ({"hostDir": "/mnt/\0"}, "hostDir", "NUL"),
        ({"hostDir": {"path": "/x"}}, "hostDir", "not a mapping"),
    ],
)
def test_what_is_wrong_is_named(keys: dict[str, Any], key: str, reason: str) -> None:
    reasons = refused_one(**keys)
    assert list(reasons) == [key]
    assert reason in reasons[key]


def test_a_class_must_be_a_mapping_with_directories_and_a_name() -> None:
    assert refused("fast: /mnt/fast")["fast"] == "must be a mapping, not a single value"
    assert refused("Fast_1: {hostDir: /a, mountDir: /a}")["Fast_1"].startswith(
        "'Fast_1' is no name of a StorageClass"
    )
    assert refused("fast: {}") == {
        "fast.hostDir": "is missing: a class needs hostDir and mountDir",
        "fast.mountDir": "is missing: a class needs hostDir and mountDir",
    }
    assert set(refused("fast:")) == {"fast.hostDir", "fast.mountDir"}


# Directories beside each other


def pair(one_dir: tuple[str, str], two_dir: tuple[str, str], **second: str) -> dict[str, Any]:
    return {
        "one": {"hostDir": one_dir[0], "mountDir": one_dir[1]},
        "two": {"hostDir": two_dir[0], "mountDir": two_dir[1], **second},
    }


@pytest.mark.parametrize(
    ("first", "second", "key", "reason"),
    [
        (("/a", "/x"), ("/a/b", "/y"), "two.hostDir", "/a/b lies inside /a, the hostDir of class"),
        (("/a/b/c", "/x"), ("/a", "/y"), "two.hostDir", "/a contains /a/b/c"),
        (("/a", "/x"), ("/b", "/x/y/"), "two.mountDir", "/x/y lies inside /x"),
        (("/a", "/x"), ("/b", "/x"), "two.mountDir", "whose hostDir is another (/a)"),
    ],
)
def test_one_directory_in_another_is_refused(
    first: tuple[str, str], second: tuple[str, str], key: str, reason: str
) -> None:
    reasons = refused(pair(first, second))
    assert list(reasons) == [key]
    assert reason in reasons[key]


def test_a_common_beginning_is_no_overlap() -> None:
    assert build(pair(("/mnt/ssd", "/mnt/ssd"), ("/mnt/ssd-2", "/mnt/ssd-2"))).warnings == ()


def test_two_classes_may_share_a_directory_with_different_patterns() -> None:
    classes = pair(("/mnt", "/mnt"), ("/mnt", "/mnt"), namePattern="sd*,hd*")
    classes["one"]["namePattern"] = "nvme*"
    assert build(classes).warnings == ()


def test_sharing_a_directory_with_patterns_that_meet_is_warned_of() -> None:
    (warning,) = build(pair(("/mnt", "/mnt"), ("/mnt", "/mnt"), namePattern="sd*")).warnings
    assert warning.key == "storageClassMap.two.namePattern"
    assert "'sd*' and '*' of class one match common names" in warning.reason


def test_overlaps_show_beside_other_problems() -> None:
    reasons = refused(pair(("/a", "/x"), ("/a/b", "/y"), namePattern="[", volumeMode="?"))
    assert set(reasons) == {"two.hostDir", "two.namePattern", "two.volumeMode"}


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [("a, b", "' b' is matched with its spaces"), ("a,,b", "empty pattern"), ("a/*", "no entry")],
)
def test_patterns_that_surprise_are_warned_of(pattern: str, reason: str) -> None:
    assert reason in warnings_of(namePattern=pattern)["namePattern"]


# Cleaners


GOOD_COMMANDS = [
    ["/scripts/quick_reset.sh"],
    ["/scripts/dd_zero.sh"],
    ["/scripts/dd_zero.sh", "2"],
    ["/scripts/shred.sh", "3"],
    ["/scripts/shred.sh", "0"],
    ["/scripts/shred.sh", "00"],
    ["/scripts/blkdiscard.sh"],
    ["localvolume", "zero"],
    ["localvolume", "zero", "2"],
    ["localvolume", "overwrite", "7"],
    ["localvolume", "discard"],
    ["localvolume", "reset-signatures"],
]


@pytest.mark.parametrize("command", GOOD_COMMANDS, ids=" ".join)
def test_the_built_in_cleaners_need_no_file_and_are_known_to_cleaning(command: list[str]) -> None:
    classes = {"c": {"hostDir": "/c", "mountDir": "/c", "blockCleanerCommand": command}}
    config = build(classes, host_checks=True).storage_classes["c"]
    assert config.block_cleaner_command == tuple(command)
    method = choose_method(tuple(command), volume_kind="block", volume_mode="Block")
    assert method.name != "command"


@pytest.mark.parametrize(
    ("command", "key", "reason"),
    [
        ([], "", "must not be empty"),
        (["/scripts/dd_zero.sh", "0"], "[1]", "1 to 100"),
        (["/scripts/shred.sh", "two"], "[1]", "must be a number of passes"),
        (["/scripts/shred.sh", "101"], "[1]", "0 to 100"),
        (["localvolume"], "", "no method of ours"),
        (["localvolume", "zeros"], "", "did you mean zero?"),
        (["localvolume", "discard", "1"], "", "too many words"),
        (["localvolume", "zero", "0"], "[2]", "1 to 100"),
        (["/nowhere/clean"], "[0]", "missing executable: there is no '/nowhere/clean'"),
        (["no-such-command-here"], "[0]", "missing executable"),
        (["/scripts/shredd.sh"], "[0]", "did you mean /scripts/shred.sh?"),
        (["./clean"], "[0]", "absolute path"),
        (["/etc/passwd"], "[0]", "is not executable"),
        (["/etc"], "[0]", "is not executable"),
        ([""], "[0]", "missing executable"),
        (["sh", "a\0b"], "[1]", "NUL"),
        (["sh", ["-c"]], "[1]", "must be text, not a list"),
        ("/scripts/shred.sh", "", "must be a list"),
    ],
)
def test_a_cleaner_that_cannot_run_is_refused(command: Any, key: str, reason: str) -> None:
    reasons = refused_one(blockCleanerCommand=command, host_checks=True)
    assert list(reasons) == [f"blockCleanerCommand{key}"]
    assert reason in reasons[f"blockCleanerCommand{key}"]


def test_an_executable_of_the_administrator_is_taken(tmp_path: Path) -> None:
    script = tmp_path / "clean"
    script.write_text("#!/bin/sh\n")
    assert "is not executable" in str(
        refused_one(blockCleanerCommand=[str(script)], host_checks=True)
    )
    script.chmod(0o755)
    for command in ([str(script), "a", 1], ["sh", "-c", "true"]):
        classes = {"c": {"hostDir": "/c", "mountDir": "/c", "blockCleanerCommand": command}}
        build(classes, host_checks=True)


def test_executables_are_not_looked_for_where_they_may_be_elsewhere() -> None:
    assert one(blockCleanerCommand=["/nowhere/clean"]).block_cleaner_command == ("/nowhere/clean",)


def test_cleaning_that_leaves_data_is_warned_of() -> None:
    for command in (["/scripts/quick_reset.sh"], ["localvolume", "reset-signatures"]):
        reason = warnings_of(blockCleanerCommand=command)["blockCleanerCommand"]
        assert "stays readable" in reason
    assert warnings_of(blockCleanerCommand=["/scripts/blkdiscard.sh"]) == {}


def test_words_that_upstreams_scripts_do_not_heed_are_warned_of() -> None:
    command = ["/scripts/blkdiscard.sh", "-v"]
    assert "heeds only 1" in warnings_of(blockCleanerCommand=command)["blockCleanerCommand"]
    command = ["/scripts/shred.sh", "1", "2"]
    assert "heeds only 2" in warnings_of(blockCleanerCommand=command)["blockCleanerCommand"]


def test_the_script_for_directories_cleans_no_block_device() -> None:
    command = ["/scripts/fsclean.sh"]
    reasons = refused_one(blockCleanerCommand=command, volumeMode="Block")
    assert "cannot clean a block device" in reasons["blockCleanerCommand"]
    assert "cannot clean" in warnings_of(blockCleanerCommand=command)["blockCleanerCommand"]


# Selectors and tolerations


@pytest.mark.parametrize(
    "requirement",
    [
        {"key": "a", "operator": "NotIn", "values": ["x"]},
        {"key": "a", "operator": "Exists"},
        {"key": "a", "operator": "DoesNotExist", "values": []},
        {"key": "example.com/a", "operator": "Gt", "values": ["5"]},
        {"key": "a", "operator": "Lt", "values": ["-5"]},
    ],
)
def test_selector_requirements_are_kept_as_the_api_writes_them(requirement: dict[str, Any]) -> None:
    assert one(selector=[{"matchExpressions": [requirement]}]).selector == (
        {"matchExpressions": [requirement]},
    )


def test_selector_fields() -> None:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
    assert one(selector=[term]).selector == (term,)


@pytest.mark.parametrize(
    ("term", "key", "reason"),
    [
        ({"matchLabels": {"a": "b"}}, "matchLabels", "unknown key"),
        ({"matchExpressions": {"key": "a"}}, "matchExpressions", "must be a list"),
        ({"matchExpressions": [{"operator": "Exists"}]}, "matchExpressions[0].key", "is missing"),
        ({"matchExpressions": [{"key": "a"}]}, "matchExpressions[0].operator", "is missing"),
        (
            {"matchExpressions": [{"key": "a b", "operator": "Exists"}]},
            "matchExpressions[0].key",
            "no label key",
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "in", "values": ["b"]}]},
            "matchExpressions[0].operator",
            "did you mean In?",
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "In"}]},
            "matchExpressions[0].values",
            "at least one value",
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]},
            "matchExpressions[0].values",
            "must be empty",
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["b"]}]},
            "matchExpressions[0].values",
            "exactly one whole number",
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b c"]}]},
            "matchExpressions[0].values[0]",
            "no label value",
        ),
        (
            {"matchFields": [{"key": "spec.x", "operator": "In", "values": ["b"]}]},
            "matchFields[0].key",
            "must be metadata.name",
        ),
        (
            {"matchFields": [{"key": "metadata.name", "operator": "Exists"}]},
            "matchFields[0].operator",
            "must be In or NotIn",
        ),
        (
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]},
            "matchFields[0].values",
            "exactly one value",
        ),
    ],
)
def test_selectors_the_api_server_would_refuse(term: Any, key: str, reason: str) -> None:
    reasons = refused_one(selector=[{}, term])
    assert list(reasons) == [f"selector[1].{key}"]
    assert reason in reasons[f"selector[1].{key}"]


def test_an_empty_term_is_warned_of() -> None:
    assert "matches no node" in warnings_of(selector=[{}])["selector[0]"]


@pytest.mark.parametrize(
    ("toleration", "key", "reason"),
    [
        ({"key": "a", "operator": "In"}, "operator", "must be Exists"),
        ({"key": "a", "operator": "Exists", "value": "b"}, "value", "must be empty"),
        ({"key": "a", "value": "b c"}, "value", "no taint value"),
        ({"key": "a/b/c"}, "key", "no taint key"),
        ({"key": "a", "effect": "Never"}, "effect", "NoSchedule"),
        ({"key": "a", "tolerationSeconds": 5}, "effect", "must be NoExecute"),
        (
            {"key": "a", "effect": "NoExecute", "tolerationSeconds": "5"},
            "tolerationSeconds",
            "0 to",
        ),
    ],
)
def test_tolerations_the_api_server_would_refuse(
    toleration: dict[str, Any], key: str, reason: str
) -> None:
    source = loading.Source("jobTolerations", "jobTolerations", yaml.safe_dump([toleration]))
    with pytest.raises(ConfigurationInvalid) as caught:
        loading.build([source])
    (problem,) = caught.value.problems
    assert problem.key == f"jobTolerations[0].{key}"
    assert reason in problem.reason
