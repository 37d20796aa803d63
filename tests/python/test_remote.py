"""`--on`: kernels that are compiled here and run by another process, over a pipe, over a far side
that fails or lies, and over a real sshd."""

import fcntl
import json
import os
import pathlib
import shlex
import shutil
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import ROOT, tec_binary
from far_kernels import PRODUCT, SLOW

TEC = os.path.abspath(tec_binary())
FAR_SIDE = ROOT / "tests/python/far_side.py"


def far(*action):
    """A command whose far side does this."""
    return shlex.join([sys.executable, str(FAR_SIDE), TEC, *map(str, action)]) + " #"


class Place:
    """A folder with programs, and a cache of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.env = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
        (folder / "p.te").write_text(PRODUCT)

    def start(self, *args, **options):
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
        words = [TEC, *map(str, args)]
        return subprocess.Popen(words, cwd=self.folder, env=self.env, **options)

    def tec(self, *args):
        process = self.start(*args)
        out, errors = process.communicate(timeout=120)
        return process.returncode, out, errors

    def succeeds(self, *args):
        status, out, errors = self.tec(*args)
        assert status == 0, errors
        return out, errors

    def fails(self, code, *args):
        status, out, errors = self.tec(*args)
        assert status == 1 and f"error[{code}]" in errors, (status, out, errors)
        assert "panicked" not in errors and "stopped at" not in errors, errors
        return errors

    def records(self, name="p.records.jsonl"):
        lines = (self.folder / name).read_text().splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


PIPE = f"{shlex.quote(TEC)} serve --stdio"


@pytest.mark.parametrize(
    "file, options",
    [
        ("softmax.te", []),
        ("vector_add_var.te", ["--var", "n=1000"]),
        ("iir.te", ["--var", "steps=50"]),
        ("dot_int8.te", ["-D", "n=64"]),
        ("classifier.te", []),
        ("../tests/golden/run/network/groups.te", []),
    ],
)
def test_samples_have_the_same_bits_elsewhere(place, file, options):
    path = ROOT / "samples" / file
    if not path.exists():
        pytest.fail(f"there is no {path}")
    out, _ = place.succeeds("run", path, *options, "--verify", "--on", PIPE)
    assert "bit-identical" in out
    here, _ = place.succeeds("run", path, *options)
    assert set(here.splitlines()) <= set(out.splitlines())


def test_inputs_and_outputs_travel(place):
    a = np.arange(24 * 24, dtype=np.float32).reshape(24, 24) / 7
    np.save(place.folder / "a.npy", a)
    np.save(place.folder / "b.npy", np.eye(24, dtype=np.float32))
    inputs = ["--input", "A=a.npy", "--input", "B=b.npy", "--output", "C=c.npy"]
    place.succeeds("run", "p.te", *inputs, "--on", PIPE)
    assert np.array_equal(np.load(place.folder / "c.npy"), a)
    place.succeeds("build", "p.te", "--target", "x86-64", "-o", "p.so")
    (place.folder / "c.npy").unlink()
    place.succeeds("run", "p.so", *inputs, "--on", PIPE)
    assert np.array_equal(np.load(place.folder / "c.npy"), a)


def test_empty_and_updated_tensors_and_narrow_types(place):
    program = """kernel edge(n: var) {
    input A: float16[n, 3]
    input F: bool[3]
    inout S: int8[3]
    output B[i: n, j: 3] = A[i, j] * 2.0
    update S[i: 3] = select(F[i], S[i] + 1, S[i])
}
"""
    (place.folder / "e.te").write_text(program)
    status, _, errors = place.tec("check", "e.te")
    assert status == 0, errors
    for n in (0, 1, 1000):
        here, _ = place.succeeds("run", "e.te", "--var", f"n={n}")
        there, _ = place.succeeds("run", "e.te", "--var", f"n={n}", "--on", PIPE)
        assert here == there


def test_noise_before_the_hello_is_skipped(place):
    noise = f"echo Welcome; printf '\\002tec serve'; echo careful >&2; exec {PIPE}"
    out, errors = place.succeeds("run", "p.te", "--on", f"sh -c {shlex.quote(noise)}")
    assert "float32[24, 24]" in out and "careful" not in errors
    late = f"sh -c 'sleep 1; exec {PIPE}'"
    place.succeeds("run", "p.te", "--on", late)
    why = place.fails("E0606", "run", "p.te", "--on", "yes", "--on-wait", "2")
    assert "hello" in why


@pytest.mark.parametrize(
    "command, said",
    [
        ("no-such-command-anywhere", "not found"),
        ("sh -c 'echo Permission denied >&2; exit 255'", "(exit status: 255): Permission denied"),
        ("cat /dev/null", "without a hello"),
        ("kill -9 $$", "signal: 9"),
    ],
)
def test_a_command_that_fails_is_described(place, command, said):
    for words in (["run", "p.te"], ["bench", "p.te"], ["tune", "p.te", "--trials", "1"]):
        assert said in place.fails("E0606", *words, "--on", f"{command} #")


def test_a_far_side_without_a_hello_is_given_up(place):
    begin = time.monotonic()
    errors = place.fails("E0606", "run", "p.te", "--on", "sleep 100 #", "--on-wait", "1s")
    assert "there is no hello within 1 s" in errors and time.monotonic() - begin < 20


def test_other_versions_are_refused_by_name(place):
    for change, names in [({"tec": "9.8.7"}, "9.8.7"), ({"protocol": 99}, "protocol 99")]:
        errors = place.fails("E0606", "run", "p.te", "--on", far("hello", "-", json.dumps(change)))
        version = subprocess.run([TEC, "--version"], capture_output=True, text=True).stdout
        assert names in errors and version.split()[1] in errors


LESS = {"target": "x86-avx512", "features": ["sse4.1"], "processor": "generic"}


@pytest.mark.parametrize(
    "change, said",
    [
        (LESS, "without the feature"),
        ({"target": "vax"}, "no target of this version"),
        ({"threads": 0}, "0 threads"),
        ({"machine": {"cores": -1}}, "unreadable"),
        ({"machine": {"cpu": ""}}, "cannot be true"),
    ],
)
def test_a_hello_that_cannot_be_true_is_refused(place, change, said):
    errors = place.fails("E0606", "run", "p.te", "--on", far("hello", "-", json.dumps(change)))
    assert said in errors


def test_a_machine_that_is_not_what_it_says(place):
    arm = {"target": "aarch64", "features": ["neon"], "processor": "generic"}
    lie = far("hello", "-", json.dumps(arm))
    if "E0522" not in place.tec("build", "p.te", "--target", "aarch64", "-o", "other.so")[2]:
        errors = place.fails("E0525", "run", "p.te", "--on", lie)
        assert "cannot load module" in errors
    errors = place.fails("E0607", "tune", "p.te", "--trials", "1", "--on", lie)
    assert "does not run on this machine" in errors
    errors = place.fails("E0607", "run", "p.te", "--target", "aarch64", "--on", PIPE)
    assert "code for aarch64 does not run on its CPU" in errors
    none = far("hello", "-", json.dumps({"gpu": None}))
    errors = place.fails("E0607", "run", "p.te", "--target", "nvptx-sm_80", "--on", none)
    assert "needs a GPU" in errors


def frames_of(place, *command):
    """The number of messages that the true far side sends."""
    log = place.folder / "log"
    place.env["FAR_SIDE_LOG"] = str(log)
    place.succeeds(*command, "--on", far("relay"))
    del place.env["FAR_SIDE_LOG"]
    lines = log.read_text().splitlines()
    log.unlink()
    return lines


def test_cut_and_killed_at_every_frame(place):
    count = len([line for line in frames_of(place, "run", "p.te") if line.startswith("far")])
    shutil.rmtree(place.folder / "cache")
    # A frame more for the data, and none is left out because a file is there already.
    for number in range(count + 1):
        shutil.rmtree(place.folder / "cache", ignore_errors=True)
        errors = place.fails("E0606", "run", "p.te", "--on", far("cut", number))
        assert "it ended" in errors, errors
    for number in range(1, count - 2):
        shutil.rmtree(place.folder / "cache", ignore_errors=True)
        errors = place.fails("E0606", "run", "p.te", "--on", far("kill", number))
        assert "it ended" in errors, errors
        place.fails("E0606", "run", "p.te", "--on", far("cut-up", number))


def test_what_the_far_side_has_is_not_sent_again(place):
    np.save(place.folder / "a.npy", np.ones((24, 24), np.float32))
    command = ["run", "p.te", "--input", "A=a.npy"]
    puts = lambda: [line for line in frames_of(place, *command) if line.startswith('near {"put"')]
    assert len(puts()) == 2
    assert puts() == []
    # A damaged file does not count.
    for path in (place.folder / "cache/tec/serve").glob("*.blob"):
        path.write_bytes(b"damaged")
    assert len(puts()) == 2


@pytest.mark.parametrize(
    "reply",
    [
        {"measured": {"measured": {"times": [-1.0], "verdict": "same"}}},
        {"measured": {"measured": {"times": [], "verdict": "same"}}},
        {"ready": {"notes": []}},
        {"missing": ["0" * 64]},
        {"nonsense": 1},
        {"done": {"limits": {"tec": "0"}}},
        {"done": {"timed": {"times": [[1e-3]], "calls": [1], "limit": [0.5]}}},
        {"done": {"called": []}},
        {"file": {"size": 1 << 60}},
    ],
)
def test_answers_that_make_no_sense(place, reply):
    text = json.dumps(reply)
    for number in (1, 3):
        errors = place.fails("E0606", "run", "p.te", "--on", far("reply", number, text))
        assert "makes no sense" in errors
        errors = place.fails("E0606", "bench", "p.te", "--on", far("reply", number, text))
        assert "makes no sense" in errors


def test_failures_of_the_machine_are_told(place):
    full = f"trap '' XFSZ; ulimit -f 1; exec {PIPE}"
    errors = place.fails("E0607", "run", "p.te", "--on", f"sh -c {shlex.quote(full)}")
    assert "cannot write to" in errors and "large" in errors.lower()
    (place.folder / "slow.te").write_text(SLOW)
    short = f"ulimit -S -t 2; exec {PIPE}"
    words = ["run", "slow.te", "--var", "n=20000000000", "--schedule", "default"]
    errors = place.fails("E0607", *words, "--on", f"sh -c {shlex.quote(short)}")
    assert "ended by signal" in errors
    # The message of the program's own failure.
    (place.folder / "own.te").write_text(
        "kernel own(n: var) {\n    assume n % 8 == 0\n    input A: float32[n]\n"
        "    output B[i: n] = A[i]\n}\n"
    )
    errors = place.fails("E0525", "run", "own.te", "--var", "n=9", "--on", PIPE)
    assert "own" in errors


def test_only_one_measures_at_a_time(place):
    folder = place.folder / "cache/tec/serve"
    folder.mkdir(parents=True)
    with open(folder / "lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        errors = place.fails("E0607", "bench", "p.te", "--on", PIPE)
        assert "another `tec serve` measures" in errors
        errors = place.fails("E0607", "tune", "p.te", "--trials", "1", "--on", PIPE)
        assert "another `tec serve` measures" in errors
        place.succeeds("run", "p.te", "--on", PIPE)


def test_bench_measures_there(place):
    words = ["bench", "p.te", "--min-time", "0.01", "--json"]
    schedules = ["--schedule", "default,auto"]
    # A run without a cache measures the limits of the machine there.
    out, _ = place.succeeds(*words, *schedules, "--on", PIPE, "--threads", "1")
    assert len(json.loads(out)["results"]) == 2, out
    # A kernel of a microsecond needs thousands of rounds beside the limit on a busy machine.
    words = ["bench", "p.te", "-D", "n=256", "--min-time", "0.02", "--roofline"]
    out, _ = place.succeeds(*words, "--on", PIPE)
    assert "interleaved" in out


def test_networks_are_timed_and_tuned_there(place):
    path = ROOT / "tests/golden/run/network/groups.te"
    words = ["bench", path, "--min-time", "0.01", "--roofline=off", "--per-kernel"]
    out, _ = place.succeeds(*words, "--on", PIPE)
    assert "share" in out
    words = ["tune", path, "--trials", "4", "--budget", "20s", "--records", "c.records.jsonl"]
    _, errors = place.succeeds(*words, "--threads", "1", "--on", PIPE)
    records = place.records("c.records.jsonl")
    assert len(records) >= 4 and all(record["verdict"] == "same" for record in records), errors


TUNE = ["tune", "p.te", "--trials", "6", "--budget", "12s", "--threads", "1"]


def test_candidates_are_measured_there(place):
    change = json.dumps({"machine": {"cpu": "a board", "cores": 2}})
    out, errors = place.succeeds(*TUNE, "--on", far("hello", "-", change))
    assert "schedule product.tuned for" in out, errors
    records = place.records()
    assert {record["machine"]["cpu"] for record in records} == {"a board"}
    assert len([record for record in records if not record.get("in_turns")]) == 6
    assert all(record["verdict"] == "same" for record in records)
    # The next search continues.
    _, errors = place.succeeds(*TUNE, "--on", far("hello", "-", change))
    assert "resumed" in errors


@pytest.mark.parametrize("action", [["cut", 9], ["cut", 12], ["kill", 10], ["cut-up", 20]])
def test_a_lost_connection_loses_nothing_but_time(place, action):
    _, errors = place.succeeds(*TUNE, "--on", far("once", *action))
    assert (place.folder / "far-side-ran").exists()
    records = [record for record in place.records() if not record.get("in_turns")]
    assert len(records) == 6 and all(record["verdict"] == "same" for record in records), errors


def test_a_machine_that_stays_away_ends_the_search(place):
    # The true far side is removed after a few answers.
    tec = place.folder / "tec"
    shutil.copy(TEC, tec)
    go_away = shlex.join([sys.executable, str(FAR_SIDE), str(tec), "cut", "12"])
    away = f"sh -c {shlex.quote(f'test -e gone && exit 9; touch gone; exec {go_away}')} #"
    status, out, errors = place.tec(*TUNE, "--on", away)
    assert status == 1 and "error[E0607]" in errors and "no machine is left" in errors, errors
    assert "drops out" in errors
    records = place.records()
    assert 1 <= len(records) < 6 and all(record["verdict"] == "same" for record in records)
    # What was measured is used.
    assert "schedule product.tuned for" in out


def test_a_pool_shares_the_work_and_goes_on_without_a_machine(place):
    def on(number, action):
        return f"XDG_CACHE_HOME={place.folder}/cache-{number} {far(*action)}"

    (place.folder / "machines").write_text(f"# a pool\n{on(1, ['relay'])}\n\n")
    # The second one goes away for good.
    short = f"test -e gone && exit 9; touch gone; exec {far('cut', 9)}"
    dead = f"XDG_CACHE_HOME={place.folder}/cache-2 sh -c {shlex.quote(short)} #"
    words = [*TUNE[:2], "--trials", "10", "--budget", "20s", "--threads", "1"]
    _, errors = place.succeeds(*words, "--on", "@machines", "--on", dead, "--on", "false #")
    assert "takes no part" in errors and "drops out" in errors
    records = [record for record in place.records() if not record.get("in_turns")]
    assert len(records) == 10 and all(record["verdict"] == "same" for record in records)
    # Both have worked.
    for number in (1, 2):
        blobs = list((place.folder / f"cache-{number}/tec/serve").glob("*.blob"))
        assert len(blobs) > 2, number


def test_four_machines_share_the_work(place):
    words = ["tune", "p.te", "--trials", "16", "--threads", "1", "--records"]
    seconds = []
    for count in (1, 4):
        machine = "XDG_CACHE_HOME={}/{}-{} {}"
        slow = far("slow", 1500)
        names = [machine.format(place.folder, count, at, slow) for at in range(count)]
        on = [word for name in names for word in ("--on", name)]
        begin = time.monotonic()
        place.succeeds(*words, f"{count}.jsonl", *on)
        seconds.append(time.monotonic() - begin)
        records = [one for one in place.records(f"{count}.jsonl") if not one.get("in_turns")]
        assert len(records) == 16
    # One machine sleeps 24 seconds, each of four 6; the last comparison is the same.
    assert seconds[0] - seconds[1] > 12, seconds


def test_a_pool_is_of_one_kind(place):
    other = far("hello", "-", json.dumps({"machine": {"cpu": "another", "cores": 2}}))
    errors = place.fails("E0607", *TUNE, "--on", PIPE, "--on", other)
    assert "of two kinds" in errors and "another" in errors


def children_of(folder):
    """Processes that work for a store in this folder."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(str(folder) in word for word in words):
            found.append(words)
    return found


