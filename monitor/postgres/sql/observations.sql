SELECT o.time, v.name, coalesce(o.outcome::text, ''), coalesce(o.stage::text, ''), coalesce(o.cause::text, ''),
       o.no_eose, o.auth_seen, coalesce(o.http_status, 0), o.lag_ms,
       coalesce(o.dns_ms, 0), coalesce(o.tcp_ms, 0), coalesce(o.tls_ms, 0), coalesce(o.upgrade_ms, 0),
       coalesce(o.read_ms, 0), coalesce(o.write_ms, 0), coalesce(o.info_ms, 0),
       coalesce(o.rtt_open_ms, 0), coalesce(o.rtt_read_ms, 0), coalesce(o.rtt_write_ms, 0)
FROM observation o
JOIN vantage v ON v.id = o.vantage_id
WHERE o.relay_id = (SELECT id FROM relay WHERE url = $1)
  AND o.time >= $2 AND o.time < $3 AND ($4::text = '' OR v.name = $4)
ORDER BY o.time, v.name LIMIT $5
