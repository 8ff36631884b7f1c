"""The program of every module: ``mesh-runtime-<module> [run] | health [--ready] [--json] | manifest | --version``.

``health`` and the signal handlers come before anything heavy is imported: a health check must cost next to nothing, and a SIGTERM that
arrives while the process still loads must end it. The first SIGTERM or SIGINT stops in order, the second ends the process at once.

Exit codes (sysexits.h): 0 stopped; 1 ``health`` says no; 64 wrong usage; 70 an error outside every stage and handler; 75 the operator's
``MESH_STARTUP_DEADLINE`` passed; 78 a setting is malformed in itself.
"""

import os
import signal
import sys

TYPE_CHECKING = False  # as type checkers know it: importing `typing` would cost as much as all that is imported before the handlers stand
if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from types import FrameType

    from mesh_runtime.runtime import ModuleRuntime
    from mesh_runtime.settings import Loaded, ModuleSettings

# sysexits.h; what the life of a runtime ends with of itself (0 and 75) stands in ``runtime.life``, which is loaded late.
EXIT_USAGE = 64
EXIT_SOFTWARE = 70
EXIT_CONFIG = 78

#: Seconds that tasks and threads which an author left running may hold up the end, once everything is handed back and closed.
LEAVE_WITHIN = 0.4

GROUP = "mesh_runtime.modules"
PROGRAM = "mesh-runtime-"
USAGE = "usage: {program} [run] | health [--ready] [--json] | manifest | --version"


class _Signals:
    """Plain handlers: they run although the loop is blocked, and before there is one."""

    def __init__(self) -> None:
        self.received = 0
        self.over = False
        self._wake: object = None

    def install(self) -> None:
        """From now on: the first signal stops in order (at once while nothing runs yet), the second leaves at once."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def wake_by(self, wake: object) -> None:
        """A function that makes the running loop stop in order."""
        self._wake = wake

    def leaving(self) -> None:
        """The loop has done its work: nothing is left to be stopped by a first signal."""
        self.over, self._wake = True, None

    def _handle(self, number: int, frame: "FrameType | None") -> None:
        self.received += 1
        if self.received == 1 and callable(self._wake):
            self._wake()
        elif self.received == 1 and not self.over:
            os._exit(0)  # nothing runs yet: nothing to hand back
        elif self.received == 1:
            return  # it is leaving already, with the exit code that it has
        else:
            os._exit(128 + number)  # the broker takes back what was not acknowledged


def main() -> None:
    """Run the command of this process: the module is the one that the program's name ends with."""
    program = os.path.basename(sys.argv[0])  # noqa: PTH119 - pathlib is not imported for `health`
    if not program.startswith(PROGRAM):
        print(f"{program}: this program must be started as {PROGRAM}<module>", file=sys.stderr)  # noqa: T201
        sys.exit(EXIT_USAGE)
    sys.exit(command(program.removeprefix(PROGRAM), sys.argv[1:]))


def command(module: str, arguments: list[str], cls: "type[ModuleRuntime] | None" = None) -> int:
    """Carry out one command of a module's program; returns the exit code. ``cls`` replaces the class that the entry point names."""
    match arguments:
        case [] | ["run"]:
            return _run(module, cls)
        case ["health", *flags] if set(flags) <= {"--ready", "--json"}:
            return _health("--ready" in flags, "--json" in flags)
        case ["manifest"]:
            return _manifest(module, cls)
        case ["--version"]:
            print(f"{PROGRAM}{module} {_version_of(module)}")  # noqa: T201
            return 0
        case _:
            print(USAGE.format(program=PROGRAM + module), file=sys.stderr)  # noqa: T201
            return EXIT_USAGE


def _health(ready: bool, as_json: bool) -> int:
    from mesh_runtime.health.check import check

    directory = os.environ.get("MESH_STATE_DIR", "")
    if not directory:
        print("not alive: MESH_STATE_DIR is not set, so there is no socket to ask", file=sys.stderr)  # noqa: T201
        return 1
    return check(directory, ready=ready, as_json=as_json)


def _manifest(module: str, cls: "type[ModuleRuntime] | None") -> int:
    from mesh_runtime.runtime.manifest import manifest_of

    print(manifest_of(cls or _load(module), _version_of(module, cls)).model_dump_json(indent=2))  # noqa: T201
    return 0


