"""Requests and replies as ZeroMQ frames; pure, no sockets.

    request   header 16 bytes "=HHLd"  | method in UTF-8 | msgpack array of arguments | msgpack map of keyword arguments
              pid, random, id, unix time
    reply     header 17 bytes "=HHLd?" | msgpack answer
              pid, random, id, unix time, is_error

The side that was connected to may call, too, over the same connection: then a **channel** opens the frames of the
request and of the reply. So the number of frames tells the four kinds of messages apart.

The format is that of aiozmq.rpc 0.5 to 1.0 (``aiozmq/rpc/rpc.py``), which existing emitters and recipients speak. A
reply is matched by its id alone. The answer of an error reply is ``[type name, args, repr]``.
"""

import re
import struct
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

from xbus.errors import CallError, ConnectionLost, Failed, ProtocolError, Refused, TimedOut
from xbus.rpc.codec import (
    BAD_TEXT,
    DOUBLED_NAME,
    EXTENSION_REFUSED,
    MOST_VALUES,
    TOO_MANY_VALUES,
    Frame,
    Key,
    Value,
    first_text,
    pack,
    pack_arguments,
    unpack,
)
from xbus.texts import MOST_CHARACTERS, plain

UNKNOWN_METHOD = "unknown_method"
WRONG_ARGUMENTS = "wrong_arguments"
ERROR_REPLY = "error_reply"
BAD_ANSWER = "bad_answer"
CALL_TOO_LARGE = "call_too_large"

_SENDER = struct.Struct("=HH")
_REQUEST = struct.Struct("=Ld")
REPLY = struct.Struct("=Ld?")
"""Behind the sender, the header of a reply: the id of its request, the unix time, and whether it is an error."""
_REQUEST_HEADER = struct.Struct("=HHLd")
_REPLY_HEADER = struct.Struct("=HHLd?")
REQUEST_FRAMES = 4
"""The frames of a request, behind those with which its answer begins."""
_EMPTY_ARRAY = b"\x90"
CHANNEL_CALL_FRAMES = 5
"""The frames of a call by a channel, as the DEALER reads them."""
CHANNEL_ANSWER_FRAMES = 4
"""The frames of an answer by a channel, as the ROUTER reads them: with the routing id."""
_EMPTY_MAP = b"\x80"

_AIOZMQ_TYPES = {UNKNOWN_METHOD: "aiozmq.rpc.base.NotFoundError", WRONG_ARGUMENTS: "aiozmq.rpc.base.ParametersError"}
_CODES_OF_AIOZMQ = {type_name: code for code, type_name in _AIOZMQ_TYPES.items()}
_ERROR_CLASSES = (Refused, TimedOut, ConnectionLost, Failed)
_ERROR_PREFIX = "xbus.errors."


Request: TypeAlias = tuple[int, str, list[Value], dict[Key, Value], CallError | None]
"""A call as it arrived: its id, the verb, arguments and keyword arguments, and why it can be answered but not be
carried out."""


class Reply(NamedTuple):
    """An answer as it arrived: ``error`` where it is one, else ``answer``."""

    id: int
    answer: Value
    error: CallError | None


_reply: Callable[[tuple[int, Value, None]], Reply] = partial(tuple.__new__, Reply)
"""Makes an answer without a call of a Python function."""


def sender_prefix(pid: int, random: int) -> bytes:
    """Make the 4 bytes that open each header: process id and a random number of the connection, both modulo 65536."""
    return _SENDER.pack(pid % 0x10000, random % 0x10000)


def encode_request(
    sender: bytes,
    request_id: int,
    sent_at: float,
    method: str,
    args: tuple[object, ...],
    encode: Callable[[object], bytes] = pack,
) -> list[Frame]:
    """Encode a call as frames.

    Args:
        sender: of ``sender_prefix``.
        request_id: 0 to 2**32 - 1; the reply comes back with it.
        sent_at: unix time in seconds.
        encode: as of ``pack_arguments``.

    Raises:
        ProtocolError: an argument can't be encoded.
    """
    return [sender + _REQUEST.pack(request_id, sent_at), method.encode(), pack_arguments(args, encode), _EMPTY_MAP]


def decode_request(frames: list[bytes], refusal: CallError | None = None) -> Request:
    """Decode a call from the frames that a ROUTER socket read, or that came by a channel.

    Args:
        refusal: why the call is not carried out, whatever its arguments are: nobody looks at them then.

    Raises:
        ProtocolError: the frames are no request, and nobody can reply to them.
    """
    if len(frames) <= REQUEST_FRAMES:
        raise ProtocolError(f"a request has 4 frames behind the routing id, not {len(frames) - 1}")
    *_, header, name, args_data, kwargs_data = frames
    try:
        request_id = _REQUEST_HEADER.unpack(header)[2]
        method = name.decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise ProtocolError(f"header or method name of a request can't be read: {error}") from error
    if refusal is not None:
        return request_id, method, [], {}, refusal
    try:
        args = unpack(args_data, MOST_VALUES)
        kwargs = {} if kwargs_data == _EMPTY_MAP else unpack(kwargs_data, MOST_VALUES)
    except ProtocolError as error:
        if error.code not in (EXTENSION_REFUSED, TOO_MANY_VALUES, BAD_TEXT, DOUBLED_NAME):
            raise
        return request_id, method, [], {}, Refused(error.cause, error.next_step, code=WRONG_ARGUMENTS)
    if type(args) is not list or type(kwargs) is not dict:
        raise ProtocolError("the arguments of a request are no msgpack array and map")
    return request_id, method, args, kwargs, None


