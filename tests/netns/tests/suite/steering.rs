//! Groups with a steering program. The tests check which member gets a packet, which applications
//! may join, and what the group counts.

use anyhow::{Result, ensure};
use fanpcap_netns::dialog::Dialog;
use fanpcap_netns::{
    DEVICE, Wire, ensure_each_once, ensure_flows_whole, finish, on_wire, shares, wait_for_shares,
};
use fanpcap_testkit::traffic::{self, Frame};
use fanpcap_testkit::{Program, Transport, member};

#[test]
#[ignore = "needs root: run by make test"]
fn the_mode_flow_and_pf_rings_names_keep_flows_whole() -> Result<()> {
    for mode in [
        "flow",
        "flow_2_tuple",
        "inner_flow_5_tuple",
        "Flow_4_Tuple+defrag+weight=2",
    ] {
        on_wire(1, |wire| {
            let members = wire.start_group(3, 7, mode)?;
            let frames = traffic::frames(1, &traffic::flows(1, 60), 0..3000)?;
            wire.send(&frames)?;
            let captures = finish(members, frames.len())?;
            ensure_each_once(&captures, &frames)?;
            ensure_flows_whole(&captures)?;
            let shares = shares(&captures);
            ensure!(shares.iter().all(|&share| share > 0), "{mode}: {shares:?}");
            Ok(())
        })?;
    }
    Ok(())
}

/// Returns frames of all transports, and a copy of those that have the transport `transport`.
pub(crate) fn mixed(seed: u64, transport: Transport) -> Result<(Vec<Frame>, Vec<Frame>)> {
    let frames = traffic::frames(seed, &traffic::flows(seed, 30), 0..2000)?;
    let of_it = |frame: &&Frame| frame.flow.transport == transport;
    let some = frames.iter().filter(of_it).cloned().collect();
    Ok((frames, some))
}

