"""How large the UDP packets are that pass a namespace: ``python -m tests.e2e.sizes``, to be run inside.

Prints ``ready``, and when its input ends, the largest IP packet and the number of fragments, of each version.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import sys

ETH_P_ALL = 3
ETH_HEADER = 14
IPV4, IPV6 = 0x0800, 0x86DD
UDP, FRAGMENT = 17, 44


class Sizes:
    def __init__(self) -> None:
        self.largest = {"4": 0, "6": 0}
        self.fragments = {"4": 0, "6": 0}
        self.packets = {"4": 0, "6": 0}

    def count(self, frame: bytes) -> None:
        (kind,) = struct.unpack_from("!H", frame, ETH_HEADER - 2)
        ip = frame[ETH_HEADER:]
        if kind == IPV4 and ip[9] == UDP:
            length, _, offset = struct.unpack_from("!HHH", ip, 2)
            self._note("4", length, fragment=bool(offset & 0x3FFF))
        elif kind == IPV6 and ip[6] in (UDP, FRAGMENT):
            (payload,) = struct.unpack_from("!H", ip, 4)
            self._note("6", 40 + payload, fragment=ip[6] == FRAGMENT)

    def _note(self, version: str, length: int, fragment: bool) -> None:
        self.packets[version] += 1
        self.largest[version] = max(self.largest[version], length)
        self.fragments[version] += fragment


def main() -> None:
    sizes = Sizes()
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as every:
        every.setblocking(False)
        selector = selectors.DefaultSelector()
        selector.register(every, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while sys.stdin not in {key.fileobj for key, _ in selector.select()}:
            drain(every, sizes)
        drain(every, sizes)
    sys.stdout.write(json.dumps(vars(sizes)) + "\n")


def drain(every: socket.socket, sizes: Sizes) -> None:
    try:
        while True:
            sizes.count(every.recv(65_536))
    except BlockingIOError:
        pass


if __name__ == "__main__":
    main()
