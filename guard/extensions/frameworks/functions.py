"""Plain functions as guarded tools, for agents without a framework."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, TypeVar, cast

from guard.in_process import Session, SyncSession

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


F = TypeVar("F", bound="Callable[..., Any]")


def guarded(
    session: Session | SyncSession, *, name: str = "", server: str = ""
) -> Callable[[F], F]:
    """Return a decorator for a function that is a tool.

    The decorated function has the signature of the function; its arguments, defaults included, are
    judged by name.  It raises :class:`guard.Refused` and does not run where it is not allowed.

    Args:
        session: of the agent that calls it: a ``Session`` for async functions, a ``SyncSession``
            for plain ones.
        name: of the tool in the policy; left out, the function's.
        server: whose tool it is, where the policy tells servers apart.

    Raises:
        TypeError: an async function and a session without an event loop, or the reverse.
    """

    def decorate(function: F) -> F:
        tool = name or function.__name__
        signature = inspect.signature(function)
        is_async = inspect.iscoroutinefunction(function)
        if is_async != isinstance(session, Session):
            raise TypeError(f"`{tool}`: async functions need a Session, plain ones a SyncSession")

        def bound(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
            found = signature.bind(*args, **kwargs)
            found.apply_defaults()
            return found

        @functools.wraps(function)
        async def guarded_async(*args: Any, **kwargs: Any) -> Any:
            found = bound(args, kwargs)
            return await cast("Session", session).call(
                tool, found.arguments, functools.partial(_run, function, found), server=server
            )

        @functools.wraps(function)
        def guarded_sync(*args: Any, **kwargs: Any) -> Any:
            found = bound(args, kwargs)
            return cast("SyncSession", session).call(
                tool, found.arguments, functools.partial(_run, function, found), server=server
            )

        return cast("F", guarded_async if is_async else guarded_sync)

    return decorate


def _run(
    function: Callable[..., Any], found: inspect.BoundArguments, arguments: Mapping[str, Any]
) -> Any:
    """Run the function with what the verdict allows."""
    found.arguments.update(arguments)
    return function(*found.args, **found.kwargs)
