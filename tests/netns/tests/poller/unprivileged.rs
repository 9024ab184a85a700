//! Members without privileges: their packet sockets are apart from all networks.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use fanpcap_netns::{DEVICE, Wire, ensure_each_once, on_wire};
use fanpcap_testkit::{Member, Program, Scratch, needs, netns, traffic};

use crate::scene::Poller;

/// tcpdump as another user, without capabilities.
fn tcpdump(count: usize) -> Result<Program> {
    let nobody = [
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--no-new-privs",
        "tcpdump",
        "-n",
        "-i",
    ];
    let program = Program::new("setpriv", "listening on")?.args(nobody);
    let program = program.arg(format!("packet:{DEVICE}"));
    Ok(program.args(["-c", &count.to_string()]))
}

fn send(wire: &Wire, count: u64) -> Result<()> {
    wire.send_as_tap(&traffic::frames(1, &traffic::flows(1, 20), 0..count)?)
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_user_without_privileges_captures_alone_and_in_a_group() -> Result<()> {
    on_wire(1, |wire| {
        let poller = Poller::start("packet")?;
        if !needs::user_namespaces() {
            return Ok(());
        }
        fs::set_permissions(poller.path()?, Permissions::from_mode(0o666))?;
        let alone = tcpdump(500)?.start(&wire.scratch)?;
        let first = tcpdump(200)?.group(5, "flow").start(&wire.scratch)?;
        poller.await_groups(2)?;
        send(wire, 500)?;
        for (member, count) in [(alone, 500), (first, 200)] {
            let ended = member.wait()?;
            ensure!(ended.status.success(), "{}", ended.said);
            ensure!(ended.count(" packets captured")? == count, "{}", ended.said);
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_user_without_access_to_the_socket_is_told() -> Result<()> {
    on_wire(1, |wire| {
        let _poller = Poller::start("packet")?;
        if !needs::user_namespaces() {
            return Ok(());
        }
        let ended = tcpdump(1)?.run(&wire.scratch)?;
        let text = "this process may not use the poller of packet:vb: Permission denied";
        ensure!(
            !ended.status.success() && ended.said.contains(text),
            "{}",
            ended.said
        );
        Ok(())
    })
}

/// Calls `start` in another network namespace with the name of the poller's device there, which
/// `prefix` begins.
fn started_elsewhere(
    poller: &Poller,
    prefix: &str,
    start: impl Fn(&str) -> Result<Member> + Sync,
) -> Result<Member> {
    // As an administrator mounts the socket into a container. The name must be no device of another
    // test.
    let name = format!("{prefix}{}", std::process::id());
    let mounted = Path::new("/run/fanpcap-pollers").join(format!("packet:{name}"));
    fs::hard_link(poller.path()?, &mounted)?;
    let started = netns::within_new(|| start(&name));
    let removed = fs::remove_file(&mounted);
    let member = started?;
    removed?;
    Ok(member)
}

/// A member in another network namespace. `prefix` begins the device's name there. `own` is called
/// there with the device's name before the member starts and after it.
fn captures_from_elsewhere(
    prefix: &str,
    own: impl Fn(&str, bool) -> Result<()> + Sync,
) -> Result<()> {
    on_wire(1, |wire| {
        let poller = Poller::start("packet")?;
        let scratch = Scratch::new()?;
        let member = started_elsewhere(&poller, prefix, |name| {
            own(name, false)?;
            let file = scratch.file("far.pcap");
            let member = Program::tcpdump(&format!("packet:{name}"), file)?.start(&scratch)?;
            own(name, true)?;
            Ok(member)
        })?;
        let frames = traffic::frames(1, &traffic::flows(1, 20), 0..500)?;
        wire.send_as_tap(&frames)?;
        let captures = fanpcap_testkit::member::finish(vec![member], frames.len())?;
        ensure_each_once(&captures, &frames)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_member_in_another_namespace_captures_on_a_device_that_is_not_there() -> Result<()> {
    captures_from_elsewhere("far", |_, _| Ok(()))
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_member_captures_where_the_loopback_device_is_down() -> Result<()> {
    if !needs::user_namespaces() {
        return Ok(());
    }
    captures_from_elsewhere("low", |_, is_started| match is_started {
        false => ip(&["link", "set", "lo", "down"]).map(drop),
        true => Ok(()),
    })
}

/// The kernel makes no user namespaces in a chroot. Root needs none.
#[test]
#[ignore = "needs root: run by make test"]
fn a_member_in_a_chroot_captures_where_the_loopback_device_is_down() -> Result<()> {
    on_wire(1, |wire| {
        let poller = Poller::start("packet")?;
        let scratch = Scratch::new()?;
        let root = scratch.file("root");
        fs::create_dir(&root)?;
        let jail = "mount --rbind / \"$0\" && exec chroot \"$0\" \"$@\"";
        let tcpdump = ["tcpdump", "-n", "-Z", "root", "-c", "500", "-i"];
        let member = started_elsewhere(&poller, "jail", |name| {
            ip(&["link", "set", "lo", "down"])?;
            let program = Program::new("unshare", "listening on")?.args(["-m", "sh", "-c", jail]);
            let program = program.arg(&root).args(tcpdump);
            program.arg(format!("packet:{name}")).start(&scratch)
        })?;
        send(wire, 500)?;
        let ended = member.wait()?;
        ensure!(ended.count(" packets captured")? == 500, "{}", ended.said);
        Ok(())
    })
}

/// In such a container, files of the host's root belong to nobody.
#[test]
#[ignore = "needs root: run by make test"]
fn a_container_in_a_user_namespace_is_told_that_it_trusts_no_poller() -> Result<()> {
    on_wire(1, |wire| {
        let _poller = Poller::start("packet")?;
        if !needs::user_namespaces() {
            return Ok(());
        }
        let container = [
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "unshare",
        ];
        let program = Program::new("setpriv", "listening on")?.args(container);
        let program = program.args(["-U", "-r", "-n", "tcpdump", "-n", "-i", "packet:far"]);
        let ended = program.run(&wire.scratch)?;
        let text = "is not trusted (user 65534";
        ensure!(
            !ended.status.success() && ended.said.contains(text),
            "{}",
            ended.said
        );
        Ok(())
    })
}

fn ip(arguments: &[&str]) -> Result<String> {
    let ended = Command::new("ip").args(arguments).output()?;
    ensure!(ended.status.success(), "ip {arguments:?}: {ended:?}");
    Ok(String::from_utf8(ended.stdout)?)
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_member_leaves_another_device_of_its_devices_name_alone() -> Result<()> {
    captures_from_elsewhere("own", |name, is_started| {
        if !is_started {
            ip(&["link", "add", name, "type", "veth"])?;
            return ip(&["link", "set", name, "up"]).map(drop);
        }
        let said = ip(&["-d", "link", "show", name])?;
        ensure!(said.contains("promiscuity 0"), "{said}");
        Ok(())
    })
}
