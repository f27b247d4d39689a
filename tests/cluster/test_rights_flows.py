"""Every flow of an agent with exactly the rights of deploy/install.yaml, confined to its node.

The flows are those that other tests look at closely; here the agent has no other right, and
nothing that it asks for is refused.
"""

from collections.abc import Callable
from functools import partial

import pytest

from tests.cluster import test_cleaning_released as cleaning
from tests.cluster import test_collisions_and_adoption as adoption
from tests.cluster import test_dynamic_adoption as replaced
from tests.cluster import test_dynamic_growing as growing
from tests.cluster import test_dynamic_life as life
from tests.cluster import test_dynamic_restart as restart
from tests.cluster import test_dynamic_undo as undo
from tests.cluster import test_health_dynamic as pool_health
from tests.cluster import test_health_static as health
from tests.cluster import test_node_recreated as recreated
from tests.cluster import test_publishing as publishing
from tests.cluster import test_vanished as vanished
from tests.cluster.support_replaced import KINDS
from tests.cluster.support_rights import Flow, Rights, done_with

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

STATIC: list[Flow] = [
    publishing.test_the_whole_round_without_anybody_waiting,
    adoption.test_what_upstream_made_is_taken_over_with_its_data,
    cleaning.test_only_released_volumes_with_delete_are_cleaned,
    vanished.test_offers_claims_and_short_absences,
    health.test_errors_are_told_until_they_are_repaired,
    partial(recreated.test_the_node_is_made_anew_under_a_running_agent, form="our own"),
]
DYNAMIC: list[Flow] = [
    life.test_a_claim_becomes_a_directory_and_goes_with_it,
    growing.test_claim_and_volume_tell_the_new_size,
    growing.test_no_room_is_said_and_changes_nothing,
    undo.test_the_same_claim_again_finds_its_data,
    undo.test_without_undo_it_goes_when_the_time_is_over,
    pool_health.test_a_pool_that_counts_errors,
    restart.test_what_was_asked_for_meanwhile_is_served_at_the_start,
    *(
        partial(replaced.test_it_stays_as_it_is_and_goes_with_its_claim, kind=kind)
        for kind in KINDS
    ),
]


def _name(flow: Callable[..., None]) -> str:
    whole = flow.func if isinstance(flow, partial) else flow
    more = "".join(f"-{value}" for value in getattr(flow, "keywords", {}).values())
    return whole.__name__.removeprefix("test_") + more


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("flow", STATIC, ids=_name)
def test_an_agent_that_publishes_needs_no_more(
    flow: Flow, rights: Rights, request: pytest.FixtureRequest
) -> None:
    done_with(rights, flow, request)


@pytest.mark.parametrize("flow", DYNAMIC, ids=_name)
def test_an_agent_that_makes_volumes_needs_no_more(
    flow: Flow, rights: Rights, request: pytest.FixtureRequest
) -> None:
    done_with(rights, flow, request)
