-- Quantiles of Prometheus histograms.

-- The quantile's value where it falls into this bucket (above, le], with `below` observations under it and `at_or_below` up to it;
-- NULL where it falls elsewhere. The lowest non-NULL over the buckets is the quantile.
create or replace macro within_bucket(quantile, observations, below, at_or_below, above, le) as
    case
        when at_or_below < quantile * observations or observations = 0 then null
        when isinf(le) then above
        else above + (le - above) * clamp(ratio(quantile * observations - below, at_or_below - below), 0, 1)
    end;
