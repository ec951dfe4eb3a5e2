-- The log. Messages are only added and purged, never changed. AUTOINCREMENT keeps numbers from being
-- used again after a purge empties the table, which would put new messages behind every cursor.
CREATE TABLE topic (
    topic_id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE message (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    topic_id INTEGER NOT NULL,
    key TEXT NOT NULL,
    key_hash INTEGER NOT NULL,
    event_id TEXT NOT NULL,
    source TEXT NOT NULL,
    late INTEGER NOT NULL CHECK (late IN (0, 1)),
    stored_at_ms INTEGER NOT NULL,
    document BLOB NOT NULL
) STRICT;

-- The row's number is part of every index, so this one is in order of (topic_id, seq).
CREATE INDEX message_topic ON message (topic_id);

-- `claims` counts the claims that handed something out and is the token of their deliveries.
CREATE TABLE consumer_group (
    group_id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    start_after INTEGER NOT NULL,
    claims INTEGER NOT NULL DEFAULT 0
) STRICT;

-- What the group ever subscribed to, so that a purge knows who reads a topic.
CREATE TABLE group_pattern (
    group_id INTEGER NOT NULL,
    pattern TEXT NOT NULL,
    PRIMARY KEY (group_id, pattern)
) STRICT, WITHOUT ROWID;

-- Up to where the group has taken messages of a topic out of the log. No row means its start.
CREATE TABLE group_cursor (
    group_id INTEGER NOT NULL,
    topic_id INTEGER NOT NULL,
    passed INTEGER NOT NULL,
    PRIMARY KEY (group_id, topic_id)
) STRICT, WITHOUT ROWID;

-- What the cursor has passed and nobody has settled. At most one row of a key is its head, and only
-- heads are handed out: that is what keeps a key's order across consumers.
CREATE TABLE delivery (
    group_id INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    key_hash INTEGER NOT NULL,
    head INTEGER NOT NULL CHECK (head IN (0, 1)),
    late INTEGER NOT NULL DEFAULT 0 CHECK (late IN (0, 1)),
    token INTEGER NOT NULL,
    count INTEGER NOT NULL CHECK (count >= 0),
    visible_at_ms INTEGER NOT NULL,
    PRIMARY KEY (group_id, seq)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX delivery_head ON delivery (group_id, key_hash) WHERE head = 1;
CREATE INDEX delivery_key ON delivery (group_id, key_hash, seq);
CREATE INDEX delivery_due ON delivery (group_id, visible_at_ms) WHERE head = 1;

CREATE TABLE dead_letter (
    group_id INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    key_hash INTEGER NOT NULL,
    count INTEGER NOT NULL,
    reason TEXT NOT NULL,
    dead_at_ms INTEGER NOT NULL,
    PRIMARY KEY (group_id, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX dead_letter_seq ON dead_letter (seq);
