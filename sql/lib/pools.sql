-- Arithmetic of a pool that sequences share.

-- Most sequences N with N · mean + z · deviation · sqrt(N) within the pool (core.pool_demand shows where that comes from).
create or replace macro most_sequences(pool_tokens, mean_tokens, deviation_tokens, z) as
    floor((
        (sqrt(z ** 2 * deviation_tokens ** 2 + 4 * mean_tokens * pool_tokens) - z * deviation_tokens) / (2 * mean_tokens)
    ) ** 2)::bigint;

-- Class of a length: the power of four at or below it (1, 4, 16, 64, …, 16384, …).
create or replace macro length_class(tokens) as
    power(4, floor(ln(greatest(1, tokens)) / ln(4) + 1e-9))::bigint;
