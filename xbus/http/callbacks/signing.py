"""Signs calls by Standard Webhooks; pure.

The source of the format is https://github.com/standard-webhooks/standard-webhooks, ``spec/standard-webhooks.md``.
"""

import base64
import hashlib
import hmac
from collections.abc import Sequence

PREFIX = "whsec_"


def batch_id(reader: str, range_id: int, begin: Sequence[int], end: Sequence[int]) -> str:
    """Name a batch by its bounds: the same batch has the same id, whoever sends it and how often.

    Args:
        reader: the key of its reader.
        range_id: the number of its range.
        begin: its first place.
        end: the place after it.
    """
    bounds = " ".join([reader, str(range_id), ":".join(map(str, begin)), ":".join(map(str, end))])
    return f"msg_{hashlib.sha256(bounds.encode()).hexdigest()[:32]}"


def signature_headers(secret: str, message_id: str, seconds: int, body: bytes) -> dict[str, str]:
    """Make the headers of a call.

    Args:
        secret: a key after ``whsec_``, in Base64; without one the call has no signature.
        message_id: of the batch.
        seconds: the moment of the call, in seconds since 1970.
        body: of the call.
    """
    headers = {"webhook-id": message_id, "webhook-timestamp": str(seconds)}
    if secret.startswith(PREFIX):
        signed = b".".join([message_id.encode(), str(seconds).encode(), body])
        key = base64.b64decode(secret.removeprefix(PREFIX))
        digest = base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
        headers["webhook-signature"] = f"v1,{digest}"
    return headers
