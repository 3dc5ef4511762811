"""The context that all envelopes of one emitter share: session, window, and how parts are made."""

from xbus.clock import Clock
from xbus.emitter.batch import OutgoingBatch
from xbus.emitter.forks import begun_before
from xbus.emitter.options import Options
from xbus.emitter.patience import EmitterPatience
from xbus.emitter.puts import Puts, not_open
from xbus.emitter.session import CallTransport, SendWindow
from xbus.emitter.stream import Stream
from xbus.ids import Ids
from xbus.rpc.items import PackHook, as_text


class EmitterContext:
    """The open session with the front, and what all envelopes of an emitter share.

    Args:
        session: logged in; or the outbox in its place.
        options: the emitter's options.
        clock: tells the time.
        ids: makes the ids of envelopes and events.
        hook: asked for the values of items that msgpack does not know.

    Attributes:
        is_inherited: whether it is that of the process that this one was forked from.
        puts: sends whole envelopes together.
    """

    def __init__(
        self, session: CallTransport, options: Options, clock: Clock, ids: Ids, hook: PackHook = as_text
    ) -> None:
        self.session = session
        self.options = options
        self.hook = hook
        self.window = SendWindow(options.window_bytes)
        self.is_inherited = False
        self.clock = clock
        self.ids = ids
        self._streams: set[Stream] = set()
        self.puts = Puts(self)

    @property
    def reply_seconds(self) -> float:
        """Seconds to wait for the end of an event or envelope. The front waits less for a reply, so that its error
        comes first."""
        return max(self.options.reply_seconds, self.session.limits.reply_seconds + self.options.answer_seconds)

    def new_id(self) -> str:
        """Make an id for an envelope or an event."""
        return self.ids.new_text()

    def new_batch(self, stream: Stream) -> OutgoingBatch:
        """Make an empty batch, which goes by ``stream``, within the options and the limits of the front."""
        sizes = (self.options.batch_items, self.options.batch_bytes)
        limits = self.session.limits
        return OutgoingBatch(*sizes, limits.max_item_bytes, limits.max_batch_bytes, stream, self.hook)

    def new_stream(self) -> Stream:
        """Make the stream of one further envelope's calls."""
        patience = EmitterPatience(self.options.retry_seconds, self.clock, self.options.pause_seconds)
        stream = Stream(self.session, self.window, patience)
        self._streams.add(stream)
        return stream

    def end(self, stream: Stream) -> None:
        """Forget the envelope of ``stream``, which is over; no call of it is made again."""
        stream.end()
        self._streams.discard(stream)

    def forked(self) -> None:
        """Refuse further use of the envelopes that the parent of this process has begun.

        It does not cancel their calls: that would wake their callers, on the loop of the parent.
        """
        self.is_inherited = True
        for stream in self._streams:
            stream.error = begun_before()

    def close(self) -> None:
        """Cancel the calls in flight."""
        self.puts.close()
        for stream in self._streams:
            stream.abandon(not_open())
        self._streams.clear()
