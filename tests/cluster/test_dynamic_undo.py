"""A claim deleted by mistake: its volume is kept for undoPeriod and can be had again."""

import json
import os
import subprocess
import sys

import pytest

from tests.cluster.support_clocks import Standing
from tests.cluster.support_dynamic import Claim, DynamicLab, MadePool, Volume
from tests.suite.api import CLASSES, VOLUMES
from tests.suite.names import NODE_LABEL, POOL

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

RELEASED = "localvolume.dev/released-since"
KEPT = "localvolume.dev/kept-until"


def _command(lab: DynamicLab, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "localvolume", *words, "--kubeconfig", str(lab.plane.kubeconfig)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def _lost(lab: DynamicLab, period: str) -> tuple[MadePool, Claim, Volume]:
    """A volume with a file in it, whose claim has just been deleted."""
    pool = lab.pool()
    cls = lab.storage_class(parameters={"undoPeriod": period})
    lab.start()
    claim = lab.claim(cls, name=f"{lab.unique}-database")
    volume = lab.made(claim)
    (lab.path_of(volume) / "rows").write_text("precious")
    lab.delete(claim)
    found = lab.until(
        lambda: lab.volume(volume["metadata"]["name"]),
        lambda v: v and RELEASED in v["metadata"]["annotations"],
    )
    assert found is not None
    return pool, claim, found


def test_the_same_claim_again_finds_its_data(dynamic: DynamicLab) -> None:
    _, claim, volume = _lost(dynamic, "1h")
    done = _command(dynamic, "undo", volume["metadata"]["name"])
    assert done.returncode == 0, done.stderr
    assert claim["metadata"]["name"] in done.stdout
    again = dynamic.claim(
        claim["spec"]["storageClassName"], name=claim["metadata"]["name"], node=None
    )
    found = dynamic.until(
        lambda: dynamic.volume(volume["metadata"]["name"]),
        lambda v: v and v["status"]["phase"] == "Bound",
    )
    assert found is not None
    assert found["spec"]["claimRef"]["uid"] == again["metadata"]["uid"]
    assert not found["metadata"]["annotations"].keys() & {RELEASED, KEPT}
    assert (dynamic.path_of(found) / "rows").read_text() == "precious"
    dynamic.settle()
    assert (dynamic.path_of(found) / "rows").exists()


def test_without_undo_it_goes_when_the_time_is_over(dynamic: DynamicLab) -> None:
    # Not over before it was found still there, however slow all is.
    standing = Standing()
    dynamic.clock = standing.clock
    pool, _, volume = _lost(dynamic, "2s")
    assert dynamic.path_of(volume).exists()
    standing.go_on()
    dynamic.gone(volume)
    dynamic.until(lambda: (pool.inside(), pool.trash()), lambda left: left == ([], []))
    done = _command(dynamic, "undo", volume["metadata"]["name"])
    assert (done.returncode, done.stdout) == (1, "")
    assert "it was removed, or never existed" in done.stderr


def _delete_class(lab: DynamicLab, name: str) -> None:
    lab.plane.request("DELETE", f"{CLASSES}/{name}")


def test_what_was_promised_outlives_the_class(dynamic: DynamicLab) -> None:
    """A class is deleted, made anew without a period, and again with what is no period at all."""
    _, claim, volume = _lost(dynamic, "1h")
    rows, cls = dynamic.path_of(volume) / "rows", claim["spec"]["storageClassName"]
    told = volume["metadata"]["annotations"][KEPT]
    assert told.split()[1] == claim["metadata"]["uid"]
    for parameters in ({"undoPeriod": "0s"}, {"undoPeriod": "never"}, None):
        _delete_class(dynamic, cls)
        dynamic.settle()
        dynamic.stays(volume)
        if parameters is not None:
            dynamic.storage_class(parameters=parameters)
            dynamic.settle()
            dynamic.stays(volume)
    dynamic.stop()
    dynamic.start()
    dynamic.settle()
    found = dynamic.volume(volume["metadata"]["name"])
    assert found is not None
    assert found["metadata"]["annotations"][KEPT] == told
    assert rows.read_text() == "precious"
    # Who deletes the object does not wait.
    dynamic.plane.request("DELETE", f"{VOLUMES}/{volume['metadata']['name']}")
    dynamic.gone(volume)


def test_it_goes_when_that_is_over_without_its_class_too(dynamic: DynamicLab) -> None:
    standing = Standing()
    dynamic.clock = standing.clock
    pool, claim, volume = _lost(dynamic, "2s")
    _delete_class(dynamic, claim["spec"]["storageClassName"])
    standing.go_on()
    dynamic.gone(volume)
    dynamic.until(lambda: (pool.inside(), pool.trash()), lambda left: left == ([], []))


@pytest.mark.parametrize(
    "then", [pytest.param(None, id="gone"), pytest.param({"undoPeriod": "1d"}, id="not-valid")]
)
def test_a_class_that_nobody_can_read_any_more_removes_nothing(
    dynamic: DynamicLab, then: dict[str, str] | None
) -> None:
    """Class and claim are deleted while the agent is down: nobody can tell what was to be kept."""
    dynamic.pool()
    cls = dynamic.storage_class(parameters={"undoPeriod": "24h"})
    dynamic.start()
    claim = dynamic.claim(cls)
    volume = dynamic.made(claim)
    name, rows = volume["metadata"]["name"], dynamic.path_of(volume) / "rows"
    rows.write_text("precious")
    dynamic.stop()
    _delete_class(dynamic, cls)
    if then is not None:
        dynamic.storage_class(parameters=then)
    dynamic.delete(claim)
    dynamic.until(lambda: dynamic.phase(name), lambda phase: phase == "Released")
    dynamic.start()
    dynamic.event(name, "VolumeFailedDelete", "or delete the PersistentVolume")
    dynamic.settle()
    assert rows.read_text() == "precious"
    if then is not None:
        _delete_class(dynamic, cls)
    # The class again, and it is as if it had never been away.
    dynamic.storage_class()
    dynamic.gone(volume)


def test_what_is_in_use_needs_no_undoing(dynamic: DynamicLab) -> None:
    dynamic.pool()
    cls = dynamic.storage_class()
    dynamic.start()
    volume = dynamic.made(dynamic.claim(cls))
    done = _command(dynamic, "undo", volume["metadata"]["name"])
    assert done.returncode == 1
    assert "is Bound: there is nothing to undo" in done.stderr


def test_what_belongs_to_nobody_is_listed_and_stays(dynamic: DynamicLab) -> None:
    pool = dynamic.pool()
    cls = dynamic.storage_class()
    dynamic.start()
    claim = dynamic.claim(cls)
    volume = dynamic.made(claim)
    where = dynamic.path_of(volume)
    (where / "rows").write_text("precious")
    (pool.directory / "stray").mkdir()
    name = volume["metadata"]["name"]
    dynamic.stop()
    # As somebody who forces an object away: its finalizers first.
    dynamic.delete(claim)
    dynamic.until(lambda: dynamic.read_claim(claim), lambda found: found is None)
    dynamic.remove(volume)
    dynamic.start()
    dynamic.settle()
    assert dynamic.metric("localvolume_pool_orphans", pool="fast") == 2
    done = _command(
        dynamic,
        *("orphans", "--config", str(dynamic.config_directory), "--node", dynamic.node),
        *("-o", "json"),
    )
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    told = [(one["place"], one["persistentVolume"]) for one in found]
    assert told == [(name, name), ("stray", "")]
    assert found[0]["claim"].startswith("default/")
    planned = _command(
        dynamic,
        *("plan", "--config", str(dynamic.config_directory), "--node", dynamic.node),
        *("-o", "json"),
    )
    assert planned.returncode == 0, planned.stderr
    rows = [row for row in json.loads(planned.stdout) if row.get("pool") == "fast"]
    assert [(row["path"], row["verdict"]) for row in rows] == [
        (str(pool.directory), "serve"),
        (f"{pool.directory}/{name}", "orphan"),
        (f"{pool.directory}/stray", "orphan"),
    ]
    assert (where / "rows").read_text() == "precious"
    assert "stray" in os.listdir(pool.directory)


def _recorded(lab: DynamicLab, claim: Claim) -> None:
    """Wait until its record names its object, too: that is written only once the object is there.

    What is under way when the agent ends has a few seconds.
    """
    lab.claim_event(claim, "ProvisioningSucceeded")


def _unpublished(pool: MadePool, volume: Volume) -> None:
    """As a kill leaves it between the record and the object. Only with no agent running."""
    path = pool.directory / ".localvolume" / "records" / f"{volume['metadata']['name']}.json"
    record = json.loads(path.read_text())
    assert record["record"].pop("volume_uid") == volume["metadata"]["uid"]
    path.write_text(json.dumps(record))


def test_what_was_never_published_and_cannot_go_is_listed(dynamic: DynamicLab) -> None:
    """Its claim went, and that nobody wrote to it cannot be proved."""
    pool = dynamic.pool()
    cls = dynamic.storage_class()
    dynamic.start()
    claim = dynamic.claim(cls)
    volume = dynamic.made(claim)
    _recorded(dynamic, claim)
    rows = dynamic.path_of(volume) / "rows"
    rows.write_text("precious")
    dynamic.stop()
    dynamic.delete(claim)
    dynamic.until(lambda: dynamic.read_claim(claim), lambda found: found is None)
    dynamic.remove(volume)
    _unpublished(pool, volume)
    dynamic.start()
    dynamic.until(lambda: dynamic.logged("may hold data: it is not taken away"), bool)
    dynamic.settle()
    assert dynamic.metric("localvolume_pool_orphans", pool="fast") == 1
    done = _command(
        dynamic,
        *("orphans", "--config", str(dynamic.config_directory), "--node", dynamic.node),
        *("-o", "json"),
    )
    assert [one["persistentVolume"] for one in json.loads(done.stdout)] == [
        volume["metadata"]["name"]
    ]
    assert rows.read_text() == "precious"


@pytest.mark.parametrize("written", [False, True])
def test_what_another_node_served_meanwhile(dynamic: DynamicLab, written: bool) -> None:
    """The node was away: its copy goes, unless somebody wrote to it; then it is listed."""
    pool = dynamic.pool()
    cls = dynamic.storage_class()
    dynamic.start()
    claim = dynamic.claim(cls)
    volume = dynamic.made(claim)
    _recorded(dynamic, claim)
    name, where = volume["metadata"]["name"], dynamic.path_of(volume)
    if written:
        (where / "rows").write_text("precious")
    dynamic.stop()
    dynamic.patch_claim(claim, {"metadata": {"labels": {NODE_LABEL: "another"}}})
    # In this order: it is bound, and would be given its protection again.
    dynamic.plane.request("DELETE", f"{VOLUMES}/{name}")
    dynamic.patch(name, {"metadata": {"finalizers": None}})
    dynamic.gone(volume)
    _unpublished(pool, volume)
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["another"]}
    spec = {key: value for key, value in volume["spec"].items() if key != "claimRef"}
    spec["claimRef"] = {
        key: volume["spec"]["claimRef"][key] for key in ("namespace", "name", "uid")
    }
    spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    metadata = {
        "name": name,
        "labels": {NODE_LABEL: "another"},
        "annotations": {**volume["metadata"]["annotations"], POOL: "fast/of-another-node"},
    }
    dynamic.plane.request("POST", VOLUMES, {"metadata": metadata, "spec": spec})
    dynamic.start()
    if written:
        dynamic.until(lambda: dynamic.logged("may hold data: it is not taken away"), bool)
        dynamic.settle()
        assert dynamic.metric("localvolume_pool_orphans", pool="fast") == 1
        assert (where / "rows").read_text() == "precious"
    else:
        dynamic.until(lambda: (pool.inside(), pool.records()), lambda left: left == ([], []))
    assert dynamic.volume(name) is not None
