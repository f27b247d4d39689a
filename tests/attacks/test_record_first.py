"""S6: whose a volume is stands on the volume before the API server is told: an agent that dies in
between, or is refused there, leaves no object without a record. Here it is refused."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume.host.filesystem.volumenotes import NAME as NOTE
from tests.attacks.support_records import recorded, uid_of, until_held
from tests.cluster.support_agent import CLAIMED, GENERATION, Class, Lab, Volume
from tests.suite.api import VOLUMES

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]


@pytest.fixture
def fs(lab: Lab) -> Class:
    return lab.add_class("fs")


def until_recorded(lab: Lab, path: Path) -> None:
    lab.until(lambda: NOTE in os.listxattr(path), bool)


def annotations(lab: Lab, volume: Volume) -> dict[str, str]:
    found = lab.volume(volume["metadata"]["name"])
    assert found is not None
    return dict(found["metadata"]["annotations"])


@contextlib.contextmanager
def unwritable(lab: Lab, volume: Volume) -> Iterator[None]:
    """The API server takes nothing about the lab's volumes but their status and their deletion."""
    allowed = lab.forbid("UPDATE")
    path = f"{VOLUMES}/{volume['metadata']['name']}"
    probe = {"metadata": {"labels": {"probe": "x"}}}
    lab.until(lambda: lab.refuses("PATCH", path, probe), bool)
    yield
    lab.plane.request("DELETE", allowed)


def test_what_is_offered_is_on_record_before(lab: Lab, fs: Class) -> None:
    path = lab.mount(lab.disk(), fs.path("one"))
    allowed = lab.forbid_creation()
    lab.start()
    until_recorded(lab, path)
    written = recorded(path)
    assert not lab.volumes_at(fs, "one")
    lab.plane.request("DELETE", allowed)
    volume = lab.published(fs, "one")
    # What was written for an object that may have been made is not written anew.
    assert annotations(lab, volume)[GENERATION] == written.generation
    assert recorded(path) == written


def test_what_an_older_release_offered_is_on_record_before_its_object_says_so(
    lab: Lab, fs: Class
) -> None:
    path = lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    lab.stop()
    lab.forget_record(volume)
    none = {"metadata": {"annotations": {GENERATION: None}}}
    lab.patch(volume["metadata"]["name"], none)
    with unwritable(lab, volume):
        lab.start()
        until_recorded(lab, path)
        written = recorded(path)
        assert GENERATION not in annotations(lab, volume)
    found = lab.until(lambda: annotations(lab, volume), lambda now: GENERATION in now)
    assert found[GENERATION] == written.generation == recorded(path).generation


def test_who_holds_it_is_on_record_before_its_object_is_marked(lab: Lab, fs: Class) -> None:
    path = lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    lab.stop()
    claim = lab.claim(volume)
    with unwritable(lab, volume):
        lab.start()
        until_held(lab, path, claim)
        assert CLAIMED not in annotations(lab, volume)
    uid = uid_of(lab, claim)
    lab.until(lambda: annotations(lab, volume).get(CLAIMED), lambda marked: marked == uid)


def test_that_it_was_cleaned_is_on_record_before_its_object_goes(lab: Lab, fs: Class) -> None:
    path = lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    claim = lab.bound(volume)
    (path / "rows").write_text("a tenant's")
    with unwritable(lab, volume):
        lab.delete_claim(claim)
        lab.until(lambda: recorded(path), lambda record: record.ended and not record.claim)
        assert not (path / "rows").exists()
        assert lab.volume(volume["metadata"]["name"]) is not None
    lab.published(fs, "one", unlike=volume["metadata"]["uid"])
