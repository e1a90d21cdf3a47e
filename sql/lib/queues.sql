-- What requests wait for, by what one look at the engine shows, and how that is said.

-- A ceiling that was reached, in the order in which the scheduler would meet it; NULL where none was.
create or replace macro capacity_cause(waiting, deferred, running, max_num_seqs, kv_usage_ratio, head_need_ratio) as
    case
        when deferred >= waiting then 'deferred'
        when running >= max_num_seqs then 'max_num_seqs'
        when kv_usage_ratio >= 0.95 or kv_usage_ratio + head_need_ratio >= 1 then 'kv_capacity'
    end;

-- How sure the cause of a queue is. Where slots are all taken and nothing shows the pool, that may have been full as well.
create or replace macro queue_confidence(cause, max_num_seqs_source, kv_usage_ratio) as
    case cause
        when 'max_num_seqs' then
            case max_num_seqs_source when 'argument' then 0.95 else 0.75 end * if(kv_usage_ratio is null, 0.85, 1)
        when 'kv_capacity' then 0.9
        when 'deferred' then 0.9
        when 'token_budget' then 0.7
        else 0.5
    end;

-- Requests waited for …
create or replace macro waited_for(cause, max_num_seqs, slots_setting, kv_usage_ratio) as
    case cause
        when 'max_num_seqs' then 'one of the ' || coalesce(max_num_seqs::varchar, '') || format(' batch slots ({})', slots_setting)
        when 'kv_capacity' then 'room in the KV pool'
        when 'token_budget' then 'a share of the step''s token budget (max_num_batched_tokens)'
        when 'deferred' then 'something other than capacity (a LoRA slot, remote KV or a grammar)'
        else 'a cause the inputs do not tell'
    end
    || case when cause = 'max_num_seqs' and kv_usage_ratio < 0.8 then ' while the KV pool had room' else '' end;
