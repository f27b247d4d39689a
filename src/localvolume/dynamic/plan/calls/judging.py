"""What each call that waits is answered, or what is done for it first. Pure."""

from __future__ import annotations

from localvolume.dynamic.calls import Refused
from localvolume.dynamic.model import (
    Action,
    AnswerCall,
    Call,
    CreateCall,
    GrowCall,
    ModifyCall,
    RemoveCall,
    SnapshotCall,
)
from localvolume.dynamic.plan.calls.finding import find
from localvolume.dynamic.plan.calls.snapshots import cut
from localvolume.dynamic.plan.calls.volumes import create, grow, modify, remove
from localvolume.dynamic.plan.world import World


def judge_call(world: World, call: Call) -> Action:
    """The one action that a call asks for."""
    try:
        found = find(world, call.key)
        match call:
            case CreateCall():
                return create(world, call, found)
            case SnapshotCall():
                return cut(world, call, found)
            case GrowCall():
                return grow(world, call, found)
            case ModifyCall():
                return modify(world, call, found)
            case RemoveCall():
                return remove(world, call, found)
            case _:
                raise NotImplementedError(call)
    except Refused as refusal:
        return AnswerCall(key=call.key, reason=str(refusal), refusal=refusal)
