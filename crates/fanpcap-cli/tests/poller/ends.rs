//! Ends of pollers, and what they leave: nothing, or after SIGKILL a name that the next one takes.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::veth::{Veth, ip};

use crate::running::{Member, Poller, Sent, directory, refused, sockets, within};
use crate::{FAR, NEAR};

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_second_poller_is_refused_and_the_first_one_is_named() {
    within(|| {
        Veth::new(NEAR, FAR, 1)?;
        let poller = Poller::start(&format!("packet:{FAR}"), 1)?;
        let said = refused(&format!("packet:{FAR}"))?;
        let who = format!(
            "process {} (fanpcap) serves packet:{FAR} already",
            poller.id()
        );
        ensure!(said.contains(&who), "{said}");
        // A poller of another engine or device is another one.
        let _other = Poller::start(&format!("packet:{NEAR}"), 1)?;
        ensure!(sockets()?.len() == 2, "{:?}", sockets()?);
        let mut members = vec![Member::enter("packet")?];
        Sent::new()?.share(&mut members)
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_poller_leaves_nothing_when_it_is_told_to_end() {
    within(|| {
        Veth::new(NEAR, FAR, 1)?;
        let poller = Poller::start(&format!("packet:{FAR}"), 1)?;
        let _member = Member::enter("packet")?;
        poller.end()?;
        let directory = directory()?;
        ensure!(!directory.exists(), "{directory:?} is left");
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn the_name_of_a_killed_poller_is_taken_over() {
    within(|| {
        Veth::new(NEAR, FAR, 1)?;
        let mut members: Vec<Member> = Vec::new();
        for _ in 0..3 {
            let poller = Poller::start(&format!("packet:{FAR}"), 1)?;
            let mut own = vec![Member::enter("packet")?];
            Sent::new()?.share(&mut own)?;
            poller.kill()?;
            members.append(&mut own);
        }
        for member in &mut members {
            let error = member.port.link().err().context("a poller has ended")?;
            ensure!(error.is_gone(), "{error}");
            ensure!(member.tasks.attend().is_lost);
        }
        Poller::start(&format!("packet:{FAR}"), 1)?.end()?;
        ensure!(sockets()?.is_empty());
        Ok(())
    })
    .unwrap();
}

/// A later namespace may have the number of one that has ended.
#[test]
#[ignore = "needs root: packet sockets in namespaces"]
fn a_poller_removes_what_killed_ones_have_left_in_other_namespaces() {
    within(|| {
        Veth::new(NEAR, FAR, 1)?;
        let poller = Poller::start(&format!("packet:{FAR}"), 1)?;
        let left = PathBuf::from(format!("{}7", directory()?.display()));
        fs::create_dir_all(&left)?;
        fs::write(left.join("packet:gone.lock"), "")?;
        drop(UnixListener::bind(left.join("packet:gone"))?);
        within(|| {
            Veth::new(NEAR, FAR, 1)?;
            Poller::start(&format!("packet:{FAR}"), 1)?.end()
        })?;
        ensure!(!left.exists(), "{left:?} is left");
        let said = refused(&format!("packet:{FAR}"))?;
        ensure!(said.contains("already"), "{said}");
        let mut members = vec![Member::enter("packet")?];
        Sent::new()?.share(&mut members)?;
        drop(poller);
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_device_that_is_down_is_reported_until_it_is_up_again() {
    within(|| {
        Veth::new(NEAR, FAR, 1)?;
        let poller = Poller::start(&format!("packet:{FAR}"), 1)?;
        ip(&format!("link set {FAR} down"))?;
        poller.await_said("no packets come: the device is down")?;
        // No packets come that would show it.
        ip(&format!("link set {NEAR} down"))?;
        ip(&format!("link set {FAR} up"))?;
        poller.await_said("no longer: no packets come: the device is down")
    })
    .unwrap();
}

/// A process may listen on the name and have no lock, if somebody has removed the lock's file.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_poller_that_is_refused_leaves_the_other_ones_socket() {
    within(|| {
        Veth::new(NEAR, FAR, 1)?;
        let _poller = Poller::start(&format!("packet:{FAR}"), 1)?;
        fs::remove_file(directory()?.join(format!("packet:{FAR}.lock")))?;
        for _ in 0..2 {
            let said = refused(&format!("packet:{FAR}"))?;
            ensure!(said.contains("serves packet:"), "{said}");
        }
        let mut members = vec![Member::enter("packet")?];
        Sent::new()?.share(&mut members)
    })
    .unwrap();
}

/// A poller that members have taken over could run no program, and could do little in the kernel.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn all_threads_of_a_poller_are_confined_and_have_few_capabilities() {
    within(|| {
        Veth::new(NEAR, FAR, 1)?;
        let poller = Poller::start(&format!("packet:{FAR} --queues 2"), 1)?;
        let confined = || -> anyhow::Result<bool> {
            let mut count = 0;
            for thread in fs::read_dir(format!("/proc/{}/task", poller.id()))? {
                let status = fs::read_to_string(thread?.path().join("status"))?;
                let permitted = status.lines().find_map(|it| it.strip_prefix("CapPrm:\t"));
                let permitted = u64::from_str_radix(permitted.context("proc(5)")?, 16)?;
                // CAP_NET_RAW and CAP_BPF.
                let is_allowed = permitted & !((1 << 13) | (1 << 39)) == 0;
                if !is_allowed || !status.contains("Seccomp:\t2\n") {
                    return Ok(false);
                }
                count += 1;
            }
            Ok(count >= 3)
        };
        // The line about the device comes before.
        await_for("seccomp", LIMIT, || Ok(confined()?.then_some(())))
    })
    .unwrap();
}
