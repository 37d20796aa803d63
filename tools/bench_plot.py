#!/usr/bin/env python3
"""Draws the plot of README.md from the tables of docs/BENCHMARKS.md.

    tools/bench_plot.py docs/BENCHMARKS.md > docs/benchmarks.svg

The length of a bar is the geometric mean, over the sizes of a workload, of the time of the fastest
peer on plain layouts divided by the time of `tec`.
"""

import math
import re
import sys

COLOURS = {"one thread": "#9ecae1", "two threads": "#3182bd"}
LEFT, WIDTH, BAR, ROW, TOP, LARGEST = 130, 640, 8, 26, 50, 5.5


def ratios(page):
    """The ratios of each workload by number of threads, workloads in the order of the page."""
    found, threads = {}, None
    for line in page.splitlines():
        if line.startswith("#"):
            threads = line.strip("# ").lower()
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        ratio = re.match(r"([\d.]+) × ", cells[4]) if len(cells) > 4 else None
        if ratio and threads in COLOURS:
            workload = cells[0].split(" (")[0]
            found.setdefault(workload, {}).setdefault(threads, []).append(float(ratio[1]))
    return found


def x_of(ratio):
    return LEFT + ratio / LARGEST * (WIDTH - LEFT - 20)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        rows = ratios(file.read())
    bottom = TOP + ROW * len(rows)
    size = f'width="{WIDTH}" height="{bottom + 30}"'
    print(f'<svg xmlns="http://www.w3.org/2000/svg" {size}')
    print('     font-family="sans-serif" font-size="12">')
    print('<rect width="100%" height="100%" fill="white"/>')
    print(f'<text x="{LEFT}" y="18">speed of tec, fastest peer = 1×</text>')
    for at, (threads, colour) in enumerate(COLOURS.items()):
        x = LEFT + 110 * at
        print(f'<rect x="{x}" y="28" width="10" height="10" fill="{colour}"/>')
        print(f'<text x="{x + 15}" y="38">{threads}</text>')
    for tick in range(int(LARGEST) + 1):
        x, colour = x_of(tick), "#d62728" if tick == 1 else "#dddddd"
        print(f'<path d="M{x:.1f} {TOP}V{bottom}" stroke="{colour}"/>')
        print(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{tick}×</text>')
    for at, (workload, by_threads) in enumerate(rows.items()):
        y = TOP + ROW * at + 4
        print(f'<text x="{LEFT - 8}" y="{y + 12}" text-anchor="end">{workload}</text>')
        for bar, (threads, colour) in enumerate(COLOURS.items()):
            values = by_threads[threads]
            mean = math.exp(sum(map(math.log, values)) / len(values))
            top, right = y + bar * (BAR + 1), x_of(min(mean, LARGEST))
            shape = f'x="{LEFT}" y="{top}" width="{right - LEFT:.1f}" height="{BAR}"'
            print(f'<rect {shape} fill="{colour}"/>')
            print(f'<text x="{right + 4:.1f}" y="{top + BAR}" font-size="9">{mean:.2f}</text>')
    print("</svg>")


if __name__ == "__main__":
    main()
