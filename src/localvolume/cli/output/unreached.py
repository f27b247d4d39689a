"""Says that the cluster could not be asked: which server, by which kubeconfig, and what to try.

Credentials never get into it: neither those of a kubeconfig, nor those within a URL.
"""

from __future__ import annotations

from typing import Final

from localvolume.cli.output.exits import UNREACHED, WRONG
from localvolume.cli.output.refusal import say
from localvolume.kube.errors import AccessInvalid, AlreadyThere, ApiError, LookAgain

_CHOOSE: Final = "--kubeconfig FILE, or the variable KUBECONFIG, says which kubeconfig is used"
_TRY: Final = {
    "Refused": "nothing listens at that address: see that the API server runs there",
    "NoSuchHost": "see that the name is right, and that this host's DNS knows it",
    "Tls": "see that an API server with https is at that address",
    "Proxy": "see HTTPS_PROXY and NO_PROXY, and the kubeconfig's proxy-url",
    "Certificate": "see that the kubeconfig's certificate-authority is the one of this server",
    "NoCredentials": "log in to the cluster again",
    "Timeout": "see that no firewall, VPN or proxy is in the way, and that the server is well",
}
"""What to try, by the reason of an error that is not from the API server."""
_TRY_STATUS: Final = {
    401: "the credentials are not accepted, perhaps no longer: log in to the cluster again",
    403: "ask for the right that is named, or use a kubeconfig that has it",
    404: "see that a Kubernetes API server is at that address",
}


def unreached(command: str, error: AccessInvalid | ApiError) -> int:
    """Print to stderr what failed. Returns the exit status: 1 if the cluster answered, but what
    was to be changed is not as it was, else 3."""
    say(command, explained(error))
    return WRONG if isinstance(error, LookAgain | AlreadyThere) else UNREACHED


def explained(error: AccessInvalid | ApiError) -> str:
    """What failed, in its first line, and below it what the reader needs to put it right."""
    # What a server answers may hold anything, and this goes to a terminal.
    from localvolume.cli.rows import printable

    if isinstance(error, AccessInvalid):
        return f"{printable(str(error))}\n  try         {_CHOOSE}"
    # Our own reasons are words for programs; those of the server may say more than its message.
    lines = [printable(str(error) if error.status else error.message)]
    if error.server:
        lines.append(f"  server      {printable(error.server)}")
    if error.source:
        what = "kubeconfig " if ", context " in error.source else "credentials"
        lines.append(f"  {what} {printable(error.source)}")
    advice = _TRY.get(error.reason) or _TRY_STATUS.get(error.status)
    if advice:
        lines.append(f"  try         {advice}")
    return "\n".join(lines)
