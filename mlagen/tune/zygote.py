"""A process that has loaded everything and forks one for each call.

Loading the generator, the emulator and their compiled code takes seconds, a fork milliseconds. The
side that asks is `mlagen.tune.sandbox`. Requests and replies are pickles after their length, on
stdin and stdout; a call's own output goes to a file. Nothing outlives the one who asked: when stdin
ends, the running call and all that it started are killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import select
import signal
import struct
import tempfile
import time
from collections.abc import Callable
from typing import IO, Any, NamedTuple

LENGTH = struct.Struct("<Q")
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_GRACE = 5  # seconds beyond the limit until a call ends itself, should nobody else do it
_TAIL = 2000  # characters of a dead call's output
# Signals that a process gets from others; what it does wrong itself raises SIGSEGV, SIGABRT and the
# like. Linux sends SIGKILL when memory runs out (kernel.org, admin-guide/mm/concepts, OOM killer).
_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)


class ForkRequest(NamedTuple):
    """`function(*arguments)`, to end within `limit` seconds; `warm`: in this process itself."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    limit: float
    warm: bool = False


class Reply(NamedTuple):
    """`state`: "ended" with the value, "raised" with the exception, "timeout", or "died" with how,
    "killed" where that came from outside; `output`: the end of what a call that did not end by
    itself had written."""

    state: str
    value: Any = None
    output: str = ""


def send(stream: IO[bytes], message: Any) -> None:
    """Write one message."""
    data = pickle.dumps(message)
    stream.write(LENGTH.pack(len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read one message. EOFError: the other side has gone."""
    head = _exactly(stream, LENGTH.size)
    return pickle.loads(_exactly(stream, LENGTH.unpack(head)[0]))


def _exactly(stream: IO[bytes], count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return data


def main() -> None:
    """Serve until stdin ends."""
    # Whatever a call prints must not get between the replies.
    asked, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who asks
    while True:
        try:
            request: ForkRequest = receive(asked)
        except EOFError:
            return
        reply = _warm(request) if request.warm else _forked(request, asked)
        send(replies, reply)


def _warm(request: ForkRequest) -> Reply:
    # What fails here fails again in the call that needs it, which tells.
    with contextlib.suppress(Exception):
        request.function(*request.arguments)
    return Reply("ended")


def _forked(request: ForkRequest, asked: IO[bytes]) -> Reply:
    results, result = os.pipe()
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            _child(request, result, output.fileno())
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpgid(child, child)  # the child does it too: whoever comes first
        os.close(result)
        data, late = _collect(results, asked, request.limit, child)
        _kill(child)
        _, status = os.waitpid(child, 0)
        output.seek(0)
        text = output.read().decode(errors="replace")[-_TAIL:].strip()
    if late:
        return Reply("timeout", request.limit, text)
    try:
        return Reply(*pickle.loads(data))
    except Exception:
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) in _OUTSIDE
        return Reply("killed" if killed else "died", _how(status), text)


def _child(request: ForkRequest, result: int, output: int) -> None:
    """Run the call, write its result, end."""
    try:
        os.setpgid(0, 0)
        with contextlib.suppress(Exception):  # other systems than Linux have the alarm only
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # when the parent dies
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        # By default the signal ends the process, whatever native code it is in.
        signal.alarm(int(request.limit) + _GRACE)
        os.dup2(output, 1)
        os.dup2(output, 2)
        try:
            reply = ("ended", request.function(*request.arguments))
        except BaseException as error:
            reply = ("raised", error)
        try:
            data = pickle.dumps(reply)
            pickle.loads(data)
        except Exception:
            why = RuntimeError(f"{type(reply[1]).__name__}: {reply[1]}")
            data = pickle.dumps(("raised", why))
        with os.fdopen(result, "wb") as stream:
            stream.write(data)
    finally:
        os._exit(0)


def _collect(results: int, asked: IO[bytes], limit: float, child: int) -> tuple[bytes, bool]:
    """All that the child writes, and whether its time ran out. Ends this process with the asker."""
    until = time.monotonic() + limit
    parts: list[bytes] = []
    with os.fdopen(results, "rb", buffering=0) as stream:
        while True:
            left = until - time.monotonic()
            if left <= 0:
                return b"", True
            ready, _, _ = select.select([stream, asked], [], [], left)
            if asked in ready:  # nobody asks twice before the reply: this is the end
                _kill(child)
                os._exit(0)
            if stream in ready:
                part = stream.read(1 << 16)
                if not part:
                    return b"".join(parts), False
                parts.append(part)


def _kill(child: int) -> None:
    """The child and whatever it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)


def _how(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"signal {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exit code {os.WEXITSTATUS(status)}"
