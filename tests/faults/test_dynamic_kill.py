"""kill -9 of the agent at any moment of making, growing and removing volumes: none is leaked, none
is doubled, none is lost.

Around an agent that is killed again and again, an adversary lives: claims come, write, grow and go,
are deleted or sent to another node while their volume is made, PersistentVolumes are deleted by
hand, configurations edited. An observer looks at every volume when it is published. The agent dies
at chosen points (before and after its writes to the API server, to its records and to the disk) and
at random times.

One test dies once at each point, that of the soak at random ones for as long as it lasts. The seed
makes the same choices again, though what they meet depends on the machine's timing.
"""

import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localvolume_lab.controlplane import ControlPlane
from tests.faults.support_claims import Claim, ClaimAdversary
from tests.faults.support_contents import path_of
from tests.faults.support_lives import Killing, Point, Zygote, until_settled
from tests.faults.support_makings import MakingObserver
from tests.faults.support_poolground import BY_NAME, NODE, MadePool, PoolGround, pool_ground
from tests.suite.api import CLAIMS, VOLUMES
from tests.suite.chance import SEED
from tests.suite.until import until

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

#: What an agent dies before and after, and up to which of them in one life.
_POINTS = {
    "create": 3,
    "patch": 6,
    "delete": 3,
    "record-making": 6,
    "record-made": 3,
    "record-offered": 6,
    "record-removed": 3,
    "unrecord": 3,
    "mkdir": 6,
    "renameat2": 4,
    "make": 3,
    "place": 3,
    "unmake": 2,
    "back": 1,
    "grow": 2,
    "trash": 2,
    "purge": 2,
    "unlink": 800,
    "rmdir": 12,
    "image-make": 2,
    "image-grow": 1,
    "image-trash": 1,
    "image-purge": 1,
    "loop": 2,
    "unloop": 1,
}
#: How long an agent waits for its point.
_LIFE_SECONDS = 0.9
#: Volumes are taken back that are made, and whose claims have gone before it was told of them.
_FIRST = {"back": Point("create", 1), "unmake": Point("create", 1)}
#: The waits of the agent that are longer than its lives.
_HURRIED = {"dynamic": {"unwanted": 0.4, "first_wait": 0.2}}


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane for this test alone: nobody else's load shifts its timing."""
    with ControlPlane(tmp_path / "plane", scheduler=False) as plane:
        yield plane


