"""One night of the daily job, as a program of its own: `python -m tests.pipelines.executor_night DAY`.

KVPRESSURE_EXECUTOR and KVPRESSURE_CONFIG say how and of what; the workers, which are processes too, read them again.
"""

from __future__ import annotations

import sys

import dagster as dg

from pipelines.build import build_defs


def night() -> dg.JobDefinition:
    """The daily job."""
    return build_defs().resolve_job_def("daily")


def main(day: str) -> int:
    """Run the night; 0 where it went well."""
    with dg.instance_for_test() as instance:
        result = dg.execute_job(dg.reconstructable(night), instance, tags={"dagster/partition": day}, raise_on_error=True)
    return 0 if result.success else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
