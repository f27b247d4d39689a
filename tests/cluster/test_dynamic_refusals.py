"""What is not removed although its claim is gone: it is held, says why in an Event, and stays."""

import os

import pytest

from tests.cluster.support_dynamic import Claim, DynamicLab, MadePool, Volume
from tests.cluster.support_replaced import (
    KINDS,
    PROVISIONERS,
    Kind,
    in_place_of,
    left_behind,
    root,
    said,
    scheduled,
)
from tests.host.support_devices import bind, unmount
from tests.suite.names import KUTTI, LOCAL_PATH

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

FAILED = "VolumeFailedDelete"


def _class(lab: DynamicLab, kind: Kind = "local-path") -> str:
    return lab.storage_class("old", provisioner=PROVISIONERS[kind])


def _held(lab: DynamicLab, claim: Claim, volume: Volume, text: str) -> Volume:
    """Delete the claim: an Event says why the volume stays, and the object is there still."""
    lab.delete(claim)
    name = volume["metadata"]["name"]
    lab.event(name, FAILED, text)
    lab.settle()
    found = lab.volume(name)
    assert found is not None
    return found


# --- paths -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_path_outside_of_every_pool(dynamic: DynamicLab, kind: Kind) -> None:
    """A PersistentVolume is an object that many may write: its path alone removes nothing."""
    pool = root(dynamic)
    outside = dynamic.directory / "elsewhere" / "data"
    claim, volume = left_behind(dynamic, kind, _class(dynamic, kind), pool, at=outside)
    dynamic.start(others=in_place_of(dynamic, kind, pool))
    found = _held(dynamic, claim, volume, "lies in no pool of")
    # Nobody has even asked for its deletion.
    assert said(found) == said(volume)
    assert (outside / "rows").read_text() == "precious"


@pytest.mark.parametrize(
    ("place", "text"),
    [("", "is a whole pool"), (".localvolume/trash", "is none of a volume's")],
)
def test_a_path_that_is_no_volumes(dynamic: DynamicLab, place: str, text: str) -> None:
    """Others, with ".." or "//", the API server refuses; tests/decisions has them."""
    pool = root(dynamic)
    cls = _class(dynamic)
    _, other = left_behind(dynamic, "local-path", cls, pool)
    at = pool.directory / place if place else pool.directory
    claim, volume = left_behind(dynamic, "local-path", cls, pool, at=at, make=False)
    dynamic.start(others=in_place_of(dynamic, "local-path", pool))
    found = _held(dynamic, claim, volume, text)
    assert said(found) == said(volume)
    assert (dynamic.path_of(other) / "rows").read_text() == "precious"


@pytest.mark.parametrize("kind", ["local-path", "openebs"])
@pytest.mark.parametrize("which", ["above", "the same", "below"])
def test_a_path_that_holds_or_is_in_another_volume(
    dynamic: DynamicLab, kind: Kind, which: str
) -> None:
    """What a pattern made so, or a mistake: the other's data would go with it."""
    pool = root(dynamic)
    cls = _class(dynamic, kind)
    where = pool.directory / "tenants" / "one"
    _, other = left_behind(dynamic, kind, cls, pool, at=where)
    at = {"above": where.parent, "the same": where, "below": where / "part"}[which]
    claim, volume = left_behind(dynamic, kind, cls, pool, at=at, make=which == "below")
    dynamic.start(others=in_place_of(dynamic, kind, pool))
    found = _held(dynamic, claim, volume, "another volume's")
    assert said(found) == said(volume)
    assert (where / "rows").read_text() == "precious"
    assert at.exists()
    # Once the other is nobody's any more, it is clear whose it is.
    dynamic.stop()
    dynamic.plane.request(
        "DELETE", f"/api/v1/namespaces/default/persistentvolumeclaims/{_claim_of(other)}"
    )
    dynamic.remove(other)
    dynamic.start(others=in_place_of(dynamic, kind, pool))
    dynamic.gone(volume)
    assert not at.exists()


def _claim_of(volume: Volume) -> str:
    return str(volume["spec"]["claimRef"]["name"])


def test_a_path_above_a_volume_of_ours(dynamic: DynamicLab) -> None:
    """The same where the other one is on record."""
    pool = root(dynamic)
    cls = _class(dynamic)
    new = dynamic.storage_class(
        "new",
        provisioner=LOCAL_PATH,
        waits=True,
        parameters={"pathPattern": "{{ .PVC.Namespace }}/{{ .PVC.Name }}"},
    )
    others = in_place_of(dynamic, "local-path", pool)
    dynamic.start(others=others)
    ours = dynamic.made(scheduled(dynamic, new))
    (dynamic.path_of(ours) / "rows").write_text("precious")
    claim, volume = left_behind(
        dynamic, "local-path", cls, pool, at=pool.directory / "default", make=False
    )
    _held(dynamic, claim, volume, "another volume's")
    assert (dynamic.path_of(ours) / "rows").read_text() == "precious"


