"""Builders for CSI calls, the volumes that they made, and what is decided about them."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from localvolume.backends.model import Record
from localvolume.config.provisioner import CSI_DRIVER
from localvolume.dynamic.calls import Refused, Wanted
from localvolume.dynamic.model import AnswerCall, Call, CreateCall
from localvolume.kube.objects import ClaimRef, CSISource, PersistentVolume
from localvolume.volumes.capacity import GIB
from tests.decisions.support_dynamic import Thing, a, action, record, storage_class, volume

NAME = "pvc-1"
ASKED = "Filesystem of 1073741824 bytes"


def create(size: int = GIB, *, limit: int = 0, name: str = NAME, **changes: Any) -> CreateCall:
    """A call for a volume; `request` and `problem` are the call's, the rest is the class's wish."""
    request, problem = changes.pop("request", ASKED), changes.pop("problem", "")
    wanted = Wanted(
        name=name,
        size_bytes=size,
        limit_bytes=limit,
        volume_mode=changes.pop("mode", "Filesystem"),
        source=changes.pop("source", ""),
        from_snapshot=changes.pop("from_snapshot", False),
    )
    return CreateCall(
        key=name,
        wanted=wanted,
        class_facts=storage_class("", CSI_DRIVER, problem=problem, **changes),
        request=request,
    )


def called(state: str = "offered", **changes: Any) -> Record:
    """A volume that a call made."""
    nobodys = {"claim": "", "claim_uid": "", "volume_uid": "", "class_name": ""}
    return record(1, state, **(nobodys | {"driver": CSI_DRIVER, "request": ASKED} | changes))


def claimed(state: str = "offered", **changes: Any) -> Record:
    """A volume of the driver's that was made for a claim."""
    return record(1, state, **({"driver": CSI_DRIVER} | changes))


def judged(call: Call, *things: Thing) -> Any:
    """The action for the call."""
    return action(*things, name=call.key, calls=[call])


def refused(kind: type[Refused], call: Call, *things: Thing) -> str:
    """Why the call is refused, which it must be in that way."""
    answer = a(AnswerCall, judged(call, *things))
    assert type(answer.refusal) is kind, answer
    return answer.reason


def given_to(namespace: str | None, handle: str = NAME) -> PersistentVolume:
    """The PersistentVolume of the driver's volume, which a claim of the namespace has; or none."""
    made = volume(handle.removeprefix("pvc-"), provisioner=CSI_DRIVER)
    source = CSISource(driver=CSI_DRIVER, volume_handle=handle)
    ref = ClaimRef(namespace=namespace, name="data", uid="9") if namespace else None
    return structs.replace(
        made, spec=structs.replace(made.spec, local=None, csi=source, claim_ref=ref)
    )