#[test]
#[ignore = "needs root: run by make test"]
fn what_a_program_drops_reaches_no_member() -> Result<()> {
    on_wire(1, |wire| {
        let members = wire.start_group(3, 7, "main = tcp >-> steer_flow")?;
        let (frames, tcp) = mixed(2, Transport::Tcp)?;
        wire.send(&frames)?;
        let captures = finish(members, tcp.len())?;
        ensure_each_once(&captures, &tcp)?;
        ensure_flows_whole(&captures)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_members_filter_and_the_program_hold_both() -> Result<()> {
    on_wire(1, |wire| {
        let start = |filter: &str| {
            let program = wire.tcpdump()?.group(7, "main = udp >-> steer_flow");
            program.arg(filter).start(&wire.scratch)
        };
        let members = vec![start("ip6")?, start("ip6")?];
        member::wait_for_members(7, 2)?;
        wait_for_shares()?;
        let (frames, udp) = mixed(3, Transport::Udp)?;
        let both: Vec<Frame> = udp
            .into_iter()
            .filter(|frame| frame.flow.client.is_ipv6())
            .collect();
        ensure!(!both.is_empty() && both.len() < frames.len() / 3);
        wire.send(&frames)?;
        let captures = finish(members, both.len())?;
        ensure_each_once(&captures, &both)?;
        ensure_flows_whole(&captures)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn packets_are_cut_to_caplen_behind_a_program() -> Result<()> {
    on_wire(1, |wire| {
        let program = wire.tcpdump()?.group(7, "main = tcp >-> steer_flow");
        let members = vec![program.set("PCAP_CAPLEN", "64").start(&wire.scratch)?];
        let (frames, tcp) = mixed(4, Transport::Tcp)?;
        wire.send(&frames)?;
        let captures = finish(members, tcp.len())?;
        let wrong = captures[0]
            .packets
            .iter()
            .find(|packet| packet.captured_len != packet.original_len.min(64));
        ensure!(wrong.is_none(), "{wrong:?}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn the_config_file_has_programs_in_lines_and_in_files() -> Result<()> {
    on_wire(1, |wire| {
        let text = "main = do\n  udp\n  steer_rrobin\n";
        let file = wire.scratch.write("steer.pfq", text)?;
        let lines: String = text.lines().map(|line| format!("> {line}\n")).collect();
        let configs = [
            format!("def_group = 7\n{lines}"),
            format!("def_group = 7\nfanout@7 = file:{}\n", file.display()),
            "def_group = 7\nfanout = udp >-> steer_rrobin # as text\n".to_owned(),
        ];
        let mut members = Vec::new();
        for (number, config) in configs.iter().enumerate() {
            let config = wire.scratch.write(&format!("{number}.conf"), config)?;
            let program = wire.tcpdump()?.set("PCAP_CONFIG", config);
            members.push(program.start(&wire.scratch)?);
        }
        let by_variable = wire
            .tcpdump()?
            .group(7, &format!("file:{}", file.display()));
        members.push(by_variable.start(&wire.scratch)?);
        member::wait_for_members(7, 4)?;
        wait_for_shares()?;
        let (frames, udp) = mixed(5, Transport::Udp)?;
        wire.send(&frames)?;
        let captures = finish(members, udp.len())?;
        ensure_each_once(&captures, &udp)?;
        let shares = shares(&captures);
        ensure!(shares.iter().all(|&share| share > 0), "{shares:?}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn another_program_is_refused_and_one_that_means_the_same_is_not() -> Result<()> {
    on_wire(1, |wire| {
        let mut one = Dialog::start(wire, 7)?;
        let mut other = Dialog::start(wire, 7)?;
        one.expect("open main = tcp >-> steer_rrobin", "opened 0")?;
        other.expect("open tcp >-> steer_rrobin", "opened 0")?;
        let said = other.ask("open main = udp >-> steer_rrobin")?;
        let names_both = said.contains("tcp >-> steer_rrobin', ")
            && said.contains("not 'main = udp >-> steer_rrobin'");
        ensure!(names_both, "{said}");
        let said = other.ask("open hash")?;
        let named = "runs the steering program 'main = tcp >-> steer_rrobin', not hash";
        ensure!(said.contains(named), "{said}");
        // A refused newcomer does not disturb the members.
        let (frames, tcp) = mixed(6, Transport::Tcp)?;
        wire.send(&frames)?;
        let counts = [one.count(0)?, other.count(0)?];
        ensure!(
            counts.iter().sum::<usize>() == tcp.len(),
            "{counts:?} of {}",
            tcp.len()
        );
        ensure!(counts.iter().all(|&count| count > 0), "{counts:?}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_processs_own_group_takes_any_other_program() -> Result<()> {
    on_wire(1, |wire| {
        let mut own = Dialog::start(wire, 7)?;
        own.expect("open main = tcp >-> steer_to 0", "opened 0")?;
        own.expect("open main = tcp >-> steer_to 0", "opened 1")?;
        own.expect("filter 1 udp", "done")?;
        let (frames, tcp) = mixed(7, Transport::Tcp)?;
        wire.send(&frames)?;
        ensure!((own.count(0)?, own.count(1)?) == (tcp.len(), 0));
        own.expect("fanout 0 main = udp >-> steer_to 1", "done")?;
        let udp = frames.len() - tcp.len();
        wire.send(&frames)?;
        let counts = (own.count(0)?, own.count(1)?);
        ensure!(counts == (tcp.len(), udp), "{counts:?}");
        // The next replacement must not remove the handle's own filter, `udp`.
        own.expect("fanout 1 main = steer_to 1", "done")?;
        wire.send(&frames)?;
        let counts = (own.count(0)?, own.count(1)?);
        ensure!(counts == (tcp.len(), 2 * udp), "{counts:?}");
        own.expect("open main = steer_to 1", "opened 2")?;
        // The next filter is set while the program drops nothing. A later program that drops
        // packets must not remove this filter, either.
        own.expect("filter 1 ip6", "done")?;
        own.expect("fanout 2 main = udp >-> steer_to 1", "done")?;
        let of_ipv6 =
            |frame: &&Frame| frame.flow.transport == Transport::Udp && frame.flow.client.is_ipv6();
        let both = frames.iter().filter(of_ipv6).count();
        wire.send(&frames)?;
        let count = own.count(1)?;
        ensure!(count == 2 * udp + both, "{count}: {udp} and {both}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_group_of_several_processes_changes_its_steering_alone() -> Result<()> {
    on_wire(1, |wire| {
        let mut one = Dialog::start(wire, 7)?;
        let mut other = Dialog::start(wire, 7)?;
        one.expect("open main = tcp >-> steer_to 0", "opened 0")?;
        other.expect("open main = tcp >-> steer_to 0", "opened 0")?;
        let said = other.ask("fanout 0 main = udp >-> steer_to 1")?;
        ensure!(
            said.contains("can't be replaced by one that drops or counts otherwise"),
            "{said}"
        );
        other.expect("fanout 0 main = tcp >-> steer_to 1", "done")?;
        let (frames, tcp) = mixed(8, Transport::Tcp)?;
        wire.send(&frames)?;
        let counts = (one.count(0)?, other.count(0)?);
        ensure!(counts == (0, tcp.len()), "{counts:?}");
        // A newcomer with the old program is refused, even if the member that replaced the program
        // is gone.
        drop(other);
        one.expect("count 0", "0 has 0 packets")?;
        member::wait_for_members(7, 1)?;
        let mut newcomer = Dialog::start(wire, 7)?;
        let said = newcomer.ask("open main = tcp >-> steer_to 0")?;
        ensure!(
            said.contains("runs the program 'main = tcp >-> steer_to 1'"),
            "{said}"
        );
        newcomer.expect("open main = tcp >-> steer_to 1", "opened 0")?;
        wire.send(&frames)?;
        let counts = (one.count(0)?, newcomer.count(0)?);
        ensure!(counts == (0, tcp.len()), "{counts:?}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn the_counters_of_all_members_add_up() -> Result<()> {
    const PROGRAM: &str = "open main = inc 0 >-> tcp >-> inc 1 >-> steer_rrobin";
    on_wire(1, |wire| {
        let mut one = Dialog::start(wire, 7)?;
        let mut other = Dialog::start(wire, 7)?;
        one.expect(PROGRAM, "opened 0")?;
        other.expect(PROGRAM, "opened 0")?;
        other.expect(PROGRAM, "opened 1")?;
        let (frames, tcp) = mixed(9, Transport::Tcp)?;
        wire.send(&frames)?;
        // A member's counters keep their values when a new filter replaces the filter that counted.
        one.expect("filter 0 tcp", "done")?;
        wire.send(&frames)?;
        let mut dialogs = [one, other];
        let members = [(0, 0), (1, 0), (1, 1)];
        for (which, handle) in members {
            dialogs[which].count(handle)?;
            dialogs[which].ask(&format!("stats {handle}"))?;
        }
        let mut sums = [0_usize; 3];
        for (which, handle) in members {
            let said = dialogs[which].ask(&format!("stats {handle}"))?;
            let words: Vec<&str> = said.split(' ').collect();
            ensure!(words.len() == 11 && words[2] == "3", "{said}");
            for (sum, word) in sums.iter_mut().zip(&words[4..7]) {
                *sum += word.parse::<usize>()?;
            }
            let group: Vec<usize> = words[8..]
                .iter()
                .map(|word| word.parse())
                .collect::<Result<_, _>>()?;
            ensure!(group == [2 * frames.len(), 2 * tcp.len(), 0], "{said}");
        }
        ensure!(sums == [2 * frames.len(), 2 * tcp.len(), 0], "{sums:?}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_filter_that_is_set_without_privileges_holds_with_the_program() -> Result<()> {
    on_wire(1, |wire| {
        let mut one = Dialog::start(wire, 7)?;
        one.expect("open main = udp >-> steer_to 0", "opened 0")?;
        one.expect("nobody", "done")?;
        one.expect("filter 0 ip6", "done")?;
        let (frames, udp) = mixed(10, Transport::Udp)?;
        let both = udp
            .iter()
            .filter(|frame| frame.flow.client.is_ipv6())
            .count();
        wire.send(&frames)?;
        let count = one.count(0)?;
        ensure!(count == both, "{count} of {both}");
        let said = one.ask("fanout 0 main = udp >-> steer_to 1")?;
        ensure!(said.contains("needs CAP_BPF"), "{said}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn counters_go_on_when_the_program_is_replaced() -> Result<()> {
    on_wire(1, |wire| {
        let mut own = Dialog::start(wire, 7)?;
        own.expect("open main = inc 0 >-> steer_to 0", "opened 0")?;
        let frames = traffic::frames(15, &traffic::flows(15, 5), 0..500)?;
        wire.send(&frames)?;
        own.expect("fanout 0 main = inc 1 >-> steer_to 0", "done")?;
        wire.send(&frames)?;
        own.expect("fanout 0 main = steer_to 0", "done")?;
        wire.send(&frames)?;
        ensure!(own.count(0)? == 1500);
        own.expect("stats 0", "0: members 1 counters 500 500 0 group 500 500 0")
    })
}

/// The command that starts a program as the user nobody, with only these capabilities.
pub(crate) fn with(capabilities: &str) -> Vec<String> {
    let signed: Vec<String> = capabilities
        .split(',')
        .map(|name| format!("+{name}"))
        .collect();
    let all = format!("-all,{}", signed.join(","));
    let words = [
        "setpriv",
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
    ];
    let words = words.into_iter().map(str::to_owned);
    let sets = ["--bounding-set", "--inh-caps", "--ambient-caps"];
    words
        .chain(
            sets.into_iter()
                .flat_map(|set| [set.to_owned(), all.clone()]),
        )
        .collect()
}

pub(crate) fn start_with(wire: &Wire, capabilities: &str) -> Result<Dialog> {
    let words = with(capabilities);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Dialog::behind(wire, 7, &words)
}

#[test]
#[ignore = "needs root: run by make test"]
fn two_capabilities_are_enough_and_one_is_for_the_kernels_modes() -> Result<()> {
    on_wire(1, |wire| {
        let mut one = start_with(wire, "net_raw")?;
        one.expect("open hash", "opened 0")?;
        drop(one);
        member::wait_for_members(7, 0)?;
        let mut one = start_with(wire, "net_raw")?;
        let said = one.ask("open main = tcp >-> steer_rrobin")?;
        ensure!(said.contains("needs CAP_BPF beside CAP_NET_RAW"), "{said}");
        let mut two = start_with(wire, "net_raw,bpf")?;
        two.expect("open main = tcp >-> steer_rrobin", "opened 0")?;
        let (frames, tcp) = mixed(11, Transport::Tcp)?;
        wire.send(&frames)?;
        ensure!(two.count(0)? == tcp.len());
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_group_that_drops_nothing_can_be_joined_without_cap_bpf() -> Result<()> {
    on_wire(1, |wire| {
        let capable = [
            "setpriv",
            "--bounding-set",
            "-all,+net_raw",
            "--inh-caps",
            "-all",
        ];
        let mut first = Dialog::start(wire, 7)?;
        first.expect("open main = steer_rrobin", "opened 0")?;
        first.expect("read 0", "done")?;
        let mut second = Dialog::behind(wire, 7, &capable)?;
        second.expect("open main = steer_rrobin", "opened 0")?;
        let frames = traffic::frames(12, &traffic::flows(12, 5), 0..1000)?;
        wire.send(&frames)?;
        let count = second.count(0)?;
        ensure!((300..700).contains(&count), "{count}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn pfqs_device_names_are_served() -> Result<()> {
    on_wire(1, |wire| {
        let start = |device: &str| {
            let program = wire.tcpdump_on(device)?.group(7, "udp >-> steer_rrobin");
            program.start(&wire.scratch)
        };
        let one = start(&format!("pfq:{DEVICE}"))?;
        member::wait_for_members(7, 1)?;
        // The name "pfq:" has no device, so the handle gets the group's device.
        let members = vec![one, start("pfq:")?];
        member::wait_for_members(7, 2)?;
        wait_for_shares()?;
        let (frames, udp) = mixed(13, Transport::Udp)?;
        wire.send(&frames)?;
        let captures = finish(members, udp.len())?;
        ensure_each_once(&captures, &udp)?;
        let shares = shares(&captures);
        ensure!(shares.iter().all(|&share| share > 0), "{shares:?}");
        let program = wire.compile("member")?;
        let alone = Program::new(&program, "ready")?.set("PCAP_GROUP", "8");
        let said = alone.args(["pfq:", "0"]).run(&wire.scratch)?.said;
        ensure!(said.contains("group 8 has no member yet"), "{said}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn pfqs_devices_in_one_handle_have_a_group_each() -> Result<()> {
    on_wire(1, |wire| {
        let device = format!("pfq:{}^{DEVICE}", fanpcap_netns::FAR_DEVICE);
        let program = wire.tcpdump_on(&device)?.set("PCAP_GROUP_va", "7");
        let program = program.set("PCAP_GROUP_vb", "8");
        let member = program
            .set("PCAP_FANOUT", "udp >-> steer_flow")
            .start(&wire.scratch)?;
        member::wait_for_members(7, 1)?;
        member::wait_for_members(8, 1)?;
        let (frames, udp) = mixed(14, Transport::Udp)?;
        wire.send(&frames)?;
        // Each frame is captured on both devices.
        let captures = finish(vec![member], 2 * udp.len())?;
        ensure!(captures[0].packets.len() == 2 * udp.len());
        Ok(())
    })
}
