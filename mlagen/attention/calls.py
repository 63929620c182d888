"""Calls as users write them: a call's names stand in one function, for all methods that take it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
Call = TypeVar("Call")


def taking(
    call: Callable[P, Call],
) -> Callable[[Callable[[Any, Call], R]], Callable[Concatenate[Any, P], R]]:
    """Makes a method of what `call` returns one that takes the arguments of `call`."""

    def decorate(method: Callable[[Any, Call], R]) -> Callable[Concatenate[Any, P], R]:
        @wraps(method)
        def taken(self: Any, *args: P.args, **options: P.kwargs) -> R:
            return method(self, call(*args, **options))

        shown = inspect.signature(call)
        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        taken.__signature__ = shown.replace(  # type: ignore[attr-defined]  # what help shows
            parameters=[own, *shown.parameters.values()],
            return_annotation=inspect.signature(method).return_annotation,
        )
        return taken

    return decorate
