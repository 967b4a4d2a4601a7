UPDATE relay r
SET source = n.source, candidate = n.candidate, excluded = n.excluded, paused_until = n.paused_until,
    verdict = n.verdict::state, since = n.since,
    marks = n.marks::text[], quorum_for = n.quorum_for, quorum_of = n.quorum_of, reason = n.reason,
    cause = nullif(n.cause, '')::cause, evidence = n.evidence, last_success = n.last_success,
    majority_down_since = n.majority_down_since, changes = n.changes::timestamptz[], held_since = n.held_since
FROM unnest($1::text[], $2::text[], $3::boolean[], $4::boolean[], $5::timestamptz[], $6::text[], $7::timestamptz[],
            $8::text[], $9::integer[], $10::integer[], $11::text[], $12::text[], $13::text[],
            $14::timestamptz[], $15::timestamptz[], $16::text[], $17::timestamptz[])
     AS n(url, source, candidate, excluded, paused_until, verdict, since, marks, quorum_for, quorum_of, reason, cause,
          evidence, last_success, majority_down_since, changes, held_since)
WHERE r.url = n.url
