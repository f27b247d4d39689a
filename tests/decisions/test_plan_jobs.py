"""Who cleans: this process or a Job, and never one beside the other."""

from __future__ import annotations

import pytest

from localvolume.cleaning.jobs import CleaningJob, State
from localvolume.kube.objects import PersistentVolume
from localvolume.static.model import (
    Clean,
    CleanFirst,
    Hold,
    Keep,
    LetGo,
    Publish,
    Reclaim,
    StopJob,
    Withdraw,
)
from localvolume.static.plan.plan import EVENT_FAILED_DELETE, EVENT_WAITS
from tests.decisions.support_plan import (
    a,
    block,
    bound_to,
    class_facts,
    filesystem,
    held,
    job_for,
    only_step,
    released_from,
    step_about,
    steps_of,
    volume_of,
)

DISK = filesystem()
RELEASED = released_from(DISK)
DELETED = released_from(DISK, deleting=True)


@pytest.mark.parametrize("use_jobs", [False, True])
@pytest.mark.parametrize("state", [None, "unfinished", "succeeded", "failed"])
@pytest.mark.parametrize("being_deleted", [False, True])
def test_who_began_a_cleaning_ends_it(
    use_jobs: bool, state: State | None, being_deleted: bool
) -> None:
    """Whichever way the setting is turned meanwhile; a Job that failed has begun nothing."""
    jobs = [] if state is None else [job_for(DELETED, state, being_deleted=being_deleted)]
    action = a(Clean, only_step([DISK], [DELETED], jobs=jobs, use_jobs=use_jobs))
    assert action.by_job == (use_jobs or state in ("unfinished", "succeeded"))


@pytest.mark.parametrize("use_jobs", [False, True])
@pytest.mark.parametrize("volume", [RELEASED, DELETED], ids=["released", "deleted"])
@pytest.mark.parametrize(
    "job",
    [
        job_for(DELETED, upstreams=True),
        job_for(DELETED, uid="an-older-object"),
        job_for(volume_of(block("x")), path=DISK.path),
        job_for(volume_of(block("x")), path=DISK.host_path),
        job_for(volume_of(block("x")), path=DISK.path, being_deleted=True),
    ],
    ids=["upstreams", "older", "container-path", "host-path", "terminating"],
)
def test_another_job_is_waited_for(
    volume: PersistentVolume, job: CleaningJob, use_jobs: bool
) -> None:
    hold = held(only_step([DISK], [volume], jobs=[job], use_jobs=use_jobs), "job")
    assert job.name in hold.reason
    assert hold.event == EVENT_WAITS


@pytest.mark.parametrize(
    "volume",
    [
        released_from(DISK, policy="Retain", deleting=True),
        bound_to(DISK, deleting=True),
    ],
    ids=["retained", "bound again"],
)
def test_a_job_that_is_not_wanted_any_more_is_stopped(volume: PersistentVolume) -> None:
    """And the object is not let go before: the Job would be nobody's, and still destroy."""
    job = job_for(volume)
    hold, stop = steps_of([DISK], [volume], jobs=[job])
    assert held(hold, "job").event == EVENT_WAITS
    assert a(StopJob, stop).job == job
    # Once it goes it is waited for.
    held(only_step([DISK], [volume], jobs=[job_for(volume, being_deleted=True)]), "job")


def test_an_object_with_another_policy_is_let_go_once_no_job_works() -> None:
    volume = released_from(DISK, policy="Retain", deleting=True)
    for jobs in ([], [job_for(volume, "failed")], [job_for(volume, "succeeded")]):
        a(LetGo, only_step([DISK], [volume], jobs=jobs))


