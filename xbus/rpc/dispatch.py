"""Finds the method that serves a verb of the wire, and checks the arguments; no sockets.

A method is marked with the verb it serves, ``Dispatch`` collects the marked methods of its objects into one table. What
a method's annotations say of its parameters is compiled once and checked at each call, so that a handler never sees a
number where it expects bytes. Elements of lists and maps are the handler's own business.

A second method may undo an answer of a verb that reached nobody; it is marked with ``undoes``.
"""

import inspect
from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from xbus.errors import ConfigurationError, Refused
from xbus.rpc.frames import UNKNOWN_METHOD, WRONG_ARGUMENTS

F = TypeVar("F", bound=Callable[..., Any])

_VERB = "__verb__"
_UNDONE = "__undone__"
_WIRE_TYPES = frozenset({str, bytes, int, float, bool, list, dict, NoneType})
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def verb(name: str) -> Callable[[F], F]:
    """Mark a method as the one that serves the verb ``name``; dots separate namespaces."""

    def mark(method: F) -> F:
        setattr(method, _VERB, name)
        return method

    return mark


def undoes(name: str) -> Callable[[F], F]:
    """Mark a method that gets each answer of the verb ``name`` that could not be delivered."""

    def mark(method: F) -> F:
        setattr(method, _UNDONE, name)
        return method

    return mark


class Dispatch:
    """The table of all verbs that the given objects serve.

    Args:
        objects: instances with methods marked by ``verb``. Parameters may be annotated with str, bytes, int, float,
            bool, list, dict, unions of these with None, or Any.

    Raises:
        ConfigurationError: two methods serve one verb, or a parameter can't be checked.
    """

    def __init__(self, *objects: object) -> None:
        self._handlers: dict[str, _Handler] = {}
        self._undo: dict[str, Callable[[Any], object]] = {}
        for served in objects:
            for method in _marked_methods(served, _VERB):
                self._add(_Handler(getattr(method, _VERB), method))
            self._undo.update({getattr(method, _UNDONE): method for method in _marked_methods(served, _UNDONE)})

    def _add(self, handler: "_Handler") -> None:
        if handler.verb in self._handlers:
            raise ConfigurationError(f"two methods serve the verb {handler.verb}", "mark only one of them")
        self._handlers[handler.verb] = handler

    @property
    def verbs(self) -> frozenset[str]:
        """The names of all verbs in the table."""
        return frozenset(self._handlers)

    def call(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Carry out a call: what the method returns, be it the answer, a future of it or a coroutine.

        Raises:
            Refused: ``unknown_method`` or ``wrong_arguments``; the method was not called.
        """
        handler = self._handlers.get(name)
        if handler is None:
            raise Refused(f"there is no method {name!r:.100}", code=UNKNOWN_METHOD)
        return handler(args, kwargs)

    def undo(self, name: str, answer: Any) -> None:
        """Undo an answer that could not be delivered, where the verb has a method for that."""
        if name in self._undo:
            self._undo[name](answer)


def _marked_methods(served: object, mark: str) -> list[Callable[..., Any]]:
    names = [name for name in dir(type(served)) if hasattr(inspect.getattr_static(served, name, None), mark)]
    return [getattr(served, name) for name in names]


class _Handler:
    """A method with what its parameters accept, in order; None where a parameter accepts anything."""

    def __init__(self, verb: str, method: Callable[..., Any]) -> None:
        self.verb = verb
        self._method = method
        self._signature = inspect.signature(method)
        hints = get_type_hints(method)
        parameters = self._signature.parameters.values()
        self._names = [parameter.name for parameter in parameters]
        self._accepted = [_accepted_types(verb, parameter, hints.get(parameter.name, Any)) for parameter in parameters]
        self._required = sum(parameter.default is parameter.empty for parameter in parameters)

    def __call__(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if kwargs:
            args = self._positional(args, kwargs)
        if not self._required <= len(args) <= len(self._accepted):
            raise self._wrong_arguments(f"{len(args)} arguments where {self._expected()} are expected")
        for position, (value, accepted) in enumerate(zip(args, self._accepted, strict=False)):
            # Exact types, so that a bool is no int; the codec makes no others.
            if accepted is not None and type(value) not in accepted:
                raise self._wrong_type(position, value, accepted)
        return self._method(*args)

    def _positional(self, args: list[Any], kwargs: dict[str, Any]) -> list[Any]:
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise self._wrong_arguments(str(error)) from None
        bound.apply_defaults()
        return list(bound.args)

    def _expected(self) -> str:
        most = len(self._accepted)
        return str(most) if self._required == most else f"{self._required} to {most}"

    def _wrong_type(self, position: int, value: Any, accepted: frozenset[type]) -> Refused:
        wanted = " or ".join(sorted(kind.__name__ for kind in accepted))
        return self._wrong_arguments(f"{self._names[position]} is {type(value).__name__} where {wanted} is expected")

    def _wrong_arguments(self, cause: str) -> Refused:
        return Refused(f"{self.verb}: {cause}", f"call {self.verb}{self._signature}", code=WRONG_ARGUMENTS)


def _accepted_types(verb: str, parameter: inspect.Parameter, annotation: Any) -> frozenset[type] | None:
    if annotation is Any:
        return None
    members = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    kinds = frozenset(get_origin(member) or member for member in members)
    if parameter.kind not in _POSITIONAL or not kinds <= _WIRE_TYPES:
        raise ConfigurationError(f"{verb}: parameter {parameter} can't be checked", "use a plain parameter and type")
    return kinds
