"""What happens around an agent that makes volumes: claims come, write, grow and go, or are deleted
while they are made, or go to another node and come back; administrators do as they please.
"""

import contextlib
import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from localvolume_lab.controlplane import ControlPlane, RequestFailed
from tests.faults.support_contents import Contents, contents_of, path_of
from tests.faults.support_observer import Watching
from tests.faults.support_poolground import BY_NAME, NODE, KillClass, PoolGround
from tests.faults.support_restless import Restless
from tests.suite.api import CLAIMS, MERGE, VOLUMES

_NODE_LABEL = "localvolume.dev/node"
_MERGE = MERGE
#: How long a claim may wait for its volume before it is taken back, in seconds.
_PATIENCE = 6.0
_MOST_TENANTS, _MOST_WAITING, _MOST_KEPT, _MOST_FORCED = 20, 5, 5, 3
_LARGEST_MIB = 28


@dataclass
class Claim:
    """A claim, and what it got: no `contents` while it waits."""

    name: str
    uid: str
    kind: KillClass
    mib: int
    resident: bool = False
    away: bool = False
    since: float = field(default_factory=time.monotonic)
    contents: Contents | None = None

    @property
    def volume(self) -> str:
        return f"pvc-{self.uid}"


@dataclass(frozen=True)
class Left:
    """A volume that nobody removes: its data stays wherever somebody wrote any."""

    path: str
    volume: str
    uid: str
    contents: Contents
    written: bool


