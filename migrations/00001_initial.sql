-- +goose Up

-- The words of these types are those of the Go lists, with Go's empty first
-- word left out: NULL stands for it.
CREATE TYPE outcome AS ENUM ('ok', 'refused', 'restricted', 'failed', 'skipped', 'unclear');
CREATE TYPE stage AS ENUM ('dns', 'tcp', 'tls', 'upgrade', 'read', 'write', 'info');
CREATE TYPE cause AS ENUM (
    'nxdomain', 'no_address', 'refused', 'reset', 'timeout', 'unreachable',
    'tls_expired', 'tls_name', 'tls_untrusted', 'tls_handshake',
    'http_404', 'http_5xx', 'http_other', 'upgrade_invalid',
    'silent', 'closed_early', 'not_nostr', 'oversized', 'blocked_address',
    'auth_required', 'restricted', 'blocked', 'rate_limited', 'payment', 'pow',
    'invalid', 'unsupported', 'error', 'declined',
    'http_401', 'http_403', 'http_407', 'http_429', 'http_451', 'challenge',
    'overload', 'paused', 'no_proxy', 'impaired', 'excluded',
    'resolver', 'local_network', 'lag'
);
CREATE TYPE state AS ENUM ('unknown', 'online', 'offline', 'dead');

-- One row about this database as a whole.
CREATE TABLE core (
    one        boolean PRIMARY KEY DEFAULT true CHECK (one),
    -- term counts the leaders: a core that lost its lock may go on only when
    -- nobody decided in between.
    term       bigint NOT NULL DEFAULT 0,
    -- generation is the highest number that was reserved for one.
    generation bigint NOT NULL DEFAULT 0,
    -- served: a first pass was completed and its list served.
    served     boolean NOT NULL DEFAULT false
);
INSERT INTO core DEFAULT VALUES;

CREATE TABLE relay (
    id                  integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    url                 text NOT NULL UNIQUE,
    network             text NOT NULL,
    source              text NOT NULL,
    first_seen          timestamptz NOT NULL,
    candidate           boolean NOT NULL,
    -- The verdict. since is NULL while none was ever reached.
    verdict             state NOT NULL DEFAULT 'unknown',
    since               timestamptz,
    marks               text[] NOT NULL DEFAULT '{}',
    quorum_for          integer NOT NULL DEFAULT 0,
    quorum_of           integer NOT NULL DEFAULT 0,
    reason              text NOT NULL DEFAULT '',
    cause               cause,
    evidence            text NOT NULL DEFAULT '',
    last_success        timestamptz,
    majority_down_since timestamptz,
    changes             timestamptz[] NOT NULL DEFAULT '{}',
    held_since          timestamptz
) WITH (fillfactor = 80);

-- What relays say of themselves: a row per change, the newest counts.
CREATE TABLE relay_document (
    relay_id integer NOT NULL,
    kind     text NOT NULL,       -- nip11
    seen_at  timestamptz NOT NULL,
    fields   jsonb NOT NULL,      -- what was understood
    raw      text,                -- as it was sent; text, because relays nest and escape at will
    PRIMARY KEY (relay_id, kind, seen_at)
);

CREATE TABLE vantage (
    id             smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name           text NOT NULL UNIQUE,
    group_name     text NOT NULL,
    pubkey         text NOT NULL DEFAULT '',
    networks       text[] NOT NULL DEFAULT '{clearnet}',
    enrolled       timestamptz NOT NULL,
    revoked        boolean NOT NULL DEFAULT false,
    last_seen      timestamptz,
    last_seq       bigint NOT NULL DEFAULT 0,
    skew_ms        bigint NOT NULL DEFAULT 0,
    impaired_since timestamptz,
    health         jsonb NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50);

CREATE TABLE vantage_relay (
    vantage_id    smallint NOT NULL,
    relay_id      integer NOT NULL,
    state         state NOT NULL,
    failure_count integer NOT NULL,
    corroborated  boolean NOT NULL,
    first_failure timestamptz,
    last_failure  timestamptz,
    last_success  timestamptz,
    backoff_until timestamptz,
    next_due      timestamptz,
    newest        timestamptz,
    -- The last measured outcome; at is when that probe ended.
    outcome       outcome,
    stage         stage,
    cause         cause,
    at            timestamptz,
    evidence      text NOT NULL,
    -- Of the newest success, 0 = not measured.
    rtt_open_ms   integer NOT NULL,
    rtt_read_ms   integer NOT NULL,
    rtt_write_ms  integer NOT NULL,
    PRIMARY KEY (vantage_id, relay_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.1);

-- Raw observations, one partition per UTC day; what a probe did not come to is
-- NULL. The columns stand in the order that leaves no gaps. The index is on the
-- relay alone: its equal entries share a key and take 9 bytes each, where
-- (relay_id, time) takes 40; a part of a day is found by both indexes together.
CREATE TABLE observation (
    time         timestamptz NOT NULL, -- when the probe ended
    relay_id     integer NOT NULL,
    seq          integer NOT NULL,     -- of the batch
    outcome      outcome,
    stage        stage,                -- where it ended
    cause        cause,
    vantage_id   smallint NOT NULL,
    lag_ms       smallint NOT NULL,    -- started so long after it was due
    http_status  smallint,             -- of the upgrade
    -- Whole milliseconds, from 1 to 32767.
    dns_ms       smallint,
    tcp_ms       smallint,
    tls_ms       smallint,
    upgrade_ms   smallint,
    read_ms      smallint,
    write_ms     smallint,
    info_ms      smallint,
    rtt_open_ms  smallint,             -- tcp + tls + upgrade
    rtt_read_ms  smallint,             -- REQ to first reply
    rtt_write_ms smallint,             -- EVENT to OK
    no_eose      boolean NOT NULL,
    auth_seen    boolean NOT NULL
) PARTITION BY RANGE (time);
CREATE INDEX observation_relay ON observation (relay_id);
CREATE INDEX observation_time ON observation USING brin (time);

-- Holds rows of a day that has no partition yet, so that none is lost.
CREATE TABLE observation_default PARTITION OF observation DEFAULT;

-- Kept for ever.
CREATE TABLE transition (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    relay_id   integer NOT NULL,
    at         timestamptz NOT NULL,
    from_state state NOT NULL,
    to_state   state NOT NULL,
    quorum_for integer NOT NULL,
    quorum_of  integer NOT NULL,
    cause      cause,
    evidence   text NOT NULL,
    ballots    jsonb NOT NULL,
    rules      integer NOT NULL,
    -- A commit whose answer was lost may be tried again.
    UNIQUE (relay_id, at)
);
CREATE INDEX transition_at ON transition (at);

-- Our latest signed event per address.
CREATE TABLE report (
    kind       integer NOT NULL,
    pubkey     text NOT NULL,
    d          text NOT NULL,
    id         text NOT NULL,
    created_at timestamptz NOT NULL,
    expires    timestamptz,
    event      text NOT NULL,       -- as it goes on the wire, to the byte
    PRIMARY KEY (kind, pubkey, d)
) WITH (fillfactor = 80);
