"""The rights that an agent with pools needs, and no others: a whole life is done with them.

That they are none too many is read from the agent's own count of its requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from prometheus_client.parser import text_string_to_metric_families

from localvolume.dynamic.capacityrole import EVENT_REFUSED
from localvolume.dynamic.paces import CapacityPaces
from localvolume.dynamic.plan.capacity import object_name
from tests.chart.support_manifests import NAME, rules_of
from tests.cluster.support_accounts import RBAC, Rule, account, allow, in_force, rule
from tests.cluster.support_dynamic import Claim, DynamicLab
from tests.suite.api import CAPACITIES, CLASSES, MERGE
from tests.suite.names import NODE_LABEL

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

EVERYWHERE = rules_of("ClusterRole", NAME)
HERE = rules_of("Role", NAME)
"""What deploy/install.yaml gives everywhere, and in its own namespace."""
OF_JOBS = {"jobs", "pods"}
"""What is for cleaning Jobs, of volumes that were not made for claims (ADR 0014)."""
ROLES = f"{RBAC}/namespaces/default/roles"
BINDINGS = f"{RBAC}/namespaces/default/rolebindings"


def _installed(lab: DynamicLab, everywhere: Sequence[Rule], here: Sequence[Rule]) -> None:
    """The agent's service account with a ClusterRole of these rules, and a Role of those."""
    lab.kubeconfig = account(lab, everywhere)
    lab.objects.make(ROLES, {"metadata": {"name": lab.unique}, "rules": list(here)})
    binding = {
        "metadata": {"name": lab.unique},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "Role",
            "name": lab.unique,
        },
        "subjects": [{"kind": "ServiceAccount", "name": lab.unique, "namespace": "default"}],
    }
    lab.objects.make(BINDINGS, binding)
    in_force(lab, here)


def _requests(lab: DynamicLab) -> Iterator[tuple[str, str, str]]:
    """Verb, resource and outcome of all the agent's requests so far."""
    status, text = lab.http("/metrics")
    assert status == 200
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "localvolume_api_requests_total":
                labels = sample.labels
                yield labels["verb"], labels["resource"], labels["outcome"]


def _used(lab: DynamicLab) -> set[tuple[str, str]]:
    """Verb and resource of each request that it was allowed."""
    return {(verb, what) for verb, what, how in _requests(lab) if how != "TellTheAdministrator"}


def _given(*rules: Rule) -> set[tuple[str, str]]:
    return {
        (verb, resource) for one in rules for resource in one["resources"] for verb in one["verbs"]
    }


def _grown(lab: DynamicLab, claim: Claim, size: str) -> None:
    lab.until(
        lambda: lab.read_claim(claim),
        lambda found: found and found["status"]["capacity"]["storage"] == size,
    )


def test_a_whole_life_takes_all_of_these_and_no_others(dynamic: DynamicLab) -> None:
    _installed(dynamic, EVERYWHERE, HERE)
    dynamic.pool()
    cls = dynamic.storage_class()
    # The name of what it publishes is taken.
    dynamic.objects.make(
        CAPACITIES,
        {"metadata": {"name": object_name(dynamic.node, cls)}, "storageClassName": "another"},
    )
    dynamic.start()
    claim = dynamic.claim(cls, size="8Mi")
    volume = dynamic.made(claim)
    # Only what is published can be changed by what comes.
    own = f"{CAPACITIES}?labelSelector={NODE_LABEL}={dynamic.node}"
    dynamic.until(lambda: dynamic.plane.request("GET", own)["items"], bool)
    dynamic.grow(claim, "12Mi")
    _grown(dynamic, claim, "12Mi")
    # Given back, and again for the same reason.
    large = dynamic.claim(cls, size="1Gi")
    event = dynamic.claim_event(large, "ProvisioningFailed", "another node is to be chosen")
    dynamic.until(
        lambda: dynamic.read_claim(large), lambda found: found and "labels" not in found["metadata"]
    )
    dynamic.patch_claim(large, {"metadata": {"labels": {NODE_LABEL: dynamic.node}}})
    dynamic.until(
        lambda: dynamic.claim_event(large, "ProvisioningFailed")["count"],
        lambda count: count > event["count"],
    )
    dynamic.delete(claim)
    dynamic.gone(volume)
    # A look during which others mount and unmount may fail, and is made again.
    dynamic.until(lambda: dynamic.http("/ready"), lambda got: got == (200, "ok\n"))
    dynamic.plane.request("DELETE", f"{CLASSES}/{cls}")
    given = {one for one in _given(*EVERYWHERE, *HERE) if one[1] not in OF_JOBS}
    # A claim's status is a resource of its own to the rights, and none to the count.
    given.remove(("patch", "persistentvolumeclaims/status"))
    dynamic.until(lambda: sorted(_used(dynamic)), lambda used: set(used) >= given)
    assert {one for one in _used(dynamic) if one[1] not in OF_JOBS} == given
    assert [one for one in _requests(dynamic) if one[2] == "TellTheAdministrator"] == []


