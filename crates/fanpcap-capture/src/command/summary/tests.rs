//! Tests of summaries, with made-up counters.

use super::*;
use crate::Kernel;

fn counts(captured: u64, received: u64, dropped: u64) -> Counts {
    Counts {
        captured,
        bytes: 100 * captured,
        cpu_ns: 2000 * captured,
        kernel: Some(Kernel {
            received,
            dropped,
            interface_dropped: 1,
        }),
        read_to_end: true,
        ..Counts::default()
    }
}

fn text(threads: &[Counts], received: u64, count: Option<u64>) -> String {
    let link = link::Counters {
        received,
        dropped: 1,
    };
    Summary::of(1_500_000_000, threads, Some(link), None)
        .text(count)
        .join("\n")
}

#[test]
fn figures_that_agree_are_said_to() {
    let text = text(&[counts(30, 40, 10), counts(10, 10, 0)], 50, None);
    insta::assert_snapshot!(text, @r"
    after 1.500 s:
    thread  captured  received by filter  dropped by kernel  dropped by interface    share  CPU time  CPU/packet
        #0        30                  40                 10                     1   75.0 %   0.000 s     2000 ns
        #1        10                  10                  0                     1   25.0 %   0.000 s     2000 ns
     total        40                  50                 10                     1  100.0 %   0.000 s     2000 ns
    link received 50, interface dropped 1, application received 40, application dropped 10
    received by filter 50 = captured 40 + dropped by kernel 10: adds up
    link received 50 = received by filter 50: adds up
    ");
}

#[test]
fn figures_that_disagree_are_said_to_and_by_how_much() {
    // The threads' differences cancel out in the sum. The summary must not hide them.
    let hidden = text(&[counts(31, 40, 10), counts(9, 10, 0)], 50, None);
    assert!(hidden.contains("DOES NOT ADD UP, by 2"), "{hidden}");
    let unread = Counts {
        read_to_end: false,
        ..counts(5, 40, 0)
    };
    let limited = text(&[unread], 60, Some(5));
    assert!(
        limited.contains("left unread when the count was reached 35"),
        "{limited}"
    );
    assert!(
        limited.contains("received by filter 40 + 20 more"),
        "{limited}"
    );
    let sent = text(&[counts(5, 5, 0)], 3, None);
    assert!(
        sent.contains("received by filter 5 - 2: sent by this host"),
        "{sent}"
    );
}

#[test]
fn only_what_nobody_can_explain_is_a_failure() {
    let of = |counts: &[Counts]| Summary::of(1, counts, None, None);
    let late = Counts {
        late_max: 12,
        ..counts(30, 42, 2)
    };
    let summary = of(&[late, counts(9, 9, 0)]);
    let text = summary.text(None).join("\n");
    let sum =
        "received by filter 51 = captured 39 + dropped by kernel 2 + filtered late 10: adds up";
    assert!(text.contains(sum), "{text}");
    assert!(summary.verdict().is_ok());
    let json: serde_json::Value = serde_json::from_str(&summary.json().unwrap()).unwrap();
    assert_eq!(json["total"]["filtered_late"], 10);
    assert_eq!(
        (&json["total"]["left"], &json["adds_up"]),
        (&0.into(), &true.into())
    );

    let unread = Counts {
        read_to_end: false,
        ..counts(5, 40, 0)
    };
    assert!(of(&[unread]).verdict().is_ok());
    let error = of(&[counts(31, 40, 10), counts(9, 10, 0)]).verdict();
    let error = error.unwrap_err().to_string();
    assert!(error.contains("disagree by 2 packets"), "{error}");
}

#[test]
fn what_was_not_written_is_told_and_why_the_group_is_not_known() {
    let counts = Counts {
        written: Some(28),
        ..counts(30, 30, 0)
    };
    let failed = fanpcap_pcap::Error {
        call: "pcap_fanout_stats",
        reason: "no such file".to_owned(),
    };
    let found = Group::of(7, Err(failed), None);
    let summary = Summary::of(1, &[counts], None, Some(found));
    let text = summary.text(None).join("\n");
    assert!(
        text.contains("captured 30 = written 28 + NOT WRITTEN 2"),
        "{text}"
    );
    let group = "group 7: its counters could not be read: pcap_fanout_stats: no such file";
    assert!(text.contains(group), "{text}");
    assert!(summary.json().unwrap().contains("no such file"));
}

#[test]
fn a_savefile_has_no_kernel() {
    let counts = Counts {
        captured: 3,
        ..Counts::default()
    };
    let summary = Summary::of(1, &[counts], None, None);
    assert_eq!(summary.text(None).len(), 3);
    let json: serde_json::Value = serde_json::from_str(&summary.json().unwrap()).unwrap();
    assert!(json["adds_up"].is_null() && json["total"]["received_by_filter"].is_null());
    assert_eq!(json["total"]["captured"], 3);
}
