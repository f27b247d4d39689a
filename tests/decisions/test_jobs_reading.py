"""What Jobs and their pods say, and what is made of it."""

from __future__ import annotations

import json

import msgspec
import pytest

from localvolume.cleaning.jobpods import last_words, receipt_of, why_waiting
from localvolume.cleaning.jobs import CleaningJob, is_upstreams, job_name, read_job
from localvolume.kube.workloads import Job, Pod

UID = "7a3c6b5e-0000-4000-8000-1234567890ab"


def job(name: str, *conditions: dict[str, str], **more: object) -> Job:
    labels = {"pv": "local-pv-1", "pvuuid": UID, "localvolume.dev/node": "n"}
    body = {
        "metadata": {
            "name": name,
            "uid": "job-uid",
            "labels": labels,
            "annotations": {"device": "/discovery/disk"},
        }
        | more,
        "status": {"active": 1, "succeeded": 1, "failed": 1, "conditions": list(conditions)},
    }
    return msgspec.json.decode(json.dumps(body), type=Job)


def known(found: CleaningJob | None) -> CleaningJob:
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ((), "unfinished"),
        (({"type": "Complete", "status": "True"},), "succeeded"),
        (({"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"},), "failed"),
        (({"type": "Failed", "status": "False"},), "unfinished"),
        # Its pod may still run: only the final condition says that it does not.
        (({"type": "FailureTarget", "status": "True"},), "unfinished"),
        (({"type": "SuccessCriteriaMet", "status": "True"},), "unfinished"),
        (({"type": "Suspended", "status": "True"},), "unfinished"),
    ],
)
def test_the_state_of_a_job(conditions: tuple[dict[str, str], ...], state: str) -> None:
    found = known(read_job(job(job_name(UID), *conditions)))
    assert found.state == state
    assert found.ours
    assert not found.being_deleted
    assert (found.volume_uid, found.path) == (UID, "/discovery/disk")


def test_why_it_failed() -> None:
    condition = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "m"}
    assert known(read_job(job(job_name(UID), condition))).reason == "DeadlineExceeded: m"


def test_a_job_that_is_being_deleted_is_not_at_its_end_for_that() -> None:
    found = known(read_job(job(job_name(UID), deletionTimestamp="2026-01-01T00:00:00Z")))
    assert found.being_deleted
    assert found.state == "unfinished"


def test_upstreams_job_is_known_and_is_not_ours() -> None:
    found = known(read_job(job("cleanup-local-pv-1")))
    assert not found.ours
    assert (found.volume_name, found.volume_uid) == ("local-pv-1", UID)
    bare = job("cleanup-local-pv-2", labels={"localvolume.dev/node": "n"}, annotations={})
    found = known(read_job(bare))
    assert not found.ours
    assert (found.volume_name, found.volume_uid, found.path) == ("local-pv-2", "", "")


def test_jobs_of_other_purposes_are_none_of_ours() -> None:
    assert read_job(job("backup-local-pv-1")) is None


def test_which_jobs_are_taken_in() -> None:
    upstreams = {"kubernetes.io/hostname": "n", "pv": "local-pv-1", "pvuuid": UID}
    assert is_upstreams(job("cleanup-local-pv-1", labels=upstreams))
    assert not is_upstreams(job("backup", labels=upstreams))
    assert not is_upstreams(job("cleanup-cache", labels={"kubernetes.io/hostname": "n"}))
    labelled = upstreams | {"localvolume.dev/node": "other"}
    assert not is_upstreams(job("cleanup-local-pv-1", labels=labelled))


def pod(state: dict[str, object] | None = None, **status: object) -> Pod:
    body: dict[str, object] = {"metadata": {"name": "p"}, "status": status}
    if state is not None:
        status["containerStatuses"] = [
            {"name": "sidecar", "state": {"terminated": {"exitCode": 9, "message": "not me"}}},
            {"name": "cleaner", "state": state},
        ]
    return msgspec.json.decode(json.dumps(body), type=Pod)


def terminated(code: int, message: str = "", reason: str = "Error") -> Pod:
    return pod({"terminated": {"exitCode": code, "message": message, "reason": reason}})


def test_the_receipt_is_the_last_word_of_what_ended_well() -> None:
    said = receipt_of([terminated(0, '{"summary": "zero: 4 MiB", "bytes": 4}', "Completed")])
    assert said is not None
    assert (said.summary, said.receipt) == ("zero: 4 MiB", {"bytes": 4})


@pytest.mark.parametrize(
    "pods",
    [
        [],
        [pod()],
        [terminated(1, '{"summary": "zero"}')],
        [terminated(0)],
        [terminated(0, "all well")],
        [terminated(0, "[1]")],
        [terminated(0, '{"summary": 5}')],
        [terminated(0, '{"summary": ""}')],
        [pod({"running": {}})],
    ],
)
def test_anything_else_is_no_receipt(pods: list[Pod]) -> None:
    assert receipt_of(pods) is None


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        ([], ""),
        ([terminated(1, "no luck\ntoday\n")], "ended with 1: no luck | today"),
        ([terminated(0, "all well", "Completed")], ""),
        (
            [terminated(0, "all well", "Completed"), terminated(2, "no luck")],
            "ended with 2: no luck",
        ),
        ([terminated(137, "", "OOMKilled")], "ended with 137 (OOMKilled)"),
        ([pod(reason="Evicted", message="low on disk")], "Evicted: low on disk"),
        ([terminated(1, "a\x1b[31m\x00b")], "ended with 1: a [31m b"),
        (
            [pod({"waiting": {"reason": "ErrImagePull", "message": "no such image"}})],
            "ErrImagePull: no such image",
        ),
    ],
)
def test_the_last_words_of_a_failure(pods: list[Pod], words: str) -> None:
    assert last_words(pods) == words


def test_of_long_last_words_the_end_is_kept() -> None:
    words = last_words([terminated(1, "x" * 4000 + " the reason")])
    assert words.endswith("the reason")
    assert len(words) < 700


@pytest.mark.parametrize(
    ("pods", "reason"),
    [
        ([], "NoPod"),
        ([pod({"waiting": {"reason": "ContainerCreating"}})], None),
        ([pod({"waiting": {"reason": "ImagePullBackOff"}})], "ImagePullBackOff"),
        ([pod({"waiting": {"reason": "CreateContainerError"}})], "CreateContainerError"),
        ([pod({"running": {}})], None),
        ([pod(phase="Pending")], None),
        (
            [
                pod(
                    conditions=[
                        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
                    ]
                )
            ],
            "Unschedulable",
        ),
        ([pod(conditions=[{"type": "PodScheduled", "status": "True"}])], None),
    ],
)
def test_why_nothing_runs(pods: list[Pod], reason: str | None) -> None:
    waiting = why_waiting(pods)
    assert (waiting.reason if waiting else None) == reason
