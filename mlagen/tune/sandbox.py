"""Calls in a process of their own, with a limit of time: what goes wrong there stays there."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable
from typing import Any

from mlagen.errors import MlagenError
from mlagen.processes import python_command
from mlagen.tune.zygote import ForkRequest, Reply, receive, send


class TimedOut(MlagenError):
    """The call did not end within its limit."""


class Died(MlagenError):
    """The call's process ended without a result, by what it did itself."""


class Killed(Died):
    """Somebody else ended the call's process: the kernel that ran out of memory, an administrator,
    a machine that shuts down. It says nothing of the call."""


class Sandbox:
    """One call after another, each in a fork of a process that has loaded everything. Functions and
    values must pickle. It is not for several threads at once."""

    def __init__(self, warm: Callable[[], Any] | None = None) -> None:
        self._warm = warm
        self._process: subprocess.Popen[bytes] | None = None

    def call(self, function: Callable[..., Any], *arguments: Any, limit: float) -> Any:
        """`function(*arguments)`. Raises what it raised; TimedOut after `limit` seconds; Died."""
        reply = self._ask(ForkRequest(function, arguments, limit))
        match reply.state:
            case "ended":
                return reply.value
            case "raised":
                raise reply.value
            case "timeout":
                raise TimedOut(f"did not end within {limit:g} s")
        tail = f": {reply.output}" if reply.output else ""
        if reply.state == "killed":
            raise Killed(f"its process was killed, {reply.value}{tail}")
        raise Died(f"its process died, {reply.value}{tail}")

    def _ask(self, request: ForkRequest) -> Reply:
        for attempt in (1, 2):
            try:
                return _exchange(self._started(), request)
            except (EOFError, BrokenPipeError):  # somebody killed it: once may be an accident
                self.close()
                if attempt == 2:
                    break
        return Reply("killed", "with the process that forks")

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                python_command("from mlagen.tune.zygote import main; main()"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C on the terminal is for us alone
            )
            if self._warm is not None:
                _exchange(self._process, ForkRequest(self._warm, (), 0, warm=True))
        return self._process

    def close(self) -> None:
        """End the process that forks, and a call that runs."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.kill()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        process.wait()


def _exchange(process: subprocess.Popen[bytes], request: ForkRequest) -> Reply:
    assert process.stdin is not None
    assert process.stdout is not None
    send(process.stdin, request)
    reply: Reply = receive(process.stdout)
    return reply
