"""The core process: it takes requests, schedules steps, drives the executor, sleeps and wakes."""
