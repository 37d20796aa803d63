#!/usr/bin/env python3
"""Makes the tables of docs/BENCHMARKS.md from rows of measurements.

    tools/bench_table.py ROWS.jsonl [MORE.jsonl …] > tables.md

A row is a JSON object with `workload`, `size`, `threads`, `peer`, `median_s` and a rate, `gflops`
or `gbps`. `tec` is compared with the fastest peer of the same thread count on plain layouts; a peer
without a row for two threads is compared by its row for one. `-any` and `-packed` peers take their
operands in a layout of their choice, without the time for the conversion, so they have a separate
column.
"""

import json
import sys

OTHER_LAYOUT = ("onednn-any", "mkl-packed")


def read(paths):
    rows = {}
    for path in paths:
        for line in open(path, encoding="utf-8"):
            row = json.loads(line)
            if row["peer"] == "machine":
                continue
            if row.get("median_s"):
                key = (row["workload"], row["size"])
                rows.setdefault(key, {})[(row["peer"], row["threads"])] = row
    return rows


def tec_row(rows, threads):
    ours = [row for (peer, t), row in rows.items() if peer.split("-")[0] == "tec" and t == threads]
    return min(ours, key=lambda row: row["median_s"], default=None)


def fastest(rows, threads, wanted):
    peers = [
        row
        for (peer, t), row in rows.items()
        if peer.split("-")[0] != "tec"
        and wanted(peer)
        and (t == threads or t == 1 and (peer, threads) not in rows)
    ]
    return min(peers, key=lambda row: row["median_s"], default=None)


def rate(row):
    if row.get("gflops"):
        return f"{row['gflops']:.0f} GFLOP/s"
    return f"{row['gbps']:.0f} GB/s" if row.get("gbps") else ""


def speed(ours, row):
    return f"{row['median_s'] / ours['median_s']:.2f} × {row['peer']}" if row else "–"


def main():
    rows = read(sys.argv[1:])
    for threads in (1, 2):
        print(f"### {'One thread' if threads == 1 else 'Two threads'}\n")
        print("| workload | size | `tec` | rate | on plain layouts | on a layout of its choice |")
        print("|---|---|---:|---:|---:|---:|")
        for (workload, size), group in rows.items():
            ours = tec_row(group, threads)
            if not ours:
                continue
            plain = fastest(group, threads, lambda peer: peer not in OTHER_LAYOUT)
            other = fastest(group, threads, lambda peer: peer in OTHER_LAYOUT)
            size = "seed 000" if len(size) > 15 else size
            name = workload if ours["peer"] == "tec" else f"{workload} ({ours['peer'][4:]})"
            print(
                f"| {name} | {size} | {ours['median_s'] * 1e6:,.1f} µs | {rate(ours)} "
                f"| {speed(ours, plain)} | {speed(ours, other)} |"
            )
        print()


main()
