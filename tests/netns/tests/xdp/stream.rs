//! The host's own traffic continues while members join, leave and are killed.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fanpcap_netns::remains::leaves_nothing;
use fanpcap_testkit::await_for::{LIMIT, await_for, within};
use fanpcap_testkit::hosts::{DEVICE, Hosts, PEER_DEVICE};
use fanpcap_testkit::{Member, Program, Scratch, member, netns, veth};

/// The longest allowed stall of a transfer on a machine that does nothing else. It allows three
/// retransmissions, which take 1.4 s.
const STALL: Duration = Duration::from_secs(2);

/// Number of words that are sent at once, and the pause after them.
const BURST: u64 = 4096;
const PAUSE: Duration = Duration::from_millis(2);

/// A transfer by TCP, in one direction.
struct Transfer {
    stop: Arc<AtomicBool>,
    /// The thread returns how many words it has sent.
    sender: JoinHandle<Result<u64>>,
    /// The thread returns how many words it has received, and its longest wait.
    receiver: JoinHandle<Result<(u64, Duration)>>,
}

impl Transfer {
    fn start(from: TcpStream, to: TcpStream) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let ending = Arc::clone(&stop);
        Self {
            stop,
            sender: thread::spawn(move || send(from, &ending)),
            receiver: thread::spawn(move || receive(to)),
        }
    }

    fn finish(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.sender.join().expect("the sender does not panic");
        let received = self.receiver.join().expect("the receiver does not panic");
        // Report the receiver's error first: if the receiver gave up, the sender has only a broken
        // pipe.
        let ((received, longest), sent) = (received?, sent?);
        println!("{received} words, longest stall {longest:?}");
        ensure!(received == sent, "{received} of {sent} words");
        ensure!(
            longest < within(STALL),
            "the transfer stalled for {longest:?}"
        );
        Ok(())
    }
}

/// Sends ascending numbers as words of 8 bytes, until `stop` is set. Returns how many.
fn send(mut to: TcpStream, stop: &AtomicBool) -> Result<u64> {
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        let words: Vec<u8> = (sent..sent + BURST).flat_map(u64::to_le_bytes).collect();
        to.write_all(&words).context("sending")?;
        sent += BURST;
        thread::sleep(PAUSE);
    }
    to.shutdown(Shutdown::Write)?;
    Ok(sent)
}

fn receive(mut from: TcpStream) -> Result<(u64, Duration)> {
    from.set_read_timeout(Some(LIMIT))?;
    let mut bytes = vec![0; 1 << 16];
    let (mut count, mut longest, mut last) = (0_u64, Duration::ZERO, Instant::now());
    loop {
        let read = from.read(&mut bytes);
        if read
            .as_ref()
            .is_err_and(|error| error.kind() == ErrorKind::Interrupted)
        {
            continue;
        }
        let len = read.context("receiving")?;
        longest = longest.max(last.elapsed());
        last = Instant::now();
        if len == 0 {
            return Ok((count / 8, longest));
        }
        for byte in &bytes[..len] {
            let place = usize::try_from(count % 8)?;
            let expected = (count / 8).to_le_bytes()[place];
            ensure!(*byte == expected, "byte {count} is {byte}");
            count += 1;
        }
    }
}

fn start(scratch: &Scratch, group: Option<u16>) -> Result<Member> {
    let program = Program::tcpdump(DEVICE, scratch.new_file("pcap"))?.set("PCAP_DRIVER", "xdp");
    let program = match group {
        Some(group) => program.group(group, "flow"),
        None => program,
    };
    let member = program.start(scratch)?;
    let said = member.said()?;
    ensure!(!said.contains("packet sockets"), "{said}");
    Ok(member)
}

fn kill(member: Member) -> Result<()> {
    member.signal("KILL")?;
    member.wait().map(drop)
}

/// Members of two groups and a handle without a group start and end. At the end no application uses
/// the device.
fn come_and_go(scratch: &Scratch) -> Result<()> {
    let alone = start(scratch, None)?;
    let first = start(scratch, Some(7))?;
    let second = start(scratch, Some(7))?;
    let other = start(scratch, Some(8))?;
    await_for("captured packets", LIMIT, || {
        Ok((alone.captured() > 0).then_some(()))
    })?;
    kill(first)?;
    let third = start(scratch, Some(7))?;
    kill(alone)?;
    second.stop()?;
    other.stop()?;
    kill(third)
}

/// The devices use the offloads that hosts usually have. So frames are long, and their checksums
/// are not computed yet.
#[test]
#[ignore = "needs root: run by make test"]
fn transfers_go_on_while_members_come_and_go() -> Result<()> {
    netns::within_new(|| {
        let hosts = Hosts::new()?;
        veth::offloads_on(DEVICE)?;
        hosts.on_peer(|| veth::offloads_on(PEER_DEVICE))?;
        let scratch = Scratch::new()?;
        leaves_nothing(|| {
            let [own, peers] = hosts.connect()?;
            let received = Transfer::start(peers, own);
            let [own, peers] = hosts.connect()?;
            let sent = Transfer::start(own, peers);
            let gone = (0..3).try_for_each(|_| come_and_go(&scratch));
            received.finish().context("to the host")?;
            sent.finish().context("from the host")?;
            gone?;
            member::wait_for_members(7, 0)
        })
    })
}
