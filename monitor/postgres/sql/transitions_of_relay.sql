SELECT t.id, r.url, t.from_state::text, t.to_state::text, t.at, t.quorum_for, t.quorum_of,
       coalesce(t.cause::text, ''), t.evidence, t.ballots::text, t.rules
FROM relay r
JOIN transition t ON t.relay_id = r.id
WHERE r.url = $6 AND t.at >= $1 AND t.at < $2 AND t.id < $3 AND ($4::text = '' OR t.to_state::text = $4)
ORDER BY t.id DESC LIMIT $5
