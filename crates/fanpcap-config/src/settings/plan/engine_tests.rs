//! Tests which handles are on the XDP engine, and what these handles request from the engine.

use super::tests::{joins, plan_with, refusal, settings};
use super::*;
use crate::settings::Steal;
use crate::source::Source;

/// A handle's requirements for the XDP engine.
fn on_engine(variables: &[(&str, &str)], config: &str, device: &str) -> Option<OnEngine> {
    let settings = settings(variables, config);
    plan_with(&settings, device, None).unwrap().on_engine
}

/// The setting that asks for the XDP engine; empty if none does.
fn asks(variables: &[(&str, &str)], config: &str, device: &str) -> String {
    on_engine(variables, config, device).map_or_else(String::new, |asked| asked.origin)
}

#[test]
fn the_engine_is_asked_for_by_the_devices_name_then_the_environment_then_the_file() {
    let (variable, file) = ([("PCAP_DRIVER", "xdp")], "driver@eth0 = xdp");
    assert_eq!(asks(&variable, "", "eth0"), "PCAP_DRIVER=xdp");
    assert_eq!(asks(&variable, file, "eth0"), "PCAP_DRIVER=xdp");
    assert_eq!(asks(&[], file, "eth0"), "/etc/pcap.conf:1");
    assert_eq!(asks(&[], file, "eth0:1"), "/etc/pcap.conf:1");
    assert_eq!(asks(&[], file, "eth1"), "");
    assert_eq!(asks(&[], "", "xdp:eth1"), "xdp:eth1");
    assert_eq!(asks(&variable, file, "tpacket:eth0"), "");
    assert_eq!(asks(&variable, "", "zc:0"), "");
    assert_eq!(asks(&[("PCAP_DRIVER", "tpacket")], file, "eth0"), "");
    assert_eq!(
        asks(&[("PCAP_DRIVER", "tpacket")], file, "xdp:eth0"),
        "xdp:eth0"
    );
}

#[test]
fn packet_sockets_stand_in_for_the_engine() {
    let config = "driver@eth0 = xdp\nsteal@eth0 = yes\ngroup = 3\nfanout = hash+rollover";
    let settings = settings(&[], config);
    let device = Device::classify("eth0", |_| true);
    let plan = |device: &Device| settings.plan(device, None, &[], &|_| unreachable!());
    assert_eq!(plan(&device).unwrap_err().slug, "mode-not-on-xdp");
    let plan = plan(&device.falling_back()).unwrap();
    assert!(plan.tpacket && plan.on_engine.is_none());
    assert_eq!(plan.choice.unwrap().shown_mode(), "hash+rollover");
}

#[test]
fn the_host_keeps_its_packets_and_its_own_are_captured_unless_settings_say_otherwise() {
    let asked = |lines: &str| {
        let asked = on_engine(&[("PCAP_DRIVER", "xdp")], lines, "eth0").unwrap();
        (asked.steal, asked.outgoing)
    };
    assert_eq!(asked(""), (Steal::No, true));
    assert_eq!(asked("outgoing@eth0 = no"), (Steal::No, false));
    assert_eq!(asked("steal@eth0 = yes"), (Steal::Yes, false));
    assert_eq!(
        asked("steal@eth0 = force\noutgoing@eth0 = yes"),
        (Steal::Force, true)
    );
    assert_eq!(asked("steal@eth1 = yes"), (Steal::No, true));
}

#[test]
fn settings_of_the_engine_are_refused_on_packet_sockets() {
    for line in [
        "steal@eth0 = yes",
        "steal@eth0 = force",
        "outgoing@eth0 = no",
    ] {
        let refused = ("setting-needs-xdp", line.to_owned());
        assert_eq!(refusal(&[], line, "eth0"), refused);
        assert_eq!(
            refusal(&[("PCAP_DRIVER", "xdp")], line, "tpacket:eth0:1"),
            refused
        );
        assert_eq!(joins(&[], line, "eth1"), "");
        assert_eq!(joins(&[], line, "xdp:eth0"), "");
    }
    for line in ["steal@eth0 = no", "outgoing@eth0 = yes"] {
        assert_eq!(joins(&[], line, "eth0"), "");
    }
}

