//! A device by the name under which an application opens it on an engine.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::asked::{Shell, within};

/// The findings with this name about the device of this name, each as its fix.
fn fixes(arguments: &str, place: &str, name: &str) -> Result<Vec<String>> {
    let shell = Shell::new(arguments)?;
    let (_, said) = shell.run(&format!("fanpcap doctor {arguments} --json 2>&1"))?;
    let line = said.lines().last().context("doctor's line")?;
    let told: Value = serde_json::from_str(line).with_context(|| said.clone())?;
    ensure!(told["device"] == place, "{said}");
    let findings = told["findings"].as_array().context("findings")?;
    let found = findings
        .iter()
        .filter(|it| it["name"] == name && it["place"] == place);
    let fix = |it: &Value| it["fix"].as_str().unwrap_or_default().to_owned();
    Ok(found.map(fix).collect())
}

#[test]
#[ignore = "needs root: a namespace"]
fn each_engine_s_name_of_a_device_gets_an_answer() -> Result<()> {
    within(|_| {
        for engine in ["tpacket", "xdp", "pfq"] {
            let device = format!("{engine}:fdr1");
            assert!(fixes(&device, &device, "no-poller")?.is_empty());
            let (_, said) = Shell::new(&device)?.run(&format!("fanpcap doctor {device} 2>&1"))?;
            ensure!(said.starts_with("Looked at fdr1 (groups: 0"), "{said}");
        }
        for engine in ["packet", "afxdp", "netmap", "zc"] {
            let device = format!("{engine}:fdr1");
            let fix = format!("fanpcap poller {device}    # as root");
            assert_eq!(fixes(&device, &device, "no-poller")?, [fix]);
        }
        for (device, lacks) in [
            ("packet:fdr1", None),
            ("netmap:fdr1", Some("modprobe netmap")),
            ("afxdp:lo", Some("fanpcap poller packet:lo ")),
            ("zc:fdr1", Some("pfring")),
            ("pfring:fdr1", Some("pfring")),
        ] {
            let found = fixes(device, device, "engine-lacks")?;
            let is_told = |lack| found.iter().any(|it| it.contains(lack));
            ensure!(
                lacks.map_or(found.is_empty(), is_told),
                "{device}: {found:?}"
            );
        }
        Ok(())
    })
}

/// No network device has such a name.
#[test]
#[ignore = "needs root: a namespace"]
fn a_device_of_dpdk_gets_an_answer() -> Result<()> {
    within(|_| {
        for device in ["dpdk:0000:3b:00.0", "dpdk:net_null0"] {
            let fix = format!("fanpcap poller {device}    # as root");
            assert_eq!(fixes(device, device, "no-poller")?, [fix]);
        }
        let shell = Shell::new("")?.set("FANPCAP_DPDK_PLUGIN", "/absent/fanpcap-dpdk.so");
        let (status, said) = shell.run("fanpcap doctor dpdk:ffff:1f:1f.7 2>&1")?;
        ensure!(status == 3, "{said}");
        for expected in [
            "Looked at dpdk:ffff:1f:1f.7 (groups: 0",
            "Fix: apt-get install fanpcap-dpdk ",
            "there is no PCI device ffff:1f:1f.7",
        ] {
            ensure!(said.contains(expected), "{said}");
        }
        Ok(())
    })
}

/// A member of a poller needs no capability, but one of PF_RING does.
#[test]
#[ignore = "needs root: a namespace"]
fn only_privileges_that_the_engine_needs_are_missed() -> Result<()> {
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
                "run -n 1 -i dpdk:net_null0 -- p0f",
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