def test_nothing_is_left_if_the_near_side_is_killed(place):
    (place.folder / "slow.te").write_text(SLOW)
    words = ["run", "slow.te", "--var", "n=20000000000", "--schedule", "default"]
    process = place.start(*words, "--on", PIPE)
    folder = place.folder / "cache/tec/serve"
    deadline = time.monotonic() + 60
    while not children_of(folder):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    while children_of(folder):
        assert time.monotonic() < deadline, "the far side goes on"
        time.sleep(0.05)


def test_a_far_side_that_hangs_is_given_up(place):
    begin = time.monotonic()
    errors = place.fails("E0606", "run", "p.te", "--on", far("hang", 1))
    assert "it says nothing within 20 s" in errors
    assert 19 < time.monotonic() - begin < 60


def test_a_near_side_that_talks_nonsense_is_refused(place):
    for said in (b"GET / HTTP/1.0\r\n\r\n", b"\0\0\0\0\1\0\0\0\0\n"):
        process = place.start(
            "serve", "--stdio", stdin=subprocess.PIPE, text=False, stdout=subprocess.PIPE
        )
        _, errors = process.communicate(said, timeout=60)
        assert process.returncode == 1 and b"does not follow the protocol" in errors
    process = place.start("serve", "--stdio", stdin=subprocess.DEVNULL, text=False)
    process.communicate(timeout=60)
    assert process.returncode == 0
    status, _, errors = place.tec("serve")
    assert status == 2 and "--stdio" in errors