def argument_bytes(frames: list[bytes]) -> int:
    """Compute the size of a request's arguments; 0 where the frames are no request."""
    return len(frames[-2]) + len(frames[-1]) if len(frames) > REQUEST_FRAMES else 0


def first_argument(frames: list[bytes], name: str) -> str:
    """Read a short text out of a request whose arguments are not decoded: the first, or the one of this name.

    Args:
        frames: as a ROUTER socket read them.
        name: the parameter's; old clients may name it, and then put it first, too.

    Returns:
        The text; empty where the request has none there.
    """
    *_, args_data, kwargs_data = frames
    return first_text(args_data) if args_data[:1] != _EMPTY_ARRAY else first_text(kwargs_data, name)


def encode_error(sender: bytes, request_id: int, sent_at: float, error: CallError) -> list[bytes]:
    """Encode an error reply as frames.

    An error for which aiozmq has a type of its own goes under that name, so that old clients raise it; all else goes as
    ``xbus.errors.<class>`` with cause, next step, code and, if it has any, details. An error can always be encoded: its
    texts are cut and made plain here, so that no call stays without an answer.
    """
    # Attributes may have been set after the error was made.
    cause, next_step, code = (plain(text, MOST_CHARACTERS) for text in (error.cause, error.next_step, error.code))
    shown = f"{type(error).__name__}({cause!r})"
    aiozmq_type = _AIOZMQ_TYPES.get(code)
    if aiozmq_type:
        answer: list[object] = [aiozmq_type, [f"{cause}: {next_step}" if next_step else cause], shown]
    else:
        arguments: list[object] = [cause, next_step, code]
        if details := {plain(name): value for name, value in error.details.items() if _is_sendable(value)}:
            arguments.append(details)
        answer = [_class_name(error), arguments, shown]
    return [sender + REPLY.pack(request_id, sent_at, True), pack(answer)]


def _is_sendable(value: object) -> bool:
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**63)


def _class_name(error: CallError) -> str:
    kind = next((kind for kind in _ERROR_CLASSES if isinstance(error, kind)), Failed)
    return _ERROR_PREFIX + kind.__name__


def decode_reply(frames: list[bytes]) -> Reply:
    """Decode an answer from the frames that a DEALER socket read. An unreadable one becomes an error of the call.

    Raises:
        ProtocolError: the frames are no reply, and name no call.
    """
    try:
        header, data = frames
        _, _, request_id, _, is_error = _REPLY_HEADER.unpack(header)
    except (ValueError, struct.error) as error:
        raise ProtocolError(f"{len(frames)} frames are no reply: {error}") from error
    try:
        answer = unpack(data, MOST_VALUES)
    except ProtocolError as error:
        return Reply(request_id, None, Refused(f"the answer can't be read: {error.cause}", code=BAD_ANSWER))
    if is_error:
        return Reply(request_id, None, _error_of(answer))
    return _reply((request_id, answer, None))


def _details(rest: list[Value]) -> dict[str, float]:
    """Read the details of an error; a newer peer may send others, which are left out."""
    match rest:
        case [dict(details), *_]:
            return {
                str(name): value
                for name, value in details.items()
                if isinstance(value, int | float) and not isinstance(value, bool)
            }
    return {}


def _cause_and_next_step(said: str, shown: str) -> tuple[str, str]:
    """Part the text of an error that went under a name of aiozmq: what is shown ends with the cause alone."""
    places = (found.start() for found in re.finditer(": ", said))
    place = next((place for place in places if shown.endswith(f"({said[:place]!r})")), len(said))
    return said[:place], said[place + 2 :]


def _error_of(answer: Value) -> CallError:
    match answer:
        case [str(type_name), [str(cause), str(next_step), str(code), *rest], _] if type_name.startswith(_ERROR_PREFIX):
            kind = Refused if type_name == _ERROR_PREFIX + Refused.__name__ else Failed
            return kind(cause, next_step, code=code, details=_details(rest))
        case [str(type_name), list(args), shown] if type_name in _CODES_OF_AIOZMQ:
            said = ", ".join(map(str, args)) or "the call was refused"
            return Refused(*_cause_and_next_step(said, str(shown)), code=_CODES_OF_AIOZMQ[type_name])
        case [_, _, str(remote_repr)]:
            return Failed(remote_repr, "see the log of the other side", code=ERROR_REPLY)
    return Failed(f"an error reply of another form: {answer!r:.200}", code=ERROR_REPLY)
