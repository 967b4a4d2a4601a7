COPY observation (time, relay_id, seq, outcome, stage, cause, vantage_id, lag_ms, http_status,
    dns_ms, tcp_ms, tls_ms, upgrade_ms, read_ms, write_ms, info_ms, rtt_open_ms, rtt_read_ms, rtt_write_ms,
    no_eose, auth_seen) FROM STDIN (FORMAT binary)
