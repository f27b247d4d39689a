"""Why the volumes that a pod's own spec asks for are where they are, or are not there.

No object stands for such a volume: the pool of the pod's node alone has it. So it is looked for
there; elsewhere the pod's spec and its Events say what they can.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from localvolume.backends.model import Record
from localvolume.cli.seeing.facts import Facts, recency
from localvolume.cli.seeing.kinds import SeenEvent, SeenPod, SeenPodVolume
from localvolume.cli.seeing.unread import in_short
from localvolume.cli.seeing.why.claim import why_claim
from localvolume.cli.seeing.why.explanation import Explanation, Verdict
from localvolume.cli.seeing.words import size
from localvolume.config.pools import PoolConfig
from localvolume.csi import inline
from localvolume.csi.wire import messages
from localvolume.csi.wire.errors import InvalidArgument, OutOfRange
from localvolume.dynamic.calls import WantedInline
from localvolume.dynamic.model import AnswerCall, InlineCall, MakeCalled, Pool
from localvolume.dynamic.model import Facts as Known
from localvolume.dynamic.plan.inline import judge_inline
from localvolume.dynamic.plan.orphans import place_of
from localvolume.dynamic.plan.world import World
from localvolume.volumes.marks import CSI_DRIVER

POD_EVENTS: Final = "events of the pod"
"""What may be unknown, among the facts."""

_OVER: Final = ("Succeeded", "Failed")
_FAILED: Final = "FailedMount"


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What the pod's node itself says. `why_not`: why nobody has looked, "" if somebody has.

    `since` has when records were last written, by handle; `mounted` is whether anything of the pod
    is mounted, None if that is unknown.
    """

    known: Known | None = None
    since: Mapping[str, str] = field(default_factory=dict)
    mounted: bool | None = None
    why_not: str = ""


def own_volumes(pod: SeenPod) -> Sequence[SeenPodVolume]:
    """The volumes of the spec that our driver makes."""
    return [one for one in pod.spec.volumes if one.csi is not None and one.csi.driver == CSI_DRIVER]


def handle_of(pod: SeenPod, volume: SeenPodVolume) -> str:
    """As the kubelet makes it (pkg/volume/csi, makeVolumeHandle)."""
    digest = hashlib.sha256(f"{pod.metadata.uid}{volume.name}".encode()).hexdigest()
    return f"csi-{digest}"


def why_pod(facts: Facts, pod: SeenPod, events: Sequence[SeenEvent], looked: Looked) -> Explanation:
    """The verdict of the first volume that is not there, else of the first one."""
    ordered = sorted(events, key=recency, reverse=True)
    chain = [
        ("Phase", pod.status.phase or "unknown"),
        ("Node", pod.spec.node_name or "none yet"),
        *([("Started", pod.status.start_time)] if pod.status.start_time else []),
    ]
    verdicts = []
    for volume in own_volumes(pod):
        verdict, more = _volume(pod, volume, ordered, looked)
        verdicts.append(verdict)
        chain += more
    chain += _claims(facts, pod)
    if why := facts.unknown.get(POD_EVENTS):
        chain.append(("Events", f"they could not be read: {in_short(why)}"))
    verdicts = verdicts or [_without(pod)]
    missing = [one for one in verdicts if one.code != "inline"]
    return Explanation(
        about=f"pod/{pod.metadata.name} -n {pod.metadata.namespace}",
        verdict=(missing or verdicts)[0],
        chain=chain,
        events=ordered,
    )


def _without(pod: SeenPod) -> Verdict:
    claims = [one for one in pod.spec.volumes if one.persistent_volume_claim or one.ephemeral]
    text = f"its spec asks for no volume of {CSI_DRIVER}"
    text += "; what its claims have is said below" if claims else ", and it has no claim"
    return Verdict(code="pod-without", text=text, then="nothing by localvolume for the pod itself")


