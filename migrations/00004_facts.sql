-- +goose Up

-- relay_document holds more of a relay than what it says of itself: tls, dns,
-- capabilities, write. last_at is when it was last seen to be as in this row,
-- NULL where that is not kept.
ALTER TABLE relay_document ADD COLUMN last_at timestamptz;
