-- +goose Up

-- What operators say of a relay. excluded: it is never probed, whoever names
-- it; the configuration's exclusions are not kept here. paused_until: it is not
-- probed before.
ALTER TABLE relay
    ADD COLUMN excluded     boolean NOT NULL DEFAULT false,
    ADD COLUMN paused_until timestamptz;

-- Declared windows: what a relay does in "from" ≤ t < until is not held against
-- it in its uptime.
CREATE TABLE maintenance (
    relay_id integer NOT NULL,
    "from"   timestamptz NOT NULL,
    until    timestamptz NOT NULL,
    note     text NOT NULL,
    actor    text NOT NULL,
    -- A commit whose answer was lost may be tried again.
    PRIMARY KEY (relay_id, "from", until)
);
CREATE INDEX maintenance_until ON maintenance (until);

-- Every command that changed something, kept for ever.
CREATE TABLE audit (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     timestamptz NOT NULL,
    actor  text NOT NULL,       -- a pubkey in hex, token, or empty for a stranger
    kind   text NOT NULL,
    relays text[] NOT NULL,
    note   text NOT NULL,
    -- A commit whose answer was lost may be tried again.
    UNIQUE (at, actor, kind)
);
