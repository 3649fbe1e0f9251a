"""What crosses a process boundary: configuration, requests, steps, frames and the wire they use."""
