//! Tests of the precedence of the application's call, the environment and the file, and of the
//! settings that a handle refuses.

use super::*;
use crate::settings::Environment;
use crate::source::Source;
use std::path::PathBuf;

const INTERFACES: [&str; 4] = ["eth0", "eth1", "eth2.7", "wan-1"];

pub(super) fn settings(variables: &[(&str, &str)], config: &str) -> Settings {
    let owned = |(name, value): &(&str, &str)| (name.into(), value.into());
    let variables = variables.iter().map(owned).collect();
    let system_config = PathBuf::new();
    let environment = Environment {
        variables,
        secure: false,
        system_config,
    };
    Settings::parse(&environment, config, "/etc/pcap.conf").unwrap()
}

pub(super) fn plan_with(
    settings: &Settings,
    device: &str,
    call: Option<&FanoutCall>,
) -> Result<Plan, Report> {
    let device = Device::classify(device, |name| INTERFACES.contains(&name));
    let pcap = |_: &str| Err("no libpcap here".to_owned());
    let compile = |script: &Script| Steering::compile(script, &pcap).map(Arc::new);
    settings.plan(&device, call, &INTERFACES.map(str::to_owned), &compile)
}

/// The group that a handle joins, with mode and origin, as text; empty if it joins no group.
pub(super) fn joins(variables: &[(&str, &str)], config: &str, device: &str) -> String {
    shown(plan_with(&settings(variables, config), device, None))
}

fn shown(plan: Result<Plan, Report>) -> String {
    let Some(joined) = plan.unwrap().choice else {
        return String::new();
    };
    let group = match joined.group {
        Group::Number(group) => group.to_string(),
        Group::New => "new".to_owned(),
    };
    if joined.is_default {
        let title = joined.steering.as_ref().map(|steering| steering.title());
        assert_eq!(
            (joined.shown_mode().as_str(), title),
            ("flow", Some("flow"))
        );
        return format!("{group} default {}", joined.origin);
    }
    let program = joined
        .steering
        .map(|steering| format!(" [{}]", steering.title()));
    let (mode, program, origin) = (joined.mode, program.unwrap_or_default(), joined.origin);
    format!("{group} {mode}{program} {origin}")
}

pub(super) fn refusal(
    variables: &[(&str, &str)],
    config: &str,
    device: &str,
) -> (&'static str, String) {
    let report = plan_with(&settings(variables, config), device, None).unwrap_err();
    (report.slug, report.place.unwrap().text)
}

#[test]
fn nothing_set_means_nothing_done() {
    assert!(settings(&[], "# nothing").is_empty());
    assert!(settings(&[("PCAP_HUB", "auto")], "").is_empty());
    assert!(!settings(&[], "caplen = 1").is_empty());
    for device in ["eth0", "rpcap:eth0", "eth0^eth1", "nflog:5"] {
        let plan = plan_with(&Settings::default(), device, None).unwrap();
        assert_eq!(plan, Plan::default(), "{device}");
    }
}

#[test]
fn the_group_comes_from_the_first_that_names_one() {
    let file = "group_eth0 = 3\ndef_group = 4";
    assert_eq!(joins(&[], file, "eth0"), "3 default /etc/pcap.conf:1");
    assert_eq!(joins(&[], file, "eth1"), "4 default /etc/pcap.conf:2");
    let default = ("PCAP_GROUP", "7");
    assert_eq!(joins(&[default], file, "eth0"), "7 default PCAP_GROUP=7");
    let variables = [default, ("PCAP_GROUP_eth0", "9")];
    assert_eq!(
        joins(&variables, file, "eth0"),
        "9 default PCAP_GROUP_eth0=9"
    );
    assert_eq!(joins(&variables, file, "eth1"), "7 default PCAP_GROUP=7");
    assert_eq!(joins(&[], "group_eth0 = 3", "eth1"), "");
}

#[test]
fn the_mode_comes_from_the_first_that_names_one() {
    let file = "def_group = 4\ngroup_eth1 = 5\nfanout = lb\nfanout@5 = rnd\nfanout@4 = cpu";
    assert_eq!(joins(&[], file, "eth0"), "4 cpu /etc/pcap.conf:1");
    assert_eq!(joins(&[], file, "eth1"), "5 rnd /etc/pcap.conf:2");
    let variables = [("PCAP_FANOUT", "qm"), ("PCAP_FANOUT_eth0", "rollover")];
    assert_eq!(
        joins(&variables, file, "eth0"),
        "4 rollover /etc/pcap.conf:1"
    );
    assert_eq!(joins(&variables, file, "eth1"), "5 qm /etc/pcap.conf:2");
}

