//! Each behaviour on the system's library and on ours must have the same output and exit status.

use anyhow::Result;
use fanpcap_conformance::{Behaviour, Variant, run, variant};
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

fn compare(name: &str) -> Result<()> {
    run::compare(&Behaviour::named(name), &variant::compared())
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

/// Checks that handles of the variant XDP are on XDP. Without XDP, the handles would read packet
/// sockets, and the column of XDP in MATRIX.md would show the results of packet sockets.
#[test]
#[ignore = "needs root: live handles in network namespaces"]
fn handles_on_xdp_have_the_device() -> Result<()> {
    const LOOK: &str = r#"tcpdump -i "$2" -w - 2>tcpdump.log >/dev/null &
        for i in $(seq 300); do grep -q listening tcpdump.log && break; sleep 0.1; done
        ip -o link show dev "$2"; kill $!"#;
    let scratch = Scratch::new()?;
    for variant in variant::COMPARED {
        let mut command = variant.command("sh")?;
        command.args(["-c", LOOK, "sh"]);
        let out = run::run_in_scene(&scratch, command)?.success()?;
        let has_xdp = out.contains(" xdp ");
        assert_eq!(
            has_xdp,
            variant == Variant::Xdp,
            "{}: {out}",
            variant.name()
        );
    }
    Ok(())
}