def test_a_copy_of_tec_is_started_there(place, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    elsewhere = f"env -C {home} XDG_CACHE_HOME={home}/cache"
    words = ["run", "p.te", "--verify", "--push", "--on", elsewhere]
    out, errors = place.succeeds(*words)
    assert "bit-identical" in out and "note: copying" in errors
    [copy] = (home / ".cache/tec/bin").iterdir()
    assert copy.read_bytes() == pathlib.Path(TEC).read_bytes()
    written = copy.stat().st_mtime_ns
    # The second time it is there.
    _, errors = place.succeeds(*words)
    assert "copying" not in errors and copy.stat().st_mtime_ns == written
    out, _ = place.succeeds(*TUNE, "--push", "--on", elsewhere)
    assert "schedule product.tuned for" in out
    # Another shell, as behind `ssh`, changes nothing.
    shell = f"sh -c 'cd {home} && exec sh -c \"$*\"' -"
    place.succeeds("bench", "p.te", "--min-time", "0.01", "--roofline=off", "--push", "--on", shell)
    assert copy.stat().st_mtime_ns == written


@pytest.mark.parametrize(
    ("program", "text", "code", "said"),
    [
        ("uname", "echo aarch64", "E0607", "its processor is `aarch64`"),
        ("dd", "cat > /dev/null; echo full >&2; exit 1", "E0607", "`dd` fails: full"),
        ("dd", 'head -c 1000 > "${1#of=}"; cat > /dev/null', "E0606", "other bytes"),
        ("mv", "exit 3", "E0607", "`mv` fails"),
        ("mkdir", "sleep 60", "E0607", "`mkdir` does not end within 2 s"),
    ],
)
def test_a_copy_that_fails_is_told(place, tmp_path, program, text, code, said):
    home, path = tmp_path / "home", tmp_path / "path"
    home.mkdir()
    path.mkdir()
    (path / program).write_text(f"#!/bin/sh\n{text}\n")
    (path / program).chmod(0o755)
    elsewhere = f"env -C {home} PATH={path}:$PATH XDG_CACHE_HOME={home}/cache"
    words = ["run", "p.te", "--push", "--on", elsewhere, "--on-wait", "2s"]
    assert said in place.fails(code, *words)
    assert not list(home.glob(".cache/tec/bin/tec-" + 32 * "[0-9a-f]"))


def test_what_cannot_be_pushed_is_refused(place):
    errors = place.fails("E0606", "run", "p.te", "--push=p.te", "--on", "env")
    assert "it is no program of Linux" in errors
    errors = place.fails("E0606", "run", "p.te", "--push", "--on", PIPE)
    assert "leave out `serve --stdio`" in errors
    status, _, errors = place.tec("run", "p.te", "--push")
    assert status == 2 and "--on" in errors


ONLY_SERVE = f"exec {TEC} serve --stdio"


@pytest.fixture(params=[ONLY_SERVE, "exec $SSH_ORIGINAL_COMMAND"])
def sshd(tmp_path, request):
    """The programs that a key may start, and a command that reaches a real sshd on the loopback
    with this key: only `tec serve`, or any program in an empty folder."""
    (tmp_path / "far-home").mkdir()
    started = f"cd {tmp_path}/far-home && {request.param}"
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if not program or not shutil.which("ssh") or not shutil.which("ssh-keygen"):
        pytest.skip("there is no sshd here")
    for name in ("host", "user"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name]
        subprocess.run(words, check=True)
    key = (tmp_path / "user.pub").read_text()
    keys = tmp_path / "keys"
    keys.write_text(f'command="echo motd; {started}",restrict {key}')
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    conf = tmp_path / "conf"
    conf.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {tmp_path}/host\nUsePAM no\n"
        f"AuthorizedKeysFile {keys}\nPidFile none\nStrictModes no\nPermitRootLogin yes\n"
        f"SetEnv XDG_CACHE_HOME={tmp_path}/far-cache\n"
    )
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", exist_ok=True)
    daemon = subprocess.Popen(
        [program, "-D", "-e", "-f", conf], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        if daemon.poll() is not None:
            pytest.skip(f"sshd does not start here: {daemon.stderr.read().decode()}")
        time.sleep(0.05)
    yield request.param, (
        f"ssh -F /dev/null -p {port} -i {tmp_path}/user -o BatchMode=yes"
        f" -o UserKnownHostsFile={tmp_path}/known -o StrictHostKeyChecking=accept-new 127.0.0.1"
    )
    daemon.terminate()
    daemon.wait()


def test_over_a_real_sshd(place, sshd):
    key, sshd = sshd
    push = ["--push"]
    if key == ONLY_SERVE:
        errors = place.fails("E0607", "run", "p.te", "--push", "--on", sshd)
        assert "a key or a login that only starts `tec serve`" in errors
        push = []
    out, _ = place.succeeds("run", "p.te", "--verify", *push, "--on", sshd)
    assert "bit-identical" in out
    quick = ["bench", "p.te", "--min-time", "0.01", "--roofline=off", "--on", sshd]
    out, _ = place.succeeds(*quick, *push)
    assert "product" in out
    out, _ = place.succeeds(*TUNE, *push, "--on", sshd)
    assert "schedule product.tuned for" in out
    wrong = sshd.replace("/user ", "/host ")
    assert "Permission denied" in place.fails("E0606", "run", "p.te", "--on", wrong)
    assert "Permission denied" in place.fails("E0606", "run", "p.te", "--push", "--on", wrong)
    # A terminal changes the bytes.
    if not push:
        place.fails("E0606", "run", "p.te", "--on", sshd.replace("ssh ", "ssh -tt ", 1))
