//! Tests the changes to a device's channels, interrupts and threads that settings ask for.

use super::super::placement::{Kind, Placement, What};
use super::tests::{plan_with, settings};

fn placement(variables: &[(&str, &str)], config: &str, device: &str) -> Option<Placement> {
    let plan = plan_with(&settings(variables, config), device, None);
    plan.unwrap().placement
}

fn whats(placement: Option<Placement>) -> Vec<What> {
    let asks = placement.map_or_else(Vec::new, |it| it.asks);
    asks.into_iter().map(|ask| ask.what).collect()
}

#[test]
fn a_device_gets_what_its_settings_ask_channels_first() {
    let config = "irq@eth0.1 = 2-3\nnapi@eth0.0 = 1\ncombined_channels@eth0 = 2\n\
                  rx_channels@eth1 = 4";
    let expected = [
        What::Channels(Kind::Combined, 2),
        What::Irq(1, vec![(2, 3)]),
        What::Napi(0, 1),
    ];
    for device in ["eth0", "eth0:1"] {
        let found = placement(&[], config, device);
        assert_eq!(found.as_ref().map(|it| it.device.as_str()), Some("eth0"));
        assert_eq!(whats(found), expected);
    }
    assert_eq!(
        whats(placement(&[], config, "eth1")),
        [What::Channels(Kind::Rx, 4)]
    );
    assert_eq!(placement(&[], config, "eth2.7"), None);
    assert_eq!(placement(&[], "keep@eth0 = yes", "eth0"), None);
}

#[test]
fn the_environment_takes_precedence() {
    let config = "combined_channels@wan-1 = 2\nirq@wan-1.0 = 0\nirq@wan-1.1 = 1";
    let variables = [("PCAP_CHANNEL_wan_1", "4"), ("PCAP_IRQ_wan_1_0", "3")];
    let expected = [
        What::Channels(Kind::Receiving, 4),
        What::Irq(0, vec![(3, 3)]),
        What::Irq(1, vec![(1, 1)]),
    ];
    assert_eq!(whats(placement(&variables, config, "wan-1")), expected);
}

#[test]
fn settings_stay_where_that_is_asked() {
    let stays = |config| placement(&[], config, "eth0").unwrap().stays;
    assert!(!stays("rx_channels@eth0 = 2"));
    assert!(!stays("rx_channels@eth0 = 2\nkeep@eth0 = no"));
    assert!(stays("rx_channels@eth0 = 2\nkeep@eth0 = yes"));
}

#[test]
fn the_report_shows_the_setting() {
    let found = placement(&[], "rx_channels@eth0 = 2\nirq@eth0.7 = 1", "eth0");
    let report = found.unwrap().blame(Some(1), "it has no channel 7");
    assert_eq!(
        report.to_string(),
        "/etc/pcap.conf:2:1: device 'eth0' can't have this setting: it has no channel 7; \
         see 'fanpcap tune DEVICE', or remove the setting\nirq@eth0.7 = 1\n^"
    );
}
