//! Devices on which the command refuses to send, devices that are removed while it sends, and veth
//! peers in other namespaces.

use std::fs;
use std::thread;

use fanpcap_linux::interface;
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::netns;
use fanpcap_testkit::veth;
use fanpcap_testkit::veth::ip;

use crate::{DROP, FAR, NEAR, PASS, WAYS, failed, fanpcap_gen, pair, result};

#[test]
#[ignore = "needs root: namespaces, packet sockets"]
fn a_peer_in_a_namespace_with_a_name_is_found() {
    netns::within_new(|| {
        let _attached = pair(PASS)?;
        let name = format!("fpgg{}", std::process::id());
        ip(&format!("netns add {name}"))?;
        let done = || {
            ip(&format!("link set {FAR} netns {name}"))?;
            ip(&format!("-n {name} link set {FAR} up"))?;
            veth::await_up(NEAR)?;
            let result = result("--count 100 --portable")?;
            let place = format!("/run/netns/{name}");
            assert_eq!(result["peer"]["namespace"], place.as_str(), "{result}");
            assert_eq!(result["peer"]["received"], 100, "{result}");
            Ok(())
        };
        let done = done();
        ip(&format!("netns del {name}"))?;
        done
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, routes"]
fn devices_that_others_depend_on_are_refused() {
    netns::within_new(|| {
        let _attached = pair(PASS)?;
        let refused = |device: &str, why: &str| {
            let output = fanpcap_gen(&format!("-i {device} --count 1 --portable"))?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success() && said.contains(why), "{said}");
            let forced = fanpcap_gen(&format!("-i {device} --count 1 --portable --force"))?;
            let said = String::from_utf8_lossy(&forced.stderr).into_owned();
            assert!(forced.status.success(), "{said}");
            anyhow::Ok(())
        };
        refused("lo", "loopback")?;
        ip(&format!("address add 10.77.0.1/24 dev {NEAR}"))?;
        assert!(
            fanpcap_gen(&format!("-i {NEAR} --count 1 --portable"))?
                .status
                .success()
        );
        ip(&format!("route add default via 10.77.0.2 dev {NEAR}"))?;
        refused(NEAR, "default route")?;
        ip("route del default")?;
        fs::write(format!("/proc/sys/net/ipv6/conf/{FAR}/disable_ipv6"), "0")?;
        ip(&format!("-6 route add default dev {FAR}"))?;
        refused(FAR, "default route")?;
        ip("-6 route del default")?;
        // The device is also refused if the default route is in another table. The device's
        // alternative name is refused, too.
        ip(&format!(
            "route add default table 77 nexthop via 10.77.0.2 dev {NEAR}"
        ))?;
        refused(NEAR, "default route")?;
        ip(&format!("link property add dev {NEAR} altname fpggother"))?;
        refused("fpggother", "default route")?;
        ip("route del default table 77")?;
        // A device on top of the route's device sends through the route's device. So it is refused,
        // too.
        ip(&format!("route add default via 10.77.0.2 dev {NEAR}"))?;
        for kind in ["macvlan mode bridge", "ipvlan", "vlan id 5", "macsec"] {
            if ip(&format!("link add link {NEAR} name fpggup up type {kind}")).is_ok() {
                refused("fpggup", "default route")?;
                ip("link del fpggup")?;
            }
        }
        ip("route del default")?;
        // A device is also refused if a route leads over a device on top of it. The test uses a
        // bridge, and a VLAN if the kernel supports VLANs.
        if ip(&format!(
            "link add link {NEAR} name fpggvlan up type vlan id 5"
        ))
        .is_ok()
        {
            ip("address add 10.78.0.1/24 dev fpggvlan")?;
            ip("route add default via 10.78.0.2 dev fpggvlan")?;
            refused(NEAR, "below fpggvlan")?;
            ip("link del fpggvlan")?;
        }
        ip("link add fpggbr up type bridge")?;
        ip(&format!("link set {FAR} master fpggbr"))?;
        ip("route add default dev fpggbr")?;
        refused(FAR, "below fpggbr")?;
        let nothing = fanpcap_gen("-i nosuchdevice --count 1")?;
        let said = String::from_utf8_lossy(&nothing.stderr).into_owned();
        assert!(said.contains("no device 'nosuchdevice'"), "{said}");
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, eBPF"]
fn a_device_that_goes_ends_it_with_what_was_sent_before() {
    netns::within_new(|| {
        for (change, why) in [
            (format!("link set {NEAR} down"), "set down"),
            (format!("link set {FAR} down"), "no carrier"),
            (format!("link del {NEAR}"), "removed"),
        ] {
            for way in WAYS {
                let _attached = pair(DROP)?;
                let before = veth::counters(FAR)?.received;
                let (result, said) = thread::scope(|scope| {
                    let run = scope.spawn(|| failed(&format!("--rate 5000 --seconds 30 {way}")));
                    let began = await_for("frames", LIMIT, || {
                        Ok((veth::counters(FAR)?.received > before + 200).then_some(()))
                    });
                    let changed = began.and_then(|()| ip(&change));
                    changed.and_then(|()| run.join().unwrap())
                })?;
                assert!(said.contains(why), "{way} {change}: {said}");
                assert!(result["sent"].as_u64() > Some(100), "{result}");
                if interface::index(NEAR).is_some() {
                    ip(&format!("link del {NEAR}"))?;
                }
            }
        }
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, packet sockets"]
fn devices_that_cannot_send_are_refused_with_the_reason() {
    netns::within_new(|| {
        let _attached = pair(PASS)?;
        let refused = |arguments: &str, why: &str| {
            let output = fanpcap_gen(&format!("{arguments} --count 1 --portable"))?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success() && said.contains(why), "{said}");
            anyhow::Ok(())
        };
        let near = format!("-i {NEAR}");
        refused(&format!("{near} --len 1515"), "takes 1514 at most")?;
        refused(&format!("{near} --len 1519 --vlan 5"), "takes 1518 at most")?;
        refused(
            &format!("{near} --len 1515 --vlan 5 --vlan 6"),
            "takes 1514 at most",
        )?;
        for fits in [
            "--len 1514",
            "--len 1518 --vlan 5",
            "--len 1514 --vlan 5 --vlan 6",
        ] {
            result(&format!("{fits} --count 1 --portable"))?;
        }
        ip(&format!("link set {FAR} down"))?;
        refused(&near, "no carrier")?;
        ip(&format!("link set {NEAR} down"))?;
        refused(&near, "is down")?;
        ip("tuntap add fpggtun mode tun")?;
        ip("link set fpggtun up")?;
        refused("-i fpggtun", "no carrier")?;
        Ok(())
    })
    .unwrap();
}