class Stage:
    """All of it together."""

    def __init__(self, plane: ControlPlane, made: PoolGround, directory: Path) -> None:
        self.plane = plane
        self.ground = made
        arguments = [*made.arguments, "--listen-address", "127.0.0.1:0"]
        environment = {"MY_NODE_NAME": NODE, "KUBECONFIG": str(plane.kubeconfig)}
        self.zygote = Zygote(directory, arguments, environment, _HURRIED)
        self.observer = MakingObserver(plane, made)
        self.adversary = ClaimAdversary(plane, made, self.observer, SEED)

    def claim(self, kind: str, *, resident: bool = False) -> Claim:
        claim = self.adversary.claim(kind, resident=resident)
        assert claim is not None
        return claim

    # --- what is wrong ---------------------------------------------------------------------------

    def unsettled(self) -> list[str]:
        """What is not as it should be once everything has come to an end."""
        claims = {c["metadata"]["uid"]: c for c in self.plane.request("GET", CLAIMS)["items"]}
        volumes = self.plane.request("GET", VOLUMES)["items"]
        wrong = [text for claim in self.adversary.claims.values() for text in _fault(claim, claims)]
        served = {claim.uid for claim in self.adversary.claims.values()}
        wrong += [f"the claim {uid} is still there" for uid in claims.keys() - served]
        for volume in volumes:
            uid, phase = volume["spec"]["claimRef"]["uid"], volume["status"]["phase"]
            kept = volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
            if phase != ("Bound" if uid in served else "Released" if kept else "gone"):
                wrong.append(f"{volume['metadata']['name']} is {phase}: {volume}")
        for name, pool in self.ground.pools.items():
            wrong += [f"pool {name}: {text}" for text in self._faults_of(pool, volumes)]
        return wrong

    def _faults_of(self, pool: MadePool, volumes: list[dict[str, Any]]) -> Iterator[str]:
        """What its disk, its records and the PersistentVolumes say differently."""
        mine = {}
        for volume in volumes:
            where = self.ground.place_of(path_of(volume))
            assert where is not None
            if where[0] is pool:
                mine[volume["metadata"]["name"]] = where[1], volume
        # Of a volume that was taken from us by force, or by its policy, the data alone is left.
        left = {one.volume: one.path for one in self.adversary.left}
        for text in pool.leftovers():
            yield f"{text} is left"
        places = {place for place, _ in mine.values() if place}
        for path in left.values():
            if path.startswith(f"{pool.directory}/"):
                places.add(path.removeprefix(f"{pool.directory}/"))
        for text in pool.unexplained(places):
            yield f"{text} is left, and nothing explains it"
        records = pool.records()
        for name in (records.keys() ^ mine.keys()) - left.keys():
            yield f"{name}: there is {'a record' if name in records else 'no record'} of it"
        # The room that is accounted for is the room that was promised.
        promised = sum(record["size_bytes"] for record in records.values())
        wanted = sum(_bytes_of(volume) for _, volume in mine.values())
        wanted += sum(records[n]["size_bytes"] for n in records.keys() - mine.keys() & left.keys())
        if promised != wanted:
            yield f"{promised} bytes are accounted for, and {wanted} were promised"
        for name, (_, volume) in mine.items():
            record = records.get(name, {})
            uid = volume["metadata"]["uid"]
            if (record.get("state"), record.get("volume_uid")) != ("offered", uid):
                yield f"{name}: its record is {record}"
        images = {name for name, (place, _) in mine.items() if not place}
        for what, found in (
            ("images", sorted(pool.images())),
            ("links", sorted(pool.links())),
            ("loop devices", pool.loops()),
        ):
            if found != sorted(images):
                yield f"{what} {found} instead of {sorted(images)}"

    def healthy(self) -> None:
        assert not self.observer.violations, (f"seed {SEED}", self.observer.violations)

    def until_settled(self, seconds: float = 180) -> None:
        until_settled(self.unsettled, self.zygote, self.observer.violations, seconds)

    def all_is_there(self) -> None:
        """The data of those who hold a volume, and that which nobody was to remove."""
        for claim in self.adversary.claims.values():
            self.adversary.look_in_on(claim)
            assert claim.contents is not None
            assert claim.contents.is_there(), claim
            size = claim.contents.size()
            assert size is None or size >= claim.mib << 20, claim
        for left in self.adversary.left:
            if left.written:
                assert not left.contents.missing(left.uid), left
        self.healthy()


def _fault(claim: Claim, claims: dict[str, dict[str, Any]]) -> Iterator[str]:
    found = claims.get(claim.uid)
    status = found["status"] if found else {}
    has = status.get("capacity", {}).get("storage")
    if status.get("phase") != "Bound" or has != f"{claim.mib}Mi" or status.get("conditions"):
        yield f"{claim} of {claim.mib} MiB: {found}"


def _bytes_of(volume: dict[str, Any]) -> int:
    size: str = volume["spec"]["capacity"]["storage"]
    assert size.endswith("Mi"), size
    return int(size.removesuffix("Mi")) << 20


@pytest.fixture
def stage(plane: ControlPlane, tmp_path: Path) -> Iterator[Stage]:
    with pool_ground(tmp_path, plane) as made:
        stage = Stage(plane, made, tmp_path)
        with stage.zygote, stage.observer:
            stage.adversary.configure()
            yield stage


