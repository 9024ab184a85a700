//! Nodes and analyzers with certificates, over loopback.

use std::path::PathBuf;
use std::process::Command;

use super::*;

/// Certificates made by openssl. [`Authority::new`] returns `None` if openssl is not installed.
struct Authority(Scratch);

impl Authority {
    fn new() -> Option<Self> {
        let authority = Self(Scratch::new().unwrap());
        if Command::new("openssl").arg("version").output().is_err() {
            println!("SKIP: no openssl");
            return None;
        }
        for name in ["ca", "other"] {
            let (key, file) = (authority.path(&format!("{name}.key")), authority.path(name));
            openssl(&format!(
                "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
                 -subj /CN={name} -keyout {key} -out {file}"
            ));
        }
        Some(authority)
    }

    fn path(&self, name: &str) -> String {
        self.0.file(name).display().to_string()
    }

    /// A certificate for this address, signed by `ca`.
    fn make(&self, ca: &str, name: &str, address: &str, times: &str) {
        let text = format!("subjectAltName=IP:{address}\nextendedKeyUsage=serverAuth,clientAuth\n");
        self.0.write("extensions", &text).unwrap();
        let path = |name: &str| self.path(name);
        let (key, request) = (path(&format!("{name}.key")), path("request"));
        openssl(&format!(
            "req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={name} \
             -keyout {key} -out {request}"
        ));
        let (ca, ca_key) = (path(ca), path(&format!("{ca}.key")));
        let (extensions, file) = (path("extensions"), path(name));
        openssl(&format!(
            "x509 -req -in {request} -CA {ca} -CAkey {ca_key} -CAcreateserial {times} \
             -extfile {extensions} -out {file}"
        ));
    }

    /// A keyring with this certificate.
    fn ring(&self, name: &str) -> Arc<Keyring> {
        let ring = ring(None);
        self.put(&ring, name);
        ring
    }

    fn put(&self, ring: &Keyring, name: &str) {
        let files = ["ca", name, &format!("{name}.key")].map(|name| PathBuf::from(self.path(name)));
        let tls = Tls::load(files.each_ref().map(|file| &**file));
        ring.set(Some(tls.unwrap()));
    }
}

fn openssl(words: &str) {
    let done = Command::new("openssl")
        .args(words.split_whitespace())
        .output();
    let done = done.unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "openssl {words}: {said}");
}

const DAYS: &str = "-days 2";
/// The certificate's validity begins and ends in the same second.
const NONE: &str = "-days 0";

#[test]
fn both_sides_need_a_certificate_that_is_right_and_valid() {
    let Some(authority) = Authority::new() else {
        return;
    };
    let listen = free_address();
    let own = listen.ip().to_string();
    authority.make("ca", "analyzer", &own, DAYS);
    authority.make("ca", "elsewhere", "127.0.0.2", DAYS);
    authority.make("other", "stranger", &own, DAYS);
    authority.make("ca", "expired", &own, NONE);
    thread::sleep(Duration::from_millis(1500));
    let analyzer = authority.ring("stranger");
    let mut analyzer_loop = analyzer_loop(listen, &analyzer, None, 1 << 30);
    let of_node = authority.ring("analyzer");
    let mut node = shipper(1, RecordTransport::Tcp, listen, &of_node);
    ship(&mut node, 10);
    await_trouble(
        &mut analyzer_loop,
        &node,
        "is not signed by an authority in 'records_ca'",
    );
    authority.put(&analyzer, "elsewhere");
    await_trouble(
        &mut analyzer_loop,
        &node,
        "its subjectAltName must have the IP address",
    );
    authority.put(&analyzer, "expired");
    await_trouble(&mut analyzer_loop, &node, "has expired: renew");
    // From here on, the node's certificate is wrong.
    authority.put(&analyzer, "analyzer");
    authority.put(&of_node, "stranger");
    let before = refused(&analyzer_loop.close(), Reason::Certificate);
    await_trouble(
        &mut analyzer_loop,
        &node,
        "it refuses this side: no authority in its 'records_ca' has signed",
    );
    authority.put(&of_node, "expired");
    await_trouble(
        &mut analyzer_loop,
        &node,
        "it refuses this side: this side's certificate has expired",
    );
    of_node.set(None);
    await_trouble(&mut analyzer_loop, &node, "closed the connection");
    assert!(refused(&analyzer_loop.close(), Reason::Certificate) >= before + 2);
    of_node.set(Some(tls_of(1, None)));
    let so_far = refused(&analyzer_loop.close(), Reason::Certificate);
    let is_refused = |status: &Status| refused(status, Reason::Certificate) > so_far + 1;
    assert!(is_refused(&work_until(&mut analyzer_loop, is_refused)));
    await_trouble(&mut analyzer_loop, &node, "one side has certificates");
    analyzer.set(Some(tls_of(1, None)));
    of_node.set(None);
    await_trouble(&mut analyzer_loop, &node, "closed the connection");
    authority.put(&of_node, "analyzer");
    await_trouble(&mut analyzer_loop, &node, "one side has certificates");
    authority.put(&analyzer, "analyzer");
    assert_eq!(analyzer_loop.close().counters.received, 0);
    // Both sides have the right certificates again, so the analyzer receives all waiting records.
    authority.put(&of_node, "analyzer");
    let status = work_until(&mut analyzer_loop, |status| status.counters.delivered == 10);
    assert_eq!(
        (status.counters.received, status.counters.delivered),
        (10, 10)
    );
    assert_eq!(close(&mut analyzer_loop, vec![node]), [(10, 0)]);
}

/// In a release build with `FANPCAP_HEADERS=20000000`, this test is a measurement.
#[test]
fn headers_a_second_by_certificates() {
    let Some(authority) = Authority::new() else {
        return;
    };
    let listen = free_address();
    authority.make("ca", "analyzer", &listen.ip().to_string(), DAYS);
    headers_a_second(listen, &authority.ring("analyzer"));
}