#[test]
fn the_kernels_modes_are_steering_programs() {
    let joined = |mode: &str| {
        let config = format!("group = 3\nfanout = {mode}");
        joins(&[("PCAP_DRIVER", "xdp")], &config, "eth0")
    };
    let at = "/etc/pcap.conf:1";
    assert_eq!(joined("hash"), format!("3 program [flow] {at}"));
    assert_eq!(
        joined("lb"),
        format!("3 program [main = steer_rrobin] {at}")
    );
    assert_eq!(joined("rnd"), format!("3 program [main = steer_rnd] {at}"));
    assert_eq!(joined("cpu"), format!("3 program [main = steer_cpu] {at}"));
    assert_eq!(joined("flow+weight=2"), format!("3 program [flow] {at}"));
    for mode in [
        "qm",
        "rollover",
        "hash+defrag",
        "lb+rollover",
        "flow+defrag",
    ] {
        let config = format!("group = 3\nfanout = {mode}");
        let refused = ("mode-not-on-xdp", format!("fanout = {mode}"));
        assert_eq!(refusal(&[("PCAP_DRIVER", "xdp")], &config, "eth0"), refused);
    }
    let call = FanoutCall {
        group: Group::Number(3),
        fanout: Some(Fanout::parse(Source::new("call", "qm")).unwrap()),
    };
    let report = plan_with(&settings(&[], ""), "xdp:eth0", Some(&call)).unwrap_err();
    assert_eq!(report.slug, "mode-not-on-xdp");
}

/// The plan of a handle whose packets come from a poller.
fn polled(variables: &[(&str, &str)], config: &str, device: &str) -> Plan {
    plan_with(&settings(variables, config), device, None).unwrap()
}

#[test]
fn pollers_are_asked_for_as_engines_are() {
    let asks = |variables, config, device| {
        let plan = polled(variables, config, device);
        assert!(plan.on_engine.is_none());
        plan.polled.map(|it| (it.engine.name(), it.origin))
    };
    let (variable, file) = ([("PCAP_DRIVER", "packet")], "driver@eth0 = afxdp");
    let expected = |name, origin: &str| Some((name, origin.to_owned()));
    assert_eq!(
        asks(&[], "", "packet:eth0"),
        expected("packet", "packet:eth0")
    );
    assert_eq!(
        asks(&[], file, "eth0"),
        expected("afxdp", "/etc/pcap.conf:1")
    );
    let by_variable = expected("packet", "PCAP_DRIVER=packet");
    assert_eq!(asks(&variable, file, "eth0"), by_variable);
    assert_eq!(asks(&variable, file, "tpacket:eth0"), None);
    assert_eq!(asks(&[], file, "eth1"), None);
    let plan = polled(&variable, "", "eth0");
    assert!(plan.is_read_by_us() && plan.buffer_size().is_none() && !plan.tpacket);
    assert_eq!(plan.choice, None);
}

#[test]
fn what_holds_for_engines_that_attach_to_devices_does_not_hold_for_pollers() {
    let outgoing = |lines: &str| polled(&[], lines, "packet:eth0").polled.unwrap().outgoing;
    assert!(outgoing("") && !outgoing("outgoing@eth0 = no"));
    let (name, _) = refusal(&[], "steal@eth0 = yes", "packet:eth0");
    assert_eq!(name, "setting-needs-xdp");
    let of_afxdp = |lines: &str| polled(&[], lines, "afxdp:eth0").polled.unwrap().outgoing;
    assert!(!of_afxdp("") && !of_afxdp("outgoing@eth0 = no"));
    let (name, _) = refusal(&[], "outgoing@eth0 = yes", "afxdp:eth0");
    assert_eq!(name, "sent-not-captured");
    // libpcap reads devices that are no network interfaces.
    let device = Device::classify("packet:eth0", |name| name == "eth0");
    let settings = settings(&[], "");
    let plan = |device: &Device| settings.plan(device, None, &[], &|_| unreachable!());
    assert!(plan(&device.falling_back()).unwrap().polled.is_none());
}

#[test]
fn groups_of_pollers_have_steering_programs() {
    let shown = |fanout: &str| {
        let config = format!("group = 3\nfanout = {fanout}");
        let choice = polled(&[], &config, "packet:eth0").choice.unwrap();
        choice.shown_mode()
    };
    assert_eq!(shown("hash"), "flow");
    assert_eq!(shown("flow+sticky=2048"), "flow+sticky=2048");
    let (name, _) = refusal(&[], "group = 3\nfanout = qm", "packet:eth0");
    assert_eq!(name, "mode-not-on-xdp");
    let steering = |fanout: &str| {
        let config = format!("group = 3\nfanout = {fanout}");
        let choice = polled(&[], &config, "packet:eth0").choice.unwrap();
        let steering = choice.steering.unwrap();
        (steering.program().to_owned(), steering.options())
    };
    let (program, options) = steering("flow+sticky=2048+balance");
    assert!(
        program.contains("steer_flow") && !program.contains('+'),
        "{program}"
    );
    assert_eq!(options.flows, Some(2048));
    assert!(options.balance.is_some());
    assert_eq!(
        steering("main = udp >-> steer_rrobin").0,
        "main = udp >-> steer_rrobin"
    );
}