def _claims(facts: Facts, pod: SeenPod) -> list[tuple[str, str]]:
    """What is said of the claims that it uses."""
    found = []
    for one in pod.spec.volumes:
        if one.persistent_volume_claim:
            name = one.persistent_volume_claim.claim_name
        elif one.ephemeral:
            name = f"{pod.metadata.name}-{one.name}"
        else:
            continue
        claim = (facts.claims or {}).get(f"{pod.metadata.namespace}/{name}")
        text = "it could not be read, or is not there"
        found.append(
            (f"Claim {name}", text if claim is None else why_claim(facts, claim).verdict.text)
        )
    return found


def _volume(
    pod: SeenPod, volume: SeenPodVolume, events: Sequence[SeenEvent], looked: Looked
) -> tuple[Verdict, list[tuple[str, str]]]:
    handle = handle_of(pod, volume)
    said = volume.csi.volume_attributes if volume.csi else {}
    asked = ", ".join(f"{key}: {text}" for key, text in sorted(said.items())) or "nothing"
    chain = [("Volume", f"{volume.name}, handle {handle}"), ("Asks for", asked)]
    known = looked.known
    for pool in known.pools if known else ():
        if (record := pool.report.records.get(handle)) is not None:
            verdict = _there(pod, volume, pool.config, record, looked)
            return verdict, chain + _facts(pool, record, looked)
    verdict = _not_there(pod, volume, handle, events, looked)
    return verdict, chain


def _facts(pool: Pool, record: Record, looked: Looked) -> list[tuple[str, str]]:
    config, place = pool.config, place_of(record)
    chain = [
        ("Pool", f"{config.name}, backend {config.backend}"),
        ("Place", f"{config.host_dir}/{place}" if config.host_dir else place),
        ("Size", size(record.size_bytes)),
        ("State", record.state),
    ]
    if since := looked.since.get(record.name):
        chain.append(("Since", since))
    usage = pool.report.usage.get(record.name)
    if usage is not None and usage.used_bytes is not None:
        chain.append(("Used", size(usage.used_bytes)))
    if looked.mounted is not None:
        chain.append(("Mounted", "yes" if looked.mounted else "nothing of the pod is"))
    return chain


def _there(
    pod: SeenPod, volume: SeenPodVolume, config: PoolConfig, record: Record, looked: Looked
) -> Verdict:
    what = f"its volume {volume.name} ({size(record.size_bytes)})"
    if record.pod_uid != pod.metadata.uid:
        text = f"what has the handle of {what} is of pod {record.pod}, UID {record.pod_uid}"
        who = "you: look at it, no two pods have one UID"
        return Verdict(code="inline-other", text=text, then="it is not mounted", who=who)
    if record.state == "removed":
        text, then = f"{what} is removed from pool {config.name}", "its content is being deleted"
        return Verdict(code="inline-removed", text=text, then=then)
    if record.state != "offered":
        text, then = f"{what} is being made in pool {config.name}", "the kubelet asks again"
        return Verdict(code="inline-making", text=text, then=then)
    text = f"{what} is in pool {config.name} of node {pod.spec.node_name}"
    then = "it is removed with the pod, once nothing of it is mounted"
    if pod.status.phase in _OVER and not looked.mounted:
        text += f", and the pod is over ({pod.status.phase})"
        then = "the agent removes it"
    return Verdict(code="inline", text=text, then=then)


def _not_there(
    pod: SeenPod,
    volume: SeenPodVolume,
    handle: str,
    events: Sequence[SeenEvent],
    looked: Looked,
) -> Verdict:
    what = f"its volume {volume.name}"
    if pod.status.phase in _OVER:
        text, then = f"{what} is gone: the pod is over ({pod.status.phase})", "nothing"
        if looked.why_not:
            text = f"the pod is over ({pod.status.phase}), and {what} goes with it"
        return Verdict(code="inline-over", text=text, then=then)
    wanted = _wanted(pod, volume, handle)
    if isinstance(wanted, str):
        who = "the pod's owner: make it anew with other volumeAttributes"
        text = f"{what} can never be made: {wanted}"
        return Verdict(code="inline-wrong", text=text, then="the pod does not start", who=who)
    if not pod.spec.node_name:
        text = f"{what} is not made yet: no node is chosen for the pod"
        then = "the kubelet asks for it when the pod is started there"
        return Verdict(code="inline-unscheduled", text=text, then=then, who="the scheduler")
    if looked.known is None:
        return _unseen(pod, what, events, looked)
    return _missing(pod, what, wanted, looked.known)


