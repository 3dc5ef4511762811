"""``python -m benchmarks.programs.echo DATABASE``: sends back what it gets, once it has stored that.

What has arrived meanwhile is stored as one row in one transaction. It prints its address, and runs until it is ended.
"""

import sys

import zmq

from benchmarks.bare import Bare, connect


def serve(socket: "zmq.Socket[bytes]", bare: Bare) -> None:
    """For ever: read what is there, store it, and send it back."""
    while True:
        messages = [socket.recv_multipart()]
        try:
            while True:
                messages.append(socket.recv_multipart(zmq.NOBLOCK))
        except zmq.Again:
            bare.insert(b"".join(data for _, data in messages))
        for message in messages:
            socket.send_multipart(message)


def main(url: str) -> None:
    """Serve at a free port."""
    socket = zmq.Context().socket(zmq.ROUTER)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    print(f"tcp://127.0.0.1:{port}", flush=True)
    serve(socket, connect(url))


if __name__ == "__main__":
    main(sys.argv[1])
