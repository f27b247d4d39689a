"""A removal was undone and the volume claimed again; then etcd is set back to before. The object
says again that the time to undo is over, of a claim that is not the last one that wrote there."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from localvolume.dynamic.plan.given import NOBODY
from localvolume.volumes.moments import written
from tests.attacks.support_copies import records_in
from tests.attacks.support_etcd import Backup
from tests.cluster.support_dynamic import Claim, DynamicLab, Volume

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

RELEASED = "localvolume.dev/released-since"
KEPT = "localvolume.dev/kept-until"
HOUR = 3600.0


def _undo(lab: DynamicLab, volume: Volume) -> None:
    words = ["undo", volume["metadata"]["name"], "--kubeconfig", str(lab.plane.kubeconfig)]
    done = subprocess.run(
        [sys.executable, "-m", "localvolume", *words], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


def _marked(lab: DynamicLab, volume: Volume) -> Volume:
    """The volume, once it is written down that its claim is gone."""
    found: Volume | None = lab.until(
        lambda: lab.volume(volume["metadata"]["name"]),
        lambda v: v and RELEASED in v["metadata"]["annotations"],
    )
    assert found is not None
    return found


def _age(lab: DynamicLab, volume: Volume) -> None:
    """As if its claim had gone two hours ago. Only with no agent running."""
    uid = volume["spec"]["claimRef"]["uid"]
    since = time.time() - 2 * HOUR
    marks = {RELEASED: f"{written(since)} {uid}", KEPT: f"{written(since + HOUR)} {uid}"}
    lab.patch(volume["metadata"]["name"], {"metadata": {"annotations": marks}})


def _released(lab: DynamicLab) -> tuple[Claim, Volume, Backup]:
    """A volume whose claim was just deleted, and what a backup of etcd has of it two hours later.

    There is an hour to undo it: whatever holds the test up, it is not over here.
    """
    lab.pool()
    cls = lab.storage_class(parameters={"undoPeriod": "1h"})
    lab.start()
    claim = lab.claim(cls, name=f"{lab.unique}-database")
    volume = lab.made(claim)
    (lab.path_of(volume) / "rows").write_text("of the first claim")
    lab.delete(claim)
    found = _marked(lab, volume)
    lab.stop()
    name, marks = found["metadata"]["name"], found["metadata"]["annotations"]
    _age(lab, found)
    backup = Backup(lab.plane, f"persistentvolumes/{name}")
    fresh = {key: marks[key] for key in (RELEASED, KEPT)}
    lab.patch(name, {"metadata": {"annotations": fresh}})
    lab.start()
    return claim, found, backup


def _on_record(lab: DynamicLab, volume: Volume, given: str) -> None:
    """Wait until its record says to whom it was given last."""
    where, name = lab.path_of(volume).parent, volume["metadata"]["name"]
    lab.until(lambda: records_in(where)[name].given, lambda known: known[-1:] == (given,))


def _phase(lab: DynamicLab, volume: Volume) -> str | None:
    found = lab.volume(volume["metadata"]["name"])
    return found["status"]["phase"] if found else None


def _is_held(lab: DynamicLab, volume: Volume, text: str) -> None:
    name = volume["metadata"]["name"]

    def said() -> bool:
        return any(text in one["message"] for one in lab.events(name))

    lab.until(lambda: said() or _phase(lab, volume) != "Released", bool)
    lab.settle()
    assert _phase(lab, volume) == "Released", "it was removed"


def test_what_was_claimed_again_is_not_removed(dynamic: DynamicLab) -> None:
    lab = dynamic
    claim, volume, backup = _released(lab)
    _undo(lab, volume)
    again = lab.claim(claim["spec"]["storageClassName"], name=claim["metadata"]["name"], node=None)
    lab.until(lambda: _phase(lab, volume), lambda phase: phase == "Bound")
    (lab.path_of(volume) / "rows").write_text("of the second claim")
    _on_record(lab, volume, again["metadata"]["uid"])
    lab.stop()
    # The claim was made after the backup: it is lost.
    Backup(lab.plane, f"persistentvolumeclaims/default/{again['metadata']['name']}").lose()
    backup.restore()
    lab.start()
    _is_held(lab, volume, "was given to another claim since")
    assert (lab.path_of(volume) / "rows").read_text() == "of the second claim"


def test_what_was_undone_and_not_claimed_yet_is_not_removed(dynamic: DynamicLab) -> None:
    lab = dynamic
    _, volume, backup = _released(lab)
    _undo(lab, volume)
    lab.until(lambda: _phase(lab, volume), lambda phase: phase == "Available")
    _on_record(lab, volume, NOBODY)
    lab.stop()
    backup.restore()
    lab.start()
    _is_held(lab, volume, "was kept for another claim since")
    assert (lab.path_of(volume) / "rows").read_text() == "of the first claim"


def test_the_last_claim_that_goes_still_takes_it_away(dynamic: DynamicLab) -> None:
    lab = dynamic
    claim, volume, _ = _released(lab)
    _undo(lab, volume)
    again = lab.claim(claim["spec"]["storageClassName"], name=claim["metadata"]["name"], node=None)
    lab.until(lambda: _phase(lab, volume), lambda phase: phase == "Bound")
    _on_record(lab, volume, again["metadata"]["uid"])
    lab.delete(again)
    found = _marked(lab, volume)
    lab.stop()
    _age(lab, found)
    lab.start()
    lab.gone(volume)
