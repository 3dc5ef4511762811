"""The settings of the broker of a world: short time-outs, small batches."""

from xbus.broker.front.envelopes import EnvelopeLimits
from xbus.config import BackSettings
from xbus.testing.broker import VirtualSettings

SETTINGS = VirtualSettings(
    back=BackSettings(
        start_event_timeout=5,
        send_item_timeout=5,
        end_event_timeout=5,
        end_envelope_timeout=5,
        stop_envelope_timeout=5,
        reply_hold_timeout=10,
        register_timeout=3,
        window_bytes=1_000,
        behind_after=3,
        worker_grace=1,
        bulk_lease=10,
    ),
    limits=EnvelopeLimits(
        item_bytes=1_000, batch_bytes=5_000, envelope_items=1_000, envelope_bytes=100_000, envelope_events=1_000
    ),
    reply_seconds=10.0,
    segment_bytes=256,
)