def _unseen(pod: SeenPod, what: str, events: Sequence[SeenEvent], looked: Looked) -> Verdict:
    """Nobody has looked on its node: the Events of the kubelet say what is wrong, if anything."""
    name, node = pod.metadata.name, pod.spec.node_name
    here = f"localvolume why pod/{name} -n {pod.metadata.namespace}, in the agent's pod of {node}"
    failed = next((one for one in events if one.reason == _FAILED), None)
    if failed is not None and pod.status.phase != "Running":
        text = f"{what} is not mounted: {failed.message}"
        then = "the kubelet tries again"
        return Verdict(code="inline-failed", text=text, then=then, who=f"you: {here} says more")
    text = f"{what} is known to node {node} alone: {looked.why_not}"
    return Verdict(code="inline-elsewhere", text=text, then="unknown here", who=f"you: ask {here}")


def _missing(pod: SeenPod, what: str, wanted: WantedInline, known: Known) -> Verdict:
    """No pool of its node has it: what the agent would answer the kubelet now."""
    node = pod.spec.node_name
    for pool in known.pools:
        if pool.report.problem and pool.config.inline is not None:
            text = f"{what} may be in pool {pool.config.name}, which cannot be used: "
            text += pool.report.problem
            then = "the kubelet tries again"
            who = "you: put the pool right"
            return Verdict(code="inline-unknown", text=text, then=then, who=who)
    answer = judge_inline(World(known), InlineCall(key=wanted.name, wanted=wanted, request=""))
    if isinstance(answer, MakeCalled):
        text = f"{what} is not there yet, and could be made on node {node}: {answer.reason}"
        who = "the kubelet: its Events say why it does not ask, or that it just did"
        return Verdict(code="inline-waiting", text=text, then="it is made when asked for", who=who)
    reason = answer.reason if isinstance(answer, AnswerCall) else "it is being judged"
    text = f"{what} is not there: {reason}"
    who = "you: have the pod ask for what a pool here gives, or run on another node"
    return Verdict(code="inline-refused", text=text, then="the kubelet tries again", who=who)


def _wanted(pod: SeenPod, volume: SeenPodVolume, handle: str) -> WantedInline | str:
    """What the kubelet asks for, read as the driver reads it; or what is wrong with it."""
    csi, meta = volume.csi, pod.metadata
    if csi is None:
        return f"it is none of {CSI_DRIVER}"
    if csi.node_publish_secret_ref is not None:
        return "no secret is used: leave nodePublishSecretRef out"
    context = {
        **csi.volume_attributes,
        "csi.storage.k8s.io/ephemeral": "true",
        "csi.storage.k8s.io/pod.name": meta.name,
        "csi.storage.k8s.io/pod.namespace": meta.namespace,
        "csi.storage.k8s.io/pod.uid": meta.uid,
    }
    mount = {"fs_type": csi.fs_type} if csi.fs_type else {}
    request = messages.NodePublishVolumeRequest(
        volume_id=handle,
        target_path=f"/pods/{meta.uid}/volumes/kubernetes.io~csi/{volume.name}/mount",
        volume_capability={"mount": mount, "access_mode": {"mode": "SINGLE_NODE_WRITER"}},
        volume_context=context,
    )
    try:
        return inline.wanted(request)
    except (InvalidArgument, OutOfRange) as error:
        return str(error)
