"""The engine: API process, core process, scheduler, executors."""
