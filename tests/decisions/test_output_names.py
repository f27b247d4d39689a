"""Commands call the same thing by the same name in `-o json`: the table of docs/seeing.md holds."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from localvolume.cli import check_config, orphans
from localvolume.cli.plan_disks import disk_rows
from localvolume.cli.planning import pools
from localvolume.cli.planning.prepared import described
from localvolume.cli.planning.rows import orphan_rows, volume_rows
from localvolume.cli.planning.snapshots import Due, content_rows
from localvolume.cli.seeing.status.overview import overview
from localvolume.cli.seeing.why.claim import why_claim
from localvolume.cli.seeing.why.volume import why_volume
from localvolume.cli.versions.command import ImagePod, images
from localvolume.dynamic.plan.orphans import orphans_of
from localvolume.dynamic.plan.plan import plan as plan_dynamic
from localvolume.dynamic.plan.world import World
from localvolume.snapshots import plan as single
from localvolume.snapshots.groups import plan as group_plan
from tests.decisions import support_disks, support_dynamic, support_plan
from tests.decisions import support_seeing as seen

PAGE: Final = Path(__file__).parents[2] / "docs/seeing.md"
DISKS: Final = support_disks.planned(
    support_disks.disk("sda"), support_disks.inside(support_disks.disk("sdb"), signature="ext4")
)
IDENTITY: Final = {"localvolume.dev/identity": '{"uuid": "1"}'}


def _sentence(value: Any) -> bool:
    return isinstance(value, str) and (value == "" or " " in value)


def _words(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _name(value: Any) -> bool:
    return isinstance(value, str) and not set("/ ") & set(value)


def _time(value: Any) -> bool:
    return value is None or bool(re.match(r"\d{4}-\d\d-\d\dT", value))


def _count(value: Any) -> bool:
    return value is None or isinstance(value, int)


def _lists(value: Any) -> bool:
    return value is None or isinstance(value, list | int)


def _pairs(value: Any) -> bool:
    return value is None or isinstance(value, dict)


MEANS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "reason": _sentence,
    "code": _name,
    "verdict": _words,
    "about": lambda value: _words(value) and "/" in value,
    "unknown": _pairs,
    "by": lambda value: isinstance(value, str),
    "instance": _name,
    "ours": lambda value: value in (True, False, None),
    "name": lambda value: isinstance(value, str) and value != "",
    "namespace": _name,
    "persistentVolume": _name,
    "claim": lambda value: value == "" or bool(re.fullmatch(r"[^/ ]+/[^/ ]+", value)),
    "node": _name,
    "class": _name,
    "pool": _name,
    "path": lambda value: value == "" or value.startswith("/"),
    "place": lambda value: _words(value) and not value.startswith("/"),
    "state": _words,
    "volumeMode": lambda value: value in ("Filesystem", "Block"),
    "identity": _pairs,
    "handle": _name,
    "volumeHandle": _name,
    "groupHandle": _name,
    "capacityBytes": _count,
    "roomBytes": _count,
    "totalBytes": _count,
    "model": lambda value: isinstance(value, str),
    "transport": _name,
    "plan": _name,
    "approved": lambda value: value in (True, False, None),
    "volumeCount": _count,
    "classes": _lists,
    "pools": _lists,
    "problems": _lists,
    "agents": lambda value: isinstance(value, dict | list),
    "pods": _count,
    "version": _words,
    "created": _time,
    "deleting": _time,
    "time": _time,
}
"""Each name of the page's table, and what its values look like, wherever it stands."""

OTHERWISE: Final = {
    **dict.fromkeys(("why", "text", "sentence", "explanation", "because"), "reason"),
    **dict.fromkeys(("pv", "volume", "volumeName", "persistentvolume"), "persistentVolume"),
    **dict.fromkeys(("pvc", "persistentVolumeClaim", "claimName"), "claim"),
    **dict.fromkeys(("nodeName", "host", "hostname"), "node"),
    **dict.fromkeys(("storageClass", "storageClassName", "className"), "class"),
    **dict.fromkeys(("poolName",), "pool"),
    **dict.fromkeys(("hostDir", "hostPath", "directory"), "path"),
    **dict.fromkeys(("bytes", "size", "sizeBytes", "capacity"), "capacityBytes"),
    **dict.fromkeys(("room", "freeBytes"), "roomBytes"),
    **dict.fromkeys(("total",), "totalBytes"),
    **dict.fromkeys(("mode",), "volumeMode"),
    **dict.fromkeys(("notRead", "unread"), "unknown"),
    **dict.fromkeys(("since", "deletionTimestamp"), "deleting"),
    **dict.fromkeys(("creationTimestamp", "age"), "created"),
    **dict.fromkeys(("content", "group", "source"), "of what kind it is"),
}
"""Other names for the same, which no command uses."""

EVENT: Final = {"type", "reason", "message", "time", "count", "about"}
FREE: Final = (
    *("manifest", "identity", "unknown", "attributes"),
    *("agents", "volumes", "snapshots", "groupSnapshots"),
)
"""Below these, keys are data, words or names of Kubernetes; lists below them have shapes again."""


def of_status() -> Any:
    made = {"localvolume.dev/pool": "fast/pvc-1"}
    return overview(
        seen.facts(
            seen.klass(),
            seen.klass("made", seen.CSI),
            seen.node(),
            seen.controller(),
            seen.volume("held", phase="Released", claim="c", annotations={**IDENTITY, **made}),
            seen.event("held", "VolumeFailedDelete", "it is not a mount point"),
            seen.volume("cleaning", phase="Released", claim="d", deleting=True),
            seen.job("cleaning"),
            seen.event("n1", "PoolNearlyFull", "the pool is full", kind="Node"),
            seen.claim("waiting"),
            seen.room("made", "4Gi"),
            seen.content("snapcontent-1", snapshot="before"),
            seen.group("groupsnapcontent-1", snapshot="nightly"),
            support_disks.disks_of(DISKS),
            without={"leases": "leases is forbidden"},
        )
    )