class ClaimAdversary(Restless):
    """`claims` by name; `left` is what must be kept though no claim has it any more."""

    def __init__(
        self, plane: ControlPlane, ground: PoolGround, observer: Watching, seed: int
    ) -> None:
        super().__init__(plane, observer, ground.config, ground.settings, seed)
        self.claims: dict[str, Claim] = {}
        self.left: list[Left] = []
        self._forced = 0
        self._kept = 0
        self._hasty = threading.Event()

    def finish(self) -> None:
        """Stop, and put right what an administrator would; who waits goes on waiting."""
        self.end()
        self.configure()
        for claim in self.claims.values():
            claim.resident = True
            self._send(claim, away=False)

    # --- one thing after the other -------------------------------------------------------------

    def hurry(self) -> None:
        """Next thing, those who wait for their volume go, or are sent away."""
        self._hasty.set()

    def step(self) -> None:
        if self._hasty.is_set():
            self._hasty.clear()
            while self._waiting_here() and self._random.random() < 0.8:
                self.act({self._abandon: 1, self._send_away: 1})
        self.look_after()
        self.act(
            {
                self._claim: 12,
                self._release: 6,
                self._abandon: 3,
                self._grow: 5,
                self._send_away: 3,
                self._bring_back: 2,
                self._delete_volume: 2,
                self._look_in: 2,
                self._force: 1,
                self._edit: 1,
            }
        )

    def _waiting(self) -> list[Claim]:
        return [c for c in self.claims.values() if c.contents is None and not c.resident]

    def _waiting_here(self) -> list[Claim]:
        return [claim for claim in self._waiting() if not claim.away]

    def _settled(self) -> list[Claim]:
        return [c for c in self.claims.values() if c.contents is not None and not c.resident]

    def _claim(self) -> bool:
        if len(self._waiting()) >= _MOST_WAITING or len(self.claims) >= _MOST_TENANTS:
            return False
        kinds = [one for one in BY_NAME.values() if one.name != "keep" or self._kept < _MOST_KEPT]
        return self.claim(self._random.choice(kinds).name) is not None

    def claim(self, kind_name: str, *, resident: bool = False) -> Claim | None:
        """A new claim; None where one of its name is still there."""
        kind, mib = BY_NAME[kind_name], self._random.randrange(4, 13)
        self._count += 1
        number = self._random.randrange(3) if kind.names and not resident else self._count
        name = f"{kind_name}-{number}"
        body = {
            "metadata": {"name": name, "labels": {_NODE_LABEL: NODE}},
            "spec": {
                "storageClassName": kind_name,
                "accessModes": ["ReadWriteOnce"],
                "volumeMode": kind.mode,
                "resources": {"requests": {"storage": f"{mib}Mi"}},
            },
        }
        try:
            made = self._plane.request("POST", CLAIMS, body)
        except RequestFailed as error:
            if error.status == 409:
                return None
            raise
        self._kept += kind_name == "keep"
        claim = Claim(name, made["metadata"]["uid"], kind, mib, resident)
        self.claims[name] = claim
        return claim

    def look_after(self) -> bool:
        """Those whose claim is bound move in; who waits too long gives up.

        Returns whether all have moved in.
        """
        found = {c["metadata"]["name"]: c for c in self._plane.request("GET", CLAIMS)["items"]}
        for claim in list(self.claims.values()):
            seen = found.get(claim.name)
            phase = seen["status"].get("phase") if seen else "missing"
            if claim.contents is not None and phase != "Bound":
                self._observer.violation(f"{claim} lost its volume: {seen}")
                del self.claims[claim.name]
            elif claim.contents is None and seen is not None:
                if phase == "Bound":
                    self._move_in(claim)
                elif phase == "Lost":
                    self._observer.violation(f"{claim} lost its volume before it had it: {seen}")
                elif time.monotonic() - claim.since > _PATIENCE and not claim.resident:
                    self._give_up(claim)
                elif not claim.away and _NODE_LABEL not in seen["metadata"].get("labels", {}):
                    # It was given back, and the controller sends it here again.
                    self._send(claim, away=False)
        return all(claim.contents is not None for claim in self.claims.values())

    def _volume(self, claim: Claim) -> dict[str, Any] | None:
        with contextlib.suppress(RequestFailed):
            found: dict[str, Any] = self._plane.request("GET", f"{VOLUMES}/{claim.volume}")
            return found
        return None

    def _move_in(self, claim: Claim) -> None:
        volume = self._volume(claim)
        if volume is None or volume["spec"].get("claimRef", {}).get("uid") != claim.uid:
            self._observer.violation(f"{claim} is bound to what is not its own: {volume}")
            return
        contents = contents_of(volume, image=claim.kind.image)
        if not contents.is_there():
            self._observer.violation(f"{claim} got {path_of(volume)}, and nothing is there")
        elif found := contents.found():
            self._observer.violation(f"{claim} finds {found} in {path_of(volume)}")
        else:
            contents.write(claim.uid)
        claim.contents, claim.away = contents, False

    def _release(self) -> bool:
        settled = self._settled()
        if not settled:
            return False
        self.leave(self._random.choice(settled))
        return True

    def leave(self, claim: Claim) -> None:
        """Look whether all of its data is still there, then give the volume back."""
        self.look_in_on(claim)
        volume = self._volume(claim)
        if claim.kind.policy == "Retain" and volume is not None:
            self._leave_behind(claim, volume)
        self._give_up(claim)

    def _give_up(self, claim: Claim) -> None:
        self._delete(f"{CLAIMS}/{claim.name}")
        del self.claims[claim.name]

    def _leave_behind(self, claim: Claim, volume: dict[str, Any]) -> None:
        contents = claim.contents or contents_of(volume, image=claim.kind.image)
        written = claim.contents is not None
        self.left.append(Left(path_of(volume), claim.volume, claim.uid, contents, written))

    def look_in_on(self, claim: Claim) -> None:
        if claim.contents is None:
            return
        if claim.kind.image and not claim.contents.is_there():
            # While an unmounted image grows, nobody must mount it: the link is back in the end.
            return
        try:
            missing = claim.contents.missing(claim.uid)
        except OSError as error:
            if claim.kind.image and isinstance(error, FileNotFoundError):
                return
            missing = str(error)
        if missing:
            self._observer.violation(f"{claim} held its volume, and of its data {missing}")

    def _look_in(self) -> bool:
        settled = [claim for claim in self.claims.values() if claim.contents is not None]
        if not settled:
            return False
        self.look_in_on(self._random.choice(settled))
        return True

    def _abandon(self) -> bool:
        """Delete a claim whose volume may be in the making; not one of a Retain class, of which
        nobody could say whether its volume is left."""
        waiting = [claim for claim in self._waiting() if claim.kind.policy != "Retain"]
        if not waiting:
            return False
        self._give_up(self._random.choice(waiting))
        return True

    def _grow(self) -> bool:
        settled = [c for c in self.claims.values() if c.contents and c.mib < _LARGEST_MIB]
        if not settled:
            return False
        claim = self._random.choice(settled)
        claim.mib += self._random.randrange(1, 9)
        self._patch(claim, {"spec": {"resources": {"requests": {"storage": f"{claim.mib}Mi"}}}})
        return True

    # --- to another node and back --------------------------------------------------------------

    def _send_away(self) -> bool:
        waiting = self._waiting_here()
        if not waiting:
            return False
        self._send(self._random.choice(waiting), away=True)
        return True

    def _bring_back(self) -> bool:
        away = [claim for claim in self._waiting() if claim.away]
        if not away:
            return False
        self._send(self._random.choice(away), away=False)
        return True

    def _send(self, claim: Claim, *, away: bool) -> None:
        claim.away = away
        self._patch(claim, {"metadata": {"labels": {_NODE_LABEL: "elsewhere" if away else NODE}}})

    def _patch(self, claim: Claim, body: dict[str, Any]) -> None:
        path = f"{CLAIMS}/{claim.name}"
        try:
            self._plane.request("PATCH", path, body, content_type=_MERGE)
        except RequestFailed as error:
            self._observer.violation(f"{claim} cannot be changed: {error}")

    # --- administrators ------------------------------------------------------------------------

    def _delete_volume(self) -> bool:
        """Delete an object by hand, whatever state its volume is in."""
        found = self._plane.request("GET", VOLUMES)["items"]
        if not found:
            return False
        volume = self._random.choice(found)
        if volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain":
            # Its data stays: only where it is known which that is.
            settled = {claim.volume for claim in self._settled()}
            if volume["metadata"]["name"] not in settled | {one.volume for one in self.left}:
                return False
        self._delete(f"{VOLUMES}/{volume['metadata']['name']}")
        return True

    def _force(self) -> bool:
        """Take an object away from a claim together with its finalizers: the data must stay."""
        fit = [claim for claim in self._settled() if claim.kind.name == "fast"]
        if not fit or self._forced >= _MOST_FORCED:
            return False
        claim = self._random.choice(fit)
        volume = self._volume(claim)
        if volume is None:
            return False
        self._forced += 1
        self._leave_behind(claim, volume)
        # Nobody may put the finalizers back in between: it is deleted before they go.
        self._delete(f"{VOLUMES}/{claim.volume}")
        with contextlib.suppress(RequestFailed):
            none = {"metadata": {"finalizers": None}}
            path = f"{VOLUMES}/{claim.volume}"
            self._plane.request("PATCH", path, none, content_type=_MERGE)
        self._give_up(claim)
        return True

    def _edit(self) -> bool:
        """Another valid configuration, or an invalid one; corrected soon."""
        settings = json.loads(json.dumps(self._settings))
        kind = self._random.randrange(4)
        if kind == 0:
            settings["nodeLabelsForPV"] = ["kubernetes.io/hostname"]
        elif kind == 1:
            settings["pools"][self._random.choice(["one", "two"])]["reserve"] = "64Mi"
        elif kind == 2:
            del settings["pools"][self._random.choice(list(settings["pools"]))]
        else:
            settings["pools"] = "nonsense"
        self.configure(settings)
        if kind >= 2:
            time.sleep(self._random.uniform(0, 0.3))
            self.configure()
        return True
