"""When what was said of a volume made for a claim is taken back: once nothing of it is so any more,
on the same object, and once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec import structs

from localvolume.backends.model import BackendFailed
from localvolume.config.provisioner import CSI_DRIVER
from localvolume.dynamic.executor import Executor
from localvolume.dynamic.model import Action, Facts, Keep, Plan, Remember, TakeOver
from localvolume.dynamic.paces import DynamicPaces
from localvolume.dynamic.plan.given import NOBODY
from localvolume.dynamic.plan.plan import plan
from localvolume.kube.objects import CSISource, PersistentVolume
from localvolume.volumes import marks
from localvolume.volumes.periods import Moment
from tests.decisions.support_dynamic import (
    NOW,
    Thing,
    action,
    adopted,
    bound,
    facts,
    old_pool,
    pool,
    record,
    reserved,
    volume,
)

WARNED = {"pvc-1": "volume-1"}


def over(*things: Thing, **changes: Any) -> str:
    """Why what was said of volume 1 is over, "" if it is not."""
    found = plan(facts(*things, **{"warned": WARNED, **changes})).over
    assert found.keys() <= {"pvc-1"}
    return found.get("pvc-1", "")


def driven(one: PersistentVolume) -> PersistentVolume:
    """The same volume of our CSI driver."""
    csi = CSISource(driver=CSI_DRIVER, volume_handle=one.metadata.name)
    return structs.replace(one, spec=structs.replace(one.spec, local=None, csi=csi))


ANOTHER = volume(uid="another")
OF_DRIVER = {"provisioners": frozenset({CSI_DRIVER})}
GIVEN = pool(record(given=("2", "3"), generation=2))
HANDED = {marks.GENERATION_ANNOTATION: "2"}


@pytest.mark.parametrize(
    "well",
    [
        pytest.param([volume(), pool(record())], id="its claim has it"),
        pytest.param([volume(), bound(size="5Ti"), pool(record())], id="its claim asks for more"),
        pytest.param([reserved(phase="Available"), pool(record(given=(NOBODY,)))], id="undone"),
        pytest.param([volume(phase="Released", policy="Retain"), pool(record())], id="to be kept"),
        pytest.param([volume(deleted=True, finalizers=("theirs",)), pool()], id="gone from here"),
        pytest.param([adopted(), old_pool()], id="of an older provisioner"),
    ],
)
def test_it_is_over_once_nothing_is_to_be_done(well: list[Thing]) -> None:
    assert over(*well)
    assert not over(*well, warned={})


def test_it_is_over_while_the_removal_waits_its_time() -> None:
    """It was held because nobody could tell for how long: its class is there again."""
    released = volume(phase="Released", since="2027-01-15T07:59:00Z", until="2027-01-15T08:01:00Z")
    assert "can still be undone" in over(released, pool(record()))
    # A clock is far ahead.
    leapt = Moment(NOW + 1e9, NOW)
    assert not over(released, pool(record()), now=leapt)


@pytest.mark.parametrize(
    "still",
    [
        pytest.param([volume(phase="Released"), pool(problem="not mounted")], id="held"),
        pytest.param([volume(), pool(problem="not mounted")], id="held, and nobody waits for it"),
        pytest.param([volume(phase="Released"), pool(record())], id="to be deleted"),
        pytest.param([volume(deleted=True, phase="Released"), pool(record())], id="to be retired"),
        pytest.param([volume(claim_uid="2"), pool(record())], id="to be noted"),
        pytest.param([volume(finalizers=()), pool(record())], id="to be secured"),
        pytest.param(
            [adopted(policy="Retain", phase="Released", path="/x"), old_pool()], id="lost"
        ),
        pytest.param([], id="nowhere to be seen"),
        pytest.param([ANOTHER, pool(record(volume_uid="another"))], id="another object"),
    ],
)
def test_it_is_not_over_while_it_is_so_or_nobody_knows(still: list[Thing]) -> None:
    assert not over(*still)


def test_nobody_knows_what_comes_of_what_is_under_way() -> None:
    assert over(volume(), pool(record()))
    assert not over(volume(), pool(record()), busy={"pvc-1"})


@pytest.mark.parametrize("deleted", [False, True])
def test_a_volume_is_kept_from_its_claim_until_an_administrator_says_otherwise(
    deleted: bool,
) -> None:
    """Also while its object is being deleted, and the claim still has it."""
    before = driven(volume(provisioner=CSI_DRIVER, claim_uid="3", deleted=deleted))
    assert not over(before, bound(3), GIVEN, **OF_DRIVER)
    notes = {**before.metadata.annotations, **HANDED}
    said = structs.replace(before, metadata=structs.replace(before.metadata, annotations=notes))
    assert over(said, bound(3), GIVEN, **OF_DRIVER)


def test_others_data_is_others_also_if_it_is_not_to_be_removed() -> None:
    known = pool(record(given=("2",)))
    kept = volume(phase="Released", policy="Retain")
    assert isinstance(action(kept, known), Keep)
    assert not over(kept, known)
    assert over(volume(phase="Released", policy="Retain", claim_uid="2"), known)


def test_a_volume_that_a_call_made_has_no_place_that_its_object_tells() -> None:
    made = driven(adopted(provisioner=CSI_DRIVER, class_name="local"))
    known = pool(record(request="of a call", driver=CSI_DRIVER))
    assert "a CSI call" in over(made, known, **OF_DRIVER)


# --- saying it ---------------------------------------------------------------------------------


@dataclass
class Telling:
    """Acts that fail while there is an `error`, and keep what is said of volumes."""

    error: str = ""
    said: list[str] = field(default_factory=list)
    tried: int = 0

    async def do(self, _action: Action, _facts: Facts) -> None:
        self.tried += 1
        if self.error:
            raise BackendFailed(self.error)

    def count_failure(self, _action: Action) -> None: ...

    def say_of_volume(self, about: PersistentVolume, type_: str, reason: str, text: str) -> None:
        self.said.append(f"{about.metadata.uid}: {type_} {reason}: {text}")


class Looks:
    """Looks of a role, one after another."""

    def __init__(self) -> None:
        self.acts = Telling()
        self.executor = Executor(
            self.acts,  # type: ignore[arg-type]
            wake=lambda: None,
            paces=DynamicPaces(first_wait=0.0, longest_wait=0.0),
        )

    async def look(self, *things: Thing, **changes: Any) -> list[str]:
        """What is said of volumes by it, and by what it begins."""
        self.acts.said.clear()
        found = facts(*things, **{"warned": self.executor.warned, **changes})
        self.executor.begin(plan(found), found)
        while self.executor.busy:
            await asyncio.sleep(0)
        return list(self.acts.said)


AWAY = pool(problem="not mounted")
RELEASED = volume(phase="Released")
NOT_MOUNTED = "volume-1: Warning VolumeFailedDelete: pool fast: not mounted"
OVER = "volume-1: Normal VolumePutRight: what was said of it is over: nothing is to be done for it"


async def test_that_a_hold_is_over_is_said_once() -> None:
    looks = Looks()
    assert await looks.look(volume(), pool(record())) == []
    assert await looks.look(RELEASED, AWAY) == [NOT_MOUNTED]
    # The removal was undone meanwhile, which nobody sees of a pool that is away.
    assert await looks.look(volume(), AWAY) == []
    assert await looks.look(volume(), pool(record())) == [OVER]
    assert await looks.look(volume(), pool(record())) == []
    assert await looks.look(RELEASED, AWAY) == [NOT_MOUNTED]


async def test_that_it_is_over_is_said_also_an_hour_later() -> None:
    looks = Looks()
    assert await looks.look(RELEASED, AWAY) == [NOT_MOUNTED]
    looks.executor.say_again()
    assert await looks.look(volume(), pool(record())) == [OVER]


async def test_of_an_object_that_is_gone_nothing_is_said() -> None:
    for after in ([], [volume(uid="another")]):
        looks = Looks()
        assert await looks.look(RELEASED, AWAY) == [NOT_MOUNTED]
        assert await looks.look(*after, AWAY) == []
        assert looks.executor.warned == {}


async def test_that_a_failure_is_over_is_said_once_it_succeeds() -> None:
    looks = Looks()
    looks.acts.error = "no space"
    given = driven(volume(provisioner=CSI_DRIVER, claim_uid="2"))
    before = pool(record(driver=CSI_DRIVER))
    (said,) = await looks.look(given, before, **OF_DRIVER)
    assert said.startswith("volume-1: Warning VolumeKeptFromClaim: its pool cannot note which")
    looks.acts.error = ""
    # It is noted now, which the pool's next report shows.
    assert await looks.look(given, before, **OF_DRIVER) == []
    noted = pool(record(driver=CSI_DRIVER, given=("2",), generation=1))
    notes = {**given.metadata.annotations, marks.GENERATION_ANNOTATION: "1"}
    told = structs.replace(given, metadata=structs.replace(given.metadata, annotations=notes))
    assert await looks.look(told, noted, **OF_DRIVER) == [OVER]


async def test_a_removal_that_failed_is_over_once_it_is_undone() -> None:
    looks = Looks()
    looks.acts.error = "it is in use"
    (said,) = await looks.look(RELEASED, pool(record()))
    assert said == (
        "volume-1: Warning VolumeFailedDelete: not removed: it is in use; it is tried again"
    )
    kept = reserved(phase="Available")
    assert await looks.look(kept, pool(record(given=(NOBODY,)))) == [OVER]


async def test_a_volume_of_which_it_is_not_noted_who_has_it_is_the_kubelets_to_mount() -> None:
    """No pod waits for the note of a `local` volume: the kubelet does not ask us."""
    looks = Looks()
    looks.acts.error = "no space"
    given = volume(claim_uid="2")
    assert isinstance(action(given, pool(record())), Remember)
    assert await looks.look(given, pool(record())) == []
    assert looks.acts.tried == 1


async def test_what_was_moved_is_over_by_that() -> None:
    """The act says VolumeMoved, which is the last word."""
    looks, home = Looks(), pool(record())
    anew = driven(
        volume(uid="anew", provisioner=CSI_DRIVER, annotations={marks.MOVED_ANNOTATION: "volume-1"})
    )
    found = facts(anew, home, **OF_DRIVER)
    over_taken = TakeOver(key="pvc-1", reason="", pool=home.config, record=record(), volume=anew)
    looks.acts.error = "it is in use"
    looks.executor.begin(Plan([over_taken]), found)
    while looks.executor.busy:
        await asyncio.sleep(0)
    assert looks.executor.warned == {"pvc-1": "anew"}
    looks.acts.error = ""
    looks.executor.begin(Plan([over_taken]), found)
    while looks.executor.busy:
        await asyncio.sleep(0)
    assert looks.executor.warned == {}
