"""Encryption by CURVE: key pairs and their files, addresses that name keys, and the answers to libzmq who may connect.

It knows no verbs and begins no session. Servers, clients and the bell use it; emitters, recipients and commands have
it complete their logins.
"""

from xbus.rpc.curve.address import KEY_VARIABLES, BrokerAddress, parse_address, shown
from xbus.rpc.curve.authenticator import Authenticator
from xbus.rpc.curve.keys import KEY_LENGTH, KeyPair, is_public_key, new_pair, read_pair, write_pair
from xbus.rpc.curve.login import PASSWORD_VARIABLE, complete_login, first_line, read_password
from xbus.rpc.curve.sockets import call_encrypted, serve_encrypted

__all__ = [
    "KEY_LENGTH",
    "KEY_VARIABLES",
    "PASSWORD_VARIABLE",
    "Authenticator",
    "BrokerAddress",
    "KeyPair",
    "call_encrypted",
    "complete_login",
    "first_line",
    "is_public_key",
    "new_pair",
    "parse_address",
    "read_pair",
    "read_password",
    "serve_encrypted",
    "shown",
    "write_pair",
]
