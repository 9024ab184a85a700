//! Reads any text, and changed valid files, as cluster.conf. The parser accepts the text, or
//! refuses it and names a place that exists in the text.
#![no_main]

use fanpcap_clusterd::conf::{Conf, Engine, Located, Mode};
use fanpcap_clusterd::shipping::RecordTransport;
use fanpcap_config::report::{Place, Report};
use fanpcap_select::Key;
use libfuzzer_sys::fuzz_target;
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

/// Valid files. Every key occurs in one of them.
const GOOD: [&str; 3] = [
    "cluster = office\nkey_file = /k1\nkey_file = /k2\ncoordinators = 10.0.0.1:7700, \
     [fd00::2]:7700\nmulticast = 239.255.70.1:7700\nmulticast_ttl = 3\nheartbeat = 2s\n\
     offline = 9500ms\nnode = a1\naddress = 10.0.0.5\nweight = 7\ndevice = eth1\nbeacon = eth2\n\
     mode = distribution\nselect = flow # of both directions\ndwell = 1s\nhold_down = 0s\n",
    "cluster = office\nkey_file = /k\nengine = etcd\netcd = https://10.0.0.1:2379/, \
     https://etcd-2:2379\netcd_ca = /ca\netcd_certificate = /c\netcd_key = /ck\n\
     etcd_user = fanpcap\netcd_password_file = /p\nlease = 4s\nmode = capture\nheader = 64\n\
     analyzers = 10.0.0.9:7710\ntransport = tcp\nrecords_ca = /rca\nrecords_certificate = /rc\n\
     records_key = /rk\n",
    "cluster = office\nengine = fixed\nnodes = a1, a2*3, b\ninitial = 4294967295\n\
     mode = capture\nanalyzers = 10.0.0.9:7710\ntransport = dicap\ndicap_port = 7711\n",
];

/// The valid files, after a check that the parser accepts them.
static GOODS: LazyLock<[&str; 3]> = LazyLock::new(|| {
    GOOD.map(|good| {
        Conf::parse(good, SOURCE).expect("a good file");
        check(good);
        good
    })
});

const SOURCE: &str = "cluster.conf";

fn check(text: &str) {
    let conf = match Conf::parse(text, SOURCE) {
        Ok(conf) => conf,
        Err(report) => return check_report(text, &report),
    };
    for place in places(&mut conf.clone()) {
        check_place(text, place);
    }
    let again = Conf::parse(&written(&conf), SOURCE).expect("settings written as they were read");
    assert_eq!(unplaced(again), unplaced(conf));
}

/// Checks that an error in a line names this line. An error about a missing setting has no line,
/// but names the file.
fn check_report(text: &str, report: &Report) {
    let _ = report.render(255);
    match &report.place {
        Some(place) => check_place(text, place),
        None => assert!(report.message.starts_with(SOURCE)),
    }
}

fn check_place(text: &str, place: &Place) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let line = text.lines().nth(place.line.checked_sub(1).expect("from 1"));
    assert_eq!(line, Some(place.text.as_str()));
    assert!((1..=place.text.chars().count() + 1).contains(&place.column));
    assert_eq!(place.source, SOURCE);
}

/// The places of all values that have one.
fn places(conf: &mut Conf) -> Vec<&mut Place> {
    let mut files: Vec<&mut Located<PathBuf>> = conf.key_files.iter_mut().collect();
    if let Some(records) = &mut conf.records {
        files.extend([&mut records.ca, &mut records.certificate, &mut records.key]);
    }
    if let Engine::Etcd(etcd) = &mut conf.engine {
        files.extend(&mut etcd.ca);
        files.extend(etcd.identity.iter_mut().flat_map(|(it, key)| [it, key]));
        files.extend(etcd.user.iter_mut().map(|(_, file)| file));
    }
    files.into_iter().map(|file| &mut file.place).collect()
}

fn unplaced(mut conf: Conf) -> Conf {
    for place in places(&mut conf) {
        *place = Place::new(SOURCE, 1, "", 0);
    }
    conf
}

/// The text of a file with these settings.
fn written(conf: &Conf) -> String {
    let mut file = File(String::new());
    file.set("cluster", Some(&conf.cluster));
    for key in &conf.key_files {
        file.path("key_file", Some(key));
    }
    file.engine(&conf.engine);
    file.set("node", conf.node);
    file.set("address", conf.address);
    file.set("weight", Some(conf.weight));
    file.set(
        "device",
        (!conf.devices.is_empty()).then(|| conf.devices.join(", ")),
    );
    file.set("beacon", conf.beacon.as_ref());
    let select = match conf.selection.key {
        Key::Packet => "packet",
        Key::Flow => "flow",
        Key::RoundRobin => "round_robin",
        Key::Identification => "identification",
    };
    file.set("select", Some(select));
    file.addresses("analyzers", &conf.analyzers);
    file.time("dwell", conf.dwell);
    file.time("hold_down", conf.hold_down);
    match conf.mode {
        Mode::Distribution => file.set("mode", Some("distribution")),
        Mode::Capture => file.capture(conf),
    }
    if matches!(conf.engine, Engine::Fixed(_)) {
        file.set("initial", Some(conf.selection.initial));
    }
    file.0
}

struct File(String);

