-- Severity: 0 to 100, from what users felt and what the operator paid. One scale for all verdicts, so that they can be ranked.

-- How much of a delay per request is felt, 0 to 1: a tenth of a second is hardly noticed, a second breaks the flow of thought (the
-- limits of Nielsen's response-time studies), and beyond a few seconds more of it makes it little worse.
create or replace macro felt(seconds_per_request) as
    case when seconds_per_request is null then null else 1 - exp(-greatest(0, seconds_per_request)) end;

-- A delay of so many seconds a request that is this share of the request's whole time.
create or replace macro delay_severity(seconds_per_request, share_of_time) as
    100 * felt(seconds_per_request) * sqrt(clamp(share_of_time, 0, 1));

-- A delay that one sample alone shows for this share of the requests: nobody knows how long it lasted, so the middle of what it can be.
create or replace macro instant_severity(share_of_requests) as 50 * sqrt(clamp(share_of_requests, 0, 1));

-- Preempted work: preemptions per request served (0.07 is mild, 1 is thrash), or the share of all computed tokens that were
-- computed before (a quarter of the machine repeated is as bad as it gets in practice), whichever is worse.
create or replace macro preemption_severity(preemptions_per_request, repeated_share) as
    100 * greatest(coalesce(1 - exp(-preemptions_per_request), 0), least(1, coalesce(3 * repeated_share, 0)));
