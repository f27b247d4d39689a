"""VolumeAttributesClasses on a real control plane: at creation, changed, and what cannot be."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from localvolume_lab.controlplane import ControlPlane
from tests.chart.support_helm import render
from tests.cluster.support_csi import CsiLab
from tests.cluster.support_dynamic import Claim, MadePool, Volume
from tests.cluster.support_rights import TEMPLATES, Rights, of_labs, refusals
from tests.faults.support_proxy import Order, proxy_for
from tests.host.support_devices import immutable
from tests.suite.conditions import conditions_of
from tests.suite.names import CSI

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

ATTRIBUTES = "/apis/storage.k8s.io/v1/volumeattributesclasses"
KEPT = "localvolume.dev/kept-until"


def kind(csi: CsiLab, name: str, parameters: Mapping[str, str], driver: str = CSI) -> str:
    """A VolumeAttributesClass; returns its name. Kubernetes keeps one that claims name."""
    body = {
        "metadata": {"name": f"{csi.unique}-{name}"},
        "driverName": driver,
        "parameters": dict(parameters),
    }
    csi.objects.make(ATTRIBUTES, body)
    return f"{csi.unique}-{name}"


def pool(csi: CsiLab) -> MadePool:
    return csi.csi_pool()


def claim(csi: CsiLab, name: str = "", size: str = "8Mi", **wish: str) -> Claim:
    spec: dict[str, Any] = {"volumeAttributesClassName": name} if name else {}
    cls = f"{csi.unique}-fast"
    if cls not in csi.class_names:
        csi.storage_class(provisioner=CSI, parameters=wish)
    return csi.claim(cls, size=size, **spec)


def change(csi: CsiLab, of: Claim, name: str) -> None:
    # Kubernetes lets only a claim that is bound be changed.
    csi.until(
        lambda: csi.read_claim(of), lambda found: found and found["status"]["phase"] == "Bound"
    )
    csi.patch_claim(of, {"spec": {"volumeAttributesClassName": name}})


def has(csi: CsiLab, of: Claim) -> tuple[str, str, Any]:
    """The class by the PersistentVolume and by the claim, and the claim's modifyVolumeStatus."""
    found, volume = csi.read_claim(of), csi.volume_of(of)
    assert found is not None
    assert volume is not None
    return (
        volume["spec"].get("volumeAttributesClassName", ""),
        found["status"].get("currentVolumeAttributesClassName", ""),
        found["status"].get("modifyVolumeStatus"),
    )


def conditions(csi: CsiLab, of: Claim) -> dict[str, str]:
    found = csi.read_claim(of)
    assert found is not None
    return {one["type"]: one.get("message", "") for one in conditions_of(found)}


def agrees(csi: CsiLab, of: Claim, name: str) -> None:
    csi.until(lambda: has(csi, of), lambda found: found == (name, name, None))
    assert conditions(csi, of) == {}


def promised(csi: CsiLab, of: Claim, volume: Volume) -> bool:
    """Whether the volume of the claim, which is deleted for it, is kept for a while."""
    csi.delete(of)
    found = csi.until(
        lambda: csi.volume(volume["metadata"]["name"]),
        lambda v: v is None or KEPT in v["metadata"]["annotations"],
    )
    return found is not None


def test_a_volume_is_made_with_its_class(csi: CsiLab) -> None:
    pool(csi)
    gold = kind(csi, "gold", {"undoPeriod": "1h"})
    csi.serve_here()
    made = claim(csi, gold)
    volume = csi.made(made)
    agrees(csi, made, gold)
    assert promised(csi, made, volume)


def test_a_volume_gets_another_class_and_its_period_counts(csi: CsiLab) -> None:
    pool(csi)
    gold, none = kind(csi, "gold", {"undoPeriod": "1h"}), kind(csi, "none", {"undoPeriod": "0s"})
    csi.serve_here()
    made = claim(csi, undoPeriod="2h")
    volume = csi.made(made)
    change(csi, made, gold)
    agrees(csi, made, gold)
    csi.claim_event(made, "VolumeModify")
    csi.claim_event(made, "VolumeModifySuccessful")
    change(csi, made, none)
    agrees(csi, made, none)
    csi.delete(made)
    csi.gone(volume)


