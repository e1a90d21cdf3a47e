-- Methods that contradict each other beyond their errors: two ranges for one quantity that do not meet.
--
-- At least one of them rests on something that does not hold here; the answer is still the surer one's. A method whose inputs have
-- holes tells too little by them, and contradicts nobody by that.
--
-- grain: engine, kind, method
-- needs: core.recompute_estimates
-- column: engine      VARCHAR | Engine.
-- column: kind        VARCHAR | Kind of waste.
-- column: method      VARCHAR | Method whose range does not meet the one that answers.
-- column: used        VARCHAR | Method that answers.
-- column: tokens_low  DOUBLE  | Its least tokens.
-- column: tokens_high DOUBLE  | Its most; NULL where nothing bounds it.
-- column: detail      VARCHAR | Both ranges, in a sentence.
select
    others.engine,
    others.kind,
    others.method,
    used.method as used,
    others.tokens_low,
    others.tokens_high,
    format(
        '{} says {:.0f} to {:.0f} tokens of {}, {} says {:.0f} to {:.0f}: one of them rests on something that does not hold here.',
        used.method, used.tokens_low, used.tokens_high, used.kind, others.method, others.tokens_low, others.tokens_high
    ) as detail,
from core.recompute_estimates as others
inner join core.recompute_estimates as used
    on used.engine = others.engine and used.kind = others.kind and used.is_used and not others.is_used
where others.tokens_low > used.tokens_high
    or (others.tokens_high < used.tokens_low and others.is_partial is not true)
order by others.engine, others.kind, others.method
