"""The agent's memory is a promise: what importing the client may bring along, and what not."""

from __future__ import annotations

import json
import subprocess
import sys

LOOK = """
import json, os, sys
before = dict(os.environ)
import localvolume.kube.client, localvolume.kube.events, localvolume.kube.informer
import aiohttp.connector, asyncio.sslproto, frozenlist
print(json.dumps({
    "environment kept": dict(os.environ) == before,
    "authorities": aiohttp.connector._SSL_CONTEXT_VERIFIED.cert_store_stats()["x509_ca"],
    "compiled frozenlist": "frozenlist._frozenlist" in sys.modules,
    "tls buffer": asyncio.sslproto.SSLProtocol.max_size,
    "modules": sorted(sys.modules),
}))
"""
# People's commands and kubeconfigs need these; an agent in a cluster never does.
UNWANTED = {
    "aiohttp.web",
    "localvolume.kube.access.execplugin",
    "localvolume.kube.access.kubeconfig",
    "prometheus_client",
    "rich",
    "unittest",
    "yaml",
}


def test_what_comes_along() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOK], capture_output=True, text=True, check=True, timeout=60
    )
    seen = json.loads(done.stdout)
    assert seen["environment kept"]
    assert seen["authorities"] == 0
    assert not seen["compiled frozenlist"]
    assert seen["tls buffer"] == 16 * 1024
    assert UNWANTED.isdisjoint(seen["modules"])
