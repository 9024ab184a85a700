//! Rings by the stand-in for PF_RING's library. It shows that the functions are called as pfring.h
//! publishes them, not what PF_RING does.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use fanpcap_pfring::{Counts, OpenError, Options, Receiver};
use fanpcap_testkit::await_for::await_so;
use fanpcap_testkit::netns::on_pair;
use fanpcap_testkit::pfring::is_again;
use fanpcap_testkit::traffic::{self, sequence_of};
use fanpcap_testkit::{Injector, Transport};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const OPTIONS: Options = Options {
    snaplen: 128,
    cluster: None,
    outgoing: true,
    is_promiscuous: true,
};

fn open(device: &str, options: &Options) -> Result<Receiver, OpenError> {
    fanpcap_pfring::open(device, options)
}

/// UDP packets of two flows, whose numbers are `0..count`.
fn frames(count: u64) -> Vec<traffic::Frame> {
    let flows = traffic::flows(1, 20).into_iter();
    let udp: Vec<_> = flows.filter(|it| it.transport == Transport::Udp).collect();
    traffic::frames(1, &udp, 0..count).unwrap()
}

/// What the next packet has: number, captured bytes, length, stamp, and whether it is sent.
type Seen = (Option<u64>, usize, u32, Duration, bool);

fn take(receiver: &mut Receiver) -> Option<Seen> {
    let packet = receiver.receive().unwrap()?;
    let (wire_len, stamp, is_sent) = (packet.wire_len, packet.stamp, packet.is_sent);
    let bytes = packet.into_bytes();
    Some((sequence_of(bytes), bytes.len(), wire_len, stamp, is_sent))
}

#[test]
fn without_the_library_the_error_says_what_to_install() {
    let error = match open("lo", &OPTIONS) {
        Err(error @ OpenError::Library(_)) => error.to_string(),
        Ok(_) | Err(_) => {
            println!("SKIP: this machine has PF_RING's library");
            return;
        }
    };
    assert!(
        error.contains("libpfring.so: cannot open shared object"),
        "{error}"
    );
    assert!(error.contains("install the package pfring"), "{error}");
}

#[test]
fn a_kernel_without_the_module_is_told() {
    let variables = [("STANDIN_OPEN_ERROR", "97")];
    if is_again("a_kernel_without_the_module_is_told", &variables).unwrap() {
        let error = open("lo", &OPTIONS).map(drop).unwrap_err();
        assert!(matches!(error, OpenError::Module), "{error}");
    }
}

#[test]
fn a_device_that_no_module_opens_may_lack_the_kernels_module() {
    let test = "a_device_that_no_module_opens_may_lack_the_kernels_module";
    if is_again(test, &[("STANDIN_OPEN_ERROR", "19")]).unwrap() {
        let error = open("lo", &OPTIONS).map(drop).unwrap_err();
        let is_module = matches!(error, OpenError::Module);
        assert_eq!(
            is_module,
            !Path::new("/proc/net/pf_ring").exists(),
            "{error}"
        );
    }
}

#[test]
fn a_lack_of_privilege_is_told() {
    let variables = [("STANDIN_OPEN_ERROR", "1")];
    if is_again("a_lack_of_privilege_is_told", &variables).unwrap() {
        let error = open("lo", &OPTIONS).map(drop).unwrap_err();
        assert!(matches!(error, OpenError::Privilege), "{error}");
    }
}

#[test]
fn a_library_that_needs_libpcap_at_once_is_loaded() {
    let test = "a_library_that_needs_libpcap_at_once_is_loaded";
    let variables = [("LD_BIND_NOW", "1"), ("STANDIN_OPEN_ERROR", "1")];
    if is_again(test, &variables).unwrap() {
        let error = open("lo", &OPTIONS).map(drop).unwrap_err();
        assert!(matches!(error, OpenError::Privilege), "{error}");
    }
}

#[test]
#[ignore = "needs root: packet sockets"]
fn a_cluster_of_another_device_is_refused_with_the_reason() {
    let test = "a_cluster_of_another_device_is_refused_with_the_reason";
    if is_again(test, &[("STANDIN_CLUSTER_ERROR", "22")]).unwrap() {
        let error = enter_cluster().to_string();
        assert!(error.contains("take another number"), "{error}");
    }
}

