"""The clients of peers, each by its module: a program loads only the library of its own."""

import importlib

from benchmarks.peers.client import Connect

MODULES = {
    "xbus_sqlite": "bus",
    "xbus_postgresql": "bus",
    "rabbitmq": "rabbitmq",
    "redis": "redis_streams",
    "nats_unsynced": "nats_jetstream",
    "nats_synced": "nats_jetstream",
    "procrastinate": "procrastinate_jobs",
}


def connector(peer: str) -> Connect:
    """Give what connects to a peer."""
    connect: Connect = importlib.import_module(f"benchmarks.peers.{MODULES[peer]}").connect
    return connect
