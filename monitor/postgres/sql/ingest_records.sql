INSERT INTO vantage_relay (vantage_id, relay_id, state, failure_count, corroborated, first_failure, last_failure,
    last_success, backoff_until, next_due, newest, outcome, stage, cause, at, evidence,
    rtt_open_ms, rtt_read_ms, rtt_write_ms)
SELECT $1, n.relay_id, n.state::state, n.failure_count, n.corroborated, n.first_failure, n.last_failure,
    n.last_success, n.backoff_until, n.next_due, n.newest,
    nullif(n.outcome, '')::outcome, nullif(n.stage, '')::stage, nullif(n.cause, '')::cause, n.at, n.evidence,
    n.rtt_open_ms, n.rtt_read_ms, n.rtt_write_ms
FROM unnest($2::integer[], $3::text[], $4::integer[], $5::boolean[], $6::timestamptz[], $7::timestamptz[],
            $8::timestamptz[], $9::timestamptz[], $10::timestamptz[], $11::timestamptz[],
            $12::text[], $13::text[], $14::text[], $15::timestamptz[], $16::text[],
            $17::integer[], $18::integer[], $19::integer[])
     AS n(relay_id, state, failure_count, corroborated, first_failure, last_failure,
          last_success, backoff_until, next_due, newest,
          outcome, stage, cause, at, evidence, rtt_open_ms, rtt_read_ms, rtt_write_ms)
ON CONFLICT (vantage_id, relay_id) DO UPDATE
SET state = excluded.state, failure_count = excluded.failure_count, corroborated = excluded.corroborated,
    first_failure = excluded.first_failure, last_failure = excluded.last_failure,
    last_success = excluded.last_success, backoff_until = excluded.backoff_until,
    next_due = excluded.next_due, newest = excluded.newest,
    outcome = excluded.outcome, stage = excluded.stage, cause = excluded.cause, at = excluded.at,
    evidence = excluded.evidence, rtt_open_ms = excluded.rtt_open_ms,
    rtt_read_ms = excluded.rtt_read_ms, rtt_write_ms = excluded.rtt_write_ms