#[test]
#[ignore = "needs root: packet sockets"]
fn a_full_cluster_is_no_lack_of_privilege() {
    let test = "a_full_cluster_is_no_lack_of_privilege";
    // The module returns -1, which is EPERM.
    if is_again(test, &[("STANDIN_CLUSTER_ERROR", "1")]).unwrap() {
        let error = enter_cluster();
        assert!(!matches!(error, OpenError::Privilege), "{error}");
        assert!(error.to_string().contains("64 rings"), "{error}");
    }
}

fn enter_cluster() -> OpenError {
    let options = Options {
        cluster: Some((5, 8)),
        ..OPTIONS
    };
    open("lo", &options).map(drop).unwrap_err()
}

#[test]
#[ignore = "needs root: packet sockets, a network namespace"]
fn each_packet_comes_once_with_what_is_known_about_it() {
    if !is_again("each_packet_comes_once_with_what_is_known_about_it", &[]).unwrap() {
        return;
    }
    on_pair(|_| {
        let mut receiver = open("vb", &OPTIONS).unwrap();
        let frames = frames(300);
        let injector = Injector::open("va").unwrap();
        for (number, frame) in frames.iter().enumerate() {
            // One at a time: the kernel drops packets if too many wait for a CPU.
            injector.send(&frame.bytes).unwrap();
            let mut seen = None;
            await_so("a packet", || {
                seen = take(&mut receiver);
                seen.is_some()
            });
            let (sequence, captured, len, stamp, is_sent) = seen.unwrap();
            assert_eq!(sequence, Some(number as u64));
            assert_eq!(captured, frame.bytes.len().min(128));
            assert_eq!(len as usize, frame.bytes.len());
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            assert!(now.abs_diff(stamp) < Duration::from_secs(60) && !is_sent);
        }
        assert!(take(&mut receiver).is_none());
        let counts = receiver.handle().counts().unwrap();
        assert_eq!(
            counts,
            Counts {
                read: 300,
                dropped: 0
            }
        );
        // What the host sends comes, unless the ring leaves it out.
        let received_only = Options {
            outgoing: false,
            ..OPTIONS
        };
        let mut other = open("vb", &received_only).unwrap();
        // The kernel gives a frame to no socket that has sent it.
        assert!(other.send(&frames[0].bytes).unwrap());
        Injector::open("vb")
            .and_then(|it| it.send(&frames[1].bytes))
            .unwrap();
        let mut seen = None;
        await_so("a sent packet", || {
            seen = take(&mut receiver);
            seen.is_some()
        });
        assert!(seen.unwrap().4);
        assert!(take(&mut other).is_none());
    });
}

#[test]
#[ignore = "needs root: packet sockets, a network namespace"]
fn the_rings_of_a_cluster_share_the_packets() {
    if !is_again("the_rings_of_a_cluster_share_the_packets", &[]).unwrap() {
        return;
    }
    on_pair(|_| {
        let round_robin = Options {
            cluster: Some((7, 1)),
            ..OPTIONS
        };
        let mut rings = [
            open("vb", &round_robin).unwrap(),
            open("vb", &round_robin).unwrap(),
        ];
        let mut alone = open("vb", &OPTIONS).unwrap();
        let zero = Options {
            cluster: Some((0, 1)),
            ..OPTIONS
        };
        let error = open("vb", &zero).map(drop).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("pfring_set_cluster_consumer: "),
            "{error}"
        );
        let injector = Injector::open("va").unwrap();
        frames(100)
            .iter()
            .for_each(|it| injector.send(&it.bytes).unwrap());
        let mut counts = [0; 3];
        await_so("all packets", || {
            for (at, ring) in rings.iter_mut().chain([&mut alone]).enumerate() {
                while take(ring).is_some() {
                    counts[at] += 1;
                }
            }
            counts[0] + counts[1] == 100 && counts[2] == 100
        });
        assert_eq!(counts, [50, 50, 100]);
        // The packets of a ring that has left come to the other one.
        let [first, mut second] = rings;
        drop(first);
        frames(100)
            .iter()
            .for_each(|it| injector.send(&it.bytes).unwrap());
        let mut count = 0;
        await_so("all packets at the ring that stayed", || {
            while take(&mut second).is_some() {
                count += 1;
            }
            count == 100
        });
    });
}
