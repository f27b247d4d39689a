"""kill -9 of the agent at any moment: nothing is leaked, nothing is lost, all is offered again.

Around an agent that is killed again and again, an adversary lives: claims come, write and go,
PersistentVolumes are deleted by hand, filesystems unmounted, configurations edited. An observer
looks into every volume at the moment it is offered. The agent dies at chosen points (before and
after its writes to the API server and its destructive calls to the host) and at random times.

LOCALVOLUME_KILLS (220) is how many kills, LOCALVOLUME_SEED the seed to begin with: it makes the
same choices again, though what they meet depends on the machine's timing.
"""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localvolume.controlplane import ControlPlane
from tests.faults.support_adversary import CLAIMS, VOLUMES, Adversary
from tests.faults.support_ground import NODE, Ground, ground
from tests.faults.support_lives import Execed, Point, Zygote
from tests.faults.support_observer import Observer

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

KILLS = int(os.environ.get("LOCALVOLUME_KILLS", "220"))
SEED = int(os.environ.get("LOCALVOLUME_SEED", str(random.randrange(10**6))))
#: Of how many kills one is of an agent that was started as a program of its own.
_EXECED_EVERY = 12
#: Lives that are added for points that were never met by chance.
_MORE = 60


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
        self.arguments = ["--config", str(made.config), "--listen-address", "127.0.0.1:0"]
        self.environment = {"MY_NODE_NAME": NODE, "KUBECONFIG": str(plane.kubeconfig)}
        self.zygote = Zygote(directory, self.arguments, self.environment)
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

    def until_settled(self, kept: str = "Available", seconds: float = 60) -> None:
        """Wait until all is as it should be; `kept` is the phase of the Retain volume then."""
        deadline = time.monotonic() + seconds
        while wrong := self.unsettled(kept):
            ended = self.zygote.died(0)
            if ended is not None or self.observer.violations or time.monotonic() > deadline:
                log = self.zygote.log.read_text()[-6000:]
                pytest.fail(f"{self.observer.violations or wrong}\nthe agent's log:\n{log}")
            time.sleep(0.1)


@pytest.fixture
def stage(plane: ControlPlane, tmp_path: Path) -> Iterator[Stage]:
    with ground(tmp_path, plane) as made:
        stage = Stage(plane, made, tmp_path)
        with stage.zygote, stage.observer:
            yield stage


#: What an agent dies before and after, and up to which of them in one life.
_POINTS = {"create": 3, "patch": 4, "delete": 3, "unlink": 3000, "rmdir": 8, "zero": 4, "wipefs": 1}


def _moment(chance: random.Random) -> tuple[Point | None, float]:
    """Where the next agent dies by itself, and after how many seconds it is killed at the latest.

    It is connected after 0.1 s, has read everything after 0.2 s and publishes or cleans from then
    on: random times reach from before that to far into the work.
    """
    if chance.random() < 0.3:
        return None, chance.choice((chance.uniform(0, 0.3), chance.uniform(0.1, 1.2)))
    kind = chance.choice(list(_POINTS))
    # The first few are met most often, the last ones now and then.
    n = int(_POINTS[kind] ** chance.uniform(0, 1.0))
    return Point(kind, n, chance.choice(("before", "after"))), 0.9


def _never_met(zygote: Zygote) -> Point | None:
    met = set(zygote.hits.read_text().splitlines())
    points = (Point(kind, 1, when) for kind in _POINTS for when in ("before", "after"))
    return next((point for point in points if f"{point.when} {point.kind}" not in met), None)


def _life(zygote: Zygote, point: Point | None, seconds: float) -> str:
    """One agent from its birth to its death; how it died."""
    zygote.start(point)
    status = zygote.died(seconds)
    if status is None:
        zygote.kill()
        return "at any time"
    assert status == -signal.SIGKILL, zygote.log.read_text()[-3000:]
    return "at a point"


def test_nothing_is_lost_or_leaked(stage: Stage, tmp_path: Path) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    died: Counter[str] = Counter()
    observer, zygote = stage.observer, stage.zygote
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
    released = adversary.claim("keep")
    _until(adversary.look_after)
    adversary.leave(released)
    zygote.kill()

    with adversary:
        for number in range(KILLS):
            if number % _EXECED_EVERY == _EXECED_EVERY - 1:
                execed = Execed(stage.arguments, stage.environment, zygote.log)
                time.sleep(chance.uniform(0.3, 2.5))
                execed.kill()
                died["at any time, started as a program"] += 1
            else:
                died[_life(zygote, *_moment(chance))] += 1
            assert not observer.violations, (f"seed {SEED}", observer.violations)
        for _ in range(_MORE):
            if (point := _never_met(zygote)) is None:
                break
            died[_life(zygote, point, 2.0)] += 1
        adversary.finish()
    hits = Counter(zygote.hits.read_text().splitlines())
    print(f"{dict(died)}, at points: {dict(hits)}")
    print(f"{observer.created} published, {observer.offers} looked into; {dict(adversary.done)}")

    zygote.start()
    stage.until_settled(kept="Released")
    for tenant in adversary.residents():
        adversary.look_in_on(tenant)
    kept = stage.ground.kept.found()
    assert len(kept) == 1, kept
    assert not stage.ground.kept.missing(kept.pop())
    zygote.kill(signal.SIGTERM)
    assert not observer.violations, (f"seed {SEED}", observer.violations)
    assert stage.ground.bare() == before, f"seed {SEED}"
    # That it met what it was made to meet.
    assert died.total() >= KILLS
    assert _never_met(zygote) is None, hits
    assert observer.offers > KILLS / 10


def test_the_observer_notices_an_agent_that_does_not_clean(stage: Stage) -> None:
    """Else the other test could not fail."""
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
        tenant = adversary.claim(class_name)
        _until(adversary.look_after)
        adversary.leave(tenant)
        _until(lambda: stage.observer.violations)
        assert any("with data of" in text for text in stage.observer.violations)
        assert any(f"'{class_name}'" in text for text in stage.observer.violations)
        stage.observer.violations.clear()


def _until(is_so: Any, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)