#[test]
fn a_plain_fanout_is_the_default_groups_wherever_that_is_set() {
    let file = "def_group = 4\nfanout = lb\ngroup_eth1 = 5\ngroup_wan-1 = 4";
    assert_eq!(joins(&[], file, "eth0"), "4 lb /etc/pcap.conf:1");
    assert_eq!(joins(&[], file, "eth1"), "5 default /etc/pcap.conf:3");
    assert_eq!(joins(&[], file, "wan-1"), "4 lb /etc/pcap.conf:4");
    assert_eq!(
        joins(&[("PCAP_GROUP", "8")], "fanout = lb", "eth0"),
        "8 lb PCAP_GROUP=8"
    );
}

#[test]
fn the_application_wins_field_by_field() {
    let call = |group, mode: Option<&str>| FanoutCall {
        group,
        fanout: mode.map(|text| Fanout::parse(Source::new("call", text)).unwrap()),
    };
    let file = "def_group = 4\nfanout = lb\nfanout@6 = rnd";
    let joins = |variables: &[(&str, &str)], call| {
        shown(plan_with(&settings(variables, file), "eth0", Some(&call)))
    };
    assert_eq!(
        joins(&[("PCAP_GROUP", "7")], call(Group::Number(6), None)),
        "6 rnd pcap_fanout()"
    );
    assert_eq!(
        joins(&[], call(Group::Number(4), None)),
        "4 lb pcap_fanout()"
    );
    assert_eq!(
        joins(&[], call(Group::New, None)),
        "new default pcap_fanout()"
    );
    let variables = [("PCAP_FANOUT", "qm")];
    assert_eq!(
        joins(&variables, call(Group::New, None)),
        "new qm pcap_fanout()"
    );
    assert_eq!(
        joins(&variables, call(Group::New, Some("cpu"))),
        "new cpu pcap_fanout()"
    );
}

#[test]
fn the_application_wins_over_a_variable_that_is_ambiguous() {
    let call = FanoutCall {
        group: Group::Number(6),
        fanout: Some(Fanout::Mode(ModeKind::Lb.into())),
    };
    let settings = settings(&[("PCAP_GROUP_eth2_7", "5")], "");
    let plan = plan_with(&settings, "eth2:7", Some(&call));
    assert_eq!(shown(plan), "6 lb pcap_fanout()");
}

#[test]
fn caplen_is_the_environments_else_the_files() {
    let caplen = |variables: &[(&str, &str)], config| {
        plan_with(&settings(variables, config), "eth0", None)
            .unwrap()
            .caplen
    };
    assert_eq!(caplen(&[], "caplen = 64"), Some(64));
    assert_eq!(caplen(&[("PCAP_CAPLEN", "96")], "caplen = 64"), Some(96));
    assert_eq!(caplen(&[("PCAP_GROUP", "7")], ""), None);
}

#[test]
fn virtual_devices_have_entries_of_their_own() {
    let file = "group_eth0 = 11\ngroup_eth0:1 = 23";
    assert_eq!(joins(&[], file, "eth0:1"), "23 default /etc/pcap.conf:2");
    assert_eq!(joins(&[], file, "eth0"), "11 default /etc/pcap.conf:1");
    assert_eq!(joins(&[], file, "eth0:2"), "");
    assert_eq!(
        joins(&[("PCAP_GROUP_eth0_1", "5")], "", "eth0:1"),
        "5 default PCAP_GROUP_eth0_1=5"
    );
    assert_eq!(joins(&[("PCAP_GROUP_eth0_1", "5")], "", "eth0"), "");
}

