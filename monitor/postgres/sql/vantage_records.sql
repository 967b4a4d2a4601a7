SELECT r.url, vr.state::text, vr.failure_count, vr.corroborated, vr.first_failure, vr.last_failure, vr.last_success,
       vr.backoff_until, vr.next_due, vr.newest, vr.rtt_open_ms, vr.rtt_read_ms, vr.rtt_write_ms
FROM vantage v JOIN vantage_relay vr ON vr.vantage_id = v.id JOIN relay r ON r.id = vr.relay_id
WHERE v.name = $1
