//! The paper's datagrams, from a node's shipper to files.

use super::*;

#[test]
fn headers_in_the_papers_datagrams_come_to_files() {
    let scratch = Scratch::new().unwrap();
    let directory = scratch.file("records");
    let (listen, port) = (free_port(), free_port().port());
    let ring = ring(None);
    let mut desk = desk_with(listen, &ring, Some(&directory), 1 << 30, Some(port));
    let mut node = shipper(1, Way::Paper(Some(port)), listen, &ring);
    ship(&mut node, 29);
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.send_to(&[1; 53], ("127.0.0.1", port)).unwrap();
    let figure = |status: &Status, name: &str| {
        let mut all = status.figures.iter();
        all.find(|(it, _)| *it == name).map(|(_, count)| *count)
    };
    let status = work_until(&mut desk, |status| {
        figure(status, "dicap_headers") == Some(29) && figure(status, "dicap_refused") == Some(1)
    });
    assert_eq!(figure(&status, "dicap_headers"), Some(29));
    assert_eq!(figure(&status, "dicap_refused"), Some(1));
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
