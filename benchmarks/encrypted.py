"""As ``end_to_end`` with both connections encrypted by CURVE. The floor is the same bus without, in turns."""

import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.bus import CONSUMER, EMITTER, ONE_CONSUMER, running_bus
from benchmarks.databases import Databases
from benchmarks.end_to_end import pass_through
from benchmarks.result import Result
from benchmarks.sizes import Sizes
from tests.support.daemon import Options
from xbus.rpc.curve import new_pair, write_pair

ANY_PORT = "tcp://127.0.0.1:0"


def measure(databases: Databases, sizes: Sizes) -> Result:
    """Rounds of encrypted and plain connections to one broker."""
    server, client = new_pair(), new_pair()
    bus = replace(
        ONE_CONSUMER,
        roles={CONSUMER: replace(ONE_CONSUMER.roles[CONSUMER], keys=(client.public,))},
        emitters={EMITTER: replace(ONE_CONSUMER.emitters[EMITTER], keys=(client.public,))},
    )
    with tempfile.TemporaryDirectory(prefix="xbus-benchmark-") as folder, databases() as url:
        key_file, client_file = Path(folder) / "server.key", Path(folder) / "client.key"
        write_pair(key_file, server)
        write_pair(client_file, client)
        query = f"?key={server.public}&client_key={client_file}"
        options: Options = {
            "zmq": {"frontsocket.curve": ANY_PORT, "backsocket.curve": ANY_PORT},
            "curve": {"key_file": key_file},
        }
        with running_bus(url, bus, options) as daemon:
            sealed = (f"xbus://{daemon.encrypted_front}{query}", f"xbus://{daemon.encrypted_back}{query}")
            plain = (daemon.front, daemon.back)
            seconds = [
                (pass_through(daemon, *sealed, sizes), pass_through(daemon, *plain, sizes)) for _ in range(sizes.rounds)
            ]
    items = sizes.envelopes * sizes.envelope_items
    return Result.median(((items / encrypted, items / bare) for encrypted, bare in seconds), "items/s")
