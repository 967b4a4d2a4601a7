-- A commit whose answer was lost is tried again: the same transition is then
-- found, not added twice.
INSERT INTO transition (relay_id, at, from_state, to_state, quorum_for, quorum_of, cause, evidence, ballots, rules)
SELECT r.id, n.at, n.from_state::state, n.to_state::state, n.quorum_for, n.quorum_of,
       nullif(n.cause, '')::cause, n.evidence, n.ballots::jsonb, n.rules
FROM unnest($1::text[], $2::timestamptz[], $3::text[], $4::text[], $5::integer[], $6::integer[],
            $7::text[], $8::text[], $9::text[], $10::integer[])
     WITH ORDINALITY AS n(url, at, from_state, to_state, quorum_for, quorum_of, cause, evidence, ballots, rules, ord)
JOIN relay r ON r.url = n.url
ORDER BY n.ord
ON CONFLICT (relay_id, at) DO UPDATE SET rules = excluded.rules
RETURNING id, (SELECT url FROM relay WHERE relay.id = transition.relay_id), at
