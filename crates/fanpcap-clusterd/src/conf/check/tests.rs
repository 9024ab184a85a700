//! Settings that are right one by one, but not together.

use fanpcap_cluster::NodeId;

use super::super::Conf;
use super::*;

const EMBEDDED: &str = "cluster = lab\nkey_file = /k\ncoordinators = 10.0.0.1:7700\n";
const ETCD: &str = "cluster = lab\nengine = etcd\netcd = https://10.0.0.1:2379\netcd_ca = /ca\n";

fn parsed(text: &str) -> Conf {
    Conf::parse(text, "c").unwrap()
}

fn said(text: &str) -> String {
    Conf::parse(text, "c").unwrap_err().to_string()
}

#[test]
fn what_is_not_set_has_the_papers_values() {
    let conf = parsed(EMBEDDED);
    let Engine::Embedded(embedded) = &conf.engine else {
        panic!("{conf:?}");
    };
    let seconds = Duration::from_secs;
    assert_eq!(
        (embedded.heartbeat, embedded.offline),
        (seconds(5), seconds(15))
    );
    assert_eq!(
        (conf.mode, conf.header, conf.weight),
        (Mode::Distribution, 52, 1)
    );
    // By default, whole connections are selected, unlike in DiCAP, because the applications behind
    // the nodes need them.
    assert_eq!(conf.selection.key, SelectionKey::Flow);
    let capture = format!("{EMBEDDED}mode = capture\nanalyzers = 10.0.0.9:1\n");
    assert_eq!(parsed(&capture).selection.key, SelectionKey::Packet);
    let asked = format!("{EMBEDDED}select = packet\n");
    assert_eq!(parsed(&asked).selection.key, SelectionKey::Packet);
    assert_eq!(conf.dwell, Duration::from_millis(250));
    // The default is not the paper's transport, UDP, whose datagrams may be lost.
    assert_eq!(conf.transport, RecordTransport::Tcp);
}

#[test]
fn each_engine_has_its_settings() {
    let etcd = format!("{ETCD}etcd_certificate = /c\netcd_key = /k\nlease = 2s\n");
    let Engine::Etcd(etcd) = parsed(&etcd).engine else {
        panic!();
    };
    let (certificate, key) = etcd.identity.unwrap();
    assert_eq!((certificate.value, key.value), ("/c".into(), "/k".into()));
    assert_eq!((key.place.line, key.place.column), (6, 12));
    assert_eq!(etcd.lease, Duration::from_secs(2));
    let fixed = "cluster = lab\nengine = fixed\nnodes = 1, 2*3\ninitial = 4294967295\n";
    let conf = parsed(fixed);
    assert_eq!(
        conf.engine,
        Engine::Fixed(vec![(NodeId(1), 1), (NodeId(2), 3)])
    );
    assert_eq!(conf.selection.initial, u32::MAX);
}

#[test]
fn what_is_missing_is_named() {
    for (text, what) in [
        ("", "no coordinator is named"),
        ("cluster = a\nkey_file = /k", "no coordinator is named"),
        (
            "cluster = a\ncoordinators = 1.2.3.4:5",
            "the key of control messages",
        ),
        ("cluster = a\nengine = etcd", "no endpoint of etcd"),
        (
            "cluster = a\nengine = etcd\netcd = https://a:1",
            "signs etcd's certificates",
        ),
        ("cluster = a\nengine = fixed", "no node is named"),
        ("engine = fixed\nnodes = 1", "the cluster's name"),
    ] {
        let said = said(text);
        assert!(said.starts_with("c: ") && said.contains(what), "{said}");
        assert!(said.contains("; write '"), "{said}");
    }
}

