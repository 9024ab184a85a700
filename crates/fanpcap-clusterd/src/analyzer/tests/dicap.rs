//! The DiCAP paper's datagrams, from a node's shipper to files.

use fanpcap_cluster::loss_account::{Beacon, Report, Summary};

use super::super::extra_counter::{self, ExtraCounter};
use super::*;

/// A report without packets. An analyzer takes datagrams only from nodes that have sent it a
/// report.
fn counts() -> Report {
    let none = || Box::new([0; 4096]);
    Report {
        summary: Summary {
            node: NodeId(1),
            boot: 1,
            since: now(),
            stamp: now(),
            revision: Revision(1),
            ring: 0,
            beacon: Beacon::default(),
        },
        seen: none(),
        captured: none(),
    }
}

#[test]
fn headers_in_the_papers_datagrams_come_to_files() {
    let scratch = Scratch::new().unwrap();
    let directory = scratch.file("records");
    let (listen, port) = (free_address(), free_address().port());
    let ring = ring(Some(1));
    let mut settings = settings(listen, &ring, Some(&directory), 1 << 30);
    settings.dicap_port = Some(port);
    let mut analyzer_loop = AnalyzerLoop::open(&settings).unwrap();
    let mut node = shipper(1, RecordTransport::Dicap(Some(port)), listen, &ring);
    let extra_counter = |status: &Status, of: ExtraCounter| {
        let mut all = status.extra_counters.iter();
        all.find(|(it, _)| *it == of).map(|(_, count)| *count)
    };
    // Strangers send datagrams before the node does.
    for last in 2..=255 {
        let stranger = UdpSocket::bind(SocketAddr::from(([127, 0, 1, last], 0))).unwrap();
        stranger.send_to(&[1; 52], (listen.ip(), port)).unwrap();
    }
    node.report(counts());
    work_until(&mut analyzer_loop, |status| {
        !status.ages.is_empty() && extra_counter(status, extra_counter::DICAP_REFUSED) == Some(254)
    });
    ship(&mut node, 29);
    let short = UdpSocket::bind("127.0.0.1:0").unwrap();
    short.send_to(&[1; 53], (listen.ip(), port)).unwrap();
    let status = work_until(&mut analyzer_loop, |status| {
        extra_counter(status, extra_counter::DICAP_HEADERS) == Some(29)
            && extra_counter(status, extra_counter::DICAP_REFUSED) == Some(255)
    });
    assert_eq!(
        extra_counter(&status, extra_counter::DICAP_HEADERS),
        Some(29)
    );
    assert_eq!(
        extra_counter(&status, extra_counter::DICAP_REFUSED),
        Some(255)
    );
    assert_eq!((status.written, status.unwritten), (29, 0));
    assert!(status.json().contains("\"dicap_headers\":29"));
    let (packets, _) = packets(&directory);
    let header = |number: u32| {
        let mut header = number.to_be_bytes().to_vec();
        header.resize(52, 0);
        header
    };
    assert_eq!(packets, (0..29).map(header).collect::<Vec<_>>());
}
