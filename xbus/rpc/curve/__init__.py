"""Encryption by CURVE: key pairs and their files, addresses that name keys, and the answers to libzmq who may connect.

It knows neither logins nor verbs. Servers, clients and the bell use it.
"""

from xbus.rpc.curve.address import BrokerAddress, parse_address, shown
from xbus.rpc.curve.authenticator import Authenticator
from xbus.rpc.curve.keys import KEY_LENGTH, KeyPair, is_public_key, new_pair, read_pair, write_pair
from xbus.rpc.curve.sockets import call_encrypted, serve_encrypted

__all__ = [
    "KEY_LENGTH",
    "Authenticator",
    "BrokerAddress",
    "KeyPair",
    "call_encrypted",
    "is_public_key",
    "new_pair",
    "parse_address",
    "read_pair",
    "serve_encrypted",
    "shown",
    "write_pair",
]
