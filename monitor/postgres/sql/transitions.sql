SELECT t.id, r.url, t.from_state::text, t.to_state::text, t.at, t.quorum_for, t.quorum_of,
       coalesce(t.cause::text, ''), t.evidence, t.ballots::text, t.rules
FROM transition t
JOIN relay r ON r.id = t.relay_id
WHERE t.at >= $1 AND t.at < $2 AND t.id < $3 AND ($4::text = '' OR t.to_state::text = $4)
ORDER BY t.id DESC LIMIT $5
