"""Calls one endpoint of an HTTP API, as a tool: its arguments come as JSON on standard input, the answer goes
to standard output, and an answer that is no success is an error.

    http_call.py METHOD URL [--path NAME] [--query NAME] [--json-body TYPE=NAME] [--bearer SECRET] ...

NAME is a property of the input; WIRE=NAME where the API calls it differently. SECRET is a variable that the manifest
names under `secrets`. Redirects are not followed: a secret must not go to another host.
"""

import argparse
import base64
import http.client
import json
import os
import shutil
import sys
import urllib.error
import urllib.parse
import urllib.request

ERROR_BYTES = 2048


class Digits(str):
    """A number as it was written, so that no digit is lost."""


def dump(value):
    """JSON text of a value, numbers as they came."""
    if isinstance(value, Digits):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(json.dumps(key) + ":" + dump(item) for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(dump(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def plain(value):
    """The text of a value outside JSON."""
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, dict):
        return ",".join(f"{key},{plain(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ",".join(plain(item) for item in value)
    return str(value)


def fail(text):
    print(text, file=sys.stderr)
    sys.exit(1)


def options():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("method")
    parser.add_argument("url")
    lists = "path query query-joined query-deep query-json header cookie json-body form-body text-body"
    secrets = "secret-header secret-query secret-cookie bearer basic"
    for name in f"{lists} {secrets}".split():
        parser.add_argument(f"--{name}", action="append", default=[])
    return parser.parse_args()


def pairs(words):
    """`WIRE=NAME` or `NAME`, as (wire, name)."""
    for word in words:
        wire, sign, name = word.rpartition("=")
        yield (wire, name) if sign else (name, name)


def given(arguments, words):
    """(wire, value) of each argument that is there."""
    return [(wire, arguments[name]) for wire, name in pairs(words) if name in arguments]


def secret(name):
    value = os.environ.get(name)
    if not value:
        fail(f"the secret {name} is not set")
    return value


def path_of(url, values):
    for wire, value in values:
        text = plain(value)
        # Such a segment would lead to another endpoint.
        if text in ("", ".", ".."):
            fail(f"{wire}: {text!r} cannot be part of a path")
        url = url.replace("{" + wire + "}", urllib.parse.quote(text, safe=""))
    return url


def query_of(arguments, asked):
    query = []
    for wire, value in given(arguments, asked.query):
        if isinstance(value, list):
            query += [(wire, plain(item)) for item in value]
        elif isinstance(value, dict):
            query += [(key, plain(item)) for key, item in value.items()]
        else:
            query.append((wire, plain(value)))
    query += [(wire, plain(value)) for wire, value in given(arguments, asked.query_joined)]
    for wire, value in given(arguments, asked.query_deep):
        items = value.items() if isinstance(value, dict) else [("", value)]
        query += [(f"{wire}[{key}]", plain(item)) for key, item in items]
    query += [(wire, dump(value)) for wire, value in given(arguments, asked.query_json)]
    query += [(wire, secret(name)) for wire, name in pairs(asked.secret_query)]
    return query


def headers_of(arguments, asked):
    headers = {"Accept": "application/json, */*;q=0.5", "User-Agent": "toolfleet"}
    if asked.method not in ("GET", "HEAD"):
        headers["Idempotency-Key"] = os.environ.get("TOOLFLEET_IDEMPOTENCY_KEY", "")
    if os.environ.get("TRACEPARENT"):
        headers["traceparent"] = os.environ["TRACEPARENT"]
    for wire, value in given(arguments, asked.header):
        headers[wire] = plain(value)
    cookies = [f"{wire}={urllib.parse.quote(plain(value))}" for wire, value in given(arguments, asked.cookie)]
    cookies += [f"{wire}={secret(name)}" for wire, name in pairs(asked.secret_cookie)]
    if cookies:
        headers["Cookie"] = "; ".join(cookies)
    for wire, name in pairs(asked.secret_header):
        headers[wire] = secret(name)
    for name in asked.bearer:
        headers["Authorization"] = f"Bearer {secret(name)}"
    for name in asked.basic:
        headers["Authorization"] = "Basic " + base64.b64encode(secret(name).encode()).decode()
    return headers


def body_of(arguments, asked, headers):
    for kind, value in given(arguments, asked.json_body):
        headers["Content-Type"] = kind
        return dump(value).encode()
    for kind, value in given(arguments, asked.form_body):
        headers["Content-Type"] = kind
        fields = []
        for key, item in (value.items() if isinstance(value, dict) else []):
            fields += [(key, plain(one)) for one in (item if isinstance(item, list) else [item])]
        return urllib.parse.urlencode(fields).encode()
    for kind, value in given(arguments, asked.text_body):
        headers["Content-Type"] = kind
        return plain(value).encode()
    return None


class NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def main():
    asked = options()
    arguments = json.load(sys.stdin, parse_int=Digits, parse_float=Digits)
    url = path_of(asked.url, given(arguments, asked.path))
    place = f"{asked.method} {url}"
    query = query_of(arguments, asked)
    if query:
        url += "?" + urllib.parse.urlencode(query)
    headers = headers_of(arguments, asked)
    body = body_of(arguments, asked, headers)
    request = urllib.request.Request(url, data=body, headers=headers, method=asked.method)
    timeout_s = int(os.environ.get("TOOLFLEET_TIMEOUT_MS", "30000")) / 1000
    try:
        with urllib.request.build_opener(NoRedirects).open(request, timeout=timeout_s) as answer:
            if asked.method == "HEAD":
                print(json.dumps({"status": answer.status, "headers": dict(answer.headers)}))
            else:
                shutil.copyfileobj(answer, sys.stdout.buffer)
    except urllib.error.HTTPError as error:
        text = error.read(ERROR_BYTES).decode("utf-8", "replace").strip()
        fail(f"{place} answered {error.code} {error.reason}" + (f": {text}" if text else ""))
    except (OSError, ValueError, http.client.HTTPException) as error:
        fail(f"{place}: {getattr(error, 'reason', None) or error}")


main()
