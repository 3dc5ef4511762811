BEGIN TRANSACTION;
CREATE TABLE batch (
    event_id TEXT NOT NULL REFERENCES event ON DELETE CASCADE,
    first_index INTEGER NOT NULL,
    items INTEGER NOT NULL,
    data BLOB NOT NULL,           -- each item a msgpack bin, one after the other
    PRIMARY KEY (event_id, first_index)
);
INSERT INTO "batch" VALUES('01a20661-8f2c-71b6-a927-a15be7fab798',0,1,X'C40F66726F6D20746865206F7574626F78');
CREATE TABLE envelope (
    id TEXT PRIMARY KEY,
    key TEXT NOT NULL,            -- its idempotency key at the bus
    ordering_key TEXT,
    state TEXT NOT NULL CHECK (state IN ('writing', 'waiting', 'refused')),
    place INTEGER UNIQUE,         -- in the line; null while it is being written
    queued_at TEXT,
    bytes INTEGER NOT NULL,
    code TEXT,                    -- why the bus refused it
    cause TEXT
);
INSERT INTO "envelope" VALUES('01a20661-8f2c-70c7-8702-964c1e9fc2ef','01a20661-8f2c-738f-a037-761cf67cbbf6',NULL,'waiting',1,'2026-11-23T03:09:46+00:00',529,NULL,NULL);
CREATE TABLE event (
    id TEXT PRIMARY KEY,
    envelope_id TEXT NOT NULL REFERENCES envelope ON DELETE CASCADE,
    number INTEGER NOT NULL,
    type_name TEXT NOT NULL,
    estimate INTEGER NOT NULL,
    UNIQUE (envelope_id, number)
);
INSERT INTO "event" VALUES('01a20661-8f2c-71b6-a927-a15be7fab798','01a20661-8f2c-70c7-8702-964c1e9fc2ef',1,'notes',1);
CREATE TABLE trouble (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    code TEXT NOT NULL,
    cause TEXT NOT NULL,
    since TEXT NOT NULL
);
INSERT INTO "trouble" VALUES(1,'timed_out','tcp://127.0.0.1:9: no connection for xbus.login within 0.1 s, and nothing helped within the 0.1 s of `retry_seconds`','2026-11-23T03:09:46+00:00');
CREATE INDEX envelope_state ON envelope (state, place);
COMMIT;
PRAGMA application_id = 1482847603;
PRAGMA user_version = 1;
