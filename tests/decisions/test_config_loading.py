"""A directory of files becomes one configuration, or every reason why it cannot."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from localvolume.config import loading
from localvolume.config.live import LiveConfiguration
from localvolume.config.loading import ReadFile, read_file
from localvolume.config.model import Configuration, ConfigurationInvalid, Problem
from localvolume.config.schema import describe

FAST = "fast:\n  hostDir: /mnt/fast\n  mountDir: /mnt/fast\n"

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write files of the configuration directory and return its path."""

    def write_files(**files: str) -> str:
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        return str(tmp_path)

    return write_files


def problems_of(directory: str, read: ReadFile = read_file) -> list[Problem]:
    with pytest.raises(ConfigurationInvalid) as caught:
        loading.load(directory, read=read)
    assert str(caught.value)
    return caught.value.problems


def test_no_files_give_the_defaults_and_a_warning(write: Write) -> None:
    configuration = loading.load(write())
    assert configuration == Configuration()
    assert configuration.min_resync_period_seconds == 300
    assert configuration.provisioner_not_ready_node_taint_key == ""
    assert [warning.key for warning in configuration.warnings] == ["storageClassMap"]


def test_every_key(write: Write) -> None:
    configuration = loading.load(
        write(
            storageClassMap=FAST,
            nodeLabelsForPV="- topology.kubernetes.io/zone\n- rack\n",
            labelsForPV="app: local\nexample.com/tier: 1\nempty: ''\n",
            jobTolerations="- {key: a, operator: Equal, value: b, effect: NoSchedule}\n"
            "- {Operator: Exists, effect: NoExecute, tolerationSeconds: 5}\n",
            useAlphaAPI="yes",
            jobResources="limits: {memory: 1Gi}",
            useJobForCleaning="yes",
            useNodeNameOnly="on",
            setPVOwnerRef="true\n",
            removeNodeNotReadyTaint="true",
            provisionerNotReadyNodeTaintKey="sig-storage-local-static-provisioner/agent-not-ready",
            minResyncPeriod="1h30m\n",
        )
    )
    assert list(configuration.storage_classes) == ["fast"]
    assert configuration.node_labels_for_pv == ("topology.kubernetes.io/zone", "rack")
    assert configuration.labels_for_pv == {"app": "local", "example.com/tier": "1", "empty": ""}
    assert configuration.job_tolerations == (
        {"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"},
        {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
    )
    assert configuration.use_alpha_api
    assert configuration.job_resources == {"limits": {"memory": "1Gi"}}
    assert configuration.use_job_for_cleaning
    assert configuration.use_node_name_only
    assert configuration.set_pv_owner_ref
    assert configuration.remove_node_not_ready_taint
    assert configuration.provisioner_not_ready_node_taint_key.endswith("/agent-not-ready")
    assert configuration.min_resync_period_seconds == 5400
    # Upstream takes these words of YAML 1.1 as well; that they are read so is said.
    assert all("as YAML 1.1 has it" in one.reason for one in configuration.warnings)


def test_use_alpha_api_alone(write: Write) -> None:
    assert loading.load(write(useAlphaAPI="true")) == Configuration(use_alpha_api=True)


def test_empty_files_and_nulls_are_defaults(write: Write) -> None:
    configuration = loading.load(
        write(storageClassMap="", labelsForPV="null", useAlphaAPI="~", minResyncPeriod="# none\n")
    )
    assert configuration == Configuration()


def test_keys_match_in_any_case_but_not_twice(write: Write) -> None:
    directory = write(storageclassmap=FAST, USEALPHAAPI="true")
    configuration = loading.load(directory)
    assert configuration.use_alpha_api
    assert "fast" in configuration.storage_classes
    assert problems_of(write(useAlphaAPI="false")) == [
        Problem(
            "USEALPHAAPI, useAlphaAPI", "USEALPHAAPI", "is given in USEALPHAAPI and useAlphaAPI"
        )
    ]


def test_all_problems_are_named_at_once(write: Write, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    problems = problems_of(
        write(
            storageClasMap=FAST,
            hostDir="/mnt",
            labelsForPV="bad key: x\nok: 'not ok'\nlocalvolume.dev/node: me\nlist: [1]\n",
            nodeLabelsForPV="zone",
            useAlphaAPI="'true'",
            setPVOwnerRef="maybe",
            minResyncPeriod="5",
            jobTolerations="- {operator: Equal}\n- {key: a, operatr: Exists}\n",
            storageClassMap="fast: [",
        )
    )
    by_place = {(problem.file, problem.key): problem.reason for problem in problems}
    assert len(by_place) == len(problems)
    expected = {
        ("storageClasMap", "storageClasMap"): "did you mean storageClassMap?",
        ("hostDir", "hostDir"): "belongs inside a class",
        ("labelsForPV", "labelsForPV.bad key"): "no label key",
        ("labelsForPV", "labelsForPV.ok"): "no label value",
        ("labelsForPV", "labelsForPV.localvolume.dev/node"): "our own labels",
        ("labelsForPV", "labelsForPV.list"): "must be text, not a list",
        ("nodeLabelsForPV", "nodeLabelsForPV"): "must be a list",
        ("useAlphaAPI", "useAlphaAPI"): "without quotes",
        ("setPVOwnerRef", "setPVOwnerRef"): "true or false",
        ("minResyncPeriod", "minResyncPeriod"): "with its unit",
        ("jobTolerations", "jobTolerations[0].operator"): "must be Exists",
        ("jobTolerations", "jobTolerations[1].operatr"): "did you mean operator?",
        ("storageClassMap", ""): "not valid YAML in line 2",
        ("binary", ""): "not UTF-8: byte 1",
    }
    assert by_place.keys() == expected.keys()
    for place, reason in expected.items():
        assert reason in by_place[place]


def test_jobs_need_an_image_where_the_environment_is_known(write: Write) -> None:
    directory = write(UseJobForCleaning="true")
    assert loading.load(directory).use_job_for_cleaning
    with pytest.raises(ConfigurationInvalid) as caught:
        loading.load(directory, has_image=False)
    (problem,) = caught.value.problems
    assert (problem.file, problem.key) == ("UseJobForCleaning", "useJobForCleaning")
    assert "JOB_CONTAINER_IMAGE" in problem.reason
    write(UseJobForCleaning="false")
    assert not loading.load(directory, has_image=False).use_job_for_cleaning


@pytest.mark.parametrize("key", [None, "", "''"])
def test_a_taint_to_remove_needs_its_key(write: Write, key: str | None) -> None:
    named = {} if key is None else {"provisionerNotReadyNodeTaintKey": key}
    (problem,) = problems_of(write(removeNodeNotReadyTaint="true", **named))
    assert (problem.file, problem.key) == ("removeNodeNotReadyTaint", "removeNodeNotReadyTaint")
    assert "needs provisionerNotReadyNodeTaintKey" in problem.reason
    good = loading.load(
        write(removeNodeNotReadyTaint="true", provisionerNotReadyNodeTaintKey="a.example/b")
    )
    assert good.remove_node_not_ready_taint


def test_resources_of_jobs(write: Write) -> None:
    default = loading.load(write()).job_resources
    assert default == {
        "requests": {"cpu": "10m", "memory": "64Mi"},
        "limits": {"memory": "256Mi"},
    }
    given = write(jobResources="limits: {cpu: 2, memory: 0.5Gi}\nRequests: {CPU: 1500m}\n")
    assert loading.load(given).job_resources == {
        "limits": {"cpu": "2", "memory": "0.5Gi"},
        "requests": {"cpu": "1500m"},
    }
    assert loading.load(write(jobResources="{}")).job_resources == {}
    assert loading.load(write(jobResources="")).job_resources == default


@pytest.mark.parametrize(
    ("given", "key", "reason"),
    [
        ("{limits: {cpu: much}}", "limits.cpu", "must be a quantity like 100m or 2"),
        ("{limits: {memory: 64MB}}", "limits.memory", "must be a quantity like 64Mi or 1G"),
        ("{limits: {memory: -1Gi}}", "limits.memory", "must be a quantity"),
        ("{requests: {cpu: 0}}", "requests.cpu", "must be at least 1m"),
        ("{requests: {cpu: 1u}}", "requests.cpu", "must be at least 1m"),
        ("{requests: {memory: 100m}}", "requests.memory", "must be at least 1 byte"),
        ("{requests: {memory: 1Gi}, limits: {memory: 1000M}}", "requests.memory", "more than"),
        ("{requests: {cpu: '1e1'}, limits: {cpu: 9}}", "requests.cpu", "more than"),
        ("{limits: {storage: 1Gi}}", "limits.storage", "unknown key"),
        ("{limit: {cpu: 1}}", "limit", "did you mean limits?"),
        ("{limits: 1}", "limits", "must be a mapping"),
        ("{limits: {cpu: '1e1000'}}", "limits.cpu", "must be a quantity"),
    ],
)
def test_resources_that_the_api_server_would_refuse(
    write: Write, given: str, key: str, reason: str
) -> None:
    (problem,) = problems_of(write(jobResources=given))
    assert problem.key == f"jobResources.{key}"
    assert reason in problem.reason


@pytest.mark.parametrize("period", ["0s", "-5m", "999ms"])
def test_a_resync_period_that_would_only_load_the_server_is_refused(
    write: Write, period: str
) -> None:
    (problem,) = problems_of(write(minResyncPeriod=period))
    assert "at least 1s" in problem.reason


def test_a_key_given_twice_within_a_file(write: Write) -> None:
    problems = problems_of(
        write(storageClassMap=FAST + "  hostdir: /mnt/slow\n  mountDir: /mnt/slow\n" + FAST)
    )
    assert {(problem.key, problem.reason) for problem in problems} == {
        ("storageClassMap.fast", "is given twice"),
        ("storageClassMap.fast.mountDir", "is given twice"),
        ("storageClassMap.fast.hostdir", "is given twice: as 'hostDir' and as 'hostdir'"),
    }


def test_directories_and_dotfiles_are_no_keys(write: Write, tmp_path: Path) -> None:
    (tmp_path / "unknown").mkdir()
    (tmp_path / ".useAlphaAPI.swp").write_text("{")
    assert loading.load(write(useAlphaAPI="true")).use_alpha_api


def test_an_editors_backup_is_an_unknown_key(write: Write, tmp_path: Path) -> None:
    (tmp_path / "useAlphaAPI~").write_text("true")
    (problem,) = problems_of(write())
    assert problem == Problem(
        "useAlphaAPI~", "useAlphaAPI~", "unknown key; did you mean useAlphaAPI?"
    )


def test_a_fifo_or_a_dangling_link_is_named_and_blocks_nothing(
    write: Write, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "useAlphaAPI")
    (tmp_path / "labelsForPV").symlink_to(tmp_path / "nowhere")
    reasons = {problem.file: problem.reason for problem in problems_of(write())}
    assert reasons["useAlphaAPI"] == "is not a regular file"
    assert reasons["labelsForPV"].startswith("cannot be read: No such file")


def test_a_file_too_large_is_not_read(write: Write, tmp_path: Path) -> None:
    with open(tmp_path / "labelsForPV", "wb") as file:
        file.truncate(5 * 2**20)
    (problem,) = problems_of(write())
    assert "larger than 4 MiB" in problem.reason


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    (problem,) = problems_of(str(tmp_path / "gone"))
    assert problem.file == str(tmp_path / "gone")
    assert "cannot be read: No such file" in problem.reason


def swap(tmp_path: Path, generation: str, **files: str) -> None:
    """Show another generation of files as the kubelet does for a ConfigMap."""
    data = tmp_path / f"..{generation}"
    data.mkdir()
    for name, text in files.items():
        (data / name).write_text(text)
        if not (tmp_path / name).is_symlink():
            (tmp_path / name).symlink_to(f"..data/{name}")
    (tmp_path / "..data_tmp").symlink_to(data.name)
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")


def test_a_reading_across_the_kubelets_exchange_is_done_again(tmp_path: Path) -> None:
    swap(tmp_path, "1", storageClassMap=FAST, useAlphaAPI="false")
    reads: list[str] = []

    def read_and_swap(path: str) -> str | tuple[str]:
        text = read_file(path)
        if not reads:
            swap(tmp_path, "2", storageClassMap=FAST.replace("fast", "new"), useAlphaAPI="true")
        reads.append(path)
        return text

    configuration = loading.load(str(tmp_path), read=read_and_swap)
    assert list(configuration.storage_classes) == ["new"]
    assert configuration.use_alpha_api
    assert len(reads) == 4


def test_a_configuration_that_never_settles_is_invalid(tmp_path: Path) -> None:
    swap(tmp_path, "0", useAlphaAPI="true")
    generations = iter(range(1, 100))

    def read_and_swap(path: str) -> str | tuple[str]:
        swap(tmp_path, str(next(generations)), useAlphaAPI="true")
        return read_file(path)

    (problem,) = problems_of(str(tmp_path), read_and_swap)
    assert "changes faster" in problem.reason


def test_every_key_is_described_with_its_meaning() -> None:
    documented = {key.name: key for key in describe()}
    assert documented["minResyncPeriod"].default == "5m"
    assert documented["storageClassMap.<class>.firstUse"].default == "require-empty"
    assert len(documented) == 79
    assert all(key.type and key.default and key.meaning for key in documented.values())


def test_an_invalid_edit_keeps_the_last_good_configuration(write: Write) -> None:
    directory = write(storageClassMap=FAST)
    live = LiveConfiguration(directory)
    first = live.current
    assert live.reread().result == "unchanged"
    assert not live.reread().news

    write(storageClassMap="fast: {}")
    invalid = live.reread()
    assert (invalid.result, invalid.news) == ("invalid", True)
    assert invalid.configuration is live.current is first
    assert {problem.key for problem in live.problems} == {
        "storageClassMap.fast.hostDir",
        "storageClassMap.fast.mountDir",
    }
    assert (live.reread().result, live.reread().news) == ("invalid", False)

    write(storageClassMap=FAST)
    repaired = live.reread()
    assert (repaired.result, repaired.news, live.problems) == ("unchanged", True, ())

    write(storageClassMap=FAST.replace("fast", "new"))
    assert live.reread().result == "changed"
    assert list(live.current.storage_classes) == ["new"]
    assert list(first.storage_classes) == ["fast"]


def test_without_any_good_configuration_there_is_nothing_to_keep(write: Write) -> None:
    with pytest.raises(ConfigurationInvalid):
        LiveConfiguration(write(storageClassMap="x"))
