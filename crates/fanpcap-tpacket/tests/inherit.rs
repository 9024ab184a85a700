//! Members take over a full ring whose reader is dead. Together they read each packet once, also
//! the packets of the open block.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "sizes are small, and a test may panic"
)]

use fanpcap_linux::bpf;
use fanpcap_linux::interface;
use fanpcap_linux::netlink::diag;
use fanpcap_linux::packet::inject::Injector;
use fanpcap_linux::packet::{self, Address, Filter};
use fanpcap_linux::process::netns;
use fanpcap_reader::{Call, Direction, Options, Packet, PublishedCounters, Reader};
use fanpcap_ring::{Layout as _, Position, Remains};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::Command;
use std::thread;
use std::time::Duration;

const ETH_P_ALL: u16 = 3;

/// How many packets are sent before the reader begins, and how many after its death. The ring has
/// each packet twice, because `lo` delivers it as an outgoing and as an incoming packet.
const BEFORE: u32 = 300;
const AFTER: u32 = 60;

const OPTIONS: Options = Options {
    snaplen: 65_535,
    nanoseconds: false,
    nonblocking: true,
    direction: Direction::In,
    tag_at: None,
};

fn set<T>(socket: BorrowedFd<'_>, option: i32, value: &T) {
    let (fd, len) = (socket.as_raw_fd(), size_of::<T>() as libc::socklen_t);
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: the value lives through the call and has `len` bytes.
    let status = unsafe { libc::setsockopt(fd, libc::SOL_PACKET, option, value, len) };
    assert_eq!(status, 0);
}

/// A socket on `lo` with a ring whose open block the kernel closes after `retire_ms`.
fn socket(is_v3: bool, retire_ms: u32) -> BorrowedFd<'static> {
    let socket: &'static OwnedFd = Box::leak(Box::new(packet::open().unwrap()));
    let socket = socket.as_fd();
    set(socket, libc::PACKET_VERSION, &(1 + i32::from(is_v3)));
    let request = libc::tpacket_req3 {
        tp_block_size: 1 << 14,
        tp_block_nr: 16,
        tp_frame_size: 256,
        tp_frame_nr: 64 * 16,
        tp_retire_blk_tov: retire_ms,
        tp_sizeof_priv: 0,
        tp_feature_req_word: 0,
    };
    set(socket, libc::PACKET_RX_RING, &request);
    let address = Address {
        ifindex: interface::index("lo").unwrap(),
        protocol: ETH_P_ALL,
    };
    packet::bind(socket, address).unwrap();
    socket
}

/// The `number`th frame that is sent.
fn frame(number: u32) -> Vec<u8> {
    let number = number.to_be_bytes();
    [&[0; 12][..], &[0x88, 0xb5], &number, &[0; 42]].concat()
}

fn number(data: &[u8]) -> u32 {
    u32::from_be_bytes(data[14..18].try_into().unwrap())
}

/// Reads `taken` packets, then stops like a reader that has died. Returns its position.
fn die(socket: BorrowedFd<'static>, taken: u32, got: &mut Vec<u32>) -> Position {
    let reader = Reader::new(fanpcap_tpacket::open(socket).unwrap(), &OPTIONS).unwrap();
    let kept = PublishedCounters::own();
    reader.keep(0, kept.clone());
    let mut call = Call::new(-1);
    for _ in 0..taken {
        let mut packet = Packet::NONE;
        // SAFETY: one thread reads.
        if unsafe { reader.next(&mut call, &mut packet) }.is_err() {
            break;
        }
        // SAFETY: the reader has just handed out these bytes.
        let data = unsafe { std::slice::from_raw_parts(packet.data, packet.caplen as usize) };
        got.push(number(data));
    }
    kept.position.get()
}

/// Reads up to `most` packets, including the outgoing copies on `lo`. Returns the position after
/// them.
fn adopt(remains: &mut Remains, most: usize, got: &mut Vec<u32>) -> Position {
    const OUTGOING: u8 = 4;
    for _ in 0..most {
        if remains.head().is_none() {
            break;
        }
        let frame = remains.next_frame().unwrap().unwrap();
        if frame.link().pkttype != OUTGOING {
            got.push(number(frame.data()));
        }
    }
    Position {
        taken: remains.taken(),
        mark: remains.mark().unwrap_or_default(),
    }
}

fn take_over(socket: BorrowedFd<'_>, position: Position) -> io::Result<Remains> {
    let inode = packet::inode(socket)?;
    let mut sockets = diag::packet_sockets()?.into_iter();
    let told = sockets.find(|it| u64::from(it.inode) == inode).unwrap();
    fanpcap_tpacket::take_over(socket, &told, position)
}

fn each_packet_comes_once(is_v3: bool, retire_ms: u32, taken: u32) {
    let socket = socket(is_v3, retire_ms);
    let injector = Injector::open("lo").unwrap();
    let send = |numbers: std::ops::Range<u32>| {
        numbers.for_each(|number| injector.send(&frame(number)).unwrap());
    };
    let mut got = Vec::new();
    send(0..BEFORE);
    let position = die(socket, taken, &mut got);
    send(BEFORE..BEFORE + AFTER);
    Filter::reject_all().attach(socket).unwrap();
    // This thread has sent all packets, so they have arrived even on kernels without membarrier(2).
    bpf::wait_for_programs();
    let mut first = take_over(socket, position).unwrap();
    let between = adopt(&mut first, 70, &mut got);
    thread::sleep(Duration::from_millis(u64::from(retire_ms.min(40))));
    drop(first);
    let mut second = take_over(socket, between).unwrap();
    let end = adopt(&mut second, usize::MAX, &mut got);
    let case = (is_v3, retire_ms, taken);
    let all: Vec<u32> = (0..BEFORE + AFTER).collect();
    assert_eq!(got, all, "{case:?}");
    assert_eq!(end.taken, 2 * u64::from(BEFORE + AFTER), "{case:?}");
    let mut nothing = take_over(socket, end).unwrap();
    assert_eq!(nothing.head(), None, "{case:?}");
}

#[test]
#[ignore = "needs root: a packet socket"]
fn a_dead_readers_ring_is_read_to_its_end() {
    let body = || {
        netns::enter_new().unwrap();
        let up = Command::new("ip")
            .args(["link", "set", "lo", "up"])
            .status();
        assert!(up.unwrap().success());
        for taken in [0, 1, 40, 150, BEFORE] {
            each_packet_comes_once(false, 0, taken);
            // The timer never closes the open block (60 s), or closes it during the read (10 ms).
            for retire_ms in [60_000, 10] {
                each_packet_comes_once(true, retire_ms, taken);
            }
        }
    };
    // The namespace ends with the thread.
    thread::spawn(body).join().unwrap();
}
