//! Filters. The tests check the packets that a filter selects, and the packets that came before the
//! filter was set.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::Result;
use fanpcap_testkit::await_for::LIMIT;
use fanpcap_testkit::traffic::Frame;
use fanpcap_testkit::{Capture, Program, Transport, await_for, library};

use super::{Wire, frames, number, summary};

#[test]
#[ignore = "needs root: a network namespace"]
fn a_filter_chooses_and_a_signal_brings_the_summary() {
    Wire::within(|wire| {
        let member = wire.start("--threads 2 --group 4711 udp and not port 1")?;
        let frames = frames(14, 3000)?;
        let is_udp = |frame: &&Frame| frame.flow.transport == Transport::Udp;
        let expected = frames.iter().filter(is_udp).count();
        wire.send(&frames)?;
        let files = [0, 1].map(|thread| wire.scratch.file(&format!("{thread}.pcap")));
        // Each second the command prints lines for users. In these lines, the second word is the
        // number of captured packets.
        await_for("the total", LIMIT, || {
            let said = member.said()?;
            let mut totals = said
                .lines()
                .filter_map(|line| line.trim().strip_prefix("total"));
            let captured = totals
                .next_back()
                .and_then(|total| total.split_whitespace().next());
            Ok((captured == Some(expected.to_string().as_str())).then_some(()))
        })?;
        member.signal("TERM")?;
        let ended = member.wait()?;
        let said = &ended.said;
        assert!(ended.status.success(), "{said}");
        let sum = format!(
            "received by filter {expected} = captured {expected} + dropped by kernel 0: adds up"
        );
        assert!(said.contains(&sum), "{said}");
        let link = format!(
            "link received 3000, interface dropped 0, application received {expected}, application dropped 0"
        );
        assert!(said.contains(&link), "{said}");
        assert!(said.contains("group 4711: 2 members"), "{said}");
        let written = files.map(|file| Capture::read(&file).unwrap());
        let mut packets = written.iter().flat_map(|capture| &capture.packets);
        assert!(packets.all(|packet| packet.flow.unwrap().transport() == Some(Transport::Udp)));
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: a network namespace"]
fn what_came_before_the_filter_was_set_is_accounted_for() {
    Wire::within(|wire| {
        let sending = AtomicBool::new(true);
        let frames = frames(20, 2000)?;
        thread::scope(|scope| {
            // The new thread is in the same network namespace as this thread.
            let flood = scope.spawn(|| -> Result<()> {
                while sending.load(Ordering::Relaxed) {
                    wire.send(&frames)?;
                }
                Ok(())
            });
            let ended = wire
                .plain("-i far --threads 8 --seconds 1 -B 4M --json -q udp port 1")?
                .run(&wire.scratch);
            sending.store(false, Ordering::Relaxed);
            flood.join().unwrap()?;
            let summary = super::summary(&ended?)?;
            // Each thread sets its filter right after it has opened its handle, but some packets
            // arrive before the filter is set.
            assert_eq!(summary["adds_up"], true, "{summary}");
            let total = &summary["total"];
            assert_eq!(number(total, "captured"), 0, "{summary}");
            let late = number(total, "filtered_late");
            let dropped = number(total, "dropped_by_kernel");
            assert_eq!(number(total, "received_by_filter"), late + dropped);
            // Without filters, every packet would be late or dropped. A thread may lose its CPU
            // before it sets its filter.
            let received = number(&summary["link"], "received");
            assert!(late + dropped < received / 2, "{summary}");
            Ok(())
        })
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: a network namespace"]
fn a_filter_that_the_kernel_can_not_run_is_no_disagreement() {
    Wire::within(|wire| {
        // libpcap creates a cooked header for packets of the device "any". The kernel's filter does
        // not see this header.
        let arguments = "capture -i any --json -q link[4] == 77";
        let program = Program::new(env!("CARGO_BIN_EXE_fanpcap"), "capturing on any")?
            .set("FANPCAP_LIB_DIR", library::library_dir()?)
            .args(arguments.split_whitespace());
        let member = program.start(&wire.scratch)?;
        wire.send(&frames(21, 500)?)?;
        let summary = summary(&member.stop()?)?;
        assert_eq!(summary["adds_up"], true, "{summary}");
        let late = number(&summary["total"], "filtered_late");
        assert!(late >= 500, "{summary}");
        Ok(())
    })
    .unwrap();
}