def test_growing_takes_the_right_to_a_claims_status(dynamic: DynamicLab) -> None:
    without = [one for one in EVERYWHERE if "status" not in one["resources"][0]]
    _installed(dynamic, without, HERE)
    dynamic.pool()
    cls = dynamic.storage_class()
    dynamic.start()
    claim = dynamic.claim(cls, size="8Mi")
    volume = dynamic.made(claim)
    dynamic.grow(claim, "12Mi")
    dynamic.until(lambda: dynamic.logged("persistentvolumeclaims/status"), bool)
    assert dynamic.made(claim)["spec"]["capacity"] == volume["spec"]["capacity"]
    allow(dynamic, EVERYWHERE)
    _grown(dynamic, claim, "12Mi")


@pytest.fixture
def soon_again(dynamic: DynamicLab) -> None:
    """Shorten the time between two attempts after a refusal."""
    dynamic.hurry_dynamic(capacities=CapacityPaces(longest_wait=0.5, unread=0.5))


@pytest.mark.usefixtures("soon_again")
@pytest.mark.parametrize(
    ("verbs", "why"),
    [
        ((), "storage capacities cannot be read: "),
        (("get", "list", "watch"), "storage capacities cannot be published: "),
    ],
    ids=["no right", "to read only"],
)
def test_volumes_are_made_without_the_right_to_publish_room(
    dynamic: DynamicLab, verbs: tuple[str, ...], why: str
) -> None:
    """Only the scheduler knows less then; and whoever asks is told."""
    some = [rule("csistoragecapacities", *verbs, group="storage.k8s.io")] if verbs else []
    _installed(dynamic, EVERYWHERE, some)
    dynamic.pool()
    cls = dynamic.storage_class()
    dynamic.start()
    claim = dynamic.claim(cls, size="8Mi")
    volume = dynamic.made(claim)
    status, text = dynamic.until(lambda: dynamic.http("/ready"), lambda got: why in got[1])
    assert status == 500
    assert "cannot " in text
    assert 'resource "csistoragecapacities"' in text
    said = dynamic.event(dynamic.node, EVENT_REFUSED, why)
    assert said["type"] == "Warning"
    dynamic.grow(claim, "12Mi")
    _grown(dynamic, claim, "12Mi")
    dynamic.delete(claim)
    dynamic.gone(volume)
    path = f"{ROLES}/{dynamic.unique}"
    dynamic.plane.request("PATCH", path, {"rules": HERE}, content_type=MERGE)
    dynamic.until(lambda: dynamic.http("/ready"), lambda got: got == (200, "ok\n"))


@pytest.mark.usefixtures("soon_again")
def test_without_the_right_to_read_claims_it_says_so_and_waits(dynamic: DynamicLab) -> None:
    """What an agent has that was installed for prepared volumes alone."""
    without = [one for one in EVERYWHERE if one["resources"] != ["persistentvolumeclaims"]]
    _installed(dynamic, without, HERE)
    dynamic.pool()
    cls = dynamic.storage_class()
    dynamic.start(wait=False)
    claim = dynamic.claim(cls, size="8Mi")
    status, text = dynamic.until(
        lambda: dynamic.http("/ready"), lambda got: "no claim can be served: " in got[1]
    )
    assert status == 500
    assert 'cannot list resource "persistentvolumeclaims"' in text
    allow(dynamic, EVERYWHERE)
    dynamic.made(claim)
    dynamic.until(lambda: dynamic.http("/ready"), lambda got: got == (200, "ok\n"))
