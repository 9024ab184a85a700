//! Picked CPUs on made-up machines.

use super::*;
use fanpcap_testkit::Scratch;
use std::os::unix::fs::symlink;

/// A made-up machine's sysfs and /proc.
struct Machine(Scratch);

impl Machine {
    /// `cpus` CPUs: CPU n is the sibling of CPU n + `cpus` / 2, and even CPUs are on node 0.
    fn new(cpus: usize) -> Self {
        let machine = Self(Scratch::new().unwrap());
        for cpu in 0..cpus {
            let first = cpu % (cpus / 2);
            let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            machine.write(&path, &format!("{first},{}\n", first + cpus / 2));
        }
        for node in 0..2 {
            let of_node: Vec<String> = (0..cpus)
                .filter(|cpu| cpu % 2 == node)
                .map(|cpu| cpu.to_string())
                .collect();
            let path = format!("sys/devices/system/node/node{node}/cpulist");
            machine.write(&path, &of_node.join(","));
        }
        machine
    }

    fn root(&self) -> PathBuf {
        self.0.file("")
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn choose(
        &self,
        device: Option<&str>,
        allowed: &[usize],
        copies: usize,
    ) -> (Vec<usize>, String) {
        let choice = choose(&Pinning::Auto, &self.root(), device, allowed, copies).unwrap();
        let cpus = choice.cpus.into_iter().map(Option::unwrap).collect();
        (cpus, choice.why)
    }
}

const ALL: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

#[test]
fn the_devices_node_without_the_receiving_cpus_one_thread_of_each_core_first() {
    let machine = Machine::new(8);
    machine.write("sys/class/net/eth0/device/numa_node", "0\n");
    machine.write("sys/class/net/eth0/device/msi_irqs/41", "");
    machine.write("proc/irq/41/effective_affinity_list", "0\n");
    let (cpus, why) = machine.choose(Some("eth0"), &ALL, 2);
    // Cores of node 0: CPUs 0 and 4, CPUs 2 and 6. CPU 0 receives; CPU 4 is its sibling.
    assert_eq!(cpus, [2, 4]);
    assert_eq!(
        why,
        "CPUs 2, 4 (eth0 is on node 0, eth0 is received on 0, one thread of each core)"
    );
    let (cpus, why) = machine.choose(Some("eth0"), &ALL, 4);
    assert_eq!(cpus, [2, 4, 6, 2]);
    assert!(why.ends_with("; 3 for 4: they share)"), "{why}");
    assert_eq!(machine.choose(Some("eth0"), &[0, 6], 1).0, [6]);
    let (cpus, why) = machine.choose(Some("eth0"), &[1, 3], 2);
    assert_eq!(cpus, [1, 3]);
    assert!(why.contains("none of eth0's node 0 is allowed"), "{why}");
}

#[test]
fn interrupts_by_name_of_the_device_or_its_driver() {
    let machine = Machine::new(8);
    let table = "\
           CPU0 CPU1
  24:  0 9  PCI-MSI 1-edge  virtio1-input.0
  25:  0 9  PCI-MSI 2-edge  virtio10-input.0
  26:  0 9  PCI-MSI 3-edge  eth1-TxRx-0
  27:  0 9  PCI-MSI 3-edge  eth10
 NMI:  0 9  Non-maskable interrupts eth1
";
    machine.write("proc/interrupts", table);
    for (interrupt, cpu) in [(24, "1"), (25, "2"), (26, "3-4"), (27, "5")] {
        machine.write(
            &format!("proc/irq/{interrupt}/effective_affinity_list"),
            cpu,
        );
    }
    machine.write("sys/devices/virtio1/x", "");
    machine.write("sys/class/net/eth0/mtu", "");
    let link = machine.root().join("sys/class/net/eth0/device");
    symlink(machine.root().join("sys/devices/virtio1"), link).unwrap();
    machine.write("sys/class/net/eth1/mtu", "");
    assert!(
        machine
            .choose(Some("eth0"), &ALL, 1)
            .1
            .contains("eth0 is received on 1, one")
    );
    assert!(
        machine
            .choose(Some("eth1"), &ALL, 1)
            .1
            .contains("eth1 is received on 3-4, one")
    );
}

#[test]
fn packet_steering_receives_too_and_a_vlan_is_its_device() {
    let machine = Machine::new(8);
    machine.write(
        "sys/class/net/eth0/queues/rx-0/rps_cpus",
        "00000000,00000005\n",
    );
    machine.write("sys/class/net/eth0/queues/tx-0/rps_cpus", "02\n");
    machine.write("sys/class/net/eth0.7/lower_eth0", "");
    let (cpus, why) = machine.choose(Some("eth0.7"), &ALL, 4);
    // Cores 1 and 3 receive nothing. Of cores 0 and 2, the siblings receive nothing.
    assert_eq!(cpus, [1, 3, 4, 6]);
    assert!(why.contains("eth0.7 is received on 0,2"), "{why}");
}

#[test]
fn when_all_receive_all_are_used() {
    let machine = Machine::new(4);
    machine.write("sys/class/net/eth0/queues/rx-0/rps_cpus", "f\n");
    let (cpus, why) = machine.choose(Some("eth0"), &[0, 1, 2, 3], 2);
    assert_eq!(cpus, [0, 1]);
    assert!(why.contains("eth0 is received on all of them"), "{why}");
}

#[test]
fn without_a_device_or_anything_known() {
    let machine = Machine::new(4);
    let (cpus, why) = machine.choose(None, &[0, 1, 2, 3], 3);
    assert_eq!(cpus, [0, 1, 2]);
    assert!(why.contains("no device is known"), "{why}");
    let empty = Scratch::new().unwrap();
    let choice = choose(&Pinning::Auto, &empty.file(""), Some("vb"), &[5], 2).unwrap();
    assert_eq!(choice.cpus, [Some(5), Some(5)]);
    assert!(
        choice
            .why
            .contains("has no NUMA or IRQ information: using all CPUs; 1 for 2"),
        "{}",
        choice.why
    );
}

#[test]
fn lists_are_taken_as_asked() {
    let wanted = Pinning::parse("3,0-1").unwrap();
    let choose = |allowed: &[usize], copies| choose(&wanted, Path::new("/"), None, allowed, copies);
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
