"""kill -9 of the agent at any moment: nothing is leaked, nothing is lost, all is offered again.

Around an agent that is killed again and again, an adversary lives: claims come, write and go,
PersistentVolumes are deleted by hand, filesystems unmounted, configurations edited. An observer
looks into every volume at the moment it is offered. The agent dies at chosen points (before and
after its writes to the API server and its destructive calls to the host) and at random times.

One test dies once at each point, that of the soak at random ones for as long as it lasts. The seed
makes the same choices again, though what they meet depends on the machine's timing.
"""

import random
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from localvolume_lab.controlplane import ControlPlane
from tests.faults.support_adversary import Adversary
from tests.faults.support_ground import NODE, Ground, ground
from tests.faults.support_lives import Killing, Point, Zygote, until_settled
from tests.faults.support_observer import Observer
from tests.suite.api import CLAIMS, VOLUMES
from tests.suite.chance import SEED
from tests.suite.until import until

pytestmark = pytest.mark.needs("root", "loop", "ext4", "mkswap", "controlplane")

#: What an agent dies before and after, and up to which of them in one life.
_POINTS = {"create": 3, "patch": 4, "delete": 3, "unlink": 3000, "rmdir": 8, "zero": 4, "wipefs": 1}
#: How long an agent waits for its point.
_LIFE_SECONDS = 0.9


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane for this test alone: nobody else's load shifts its timing."""
    with ControlPlane(tmp_path / "plane", scheduler=False) as plane:
        yield plane


class Stage:
    """All of it together."""

    def __init__(self, plane: ControlPlane, made: Ground, directory: Path) -> None:
        self.plane = plane
        self.ground = made
        arguments = ["--config", str(made.config), "--listen-address", "127.0.0.1:0"]
        environment = {
            "MY_NODE_NAME": NODE,
            "KUBECONFIG": str(plane.kubeconfig),
            "KUBELET_DIR": "none",
        }
        self.zygote = Zygote(directory, arguments, environment)
        self.observer = Observer(plane, made.volumes)

    def published(self) -> dict[tuple[str, str], list[dict[str, Any]]]:
        found: dict[tuple[str, str], list[dict[str, Any]]] = {
            key: [] for key in self.ground.volumes
        }
        for volume in self.plane.request("GET", VOLUMES)["items"]:
            spec = volume["spec"]
            found.setdefault((spec["storageClassName"], spec["local"]["path"]), []).append(volume)
        return found

    def unsettled(self, kept: str) -> list[str]:
        """Which volumes are not published exactly once, and offered or held as they should be."""
        wrong = []
        claims = {c["metadata"]["uid"] for c in self.plane.request("GET", CLAIMS)["items"]}
        for key, found in self.published().items():
            if len(found) != 1:
                wrong.append(f"{key}: {len(found)} PersistentVolumes")
                continue
            claim = found[0]["spec"].get("claimRef", {}).get("uid")
            wanted = "Bound" if claim in claims else kept if key[0] == "keep" else "Available"
            phase = found[0]["status"].get("phase")
            deleted = found[0]["metadata"].get("deletionTimestamp")
            # Whoever deletes one that a claim holds asks for its end when the claim is gone.
            if phase != wanted or (deleted and phase != "Bound"):
                wrong.append(f"{key}: {phase} instead of {wanted}: {found[0]['metadata']}")
        return wrong

    def until_settled(self, kept: str = "Available", seconds: float = 180) -> None:
        """Wait until all is as it should be; `kept` is the phase of the Retain volume then."""
        violations = self.observer.violations
        until_settled(lambda: self.unsettled(kept), self.zygote, violations, seconds)


@pytest.fixture
def stage(plane: ControlPlane, tmp_path: Path) -> Iterator[Stage]:
    with ground(tmp_path, plane) as made:
        stage = Stage(plane, made, tmp_path)
        with stage.zygote, stage.observer:
            yield stage


def test_killed_once_at_each_point_nothing_is_lost_or_leaked(stage: Stage) -> None:
    killing = play(stage, Killing.at_each_point)
    assert not killing.never_met(), killing.hits()


@pytest.mark.soak
def test_killed_at_any_moment_nothing_is_lost_or_leaked(stage: Stage) -> None:
    play(stage, Killing.at_random)


def play(stage: Stage, kill: Callable[[Killing, Callable[..., None]], None]) -> Killing:
    """Everybody's life around agents that die, and what must be so in the end."""
    print(f"seed {SEED}")
    observer, zygote = stage.observer, stage.zygote
    killing = Killing(zygote, _POINTS, random.Random(SEED), _LIFE_SECONDS)
    before = stage.ground.bare()
    adversary = Adversary(
        stage.plane,
        stage.ground.volumes,
        observer,
        stage.ground.config,
        stage.ground.settings,
        SEED,
    )
    adversary.configure()
    zygote.start()
    stage.until_settled()
    for class_name in ("fs", "raw"):
        adversary.claim(class_name, resident=True)
    # None of them is taken back, however long it has to wait.
    released = adversary.claim("keep", resident=True)
    until(adversary.look_after)
    adversary.leave(released)
    zygote.kill()

    def healthy(_: Point | None = None) -> None:
        assert not observer.violations, (f"seed {SEED}", observer.violations)

    with adversary:
        kill(killing, healthy)
        adversary.finish()
    print(f"{dict(killing.died)}, at points: {dict(killing.hits())}; {killing.slowness:.1f}")
    print(f"{observer.created} published, {observer.offers} looked into; {dict(adversary.done)}")

    zygote.start()
    stage.until_settled(kept="Released")
    for tenant in adversary.residents():
        adversary.look_in_on(tenant)
    kept = stage.ground.kept.found()
    assert len(kept) == 1, kept
    assert not stage.ground.kept.missing(kept.pop())
    zygote.kill(signal.SIGTERM)
    healthy()
    assert stage.ground.bare() == before, f"seed {SEED}"
    # That volumes were looked into meanwhile.
    assert observer.offers > killing.died.total() / 10
    return killing


@pytest.mark.soak
def test_the_observer_notices_an_agent_that_does_not_clean(stage: Stage) -> None:
    """Else the other tests could not fail."""
    adversary = Adversary(
        stage.plane,
        stage.ground.volumes,
        stage.observer,
        stage.ground.config,
        stage.ground.settings,
        SEED,
    )
    adversary.configure()
    stage.zygote.start(Point("never-clean", 0))
    stage.until_settled()
    for class_name in ("fs", "raw"):
        tenant = adversary.claim(class_name, resident=True)
        until(adversary.look_after)
        adversary.leave(tenant)
        until(partial(_noticed, stage.observer, class_name))


def _noticed(observer: Observer, class_name: str) -> bool:
    return any(f"'{class_name}'" in text and "with data of" in text for text in observer.violations)
