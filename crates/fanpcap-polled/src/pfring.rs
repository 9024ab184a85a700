//! PF_RING as an engine. The members of a group are the rings of a cluster, among which PF_RING's
//! kernel module shares the packets. It knows neither a table nor pools, and nobody takes over the
//! packets of a member that dies.

mod port;

use fanpcap_engine::{EnterGroup, EnterRequest, Polled, PolledIo, Refusal};
use fanpcap_linux::file::shared::{self, Word};
use fanpcap_linux::interface;
use fanpcap_pfring::{Handle, OpenError, Options, Receiver};
use fanpcap_reader::{GroupTasks, Input};
use fanpcap_ring::{CallRing, Ring};
use fanpcap_steer::{GroupOptions, modes};
use port::{Broken, NoTasks, Packets, PfringPort};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The engine.
#[derive(Debug)]
pub struct PfRing;

impl Polled for PfRing {
    fn name(&self) -> &'static str {
        "pfring"
    }

    /// The module's parameters set the size in packets (`min_num_slots`).
    fn pool_bytes(&self, _: Option<u32>) -> Option<u64> {
        None
    }

    fn is_elsewhere(&self, _: &str) -> bool {
        false
    }

    fn devices(&self) -> Vec<String> {
        Vec::new()
    }

    fn enter(
        &self,
        request: &EnterRequest<'_>,
        _: &mut Option<OwnedFd>,
    ) -> Result<Arc<dyn PolledIo>, Refusal> {
        let cluster = cluster(request).map_err(|why| Refusal::new(why, "pfring-lacks"))?;
        let options = Options {
            snaplen: request.ask.snaplen.min(LONGEST),
            cluster,
            outgoing: request.ask.outgoing,
            // The handle's own socket makes the device promiscuous, if the application wants it.
            is_promiscuous: false,
        };
        let receiver = fanpcap_pfring::open(request.device, &options).map_err(refusal)?;
        let ifindex = interface::index(request.device).unwrap_or_default();
        let figures = shared::own(&[0; 3]);
        Ok(Arc::new(Io {
            handle: Arc::clone(receiver.handle()),
            receiver: Mutex::new(Some(receiver)),
            ifindex,
            group: cluster.map(|(number, _)| number),
            figures,
        }))
    }
}

/// The refusal of a handle for which PF_RING opens no ring.
pub fn refusal(error: OpenError) -> Refusal {
    let slug = match error {
        OpenError::Library(_) | OpenError::Module => "pfring-absent",
        OpenError::Environment(_) => "pfring-environment",
        OpenError::Privilege | OpenError::Failed(..) => "pfring-failed",
    };
    Refusal::new(error, slug)
}

