"""By which names a server may be asked for: what the header ``Host`` says.

A page of any site can make its own name lead to 127.0.0.1 after it was loaded (DNS rebinding); for the browser it then
speaks with its own server, and may read what that answers. Where nothing else asks who is there, the name tells.
"""

from __future__ import annotations

import re
import socket
from ipaddress import ip_address

from longtail.errors import ConfigError
from longtail.serve.limits import Plan
from longtail.serve.problems import Problem, shown

_LOCAL = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\s:/@\[\]]+))(?::\d*)?")


def name_in(host: str) -> str:
    """The name or address in ``name:port``, in lower case; "" where there is none."""
    found = _HOST.fullmatch(host.strip().lower())
    return "" if found is None else found[1] or found[2]


def allowed(host: str) -> str:
    """A name that a user allows."""
    name = name_in(f"[{host}]" if host.count(":") > 1 and "[" not in host else host)
    if not name:
        raise ConfigError(f"--allow-host {host}, expected a name or an address", "e.g. --allow-host tags.example.org")
    return name


def names_of(plan: Plan, host: str, listener: socket.socket) -> tuple[str, ...]:
    """By which names the server at `listener`, which was told to listen at `host`, may be asked for; () for any.

    Any, where others than this machine reach it (they have names for it that we do not know) or where a token is asked
    for; unless the user names some.
    """
    address = listener.getsockname()[0]
    if not plan.hosts and (plan.token_digests or not ip_address(address).is_loopback):
        return ()
    return tuple(dict.fromkeys((*_LOCAL, address, host.lower(), *plan.hosts)))


def check(names: frozenset[str], headers: list[tuple[bytes, bytes]]) -> None:
    """Of a request. Browsers always send the header; what else sends none (checks of HTTP/1.0) may ask."""
    for header, value in headers:
        if header == b"host" and value.strip() and name_in(host := value.decode("latin-1")) not in names:
            raise Problem(
                421,
                f"this server is not asked for as {shown(host)}; who starts it may allow that: --allow-host NAME",
            )
