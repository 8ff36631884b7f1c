"""One valid JSON line per record, with the same fields, whoever logged and whatever was logged."""

import io
import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from mesh_runtime.logging.handler import LineHandler
from mesh_runtime.logging.masking import Masker
from mesh_runtime.logging.plain import MAX_ITEMS, MAX_TEXT
from mesh_runtime.logging.rendering import LineFormatter, as_json
from tests.logging.conftest import Program


class Capture:
    """A logger with the library's handler, and what it wrote."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.masker = Masker()
        self.logger = logging.Logger("captured", logging.DEBUG)  # noqa: LOG001  (outside the process's tree of loggers)
        self.logger.addHandler(LineHandler(self.stream, LineFormatter(as_json, self.masker)))

    def one(self) -> dict[str, Any]:
        (line,) = self.stream.getvalue().splitlines()
        record: dict[str, Any] = json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
        return record


@pytest.fixture
def capture() -> Capture:
    return Capture()


def test_a_record_has_time_level_logger_and_event_first(capture: Capture) -> None:
    before = datetime.now(UTC)
    capture.logger.warning("a %s of it", "word", extra={"more": 1})
    record = capture.one()
    assert list(record) == ["time", "level", "logger", "event", "more"]
    assert record | {"time": ""} == {"time": "", "level": "warning", "logger": "captured", "event": "a word of it", "more": 1}
    assert record["time"].endswith("Z")
    assert abs((datetime.fromisoformat(record["time"]) - before).total_seconds()) < 60


def test_a_field_under_a_name_of_our_own_keeps_both(capture: Capture) -> None:
    capture.logger.info("x", extra={"level": "high", "event": "other"})
    record = capture.one()
    assert (record["level"], record["level_"], record["event"], record["event_"]) == ("info", "high", "x", "other")


class _Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class _Endless:
    def __str__(self) -> str:
        return f"{self}"

    __repr__ = __str__


_circle: list[Any] = []
_circle.append(_circle)


@pytest.mark.parametrize(
    "value",
    [
        _Unshowable(),
        _Endless(),
        _circle,
        float("nan"),
        float("-inf"),
        2**100_000,
        b"\xff" * 100_000,
        "lone \ud800",
        {1: {(2,): object()}},
        {"x": _Unshowable()},
        [_Unshowable()] * 3,
        ValueError(_Unshowable()),
        sys,
        list(range(MAX_ITEMS + 5)),
        "x" * (MAX_TEXT + 5),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_serialised_becomes_a_placeholder_and_nothing_raises(capture: Capture, value: object) -> None:
    capture.logger.info("strange", extra={"value": value})
    record = capture.one()
    assert record["event"] == "strange"
    assert record["value"] is not None
    assert len(json.dumps(record)) < 2 * MAX_TEXT


@pytest.mark.parametrize(
    ("template", "arguments"),
    [("%d", ("x",)), ("%s %s", ("x",)), ("%s", (_Unshowable(),)), ("%s", (_Endless(),)), ("%(a)s", ("b",)), ("%q", (1,))],
)
def test_a_message_that_does_not_fit_its_arguments_is_still_a_record(
    capture: Capture, capsys: pytest.CaptureFixture[str], template: str, arguments: tuple[object, ...]
) -> None:
    capture.logger.error(template, *arguments)
    record = capture.one()
    assert record["event"] == "a log record could not be rendered"
    assert record["template"] == repr(template)
    assert record["level"] == "error"
    assert capsys.readouterr().err == ""


def test_a_logging_call_does_not_raise_when_nobody_reads_any_more(capture: Capture, capsys: pytest.CaptureFixture[str]) -> None:
    capture.stream.close()
    capture.logger.error("unread")
    assert capsys.readouterr().err == ""


def test_a_record_with_line_ends_stays_one_line(capture: Capture) -> None:
    capture.logger.info("one\ntwo\r\nthree\u2028four\x85five\x0b", extra={"more\n": "a\nb"})
    assert capture.one()["event"] == "one\ntwo\r\nthree\u2028four\x85five\x0b"


def test_a_traceback_keeps_chained_causes_and_notes_and_shows_no_locals(capture: Capture) -> None:
    local = "held in a local".replace(" ", "-")
    try:
        try:
            raise ValueError("first")
        except ValueError as error:
            error.add_note("a note")
            raise KeyError("second") from error
    except KeyError:
        capture.logger.exception("failed")
    text = capture.one()["exception"]
    assert "ValueError: first\na note" in text
    assert "direct cause" in text
    assert text.endswith("KeyError: 'second'")
    assert local not in text


def test_a_number_that_is_a_secret_is_masked(capture: Capture) -> None:
    capture.masker.register("12345678")
    capture.logger.info("x", extra={"pin_code": 12345678, "other": 1234})
    record = capture.one()
    assert (record["pin_code"], record["other"]) == ("***", 1234)


def test_a_long_text_is_cut_after_masking_so_that_no_half_of_a_secret_stays(capture: Capture) -> None:
    capture.masker.register("hunter2-and-more")
    capture.logger.info("x" * (MAX_TEXT - 8) + "hunter2-and-more")
    event = capture.one()["event"]
    assert "hunter2" not in event
    assert event.startswith("x" * (MAX_TEXT - 8) + "***")


def test_every_logger_of_a_process_ends_in_one_json_line_on_stdout(program: Program) -> None:
    written = program("""
