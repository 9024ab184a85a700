//! Measures the time that a BPF program takes for a packet in the kernel, and the time to load a
//! program.

use std::hint::black_box;
use std::time::{Duration, Instant};

use fanpcap_linux::bpf::Loaded;
use fanpcap_steer::ebpf;
use fanpcap_steer::parts::Parts;
use fanpcap_steer::{Balance, GroupOptions, modes, tree};
use fanpcap_testkit::frames;

use super::group::Group;
use super::written::compiled;

const REPEAT: u32 = 200_000;
const ROUNDS: usize = 5;

fn packets() -> [(&'static str, Vec<u8>); 5] {
    let datagram = frames::udp(1111, 2222, &[0; 22]);
    let udp4 = frames::ethernet(0x0800, &frames::v4(17, 0x4000, &datagram));
    let udp6 = frames::ethernet(0x86dd, &frames::v6(17, &datagram));
    let vxlan = [&[8, 0, 0, 0, 0, 0, 1, 0], &*udp4].concat();
    let vxlan = frames::v4(17, 0x4000, &frames::udp(1111, 4789, &vxlan));
    let tagged = [&[0, 100, 0x08, 0], &udp4[14..]].concat();
    [
        ("IPv4, UDP", udp4),
        ("IPv6, UDP", udp6),
        ("tagged", frames::ethernet(0x8100, &tagged)),
        ("VXLAN", frames::ethernet(0x0800, &vxlan)),
        ("ARP", frames::ethernet(0x0806, &[0; 46])),
    ]
}

/// The time for a packet in nanoseconds, in the fastest of several rounds.
fn time(loaded: &Loaded, frame: &[u8]) -> u32 {
    let rounds = (0..ROUNDS).map(|_| loaded.time(frame, REPEAT).unwrap().1);
    rounds.min().unwrap_or_default()
}

/// Measures four variants of the mode `flow` in turn: without a table, with a table, with
/// remembered flows, and with counts of buckets. The variable FANPCAP_PROOF_REPEAT sets how often a
/// round runs a program.
#[test]
#[ignore = "needs root: eBPF; prints measurements, of which only coarse limits can fail"]
fn a_table_costs_little() {
    const ROUNDS: usize = 11;
    let repeat = std::env::var("FANPCAP_PROOF_REPEAT");
    let repeat = repeat.map_or(REPEAT, |repeat| repeat.parse().unwrap());
    let datagram = frames::udp(1111, 2222, &[0; 18]);
    let segment = [&datagram[..4], &[0; 22]].concat();
    let table = Group(0).table();
    let parts = Parts::of(&compiled(modes::source("flow").unwrap())).unwrap();
    let sticky = |parts: &Parts| ebpf::fanout_with(parts, GroupOptions::sticky(65_536));
    let balanced = |parts: &Parts| ebpf::fanout_with(parts, GroupOptions::balanced(Balance::Idle));
    let endings: [fn(&Parts) -> _; 4] =
        [ebpf::fanout_without_table, ebpf::fanout, sticky, balanced];
    let endings = endings.map(|compile| table.load(&compile(&parts).unwrap(), "cost").unwrap());
    for (what, protocol, payload) in [("UDP", 17, datagram), ("TCP", 6, segment)] {
        let frame = frames::ethernet(0x0800, &frames::v4(protocol, 0x4000, &payload));
        assert_eq!(frame.len(), 60);
        let rounds = (0..ROUNDS).map(|_| {
            endings
                .each_ref()
                .map(|it| it.time(&frame, repeat).unwrap().1)
        });
        let rounds: Vec<_> = rounds.collect();
        let [without, by_table, sticky, balanced] = [0, 1, 2, 3].map(|ending| {
            let mut times: Vec<_> = rounds.iter().map(|round| round[ending]).collect();
            times.sort_unstable();
            (times[ROUNDS / 2], times[0], times[ROUNDS - 1])
        });
        println!(
            "{what}, medians and ranges: without a table {without:?} ns, with a table {by_table:?} ns, \
             sticky {sticky:?} ns, balanced {balanced:?} ns"
        );
        assert!(by_table.0 < without.0 + 50 && sticky.0 < without.0 + 200);
        assert!(balanced.0 < by_table.0 + 50);
    }
}

/// A steering program of 50 lines, as users with many conditions write it.
fn fifty_lines() -> String {
    let lines = [
        "    when (has_port 53 .||. has_addr \"192.168.0.0/16\") (inc 1)\n",
        "    unless is_frag (conditional (ip_ttl .< 64) (inc 2) (inc 3))\n",
        "    par3 (web >-> tcp) (filter (is_udp .&&. not is_multicast)) unit\n",
        "    vlan_id_filter [0, 1, 13, 42..45]\n",
    ];
    let lines: String = lines.iter().cycle().take(46).copied().collect();
    format!(
        "web = filter (has_port 80 .||. has_port 443)\n\nmain = do\n{lines}    inner steer_flow\n"
    )
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[test]
#[ignore = "needs root: eBPF; prints measurements, of which only coarse limits can fail"]
fn programs_load_quickly() {
    const RUNS: usize = 51;
    let table = Group(0).table();
    let usual = "main = filter (is_tcp .&&. has_port 443) >-> inner steer_flow".to_owned();
    for (name, source) in [("one line", usual), ("50 lines", fifty_lines())] {
        let mut sizes = [None; 3];
        let (mut compiling, mut loading) = (Vec::new(), [Vec::new(), Vec::new(), Vec::new()]);
        for _ in 0..RUNS {
            let begin = Instant::now();
            let program = tree(black_box(&source), &|_| Ok(vec![]));
            let program =
                black_box(program.unwrap_or_else(|error| panic!("{}", error.render(&source))));
            compiling.push(begin.elapsed());
            for (hook, times) in super::side::HOOKS.into_iter().zip(&mut loading) {
                let begin = Instant::now();
                let object = hook.object(&program).unwrap();
                let loaded = object.map(|object| {
                    let loaded = table.load(&object, "cost").unwrap();
                    (object.instructions.len(), loaded)
                });
                times.push(begin.elapsed());
                sizes[hook as usize] =
                    loaded.map(|(size, loaded)| (size, loaded.verified().unwrap()));
            }
        }
        let [group, filter, xdp] = loading.map(median);
        println!(
            "{name}: medians: compiled in {:?}; assembled and loaded: the group's BPF program {group:?}, a member's filter {filter:?}, the BPF program at XDP {xdp:?}",
            median(compiling)
        );
        println!(
            "  numbers of instructions, and of instructions that the verifier visited: {sizes:?}"
        );
        assert!(group + filter < Duration::from_millis(500));
    }
}

/// Tests that take too long for the usual runs.
mod long {
    use super::*;

    #[test]
    #[ignore = "needs root: eBPF; prints measurements, of which only coarse limits can fail"]
    fn packets_cost_little() {
        let sources = [
            ("steer_to", "steer_to 0"),
            ("mode flow", modes::source("flow").unwrap()),
            ("steer_flow", "steer_flow"),
            ("steer_flow_5_tuple", "steer_flow_5_tuple"),
            ("steer_p2p", "steer_p2p"),
            ("steer_link", "steer_link"),
            ("key_5tuple", "steer_key key_5tuple"),
            (
                "three filters",
                "par3 (filter (has_port 80) >-> steer_flow) (udp >-> addr \"10.0.0.0/8\" >-> steer_p2p) steer_link",
            ),
        ];
        let table = Group(0).table();
        for (name, source) in sources {
            let program = compiled(source);
            let socket = ebpf::fanout(&Parts::of(&program).unwrap()).unwrap();
            let xdp = ebpf::xdp_decision(&program).unwrap();
            println!(
                "{name}: {} instructions in a group, {} at XDP",
                socket.instructions.len(),
                xdp.instructions.len()
            );
            let [socket, xdp] = [socket, xdp].map(|object| table.load(&object, "cost").unwrap());
            for (what, frame) in packets() {
                let (group, device) = (time(&socket, &frame), time(&xdp, &frame));
                println!("  {what}: {group} ns in a group, {device} ns at XDP");
                assert!(group < 2000 && device < 2000);
            }
        }
    }
}
