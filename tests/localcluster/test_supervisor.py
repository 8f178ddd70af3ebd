"""Children: tagged output, their end, and restarts."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from koord.localcluster.process import Child, to_file
from koord.localcluster.servers import RedisServer
from koord.localcluster.supervisor import Backoff, Supervisor, brief


def python(code: str) -> list[str]:
    return [sys.executable, "-u", "-c", code]


async def until(condition: Callable[[], bool], limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "condition not met in time"
        await asyncio.sleep(0.005)


async def test_every_line_is_tagged_also_the_last_one_and_stderr() -> None:
    lines: list[str] = []
    child = Child(
        "gateway",
        python("import sys; print('one'); print('two', file=sys.stderr); sys.stdout.write('no newline')"),
        sink=lines.append,
    )
    await child.start()
    assert await child.wait() == 0
    assert lines == ["[gateway] one", "[gateway] two", "[gateway] no newline"]
    assert child.pid is None


async def test_output_may_go_to_a_private_file(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for word in ("one", "two"):
        child = Child("svc", python(f"print('{word}')"), sink=to_file(log))
        await child.start()
        await child.wait()
    assert log.read_text() == "[svc] one\n[svc] two\n"
    assert log.stat().st_mode & 0o777 == 0o600


async def test_a_very_long_line_does_not_stop_the_output() -> None:
    lines: list[str] = []
    child = Child("x", python("print('a' * 3_000_000); print('after')"), sink=lines.append)
    await child.start()
    await child.wait()
    assert lines[-1] == "[x] after"
    assert sum(line.count("a") for line in lines[:-1]) == 3_000_000


async def test_stop_is_graceful_first_and_then_not() -> None:
    lines: list[str] = []
    polite = Child(
        "polite",
        python(
            "import signal, sys\n"
            "def bye(*_):\n print('bye'); sys.exit(3)\n"
            "signal.signal(signal.SIGTERM, bye); print('up'); signal.pause()"
        ),
        sink=lines.append,
    )
    stubborn = Child(
        "stubborn",
        python("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN); print('up')\nwhile True: signal.pause()"),
        sink=lines.append,
        grace_s=0.2,
    )
    await polite.start()
    await stubborn.start()
    await until(lambda: {"[polite] up", "[stubborn] up"} <= set(lines))
    assert await polite.stop() == 3
    assert "[polite] bye" in lines
    assert await stubborn.stop() == -signal.SIGKILL
    assert await Child("never", ["true"]).stop() is None


async def test_stop_ends_grandchildren_too() -> None:
    lines: list[str] = []
    child = Child(
        "parent",
        python("import subprocess, signal; p = subprocess.Popen(['sleep', '600']); print(p.pid); signal.pause()"),
        sink=lines.append,
    )
    await child.start()
    await until(lambda: bool(lines))
    grandchild = int(lines[0].split()[-1])
    await child.stop()
    await until(lambda: not _running(grandchild))


def _running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


async def test_environment_signals_and_a_missing_program() -> None:
    lines: list[str] = []
    child = Child(
        "env",
        python("import os, signal; print(os.environ['KOORD_X'], signal.getsignal(signal.SIGHUP).name)"),
        env={**os.environ, "KOORD_X": "7"},
        sink=lines.append,
    )
    await child.start()
    assert await child.wait() == 0
    # What is ignored stays ignored in children (under nohup, say); handlers do not.
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert lines == [f"[env] 7 {'SIG_IGN' if ignored else 'SIG_DFL'}"]
    missing = Child("missing", ["/nonexistent/program"], sink=lines.append)
    await missing.start()
    assert await missing.wait() == 1
    assert lines[-1] == "[missing] /nonexistent/program: No such file or directory"
    with pytest.raises(RuntimeError, match="not started"):
        await Child("never", ["true"]).wait()


def test_backoff_doubles_to_its_limit_and_forgets_after_a_healthy_run() -> None:
    backoff = Backoff()
    assert [backoff.after(1.0) for _ in range(8)] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    assert backoff.after(30.0) == 0.2
    assert backoff.after(29.9) == 0.4


async def test_what_all_wait_for_is_not_away_long() -> None:
    assert [brief().after(1.0) for _ in range(2)] == [0.2, 0.2]
    backoff = brief()
    assert [backoff.after(1.0) for _ in range(6)] == [0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    lines: list[str] = []
    ended: list[tuple[str, int]] = []
    supervisor = Supervisor(
        sink=lines.append,
        backoff=lambda: Backoff(first_s=600.0, limit_s=600.0),
        on_end=lambda name, code: ended.append((name, code)),
    )
    await supervisor.add(Child("server", python("raise SystemExit(4)")), backoff=lambda: Backoff(first_s=0.01))
    await supervisor.add(Child("other", python("raise SystemExit(4)")))
    try:
        await until(lambda: supervisor.restarts["server"] >= 2)
        await until(lambda: "[other] ended with code 4; starting again in 600 s" in lines)
        assert supervisor.restarts["other"] == 0
        assert ended.count(("other", 4)) == 1 and ended.count(("server", 4)) >= 2
    finally:
        await supervisor.stop()


async def test_a_listener_that_fails_does_not_end_the_keeping() -> None:
    lines: list[str] = []

    def fails(*_: object) -> None:
        raise OSError("the disk is full")

    supervisor = Supervisor(
        sink=lines.append, backoff=lambda: Backoff(first_s=0.01, limit_s=0.02), on_restart=fails, on_end=fails
    )
    await supervisor.add(Child("server", python("raise SystemExit(4)")))
    try:
        await until(lambda: supervisor.restarts["server"] >= 3)
        assert lines.count("[server] the disk is full") >= 5
    finally:
        await supervisor.stop()


async def test_a_crashed_child_comes_back_with_a_new_pid() -> None:
    lines: list[str] = []
    restarted: list[str] = []
    supervisor = Supervisor(
        sink=lines.append, backoff=lambda: Backoff(first_s=0.01, limit_s=0.02), on_restart=restarted.append
    )
    child = Child("svc", python("import signal; print('up'); signal.pause()"), sink=lines.append)
    redis = RedisServer()
    try:
        await supervisor.add(redis, stage=0)
        await supervisor.add(child, stage=1)
        with pytest.raises(ValueError, match="svc"):
            await supervisor.add(child)
        before = supervisor.pids
        assert set(before) == {"redis-server", "svc"}
        url = redis.url
        for pid in before.values():
            os.kill(pid, signal.SIGKILL)
        await until(lambda: sorted(restarted) == ["redis-server", "svc"])
        after = supervisor.pids
        assert set(after) == set(before)
        assert not set(after.values()) & set(before.values())
        assert redis.url == url
        assert supervisor.restarts == {"redis-server": 1, "svc": 1}
        assert "[svc] ended with code -9; starting again in 0.01 s" in lines
    finally:
        await supervisor.stop()
    assert supervisor.pids == {}
    assert not any(_running(pid) for pid in after.values())


async def test_stages_stop_from_the_last_to_the_first() -> None:
    lines: list[str] = []
    code = (
        "import signal, sys\n"
        "def bye(*_):\n print('bye'); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, bye); print('up')\nwhile True: signal.pause()"
    )
    supervisor = Supervisor(sink=lines.append)
    for number, name in enumerate(["server", "api", "service"]):
        await supervisor.add(Child(name, python(code), sink=lines.append), stage=number)
    await until(lambda: len(lines) == 3)
    await supervisor.stop()
    assert lines[3:] == ["[service] bye", "[api] bye", "[server] bye"]


async def test_a_first_start_that_fails_is_the_callers_error() -> None:
    supervisor = Supervisor(sink=lambda _: None)
    with pytest.raises(Exception, match="ended with code 1"):
        await supervisor.add(RedisServer(binary=Path("/bin/false")))
    assert supervisor.pids == {}
    await supervisor.stop()


class Slow:
    """A child whose start takes as long as it is let."""

    name = "slow"
    pid: int | None = None

    async def start(self) -> None:
        await asyncio.Event().wait()

    async def wait(self) -> int:
        return 0

    async def stop(self) -> None:
        pass


async def test_stopped_while_a_child_starts() -> None:
    """Another one did not start, so that all are stopped: the error told is that one's alone."""
    supervisor = Supervisor()
    adding = asyncio.create_task(supervisor.add(Slow()))
    await asyncio.sleep(0)
    await supervisor.stop()
    adding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await adding
    assert supervisor.pids == {}


async def test_a_child_that_has_started_when_all_were_stopped_is_ended_and_not_kept() -> None:
    begun, go_on, running = asyncio.Event(), asyncio.Event(), set[str]()

    class Late(Slow):
        """Nobody can stop it before it has a process."""

        async def start(self) -> None:
            begun.set()
            await go_on.wait()
            running.add(self.name)

        async def wait(self) -> int:
            await asyncio.Event().wait()
            return 0

        async def stop(self) -> None:
            running.discard(self.name)

    supervisor = Supervisor()
    adding = asyncio.create_task(supervisor.add(Late()))
    await begun.wait()
    await supervisor.stop()
    go_on.set()
    with pytest.raises(RuntimeError, match="slow: stopped while it started"):
        await adding
    assert not running
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "keeper of slow"]


def test_children_work_on_uvloop() -> None:
    async def scenario() -> tuple[list[str], int]:
        lines: list[str] = []
        child = Child("u", python("print('hello'); import sys; sys.exit(5)"), sink=lines.append)
        await child.start()
        return lines, await child.wait()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(scenario()) == (["[u] hello"], 5)