#[test]
fn variables_name_devices_exactly_or_with_underscores() {
    let name = |name| [(name, "5")];
    assert_eq!(
        joins(&name("PCAP_GROUP_wan-1"), "", "wan-1"),
        "5 default PCAP_GROUP_wan-1=5"
    );
    assert_eq!(
        joins(&name("PCAP_GROUP_wan_1"), "", "wan-1"),
        "5 default PCAP_GROUP_wan_1=5"
    );
    assert_eq!(
        joins(&name("PCAP_GROUP_wan_1"), "", "wan_1"),
        "5 default PCAP_GROUP_wan_1=5"
    );
    assert_eq!(joins(&name("PCAP_GROUP_WAN_1"), "", "wan-1"), "");
    let both = [("PCAP_GROUP_wan_1", "5"), ("PCAP_GROUP_wan-1", "6")];
    assert_eq!(joins(&both, "", "wan-1"), "6 default PCAP_GROUP_wan-1=6");
    let text = "PCAP_GROUP_eth2_7=5".to_owned();
    assert_eq!(
        refusal(&name("PCAP_GROUP_eth2_7"), "", "eth2:7"),
        ("variable-ambiguous", text)
    );
    let text = "PCAP_FANOUT_eth2_7=lb".to_owned();
    let variables = [("PCAP_FANOUT_eth2_7", "lb"), ("PCAP_GROUP", "1")];
    assert_eq!(
        refusal(&variables, "", "eth2-7"),
        ("variable-ambiguous", text)
    );
}

#[test]
fn a_mode_without_a_group_is_refused() {
    let refused = |text: &str| ("mode-without-group", text.to_owned());
    let env = [("PCAP_FANOUT", "lb")];
    assert_eq!(refusal(&env, "", "eth0"), refused("PCAP_FANOUT=lb"));
    assert_eq!(refusal(&[], "fanout = lb", "eth0"), refused("fanout = lb"));
    assert_eq!(refusal(&[], "> main", "eth0"), refused("> main"));
    assert_eq!(
        refusal(&[], "fanout = lb\ngroup_eth0 = 3", "eth0"),
        refused("fanout = lb")
    );
    let device = [("PCAP_FANOUT_eth0", "lb"), ("PCAP_GROUP_eth1", "3")];
    assert_eq!(refusal(&device, "", "eth0"), refused("PCAP_FANOUT_eth0=lb"));
    assert_eq!(joins(&device, "", "eth1"), "3 default PCAP_GROUP_eth1=3");
    assert_eq!(joins(&env, "group_eth1 = 3", "eth0"), "");
    assert_eq!(joins(&[], "fanout@3 = lb", "eth0"), "");
}

#[test]
fn the_rings_size_is_the_settings_on_every_engine() {
    let bytes = |variables: &[(&str, &str)], device: &str| {
        let file = "ring@eth0 = 32M\nring@eth1:1 = 2M\ngroup_eth1 = 3\n";
        let plan = plan_with(&settings(variables, file), device, None).unwrap();
        assert_eq!(
            plan.ring,
            plan.buffer_size().filter(|_| plan.ring.is_some())
        );
        plan.buffer_size().map(|bytes| bytes >> 20)
    };
    for device in ["eth0", "eth0:1", "xdp:eth0", "tpacket:eth0", "eth0^wan"] {
        assert_eq!(bytes(&[], device), Some(32), "{device}");
        assert_eq!(bytes(&[("PCAP_RING", "1G")], device), Some(1024));
    }
    let others = ["wan", "eth1", "tpacket:wan", "xdp:wan", "eth1:1"];
    let expected = [None, Some(16), Some(8), None, Some(2)];
    assert_eq!(others.map(|device| bytes(&[], device)), expected);
}

#[test]
fn the_engine_on_af_packet_is_asked_for_by_prefix_environment_or_file() {
    let asked = |variables: &[(&str, &str)], file: &str, device: &str| {
        let plan = plan_with(&settings(variables, file), device, None).unwrap();
        (plan.tpacket, plan.is_read_by_us())
    };
    let (none, yes) = ((false, false), (true, true));
    assert_eq!(asked(&[], "", "eth0"), none);
    assert_eq!(asked(&[], "", "tpacket:eth0"), yes);
    assert_eq!(asked(&[("PCAP_DRIVER", "tpacket")], "", "eth0"), yes);
    assert_eq!(asked(&[], "driver@eth0 = tpacket", "eth0:1"), yes);
    assert_eq!(asked(&[], "driver@eth0 = tpacket", "eth1"), none);
    assert_eq!(asked(&[], "group = 3", "eth0"), (false, true));
    let file = "driver@eth0 = zc";
    assert_eq!(asked(&[("PCAP_DRIVER", "tpacket")], file, "eth0"), yes);
}

