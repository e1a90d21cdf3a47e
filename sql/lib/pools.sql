-- Arithmetic of a pool that sequences share.

-- Most sequences N with N · mean + z · deviation · sqrt(N) within the pool (core.pool_demand shows where that comes from).
create or replace macro most_sequences(pool_tokens, mean_tokens, deviation_tokens, z) as
    floor((
        (sqrt(z ** 2 * deviation_tokens ** 2 + 4 * mean_tokens * pool_tokens) - z * deviation_tokens) / (2 * mean_tokens)
    ) ** 2)::bigint;

-- Class of a length: the power of four at or below it (1, 4, 16, 64, …, 16384, …).
create or replace macro length_class(tokens) as
    power(4, floor(ln(greatest(1, tokens)) / ln(4) + 1e-9))::bigint;

-- Whether a tier's series counts the KV pool's own tokens: a hybrid model's other pools move with them, and would count them twice.
create or replace macro is_of_kv_pool(labels) as
    not regexp_matches(coalesce(labels, ''), '(^|,)pool=') or labels like '%pool=kv%';

-- Whether a KV connector gives an engine back what it wrote itself: host memory, disk or a store behind it, and not what another engine
-- computed for it. Of a connector that is not known here, it is not known.
create or replace macro keeps_own_blocks(kv_connector) as
    regexp_matches(lower(kv_connector), 'offload|lmcache|storage|example|store|flexkv|hf3fs')
    and not regexp_matches(lower(kv_connector), 'nixl|p2p|kv_consumer|kv_producer');

-- Whether a usage of the KV pool that never reads above 0 was never measured (mamba and attention-free models, some versions, exporters
-- that ask for a metric that is not there). Each running request holds a block or more, which an exact gauge shows; a log's tenths of a
-- percent and SGLang's hundredths of the pool round a few short requests in a large pool down to 0.
create or replace macro is_never_measured(most_usage_ratio, most_running, is_rounded) as
    most_usage_ratio = 0 and most_running >= if(is_rounded, 8, 1);
