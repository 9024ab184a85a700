//! Real packets go from a generator through the source `afxdp` and a group into members' pools.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "scene/clients.rs"]
mod clients;
#[path = "scene/devices.rs"]
mod devices;
mod scene;

use anyhow::{Context, Result};
use clients::{Client, Poller, hello};
use devices::Devices;
use fanpcap_linux::interface;
use fanpcap_linux::process::cpu;
use fanpcap_poll::message::Hello;
use fanpcap_poller::queue::{Idle, Queue};
use fanpcap_poller::{Burst, Source, SourceError, afxdp};
use fanpcap_testkit::await_for::await_so;
use fanpcap_testkit::netns::{on_pair, within_new};
use fanpcap_testkit::traffic::{self, sequence_of};
use fanpcap_testkit::veth::{Veth, ip};
use fanpcap_testkit::{Injector, Transport};

fn frame(number: u64) -> Vec<u8> {
    let flows = traffic::flows(1, 1);
    let udp = flows.into_iter().find(|it| it.transport == Transport::Udp);
    let frame = traffic::frame(udp.unwrap(), traffic::Direction::Request, number, 40);
    frame.unwrap().bytes
}

/// The numbers of the test's packets in one burst.
fn numbers(source: &mut dyn Source) -> Vec<u64> {
    let mut burst = Burst::new();
    source.burst(&mut burst).unwrap();
    let packets = burst.packets().iter();
    let numbers = packets
        .filter_map(|it| sequence_of(it.frame.bytes))
        .collect();
    source.release();
    numbers
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn each_packet_of_a_device_comes_once() {
    // The source's 4096 chunks are enough if the queue's thread does not run for 400 ms.
    const FRAMES: u64 = 30_000;
    let work = || -> Result<()> {
        let mut devices = Devices::new()?;
        let source = afxdp::open(devices.ifindex, 1)?.remove(0);
        let poller = Poller::of_queues(vec![Queue::start(Box::new(source), Idle::Sleep, || {})?]);
        let memory = Some(64 << 20);
        let hello = Hello { memory, ..hello() };
        let mut members: Vec<Client> = (0..4).map(|_| poller.member(&hello)).collect();
        devices.send(FRAMES, "10kpps")?;
        devices.await_all(FRAMES, &mut members);
        let counts = poller.counts(Some(5)).unwrap();
        assert_eq!((counts.offered, counts.produced), (FRAMES, FRAMES));
        Ok(())
    };
    within_new(work).unwrap();
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn a_source_takes_the_packets_of_its_queue_from_the_host() {
    let work = || -> Result<()> {
        Veth::new("va", "vb", 2)?;
        let ifindex = interface::index("vb").context("no device vb")?;
        let mut sources = afxdp::open(ifindex, 2)?;
        assert!(!sources[0].is_zero_copy()?, "veth copies");
        let cpus = cpu::cpus()?;
        let sender = Injector::open_bypass("va")?;
        let mut sent = [0; 2];
        for number in 0..20_u64 {
            let cpu = cpus[usize::try_from(number)? % cpus.len()];
            cpu::pin(cpu)?;
            // The queue is the number of the CPU, modulo the number of queues.
            sent[cpu % 2] += 1;
            sender.send(&frame(number))?;
        }
        let mut got = [Vec::new(), Vec::new()];
        await_so("packets", || {
            for (source, got) in sources.iter_mut().zip(&mut got) {
                got.extend(numbers(source));
            }
            got[0].len() + got[1].len() == 20
        });
        assert_eq!([got[0].len(), got[1].len()], sent);
        let counts = sources.iter_mut().map(|it| it.counts().received);
        assert_eq!(counts.sum::<u64>(), 20);
        assert!(afxdp::open(ifindex, 1).is_err(), "the queue has a socket");
        drop(sources);
        await_so("the end of the sockets", || afxdp::open(ifindex, 1).is_ok());
        Ok(())
    };
    within_new(work).unwrap();
}

/// More packets than the memory has chunks, and packets that are too long for a chunk.
#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn packets_that_do_not_fit_are_counted_and_the_chunks_come_back() {
    let work = || -> Result<()> {
        Veth::new("va", "vb", 1)?;
        let ifindex = interface::index("vb").context("no device vb")?;
        let mut source = afxdp::open(ifindex, 1)?.remove(0);
        let sender = Injector::open("va")?;
        let mut offered = 0;
        for _ in 0..3 {
            assert!(!source.has_filled(1));
            for number in 0..5000 {
                sender.send(&frame(number))?;
            }
            offered += 5000;
            await_so("packets that wait", || source.has_filled(3));
            let mut got = 0;
            await_so("packets", || {
                got += numbers(&mut source).len();
                source.counts().received >= offered && got >= 4000
            });
        }
        let counts = source.counts();
        assert!(counts.dropped > 0, "{counts:?}");
        assert_eq!((counts.skipped, counts.failed), (0, 0));
        // The kernel copies these packets, and finds no free chunk.
        assert!((1..=counts.dropped).contains(&counts.starved), "{counts:?}");
        assert_eq!(source.check().map_err(|error| error.to_string()), Ok(()));
        assert!(source.transmit(&frame(1))?);
        ip("link del vb")?;
        await_so("the end", || {
            matches!(source.check(), Err(SourceError::Gone))
        });
        Ok(())
    };
    within_new(work).unwrap();
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn a_device_with_another_xdp_program_is_refused() {
    on_pair(|ifindex| {
        let first = afxdp::open(ifindex, 0);
        assert!(first.is_err(), "no queue");
        let first = afxdp::open(ifindex, 1).unwrap();
        let second = afxdp::open(ifindex, 1).unwrap_err();
        assert_eq!(second.kind(), std::io::ErrorKind::ResourceBusy);
        assert!(afxdp::open(ifindex, 9).is_err(), "no such queue");
        drop(first);
    });
}
