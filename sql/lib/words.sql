-- Numbers as people read them, for the sentences of verdicts.

-- 0.34 s, 12 s, 3 min 20 s, 2 h 5 min.
create or replace macro spoken_duration(seconds) as
    case
        when seconds is null then null
        when seconds < 10 then format('{:.1f} s', seconds)
        when seconds < 120 then format('{:.0f} s', seconds)
        when seconds < 7200 then format('{:.0f} min {:.0f} s', floor(seconds / 60), seconds % 60)
        else format('{:.0f} h {:.0f} min', floor(seconds / 3600), floor((seconds % 3600) / 60))
    end;

-- 1,234,567.
create or replace macro spoken_count(number) as
    case when number is null then null else format('{:,}', round(number)::bigint) end;

-- The sentences that apply: one whose figures are not known is NULL, and left out.
create or replace macro sentences(candidates) as
    list_filter(candidates, lambda sentence: sentence is not null);
