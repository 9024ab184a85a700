//! Checks that loading needs `CAP_BPF`, and no capability that allows reading the kernel's memory.

use super::frames::*;
use super::*;
use std::process::{Command, Output};

/// Runs a test of this file in a process with these capabilities, by setpriv(1).
fn with(capabilities: &str, test: &str) -> Option<Output> {
    let these = format!("-all{capabilities}");
    let output = Command::new("setpriv")
        .args(["--bounding-set", &these, "--inh-caps", &these])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture"])
        .arg(format!("ebpf::tests::privilege::{test}"))
        .env("FANPCAP_TEST_WITH", capabilities)
        .output();
    if output.is_err() {
        println!("SKIP: setpriv(1) is missing");
    }
    output.ok()
}

fn is_child() -> bool {
    std::env::var_os("FANPCAP_TEST_WITH").is_some()
}

fn expect(output: &Output) {
    let text = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    // The output of the other process is indented, unlike the output of this process.
    text.lines().for_each(|line| println!("  {line}"));
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

#[test]
#[ignore = "needs root: eBPF"]
fn cap_bpf_is_enough_for_sockets() {
    if let Some(output) = with(",+bpf,+net_raw", "as_child_all_socket_programs_load") {
        expect(&output);
    }
}

#[test]
#[ignore = "needs root: eBPF"]
fn cap_bpf_and_net_admin_are_enough_for_xdp() {
    if let Some(output) = with(",+bpf,+net_admin", "as_child_the_xdp_program_loads") {
        expect(&output);
    }
}

#[test]
#[ignore = "needs root: eBPF"]
fn without_cap_bpf_the_error_says_so() {
    if let Some(output) = with(",+net_raw", "as_child_nothing_loads") {
        expect(&output);
    }
}

#[test]
#[ignore = "needs root: a child of the test that takes capabilities away"]
fn as_child_all_socket_programs_load() {
    if !is_child() {
        return;
    }
    super::limits::the_kernel_takes_sockets_programs_with_all_nodes();
    for (name, frame) in [
        ("udp4", udp4()),
        ("udp6", udp6()),
        ("arp", arp()),
        ("vxlan", tunnels().swap_remove(9).1),
    ] {
        // Measures the cost of barriers against speculation: the verifier adds them without
        // CAP_PERFMON.
        for options in [GroupOptions::default(), GroupOptions::sticky(65_536)] {
            let object = by_table(&program(flow_mode()), options).unwrap();
            let loaded = load_with(&object, &table()).unwrap();
            assert!(loaded.verified().unwrap() < 10_000);
            // A process with only CAP_BPF can make trial runs of socket programs only, not of XDP
            // programs.
            match loaded.time(&frame, 1_000_000) {
                Ok((_, nanoseconds)) => println!(
                    "{name}, {options:?}: {nanoseconds} ns, {} verified",
                    loaded.verified().unwrap()
                ),
                Err(error) => println!("{name}: {error}"),
            }
        }
    }
}

#[test]
#[ignore = "needs root: a child of the test that takes capabilities away"]
fn as_child_the_xdp_program_loads() {
    if !is_child() {
        return;
    }
    let loaded = Loaded::load(&xdp_decision(&program(flow_mode())).unwrap(), "test").unwrap();
    println!(
        "{:?}, {} verified",
        loaded.time(&udp4(), 1_000_000),
        loaded.verified().unwrap()
    );
    println!("{:?}", loaded.time(&tunnels().swap_remove(9).1, 1_000_000));
    for main in [
        Function::Pass,
        Function::Broadcast,
        Function::Steer(Steer::DoubleIp),
    ] {
        let copied = Function::Sequence(vec![Function::Host(false), main]);
        super::deliver::loaded(copied, GroupOptions::default(), &table_at_xdp());
    }
    for options in [GroupOptions::default(), GroupOptions::sticky(65_536)] {
        let loaded = super::deliver::loaded(flow_mode(), options, &table_at_xdp());
        println!(
            "with delivery, {options:?}: {:?}, {} verified",
            loaded.time(&udp4(), 1_000_000),
            loaded.verified().unwrap()
        );
    }
}

#[test]
#[ignore = "needs root: a child of the test that takes capabilities away"]
fn as_child_nothing_loads() {
    if !is_child() {
        return;
    }
    for main in [flow_mode(), Function::Count(1, 1), Function::Pass] {
        let error = Loaded::load(&fanout_of(&program(main.clone())).unwrap(), "test").unwrap_err();
        let reason = "takes CAP_BPF, which this process lacks or has given up:";
        assert!(error.to_string().contains(reason), "{error}");
        let error = Loaded::load(&xdp_decision(&program(main)).unwrap(), "test").unwrap_err();
        assert!(
            error.to_string().contains(
                "takes CAP_BPF and CAP_NET_ADMIN, which this process lacks or has given up:"
            ),
            "{error}"
        );
    }
}
