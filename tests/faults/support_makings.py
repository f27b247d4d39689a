"""Sees every dynamic PersistentVolume from its first moment, and looks into what it names."""

from typing import Any

from localvolume_lab.controlplane import ControlPlane, RequestFailed
from tests.faults.support_contents import contents_of, path_of
from tests.faults.support_observer import Watching
from tests.faults.support_poolground import BY_NAME, PoolGround
from tests.suite.api import CLAIMS, VOLUMES


class MakingObserver(Watching):
    """A new volume must be there, be empty, and lie at, in or around no other's place."""

    def __init__(self, plane: ControlPlane, ground: PoolGround) -> None:
        super().__init__(plane)
        self._ground = ground
        self._seen: set[str] = set()
        self._places: dict[str, str] = {}
        """By the UID of the PersistentVolume; without those that nobody can have any more."""

    def _see(self, type_: str, volume: dict[str, Any]) -> None:
        meta, path = volume["metadata"], path_of(volume)
        uid, phase = meta["uid"], volume.get("status", {}).get("phase", "Pending")
        over = meta.get("deletionTimestamp") and phase != "Bound"
        if type_ == "DELETED" or over:
            self._places.pop(uid, None)
        else:
            self._places[uid] = path
        if type_ == "DELETED" or uid in self._seen:
            return
        self._seen.add(uid)
        self.created += 1
        for other, at in self._places.items():
            if other != uid and _touches(path, at):
                self.violation(f"{path} of {meta['name']} is named twice: beside {at} of {other}")
        if self._ground.place_of(path) is None:
            self.violation(f"{path} of {meta['name']} lies in no pool")
        self._look(volume)

    def _look(self, volume: dict[str, Any]) -> None:
        image = BY_NAME[volume["spec"]["storageClassName"]].image
        contents = contents_of(volume, image=image)
        name, claim = volume["metadata"]["name"], volume["spec"]["claimRef"]["uid"]
        try:
            is_there, found = contents.is_there(), set[str]()
            if is_there:
                # Its tenant may have been quicker than we are.
                found = contents.found() - {claim}
        except OSError:
            is_there = False
        if not self._is_alive(volume):
            return
        self.offers += 1
        if not is_there:
            if image and self._grows(volume):
                return  # Its tenant was so much quicker; the link is back in the end.
            self.violation(f"{name} names {path_of(volume)}, and nothing is there")
        elif found:
            self.violation(f"{name} was published with data of {found} in it")

    def _grows(self, volume: dict[str, Any]) -> bool:
        """Whether its claim asks for more by now: meanwhile an image may have no link."""
        try:
            claim = self._plane.request("GET", f"{CLAIMS}/{volume['spec']['claimRef']['name']}")
        except RequestFailed as error:
            if error.status != 404:
                raise
            return False
        if claim["metadata"]["uid"] != volume["spec"]["claimRef"]["uid"]:
            return False
        return bool(claim["spec"]["resources"]["requests"] != volume["spec"]["capacity"])

    def _is_alive(self, volume: dict[str, Any]) -> bool:
        """Asked after looking: what it names may go once it is being deleted, and not before."""
        try:
            live = self._plane.request("GET", f"{VOLUMES}/{volume['metadata']['name']}")
        except RequestFailed as error:
            if error.status != 404:
                raise
            return False
        same = live["metadata"]["uid"] == volume["metadata"]["uid"]
        return same and not live["metadata"].get("deletionTimestamp")


def _touches(path: str, other: str) -> bool:
    return f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/")
