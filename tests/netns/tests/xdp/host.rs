//! The tests check which of the captured packets the host also gets, and the capture of packets
//! that the host sends.

use anyhow::{Result, ensure};
use fanpcap_netns::remains::on_wire_that_ends_clean;
use fanpcap_netns::{Wire, ensure_each_once, on_wire};
use fanpcap_testkit::Direction;
use fanpcap_testkit::member::{finish, wait_for_packets};
use fanpcap_testkit::traffic::{self, Frame};
use fanpcap_testkit::veth::{ip, tc};

use crate::scene::{await_free_device, ensure_on_page, start, start_as};

fn frames() -> Result<Vec<Frame>> {
    traffic::frames(1, &traffic::flows(1, 20), 0..1000)
}

/// Writes a config file and returns its path.
fn config(wire: &Wire, lines: &str) -> Result<std::path::PathBuf> {
    let path = wire.scratch.new_file("pcap.conf");
    std::fs::write(&path, lines)?;
    Ok(path)
}

#[test]
#[ignore = "needs root: run by make test"]
fn the_host_gets_all_packets() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        let host = wire.tcpdump()?.start(&wire.scratch)?;
        let member = start(wire)?;
        let frames = frames()?;
        wire.send_as_tap(&frames)?;
        finish(vec![member, host], 2 * frames.len()).map(drop)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn what_the_host_sends_is_captured_unless_settings_say_otherwise() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        let member = start(wire)?;
        let without = config(wire, "driver@vb = xdp\noutgoing@vb = no\n")?;
        let incoming = start_as(wire, wire.tcpdump()?.set("PCAP_CONFIG", without))?;
        let frames = frames()?;
        wire.send(&frames)?;
        let requests = frames
            .iter()
            .filter(|it| it.direction == Direction::Request);
        ensure_each_once(&finish(vec![member], frames.len())?, &frames)?;
        finish(vec![incoming], requests.count()).map(drop)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn the_host_gets_nothing_that_is_stolen_and_all_again_afterwards() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        let host = wire.tcpdump()?.start(&wire.scratch)?;
        let stealing = config(wire, "driver@vb = xdp\nsteal@vb = yes\n")?;
        let program = wire.tcpdump()?.set("PCAP_CONFIG", stealing);
        let member = start_as(wire, program)?;
        let frames = frames()?;
        wire.send_bytes(frames.iter().map(|it| (Direction::Request, &it.bytes[..])))?;
        finish(vec![member], frames.len())?;
        ensure!(
            host.captured() == 0,
            "{} packets at the host",
            host.captured()
        );
        await_free_device()?;
        wire.send_as_tap(&frames)?;
        let host = [host];
        wait_for_packets(&host, frames.len())
    })
}

/// A use of a device by the host or a container, which the library must detect.
struct Use {
    /// The reason that the library's message gives for not stealing the device's packets.
    reason: &'static str,
    /// The commands that begin the use. The first command may create a device of a kind that some
    /// kernels do not support.
    begin: &'static [&'static str],
    /// The command that ends the use.
    end: &'static str,
}

impl Use {
    /// Begins the use. Returns `None` if the kernel does not support the first command.
    fn begin(&self) -> Result<Option<()>> {
        // An earlier run that was killed may have left the use behind.
        let _ = run(self.end);
        let is_kind = self.begin[0].contains(" type ");
        for (number, command) in self.begin.iter().enumerate() {
            match run(command) {
                Err(error) if number == 0 && is_kind => {
                    println!("SKIP: this kernel can't: {command}: {error:#}");
                    return Ok(None);
                }
                done => done?,
            }
        }
        Ok(Some(()))
    }

    /// Checks that an application can't steal the packets during the use, and that its message has
    /// the reason.
    fn is_refused(&self, wire: &Wire) -> Result<()> {
        let stealing = config(wire, "driver@vb = xdp\nsteal@vb = yes\n")?;
        let Some(()) = self.begin()? else {
            return Ok(());
        };
        let program = wire.tcpdump()?.set("PCAP_CONFIG", stealing);
        let refused = program.run(&wire.scratch)?;
        run(self.end)?;
        let said = &refused.said;
        ensure!(said.contains(self.reason), "{:?}: {said}", self.begin);
        ensure_on_page(self.reason)
    }
}

