//! Tests of the choice of CPUs, on made-up machines, and of the CPUs on which a real bridge
//! receives.

use super::*;
use fanpcap_testkit::{Veth, netns, veth};

/// A machine of `cpus` CPUs. CPU n is the sibling of CPU n + `cpus` / 2, and even CPUs are on node
/// 0.
fn machine(cpus: usize) -> Vec<Cpu> {
    let cpu = |number| Cpu {
        number,
        core: number % (cpus / 2),
        node: number % 2,
        is_isolated: false,
    };
    (0..cpus).map(cpu).collect()
}

fn eth0(node: Option<usize>, cpus: &[usize]) -> Option<Reception> {
    Some(Reception {
        name: "eth0".to_owned(),
        node,
        cpus: cpus.iter().copied().collect(),
    })
}

/// The CPUs for copies on a machine of `cpus` CPUs, and the reason.
fn chosen(
    cpus: usize,
    device: Option<Reception>,
    allowed: &[usize],
    copies: usize,
) -> (Vec<usize>, String) {
    let choice = automatic(&machine(cpus), device, allowed, copies);
    let cpus = choice.cpus.into_iter().map(Option::unwrap).collect();
    (cpus, choice.why)
}

const ALL: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

#[test]
fn the_devices_node_without_the_receiving_cpus_one_thread_of_each_core_first() {
    let device = || eth0(Some(0), &[0]);
    let (cpus, why) = chosen(8, device(), &ALL, 2);
    // Node 0 has two cores: one with the CPUs 0 and 4, and one with the CPUs 2 and 6. CPU 0
    // receives, and CPU 4 is its sibling.
    assert_eq!(cpus, [2, 4]);
    assert_eq!(
        why,
        "CPUs 2, 4 (eth0 is on node 0, eth0 is received on 0, one thread of each core)"
    );
    let (cpus, why) = chosen(8, device(), &ALL, 4);
    assert_eq!(cpus, [2, 4, 6, 2]);
    assert!(why.ends_with("; 3 for 4: they share)"), "{why}");
    assert_eq!(chosen(8, device(), &[0, 6], 1).0, [6]);
    let (cpus, why) = chosen(8, device(), &[1, 3], 2);
    assert_eq!(cpus, [1, 3]);
    assert!(why.contains("none of eth0's node 0 is allowed"), "{why}");
}

#[test]
fn cores_that_receive_nothing_come_first() {
    let (cpus, why) = chosen(8, eth0(None, &[0, 2]), &ALL, 4);
    // Cores 1 and 3 receive nothing. Of cores 0 and 2, the siblings receive nothing.
    assert_eq!(cpus, [1, 3, 4, 6]);
    assert!(why.contains("eth0 is received on 0,2"), "{why}");
}

#[test]
fn when_all_receive_all_are_used() {
    let (cpus, why) = chosen(4, eth0(None, &[0, 1, 2, 3]), &[0, 1, 2, 3], 2);
    assert_eq!(cpus, [0, 1]);
    assert!(why.contains("eth0 is received on all of them"), "{why}");
}

#[test]
fn without_a_device_or_anything_known() {
    let (cpus, why) = chosen(4, None, &[0, 1, 2, 3], 3);
    assert_eq!(cpus, [0, 1, 2]);
    assert!(why.contains("no device is known"), "{why}");
    let choice = automatic(&[], eth0(None, &[]), &[5], 2);
    assert_eq!(choice.cpus, [Some(5), Some(5)]);
    assert!(
        choice
            .why
            .contains("has no NUMA or IRQ information: using all CPUs; 1 for 2"),
        "{}",
        choice.why
    );
    let unknown = Reception::of("no-such-device");
    assert!(unknown.node.is_none() && unknown.cpus.is_empty());
}

#[test]
fn lists_are_taken_as_asked() {
    let wanted = Pinning::parse("3,0-1").unwrap();
    let choose = |allowed: &[usize], copies| choose(&wanted, None, allowed, copies);
    assert_eq!(choose(&ALL, 2).unwrap().cpus, [Some(3), Some(0)]);
    let choice = choose(&ALL, 4).unwrap();
    assert_eq!(choice.cpus[3], Some(3));
    assert!(choice.why.contains("share"), "{}", choice.why);
    let error = choose(&[0, 1, 2], 1).unwrap_err().to_string();
    assert_eq!(
        error,
        "--cpus: this process may not run on CPU 3, only on 0-2"
    );
    for wrong in ["", "x", "3-1", "1,", "99999999"] {
        assert!(Pinning::parse(wrong).is_err(), "{wrong}");
    }
    assert_eq!(Pinning::parse("none").unwrap(), Pinning::None);
}

#[test]
#[ignore = "needs root: network namespaces, sysfs"]
fn packet_steering_receives_too_and_a_bridge_is_its_ports() {
    netns::within_new(|| {
        let wire = Veth::new("near", "far", 2)?;
        veth::ip("link add bridge0 type bridge")?;
        veth::ip("link set far master bridge0")?;
        let far = Device::open(wire.far).unwrap();
        let settings = Settings(&far);
        settings.write(&Setting::Rps(1).into(), "0").unwrap();
        for name in [wire.far, "bridge0"] {
            let found = Reception::of(name);
            assert_eq!(found.cpus, BTreeSet::from([0]), "{name}");
        }
        assert!(Reception::of(wire.near).cpus.is_empty());
        Ok(())
    })
    .unwrap();
}
