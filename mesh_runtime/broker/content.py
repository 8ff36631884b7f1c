"""A channel on which messages come: puts method, header and body frames together and hands each message on when it is whole."""

from mesh_runtime.broker import decoding
from mesh_runtime.broker.calls import METHOD_ID, Channel
from mesh_runtime.broker.decoding import Head
from mesh_runtime.broker.encoding import BODY, HEADER, METHOD
from mesh_runtime.broker.link import Link

_DELIVER, _RETURN = 0x003C003C, 0x003C0032


class ContentChannel(Channel):
    """Assembles content. What is built on it says what a delivery and a return are for."""

    def __init__(self, link: Link, number: int, frame_max: int) -> None:
        super().__init__(link, number, frame_max)
        self._delivering = False
        self._method: tuple[bytes, int, bool, str, str] | tuple[int, str, str, str] | None = None
        self._head: Head | None = None
        self._parts: list[bytes] = []
        self._missing = 0

    def frame(self, kind: int, data: bytes, start: int, stop: int) -> None:
        """Take a frame from the link."""
        if kind == METHOD:
            (method,) = METHOD_ID.unpack_from(data, start)
            if method == _DELIVER:
                self._method = decoding.deliver(data, start + 4)
                self._delivering = True
            elif method == _RETURN:
                self._method = decoding.returned(data, start + 4)
                self._delivering = False
            else:
                self._other_method(method, data, start, stop)
        elif kind == HEADER:
            self._head = head = decoding.head(data, start)
            if head.size == 0:
                self._whole(head, b"")
            self._missing = head.size
        elif kind == BODY and self._head is not None:
            head = self._head
            size = stop - start
            if size == self._missing and not self._parts:
                self._whole(head, data[start:stop])
                return
            self._parts.append(data[start:stop])
            self._missing -= size
            if self._missing <= 0:
                body = b"".join(self._parts)
                self._parts.clear()
                self._whole(head, body)

    def _whole(self, head: Head, body: bytes) -> None:
        method, self._method, self._head = self._method, None, None
        if method is None or self.over is not None:
            return
        if self._delivering:
            self._delivered(method, head, body)  # type: ignore[arg-type]
        else:
            self._came_back(method, head)  # type: ignore[arg-type]

    def _other_method(self, method: int, data: bytes, start: int, stop: int) -> None:
        super().frame(METHOD, data, start, stop)

    def _delivered(self, method: tuple[bytes, int, bool, str, str], head: Head, body: bytes) -> None:
        """A message came for a consumer."""

    def _came_back(self, method: tuple[int, str, str, str], head: Head) -> None:
        """A message could not be routed."""
