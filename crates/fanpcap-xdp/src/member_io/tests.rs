//! Tests a member's input.

use super::*;
use crate::test_group::{DeviceRegistry, Group, silent};
use fanpcap_testkit::netns::on_pair;

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn the_input_is_one_ring_with_its_port() {
    on_pair(|_| {
        let group = Group::of("main = steer_flow", DeviceRegistry::that_steals().maps());
        let (maps, _) = group.pool(96);
        let timeout = Some(Duration::from_millis(7));
        let member = PoolOfMember {
            program: group.program,
            pool: maps,
            snaplen: 96,
            sent: true,
        };
        let input = member.input(0, silent("vb"), timeout).unwrap();
        assert!(matches!(input.ring, Ring::Pool(_)));
        assert!(!input.port.is_socket());
        assert_eq!(input.timeout, timeout);
    });
}
