"""Stage *resolve*: names to addresses, in daemon threads of our own.

asyncio's ``getaddrinfo`` runs in the default executor, which ``asyncio.run`` joins at the end: a process that was told to stop while a name
server is silent would hang for as long as that is. A daemon thread holds nobody back. One lookup of a name is shared by whoever waits for
it, so that a dead name server costs a thread for each name, not for each attempt.
"""

import asyncio
import concurrent.futures
import ipaddress
import socket
import threading
from dataclasses import dataclass
from typing import Any

from mesh_runtime.startup import PACES, Stage, waiting

SockAddress = tuple[Any, ...]
Target = tuple[socket.AddressFamily, SockAddress]

#: Seconds that slower names get once the first has an address: it may be the one that can be reached.
GRACE = 1.0

_under_way: dict[tuple[str, int], "concurrent.futures.Future[list[Target]]"] = {}


@dataclass(frozen=True, slots=True)
class Resolved:
    """Where to dial, in the order of the names, and in words what could not be resolved."""

    targets: list[Target]
    missing: list[str]


async def resolve_all(addresses: tuple[tuple[str, int], ...]) -> Resolved:
    """All addresses of all names; raises StageFault (waiting) at the stage's deadline, or once no name has one."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    ends, found = began + PACES[Stage.RESOLVE].deadline, False
    own = [asyncio.ensure_future(_result(_lookup(host, port))) for host, port in addresses]
    late = set(own)
    try:
        while late and (left := ends - loop.time()) > 0:
            done, late = await asyncio.wait(late, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not found and any(isinstance(each.result(), list) for each in done):
                found, ends = True, min(ends, loop.time() + GRACE)
        silence = f"timeout: no answer within {loop.time() - began:.1f} s"
        return _sorted(addresses, [each.result() if each.done() else silence for each in own])
    finally:
        for each in own:
            each.cancel()


def _sorted(addresses: tuple[tuple[str, int], ...], results: list[list[Target] | str]) -> Resolved:
    targets: dict[Target, None] = {}
    missing, codes = [], set()
    for (host, _), result in zip(addresses, results, strict=True):
        if isinstance(result, list):
            targets.update(dict.fromkeys(result))
            continue
        code, _, words = result.partition(": ")
        codes.add(code)
        missing.append(f"{host}: {words}")
    if not targets:
        code = codes.pop() if len(codes) == 1 else "unresolved"
        raise waiting(Stage.RESOLVE, code, "no address for " + "; ".join(missing), ", ".join(host for host, _ in addresses))
    return Resolved(list(targets), missing)


async def _result(lookup: "concurrent.futures.Future[list[Target]]") -> list[Target] | str:
    """The addresses, or a code and the resolver's words."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not waiter.done():
            waiter.set_result(None)

    def tell(_: object) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(wake)

    lookup.add_done_callback(tell)
    await waiter
    error = lookup.exception()
    match error:
        case None:
            return lookup.result()
        case socket.gaierror():
            code = "unknown-name" if error.errno in (socket.EAI_NONAME, socket.EAI_NODATA) else "resolver-failed"
            return f"{code}: {error.strerror or error}"
        case _:
            return f"resolver-failed: {type(error).__name__}: {error}"


def _lookup(host: str, port: int) -> "concurrent.futures.Future[list[Target]]":
    known = _under_way.get((host, port))
    if known is not None:
        return known
    made: concurrent.futures.Future[list[Target]] = concurrent.futures.Future()
    literal = _literal(host, port)
    if literal is not None:
        made.set_result([literal])
        return made
    _under_way[host, port] = made
    try:
        threading.Thread(target=_getaddrinfo, args=(host, port, made), name=f"resolve {host}", daemon=True).start()
    except RuntimeError as no_thread:  # the system's limit: whoever comes later must not wait for a lookup that nobody makes
        _under_way.pop((host, port), None)
        made.set_exception(no_thread)
    return made


def _literal(host: str, port: int) -> Target | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return (socket.AF_INET, (host, port)) if address.version == 4 else (socket.AF_INET6, (host, port, 0, 0))


def _getaddrinfo(host: str, port: int, made: "concurrent.futures.Future[list[Target]]") -> None:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, ValueError, OverflowError) as error:
        _under_way.pop((host, port), None)
        made.set_exception(error)
        return
    _under_way.pop((host, port), None)
    made.set_result([(family, address) for family, _, _, _, address in found])
