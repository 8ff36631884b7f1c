"""A test that leaves something behind fails, and is told what; one that leaves nothing passes."""

import threading

import pytest

from mesh_runtime.testing.leaks import _children

CLEAN = """
    import asyncio

    async def test_clean():
        task = asyncio.create_task(asyncio.sleep(0.05))
        reader, writer = await asyncio.open_connection(sock=__import__("socket").socketpair()[0])
        writer.close()

    def test_clean_without_a_loop():
        pass
"""

LEAKS = {
    "task": (
        """
        import asyncio
        async def test_it():
            asyncio.create_task(asyncio.sleep(60), name="forgotten")
        """,
        "left behind: task forgotten",
    ),
    "socket": (
        """
        import socket
        kept = []
        async def test_it():
            kept.append(socket.create_server(("127.0.0.1", 0)))
        """,
        "left behind: socket *127.0.0.1*",
    ),
    "socket of a test without a loop": (
        """
        import socket
        kept = []
        def test_it():
            kept.append(socket.create_server(("127.0.0.1", 0)))
        """,
        "left behind: socket *127.0.0.1*",
    ),
    "process": (
        """
        import subprocess
        kept = []
        def test_it():
            kept.append(subprocess.Popen(["sleep", "20"]))
        """,
        "left behind: process *: sleep 20",
    ),
    "error": (
        """
        import asyncio
        async def fails():
            raise ValueError("seen by nobody")
        async def test_it():
            asyncio.create_task(fails())
            await asyncio.sleep(0)
        """,
        "seen by nobody: Task exception was never retrieved: ValueError*",
    ),
}


@pytest.mark.parametrize("leak", LEAKS)
def test_what_a_test_leaves_behind_fails_it_and_is_named(pytester: pytest.Pytester, leak: str) -> None:
    code, line = LEAKS[leak]
    pytester.makepyfile(code)
    result = pytester.runpytest_subprocess("-o", "asyncio_mode=auto", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines([f"*{line}*"])


def test_what_ends_right_after_the_test_is_no_leak(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(CLEAN)
    pytester.runpytest_subprocess("-o", "asyncio_mode=auto", "-p", "no:cacheprovider").assert_outcomes(passed=2)


def test_threads_that_end_while_they_are_looked_at_fail_no_test() -> None:
    over = threading.Event()

    def come_and_go() -> None:
        while not over.is_set():
            threads = [threading.Thread(target=int) for _ in range(20)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    coming = threading.Thread(target=come_and_go)
    coming.start()
    try:
        for _ in range(2000):
            _children()  # raised FileNotFoundError once in some hundred looks
    finally:
        over.set()
        coming.join()
