"""Child processes that die with their parent, with their output tagged line by line.

A child must never outlive the process that started it, not even one killed by SIGKILL: the kernel's parent-death signal
does that. It is set by a short Python program that then replaces itself with the real one, because code run between
fork and exec (`preexec_fn`) can deadlock a process that has threads. The kernel watches the *thread* that forked: start
children from a thread that lives as long as they should, normally the main one.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

# Runs in the child: ask for SIGKILL when the parent ends, leave if it has ended already, undo what the interpreter did
# to signals (an ignored SIGPIPE would survive exec), become the program.
_SHIM = """\
import ctypes, os, signal, sys
if ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL, 0, 0, 0) != 0:
    sys.exit("prctl(PR_SET_PDEATHSIG): " + os.strerror(ctypes.get_errno()))
if os.getppid() != int(sys.argv[1]):
    os.kill(os.getpid(), signal.SIGKILL)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    sys.exit(f"{sys.argv[2]}: {error.strerror}")
"""

LineSink = Callable[[str], None]
"""Takes one whole line of output, tagged, without its newline."""


def spawn(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdout: int | IO[Any] = subprocess.DEVNULL,
    stderr: int | IO[Any] = subprocess.STDOUT,
) -> subprocess.Popen[bytes]:
    """Start `argv` in its own process group, bound to die with the calling thread; costs about 1 ms of this thread."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _SHIM, str(os.getpid()), *argv],
        env=None if env is None else dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        process_group=0,
    )


async def wait_exit(process: subprocess.Popen[bytes]) -> int:
    """Wait for the end of a process without a thread; its return code (negative: the signal). Any loop may wait."""
    code = process.poll()
    if code is not None:
        return code
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    descriptor = os.pidfd_open(process.pid)
    try:
        loop.add_reader(descriptor, done.set)
        try:
            await done.wait()
        finally:
            loop.remove_reader(descriptor)
    finally:
        os.close(descriptor)
    return process.wait()


def signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to the process and all it started in its group; nothing if it has ended."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)


async def end(process: subprocess.Popen[bytes], grace_s: float) -> int:
    """SIGTERM, then SIGKILL to the whole group after `grace_s` seconds; the return code."""
    signal_group(process, signal.SIGTERM)
    try:
        async with asyncio.timeout(grace_s):
            return await wait_exit(process)
    except TimeoutError:
        signal_group(process, signal.SIGKILL)
        return await wait_exit(process)


def to_stderr(line: str) -> None:
    """The default sink."""
    sys.stderr.write(line + "\n")


def to_file(path: Path) -> LineSink:
    """A sink that appends to a file, readable by its owner only; it stays open as long as the sink is used."""
    file = os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a", buffering=1)
    return lambda line: print(line, file=file)


class Child:
    """One program under our care: started, tagged, ended; can be started again after its end.

    Every line it prints goes to `sink` as `[name] line`. `stop` sends SIGTERM and, after `grace_s`, SIGKILL to its
    process group.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        sink: LineSink = to_stderr,
        grace_s: float = 10.0,
    ) -> None:
        self.name = name
        self.argv = tuple(argv)
        self.grace_s = grace_s
        self._env = env
        self._cwd = cwd
        self._sink = sink
        self._process: subprocess.Popen[bytes] | None = None
        self._pump: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    async def start(self) -> None:
        """Start the program; `RuntimeError` if it runs already."""
        if self.pid is not None:
            raise RuntimeError(f"{self.name}: already running as process {self.pid}")
        read, write = os.pipe()
        try:
            self._process = spawn(self.argv, env=self._env, cwd=self._cwd, stdout=write)
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        self._pump = asyncio.create_task(self._tag_lines(read), name=f"output of {self.name}")

    async def wait(self) -> int:
        """Wait for the program's end and for its last line; the return code."""
        if self._process is None:
            raise RuntimeError(f"{self.name}: not started")
        code = await wait_exit(self._process)
        await self._drain()
        return code

    def send(self, number: int) -> None:
        """Send a signal to the program's group; nothing if it does not run."""
        if self._process is not None:
            signal_group(self._process, number)

    async def stop(self) -> int | None:
        """End the program if it runs; its return code, None if it was never started."""
        if self._process is None:
            return None
        code = await end(self._process, self.grace_s)
        # A grandchild may have survived its group leader and hold the pipe open.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._drain()
        return code

    async def _drain(self) -> None:
        pump = self._pump
        if pump is None:
            return
        done, _ = await asyncio.wait({pump}, timeout=1.0)
        if not done:
            pump.cancel()
            await asyncio.wait({pump})

    async def _tag_lines(self, descriptor: int) -> None:
        # A line longer than the limit is passed on in pieces rather than lost.
        reader = asyncio.StreamReader(limit=1 << 20)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", buffering=0)
        )
        rest = b""
        try:
            while chunk := await reader.read(1 << 16):
                lines = (rest + chunk).split(b"\n")
                rest = lines.pop()
                if len(rest) > 1 << 20:
                    lines.append(rest)
                    rest = b""
                for line in lines:
                    self._emit(line)
            if rest:
                self._emit(rest)
        finally:
            transport.close()

    def _emit(self, line: bytes) -> None:
        self._sink(f"[{self.name}] {line.decode(errors='replace')}")