# --- what lies there ---------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["in its place", "on the way"])
def test_a_symbolic_link(dynamic: DynamicLab, where: str) -> None:
    """Somebody with root on the node, or a pod that had the parent: it must not be followed."""
    pool = root(dynamic)
    cls = _class(dynamic)
    outside = dynamic.directory / "outside"
    (outside / "one").mkdir(parents=True)
    (outside / "one" / "rows").write_text("mine")
    at = pool.directory / "tenant" / "one"
    claim, volume = left_behind(dynamic, "local-path", cls, pool, at=at, make=False)
    if where == "in its place":
        at.parent.mkdir()
        at.symlink_to(outside / "one")
    else:
        at.parent.symlink_to(outside)
    dynamic.start(others=in_place_of(dynamic, "local-path", pool))
    wanted = "is not a directory" if where == "in its place" else "a symbolic link"
    _held(dynamic, claim, volume, wanted)
    assert (outside / "one" / "rows").read_text() == "mine"
    assert os.path.lexists(at)


def test_nothing_at_all(dynamic: DynamicLab) -> None:
    """Its disk may be away: upstream would say that it is removed."""
    pool = root(dynamic)
    cls = _class(dynamic, "kutti")
    left_behind(dynamic, "kutti", cls, pool)
    claim, volume = left_behind(dynamic, "kutti", cls, pool, make=False)
    dynamic.start(others=in_place_of(dynamic, "kutti", pool))
    _held(dynamic, claim, volume, "there is nothing at")


def test_a_mount_in_its_place(dynamic: DynamicLab) -> None:
    """What an administrator mounted over the directory is not the volume."""
    pool = root(dynamic)
    claim, volume = left_behind(dynamic, "kutti", _class(dynamic, "kutti"), pool)
    where = dynamic.path_of(volume)
    dynamic.mount(dynamic.disk("ext4"), where)
    (where / "rows").write_text("mine")
    dynamic.start(others=in_place_of(dynamic, "kutti", pool))
    _held(dynamic, claim, volume, "another filesystem")
    assert (where / "rows").read_text() == "mine"


# --- who has it --------------------------------------------------------------------------------


@pytest.mark.parametrize("made_by", ["them", "us"])
def test_a_pods_mount(dynamic: DynamicLab, made_by: str) -> None:
    """A claim's finalizer can be taken away by force while its pod still runs."""
    pool = root(dynamic)
    others = in_place_of(dynamic, "kutti", pool)
    if made_by == "us":
        dynamic.start(others=others)
        claim = scheduled(dynamic, dynamic.storage_class("new", provisioner=KUTTI, waits=True))
        volume = dynamic.made(claim)
        (dynamic.path_of(volume) / "rows").write_text("precious")
    else:
        claim, volume = left_behind(dynamic, "kutti", _class(dynamic, "kutti"), pool)
        dynamic.start(others=others)
    with bind(dynamic.path_of(volume)) as pods:
        _held(dynamic, claim, volume, "is in use: it is mounted at")
        assert (pods / "rows").read_text() == "precious"
        unmount(pods)
        dynamic.gone(volume)
    dynamic.until(lambda: (pool.inside(), pool.trash()), lambda left: left == ([], []))


# --- whose it is -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_provisioner_that_is_not_replaced_here(dynamic: DynamicLab, kind: Kind) -> None:
    """An agent that does not serve it leaves its volumes alone, label or not."""
    pool = root(dynamic)
    claim, volume = left_behind(dynamic, kind, _class(dynamic, kind), pool)
    dynamic.pool()
    dynamic.start()
    found = _held(dynamic, claim, volume, "no pool of this node is for the provisioner")
    assert said(found) == said(volume)
    assert (dynamic.path_of(volume) / "rows").read_text() == "precious"
    assert ".localvolume" not in os.listdir(pool.directory)


def test_a_pool_of_another_provisioner(dynamic: DynamicLab) -> None:
    """local-path's volumes are none of kutti's, even in kutti's directory."""
    pool: MadePool = root(dynamic)
    claim, volume = left_behind(dynamic, "local-path", _class(dynamic), pool)
    dynamic.start(others=in_place_of(dynamic, "kutti", pool))
    _held(dynamic, claim, volume, "no pool of this node is for the provisioner")
    assert (dynamic.path_of(volume) / "rows").read_text() == "precious"