@pytest.mark.parametrize("state", ["succeeded", "failed"])
@pytest.mark.parametrize("use_jobs", [False, True])
def test_a_finished_job_of_others_proves_nothing(state: State, use_jobs: bool) -> None:
    """Upstream keeps a success under the volume's name and lets the next release skip cleaning."""
    for job in (
        job_for(DELETED, state, upstreams=True, path=DISK.path),
        job_for(DELETED, state, uid="an-older-object", path=DISK.path),
    ):
        action = a(Clean, only_step([DISK], [DELETED], jobs=[job], use_jobs=use_jobs))
        assert action.by_job == use_jobs
        a(Reclaim, only_step([DISK], [RELEASED], jobs=[job], use_jobs=use_jobs))


@pytest.mark.parametrize("path", [DISK.path, DISK.host_path])
@pytest.mark.parametrize("content", ["empty", "holds", "unfinished"])
@pytest.mark.parametrize("first_use", ["trust", "clean"])
def test_an_entry_a_job_works_on_is_neither_offered_nor_cleaned(
    path: str, content: str, first_use: str
) -> None:
    entry = filesystem(content=content)  # type: ignore[arg-type]
    classes = [class_facts(first_use=first_use)]  # type: ignore[arg-type]
    job = job_for(volume_of(block("x")), path=path)
    asked = {volume_of(entry).metadata.name: None}
    held(only_step([entry], classes=classes, asked=asked, jobs=[job]), "job")
    done = job_for(volume_of(block("x")), "succeeded", path=path)
    action = only_step([entry], classes=classes, asked=asked, jobs=[done])
    if content == "empty" or (content, first_use) == ("holds", "trust"):
        a(Publish, action)
    elif first_use == "clean":
        a(CleanFirst, action)


def test_a_job_on_the_same_disk_by_another_path() -> None:
    first = block("a", serial="S", device="8:0")
    second = block("b", "slow", host_dir="/mnt/slow", serial="S", device="8:0")
    volume = released_from(first)
    job = job_for(volume_of(block("x")), path=second.path)
    classes = [class_facts(), class_facts("slow", host_dir="/mnt/slow")]
    actions = steps_of([first, second], [volume], classes=classes, jobs=[job])
    held(step_about(actions, volume), "job")


@pytest.mark.parametrize("upstreams", [False, True])
def test_what_is_offered_beside_a_job_is_withdrawn(upstreams: bool) -> None:
    """Upstream publishes a disk again while its Job still wipes it."""
    volume = volume_of(DISK)
    job = job_for(volume, uid="an-older-object", path=DISK.path, upstreams=upstreams)
    a(Withdraw, only_step([DISK], [volume], jobs=[job]))
    done = job_for(volume, "succeeded", uid="an-older-object", path=DISK.path)
    a(Keep, only_step([DISK], [volume], jobs=[done]))


def test_what_a_claim_holds_beside_a_job_is_told() -> None:
    volume = bound_to(DISK)
    job = job_for(volume, uid="an-older-object", path=DISK.path)
    hold = held(only_step([DISK], [volume], jobs=[job]), "job")
    assert hold.event == EVENT_WAITS


@pytest.mark.parametrize("volume", [RELEASED, DELETED], ids=["released", "deleted"])
def test_nothing_is_cleaned_while_jobs_that_are_wanted_cannot_be_seen(
    volume: PersistentVolume,
) -> None:
    hold = held(only_step([DISK], [volume], use_jobs=True, jobs_unknown="forbidden"), "not-cleaned")
    assert "forbidden" in hold.reason
    assert hold.event == EVENT_FAILED_DELETE


def test_nothing_is_offered_while_jobs_that_are_wanted_cannot_be_seen() -> None:
    """One may be at work on it, and only the API server knows."""
    held(only_step([DISK], use_jobs=True, jobs_unknown="forbidden"), "unknown")
    # What is offered already stays so: that is no reason to think ill of it.
    volume = volume_of(DISK)
    a(Keep, only_step([DISK], [volume], use_jobs=True, jobs_unknown="forbidden"))


def test_an_unmounted_volume_is_held_whatever_jobs_say() -> None:
    action = only_step([], [DELETED], jobs=[job_for(DELETED, "succeeded")])
    assert isinstance(action, Hold)
    assert action.code == "not-cleaned"
