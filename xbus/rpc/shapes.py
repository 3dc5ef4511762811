"""Check that values of the wire have the types that an annotation promises; pure.

``Dispatch`` checks the arguments of a call so, and ``AnswerReader`` the answer to one. A map with named fields is a
``TypedDict`` of ``xbus.rpc.messages``. Annotations are compiled once; a check costs a look at the type of each value.
"""

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Generic, TypeVar, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

from xbus.errors import Refused
from xbus.rpc.codec import Value
from xbus.rpc.frames import BAD_ANSWER

T = TypeVar("T")

WIRE_TYPES: frozenset[type] = frozenset({str, bytes, int, float, bool, list, dict, NoneType})
"""The types of all values that the codec makes, but for msgpack's timestamp."""

_MISSING = object()


class Shape:
    """The values that an annotation accepts.

    Elements of lists, and fields of maps that have no name in the annotation, are not looked at.

    Args:
        annotation: str, bytes, int, float, bool, list, dict, a ``TypedDict``, or a union of these and None; ``Value``
            for anything. Types are exact, so that a bool is no int.

    Raises:
        TypeError: the annotation can't be checked.

    Attributes:
        kinds: the types accepted; None where anything is.
        fields: the named fields of a map; None where it has none.
    """

    def __init__(self, annotation: object) -> None:
        members = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
        maps = [cast("type[Any]", member) for member in members if is_typeddict(member)]
        kinds = frozenset(dict if is_typeddict(member) else get_origin(member) or member for member in members)
        if annotation is not Any and (not kinds <= WIRE_TYPES or len(maps) > 1):
            raise TypeError(f"{annotation} can't be checked")
        is_anything = annotation is Any or kinds == WIRE_TYPES
        self.kinds = None if is_anything else cast("frozenset[type]", kinds)
        self.fields = _Fields(maps[0]) if maps else None

    def fault(self, value: Value) -> str | None:
        """Describe the fault of a value, to be read behind its name; None without any."""
        if self.kinds is not None and type(value) not in self.kinds:
            return f"is {type(value).__name__} where {self._wanted} is expected"
        if self.fields is not None and type(value) is dict:
            return self.fields.fault(value)
        return None

    @property
    def _wanted(self) -> str:
        return " or ".join(sorted(kind.__name__ for kind in self.kinds or WIRE_TYPES))


class _Fields:
    """The named fields of a map."""

    def __init__(self, kind: type[Any]) -> None:
        hints = get_type_hints(kind)
        self._required: frozenset[str] = kind.__required_keys__
        self._shapes = {name: Shape(annotation) for name, annotation in hints.items()}

    def fault(self, value: Mapping[Any, Value]) -> str | None:
        for name, shape in self._shapes.items():
            field = value.get(name, _MISSING)
            # Looked at here first, as nearly all fields fit and hold no map.
            if type(field) in (shape.kinds or WIRE_TYPES) and shape.fields is None:
                continue
            if field is _MISSING:
                if name in self._required:
                    return f"has no field {name}"
            elif fault := shape.fault(cast(Value, field)):
                return f"has a field {name} that {fault}"
        return None


class AnswerReader(Generic[T]):
    """Reads the answer to a call.

    Args:
        verb: the verb that was called.
        kind: the type that its answer has; see ``Shape``.
    """

    def __init__(self, verb: str, kind: type[T]) -> None:
        self.verb = verb
        self._shape = Shape(kind)

    def read(self, answer: Value) -> T:
        """Check an answer, and give it its type.

        Raises:
            Refused: it is something else (``bad_answer``).
        """
        if fault := self._shape.fault(answer):
            raise bad_answer(self.verb, fault)
        return cast(T, answer)


def bad_answer(verb: str, fault: str) -> Refused:
    """Make the error for a caller whose answer has another form than the verb's."""
    return Refused(
        f"the answer to {verb} {fault}",
        "see that the address is the one of the bus, and that both sides have fitting versions",
        code=BAD_ANSWER,
    )