def _run(module: str, cls: "type[ModuleRuntime] | None") -> int:
    signals = _Signals()
    signals.install()

    from mesh_runtime.logging import configure

    configure()  # until the settings say how: what a module's import and its validators raise or warn of is logged, and masked, too

    import structlog

    log = structlog.stdlib.get_logger(__name__)
    try:
        chosen = load(module, cls)
    except Exception:  # the process's own guard: a module's code runs while it is imported
        log.exception("the module cannot be loaded")
        return EXIT_SOFTWARE

    from mesh_runtime.settings import MalformedSetting, load_settings

    try:
        loaded = load_settings(module, chosen.settings_class())
        configure(loaded.runtime.log, loaded.runtime.log_level)
        for warning in loaded.warnings:
            log.warning(warning)
        return _live(module, chosen, loaded, signals)
    except MalformedSetting as malformed:
        print(malformed, file=sys.stderr)  # noqa: T201
        return EXIT_CONFIG
    except Exception:  # the process's own last guard: said with its traceback, then exit 70
        log.exception("an error outside every stage and handler ends the process")
        return EXIT_SOFTWARE


def load(module: str, cls: "type[ModuleRuntime] | None" = None) -> "type[ModuleRuntime]":
    """Import all that a runtime of this module runs on; returns its class.

    The collector is off meanwhile and never looks at what was loaded: nothing of it is garbage, and to look through it over and over is
    a tenth of the whole cost.
    """
    import gc

    gc.disable()
    try:
        import mesh_runtime.runtime.life  # noqa: F401 - what it imports is what a runtime runs on

        return cls or _load(module)
    finally:
        gc.freeze()
        gc.enable()


def _live(module: str, cls: "type[ModuleRuntime]", loaded: "Loaded[ModuleSettings]", signals: _Signals) -> int:
    import asyncio

    import structlog

    from mesh_runtime.health.starts import append_start
    from mesh_runtime.runtime.life import Life
    from mesh_runtime.startup import RuntimeState

    log = structlog.stdlib.get_logger(__name__)
    version = _version_of(module, cls)
    state = RuntimeState(f"{module}@{loaded.runtime.machine}", version, os.getpid())

    async def live() -> int:
        life = Life(cls, version, loaded.runtime, loaded.own, state)
        loop = asyncio.get_running_loop()
        signals.wake_by(lambda: loop.call_soon_threadsafe(life.stop.set))
        try:
            append_start(loaded.runtime.state_dir)
        except OSError as unusable:
            log.error("this start could not be counted", directory=str(loaded.runtime.state_dir), error=str(unusable))
        log.info("started", identity=state.identity, version=version, pid=state.pid)
        return await life.run()

    code = EXIT_SOFTWARE
    with asyncio.Runner() as runner:
        try:
            code = runner.run(live())
        except SystemExit as left:  # asyncio lets it out of the loop from whatever task raised it: an author's own, outside every handler
            raise RuntimeError(f"a task that the module started called sys.exit({left.code!r})") from left
        finally:
            signals.leaving()
            _leave_within(LEAVE_WITHIN, code)
    log.info("ended", identity=state.identity, exit=code)
    return code


def _leave_within(seconds: float, code: int) -> None:
    """End the process with ``code`` should the interpreter's own end take longer: it joins threads, and waits for tasks without a limit."""
    import threading
    import time

    import structlog

    def leave() -> None:
        time.sleep(seconds)
        others = [one.name for one in threading.enumerate() if not one.daemon and one is not threading.main_thread()]
        structlog.stdlib.get_logger(__name__).warning(
            "what was left running holds up the end and is left behind", threads=others, exit=code
        )
        sys.stdout.flush()
        os._exit(code)

    threading.Thread(target=leave, name="leave", daemon=True).start()


def _entries_of(module: str) -> "list[EntryPoint]":
    from importlib.metadata import entry_points

    return [one for one in entry_points(group=GROUP) if one.name == module]


def _entry_of(module: str) -> "EntryPoint":
    found = _entries_of(module)
    if len(found) != 1:
        what = "no installed distribution has" if not found else f"{len(found)} installed distributions have"
        print(f"{PROGRAM}{module}: {what} an entry point {module!r} in the group {GROUP}", file=sys.stderr)  # noqa: T201
        sys.exit(EXIT_USAGE)
    return found[0]


def _version_of(module: str, cls: "type[ModuleRuntime] | None" = None) -> str:
    """The version of the module's distribution. A class that was handed in may be one that nothing installed: ``0`` then."""
    from importlib.metadata import entry_points

    if cls is not None and not entry_points(group=GROUP, name=module):
        return "0"
    dist = _entry_of(module).dist
    return dist.version if dist is not None else "0"


def _load(module: str) -> "type[ModuleRuntime]":
    cls = _entry_of(module).load()
    if cls.module != module:
        print(f"{PROGRAM}{module}: its entry point names {cls.__name__}, whose module is {cls.module!r}", file=sys.stderr)  # noqa: T201
        sys.exit(EXIT_USAGE)
    loaded: type[ModuleRuntime] = cls
    return loaded
