"""A port on which everybody is taken: what a network policy has to shut."""

import socket
import sys

with socket.create_server(("0.0.0.0", int(sys.argv[1])), backlog=64) as listener:
    while True:
        listener.accept()[0].close()