def of_why() -> Any:
    volume, claim = seen.volume("held", phase="Released", claim="c"), seen.claim("waiting")
    known = seen.facts(seen.klass(), volume, claim, seen.event("held", "VolumeFailedDelete", "no"))
    return [why_volume(known, volume).shape(), why_claim(known, claim).shape()]


def of_plan() -> Any:
    entry = support_plan.filesystem()
    broken = support_plan.class_facts("slow", problem="it cannot be listed")
    prepared = support_plan.facts_of([entry], classes=[support_plan.class_facts(), broken])
    stray = support_dynamic.record(9, volume_uid="volume-9")
    made = support_dynamic.facts(
        support_dynamic.storage_class(),
        support_dynamic.claim(),
        support_dynamic.bound(2),
        support_dynamic.volume(2),
        support_dynamic.pool(support_dynamic.record(2), stray),
    )
    contents = [
        Due(single.TellLost(content=seen.content("a"), reason="it is gone"), None, "tell", "a b"),
        Due(group_plan.LetGo(content=seen.group("b"), reason="it is gone"), None, "let go", "a b"),
    ]
    return [
        *described(prepared),
        *pools.pool_rows(made.pools, {"other": "no volume group matches"}, World(made), ()),
        *volume_rows(made, plan_dynamic(made), ()),
        *orphan_rows(made.pools, orphans_of(made.pools, made.volumes, made.claims.values())),
        *content_rows(contents, plan_dynamic(made), "they could not be read"),
        *disk_rows(DISKS),
    ]


def of_orphans() -> Any:
    stray = support_dynamic.record(9, volume_uid="volume-9")
    known = support_dynamic.facts(support_dynamic.pool(stray))
    return orphans.shapes(known.pools, orphans_of(known.pools, {}, ()))


def of_version() -> Any:
    body = {
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "provisioner", "image": "registry/lvp:1"}]},
    }
    return {"client": {"version": "1"}, **images([msgspec.convert(body, ImagePod)])}


def of_check_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    file = tmp_path / "storageClassMap"
    file.write_text("fast:\n  hostDir: relative\n")
    words = argparse.Namespace(
        files=[str(file)], host_checks=False, no_host_checks=True, output="json"
    )
    assert check_config.run(words) == 1
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def outputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Mapping[str, Any]:
    """What each command says to programs, with something in every list."""
    return {
        "status": of_status(),
        "why": of_why(),
        "plan": of_plan(),
        "orphans": of_orphans(),
        "version": of_version(),
        "check-config": of_check_config(tmp_path, capsys),
    }


def fields(value: Any) -> Iterator[tuple[str, Any, bool]]:
    """Each key with its value, and whether it stands in an Event."""
    if isinstance(value, list):
        for one in value:
            yield from fields(one)
    elif isinstance(value, Mapping):
        event = "message" in value
        for key, inner in value.items():
            yield key, inner, event
            if key not in FREE or isinstance(inner, list):
                yield from fields(inner)


def keys(value: Any) -> set[str]:
    return {key for key, _, _ in fields(value)}


def tabled() -> set[str]:
    """The names that the page has in its table."""
    part = PAGE.read_text().split("## Output for programs", 1)[1].split("\n## ", 1)[0]
    rows = [line.split("|")[1] for line in part.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_every_kind_of_row_is_looked_at(outputs: Mapping[str, Any]) -> None:
    lists = ("problems", "nodes", "volumes", "claims", "cleanings", "snapshots", "groupSnapshots")
    assert all(outputs["status"][name] for name in lists)
    of_node = ("classes", "rooms", "pools", "disks")
    assert all(outputs["status"]["nodes"][0][name] for name in of_node)
    verdicts = {row["verdict"] for row in outputs["plan"]}
    assert verdicts >= {"publish", "hold", "serve", "make", "keep", "orphan", "tell", "let go"}
    assert any("disk" in row for row in outputs["plan"])
    codes = [row["code"] for row in outputs["plan"] if "code" in row]
    assert codes
    assert all(codes), "a row of a plan has none, rather than an empty one"
    assert outputs["orphans"]
    assert outputs["why"][0]["events"]
    assert outputs["check-config"]["problems"]


def test_no_command_has_another_name_for_the_same(outputs: Mapping[str, Any]) -> None:
    for command, value in outputs.items():
        assert {key: OTHERWISE[key] for key in keys(value) & OTHERWISE.keys()} == {}, command


def test_what_two_commands_say_is_in_the_table_and_the_table_says_nothing_else(
    outputs: Mapping[str, Any],
) -> None:
    assert tabled() == MEANS.keys()
    said: dict[str, set[str]] = {}
    for command, value in outputs.items():
        for key in keys(value):
            said.setdefault(key, set()).add(command)
    several = {key for key, commands in said.items() if len(commands) > 1}
    assert several - MEANS.keys() - EVENT == set()
    assert MEANS.keys() - said.keys() == set()


def test_a_name_means_the_same_everywhere(outputs: Mapping[str, Any]) -> None:
    for command, value in outputs.items():
        for key, found, event in fields(value):
            if key in MEANS and not (event and key in EVENT):
                assert MEANS[key](found), (command, key, found)
            if key.endswith("Bytes"):
                assert _count(found), (command, key, found)


def test_the_page_names_every_key(outputs: Mapping[str, Any]) -> None:
    named = set(re.findall(r"`([A-Za-z]+)`", PAGE.read_text()))
    for command, value in outputs.items():
        assert keys(value) - named == set(), command
