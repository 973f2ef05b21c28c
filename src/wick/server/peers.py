"""Checks that the servers of a cluster reach each other, as they must to forward requests for files."""

from __future__ import annotations

from http import HTTPStatus

import aiohttp

from wick.protocols import ServerInfo
from wick.server.auth.forwards import HEADER, ForwardSigner
from wick.server.auth.identity import User

PROBE_SECONDS = 2.0
TARGET = "/auth/me"


async def find_peer_problem(signer: ForwardSigner, user: User, server: ServerInfo) -> str:
    """Send a signed request to another server; return why requests cannot be forwarded to it, or an empty text."""
    if not server.address:
        return "it has no address for other servers; start it with --advertise"
    headers = {HEADER: signer.sign(user, "GET", TARGET.encode(), server.place)}
    timeout = aiohttp.ClientTimeout(total=PROBE_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(server.address.rstrip("/") + TARGET, headers=headers, allow_redirects=False) as response,
        ):
            if response.status == HTTPStatus.OK:
                return ""
            found = await response.json(content_type=None)
            return f"{server.address} refuses forwarded requests: {found['error']['message']}"
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        reason = "no answer" if isinstance(error, TimeoutError) else str(error)
        return (
            f"{server.address} cannot be reached: {reason}; check its --advertise, and the network between the servers"
        )
    except (ValueError, KeyError, TypeError):
        return f"another program answers at {server.address}; check its --advertise"
