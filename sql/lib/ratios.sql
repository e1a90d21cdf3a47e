-- Ratios and clamps that treat "nothing to divide by" as not known. DuckDB 2 answers 1/0 with inf and 0/0 with nan.

-- numerator / denominator, NULL where the denominator is zero or NULL.
create or replace macro ratio(numerator, denominator) as numerator::double / nullif(denominator, 0)::double;

-- value held between low and high; NULL stays NULL.
create or replace macro clamp(value, low, high) as
    case when value is null then null else greatest(low, least(high, value)) end;

-- value, or 0 where it is less; NULL stays NULL, of which greatest() would make a 0.
create or replace macro at_least_zero(value) as case when value is null then null else greatest(0, value) end;

-- Whether two means are of different things: a quarter apart or more, and by over three of their standard errors (given squared).
create or replace macro differs(mean, error, other_mean, other_error) as
    greatest(mean, other_mean) > 1.25 * least(mean, other_mean) and (mean - other_mean) ** 2 > 9 * (error + other_error);

-- Whether so many samples say what was so on average, and at most: fewer may all have missed it.
create or replace macro are_enough_samples(samples) as coalesce(samples >= 5, false);

-- Sum of the best estimates, NULL where of one of them only the most is known: that of the others would be told for all.
create or replace macro sum_where_each_is_told(best, most) as
    case when count(coalesce(best, most)) = count(best) then sum(best) end;