#[test]
fn what_contradicts_is_shown_at_its_place() {
    for (text, start) in [
        (
            format!("{EMBEDDED}lease = 5s"),
            "c:4:1: 'lease' is for engine 'etcd'",
        ),
        (
            format!("{EMBEDDED}offline = 9s"),
            "c:4:1: 'offline' is shorter",
        ),
        (
            format!("{EMBEDDED}heartbeat = 8s"),
            "c:4:1: 'offline' is shorter",
        ),
        (
            format!("{EMBEDDED}mode = capture"),
            "c:4:1: mode 'capture' needs",
        ),
        (
            format!("{EMBEDDED}transport = tcp"),
            "c:4:1: 'transport' is for mode 'capture'",
        ),
        (
            format!("{EMBEDDED}header = 64"),
            "c:4:1: 'header' is for mode",
        ),
        (format!("{ETCD}beacon = eth2"), "c:5:1: beacons need a key"),
        (
            "cluster = a\nengine = fixed\nnodes = 1\nbeacon = eth2".to_owned(),
            "c:4:1: engine 'fixed' has no coordinator",
        ),
        (
            "cluster = a\nengine = fixed\nnodes = 1, 2\nnode = 3".to_owned(),
            "c:4:1: node 00000003 is not in 'nodes'",
        ),
        (
            EMBEDDED.replace("7700", "7700, 10.0.0.1:7700"),
            "c:3:1: coordinator 10.0.0.1:7700 is named twice",
        ),
        (format!("{ETCD}etcd_user = u"), "c:5:1: 'etcd_user' without"),
        (format!("{ETCD}etcd_key = /k"), "c:5:1: 'etcd_key' without"),
        (
            ETCD.replace("https", "http"),
            "c:3:1: certificates need https",
        ),
    ] {
        let said = said(&text);
        assert!(said.starts_with(start), "{said}");
    }
}

const CAPTURE: &str = "mode = capture\nanalyzers = 10.0.0.9:7710\n";
const FILES: &str = "records_ca = /ca\nrecords_certificate = /c\nrecords_key = /k\n";

#[test]
fn certificates_of_records_need_each_other() {
    for more in ["", CAPTURE, &format!("{CAPTURE}transport = dicap\n")] {
        let whole = format!("{EMBEDDED}{more}{FILES}");
        let records = parsed(&whole).records.unwrap();
        assert_eq!(records.certificate.value, PathBuf::from("/c"));
    }
    assert_eq!(parsed(&format!("{EMBEDDED}{CAPTURE}")).records, None);
    let said = said(&format!("{EMBEDDED}{CAPTURE}records_ca = /ca\n"));
    let what = "'records_ca' without 'records_certificate'";
    assert!(said.contains(what), "{said}");
}

#[test]
fn the_papers_datagrams_have_a_port_of_their_own_or_none() {
    let paper = format!("{EMBEDDED}{CAPTURE}transport = dicap\n");
    assert_eq!(parsed(&paper).transport, RecordTransport::Dicap(None));
    let conf = parsed(&format!("{paper}dicap_port = 7711\n"));
    assert_eq!(conf.transport, RecordTransport::Dicap(Some(7711)));
    let said = said(&format!("{EMBEDDED}{CAPTURE}dicap_port = 7711\n"));
    assert!(
        said.contains("'dicap_port' is for transport 'dicap'"),
        "{said}"
    );
}

#[test]
fn no_secret_goes_by_http_unless_a_key_says_so() {
    let etcd = |url: &str| format!("cluster = lab\nengine = etcd\netcd = {url}\n");
    let login = "etcd_user = u\netcd_password_file = /p\n";
    let allowed = "etcd_unencrypted = yes\n";
    for url in ["http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1"] {
        parsed(&etcd(url));
        let said = said(&format!("{}{login}", etcd(url)));
        assert!(said.starts_with("c:3:1: the password and "), "{said}");
        parsed(&format!("{}{login}{allowed}", etcd(url)));
    }
    for url in [
        "http://10.0.0.1:1",
        "http://localhost.example:1",
        "http://127.0.0.1:1, http://a:1",
    ] {
        let said = said(&etcd(url));
        assert!(said.starts_with("c:3:1: the secret value "), "{said}");
        assert!(said.contains("'etcd_unencrypted = yes'"), "{said}");
        parsed(&format!("{}{allowed}", etcd(url)));
    }
    let no = format!("{}etcd_unencrypted = no\n", etcd("http://10.0.0.1:1"));
    assert!(said(&no).contains("unencrypted"));
    parsed(&format!("{ETCD}{login}"));
}

#[test]
fn packets_in_turn_come_by_one_device() {
    let two = format!("{EMBEDDED}device = eth1, eth2\n");
    assert_eq!(parsed(&two).devices, ["eth1", "eth2"]);
    let of_turns = said(&format!("{two}select = round_robin\nbeacon = eth3\n"));
    assert!(
        of_turns.contains("c:4:1: 'select = round_robin' with several devices"),
        "{of_turns}"
    );
    let twice = said(&format!("{EMBEDDED}device = eth1, eth1\n"));
    assert!(twice.contains("device 'eth1' is named twice"), "{twice}");
}
