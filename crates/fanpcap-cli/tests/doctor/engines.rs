//! A device by the name under which an application opens it on an engine.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::{Scratch, needs};
use serde_json::Value;

use crate::asked::{Shell, within};

/// Runs a doctor for each device, all at the same time. Returns what each of them prints.
fn ask_all(scratch: &Scratch, devices: &[&str]) -> Result<BTreeMap<String, Value>> {
    let shell = Shell::new("")?.set("FANPCAP_DPDK_PLUGIN", "/absent/fanpcap-dpdk.so");
    let file = |device: &&str| scratch.file(device).display().to_string();
    let ask = |it: &&str| format!("fanpcap doctor {it} --json > {} &\n", file(it));
    shell.run(&format!(
        "{}wait",
        devices.iter().map(ask).collect::<String>()
    ))?;
    let answer = |device: &&str| {
        let said = fs::read_to_string(file(device))?;
        let answer: Value =
            serde_json::from_str(&said).with_context(|| format!("{device}: {said}"))?;
        ensure!(answer["device"] == *device, "{said}");
        Ok(((*device).to_owned(), answer))
    };
    devices.iter().map(answer).collect()
}

/// The fixes of the findings with this name about the device.
fn fixes<'a>(answer: &'a Value, name: &str) -> Vec<&'a str> {
    let findings = answer["findings"].as_array().into_iter().flatten();
    let found = findings.filter(|it| it["name"] == name && it["place"] == answer["device"]);
    found.filter_map(|it| it["fix"].as_str()).collect()
}

#[test]
#[ignore = "needs root: a namespace"]
fn each_engines_name_of_a_device_gets_an_answer() -> Result<()> {
    // The answers' beginnings: of no-poller, and of engine-lacks.
    let expected = [
        ("tpacket:fdr1", false, None),
        ("xdp:fdr1", false, None),
        ("pfq:fdr1", false, None),
        ("packet:fdr1", true, None),
        ("afxdp:fdr1", true, None),
        ("afxdp:lo", true, Some("fanpcap poller packet:lo ")),
        ("netmap:fdr1", true, Some("modprobe netmap ")),
        ("zc:fdr1", true, Some("apt-get install pfring ")),
        ("pfring:fdr1", false, Some("apt-get install pfring ")),
        (
            "dpdk:net_null0",
            true,
            Some("apt-get install fanpcap-dpdk "),
        ),
        // No network device has such a name.
        (
            "dpdk:ffff:1f:1f.7",
            true,
            Some("apt-get install fanpcap-dpdk "),
        ),
    ];
    within(|scratch| {
        let answers = ask_all(scratch, &expected.map(|it| it.0))?;
        for (device, needs_poller, lack) in expected {
            let answer = &answers[device];
            let poller = format!("fanpcap poller {device}    # as root");
            let pollers = needs_poller.then_some(poller.as_str());
            ensure!(
                fixes(answer, "no-poller").into_iter().eq(pollers),
                "{answer}"
            );
            let lacks = fixes(answer, "engine-lacks");
            let first = lacks.first().copied();
            ensure!(first.is_some() == lack.is_some(), "{answer}");
            ensure!(
                first
                    .unwrap_or_default()
                    .starts_with(lack.unwrap_or_default()),
                "{answer}"
            );
        }
        let of_pci = fixes(&answers["dpdk:ffff:1f:1f.7"], "engine-lacks");
        let is_list = |fix: &&str| fix.starts_with("dpdk-devbind.py --status");
        ensure!(of_pci.iter().any(is_list), "{of_pci:?}");
        Ok(())
    })
}

/// A member of a poller needs no capability, but one of PF_RING does.
#[test]
#[ignore = "needs root: a namespace"]
fn only_privileges_that_the_engine_needs_are_missed() -> Result<()> {
    if !needs::user_namespaces() {
        return Ok(());
    }
    within(|_| {
        let shell = Shell::new("")?;
        let without = |device: &str, capabilities: &str| {
            shell.run(&format!(
                "setpriv --bounding-set {capabilities} fanpcap doctor {device} 2>&1"
            ))
        };
        let (_, said) = without("packet:fdr1", "-net_raw,-net_admin,-bpf,-sys_admin")?;
        ensure!(!said.contains("no-cap-"), "{said}");
        let (status, said) = without("pfring:fdr1", "-net_admin")?;
        ensure!(status == 3 && said.contains("no-cap-net-admin"), "{said}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: a namespace"]
fn other_commands_take_the_same_names() -> Result<()> {
    within(|_| {
        let shell = Shell::new("")?;
        let (_, said) = shell.run("fanpcap doctor xdp:fdr1 2>&1")?;
        ensure!(said.starts_with("Looked at fdr1 (groups: 0"), "{said}");
        for command in [
            "tune xdp:fdr1",
            "tune packet:fdr1",
            "top --once xdp:fdr1",
            "group tpacket:fdr1",
            "metrics pfq:fdr1",
            "config dpdk:0000:3b:00.0",
        ] {
            let (status, said) = shell.run(&format!("fanpcap {command} 2>&1"))?;
            ensure!(status == 0, "{command}: {said}");
        }
        let run = "run -n 1 -- tcpdump -i dpdk:0000:3b:00.0 -w %i.pcap";
        for (command, expected) in [
            ("tune dpdk:0000:3b:00.0", "'fanpcap poller' sets its queues"),
            ("top --once pfring:fdr1", "below /proc/net"),
            ("group dpdk:net_null0", "no poller serves dpdk:net_null0"),
            ("verify dpdk:net_null0", "no poller serves dpdk:net_null0"),
            (run, "'fanpcap poller dpdk:0000:3b:00.0'"),
            (
                "run -n 1 -i dpdk:net_null0 -- tcpdump",
                "'fanpcap poller dpdk:net_null0'",
            ),
        ] {
            let (status, said) = shell.run(&format!("fanpcap {command} 2>&1"))?;
            ensure!(status != 0 && said.contains(expected), "{command}: {said}");
        }
        let (_, said) = shell.run("fanpcap config dpdk:0000:3b:00.0 --json")?;
        ensure!(said.contains("fanpcap poller dpdk:0000:3b:00.0"), "{said}");
        Ok(())
    })
}
