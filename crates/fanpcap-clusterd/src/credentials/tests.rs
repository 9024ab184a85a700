//! The keys of a process, at its start and after a SIGHUP.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fanpcap_linux::process::child;
use fanpcap_testkit::Scratch;
use rustls::{ClientConnection, ServerConnection};

use super::*;

fn write_key(scratch: &Scratch, byte: &str) -> PathBuf {
    let key = scratch.write("key", &byte.repeat(32)).unwrap();
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    key
}

#[test]
fn a_coordinator_needs_no_certificate_of_records() {
    let scratch = Scratch::new().unwrap();
    let key = write_key(&scratch, "k");
    let text = format!(
        "cluster = lab\nkey_file = {}\ncoordinators = 10.0.0.1:7700\nmode = capture\n\
         analyzers = 10.0.0.9:7710\ntransport = tcp\nrecords_ca = /absent/ca\n\
         records_certificate = /absent/c\nrecords_key = /absent/k\n",
        key.display()
    );
    let conf = Conf::parse(&text, "c").unwrap();
    for role in [Role::Node, Role::Analyzer] {
        conf.check_files(role).unwrap_err();
        keyring(&conf, role).unwrap_err();
    }
    conf.check_files(Role::Coordinator).unwrap();
    assert!(keyring(&conf, Role::Coordinator).unwrap().tls().is_some());
}

/// The messages of a reloader.
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn say(line: &str) {
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    said.push(line.to_owned());
}

/// A reloader, and the files that the reloader reads.
struct Machine {
    scratch: Scratch,
    ring: Arc<Keyring>,
    reloader: Reloader,
}

impl Machine {
    fn new() -> Self {
        let scratch = Scratch::new().unwrap();
        let key = write_key(&scratch, "1");
        let path = write_conf(&scratch, &format!("key_file = {}\n", key.display()));
        let ring = keyring(&Conf::load(&path).unwrap(), Role::Node).unwrap();
        let reloader = Reloader::new(&path, Role::Node, Arc::clone(&ring), say).unwrap();
        Self {
            scratch,
            ring,
            reloader,
        }
    }

    /// Sends SIGHUP to this process, and waits for the message about it. Returns the message, and
    /// whether there are new settings.
    fn hang_up(&mut self) -> (String, bool) {
        const SIGHUP: i32 = 1;
        child::signal(process::id(), SIGHUP).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let is_new = self.reloader.due().is_some();
            let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(line) = said.pop() {
                assert!(said.is_empty(), "{said:?}");
                return (line, is_new);
            }
            assert!(!is_new && Instant::now() < until, "nothing is said");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether an analyzer with this keyring accepts a node whose key is 32 bytes of this value.
    fn has(&self, byte: u8) -> bool {
        let keys = Keys {
            current: Key::new(vec![byte; 32]).unwrap(),
            other: None,
        };
        let (node, analyzer) = (Tls::of_keys(&keys).unwrap(), self.ring.tls().unwrap());
        let name = std::net::IpAddr::from([127, 0, 0, 1]).into();
        let mut client = ClientConnection::new(node.client, name).unwrap();
        let mut server = ServerConnection::new(Arc::clone(&analyzer.server)).unwrap();
        while server.is_handshaking() {
            let mut bytes = Vec::new();
            client.write_tls(&mut bytes).unwrap();
            server.read_tls(&mut &bytes[..]).unwrap();
            let of_server = server.process_new_packets();
            bytes.clear();
            server.write_tls(&mut bytes).unwrap();
            client.read_tls(&mut &bytes[..]).unwrap();
            if of_server.is_err() || client.process_new_packets().is_err() {
                return false;
            }
        }
        true
    }
}

fn write_conf(scratch: &Scratch, keys: &str) -> PathBuf {
    let text = format!("cluster = lab\nengine = fixed\nnodes = 1\n{keys}");
    scratch.write("cluster.conf", &text).unwrap()
}

/// All cases are one test, because a SIGHUP reaches the whole process with all its tests.
#[test]
fn after_a_mistake_at_sighup_the_old_key_stays_and_it_is_said() {
    let mut machine = Machine::new();
    assert!(machine.has(b'1') && !machine.has(b'2'));
    fs::remove_file(machine.scratch.file("key")).unwrap();
    let (said, is_new) = machine.hang_up();
    assert!(said.starts_with("the old keys and certificates stay in use: ") && !is_new);
    let file = machine.scratch.file("key").display().to_string();
    assert!(said.contains(&file), "{said}");
    assert!(machine.has(b'1'));
    // The file is read again only after the next signal.
    let key = write_key(&machine.scratch, "2");
    assert!(machine.reloader.due().is_none() && machine.has(b'1'));
    let (said, is_new) = machine.hang_up();
    assert!(said.starts_with("keys and certificates were read again") && is_new);
    assert!(machine.has(b'2') && !machine.has(b'1'));
    // If the operator removes the setting, the reloader must keep the key. Without a key, the
    // machine would accept strangers, and nobody would notice.
    write_conf(&machine.scratch, "");
    let (said, is_new) = machine.hang_up();
    assert!(said.contains("the settings no longer have a 'key_file'") && !is_new);
    assert!(key.exists() && machine.has(b'2'));
}