/// The cluster that does what the request asks for.
///
/// # Errors
/// What PF_RING can't do.
fn cluster(request: &EnterRequest<'_>) -> Result<Option<(u16, i32)>, &'static str> {
    let number = match request.group {
        EnterGroup::Own => None,
        EnterGroup::New => return Err(NO_NEW),
        EnterGroup::Number(0) => return Err(NO_ZERO),
        EnterGroup::Number(number) => Some(number),
    };
    let is_plain = request.weight == 1 && request.class == 0 && request.name.is_none();
    let (text, options) = request.steering.unwrap_or_default();
    if !is_plain || options.flows.is_some() || options.balance.is_some() {
        return Err(NO_SHARES);
    }
    let kind = match request.steering {
        None => FLOW,
        Some(_) => kind(text).ok_or(NO_PROGRAM)?,
    };
    Ok(number.map(|number| (number, kind)))
}

/// The cluster type (pf_ring.h: `cluster_type`) that shares packets as a steering program does.
fn kind(program: &str) -> Option<i32> {
    if program.trim() == "main = steer_rrobin" {
        return Some(1);
    }
    let kind = match modes::name_of(program)? {
        "flow_2_tuple" => 2,
        "flow_4_tuple" => 3,
        "flow_5_tuple" => 4,
        "flow_tcp_5_tuple" => 5,
        "inner_flow_2_tuple" => 7,
        "inner_flow_5_tuple" => 9,
        "inner_flow_tcp_5_tuple" => 10,
        // `flow`, whose program is that of inner_flow_4_tuple.
        _ => FLOW,
    };
    Some(kind)
}

/// `cluster_per_inner_flow_4_tuple`.
const FLOW: i32 = 8;

/// Bytes of the longest packet (pfring.h: `MAX_CAPLEN`).
const LONGEST: u32 = 65_600;

/// The error of a handle whose group has a steering program of its own.
pub const NO_PROGRAM: &str = "PF_RING runs no steering programs: on the engine pfring, a group's mode \
                          is flow, lb or one of those of pcap.conf(5) with PF_RING's names";
const NO_SHARES: &str = "PF_RING gives all members of a group the same share: on the engine \
                         pfring, a member has no weight, class or name, and a group neither \
                         +sticky nor +balance";
const NO_NEW: &str = "PF_RING finds no free number for a new group: write the group's number";
const NO_ZERO: &str = "PF_RING has no cluster 0: give the group another number";

/// A ring whose handle is in a cluster, or alone.
struct Io {
    handle: Arc<Handle>,
    /// The receiving side, which the reader takes.
    receiver: Mutex<Option<Receiver>>,
    ifindex: u32,
    group: Option<u16>,
    figures: [Word; 3],
}

impl PolledIo for Io {
    fn input(&self, timeout: Option<Duration>) -> io::Result<Input> {
        let descriptor = self.handle.waits_on().ok_or(io::ErrorKind::Unsupported)?;
        let descriptor = descriptor.try_clone_to_owned()?;
        let broken = Broken::default();
        let handle = Arc::clone(&self.handle);
        let port = PfringPort::new(handle, descriptor, self.ifindex, Arc::clone(&broken))?;
        let mut receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner);
        let receiver = receiver.take().ok_or(io::ErrorKind::AlreadyExists)?;
        let packets = Packets { receiver, broken };
        Ok(Input {
            ring: Ring::Calls(CallRing::new(Box::new(packets), self.ifindex)),
            port: Arc::new(port),
            timeout,
        })
    }

    fn tasks(&self) -> Arc<dyn GroupTasks> {
        Arc::new(NoTasks)
    }

    fn note_asked(&self) {}

    fn group(&self) -> Option<u16> {
        self.group
    }

    fn steering(&self) -> Option<(&str, GroupOptions)> {
        None
    }

    /// One kernel module serves all devices.
    fn poller(&self) -> u64 {
        0
    }

    fn send(&self, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn bytes(&self) -> Option<u64> {
        None
    }

    fn figures(&self) -> io::Result<[Word; 3]> {
        Ok(self.figures.clone())
    }

    fn counted(&self) -> [u64; 2] {
        let counts = self.handle.counts().unwrap_or_default();
        [counts.read.saturating_add(counts.dropped), counts.dropped]
    }

    fn missed(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_engine::Ask;
    use fanpcap_steer::Balance;

    fn request<'a>() -> EnterRequest<'a> {
        EnterRequest {
            device: "eth0",
            group: EnterGroup::Number(7),
            steering: None,
            name: None,
            weight: 1,
            class: 0,
            ask: Ask {
                snaplen: 96,
                bytes: None,
                outgoing: true,
            },
            limit: Duration::ZERO,
            former: None,
            whole: None,
        }
    }

    #[test]
    fn a_mode_is_the_cluster_type_of_its_name() {
        let none = GroupOptions::default();
        let kind_of = |text| {
            let steering = Some((text, none));
            cluster(&EnterRequest {
                steering,
                ..request()
            })
        };
        // pf_ring.h, from cluster_per_flow_2_tuple on; cluster_per_inner_flow is 6.
        for (mode, kind) in [
            ("flow_2_tuple", 2),
            ("flow_4_tuple", 3),
            ("flow_5_tuple", 4),
            ("flow_tcp_5_tuple", 5),
            ("inner_flow_2_tuple", 7),
            ("flow", 8),
            ("inner_flow", 8),
            ("inner_flow_4_tuple", 8),
            ("inner_flow_5_tuple", 9),
            ("inner_flow_tcp_5_tuple", 10),
        ] {
            assert_eq!(
                kind_of(modes::source(mode).unwrap()),
                Ok(Some((7, kind))),
                "{mode}"
            );
        }
        assert_eq!(kind_of("main = steer_rrobin"), Ok(Some((7, 1))));
        assert_eq!(kind_of("main = steer_rnd"), Err(NO_PROGRAM));
        assert_eq!(cluster(&request()), Ok(Some((7, 8))));
        let group = EnterGroup::Own;
        assert_eq!(cluster(&EnterRequest { group, ..request() }), Ok(None));
    }

    #[test]
    fn what_pf_ring_can_not_do_is_refused() {
        let refused = |request| cluster(&request).unwrap_err();
        let weight = 2;
        assert_eq!(
            refused(EnterRequest {
                weight,
                ..request()
            }),
            NO_SHARES
        );
        let class = 1;
        assert_eq!(refused(EnterRequest { class, ..request() }), NO_SHARES);
        let name = Some("a");
        assert_eq!(refused(EnterRequest { name, ..request() }), NO_SHARES);
        for options in [(Some(1000), None), (None, Some(Balance::Idle))] {
            let (flows, balance) = options;
            let steering =
                modes::source("flow").map(|text| (text, GroupOptions { flows, balance }));
            assert_eq!(
                refused(EnterRequest {
                    steering,
                    ..request()
                }),
                NO_SHARES
            );
        }
        let group = EnterGroup::New;
        assert_eq!(refused(EnterRequest { group, ..request() }), NO_NEW);
        let group = EnterGroup::Number(0);
        assert_eq!(refused(EnterRequest { group, ..request() }), NO_ZERO);
    }
}