impl File {
    fn set(&mut self, key: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.0 += &format!("{key} = {value}\n");
        }
    }

    fn path(&mut self, key: &str, file: Option<&Located<PathBuf>>) {
        self.set(key, file.map(|file| file.value.display()));
    }

    fn time(&mut self, key: &str, time: Duration) {
        self.set(key, Some(format!("{}ms", time.as_millis())));
    }

    fn addresses(&mut self, key: &str, addresses: &[SocketAddr]) {
        let all: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        self.set(key, Some(all.join(",")).filter(|_| !all.is_empty()));
    }

    fn engine(&mut self, engine: &Engine) {
        match engine {
            Engine::Embedded(embedded) => {
                self.set("engine", Some("embedded"));
                self.addresses("coordinators", &embedded.coordinators);
                self.set("multicast", embedded.multicast.map(|(group, _)| group));
                self.set("multicast_ttl", embedded.multicast.map(|(_, ttl)| ttl));
                self.time("heartbeat", embedded.heartbeat);
                self.time("offline", embedded.offline);
            }
            Engine::Etcd(etcd) => {
                self.set("engine", Some("etcd"));
                self.set("etcd", Some(etcd.endpoints.join(", ")));
                self.path("etcd_ca", etcd.ca.as_ref());
                let identity = etcd.identity.as_ref();
                self.path("etcd_certificate", identity.map(|(it, _)| it));
                self.path("etcd_key", identity.map(|(_, key)| key));
                self.set("etcd_user", etcd.user.as_ref().map(|(user, _)| user));
                self.path("etcd_password_file", etcd.user.as_ref().map(|it| &it.1));
                self.set("etcd_unencrypted", Some("yes"));
                self.time("lease", etcd.lease);
            }
            Engine::Fixed(nodes) => {
                let one = |(node, weight): &(_, u16)| format!("{node}*{weight}");
                let nodes: Vec<String> = nodes.iter().map(one).collect();
                self.set("engine", Some("fixed"));
                self.set("nodes", Some(nodes.join(", ")));
            }
        }
    }

    fn capture(&mut self, conf: &Conf) {
        self.set("mode", Some("capture"));
        self.set("header", Some(conf.header));
        let (way, port) = match conf.transport {
            RecordTransport::Tcp => ("tcp", None),
            RecordTransport::Dicap(port) => ("dicap", port),
        };
        self.set("transport", Some(way));
        self.set("dicap_port", port);
        let records = conf.records.as_ref();
        self.path("records_ca", records.map(|it| &it.ca));
        self.path("records_certificate", records.map(|it| &it.certificate));
        self.path("records_key", records.map(|it| &it.key));
    }
}

/// Changes a line of the file. The first character of `change` selects the line, the rest is its
/// new text. An empty text removes the line. With '+' a line is added, and with '=' only the value
/// is replaced.
fn change_line(lines: &mut Vec<String>, change: &str) {
    let mut rest = change.chars();
    let Some(at) = rest.next() else {
        return;
    };
    let at = at as usize % (lines.len() + 1);
    let text = rest.as_str();
    if let Some(added) = text.strip_prefix('+') {
        return lines.insert(at, added.to_owned());
    }
    match lines.get_mut(at) {
        Some(_) if text.is_empty() => drop(lines.remove(at)),
        Some(line) if text.starts_with('=') => {
            let key = line.split('=').next().unwrap_or_default().to_owned();
            *line = key + text;
        }
        Some(line) => *line = text.to_owned(),
        None => lines.push(text.to_owned()),
    }
}

/// The characters that have a meaning in a part of the grammar.
const MARKS: &[u8] = b"=#,*:/. \n\r\"[]0-+s\xff";

/// Changes or doubles a byte of the file, or adds a byte. The first two bytes of the argument
/// select the place, the third selects the change.
fn change_byte(text: &mut Vec<u8>, [high, low, what]: [u8; 3]) {
    let at = usize::from(u16::from_be_bytes([high, low]));
    let (is_new, at) = (at % 2 == 1, at / 2 % (text.len() + 1));
    let old = text.get(at).copied();
    let byte = match what {
        0..64 => old.unwrap_or(what),
        64..128 => what,
        128.. => MARKS[usize::from(what) % MARKS.len()],
    };
    match text.get_mut(at).filter(|_| !is_new && what >= 64) {
        Some(old) => *old = byte,
        None => text.insert(at, byte),
    }
}

// Tries the bytes as the text itself, and as changes of a valid file. One byte selects the file and
// whether bytes or lines change. The other bytes are the changes: if lines change, one change on
// each line.
fuzz_target!(|bytes: &[u8]| {
    check(&String::from_utf8_lossy(bytes));
    let Some((which, changes)) = bytes.split_first() else {
        return;
    };
    let good = GOODS[usize::from(which / 2) % GOODS.len()];
    if which % 2 == 0 {
        let mut lines = good.lines().map(str::to_owned).collect();
        for change in String::from_utf8_lossy(changes).lines() {
            change_line(&mut lines, change);
        }
        return check(&lines.join("\n"));
    }
    let mut text = good.as_bytes().to_vec();
    for change in changes.chunks_exact(3).flat_map(<[u8; 3]>::try_from) {
        change_byte(&mut text, change);
    }
    check(&String::from_utf8_lossy(&text));
});