/// Runs `ip` or `tc`.
fn run(command: &str) -> Result<()> {
    let words: Vec<&str> = command.split_whitespace().collect();
    match words.split_first() {
        Some((&"tc", words)) => tc(words),
        _ => ip(command.trim_start_matches("ip ")),
    }
}

/// Uses that every kernel supports.
const USES: [Use; 5] = [
    Use {
        reason: "it has an IP address",
        begin: &["ip addr add 10.9.9.1/24 dev vb"],
        end: "ip addr del 10.9.9.1/24 dev vb",
    },
    Use {
        reason: "a route leads through it",
        begin: &["ip route add default dev vb"],
        end: "ip route del default dev vb",
    },
    Use {
        reason: "a route leads through it",
        begin: &["ip route add 10.7.0.0/16 dev vb table 100"],
        end: "ip route flush table 100",
    },
    Use {
        reason: "another device is on top of it",
        begin: &["ip link add b7 type bridge", "ip link set vb master b7"],
        end: "ip link del b7",
    },
    // By this sign the library detects the host's end of a container's veth that has no other sign
    // of use.
    Use {
        reason: "traffic control may redirect what it receives",
        begin: &["tc qdisc add dev vb clsact"],
        end: "tc qdisc del dev vb clsact",
    },
];

#[test]
#[ignore = "needs root: run by make test"]
fn a_device_that_the_host_uses_is_stolen_only_by_force() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        USES.iter().try_for_each(|it| it.is_refused(wire))?;
        let used = &USES[0];
        run(used.begin[0])?;
        let forced = config(wire, "driver@vb = xdp\nsteal@vb = force\n")?;
        start_as(wire, wire.tcpdump()?.set("PCAP_CONFIG", forced))?.stop()?;
        run(used.end)?;
        let stealing = config(wire, "driver@vb = xdp\nsteal@vb = yes\n")?;
        start_as(wire, wire.tcpdump()?.set("PCAP_CONFIG", stealing))?.stop()?;
        Ok(())
    })
}

/// Makes a separate test of each use that only some kernels support. So a use that is skipped
/// counts as a skipped test.
macro_rules! kinds {
    ($($name:ident: $reason:literal, $begin:expr, $end:literal;)*) => {$(
        #[test]
        #[ignore = "needs root: run by make test"]
        fn $name() -> Result<()> {
            let (begin, end): (&[&str], _) = (&$begin, $end);
            on_wire(1, |wire| {
                Use { reason: $reason, begin, end }.is_refused(wire)
            })
        }
    )*};
}

kinds! {
    a_device_below_a_vlan_is_the_hosts: "another device is on top of it",
        ["ip link add link vb name v7 type vlan id 7"], "ip link del v7";
    a_device_below_a_macvlan_is_the_hosts: "another device is on top of it",
        ["ip link add link vb name m7 type macvlan"], "ip link del m7";
    a_device_below_an_ipvlan_is_the_hosts: "another device is on top of it",
        ["ip link add link vb name i7 type ipvlan"], "ip link del i7";
    a_device_below_a_tunnel_is_the_hosts: "another device is on top of it",
        ["ip link add x7 type vxlan id 7 group 239.1.1.1 dstport 4789 dev vb"], "ip link del x7";
    a_device_by_which_a_tunnel_leads_is_the_hosts: "a route leads through it",
        [
            "ip link add x7 type vxlan id 7 remote 10.7.7.7 dstport 4789",
            "ip route add 10.7.7.7 dev vb",
        ], "ip link del x7";
    a_device_below_a_containers_macvlan_is_the_hosts: "a container's device may be on top of it",
        [
            "ip link add link vb name c7 type macvlan",
            "ip netns add fanpcap-steal",
            "ip link set c7 netns fanpcap-steal",
            "ip -n fanpcap-steal link set c7 up",
        ], "ip netns del fanpcap-steal";
}
