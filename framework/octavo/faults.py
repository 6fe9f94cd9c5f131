"""Whose fault an error is: which component raised it, and where in that component's own code.

Components are other people's code, which may raise what is no `Exception` too: `sys.exit` and
`KeyboardInterrupt` among them. Only what a signal brought is nobody's fault, and goes on.

Knows exceptions and how components are called. Does not know what any component does.
"""

from __future__ import annotations

import inspect
import signal
from contextlib import contextmanager
from dataclasses import dataclass
from opcode import opname
from typing import TYPE_CHECKING, Final

from octavo.errors import EngineDeadError, PluginError, RequestFailedError

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterator
    from types import CodeType, TracebackType

#: what code of a component may raise: to be caught where one is called, and given to `Fault.of`
FAULTS: Final = (Exception, SystemExit, KeyboardInterrupt, GeneratorExit)
#: packages whose frames say nothing about a component
_MACHINERY: Final = frozenset({"octavo", "importlib", "_frozen_importlib", "runpy"})
_LOST: Final = "all running requests are lost"
_WHOSE: Final = "octavo_component"  # the attribute of an instance that says which component it is


@dataclass(frozen=True, slots=True)
class Fault:
    """What a component did wrong: `whose` method raised it, and the place in its own code."""

    whose: str
    method: str
    error: BaseException
    place: str

    @classmethod
    def of(cls, component: object, method: str, error: BaseException) -> Fault:
        """Return the fault of a component whose `method` has just raised.

        Raises the error again when a signal brought it.
        """
        raise_if_signalled(error)
        return cls(whose(component), method, error, place_of(error, component))

    @property
    def facts(self) -> tuple[str, ...]:
        """What was raised, and where."""
        return describe(self.error), f"at {self.place}" if self.place else ""

    def refusal(self, what: str = "failed in {method}") -> RequestFailedError:
        """Return the error that ends the one request which the fault can be laid to."""
        return RequestFailedError(
            f"the {self.whose} {what.format(method=self.method)}",
            *self.facts,
            "other requests are not affected; the component has to be mended",
        )


def fault_in(error: BaseException) -> Fault | None:
    """Return the fault of the component nearest to where an error was raised.

    None where no component was at work. For errors that nobody caught where one was called.
    """
    for one in reversed(_tracebacks(error)):
        component = one.tb_frame.f_locals.get("self")
        if _WHOSE in getattr(component, "__dict__", {}):
            method = one.tb_frame.f_code.co_name
            return Fault(whose(component), method, error, place_of(error, component))
    return None


def death_by(error: BaseException, what: str = "the engine") -> EngineDeadError:
    """Return what is told of an error that ends the engine: which component raised it, and where.

    What tells so already is returned as it is. `what` failed is said where no component was at
    work.
    """
    if isinstance(error, EngineDeadError):
        return error
    fault = fault_in(error)
    if fault is None:
        return EngineDeadError(f"{what} failed: {describe(error)}", _LOST)
    headline = f"the engine failed: the {fault.whose} failed in {fault.method}"
    return EngineDeadError(headline, *fault.facts, _LOST)


@contextmanager
def deadly(what: str = "the engine") -> Iterator[None]:
    """Raise EngineDeadError for whatever is raised within, but for what a signal brought."""
    try:
        yield
    except EngineDeadError:
        raise
    except FAULTS as error:
        raise_if_signalled(error)
        raise death_by(error, what) from error


class FaultLog:
    """Tells of faults in the log: once for each component, method and type of error."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._told: set[tuple[str, str, type]] = set()

    def tell(self, fault: Fault) -> None:
        """Write a fault with its traceback, unless one of its sort was told before."""
        sort = (fault.whose, fault.method, type(fault.error))
        if sort not in self._told:
            self._told.add(sort)
            self._logger.error(
                "the %s failed in %s (told once): %s",
                fault.whose,
                fault.method,
                "; ".join(fact for fact in fault.facts if fact),
                exc_info=fault.error,
            )


def name_component(instance: object, name: str) -> None:
    """Note on an instance which component it is: `scheduler 'sjf' (octavo-sjf 0.1)`."""
    try:
        object.__setattr__(instance, _WHOSE, name)
    except (AttributeError, TypeError):  # it has no room for it: its class's name has to do
        return


def whose(component: object) -> str:
    """Return how messages call a component: as it was named, or else by its class."""
    named: str | None = getattr(component, "__dict__", {}).get(_WHOSE)
    return named or f"component {type(component).__qualname__}"


def describe(error: BaseException) -> str:
    """Return an error on one line: its type and message, or only the message for our own."""
    text = "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
    if isinstance(error, PluginError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def place_of(error: BaseException, component: object = None) -> str:
    """Return `file:line` of the component's own frame nearest to where an error was raised.

    Its own are those of its class's package; without a component, those of the first package that
    is neither this one nor Python's. Where no frame is, the definition of the class has to do.
    """
    names = [_package(one.tb_frame.f_globals.get("__name__")) for one in _tracebacks(error)]
    others = [name for name in names if name not in _MACHINERY]
    home = next(iter(others), "") if component is None else _package(type(component).__module__)
    for name, one in reversed(list(zip(names, _tracebacks(error), strict=True))):
        if name == home:
            return f"{one.tb_frame.f_code.co_filename}:{one.tb_lineno}"
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    return "" if component is None else defined_at(type(component))


def defined_at(cls: object) -> str:
    """Return `file:line` of a class's definition; empty where its source cannot be found."""
    try:
        file, line = inspect.getsourcefile(cls), inspect.getsourcelines(cls)[1]  # type: ignore[arg-type]
    except (OSError, TypeError):
        return ""
    return f"{file}:{line}"


def _package(module: object) -> str:
    return str(module).partition(".")[0]


def raise_if_signalled(error: BaseException) -> None:
    """Raise an error again that a signal brought, as Ctrl-C does: it is no fault of the code.

    Python raises KeyboardInterrupt for SIGINT between two instructions of whatever runs, so that
    the innermost frame does not stand at a `raise`. A handler of the program's own is a frame.
    """
    if isinstance(error, Exception):
        return
    tracebacks = _tracebacks(error)
    if any(one.tb_frame.f_code in _handlers() for one in tracebacks):
        raise error
    if isinstance(error, KeyboardInterrupt) and tracebacks:
        innermost = tracebacks[-1]
        if opname[innermost.tb_frame.f_code.co_code[innermost.tb_lasti]] != "RAISE_VARARGS":
            raise error


def _tracebacks(error: BaseException) -> list[TracebackType]:
    found, one = [], error.__traceback__
    while one is not None:
        found.append(one)
        one = one.tb_next
    return found


def _handlers() -> set[CodeType]:
    """Return the code of the program's handlers of signals."""
    handlers = (signal.getsignal(number) for number in signal.valid_signals())
    codes = (getattr(handler, "__code__", None) for handler in handlers)
    return {code for code in codes if code is not None}
