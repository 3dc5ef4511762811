"""Finds the method that serves a verb of the wire, and checks the arguments; no sockets.

A method is marked with the verb it serves, ``Dispatch`` collects the marked methods of its objects into one table. The
annotations of a method's parameters are compiled once and checked at each call, so that a handler never sees a
number where it expects bytes. Elements of lists are the handler's own business, and so are maps without named fields.

A second method may undo an answer of a verb that reached nobody; it is marked with ``undoes``. The method of a shared
verb gets all its calls of a turn of the loop at once, so that what it does for many costs no more than for one.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar, cast, get_type_hints

from xbus.errors import CallError, ConfigurationError, Refused
from xbus.rpc.codec import Key, Value
from xbus.rpc.frames import UNKNOWN_METHOD, WRONG_ARGUMENTS
from xbus.rpc.shapes import Shape

F = TypeVar("F", bound=Callable[..., object])

_VERB = "__verb__"
_SHARED = "__shared__"
_UNDONE = "__undone__"

REFUSE = "__refuse__"
"""The attribute of a method that has an answer of its own for errors: a function that makes it."""

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def verb(name: str) -> Callable[[F], F]:
    """Mark a method as the one that serves the verb ``name``; dots separate namespaces."""

    def mark(method: F) -> F:
        setattr(method, _VERB, name)
        return method

    return mark


class SharedCall(Protocol):
    """A call of a shared verb.

    Attributes:
        args: those of the verb, as they were checked; parameters with a default may be left out at the end.
        size: the bytes of its message.
        peer: its connection.
        is_followed: whether further calls of that connection wait for their turn.
    """

    args: list[Value]
    size: int
    peer: bytes

    @property
    def is_followed(self) -> bool: ...

    def send_early(self, answer: object) -> None:
        """Send the answer from another thread than the loop's, if it can go at once.

        The loop gives the same answer all the same. An answer that was given before is not sent.
        """


Give: TypeAlias = Callable[[Sequence[SharedCall], Sequence[object]], None]
"""Answers calls of a shared verb, each by its answer or by its error."""


def shared(name: str, arguments: Callable[..., None]) -> Callable[[F], F]:
    """Mark a method as the one that serves all calls of a verb in a turn of the loop together.

    It gets the calls and a ``Give``, and sees to it that each is answered once, then or later.

    Args:
        arguments: a function whose parameters are those of the verb.
    """

    def mark(method: F) -> F:
        setattr(method, _VERB, name)
        setattr(method, _SHARED, arguments)
        return method

    return mark


def undoes(name: str) -> Callable[[F], F]:
    """Mark a method that gets each answer of the verb ``name`` that could not be delivered."""

    def mark(method: F) -> F:
        setattr(method, _UNDONE, name)
        return method

    return mark


def nobody_refused() -> None:
    """Refuse nobody."""


def unnoted(name: str, args: list[Value], error: CallError) -> None:
    """Note nothing of a call that is answered with an error."""


class Dispatch:
    """The table of all verbs that the given objects serve.

    Args:
        objects: instances with methods marked by ``verb``. ``Shape`` says how parameters may be annotated.
        knows: checks the token of a larger call, by which its caller says who that is; None where callers have none.
        admit: asked before each call of a verb that is not shared, with the verb; it raises the refusal. None where
            everybody may call.
        refusal: gives the refusal of a larger call by whoever calls now; None of a caller that has proven who it is.
        note_error: gets the verb and the arguments of each call that is answered with an error, and that error.

    Attributes:
        shared: the name of the shared verb; None without one.

    Raises:
        ConfigurationError: two methods serve one verb, two verbs are shared, or a parameter can't be checked.
    """

    def __init__(
        self,
        *objects: object,
        knows: Callable[[str], bool] | None = None,
        admit: Callable[[str], None] | None = None,
        refusal: Callable[[], CallError | None] = nobody_refused,
        note_error: Callable[[str, list[Value], CallError], None] = unnoted,
    ) -> None:
        self.knows = knows
        self.refusal = refusal
        self.note_error = note_error
        self._admit = admit
        self.handlers: dict[str, _Handler] = {}
        self.shared: str | None = None
        self._undo: dict[str, Callable[[Any], object]] = {}
        for served in objects:
            for method in _marked_methods(served, _VERB):
                self._add(_Handler(getattr(method, _VERB), method, getattr(method, _SHARED, method)))
            self._undo.update({getattr(method, _UNDONE): method for method in _marked_methods(served, _UNDONE)})

    def _add(self, handler: "_Handler") -> None:
        if handler.verb in self.handlers:
            raise ConfigurationError(f"two methods serve the verb {handler.verb}", "mark only one of them")
        self.handlers[handler.verb] = handler
        if handler.is_shared:
            if self.shared is not None:
                raise ConfigurationError(f"both {self.shared} and {handler.verb} are shared", "share only one of them")
            self.shared = handler.verb

    @property
    def verbs(self) -> frozenset[str]:
        """The names of all verbs in the table."""
        return frozenset(self.handlers)

    def call(self, name: str, args: list[Value], kwargs: dict[Key, Value]) -> object:
        """Carry out a call: what the method returns, be it the answer, a future of it or a coroutine.

        Raises:
            Refused: ``unknown_method`` or ``wrong_arguments``, or as ``admit`` refuses it; the method was not called.
        """
        if self._admit is not None:
            self._admit(name)
        handler = self.handlers.get(name) or self.handler(name)
        return handler.method(*handler.checked(args, kwargs))

    def call_together(self, calls: Sequence[SharedCall], give: Give) -> None:
        """Carry out calls of the shared verb that were checked; ``give`` answers them."""
        assert self.shared is not None, "a verb is shared"
        self.handlers[self.shared].method(calls, give)

    def refuse(self, name: str, error: Exception) -> object:
        """Answer a call as its verb answers such an error.

        Raises:
            Refused: ``unknown_method``.
            Exception: ``error``, where the verb has no answer of its own for errors.
        """
        return self.handler(name).refuse(error)

    def handler(self, name: str) -> "_Handler":
        """Give the method of a verb.

        Raises:
            Refused: ``unknown_method``.
        """
        handler = self.handlers.get(name)
        if handler is None:
            raise Refused(f"there is no method {name!r:.100}", code=UNKNOWN_METHOD)
        return handler

    def undo(self, name: str, answer: Any) -> None:
        """Undo an answer that could not be delivered, where the verb has a method for that."""
        if name in self._undo:
            self._undo[name](answer)


def _marked_methods(served: object, mark: str) -> list[Callable[..., object]]:
    names = [name for name in dir(type(served)) if hasattr(inspect.getattr_static(served, name, None), mark)]
    return [getattr(served, name) for name in names]


class _Handler:
    """A method with what the parameters of its verb accept, in order; None where one accepts anything.

    Args:
        arguments: has these parameters: the method itself, unless its verb is shared.
    """

    def __init__(self, verb: str, method: Callable[..., object], arguments: Callable[..., object]) -> None:
        self.verb = verb
        self.method = method
        self.is_shared = arguments is not method
        self._signature = inspect.signature(arguments)
        hints = get_type_hints(arguments)
        parameters = self._signature.parameters.values()
        self._names = [parameter.name for parameter in parameters]
        self._shapes = [_shape_of(verb, parameter, hints.get(parameter.name, Any)) for parameter in parameters]
        self._accepted = [shape.kinds for shape in self._shapes]
        self._fitting: set[tuple[type, ...]] = set()
        """The types of arguments that fitted so far. The codec makes few, so these stay few."""
        self._has_fields = any(shape.fields is not None for shape in self._shapes)
        self._required = sum(parameter.default is parameter.empty for parameter in parameters)

    def checked(self, args: list[Value], kwargs: dict[Key, Value]) -> list[Value]:
        """Give the arguments in the order of the parameters, if the method accepts them."""
        if kwargs:
            args = self._positional(args, kwargs)
        kinds = tuple(map(type, args))
        if kinds not in self._fitting:
            if not self._required <= len(args) <= len(self._accepted):
                raise self._wrong_arguments(f"{len(args)} arguments where {self._expected()} are expected")
            for position, (value, accepted) in enumerate(zip(args, self._accepted, strict=False)):
                # Exact types, so that a bool is no int; the codec makes no others.
                if accepted is not None and type(value) not in accepted:
                    raise self._wrong_value(position, value)
            self._fitting.add(kinds)
        if self._has_fields:
            self._check_fields(args)
        return args

    def refuse(self, error: Exception) -> object:
        answer_to: Callable[[Exception], object] | None = getattr(self.method, REFUSE, None)
        if answer_to is None:
            raise error
        return answer_to(error)

    def _check_fields(self, args: list[Value]) -> None:
        for position, (value, shape) in enumerate(zip(args, self._shapes, strict=False)):
            if shape.fields is not None and shape.fault(value):
                raise self._wrong_value(position, value)

    def _positional(self, args: list[Value], kwargs: dict[Key, Value]) -> list[Value]:
        try:
            # A name that is no text is an error of the caller too, and raises TypeError.
            bound = self._signature.bind(*args, **cast("dict[str, Value]", kwargs))
        except TypeError as error:
            raise self._wrong_arguments(str(error)) from None
        bound.apply_defaults()
        return list(bound.args)

    def _expected(self) -> str:
        most = len(self._accepted)
        return str(most) if self._required == most else f"{self._required} to {most}"

    def _wrong_value(self, position: int, value: Value) -> Refused:
        return self._wrong_arguments(f"{self._names[position]} {self._shapes[position].fault(value)}")

    def _wrong_arguments(self, cause: str) -> Refused:
        return Refused(f"{self.verb}: {cause}", f"call {self.verb}{self._signature}", code=WRONG_ARGUMENTS)


def _shape_of(verb: str, parameter: inspect.Parameter, annotation: object) -> Shape:
    try:
        if parameter.kind not in _POSITIONAL:
            raise TypeError(f"{parameter} is no plain parameter")
        return Shape(annotation)
    except TypeError:
        cause = f"{verb}: parameter {parameter} can't be checked"
        raise ConfigurationError(cause, "use a plain parameter and type") from None
