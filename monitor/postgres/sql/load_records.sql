SELECT vantage_id, relay_id, state::text, failure_count, corroborated, first_failure, last_failure, last_success,
       backoff_until, next_due, newest, rtt_open_ms, rtt_read_ms, rtt_write_ms
FROM vantage_relay
