-- +goose Up

-- One machine may become the vantage of that name, with the token, before it
-- expires. The token itself is kept nowhere.
CREATE TABLE invitation (
    token      bytea PRIMARY KEY,          -- its SHA-256
    name       text NOT NULL,
    group_name text NOT NULL,
    created    timestamptz NOT NULL,
    expires    timestamptz NOT NULL,
    actor      text NOT NULL,              -- who invited, as in audit
    used_at    timestamptz,                -- NULL = open
    used_by    text NOT NULL DEFAULT ''    -- pubkey in hex
);
CREATE INDEX invitation_name ON invitation (name);

-- A key signs for one vantage. Those of the core's own process have none.
CREATE UNIQUE INDEX vantage_pubkey ON vantage (pubkey) WHERE pubkey <> '' AND NOT revoked;
