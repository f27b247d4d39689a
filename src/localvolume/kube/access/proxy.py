"""Which proxy stands before the API server, by the environment: as Go's http.ProxyFromEnvironment.

aiohttp's own reading of the environment would also take passwords from ~/.netrc, and knows no
CIDR blocks in NO_PROXY, with which a pod's path to 10.96.0.1 is usually kept free.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit


def proxy_from_environment(server: str, environ: Mapping[str, str]) -> str | None:
    """The proxy's URL for this server URL, or None. Loopback is never proxied."""
    parts = urlsplit(server)
    host = parts.hostname or ""
    proxy = _variable(environ, f"{parts.scheme}_proxy")
    if not proxy or _is_loopback(host) or _is_exempt(host, parts.port, environ):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name.upper()) or environ.get(name) or ""


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _is_exempt(host: str, port: int | None, environ: Mapping[str, str]) -> bool:
    address = _address(host)
    for rule in _variable(environ, "no_proxy").split(","):
        rule = rule.strip().lower()
        if rule == "*":
            return True
        if address is not None and "/" in rule:
            try:
                if address in ipaddress.ip_network(rule, strict=False):
                    return True
            except ValueError:
                continue
        name, _, rule_port = rule.rpartition(":") if rule.count(":") == 1 else (rule, "", "")
        if rule_port and rule_port != str(port):
            continue
        suffix = name.removeprefix("*").removeprefix(".")
        if suffix and (host == suffix or (address is None and host.endswith(f".{suffix}"))):
            return True
    return False
