"""Claims and volumes while the agent is down, comes up, is updated, or is held up by its disk."""

import contextlib
import os
import time
from collections.abc import Iterator

import pytest

from localvolume.agent.options import AgentOptions
from localvolume.config.flags.listening import ListenAddress
from localvolume_lab.controlplane.ports import free_ports
from tests.cluster.support_agent import AgentThread
from tests.cluster.support_dynamic import DynamicLab
from tests.cluster.support_endpoints import http
from tests.cluster.support_frozen import frozen
from tests.suite.names import NODE_LABEL

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")


# --- down --------------------------------------------------------------------------------------


def test_what_was_asked_for_meanwhile_is_served_at_the_start(dynamic: DynamicLab) -> None:
    """Claims made and claims deleted (L05) while no agent ran."""
    pool = dynamic.pool()
    cls = dynamic.storage_class()
    dynamic.start()
    gone, kept = (dynamic.claim(cls) for _ in range(2))
    old, stays = dynamic.made(gone), dynamic.made(kept)
    (dynamic.path_of(stays) / "rows").write_text("precious")
    dynamic.stop()
    dynamic.delete(gone)
    name = old["metadata"]["name"]
    dynamic.until(lambda: dynamic.phase(name), lambda phase: phase == "Released")
    new = dynamic.claim(cls)
    deleted = dynamic.claim(cls)
    dynamic.delete(deleted)
    dynamic.start()
    dynamic.made(new)
    dynamic.gone(old)
    dynamic.settle()
    assert dynamic.volume_of(deleted) is None
    assert len(pool.inside()) == 2
    assert (dynamic.path_of(stays) / "rows").read_text() == "precious"


def test_retain_keeps_data_and_object_and_without_object_the_data(dynamic: DynamicLab) -> None:
    """L09, L16; whoever deletes the object says nothing about the data, which is then an orphan."""
    dynamic.pool()
    cls = dynamic.storage_class(reclaimPolicy="Retain")
    dynamic.start()
    claim = dynamic.claim(cls)
    volume = dynamic.made(claim)
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    where = dynamic.path_of(volume)
    (where / "rows").write_text("precious")
    dynamic.delete(claim)
    name = volume["metadata"]["name"]
    dynamic.until(lambda: dynamic.phase(name), lambda phase: phase == "Released")
    dynamic.stays(volume)
    dynamic.stop()
    dynamic.start()
    dynamic.stays(volume)
    dynamic.plane.request("DELETE", f"/api/v1/persistentvolumes/{name}")
    dynamic.gone(volume)
    dynamic.settle()
    assert (where / "rows").read_text() == "precious"
    # The watch of the Node, which settles it, may be ahead of that of the PersistentVolumes.
    dynamic.until(lambda: dynamic.metric("localvolume_pool_orphans", pool="fast"), lambda n: n == 1)


# --- held up -----------------------------------------------------------------------------------


def test_a_claim_that_is_deleted_while_its_volume_is_made_leaves_nothing(
    dynamic: DynamicLab,
) -> None:
    """L24: it comes to an end, and nothing is left: no object, no directory, no record."""
    pool = dynamic.pool()
    cls = dynamic.storage_class()
    dynamic.start()
    with frozen(pool.directory):
        claim = dynamic.claim(cls)
        dynamic.claim_event(claim, "Provisioning")
        dynamic.delete(claim)
        dynamic.until(lambda: dynamic.read_claim(claim), lambda found: found is None)
    # Before it goes on, there is nothing either.
    dynamic.until(lambda: "INFO published" in dynamic.log(), bool)
    dynamic.until(
        lambda: (dynamic.volumes(), pool.inside(), pool.records(), pool.trash()),
        lambda left: left == ([], [], [], []),
    )
    dynamic.settle()
    assert dynamic.volumes() == []
    assert pool.inside() == []


def test_a_claim_of_the_same_name_gets_a_volume_of_its_own(dynamic: DynamicLab) -> None:
    """Deleted and made anew while the first one's volume is under way."""
    pool = dynamic.pool()
    cls = dynamic.storage_class()
    dynamic.start()
    name = f"{dynamic.unique}-database"
    with frozen(pool.directory):
        first = dynamic.claim(cls, name=name)
        dynamic.claim_event(first, "Provisioning")
        dynamic.delete(first)
        dynamic.until(lambda: dynamic.read_claim(first), lambda found: found is None)
        second = dynamic.claim(cls, name=name)
    volume = dynamic.made(second)
    assert volume["spec"]["claimRef"]["uid"] == second["metadata"]["uid"]
    dynamic.until(pool.inside, lambda inside: inside == [volume["metadata"]["name"]])
    dynamic.until(lambda: len(dynamic.volumes()), lambda count: count == 1)


