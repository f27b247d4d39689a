"""`localvolume status`: states that add up, problems with what to do, and nothing said unknown as
nothing."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from localvolume.cli.seeing.reading import SELECTOR
from localvolume.cli.seeing.said import OURS_ALONE
from localvolume.cli.seeing.status.overview import overview
from localvolume.cli.seeing.status.states import ENDS, STATES
from localvolume.cli.seeing.status.tables import print_status
from localvolume.cli.seeing.words import age, size
from tests.decisions.support_seeing import (
    DYNAMIC,
    NOW,
    agent,
    ago,
    claim,
    controller,
    event,
    facts,
    job,
    klass,
    node,
    room,
    volume,
)

HEALTH = {"localvolume.dev/health": "ReadOnly: it is"}


def everything() -> list[Any]:
    """One volume in each state."""
    return [
        klass(),
        volume("available"),
        volume("bound", phase="Bound", claim="a"),
        volume("released", phase="Released", claim="b", policy="Retain"),
        volume("cleaning", phase="Released", claim="c", deleting=True),
        volume("held", phase="Released", claim="d"),
        event("held", "VolumeFailedDelete", "not a mount point"),
        volume("vanished"),
        event("vanished", "VolumeVanished", "it is not there"),
        volume("lost", node_name="gone"),
        volume("unhealthy", phase="Bound", claim="e", annotations=HEALTH),
        volume("failed", phase="Failed", claim="f"),
        volume("pending", phase=""),
        volume("not-ours", labels={}, provisioner="csi.example.org"),
        job("cleaning"),
        event("cleaning", "VolumeDelete", "cleaning with zero", type_="Normal"),
    ]


def test_each_volume_is_in_exactly_one_state() -> None:
    found = overview(facts(*everything()))
    assert {one["name"]: one["state"] for one in found["volumes"]} == {s: s for s in STATES}
    assert found["summary"]["volumes"] == dict.fromkeys(STATES, 1)
    assert found["summary"]["volumeCount"] == len(STATES)
    assert found["summary"]["capacityBytes"] == len(STATES) * 10 * 2**30


def test_the_worst_that_is_true_counts() -> None:
    lost = volume("x", node_name="gone", annotations=HEALTH, phase="Bound", claim="a")
    (one,) = overview(facts(lost))["volumes"]
    assert one["state"] == "lost"


def test_a_bound_volume_that_is_being_deleted_is_bound() -> None:
    (one,) = overview(facts(volume(phase="Bound", claim="a", deleting=True)))["volumes"]
    assert (one["state"], one["deleting"]) == ("bound", ago(60))


def test_per_node_and_class() -> None:
    found = overview(facts(*everything(), room("made", "7Gi"), klass("made", DYNAMIC)))
    by_name = {one["name"]: one for one in found["nodes"]}
    assert list(by_name) == ["gone", "n1"]
    assert by_name["gone"]["exists"] is False
    assert by_name["n1"]["exists"] is True
    assert by_name["n1"]["agent"]["state"] == "ready"
    (fast,) = by_name["n1"]["classes"]
    assert fast["name"] == "fast"
    assert fast["prepared"] is True
    assert sum(fast["volumes"].values()) == len(STATES) - 1
    assert fast["availableBytes"] == 10 * 2**30
    assert by_name["n1"]["rooms"] == [
        {"class": "made", "roomBytes": 7 * 2**30, "largestBytes": 7 * 2**30}
    ]


def of_pool(name: str, pool: str, size: str) -> Any:
    return volume(name, size=size, annotations={"localvolume.dev/pool": f"{pool}/id"})


def test_a_node_says_what_its_pools_have_promised_and_leaves_unknown_what_nobody_told() -> None:
    things = (of_pool("a", "fast", "1Gi"), of_pool("b", "fast", "2Gi"), of_pool("c", "slow", "?"))
    (found,) = overview(facts(klass(), node(), *things, volume("prepared")))["nodes"]
    assert found["pools"] == [
        {
            "name": "fast",
            "volumeCount": 2,
            "promisedBytes": 3 * 2**30,
            "totalBytes": None,
            "usedBytes": None,
        },
        {
            "name": "slow",
            "volumeCount": 1,
            "promisedBytes": None,
            "totalBytes": None,
            "usedBytes": None,
        },
    ]
    assert found["disks"] is None
    assert found["lastDiskEvent"] is None


@pytest.mark.parametrize(
    ("told", "totals"),
    [
        (None, {"fast": None}),
        ('{"fast":5368709120,"empty":1048576}', {"fast": 5 * 2**30, "empty": 2**20}),
        ('{"fast":"5Gi","slow":-1,"other":true}', {"fast": None}),
        ("no JSON", {"fast": None}),
        ('["fast"]', {"fast": None}),
        ("[" * 100_000, {"fast": None}),
    ],
)
def test_a_pool_is_as_large_as_its_agent_says_and_else_of_unknown_size(
    told: str | None, totals: dict[str, int | None]
) -> None:
    notes = {} if told is None else {"localvolume.dev/pools": told}
    things = (of_pool("a", "fast", "1Gi"), room("made", "4Gi", annotations=notes))
    (found,) = overview(facts(klass(), node(), *things))["nodes"]
    assert {one["name"]: one["totalBytes"] for one in found["pools"]} == totals
    assert sum(one["volumeCount"] for one in found["pools"]) == 1


def test_a_pool_is_as_full_as_the_fullest_note_of_its_agent_says() -> None:
    """One of its objects says so, and an older one may say it still."""

    def used(*notes: str) -> int | None:
        rooms = [
            room(f"c{number}", "4Gi", annotations={"localvolume.dev/pools": note})
            for number, note in enumerate(notes)
        ]
        (found,) = overview(facts(klass(), node(), *rooms))["nodes"]
        (fast,) = found["pools"]
        assert fast["totalBytes"] == 100
        known: int | None = fast["usedBytes"]
        return known

    first, second = '{"fast":{"totalBytes":100,"usedBytes":7}}', '{"fast":{"totalBytes":100}}'
    fuller = '{"fast":{"totalBytes":100,"usedBytes":9}}'
    assert used(first, second) == used(second, first) == 7
    assert used(first, fuller) == used(fuller, first) == 9
    assert used(second) is used('{"fast":100}') is None
    # If notes disagree on its size, it is still no fuller than it is large.
    assert used('{"fast":{"totalBytes":300,"usedBytes":200}}', second) is None


def test_a_node_says_what_its_agent_last_told_of_raw_disks() -> None:
    told = event("n1", "DisksNotApproved", "sdb, sdc", kind="Node", type_="Normal", age=90)
    other = event("n1", "CapacityNotPublished", "no", kind="Node", age=5)
    (found,) = overview(facts(node(), agent(), told, other))["nodes"]
    assert found["lastDiskEvent"]["reason"] == "DisksNotApproved"
    assert found["lastDiskEvent"]["message"] == "sdb, sdc"


def test_pools_are_unknown_if_volumes_could_not_be_read() -> None:
    known = facts(node(), agent(), without={"persistentvolumes": "not allowed"})
    (found,) = overview(known)["nodes"]
    assert found["pools"] is None


def test_problems_say_what_to_do_worst_first() -> None:
    known = facts(
        *everything(),
        claim("waits", age=3600),
        event("n1", "PoolWarning", "pool fast: 91 % full", kind="Node", uid="n1", type_="Warning"),
    )
    found = overview(known)["problems"]
    assert {one["about"]: one["severity"] for one in found} == {
        "pv/held": "error",
        "pv/vanished": "error",
        "pv/lost": "error",
        "pv/unhealthy": "error",
        "pv/failed": "error",
        "node/n1": "warning",
        "pvc/waits -n default": "warning",
    }
    assert [one["severity"] for one in found] == ["error"] * 5 + ["warning"] * 2
    by_about = {one["about"]: one for one in found}
    assert "localvolume why pv/held" in by_about["pv/held"]["do"]
    assert by_about["pv/held"]["reason"] == "held: not a mount point"
    assert "91 % full" in by_about["node/n1"]["reason"]
    assert "localvolume why pvc/waits -n default" in by_about["pvc/waits -n default"]["do"]


@pytest.mark.parametrize(
    ("things", "expected"),
    [
        ([claim(age=10)], []),
        ([claim(age=120)], ["pvc/data -n default"]),
        # Nobody must do anything about a claim that waits for its first pod.
        (
            [
                claim(age=7200),
                event(
                    "data",
                    "WaitForFirstConsumer",
                    kind="PersistentVolumeClaim",
                    by="kcm",
                    type_="Normal",
                ),
            ],
            [],
        ),
        ([claim(cls="cloud", age=7200), klass("cloud", "csi.example.org")], []),
        ([claim(phase="Bound", age=7200)], []),
    ],
)
def test_which_waiting_claims_are_a_problem(things: list[Any], expected: list[str]) -> None:
    found = overview(facts(klass(), *things))
    assert [one["about"] for one in found["problems"]] == expected


def grows(size: str, *events: tuple[str, float]) -> list[str]:
    """What is a problem of a bound claim that asks for that size, and of which that was told."""
    about: dict[str, Any] = {"kind": "PersistentVolumeClaim"}
    known = facts(
        klass(),
        volume(phase="Bound", claim="data"),
        claim(phase="Bound", volumeName="pv-1", has="10Gi", size=size),
        *(event("data", reason, "no room", age=age, **about) for reason, age in events),
    )
    return [f"{one['about']}: {one['reason']}" for one in overview(known)["problems"]]


def test_a_growth_that_fails_is_a_problem() -> None:
    failed = ("VolumeResizeFailed", 60.0)
    assert grows("20Gi", failed) == ["pvc/data -n default: it does not grow: no room"]
    # It is tried again just now, and has not come to its end.
    assert len(grows("20Gi", failed, ("Resizing", 1.0))) == 1


def test_it_stays_one_once_its_events_are_gone() -> None:
    failed = {"type": "ControllerResizeError", "status": "True", "message": "no room"}
    known = facts(
        klass(),
        volume(phase="Bound", claim="data"),
        claim(
            phase="Bound",
            volumeName="pv-1",
            has="10Gi",
            size="20Gi",
            status={"conditions": [failed]},
        ),
    )
    (found,) = overview(known)["problems"]
    assert found["reason"] == "it does not grow: no room"


def test_a_growth_that_has_not_failed_is_none() -> None:
    failed = ("VolumeResizeFailed", 60.0)
    assert grows("20Gi") == grows("20Gi", ("Resizing", 1.0)) == []
    assert grows("20Gi", failed, ("VolumeResizeSuccessful", 1.0)) == []
    assert grows("10Gi", failed) == []


@pytest.mark.parametrize(
    ("pods", "state", "why"),
    [
        ([agent()], "ready", ""),
        ([agent(ready=False, waiting="CrashLoopBackOff")], "not ready", "CrashLoopBackOff"),
        ([agent("n2"), node(), node("n2")], "missing", "no pod"),
        ([agent(going=True)], "not ready", "its pod is being deleted"),
    ],
)
def test_whether_the_agent_is_there(pods: list[Any], state: str, why: str) -> None:
    found = overview(facts(volume(), *pods), "n1")
    (one,) = found["nodes"]
    assert one["agent"]["state"] == state
    assert why in one["agent"]["reason"]
    assert any("its agent is" in p["reason"] for p in found["problems"]) == (state != "ready")


@pytest.mark.parametrize(
    ("pods", "do"),
    [
        ([agent(ready=False)], "kubectl describe pod -n lvp lvp-n1"),
        ([agent("n2")], "kubectl describe daemonsets -n lvp"),
        (
            [agent("n2"), agent("n3", namespace="other")],
            "kubectl describe daemonsets -A -l part-of",
        ),
    ],
)
def test_what_to_look_at_if_the_agent_is_not_there_or_not_ready(pods: list[Any], do: str) -> None:
    found = overview(facts(node(), node("n2"), node("n3"), volume(), *pods))
    (problem,) = (one for one in found["problems"] if one["about"] == "node/n1")
    assert problem["do"].startswith(do)


def test_without_any_pod_of_ours_nobody_knows_whether_agents_are_there() -> None:
    known = facts(volume(), pods=[])
    (one,) = overview(known)["nodes"]
    assert one["agent"]["state"] == "unknown"
    assert "--selector" in one["agent"]["reason"]
    assert overview(known)["problems"] == []


def test_what_could_not_be_read_is_null_and_never_nothing() -> None:
    whys = dict.fromkeys(
        ("persistentvolumes", "persistentvolumeclaims", "pods", "csistoragecapacities", "jobs"),
        "forbidden (403)",
    )
    found = overview(facts(without=whys), "n1")
    assert found["unknown"] == whys
    assert found["volumes"] is None
    assert found["claims"] is None
    assert found["cleanings"] is None
    summary = found["summary"]
    assert summary["volumes"] is summary["volumeCount"] is summary["capacityBytes"] is None
    assert summary["claimsWaiting"] is None
    (one,) = found["nodes"]
    assert one["rooms"] is None
    assert one["classes"] is None
    assert one["agent"]["state"] == "unknown"
    assert found["controller"]["pods"] is None


def test_cleanings_with_their_jobs_and_last_words() -> None:
    (one,) = overview(facts(*everything()))["cleanings"]
    assert one["persistentVolume"] == "cleaning"
    assert one["deleting"] == ago(60)
    assert one["jobs"] == [{"name": "cleanup-uid-cleaning", "state": "unfinished"}]
    assert one["lastEvent"]["message"] == "cleaning with zero"
    (unseen,) = overview(facts(*everything(), without={"jobs": "forbidden"}))["cleanings"]
    assert unseen["jobs"] is None


def test_one_node_alone() -> None:
    others = [node(), node("n2"), agent(), agent("n2")]
    known = facts(
        klass(),
        volume("here"),
        volume("there", node_name="n2"),
        claim("to-n2", annotations={"volume.kubernetes.io/selected-node": "n2"}),
        *others,
    )
    found = overview(known, "n2")
    assert [one["name"] for one in found["nodes"]] == ["n2"]
    assert [one["name"] for one in found["volumes"]] == ["there"]
    assert [one["name"] for one in found["claims"]] == ["to-n2"]
    assert found["summary"]["claimsWaiting"] == 1


def test_the_shape_is_json_and_says_its_version() -> None:
    found = json.loads(json.dumps(overview(facts(*everything(), controller()))))
    assert found["version"] == "localvolume.dev/status/v1"
    assert found["controller"] == {"pods": 1, "ready": 1, "leader": None, "renewed": None}


def test_what_is_installed_has_the_label_that_is_looked_for() -> None:
    key, _, value = SELECTOR.partition("=")
    text = (Path(__file__).parents[2] / "deploy" / "install.yaml").read_text()
    labels: dict[str, list[Any]] = {}
    for thing in yaml.safe_load_all(text):
        if thing and thing["kind"] in ("DaemonSet", "Deployment", "ConfigMap"):
            labels.setdefault(thing["kind"], []).append(thing["metadata"]["labels"])
            if "template" in thing.get("spec", {}):
                pods = thing["spec"]["template"]["metadata"]["labels"]
                labels.setdefault(f"pods of {thing['kind']}", []).append(pods)
    assert len(labels) == 5
    assert all(one[key] == value for found in labels.values() for one in found)


def test_a_large_cluster_is_said_in_seconds() -> None:
    nodes = [node(f"n{i}") for i in range(300)]
    volumes = [volume(f"pv-{i}", node_name=f"n{i % 300}") for i in range(6000)]
    known = facts(klass(), *nodes, *(agent(f"n{i}") for i in range(300)), *volumes)
    began = time.monotonic()
    assert overview(known)["summary"]["volumeCount"] == 6000
    # Quadratic would be minutes.
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "?"),
        (0, "0"),
        (1023, "1023"),
        (1536, "1.5Ki"),
        (10 * 2**30, "10Gi"),
        (2**70, "1024Ei"),
    ],
)
def test_sizes(count: int | None, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59, "59s"), (61, "1m"), (5400, "90m"), (7200, "2h"), (200000, "2d"), (-5, "0s")],
)
def test_ages(seconds: float, text: str) -> None:
    assert age(NOW, ago(seconds)) == text
    assert age(NOW, None) == "?"


FORBIDDEN = '{0} is forbidden: User "system:agent" cannot list resource "{0}" in API group ""'


def printed(capsys: pytest.CaptureFixture[str], *things: Any, **changes: Any) -> list[str]:
    print_status(overview(facts(*things, **changes)), NOW, wide=False)
    return capsys.readouterr().out.splitlines()


def test_problems_that_nobody_could_see_are_not_none(capsys: pytest.CaptureFixture[str]) -> None:
    without = {what: FORBIDDEN.format(what) for what in ("events", "jobs", "pods")}
    lines = printed(capsys, volume(), without=without)
    assert [line for line in lines if line.startswith("Unknown")] == [
        'Unknown     events, jobs, pods: not allowed for "system:agent"'
    ]
    assert "Problems    unknown: not everything could be read" in lines
    lines = printed(capsys, volume(node_name="gone"), without=without)
    assert "Problems    1; others unknown: not everything could be read" in lines
    assert "Problems    none known" in printed(capsys, volume())


def test_what_could_not_be_read_for_other_reasons_has_each_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = printed(capsys, volume(), without={"jobs": "timed out", "pods": "it is gone (410)"})
    told = [line for line in lines if line.startswith("Unknown")]
    assert told == ["Unknown     jobs: timed out", "Unknown     pods: it is gone (410)"]


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([("VolumeVanished", 600)], "vanished"),
        ([("VolumeVanished", 600), ("VolumePutRight", 60)], "available"),
        ([("VolumePutRight", 600), ("VolumeVanished", 60)], "vanished"),
        # Somebody else's word counts for nothing.
        ([("VolumeVanished", 600), ("VolumePutRight", 60, "kubelet")], "vanished"),
        # Nor does what our other roles say of it.
        ([("VolumeVanished", 600), ("VolumeHealthy", 60)], "vanished"),
        ([("VolumeVanished", 600), ("VolumePutRight", 300), ("VolumeHealthy", 60)], "available"),
    ],
)
def test_a_volume_is_well_again_once_its_agent_says_so(events: list[Any], state: str) -> None:
    said = [
        event("pv-1", reason, age=age, by=(*by, "local-volume-provisioner")[0])
        for reason, age, *by in events
    ]
    found = overview(facts(volume(), *said))
    assert [one["state"] for one in found["volumes"]] == [state]
    assert bool(found["problems"]) == (state == "vanished")


def _of_node(*events: tuple[str, str, float]) -> list[str]:
    """What status says of the node, on which these Events are, with their ages."""
    said = [
        event("n1", reason, text, kind="Node", uid="n1", age=age, type_=_type_of(reason))
        for reason, text, age in events
    ]
    return [one["reason"] for one in overview(facts(volume(), *said))["problems"]]


def _type_of(reason: str) -> str:
    return "Normal" if reason in ENDS else "Warning"


def test_what_was_said_of_a_pool_is_over_once_the_agent_says_so() -> None:
    full, bad = ("PoolWarning", "pool a: full", 900.0), ("PoolProblem", "pool a: no quota", 800.0)
    assert len(_of_node(full, bad)) == 2
    assert _of_node(full, bad, ("PoolProblemOver", "pool a: gone", 60)) == [
        "PoolWarning: pool a: full"
    ]
    assert len(_of_node(full, bad, ("PoolProblemOver", "pool b: gone", 60))) == 2
    # It came back since.
    assert len(_of_node(full, bad, ("PoolProblemOver", "pool a: gone", 850))) == 2
    newer = ("PoolProblem", "pool a: not mounted", 60.0)
    assert _of_node(bad, newer) == ["PoolProblem: pool a: not mounted"]
    # Several warnings of one pool may be so, and a problem of each pool.
    fills = ("PoolWarning", "pool a: fills", 60.0)
    assert len(_of_node(full, fills)) == 2
    assert _of_node(full, fills, ("PoolWarningOver", "pool a: gone", 30.0)) == []
    assert len(_of_node(bad, ("PoolProblem", "pool b: no quota", 60.0))) == 2


@pytest.mark.parametrize(
    ("reason", "end"),
    [
        ("CSIRegistrationFailed", "CSIRegistrationFailedOver"),
        ("CapacityNotPublished", "CapacityNotPublishedOver"),
        ("ConfigurationInvalid", "ConfigurationChanged"),
        ("NodeTaintNotRemoved", "NodeTaintRemoved"),
    ],
)
def test_what_was_said_of_a_node_is_over_once_the_agent_says_so(reason: str, end: str) -> None:
    older, newer = (reason, "one thing", 900.0), (reason, "another", 800.0)
    assert _of_node(older, newer) == [f"{reason}: another"]
    assert _of_node(older, newer, (end, "well", 60.0)) == []
    assert _of_node(older, (end, "well", 850.0), newer) == [f"{reason}: another"]
    # It says nothing of anything else.
    disks = ("DiskPlanChanged", "one", 900.0), ("DiskPlanChanged", "two", 800.0)
    assert _of_node(*disks, (end, "well", 60.0)) == ["DiskPlanChanged: two", "DiskPlanChanged: one"]


def test_what_failed_with_a_disk_is_over_once_it_is_a_volume() -> None:
    b, c = (f'{name} ({{"serial":"a: b, {name}"}}, 10Gi)' for name in ("sdb", "sdc"))
    older, newer = (
        ("DiskFormatFailed", f"{b}: mkfs.ext4: no", 900.0),
        ("DiskFormatFailed", f"{b}: {c}: it is the same", 800.0),
    )
    other = ("DiskFormatFailed", f"{c}: mkfs.ext4: no", 700.0)
    left = f"DiskFormatFailed: {other[1]}"
    assert _of_node(older, newer, other) == [left, f"DiskFormatFailed: {newer[1]}"]
    done = f"{b} is a volume now: ext4 at /mnt/fast/b"
    assert _of_node(older, newer, other, ("DiskFormatted", done, 60.0)) == [left]
    mount = ("DiskMountFailed", f"{b}: no", 900.0)
    assert len(_of_node(mount, ("DiskFormatted", done, 60.0))) == 1
    assert _of_node(mount, ("DiskMounted", done, 60.0)) == []


def test_what_ends_a_warning_is_a_word_of_an_agent_and_nobody_elses() -> None:
    assert {*ENDS, *ENDS.values()} <= OURS_ALONE


def test_a_problem_that_rests_on_an_event_says_when_that_was(
    capsys: pytest.CaptureFixture[str],
) -> None:
    known = facts(volume(), event("pv-1", "VolumeVanished", "not mounted", age=2400))
    (found,) = overview(known)["problems"]
    assert found["said"] == ago(2400)
    print_status(overview(known), known.now, wide=False)
    assert "vanished: not mounted (said 40m ago)" in capsys.readouterr().out
