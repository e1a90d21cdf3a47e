"""The SQL library as a whole, on real recordings: what headers promise is what the tables are."""

from __future__ import annotations

import itertools
from dataclasses import replace

import duckdb
import pyarrow.parquet as pq
import pytest

from parsers.columns import TABLES
from pipelines.analysis import build
from pipelines.checks import RAW_CHECKS, failing_rows, of_model
from pipelines.duck import connect
from pipelines.lake import Lake
from pipelines.models import Model, ModelError, Run, from_sql, leading_to, materialize, models, set_variables, view
from pipelines.publish import published
from tests import needs
from tests.conftest import SAMPLES


def types(lake: Lake, model: Model) -> dict[str, str]:
    """Column -> Arrow type, whether or not the file says that it may be null."""
    return {field.name: str(field.type) for field in pq.read_schema(lake.path(model.name))}


@pytest.fixture
def lakes(analyze_sample) -> list[Lake]:
    """A lake per sample with every table made."""
    return [analyze_sample(sample).lake for sample in SAMPLES]


def test_every_model_makes_the_columns_its_header_names_in_that_order(lakes):
    for model in models().values():
        assert pq.read_schema(lakes[0].path(model.name)).names == [name for name, _ in model.columns], model.name


def test_every_column_has_the_type_its_header_names(lakes):
    with connect() as con:
        for model in models().values():
            view(model.name, lake=lakes[0], con=con)
            named = ", ".join(f'null::{kind} as "{column}"' for column, kind in model.types.items())
            made, said = (con.sql(f"describe {query}").fetchall() for query in (f"from {model.name}", f"select {named}"))
            assert made == said, model.name


def test_what_a_header_needs_is_what_the_query_needs():
    for model in models().values():
        for tables in model.needs:
            assert any(proven <= tables for proven in needs.of(model)), f"{model.name} may have rows without {sorted(tables)}"


def test_what_a_query_needs_is_read_off_it():
    assert needs.of_query(NEEDY) == [{"core.a"}, {"core.b", "core.c"}]
    for query in NOT_NEEDY:
        assert needs.of_query(query) == [], query


NEEDY = """
    with either as (select x from core.b union all select x from core.c where x > 0)
    select a.x, count(*) from core.a as a inner join either using (x) left join core.d using (x) group by all
"""
NOT_NEEDY = (
    "select count(*) from core.a",  # one row of nothing
    "select max(x) as x from core.a group by all",
    "select 1 as x from core.a group by grouping sets ((), (x))",
    "select 1 as x from core.a group by rollup (x)",
    "select sum_where_each_is_told(x) as x from core.a",  # a macro of ours
    "select x from core.a right join (values (1)) as b(x) using (x)",
    "select x from core.a full join range(3) as b(x) using (x)",
    "select x from (select 1 as x) anti join core.a using (x)",
    "with recursive a as (select 1 as x union all select x + 1 from a, core.a where x < 3) from a",
)


def test_without_what_it_needs_a_query_gives_nothing_and_is_not_run(tmp_path):
    """That it is not run is seen by one that cannot be."""
    model = replace(models()["core.spells"], query="select 1 / 'x' from core.signs", reads=("core.signs",))
    assert model.needs == (frozenset(model.reads),)
    lake = Lake.of(tmp_path, run="nothing")
    with connect() as con:
        lake.put("core.signs", lambda path: con.execute(f"copy (select 1 as x where false) to '{path}' (format parquet)"))
        assert materialize(model, lake=lake, con=con, run=Run("nothing")) == 0
    assert pq.read_schema(lake.path("core.spells")).names == list(model.types)


def test_a_step_leads_to_the_published_table_that_it_names():
    steps = [model for model in models().values() if model.step]
    assert {f"advice.{model.step}" for model in steps} <= {model.name for model in published()}
    assert [model.name for model in steps if model not in leading_to([f"advice.{model.step}"])] == []
    assert {model.layer for model in steps} <= {"marts", "advice"}


def test_every_check_holds_on_every_sample(lakes):
    broken = []
    for lake in lakes:
        with connect() as con:
            for table in [*models(), "raw.sources"]:
                view(table, lake=lake, con=con)
            checks = [check for model in models().values() for check in of_model(model)]
            rules = [*checks, *(check for check in RAW_CHECKS if check.name != "every_file_is_read")]
            broken += [f"{lake.place}: {check.table}: {check.name}" for check in rules if failing_rows(check, con)]
    assert broken == []


def test_a_query_makes_no_type_that_parquet_holds_as_another(lakes):
    """A HUGEINT, which every sum of BIGINT is, would be a DOUBLE once it is written."""
    with connect() as con:
        for table in [*(f"raw.{name}" for name in TABLES), *models()]:
            view(table, lake=lakes[0], con=con)
        set_variables(con, Run("types"))
        for model in models().values():
            if model.query:
                made, kept = (con.sql(f"describe {query}").fetchall() for query in (model.query, f"from {model.name}"))
                assert made == kept, model.name


def test_every_model_makes_its_columns_of_no_rows_at_all(tmp_path, lakes):
    """A log without metrics, metrics without a log: any raw table may be empty, and the types must not depend on it."""
    lake = Lake.of(tmp_path, run="nothing")
    build(lake, Run("nothing"))
    for model in models().values():
        assert types(lake, model) == types(lakes[0], model), model.name


def test_rows_come_in_the_order_of_their_key_or_another_fixed_one():
    for model in models().values():
        if model.query and model.grain != ("run",):
            assert "order by" in model.query.lower().rsplit("\nfrom", 1)[-1], f"{model.name}: the last select has no `order by`"


def test_no_model_makes_infinities_or_nan(lakes):
    with duckdb.connect() as con:
        for lake, model in itertools.product(lakes, models().values()):
            file = lake.path(model.name)
            floats = [field.name for field in pq.read_schema(file) if str(field.type) == "double" and field.name != "le"]
            if floats and pq.read_metadata(file).num_rows:
                counts = ", ".join(f'count(*) filter (not isfinite("{name}"))' for name in floats)
                found = con.sql(f"select {counts} from read_parquet('{file}', hive_partitioning = false)").fetchall()[0]
                assert dict.fromkeys(floats, 0) == dict(zip(floats, found, strict=True)), f"{lake.place}: {model.name}"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("-- grain: a\n-- column: a VARCHAR | A.\nselect 1 as a", "purpose"),
        ("-- Says.\n-- column: a VARCHAR | A.\nselect 1 as a", "grain"),
        ("-- Says.\n-- grain: a\nselect 1 as a", "column"),
        ("-- Says.\n-- grain: a\n-- column: a VARCHAR\nselect 1 as a", "sentence"),
        ("-- Says.\n-- grain: a\n-- column: a | A.\nselect 1 as a", "type"),
        ("-- Says.\n-- grain: a\n-- needs: core.b\n-- column: a VARCHAR | A.\nselect 1 as a", "does not read"),
    ],
)
def test_a_header_that_lacks_something_says_what(tmp_path, text, word):
    (tmp_path / "model.sql").write_text(text)
    with pytest.raises(ModelError, match=word):
        from_sql(tmp_path / "model.sql")
