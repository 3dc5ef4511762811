"""Signs calls by Standard Webhooks; pure.

The source of the format is https://github.com/standard-webhooks/standard-webhooks, ``spec/standard-webhooks.md``.
"""

import base64
import hmac

PREFIX = "whsec_"


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
