"""Databases of xbus.broker 0.2.0: the tables as it makes them, rows as it writes them, and its hashes of passwords."""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import count
from typing import Any
from uuid import UUID

import psycopg2
from psycopg2 import sql

from tests.support.bus import PASSWORD
from tests.support.postgres import Server

TABLES = """
CREATE TYPE input_type AS ENUM ('descriptor');
CREATE TYPE envelope_state_enum AS ENUM ('open', 'cancelled', 'received');
CREATE TYPE execution_state_enum AS ENUM ('wait', 'exec', 'done', 'part', 'stop', 'canc');
CREATE TYPE tracking_state_enum AS ENUM ('unprocessed', 'processing', 'on_hold', 'corrected', 'won_t_fix');

CREATE TABLE input_descriptor (
    id UUID NOT NULL PRIMARY KEY,
    name VARCHAR(64) NOT NULL UNIQUE,
    descriptor BYTEA NOT NULL,
    descriptor_mimetype VARCHAR(64)
);
CREATE TABLE service (
    id UUID NOT NULL PRIMARY KEY,
    name VARCHAR(64) UNIQUE,
    is_consumer BOOLEAN DEFAULT 'FALSE',
    description TEXT
);
CREATE TABLE permission (
    permission_id SERIAL NOT NULL PRIMARY KEY,
    permission_name VARCHAR(16) UNIQUE,
    description VARCHAR(255)
);
CREATE TABLE "user" (
    user_id UUID NOT NULL PRIMARY KEY,
    user_name VARCHAR(16) UNIQUE,
    email_address VARCHAR(255) UNIQUE,
    display_name VARCHAR(255),
    password VARCHAR(80),
    created TIMESTAMP WITHOUT TIME ZONE
);
CREATE TABLE event_type (
    id UUID NOT NULL PRIMARY KEY,
    name VARCHAR(64) UNIQUE,
    description TEXT,
    immediate_reply BOOLEAN
);
CREATE TABLE emitter_profile (
    id UUID NOT NULL PRIMARY KEY,
    name VARCHAR(64) NOT NULL UNIQUE,
    display_name VARCHAR(255),
    description TEXT
);
CREATE TABLE "group" (
    group_id SERIAL NOT NULL PRIMARY KEY,
    group_name VARCHAR(16) UNIQUE,
    display_name VARCHAR(255),
    created TIMESTAMP WITHOUT TIME ZONE
);
CREATE TABLE user_group (
    user_id UUID REFERENCES "user" (user_id) ON UPDATE CASCADE ON DELETE CASCADE,
    group_id INTEGER REFERENCES "group" (group_id) ON UPDATE CASCADE ON DELETE CASCADE
);
CREATE TABLE group_permission (
    group_id INTEGER REFERENCES "group" (group_id) ON UPDATE CASCADE ON DELETE CASCADE,
    permission_id INTEGER REFERENCES permission (permission_id) ON UPDATE CASCADE ON DELETE CASCADE
);
CREATE TABLE emitter_profile_event_type_rel (
    event_id UUID NOT NULL REFERENCES event_type (id) ON DELETE CASCADE,
    profile_id UUID NOT NULL REFERENCES emitter_profile (id) ON DELETE CASCADE,
    PRIMARY KEY (event_id, profile_id)
);
CREATE TABLE emitter (
    id UUID NOT NULL PRIMARY KEY,
    login VARCHAR(64) NOT NULL UNIQUE,
    password VARCHAR(80),
    profile_id UUID NOT NULL REFERENCES emitter_profile (id) ON DELETE CASCADE,
    last_emit TIMESTAMP WITHOUT TIME ZONE
);
CREATE TABLE role (
    id UUID NOT NULL PRIMARY KEY,
    login VARCHAR(64) NOT NULL UNIQUE,
    password VARCHAR(80),
    service_id UUID NOT NULL REFERENCES service (id) ON DELETE CASCADE,
    last_logged TIMESTAMP WITHOUT TIME ZONE
);
CREATE TABLE event_node (
    id UUID NOT NULL PRIMARY KEY,
    service_id UUID NOT NULL REFERENCES service (id) ON DELETE RESTRICT,
    type_id UUID NOT NULL REFERENCES event_type (id) ON DELETE RESTRICT,
    is_start BOOLEAN DEFAULT 'FALSE'
);
CREATE TABLE event_node_rel (
    parent_id UUID NOT NULL REFERENCES event_node (id) ON DELETE CASCADE,
    child_id UUID NOT NULL REFERENCES event_node (id) ON DELETE CASCADE,
    PRIMARY KEY (parent_id, child_id)
);
CREATE TABLE emission_profile (
    id UUID NOT NULL PRIMARY KEY,
    name VARCHAR(64) NOT NULL UNIQUE,
    owner_id UUID REFERENCES "user" (user_id) ON DELETE RESTRICT,
    input_type input_type NOT NULL,
    input_descriptor_id UUID REFERENCES input_descriptor (id) ON DELETE RESTRICT,
    encoding VARCHAR NOT NULL
);
CREATE TABLE envelope (
    id UUID NOT NULL PRIMARY KEY,
    emitter_id UUID REFERENCES emitter (id) ON DELETE RESTRICT,
    state envelope_state_enum NOT NULL,
    posted_date TIMESTAMP WITHOUT TIME ZONE NOT NULL,
    done_date TIMESTAMP WITHOUT TIME ZONE
);
CREATE TABLE event (
    id UUID NOT NULL PRIMARY KEY,
    envelope_id UUID NOT NULL REFERENCES envelope (id) ON DELETE CASCADE,
    emitter_id UUID REFERENCES emitter (id) ON DELETE RESTRICT,
    type_id UUID NOT NULL REFERENCES event_type (id) ON DELETE RESTRICT,
    started_date TIMESTAMP WITHOUT TIME ZONE,
    done_date TIMESTAMP WITHOUT TIME ZONE,
    estimated_items INTEGER,
    sent_items INTEGER,
    execution_state execution_state_enum NOT NULL,
    tracking_state tracking_state_enum NOT NULL,
    responsible_id UUID REFERENCES "user" (user_id) ON DELETE RESTRICT,
    origin_event_id UUID REFERENCES event (id) ON DELETE RESTRICT,
    retry_event_id UUID REFERENCES event (id) ON DELETE RESTRICT
);
CREATE TABLE event_consumer_inactive_rel (
    event_id UUID NOT NULL REFERENCES event (id) ON DELETE RESTRICT,
    role_id UUID NOT NULL REFERENCES role (id) ON DELETE RESTRICT,
    node_id UUID NOT NULL REFERENCES event_node (id) ON DELETE RESTRICT,
    was_unavailable BOOLEAN NOT NULL,
    retry_event_id UUID REFERENCES event (id) ON DELETE CASCADE,
    PRIMARY KEY (event_id, role_id, node_id)
);
"""


