"""Upstream's metrics by name, type, label and bucket; true where upstream's are not; health."""

import socket

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.cluster.support_agent import Lab

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]

UPSTREAM = "local_volume_provisioner_"
BUCKETS = {"0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0"}

# Facts, section 5: name, type, labels.
FAMILIES: dict[str, tuple[str, set[str]]] = {
    "persistentvolume_capacity_bytes": ("gauge", {"mode"}),
    "persistentvolume_discovery": ("counter", {"mode"}),
    "persistentvolume_discovery_duration_seconds": ("histogram", {"mode"}),
    "persistentvolume_delete": ("counter", {"mode", "type"}),
    "persistentvolume_delete_failed": ("counter", {"mode", "type"}),
    "persistentvolume_delete_duration_seconds": (
        "histogram",
        {"mode", "type", "capacity", "cleanup_command"},
    ),
    "apiserver_requests": ("counter", {"method"}),
    "apiserver_requests_failed": ("counter", {"method"}),
    "apiserver_requests_duration_seconds": ("histogram", {"method"}),
    "proctable_running": ("gauge", set()),
    "proctable_succeeded": ("gauge", set()),
    "proctable_failed": ("gauge", set()),
}


def size(volume: dict[str, dict[str, dict[str, str]]]) -> int:
    text = volume["spec"]["capacity"]["storage"]
    assert text.endswith("Mi")
    return int(text[:-2]) << 20


def test_metrics_of_a_life(lab: Lab) -> None:
    fs = lab.add_class("fs")
    # Fails once, then does.
    once = lab.directory / "once"
    fails = f'[ -e "{once}" ] || {{ touch "{once}"; exit 1; }}'
    block = lab.add_class("block", volumeMode="Block", blockCleanerCommand=["/bin/sh", "-c", fails])
    for name in ("one", "two"):
        lab.mount(lab.disk(), fs.path(name))
    lab.link(lab.raw_disk(24 << 20), block.path("raw"))
    policy = lab.forbid_creation()
    lab.start()
    failed = f"{UPSTREAM}apiserver_requests_failed_total"
    lab.until(lambda: lab.metric(failed, method="create") or 0, bool)
    lab.plane.request("DELETE", policy)
    volumes = {name: lab.published(fs, name) for name in ("one", "two")}
    volumes["raw"] = lab.published(block, "raw")
    for cls, name in ((fs, "one"), (block, "raw")):
        lab.delete_claim(lab.bound(volumes[name]))
        volumes[name] = lab.published(cls, name, unlike=volumes[name]["metadata"]["uid"])

    deleted = f"{UPSTREAM}persistentvolume_delete_total"
    lab.until(lambda: lab.metric(deleted, mode="Block", type="process"), bool)
    families = {f.name: f for f in text_string_to_metric_families(lab.http("/metrics")[1])}
    for name, (kind, labels) in FAMILIES.items():
        family = families[f"{UPSTREAM}{name}"]
        assert (name, family.type) == (name, kind)
        samples = [s for s in family.samples if not s.name.endswith("_created")]
        assert samples, name
        for sample in samples:
            assert set(sample.labels) - {"le"} == labels, sample
        if kind == "histogram":
            assert {s.labels["le"] for s in samples if "le" in s.labels} == BUCKETS | {"+Inf"}
    for name in ("process_resident_memory_bytes", "process_cpu_seconds"):
        assert name in families

    def value(name: str, **labels: str) -> float | None:
        return lab.metric(f"{UPSTREAM}{name}", **labels)

    # What is published is counted when the answer comes.
    found = "persistentvolume_discovery_total"
    lab.until(lambda: value(found, mode="Filesystem"), lambda count: count == 3)
    lab.until(lambda: value(found, mode="Block"), lambda count: count == 2)
    for mode, command in (("Filesystem", "delete-files"), ("Block", f"/bin/sh -c {fails}")):
        what = {"mode": mode, "type": "process"}
        assert value("persistentvolume_delete_total", **what) == 1
        what |= {"capacity": "500G", "cleanup_command": command}
        assert value("persistentvolume_delete_duration_seconds_count", **what) == 1
    assert value("persistentvolume_delete_failed_total", mode="Block", type="process") == 1
    assert (
        value("proctable_running"),
        value("proctable_succeeded"),
        value("proctable_failed"),
    ) == (
        0,
        2,
        1,
    )
    assert (value("apiserver_requests_total", method="create") or 0) >= 5
    assert (value("apiserver_requests_total", method="delete") or 0) >= 2

    # Upstream counts only what one pass has added, so that it shows 0 nearly always.
    expected = {"Filesystem": size(volumes["one"]) + size(volumes["two"]), "Block": 24 << 20}

    def capacity() -> dict[str, float | None]:
        return {mode: value("persistentvolume_capacity_bytes", mode=mode) for mode in expected}

    lab.until(capacity, lambda found: found == expected)
    lab.stop()
    lab.start()
    assert capacity() == expected
    assert value("persistentvolume_discovery_total", mode="Filesystem") is None


def test_running_cleanings_are_counted_while_they_run(lab: Lab) -> None:
    go = lab.directory / "go"
    waits = f'while [ ! -e "{go}" ]; do sleep 0.05; done'
    block = lab.add_class("block", volumeMode="Block", blockCleanerCommand=["/bin/sh", "-c", waits])
    names = ("a", "b", "c")
    for name in names:
        lab.link(lab.raw_disk(), block.path(name))
    lab.start()
    volumes = [lab.published(block, name) for name in names]
    for claim in [lab.bound(volume) for volume in volumes]:
        lab.delete_claim(claim)
    running = f"{UPSTREAM}proctable_running"
    lab.until(lambda: lab.metric(running), lambda value: value == 3)
    go.touch()
    lab.until(lambda: lab.metric(running), lambda value: value == 0)
    for name, volume in zip(names, volumes, strict=True):
        lab.published(block, name, unlike=volume["metadata"]["uid"])


def test_paths_and_answers(lab: Lab) -> None:
    missing = lab.add_class("missing", mountDir=str(lab.directory / "not-yet"))
    lab.start(metrics_path="/custom/metrics", wait=False)
    for path in ("/ready", "/ready/DiscovererReadyzCheck"):
        text = lab.until(
            lambda path=path: lab.http(path),  # type: ignore[misc]
            lambda got: got[0] == 500 and missing.name in got[1],
        )[1]
        assert "cannot be listed" in text
    assert lab.http("/metrics")[0] == 404
    assert f"{UPSTREAM}proctable_running" in lab.http("/custom/metrics")[1]
    assert lab.http("/healthz") == (200, "ok\n")
    missing.directory.mkdir()
    lab.until(lambda: lab.http("/ready"), lambda got: got == (200, "ok\n"))
    lab.until(lambda: lab.http("/ready/DiscovererReadyzCheck")[0], lambda status: status == 200)
    lab.stop()


def test_a_port_that_is_taken_ends_the_agent_with_a_reason(lab: Lab) -> None:
    lab.add_class("fs")
    with socket.socket() as other:
        other.bind(("127.0.0.1", lab.port))
        other.listen()
        agent = lab.start_process(wait=False)
        lab.agent = None
        assert agent.process.wait(90) == 1
    assert "address already in use" in agent.log.read_text().lower()
