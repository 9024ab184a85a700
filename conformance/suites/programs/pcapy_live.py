"""Captures and sends with pcapy-ng on a device with constant traffic. Prints TAP."""
import os
import sys
import tempfile

import pcapy

DEVICE = sys.argv[1]


def devices():
    assert DEVICE in pcapy.findalldevs(), pcapy.findalldevs()


def opened():
    return pcapy.open_live(DEVICE, 65535, 1, 100)


def properties():
    reader = opened()
    assert reader.datalink() == pcapy.DLT_EN10MB, reader.datalink()
    assert reader.getnet() == "192.0.2.0", reader.getnet()
    assert reader.getmask() == "255.255.255.0", reader.getmask()


def next_packets():
    reader = opened()
    got = 0
    for _ in range(1000):
        header, data = reader.next()
        if header is not None:
            assert header.getcaplen() == len(data) <= header.getlen()
            got += 1
        if got == 50:
            return
    raise AssertionError(f"{got} packets")


def loop():
    got = []
    opened().loop(50, lambda header, data: got.append(len(data)))
    assert len(got) == 50, len(got)


def dispatch():
    reader, got = opened(), []
    while not got:
        count = reader.dispatch(-1, lambda header, data: got.append(data))
    assert count == len(got) > 0, (count, len(got))


def filtered():
    reader, got = opened(), []
    reader.setfilter("ip6 and tcp")
    reader.loop(20, lambda header, data: got.append(data))
    assert all(data[12:14] == b"\x86\xdd" and data[20] == 6 for data in got)


def wrong_filter():
    try:
        opened().setfilter("no such word")
    except pcapy.PcapError:
        return
    raise AssertionError("a wrong filter was accepted")


def nonblocking():
    reader = opened()
    reader.setnonblock(1)
    assert reader.getnonblock() == 1
    reader.setnonblock(0)
    assert reader.getnonblock() == 0


def statistics():
    reader = opened()
    reader.loop(50, lambda header, data: None)
    received, dropped, by_device = reader.stats()
    assert received >= 50 and dropped >= 0 and by_device == 0, (received, dropped, by_device)


def created():
    reader = pcapy.create(DEVICE)
    reader.set_snaplen(60)
    reader.set_promisc(0)
    reader.set_timeout(50)
    reader.set_buffer_size(1 << 20)
    reader.activate()
    lengths = []
    reader.loop(20, lambda header, data: lengths.append(len(data)))
    assert max(lengths) <= 60, lengths


def sent():
    reader, got = opened(), []
    reader.setfilter("ether proto 0x88b5")
    frame = b"\x02\0\0\0\0\x0a\x02\0\0\0\0\x0b\x88\xb5" + bytes(50)
    opened().sendpacket(frame)
    reader.loop(1, lambda header, data: got.append(bytes(data)))
    assert got == [frame], got


def dumped():
    reader = opened()
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "some.pcap")
        dumper = reader.dump_open(path)
        reader.loop(30, dumper.dump)
        dumper.close()
        del dumper
        got = []
        pcapy.open_offline(path).loop(0, lambda header, data: got.append(data))
    assert len(got) == 30, len(got)


def missing_device():
    try:
        pcapy.open_live("nosuch0", 65535, 1, 100)
    except pcapy.PcapError:
        return
    raise AssertionError("a device that does not exist was opened")


CHECKS = [devices, properties, next_packets, loop, dispatch, filtered, wrong_filter, nonblocking,
          statistics, created, sent, dumped, missing_device]

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