def old_hash(password: str) -> str:
    """What xbus.broker 0.2.0 stores of a password: a salt of 40 digits, and the SHA-1 of password and salt."""
    salt = hashlib.sha1(os.urandom(60)).hexdigest()
    return salt + hashlib.sha1(password.encode() + salt.encode()).hexdigest()


class OldDatabase:
    """A database of xbus.broker 0.2.0.

    Args:
        address: ``postgresql://user:password@host:port/name``.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._connection = psycopg2.connect(address)
        self._connection.autocommit = True
        self._ids = count(1)
        self._services: dict[str, str] = {}

    def execute(self, statement: str | sql.Composable, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Carry out a statement; its rows, where it has any."""
        with self._connection.cursor() as cursor:
            cursor.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        """Let go of it."""
        self._connection.close()

    def add(self, table: str, **values: Any) -> str:
        """Add a row; its id, which is above those of the rows before it."""
        if "id" in self.columns(table):
            values = {"id": str(UUID(int=next(self._ids))), **values}
        statement = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
            sql.Identifier(table),
            sql.SQL(", ").join(map(sql.Identifier, values)),
            sql.SQL(", ").join([sql.Placeholder()] * len(values)),
        )
        self.execute(statement, [*values.values()])
        return str(values.get("id", ""))

    def columns(self, table: str) -> list[str]:
        """The names of a table's columns, in order."""
        rows = self.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_name = %s ORDER BY ordinal_position",
            [table],
        )
        return [name for (name,) in rows]

    def add_service(self, name: str, *, is_consumer: bool = False) -> str:
        """Add a service with one role, ``name_1``."""
        self._services[name] = self.add("service", name=name, is_consumer=is_consumer)
        self.add("role", login=f"{name}_1", password=old_hash(PASSWORD), service_id=self._services[name])
        return self._services[name]

    def add_event_type(self, name: str, nodes: Mapping[str, Sequence[str]], start: Sequence[str], **values: Any) -> str:
        """Add an event type with its graph.

        Args:
            name: its name.
            nodes: each node with those behind it; a node is named as its service, or ``node:service``.
            start: the nodes that are marked.
            values: what else its row holds.
        """
        type_id = self.add("event_type", name=name, **values)
        ids: dict[str, str] = {}
        for node in nodes:
            label, _, service = node.partition(":")
            service_id = self._services[service or label]
            ids[label] = self.add("event_node", service_id=service_id, type_id=type_id, is_start=label in start)
        for node, children in nodes.items():
            for child in children:
                self.add("event_node_rel", parent_id=ids[node.partition(":")[0]], child_id=ids[child])
        return type_id

    def add_profile(self, name: str, type_ids: Sequence[str]) -> str:
        """Add an emitter profile with one emitter, ``name_1``."""
        profile_id = self.add("emitter_profile", name=name)
        for type_id in type_ids:
            self.add("emitter_profile_event_type_rel", event_id=type_id, profile_id=profile_id)
        self.add("emitter", login=f"{name}_1", password=old_hash(PASSWORD), profile_id=profile_id)
        return profile_id

    def add_user(self, login: str, permissions: Sequence[str] = ()) -> str:
        """Add a user, in a group for each permission; the id."""
        user_id = str(UUID(int=next(self._ids)))
        self.add(
            "user",
            user_id=user_id,
            user_name=login,
            display_name=f"Example {login}",
            email_address=f"{login}@somedomain.example",
            password=old_hash(PASSWORD),
        )
        for number, name in enumerate(permissions):
            self.add("group", group_name=f"{login} {number}")
            self.add("permission", permission_name=name)
            self.execute('INSERT INTO user_group SELECT %s, max(group_id) FROM "group"', [user_id])
            self.execute(
                'INSERT INTO group_permission SELECT (SELECT max(group_id) FROM "group"), max(permission_id)'
                " FROM permission"
            )
        return user_id

    def add_demo(self) -> None:
        """Add what its ``setup_xbusbroker`` does."""
        consumer = self.add("service", name="consumer_service", is_consumer=True)
        worker = self.add("service", name="worker_service", is_consumer=False)
        self._services.update(consumer_service=consumer, worker_service=worker)
        for login, service_id in (("consumer_role", consumer), ("worker_role", worker)):
            self.add("role", login=login, password=old_hash(PASSWORD), service_id=service_id)
        type_id = self.add_event_type(
            "test_event",
            {"direct:consumer_service": [], "worker_service": ["behind"], "behind:consumer_service": []},
            start=["direct", "worker_service"],
        )
        profile_id = self.add("emitter_profile", name="test_profile")
        self.add("emitter_profile_event_type_rel", event_id=type_id, profile_id=profile_id)
        self.add("emitter", login="test_emitter", password=old_hash(PASSWORD), profile_id=profile_id)
        self.add_user("manager", ["xbus_manager"])

    def content(self) -> dict[str, list[tuple[Any, ...]]]:
        """All rows of all its tables."""
        tables = self.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")
        return {
            table: sorted(self.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))), key=repr)
            for (table,) in tables
        }


@contextmanager
def old_database(server: Server) -> Iterator[OldDatabase]:
    """A database of xbus.broker 0.2.0 without rows, thrown away at the end."""
    url = server.create_empty()
    with closing(OldDatabase(url.replace("postgresql+psycopg2://", "postgresql://", 1))) as database:
        database.execute(TABLES)
        yield database
    server.drop(url)
