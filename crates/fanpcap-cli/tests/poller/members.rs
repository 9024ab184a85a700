//! What members of a poller get, and what the poller costs while nothing comes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::Scratch;
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::veth::{Veth, ip};

use crate::running::{Member, Poller, Sent, directory, within};
use crate::{FAR, NEAR};

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn members_get_each_packet_once_and_the_summary_counts_all() {
    within(|| {
        Veth::new(NEAR, FAR, 1)?;
        let poller = Poller::start(&format!("packet:{FAR}"), 1)?;
        let members: Result<Vec<Member>> = (0..3).map(|_| Member::enter("packet")).collect();
        let mut members = members?;
        let mut sent = Sent::new()?;
        sent.share(&mut members)?;
        let summary = poller.end()?;
        let expected = format!("packet:{FAR}      0  {:>8}        0", sent.count);
        ensure!(summary[2] == expected, "{summary:?}, not {expected}");
        let ledger = format!("groups: offered {0} = in rings {0} + dropped 0", sent.count);
        ensure!(summary[3].ends_with(&ledger), "{summary:?}, not {ledger}");
        for member in &mut members {
            let error = member.port.link().err().context("the poller has ended")?;
            ensure!(error.is_gone(), "{error}");
        }
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_policy_file_says_who_becomes_a_member_and_what_a_user_may_take() {
    within(|| {
        Veth::new(NEAR, FAR, 1)?;
        let scratch = Scratch::new()?;
        let text = format!("others = no\n[user root]\ndevices = packet:{FAR}\nmemory = 12M\n");
        let file = scratch.write("poller.conf", &text)?;
        let places = format!("packet:{FAR} packet:{NEAR} --policy {}", file.display());
        let _poller = Poller::start(&places, 2)?;
        let about = fs::metadata(directory()?.join(format!("packet:{FAR}")))?;
        ensure!(about.mode() & 0o777 == 0o666, "{:o}", about.mode());
        let mut members = vec![Member::enter("packet")?];
        for (device, expected) in [(FAR, "this user's members"), (NEAR, "the policy of")] {
            let said = Member::enter_at("packet", device).err().context(device)?;
            ensure!(said.to_string().contains(expected), "{device}: {said}");
        }
        Sent::new()?.share(&mut members)
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn one_poller_serves_several_devices_and_only_root_and_a_group_may_connect() {
    within(|| {
        Veth::new(NEAR, FAR, 1)?;
        let places = format!("packet:{FAR} packet:{NEAR} --socket-group 65534");
        let poller = Poller::start(&places, 2)?;
        for device in [NEAR, FAR] {
            let about = fs::metadata(directory()?.join(format!("packet:{device}")))?;
            let found = (about.uid(), about.gid(), about.mode() & 0o777);
            ensure!(found == (0, 65_534, 0o660), "{device}: {found:?}");
        }
        let mut members = vec![Member::enter("packet")?];
        Sent::new()?.share(&mut members)?;
        let summary = poller.end()?;
        ensure!(
            summary.len() == 6 && summary[4].starts_with("total"),
            "{summary:?}"
        );
        Ok(())
    })
    .unwrap();
}

/// Members of a group go, and a device is removed and comes back, while the poller runs.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_device_that_comes_back_is_served_again() {
    within(|| {
        Veth::new(NEAR, FAR, 1)?;
        let poller = Poller::start(&format!("packet:{FAR}"), 1)?;
        let mut members = vec![Member::enter("packet")?];
        let mut sent = Sent::new()?;
        sent.share(&mut members)?;
        ip(&format!("link del {FAR}"))?;
        poller.await_said("the device was removed")?;
        let error = members[0].port.link().err().context("the device is gone")?;
        ensure!(error.is_gone(), "{error}");
        Veth::new(NEAR, FAR, 1)?;
        await_for("the device's poller", LIMIT, || {
            Ok((poller.said()?.matches("serving").count() == 2).then_some(()))
        })?;
        let mut again = Sent::new()?;
        let mut members = vec![Member::enter("packet")?];
        again.share(&mut members)?;
        let summary = poller.end()?;
        let count = sent.count + again.count;
        ensure!(
            summary[2].contains(&format!(" {count} ")),
            "{count}: {summary:?}"
        );
        Ok(())
    })
    .unwrap();
}

/// The time of the CPU does not depend on what else runs on the machine.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn an_idle_poller_sleeps() {
    within(|| {
        Veth::new(NEAR, FAR, 1)?;
        let poller = Poller::start(&format!("packet:{FAR}"), 1)?;
        let _member = Member::enter("packet")?;
        let threads = || -> Result<u64> {
            let mut nanoseconds = 0;
            for thread in fs::read_dir(format!("/proc/{}/task", poller.id()))? {
                let text = fs::read_to_string(thread?.path().join("schedstat"))?;
                nanoseconds += text.split(' ').next().context("a time")?.parse::<u64>()?;
            }
            Ok(nanoseconds)
        };
        let before = threads()?;
        thread::sleep(Duration::from_secs(1));
        let used = threads()? - before;
        ensure!(used < 50_000_000, "{used} ns in a second");
        Ok(())
    })
    .unwrap();
}

/// A socket that is not in the kernel's group yet would get packets a second time.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn threads_that_share_a_device_get_each_packet_once() {
    within(|| {
        Veth::new(NEAR, FAR, 1)?;
        let mut sent = Sent::new()?;
        let poller = Poller::start(&format!("packet:{FAR} --queues 3"), 1)?;
        let mut members = vec![Member::enter("packet")?, Member::enter("packet")?];
        sent.share(&mut members)?;
        let summary = poller.end()?;
        let counts = |line: &String| line.split_whitespace().nth(2)?.parse::<u64>().ok();
        let queues: Vec<u64> = summary[2..5].iter().filter_map(counts).collect();
        ensure!(queues.iter().sum::<u64>() == sent.count, "{summary:?}");
        ensure!(queues.iter().all(|count| *count > 0), "{summary:?}");
        Ok(())
    })
    .unwrap();
}