attached = logging.getLogger("attached"); attached.addHandler(logging.StreamHandler()); attached.propagate = True
configure("json", "debug")
import asyncio
structlog.contextvars.bind_contextvars(correlation_id="c-1")
log.info("structlog %s", "positional", field=1)
std.info("stdlib")
attached.info("attached")
warnings.warn("warned")
logging.getLogger("asyncio").debug("asyncio")
logging.getLogger("aio_pika.x").info("client")
print(sys.getrefcount, file=open(os.devnull, "w"))
""")
    assert written.stderr == ""
    by_logger = {record["logger"]: record for record in written.records}
    assert set(by_logger) == {"author", "library", "attached", "py.warnings", "asyncio", "aio_pika.x"}
    assert len(written.records) == len(by_logger)
    assert {record["correlation_id"] for record in written.records} == {"c-1"}
    assert by_logger["author"] | {"time": ""} == {
        "time": "",
        "level": "info",
        "logger": "author",
        "event": "structlog positional",
        "correlation_id": "c-1",
        "field": 1,
    }


def test_the_interpreters_hooks_write_records_with_the_error(program: Program) -> None:
    written = program("""
class Closing:
    def __del__(self): raise RuntimeError("in a finaliser")
Closing()
def fails(): raise RuntimeError("in a thread")
thread = threading.Thread(target=fails, name="worker"); thread.start(); thread.join()
async def main():
    install_loop_hook(asyncio.get_running_loop())
    asyncio.get_running_loop().call_soon(fails)
    await asyncio.sleep(0)
asyncio.run(main())
raise KeyError("at the top")
""")
    assert written.code == 1
    assert written.stderr == ""
    errors = [(record["level"], record["exception"].splitlines()[-1]) for record in written.records if "exception" in record]
    assert errors == [
        ("error", "RuntimeError: in a finaliser"),
        ("critical", "RuntimeError: in a thread"),
        ("error", "RuntimeError: in a thread"),
        ("critical", "KeyError: 'at the top'"),
    ]
    (of_loop,) = [record for record in written.records if record["logger"] == "asyncio" and record["level"] == "error"]
    assert of_loop["event"].startswith("Exception in callback fails()")
    assert "Handle fails()" in of_loop["in_handle"]


def test_faulthandler_still_speaks_on_stderr(program: Program) -> None:
    written = program("import faulthandler; assert faulthandler.is_enabled(); os.kill(os.getpid(), 11)")
    assert written.code == -11
    assert "Segmentation fault" in written.stderr
    assert written.found == []


def test_below_the_level_nothing_is_written(program: Program) -> None:
    written = program('configure("json", "warning"); log.info("a"); std.info("b"); log.warning("c"); std.warning("d")')
    assert [record["event"] for record in written.records] == ["c", "d"]


@pytest.mark.parametrize(("level", "seen"), [("debug", "debug"), ("info", None)])
def test_the_clients_noise_is_demoted_to_debug_and_not_lost_there(program: Program, level: str, seen: str | None) -> None:
    written = program(f"""
configure("json", {level!r}); configure("json", {level!r})
import aiormq.connection, inspect
source = inspect.getsource(aiormq.connection)
for beginning in ("error when creating transport", "Cancelling cause reader exited abnormally", "Server connection %r was stuck",
                  "Unexpected connection close from remote"):
    assert beginning in source, beginning
aiormq.connection.log.error("error when creating transport: %r", OSError("x"))
aiormq.connection.log.warning("Connection %r was blocked by: %r", "c", "memory")
""")
    assert written.code == 0, written.stdout
    found = {record["event"].split(":")[0]: record["level"] for record in written.records if record["logger"].startswith("aiormq")}
    assert found.get("error when creating transport") == seen
    assert found["Connection 'c' was blocked by"] == "warning"


def test_the_console_shows_records_masked_with_their_traceback(program: Program) -> None:
    written = program("""
configure("console", "debug")
try:
    raise ValueError(SECRET)
except ValueError:
    log.exception("failed with " + SECRET, field=SECRET)
""")
    assert written.found == []
    assert "failed with ***" in written.stdout
    assert "field=***" in written.stdout
    assert "ValueError: ***" in written.stdout
    assert "Traceback" in written.stdout
