"""Who must act on a volume: its agent, which may not be running, or a person: pure."""

from __future__ import annotations

from localvolume.cli.seeing.csi import SWITCH_ON, unregistered, without_driver
from localvolume.cli.seeing.facts import Facts
from localvolume.cli.seeing.status.states import HOLDING, VANISHED, agent_of, last_word
from localvolume.cli.seeing.why.explanation import Verdict
from localvolume.cli.seeing.words import age
from localvolume.kube.objects import PersistentVolume

Volume = PersistentVolume


def held(facts: Facts, volume: Volume) -> Verdict | None:
    """The verdict if its agent said that it leaves the volume alone, and why."""
    said = last_word(facts, volume)
    if said is None or said.reason not in HOLDING | {VANISHED}:
        return None
    ago = age(facts.now, said.seen)
    if said.reason == "VolumeCleaningWaits":
        then = "it is cleaned when that is over"
        return Verdict(code="waits", text=f"{said.message} (said {ago} ago)", then=then)
    code = {"VolumeFailedDelete": "not-cleaned", VANISHED: "vanished"}.get(said.reason, "held")
    return Verdict(
        code=code,
        text=f"its agent leaves it alone: {said.message} (said {ago} ago)",
        then="the data stays, and it is looked at again as soon as something changes",
        who=f"you: put that right on {facts.node_of(volume) or 'its node'}",
    )


def nobody_there(facts: Facts, volume: Volume, so: str) -> Verdict | None:
    node = facts.node_of(volume)
    agent = agent_of(facts, node)
    if agent.state not in ("missing", "not ready"):
        return None
    text = f"{so}: the agent of {node} is {agent.state}: {agent.why}"
    then = "the agent does it as soon as it runs"
    return Verdict(code="no-agent", text=text, then=then, who=f"you: get the agent of {node} going")


def unmountable(facts: Facts, node: str) -> Verdict | None:
    """The verdict if pods on the node cannot begin to use volumes of our CSI driver."""
    if text := without_driver(facts):
        then = "pods that have it go on, and new ones start once it is there"
        return Verdict(code="no-driver", text=text, then=then, who=controller_or_you(facts))
    if text := unregistered(facts, node):
        then = "pods start there once the kubelet knows it"
        return Verdict(code="not-registered", text=text, then=then, who=f"you: {SWITCH_ON}")
    return None


def controller_or_you(facts: Facts) -> str:
    """Who must act to get claims and volumes labelled: nobody, unless there is no controller."""
    if facts.pods is None or facts.controllers:
        return "nobody: the controller does it"
    return "you: no pod of the controller was found; is it installed?"


def agent_note(facts: Facts, volume: Volume) -> str:
    agent = agent_of(facts, facts.node_of(volume))
    if agent.state in ("missing", "not ready"):
        return f" (but the agent of its node is {agent.state}: {agent.why})"
    return ""
