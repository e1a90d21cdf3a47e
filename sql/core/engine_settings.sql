-- What each engine's settings are, as its last life in this run said them: by the engine itself, or of the server as a whole (`*`).
--
-- Absent means that no input states it, which is not the same as "at its default": an engine prints what was changed. What they were
-- in earlier lives is in core.life_settings.
--
-- grain: engine, key
-- needs: core.engine_setups
-- needs: core.life_settings
-- column: engine     VARCHAR | Engine.
-- column: key        VARCHAR | Setting, by its command-line name with underscores.
-- column: value_text VARCHAR | Its value as printed.
select settings.engine, settings.key, settings.value_text,
from core.life_settings as settings
-- a life that served nothing is no part of what happened, if another did
inner join (
    select engine, arg_max(life, (has_served, setup)) as life from core.engine_setups group by engine
) as last using (engine, life)
order by settings.engine, settings.key