#[test]
fn a_program_steers_where_it_decides() {
    let file = "> main = do\n>   tcp\n>   steer_flow\ngroup = 3\ngroup_eth1 = 4\n";
    let title = "main = do tcp steer_flow";
    let joined = format!("3 program [{title}] /etc/pcap.conf:4");
    assert_eq!(joins(&[], file, "eth0"), joined);
    assert_eq!(joins(&[], file, "eth1"), "4 default /etc/pcap.conf:5");
    assert_eq!(
        joins(&[("PCAP_FANOUT", "lb")], file, "eth0"),
        "3 lb /etc/pcap.conf:4"
    );
    let of_group = "group = 3\nfanout@3 = flow + defrag+weight=3 # by name";
    let joined = "3 program+defrag [flow] /etc/pcap.conf:1";
    assert_eq!(joins(&[], of_group, "eth0"), joined);
    let variable = [("PCAP_FANOUT_eth0", "udp >-> steer_rnd")];
    let joined = "3 program [udp >-> steer_rnd] /etc/pcap.conf:1";
    assert_eq!(joins(&variable, "group = 3", "eth0"), joined);
}

/// The place of the mistake in the steering program of a handle on eth0.
fn wrong(variables: &[(&str, &str)], config: &str) -> (&'static str, String) {
    let report = plan_with(&settings(variables, config), "eth0", None).unwrap_err();
    let rendered = report.render(255);
    let position = rendered.split(": ").next().unwrap_or_default();
    (
        report.slug,
        format!("{position} {}", report.place.unwrap().text),
    )
}

#[test]
fn what_is_wrong_with_a_program_is_shown_in_its_own_line() {
    let at = |text: &str| ("program-wrong", text.to_owned());
    let lines = "group = 3\n> main = do\n >  tcp\n >  steer_flwo\n";
    assert_eq!(wrong(&[], lines), at("/etc/pcap.conf:4:5  >  steer_flwo"));
    let value = "group = 3\nfanout@3 = main = tpc >-> steer_flow # x";
    let shown = "/etc/pcap.conf:2:19 fanout@3 = main = tpc >-> steer_flow # x";
    assert_eq!(wrong(&[], value), at(shown));
    let variables = [
        ("PCAP_GROUP", "3"),
        ("PCAP_FANOUT", "main = do\n  tpc\n  steer_flow"),
    ];
    assert_eq!(wrong(&variables, ""), at("environment:2:3   tpc"));
}

#[test]
fn what_a_group_of_the_kernels_cannot_do_is_refused_where_it_was_asked_for() {
    let report = wrong(
        &[("PCAP_GROUP", "3"), ("PCAP_FANOUT", "main = broadcast")],
        "",
    );
    let shown = "environment:1:13 PCAP_FANOUT=main = broadcast".to_owned();
    assert_eq!(report, ("program-needs-hub", shown));
}

#[test]
fn a_program_that_no_handle_joins_with_is_not_compiled() {
    let file = "group_eth1 = 3\ngroup_eth0 = 4\nfanout@3 = main = tpc >-> steer_flow";
    assert_eq!(joins(&[], file, "eth0"), "4 default /etc/pcap.conf:2");
}

#[test]
fn the_programmable_engine_is_steering_programs_in_the_kernel() {
    let group = [("PCAP_GROUP", "3"), ("PCAP_FANOUT", "flow")];
    let joined = "3 program [flow] PCAP_GROUP=3";
    assert_eq!(joins(&group, "", "pfq:eth1"), joined);
    assert_eq!(joins(&[], "", "pfq:eth1"), "");
    let asked = |variables: &[(&str, &str)], device: &str| {
        let plan = plan_with(&settings(variables, ""), device, None).unwrap();
        let on_engine = plan.on_engine.map(|it| (it.engine.name(), it.origin));
        (on_engine.unwrap_or_default(), plan.tpacket)
    };
    let xdp = |origin: &str| (("xdp", origin.to_owned()), false);
    assert_eq!(asked(&[], "pfq:eth1"), xdp("pfq:eth1"));
    assert_eq!(
        asked(&[("PCAP_DRIVER", "pfq")], "eth1"),
        xdp("PCAP_DRIVER=pfq")
    );
    let fallback = Device::classify("pfq:eth1", |name| name == "eth1").falling_back();
    let plan = settings(&[], "").plan(&fallback, None, &[], &|_| unreachable!());
    let plan = plan.unwrap();
    assert!(plan.on_engine.is_none() && plan.tpacket);
    let (slug, text) = refusal(&group, "", "pfq:");
    assert_eq!((slug, text.as_str()), ("device-of-no-group", "pfq:"));
}
