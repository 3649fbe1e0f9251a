"""Executors: one call to every rank of the group, however the ranks came to life."""

from torpor_engine.executor.base import Executor, ExecutorHooks, Pending
from torpor_engine.executor.place import Place
from torpor_engine.executor.selection import Choice, executor_class, select_executor

__all__ = [
    "Choice",
    "Executor",
    "ExecutorHooks",
    "Pending",
    "Place",
    "executor_class",
    "select_executor",
]
