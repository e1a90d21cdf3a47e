"""Orchestration: intake, clock, SQL runner, replay, charts, report, command line, and Dagster as a thin shell around them.

This package re-exports nothing, so that importing one module never imports Dagster.
"""
