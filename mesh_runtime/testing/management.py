"""A client of RabbitMQ's management API: what the administrator of a test's broker does and sees.

Each method is one request. What the API lists about connections, channels and consumers is gathered by the broker once
a second (an end is seen at once), so a test polls until it sees what it waits for, and never trusts one look.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import aiohttp
from yarl import URL

from mesh_runtime.testing.broker_files import Definitions

Row = dict[str, Any]
"""One object of a list, with the API's own field names."""


class ManagementError(Exception):
    """The API refused a request. The message carries method, path, status and its reason."""

    def __init__(self, method: str, path: str, status: int, body: str) -> None:
        super().__init__(f"{method} {path}: {status} {body}")
        self.status = status


class Management:
    """An HTTP session with one broker's management API. Use it with `async with`."""

    def __init__(self, url: str, username: str, password: str) -> None:
        self._url = url
        self._headers = {"Authorization": aiohttp.encode_basic_auth(username, password)}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(headers=self._headers, timeout=aiohttp.ClientTimeout(total=10))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._session is not None:
            await self._session.close()

    # ------------------------------------------------------------------------------------------ to set up

    async def put_vhost(self, vhost: str) -> None:
        """Make a virtual host, ready for connections when this returns."""
        await self._send("PUT", "vhosts", vhost, body={})

    async def delete_vhost(self, vhost: str) -> None:
        """Delete a virtual host with all in it; its connections are closed."""
        await self._send("DELETE", "vhosts", vhost)

    async def put_user(self, name: str, password: str, tags: str = "") -> None:
        """Make a user, or give it a new password. Sessions that are open stay so."""
        await self._send("PUT", "users", name, body={"password": password, "tags": tags})

    async def delete_user(self, name: str) -> None:
        """Delete a user; its connections are closed at once."""
        await self._send("DELETE", "users", name)

    async def put_permissions(self, vhost: str, user: str, *, configure: str = ".*", write: str = ".*", read: str = ".*") -> None:
        """Set what `user` may do in `vhost`, as three regular expressions over names of exchanges and queues."""
        body = {"configure": configure, "write": write, "read": read}
        await self._send("PUT", "permissions", vhost, user, body=body)

    async def delete_permissions(self, vhost: str, user: str) -> None:
        """Take away all rights of `user` in `vhost`."""
        await self._send("DELETE", "permissions", vhost, user)

    async def put_topic_permissions(self, vhost: str, user: str, exchange: str, *, write: str, read: str) -> None:
        """Set which routing keys of a topic exchange `user` may write and bind."""
        body = {"exchange": exchange, "write": write, "read": read}
        await self._send("PUT", "topic-permissions", vhost, user, body=body)

    async def put_policy(self, vhost: str, name: str, policy: Mapping[str, Any]) -> None:
        """Set a policy: `pattern`, `definition`, `apply-to`, `priority` as in the API."""
        await self._send("PUT", "policies", vhost, name, body=policy)

    async def put_definitions(self, definitions: Definitions, vhost: str | None = None) -> None:
        """Load definitions: of the whole broker, or exchanges, queues, bindings and policies into one vhost."""
        path = ("definitions",) if vhost is None else ("definitions", vhost)
        await self._send("POST", *path, body=definitions)

    async def put_exchange(self, vhost: str, name: str, kind: str = "topic") -> None:
        """Declare a durable exchange."""
        await self._send("PUT", "exchanges", vhost, name, body={"type": kind, "durable": True})

    async def delete_exchange(self, vhost: str, name: str) -> None:
        """Delete an exchange and its bindings."""
        await self._send("DELETE", "exchanges", vhost, name)

    async def put_queue(self, vhost: str, name: str, arguments: Mapping[str, Any] | None = None, *, durable: bool = True) -> None:
        """Declare a queue: a *foreign* one, where a runtime wants its own."""
        await self._send("PUT", "queues", vhost, name, body={"durable": durable, "arguments": dict(arguments or {})})

    async def delete_queue(self, vhost: str, name: str) -> None:
        """Delete a queue, consumed from or not; its consumers are cancelled by the broker."""
        await self._send("DELETE", "queues", vhost, name)

    async def put_binding(self, vhost: str, exchange: str, queue: str, key: str) -> None:
        """Bind `queue` to `exchange` by `key`."""
        await self._send("POST", "bindings", vhost, "e", exchange, "q", queue, body={"routing_key": key})

    async def delete_binding(self, vhost: str, exchange: str, queue: str, key: str) -> None:
        """Take a binding away under whoever made it."""
        await self._send("DELETE", "bindings", vhost, "e", exchange, "q", queue, key)

    # ---------------------------------------------------------------------------------- to look and to cut

    async def queues(self, vhost: str) -> list[Row]:
        """List the queues of `vhost`."""
        return await self._list("queues", vhost)

    async def queue(self, vhost: str, name: str) -> Row:
        """Return one queue, with `consumer_details` and counts. Raises ManagementError with status 404."""
        row: Row = await self._send("GET", "queues", vhost, name)
        return row

    async def exchanges(self, vhost: str) -> list[Row]:
        """List the exchanges of `vhost`, those of AMQP itself among them."""
        return await self._list("exchanges", vhost)

    async def bindings(self, vhost: str) -> list[Row]:
        """List the bindings of `vhost`; those of the default exchange have an empty `source`."""
        return await self._list("bindings", vhost)

    async def consumers(self, vhost: str) -> list[Row]:
        """List the consumers of `vhost`."""
        return await self._list("consumers", vhost)

    async def connections(self, vhost: str) -> list[Row]:
        """List the connections into `vhost`, as the broker knew them up to a second ago."""
        return await self._list("vhosts", vhost, "connections")

    async def close_connection(self, name: str, reason: str = "closed by the operator") -> None:
        """Close a connection by its `name`, as an operator would; the client is told 320 and the reason."""
        await self._send("DELETE", "connections", name, headers={"X-Reason": reason})

    async def _list(self, *path: str) -> list[Row]:
        rows: list[Row] = await self._send("GET", *path)
        return rows

    async def _send(
        self,
        method: str,
        *path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        if self._session is None:
            raise RuntimeError("Management is used with `async with`")
        address = "/api/" + "/".join(quote(part, safe="") for part in path)
        url = URL(self._url + address, encoded=True)
        async with self._session.request(method, url, json=body, headers=headers) as response:
            if response.status >= 400:
                raise ManagementError(method, address, response.status, await response.text())
            return await response.json() if method == "GET" else None