def test_killed_once_at_each_point_no_volume_is_leaked_doubled_or_lost(stage: Stage) -> None:
    killing = play(stage, Killing.at_each_point)
    assert not killing.never_met(), killing.hits()


@pytest.mark.soak
def test_killed_at_any_moment_no_volume_is_leaked_doubled_or_lost(stage: Stage) -> None:
    play(stage, Killing.at_random)


def play(stage: Stage, kill: Callable[[Killing, Callable[..., None]], None]) -> Killing:
    """Everybody's life around agents that die, and what must be so in the end."""
    print(f"seed {SEED}")
    adversary, zygote = stage.adversary, stage.zygote
    chance = random.Random(SEED)
    killing = Killing(zygote, _POINTS, chance, _LIFE_SECONDS, _FIRST)
    zygote.start()
    for name in BY_NAME:
        stage.claim(name, resident=True)
    until(adversary.look_after)
    stage.until_settled()
    zygote.kill()

    def between_lives(point: Point | None) -> None:
        stage.healthy()
        if point is not None and point.kind in _FIRST:
            adversary.hurry()
            time.sleep(0.15)
        elif chance.random() < 0.15:
            adversary.hurry()

    with adversary:
        kill(killing, between_lives)
        adversary.finish()
    print(f"{dict(killing.died)}, at points: {dict(killing.hits())}; {killing.slowness:.1f}")
    print(f"{stage.observer.created} published, {stage.observer.offers} looked into")
    print(dict(adversary.done))
    zygote.start()
    until(adversary.look_after)
    stage.until_settled()
    stage.all_is_there()
    for claim in list(adversary.claims.values()):
        adversary.leave(claim)
    stage.until_settled()
    stage.all_is_there()
    zygote.kill(signal.SIGTERM)
    # That volumes were looked into meanwhile.
    assert stage.observer.offers > killing.died.total() / 10
    return killing


# --- an agent that does wrong is noticed, else the tests above could not fail ---------------------


def _until_noticed(stage: Stage, text: str) -> None:
    until(lambda: any(text in violation for violation in stage.observer.violations))


def _used(stage: Stage, kind: str) -> Claim:
    """A claim of that class that has moved in, however long it had to wait."""
    claim = stage.claim(kind, resident=True)
    until(stage.adversary.look_after)
    return claim


@pytest.mark.soak
def test_a_volume_that_is_only_said_to_be_removed_is_noticed(stage: Stage) -> None:
    stage.zygote.start(Point("never-remove", 0))
    claim = _used(stage, "fast")
    stage.until_settled()
    stage.adversary.leave(claim)
    until(lambda: any(f"{claim.volume} is left" in text for text in stage.unsettled()))


@pytest.mark.soak
def test_a_volume_that_holds_data_of_another_is_noticed(stage: Stage) -> None:
    stage.zygote.start(Point("reuse", 0))
    claim = _used(stage, "undone")
    stage.adversary.leave(claim)
    until(lambda: stage.plane.request("GET", VOLUMES)["items"] == [])
    # The record goes when it is said to be purged.
    until(lambda: not stage.ground.pools["two"].records())
    stage.claim("undone")
    _until_noticed(stage, f"was published with data of {{'{claim.uid}'}}")


@pytest.mark.soak
def test_a_place_that_is_named_twice_is_noticed(stage: Stage) -> None:
    stage.zygote.start(Point("double", 0))
    _used(stage, "fast")
    stage.claim("fast")
    _until_noticed(stage, "is named twice")


@pytest.mark.soak
def test_data_that_is_gone_is_noticed(stage: Stage) -> None:
    stage.zygote.start()
    claim = _used(stage, "fast")
    stage.zygote.kill()
    stage.adversary.look_in_on(claim)
    stage.healthy()
    stage.zygote.start(Point("lose", 0))
    # It was emptied before the agent made the next one.
    _used(stage, "fast")
    stage.adversary.look_in_on(claim)
    _until_noticed(stage, "held its volume, and of its data")
