"""Captures and sends with scapy through libpcap, on a device with constant traffic. Prints TAP."""
import sys
import tempfile
import time

from scapy.config import conf

conf.use_pcap = True

import scapy.all as scapy  # noqa: E402  (which sockets it uses is decided when it is imported)
from scapy.arch.libpcap import L2pcapListenSocket, L2pcapSocket, L3pcapSocket  # noqa: E402
from scapy.libs import winpcapy  # noqa: E402

DEVICE = sys.argv[1]
LIMIT = 10


def version():
    text = winpcapy.pcap_lib_version().decode()
    assert text.startswith("libpcap version "), text


def sockets():
    conf.use_pcap = True
    assert conf.L2socket is L2pcapSocket, conf.L2socket
    assert conf.L2listen is L2pcapListenSocket, conf.L2listen
    assert conf.L3socket is L3pcapSocket, conf.L3socket


def interfaces():
    names = scapy.get_if_list()
    assert DEVICE in names, names


def sniff():
    packets = scapy.sniff(iface=DEVICE, count=50, timeout=LIMIT)
    assert len(packets) == 50, len(packets)
    assert all(isinstance(packet, scapy.Ether) for packet in packets)


def sniff_with_filter():
    packets = scapy.sniff(iface=DEVICE, filter="ip6 and udp", count=20, timeout=LIMIT)
    assert len(packets) == 20, len(packets)
    assert all(scapy.IPv6 in packet and scapy.UDP in packet for packet in packets)


def sniff_with_timeout():
    begin = time.monotonic()
    packets = scapy.sniff(iface=DEVICE, timeout=1)
    took = time.monotonic() - begin
    assert len(packets) > 100 and 0.9 < took < 5, (len(packets), took)


def sniff_with_callback():
    seen = []
    scapy.sniff(iface=DEVICE, prn=seen.append, store=False, timeout=LIMIT,
                stop_filter=lambda packet: len(seen) >= 10)
    assert len(seen) >= 10, len(seen)


def asynchronous():
    sniffer = scapy.AsyncSniffer(iface=DEVICE, filter="tcp")
    sniffer.start()
    time.sleep(1)
    packets = sniffer.stop()
    assert packets and all(scapy.TCP in packet for packet in packets), len(packets)


def timestamps():
    now = time.time()
    packets = scapy.sniff(iface=DEVICE, count=20, timeout=LIMIT)
    times = [float(packet.time) for packet in packets]
    assert times == sorted(times), times
    assert all(now - 1 < stamp < now + LIMIT for stamp in times), (now, times)


def mark(number):
    return (scapy.Ether(dst="02:00:00:00:00:0a", src="02:00:00:00:00:0b")
            / scapy.IP(src="192.0.2.2", dst="192.0.2.1")
            / scapy.UDP(sport=4747, dport=number) / b"fanpcap")


def send():
    seen = scapy.AsyncSniffer(iface=DEVICE, filter="udp src port 4747", count=5)
    seen.start()
    time.sleep(0.5)
    sent = [mark(number) for number in range(1, 6)]
    scapy.sendp(sent, iface=DEVICE, verbose=False)
    seen.join(timeout=LIMIT)
    ports = [packet[scapy.UDP].dport for packet in seen.results]
    assert ports == [1, 2, 3, 4, 5], ports


def socket_sends_and_receives():
    # A socket does not see what it has sent itself.
    with L2pcapSocket(iface=DEVICE, filter="udp src port 4747") as receiver:
        with L2pcapSocket(iface=DEVICE) as sender:
            sender.send(mark(9))
        packets = receiver.sniff(count=1, timeout=LIMIT)
    assert [packet[scapy.UDP].dport for packet in packets] == [9], packets


def select():
    with L2pcapListenSocket(iface=DEVICE) as socket:
        assert socket.select([socket], LIMIT) == [socket]
        assert socket.recv() is not None


def missing_device():
    try:
        L2pcapListenSocket(iface="nosuch0")
    except (OSError, scapy.Scapy_Exception, ValueError):
        return
    raise AssertionError("a device that does not exist was opened")


def filter_of_a_file():
    packets = scapy.sniff(iface=DEVICE, count=100, timeout=LIMIT)
    with tempfile.TemporaryDirectory() as directory:
        path = directory + "/some.pcap"
        scapy.wrpcap(path, packets)
        udp = scapy.sniff(offline=path, filter="udp")
    wanted = sum(scapy.UDP in packet for packet in packets)
    assert len(udp) == wanted > 0, (len(udp), wanted)


CHECKS = [version, sockets, interfaces, sniff, sniff_with_filter, sniff_with_timeout,
          sniff_with_callback, asynchronous, timestamps, send, socket_sends_and_receives, select,
          missing_device, filter_of_a_file]

for number, check in enumerate(CHECKS, 1):
    try:
        check()
    except Exception as error:  # after any error, the other checks run
        print(f"# {check.__name__}: {type(error).__name__}: {error}")
        print(f"not ok {number} - {check.__name__}")
    else:
        print(f"ok {number} - {check.__name__}")
    sys.stdout.flush()
print(f"1..{len(CHECKS)}")
