//! Each behaviour on the system's library and on ours must have the same output and exit status.

use anyhow::Result;
use fanpcap_conformance::{Behaviour, Variant, run, variant};
use fanpcap_loading::skip;
use fanpcap_testkit::Scratch;

/// A test for each program, in a module for each family of programs.
macro_rules! differential {
    ($($family:ident: $($program:ident)*;)*) => {
        $(mod $family {
            $(#[test]
            #[ignore = "needs root: live handles in network namespaces"]
            fn $program() -> anyhow::Result<()> {
                super::compare(concat!(stringify!($family), "/", stringify!($program)))
            })*
        })*
        const LISTED: &[&str] = &[$($(concat!(stringify!($family), "/", stringify!($program)),)*)*];
    };
}

differential! {
    contents: any direction giant jumbo loopback promisc snaplen stamp_types stamps tunnel vlan
        vlan_any vlan_cut;
    devices: down_up elsewhere initialized list lookups removed renamed;
    files: damaged dead dump_errors dumped savefiles;
    filters: alternating compile_threads expressions images kernel_metadata matches no_memory
        optimizer queued queued_cooked queued_direction queued_half queued_metadata refused too_long
        truncating;
    handles: buffers child_closes defaults errors forked forked_twice inject links many missing
        monitor not_up open_live own_fanout protocol setters sockets statistics threads two
        unactivated unprivileged;
    names: addresses ethers links numbers statuses version;
    reading: blocks breakloop broken_early broken_often cancelled concurrent counts descriptors
        forked_while_read in_callback interrupted jumped_out longjump nested nonblock nothing_passes
        oneshot selectable stalled timeouts woken wraps;
}

/// Programs without a live handle. The command that writes MATRIX.md runs them with pollers, too.
const WITHOUT_HANDLES: [&str; 5] = [
    "names/",
    "files/damaged",
    "files/dead",
    "filters/images",
    "handles/unactivated",
];

fn compare(name: &str) -> Result<()> {
    let is_alone = WITHOUT_HANDLES.iter().any(|it| name.starts_with(it));
    let mut variants = variant::compared();
    variants.retain(|it| !is_alone || it.polled().is_empty());
    run::compare(&Behaviour::named(name), &variants)
}

#[test]
fn every_program_has_its_test() -> Result<()> {
    let programs: Vec<String> = Behaviour::all()?
        .into_iter()
        .map(|each| each.name)
        .collect();
    let mut listed = LISTED.to_vec();
    listed.sort_unstable();
    assert_eq!(programs, listed);
    Ok(())
}

#[test]
fn the_libraries_are_the_systems_and_ours() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = Behaviour::named("names/version").compile(&scratch, &[])?;
    for variant in [Variant::System].into_iter().chain(variant::COMPARED) {
        let out = fanpcap_loading::run(&scratch, &mut variant.command(&program)?)?.success()?;
        let ours = variant != Variant::System;
        assert_eq!(out.contains(run::MARK), ours, "{}: {out}", variant.name());
    }
    Ok(())
}

/// Checks that handles of the variants with engines are on these engines. Otherwise the handles
/// would read packet sockets, and the columns in MATRIX.md would show the results of packet
/// sockets.
#[test]
#[ignore = "needs root: live handles in network namespaces"]
fn handles_are_on_the_engines_of_their_variants() -> Result<()> {
    // The sockets of a poller are its listener, and one for each member.
    const LOOK: &str = r#"tcpdump -i "$3" -w - 2>tcpdump.log >/dev/null &
        for i in $(seq 300); do grep -q listening tcpdump.log && break; sleep 0.1; done
        ip -o link show dev "$3"; echo "sockets $(grep -c ":$1\$" /proc/net/unix)"
        grep -q libpfring /proc/$!/maps && echo "with PF_RING"; kill $!"#;
    let scratch = Scratch::new()?;
    for variant in variant::compared() {
        let mut command = variant.command("sh")?;
        let device = if variant == Variant::Dpdk {
            "net_af_packet1"
        } else {
            "vb"
        };
        command.args(["-c", LOOK, "sh", device]);
        let out = run::run_in_scene(&scratch, variant, command)?.success()?;
        let (has_xdp, sockets) = match variant {
            Variant::Xdp => (true, "sockets 0"),
            Variant::Packet | Variant::Dpdk | Variant::Netmap | Variant::Zc => (false, "sockets 2"),
            Variant::Afxdp => (true, "sockets 2"),
            Variant::System
            | Variant::Staged
            | Variant::Tpacket
            | Variant::Group
            | Variant::Pfring => (false, "sockets 0"),
        };
        let name = variant.name();
        assert_eq!(out.contains(" xdp "), has_xdp, "{name}: {out}");
        assert!(out.contains(sockets), "{name}: {out}");
        let has_rings = out.contains("with PF_RING");
        assert_eq!(has_rings, variant == Variant::Pfring, "{name}: {out}");
    }
    Ok(())
}

/// Says if the column of DPDK is not compared.
#[test]
fn dpdk_is_compared() {
    if !Variant::Dpdk.is_possible() {
        skip("no DPDK here ('make test-dpdk' installs libdpdk-dev)");
    }
}
