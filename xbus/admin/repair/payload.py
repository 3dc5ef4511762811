"""Items as people read and write them; pure. Secret fields are hidden, and put back where a person left them hidden."""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from typing import cast

from xbus.ending import printable_lines
from xbus.errors import ProtocolError, Refused
from xbus.json_text import LossyJson, parse_json, without_halves
from xbus.json_views import cut, has_one_name_twice, json_map
from xbus.rpc.codec import Value, unpack
from xbus.rpc.items import item_bytes

MASK = "***"
"""The text in place of a secret value, whatever its type: a length or a type may tell something, too."""

DATA_OF_REPLY = ("source_data", "current_data", "out_data")
"""The keys of details under which a consumer shows an item that waits for clearing."""

_NUMBERED = re.compile(rf"{re.escape(MASK)}(\d{{0,9}})")


def mask(value: Value, paths: Set[str]) -> Value:
    """Hide the values of some keys, in maps and in the lists in them; all else stays as it is.

    Args:
        value: of an item.
        paths: each the keys from the outermost map to the secret one, with dots between them. A key that has dots
            itself is found, too.

    Example:
        >>> mask({"card": {"number": "4711", "of": "Ada"}, "paid": [{"iban": "DE02"}]}, {"card.number", "paid.iban"})
        {'card': {'number': '***', 'of': 'Ada'}, 'paid': [{'iban': '***'}]}
    """
    return _replaced(value, paths, lambda _: MASK)


def numbered_mask(value: Value, paths: Set[str]) -> Value:
    """Hide the same values, each under a number of its own, so that :func:`unmask` knows it wherever it is put.

    Example:
        >>> numbered_mask([{"iban": "DE02"}, {"iban": "DE03"}], {"iban"})
        [{'iban': '***1'}, {'iban': '***2'}]
    """
    numbers = count(1)
    return _replaced(value, paths, lambda _: f"{MASK}{next(numbers)}")


def unmask(value: Value, present: Value, paths: Set[str]) -> Value:
    """Put back the secret values that :func:`numbered_mask` hid and a person left as they were.

    Args:
        value: as the person wrote it.
        present: that was shown to the person with masks.
        paths: as of :func:`mask`.

    Raises:
        Refused: a mask stands for no value (``bad_mask``).
    """
    secrets: list[Value] = []

    def keep(secret: Value) -> Value:
        secrets.append(secret)
        return secret

    def reveal(written: Value) -> Value:
        found = _NUMBERED.fullmatch(written) if isinstance(written, str) else None
        if found is None:
            return written
        number = int(found[1] or 0)
        if not 1 <= number <= len(secrets):
            raise Refused(
                f"{found[0]} is a mask, and no secret value of the item has this number",
                f"write the value itself, or {MASK}1 for the first one that it has",
                code="bad_mask",
            )
        return secrets[number - 1]

    _replaced(present, paths, keep)
    return _replaced(value, paths, reveal)


def mask_details(details: Iterable[Value], secrets: Mapping[str, Set[str]]) -> list[Value]:
    """Hide the secret fields of items in the details that a consumer gives of them.

    Args:
        secrets: the secret fields of each type. All count: the details do not say of which type their item is.
    """
    paths = {f"{key}.{field}" for fields in secrets.values() for field in fields for key in DATA_OF_REPLY}
    return [mask(cast(Value, cut(each)), paths) for each in details]


def _replaced(value: Value, paths: Set[str], replace: Callable[[Value], Value], within: str = "") -> Value:
    match value:
        case dict() if paths:
            places = {key: f"{within}{_word(key)}" for key in value}
            return {
                key: replace(inner) if places[key] in paths else _replaced(inner, paths, replace, f"{places[key]}.")
                for key, inner in value.items()
            }
        case list() if paths:
            return [_replaced(element, paths, replace, within) for element in value]
    return value


def _word(key: object) -> str:
    # Clients of 0.2.0 may send keys as bytes.
    return key.decode(errors="replace") if isinstance(key, bytes) else str(key)


LINE_CHARACTERS = 100
"""The most characters of a value on one line."""

SHOWN_CHARACTERS = 4000
SHOWN_BYTES = 256
"""Bytes of an item that are shown; a file can take the whole of it."""


