-- Of a revoked vantage nothing counts.
SELECT vr.vantage_id, vr.relay_id, vr.state::text, vr.failure_count, vr.corroborated, vr.first_failure, vr.last_failure, vr.last_success,
       vr.backoff_until, vr.next_due, vr.newest, vr.rtt_open_ms, vr.rtt_read_ms, vr.rtt_write_ms
FROM vantage_relay vr JOIN vantage v ON v.id = vr.vantage_id
WHERE NOT v.revoked
