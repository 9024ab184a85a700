//! Invented machines, and this one without modules of others.

use std::fs;
use std::os::unix::fs::symlink;

use super::*;
use fanpcap_testkit::Scratch;

fn ethernet(name: &str) -> Link {
    Link {
        name: name.to_owned(),
        flags: 1, // IFF_UP
        hardware: 1,
        ..Link::default()
    }
}

fn engine(name: &str) -> Driver {
    Driver::named(name).unwrap()
}

/// The fixes of what a device of DPDK lacks, apart from the plugin.
fn of_machine(device: &str, sys: &Path) -> Vec<String> {
    let lacks = of_dpdk(device, sys).into_iter();
    let fixes = lacks.map(|(_, fix)| fix);
    fixes.filter(|it| !it.contains("fanpcap-dpdk")).collect()
}

#[test]
fn a_device_of_dpdk_needs_huge_pages_and_a_driver() {
    let scratch = Scratch::new().unwrap();
    let sys = scratch.file("sys");
    let address = "0000:3b:00.0";
    let reserve = "sysctl vm.nr_hugepages=50    # ";
    let [huge, list] = &of_machine(address, &sys)[..] else {
        panic!("{:?}", of_dpdk(address, &sys));
    };
    assert!(huge.starts_with(reserve) && list.starts_with("dpdk-devbind.py --status"));
    let pages = sys.join("kernel/mm/hugepages/hugepages-2048kB");
    fs::create_dir_all(&pages).unwrap();
    fs::write(pages.join("free_hugepages"), "0\n").unwrap();
    fs::write(pages.join("nr_hugepages"), "128\n").unwrap();
    let fix = of_machine(address, &sys).remove(0);
    assert!(fix.starts_with("sysctl vm.nr_hugepages=178 "), "{fix}");
    fs::write(pages.join("free_hugepages"), "48\n").unwrap();
    let device = sys.join("bus/pci/devices").join(address);
    fs::create_dir_all(&device).unwrap();
    let bind = "dpdk-devbind.py --bind=vfio-pci 0000:3b:00.0";
    for driver in ["../drivers/ixgbe", "../drivers/vfio-pci"] {
        assert_eq!(of_machine("3b:00.0", &sys), [bind], "without {driver}");
        let _ = fs::remove_file(device.join("driver"));
        symlink(driver, device.join("driver")).unwrap();
    }
    assert!(of_machine(address, &sys).is_empty());
    assert!(of_machine("net_null0", &sys).is_empty());
    fs::remove_dir_all(&pages).unwrap();
    let fix = of_machine("net_null0", &sys).remove(0);
    assert!(
        fix.starts_with(reserve) && fix.ends_with("--no-huge"),
        "{fix}"
    );
    let [(what, fix)] = &of_dpdk("eth0", &sys)[..] else {
        panic!("a name that DPDK does not know");
    };
    assert!(what.contains("write a PCI address") && fix.contains("--status"));
}

#[test]
fn what_the_plugin_needs_is_told() {
    let path = || Path::new("/x").to_owned();
    assert!(of_plugin(&LoadError::Missing(path())).contains("install fanpcap-dpdk"));
    for error in [LoadError::NoPlugin(path()), LoadError::Version(path(), 1)] {
        assert!(of_plugin(&error).contains("--reinstall"));
    }
}

#[test]
fn modules_of_others_are_missed_and_devices_without_a_driver_refused() {
    let links = [ethernet("eth7")];
    let lacks = |name: &str| lacks(engine(name), "eth7", &links, Path::new("/"));
    let found = |name: &str| lacks(name).iter().map(Lack::finding).collect::<Vec<_>>();
    let netmap = found("netmap").remove(0);
    assert_eq!(
        (netmap.name, netmap.place.as_str()),
        ("engine-lacks", "netmap:eth7")
    );
    assert!(netmap.what.contains("/dev/netmap"), "{netmap:?}");
    assert!(netmap.fix.starts_with("modprobe netmap"), "{netmap:?}");
    let pfring = fanpcap_pfring::check()
        .err()
        .map(|error| of_pfring(error).0);
    for name in ["zc", "pfring"] {
        let lacks = found(name).into_iter().map(|it| it.what);
        assert!(lacks.eq(pfring.clone()), "{name}");
    }
    assert!(found("packet").is_empty());
    let lo = Link {
        flags: 1 | (1 << 3),
        ..ethernet("lo")
    };
    let (what, fix) = of_source(SourceKind::Afxdp, &lo).unwrap();
    assert!(
        what.contains("loopback") && fix.contains("fanpcap poller packet:lo"),
        "{fix}"
    );
    let down = Link {
        flags: 0,
        ..ethernet("eth7")
    };
    assert_eq!(of_source(SourceKind::Zc, &down), None);
}

#[test]
fn the_command_says_which_package_of_pf_ring_is_missing() {
    let (what, fix) = of_pfring(PfringError::Library("no such file"));
    assert!(what.contains("no such file") && fix.starts_with("apt-get install pfring "));
    assert!(
        of_pfring(PfringError::Module)
            .1
            .starts_with("modprobe pf_ring")
    );
}
