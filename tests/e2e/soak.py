"""Calls that last, direct and relayed in every way: ``python -m tests.e2e.soak --minutes 15``.

Between callers and servers is a coturn whose nonces go stale soon; the servers record the calls. Every minute
its longest gap and the memory of the servers are printed, and in the end, of every call, the longest gap in
what the caller heard and in what the server heard. The exit code is 1 if one was longer than 200 ms, or a
call ended before its time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt

from benchmarks.served import Served as Server
from tests.e2e.lasting_call import HUM_DBFS
from tests.e2e.netns import RELAY, SERVER
from tests.e2e.remote import calling
from tests.e2e.turn_lab import BOTH, KINDS, SERVER_OVER, Lab, turn_lab, urls, web

LONGEST_GAP_MS = 200
_STEP_S = 0.01


def soak(lab: Lab, records: Path, seconds: float, login_s: float) -> list[dict[str, Any]]:
    """What calls with logins for ``login_s`` came to in so many ``seconds``; ``heard_gap_ms`` is the longest
    silence in the recording, which is in ``records``."""
    direct = [{"name": "direct", "url": f"http://{SERVER}:{BOTH}", "ice_servers": []}]
    relayed = [
        {"name": f"caller over {kind}", "url": web(BOTH), "ice_servers": [lab.login(login_s) | {"urls": url}]}
        for kind, url in urls(RELAY).items()
    ]
    relayed += [
        {"name": f"server over {kind}", "url": web(SERVER_OVER[kind]), "ice_servers": []} for kind in KINDS
    ]
    with calling(lab.net.server.prefix, lab.environment) as neighbour, ThreadPoolExecutor() as threads:
        near = threads.submit(neighbour, "lasting_calls", calls=direct, seconds=seconds)
        far = threads.submit(lab.caller, "lasting_calls", calls=relayed, seconds=seconds)
        results = [*near.result(), *far.result()]
    for result in results:
        (recording,) = records.glob(f"*-{result['call_id']}.ogg")
        result["heard_gap_ms"] = longest_silence_ms(recording)
    return results


def longest_silence_ms(recording: Path) -> float:
    """In what the caller said, between the first sound and the last."""
    loud = np.concatenate([*_is_loud(recording)])
    heard = np.flatnonzero(loud)
    return float(np.diff(heard).max() - 1) * _STEP_S * 1000


def _is_loud(recording: Path) -> Iterator[npt.NDArray[np.bool_]]:
    """Whether each 10 ms of the left channel come near the hum."""
    least = 32767 * 10 ** ((HUM_DBFS - 12) / 20)
    with av.open(str(recording)) as file:
        fifo = av.AudioFifo()
        resampler = av.AudioResampler(format="s16", layout="stereo", rate=16_000)
        for frame in file.decode(audio=0):
            for part in resampler.resample(frame):
                fifo.write(part)
            while (block := fifo.read(16_000)) is not None:
                left = block.to_ndarray().reshape(-1, 2)[:, 0].reshape(-1, round(16_000 * _STEP_S))
                yield np.abs(left.astype(np.int32)).max(axis=1) > least


@contextmanager
def _watched(lab: Lab) -> Iterator[None]:
    """Print a line a minute of what the servers use."""
    over = threading.Event()

    def watch() -> None:
        servers = {port: Server("", served.process.pid) for port, served in lab.served.items()}
        while not over.wait(60):
            used = (f"{server.rss_mb:.0f} MB" for server in servers.values())
            sys.stderr.write(f"servers: {', '.join(used)}\n")

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def main() -> int:
    """Print a line a call. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Calls that last, direct and relayed.")
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--stale-nonce", type=int, default=60, metavar="SECONDS")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        records = folder / "records"
        relay = [f"stale-nonce={chosen.stale_nonce}"]
        with turn_lab(folder, relay, ["--record-calls", str(records)]) as lab, _watched(lab):
            results = soak(lab, records, chosen.minutes * 60, login_s=60)
    for result in results:
        gap = max(result["gaps_ms"])
        sys.stdout.write(
            f"{result['name']:16} {'-'.join(result['pair']):10} {result['turns']:4} turns, "
            f"{result['missing']} packets missing, longest gap {gap:.0f} ms to the caller, "
            f"{result['heard_gap_ms']:.0f} ms to the server\n"
        )
    worst = max(max(*result["gaps_ms"], result["heard_gap_ms"]) for result in results)
    return int(worst > LONGEST_GAP_MS)


if __name__ == "__main__":
    sys.exit(main())
