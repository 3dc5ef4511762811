"""Sets a socket's options for CURVE; they hold for addresses that it binds or connects to from then on.

Sources: zmq_curve(7), zmq_setsockopt(3), https://rfc.zeromq.org/spec/27.
"""

import zmq

from xbus.rpc.curve.keys import KeyPair


def serve_encrypted(socket: "zmq.Socket[bytes]", pair: KeyPair, domain: str) -> None:
    """Encrypt what comes to the addresses that a socket binds next; those that it has stay as they are.

    Args:
        pair: of the server.
        domain: under which the authenticator knows who may connect.
    """
    socket.set(zmq.CURVE_SERVER, 1)
    socket.set(zmq.CURVE_SECRETKEY, pair.secret.encode("ascii"))
    socket.set(zmq.ZAP_DOMAIN, domain.encode())
    # Without an authenticator libzmq would let everybody in.
    socket.set(zmq.ZAP_ENFORCE_DOMAIN, 1)


def call_encrypted(socket: "zmq.Socket[bytes]", server_key: str, own: KeyPair) -> None:
    """Encrypt what goes to the addresses that a socket connects to next.

    Args:
        server_key: the public key of the server; nobody else can take its place.
        own: the pair by which the server knows the caller.
    """
    socket.set(zmq.CURVE_SERVERKEY, server_key.encode("ascii"))
    socket.set(zmq.CURVE_PUBLICKEY, own.public.encode("ascii"))
    socket.set(zmq.CURVE_SECRETKEY, own.secret.encode("ascii"))
