"""The cluster's name server: CoreDNS, which answers for the Services that the API server has."""

import ipaddress
import json
from pathlib import Path

from localvolume_lab.controlplane.assets import Say, cache_home, digest_of, pinned
from localvolume_lab.controlplane.build import Recipe, follow, to_stderr

SOURCE = Path(__file__).parents[1] / "coredns"
#: What the names of all Services end with.
DOMAIN = "cluster.local"
#: Where it says whether it has heard of all Services; in its own network.
_READY = "127.0.0.1:8181"
READY_URL = f"http://{_READY}/ready"


def provide(say: Say = to_stderr) -> Path:
    """The executable, built where it is not there yet; raises ComponentsMissing."""
    version = pinned("github.com/coredns/coredns", SOURCE)
    recipe = Recipe(
        source=SOURCE,
        target=cache_home().parent / f"coredns-{version}-{digest_of(SOURCE)}",
        binary="coredns",
        title=f"CoreDNS {version}",
        expectation="about 2 minutes on two cores the first time",
    )
    return follow(recipe, say) / recipe.binary


def address(service: str) -> str:
    """Where pods ask it: the tenth address of Services, of which the API server has the first."""
    return str(ipaddress.ip_address(service) + 9)


def corefile(listen: str, kubeconfig: Path) -> str:
    """Its configuration. It refuses every other name at once, so no pod waits for an answer."""
    # Java asks for the names of addresses too.
    return f"""{DOMAIN}:53 in-addr.arpa:53 {{
    bind {listen}
    errors
    ready {_READY}
    kubernetes {DOMAIN} in-addr.arpa {{
        kubeconfig {json.dumps(str(kubeconfig))}
    }}
}}
"""
