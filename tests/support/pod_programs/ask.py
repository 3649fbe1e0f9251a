"""HTTP requests, one connection each."""

import http.client
import json
import sys

told = json.loads(sys.stdin.readline())
host, port = told["address"]
answers = []
for method, path, headers in told["requests"]:
    connection = http.client.HTTPConnection(host, port, timeout=30)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    answers.append((answer.status, answer.read().decode()))
    connection.close()
print(json.dumps(answers))
