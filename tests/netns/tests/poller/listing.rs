//! pcap_findalldevs(3PCAP) lists the devices that pollers serve.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use anyhow::{Result, ensure};
use fanpcap_linux::unix::named;
use fanpcap_netns::on_wire;
use fanpcap_poll::place;
use fanpcap_testkit::{Program, Scratch, library};
use std::os::fd::AsFd;

use crate::scene::Poller;

/// The devices of `tcpdump -D`, without their numbers, as root or as a user without capabilities.
fn listed(scratch: &Scratch, is_root: bool) -> Result<Vec<String>> {
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let program = match is_root {
        true => Program::new("tcpdump", "")?,
        false => Program::new("setpriv", "")?.args(nobody).arg("tcpdump"),
    };
    let ended = program.arg("-D").run(scratch)?;
    ensure!(ended.status.success(), "{}", ended.said);
    let lines = ended.said.lines();
    let names = lines.filter_map(|it| it.split_once('.')).map(|it| it.1);
    Ok(names.map(str::to_owned).collect())
}

#[test]
#[ignore = "needs root: run by make test"]
fn the_devices_of_pollers_that_answer_follow_those_of_libpcap() -> Result<()> {
    if !library::is_for_all_users()? {
        return Ok(());
    }
    on_wire(1, |wire| {
        let scratch = &wire.scratch;
        let without = listed(scratch, true)?;
        let poller = Poller::start("packet")?;
        // A poller that was killed leaves its socket's name.
        let (directory, _) = place::make()?;
        let left = place::name("afxdp", "vb");
        let socket = named::socket()?;
        named::listen(socket.as_fd(), &directory, &left, 0o666, 1)?;
        drop(socket);
        let with = listed(scratch, true)?;
        let (more, expected) = with.split_at(without.len().min(with.len()));
        ensure!(more == without, "{with:?}");
        ensure!(expected.len() == 1, "{with:?}");
        let start = "packet:vb (vb, from a poller) [Up, Running";
        ensure!(expected[0].starts_with(start), "{with:?}");
        // The user may not connect to the socket, and later may.
        for (mode, count) in [(0o660, 0), (0o666, 1)] {
            fs::set_permissions(poller.path()?, Permissions::from_mode(mode))?;
            let listed = listed(scratch, false)?;
            let found = listed.iter().filter(|it| it.contains("from a poller"));
            ensure!(found.count() == count, "{listed:?}");
        }
        directory.remove_file(&left)?;
        drop(poller);
        ensure!(listed(scratch, true)? == without);
        Ok(())
    })
}
