"""Whether a pod is over whose own volume nobody has mounted: only by the API server's word."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from localvolume.backends.model import Record
from localvolume.dynamic.inline import Pods, pods_of
from localvolume.dynamic.preconditions import FRESH_SECONDS, NAMED_SECONDS, Superseded
from localvolume.kube.client import Client
from localvolume.kube.kinds import PODS

OWN = Record(
    name="csi-1",
    backend="directory",
    state="offered",
    directory="csi-1",
    size_bytes=1,
    pod="default/web",
    pod_uid="",
)


async def made(client: Client, **meta: Any) -> Record:
    """The volume of a pod that is there."""
    container = {"name": "main", "image": "example.com/main"}
    body = {"metadata": {"name": "web", **meta}, "spec": {"containers": [container]}}
    pod = await client.create(PODS, body, "default")
    return replace(OWN, pod_uid=pod.metadata.uid)


async def test_one_that_is_there_is_not_over(client: Client) -> None:
    own, pods = await made(client), Pods(client)
    assert await pods.ask(own) is False
    assert pods.over() == {own.pod_uid: False}
    with pytest.raises(Superseded, match="default/web is there after all"):
        await pods.check_over(own)


async def test_one_that_is_gone_or_has_another_under_its_name_is_over(client: Client) -> None:
    pods = Pods(client)
    assert await pods.ask(replace(OWN, pod_uid="1"))
    await made(client)
    await pods.check_over(replace(OWN, pod_uid="2"))
    assert pods.over() == {"1": True, "2": True}


async def test_a_static_pod_is_known_by_the_object_that_stands_for_it(client: Client) -> None:
    """The kubelet gives it a UID of its own."""
    await made(client, annotations={"kubernetes.io/config.mirror": "of-the-kubelet"})
    assert not await Pods(client).ask(replace(OWN, pod_uid="of-the-kubelet"))


async def test_an_answer_counts_for_a_while(client: Client) -> None:
    now = 0.0
    pods = Pods(client, clock=lambda: now)
    own = await made(client)
    await pods.ask(own)
    await pods.ask(replace(OWN, pod_uid="gone", pod="default/gone"))
    now = FRESH_SECONDS
    assert pods.over() == {own.pod_uid: False}
    now = NAMED_SECONDS
    assert pods.over() == {}


def test_only_pods_with_volumes_of_their_own_matter() -> None:
    assert pods_of([OWN, replace(OWN, pod_uid="1"), replace(OWN, pod_uid="1")]) == {"1"}
