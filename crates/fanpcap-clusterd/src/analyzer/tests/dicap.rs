//! The paper's datagrams, from a node's shipper to files.

use super::super::figure::Figure;
use super::*;

#[test]
fn headers_in_the_papers_datagrams_come_to_files() {
    let scratch = Scratch::new().unwrap();
    let directory = scratch.file("records");
    let (listen, port) = (free_address(), free_address().port());
    let ring = ring(None);
    let mut settings = settings(listen, &ring, Some(&directory), 1 << 30);
    settings.dicap_port = Some(port);
    let mut desk = Desk::open(&settings).unwrap();
    let mut node = shipper(1, Way::Dicap(Some(port)), listen, &ring);
    ship(&mut node, 29);
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.send_to(&[1; 53], (listen.ip(), port)).unwrap();
    let figure = |status: &Status, of: Figure| {
        let mut all = status.figures.iter();
        all.find(|(it, _)| *it == of).map(|(_, count)| *count)
    };
    let status = work_until(&mut desk, |status| {
        figure(status, Figure::DicapHeaders) == Some(29)
            && figure(status, Figure::DicapRefused) == Some(1)
    });
    assert_eq!(figure(&status, Figure::DicapHeaders), Some(29));
    assert_eq!(figure(&status, Figure::DicapRefused), Some(1));
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
