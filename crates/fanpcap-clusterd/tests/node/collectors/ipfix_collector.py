"""Collects IPFIX over TCP with the package ipfix, and writes what came as JSON.

Usage: ipfix_collector.py PORT FILE
"""

import json
import os
import signal
import socketserver
import sys
import threading

import ipfix

LOCK = threading.Lock()
COUNTS = {"connections": 0, "packets": 0, "octets": 0, "unknown": 0, "gaps": 0}
# Domains, revisions and buckets whose selection of packets is known.
SELECTORS = set()
# For each domain, revision and bucket, how many packets were observed and selected.
STATISTICS = {}


def key(domain, record):
    """Returns what a record of options is about."""
    return domain, record["selectionSequenceId"], record["selectorId"]


def take(domain, record):
    """Counts a record."""
    if "dataLinkFrameSection" in record:
        COUNTS["packets"] += 1
        COUNTS["octets"] += record["dataLinkFrameSize"]
    elif "selectorAlgorithm" in record:
        SELECTORS.add(key(domain, record))
    elif "selectorIdTotalPktsObserved" in record:
        STATISTICS[key(domain, record)] = (
            record["selectorIdTotalPktsObserved"],
            record["selectorIdTotalPktsSelected"],
        )
    else:
        COUNTS["unknown"] += 1


def unknown(_message, _set):
    """Counts a set without a template."""
    COUNTS["unknown"] += 1


class Connection(socketserver.StreamRequestHandler):
    """An exporter's connection."""

    def handle(self):
        message = ipfix.message.MessageBuffer()
        message.unknown_data_set_hook = unknown
        with LOCK:
            COUNTS["connections"] += 1
        while True:
            try:
                message.read_message(self.rfile)
            except EOFError:
                return
            with LOCK:
                counted = message.sequences.get((message.odid, message.streamid), 0)
                COUNTS["gaps"] += counted != message.sequence
                for record in message.namedict_iterator():
                    take(message.odid, record)


class Server(socketserver.ThreadingTCPServer):
    """Accepts exporters."""

    allow_reuse_address = True
    daemon_threads = True


def write(path):
    """Replaces the file."""
    with LOCK:
        observed, selected = {}, 0
        for (_domain, revision, bucket), (saw, took) in STATISTICS.items():
            of = revision, bucket
            observed[of] = max(saw, observed.get(of, 0))
            selected += took
        sums = {"observed": sum(observed.values()), "selected": selected}
        counts = dict(COUNTS, selectors=len(SELECTORS), **sums)
    with open(path + ".new", "w", encoding="ascii") as file:
        json.dump(counts, file)
    os.rename(path + ".new", path)


def main():
    """Collects until SIGTERM."""
    port, path = int(sys.argv[1]), sys.argv[2]
    ipfix.ie.use_iana_default()
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with Server(("127.0.0.1", port), Connection) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        while not ended.wait(0.2):
            write(path)
        write(path)


main()
