-- +goose Up

-- Relays that other people's lists name, as the newest sweep that found them has
-- it. They are watched or not: a relay's own row says so. Every sweep writes all
-- rows that it finds, none of them to an index but its key's.
CREATE TABLE discovered (
    url        text PRIMARY KEY,
    kinds      integer[] NOT NULL,   -- of the events that name it, ascending
    authors    integer NOT NULL,     -- distinct ones of them
    first_seen timestamptz NOT NULL,
    last_seen  timestamptz NOT NULL, -- the end of that sweep
    waiting    boolean NOT NULL      -- it is to be watched, and has no room
) WITH (fillfactor = 70);