@pytest.mark.needs("go")
def test_that_takes_no_right_but_those_of_the_chart(
    csi: CsiLab, control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> None:
    values = of_labs(tmp_path_factory.getbasetemp(), {"csi": {"enabled": True}})
    manifests = render(values, release="attributes", namespace="default", only=TEMPLATES)
    with Rights(control_plane, manifests) as rights:
        rights.confine(csi)
        test_a_volume_gets_another_class_and_its_period_counts(csi)
        assert refusals(csi) == []
        csi.stop()


def test_a_class_that_comes_later_is_waited_for(csi: CsiLab) -> None:
    pool(csi)
    late = f"{csi.unique}-late"
    csi.serve_here()
    waits, made = claim(csi, late), claim(csi)
    csi.made(made)
    change(csi, made, late)
    csi.claim_event(waits, "ProvisioningFailed", "there is no such class")
    csi.claim_event(made, "VolumeModifyFailed", "there is no such class")
    assert has(csi, made) == (
        "",
        "",
        {"targetVolumeAttributesClassName": late, "status": "Pending"},
    )
    kind(csi, "late", {"undoPeriod": "1h"})
    agrees(csi, made, late)
    csi.made(waits)
    agrees(csi, waits, late)


@pytest.mark.parametrize(
    ("parameters", "driver", "why"),
    [
        ({"undoPeriod": "1h", "iops": "5"}, CSI, "parameter iops is not known"),
        ({"undoPeriod": "soon"}, CSI, "parameter undoPeriod"),
        ({"undoPeriod": "1h"}, "ebs.csi.aws.com", "it is of the driver 'ebs.csi.aws.com'"),
    ],
)
def test_what_no_volume_can_have_is_infeasible(
    csi: CsiLab, parameters: dict[str, str], driver: str, why: str
) -> None:
    pool(csi)
    silver, bad = kind(csi, "silver", {"undoPeriod": "0s"}), kind(csi, "bad", parameters, driver)
    csi.serve_here()
    made, refused = claim(csi, silver), claim(csi, bad)
    volume = csi.made(made)
    agrees(csi, made, silver)
    change(csi, made, bad)
    csi.claim_event(made, "VolumeModifyFailed", why)
    infeasible = {"targetVolumeAttributesClassName": bad, "status": "Infeasible"}
    assert has(csi, made) == (silver, silver, infeasible)
    assert why in conditions(csi, made)["ModifyVolumeError"]
    csi.claim_event(refused, "ProvisioningFailed", why)
    assert csi.volume_of(refused) is None
    # The user goes back, and nothing of the other class was applied.
    change(csi, made, silver)
    agrees(csi, made, silver)
    csi.claim_event(made, "VolumeModifyCanceled")
    csi.delete(made)
    csi.gone(volume)


def test_a_local_volume_has_no_class(csi: CsiLab) -> None:
    pool(csi)
    gold = kind(csi, "gold", {"undoPeriod": "1h"})
    cls = csi.storage_class()
    csi.serve_here()
    refused = csi.claim(cls, volumeAttributesClassName=gold)
    csi.claim_event(refused, "ProvisioningFailed", f"only volumes of {CSI}")
    assert csi.volume_of(refused) is None


# What an agent sends for a change: that it is under way, the PersistentVolume, that it is done.
STEPS = {
    "under way": ("persistentvolumeclaims", 0),
    "the volume": ("persistentvolumes", 0),
    "done": ("persistentvolumeclaims", 1),
}


@pytest.mark.parametrize("does", ["hold", "keep"])
@pytest.mark.parametrize("step", STEPS)
def test_an_agent_killed_meanwhile_is_gone_on_with(
    csi: CsiLab, tmp_path: Path, step: str, does: str
) -> None:
    pool(csi)
    gold = kind(csi, "gold", {"undoPeriod": "1h"})
    with proxy_for(csi.plane, tmp_path) as proxy, contextlib.ExitStack() as last:
        csi.kubeconfig = proxy.kubeconfig
        last.callback(csi.stop)
        agent = csi.serve()
        made = claim(csi)
        volume = csi.made(made)
        csi.claim_event(made, "ProvisioningSucceeded")
        kind_of, before = STEPS[step]
        passed = Order("delay", ("patch",), kind_of, times=before)
        stopped = Order(does, ("patch",), kind_of)  # type: ignore[arg-type]
        proxy.orders += [passed, stopped] if before else [stopped]
        change(csi, made, gold)
        csi.until(lambda: stopped.met if does == "hold" else stopped.answered, bool)
        agent.kill()
        proxy.orders.clear()
        csi.serve()
        agrees(csi, made, gold)
        assert promised(csi, made, volume)


def test_what_the_pool_cannot_write_is_not_said_to_be_so(csi: CsiLab) -> None:
    csi.hurry_dynamic(first_wait=0.2, longest_wait=2.0)
    where = pool(csi)
    gold = kind(csi, "gold", {"undoPeriod": "1h"})
    csi.serve_here()
    made = claim(csi)
    csi.made(made)
    csi.claim_event(made, "ProvisioningSucceeded")
    with immutable(where.directory / ".localvolume" / "records"):
        change(csi, made, gold)
        csi.claim_event(made, "VolumeModifyFailed", "is not modified")
        underway = {"targetVolumeAttributesClassName": gold, "status": "InProgress"}
        assert has(csi, made) == ("", "", underway)
    agrees(csi, made, gold)