class Kind(StrEnum):
    """The form of an item's bytes."""

    MSGPACK = "msgpack"
    JSON = "JSON"
    TEXT = "text"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class Payload:
    """An item that was read.

    Args:
        value: the whole value that its bytes say.
        secret: paths of the fields that people do not see; see :mod:`xbus.admin.repair.payload`.
        is_whole: whether ``value`` is all that the bytes say.
    """

    kind: Kind
    value: Value
    secret: Set[str] = frozenset()
    is_whole: bool = True

    @classmethod
    def of(cls, data: bytes, secret: Set[str] = frozenset()) -> "Payload":
        """Recognise the bytes of an item: msgpack, as our SDK sends it, otherwise JSON, otherwise text, otherwise
        bytes. Of a value that is nested too deep there is what can be shown."""
        text = _text(data)
        # Each character of ASCII is a number of msgpack too, and few items are a lone number.
        if not (text is not None and len(data) == 1 and text.isprintable()):
            try:
                return cls._shown(Kind.MSGPACK, unpack(data), secret)
            except ProtocolError:
                pass
        if text is None:
            return cls(Kind.BYTES, data, secret)
        try:
            return cls._shown(Kind.JSON, cast(Value, parse_json(text)), secret)
        except LossyJson:
            # Nobody can say which of its texts are the secret fields.
            return cls(Kind.TEXT, MASK if secret else text, secret, is_whole=not secret)
        except ValueError:
            return cls(Kind.TEXT, text, secret)

    @classmethod
    def _shown(cls, kind: Kind, value: Value, secret: Set[str]) -> "Payload":
        shown = cast(Value, cut(value))
        return cls(kind, shown, secret, is_whole=shown is value)

    def lines(self) -> Iterator[str]:
        """Show it to a person, long lines cut."""
        if self._bytes is not None:
            yield self._bytes[:SHOWN_BYTES].hex(" ") + (" ..." if len(self._bytes) > SHOWN_BYTES else "")
            return
        text = str(self.value) if self.kind is Kind.TEXT else _written(self.plain)
        shown = text[:SHOWN_CHARACTERS] + (" ..." if len(text) > SHOWN_CHARACTERS else "")
        yield from (printable_lines(line) for line in shown.splitlines() or [""])

    @property
    def plain(self) -> Value:
        """It, as JSON can write it: bytes as hexadecimal text, NaN and infinity as text, secrets as masks."""
        return as_json(mask(self.value, self.secret)) if self._bytes is None else self._bytes.hex()

    @property
    def _bytes(self) -> bytes | None:
        """Its bytes, where they say nothing else."""
        return self.value if self.kind is Kind.BYTES and isinstance(self.value, bytes) else None

    def editable(self) -> str:
        """Write it as text that a person may change and :meth:`rewritten` reads. Secrets have masks with numbers.

        Raises:
            Refused: it can't be written so that nothing is lost (``not_editable``).
        """
        if not self.is_whole:
            raise Refused("not all of the item can be shown", "give it with --file instead", code="not_editable")
        if self.kind is Kind.TEXT:
            return str(self.value)
        try:
            shown = numbered_mask(self.value, self.secret)
            text = without_halves(json.dumps(shown, ensure_ascii=False, indent=2, allow_nan=False))
            if json.loads(text) == shown:
                return text
        except (TypeError, ValueError):
            pass
        raise Refused(
            "the item has values that JSON lacks, such as bytes", "give it with --file instead", code="not_editable"
        )

    def rewritten(self, text: str) -> bytes:
        """Make the bytes of the same item with the value of ``text``; masks with numbers stand for present values.

        Raises:
            Refused: it is no JSON (``bad_json``), can't be packed (``bad_items``), or has a mask of no value
                (``bad_mask``).
        """
        if self.kind is Kind.TEXT:
            return text.encode()
        value = unmask(read_json(text), self.value, self.secret)
        if self.kind is Kind.JSON:
            return without_halves(json.dumps(value, ensure_ascii=False)).encode()
        return item_bytes(value)

    def replaced(self, text: str) -> bytes:
        """Make the bytes of another item that ``text`` writes in JSON, packed as this one: as JSON, else as msgpack.

        Raises:
            Refused: as of :meth:`rewritten`.
        """
        kind = Kind.JSON if self.kind is Kind.JSON else Kind.MSGPACK
        return Payload(kind, self.value, self.secret).rewritten(text)


def read_json(text: str) -> Value:
    """Read the value that ``text`` writes.

    Raises:
        Refused: it is no JSON (``bad_json``).
    """
    try:
        return cast(Value, parse_json(text))
    except ValueError as error:
        raise Refused(f"that is no JSON: {error}", 'write as {"name": "ADA"}', code="bad_json") from error


def _text(data: bytes) -> str | None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if all(character.isprintable() or character in "\t\r\n" for character in text) else None


def _written(value: Value) -> str:
    line = json.dumps(value, ensure_ascii=False)
    return line if len(line) <= LINE_CHARACTERS else json.dumps(value, ensure_ascii=False, indent=2)


def showable(value: Value) -> Value:
    """Give a value that JSON can write: cut where it is nested too deep, and no name twice in a map."""
    shown = cast(Value, cut(value))
    return as_json(shown) if has_one_name_twice(shown) else shown


def as_json(value: object) -> Value:
    """Convert what JSON lacks in a value to text: bytes to hexadecimal, keys, NaN and infinity.

    A map in which two keys would be the same text becomes a list of pairs.
    """
    match value:
        case dict():
            return cast(Value, json_map(value, as_json))
        case list():
            return [as_json(element) for element in value]
        case bytes():
            return f"bytes {value.hex()}"
        case float() if not math.isfinite(value):
            return str(value)
        case None | bool() | int() | float() | str():
            return value
    return str(value)
