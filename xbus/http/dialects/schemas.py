"""The JSON Schemas of what the operations answer, for the OpenAPI document. Pure."""

from collections.abc import Mapping


def _object(properties: Mapping[str, object]) -> dict[str, object]:
    return {"type": "object", "required": [*properties], "properties": dict(properties)}


def _list(of: Mapping[str, object]) -> dict[str, object]:
    return {"type": "array", "items": dict(of)}


TEXT = {"type": "string"}
TEXT_OR_NULL = {"type": ["string", "null"]}
WHOLE = {"type": "integer", "minimum": 0}
SECONDS = {"type": "number", "exclusiveMinimum": 0, "description": "Seconds."}

RECEIPT = _object({"envelope_id": TEXT, "position": WHOLE, "events": WHOLE, "items": WHOLE, "hash": TEXT})

_FACTS: Mapping[str, object] = {
    "envelope_id": TEXT,
    "event_id": TEXT,
    "type": TEXT,
    "emitter": TEXT,
    "position": WHOLE,
    "event": WHOLE,
    "sealed_at": {"type": "string", "format": "date-time"},
    "key": TEXT_OR_NULL,
    "ordering_key": TEXT_OR_NULL,
    "partition_key": TEXT_OR_NULL,
    "headers": {"type": "object"},
}

BATCH = _object(
    {
        "checkpoint": {**TEXT, "description": "Settles the batch."},
        "range": WHOLE,
        "from": {**TEXT, "description": "The place at which it begins."},
        "to": {**TEXT, "description": "The place at which it ends."},
        "repeated": {"type": "boolean", "description": "Whether it was handed out before."},
        "events": _list(_object({**_FACTS, "first_index": WHOLE, "items": _list({})})),
    }
)

LEASE = _object({"lease": SECONDS})

RANGES = _object({"ranges": _list(WHOLE), "give_up": _list(WHOLE)})

_MOMENT_OR_NULL = {"type": ["string", "null"], "format": "date-time"}

SUBSCRIPTIONS = _object(
    {
        "subscriptions": _list(
            _object(
                {
                    "name": TEXT,
                    "state": {"enum": ["healthy", "failed", "paused", "stopped"]},
                    "events": {**WHOLE, "description": "Events that wait for it, counted up to 10,000."},
                    "waits_since": _MOMENT_OR_NULL,
                    "failures": WHOLE,
                    "failing_since": _MOMENT_OR_NULL,
                    "retry_at": _MOMENT_OR_NULL,
                    "code": TEXT_OR_NULL,
                    "error": TEXT_OR_NULL,
                    "parked_batches": WHOLE,
                }
            )
        )
    }
)
