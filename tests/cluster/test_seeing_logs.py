"""JSON logs: volume, class, claim and reason are fields, for whoever filters by them."""

import json
from typing import Any

import pytest

from tests.cluster.support_agent import Lab
from tests.cluster.support_dynamic import DynamicLab
from tests.host.support_devices import unmount

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")


def records(lab: Lab) -> list[dict[str, Any]]:
    """Every line of the agent's log, each of which must be one JSON object."""
    text = (lab.directory / "agent.log").read_text()
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def record(lab: Lab, message: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = lab.until(
        lambda: [one for one in records(lab) if message in one["message"]], bool
    )
    return found[0]


def test_of_a_prepared_volume(lab: Lab) -> None:
    cls = lab.add_class()
    where = lab.mount(lab.disk(), cls.path("one"))
    lab.start_process("--log-format", "json")
    volume = lab.published(cls, "one")
    name = volume["metadata"]["name"]
    published = record(lab, "published")
    assert (published["persistentvolume"], published["class"]) == (name, cls.name)
    assert published["path"] == cls.host_path("one")
    assert published["reason"] == "it is ready and not offered yet"
    claim = lab.bound(volume)
    unmount(where)
    lab.delete_claim(claim)
    held = record(lab, "not cleaned, the data stays")
    assert (held["persistentvolume"], held["class"]) == (name, cls.name)
    assert "is not a valid mount point" in held["reason"]
    assert held["code"] == "not-cleaned"
    assert held["level"] == "warning"


def test_of_a_made_volume(dynamic: DynamicLab) -> None:
    dynamic.pool()
    cls = dynamic.storage_class()
    dynamic.start_process("--log-format", "json")
    claim = dynamic.claim(cls)
    volume = dynamic.made(claim)
    published = record(dynamic, "published")
    assert published["persistentvolume"] == volume["metadata"]["name"]
    assert published["class"] == cls
    assert published["claim"] == f"default/{claim['metadata']['name']}"
    assert published["pool"] == "fast"
    dynamic.delete(claim)
    removed = record(dynamic, "removed")
    assert (removed["persistentvolume"], removed["class"]) == (volume["metadata"]["name"], cls)