def test_an_agent_that_ends_while_it_makes_a_volume(dynamic: DynamicLab) -> None:
    """What it had begun is ended by the next one, once."""
    pool = dynamic.pool()
    cls = dynamic.storage_class()
    dynamic.start_process()
    with frozen(pool.directory):
        claim = dynamic.claim(cls)
        dynamic.claim_event(claim, "Provisioning")
        time.sleep(0.2)
        process = dynamic.agent
        dynamic.agent = None
        assert process is not None
        process.process.kill()  # type: ignore[union-attr]  # started as a process above
    process.process.wait(120)  # type: ignore[union-attr]
    dynamic.start()
    volume = dynamic.made(claim)
    name = volume["metadata"]["name"]
    assert pool.inside() == [name]
    dynamic.until(lambda: len(pool.records()), lambda count: count == 1)


# --- updated -----------------------------------------------------------------------------------


class _Second:
    """A second agent of the same node, as after an update that does not wait for the first."""

    def __init__(self, lab: DynamicLab) -> None:
        self.port = free_ports(1)[0]
        options = AgentOptions(
            node_name=lab.node,
            config_directory=str(lab.config_directory),
            kubeconfig=str(lab.plane.kubeconfig),
            listen_address=ListenAddress("127.0.0.1", self.port),
        )
        self.agent = AgentThread(options)

    def ready(self) -> tuple[int, str]:
        self.agent.check()
        return http(self.port, "/ready")


@contextlib.contextmanager
def _second(lab: DynamicLab) -> Iterator[_Second]:
    second = _Second(lab)
    try:
        yield second
    finally:
        second.agent.stop()


def test_two_agents_of_one_node_never_make_two_volumes(dynamic: DynamicLab) -> None:
    """The second waits, says so, and neither gives claims back nor holds what the first removes;
    when the first has ended it goes on by itself."""
    pool = dynamic.pool()
    cls = dynamic.storage_class()
    dynamic.start()
    before = dynamic.claim(cls)
    old = dynamic.made(before)
    with _second(dynamic) as second:
        dynamic.until(second.ready, lambda got: "another agent works in it" in got[1])
        claims = [dynamic.claim(cls) for _ in range(5)]
        for claim in claims:
            dynamic.made(claim)
        dynamic.delete(before)
        dynamic.gone(old)
        for claim in claims:
            found = dynamic.read_claim(claim)
            assert found is not None
            assert found["metadata"]["labels"][NODE_LABEL] == dynamic.node
            reasons = {one["reason"] for one in dynamic.events(claim["metadata"]["name"])}
            assert "ProvisioningFailed" not in reasons
        said = {one["reason"] for one in dynamic.events(old["metadata"]["name"])}
        assert "VolumeFailedDelete" not in said
        assert len(pool.inside()) == len(dynamic.volumes()) == 5

        # Nothing happens any more that would tell it to look.
        time.sleep(4)
        dynamic.stop()
        dynamic.until(second.ready, lambda got: got[0] == 200)
        volume = dynamic.made(dynamic.claim(cls))
        dynamic.delete(claims[0])
        dynamic.until(lambda: len(pool.inside()), lambda count: count == 5)
        assert os.listdir(dynamic.path_of(volume)) == []


def test_the_second_agent_leaves_what_the_first_has_begun(dynamic: DynamicLab) -> None:
    """However long that takes: another node must not be asked for a volume meanwhile."""
    pool = dynamic.pool()
    cls = dynamic.storage_class()
    dynamic.start()
    dynamic.made(dynamic.claim(cls))
    with _second(dynamic) as second:
        dynamic.until(second.ready, lambda got: "another agent works in it" in got[1])
        policy = dynamic.forbid_creation()
        claim = dynamic.claim(cls)
        dynamic.until(lambda: len(pool.records()), lambda count: count == 2)
        time.sleep(4)
        found = dynamic.read_claim(claim)
        assert found is not None
        assert found["metadata"]["labels"][NODE_LABEL] == dynamic.node
        assert not dynamic.logged("given back")
        dynamic.plane.request("DELETE", policy)
        volume = dynamic.made(claim)
        # A record that is being written has another one beside it for a moment.
        dynamic.until(lambda: (len(pool.inside()), len(pool.records())), lambda n: n == (2, 2))
        assert dynamic.path_of(volume).is_dir()
