//! The metrics of a made-up snapshot.

use super::*;
use fanpcap_snapshot::fixture;
use fanpcap_terminal::exposition;

#[test]
fn a_members_counters_have_its_labels() {
    let text = exposition::text(&of(&fixture::after()));
    let labels = "device=\"eth0\",ifindex=\"2\",group=\"7\",mode=\"hash+defrag\",pid=\"4713\",\
                  program=\"tcpdump\",socket=\"13\"";
    for (name, more, number) in [
        ("received_packets_total", "", "800000"),
        ("dropped_packets_total", ",cause=\"ring_full\"", "1234"),
        ("taken_packets_total", "", "798766"),
        ("backlog_packets", "", "7"),
        ("counters_age_seconds", "", "0.050"),
        ("program_counters_age_seconds", "", "0.050"),
        ("program_counter", ",counter=\"0\"", "12"),
        ("program_counter", ",counter=\"2\"", "-3"),
    ] {
        let line = format!("\nfanpcap_member_{name}{{{labels}{more}}} {number}\n");
        assert!(text.contains(&line), "{line} in:\n{text}");
    }
    for line in [
        "fanpcap_member_buckets{device=\"eth0\",ifindex=\"2\",group=\"7\",mode=\"hash+defrag\",pid=\"4711\",program=\"tcpdump\",socket=\"11\"} 2048\n",
        "fanpcap_group_gone_members_total{device=\"eth0\",ifindex=\"2\",group=\"7\",mode=\"hash+defrag\"} 1\n",
        "fanpcap_group_gone_packets_total{device=\"eth0\",ifindex=\"2\",group=\"7\",mode=\"hash+defrag\",fate=\"inherited\"} 30\n",
        "fanpcap_group_members{device=\"eth0\",ifindex=\"2\",group=\"7\",mode=\"hash+defrag\"} 4\n",
        "fanpcap_group_members_with_counters{device=\"eth0\",ifindex=\"2\",group=\"7\",mode=\"hash+defrag\"} 3\n",
        "fanpcap_group_members{device=\"eth0\",ifindex=\"2\",group=\"42\",mode=\"qm\"} 1\n",
        "fanpcap_device_dropped_packets_total{device=\"eth0\",ifindex=\"2\",cause=\"missed\"} 5\n",
        "fanpcap_device_received_bytes_total{device=\"eth0\",ifindex=\"2\"} 30815000000\n",
        "fanpcap_device_packet_sockets{device=\"eth0\",ifindex=\"2\"} 6\n",
        "fanpcap_device_stolen_from_host{device=\"eth0\",ifindex=\"2\"} 0\n",
    ] {
        assert!(text.contains(line), "{line} in:\n{text}");
    }
}

#[test]
fn a_group_on_xdp_has_its_ledger_and_its_members_classes() {
    let text = exposition::text(&of(&fixture::after_on_xdp()));
    for line in [
        "fanpcap_member_class{device=\"eth0\",ifindex=\"2\",group=\"7\",mode=\"hash+defrag\",pid=\"4711\",program=\"tcpdump\",socket=\"11\"} 2\n",
        "fanpcap_group_offered_packets_total{device=\"eth0\",ifindex=\"2\",group=\"7\",mode=\"hash+defrag\"} 3000000\n",
        "fanpcap_group_offered_packets_by_fate_total{device=\"eth0\",ifindex=\"2\",group=\"7\",mode=\"hash+defrag\",fate=\"steered_nowhere\"} 9000\n",
        "fanpcap_group_offered_packets_age_seconds{device=\"eth0\",ifindex=\"2\",group=\"7\",mode=\"hash+defrag\"} 1.000\n",
    ] {
        assert!(text.contains(line), "{line} in:\n{text}");
    }
    let text = exposition::text(&of(&fixture::after()));
    assert!(!text.contains("fanpcap_group_offered"), "{text}");
}

#[test]
fn a_stalled_member_has_no_backlog_and_one_that_waits_has_none_waiting() {
    let backlog = |snapshot: &Snapshot| {
        let text = exposition::text(&of(snapshot));
        let mut lines = text.lines();
        let line = lines.find(|line| {
            line.starts_with("fanpcap_member_backlog_packets{") && line.contains("\"4712\"")
        });
        line.and_then(|line| Some(line.rsplit_once(' ')?.1.to_owned()))
    };
    let mut snapshot = fixture::after();
    assert_eq!(backlog(&snapshot), None);
    if let Some(counts) = &mut snapshot.sockets[1].counts {
        counts.waits = true;
    }
    assert_eq!(backlog(&snapshot).as_deref(), Some("0"));
}

#[test]
fn members_that_wait_for_their_device_are_counted() {
    let mut snapshot = fixture::after();
    let waiting = |snapshot: &Snapshot| {
        let text = exposition::text(&of(snapshot));
        let lines = text.lines();
        let lines = lines.filter_map(|line| line.strip_prefix("fanpcap_device_waiting_members{"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(waiting(&snapshot).is_empty());
    snapshot.waiting = [("eth1", 2), ("eth2", 1)]
        .map(|(name, count)| (name.to_owned(), count))
        .into();
    let expected = [
        "device=\"eth1\",ifindex=\"4294967295\"} 2",
        "device=\"eth2\",ifindex=\"4294967295\"} 1",
    ];
    assert_eq!(waiting(&snapshot), expected);
}

#[test]
fn a_device_named_any_is_not_all_devices() {
    let mut snapshot = fixture::look(1);
    snapshot.devices = [0, 5]
        .map(|index| fixture::device(index, "any", [1; 4]))
        .into();
    let read = fixture::counts(1, 1, 0);
    snapshot.sockets = vec![fixture::member(1, 1, read), fixture::member(2, 1, read)];
    snapshot.sockets[0].ifindex = 0;
    snapshot.sockets[1].ifindex = 5;
    let text = exposition::text(&of(&snapshot));
    let series: Vec<&str> = text
        .lines()
        .filter_map(|line| Some(line.rsplit_once(' ')?.0))
        .filter(|series| !series.starts_with('#'))
        .collect();
    let different: std::collections::BTreeSet<&str> = series.iter().copied().collect();
    assert_eq!(series.len(), different.len(), "{text}");
    assert_eq!(text.matches("fanpcap_group_members{").count(), 2, "{text}");
}

/// The manual page names each metric, and no other.
#[test]
fn the_manual_has_every_metric() {
    let page = include_str!("../../../../../docs/man/fanpcap-metrics.in");
    let families = of(&fixture::after());
    for family in &families {
        let entry = format!("\n.B {}\n", family.name);
        assert!(page.contains(&entry), "{}", family.name);
    }
    assert_eq!(page.matches("\n.B fanpcap_").count(), families.len());
}

#[test]
fn what_is_unknown_has_no_sample() {
    let text = exposition::text(&of(&fixture::after()));
    // There is no sample for a member that never read its counters, nor for a member without our
    // library.
    assert!(!text.contains("pid=\"4714\"") && !text.contains("pid=\"5000\""));
    assert_eq!(exposition::text(&of(&fixture::look(1))), "");
}
