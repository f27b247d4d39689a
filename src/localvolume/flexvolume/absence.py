"""When a 404 proves that an object is not there, and whether a volume's claim still is."""

from __future__ import annotations

from localvolume.kube.client import Client
from localvolume.kube.errors import NotThere
from localvolume.kube.kinds import CLAIMS
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim


def is_proven(error: NotThere) -> bool:
    """Whether the API server itself says so: a proxy or another server has a 404 of its own."""
    return error.reason == "NotFound"


async def claim_of(client: Client, volume: PersistentVolume) -> PersistentVolumeClaim | None:
    """The very claim that the volume names, if it still exists, whatever the phase says.

    Raises the errors of kube.errors; also NotThere, if that proves nothing.
    """
    ref = volume.spec.claim_ref
    if ref is None or not ref.uid:
        return None
    try:
        claim = await client.get(CLAIMS, ref.name, ref.namespace)
    except NotThere as error:
        if not is_proven(error):
            raise
        return None
    return claim if claim.metadata.uid == ref.uid else None
